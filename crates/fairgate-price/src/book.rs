//! The book of one kind of work: what each tenant pays for its time in slots, and the price that follows from it.
//!
//! If failed work were free, a tenant whose requests all fail after half a second would hold the pool for nothing. So
//! work that is not paid by its tokens pays what other tenants would have paid for the same time:
//!
//! ```text
//!     price = Σ rate × seconds ÷ Σ seconds       over the other tenants of the same kind of work
//!     rate  = tokens paid ÷ seconds in slots, of one tenant; at most 4 × median
//! ```
//!
//! The payer is left out of the sum, because otherwise a tenant whose work is cheap would set its own price. If no other
//! tenant has used a slot, its own rate is the price; before it has one, the default is.
//!
//! # The median
//! One tenant with few seconds and very many tokens (a batch of embeddings) must not set the price of all. So no rate
//! counts for more than 4 times the median. The median is that of the tenants' rates of *completed* work, the payer's
//! own among them, and of the default rate. Work paid by time has no part in it: otherwise a price would raise the
//! median, and the median the next price.
//!
//! Every number between the two middle ones is a median of an even number of rates. This module takes the upper one,
//! but at most 16 times the lower one, or the default if that is more. With one other tenant and a payer that has
//! completed nothing, the rates are that tenant's and the default, and nobody can know which of the two is wrong. The
//! upper one alone would let the other tenant choose the price. The lower one alone would let the payer fail cheaply
//! wherever honest work brings more than 4 times the default.
//!
//! Rates far below the median could lower the price in the same way, with long and cheap work. Together, rates below a
//! quarter of the median make up at most half of the seconds, if there are others.
//!
//! # What tenants together can do
//! The median holds as long as the tenants that lie are fewer than the honest ones and the default. Two tenants can
//! raise the price for one that has completed nothing and is alone with them; once it has completed a request, its own
//! rate holds them to 64 times that. Keys of one tenant are one tenant here.
//!
//! # Work that is reported and not seen
//! The holder of a lease reports its tokens itself. A report below the default would be a cheap way to lower one's own
//! median, so it has no part in the median ([`SlotTimeBook::record_reported`]). Such a lease pays by time. What it paid
//! is in the sum, so tenants that report nothing do not lower the price for each other: they pay what the others pay.
//!
//! # Expected cost
//! The expected cost of a request depends on its size. For a tenant whose requests mostly pay by time that is too low,
//! and the tenant could take many slots before it is charged for the first. So the expected cost of its next request is
//! raised towards the average charge of its attempts paid by time, in proportion to their part of its attempts.
//!
//! # State
//! A book knows at most [`TENANTS_MAX`] tenants, and forgets the one with the least slot time first. It is not stored:
//! after a restart the price is the default, until work has completed.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::fading_sums::FadingSums;
use crate::token_rate::TokenRate;

/// The most tenants that a book remembers.
pub const TENANTS_MAX: usize = 1024;
/// The most that a rate counts for, in medians.
pub const RATE_FACTOR_MAX: u32 = 4;
/// The most that the median is, in multiples of the lower of the two middle rates.
const MIDDLE_FACTOR_MAX: u32 = 16;
/// The unit of [`TenantSlotTime::time_paid_part`].
const WHOLE: u64 = 1 << 16;
/// The part of its attempts that a tenant may pay by time before its expected cost rises: one in a hundred.
const PART_IGNORED: u64 = WHOLE / 100;
/// The latest attempt is this part of an average: one in eight.
const LATEST: u64 = 8;

/// Prices of time in slots, for one kind of work. Times are durations since any fixed moment.
#[derive(Clone, Debug, Default)]
pub struct SlotTimeBook {
    tenants: BTreeMap<Box<str>, TenantSlotTime>,
}

/// One tenant's sums, faded up to `at_ms`, and averages over its attempts.
#[derive(Clone, Copy, Debug, Default)]
struct TenantSlotTime {
    /// Completed work: the tokens that it used.
    work: FadingSums,
    /// All attempts: the tokens that were paid.
    paid: FadingSums,
    at_ms: u64,
    /// Moving average of the part of its attempts that paid by time, in units of 1 ÷ [`WHOLE`].
    time_paid_part: u64,
    /// Moving average of the charge of its attempts that paid by time, in tokens.
    time_paid_charge: u64,
}

impl TenantSlotTime {
    fn faded(self, now: Duration) -> Self {
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let age_ms = now_ms.saturating_sub(self.at_ms);
        let (work, paid) = (self.work.faded(age_ms), self.paid.faded(age_ms));
        Self { work, paid, at_ms: self.at_ms.max(now_ms), ..self }
    }

    fn count_paid_by_tokens(&mut self) {
        self.time_paid_part -= self.time_paid_part.div_ceil(LATEST);
    }

    fn count_paid_by_time(&mut self, charge: u64) {
        let before = self.time_paid_charge;
        self.time_paid_charge = match before {
            0 => charge,
            _ => before - before.div_ceil(LATEST) + charge.div_ceil(LATEST),
        };
        self.time_paid_part += (WHOLE - self.time_paid_part) / LATEST;
    }
}

