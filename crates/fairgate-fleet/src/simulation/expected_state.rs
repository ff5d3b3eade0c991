//! The expected state of a simulation, computed from its calls and the answers to them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use fairgate_api::agents::Claim;

/// Expected state of the fleet.
#[derive(Default)]
pub(super) struct ExpectedState {
    /// Settings and usage of each project, by name.
    pub(super) projects: BTreeMap<String, ExpectedProject>,
    /// All tasks, by name.
    pub(super) tasks: BTreeMap<String, ExpectedTask>,
    /// Claims in force, by task.
    pub(super) holds: BTreeMap<String, ExpectedClaim>,
    /// Model calls in flight, by request.
    pub(super) flights: BTreeMap<String, ExpectedCall>,
    /// Model calls that were counted as lost, by request.
    pub(super) lost: BTreeMap<String, ExpectedCall>,
    /// Tokens that the calls of each claim used, as the ledger must have them.
    pub(super) ledger: BTreeMap<(String, u64), u64>,
    /// Agent and ending of each claim that its agent ended.
    pub(super) ended: HashMap<(String, u64), (String, ClaimEnding)>,
    /// Tokens used beyond the reservations since the spent tokens were last within the budget, by
    /// project.
    pub(super) excess: BTreeMap<String, u64>,
    /// Tokens used beyond the reservations since the spent tokens were last within the budget, for
    /// all projects together.
    pub(super) excess_of_all: u64,
    /// Time of the last round, in microseconds.
    pub(super) round_at: i64,
}

/// Settings and usage of a project.
pub(super) struct ExpectedProject {
    pub(super) concurrency: u64,
    pub(super) exclusive: bool,
    pub(super) big_max: Option<u64>,
    /// Labels that the project or its tenant requires.
    pub(super) requires: BTreeSet<String>,
    pub(super) budget: Option<u64>,
    /// Workspaces of the project, with the machines to which they are bound.
    pub(super) workspaces: BTreeMap<String, Option<String>>,
    /// Usage: its time, the earliest time whose bucket may contain it, and its tokens.
    pub(super) uses: Vec<(i64, i64, i64)>,
}

/// Expected fields of a task.
pub(super) struct ExpectedTask {
    pub(super) project: String,
    pub(super) requires: BTreeSet<String>,
    pub(super) workspace: Option<String>,
    /// Epoch of the latest claim.
    pub(super) epoch: u64,
    /// Tokens that all claims of the task used.
    pub(super) used: u64,
    pub(super) calls: u64,
    pub(super) is_completed: bool,
}

/// A claim in force, with its lease and its usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectedClaim {
    pub(super) agent: String,
    pub(super) project: String,
    pub(super) epoch: u64,
    pub(super) lease_until: i64,
    pub(super) reserved: u64,
    /// Tokens that this claim used.
    pub(super) used: u64,
    pub(super) workspace: Option<String>,
    pub(super) timeout_at: Option<i64>,
}

/// A model call in flight.
#[derive(Clone, Debug)]
pub(super) struct ExpectedCall {
    pub(super) project: String,
    pub(super) task: String,
    pub(super) epoch: u64,
    /// Tokens that are reserved for the call.
    pub(super) tokens: u64,
    pub(super) at: i64,
    /// Number of attempts that are in the ledger.
    pub(super) attempts: u32,
}

/// Ways in which an agent ends a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimEnding {
    Complete,
    Fail,
    Limited,
    Ask,
    Release,
}

impl ClaimEnding {
    /// Returns true if the fleet treats the second of these endings as a repetition of the first.
    pub(super) fn is_same(self, other: Self) -> bool {
        let fails = |it| matches!(it, Self::Fail | Self::Limited);
        self == other || (fails(self) && fails(other))
    }
}

impl ExpectedState {
    /// Records that an agent got a new task, or got the task that it already holds.
    pub(super) fn given(&mut self, agent: &str, claim: &Claim) {
        let lease_until = claim.lease_until.0;
        if let Some(hold) = self.holds.get_mut(&claim.task) {
            assert_eq!(
                (hold.agent.as_str(), hold.epoch),
                (agent, claim.epoch),
                "a task has two holders"
            );
            assert_eq!(hold.reserved, claim.reserved);
            hold.lease_until = lease_until;
            return;
        }
        let task = self.tasks.get_mut(&claim.task).unwrap();
        assert_eq!(
            claim.epoch,
            task.epoch + 1,
            "task {} was given as a claim that was",
            claim.task
        );
        assert!(!task.is_completed, "task {} was completed", claim.task);
        assert_eq!(claim.project, task.project);
        task.epoch = claim.epoch;
        let hold = ExpectedClaim {
            agent: agent.to_owned(),
            project: claim.project.clone(),
            epoch: claim.epoch,
            lease_until,
            reserved: claim.reserved,
            used: 0,
            workspace: claim.workspace.clone(),
            timeout_at: claim.timeout_at.map(|at| at.0),
        };
        self.holds.insert(claim.task.clone(), hold);
    }

