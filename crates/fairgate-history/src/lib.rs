//! The history of a pool: the service that its flows got, were due and asked for, how many of their
//! requests waited, and for how long. It has points of five seconds for an hour, and points of one
//! minute for a day, in at most 6 MB.
//!
//! This crate reads no clock and calls no pool. A [`FlowReadings`] turns two readings of a pool's
//! counts into a [`PoolSample`], and a [`PoolHistory`] keeps samples. Time is counted in *steps* of
//! five seconds since the beginning of 1970. The first step has the number 1, so step n ends n × 5
//! s after that beginning.
//!
//! # What is kept
//! A *row* is all flows of one name and one attribute, such as the flows of one tenant in all
//! classes. At most 100 rows are kept by name. All other rows of an attribute are kept together as
//! its *others*. Once a minute, a row that got more than twice as much in about the last hour as
//! the smallest kept row replaces that row; at most 10 rows are replaced in a minute. The points of
//! the replaced row are added to the others, so that sums stay right. The points of the new row
//! begin at the replacement.
//!
//! # Amounts and values
//! Got, asked, grants and refusals are *amounts* of a step: the sums since the previous sample. The
//! runtime counts them for each leaf flow, and keeps the time at which this counting began. So if a
//! flow was forgotten and came back, its smaller counts are not taken for a loss. A refund of an
//! estimate is a negative amount.
//!
//! Waiting, in flight, slots, difference and bound are *values* at the end of a step. The service
//! due in a step is got minus the rise of the difference. When the meter forgets an idle flow, its
//! difference counts as settled.
//!
//! # Gaps
//! A step without a sample is a gap, and its point is empty: the gateway did not run, or the pool did not answer. A
//! sample that covers several steps, because samples were too slow, is divided among them if they are at most a minute.

mod columns;
mod quantile;
mod readings;
mod ring;
mod sample;
mod step;
mod view;
mod window;

pub use quantile::WaitQuantile;
pub use readings::FlowReadings;
pub use ring::{HistoryResolution, NAMED_ROWS_MAX, PoolHistory};
pub use sample::{FlowSample, PoolSample, RowName};
pub use step::STEP_SECONDS;
pub use view::{HistoryView, PoolSeries, RowSeries};
pub use window::{RowWindow, WindowShares};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
