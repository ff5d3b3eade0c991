//! The exact distance between the tokens that a project has used and its share.

use super::CreditWeight;

/// The denominators of a comparison: the summed weights and the summed tokens of all projects compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GapTotals {
    /// ΣW, the summed weights in thousandths.
    pub(super) weight: u128,
    /// ΣT, the summed tokens. If it is 0, gaps are computed with 1 instead.
    pub(super) spent: u128,
}

/// The gap usage·ΣW − weight·ΣT as a 256-bit number in two's complement. The project with the lowest gap goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ShareGap {
    high: i128,
    low: u128,
}

impl GapTotals {
    /// Returns ΣT for the computation of gaps. If nothing was used, this is 1, so that the project with the greater
    /// weight goes first.
    fn tokens(&self) -> u128 {
        self.spent.max(1)
    }

    /// Returns the gap of a project with this weight and these tokens spent.
    ///
    /// Weights are below 2^60 and tokens below 2^64 each, so that even 2^60 projects and tasks keep both products below
    /// 2^255.
    pub(super) fn gap(&self, weight: CreditWeight, spent: u128) -> ShareGap {
        let (used_low, used_high) = spent.carrying_mul(self.weight, 0);
        let (due_low, due_high) = u128::from(weight.thousandths()).carrying_mul(self.tokens(), 0);
        let (low, borrow) = used_low.borrowing_sub(due_low, false);
        let (high, _) = used_high.borrowing_sub(due_high, borrow);
        ShareGap { high: high.cast_signed(), low }
    }

    /// Returns the denominators in 64 bits if they fit, which is the usual case; otherwise `None`.
    pub(super) fn narrow(&self) -> Option<NarrowGapTotals> {
        let below_2_63 = |n: u128| i64::try_from(n).ok().map(i64::cast_unsigned);
        Some(NarrowGapTotals {
            weight: below_2_63(self.weight)?,
            tokens: below_2_63(self.tokens())?,
        })
    }

    /// Returns the part of all tokens that a project of this weight should have, in millionths rounded down.
    pub(super) fn target_ppm(&self, weight: CreditWeight) -> u64 {
        millionths(weight.thousandths().into(), self.weight)
    }

    /// Returns `spent` as a part of all tokens, in millionths rounded down.
    pub(super) fn actual_ppm(&self, spent: u128) -> u64 {
        millionths(spent, self.tokens())
    }
}

/// Denominators below 2^63, with which a gap takes only two 64-bit multiplications.
#[derive(Clone, Copy, Debug)]
pub(super) struct NarrowGapTotals {
    weight: u64,
    tokens: u64,
}

impl NarrowGapTotals {
    /// Returns the gap of a project with this weight and these tokens spent, which must be at most ΣT.
    pub(super) fn gap(&self, weight: CreditWeight, spent: u128) -> i128 {
        debug_assert!(spent <= u128::from(self.tokens));
        let spent = u64::try_from(spent).unwrap_or(self.tokens);
        let used = u128::from(spent) * u128::from(self.weight);
        let due = u128::from(weight.thousandths()) * u128::from(self.tokens);
        used.cast_signed() - due.cast_signed()
    }
}

/// Returns part / whole in millionths, rounded down. Both are below 2^100, and the part is not above the whole.
fn millionths(part: u128, whole: u128) -> u64 {
    let ppm = part.saturating_mul(1_000_000) / whole.max(1);
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where its own numbers are wrong")]
mod tests {
    use super::*;

    fn weight(thousandths: u64) -> CreditWeight {
        CreditWeight::from_thousandths(thousandths).unwrap()
    }

    #[test]
    fn both_widths_agree_where_both_can_be_used() {
        let totals = GapTotals { weight: (1 << 63) - 1, spent: (1 << 63) - 1 };
        let narrow_totals = totals.narrow().unwrap();
        for spent in [0, 1, (1 << 62) - 1, (1 << 63) - 1] {
            for w in [1, 999, CreditWeight::MAX.thousandths()].map(weight) {
                let narrow = narrow_totals.gap(w, spent);
                let wide = totals.gap(w, spent);
                assert_eq!(wide.low, narrow.cast_unsigned());
                assert_eq!(wide.high, narrow >> 127, "the sign fills the upper half");
            }
        }
    }

    #[test]
    fn one_token_decides_at_the_largest_numbers() {
        let most = u128::from(u64::MAX);
        let totals = GapTotals { weight: 1 << 92, spent: most << 32 };
        let heavy = CreditWeight::MAX;
        assert!(totals.gap(heavy, most << 31) < totals.gap(heavy, (most << 31) + 1));
        assert!(totals.gap(weight(1), most) > totals.gap(weight(2), most));
        assert!(totals.gap(heavy, 0).high < 0, "owed");
        assert!(totals.gap(weight(1), most << 32).high > 0, "over its share");
    }

    #[test]
    fn where_nothing_was_used_the_heavier_weight_is_owed_more() {
        let totals = GapTotals { weight: 4000, spent: 0 };
        assert!(totals.gap(weight(3000), 0) < totals.gap(weight(1000), 0));
        let narrow = totals.narrow().unwrap();
        assert!(narrow.gap(weight(3000), 0) < narrow.gap(weight(1000), 0));
    }
}
