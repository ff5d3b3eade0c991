//! The bar about `max_wait_ticks`: a request that has waited while that many other requests ended
//! goes first.

use std::collections::{BTreeMap, BTreeSet};

use super::JudgedCase;
use crate::replay::{FlowChange, RequestIndex};
use crate::report::ProveBar;

/// Checks each grant. If the oldest request of any tenant has waited while `ticks_max` other
/// requests ended, the request that has waited longest must be granted. Tenants with a queued retry
/// are skipped, because a retry may be unable to use the worker that is free.
pub(super) fn late_first(case: &JudgedCase<'_>, ticks_max: u64) -> ProveBar {
    let name = "late ones go first";
    let mut walk = LateFirstCheck { ticks_max, ..LateFirstCheck::default() };
    for step in &case.replay.steps {
        let request = &case.replay.requests[step.request];
        let Some(tenant) = request.tenant else { continue };
        match step.what {
            FlowChange::Waits => walk.waits(tenant, step.request, request.is_retry),
            FlowChange::Gone => drop(walk.waits_no_more(tenant, step.request)),
            FlowChange::Granted => walk.granted(tenant, step.request, step.event),
            FlowChange::Ended => walk.ticks += 1,
        }
    }
    let LateFirstCheck { late, longest, breaches, .. } = walk;
    if let Some(first) = breaches.first() {
        return ProveBar::new(name, false, format!("{} times not: {first}", breaches.len()));
    }
    let says = format!(
        "{late} grants went to a request that had waited for {ticks_max} ends or more; the longest wait was {longest} ends"
    );
    ProveBar::new(name, late > 0, says)
}

#[derive(Default)]
struct LateFirstCheck {
    ticks_max: u64,
    ticks: u64,
    /// Queued requests by tenant, oldest first. Each has the tick of its arrival, and true if it is
    /// a retry.
    waiting: BTreeMap<usize, BTreeMap<RequestIndex, (u64, bool)>>,
    /// Number of grants to requests that had waited for `max_wait_ticks` or longer.
    late: u64,
    longest: u64,
    breaches: Vec<String>,
}

impl LateFirstCheck {
    fn waits(&mut self, tenant: usize, request: RequestIndex, again: bool) {
        self.waiting.entry(tenant).or_default().insert(request, (self.ticks, again));
    }

    fn waits_no_more(&mut self, tenant: usize, request: RequestIndex) -> Option<(u64, bool)> {
        self.waiting.get_mut(&tenant)?.remove(&request)
    }

    fn granted(&mut self, tenant: usize, request: RequestIndex, event: u64) {
        let others: BTreeSet<u64> = (self.waiting.values())
            .filter(|flow| !flow.values().any(|(_, again)| *again))
            .filter_map(|flow| flow.values().next())
            .map(|(since, _)| self.ticks - since)
            .collect();
        let latest = others.last().copied().unwrap_or(0);
        let Some((since, _)) = self.waits_no_more(tenant, request) else { return };
        let waited = self.ticks - since;
        self.longest = self.longest.max(waited);
        self.late += u64::from(waited >= self.ticks_max);
        if latest >= self.ticks_max && waited < latest {
            self.breaches.push(format!(
                "event {event} granted one that had waited for {waited} ends while another had for {latest}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_past_one_who_is_late_is_a_breach() {
        let mut walk = LateFirstCheck { ticks_max: 2, ..LateFirstCheck::default() };
        walk.waits(0, 0, false);
        walk.waits(1, 1, false);
        walk.waits(1, 2, false);
        walk.ticks = 1;
        walk.granted(1, 1, 7);
        walk.ticks = 2;
        walk.waits(1, 3, false);
        walk.granted(1, 3, 8);
        assert_eq!(walk.breaches.len(), 1, "{:?}", walk.breaches);
        walk.granted(0, 0, 9);
        assert_eq!((walk.breaches.len(), walk.late, walk.longest), (1, 1, 2));
    }
}
