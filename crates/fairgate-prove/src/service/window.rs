//! The time that is measured: from the join on, while all wait.

use std::ops::Range;

use fairgate_core::units::Micros;

use crate::replay::{Replay, What};

/// The longest that somebody may not wait without the measured time being over.
const LAPSE_MAX: Micros = Micros(50_000);

/// The steps that are measured.
pub(super) struct Window {
    pub(super) steps: Range<usize>,
    /// How often somebody did not wait in between, and for how long in all.
    pub(super) lapses: (usize, Micros),
}

impl Window {
    /// The longest run of steps after each of which all flows wait, and the runs around it that lapses alone part from it.
    /// At the join and in the end requests may come and go for a moment: only runs that last are measured.
    pub(super) fn find(replay: &Replay, flows: usize) -> Self {
        let runs = runs(replay, flows);
        let Some(longest) = (0..runs.len()).max_by_key(|run| runs[*run].len()) else {
            return Self { steps: 0..0, lapses: (0, Micros(0)) };
        };
        let at = |step: usize| replay.steps[step].at.0;
        // From the last step after which all wait to the first after which they do again.
        let lapse = |run: usize| at(runs[run + 1].start) - at(runs[run].end - 1);
        let close = |run: &usize| lapse(*run) <= LAPSE_MAX.0;
        let lasts = |run: &usize| at(runs[*run].end - 1) - at(runs[*run].start) >= LAPSE_MAX.0;
        let before = (0..longest).rev().take_while(|run| close(run) && lasts(run));
        let first = longest - before.count();
        let after = (longest..runs.len() - 1).take_while(|run| close(run) && lasts(&(run + 1)));
        let last = longest + after.count();
        let lost = (first..last).map(lapse).sum();
        Self { steps: runs[first].start..runs[last].end, lapses: (last - first, Micros(lost)) }
    }
}

/// Runs of steps after each of which all flows wait.
fn runs(replay: &Replay, flows: usize) -> Vec<Range<usize>> {
    let mut waiting = vec![0_u64; flows];
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (number, step) in replay.steps.iter().enumerate() {
        let Some(flow) = replay.requests[step.request].tenant else { continue };
        match step.what {
            What::Waits => waiting[flow] += 1,
            What::Gone | What::Granted => waiting[flow] -= 1,
            What::Ended => {}
        }
        match runs.last_mut() {
            _ if waiting.contains(&0) => {}
            Some(run) if run.end == number => run.end = number + 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