impl SlotTimeBook {
    /// Records completed work that its tokens paid for, with those tokens and its time in the slot.
    pub fn record_completed(&mut self, tenant: &str, tokens: u64, held: Duration, now: Duration) {
        self.change(tenant, now, |part| {
            part.work.add(tokens, held);
            part.paid.add(tokens, held);
            part.count_paid_by_tokens();
        });
    }

    /// Records work that paid for its time, with the tokens that it was charged and its time in the slot.
    pub fn record_paid_by_time(
        &mut self,
        tenant: &str,
        charge: u64,
        held: Duration,
        now: Duration,
    ) {
        self.change(tenant, now, |part| {
            part.paid.add(charge, held);
            part.count_paid_by_time(charge);
        });
    }

    /// Records completed work whose tokens its tenant reports itself. `charge` is the tokens that it paid: those of the
    /// report, or the price of its time if that is more. A report below the default rate has no part in the median.
    pub fn record_reported(
        &mut self,
        tenant: &str,
        reported: u64,
        charge: u64,
        held: Duration,
        default: TokenRate,
        now: Duration,
    ) {
        self.change(tenant, now, |part| {
            if reported >= default.cost(held) {
                part.work.add(reported, held);
            }
            part.paid.add(charge, held);
            match charge > reported {
                true => part.count_paid_by_time(charge),
                false => part.count_paid_by_tokens(),
            }
        });
    }

    /// Returns the price of a second in a slot for this payer.
    pub fn price(&self, payer: &str, default: TokenRate, now: Duration) -> TokenRate {
        let faded = |tenant: &TenantSlotTime| tenant.faded(now);
        let own = self.tenants.get(payer).map(faded).and_then(|part| part.work.rate());
        let others = self.tenants.iter().filter(|(tenant, _)| ***tenant != *payer);
        let others: Vec<TenantSlotTime> = others.map(|(_, part)| faded(part)).collect();
        let mut rates: Vec<TokenRate> = others.iter().filter_map(|part| part.work.rate()).collect();
        rates.extend(own);
        rates.push(default);
        let median = median(&mut rates, default);
        let most = median.times(RATE_FACTOR_MAX);
        let parts: Vec<(TokenRate, u128)> = (others.iter())
            .filter_map(|part| Some((part.paid.rate()?.min(most), part.paid.nanos())))
            .collect();
        let mean = TokenRate::mean(&limit_low_rates(parts, median));
        mean.or_else(|| Some(own?.min(most))).unwrap_or(default)
    }

    /// Returns the expected charge of a tenant's next request in tokens: `usual`, raised if the tenant's recent
    /// attempts paid by time and were charged more than that.
    pub fn expected(&self, tenant: &str, usual: u64) -> u64 {
        let Some(part) = self.tenants.get(tenant).filter(|part| part.time_paid_part > PART_IGNORED)
        else {
            return usual;
        };
        let more = u128::from(part.time_paid_charge.saturating_sub(usual));
        let more = (more * u128::from(part.time_paid_part)).div_ceil(u128::from(WHOLE));
        usual.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
    }

    fn change(&mut self, tenant: &str, now: Duration, change: impl FnOnce(&mut TenantSlotTime)) {
        if let Some(part) = self.tenants.get_mut(tenant) {
            *part = part.faded(now);
            change(part);
            return;
        }
        if self.tenants.len() >= TENANTS_MAX {
            let least = self.tenants.iter().min_by_key(|(_, part)| part.faded(now).paid.nanos());
            let least = least.map(|(tenant, _)| tenant.clone());
            least.map(|tenant| self.tenants.remove(&tenant));
        }
        let mut new = TenantSlotTime::default().faded(now);
        change(&mut new);
        self.tenants.insert(tenant.into(), new);
    }
}

/// Returns the median of rates, of which there is at least one: the middle one, or the upper one of the two middle
/// ones, limited as the module's documentation says.
fn median(rates: &mut [TokenRate], default: TokenRate) -> TokenRate {
    rates.sort_unstable();
    let upper = rates[rates.len() / 2];
    match rates.len() % 2 {
        1 => upper,
        _ => upper.min(rates[rates.len() / 2 - 1].times(MIDDLE_FACTOR_MAX).max(default)),
    }
}

/// Limits the seconds of low rates to those of the other rates. A rate is low if it is below a quarter of the median, or
/// of the highest of these rates if that is less.
fn limit_low_rates(mut parts: Vec<(TokenRate, u128)>, median: TokenRate) -> Vec<(TokenRate, u128)> {
    let highest = parts.iter().map(|(rate, _)| *rate).max().unwrap_or_default();
    let is_low = |rate: TokenRate| rate.times(RATE_FACTOR_MAX) < median.min(highest);
    let (mut low, mut other) = (0_u128, 0_u128);
    for (rate, nanos) in &parts {
        *(if is_low(*rate) { &mut low } else { &mut other }) += nanos;
    }
    if low > other {
        // Microseconds are exact enough, and their products do not overflow.
        let (low, other) = ((low >> 10).max(1), other >> 10);
        for (_, nanos) in parts.iter_mut().filter(|(rate, _)| is_low(*rate)) {
            *nanos = ((*nanos >> 10).saturating_mul(other) / low) << 10;
        }
    }
    parts
}

#[cfg(test)]
mod tests;
