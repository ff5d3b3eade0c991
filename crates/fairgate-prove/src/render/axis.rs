//! Round numbers for the ticks along an axis.

/// Returns about `count` round numbers from 0 to `most`: multiples of 1, 2 or 5 times a power of
/// ten.
pub(super) fn ticks(most: f64, count: f64) -> Vec<f64> {
    let rough = (most / count).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(10.0 * power);
    let mut ticks = vec![0.0];
    let mut next = step;
    while next <= most * 1.001 {
        ticks.push(next);
        next = step * ticks.len() as f64;
    }
    ticks
}

/// Formats a tick with as many decimals as its step needs.
pub(super) fn label(tick: f64, ticks: &[f64]) -> String {
    let step = ticks.get(1).copied().unwrap_or(1.0);
    match step {
        _ if tick >= 10_000.0 => format!("{:.0}k", tick / 1000.0),
        step if step >= 1.0 => format!("{tick:.0}"),
        step if step >= 0.1 => format!("{tick:.1}"),
        _ => format!("{tick:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks(10.0, 5.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(47_000.0, 5.0), [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0]);
        assert_eq!(ticks(0.7, 4.0), [0.0, 0.2, 0.4, 0.6000000000000001]);
    }

    #[test]
    fn labels_have_the_decimals_of_their_step() {
        let some = ticks(0.7, 4.0);
        assert_eq!(label(some[3], &some), "0.6");
        assert_eq!(label(20_000.0, &ticks(47_000.0, 5.0)), "20k");
        assert_eq!(label(2.0, &ticks(10.0, 5.0)), "2");
    }
}
