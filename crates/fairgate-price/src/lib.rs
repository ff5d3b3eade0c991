#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod fading_sums;
mod slot_time_book;
mod token_rate;
#[allow(
    clippy::disallowed_types,
    reason = "a fit needs floats; what leaves it are whole picoseconds"
)]
pub mod worker_time;

pub use slot_time_book::{RATE_FACTOR_MAX, SlotTimeBook, TENANTS_MAX};
pub use token_rate::TokenRate;
