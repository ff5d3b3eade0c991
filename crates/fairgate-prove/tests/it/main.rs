//! The judge on doctored evidence, what is shown, and all scenarios over real sockets.
#![allow(clippy::unwrap_used)]

mod doctored;
mod shown;
mod sockets;
mod stage;
