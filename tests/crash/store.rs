//! Postgres as a run sees it: a private server, a database, and a proxy before it for each broker.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tidegate_store_postgres::fixture::Cluster;

use crate::proxy::Proxy;

pub struct Store {
    pub cluster: Cluster,
    pub database: String,
    pub proxies: Vec<Proxy>,
}

impl Store {
    pub fn start() -> Self {
        let cluster = Cluster::private(&["max_connections=100"]);
        let url = cluster.database();
        let database = url.split(['/', '?']).nth(3).expect("a URL names its database").to_owned();
        Self { cluster, database, proxies: Vec::new() }
    }

    /// A URL that leads through a proxy of its own.
    pub fn url(&mut self) -> String {
        let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, self.cluster.port())));
        let url = format!("postgres://postgres@{}/{}", proxy.address, self.database);
        self.proxies.push(proxy);
        url
    }

    /// SIGKILL to the whole server, and a start after a while.
    pub fn kill(&self, pause: Duration) {
        self.cluster.kill();
        std::thread::sleep(pause);
        self.cluster.start();
    }
}
