//! Bars about deadlines: no request is granted after its deadline, requests that miss their
//! deadline are refused, and the earliest deadline goes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_core::units::Micros;

use super::JudgedCase;
use crate::evidence::AnswerEnd;
use crate::replay::{FlowChange, RequestIndex};
use crate::report::ProveBar;

/// Greatest time between a request's deadline and its refusal. With a simulated clock this time is below 50 ms; the
/// limit here is higher, because the machine also does other work.
const LATE_MAX: Micros = Micros(250_000);

/// Error code of a request whose own deadline has passed.
pub(crate) const DEADLINE_PASSED: &str = "deadline_passed";

/// Checks that no request is granted at or after its deadline, and that expired requests leave the
/// queue within [`LATE_MAX`]. The rows of expired requests must say 504 `deadline_passed`, and the
/// rows of granted requests must not. The clients must have seen as many such refusals as there are
/// rows.
pub(super) fn kept(case: &JudgedCase<'_>) -> ProveBar {
    let name = "deadlines are kept";
    let mut walk = DeadlineCheck::default();
    for step in &case.replay.steps {
        let request = &case.replay.requests[step.request];
        let Some(deadline) = request.deadline else { continue };
        match step.what {
            FlowChange::Granted => walk.granted(&request.id, step.at, deadline),
            FlowChange::Gone if request.expired => walk.expired(&request.id, step.at, deadline),
            _ => {}
        }
    }
    let mut problems = walk.problems;
    let rows = case.evidence.ledger.rows.iter().filter(|row| row.last);
    let rows: HashMap<&str, _> = rows.map(|row| (row.request.as_str(), row)).collect();
    for request in case.replay.requests.iter().filter(|request| request.expired) {
        let recorded = rows.get(&*request.id).map(|row| (row.status, row.code.as_deref()));
        if recorded != Some((504, Some(DEADLINE_PASSED))) {
            problems.push(format!("{} expired, and its row says {recorded:?}", request.id));
        }
    }
    for request in case.replay.requests.iter().filter(|request| request.grant.is_some()) {
        let row = rows.get(&*request.id);
        if row.is_some_and(|row| row.code.as_deref() == Some(DEADLINE_PASSED)) {
            problems
                .push(format!("{} was granted, and its row says {DEADLINE_PASSED}", request.id));
        }
    }
    let passed = |seen: &AnswerEnd| matches!(seen, AnswerEnd::Failed { status: Some(504), how } if how == DEADLINE_PASSED);
    let seen = case.evidence.results.iter().filter(|sighting| passed(&sighting.end)).count();
    let recorded = rows.values().filter(|row| row.code.as_deref() == Some(DEADLINE_PASSED)).count();
    if seen != recorded {
        problems.push(format!("{seen} by the clients' count, {recorded} rows"));
    }
    if let Some(first) = problems.first() {
        return ProveBar::new(name, false, format!("{} times not: {first}", problems.len()));
    }
    let DeadlineCheck { granted, expired, latest, .. } = walk;
    let says = format!(
        "{granted} grants before their deadlines; {expired} refused at theirs, {:.1} ms late at most",
        latest.0 as f64 / 1000.0
    );
    ProveBar::new(name, granted > 0 && expired > 0, says)
}

#[derive(Debug, Default)]
struct DeadlineCheck {
    granted: u64,
    expired: u64,
    latest: Micros,
    problems: Vec<String>,
}

impl DeadlineCheck {
    fn granted(&mut self, id: &str, at: Micros, deadline: Micros) {
        self.granted += 1;
        if at >= deadline {
            let late = at.0 - deadline.0;
            self.problems.push(format!("{id} was granted {late} µs after its deadline"));
        }
    }

    fn expired(&mut self, id: &str, at: Micros, deadline: Micros) {
        self.expired += 1;
        let late = Micros(at.0.saturating_sub(deadline.0));
        self.latest = self.latest.max(late);
        if at < deadline {
            self.problems
                .push(format!("{id} expired {} µs before its deadline", deadline.0 - at.0));
        } else if late > LATE_MAX {
            self.problems.push(format!("{id} expired {} µs after its deadline", late.0));
        }
    }
}

/// Checks at each grant that no other request of the same queue has an earlier deadline.
pub(super) fn earliest_first(case: &JudgedCase<'_>) -> ProveBar {
    let name = "the earliest goes first";
    let mut walk = EarliestFirstCheck::default();
    for step in &case.replay.steps {
        let request = &case.replay.requests[step.request];
        let (Some(tenant), Some(deadline)) = (request.tenant, request.deadline) else { continue };
        match step.what {
            FlowChange::Waits => drop(walk.queue(tenant).insert((deadline, step.request))),
            FlowChange::Gone => drop(walk.queue(tenant).remove(&(deadline, step.request))),
            FlowChange::Granted => walk.granted(tenant, (deadline, step.request), &request.id),
            FlowChange::Ended => {}
        }
    }
    let EarliestFirstCheck { overtook, breaches, .. } = walk;
    if let Some(first) = breaches.first() {
        return ProveBar::new(name, false, format!("{} times not: {first}", breaches.len()));
    }
    let says = format!("{overtook} grants went before a request that had come earlier");
    ProveBar::new(name, overtook > 0, says)
}

#[derive(Debug, Default)]
struct EarliestFirstCheck {
    /// Queued requests by tenant, ordered by deadline; each tenant has its own queue.
    waiting: BTreeMap<usize, BTreeSet<(Micros, RequestIndex)>>,
    overtook: u64,
    breaches: Vec<String>,
}

impl EarliestFirstCheck {
    fn queue(&mut self, tenant: usize) -> &mut BTreeSet<(Micros, RequestIndex)> {
        self.waiting.entry(tenant).or_default()
    }

    fn granted(&mut self, tenant: usize, (deadline, request): (Micros, RequestIndex), id: &str) {
        let queue = self.queue(tenant);
        queue.remove(&(deadline, request));
        let earliest = queue.first().copied();
        let came_earlier = queue.iter().any(|(_, other)| *other < request);
        self.overtook += u64::from(came_earlier);
        if let Some((earlier, _)) = earliest.filter(|(earlier, _)| *earlier < deadline) {
            let by = deadline.0 - earlier.0;
            self.breaches.push(format!("{id} went before one whose deadline is {by} µs earlier"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_grant_and_a_late_refusal_are_breaches() {
        let mut walk = DeadlineCheck::default();
        walk.granted("a", Micros(99), Micros(100));
        walk.expired("b", Micros(250_100), Micros(100));
        assert_eq!((walk.problems.len(), walk.latest), (0, LATE_MAX));
        walk.granted("c", Micros(100), Micros(100));
        walk.expired("d", Micros(250_101), Micros(100));
        walk.expired("e", Micros(99), Micros(100));
        assert_eq!(walk.problems.len(), 3, "{:?}", walk.problems);
    }

    #[test]
    fn a_grant_past_an_earlier_deadline_is_a_breach() {
        let mut walk = EarliestFirstCheck::default();
        walk.queue(0).extend([(Micros(30), 0), (Micros(20), 1), (Micros(10), 2)]);
        walk.queue(1).insert((Micros(1), 3));
        walk.granted(0, (Micros(10), 2), "a");
        assert_eq!((walk.overtook, walk.breaches.len()), (1, 0));
        walk.granted(0, (Micros(30), 0), "b");
        assert_eq!((walk.overtook, walk.breaches.len()), (1, 1));
    }
}
