//! Measures of a full worker: its batch, and the number of prompts per output token.

use super::cost::{FullBatch, WorkerPrices};
use super::float_math::{exp_minus, whole};
use super::least_squares::{CoefficientFit, START_FACTOR_MAX, WindowCoefficients};
use super::window_log::PromptWork;
use super::window_model::MeasuredWindow;

/// Total length of later full windows, in milliseconds, after which a full window counts for 1/e.
const FADE_MS: f64 = 30_000.0;
/// Part of the slots that is assumed to decode in a full worker before the first full window.
const START_FILL: f64 = 0.95;
/// Length in milliseconds of imaginary windows with the fill [`START_FILL`] that come before the first full window.
/// When a worker fills up, all its slots wait for prompts at first, and its first full windows are not like those that
/// follow.
const START_MS: f64 = 10_000.0;
/// Number of picoseconds in a millisecond.
const PICOS: f64 = 1e9;

/// Sums over the windows in which a worker was full, fading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullWindows {
    /// Output tokens of all windows, including the imaginary ones.
    output: f64,
    /// Output tokens of the windows that were measured.
    measured_output: f64,
    /// Sum of steps × slots over the windows.
    slot_steps: f64,
    prompts: f64,
    /// Total length in milliseconds.
    length_ms: f64,
}

impl FullWindows {
    /// Adds a window in which the worker was full.
    pub(super) fn add(&mut self, slots: u32, window: &MeasuredWindow) {
        let MeasuredWindow { work, length_ms } = *window;
        let WindowCoefficients { step: steps, output, prompt: prompts, .. } = work;
        if self.slot_steps == 0.0 {
            self.slot_steps = steps * f64::from(slots) * START_MS / length_ms.max(1.0);
            self.output = START_FILL * self.slot_steps;
        }
        let fade = exp_minus(length_ms / FADE_MS);
        self.output = self.output * fade + output;
        self.measured_output = self.measured_output * fade + output;
        self.slot_steps = self.slot_steps * fade + steps * f64::from(slots);
        self.prompts = self.prompts * fade + prompts;
        self.length_ms = self.length_ms * fade + length_ms;
    }

    /// Returns the part of the slots that decode in a full worker, from 0 to 1.
    pub(super) fn fill(&self) -> f64 {
        match self.slot_steps > 0.0 {
            true => (self.output / self.slot_steps).clamp(0.0, 1.0),
            false => START_FILL,
        }
    }

    /// Returns the seconds of full windows over which the fill is averaged; at most 30.
    pub(super) fn seconds(&self) -> f64 {
        self.length_ms / 1000.0
    }

    /// Returns the number of requests that decode in a full worker with this number of slots, at least 1.
    pub(super) fn batch(&self, slots: u32) -> f64 {
        (f64::from(slots) * self.fill()).max(1.0)
    }

    /// Returns the number of prompts per output token in a full worker; 0 if that is unknown.
    fn prompts_per_output(&self) -> f64 {
        if self.measured_output > 0.0 { self.prompts / self.measured_output } else { 0.0 }
    }

    /// Returns the prices of a worker with these coefficients and slots, as if it were full.
    ///
    /// A step costs a, shared by the n requests that decode in it, so an output token costs a/n + b. A prompt that
    /// costs less than half a step was read in the same pass as a step of decoding, and saved a pass. Half of what it
    /// saved goes to the requests that decode: each prompt pays h more. Each output token pays ρh less, where ρ is the
    /// number of prompts per output token.
    pub(super) fn prices(&self, fit: &CoefficientFit, slots: u32) -> WorkerPrices {
        let CoefficientFit { start, solution } = fit;
        let batch = self.batch(slots);
        let decode = solution.step / batch + solution.output;
        let per_output = self.prompts_per_output();
        let saved = Self::saved(solution, decode, per_output);
        let most = self.greatest_prices(start, slots);
        let bounded = |price: f64, most: u64| whole(PICOS * price.max(0.0)).min(most);
        WorkerPrices {
            request: bounded(solution.prompt + saved, most.request),
            input: bounded(solution.input, most.input),
            input_input: bounded(solution.position, most.input_input),
            cached: bounded(solution.cached, most.cached),
            output: bounded(decode - per_output * saved, most.output),
            context_output: bounded(solution.context, most.context_output),
        }
    }

    /// Returns the greatest prices of a worker, which are 64 times the prices that follow from the
    /// coefficients `start`.
    pub(super) fn greatest_prices(&self, start: &WindowCoefficients, slots: u32) -> WorkerPrices {
        let most = |start: f64| whole(PICOS * START_FACTOR_MAX * start);
        WorkerPrices {
            request: most(start.prompt),
            input: most(start.input),
            input_input: most(start.position),
            cached: most(start.cached),
            output: most(start.step / self.batch(slots) + start.output),
            context_output: most(start.context),
        }
    }

