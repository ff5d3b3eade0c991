#![doc = include_str!("../README.md")]
#![no_std]

extern crate alloc;

mod book;
mod fading_sums;
mod token_rate;

pub use book::{RATE_FACTOR_MAX, SlotTimeBook, TENANTS_MAX};
pub use token_rate::TokenRate;
