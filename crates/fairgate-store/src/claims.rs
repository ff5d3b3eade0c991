//! Admission of requests with a task key. The claim of the key must be in force, and the budgets of the claim's project
//! and of the fleet must have room. The same code decides this for both databases.
//!
//! A claim reserves tokens when an agent gets the task, and the requests of the claim draw from these tokens. So a held
//! task counts with `max(reserved − used, tokens reserved for its requests in flight)`. A request is refused only if it
//! makes this number grow by more than the budgets have room for. Requests in flight whose claims are over count with
//! their own reserved tokens.

use std::collections::{BTreeMap, HashMap};

use fairgate_money::UnixMicros;

use crate::error::StoreError;
use crate::fleet::TaskClaim;
use crate::ledger::{AttemptOutcome, AttemptRow};
use crate::rolling_window::{UsageWindow, WindowSums};
use crate::rows::{GuessedRow, RowColumns};
use crate::sums::signed;

/// Fleet settings on which the admission of a request with a task key depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetTerms {
    /// The rolling window over which usage is counted.
    pub window: UsageWindow,
    /// Tokens that all projects together may use in the window; `None` sets no limit.
    pub budget: Option<u64>,
}

impl Default for FleetTerms {
    /// Returns a window of one day without a budget.
    fn default() -> Self {
        Self {
            window: UsageWindow::new(std::time::Duration::from_secs(24 * 60 * 60)),
            budget: None,
        }
    }
}

/// Claim that is not in force, because the task was given to another agent or has ended, or because the lease ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseLost {
    /// Id of the task.
    pub task: String,
    /// Description, for people, of what happened to the task.
    pub why: String,
    /// True if the claim is over for good. False if only the lease ran out: a lease may still be renewed until the next
    /// round of the fleet ends the claim, which may take long if the database was away.
    pub is_over: bool,
}

/// Budget of a project or of the fleet that has no room for a request. Amounts are tokens as a provider counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetExhausted {
    /// Id of the project that owns the budget; `None` for the budget of the fleet as a whole.
    pub project: Option<String>,
    /// Tokens that the budget allows in the window.
    pub limit: u64,
    /// Tokens that the project or fleet used in the window.
    pub used: u64,
    /// Tokens that are reserved for held tasks and for requests in flight.
    pub reserved: u64,
    /// Tokens that the request needs beyond those that are reserved for its task.
    pub wanted: u64,
    /// Earliest time at which usage that leaves the window may make room for the request, if no reservation ends
    /// before; `None` if there would be no room even without any usage.
    pub room_at: Option<UnixMicros>,
}

/// Selects the state and the tokens of a task, with columns in the order in which [`FleetBalances::put_task`] reads
/// them.
macro_rules! task_standing {
    () => {
        "SELECT t.id, t.project, t.epoch, t.state, t.lease_until, t.agent, t.reserved, t.used, \
         CAST(COALESCE((SELECT SUM(r.provider_tokens) FROM reservations r \
         WHERE r.task = t.id AND r.epoch = t.epoch), 0) AS BIGINT) FROM fleet_tasks t WHERE t.id = "
    };
}

/// SQL expression for the tokens that are reserved for those held tasks `t` that match a condition.
macro_rules! held_by_tasks {
    ($condition:literal) => {
        concat!(
            "COALESCE((SELECT SUM(CASE WHEN COALESCE(h.tokens, 0) > t.reserved - t.used \
             THEN COALESCE(h.tokens, 0) ELSE t.reserved - t.used END) FROM fleet_tasks t \
             LEFT JOIN (SELECT task, epoch, SUM(provider_tokens) AS tokens FROM reservations \
             WHERE task IS NOT NULL GROUP BY task, epoch) h ON h.task = t.id AND h.epoch = t.epoch \
             WHERE t.state IN ",
            fairgate_usage::held_states!(),
            $condition,
            "), 0)"
        )
    };
}

/// SQL expression for the tokens of those reservations `r` that match a condition and whose claims are over.
macro_rules! held_adrift {
    ($condition:literal) => {
        concat!(
            "COALESCE((SELECT SUM(r.provider_tokens) FROM reservations r WHERE r.task IS NOT NULL",
            $condition,
            " AND NOT EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.id = r.task AND t.epoch = r.epoch \
             AND t.state IN ",
            fairgate_usage::held_states!(),
            ")), 0)"
        )
    };
}

/// Selects the balance of a project, with columns in the order in which [`FleetBalances::put_project`] reads them.
macro_rules! project_standing {
    () => {
        concat!(
            "SELECT p.id, p.window_bucket, p.window_tokens, p.window_oldest, p.window_completed, p.budget, CAST(",
            $crate::claims::held_by_tasks!(" AND t.project = p.id"),
            " + ",
            $crate::claims::held_adrift!(" AND r.project = p.id"),
            " AS BIGINT) FROM fleet_projects p WHERE p.id = "
        )
    };
}

