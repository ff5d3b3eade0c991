//! The simulation's own books: what must be true, from what was done and answered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use crate::model::Claim;

/// The books.
#[derive(Default)]
pub(super) struct Shadow {
    /// What each project may do, by its name.
    pub(super) projects: BTreeMap<String, Project>,
    /// All tasks, by their name.
    pub(super) tasks: BTreeMap<String, Task>,
    /// Who holds which task.
    pub(super) holds: BTreeMap<String, Hold>,
    /// The calls in flight, by request.
    pub(super) flights: BTreeMap<String, Flight>,
    /// Calls that were taken for lost, by request.
    pub(super) lost: BTreeMap<String, Flight>,
    /// What calls of each claim used, as the ledger must have it.
    pub(super) ledger: BTreeMap<(String, u64), u64>,
    /// How each claim ended whose agent ended it.
    pub(super) ended: HashMap<(String, u64), (String, Ending)>,
    /// Tokens and calls used beyond what was set aside for them since spent was last within the budget: of each project, and
    /// of all.
    pub(super) excess: BTreeMap<String, u64>,
    pub(super) excess_of_all: u64,
    /// When the last round was made.
    pub(super) round_at: i64,
}

/// What people said of a project.
pub(super) struct Project {
    pub(super) concurrency: u64,
    pub(super) exclusive: bool,
    pub(super) big_max: Option<u64>,
    pub(super) budget: Option<u64>,
    pub(super) workspaces: BTreeSet<String>,
    /// What it used, in tokens: with the moment, and the earliest moment whose bucket it may count in.
    pub(super) uses: Vec<(i64, i64, i64)>,
}

/// A task.
pub(super) struct Task {
    pub(super) project: String,
    pub(super) workspace: Option<String>,
    /// The last claim.
    pub(super) epoch: u64,
    /// What all its claims used, in tokens.
    pub(super) used: u64,
    pub(super) calls: u64,
    pub(super) is_completed: bool,
}

/// A task that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) agent: String,
    pub(super) project: String,
    pub(super) epoch: u64,
    pub(super) lease_until: i64,
    pub(super) reserved: u64,
    /// Of this claim, in tokens.
    pub(super) used: u64,
    pub(super) workspace: Option<String>,
}

/// A call in flight.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) project: String,
    pub(super) task: String,
    pub(super) epoch: u64,
    /// What is reserved for it, in tokens.
    pub(super) tokens: u64,
    pub(super) at: i64,
    /// How many of its attempts are in the ledger.
    pub(super) attempts: u32,
}

/// How an agent ends a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Complete,
    Fail,
    Limited,
    Ask,
    Release,
}

impl Ending {
    /// Whether one said after the other is the same said twice.
    pub(super) fn is_same(self, other: Self) -> bool {
        let fails = |it| matches!(it, Self::Fail | Self::Limited);
        self == other || (fails(self) && fails(other))
    }
}

impl Shadow {
    /// An agent was given a task, or was told again that it has it.
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
        let hold = Hold {
            agent: agent.to_owned(),
            project: claim.project.clone(),
            epoch: claim.epoch,
            lease_until,
            reserved: claim.reserved,
            used: 0,
            workspace: claim.workspace.clone(),
        };
        self.holds.insert(claim.task.clone(), hold);
    }

    /// A server started, to which nobody could give a sign of life since then: leases that were in force have what they had left,
    /// two thirds of a lease at most.
    pub(super) fn lapsed(&mut self, since: i64, now: i64, lease: Duration) {
        let most = now + i64::try_from(lease.as_micros()).unwrap() * 2 / 3;
        for hold in self.holds.values_mut().filter(|hold| hold.lease_until > since) {
            hold.lease_until = hold.lease_until.max(most.min(hold.lease_until + now - since));
        }
    }

    /// A round was made: it ended the leases that had run out.
    pub(super) fn round(&mut self, now: i64) {
        self.holds.retain(|_, hold| hold.lease_until > now);
        self.round_at = now;
    }

    /// The claim, where it holds its task: with or without a lease that is still good.
    pub(super) fn hold(&mut self, task: &str, epoch: u64) -> Option<&mut Hold> {
        self.holds.get_mut(task).filter(|hold| hold.epoch == epoch)
    }

    /// Whether calls may be made under this claim.
    pub(super) fn is_in_force(&mut self, task: &str, epoch: u64, now: i64) -> bool {
        self.hold(task, epoch).is_some_and(|hold| hold.lease_until > now)
    }

    fn in_flight(&self, task: &str, epoch: u64) -> u64 {
        let of_claim = |flight: &&Flight| flight.task == task && flight.epoch == epoch;
        self.flights.values().filter(of_claim).map(|flight| flight.tokens).sum()
    }

    /// What each project has set aside: for each task that is held what is left of its reservation, or what its calls in
    /// flight hold where that is more; and what calls of claims that are over hold.
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

    /// By how much what is set aside grows with a call that may use so much.
    pub(super) fn growth(&mut self, task: &str, epoch: u64, tokens: u64) -> u64 {
        let calls = self.in_flight(task, epoch);
        let Some(hold) = self.hold(task, epoch) else { return tokens };
        let rest = hold.reserved.saturating_sub(hold.used);
        (calls + tokens).max(rest) - calls.max(rest)
    }

    /// A project used something. `beyond` is what of it nothing had been set aside for.
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

    /// A call used something.
    pub(super) fn charge_call(
        &mut self,
        flight: &Flight,
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
