//! A descriptor that is kept for the moment in which there is no other: with it a client can be told that there is no room,
//! instead of waiting in the kernel's queue for nobody knows how long.

use std::fs::File;
use std::io;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};

/// A descriptor in reserve.
pub(super) struct Spare(Option<File>);

impl Spare {
    pub(super) fn new() -> Self {
        Self(reserve())
    }

    /// Accepts a client with the descriptor in reserve, says so with `tell`, and lets it go.
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

/// Whether an error says that the process, or the system, has no descriptor left.
pub(super) fn is_out_of_files(error: &io::Error) -> bool {
    const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();
    const ENFILE: i32 = rustix::io::Errno::NFILE.raw_os_error();
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}
