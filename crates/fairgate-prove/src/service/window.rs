//! The measured window, which begins at the join and lasts while all tenants have requests queued.

use std::ops::Range;

use fairgate_core::units::Micros;

use crate::replay::{FlowChange, ReplayedJournal};

/// Longest time for which a tenant may have nothing queued without ending the window.
const LAPSE_MAX: Micros = Micros(50_000);

/// Range of the replay's steps that is measured.
pub(super) struct ServiceWindow {
    pub(super) steps: Range<usize>,
    /// Number and total length of the lapses within the window, which are times in which a tenant
    /// had nothing queued.
    pub(super) lapses: (usize, Micros),
}

impl ServiceWindow {
    /// Finds the longest run of consecutive steps in which all flows have requests queued after every step. Extends it
    /// by the runs before and after it, as long as the lapse before the next run is at most [`LAPSE_MAX`] and that run
    /// itself lasts at least [`LAPSE_MAX`]. Shorter runs end the window, because at the join and at the end all queues
    /// may be filled for a moment only.
    pub(super) fn find(replay: &ReplayedJournal, flows: usize) -> Self {
        let runs = runs(replay, flows);
        let Some(longest) = (0..runs.len()).max_by_key(|run| runs[*run].len()) else {
            return Self { steps: 0..0, lapses: (0, Micros(0)) };
        };
        let at = |step: usize| replay.steps[step].at.0;
        // Time from the last step after which all wait to the first after which they wait again.
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

/// Returns the runs of consecutive steps in which all flows have requests queued after every step.
fn runs(replay: &ReplayedJournal, flows: usize) -> Vec<Range<usize>> {
    let mut waiting = vec![0_u64; flows];
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (number, step) in replay.steps.iter().enumerate() {
        let Some(flow) = replay.requests[step.request].tenant else { continue };
        match step.what {
            FlowChange::Waits => waiting[flow] += 1,
            FlowChange::Gone | FlowChange::Granted => waiting[flow] -= 1,
            FlowChange::Ended => {}
        }
        match runs.last_mut() {
            _ if waiting.contains(&0) => {}
            Some(run) if run.end == number => run.end = number + 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
