//! Model of a worker, which predicts the lengths of the worker's windows and is fitted to the measured ones.

use super::float_math::{exp_minus, nearest_power_of_two};
use super::least_squares::{CoefficientFit, WindowCoefficients, WindowSquares};

/// Start ratios: each coefficient relative to that of a step, before anything is known of a worker. They are those of a
/// large model on one current GPU.
const START_RATIOS: WindowCoefficients = WindowCoefficients {
    step: 1.0,
    output: 1.0 / 256.0,
    context: 1.0 / 96_000.0,
    prompt: 0.5,
    input: 1.0 / 256.0,
    position: 1.0 / 2_500_000.0,
    cached: 1.0 / 4096.0,
};
/// Length of a step in milliseconds, before anything is known of a worker.
const START_STEP_MS: f64 = 3.0;
/// Number of sets of sums, one for each power of two that a batch is nearest to: 1, 2, 4, … 2048.
const BATCH_SETS: usize = 12;
/// Length of windows, in milliseconds, after which older windows of the same batch count for 1/e.
const FADE_MS: f64 = 600_000.0;
/// Error of a window's length in milliseconds, because first tokens may come anywhere in a step's burst.
const LENGTH_ERROR_MS: f64 = 3.0;
/// Further error of a window's length, as a part of that length.
const LENGTH_ERROR_PART: f64 = 0.01;
/// Typical relative error of windows that is assumed before the first one.
const START_DEVIATION: f64 = 0.05;
/// Weight of the latest window in the moving average `deviation`: each window moves the average by this part of the
/// difference between the window's error and the average.
const DEVIATION_GAIN: f64 = 0.02;
/// A window is an outlier, and counts less, if its relative error exceeds this many deviations and
/// [`OUTLIER_ERROR_MIN`].
const OUTLIER_DEVIATIONS: f64 = 4.0;
/// Relative error that every outlier exceeds. It is well above the deviation, because the first windows of a new batch
/// or mix have greater errors than the windows of a steady load.
const OUTLIER_ERROR_MIN: f64 = 0.1;
/// Range of the ridge's strength, in milliseconds of windows.
const RIDGE_MS_RANGE: (f64, f64) = (0.05, 1.0);
/// Number of windows up to which the ridge has its upper limit. With more windows it falls: a fit of few windows needs
/// the start ratios, and a fit of many should not keep their errors.
const RIDGE_WINDOWS: f64 = 20.0;
/// Number of the last windows that decide whether the worker has changed.
const RECENT_WINDOWS: usize = 16;
/// Number of the last windows that must be off in one direction for the worker to count as changed.
const CHANGED_WINDOWS: usize = 12;
/// A window is off if its relative error exceeds both this and [`CHANGE_DEVIATIONS`] deviations.
const CHANGE_ERROR_MIN: f64 = 0.06;
const CHANGE_DEVIATIONS: f64 = 2.5;

/// A finished window: what was done in it, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeasuredWindow {
    pub(super) work: WindowCoefficients,
    pub(super) length_ms: f64,
}

/// A window with the result of its comparison with the prediction.
#[derive(Clone, Copy, Debug, Default)]
struct JudgedWindow {
    window: MeasuredWindow,
    /// 1 if the window was longer than predicted by more than chance, −1 if it was shorter, 0 otherwise.
    direction: i8,
}

/// Model of one worker, learned from its windows.
#[derive(Clone, Debug)]
pub(super) struct WindowModel {
    ratios: WindowCoefficients,
    sets: [WindowSquares; BATCH_SETS],
    fit: Option<CoefficientFit>,
    /// Typical relative error of a window.
    deviation: f64,
    recent: [JudgedWindow; RECENT_WINDOWS],
    /// Number of windows since the start or since the last change of the worker.
    windows: u64,
    /// Number of times that the worker was found to have changed.
    changes: u64,
}

impl WindowModel {
    /// Creates a model without windows. `ratio_factors` multiply the start ratios.
    pub(super) fn new(ratio_factors: [f64; 7]) -> Self {
        let ratios = START_RATIOS.array();
        let ratios = core::array::from_fn(|i| ratios[i] * ratio_factors[i]);
        Self {
            ratios: WindowCoefficients::from_array(ratios),
            sets: [WindowSquares::default(); BATCH_SETS],
            fit: None,
            deviation: START_DEVIATION,
            recent: [JudgedWindow::default(); RECENT_WINDOWS],
            windows: 0,
            changes: 0,
        }
    }

    /// Returns the present coefficients, and the multiple of the start ratios that bounds them.
    pub(super) fn fit(&self) -> CoefficientFit {
        self.fit.unwrap_or_else(|| {
            let start = self.ratios.scaled(START_STEP_MS / self.ratios.step);
            CoefficientFit { start, solution: start }
        })
    }

    /// Returns true if the coefficients follow from windows.
    pub(super) fn is_learned(&self) -> bool {
        self.fit.is_some()
    }

    /// Returns the number of windows that the fit uses.
    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    /// Returns the number of times that the worker was found to have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the typical relative error of a window's predicted length.
    pub(super) fn deviation(&self) -> f64 {
        self.deviation
    }

    /// Returns the variance of the fitted coefficients' product with `direction`; `None` if there are too few windows.
    pub(super) fn variance(&self, direction: WindowCoefficients) -> Option<f64> {
        self.all_windows().variance(self.fit.as_ref()?, self.ridge_ms(), direction)
    }

