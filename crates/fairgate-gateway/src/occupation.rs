//! What a second in a slot is worth, in charged tokens: what work pays that uses a worker and does not complete.
//!
//! Were failed work free, a tenant whose requests all fail after half a second would hold the pool for nothing. So an
//! attempt that did not complete pays at least what its time in the slot would have brought from the others:
//!
//! ```text
//!     floor = Σ charge / Σ slot-seconds         over the pool's completed requests
//! ```
//!
//! The payer's own requests are left out where there are others', or whoever completes nothing but cheap ones could set its
//! own price. No tenant makes up more than half of the sum, or one could set everybody's. Old requests fade: after ten
//! minutes one counts e times less. Before any has completed, a slot brings the pool's `output_default` every ten seconds.
//!
//! A request is expected to cost what it usually does, by its size. Where a tenant's requests mostly fail, that is wrong by
//! as much as their time in the slot is worth, and the tenant would take many slots at once before it is charged for the first. So
//! what its failed attempts came to is part of what the next one is expected to cost.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::numbers::{precise, whole};

/// After how long a completed request counts e times less.
const FADES: Duration = Duration::from_secs(600);
/// The time in which a slot brings `output_default`, before anything is known.
const FIRST_SECONDS: f64 = 10.0;
/// How many tenants are remembered; the one with the least slot time makes room.
const TENANTS_MAX: usize = 1024;
/// The part of the latest attempt in how often a tenant's attempts fail, and in what that comes to.
const LATEST: f64 = 0.125;

/// What completed requests have brought, by tenant.
#[derive(Default)]
pub(crate) struct Occupation {
    tenants: Mutex<HashMap<Box<str>, Part>>,
}

/// A tenant's completed requests, faded up to `at`, and its failed ones.
#[derive(Clone, Copy, Debug)]
struct Part {
    tokens: f64,
    seconds: f64,
    at: Instant,
    /// How many of its last attempts failed, as a part of all.
    failing: f64,
    /// What a failed one was charged, in tokens.
    failed_charge: f64,
}

impl Part {
    fn faded(self, now: Instant) -> Self {
        let left =
            (-now.saturating_duration_since(self.at).as_secs_f64() / FADES.as_secs_f64()).exp();
        Self { tokens: self.tokens * left, seconds: self.seconds * left, at: now, ..self }
    }
}

impl Occupation {
    /// A tenant's request has completed: it was charged so much, and held its slot for so long.
    pub(crate) fn completed(&self, tenant: &str, charge: u64, held: Duration, now: Instant) {
        self.change(tenant, now, |part| {
            part.tokens += precise(charge);
            part.seconds += held.as_secs_f64();
            part.failing *= 1.0 - LATEST;
        });
    }

    /// A tenant's attempt has not completed: it was charged so much.
    pub(crate) fn failed(&self, tenant: &str, charge: u64, now: Instant) {
        self.change(tenant, now, |part| {
            let first = part.failed_charge == 0.0;
            let latest = if first { 1.0 } else { LATEST };
            part.failed_charge += (precise(charge) - part.failed_charge) * latest;
            part.failing += (1.0 - part.failing) * LATEST;
        });
    }

    /// What a request of a tenant is expected to be charged that usually costs so much.
    pub(crate) fn expected(&self, tenant: &str, usual: u64) -> u64 {
        let tenants = self.lock();
        let Some(part) = tenants.get(tenant).filter(|part| part.failing > 0.01) else {
            return usual;
        };
        let more = (part.failed_charge - precise(usual)).max(0.0);
        usual.saturating_add(whole((more * part.failing).ceil()))
    }

    fn change(&self, tenant: &str, now: Instant, change: impl FnOnce(&mut Part)) {
        let mut tenants = self.lock();
        if !tenants.contains_key(tenant) && tenants.len() >= TENANTS_MAX {
            let seconds = |part: &Part| part.faded(now).seconds;
            let least = tenants.iter().min_by(|a, b| seconds(a.1).total_cmp(&seconds(b.1)));
            let least = least.map(|(tenant, _)| tenant.clone());
            least.map(|tenant| tenants.remove(&tenant));
        }
        if let Some(part) = tenants.get_mut(tenant) {
            *part = part.faded(now);
            change(part);
            return;
        }
        let mut new = Part { tokens: 0.0, seconds: 0.0, at: now, failing: 0.0, failed_charge: 0.0 };
        change(&mut new);
        tenants.insert(tenant.into(), new);
    }

    /// What a tenant pays for having held a slot for so long, in whole tokens.
    pub(crate) fn price(
        &self,
        payer: &str,
        held: Duration,
        output_default: u64,
        now: Instant,
    ) -> u64 {
        let floor = self.floor(payer, now).unwrap_or(precise(output_default) / FIRST_SECONDS);
        whole((floor * held.as_secs_f64()).ceil())
    }

    /// Tokens per second.
    fn floor(&self, payer: &str, now: Instant) -> Option<f64> {
        let tenants = self.lock();
        let mut parts: Vec<Part> = tenants
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Part>> {
        // Every change is one assignment.
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn before_anything_has_completed_a_slot_brings_the_default_in_ten_seconds() {
        let occupation = Occupation::default();
        let now = Instant::now();
        assert_eq!(occupation.price("a", 10 * SECOND, 500, now), 500);
        assert_eq!(occupation.price("a", SECOND / 2, 500, now), 25);
        assert_eq!(occupation.price("a", Duration::ZERO, 500, now), 0);
    }

    #[test]
    fn the_others_set_the_price() {
        let occupation = Occupation::default();
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
        let occupation = Occupation::default();
        let now = Instant::now();
        occupation.completed("cheap", 0, 1000 * SECOND, now);
        occupation.completed("a", 600, 6 * SECOND, now);
        occupation.completed("b", 400, 4 * SECOND, now);
        // Ten seconds of the cheap one count, beside ten of the others.
        assert_eq!(occupation.price("payer", SECOND, 500, now), 50);
    }

    #[test]
    fn the_past_fades() {
        let occupation = Occupation::default();
        let start = Instant::now();
        occupation.completed("a", 10_000, 10 * SECOND, start);
        let later = start + 10 * FADES;
        occupation.completed("a", 100, 10 * SECOND, later);
        assert_eq!(occupation.price("b", SECOND, 500, later), 11);
    }

    #[test]
    fn who_fails_is_expected_to_pay_for_its_time() {
        let occupation = Occupation::default();
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
        let occupation = Occupation::default();
        let now = Instant::now();
        occupation.completed("large", 7000, 1000 * SECOND, now);
        for i in 0..2 * TENANTS_MAX {
            occupation.completed(&format!("t{i}"), 7, SECOND, now);
        }
        assert_eq!(occupation.lock().len(), TENANTS_MAX);
        assert!(occupation.lock().contains_key("large"));
    }
}
