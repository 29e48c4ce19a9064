//! A TCP proxy between a broker and Postgres that breaks connections where it hurts most.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What is done to the connection that next carries a request of at least so many bytes.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// The request arrives whole, its answer does not.
    AfterRequest,
    /// Only so many bytes of the request arrive.
    WithinRequest(usize),
    /// Only so many bytes of the answer come back.
    WithinAnswer(usize),
}

pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Armed for the next request of at least this many bytes, on any connection.
    cut: Option<(usize, Cut)>,
    cuts: u64,
    /// Nothing passes towards Postgres.
    stalled: bool,
    closed: bool,
    connections: Vec<(TcpStream, TcpStream)>,
}

impl Proxy {
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared { upstream, state: Mutex::default(), changed: Condvar::new() });
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.state().closed {
                    return;
                }
                accepting.connect(client);
            }
        });
        Self { address, shared }
    }

    /// Closes every connection at once.
    pub fn cut_all(&self) {
        for (client, server) in self.shared.state().connections.drain(..) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// Arms one cut. Small requests, such as the heartbeat's, can be spared by `least`.
    pub fn cut_next(&self, least: usize, cut: Cut) {
        self.shared.state().cut = Some((least, cut));
    }

    /// How many armed cuts have struck.
    pub fn cuts(&self) -> u64 {
        self.shared.state().cuts
    }

    /// Holds everything that is sent to Postgres until [`Self::flow`].
    pub fn stall(&self) {
        self.shared.state().stalled = true;
    }

    pub fn flow(&self) {
        self.shared.state().stalled = false;
        self.shared.changed.notify_all();
    }

    /// Nothing armed, nothing held.
    pub fn heal(&self) {
        self.shared.state().cut = None;
        self.flow();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.heal();
        self.cut_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        // A server that is down refuses; so does the proxy, by closing.
        let Ok(server) = TcpStream::connect(self.upstream) else { return };
        let both = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
        let (Some(here), Some(there), Some(kept)) = (both(), both(), both()) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let link = Arc::new(Mutex::new(None));
        let mut state = self.state();
        state.connections.retain(|(client, _)| client.peer_addr().is_ok());
        state.connections.push(kept);
        drop(state);
        let (shared, answers) = (self.clone(), link.clone());
        thread::spawn(move || shared.carry_requests(here.0, here.1, &link));
        let shared = self.clone();
        thread::spawn(move || shared.carry_answers(there.1, there.0, &answers));
    }

    /// `link`: how many bytes of answers may still pass; all when none.
    fn carry_requests(&self, mut client: TcpStream, mut server: TcpStream, link: &Mutex<Option<usize>>) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let mut state = self.state();
            while state.stalled && !state.closed {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let cut = state.cut.take_if(|(least, _)| length >= *least).map(|(_, cut)| cut);
            state.cuts += u64::from(cut.is_some());
            drop(state);
            // Before anything is sent, or the server could answer first.
            if let Some(cut) = cut {
                let back = if let Cut::WithinAnswer(bytes) = cut { bytes } else { 0 };
                *link.lock().unwrap_or_else(PoisonError::into_inner) = Some(back);
            }
            let passing = if let Some(Cut::WithinRequest(bytes)) = cut { bytes.min(length) } else { length };
            let arrived = server.write_all(&buffer[..passing]).is_ok();
            if !arrived || matches!(cut, Some(Cut::AfterRequest | Cut::WithinRequest(_))) {
                let _ = client.shutdown(Shutdown::Both);
                break;
            }
        }
        // Postgres does what arrived, then closes its end, and with it the other direction.
        let _ = server.shutdown(Shutdown::Write);
    }

    fn carry_answers(&self, mut server: TcpStream, mut client: TcpStream, link: &Mutex<Option<usize>>) {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            let left = &mut *link.lock().unwrap_or_else(PoisonError::into_inner);
            let passing = left.map_or(length, |left| left.min(length));
            if let Some(left) = left {
                *left -= passing;
            }
            let _ = client.write_all(&buffer[..passing]);
            if *left == Some(0) {
                // What is still to come is read and dropped: Postgres must not notice before it is done.
                let _ = client.shutdown(Shutdown::Both);
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

mod tests {
    use super::*;

    /// A server that answers each request of any length with ten bytes, and tells what it read.
    fn server() -> (SocketAddr, std::sync::mpsc::Receiver<usize>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut buffer = [0; 100];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    let _ = (tell.send(length), stream.write_all(b"0123456789"));
                }
            }
        });
        (address, told)
    }

    fn ask(proxy: &Proxy) -> usize {
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream.write_all(&[b'x'; 20]).unwrap();
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer.len()
    }

    #[test]
    fn cuts_happen_where_they_were_asked_for() {
        let (address, told) = server();
        let proxy = Proxy::start(address);
        let cases = [
            (None, 20, 10),
            (Some(Cut::AfterRequest), 20, 0),
            (Some(Cut::WithinRequest(7)), 7, 0),
            (Some(Cut::WithinAnswer(4)), 20, 4),
        ];
        for (cut, arrives, comes_back) in cases {
            if let Some(cut) = cut {
                proxy.cut_next(10, cut);
            }
            let answer = ask(&proxy);
            assert_eq!(told.recv().unwrap(), arrives, "{cut:?}");
            assert_eq!(answer, comes_back, "{cut:?}");
        }
        assert_eq!(proxy.cuts(), 3);
    }

    #[test]
    fn what_is_held_arrives_later() {
        let (address, told) = server();
        let proxy = Proxy::start(address);
        proxy.stall();
        let mut stream = TcpStream::connect(proxy.address).unwrap();
        stream.write_all(b"held").unwrap();
        assert!(told.recv_timeout(std::time::Duration::from_millis(100)).is_err());
        proxy.flow();
        assert_eq!(told.recv().unwrap(), 4);
    }
}
