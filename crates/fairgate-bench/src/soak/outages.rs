//! When what was away, and how long each tenant went without an answer while it could have had one.

use std::time::{Duration, Instant};

/// What may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Gateway,
    Database,
    Disk,
    /// One of the simulated workers; the others are there.
    Worker,
}

/// A span of time.
type Span = (Instant, Instant);

/// When each part was away.
#[derive(Debug)]
pub(super) struct Outages {
    since: Instant,
    ended: Vec<(Part, Span)>,
    under_way: Vec<(Part, Instant)>,
}

impl Outages {
    /// From now on.
    pub(super) fn new(since: Instant) -> Self {
        Self { since, ended: Vec::new(), under_way: Vec::new() }
    }

    /// A part is away from now on.
    pub(super) fn begin(&mut self, part: Part) {
        self.under_way.push((part, Instant::now()));
    }

    /// It is back.
    pub(super) fn end(&mut self, part: Part) {
        let found = self.under_way.iter().position(|(away, _)| *away == part);
        if let Some(index) = found {
            let (part, from) = self.under_way.swap_remove(index);
            self.ended.push((part, (from, Instant::now())));
        }
    }

    /// Whether a part was away at a time, or until a moment before it: what an outage does may be seen after it.
    pub(super) fn was_away(&self, part: Part, at: Instant, moment: Duration) -> bool {
        self.spans(part).any(|span| holds(span, at, moment))
    }

    /// Whether somebody could not be served at a time, or until a moment before it.
    pub(super) fn was_unserved(&self, budget: bool, at: Instant, moment: Duration) -> bool {
        self.unserved(budget).into_iter().any(|span| holds(span, at, moment))
    }

    fn spans(&self, part: Part) -> impl Iterator<Item = Span> + '_ {
        self.ended.iter().filter(move |(away, _)| *away == part).map(|(_, span)| *span)
    }

    /// When nobody was served: no gateway, or one that refuses new requests because its files take no rows. Who has a
    /// budget needs the database, too.
    fn unserved(&self, budget: bool) -> Vec<Span> {
        let mut spans: Vec<Span> =
            self.spans(Part::Gateway).chain(self.spans(Part::Disk)).collect();
        if budget {
            spans.extend(self.spans(Part::Database));
        }
        spans
    }

    /// The longest time without an answer, without the time in which there could be none; and when it ended.
    pub(super) fn longest_gap(
        &self,
        answers: impl Iterator<Item = Instant>,
        end: Instant,
        budget: bool,
    ) -> (Duration, Instant) {
        let unserved = merged(self.unserved(budget));
        let served = |at: Instant| {
            let away = |(from, to): &Span| at.min(*to).saturating_duration_since(*from);
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

fn holds((from, to): Span, at: Instant, moment: Duration) -> bool {
    from <= at && at <= to + moment
}

/// The same spans, in order, without overlaps.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
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

    fn outages(ended: &[(Part, u64, u64)]) -> (Outages, impl Fn(u64) -> Instant) {
        let since = Instant::now();
        let at = move |seconds| since + Duration::from_secs(seconds);
        let ended = ended.iter().map(|&(part, from, to)| (part, (at(from), at(to)))).collect();
        (Outages { since, ended, under_way: Vec::new() }, at)
    }

    #[test]
    fn a_gap_is_counted_without_the_time_in_which_nobody_could_be_served() {
        let (outages, at) = outages(&[(Part::Gateway, 10, 14), (Part::Database, 12, 20)]);
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
        let (outages, at) = outages(&[(Part::Disk, 2, 8), (Part::Database, 6, 20)]);
        let gap = |budget| outages.longest_gap([at(1), at(9)].into_iter(), at(12), budget).0;
        assert_eq!((gap(false).as_secs(), gap(true).as_secs()), (3, 1));
        let moment = Duration::from_secs(1);
        assert!(outages.was_away(Part::Disk, at(9), moment));
        assert!(!outages.was_away(Part::Disk, at(10), moment));
        assert!(outages.was_unserved(false, at(9), moment));
        assert!(!outages.was_unserved(false, at(15), moment));
        assert!(outages.was_unserved(true, at(15), moment));
    }
}
