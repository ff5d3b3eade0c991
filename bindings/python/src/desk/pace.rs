//! How far the ends of requests are apart: when a place may become free again.

use fairgate_core::units::Micros;

/// A moving average that gives each new interval an eighth.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last: Option<Micros>,
    interval_us: Option<u64>,
}

impl Pace {
    /// A request has ended.
    pub(crate) fn ended(&mut self, now: Micros) {
        if let Some(last) = self.last {
            let interval = now.0 - last.0;
            let before = self.interval_us.unwrap_or(interval);
            self.interval_us = Some(before - before / 8 + interval / 8);
        }
        self.last = Some(now);
    }

    /// The average interval, in microseconds; none before the second end.
    pub(crate) fn interval_us(&self) -> Option<u64> {
        self.interval_us
    }
}
