//! Tokens per second, in integers.

use core::time::Duration;

/// Number of micro-tokens in a token.
pub(crate) const MICRO: u128 = 1_000_000;
/// Number of nanoseconds in a second.
pub(crate) const NANOS: u128 = 1_000_000_000;
/// The highest rate, in micro-tokens per second. The sum of weights is at most 2⁴⁶, so no weighted sum of rates
/// overflows 128 bits.
const RATE_MAX: u128 = 1 << 80;

/// A rate in tokens per second, exact to a millionth of a token. Rates are limited to about 1.2 × 10¹⁸ tokens per
/// second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenRate(u128);

impl TokenRate {
    /// Creates the rate of this many tokens in this time. A time of 0 counts as one nanosecond.
    pub fn new(tokens: u64, time: Duration) -> Self {
        Self::of_sums(u128::from(tokens) * MICRO, time.as_nanos())
    }

    /// Returns the tokens that a span of time costs at this rate, rounded up, but at most `u64::MAX`.
    pub fn cost(self, time: Duration) -> u64 {
        let cost = self.0.saturating_mul(time.as_nanos()).div_ceil(MICRO * NANOS);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    pub(crate) fn of_sums(micro_tokens: u128, nanos: u128) -> Self {
        Self((micro_tokens.saturating_mul(NANOS) / nanos.max(1)).min(RATE_MAX))
    }

    pub(crate) fn times(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(factor.into()).min(RATE_MAX))
    }

    /// Returns the weighted mean of rates, each given with its weight; `None` if the sum of the weights is 0. If the
    /// sum of the weights exceeds 2⁴⁶, their lowest bits are dropped.
    pub(crate) fn mean(parts: &[(Self, u128)]) -> Option<Self> {
        let all = parts.iter().fold(0_u128, |all, (_, weight)| all.saturating_add(*weight));
        let shift = (128 - all.leading_zeros()).saturating_sub(46);
        let (mut sum, mut weights) = (0_u128, 0_u128);
        for (rate, weight) in parts {
            let weight = weight >> shift;
            sum += rate.0 * weight;
            weights += weight;
        }
        sum.checked_div(weights).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_cost_is_rounded_up_and_never_wraps() {
        let rate = TokenRate::new(512, 10 * SECOND);
        assert_eq!(rate.cost(10 * SECOND), 512);
        assert_eq!(rate.cost(SECOND), 52);
        assert_eq!(rate.cost(Duration::ZERO), 0);
        let most = TokenRate::new(u64::MAX, Duration::ZERO).times(u32::MAX);
        assert_eq!(most, TokenRate(RATE_MAX));
        assert_eq!(most.cost(Duration::MAX), u64::MAX);
    }

    #[test]
    fn a_mean_weighs_rates_and_never_wraps() {
        let rates = [TokenRate::new(0, SECOND), TokenRate::new(300, SECOND)];
        let mean = TokenRate::mean(&[(rates[0], 2), (rates[1], 1)]);
        assert_eq!(mean, Some(TokenRate::new(100, SECOND)));
        assert_eq!(TokenRate::mean(&[]), None);
        assert_eq!(TokenRate::mean(&[(rates[1], 0)]), None);
        let most = vec![(TokenRate(RATE_MAX), u128::MAX / 1024); 1024];
        assert_eq!(TokenRate::mean(&most), Some(TokenRate(RATE_MAX)));
    }
}
