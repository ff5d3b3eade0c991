//! The passes of a replay under another policy.

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;

use crate::diff::PolicyDiff;
use crate::edition::OtherEdition;
use crate::error::ReplayError;
use crate::flow_tally::FlowTallyCollector;
use crate::journal::ReplayJournal;
use crate::other_policy::OtherPolicy;
use crate::recording::RecordingBuilder;
use crate::steps::{self, BothListeners, ReplayListener};
use crate::what_if::WhatIfReplay;

/// Opens the journal for a pass: `recording` or `what if`. Both passes must read the same.
pub type JournalOpener<'a> = &'a dyn Fn(&'static str) -> Result<(Pool, ReplayJournal), ReplayError>;

/// Result of a comparison, with the number of lines that were read.
#[derive(Debug)]
pub struct DiffRun {
    /// Each flow's results under both policies.
    pub diff: PolicyDiff,
    /// Number of lines of the journal that were read in one pass.
    pub lines: u64,
}

/// Replays the same arrivals under another policy. Returns the pool at the end.
pub fn replay_under(
    policy: &OtherPolicy,
    open: JournalOpener<'_>,
    listener: &mut impl ReplayListener,
) -> Result<Pool, ReplayError> {
    let (mut pool, mut journal) = open("recording")?;
    let mut learner = RecordingBuilder::default();
    steps::replay(&mut pool, &mut journal, &mut learner)?;
    let recording = learner.finish();
    let (pool, mut journal) = open("what if")?;
    WhatIfReplay::new(&recording, pool, policy).run(&mut journal, listener)
}

/// Replays a journal under its own policy and under another one, and compares the results of each flow. The flows are
/// the values of `by`. Without `by` they are the classes of a policy file, or else the flows at the root of the
/// journal's own policy.
pub fn policy_diff(
    policy: &OtherPolicy,
    by: Option<Attribute>,
    open: JournalOpener<'_>,
) -> Result<DiffRun, ReplayError> {
    let (mut pool, mut journal) = open("recording")?;
    let other_edition: Option<OtherEdition> = journal.other_edition();
    let mut learner = RecordingBuilder::default();
    // The recording's root does not know the file's classes.
    let by = by.or(policy.classifies().then_some(Attribute::Class));
    let mut recorded = FlowTallyCollector::new(by);
    steps::replay(&mut pool, &mut journal, &mut BothListeners(&mut learner, &mut recorded))?;
    let lines = journal.lines();
    let recording = learner.finish();
    let recorded = recorded.finish(&recording);
    let (pool, mut journal) = open("what if")?;
    let mut what_if = FlowTallyCollector::new(by);
    WhatIfReplay::new(&recording, pool, policy).run(&mut journal, &mut what_if)?;
    drop(journal);
    let what_if = what_if.finish(&recording);
    Ok(DiffRun { diff: PolicyDiff::new(&recorded, &what_if, other_edition), lines })
}
