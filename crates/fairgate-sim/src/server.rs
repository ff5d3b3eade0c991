//! The handle of a backend, with which a test starts, inspects, stops or kills the backend and injects faults.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::backend::BackendState;
use crate::connection::{self, SimPhase};
use crate::fault::{InjectedFaults, SimFault};
use crate::options::SimOptions;
use crate::service;
use crate::stats::SimStats;

const BACKLOG: u32 = 4096;
/// Pause after a failure to accept a connection, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A running simulated backend. Dropping this value kills the backend.
#[derive(Debug)]
pub struct Sim {
    addr: SocketAddr,
    backend: Arc<BackendState>,
    accepting: JoinHandle<()>,
}

impl Sim {
    /// Starts a backend that listens on `addr`, on the tokio runtime of the caller. Port 0 takes a free port. The
    /// address of a killed or stopped backend can be used again at once.
    ///
    /// # Errors
    /// Fails if the options cannot work, there is no tokio runtime, or the address is not
    /// available.
    pub fn start(addr: SocketAddr, options: SimOptions) -> io::Result<Self> {
        options.check().map_err(|what| io::Error::new(io::ErrorKind::InvalidInput, what))?;
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        let backend = Arc::new(BackendState::new(options));
        let accepting = runtime.spawn(accept(listener, Arc::clone(&backend)));
        Ok(Self { addr, backend, accepting })
    }

    /// Returns the address on which the backend listens, with the real port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the backend's address as a URL without a path, such as `http://127.0.0.1:4000`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Sets the fault of every request from now on; `None` ends the faults. A fault for which a request asks itself
    /// takes precedence.
    pub fn set_fault(&self, fault: impl Into<Option<SimFault>>) {
        self.backend
            .set_injected_faults(fault.into().map_or(InjectedFaults::None, InjectedFaults::Always));
    }

    /// Sets the fault of the next `requests` requests. Later requests have no fault.
    pub fn fault_next(&self, fault: SimFault, requests: u64) {
        self.backend.set_injected_faults(InjectedFaults::Next(fault, requests));
    }

    /// Makes `GET /health` answer 200 if `healthy`, else 503. Other routes are not affected.
    pub fn set_healthy(&self, healthy: bool) {
        self.backend.set_healthy(healthy);
    }

    /// Returns the counters and the list of the requests that ended last.
    pub fn stats(&self) -> SimStats {
        self.backend.stats()
    }

    /// Ends the backend like a crash. Afterwards no socket listens on the address any more, and every connection has
    /// been reset.
    pub async fn kill(mut self) {
        self.backend.phase.send_replace(SimPhase::Killed);
        // This fails only if the runtime is gone, and with it the connections.
        let _ = (&mut self.accepting).await;
    }

    /// Stops listening, then finishes the requests in flight and the waiting ones. Cuts the connections of requests
    /// that are not done within [`SimOptions::stop_grace`]. Cuts requests that hang because of a fault at once.
    pub async fn stop(mut self) {
        self.backend.phase.send_replace(SimPhase::Stopping);
        if timeout(self.backend.options.stop_grace, &mut self.accepting).await.is_err() {
            self.kill().await;
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.backend.phase.send_replace(SimPhase::Killed);
    }
}

async fn accept(listener: TcpListener, backend: Arc<BackendState>) {
    let mut phase = backend.phase.subscribe();
    let mut connections = JoinSet::new();
    while *phase.borrow_and_update() == SimPhase::Running {
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
