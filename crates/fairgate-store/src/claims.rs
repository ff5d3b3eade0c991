//! Whether a call under a task's key may be made: its claim must be in force, and the budgets of its project and of the fleet
//! must have room for it. Decided here, once, for both databases.
//!
//! A claim sets tokens aside when it is made, and its calls draw from them. So a task that is held counts with
//! `max(reserved − used, what its calls in flight hold)`, and a call is refused only where it makes that number grow by more
//! than there is room for. Calls in flight of claims that are over count with what they hold.

use std::collections::{BTreeMap, HashMap};

use fairgate_money::UnixMicros;

use crate::error::StoreError;
use crate::fleet::{Sums, TaskClaim, Window};
use crate::ledger::{Attempt, Outcome};
use crate::rows::{Columns, Guess};
use crate::sums::signed;

/// What a call under a task's key needs to know of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetTerms {
    /// The window that usage counts in.
    pub window: Window,
    /// What all projects together may use in it, in tokens.
    pub budget: Option<u64>,
}

impl Default for FleetTerms {
    /// A day, without a budget.
    fn default() -> Self {
        Self { window: Window::new(std::time::Duration::from_secs(24 * 60 * 60)), budget: None }
    }
}

/// A claim that is not in force: its task was given to somebody else, has ended, or its lease ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseLost {
    /// The task.
    pub task: String,
    /// What became of it.
    pub why: String,
}

/// A budget of the fleet's that has no room for a call. Amounts are tokens as a provider counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetExhausted {
    /// The project whose budget it is; none where it is that of the fleet as a whole.
    pub project: Option<String>,
    /// How much it has.
    pub limit: u64,
    /// How much of it was used in the window.
    pub used: u64,
    /// How much is set aside for tasks and held by calls in flight.
    pub reserved: u64,
    /// How much the call would take beyond what is set aside for its task.
    pub wanted: u64,
    /// When use that fades makes room, where it will: not before this, if nothing else is given back.
    pub room_at: Option<UnixMicros>,
}

/// The states of tasks that somebody holds.
macro_rules! held_states {
    () => {
        "('ASSIGNED', 'IN_PROGRESS')"
    };
}

/// How a task stands, in the order of [`Books::put_task`].
macro_rules! task_standing {
    () => {
        "SELECT t.id, t.project, t.epoch, t.state, t.lease_until, t.agent, t.reserved, t.used, \
         CAST(COALESCE((SELECT SUM(r.provider_tokens) FROM reservations r \
         WHERE r.task = t.id AND r.epoch = t.epoch), 0) AS BIGINT) FROM fleet_tasks t WHERE t.id = "
    };
}

/// What is set aside for the tasks that are held, where a condition on `t` holds.
macro_rules! held_by_tasks {
    ($condition:literal) => {
        concat!(
            "COALESCE((SELECT SUM(CASE WHEN COALESCE(h.tokens, 0) > t.reserved - t.used \
             THEN COALESCE(h.tokens, 0) ELSE t.reserved - t.used END) FROM fleet_tasks t \
             LEFT JOIN (SELECT task, epoch, SUM(provider_tokens) AS tokens FROM reservations \
             WHERE task IS NOT NULL GROUP BY task, epoch) h ON h.task = t.id AND h.epoch = t.epoch \
             WHERE t.state IN ",
            $crate::claims::held_states!(),
            $condition,
            "), 0)"
        )
    };
}

/// What calls in flight hold whose claims are over, where a condition on `r` holds.
macro_rules! held_adrift {
    ($condition:literal) => {
        concat!(
            "COALESCE((SELECT SUM(r.provider_tokens) FROM reservations r WHERE r.task IS NOT NULL",
            $condition,
            " AND NOT EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.id = r.task AND t.epoch = r.epoch \
             AND t.state IN ",
            $crate::claims::held_states!(),
            ")), 0)"
        )
    };
}

/// How a project stands, in the order of [`Books::put_project`].
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

pub(crate) use {held_adrift, held_by_tasks, held_states, project_standing, task_standing};

pub(crate) const TASK: &str = concat!(task_standing!(), "$1");
pub(crate) const PROJECT: &str = concat!(project_standing!(), "$1");
/// How the fleet as a whole stands, in the order of [`Books::put_fleet`].
pub(crate) const FLEET: &str = concat!(
    "SELECT COALESCE(MIN(window_bucket), 0), COALESCE(MAX(window_bucket), 0), \
     CAST(COALESCE(SUM(window_tokens), 0) AS BIGINT), CAST(COALESCE(SUM(window_oldest), 0) AS BIGINT), \
     CAST(0 AS BIGINT), CAST(",
    held_by_tasks!(""),
    " + ",
    held_adrift!(""),
    " AS BIGINT) FROM fleet_projects"
);

/// The numbers that calls are decided on, which nobody else changes in the meantime.
#[derive(Debug, Default)]
pub(crate) struct Books {
    tasks: HashMap<String, Task>,
    projects: HashMap<String, Account>,
    fleet: Option<Account>,
}

