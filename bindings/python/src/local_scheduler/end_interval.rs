//! The mean time between ends of requests. It is the expected time until a place in the queue becomes free.

use fairgate_core::units::Micros;

/// A moving average in which each new interval has a weight of one eighth.
#[derive(Debug, Default)]
pub(crate) struct MeanEndInterval {
    last: Option<Micros>,
    interval_us: Option<u64>,
}

impl MeanEndInterval {
    /// Records the end of a request.
    pub(crate) fn record_end(&mut self, now: Micros) {
        if let Some(last) = self.last {
            let interval = now.0 - last.0;
            let before = self.interval_us.unwrap_or(interval);
            self.interval_us = Some(before - before / 8 + interval / 8);
        }
        self.last = Some(now);
    }

    /// Returns the mean interval in microseconds; `None` until two requests have ended.
    pub(crate) fn interval_us(&self) -> Option<u64> {
        self.interval_us
    }
}