pub(crate) use {held_adrift, held_by_tasks, project_standing, task_standing};

pub(crate) const TASK: &str = concat!(task_standing!(), "$1");
pub(crate) const PROJECT: &str = concat!(project_standing!(), "$1");
/// Selects the balance of the fleet as a whole, with columns in the order in which [`FleetBalances::put_fleet`] reads
/// them.
pub(crate) const FLEET: &str = concat!(
    "SELECT COALESCE(MIN(window_bucket), 0), COALESCE(MAX(window_bucket), 0), \
     CAST(COALESCE(SUM(window_tokens), 0) AS BIGINT), CAST(COALESCE(SUM(window_oldest), 0) AS BIGINT), \
     CAST(0 AS BIGINT), CAST(",
    held_by_tasks!(""),
    " + ",
    held_adrift!(""),
    " AS BIGINT) FROM fleet_projects"
);

/// Balances of tasks, projects and the fleet, from which the admission of requests is decided. No other transaction
/// changes these balances during this one.
#[derive(Debug, Default)]
pub(crate) struct FleetBalances {
    tasks: HashMap<String, TaskBalance>,
    projects: HashMap<String, WindowBalance>,
    fleet: Option<WindowBalance>,
}

#[derive(Debug)]
struct TaskBalance {
    project: String,
    epoch: u64,
    state: String,
    lease_until: Option<UnixMicros>,
    agent: Option<String>,
    reserved: i64,
    used: i64,
    /// Tokens that are reserved for the requests in flight of the task's latest claim.
    held: i64,
}

/// Balance of a project, or of the fleet as a whole.
#[derive(Debug)]
struct WindowBalance {
    sums: WindowSums,
    budget: Option<u64>,
    /// Tokens that are reserved for held tasks and for requests in flight.
    reserved: i64,
}

impl FleetBalances {
    pub(crate) fn put_task(&mut self, row: &dyn RowColumns) -> Result<(), StoreError> {
        let task = TaskBalance {
            project: row.text(1)?,
            epoch: row.count(2)?,
            state: row.text(3)?,
            lease_until: row.moment_or_null(4)?,
            agent: row.text_or_null(5)?,
            reserved: row.int(6)?,
            used: row.int(7)?,
            held: row.int(8)?,
        };
        self.tasks.insert(row.text(0)?, task);
        Ok(())
    }

    pub(crate) fn put_project(&mut self, row: &dyn RowColumns) -> Result<(), StoreError> {
        let account = WindowBalance {
            sums: WindowSums::read(row, 1)?,
            budget: row.count_or_null(5)?,
            reserved: row.int(6)?,
        };
        self.projects.insert(row.text(0)?, account);
        Ok(())
    }

    pub(crate) fn put_fleet(
        &mut self,
        row: &dyn RowColumns,
        terms: FleetTerms,
    ) -> Result<(), StoreError> {
        let (first, last) = (row.int(0)?, row.int(1)?);
        // If projects are at different buckets, some of the sums are outdated.
        let bucket = if first == last { first } else { i64::MIN };
        self.fleet = Some(WindowBalance {
            sums: WindowSums { bucket, ..WindowSums::read(row, 1)? },
            budget: terms.budget,
            reserved: row.int(5)?,
        });
        Ok(())
    }

    /// Returns true if the sums of all loaded projects and of the fleet belong to the bucket that contains `at`.
    pub(crate) fn is_current(&self, window: UsageWindow, at: UnixMicros) -> bool {
        let bucket = window.bucket(at);
        self.projects.values().chain(&self.fleet).all(|account| account.sums.bucket == bucket)
    }

    /// Checks that a claim is in force at a moment: its task is held under its epoch, and the lease has not run out.
    pub(crate) fn check_in_force(
        &self,
        claim: &TaskClaim,
        at: UnixMicros,
    ) -> Result<(), LeaseLost> {
        let not_in_force =
            |why: String, is_over| Err(LeaseLost { task: claim.task.clone(), why, is_over });
        let lost = |why: String| not_in_force(why, true);
        let Some(task) = self.tasks.get(&claim.task) else {
            return lost("there is no such task".to_owned());
        };
        if task.epoch != claim.epoch || task.project != claim.project {
            let (state, epoch) = (&task.state, task.epoch);
            return lost(match &task.agent {
                Some(agent) => format!("agent {agent:?} has it now, with claim {epoch}"),
                None => format!("it is {state} since claim {epoch}"),
            });
        }
        if !task.is_held() {
            return lost(format!("it is {}", task.state));
        }
        match task.lease_until {
            Some(until) if until > at => Ok(()),
            _ => not_in_force("its lease ran out without a sign of life".to_owned(), false),
        }
    }