#[derive(Debug)]
struct Task {
    project: String,
    epoch: u64,
    state: String,
    lease_until: Option<UnixMicros>,
    agent: Option<String>,
    reserved: i64,
    used: i64,
    /// What the calls in flight of its claim hold.
    held: i64,
}

/// A project, or the fleet as a whole.
#[derive(Debug)]
struct Account {
    sums: Sums,
    budget: Option<u64>,
    /// What is set aside for tasks and held by calls in flight.
    reserved: i64,
}

impl Books {
    pub(crate) fn put_task(&mut self, row: &dyn Columns) -> Result<(), StoreError> {
        let task = Task {
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

    pub(crate) fn put_project(&mut self, row: &dyn Columns) -> Result<(), StoreError> {
        let account = Account {
            sums: Sums::read(row, 1)?,
            budget: row.count_or_null(5)?,
            reserved: row.int(6)?,
        };
        self.projects.insert(row.text(0)?, account);
        Ok(())
    }

    pub(crate) fn put_fleet(
        &mut self,
        row: &dyn Columns,
        terms: FleetTerms,
    ) -> Result<(), StoreError> {
        let (first, last) = (row.int(0)?, row.int(1)?);
        // Where projects stand at different buckets, the sums of some are old.
        let bucket = if first == last { first } else { i64::MIN };
        self.fleet = Some(Account {
            sums: Sums { bucket, ..Sums::read(row, 1)? },
            budget: terms.budget,
            reserved: row.int(5)?,
        });
        Ok(())
    }

    /// Whether all sums are those of the bucket that `at` lies in.
    pub(crate) fn are_current(&self, window: Window, at: UnixMicros) -> bool {
        let bucket = window.bucket(at);
        self.projects.values().chain(&self.fleet).all(|account| account.sums.bucket == bucket)
    }

    /// Whether a claim is in force.
    pub(crate) fn in_force(&self, claim: &TaskClaim, at: UnixMicros) -> Result<(), LeaseLost> {
        let lost = |why: String| Err(LeaseLost { task: claim.task.clone(), why });
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
            _ => lost("its lease ran out without a sign of life".to_owned()),
        }
    }

    /// Whether the budgets have room for a call that may use so many tokens.
    pub(crate) fn room(
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
            account.room(project, wanted, terms.window, at)?;
        }
        Ok(())
    }

    /// By how much what is set aside grows where a claim's calls hold so much more.
    fn growth(&self, claim: &TaskClaim, more: i64) -> i64 {
        match self.tasks.get(&claim.task) {
            Some(task) if task.epoch == claim.epoch && task.is_held() => {
                let set_aside = |held: i64| held.max(task.reserved.saturating_sub(task.used));
                set_aside(task.held.saturating_add(more)) - set_aside(task.held)
            }
            // A claim that is over has nothing set aside.
            Some(_) => more,
            // Nobody asked about this task: what it holds is left as it is, which refuses too much at worst.
            None => 0,
        }
    }

    /// Notes that a claim's calls hold so much more, or less.
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

impl Task {
    fn is_held(&self) -> bool {
        matches!(&*self.state, "ASSIGNED" | "IN_PROGRESS")
    }
}

impl Account {
    fn room(
        &self,
        project: Option<&String>,
        wanted: u64,
        window: Window,
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

/// What a batch of rows used, by claim, so that each is written once.
#[derive(Debug, Default)]
pub(crate) struct Charges(BTreeMap<TaskClaim, Use>);

/// Tokens as a provider counts them, and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) tokens: i64,
    pub(crate) calls: i64,
}

impl Charges {
    pub(crate) fn add(&mut self, charge: Option<(&TaskClaim, Use)>) {
        if let Some((claim, more)) = charge {
            let sum = self.0.entry(claim.clone()).or_default();
            sum.tokens += more.tokens;
            sum.calls += more.calls;
        }
    }

    /// A guess is taken back.
    pub(crate) fn take_back(&mut self, guess: &Guess) {
        let used = guess.claim.as_ref().map(|claim| (claim, guess.uses.used.tokens));
        let negative = |(claim, tokens): (_, i64)| (claim, Use { tokens: -tokens, calls: -1 });
        self.add(used.map(negative));
    }

    /// Those that change anything, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TaskClaim, Use)> {
        self.0.iter().map(|(claim, sum)| (claim, *sum)).filter(|(_, sum)| *sum != Use::default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Attempt {
    /// What it adds to its task and project. A call that was refused used nothing, and is none; one that was tried twice is
    /// one.
    pub(crate) fn charge(&self) -> Option<(&TaskClaim, Use)> {
        let calls = i64::from(self.last && self.outcome != Outcome::Refused);
        let used = Use { tokens: signed(self.provider_tokens), calls };
        self.claim.as_ref().filter(|_| used != Use::default()).map(|claim| (claim, used))
    }
}
