//! A small HTTP/1.1 client that knows the one thing that matters here: whether a request may have reached the broker.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than the ten seconds that a broker holds a caller whose outcome it cannot tell.
const ANSWER: Duration = Duration::from_secs(12);

/// A connection that is made anew when it broke.
pub struct Connection {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
    /// How long an answer is waited for.
    pub patience: Duration,
}

pub struct Response {
    pub status: u16,
    pub body: String,
}

/// Why there is no answer.
pub enum Broken {
    /// Nothing was sent.
    Unsent(io::Error),
    /// It may have arrived.
    Sent(io::Error),
}

impl Connection {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, patience: ANSWER }
    }

    pub fn get(&mut self, path: &str) -> Result<Response, Broken> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    pub fn post(&mut self, path: &str, body: &str) -> Result<Response, Broken> {
        let length = body.len();
        self.send(format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"))
    }

    fn send(&mut self, request: String) -> Result<Response, Broken> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.address, self.patience).map_err(Broken::Unsent)?,
        };
        // From the first byte on nobody can tell.
        stream.get_mut().write_all(request.as_bytes()).map_err(Broken::Sent)?;
        let (response, keep) = read(&mut stream).map_err(Broken::Sent)?;
        if keep {
            self.stream = Some(stream);
        }
        Ok(response)
    }
}

fn connect(address: SocketAddr, patience: Duration) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    Ok(BufReader::new(stream))
}

fn read(stream: &mut BufReader<TcpStream>) -> io::Result<(Response, bool)> {
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| broken("the connection was closed"))?;
    let (mut length, mut keep) = (0, true);
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Err(broken("the connection was closed in the middle of an answer"));
        }
        let header = line.trim_end().to_ascii_lowercase();
        match header.split_once(':').map(|(name, value)| (name, value.trim())) {
            Some(("content-length", value)) => length = value.parse().map_err(|_| broken("a length"))?,
            Some(("transfer-encoding", _)) => return Err(broken("this client reads no chunks")),
            Some(("connection", "close")) => keep = false,
            Some(_) => {}
            None if header.is_empty() => break,
            None => return Err(broken("not a header")),
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let body = String::from_utf8(body).map_err(|_| broken("not UTF-8"))?;
    Ok((Response { status, body }, keep))
}
