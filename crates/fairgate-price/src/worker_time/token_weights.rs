//! The weights of tokens that come nearest to prices of worker time.
//!
//! Weights of tokens charge w_input · U + w_cached · K + w_output · O for a request. This sum has no term for the
//! request itself, nor for the length of its context, so no weights are right for all requests. The nearest weights are
//! those with the least Σ (charge ÷ cost − 1)² over the given requests, without negative weights.

use alloc::vec::Vec;

use super::cost::RequestWork;
use super::float_math::{count, whole};
use super::least_squares::{BoundedSquares, COEFFICIENTS};

/// Number of kinds of tokens that have a weight.
const KINDS: usize = 3;
/// Strength with which all weights are drawn towards 0, relative to the weight of one request. It decides if several
/// weights fit equally well.
const PULL: f64 = 1e-6;
/// The greatest weight that a pool's `cost` takes, in thousandths.
const WEIGHT_MILLI_MAX: u64 = 1_000_000;

/// Weights of tokens, with the range of the charges that remains in worker time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearestTokenWeights {
    /// Weight of an input token that was not cached, in thousandths.
    pub input_milli: u64,
    /// Weight of a cached input token, in thousandths; `None` if no request has any.
    pub cached_milli: Option<u64>,
    /// Weight of an output token, in thousandths.
    pub output_milli: u64,
    /// Charge of the request that is charged least for its worker time, in millionths of a fair charge.
    pub least_ppm: u64,
    /// Charge of the request that is charged most for its worker time, in millionths of a fair charge.
    pub most_ppm: u64,
}

impl NearestTokenWeights {
    /// Finds the weights for requests, given with their costs in microseconds. The weights are scaled so that input
    /// weighs 1000 thousandths, or output if input should weigh nothing. Returns `None` if no request has a cost.
    pub fn of(requests: &[(RequestWork, u64)]) -> Option<Self> {
        let rows: Vec<[f64; KINDS]> =
            requests.iter().filter_map(|(work, cost)| row(*work, *cost)).collect();
        let weights = fit(&rows)?;
        let [input, _, output] = weights;
        let unit = if input > 0.0 { input } else { output };
        let milli = |weight: f64| whole(1000.0 * weight / unit).min(WEIGHT_MILLI_MAX);
        let [input_milli, cached_milli, output_milli] = weights.map(milli);
        let rounded = [input_milli, cached_milli, output_milli].map(count);
        // A fair charge is the mean over all requests of charge ÷ cost.
        let charges = || rows.iter().map(|row| product(row, &rounded));
        let mean = charges().sum::<f64>() / count(u64::try_from(rows.len()).ok()?);
        let ppm = |charge: f64| whole(1e6 * charge / mean);
        (unit > 0.0 && mean > 0.0).then(|| Self {
            input_milli,
            cached_milli: rows.iter().any(|row| row[1] > 0.0).then_some(cached_milli),
            output_milli,
            least_ppm: charges().map(ppm).min().unwrap_or_default(),
            most_ppm: charges().map(ppm).max().unwrap_or_default(),
        })
    }
}

/// Returns the tokens of a request per microsecond of its cost; `None` if it has no cost or no tokens.
fn row(work: RequestWork, cost_us: u64) -> Option<[f64; KINDS]> {
    let cached = work.cached.min(work.input);
    let tokens = [work.input - cached, cached, work.output].map(count);
    let cost = f64::from(u32::try_from(cost_us).unwrap_or(u32::MAX));
    let has_work = cost > 0.0 && tokens.iter().any(|tokens| *tokens > 0.0);
    has_work.then(|| tokens.map(|tokens| tokens / cost))
}

