//! Divides the rates of one account among the workers that use it, whatever pools they are in.
//!
//! Each pool counts its own workers' rates exactly and does not know the other pools. So each
//! worker gets a fraction of the rates, and the fractions add up to 1. A worker without queued
//! requests gets the fraction that it uses and a little more. The rest is divided equally among the
//! workers with queued requests.
//!
//! If each pool had the whole rate, the pools together would exceed it, and the provider would
//! refuse requests. Even if each pool knew the grants of the others, two pools could grant the last
//! request of the quota at the same time.

/// Recent use of the account's rates by one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::upstream) struct RateUse {
    /// Fraction of the account's rates that the worker used: that of the requests or that of the tokens, whichever is
    /// more.
    pub(in crate::upstream) used: f64,
    /// True if requests that need this worker are queued.
    pub(in crate::upstream) has_queue: bool,
}

/// Fraction that is counted at least for a worker with an empty queue, relative to an equal
/// division among all workers. It lets an idle worker start at once. All fractions are scaled
/// afterwards, so the worker may get less or more.
const RESERVE: f64 = 0.1;
/// Factor by which the fraction of a worker without queued requests exceeds the worker's recent
/// use.
const HEADROOM: f64 = 1.25;

/// Returns the fraction of the account's rates for each worker; the fractions add up to 1.
pub(in crate::upstream) fn divide(draws: &[RateUse]) -> Vec<f64> {
    let Some(each) = parts_of(draws.len()) else { return Vec::new() };
    let least = RESERVE * each;
    let wanted: Vec<Option<f64>> = draws
        .iter()
        .map(|draw| (!draw.has_queue).then(|| (draw.used * HEADROOM).max(least).min(1.0)))
        .collect();
    let modest: f64 = wanted.iter().flatten().sum();
    let with_queue = wanted.iter().filter(|wanted| wanted.is_none()).count();
    match parts_of(with_queue) {
        // No requests wait: the rest is divided equally among all.
        None => {
            let over = (1.0 - modest).max(0.0) * each;
            scaled(wanted.into_iter().flatten().map(|wanted| wanted + over).collect())
        }
        Some(share) => {
            // Workers with empty queues must leave an equal part to each worker with queued
            // requests.
            let modest_max = 1.0 - each * precise(with_queue);
            let factor = if modest > modest_max { modest_max / modest } else { 1.0 };
            let rest = (1.0 - modest * factor) * share;
            scaled(wanted.into_iter().map(|w| w.map_or(rest, |w| w * factor)).collect())
        }
    }
}

/// Returns the fraction of one worker in an equal division among `count` workers; `None` if `count` is 0.
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
        let draws: Vec<RateUse> = draws
            .iter()
            .map(|(used, with_queue)| RateUse { used: *used, has_queue: *with_queue })
            .collect();
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
