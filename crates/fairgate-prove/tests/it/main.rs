//! Tests of the judge on falsified evidence, of the output, and of all scenarios over real sockets.
#![allow(clippy::unwrap_used)]

mod doctored;
mod shown;
mod sockets;
mod stage;
