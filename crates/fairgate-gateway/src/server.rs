//! Listening: connections are accepted, bounded, and given to HTTP.

mod connection;
mod dispatch;
mod patient;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use self::dispatch::Door;

use crate::app::App;
use crate::phase::Stage;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 4096;
/// How long to wait where the system has no more sockets to give.
const OUT_OF_SOCKETS: Duration = Duration::from_millis(50);

/// What all listeners share.
pub(crate) struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) tls: ArcSwapOption<ServerConfig>,
    connections: Arc<Semaphore>,
    connections_max: u32,
}

impl Server {
    pub(crate) fn new(app: Arc<App>, tls: Option<Arc<ServerConfig>>) -> Self {
        let max = app.config.load().limits.connections_max.clamp(1, Semaphore::MAX_PERMITS);
        let connections_max = u32::try_from(max).unwrap_or(u32::MAX);
        let connections = Arc::new(Semaphore::new(usize::try_from(connections_max).unwrap_or(max)));
        Self { app, tls: ArcSwapOption::new(tls), connections, connections_max }
    }

    /// Accepts until the gateway drains.
    pub(crate) async fn listen(self: Arc<Self>, listener: TcpListener, door: Arc<Door>) {
        let mut phase = self.app.phase.watch();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|stage| *stage > Stage::Serving) => return,
            };
            match accepted {
                Ok((stream, _)) => self.clone().meet(stream, door.clone()),
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted");
                    tokio::time::sleep(OUT_OF_SOCKETS).await;
                }
            }
        }
    }

    fn meet(self: Arc<Self>, stream: TcpStream, door: Arc<Door>) {
        match self.connections.clone().try_acquire_owned() {
            Ok(place) => {
                let counted = Counted::new(self.app.clone(), place);
                tokio::spawn(async move {
                    connection::serve(&self, stream, door).await;
                    drop(counted);
                });
            }
            Err(_) => {
                self.app.metrics.turned_away("connections_full");
                tokio::spawn(turn_away(stream));
            }
        }
    }

    /// Waits until no connection is left, or the time is over. Says how many are.
    pub(crate) async fn empty(&self, patience: Duration) -> usize {
        let all = self.connections.acquire_many(self.connections_max);
        match tokio::time::timeout(patience, all).await {
            Ok(_) => 0,
            Err(_) => {
                let max = usize::try_from(self.connections_max).unwrap_or(usize::MAX);
                max.saturating_sub(self.connections.available_permits())
            }
        }
    }
}

/// A connection, counted while it is there.
struct Counted {
    app: Arc<App>,
    _place: OwnedSemaphorePermit,
}

impl Counted {
    fn new(app: Arc<App>, place: OwnedSemaphorePermit) -> Self {
        app.metrics.connections(1);
        Self { app, _place: place }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.app.metrics.connections(-1);
    }
}

/// Says that there is no room, to whoever speaks HTTP/1 in the clear; others see the connection close.
async fn turn_away(mut stream: TcpStream) {
    const FULL: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
        content-type: application/json\r\ncontent-length: 135\r\n\r\n\
        {\"error\":{\"message\":\"The gateway has as many connections as it may. Try again soon.\",\
        \"type\":\"server_error\",\"code\":\"connections_full\"}}\n";
    let _ = tokio::time::timeout(Duration::from_millis(100), stream.write_all(FULL)).await;
}

/// Binds an address.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether only the client that was about to connect is concerned.
fn is_of_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
