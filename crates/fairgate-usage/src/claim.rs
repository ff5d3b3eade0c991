//! Claims of tasks, and whether a claim is valid.

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};

use crate::database::UsageColumns;
use crate::held_task::is_held;
use crate::set_aside::set_aside;

/// Task and claim for which a request was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskClaim {
    /// Id of the project.
    pub project: String,
    /// Id of the task.
    pub task: String,
    /// Number of the claim among the claims of the task. The first claim of a task has the number 1.
    pub epoch: u64,
}

/// Error for a claim that is not valid: the task was given to another agent or has ended, or the
/// lease ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseLost {
    /// Id of the task.
    pub task: String,
    /// Description, for people, of what happened to the task.
    pub why: String,
    /// True if the claim is over for good. False if only the lease ran out. The lease can then still be renewed until
    /// the next round of the fleet ends the claim; that round may be late if the database was not reachable.
    pub is_over: bool,
}

/// Expands to the beginning of the query for a task's state and tokens, with columns in the order in which
/// [`TaskBalance::read`] takes them. A condition on the id follows.
macro_rules! task_balance {
    () => {
        "SELECT t.id, t.project, t.epoch, t.state, t.lease_until, t.agent, t.reserved, t.used, \
         CAST(COALESCE((SELECT SUM(r.provider_tokens) FROM reservations r \
         WHERE r.task = t.id AND r.epoch = t.epoch), 0) AS BIGINT), t.used_before, t.tokens_max, t.money, t.money_max, \
         CAST(COALESCE((SELECT SUM(r.money) FROM reservations r \
         WHERE r.task = t.id AND r.epoch = t.epoch), 0) AS BIGINT) FROM fleet_tasks t WHERE t.id = "
    };
}

pub(crate) use task_balance;

/// State and tokens of a task.
#[derive(Debug)]
pub(crate) struct TaskBalance {
    project: String,
    epoch: u64,
    state: String,
    lease_until: Option<UnixMicros>,
    agent: Option<String>,
    reserved: i64,
    used: i64,
    /// Tokens that are reserved for the requests in flight of the task's latest claim.
    in_flight: i64,
    /// Tokens that earlier claims of the task used.
    used_before: i64,
    /// Most tokens that the task may use over all its claims; `None` sets no limit.
    tokens_max: Option<u64>,
    /// Cost of the task's requests, over all its claims, in micro-units.
    money: i64,
    /// Most money that the task may cost, in micro-units; `None` sets no limit.
    money_max: Option<u64>,
    /// Money that is reserved for the requests in flight of the task's latest claim, in micro-units.
    money_in_flight: i64,
}

/// Cap of a task that has no room for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCapReached {
    /// Id of the task.
    pub task: String,
    /// Unit of the amounts of this value.
    pub unit: TaskCapUnit,
    /// Most that the task may use, over all its claims.
    pub limit: u64,
    /// Amount that the task used so far.
    pub used: u64,
    /// Amount that is reserved for the task's other requests in flight.
    pub reserved: u64,
    /// Amount that the request may use.
    pub wanted: u64,
}

/// Unit of a task's cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskCapUnit {
    /// Tokens as a provider counts them.
    Tokens,
    /// Micro-units of the installation's currency.
    Money,
}

impl TaskBalance {
    /// Reads a task's id and balance from the columns of the query.
    pub(crate) fn read<R: UsageColumns + ?Sized>(row: &R) -> Result<(String, Self), R::Error> {
        let task = Self {
            project: row.text(1)?,
            epoch: row.count(2)?,
            state: row.text(3)?,
            lease_until: row.int_or_null(4)?.map(UnixMicros),
            agent: row.text_or_null(5)?,
            reserved: row.int(6)?,
            used: row.int(7)?,
            in_flight: row.int(8)?,
            used_before: row.int(9)?,
            tokens_max: row.count_or_null(10)?,
            money: row.int(11)?,
            money_max: row.count_or_null(12)?,
            money_in_flight: row.int(13)?,
        };
        Ok((row.text(0)?, task))
    }

    /// Checks that a claim of this task is valid at a moment: the task is held under the claim's
    /// epoch, and the lease has not run out.
    pub(crate) fn check_in_force(
        &self,
        claim: &TaskClaim,
        at: UnixMicros,
    ) -> Result<(), LeaseLost> {
        let Self { state, epoch, .. } = self;
        if *epoch != claim.epoch || self.project != claim.project {
            return Err(claim.over(match &self.agent {
                Some(agent) => format!("agent {agent:?} has it now, with claim {epoch}"),
                None => format!("it is {state} since claim {epoch}"),
            }));
        }
        if !is_held(state) {
            return Err(claim.over(format!("it is {state}")));
        }
        match self.lease_until {
            Some(until) if until > at => Ok(()),
            _ => {
                let why = "its lease ran out without a sign of life".to_owned();
                Err(LeaseLost { task: claim.task.clone(), why, is_over: false })
            }
        }
    }

    /// Returns by how many tokens [`crate::set_aside()`] grows for the claim's task if the claim's requests reserve
    /// `more` further tokens. A negative `more` is a release.
    pub(crate) fn growth(&self, claim: &TaskClaim, more: i64) -> i64 {
        if self.epoch != claim.epoch || !is_held(&self.state) {
            // A claim that is over has nothing reserved.
            return more;
        }
        let with = |in_flight| set_aside(self.reserved, self.used, in_flight);
        with(self.in_flight.saturating_add(more)) - with(self.in_flight)
    }

    /// Checks that the caps of the task have room for a request that may use `tokens` and cost `money` micro-units.
    pub(crate) fn check_caps(
        &self,
        claim: &TaskClaim,
        tokens: u64,
        money: u64,
    ) -> Result<(), TaskCapReached> {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let used = count(self.used.saturating_add(self.used_before));
        let caps = [
            (TaskCapUnit::Tokens, self.tokens_max, used, self.in_flight, tokens),
            (TaskCapUnit::Money, self.money_max, count(self.money), self.money_in_flight, money),
        ];
        for (unit, limit, used, in_flight, wanted) in caps {
            let (Some(limit), reserved) = (limit, count(in_flight)) else { continue };
            if wanted > 0 && used.saturating_add(reserved).saturating_add(wanted) > limit {
                let task = claim.task.clone();
                return Err(TaskCapReached { task, unit, limit, used, reserved, wanted });
            }
        }
        Ok(())
    }

    /// Adds `more` tokens and `money` micro-units to those that are reserved for the requests of a claim, if it is the
    /// latest one.
    pub(crate) fn hold(&mut self, claim: &TaskClaim, more: i64, money: i64) {
        if self.epoch == claim.epoch {
            self.in_flight = self.in_flight.saturating_add(more);
            self.money_in_flight = self.money_in_flight.saturating_add(money);
        }
    }
}

impl TaskClaim {
    /// Returns the error that this claim is over for good.
    pub(crate) fn over(&self, why: String) -> LeaseLost {
        LeaseLost { task: self.task.clone(), why, is_over: true }
    }
}
