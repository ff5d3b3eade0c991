//! Balances of projects and of all projects together, and the check that their budgets have room for a request. The
//! same code decides for both databases.
//!
//! A request is refused only if it would make the tokens that are [set aside](crate::set_aside()) grow, and a budget
//! has no room for that growth.

use std::collections::HashMap;

use fairgate_time::UnixMicros;

use crate::claim::{LeaseLost, TaskBalance, TaskCapReached, TaskClaim};
use crate::database::UsageColumns;
use crate::rolling_window::{UsageWindow, WindowSums};

/// Settings on which the admission of a request with a task key depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageTerms {
    /// The rolling window over which usage is counted.
    pub window: UsageWindow,
    /// Tokens that all projects together may use in the window; `None` sets no limit.
    pub budget: Option<u64>,
}

impl Default for UsageTerms {
    /// Returns a window of one day without a budget.
    fn default() -> Self {
        Self {
            window: UsageWindow::new(std::time::Duration::from_secs(24 * 60 * 60)),
            budget: None,
        }
    }
}

/// Budget of a project or of all projects together that has no room for a request. Amounts are tokens as a provider
/// counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowBudgetExhausted {
    /// Id of the project that owns the budget; `None` for the budget of all projects together.
    pub project: Option<String>,
    /// Tokens that the budget allows in the window.
    pub limit: u64,
    /// Tokens that were used in the window.
    pub used: u64,
    /// Tokens that are set aside for held tasks and for requests in flight.
    pub reserved: u64,
    /// Tokens that the request needs beyond those that are reserved for its task.
    pub wanted: u64,
    /// Earliest time at which enough usage may have left the window to make room for the request.
    /// If a reservation ends, there may be room earlier; if none ends, there may be room only
    /// later. `None` if nothing needs to fade, or if the request is larger than the whole budget.
    pub room_at: Option<UnixMicros>,
}

/// Balances of tasks, projects and all projects together, from which the admission of requests is decided. They are
/// read in the transaction that decides, and no other transaction may change them until it has ended.
#[derive(Debug, Default)]
pub struct UsageBalances {
    tasks: HashMap<String, TaskBalance>,
    projects: HashMap<String, WindowBalance>,
    total: Option<WindowBalance>,
}

/// Balance of a project, or of all projects together.
#[derive(Debug)]
struct WindowBalance {
    sums: WindowSums,
    budget: Option<u64>,
    /// Tokens that are set aside for held tasks and for requests in flight.
    reserved: i64,
}

impl UsageBalances {
    /// Adds the task of a row of [`crate::sql::TASK`].
    pub fn put_task<R: UsageColumns + ?Sized>(&mut self, row: &R) -> Result<(), R::Error> {
        let (id, task) = TaskBalance::read(row)?;
        self.tasks.insert(id, task);
        Ok(())
    }

    /// Adds the project of a row of [`crate::sql::PROJECT`].
    pub fn put_project<R: UsageColumns + ?Sized>(&mut self, row: &R) -> Result<(), R::Error> {
        let account = WindowBalance {
            sums: WindowSums::read(row, 1)?,
            budget: row.count_or_null(5)?,
            reserved: row.int(6)?,
        };
        self.projects.insert(row.text(0)?, account);
        Ok(())
    }

    /// Sets the balance of all projects together from the row of [`crate::sql::TOTAL`].
    pub fn put_total<R: UsageColumns + ?Sized>(
        &mut self,
        row: &R,
        terms: UsageTerms,
    ) -> Result<(), R::Error> {
        let (first, last) = (row.int(0)?, row.int(1)?);
        // If projects are at different buckets, some of the sums are outdated.
        let bucket = if first == last { first } else { i64::MIN };
        self.total = Some(WindowBalance {
            sums: WindowSums { bucket, ..WindowSums::read(row, 1)? },
            budget: terms.budget,
            reserved: row.int(5)?,
        });
        Ok(())
    }

    /// Returns whether all sums belong to the bucket that contains `at`. Otherwise the caller must run
    /// [`crate::sql::roll`] and read the balances again.
    pub fn is_current(&self, window: UsageWindow, at: UnixMicros) -> bool {
        let bucket = window.bucket(at);
        self.projects.values().chain(&self.total).all(|account| account.sums.bucket == bucket)
    }

    /// Checks that a claim is valid at a moment: its task is held under its epoch, and the lease
    /// has not run out.
    pub fn check_in_force(&self, claim: &TaskClaim, at: UnixMicros) -> Result<(), LeaseLost> {
        match self.tasks.get(&claim.task) {
            Some(task) => task.check_in_force(claim, at),
            None => Err(claim.over("there is no such task".to_owned())),
        }
    }

