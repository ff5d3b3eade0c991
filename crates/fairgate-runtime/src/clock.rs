//! The pool's clock: microseconds since its epoch, which no restart moves back.

use std::time::Duration;

use fairgate_core::units::Micros;
use tokio::time::Instant;

use crate::live::FOR_EVER;

/// Tokio's clock, so that paused time in tests is the pool's time too, going on from where a pool was saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Micros,
    started: Instant,
}

impl Clock {
    /// A clock that shows this time now.
    pub(crate) fn starting_at(epoch: Micros) -> Self {
        Self { epoch, started: Instant::now() }
    }

    /// The time now.
    pub(crate) fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Micros(self.epoch.0.saturating_add(elapsed))
    }

    /// When this clock will show `at`: never before it does, and not later than in a hundred years.
    pub(crate) fn instant(&self, at: Micros) -> Instant {
        let after = Duration::from_micros(at.0.saturating_sub(self.epoch.0));
        self.started + after.min(FOR_EVER)
    }
}
