//! Accepts connections, limits their number, and serves HTTP on them.

mod connection;
mod dispatch;
mod headless_connections;
mod hyper_errors;
mod spare_fd;
mod write_timeout;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use self::dispatch::{AtAdminAddress, AtClientAddress, ClientAddress, ListenerRoutes};

use self::headless_connections::{HeadlessConnection, HeadlessConnections};
use self::spare_fd::{SpareFd, is_out_of_files};
use crate::forward::DataPlane;
use crate::live_count::{LiveCount, LiveCountGuard};
use crate::open_files;
use crate::phase::GatewayPhase;
use crate::refusal::RefusalCode;

/// Maximum number of connections that wait in the kernel to be accepted.
const BACKLOG: u32 = 4096;
/// Only one of this many failures to accept a connection is logged.
const COMPLAIN_EVERY: u32 = 100;
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: application/json\r\ncontent-length: 135\r\n\r\n\
    {\"error\":{\"message\":\"The gateway has as many connections as it may. Try again soon.\",\
    \"type\":\"server_error\",\"code\":\"connections_full\"}}\n";
/// Pause after a failure to accept a connection for which the client is not the cause.
const OUT_OF_SOCKETS: Duration = Duration::from_millis(50);

/// State that all listeners share.
pub struct GatewayServer {
    app: Arc<DataPlane>,
    /// TLS for connections from clients; `None` for plain HTTP. A reload replaces it.
    pub tls: ArcSwapOption<ServerConfig>,
    connections: LiveCount,
    headless: HeadlessConnections,
    /// The process's limit of open files, which also limits the connections.
    open_files: u64,
}

impl GatewayServer {
    /// Creates a server without listeners.
    pub fn new(app: Arc<DataPlane>, tls: Option<Arc<ServerConfig>>) -> Self {
        Self {
            app,
            tls: ArcSwapOption::new(tls),
            connections: LiveCount::default(),
            headless: HeadlessConnections::default(),
            open_files: open_files::limit(),
        }
    }

    /// Accepts connections until the gateway drains.
    pub async fn listen(self: Arc<Self>, listener: TcpListener, routes: Arc<ListenerRoutes>) {
        let mut phase = self.app.phase.watch();
        let mut spare = SpareFd::new();
        let mut complaints: u32 = 0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|stage| *stage > GatewayPhase::Serving) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    self.clone().serve_connection(stream, peer.ip(), routes.clone());
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    if is_out_of_files(&error) {
                        self.app.metrics.count_refusal(RefusalCode::ConnectionsFull);
                        spare.turn_one_away(&listener, |stream| {
                            // A fresh socket's send buffer is large enough for this.
                            let _ = stream.try_write(FULL);
                        });
                    }
                    if complaints.is_multiple_of(COMPLAIN_EVERY) {
                        tracing::warn!(%error, "no connection can be accepted");
                    }
                    complaints = complaints.wrapping_add(1);
                    tokio::time::sleep(OUT_OF_SOCKETS).await;
                }
            }
        }
    }

    fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: IpAddr,
        routes: Arc<ListenerRoutes>,
    ) {
        let Ok(headless) = self.admit(peer) else {
            self.app.metrics.count_refusal(RefusalCode::ConnectionsFull);
            tokio::spawn(turn_away(stream));
            return;
        };
        let counted = CountedConnection::new(&self);
        tokio::spawn(async move {
            connection::serve(&self, stream, headless, routes).await;
            drop(counted);
        });
    }

    /// Admits a new connection. Returns the guard that counts the connection until its first
    /// request. Returns `None` for a trusted proxy, whose connections are not counted by address.
    /// Fails if there are too many connections, or too many from this address without a request.
    fn admit(&self, peer: IpAddr) -> Result<Option<HeadlessConnection>, ConnectionsFull> {
        let config = self.app.config.load();
        let max = open_files::connections_within(self.open_files, &config);
        if self.connections.now() >= max {
            return Err(ConnectionsFull);
        }
        if config.limits.trusted_proxies.iter().any(|range| range.contains(peer)) {
            return Ok(None);
        }
        self.headless.admit(peer, max).map(Some).ok_or(ConnectionsFull)
    }

    /// Waits until all connections are closed, at most for `patience`. Returns the number of
    /// connections that are still open.
    pub async fn wait_empty(&self, patience: Duration) -> u64 {
        let _ = tokio::time::timeout(patience, self.connections.wait_none()).await;
        self.connections.now()
    }
}

/// Error for a gateway, or a client's address, that already has the maximum number of connections.
struct ConnectionsFull;

/// A connection that is counted until it is dropped.
struct CountedConnection {
    app: Arc<DataPlane>,
    _one: LiveCountGuard,
}

impl CountedConnection {
    fn new(server: &GatewayServer) -> Self {
        server.app.metrics.add_connections(1);
        Self { app: server.app.clone(), _one: server.connections.count_one() }
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.app.metrics.add_connections(-1);
    }
}

/// Sends 503 `connections_full` to clients that use plain HTTP/1; for others, the connection just
/// closes.
async fn turn_away(mut stream: TcpStream) {
    let _ = tokio::time::timeout(Duration::from_millis(100), stream.write_all(FULL)).await;
}

/// Binds an address and listens on it.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns true if the error concerns only the one client that was connecting.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_one_connection_too_many_has_the_code_and_the_status_of_its_refusal() {
        let code = RefusalCode::ConnectionsFull;
        let full = std::str::from_utf8(FULL).unwrap();
        let (head, body) = full.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {}\r\n", code.status())), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert!(head.contains("retry-after: 1\r\n"), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], code.as_str());
    }
}
