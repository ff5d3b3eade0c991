//! Timing of two subjects in turns, so that other load of the machine affects both.
//!
//! On a busy machine a thread is often preempted. The kernel reports to the nanosecond how long the
//! thread waited for a processor, and that time is subtracted from the measured time.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

/// A subject that can be timed repeatedly.
pub(crate) trait TimedSubject {
    /// Runs the given number of operations and returns the nanoseconds per operation.
    fn time(&mut self, operations: u64) -> f64;
}

/// Name of the function in which all timed work happens. Callgrind counts instructions only inside
/// this function.
pub(crate) const TIMED_FUNCTION: &str = "on_the_clock";

#[inline(never)]
fn on_the_clock<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// Runs `work` and returns its result and its time in nanoseconds, without the time in which the
/// thread waited for a processor.
pub(crate) fn nanoseconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let waited = waited_ns();
    let start = Instant::now();
    let result = on_the_clock(work);
    let took = start.elapsed().as_secs_f64() * 1e9;
    (result, took - (waited_ns() - waited))
}

/// Returns the number of nanoseconds for which this thread has waited for a processor so far; 0 if
/// the system does not report this number.
fn waited_ns() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

/// The result of timing a base case and a big case in turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeComparison {
    /// Median time of one operation of the base case, in nanoseconds.
    pub(crate) base_ns: f64,
    pub(crate) big_ns: f64,
    /// Median of the ratios of all repetitions. The ratio of a repetition is the big case's time
    /// divided by the time of the base case that was measured just before it.
    pub(crate) ratio: f64,
}

/// Times the base case and the big case in turns. Each closure times its case once and returns the
/// nanoseconds per operation.
pub(crate) fn compare(
    repetitions: usize,
    mut base: impl FnMut() -> f64,
    mut big: impl FnMut() -> f64,
) -> TimeComparison {
    let pairs: Vec<(f64, f64)> = (0..repetitions).map(|_| (base(), big())).collect();
    TimeComparison {
        base_ns: median(pairs.iter().map(|(base, _)| *base)),
        big_ns: median(pairs.iter().map(|(_, big)| *big)),
        ratio: median(pairs.iter().map(|(base, big)| big / base)),
    }
}

/// Times the base case `repetitions` times, then the big case once.
pub(crate) fn compare_with_once(
    repetitions: usize,
    base: impl FnMut() -> f64,
    big: impl FnOnce() -> f64,
) -> TimeComparison {
    let base_ns = median(std::iter::repeat_with(base).take(repetitions));
    let big_ns = big();
    TimeComparison { base_ns, big_ns, ratio: big_ns / base_ns }
}

/// Returns the middle value. For an even number of values, returns the higher of the two middle
/// values.
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
