//! Listening: connections are accepted, bounded, and given to HTTP.

mod connection;
mod dispatch;
mod patient;
mod spare;
mod voice;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub(crate) use self::dispatch::Door;

use self::spare::{Spare, is_out_of_files};
use crate::app::App;
use crate::in_flight::{InFlight, OneInFlight};
use crate::open_files;
use crate::phase::Stage;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 4096;
/// One in so many failures to accept is logged.
const COMPLAIN_EVERY: u32 = 100;
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
    content-type: application/json\r\ncontent-length: 135\r\n\r\n\
    {\"error\":{\"message\":\"The gateway has as many connections as it may. Try again soon.\",\
    \"type\":\"server_error\",\"code\":\"connections_full\"}}\n";
/// How long to wait where the system has no more sockets to give.
const OUT_OF_SOCKETS: Duration = Duration::from_millis(50);

/// What all listeners share.
pub(crate) struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) tls: ArcSwapOption<ServerConfig>,
    connections: InFlight,
    /// The limit of open files: no more connections are taken than it is enough for.
    open_files: u64,
}

impl Server {
    pub(crate) fn new(app: Arc<App>, tls: Option<Arc<ServerConfig>>) -> Self {
        Self {
            app,
            tls: ArcSwapOption::new(tls),
            connections: InFlight::default(),
            open_files: open_files::limit(),
        }
    }

    /// Accepts until the gateway drains.
    pub(crate) async fn listen(self: Arc<Self>, listener: TcpListener, door: Arc<Door>) {
        let mut phase = self.app.phase.watch();
        let mut spare = Spare::new();
        let mut complaints: u32 = 0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|stage| *stage > Stage::Serving) => return,
            };
            match accepted {
                Ok((stream, _)) => self.clone().meet(stream, door.clone()),
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    if is_out_of_files(&error) {
                        self.app.metrics.turned_away("connections_full");
                        spare.turn_one_away(&listener, |stream| {
                            // A fresh socket takes this much at once, or its client has gone.
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

    fn meet(self: Arc<Self>, stream: TcpStream, door: Arc<Door>) {
        let max = open_files::connections_within(self.open_files, &self.app.config.load());
        if self.connections.now() >= max {
            self.app.metrics.turned_away("connections_full");
            tokio::spawn(turn_away(stream));
            return;
        }
        let counted = Counted::new(&self);
        tokio::spawn(async move {
            connection::serve(&self, stream, door).await;
            drop(counted);
        });
    }

    /// Waits until no connection is left, or the time is over. Says how many are.
    pub(crate) async fn empty(&self, patience: Duration) -> u64 {
        let _ = tokio::time::timeout(patience, self.connections.none()).await;
        self.connections.now()
    }
}

/// A connection, counted while it is there.
struct Counted {
    app: Arc<App>,
    _one: OneInFlight,
}

impl Counted {
    fn new(server: &Server) -> Self {
        server.app.metrics.connections(1);
        Self { app: server.app.clone(), _one: server.connections.one() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.app.metrics.connections(-1);
    }
}

/// Says that there is no room, to whoever speaks HTTP/1 in the clear; others see the connection close.
async fn turn_away(mut stream: TcpStream) {
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
