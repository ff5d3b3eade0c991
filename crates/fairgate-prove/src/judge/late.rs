//! The bar about `max_wait_ticks`: who has waited for so many ends of other requests goes before all others.

use std::collections::{BTreeMap, BTreeSet};

use super::Case;
use crate::replay::{Index, What};
use crate::report::Bar;

/// At each grant: where any tenant's oldest request has waited for `ticks_max` ends, the one that has waited for the most
/// is granted. A tenant with a request that is tried again is left out: that one may not go to every worker.
pub(super) fn late_first(case: &Case<'_>, ticks_max: u64) -> Bar {
    let name = "late ones go first";
    let mut walk = Walk { ticks_max, ..Walk::default() };
    for step in &case.replay.steps {
        let request = &case.replay.requests[step.request];
        let Some(tenant) = request.tenant else { continue };
        match step.what {
            What::Waits => walk.waits(tenant, step.request, request.again),
            What::Gone => drop(walk.waits_no_more(tenant, step.request)),
            What::Granted => walk.granted(tenant, step.request, step.event),
            What::Ended => walk.ticks += 1,
        }
    }
    let Walk { late, longest, breaches, .. } = walk;
    if let Some(first) = breaches.first() {
        return Bar::new(name, false, format!("{} times not: {first}", breaches.len()));
    }
    let says = format!(
        "{late} grants went to a request that had waited for {ticks_max} ends or more; the longest wait was {longest} ends"
    );
    Bar::new(name, late > 0, says)
}

#[derive(Default)]
struct Walk {
    ticks_max: u64,
    ticks: u64,
    /// By tenant: what waits, oldest first, with the tick at which it came and whether it is tried again.
    waiting: BTreeMap<usize, BTreeMap<Index, (u64, bool)>>,
    /// Grants to late ones.
    late: u64,
    longest: u64,
    breaches: Vec<String>,
}

impl Walk {
    fn waits(&mut self, tenant: usize, request: Index, again: bool) {
        self.waiting.entry(tenant).or_default().insert(request, (self.ticks, again));
    }

    fn waits_no_more(&mut self, tenant: usize, request: Index) -> Option<(u64, bool)> {
        self.waiting.get_mut(&tenant)?.remove(&request)
    }

    fn granted(&mut self, tenant: usize, request: Index, event: u64) {
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
        let mut walk = Walk { ticks_max: 2, ..Walk::default() };
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
