//! The relation between a journal's times and the time of day.

use fairgate_core::units::Micros;

/// One moment on the journal's clock, together with its time of day. A journal may state both in
/// its first line, for people who read the journal. No decision depends on either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalClock {
    /// The moment as the journal's events state it in `at`.
    pub at: Micros,
    /// Microseconds from 1970-01-01T00:00:00Z to that moment.
    pub unix_us: u64,
}
