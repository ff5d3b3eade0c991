//! Which time of day a journal's times were.

use fairgate_core::units::Micros;

/// One moment on the journal's clock, and the time of day it was. A journal may state it in its first line; it is
/// for readers and decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// The moment, as an event's `at`.
    pub at: Micros,
    /// Microseconds from 1970-01-01T00:00:00Z to that moment.
    pub unix_us: u64,
}
