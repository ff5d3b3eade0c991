//! Two things timed in turns, so that whatever else the machine does meets both.
//!
//! On a machine with other work a thread is often stopped in the middle. How long it then waited for a processor
//! is known to the system to the nanosecond, and does not count.

use std::fs;
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

/// How long some work takes, without the time in which others had the processor.
pub(crate) fn nanoseconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let waited = waited_ns();
    let start = Instant::now();
    let result = on_the_clock(work);
    let took = start.elapsed().as_secs_f64() * 1e9;
    (result, took - (waited_ns() - waited))
}

/// How long this thread has waited for a processor since it began; 0 where the system does not tell.
fn waited_ns() -> f64 {
    let told = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or_default()
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

/// Times the base case so often, then the big case once.
pub(crate) fn compare_with_once(
    repetitions: usize,
    base: impl FnMut() -> f64,
    big: impl FnOnce() -> f64,
) -> Comparison {
    let base_ns = median(std::iter::repeat_with(base).take(repetitions));
    let big_ns = big();
    Comparison { base_ns, big_ns, ratio: big_ns / base_ns }
}

/// The value in the middle; of an even number of them, the higher one.
fn median(values: impl Iterator<Item = f64>) -> f64 {
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