    /// Checks that the budgets of the project and of the fleet have room for a request that may use `tokens`.
    pub(crate) fn check_room(
        &self,
        claim: &TaskClaim,
        tokens: u64,
        terms: FleetTerms,
        at: UnixMicros,
    ) -> Result<(), FleetExhausted> {
        let wanted = self.growth(claim, signed(tokens));
        if wanted <= 0 {
            return Ok(());
        }
        let wanted = wanted.unsigned_abs();
        let project = self.projects.get(&claim.project).map(|it| (Some(&claim.project), it));
        for (project, account) in
            project.into_iter().chain(self.fleet.as_ref().map(|it| (None, it)))
        {
            account.check_room(project, wanted, terms.window, at)?;
        }
        Ok(())
    }

    /// Returns the number by which the reserved tokens grow if the requests of a claim reserve `more` tokens.
    fn growth(&self, claim: &TaskClaim, more: i64) -> i64 {
        match self.tasks.get(&claim.task) {
            Some(task) if task.epoch == claim.epoch && task.is_held() => {
                let set_aside = |held: i64| held.max(task.reserved.saturating_sub(task.used));
                set_aside(task.held.saturating_add(more)) - set_aside(task.held)
            }
            // A claim that is over has nothing reserved.
            Some(_) => more,
            // The task was not loaded. Its held tokens are left unchanged, which at worst refuses too much.
            None => 0,
        }
    }

    /// Adds `more` tokens to those that are reserved for the requests of a claim. A negative number releases tokens.
    pub(crate) fn hold(&mut self, claim: &TaskClaim, more: i64) {
        let growth = self.growth(claim, more);
        for account in self.projects.get_mut(&claim.project).into_iter().chain(&mut self.fleet) {
            account.reserved = account.reserved.saturating_add(growth);
        }
        if let Some(task) = self.tasks.get_mut(&claim.task)
            && task.epoch == claim.epoch
        {
            task.held = task.held.saturating_add(more);
        }
    }
}

impl TaskBalance {
    fn is_held(&self) -> bool {
        fairgate_usage::is_held(&self.state)
    }
}

impl WindowBalance {
    fn check_room(
        &self,
        project: Option<&String>,
        wanted: u64,
        window: UsageWindow,
        at: UnixMicros,
    ) -> Result<(), FleetExhausted> {
        let Some(limit) = self.budget else { return Ok(()) };
        let used = window.used(&self.sums, at);
        let reserved = u64::try_from(self.reserved).unwrap_or(0);
        let needed = used.saturating_add(reserved).saturating_add(wanted).saturating_sub(limit);
        if needed == 0 {
            return Ok(());
        }
        let fades = used >= needed;
        let room_at = fades.then(|| window.faded_at(&self.sums, needed, at));
        Err(FleetExhausted { project: project.cloned(), limit, used, reserved, wanted, room_at })
    }
}

/// Usage of a batch of ledger rows, summed up by claim, so that the database is updated once for each claim.
#[derive(Debug, Default)]
pub(crate) struct ClaimCharges(BTreeMap<TaskClaim, ClaimUsage>);

/// Tokens as a provider counts them, and number of requests, that were used under a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimUsage {
    pub(crate) tokens: i64,
    pub(crate) calls: i64,
}

impl ClaimCharges {
    pub(crate) fn add(&mut self, charge: Option<(&TaskClaim, ClaimUsage)>) {
        if let Some((claim, more)) = charge {
            let sum = self.0.entry(claim.clone()).or_default();
            sum.tokens += more.tokens;
            sum.calls += more.calls;
        }
    }

    /// Subtracts the usage of a guessed row that is replaced by the real one.
    pub(crate) fn subtract_guess(&mut self, guess: &GuessedRow) {
        let used = guess.claim.as_ref().map(|claim| (claim, guess.uses.used.tokens));
        let negative =
            |(claim, tokens): (_, i64)| (claim, ClaimUsage { tokens: -tokens, calls: -1 });
        self.add(used.map(negative));
    }

    /// Iterates over the claims whose usage is not zero, in the order of the claims.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TaskClaim, ClaimUsage)> {
        self.0
            .iter()
            .map(|(claim, sum)| (claim, *sum))
            .filter(|(_, sum)| *sum != ClaimUsage::default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl AttemptRow {
    /// Returns the usage that this row adds to its task and project. A refused request uses nothing and is not counted.
    /// A request with several attempts is counted once.
    pub(crate) fn charge(&self) -> Option<(&TaskClaim, ClaimUsage)> {
        let calls = i64::from(self.last && self.outcome != AttemptOutcome::Refused);
        let used = ClaimUsage { tokens: signed(self.provider_tokens), calls };
        self.claim.as_ref().filter(|_| used != ClaimUsage::default()).map(|claim| (claim, used))
    }
}
