//! The pool's clock, in microseconds since the pool's epoch. A restart never moves the clock back.

use std::time::Duration;

use fairgate_core::units::Micros;
use tokio::time::Instant;

use crate::gate_status::DEADLINE_MAX;

/// Tokio's clock plus the pool's time at the start. Paused time in tests therefore pauses the pool too.
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

    /// Returns the instant at which this clock will show `at`; never earlier, and at most a hundred years after the
    /// clock's start.
    pub(crate) fn instant(&self, at: Micros) -> Instant {
        let after = Duration::from_micros(at.0.saturating_sub(self.epoch.0));
        self.started + after.min(DEADLINE_MAX)
    }
}
