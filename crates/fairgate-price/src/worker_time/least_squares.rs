//! Least squares without negative coefficients, over sums that fade.
//!
//! Coordinate descent finds within a few sweeps which coefficients are at a bound. But it is slow where two
//! coefficients can make up for each other, as those of a step and of an output token can while the batch is constant.
//! So after each sweep, the coefficients between their bounds move together to their common minimum, or towards it as
//! far as the bounds allow. Neither move ever raises the sum of squares.

/// Number of coefficients of a window's length.
pub(super) const COEFFICIENTS: usize = 7;
/// The value of [`COEFFICIENTS`] as a float.
const COEFFICIENTS_FITTED: f64 = 7.0;
/// Least number of windows for which a fit has a variance.
const VARIANCE_WINDOWS_MIN: f64 = 16.0;
/// Greatest number of sweeps over all coefficients. The solution after them counts as found.
const SWEEPS_MAX: usize = 50;
/// If a sweep changes each coefficient by less than this part of its start value, the solution counts as found.
const CHANGE_MIN: f64 = 1e-9;
/// The least and the greatest length of a step in milliseconds that a fit may find.
const STEP_MS_RANGE: (f64, f64) = (1e-3, 1e5);
/// A coefficient is at most this multiple of its start value.
pub(super) const START_FACTOR_MAX: f64 = 64.0;

/// One number for each coefficient. In a window, it is the amount by which the coefficient is multiplied, such as the
/// number of steps. In a fit, it is the coefficient itself, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WindowCoefficients {
    /// The number for a step of the engine.
    pub(super) step: f64,
    /// The number for an output token of any request.
    pub(super) output: f64,
    /// The number for a token of context of an output token.
    pub(super) context: f64,
    /// The number for a prompt of any length.
    pub(super) prompt: f64,
    /// The number for an input token that was not cached.
    pub(super) input: f64,
    /// The number for a token before an input token that was not cached.
    pub(super) position: f64,
    /// The number for a cached input token.
    pub(super) cached: f64,
}

impl WindowCoefficients {
    pub(super) fn array(self) -> [f64; COEFFICIENTS] {
        let Self { step, output, context, prompt, input, position, cached } = self;
        [step, output, context, prompt, input, position, cached]
    }

    pub(super) fn from_array(array: [f64; COEFFICIENTS]) -> Self {
        let [step, output, context, prompt, input, position, cached] = array;
        Self { step, output, context, prompt, input, position, cached }
    }

    /// Returns the sum over all coefficients of the number here times the number in `other`.
    pub(super) fn product(self, other: Self) -> f64 {
        dot(&self.array(), &other.array())
    }

    fn times(self, other: Self) -> Self {
        let (one, other) = (self.array(), other.array());
        Self::from_array(core::array::from_fn(|i| one[i] * other[i]))
    }

    pub(super) fn scaled(self, factor: f64) -> Self {
        Self::from_array(self.array().map(|each| each * factor))
    }
}

/// Weighted sums of squares and products of windows, from which a fit follows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WindowSquares {
    /// Σ w · xᵢ · xⱼ.
    squares: [[f64; COEFFICIENTS]; COEFFICIENTS],
    /// Σ w · xᵢ · y.
    products: [f64; COEFFICIENTS],
    /// Σ w · y².
    length_squares: f64,
    /// Σ y, which has no weight.
    length: f64,
    /// Number of windows, faded like the sums.
    windows: f64,
}

impl WindowSquares {
    /// Adds a window of this length in milliseconds, with this weight.
    pub(super) fn add(&mut self, window: WindowCoefficients, length: f64, weight: f64) {
        let x = window.array();
        for (i, row) in self.squares.iter_mut().enumerate() {
            for (sum, other) in row.iter_mut().zip(x) {
                *sum += weight * x[i] * other;
            }
            self.products[i] += weight * x[i] * length;
        }
        self.length_squares += weight * length * length;
        self.length += length;
        self.windows += 1.0;
    }

    /// Multiplies all sums by a factor.
    pub(super) fn fade(&mut self, factor: f64) {
        self.squares.iter_mut().flatten().for_each(|sum| *sum *= factor);
        self.products.iter_mut().for_each(|sum| *sum *= factor);
        self.length_squares *= factor;
        self.length *= factor;
        self.windows *= factor;
    }

    /// Adds the sums of other windows.
    pub(super) fn add_sums(&mut self, other: &Self) {
        for (sum, more) in self.squares.iter_mut().flatten().zip(other.squares.iter().flatten()) {
            *sum += more;
        }
        for (sum, more) in self.products.iter_mut().zip(other.products) {
            *sum += more;
        }
        self.length_squares += other.length_squares;
        self.length += other.length;
        self.windows += other.windows;
    }

