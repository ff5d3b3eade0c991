//! One account's rates, divided among the workers that draw on it, in whatever pools they are.
//!
//! Each pool counts its own workers' rates exactly and knows nothing of the others, so each worker gets a part, and the parts
//! add up to the whole. A worker whose pool has nobody waiting gets what it uses and a little more; what is left is divided
//! equally among those whose pools have.

/// What one worker did with its part lately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Draw {
    /// The part of the account's rates that it used: of requests or tokens, whichever is more.
    pub(super) used: f64,
    /// Whether requests wait in its pool.
    pub(super) hungry: bool,
}

/// What everybody keeps who wants nothing now, divided among all: enough to begin at once.
const RESERVE: f64 = 0.1;
/// How much more than it used lately one may use whose pool has nobody waiting.
const HEADROOM: f64 = 1.25;

/// The part of each; they add up to 1.
pub(super) fn divide(draws: &[Draw]) -> Vec<f64> {
    let Some(each) = parts_of(draws.len()) else { return Vec::new() };
    let least = RESERVE * each;
    let wanted: Vec<Option<f64>> = draws
        .iter()
        .map(|draw| (!draw.hungry).then(|| (draw.used * HEADROOM).max(least).min(1.0)))
        .collect();
    let modest: f64 = wanted.iter().flatten().sum();
    let hungry = wanted.iter().filter(|wanted| wanted.is_none()).count();
    match parts_of(hungry) {
        // Nobody waits: what is over goes to all alike.
        None => {
            let over = (1.0 - modest).max(0.0) * each;
            scaled(wanted.into_iter().flatten().map(|wanted| wanted + over).collect())
        }
        Some(share) => {
            // Who is modest may not take more than an equal part from those who wait.
            let modest_max = 1.0 - each * precise(hungry);
            let factor = if modest > modest_max { modest_max / modest } else { 1.0 };
            let rest = (1.0 - modest * factor) * share;
            scaled(wanted.into_iter().map(|w| w.map_or(rest, |w| w * factor)).collect())
        }
    }
}

/// The part of each of so many; none of none.
fn parts_of(count: usize) -> Option<f64> {
    (count > 0).then(|| 1.0 / precise(count))
}

fn scaled(parts: Vec<f64>) -> Vec<f64> {
    let sum: f64 = parts.iter().sum();
    parts.into_iter().map(|part| part / sum).collect()
}

#[expect(clippy::cast_precision_loss, reason = "few")]
fn precise(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(draws: &[(f64, bool)]) -> Vec<f64> {
        let draws: Vec<Draw> =
            draws.iter().map(|(used, hungry)| Draw { used: *used, hungry: *hungry }).collect();
        let parts = divide(&draws);
        if !parts.is_empty() {
            assert!((parts.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{parts:?}");
        }
        parts.into_iter().map(|part| (part * 1000.0).round() / 1000.0).collect()
    }

    #[test]
    fn who_waits_shares_equally_what_the_others_do_not_use() {
        assert_eq!(parts(&[]), Vec::<f64>::new());
        assert_eq!(parts(&[(0.0, false)]), [1.0]);
        assert_eq!(parts(&[(0.9, true), (0.1, true)]), [0.5, 0.5]);
        assert_eq!(parts(&[(0.5, true), (0.0, false)]), [0.95, 0.05]);
        assert_eq!(parts(&[(0.5, true), (0.2, false)]), [0.75, 0.25]);
        assert_eq!(parts(&[(0.0, false), (0.0, false)]), [0.5, 0.5]);
    }

    #[test]
    fn who_does_not_wait_cannot_starve_who_does() {
        assert_eq!(parts(&[(0.1, true), (0.9, false)]), [0.5, 0.5]);
        assert_eq!(parts(&[(0.0, true), (0.6, false), (0.6, false)]), [0.333, 0.333, 0.333]);
    }
}
