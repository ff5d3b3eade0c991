//! Outages of the gateway, its disk, the database and the workers. From them follows the longest
//! time that a tenant got no answer although it could be served.

use std::time::{Duration, Instant};

/// A component of the testbed that can have an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutagePart {
    Gateway,
    Database,
    Disk,
    /// One of the simulated workers, while the others are available.
    Worker,
}

/// A span of time, as its beginning and its end.
type OutageSpan = (Instant, Instant);

/// The outages of all components since the beginning of the run.
#[derive(Debug)]
pub(super) struct SoakOutages {
    since: Instant,
    ended: Vec<(OutagePart, OutageSpan)>,
    under_way: Vec<(OutagePart, Instant)>,
}

impl SoakOutages {
    /// Creates an empty log of outages that begins at `since`.
    pub(super) fn new(since: Instant) -> Self {
        Self { since, ended: Vec::new(), under_way: Vec::new() }
    }

    /// Notes that a component is unavailable from now on.
    pub(super) fn begin(&mut self, part: OutagePart) {
        self.under_way.push((part, Instant::now()));
    }

    /// Notes that a component is available again.
    pub(super) fn end(&mut self, part: OutagePart) {
        let found = self.under_way.iter().position(|(away, _)| *away == part);
        if let Some(index) = found {
            let (part, from) = self.under_way.swap_remove(index);
            self.ended.push((part, (from, Instant::now())));
        }
    }

    /// Returns whether a component was unavailable at the time `at`, or within the duration
    /// `moment` before it. The duration `moment` covers effects that outlast an outage.
    pub(super) fn was_away(&self, part: OutagePart, at: Instant, moment: Duration) -> bool {
        self.spans(part).any(|span| holds(span, at, moment))
    }

    /// Returns whether a tenant could not be served at the time `at`, or within the duration `moment` before it.
    /// `budget` is true for a tenant with a budget.
    pub(super) fn was_unserved(&self, budget: bool, at: Instant, moment: Duration) -> bool {
        self.unserved(budget).into_iter().any(|span| holds(span, at, moment))
    }

    fn spans(&self, part: OutagePart) -> impl Iterator<Item = OutageSpan> + '_ {
        self.ended.iter().filter(move |(away, _)| *away == part).map(|(_, span)| *span)
    }

    /// Returns the spans in which a tenant could not be served, which are the outages of the
    /// gateway and of its disk. Without a disk for its rows, the gateway refuses new requests. For
    /// a tenant with a budget, outages of the database are included.
    fn unserved(&self, budget: bool) -> Vec<OutageSpan> {
        let mut spans: Vec<OutageSpan> =
            self.spans(OutagePart::Gateway).chain(self.spans(OutagePart::Disk)).collect();
        if budget {
            spans.extend(self.spans(OutagePart::Database));
        }
        spans
    }

    /// Returns the longest time between two answers, and the end of that time. Spans in which the
    /// tenant could not be served are not counted.
    pub(super) fn longest_gap(
        &self,
        answers: impl Iterator<Item = Instant>,
        end: Instant,
        budget: bool,
    ) -> (Duration, Instant) {
        let unserved = merged(self.unserved(budget));
        let served = |at: Instant| {
            let away = |(from, to): &OutageSpan| at.min(*to).saturating_duration_since(*from);
            let away: Duration = unserved.iter().map(away).sum();
            at.saturating_duration_since(self.since).saturating_sub(away)
        };
        let mut answers: Vec<Instant> = answers.filter(|at| *at < end).collect();
        answers.push(end);
        answers.sort_unstable();
        let before = std::iter::once(self.since).chain(answers.iter().copied());
        let gaps = before.zip(&answers).map(|(before, at)| (served(*at) - served(before), *at));
        gaps.max().unwrap_or((Duration::ZERO, end))
    }
}

fn holds((from, to): OutageSpan, at: Instant, moment: Duration) -> bool {
    from <= at && at <= to + moment
}

/// Sorts the spans and merges overlaps.
fn merged(mut spans: Vec<OutageSpan>) -> Vec<OutageSpan> {
    spans.sort_unstable();
    let mut merged: Vec<OutageSpan> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outages(ended: &[(OutagePart, u64, u64)]) -> (SoakOutages, impl Fn(u64) -> Instant) {
        let since = Instant::now();
        let at = move |seconds| since + Duration::from_secs(seconds);
        let ended = ended.iter().map(|&(part, from, to)| (part, (at(from), at(to)))).collect();
        (SoakOutages { since, ended, under_way: Vec::new() }, at)
    }

    #[test]
    fn a_gap_is_counted_without_the_time_in_which_nobody_could_be_served() {
        let (outages, at) =
            outages(&[(OutagePart::Gateway, 10, 14), (OutagePart::Database, 12, 20)]);
        let answers = [1, 9, 21, 22].map(&at);
        let gap = |budget| outages.longest_gap(answers.into_iter(), at(30), budget).0.as_secs();
        // From 9 to 21: 12 s without the 4 s of the gateway, or the 10 s of both. From 22 to the end: 8 s.
        assert_eq!((gap(false), gap(true)), (8, 8));
        let gap = |budget| outages.longest_gap(answers.into_iter(), at(23), budget).0.as_secs();
        assert_eq!((gap(false), gap(true)), (8, 8), "from 1 to 9");
        let without = [1, 21, 22].map(&at);
        let gap = |budget| outages.longest_gap(without.into_iter(), at(23), budget).0.as_secs();
        assert_eq!((gap(false), gap(true)), (16, 10));
    }

    #[test]
    fn nobody_is_served_while_the_disk_takes_no_row() {
        let (outages, at) = outages(&[(OutagePart::Disk, 2, 8), (OutagePart::Database, 6, 20)]);
        let gap = |budget| outages.longest_gap([at(1), at(9)].into_iter(), at(12), budget).0;
        assert_eq!((gap(false).as_secs(), gap(true).as_secs()), (3, 1));
        let moment = Duration::from_secs(1);
        assert!(outages.was_away(OutagePart::Disk, at(9), moment));
        assert!(!outages.was_away(OutagePart::Disk, at(10), moment));
        assert!(outages.was_unserved(false, at(9), moment));
        assert!(!outages.was_unserved(false, at(15), moment));
        assert!(outages.was_unserved(true, at(15), moment));
    }
}
