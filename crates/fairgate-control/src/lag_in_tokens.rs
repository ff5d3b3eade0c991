//! Converts a flow's lag to tokens. The core keeps the lag in tokens per weight, so that flows of different weights can
//! be compared.

use fairgate_core::fairness::FlowFairness;
use fairgate_core::units::{PerWeight, Weight};

/// A flow's lag, and the range in which the policy keeps the lag, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowLag {
    /// Tokens that the flow is owed; below zero if the flow has had more than its share.
    pub(crate) tokens: i128,
    /// The lowest and the highest possible lag; `None` if the node divides slots instead of tokens (`partition`).
    pub(crate) bound: Option<(i128, i128)>,
}

impl FlowLag {
    /// Returns a flow's lag; `None` if nothing waits in the flow, or if the node promises no shares.
    pub(crate) fn of(flow: &FlowFairness) -> Option<Self> {
        let (lag, weight) = flow.lag.zip(flow.weight)?;
        let tokens = |per_weight| tokens(per_weight, weight);
        let bound = lag.bound.map(|(least, most)| (tokens(least), tokens(most)));
        Some(Self { tokens: tokens(lag.lag), bound })
    }

    /// Returns the lag in thousandths of its bound; 1000 means that the lag has reached the bound.
    /// Returns `None` if there is no bound. A lag below 0 is compared with the lower bound, and any
    /// other lag with the upper bound.
    pub(crate) fn bound_used_thousandths(&self) -> Option<u64> {
        let (least, most) = self.bound?;
        let limit = if self.tokens < 0 { least } else { most }.unsigned_abs();
        let lag = self.tokens.unsigned_abs().saturating_mul(1000);
        // A limit of 0 means that nothing can be owed.
        let used = lag.checked_div(limit).unwrap_or(0);
        Some(u64::try_from(used).unwrap_or(u64::MAX))
    }
}

/// Converts tokens per weight, in units of 2⁻³², to tokens; rounds towards zero.
fn tokens(per_weight: PerWeight, weight: Weight) -> i128 {
    per_weight.0.saturating_mul(i128::from(weight.get())) / (1 << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lag(lag: i128, weight: u64, bound: Option<(i128, i128)>) -> FlowLag {
        let weight = Weight::new(weight).expect("a weight");
        let per = |tokens| PerWeight::of(tokens, weight);
        let lag = fairgate_core::fairness::LagWithBound {
            lag: per(lag),
            bound: bound.map(|(least, most)| (per(least), per(most))),
        };
        let flow = FlowFairness {
            goes_before: None,
            name: "chat".into(),
            weight: Some(weight),
            waiting: 1,
            in_flight: 0,
            oldest: None,
            got: 0,
            due: None,
            cap_use: None,
            lag: Some(lag),
        };
        assert_eq!(FlowLag::of(&FlowFairness { lag: None, ..flow.clone() }), None);
        FlowLag::of(&flow).expect("something waits")
    }

    #[test]
    fn lag_is_in_tokens_and_never_larger_than_what_is_owed() {
        let behind = lag(20_000, 500, Some((-1_000, 30_000)));
        assert_eq!(behind, FlowLag { tokens: 20_000, bound: Some((-1_000, 30_000)) });
        assert_eq!(behind.bound_used_thousandths(), Some(666));
        let ahead = lag(-500, 500, Some((-1_000, 30_000)));
        assert_eq!(ahead.bound_used_thousandths(), Some(500));
        assert_eq!(lag(7, 3, None).bound_used_thousandths(), None);
        assert_eq!(lag(0, 3, Some((0, 0))).bound_used_thousandths(), Some(0));
    }
}
