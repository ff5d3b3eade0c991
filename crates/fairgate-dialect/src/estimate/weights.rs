//! Computes the cost of a usage, in weighted tokens.

use crate::meter::TokenUsage;

/// Weights of the kinds of tokens in a cost, in thousandths. A weight of 1000 charges one token for each token used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenWeights {
    /// Weight of an input token that was not cached, in thousandths.
    pub input_milli: u64,
    /// Weight of a cached input token, in thousandths.
    pub cached_milli: u64,
    /// Weight of an output token, in thousandths. Reasoning tokens are output tokens too.
    pub output_milli: u64,
}

impl TokenWeights {
    /// Returns the cost of this usage in weighted tokens, rounded up. The cost is at least 1 if any tokens were used,
    /// else 0.
    pub fn charge(&self, usage: TokenUsage) -> u64 {
        let TokenUsage { input, cached, output } = usage;
        if input == 0 && cached == 0 && output == 0 {
            return 0;
        }
        let parts = [
            (input.saturating_sub(cached), self.input_milli),
            (cached.min(input), self.cached_milli),
            (output, self.output_milli),
        ];
        let milli = parts
            .into_iter()
            .map(|(tokens, weight)| u128::from(tokens) * u128::from(weight))
            .fold(0, u128::saturating_add);
        u64::try_from(milli.div_ceil(1000)).unwrap_or(u64::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: TokenWeights =
        TokenWeights { input_milli: 1000, cached_milli: 100, output_milli: 4000 };

    fn charge(input: u64, cached: u64, output: u64) -> u64 {
        WEIGHTS.charge(TokenUsage { input, cached, output })
    }

    #[test]
    fn a_charge_weighs_its_parts_and_is_rounded_up() {
        assert_eq!(charge(0, 0, 0), 0);
        assert_eq!(charge(100, 0, 10), 140);
        assert_eq!(charge(100, 90, 10), 10 + 9 + 40);
        assert_eq!(charge(11, 1, 0), 11);
        assert_eq!(charge(1, 1, 0), 1);
    }

    #[test]
    fn whoever_used_something_is_charged_something() {
        let free = TokenWeights { input_milli: 0, cached_milli: 0, output_milli: 0 };
        assert_eq!(free.charge(TokenUsage { input: 5, cached: 0, output: 5 }), 1);
        assert_eq!(free.charge(TokenUsage::default()), 0);
    }

    #[test]
    fn extremes_saturate() {
        let all =
            TokenWeights { input_milli: u64::MAX, cached_milli: u64::MAX, output_milli: u64::MAX };
        let usage = TokenUsage { input: u64::MAX, cached: u64::MAX, output: u64::MAX };
        assert_eq!(all.charge(usage), u64::MAX);
        assert_eq!(charge(5, 9, 0), 1, "more cached than input is all cached");
    }
}
