//! Tests of the simulated backend over real sockets.
#![allow(clippy::unwrap_used)]

mod binary;
mod client;
mod faults;
mod life;
mod limits;
mod many;
mod model_time;
mod refusals;
mod steering;
mod trivial;
mod wire;
