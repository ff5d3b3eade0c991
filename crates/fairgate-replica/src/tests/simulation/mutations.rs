//! Tests that each check can fail. Faults that are put into the program on purpose are found within
//! a few seeds.

use super::world::SimulatedCluster;

/// A fault that is put into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Time follows every jump of the engine's clock.
    TimeJumps,
    /// Lines with an old version of the directory are applied.
    OldDirectoryCounts,
    /// The slots of a member whose epoch has ended are freed at once.
    OrphansAreFreedAtOnce,
    /// The slots of a member whose epoch has ended are never freed.
    OrphansAreKept,
    /// A member that has lost contact does not abort its running requests.
    NothingIsCut,
    /// A grant is used even if the process is not sure to be still a member.
    GrantsAreAlwaysUsed,
    /// A record is applied although an earlier one is missing.
    GapsAreIgnored,
    /// Requests per minute are not counted.
    LimitsAreNotCounted,
    /// A snapshot does not contain all of the state.
    SnapshotsForget,
    /// The member of one node makes other decisions.
    OneMemberDiffers,
    /// A member that joins again submits running requests as if they were queued.
    WhatRunsIsSaidToWait,
}

/// Runs one seed, and returns the message of the check that failed; `None` if none failed.
fn failure(mutation: Mutation, seed: u64) -> Option<String> {
    let run = || {
        let mut cluster = SimulatedCluster::new(seed, Some(mutation));
        if mutation == Mutation::NothingIsCut {
            // In other runs, few answers take longer than the time until a member is cut off.
            cluster.long_answers = 10;
            let cut = super::world::WorldEvent::Fault(super::FaultKind::CutFromLog);
            (1..=4).for_each(|i| cluster.schedule(i * 6_000_000, cut.clone()));
        }
        cluster.run()
    };
    let failure = std::panic::catch_unwind(run).err()?;
    let text = failure.downcast_ref::<String>().cloned();
    Some(text.unwrap_or_else(|| failure.downcast_ref::<&str>().map_or("?", |text| text).to_owned()))
}

/// Runs seeds until one of these checks fails. Because of the fault, other checks may fail first.
fn is_found(mutation: Mutation, messages: &[&str]) {
    let mut others = Vec::new();
    for seed in 1..=100 {
        let Some(failure) = failure(mutation, seed) else { continue };
        if messages.iter().any(|message| failure.contains(message)) {
            return;
        }
        others.push(failure);
    }
    panic!("{mutation:?} is not found by {messages:?}, but as {:?}", others.first());
}

#[test]
fn slots_that_are_freed_too_early_are_found() {
    is_found(Mutation::OrphansAreFreedAtOnce, &["was freed while it runs"]);
}

#[test]
fn a_member_that_cuts_nothing_is_found() {
    is_found(Mutation::NothingIsCut, &["was freed while it runs"]);
}

#[test]
fn slots_that_leak_are_found() {
    is_found(Mutation::OrphansAreKept, &["in flight"]);
}

#[test]
fn a_clock_that_jumps_is_found() {
    is_found(Mutation::TimeJumps, &["was freed while it runs"]);
}

#[test]
fn an_old_directory_is_found() {
    is_found(Mutation::OldDirectoryCounts, &["an old directory counts"]);
}

#[test]
fn limits_that_are_not_counted_are_found() {
    is_found(Mutation::LimitsAreNotCounted, &["requests of the limited tenant"]);
}

#[test]
fn a_gap_that_is_ignored_is_found() {
    is_found(Mutation::GapsAreIgnored, &["never quiet", "waiting, in flight", "has requests"]);
}

#[test]
fn a_request_that_is_granted_twice_is_found() {
    is_found(Mutation::WhatRunsIsSaidToWait, &["is granted twice"]);
}

#[test]
fn a_grant_that_is_used_too_late_is_found() {
    is_found(Mutation::GrantsAreAlwaysUsed, &["runs without a slot"]);
}

#[test]
fn a_snapshot_that_lacks_something_is_found() {
    is_found(Mutation::SnapshotsForget, &["another state", "decides otherwise"]);
}

#[test]
fn a_member_that_decides_otherwise_is_found() {
    is_found(Mutation::OneMemberDiffers, &["decides otherwise"]);
}

/// The numbers are falsified, because the core itself never exceeds its bound.
#[test]
#[should_panic(expected = "leaves its bound")]
fn a_flow_outside_of_its_bound_is_found() {
    use fairgate_core::event::{Event, PoolConfig, Submit};
    use fairgate_core::units::Micros;
    let policy = fairgate_journal::parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
    let mut pool = fairgate_core::Pool::new(PoolConfig::new(1, policy));
    let submit = Event::Submit(Box::new(Submit::new("r")));
    pool.apply(Micros(0), submit, &mut Vec::new()).unwrap();
    let mut fairness = pool.fairness();
    super::checks::check_fairness("p", &fairness);
    fairness[0].flows[0].got += 1_000_000;
    super::checks::check_fairness("p", &fairness);
}
