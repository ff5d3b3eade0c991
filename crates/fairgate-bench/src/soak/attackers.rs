//! Compares the honest tenants' answers before and during the attack of `soak --attackers`.
//!
//! Both halves of the run have the same tenants, weights and clients. In the first half attackers behave as honest
//! clients of their pool, so each honest tenant gets the answers that its weight is due among honest tenants. In the
//! second half each honest tenant must get at least the fraction [`KEPT_MIN`] of that number.

use std::time::{Duration, Instant};

use super::SoakOptions;
use super::client_results::SoakResults;

/// Least fraction (0 to 1) of its answers that an honest tenant keeps during the attack.
const KEPT_MIN: f64 = 0.9;
/// Divisor of a half's length that gives the time at its beginning that does not count. In this time, queues fill and
/// estimates are learned.
const WARM_UP_PART: u32 = 6;

/// Result of the comparison.
pub(super) struct SoakAttackComparison {
    /// One line per honest tenant, for the log.
    pub(super) lines: Vec<String>,
    /// Honest tenants that lost too many answers, with one sentence for each.
    pub(super) problems: Vec<String>,
}

/// Compares both halves of a run that began at `begin`.
pub(super) fn compare(
    options: &SoakOptions,
    seen: &SoakResults,
    begin: Instant,
) -> SoakAttackComparison {
    let half = options.length() / 2;
    let warm_up = half / WARM_UP_PART;
    let (before, during) = ((warm_up, half), (half + warm_up, half * 2));
    let mut comparison = SoakAttackComparison { lines: Vec::new(), problems: Vec::new() };
    for (index, tenant) in options.tenants().iter().enumerate() {
        if !tenant.habit.is_honest() {
            continue;
        }
        let times = || seen.good_answers(index).map(|at| at.saturating_duration_since(begin));
        let (first, second) = (count(times(), before), count(times(), during));
        let name = tenant.name;
        let kept = second as f64 / first.max(1) as f64;
        let line = format!(
            "{name}: {first} answers before the attack, {second} in the same time of the attack ({:.1} %)",
            100.0 * kept
        );
        if first == 0 || kept < KEPT_MIN {
            let bar = 100.0 * KEPT_MIN;
            comparison.problems.push(format!("{line}; at least {bar:.0} % is required."));
        }
        comparison.lines.push(line);
    }
    comparison
}

fn count(times: impl Iterator<Item = Duration>, (from, to): (Duration, Duration)) -> usize {
    times.filter(|at| (from..to).contains(at)).count()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::client_results::{EndedAnswer, SoakRequestResult};
    use super::*;

    fn options() -> SoakOptions {
        SoakOptions {
            fairgate: PathBuf::new(),
            sim: PathBuf::new(),
            seconds: 60,
            seed: 1,
            backends: None,
            python: None,
            streams: 0,
            attackers: true,
            plan: false,
        }
    }

    /// Returns results in which each honest tenant has 100 answers before and `during` answers in
    /// the attack.
    fn results(options: &SoakOptions, begin: Instant, during: usize) -> SoakResults {
        let mut seen = SoakResults::default();
        for (tenant, _) in options.tenants().iter().enumerate() {
            for (half, answers) in [(10_u64, 100), (40, during)] {
                for number in 0..answers {
                    let at =
                        begin + Duration::from_secs(half) + Duration::from_millis(number as u64);
                    let id = format!("{tenant}-{half}-{number}");
                    let ended = EndedAnswer { tenant, status: 200, code: None, at };
                    seen.note(SoakRequestResult::End(id, ended));
                }
            }
        }
        seen
    }

    #[test]
    fn a_tenant_that_keeps_nine_tenths_is_fine_and_one_that_keeps_less_is_a_problem() {
        let (options, begin) = (options(), Instant::now());
        let of = |during| compare(&options, &results(&options, begin, during), begin);
        assert_eq!(of(90).problems, Vec::<String>::new());
        assert_eq!(of(90).lines.len(), 5, "one for each honest tenant");
        assert_eq!(of(89).problems.len(), 5);
        let nothing = compare(&options, &SoakResults::default(), begin);
        assert_eq!(nothing.problems.len(), 5, "a tenant without answers proves nothing");
    }

    #[test]
    fn answers_at_the_beginning_of_a_half_do_not_count() {
        let seconds = |at: u64| Duration::from_secs(at);
        let window = (seconds(5), seconds(30));
        let times = [4, 5, 29, 30].map(seconds);
        assert_eq!(count(times.into_iter(), window), 2);
    }
}
