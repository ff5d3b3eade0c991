//! The price of a second in a slot, in charged tokens. Attempts that use a worker and do not complete pay this price.
//!
//! If failed work were free, a tenant whose requests all fail after half a second would hold the pool for nothing. So
//! an attempt that did not complete pays at least the tokens that others would have been charged for the same slot
//! time:
//!
//! ```text
//!     floor = Σ charge / Σ slot-seconds         over the pool's completed requests
//! ```
//!
//! The payer's own requests are left out if other tenants have completed any; otherwise a tenant that completes only
//! cheap requests could set its own price. No tenant makes up more than half of the sum; otherwise one tenant could set
//! the price of all. The older a request is, the less it counts: by a factor of e for every ten minutes. Before any
//! request has completed, ten seconds in a slot cost the pool's `output_default`.
//!
//! The expected cost of a request depends on its size. If a tenant's requests mostly fail, that cost is too low,
//! because it leaves out the price of their time in the slot, and the tenant could take many slots at once before it is
//! charged for the first. So the expected cost of the tenant's next request is raised towards the average charge of its
//! failed attempts, in proportion to the part of its attempts that failed.
//!
//! If the worker was at fault, the scheduler counts the attempt's time in the slot, but no budget pays for that time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::rounding::{floor_to_u64, to_f64};

/// Time after which a completed request counts less by a factor of e.
const FADES: Duration = Duration::from_secs(600);
/// Seconds in a slot that cost the pool's `output_default`, before any request has completed.
const FIRST_SECONDS: f64 = 10.0;
/// The most tenants that are remembered; the one with the least slot time is dropped first.
const TENANTS_MAX: usize = 1024;
/// Weight of the latest attempt in the averages of a tenant's failure rate and failure cost.
const LATEST: f64 = 0.125;

/// Charges and slot time of completed requests, by tenant.
#[derive(Default)]
pub(crate) struct SlotTimePrice {
    tenants: Mutex<HashMap<Box<str>, TenantSlotTime>>,
}

/// Sums over a tenant's completed requests, reduced for their age up to `at`, and averages over its failed attempts.
#[derive(Clone, Copy, Debug)]
struct TenantSlotTime {
    tokens: f64,
    seconds: f64,
    at: Instant,
    /// Moving average of the part of the tenant's attempts that failed, 0 to 1.
    failure_rate: f64,
    /// Moving average of the charge of the tenant's failed attempts, in tokens.
    failed_charge: f64,
}

impl TenantSlotTime {
    fn faded(self, now: Instant) -> Self {
        let left =
            (-now.saturating_duration_since(self.at).as_secs_f64() / FADES.as_secs_f64()).exp();
        Self { tokens: self.tokens * left, seconds: self.seconds * left, at: now, ..self }
    }
}

impl SlotTimePrice {
    /// Counts a completed request with its charge in tokens and the time for which it held its slot.
    pub(crate) fn completed(&self, tenant: &str, charge: u64, held: Duration, now: Instant) {
        self.change(tenant, now, |part| {
            part.tokens += to_f64(charge);
            part.seconds += held.as_secs_f64();
            part.failure_rate *= 1.0 - LATEST;
        });
    }

    /// Counts an attempt that did not complete, with its charge in tokens.
    pub(crate) fn failed(&self, tenant: &str, charge: u64, now: Instant) {
        self.change(tenant, now, |part| {
            let first = part.failed_charge == 0.0;
            let latest = if first { 1.0 } else { LATEST };
            part.failed_charge += (to_f64(charge) - part.failed_charge) * latest;
            part.failure_rate += (1.0 - part.failure_rate) * LATEST;
        });
    }

    /// Returns the expected charge of a tenant's request in tokens: `usual`, raised if the tenant's recent attempts
    /// failed and cost more than that.
    pub(crate) fn expected(&self, tenant: &str, usual: u64) -> u64 {
        let tenants = self.lock();
        let Some(part) = tenants.get(tenant).filter(|part| part.failure_rate > 0.01) else {
            return usual;
        };
        let more = (part.failed_charge - to_f64(usual)).max(0.0);
        usual.saturating_add(floor_to_u64((more * part.failure_rate).ceil()))
    }

    fn change(&self, tenant: &str, now: Instant, change: impl FnOnce(&mut TenantSlotTime)) {
        let mut tenants = self.lock();
        if !tenants.contains_key(tenant) && tenants.len() >= TENANTS_MAX {
            let seconds = |part: &TenantSlotTime| part.faded(now).seconds;
            let least = tenants.iter().min_by(|a, b| seconds(a.1).total_cmp(&seconds(b.1)));
            let least = least.map(|(tenant, _)| tenant.clone());
            least.map(|tenant| tenants.remove(&tenant));
        }
        if let Some(part) = tenants.get_mut(tenant) {
            *part = part.faded(now);
            change(part);
            return;
        }
        let mut new = TenantSlotTime {
            tokens: 0.0,
            seconds: 0.0,
            at: now,
            failure_rate: 0.0,
            failed_charge: 0.0,
        };
        change(&mut new);
        tenants.insert(tenant.into(), new);
    }

