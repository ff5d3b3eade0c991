//! The history of a pool: what its flows got, were due and asked for, how many of their requests waited, and for how
//! long. Five seconds a point for an hour, one minute a point for a day, in at most 6 MB.
//!
//! This crate reads no clock and asks no pool. A [`FlowReadings`] turns two readings of a pool's counts into a
//! [`PoolSample`], and a [`PoolHistory`] keeps samples. Moments are *steps* of five
//! seconds: step 1 is the first one after the beginning of 1970, and a step has the number of the moment at which it ends.
//!
//! # What is kept
//! A *row* is all flows of one name and one attribute, such as the flows of one tenant in all classes. The 100 rows
//! with the most tokens in the last hour are kept by name, and all other rows of an attribute together as its *others*.
//! A row that overtakes a kept one takes its place; the history of the row that went is added to the others, so that
//! sums stay right, and the history of the one that came begins there.
//!
//! # Amounts and values
//! Got, asked, grants and refusals are *amounts* of a step: what was added since the sample before. They come from sums
//! that the runtime keeps for each leaf flow together with the time at which their counting began, so a flow that was
//! forgotten and came again is not taken for one that lost tokens. A refund of an estimate is a negative amount.
//!
//! Waiting, in flight, slots, difference and bound are *values* at the end of a step. What a row was due in a step
//! follows: got minus the rise of the difference. The meter forgets idle flows; that settles their difference, and is
//! counted as such.
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
