//! The handle: start it, look at it, make it misbehave, stop it or kill it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::backend::Backend;
use crate::connection::{self, Phase};
use crate::fault::{Fault, Mischief};
use crate::options::SimOptions;
use crate::service;
use crate::stats::Stats;

const BACKLOG: u32 = 4096;
/// After a failed accept (out of file descriptors, most likely) this long passes before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running simulated backend. Dropping it kills it.
#[derive(Debug)]
pub struct Sim {
    addr: SocketAddr,
    backend: Arc<Backend>,
    accepting: JoinHandle<()>,
}

impl Sim {
    /// Starts a backend on an address, on the tokio runtime of the caller; port 0 takes a free one. An address that a
    /// killed or stopped backend has just left can be taken again at once.
    ///
    /// # Errors
    /// Where the options cannot work, there is no tokio runtime, or the address cannot be had.
    pub fn start(addr: SocketAddr, options: SimOptions) -> io::Result<Self> {
        options.check().map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        let backend = Arc::new(Backend::new(options));
        let accepting = runtime.spawn(accept(listener, Arc::clone(&backend)));
        Ok(Self { addr, backend, accepting })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a URL without a path: `http://127.0.0.1:4000`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Makes every request from now on meet this fault, or none. A fault that a request asks for itself goes first.
    pub fn set_fault(&self, fault: impl Into<Option<Fault>>) {
        self.backend.set_mischief(fault.into().map_or(Mischief::None, Mischief::Always));
    }

    /// Makes the next `requests` requests meet this fault, and those after them none.
    pub fn fault_next(&self, fault: Fault, requests: u64) {
        self.backend.set_mischief(Mischief::Next(fault, requests));
    }

    /// Makes `GET /health` answer 200 or 503. Nothing else changes.
    pub fn set_healthy(&self, healthy: bool) {
        self.backend.set_healthy(healthy);
    }

    /// What it has seen and done.
    pub fn stats(&self) -> Stats {
        self.backend.stats()
    }

    /// Ends it as a crash would: nothing listens any more and every connection is reset when this returns.
    pub async fn kill(mut self) {
        self.backend.phase.send_replace(Phase::Killed);
        // It fails only where its runtime is gone, and then so are its connections.
        let _ = (&mut self.accepting).await;
    }

    /// Ends it in order: it listens no more, finishes what flies and what waits, and cuts what is not done within
    /// [`SimOptions::stop_grace`]. Requests that hang by a fault are cut at once.
    pub async fn stop(mut self) {
        self.backend.phase.send_replace(Phase::Stopping);
        if timeout(self.backend.options.stop_grace, &mut self.accepting).await.is_err() {
            self.kill().await;
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.backend.phase.send_replace(Phase::Killed);
    }
}

async fn accept(listener: TcpListener, backend: Arc<Backend>) {
    let mut phase = backend.phase.subscribe();
    let mut connections = JoinSet::new();
    while *phase.borrow_and_update() == Phase::Running {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let serving = Arc::clone(&backend);
                    let respond = move |request, fate| service::serve(Arc::clone(&serving), fate, request);
                    connections.spawn(connection::serve(stream, backend.phase.subscribe(), respond));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            _ = phase.changed() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}
