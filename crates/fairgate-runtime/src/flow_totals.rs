//! Sums of a flow since its counting began: the cost of the requests that arrived and of those that
//! were granted, and their waits.
//!
//! The meter of the core forgets idle flows, so that names that are seen only once cost no memory.
//! These sums are kept longer. Each contains the time `since` at which it began, so that two
//! readings can be compared only if they belong to the same count.

use fairgate_core::units::Micros;

/// Upper bounds of the buckets of a wait, in microseconds, from one millisecond to ten minutes.
/// Waits above the last bound are counted in one more bucket. `/metrics` has the same buckets.
pub const WAIT_BOUNDS: [Micros; 18] = [
    Micros(1_000),
    Micros(2_500),
    Micros(5_000),
    Micros(10_000),
    Micros(25_000),
    Micros(50_000),
    Micros(100_000),
    Micros(250_000),
    Micros(500_000),
    Micros(1_000_000),
    Micros(2_500_000),
    Micros(5_000_000),
    Micros(10_000_000),
    Micros(30_000_000),
    Micros(60_000_000),
    Micros(120_000_000),
    Micros(300_000_000),
    Micros(600_000_000),
];

/// Number of grants by the time that the granted request had waited. There is one count for each
/// bound in [`WAIT_BOUNDS`], and one for longer waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts(pub [u32; WAIT_BOUNDS.len() + 1]);

impl WaitCounts {
    /// Counts the wait of one request.
    pub fn note(&mut self, waited: Micros) {
        let bucket = WAIT_BOUNDS.partition_point(|bound| *bound < waited);
        self.0[bucket] = self.0[bucket].wrapping_add(1);
    }

    /// Adds the counts of `other`, which belong to other requests.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.wrapping_add(more);
        }
    }

    /// Returns the waits that were counted since an earlier reading of the same count. The counts
    /// wrap around, so the result is right if fewer than 2³² waits were counted between the
    /// readings.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for (count, before) in difference.0.iter_mut().zip(earlier.0) {
            *count = count.wrapping_sub(before);
        }
        difference
    }

    /// Returns the number of waits in all buckets.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }
}

/// Sums of a flow since the time `since`. Amounts are in the unit of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// The pool's time at which these sums were 0. If a flow is forgotten and comes again, it has a
    /// later time.
    pub since: Micros,
    /// Expected cost of the flow's requests at their arrival, whether they were granted or not.
    pub asked: u64,
    /// Cost of the flow's granted requests. A grant counts with its expected cost, which is
    /// corrected to the real usage when the request ends. So this sum may fall.
    pub got: i64,
    /// Number of grants since then.
    pub granted: u64,
    /// Number of grants, by the time that the request waited.
    pub waits: WaitCounts,
}

impl FlowTotals {
    /// Returns sums of 0 that begin at `since`.
    pub(crate) fn new(since: Micros) -> Self {
        Self { since, ..Self::default() }
    }

    /// Adds a request that has arrived.
    pub(crate) fn ask(&mut self, cost: u64) {
        self.asked = self.asked.saturating_add(cost);
    }

    /// Adds a grant with its cost.
    pub(crate) fn grant(&mut self, cost: u64, waited: Micros) {
        self.granted += 1;
        self.waits.note(waited);
        self.correct(i64::try_from(cost).unwrap_or(i64::MAX));
    }

    /// Adds the difference between the usage of a request and the cost of its grant.
    pub(crate) fn correct(&mut self, difference: i64) {
        self.got = self.got.saturating_add(difference);
    }

    /// Returns the difference to an earlier reading. If the earlier reading belongs to another
    /// count, returns the whole sums.
    pub fn since_reading(&self, earlier: Option<&Self>) -> Self {
        let Some(earlier) = earlier.filter(|earlier| earlier.since == self.since) else {
            return *self;
        };
        Self {
            since: self.since,
            asked: self.asked.saturating_sub(earlier.asked),
            got: self.got.saturating_sub(earlier.got),
            granted: self.granted.saturating_sub(earlier.granted),
            waits: self.waits.since(&earlier.waits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_in_the_first_bucket_that_reaches_it() {
        let mut waits = WaitCounts::default();
        for waited in [0, 1_000, 1_001, 600_000_000, 600_000_001] {
            waits.note(Micros(waited));
        }
        assert_eq!((waits.0[0], waits.0[1], waits.0[17], waits.0[18]), (2, 1, 1, 1));
        assert_eq!(waits.total(), 5);
        let before = waits;
        waits.note(Micros(7));
        assert_eq!(waits.since(&before).total(), 1);
    }

    #[test]
    fn readings_of_different_counts_are_not_compared() {
        let mut flow = FlowTotals::new(Micros(5));
        flow.ask(100);
        flow.grant(100, Micros(2_000));
        let before = flow;
        flow.correct(-60);
        assert_eq!(flow.since_reading(Some(&before)).got, -60, "a refund");
        let mut again = FlowTotals::new(Micros(9));
        again.ask(7);
        assert_eq!(again.since_reading(Some(&before)).asked, 7, "all of it is new");
        assert_eq!(again.since_reading(None).asked, 7);
    }
}
