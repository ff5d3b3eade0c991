//! The pool's clock, in microseconds since the pool's epoch. It never goes back, even after a
//! restart.

use std::time::Duration;

use fairgate_core::units::Micros;
use tokio::time::Instant;

use crate::gate_status::DEADLINE_MAX;

/// Clock that starts at the pool's saved time and advances with tokio's clock. A test that pauses tokio's clock
/// therefore also pauses the pool's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolClock {
    epoch: Micros,
    started: Instant,
}

impl PoolClock {
    /// Returns a clock that shows `epoch` now.
    pub(crate) fn starting_at(epoch: Micros) -> Self {
        Self { epoch, started: Instant::now() }
    }

    /// Returns the pool's time now.
    pub(crate) fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Micros(self.epoch.0.saturating_add(elapsed))
    }

    /// Returns the instant at which this clock shows `at`. For a time before the clock's start,
    /// this is the start. For a time more than a hundred years after the start, it is the start
    /// plus a hundred years.
    pub(crate) fn instant(&self, at: Micros) -> Instant {
        let after = Duration::from_micros(at.0.saturating_sub(self.epoch.0));
        self.started + after.min(DEADLINE_MAX)
    }
}