    /// Records the start of a server. Leases that were in force at `since` keep the time that they
    /// had left then, up to two thirds of a lease.
    pub(super) fn record_outage(&mut self, since: i64, now: i64, lease: Duration) {
        let most = now + i64::try_from(lease.as_micros()).unwrap() * 2 / 3;
        for hold in self.holds.values_mut().filter(|hold| hold.lease_until > since) {
            hold.lease_until = hold.lease_until.max(most.min(hold.lease_until + now - since));
        }
    }

    /// Records a round, which ended the expired leases.
    pub(super) fn round(&mut self, now: i64) {
        self.holds.retain(|_, hold| hold.lease_until > now);
        self.round_at = now;
    }

    /// Returns the claim if it holds its task, even if its lease has run out.
    pub(super) fn hold(&mut self, task: &str, epoch: u64) -> Option<&mut ExpectedClaim> {
        self.holds.get_mut(task).filter(|hold| hold.epoch == epoch)
    }

    /// Returns true if model calls may be made under this claim.
    pub(super) fn is_in_force(&mut self, task: &str, epoch: u64, now: i64) -> bool {
        self.hold(task, epoch).is_some_and(|hold| hold.lease_until > now)
    }

    fn in_flight(&self, task: &str, epoch: u64) -> u64 {
        let of_claim = |flight: &&ExpectedCall| flight.task == task && flight.epoch == epoch;
        self.flights.values().filter(of_claim).map(|flight| flight.tokens).sum()
    }

    /// Returns the tokens that each project has reserved. For each held task, this is the rest of
    /// its reservation, or the reservations of its calls in flight if they are greater.
    /// Reservations of calls whose claims are over are added.
    pub(super) fn set_aside(&self) -> BTreeMap<&str, u64> {
        let mut by_claim: BTreeMap<(&str, u64), (&str, u64)> = BTreeMap::new();
        for flight in self.flights.values() {
            let key = (flight.task.as_str(), flight.epoch);
            by_claim.entry(key).or_insert((&flight.project, 0)).1 += flight.tokens;
        }
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (task, hold) in &self.holds {
            let calls =
                by_claim.remove(&(task.as_str(), hold.epoch)).map_or(0, |(_, tokens)| tokens);
            *sums.entry(&hold.project).or_default() +=
                calls.max(hold.reserved.saturating_sub(hold.used));
        }
        for (project, tokens) in by_claim.into_values() {
            *sums.entry(project).or_default() += tokens;
        }
        sums.retain(|_, tokens| *tokens > 0);
        sums
    }

    /// Returns the number of tokens by which the project's reserved tokens grow if this claim
    /// reserves `tokens` for one more call.
    pub(super) fn growth(&mut self, task: &str, epoch: u64, tokens: u64) -> u64 {
        let calls = self.in_flight(task, epoch);
        let Some(hold) = self.hold(task, epoch) else { return tokens };
        let rest = hold.reserved.saturating_sub(hold.used);
        (calls + tokens).max(rest) - calls.max(rest)
    }

    /// Records usage of a claim. `beyond` is the part of it for which nothing was reserved.
    pub(super) fn charge(&mut self, task: &str, epoch: u64, tokens: i64, beyond: u64, now: i64) {
        let task_row = self.tasks.get_mut(task).unwrap();
        task_row.used = task_row.used.checked_add_signed(tokens).unwrap();
        let project = task_row.project.clone();
        if let Some(hold) = self.hold(task, epoch) {
            hold.used = hold.used.saturating_add_signed(tokens);
        }
        let since = self.round_at;
        if tokens != 0 {
            self.projects.get_mut(&project).unwrap().uses.push((now, since, tokens));
        }
        *self.excess.entry(project).or_default() += beyond;
        self.excess_of_all += beyond;
    }

    /// Records the usage of a model call.
    pub(super) fn charge_call(
        &mut self,
        flight: &ExpectedCall,
        tokens: i64,
        beyond: u64,
        calls: i64,
        now: i64,
    ) {
        self.charge(&flight.task, flight.epoch, tokens, beyond, now);
        let task = self.tasks.get_mut(&flight.task).unwrap();
        task.calls = task.calls.checked_add_signed(calls).unwrap();
        let row = self.ledger.entry((flight.task.clone(), flight.epoch)).or_default();
        *row = row.checked_add_signed(tokens).unwrap();
    }
}