    /// Returns the price of holding a slot for `held`, in whole tokens, rounded up.
    pub(crate) fn price(
        &self,
        payer: &str,
        held: Duration,
        output_default: u64,
        now: Instant,
    ) -> u64 {
        let floor =
            self.tokens_per_second(payer, now).unwrap_or(to_f64(output_default) / FIRST_SECONDS);
        floor_to_u64((floor * held.as_secs_f64()).ceil())
    }

    /// Returns the price for this payer in tokens per second; `None` before any request has completed.
    fn tokens_per_second(&self, payer: &str, now: Instant) -> Option<f64> {
        let tenants = self.lock();
        let mut parts: Vec<TenantSlotTime> = tenants
            .iter()
            .filter(|(tenant, _)| ***tenant != *payer)
            .map(|(_, part)| part.faded(now))
            .filter(|part| part.seconds > 0.0)
            .collect();
        if parts.is_empty() {
            parts.extend(tenants.get(payer).map(|part| part.faded(now)));
        }
        let all: f64 = parts.iter().map(|part| part.seconds).sum();
        let (mut tokens, mut seconds) = (0.0, 0.0);
        for part in &parts {
            let others = all - part.seconds;
            let counted = if parts.len() > 1 { part.seconds.min(others) } else { part.seconds };
            tokens += part.tokens * counted / part.seconds;
            seconds += counted;
        }
        (seconds > 0.0).then(|| tokens / seconds)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, TenantSlotTime>> {
        // Every change is one assignment, so a panic leaves nothing half-done.
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn before_anything_has_completed_a_slot_brings_the_default_in_ten_seconds() {
        let occupation = SlotTimePrice::default();
        let now = Instant::now();
        assert_eq!(occupation.price("a", 10 * SECOND, 500, now), 500);
        assert_eq!(occupation.price("a", SECOND / 2, 500, now), 25);
        assert_eq!(occupation.price("a", Duration::ZERO, 500, now), 0);
    }

    #[test]
    fn the_others_set_the_price() {
        let occupation = SlotTimePrice::default();
        let now = Instant::now();
        occupation.completed("cheap", 1, 100 * SECOND, now);
        // Alone, there is no other price than its own.
        assert_eq!(occupation.price("cheap", 100 * SECOND, 500, now), 1);
        occupation.completed("a", 1000, 10 * SECOND, now);
        assert_eq!(occupation.price("cheap", SECOND, 500, now), 100);
        assert_eq!(occupation.price("a", 100 * SECOND, 500, now), 1);
    }

    #[test]
    fn nobody_makes_up_more_than_half_of_it() {
        let occupation = SlotTimePrice::default();
        let now = Instant::now();
        occupation.completed("cheap", 0, 1000 * SECOND, now);
        occupation.completed("a", 600, 6 * SECOND, now);
        occupation.completed("b", 400, 4 * SECOND, now);
        // Ten seconds of the cheap one count, beside ten of the others.
        assert_eq!(occupation.price("payer", SECOND, 500, now), 50);
    }

    #[test]
    fn the_past_fades() {
        let occupation = SlotTimePrice::default();
        let start = Instant::now();
        occupation.completed("a", 10_000, 10 * SECOND, start);
        let later = start + 10 * FADES;
        occupation.completed("a", 100, 10 * SECOND, later);
        assert_eq!(occupation.price("b", SECOND, 500, later), 11);
    }

    #[test]
    fn who_fails_is_expected_to_pay_for_its_time() {
        let occupation = SlotTimePrice::default();
        let now = Instant::now();
        assert_eq!(occupation.expected("a", 50), 50);
        (0..40).for_each(|_| occupation.failed("a", 250, now));
        let expected = occupation.expected("a", 50);
        assert!((240..=250).contains(&expected), "{expected}");
        assert_eq!(occupation.expected("a", 1000), 1000);
        assert_eq!(occupation.expected("b", 50), 50);
        (0..40).for_each(|_| occupation.completed("a", 50, SECOND, now));
        assert_eq!(occupation.expected("a", 50), 50);
    }

    #[test]
    fn it_remembers_so_many_tenants_and_no_more() {
        let occupation = SlotTimePrice::default();
        let now = Instant::now();
        occupation.completed("large", 7000, 1000 * SECOND, now);
        for i in 0..2 * TENANTS_MAX {
            occupation.completed(&format!("t{i}"), 7, SECOND, now);
        }
        assert_eq!(occupation.lock().len(), TENANTS_MAX);
        assert!(occupation.lock().contains_key("large"));
    }
}