/// Returns the weights for which the weighted sums of all rows come nearest to 1. Columns are first scaled to a
/// greatest value of 1, so that the weights are of similar size.
fn fit(rows: &[[f64; KINDS]]) -> Option<[f64; KINDS]> {
    let mut problem = BoundedSquares {
        squares: [[0.0; COEFFICIENTS]; COEFFICIENTS],
        products: [0.0; COEFFICIENTS],
    };
    let mut scales = [0.0; KINDS];
    for (kind, scale) in scales.iter_mut().enumerate() {
        let most = rows.iter().map(|row| row[kind]).fold(0.0, f64::max);
        *scale = if most > 0.0 { 1.0 / most } else { 0.0 };
    }
    for row in rows {
        let row: [f64; KINDS] = core::array::from_fn(|kind| row[kind] * scales[kind]);
        for (kind, value) in row.into_iter().enumerate() {
            problem.products[kind] += value;
            for (other, more) in row.into_iter().enumerate() {
                problem.squares[kind][other] += value * more;
            }
        }
    }
    let size = count(u64::try_from(rows.len()).ok()?);
    for (kind, row) in problem.squares.iter_mut().enumerate() {
        row[kind] += PULL * size.max(1.0);
    }
    let solution = problem.solve();
    let weights = core::array::from_fn(|kind| solution[kind] * scales[kind]);
    (!rows.is_empty()).then_some(weights)
}

fn product(row: &[f64; KINDS], weights: &[f64; KINDS]) -> f64 {
    row.iter().zip(weights).map(|(tokens, weight)| tokens * weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(input: u64, cached: u64, output: u64) -> RequestWork {
        RequestWork { input, cached, output, choices: 1 }
    }

    fn costs(weights: [u64; KINDS], shapes: &[RequestWork]) -> std::vec::Vec<(RequestWork, u64)> {
        let [input, cached, output] = weights;
        let cost = |work: &RequestWork| {
            input * (work.input - work.cached) + cached * work.cached + output * work.output
        };
        shapes.iter().map(|work| (*work, cost(work))).collect()
    }

    #[test]
    fn costs_that_are_weighted_tokens_give_the_weights() {
        let shapes =
            [work(4096, 0, 64), work(128, 0, 512), work(2200, 2000, 64), work(900, 100, 300)];
        let found = NearestTokenWeights::of(&costs([10, 1, 130], &shapes)).unwrap();
        assert_eq!((found.input_milli, found.output_milli), (1000, 13_000));
        assert!(found.cached_milli.unwrap().abs_diff(100) <= 1, "{found:?}");
        assert!(found.least_ppm > 999_000 && found.most_ppm < 1_001_000, "{found:?}");
    }

    #[test]
    fn no_weight_is_negative_or_told_without_such_tokens() {
        // The more input, the cheaper: input should weigh less than nothing.
        let found = NearestTokenWeights::of(&[(work(1000, 0, 10), 100), (work(10, 0, 10), 120)]);
        let NearestTokenWeights { input_milli, cached_milli, output_milli, .. } = found.unwrap();
        assert_eq!((input_milli, cached_milli, output_milli), (0, None, 1000));
    }

    #[test]
    fn what_weights_cannot_do_is_told() {
        // A price for each request makes small ones dearer than any weights of tokens.
        let small = (work(64, 0, 32), 20_000);
        let found = NearestTokenWeights::of(&[
            (work(4000, 0, 64), 60_000),
            (work(128, 0, 512), 90_000),
            small,
        ])
        .unwrap();
        assert!(found.least_ppm < 600_000 && found.most_ppm > 1_100_000, "{found:?}");
    }

    #[test]
    fn requests_without_work_or_cost_give_no_weights() {
        assert_eq!(NearestTokenWeights::of(&[]), None);
        assert_eq!(NearestTokenWeights::of(&[(work(0, 0, 0), 5), (work(5, 0, 5), 0)]), None);
        let absurd = [(work(u64::MAX, u64::MAX, u64::MAX), u64::MAX), (work(1, 9, 0), 1)];
        assert!(NearestTokenWeights::of(&absurd).is_some());
    }
}
