//! Two things timed in turns, so that whatever else the machine does meets both.

use std::hint::black_box;
use std::time::Instant;

/// Something that can be timed again and again.
pub(crate) trait Subject {
    /// Nanoseconds per operation, over this many of them.
    fn time(&mut self, operations: u64) -> f64;
}

/// The name of the function in which everything that is timed happens, so that instructions can be counted in
/// it alone.
pub(crate) const TIMED_FUNCTION: &str = "on_the_clock";

#[inline(never)]
fn on_the_clock<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// How long some work takes.
pub(crate) fn nanoseconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = on_the_clock(work);
    (result, start.elapsed().as_secs_f64() * 1e9)
}

/// What came of timing a base case and a big case in turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// The median time of an operation, in nanoseconds.
    pub(crate) base_ns: f64,
    pub(crate) big_ns: f64,
    /// The median, over the repetitions, of the big case's time over that of the base case just before it.
    pub(crate) ratio: f64,
}

/// Times both in turns; each call gives the nanoseconds of one operation.
pub(crate) fn compare(
    repetitions: usize,
    mut base: impl FnMut() -> f64,
    mut big: impl FnMut() -> f64,
) -> Comparison {
    let pairs: Vec<(f64, f64)> = (0..repetitions).map(|_| (base(), big())).collect();
    Comparison {
        base_ns: median(pairs.iter().map(|(base, _)| *base)),
        big_ns: median(pairs.iter().map(|(_, big)| *big)),
        ratio: median(pairs.iter().map(|(base, big)| big / base)),
    }
}

/// The value in the middle; of an even number of them, the higher one.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_neighbours() {
        let mut base = [1.0, 1.0, 9.0, 9.0, 9.0, 1.0, 1.0].into_iter();
        let mut big = [2.0, 2.0, 18.0, 18.0, 18.0, 2.0, 2.0].into_iter();
        let found = compare(7, || base.next().unwrap(), || big.next().unwrap());
        assert_eq!((found.base_ns, found.big_ns, found.ratio), (1.0, 2.0, 2.0));
    }
}
