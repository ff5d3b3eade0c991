//! The book of one kind of work: the tokens that each tenant paid for its time in slots, and the price of time that
//! follows from them.
//!
//! If failed work were free, a tenant whose requests all fail after half a second could fill the pool and pay nothing.
//! So work that its own tokens do not pay for is charged what other tenants would have paid for the same time:
//!
//! ```text
//!     price = Σ rate × seconds ÷ Σ seconds       over the other tenants of the same kind of work
//!     rate  = tokens paid ÷ seconds in slots, of one tenant; at most 4 × median
//! ```
//!
//! The payer is left out of the sum, because otherwise a tenant whose work is cheap would set its own price. If no
//! other tenant has used a slot, the price is the payer's own rate of completed work. If the payer has completed
//! nothing either, the price is the default.
//!
//! # The median
//! One tenant with few seconds and very many tokens (a batch of embeddings) must not set the price of all. So no rate
//! counts for more than 4 times the median. The median is taken over the default rate and all tenants' rates of
//! *completed* work, including the payer's. Work paid by time is left out of these rates. Otherwise a price would raise
//! the median, and the median would raise the next price.
//!
//! For an even number of rates, every number between the two middle rates is a median. This module takes the upper one,
//! but no more than 16 times the lower one or than the default, whichever is greater. With one other tenant and a payer
//! that has completed nothing, the rates are that tenant's and the default, and nobody can know which of the two is
//! wrong. If the upper rate were always taken, the other tenant could choose the price. If the lower rate were always
//! taken, the payer could fail cheaply in a pool whose honest work has a rate of more than 4 times the default.
//!
//! A tenant with long and cheap work has a rate far below the median, and could lower the price for all. So the seconds
//! of rates below a quarter of the median together count for at most half of all seconds, if there are other rates.
//!
//! # What tenants together can do
//! Tenants can work together to move the median. They cannot move it far as long as they are fewer than the rates of
//! honest tenants and the default together. Two tenants can raise the price for a third that has completed nothing and
//! is alone with them. Once the third has completed a request, its price is at most 64 times the greater of its own
//! rate and the default. All keys of a tenant count as one tenant here.
//!
//! # Work that is reported and not seen
//! The holder of a lease reports its tokens itself. A report below the default rate would be a cheap way for the holder
//! to lower its own median, so such a report is left out of the median ([`SlotTimeBook::record_reported`]). A lease
//! pays the tokens that it reports or the price of its time, whichever is more. The paid tokens enter the sum. So
//! tenants that report nothing do not lower the price for each other, because they pay the same rate as the others.
//!
//! # Expected cost
//! The expected cost of a request depends on its size. If a tenant's requests mostly pay by time, this expectation is
//! too low, and the tenant could take many slots before it is charged for the first. So the expected cost of the
//! tenant's next request is raised towards the average charge of its attempts that paid by time. The raise is in
//! proportion to the part of its attempts that paid by time.
//!
//! # State
//! A book knows at most [`TENANTS_MAX`] tenants, and forgets the one with the least slot time first. The book is not
//! stored, so after a restart the price is the default until work has been recorded.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use crate::fading_sums::FadingSums;
use crate::token_rate::TokenRate;

/// Greatest number of tenants that a book remembers.
pub const TENANTS_MAX: usize = 1024;
/// A rate above this many times the median counts as this many times the median.
pub const RATE_FACTOR_MAX: u32 = 4;
/// For an even number of rates, the median is at most this many times the lower of the two middle rates, or the default
/// if that is more.
const MIDDLE_FACTOR_MAX: u32 = 16;
/// The value of [`TenantSlotTime::time_paid_part`] for a tenant whose attempts all paid by time.
const WHOLE: u64 = 1 << 16;
/// A tenant's expected cost is not raised if at most this part of its attempts, one in a hundred, paid by time.
const PART_IGNORED: u64 = WHOLE / 100;
/// Divisor of the moving averages: the latest attempt makes up one eighth of an average.
const LATEST: u64 = 8;

/// Prices of time in slots, for one kind of work. Each `now` is the duration since a fixed moment that the caller
/// chooses.
#[derive(Clone, Debug, Default)]
pub struct SlotTimeBook {
    tenants: BTreeMap<Box<str>, TenantSlotTime>,
}

/// The sums of one tenant, faded up to the time `at_ms`, and moving averages over its attempts.
#[derive(Clone, Copy, Debug, Default)]
struct TenantSlotTime {
    /// Tokens and slot time of the tenant's completed work.
    work: FadingSums,
    /// Tokens paid for all of the tenant's attempts, and their slot time.
    paid: FadingSums,
    at_ms: u64,
    /// Moving average of the part of the tenant's attempts that paid by time, in units of 1 ÷ [`WHOLE`].
    time_paid_part: u64,
    /// Moving average of the charge, in tokens, of the tenant's attempts that paid by time.
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
    /// Records completed work that was paid by its `tokens`. `held` is the time for which it held its slot.
    pub fn record_completed(&mut self, tenant: &str, tokens: u64, held: Duration, now: Duration) {
        self.change(tenant, now, |part| {
            part.work.add(tokens, held);
            part.paid.add(tokens, held);
            part.count_paid_by_tokens();
        });
    }

    /// Records work that was paid by time. `charge` is the number of tokens that it was charged, and `held` the time
    /// for which it held its slot.
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

    /// Records completed work whose tokens the tenant itself reports. `charge` is the number of tokens that the work
    /// paid: the reported tokens, or the price of its time if that is more. A report below the default rate is left out
    /// of the median.
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

    /// Returns the price of time in a slot for this payer, in tokens per second.
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

    /// Returns the expected charge of a tenant's next request in tokens: `usual`, or more if recent attempts of the
    /// tenant paid by time and were charged more than `usual`.
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

/// Returns the median of at least one rate: the middle one, or the upper one of the two middle ones, limited as the
/// module's documentation says.
fn median(rates: &mut [TokenRate], default: TokenRate) -> TokenRate {
    rates.sort_unstable();
    let upper = rates[rates.len() / 2];
    match rates.len() % 2 {
        1 => upper,
        _ => upper.min(rates[rates.len() / 2 - 1].times(MIDDLE_FACTOR_MAX).max(default)),
    }
}

/// Limits the total time of low rates to the total time of the other rates. A rate is low if it is below a quarter of
/// the median. If the highest rate is below the median, it is used instead of the median.
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
