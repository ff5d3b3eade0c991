//! `fairgate prove`: a published experiment, run over real sockets and judged from three independent accounts.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod evidence;
pub mod judge;
pub mod render;
mod replay;
pub mod report;
pub mod scenario;
mod service;
mod slots;
