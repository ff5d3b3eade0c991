//! Costs of requests in microseconds of a full worker, in integers.

#![deny(clippy::disallowed_types, reason = "costs are exact: integers")]

use core::time::Duration;

/// Number of half picoseconds in a microsecond. Sums of costs are kept in half picoseconds, so that ½ · U² is whole.
const HALF_PICOS: u128 = 2_000_000;
/// Number of thousandths in one.
const MILLI: u128 = 1000;
/// Number of nanoseconds in a microsecond.
const NANOS: u128 = 1000;

/// The tokens of a request, as a worker processes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestWork {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// Input tokens that the worker had cached. A number above `input` counts as `input`.
    pub cached: u64,
    /// Output tokens of all choices together.
    pub output: u64,
    /// Number of answers that the client asked for; 0 counts as 1.
    pub choices: u64,
}

/// Six prices of a worker's time, in picoseconds of the full worker.
///
/// The default prices are 0. Every field may have any value, because costs saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerPrices {
    /// Price of a request, whatever its size.
    pub request: u64,
    /// Price of an input token that was not cached.
    pub input: u64,
    /// Price of an input token that was not cached, for each token before it.
    pub input_input: u64,
    /// Price of a cached input token.
    pub cached: u64,
    /// Price of an output token after the first one of its choice.
    pub output: u64,
    /// Price of an output token after the first one of its choice, for each token before it.
    pub context_output: u64,
}

impl WorkerPrices {
    /// Returns the cost of a request in microseconds of the full worker, rounded up; at least 1, at most `u64::MAX`.
    ///
    /// The k-th token of a prompt attends to the k − 1 tokens before it, so U tokens after K cached ones have
    /// U²/2 + UK positions. The first token of each choice comes with the prompt. The k-th of the other S/C tokens of
    /// a choice attends to I + k tokens, so all together have S·I + S²/(2C).
    pub fn cost(&self, work: RequestWork) -> u64 {
        let choices = u128::from(work.choices.max(1));
        let input = u128::from(work.input);
        let cached = u128::from(work.cached).min(input);
        let uncached = input - cached;
        let later = u128::from(work.output).saturating_sub(choices);
        let positions =
            uncached.saturating_mul(uncached).saturating_add(product(&[2, uncached, cached]));
        let context =
            product(&[2, later, input]).saturating_add(later.saturating_mul(later) / choices);
        let terms = [
            product(&[2, self.request.into()]),
            product(&[2, self.input.into(), uncached]),
            product(&[self.input_input.into(), positions]),
            product(&[2, self.cached.into(), cached]),
            product(&[2, self.output.into(), later]),
            product(&[self.context_output.into(), context]),
        ];
        let sum = terms.into_iter().fold(0, u128::saturating_add);
        u64::try_from(sum.div_ceil(HALF_PICOS)).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the mean of workers' prices, weighted by their slots and rounded to the nearest picosecond. Workers
    /// without slots count only if no worker has slots. Returns `None` if there are no workers.
    pub fn mean(workers: &[(Self, u64)]) -> Option<Self> {
        let has_slots = workers.iter().any(|(_, slots)| *slots > 0);
        let weight = |slots: u64| if has_slots { u128::from(slots) } else { 1 };
        let weights: u128 = workers.iter().map(|(_, slots)| weight(*slots)).sum();
        let mean = |price: fn(&Self) -> u64| {
            let parts =
                workers.iter().map(|(each, slots)| u128::from(price(each)) * weight(*slots));
            let sum = parts.fold(0, u128::saturating_add).saturating_add(weights / 2);
            u64::try_from(sum / weights).unwrap_or(u64::MAX)
        };
        (weights > 0).then(|| Self {
            request: mean(|each| each.request),
            input: mean(|each| each.input),
            input_input: mean(|each| each.input_input),
            cached: mean(|each| each.cached),
            output: mean(|each| each.output),
            context_output: mean(|each| each.context_output),
        })
    }
}

/// The number of requests that a full worker decodes at once, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FullBatch(u64);

impl FullBatch {
    /// Creates a batch from thousandths of a request; less than one request counts as one.
    pub fn from_thousandths(thousandths: u64) -> Self {
        Self(thousandths.max(1000))
    }

    /// Returns the batch in thousandths of a request.
    pub fn thousandths(self) -> u64 {
        self.0
    }

