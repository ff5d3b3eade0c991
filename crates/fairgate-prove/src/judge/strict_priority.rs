//! The bar about strict priority: a class is granted a slot only while no class above it can be granted one.

use std::collections::BTreeMap;

use super::JudgedCase;
use crate::replay::{FlowChange, RequestIndex};
use crate::report::ProveBar;

/// Checks at each grant that every higher class has nothing queued or is at its cap. Higher classes
/// with a queued retry are skipped, because a retry may be unable to use the worker that is free.
pub(super) fn in_order(case: &JudgedCase<'_>, caps: &[u64]) -> ProveBar {
    let name = "the order is strict";
    let mut walk = StrictOrderCheck { caps, ..StrictOrderCheck::default() };
    for step in &case.replay.steps {
        let request = &case.replay.requests[step.request];
        let Some(band) = request.tenant else { continue };
        match step.what {
            FlowChange::Waits => walk.waits(band, step.request, request.is_retry),
            FlowChange::Gone => walk.waits_no_more(band, step.request),
            FlowChange::Granted => walk.granted(band, step.request, step.event),
            FlowChange::Ended => walk.ended(band),
        }
    }
    let StrictOrderCheck { past_full, grants, breaches, .. } = walk;
    if let Some(first) = breaches.first() {
        return ProveBar::new(name, false, format!("{} times not: {first}", breaches.len()));
    }
    let says = format!(
        "{grants} grants, none while a class above could go; {past_full} of them while one above waited at its cap"
    );
    ProveBar::new(name, past_full > 0, says)
}

#[derive(Default)]
struct StrictOrderCheck<'a> {
    /// Caps of all bands but the last, in slots.
    caps: &'a [u64],
    /// Queued requests by band; the value is true for a retry.
    waiting: BTreeMap<usize, BTreeMap<RequestIndex, bool>>,
    /// Requests in flight by band.
    in_flight: BTreeMap<usize, u64>,
    grants: u64,
    /// Number of grants made while a higher class had requests queued and was at its cap.
    past_full: u64,
    breaches: Vec<String>,
}

impl StrictOrderCheck<'_> {
    fn waits(&mut self, band: usize, request: RequestIndex, again: bool) {
        self.waiting.entry(band).or_default().insert(request, again);
    }

    fn waits_no_more(&mut self, band: usize, request: RequestIndex) {
        self.waiting.entry(band).or_default().remove(&request);
    }

    fn granted(&mut self, band: usize, request: RequestIndex, event: u64) {
        self.waits_no_more(band, request);
        self.grants += 1;
        let mut is_past_full = false;
        for (above, cap) in self.caps.iter().enumerate().take(band) {
            let waiting = self.waiting.get(&above);
            let waits = waiting.is_some_and(|all| !all.is_empty() && !all.values().any(|it| *it));
            let in_flight = self.in_flight.get(&above).copied().unwrap_or(0);
            if waits && in_flight < *cap {
                self.breaches.push(format!(
                    "event {event} granted class {band} while class {above} waited with {in_flight} of {cap} in flight"
                ));
            }
            is_past_full |= waits && in_flight >= *cap;
        }
        self.past_full += u64::from(is_past_full);
        *self.in_flight.entry(band).or_default() += 1;
    }

    fn ended(&mut self, band: usize) {
        let in_flight = self.in_flight.entry(band).or_default();
        *in_flight = in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_past_a_class_that_could_go_is_a_breach() {
        let mut walk = StrictOrderCheck { caps: &[1], ..StrictOrderCheck::default() };
        for (band, request) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
            walk.waits(band, request, false);
        }
        walk.granted(0, 0, 1);
        walk.granted(1, 2, 2);
        assert_eq!((walk.breaches.len(), walk.past_full), (0, 1), "the first class is at its cap");
        walk.ended(0);
        walk.granted(1, 3, 3);
        assert_eq!(walk.breaches.len(), 1, "{:?}", walk.breaches);
    }
}
