//! Reports the states of this process to a service manager such as systemd, over the datagram socket that
//! `NOTIFY_SOCKET` names (the protocol of sd_notify(3)). Without that variable, nothing is sent.
//!
//! A report never blocks and never fails: a service manager that does not read must not stop the gateway.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use tracing::warn;

/// Name of the variable with the socket's address: a path, or `@` and a name without a file.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The service manager that started this process, if there is one.
#[derive(Debug)]
pub(super) struct ServiceManager(Option<(UnixDatagram, SocketAddr)>);

impl ServiceManager {
    /// Finds the service manager in the environment.
    pub(super) fn from_environment() -> Self {
        Self::at(env::var_os(VARIABLE))
    }

    fn at(address: Option<OsString>) -> Self {
        let Some(address) = address.filter(|address| !address.is_empty()) else {
            return Self(None);
        };
        match connect(&address) {
            Ok(connected) => Self(Some(connected)),
            Err(error) => {
                warn!(%error, ?address, "{VARIABLE} cannot be used: the service manager is told nothing");
                Self(None)
            }
        }
    }

    /// Reports that the gateway accepts requests: after the start, and after a reload whether or not it changed
    /// anything.
    pub(super) fn report_ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that a reload has begun; [`Self::report_ready`] ends it.
    pub(super) fn report_reloading(&self) {
        self.send("RELOADING=1\nSTATUS=reading the configuration");
    }

    /// Reports that the gateway is draining.
    pub(super) fn report_stopping(&self) {
        self.send("STOPPING=1\nSTATUS=draining: what is in flight may finish");
    }

    fn send(&self, message: &str) {
        let Some((socket, to)) = &self.0 else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), to) {
            warn!(%error, "the service manager cannot be told the gateway's state");
        }
    }
}

fn connect(address: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// Replaces line ends, because each line of a message is a variable of its own.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut message = [0; 512];
        let length = socket.recv(&mut message).unwrap();
        String::from_utf8(message[..length].to_vec()).unwrap()
    }

    #[test]
    fn states_are_sent_to_a_path_and_to_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("fairgate-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ];
        for (socket, address) in sockets {
            let manager = ServiceManager::at(Some(address));
            manager.report_ready("serves\n2 pools");
            assert_eq!(received(&socket), "READY=1\nSTATUS=serves 2 pools");
            manager.report_stopping();
            assert!(received(&socket).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn nobody_is_told_without_an_address_or_with_a_bad_one() {
        for address in [None, Some(""), Some("relative/\0path"), Some("/no/such/socket")] {
            ServiceManager::at(address.map(OsString::from)).report_reloading();
        }
    }
}