    /// Returns the cost of a slot that was held for this time, in microseconds of the full worker, rounded up. In a
    /// batch of n requests, a slot is one n-th of the worker.
    pub fn slot_cost(self, held: Duration) -> u64 {
        let cost = held.as_nanos().saturating_mul(MILLI).div_ceil(NANOS * u128::from(self.0));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

fn product(factors: &[u128]) -> u128 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: WorkerPrices = WorkerPrices {
        request: 2_490_000_000,
        input: 10_600_000,
        input_input: 1_200,
        cached: 800_000,
        output: 188_000_000,
        context_output: 26_000,
    };

    fn work(input: u64, cached: u64, output: u64, choices: u64) -> RequestWork {
        RequestWork { input, cached, output, choices }
    }

    #[test]
    fn the_example_of_the_documentation() {
        assert_eq!(PRICES.cost(work(4096, 0, 64, 1)), 74_579);
    }

    #[test]
    fn each_price_is_for_what_it_says() {
        let only = |change: fn(&mut WorkerPrices)| {
            let mut prices = WorkerPrices::default();
            change(&mut prices);
            prices.cost(work(1000, 400, 22, 2))
        };
        let micro = 1_000_000;
        assert_eq!(only(|prices| prices.request = 1_000_000), 1);
        assert_eq!(only(|prices| prices.input = 1_000_000), 600);
        assert_eq!(only(|prices| prices.cached = 1_000_000), 400);
        // 600² ÷ 2 + 600 × 400 positions.
        assert_eq!(only(|prices| prices.input_input = 1_000_000), 420_000);
        // Two of the 22 tokens come with the prompt.
        assert_eq!(only(|prices| prices.output = 1_000_000), 20);
        // 20 × 1000, and 10² ÷ 2 for each of two choices.
        assert_eq!(only(|prices| prices.context_output = 1_000_000), 20_100);
        assert_eq!(WorkerPrices::default().cost(work(micro, 0, micro, 1)), 1);
    }

    #[test]
    fn no_cost_is_zero_and_none_wraps() {
        let most = WorkerPrices {
            request: u64::MAX,
            input: u64::MAX,
            input_input: u64::MAX,
            cached: u64::MAX,
            output: u64::MAX,
            context_output: u64::MAX,
        };
        for numbers in [[0; 4], [u64::MAX; 4], [0, u64::MAX, 0, 0], [1, 1, 1, u64::MAX]] {
            let [input, cached, output, choices] = numbers;
            assert_eq!(WorkerPrices::default().cost(work(input, cached, output, choices)), 1);
            assert!(most.cost(work(input, cached, output, choices)) > 1 << 40, "{numbers:?}");
        }
        assert_eq!(most.cost(work(u64::MAX, 0, u64::MAX, 1)), u64::MAX);
        assert_eq!(PRICES.cost(work(10, 50, 1, 0)), PRICES.cost(work(10, 10, 1, 1)));
    }

    #[test]
    fn a_mean_weighs_workers_by_slots() {
        let fast = WorkerPrices { output: 100, ..WorkerPrices::default() };
        let slow = WorkerPrices { output: 400, ..WorkerPrices::default() };
        let output = |workers: &[_]| WorkerPrices::mean(workers).map(|mean| mean.output);
        assert_eq!(output(&[(fast, 16), (slow, 8)]), Some(200));
        assert_eq!(output(&[(fast, 0), (slow, 0)]), Some(250));
        assert_eq!(output(&[(fast, 0), (slow, 1)]), Some(400));
        assert_eq!(output(&[]), None);
        let most = WorkerPrices { output: u64::MAX, ..slow };
        assert_eq!(output(&[(most, 1 << 40), (most, 3)]), Some(u64::MAX));
    }

    #[test]
    fn a_slot_costs_its_part_of_the_worker() {
        let batch = FullBatch::from_thousandths(16_000);
        assert_eq!(batch.slot_cost(Duration::from_secs(16)), 1_000_000);
        assert_eq!(batch.slot_cost(Duration::from_micros(17)), 2);
        assert_eq!(batch.slot_cost(Duration::ZERO), 0);
        assert_eq!(FullBatch::from_thousandths(0).slot_cost(Duration::from_secs(1)), 1_000_000);
        assert_eq!(FullBatch::from_thousandths(1).slot_cost(Duration::MAX), u64::MAX);
    }
}
