//! The few functions of floats that `core` lacks. They use basic operations only, so their results are equal on every
//! machine.

/// Returns e⁻ˣ for x from 0 to 64; an x beyond these limits counts as the limit.
pub(super) fn exp_minus(x: f64) -> f64 {
    let part = x.clamp(0.0, 64.0) / 1024.0;
    // Sums the series of e^part up to the fifth power. The error is below 10⁻¹⁰ for a part of at most 1/16.
    let mut power = 1.0
        + part * (1.0 + part / 2.0 * (1.0 + part / 3.0 * (1.0 + part / 4.0 * (1.0 + part / 5.0))));
    for _ in 0..10 {
        power *= power;
    }
    1.0 / power
}

/// Returns the square root of a number; 0 for a number that is negative, infinite or not a number.
pub(super) fn square_root(number: f64) -> f64 {
    if !(number > 0.0 && number.is_finite()) {
        return 0.0;
    }
    // Newton's steps first halve the root until it is near the result, and then double its correct digits. A number of
    // 2⁶⁰⁰ needs about 310 steps.
    let mut root = number.max(1.0);
    for _ in 0..600 {
        let next = (root + number / root) / 2.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

/// Returns log₂ of a number, rounded to the nearest whole number from 0 to `last`.
pub(super) fn nearest_power_of_two(number: f64, last: usize) -> usize {
    let mut limit = core::f64::consts::SQRT_2;
    let mut power = 0;
    while power < last && number >= limit {
        limit *= 2.0;
        power += 1;
    }
    power
}

/// Returns the nearest whole number. Returns 0 if `number` is negative or not a number, and `u64::MAX` if it is too
/// large.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float saturates, and turns what is not a number into 0"
)]
pub(super) fn whole(number: f64) -> u64 {
    (number + 0.5) as u64
}

/// Returns a count of tokens as a float. Counts above ten million, which no request has, count as ten million.
#[inline]
pub(super) fn count(tokens: u64) -> f64 {
    f64::from(u32::try_from(tokens).unwrap_or(u32::MAX).min(10_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_e() {
        for (x, expected) in
            [(0.0, 1.0), (1.0, 0.367_879_441), (0.1, 0.904_837_418), (10.0, 4.539_993e-5)]
        {
            assert!((exp_minus(x) / expected - 1.0).abs() < 1e-8, "{x}: {}", exp_minus(x));
        }
        assert!(exp_minus(f64::INFINITY) < 1e-27 && exp_minus(-1.0) >= 1.0);
    }

    #[test]
    fn square_roots() {
        for (number, root) in [(4.0, 2.0), (1e-12, 1e-6), (2.25, 1.5), (1e12, 1e6), (1e300, 1e150)]
        {
            assert!((square_root(number) / root - 1.0).abs() < 1e-12, "{number}");
        }
        assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY].map(square_root), [0.0; 4]);
    }

    #[test]
    fn powers_of_two_and_whole_numbers() {
        let rounded =
            [0.0, 1.0, 1.4, 1.5, 2.8, 2.9, 60.0, 1e9].map(|n| nearest_power_of_two(n, 11));
        assert_eq!(rounded, [0, 0, 0, 1, 1, 2, 6, 11]);
        assert_eq!([-1.0, f64::NAN, 0.4, 0.6, f64::INFINITY].map(whole), [0, 0, 0, 1, u64::MAX]);
        assert_eq!(count(u64::MAX), 1e7);
    }
}