    /// Checks that the caps of a claim's task have room for a request that may use `tokens` and cost `money` micro-units.
    pub fn check_caps(
        &self,
        claim: &TaskClaim,
        tokens: u64,
        money: u64,
    ) -> Result<(), TaskCapReached> {
        self.tasks.get(&claim.task).map_or(Ok(()), |task| task.check_caps(claim, tokens, money))
    }

    /// Checks that the budgets of the project and of all projects have room for a request that may use `tokens`.
    pub fn check_room(
        &self,
        claim: &TaskClaim,
        tokens: u64,
        terms: UsageTerms,
        at: UnixMicros,
    ) -> Result<(), WindowBudgetExhausted> {
        let wanted = self.growth(claim, i64::try_from(tokens).unwrap_or(i64::MAX));
        if wanted <= 0 {
            return Ok(());
        }
        let wanted = wanted.unsigned_abs();
        let project = self.projects.get(&claim.project).map(|it| (Some(&claim.project), it));
        for (project, account) in
            project.into_iter().chain(self.total.as_ref().map(|it| (None, it)))
        {
            account.check_room(project, wanted, terms.window, at)?;
        }
        Ok(())
    }

    /// Returns by how many tokens [`crate::set_aside()`] grows for the claim's task if the claim's requests reserve
    /// `more` further tokens. A negative `more` is a release.
    fn growth(&self, claim: &TaskClaim, more: i64) -> i64 {
        // If the task was not loaded, `check_in_force` has refused a reservation before. A release then lowers nothing,
        // so at worst too many requests are refused.
        self.tasks.get(&claim.task).map_or(0, |task| task.growth(claim, more))
    }

    /// Adds `more` tokens and `money` micro-units to those that are reserved for the requests of a claim. Negative numbers
    /// release them.
    pub fn hold(&mut self, claim: &TaskClaim, more: i64, money: i64) {
        let growth = self.growth(claim, more);
        for account in self.projects.get_mut(&claim.project).into_iter().chain(&mut self.total) {
            account.reserved = account.reserved.saturating_add(growth);
        }
        if let Some(task) = self.tasks.get_mut(&claim.task) {
            task.hold(claim, more, money);
        }
    }
}

impl WindowBalance {
    fn check_room(
        &self,
        project: Option<&String>,
        wanted: u64,
        window: UsageWindow,
        at: UnixMicros,
    ) -> Result<(), WindowBudgetExhausted> {
        let Some(limit) = self.budget else { return Ok(()) };
        let used = window.used(&self.sums, at);
        let reserved = u64::try_from(self.reserved).unwrap_or(0);
        let needed = |reserved: u64| {
            used.saturating_add(reserved).saturating_add(wanted).saturating_sub(limit)
        };
        if needed(reserved) == 0 {
            return Ok(());
        }
        // It is not known when running tasks give back their reservations. If all fading usage
        // makes no room beside the reservations, the best guess is the time at which there is room
        // without them.
        let mut fading = [needed(reserved), needed(0)].into_iter();
        let room_at = fading
            .find(|needed| (1..=used).contains(needed))
            .map(|needed| window.faded_at(&self.sums, needed, at));
        Err(WindowBudgetExhausted {
            project: project.cloned(),
            limit,
            used,
            reserved,
            wanted,
            room_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Returns the time at which there is room for a request, with a budget of 100 tokens.
    fn room_at(used: u64, reserved: i64, wanted: u64) -> Option<UnixMicros> {
        let (window, at) = (UsageWindow::new(Duration::from_secs(86_400)), UnixMicros(0));
        // All of it is in the bucket that fades now.
        let sums = WindowSums { bucket: window.bucket(at), oldest: used, ..WindowSums::default() };
        let balance = WindowBalance { sums, budget: Some(100), reserved };
        balance.check_room(None, wanted, window, at).err().and_then(|refused| refused.room_at)
    }

    #[test]
    fn a_request_that_fits_the_budget_is_told_when_there_is_room() {
        let beside_nothing = room_at(50, 0, 60);
        assert!(beside_nothing.is_some_and(|at| at.0 > 0));
        assert!(room_at(50, 30, 60) > beside_nothing, "more must fade beside reservations");
        // All that was used may fade without making room beside the reservations.
        assert_eq!(room_at(50, 60, 60), beside_nothing);
        assert_eq!(room_at(0, 60, 60), None, "nothing can fade");
        assert_eq!(room_at(50, 0, 101), None, "it is larger than the budget");
    }
}
