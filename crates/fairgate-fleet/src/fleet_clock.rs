//! The clock of the fleet, which tests replace.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fairgate_time::{UnixMicros, wall_clock};

/// Source of the current time for the fleet.
pub trait FleetClock: Send + Sync + std::fmt::Debug {
    /// Returns the current wall-clock time.
    fn now(&self) -> UnixMicros;

    /// Returns the time since a fixed moment. This time advances steadily, even when the wall clock is set.
    fn steady(&self) -> Duration {
        Duration::from_micros(u64::try_from(self.now().0).unwrap_or(0))
    }
}

/// Clock of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl FleetClock for SystemClock {
    fn now(&self) -> UnixMicros {
        wall_clock::now()
    }

    fn steady(&self) -> Duration {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        FIRST.get_or_init(Instant::now).elapsed()
    }
}
