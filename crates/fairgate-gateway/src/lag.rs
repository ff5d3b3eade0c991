//! What a flow is owed, in tokens. The core keeps it in tokens per weight, so that flows compare.

use fairgate_core::fairness::FlowFairness;
use fairgate_core::units::{PerWeight, Weight};

/// A flow's lag and the range in which the policy keeps it, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    /// What the flow is owed; below zero it has had more than its share.
    pub(crate) tokens: i128,
    /// The least and the most that can be; absent where slots are divided instead.
    pub(crate) bound: Option<(i128, i128)>,
}

impl Lag {
    pub(crate) fn of(flow: &FlowFairness) -> Self {
        let tokens = |per_weight| tokens(per_weight, flow.weight);
        let bound = flow.bound.map(|(least, most)| (tokens(least), tokens(most)));
        Self { tokens: tokens(flow.lag), bound }
    }

    /// How much of its bound is used, in thousandths: 1000 is as far as it can be.
    pub(crate) fn bound_used_thousandths(&self) -> Option<u64> {
        let (least, most) = self.bound?;
        let limit = if self.tokens < 0 { least } else { most }.unsigned_abs();
        let lag = self.tokens.unsigned_abs().saturating_mul(1000);
        // Nothing owed where nothing can be owed.
        let used = lag.checked_div(limit).unwrap_or(0);
        Some(u64::try_from(used).unwrap_or(u64::MAX))
    }
}

/// Tokens per weight, in units of 2⁻³², times a weight: rounded towards zero.
fn tokens(per_weight: PerWeight, weight: Weight) -> i128 {
    per_weight.0.saturating_mul(i128::from(weight.get())) / (1 << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(lag: i128, weight: u64, bound: Option<(i128, i128)>) -> FlowFairness {
        let weight = Weight::new(weight).expect("a weight");
        let per = |tokens| PerWeight::of(tokens, weight);
        FlowFairness {
            name: "chat".into(),
            weight,
            waiting: 1,
            flying: 0,
            lag: per(lag),
            bound: bound.map(|(least, most)| (per(least), per(most))),
        }
    }

    #[test]
    fn lag_is_in_tokens_and_never_larger_than_what_is_owed() {
        let lag = Lag::of(&flow(20_000, 500, Some((-1_000, 30_000))));
        assert_eq!(lag, Lag { tokens: 20_000, bound: Some((-1_000, 30_000)) });
        assert_eq!(lag.bound_used_thousandths(), Some(666));
        let ahead = Lag::of(&flow(-500, 500, Some((-1_000, 30_000))));
        assert_eq!(ahead.bound_used_thousandths(), Some(500));
        assert_eq!(Lag::of(&flow(7, 3, None)).bound_used_thousandths(), None);
        assert_eq!(Lag::of(&flow(0, 3, Some((0, 0)))).bound_used_thousandths(), Some(0));
    }
}