    /// Adds a window and fits again. Returns the length in milliseconds that was predicted for the window; `None` for
    /// the first window.
    pub(super) fn take(&mut self, window: MeasuredWindow) -> Option<f64> {
        let mut trust = 1.0;
        let mut direction = 0;
        let mut prediction = None;
        if let Some(fit) = &self.fit {
            let predicted = window.work.product(fit.solution).max(1e-6);
            prediction = Some(predicted);
            let error = window.length_ms / predicted - 1.0;
            let outlier = OUTLIER_ERROR_MIN.max(OUTLIER_DEVIATIONS * self.deviation);
            if error.abs() > outlier {
                trust = outlier / error.abs();
            }
            if error.abs() > CHANGE_ERROR_MIN.max(CHANGE_DEVIATIONS * self.deviation) {
                direction = if error > 0.0 { 1 } else { -1 };
            }
            let error = error.abs().min(OUTLIER_DEVIATIONS * self.deviation);
            self.deviation += DEVIATION_GAIN * (error - self.deviation);
        }
        self.recent.rotate_left(1);
        self.recent[RECENT_WINDOWS - 1] = JudgedWindow { window, direction };
        self.add(window, trust);
        for side in [1, -1] {
            let off = self.recent.iter().filter(|judged| judged.direction == side).count();
            if off >= CHANGED_WINDOWS {
                self.learn_anew(side);
                break;
            }
        }
        self.fit_again();
        prediction
    }

    fn add(&mut self, window: MeasuredWindow, trust: f64) {
        let MeasuredWindow { work, length_ms } = window;
        let part = LENGTH_ERROR_PART * length_ms;
        let weight = trust / (LENGTH_ERROR_MS * LENGTH_ERROR_MS + part * part);
        let batch = work.output / work.step.max(1e-9);
        let set = &mut self.sets[nearest_power_of_two(batch, BATCH_SETS - 1)];
        set.fade(exp_minus(length_ms / FADE_MS));
        set.add(work, length_ms, weight);
        self.windows += 1;
    }

    /// Forgets all windows except the recent ones that were off in this direction, which are the first of the changed
    /// worker.
    fn learn_anew(&mut self, side: i8) {
        self.sets = [WindowSquares::default(); BATCH_SETS];
        self.windows = 0;
        self.changes += 1;
        self.deviation = START_DEVIATION;
        self.fit = None;
        let recent = core::mem::take(&mut self.recent);
        for judged in recent.iter().filter(|judged| judged.direction == side) {
            self.add(judged.window, 1.0);
        }
    }

    fn fit_again(&mut self) {
        if let Some(fit) = self.all_windows().fit(self.ratios, self.ridge_ms()) {
            self.fit = Some(fit);
        }
    }

    fn all_windows(&self) -> WindowSquares {
        let mut all = WindowSquares::default();
        self.sets.iter().for_each(|set| all.add_sums(set));
        all
    }

    fn ridge_ms(&self) -> f64 {
        let windows = f64::from(u32::try_from(self.windows).unwrap_or(u32::MAX).max(1));
        (RIDGE_WINDOWS / windows).clamp(RIDGE_MS_RANGE.0, RIDGE_MS_RANGE.1)
    }
}

#[cfg(test)]
mod tests {
    use fairgate_random::SeededRng;

    use super::*;

    fn float(number: u64) -> f64 {
        f64::from(u32::try_from(number).unwrap())
    }

    fn window(
        rng: &mut SeededRng,
        truth: WindowCoefficients,
        noise_percent: u64,
    ) -> MeasuredWindow {
        let (step, input) = (24.0 + float(rng.below(60)), float(rng.below(9000)));
        let work = WindowCoefficients {
            step,
            output: step * (8.0 + float(rng.below(8))),
            context: step * 16_000.0,
            prompt: float(rng.below(4)),
            input,
            position: input * 1000.0,
            cached: 0.0,
        };
        let noise = 1.0 + (float(rng.below(2001)) - 1000.0) / 1e5 * float(noise_percent);
        MeasuredWindow { work, length_ms: work.product(truth) * noise }
    }

    #[test]
    fn the_deviation_becomes_that_of_the_windows() {
        let (mut rng, mut model) = (SeededRng::new(5), WindowModel::new([1.0; 7]));
        let truth = START_RATIOS.scaled(9.0);
        for _ in 0..500 {
            model.take(window(&mut rng, truth, 4));
        }
        assert!((0.015..0.025).contains(&model.deviation()), "{}", model.deviation());
        assert_eq!((model.changes(), model.windows()), (0, 500));
        let step = model.fit().solution.step;
        assert!((8.5..9.5).contains(&step), "{step}");
    }

    #[test]
    fn a_changed_worker_is_learned_anew_within_sixteen_windows() {
        let (mut rng, mut model) = (SeededRng::new(6), WindowModel::new([1.0; 7]));
        let truth = START_RATIOS.scaled(3.0);
        for _ in 0..300 {
            model.take(window(&mut rng, truth, 3));
        }
        let slower = WindowCoefficients { step: 2.0 * truth.step, ..truth };
        for _ in 0..16 {
            model.take(window(&mut rng, slower, 3));
        }
        assert_eq!(model.changes(), 1);
        let probe = window(&mut rng, slower, 0);
        let predicted = probe.work.product(model.fit().solution);
        assert!((predicted / probe.length_ms - 1.0).abs() < 0.05, "{predicted}");
    }

    #[test]
    fn single_long_windows_hardly_move_the_fit() {
        let (mut rng, mut model) = (SeededRng::new(8), WindowModel::new([1.0; 7]));
        let truth = START_RATIOS.scaled(3.0);
        for i in 0..600 {
            let mut window = window(&mut rng, truth, 2);
            if i % 10 == 9 {
                window.length_ms += 400.0;
            }
            model.take(window);
        }
        let probe = window(&mut rng, truth, 0);
        let predicted = probe.work.product(model.fit().solution);
        assert!((predicted / probe.length_ms - 1.0).abs() < 0.08, "{predicted}");
        assert_eq!(model.changes(), 0);
    }
}
