//! Times in microseconds since 1970, UTC days, and times as text. [`wall_clock`] is the only reader of the system's
//! clock in the workspace.

mod day;
mod text;
pub mod wall_clock;

pub use day::{DAY_US, UnixMicros, UtcDay};
pub use text::{parse_http_date, parse_rfc3339, to_rfc3339};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
