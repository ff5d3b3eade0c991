//! A limit on the units (requests or tokens) used within a sliding window of time. Some providers use such a window
//! instead of a bucket.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::bucket::BucketLevel;

/// Counts the units taken within the last `span`. Units that were taken together become free again together, when they
/// are older than `span`. So quota that was used in a burst becomes free in a burst.
#[derive(Clone, Debug)]
pub(crate) struct SlidingWindow {
    per_minute: u64,
    span: Duration,
    /// Greatest number of units within the span.
    limit: u64,
    /// Times at which units were taken within the span, each with the number of units, at least one; oldest first.
    taken: VecDeque<(Instant, u64)>,
    used: u64,
    now: Instant,
}

impl SlidingWindow {
    /// Creates an empty window that holds the quota of the time `span`, but at least one unit.
    pub(crate) fn new(per_minute: u64, span: Duration, now: Instant) -> Self {
        let per_minute = per_minute.max(1);
        let limit = u128::from(per_minute).saturating_mul(span.as_micros()) / 60_000_000;
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        Self { per_minute, span, limit, taken: VecDeque::new(), used: 0, now }
    }

    /// Removes the units that have left the window.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.now = now;
        while let Some(&(at, units)) = self.taken.front() {
            if now.saturating_duration_since(at) < self.span {
                break;
            }
            self.taken.pop_front();
            self.used -= units;
        }
    }

    /// Returns the time until the window has room for `units`; `None` if even an empty window has too little room.
    pub(crate) fn wait_for(&self, units: u64) -> Option<Duration> {
        if units > self.limit {
            return None;
        }
        let mut excess = self.used.saturating_add(units).saturating_sub(self.limit);
        let mut wait = Duration::ZERO;
        for &(at, units) in &self.taken {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(units);
            wait = (at + self.span).saturating_duration_since(self.now);
        }
        Some(wait)
    }

    /// Counts `units` as taken now, even if the window has no room for them.
    pub(crate) fn take(&mut self, units: u64) {
        if units > 0 {
            self.taken.push_back((self.now, units));
            self.used += units;
        }
    }

    /// Removes `units` from the window again, beginning with those that were taken last.
    pub(crate) fn give_back(&mut self, mut units: u64) {
        while units > 0
            && let Some((_, last)) = self.taken.back_mut()
        {
            let given = units.min(*last);
            *last -= given;
            self.used -= given;
            units -= given;
            if *last == 0 {
                self.taken.pop_back();
            }
        }
    }

    /// Returns the state of the window.
    pub(crate) fn level(&self) -> BucketLevel {
        let last = self.taken.back().map(|(at, _)| *at + self.span);
        BucketLevel {
            per_minute: self.per_minute,
            depth: self.limit,
            remaining: self.limit.saturating_sub(self.used),
            full_after: last.map_or(Duration::ZERO, |at| at.saturating_duration_since(self.now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_free_again_when_they_leave_the_window() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut window = SlidingWindow::new(10, Duration::from_secs(60), start);
        window.take(4);
        window.advance(at(20));
        window.take(6);
        assert_eq!(window.level().remaining, 0);
        assert_eq!(window.wait_for(4), Some(Duration::from_secs(40)));
        assert_eq!(window.wait_for(5), Some(Duration::from_secs(60)));
        assert_eq!(window.wait_for(11), None);
        window.give_back(3);
        assert_eq!(window.wait_for(3), Some(Duration::ZERO));
        window.advance(at(60));
        assert_eq!((window.level().remaining, window.level().depth), (7, 10));
        window.advance(at(80));
        assert_eq!(window.level().remaining, 10);
        window.give_back(5);
        assert_eq!(window.level().remaining, 10);
    }
}
