//! A file descriptor in reserve, for the time when the process has no other. With it a client can
//! be refused at once, and need not wait in the kernel's queue for an unknown time.

use std::fs::File;
use std::io;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};

/// A file descriptor that is kept in reserve; `None` if none could be opened.
pub(super) struct SpareFd(Option<File>);

impl SpareFd {
    pub(super) fn new() -> Self {
        Self(reserve())
    }

    /// Accepts one client with the reserved descriptor, calls `tell` to write a refusal, and closes
    /// the connection.
    pub(super) fn turn_one_away(&mut self, listener: &TcpListener, tell: impl FnOnce(&TcpStream)) {
        drop(self.0.take());
        if let Some(Ok((stream, _))) = listener.accept().now_or_never() {
            tell(&stream);
        }
        self.0 = reserve();
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Returns true if the process or the system has no file descriptor left.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
    const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}