    /// Fits the coefficients. They are drawn towards the multiple of `ratios` that fits best, as strongly as `ridge_ms`
    /// milliseconds of windows would draw them. Returns `None` if there is nothing to fit.
    pub(super) fn fit(&self, ratios: WindowCoefficients, ridge_ms: f64) -> Option<CoefficientFit> {
        let ratio = ratios.array();
        let along: f64 = ratio.iter().zip(self.products).map(|(ratio, sum)| ratio * sum).sum();
        let mut across = 0.0;
        for (row, each) in self.squares.iter().zip(ratio) {
            across += dot(row, &ratio) * each;
        }
        if !(across > 0.0 && self.length > 0.0) {
            return None;
        }
        let multiple = (along / across).clamp(STEP_MS_RANGE.0, STEP_MS_RANGE.1) / ratios.step;
        let start = ratios.scaled(multiple);
        let scaled = self.problem(start.array(), self.ridge(ridge_ms)).solve();
        let solution = WindowCoefficients::from_array(scaled).times(start);
        Some(CoefficientFit { start, solution })
    }

    fn ridge(&self, ridge_ms: f64) -> f64 {
        ridge_ms * self.length_squares / self.length
    }

    /// Returns the variance of x · `direction`, where x are the fitted coefficients: s² · dᵀ(A + ridge)⁻¹d with the
    /// residual variance s². The bounds of the coefficients are ignored, so the variance is rather too large. Returns
    /// `None` before there are [`VARIANCE_WINDOWS_MIN`] windows.
    pub(super) fn variance(
        &self,
        fit: &CoefficientFit,
        ridge_ms: f64,
        direction: WindowCoefficients,
    ) -> Option<f64> {
        if self.windows < VARIANCE_WINDOWS_MIN {
            return None;
        }
        let direction = direction.times(fit.start).array();
        let (mut rows, mut way) =
            (self.problem(fit.start.array(), self.ridge(ridge_ms)).squares, direction);
        solve_positive(&mut rows, &mut way);
        Some(self.residual_variance(fit.solution) * dot(&direction, &way).max(0.0))
    }

    /// Returns Σ w · (y − predicted y)² ÷ (number of windows − number of coefficients).
    fn residual_variance(&self, solution: WindowCoefficients) -> f64 {
        let x = solution.array();
        let squares: f64 =
            self.squares.iter().zip(x).map(|(row, x)| dot(row, &solution.array()) * x).sum();
        let products = dot(&self.products, &x);
        let residual = (self.length_squares - 2.0 * products + squares).max(0.0);
        residual / (self.windows - COEFFICIENTS_FITTED).max(1.0)
    }

    /// Returns the sum to be minimised, with coefficients relative to their start values.
    fn problem(&self, start: [f64; COEFFICIENTS], ridge: f64) -> BoundedSquares {
        let mut squares = self.squares;
        let mut products = self.products;
        for i in 0..COEFFICIENTS {
            for j in 0..COEFFICIENTS {
                squares[i][j] *= start[i] * start[j];
            }
            squares[i][i] += ridge;
            products[i] = products[i] * start[i] + ridge;
        }
        BoundedSquares { squares, products }
    }
}

/// A sum of squares zᵀAz − 2bᵀz, to be minimised over z from 0 to [`START_FACTOR_MAX`].
pub(super) struct BoundedSquares {
    pub(super) squares: [[f64; COEFFICIENTS]; COEFFICIENTS],
    pub(super) products: [f64; COEFFICIENTS],
}

impl BoundedSquares {
    pub(super) fn solve(&self) -> [f64; COEFFICIENTS] {
        let mut z = [1.0; COEFFICIENTS];
        for _ in 0..SWEEPS_MAX {
            let before = z;
            self.descend(&mut z);
            self.leap(&mut z);
            let changes = z.iter().zip(before).map(|(z, before)| (z - before).abs());
            if changes.fold(0.0, f64::max) < CHANGE_MIN {
                break;
            }
        }
        z
    }

    /// Moves each coefficient to its own minimum, one after the other.
    fn descend(&self, z: &mut [f64; COEFFICIENTS]) {
        for i in 0..COEFFICIENTS {
            let others = dot(&self.squares[i], z) - self.squares[i][i] * z[i];
            z[i] = ((self.products[i] - others) / self.squares[i][i]).clamp(0.0, START_FACTOR_MAX);
        }
    }

    /// Moves all coefficients that are between their bounds towards their common minimum, until one reaches a bound.
    fn leap(&self, z: &mut [f64; COEFFICIENTS]) {
        let is_free = z.map(|z| z > 0.0 && z < START_FACTOR_MAX);
        let mut rows = self.squares;
        let mut way: [f64; COEFFICIENTS] =
            core::array::from_fn(|i| self.products[i] - dot(&self.squares[i], z));
        for (i, row) in rows.iter_mut().enumerate() {
            for (j, entry) in row.iter_mut().enumerate() {
                if !(is_free[i] && is_free[j]) {
                    *entry = if i == j { 1.0 } else { 0.0 };
                }
            }
            if !is_free[i] {
                way[i] = 0.0;
            }
        }
        solve_positive(&mut rows, &mut way);
        let mut part: f64 = 1.0;
        for (z, way) in z.iter().zip(way) {
            let room = if way > 0.0 { START_FACTOR_MAX - z } else { -z };
            if way.abs() > room.abs() {
                part = part.min(room / way);
            }
        }
        for (z, way) in z.iter_mut().zip(way) {
            *z = (*z + part * way).clamp(0.0, START_FACTOR_MAX);
        }
    }
}

