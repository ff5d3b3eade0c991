//! The points of one row, with one column for each number: 26 bytes per point.

use crate::quantile::WaitQuantile;
use crate::sample::sum;

/// Value in the column of `got` for a point that the row does not have.
const ABSENT: i32 = i32::MIN;
/// Value in the column of `difference` for a point without a difference.
const NO_DIFFERENCE: i32 = i32::MIN;

/// One point of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowPoint {
    pub(crate) got: i64,
    pub(crate) asked: u64,
    pub(crate) refused: u64,
    /// Difference and bound; `None` if the row has none.
    pub(crate) difference: Option<(i64, u64)>,
    pub(crate) waiting: u64,
    pub(crate) in_flight: u64,
    pub(crate) p50: WaitQuantile,
    pub(crate) p95: WaitQuantile,
}

impl RowPoint {
    /// Point in which the row was idle.
    pub(crate) const STILL: Self = Self {
        got: 0,
        asked: 0,
        refused: 0,
        difference: None,
        waiting: 0,
        in_flight: 0,
        p50: WaitQuantile::NONE,
        p95: WaitQuantile::NONE,
    };

    /// Adds another row's point of the same time. The quantiles of two rows cannot be added, so the
    /// longer one is kept.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            got: self.got.saturating_add(other.got),
            asked: self.asked.saturating_add(other.asked),
            refused: self.refused.saturating_add(other.refused),
            difference: sum(self.difference, other.difference, |a, b| {
                (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
            }),
            waiting: self.waiting.saturating_add(other.waiting),
            in_flight: self.in_flight.saturating_add(other.in_flight),
            p50: self.p50.longer(other.p50),
            p95: self.p95.longer(other.p95),
        }
    }
}

/// The points of one row in one ring. A number that is too large for its column is stored as the
/// column's greatest number.
#[derive(Debug)]
pub(crate) struct PointColumns {
    got: Box<[i32]>,
    difference: Box<[i32]>,
    bound: Box<[u32]>,
    asked: Box<[u32]>,
    waiting: Box<[u32]>,
    in_flight: Box<[u16]>,
    refused: Box<[u16]>,
    p50: Box<[u8]>,
    p95: Box<[u8]>,
}

impl PointColumns {
    /// Returns columns of this length without any point.
    pub(crate) fn new(length: usize) -> Self {
        Self {
            got: vec![ABSENT; length].into(),
            difference: vec![NO_DIFFERENCE; length].into(),
            bound: vec![0; length].into(),
            asked: vec![0; length].into(),
            waiting: vec![0; length].into(),
            in_flight: vec![0; length].into(),
            refused: vec![0; length].into(),
            p50: vec![WaitQuantile::NONE.code(); length].into(),
            p95: vec![WaitQuantile::NONE.code(); length].into(),
        }
    }

    /// Returns the bytes that columns of this length hold.
    pub(crate) const fn bytes(length: usize) -> usize {
        length * (5 * 4 + 2 * 2 + 2)
    }

    pub(crate) fn remove(&mut self, at: usize) {
        self.got[at] = ABSENT;
    }

    pub(crate) fn put(&mut self, at: usize, point: &RowPoint) {
        self.got[at] = narrow(point.got);
        self.asked[at] = narrow_unsigned(point.asked);
        self.refused[at] = small(point.refused);
        let (difference, bound) = match point.difference {
            Some((difference, bound)) => (narrow(difference), narrow_unsigned(bound)),
            None => (NO_DIFFERENCE, 0),
        };
        (self.difference[at], self.bound[at]) = (difference, bound);
        self.waiting[at] = narrow_unsigned(point.waiting);
        self.in_flight[at] = small(point.in_flight);
        (self.p50[at], self.p95[at]) = (point.p50.code(), point.p95.code());
    }

    pub(crate) fn get(&self, at: usize) -> Option<RowPoint> {
        let got = *self.got.get(at)?;
        if got == ABSENT {
            return None;
        }
        let difference = (self.difference[at] != NO_DIFFERENCE)
            .then(|| (i64::from(self.difference[at]), u64::from(self.bound[at])));
        Some(RowPoint {
            got: i64::from(got),
            asked: self.asked[at].into(),
            refused: large(self.refused[at]),
            difference,
            waiting: self.waiting[at].into(),
            in_flight: large(self.in_flight[at]),
            p50: WaitQuantile::from_code(self.p50[at]),
            p95: WaitQuantile::from_code(self.p95[at]),
        })
    }
}

fn narrow(number: i64) -> i32 {
    let limited = number.clamp(i64::from(i32::MIN + 1), i64::from(i32::MAX));
    i32::try_from(limited).unwrap_or(i32::MAX)
}

fn narrow_unsigned(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Encodes a count in 16 bits: 12 bits of the number, and 4 bits for the number of bits by which it
/// was shifted. Counts up to 4095 are exact. Larger counts are rounded down by less than 1/2048.
fn small(count: u64) -> u16 {
    let shift = (64 - count.leading_zeros()).saturating_sub(12);
    if shift > 15 {
        return u16::MAX;
    }
    let digits = u16::try_from(count >> shift).unwrap_or(0xfff);
    u16::try_from(shift).unwrap_or(15) << 12 | digits
}

fn large(code: u16) -> u64 {
    u64::from(code & 0xfff) << (code >> 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_to_twelve_bits() {
        for count in (0..10_000).chain([65_535, 65_536, 1_000_000, 100_000_000]) {
            let kept = large(small(count));
            assert!(kept <= count && count - kept <= count / 2048, "{count} is kept as {kept}");
            assert!(count > 4095 || kept == count);
        }
        assert_eq!(large(small(u64::MAX)), 0xfff << 15);
    }

    #[test]
    fn a_point_comes_back() {
        let mut columns = PointColumns::new(2);
        assert_eq!(columns.get(0), None);
        let point = RowPoint { got: -7, difference: Some((-5, 9)), waiting: 3, ..RowPoint::STILL };
        columns.put(1, &point);
        assert_eq!((columns.get(0), columns.get(1), columns.get(2)), (None, Some(point), None));
        columns.put(0, &RowPoint { got: i64::MIN, asked: u64::MAX, ..RowPoint::STILL });
        let most = columns.get(0).unwrap();
        assert_eq!((most.got, most.asked), (-i64::from(i32::MAX), u32::MAX.into()));
        columns.remove(1);
        assert_eq!(columns.get(1), None);
    }
}
