//! What tokens are charged.

use crate::meter::Usage;

/// Weights in thousandths of a charged token per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// For input that was not cached.
    pub input_milli: u64,
    /// For cached input.
    pub cached_milli: u64,
    /// For output.
    pub output_milli: u64,
}

impl Weights {
    /// What this usage is charged, in weighted tokens: at least 1 where anything was used; rounded up.
    pub fn charge(&self, usage: Usage) -> u64 {
        let Usage { input, cached, output } = usage;
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

    const WEIGHTS: Weights = Weights { input_milli: 1000, cached_milli: 100, output_milli: 4000 };

    fn charge(input: u64, cached: u64, output: u64) -> u64 {
        WEIGHTS.charge(Usage { input, cached, output })
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
        let free = Weights { input_milli: 0, cached_milli: 0, output_milli: 0 };
        assert_eq!(free.charge(Usage { input: 5, cached: 0, output: 5 }), 1);
        assert_eq!(free.charge(Usage::default()), 0);
    }

    #[test]
    fn extremes_saturate() {
        let all = Weights { input_milli: u64::MAX, cached_milli: u64::MAX, output_milli: u64::MAX };
        let usage = Usage { input: u64::MAX, cached: u64::MAX, output: u64::MAX };
        assert_eq!(all.charge(usage), u64::MAX);
        assert_eq!(charge(5, 9, 0), 1, "more cached than input is all cached");
    }
}