    /// Returns the milliseconds h that each prompt pays in place of the requests that decode, because a prompt that is
    /// read beside decoding saves a pass.
    fn saved(solution: &WindowCoefficients, decode: f64, per_output: f64) -> f64 {
        if per_output > 0.0 {
            let saved = (solution.step - 2.0 * solution.prompt).max(0.0) / 2.0;
            saved.min(decode / (2.0 * per_output))
        } else {
            0.0
        }
    }

    /// Returns the derivative of the cost of a request with respect to each coefficient, with a constant
    /// batch and a constant number of prompts per output token. `later` is the number of the request's output
    /// tokens, without the first token of each choice. `context` is a sum over these later output tokens: for
    /// each of them, the number of tokens before it.
    pub(super) fn cost_derivative(
        &self,
        fit: &CoefficientFit,
        slots: u32,
        prompt: &PromptWork,
        (later, context): (f64, f64),
    ) -> WindowCoefficients {
        let (batch, per_output) = (self.batch(slots), self.prompts_per_output());
        let decode = fit.solution.step / batch + fit.solution.output;
        let is_moved = Self::saved(&fit.solution, decode, per_output) > 0.0;
        let moved = if is_moved { 1.0 - per_output * later } else { 0.0 };
        WindowCoefficients {
            step: later / batch + moved / 2.0,
            output: later,
            context,
            prompt: 1.0 - moved,
            input: prompt.input,
            position: prompt.position,
            cached: prompt.cached,
        }
    }

    /// Returns the batch of a full worker with this number of slots.
    pub(super) fn full_batch(&self, slots: u32) -> FullBatch {
        FullBatch::from_thousandths(whole(1000.0 * self.batch(slots)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(output: f64) -> MeasuredWindow {
        let work = WindowCoefficients {
            step: 100.0,
            output,
            prompt: 10.0,
            ..WindowCoefficients::default()
        };
        MeasuredWindow { work, length_ms: 500.0 }
    }

    fn fit(step: f64, prompt: f64) -> CoefficientFit {
        let start = WindowCoefficients {
            step: 3.0,
            output: 0.01,
            context: 3e-5,
            prompt: 1.5,
            input: 0.01,
            position: 1e-6,
            cached: 1e-3,
        };
        CoefficientFit { start, solution: WindowCoefficients { step, prompt, ..start } }
    }

    fn full_windows(prompts: f64) -> FullWindows {
        let (output, slot_steps) = (1600.0, 1600.0);
        FullWindows { output, measured_output: output, slot_steps, prompts, length_ms: 500.0 }
    }

    #[test]
    fn the_fill_is_that_of_the_last_half_minute() {
        let mut full = FullWindows::default();
        assert_eq!((full.fill(), full.batch(16)), (0.95, 15.2));
        full.add(64, &window(0.0));
        assert!((0.9..0.92).contains(&full.fill()), "{}", full.fill());
        for _ in 0..400 {
            full.add(64, &window(1600.0));
        }
        assert!((0.25..0.255).contains(&full.fill()), "{}", full.fill());
        for _ in 0..400 {
            full.add(64, &window(9000.0));
        }
        assert_eq!(full.fill(), 1.0);
        assert!((29.0..31.0).contains(&full.seconds()), "{}", full.seconds());
        assert_eq!(full.batch(0), 1.0);
    }

    #[test]
    fn an_output_token_costs_its_part_of_a_step() {
        let full = full_windows(10.0);
        let prices = full.prices(&fit(3.2, 2.0), 16);
        assert_eq!(prices.request, 2_000_000_000);
        assert_eq!(
            (prices.output, prices.input, prices.context_output),
            (210_000_000, 10_000_000, 30_000)
        );
        // Twice the slots at the same fill: half the step for each.
        assert_eq!(full.prices(&fit(3.2, 2.0), 32).output, 110_000_000);
    }

    #[test]
    fn a_prompt_read_beside_decoding_pays_half_of_what_it_saved() {
        // One prompt for 100 output tokens.
        let full = full_windows(16.0);
        let prices = full.prices(&fit(3.2, 0.6), 16);
        assert_eq!(prices.request, 1_600_000_000);
        assert_eq!(prices.output, 200_000_000);
        // What all pay together is the same as without: 0.6 ms and 100 × 0.21 ms.
        assert_eq!(prices.request + 100 * prices.output, 21_600_000_000);
    }

    #[test]
    fn prices_are_bounded_by_the_start_ratios() {
        let full = full_windows(10.0);
        let prices = full.prices(&fit(f64::INFINITY, f64::INFINITY), 16);
        assert_eq!(prices.request, 96_000_000_000);
        assert!(prices.output <= 64 * 200_000_000);
        assert_eq!(full.prices(&fit(f64::NAN, 0.0), 16).output, 0);
    }
}
