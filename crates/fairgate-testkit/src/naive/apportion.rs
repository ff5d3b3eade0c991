//! Apportionment of slots over weights.

/// Divides S slots over n ≤ S weights: "each gets max(1, floor(S·w/W)); while the sum is short, one more
/// to the flow furthest below its quota S·w/W; while it is over, one less from the flow furthest above
/// its quota that has more than one. All ties: the earlier in the list."
pub(super) fn apportion(slots: u64, weights: &[u64]) -> Vec<u64> {
    let total: u128 = weights.iter().map(|&w| u128::from(w)).sum();
    let quotas: Vec<SlotQuota> = weights.iter().map(|&w| SlotQuota::new(slots, w, total)).collect();
    let mut parts: Vec<u128> = quotas.iter().map(|quota| quota.whole.max(1)).collect();
    let wanted = if weights.is_empty() { 0 } else { u128::from(slots) };

    while parts.iter().sum::<u128>() < wanted {
        let lowest = (0..parts.len()).min_by_key(|&i| quotas[i].distance(parts[i]));
        parts[lowest.expect("there are weights")] += 1;
    }
    while parts.iter().sum::<u128>() > wanted {
        let furthest = (0..parts.len()).rev().filter(|&i| parts[i] > 1);
        let highest = furthest.max_by_key(|&i| quotas[i].distance(parts[i]));
        parts[highest.expect("n ≤ S")] -= 1;
    }
    parts.into_iter().map(|part| u64::try_from(part).expect("at most all slots")).collect()
}

/// The quota S·w/W in slots, as a whole number and a remainder in units of 1/W.
struct SlotQuota {
    whole: u128,
    rest: u128,
}

impl SlotQuota {
    fn new(slots: u64, weight: u64, total: u128) -> Self {
        let product = u128::from(slots) * u128::from(weight);
        Self { whole: product / total, rest: product % total }
    }

    /// Returns the distance by which `part` slots are above this quota: the difference in whole slots, then the quota's
    /// remainder, reversed. As the remainder is less than one slot, these pairs have the order of part − S·w/W.
    fn distance(&self, part: u128) -> (i128, std::cmp::Reverse<u128>) {
        let signed = |count: u128| i128::try_from(count).expect("a number of slots");
        (signed(part) - signed(self.whole), std::cmp::Reverse(self.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::apportion;

    #[test]
    fn remainders_go_to_the_furthest_below() {
        assert_eq!(apportion(7, &[1, 1, 1]), [3, 2, 2]);
        assert_eq!(apportion(10, &[6, 3, 2]), [5, 3, 2]);
        assert_eq!(apportion(5, &[]), [] as [u64; 0]);
    }

    #[test]
    fn everybody_has_one_and_the_large_pay() {
        assert_eq!(apportion(3, &[100, 1, 1]), [1, 1, 1]);
        assert_eq!(apportion(8, &[500, 500, 1, 1]), [3, 3, 1, 1]);
        assert_eq!(apportion(5, &[500, 500, 1, 1]), [1, 2, 1, 1]);
    }

    #[test]
    fn the_widest_numbers_do_not_wrap() {
        assert_eq!(apportion(u64::MAX, &[u64::MAX, 1]), [u64::MAX - 1, 1]);
        assert_eq!(apportion(u64::MAX, &[1, 1]), [u64::MAX / 2 + 1, u64::MAX / 2]);
    }
}