/// Solves a system of equations by elimination and leaves the solution in `values`. The matrix is symmetric and,
/// because of the ridge, positive definite, so no rows need to be exchanged.
fn solve_positive(
    rows: &mut [[f64; COEFFICIENTS]; COEFFICIENTS],
    values: &mut [f64; COEFFICIENTS],
) {
    for i in 0..COEFFICIENTS {
        let (pivot, pivot_value) = (rows[i], values[i]);
        for (row, value) in rows.iter_mut().zip(values.iter_mut()).skip(i + 1) {
            let factor = row[i] / pivot[i];
            for (entry, above) in row.iter_mut().zip(pivot) {
                *entry -= factor * above;
            }
            *value -= factor * pivot_value;
        }
    }
    for i in (0..COEFFICIENTS).rev() {
        let later: f64 = (i + 1..COEFFICIENTS).map(|j| rows[i][j] * values[j]).sum();
        values[i] = (values[i] - later) / rows[i][i];
    }
}

fn dot(one: &[f64; COEFFICIENTS], other: &[f64; COEFFICIENTS]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

/// The result of a fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoefficientFit {
    /// The multiple of the start ratios that fits best.
    pub(super) start: WindowCoefficients,
    /// The coefficients in milliseconds, each from 0 to [`START_FACTOR_MAX`] times its start value.
    pub(super) solution: WindowCoefficients,
}

#[cfg(test)]
mod tests {
    use fairgate_random::SeededRng;

    use super::*;

    const RATIOS: WindowCoefficients = WindowCoefficients {
        step: 1.0,
        output: 1.0 / 256.0,
        context: 1.0 / 96_000.0,
        prompt: 0.5,
        input: 1.0 / 256.0,
        position: 1.0 / 2_500_000.0,
        cached: 1.0 / 4096.0,
    };

    fn window(rng: &mut SeededRng) -> WindowCoefficients {
        let mut draw = |most: u32| f64::from(u32::try_from(rng.below(u64::from(most))).unwrap());
        let (step, input) = (24.0 + draw(100), draw(8000));
        let output = step * (1.0 + draw(16));
        WindowCoefficients {
            step,
            output,
            context: output * (100.0 + draw(2000)),
            prompt: draw(6),
            input,
            position: input * draw(2000),
            cached: draw(4000),
        }
    }

    #[test]
    fn exact_windows_give_the_true_coefficients() {
        let truth = WindowCoefficients { step: 5.0, output: 0.05, ..RATIOS.scaled(4.0) };
        let mut rng = SeededRng::new(7);
        let mut sums = WindowSquares::default();
        let mut last = None;
        for _ in 0..400 {
            let x = window(&mut rng);
            sums.add(x, x.product(truth), 1.0);
            last = sums.fit(RATIOS, 1.0).map(|fit| fit.solution);
        }
        let fitted = last.unwrap();
        for (found, expected) in fitted.array().iter().zip(truth.array()) {
            assert!((found / expected - 1.0).abs() < 0.1, "{fitted:?} for {truth:?}");
        }
    }

    #[test]
    fn one_window_moves_the_start_ratios_and_hardly_turns_them() {
        let mut rng = SeededRng::new(3);
        let mut sums = WindowSquares::default();
        let x = window(&mut rng);
        sums.add(x, x.product(RATIOS.scaled(20.0)), 0.01);
        let CoefficientFit { start, solution } = sums.fit(RATIOS, 1.0).unwrap();
        assert!(
            (start.step - 20.0).abs() < 1e-6 && (solution.input / start.input - 1.0).abs() < 1e-6
        );
    }

    #[test]
    fn no_coefficient_is_negative_or_beyond_its_bound() {
        let mut sums = WindowSquares::default();
        assert!(sums.fit(RATIOS, 1.0).is_none());
        let x = |step, output| WindowCoefficients { step, output, ..WindowCoefficients::default() };
        // The less output, the longer: a least square without bounds would make output's price negative.
        for (step, output, length) in
            [(30.0, 300.0, 100.0), (30.0, 30.0, 900.0), (30.0, 200.0, 150.0)]
        {
            sums.add(x(step, output), length, 1.0);
        }
        let fit = sums.fit(RATIOS, 1.0).unwrap();
        for (found, start) in fit.solution.array().iter().zip(fit.start.array()) {
            assert!((0.0..=START_FACTOR_MAX * start).contains(found), "{fit:?}");
        }
        assert_eq!(fit.solution.output, 0.0);
    }
}
