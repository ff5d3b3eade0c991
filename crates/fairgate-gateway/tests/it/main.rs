//! The gateway over real sockets.

mod support;

mod happy;
