//! Divides the slots of a partitioned pool among its flows by weight.
//!
//! With S slots over n ≤ S weights, each flow is due its quota S·w/W, where W is the sum of the weights. It first gets
//! the whole part of its quota, or one slot if that part is 0. If slots are left over, they go one each to the flows
//! furthest below their quota. If more than S slots were given out, the surplus is taken back from the flows furthest
//! above their quota. The code compares remainders instead of fractions: a flow that got ⌊S·w/W⌋ is below its quota by
//! rem/W, with rem = S·w mod W. So
//! * slots left over go to the largest remainders. Fewer slots are left over than there are remainders above 0, so no
//!   flow gets two of them. A flow that got one slot instead of 0 is above its quota and gets none of them.
//! * a flow that has given back j slots is below its quota by rem/W + j. So the next slot is taken from the flow with
//!   the least (j, rem), among the flows with more than one slot. At most n slots are taken back.
//!
//! This is the largest-remainder rule with a minimum of one that the obleth page "DRR Algorithm" states under
//! "Hierarchical scheduling". The page does not say from which group a slot is taken when the minimum makes the sum too
//! large; the rule above is ours.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::units::Weight;

/// Returns the slots for each weight, in the order of `weights`; ties go to the earlier weight. The number of slots
/// must be at least the number of weights.
pub fn apportion(slots: u64, weights: &[Weight]) -> Vec<u64> {
    let total: u128 = weights.iter().map(|w| u128::from(w.get())).sum();
    let due: Vec<(u64, u128)> = weights
        .iter()
        .map(|w| {
            let quota = u128::from(slots) * u128::from(w.get());
            let whole = u64::try_from(quota / total).expect("a part of the slots");
            (whole, quota % total)
        })
        .collect();
    let mut given: Vec<u64> = due.iter().map(|(whole, _)| (*whole).max(1)).collect();
    let sum: u128 = given.iter().map(|g| u128::from(*g)).sum();
    if sum < u128::from(slots) {
        let short = usize::try_from(u128::from(slots) - sum).expect("fewer than flows");
        let mut below: Vec<(Reverse<u128>, usize)> =
            (0..due.len()).filter(|i| due[*i].0 > 0).map(|i| (Reverse(due[i].1), i)).collect();
        below.sort_unstable();
        below.into_iter().take(short).for_each(|(_, i)| given[i] += 1);
    } else {
        take_back(&mut given, &due, sum - u128::from(slots));
    }
    given
}

fn take_back(given: &mut [u64], due: &[(u64, u128)], over: u128) {
    if over == 0 {
        return;
    }
    let mut above: BinaryHeap<Reverse<(u64, u128, usize)>> =
        (0..due.len()).filter(|i| given[*i] > 1).map(|i| Reverse((0, due[i].1, i))).collect();
    for _ in 0..over {
        let Some(Reverse((times, rem, i))) = above.pop() else { return };
        given[i] -= 1;
        if given[i] > 1 {
            above.push(Reverse((times + 1, rem, i)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(total: u64, weights: &[u64]) -> Vec<u64> {
        let weights: Vec<_> = weights.iter().map(|w| Weight::new(*w).expect("a weight")).collect();
        apportion(total, &weights)
    }

    #[test]
    fn the_page_and_its_cases() {
        assert_eq!(slots(8, &[500, 50]), [7, 1]);
        assert_eq!(slots(8, &[100, 100]), [4, 4]);
        assert_eq!(slots(10, &[300, 100]), [8, 2]);
        assert_eq!(slots(4, &[1000, 1]), [3, 1]);
        assert_eq!(slots(4, &[1000, 1, 1, 1]), [1, 1, 1, 1]);
        assert_eq!(slots(8, &[500, 50, 100]), [6, 1, 1]);
        assert_eq!(slots(16, &[500, 50, 100]), [12, 1, 3]);
        assert_eq!(slots(32, &[500, 50, 100]), [25, 2, 5]);
        assert_eq!(slots(64, &[500, 50, 100]), [49, 5, 10]);
        assert_eq!(slots(5, &[9, 19, 22]), [1, 2, 2]);
    }

    #[test]
    fn absurd_weights_and_slots_stay_exact() {
        assert_eq!(slots(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX / 2 + 1, u64::MAX / 2]);
        assert_eq!(slots(3, &[u64::MAX, 1, 1]), [1, 1, 1]);
        assert_eq!(slots(u64::MAX, &[1]), [u64::MAX]);
    }

    /// Divides the slots by the rule as it is written, one slot at a time. Fractions are compared
    /// by cross-multiplication.
    fn one_by_one(total: u64, weights: &[u64]) -> Vec<u64> {
        let sum: i128 = weights.iter().map(|w| i128::from(*w)).sum();
        let mut given: Vec<u64> = weights
            .iter()
            .map(|w| (u128::from(total) * u128::from(*w) / sum as u128) as u64)
            .map(|g| g.max(1))
            .collect();
        let above = |given: &[u64], i: usize| {
            i128::from(given[i]) * sum - i128::from(total) * i128::from(weights[i])
        };
        while given.iter().sum::<u64>() < total {
            let i = (0..given.len()).min_by_key(|i| above(&given, *i)).expect("flows");
            given[i] += 1;
        }
        while given.iter().sum::<u64>() > total {
            let i = (0..given.len())
                .filter(|i| given[*i] > 1)
                .max_by_key(|i| (above(&given, *i), core::cmp::Reverse(*i)))
                .expect("flows");
            given[i] -= 1;
        }
        given
    }

    #[test]
    fn equals_the_rule_one_slot_at_a_time() {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (state >> 33) % below
        };
        for _ in 0..5000 {
            let n = next(9) + 1;
            let weights: Vec<u64> =
                (0..n).map(|_| if next(3) == 0 { 1 + next(5) } else { 1 + next(1000) }).collect();
            let total = n + next(40);
            assert_eq!(slots(total, &weights), one_by_one(total, &weights), "{total} {weights:?}");
        }
    }
}
