//! Notifies webhooks when 80 % or 100 % of the budget of a project, or of all projects together, is
//! used.
//!
//! Usage in the window rises and fades, so an alert must not be repeated each time that usage
//! crosses a level. The highest level with an alert is stored ([`BudgetNotice`]). Only a higher
//! level causes an alert. The stored level becomes 0 once usage and reservations together are below
//! 70 % and the last alert is an hour old, or when the budget itself is changed.
//!
//! A budget may have no room below 100 %: the gateway refuses a call if the rest is reserved for
//! other tasks. Such a refusal counts as 100 %.

use std::time::Duration;

use fairgate_api::fleet::WebhookEventKind;
use fairgate_store::{SqlValue, StoreError, Transaction};
use fairgate_time::UnixMicros;

use super::WebhookSubscriptions;
use super::event_log::{self, WebhookEvent, WebhookSubject};
use crate::project_account;
use crate::window_usage::{UsageWindow, WindowSums};

/// Lower level of the alerts, in percent of the budget.
const WARNING: u32 = 80;
/// Upper level of the alerts, in percent of the budget.
const USED_UP: u32 = 100;
/// Percentage of the budget below which an earlier alert is forgotten.
const CALM: u32 = 70;
/// Minimum time from an alert until it is forgotten.
const CALM_AFTER: Duration = Duration::from_secs(3_600);

/// The highest level with an alert, in percent, and the time of that alert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BudgetNotice {
    percent: u32,
    at: UnixMicros,
}

/// A budget with its used tokens.
#[derive(Clone, Debug)]
struct BudgetStanding {
    /// Project that has the budget; `None` for the budget of all projects together.
    project: Option<String>,
    limit: u64,
    used: u64,
    reserved: u64,
    notice: BudgetNotice,
}

impl BudgetStanding {
    fn is_above(&self, tokens: u64, percent: u32) -> bool {
        u128::from(tokens) * 100 >= u128::from(self.limit) * u128::from(percent)
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used.saturating_add(self.reserved))
    }

    /// Returns the level that is reached now: 0, 80 or 100. The level of a budget of 0 tokens is 0,
    /// because an operator sets such a budget to stop a project, and needs no alert.
    fn level(&self) -> u32 {
        match self.limit {
            0 => 0,
            _ if self.is_above(self.used, USED_UP) => USED_UP,
            _ if self.is_above(self.used, WARNING) => WARNING,
            _ => 0,
        }
    }

    /// Returns the notice that replaces the stored one; `None` if the stored one stays. A notice
    /// with a level above 0 is an alert. A notice with the level 0 ends the earlier alert.
    fn next(&self, level: u32, now: UnixMicros) -> Option<BudgetNotice> {
        if level > self.notice.percent {
            return Some(BudgetNotice { percent: level, at: now });
        }
        let since_us = now.0.saturating_sub(self.notice.at.0);
        let is_past = u128::try_from(since_us).is_ok_and(|us| us >= CALM_AFTER.as_micros());
        let spent = self.used.saturating_add(self.reserved);
        let is_calm = self.notice.percent > 0 && is_past && !self.is_above(spent, CALM);
        is_calm.then_some(BudgetNotice { percent: 0, at: now })
    }

    fn event(&self, percent: u32) -> WebhookEvent<'_> {
        let (used, reserved, limit) = (self.used, self.reserved, self.limit);
        WebhookEvent {
            kind: WebhookEventKind::Budget,
            project: self.project.as_deref(),
            subject: WebhookSubject::Budget { percent, used, reserved, limit },
        }
    }
}

/// The settings that determine alerts of budgets.
#[derive(Clone, Debug)]
pub(crate) struct BudgetAlerts {
    pub(crate) webhooks: WebhookSubscriptions,
    pub(crate) window: UsageWindow,
    /// Budget of all projects together in the window, in tokens; `None` for no limit.
    pub(crate) budget: Option<u64>,
}

impl BudgetAlerts {
    /// Returns whether [`BudgetAlerts::check`] would change anything.
    pub(crate) fn is_any_due(
        &self,
        tx: &mut dyn Transaction,
        now: UnixMicros,
    ) -> Result<bool, StoreError> {
        let standings = self.standings(tx, now, None)?;
        Ok(standings.iter().any(|standing| standing.next(standing.level(), now).is_some()))
    }

    /// Writes alerts for all budgets that have reached a higher level. Sets the stored level to 0
    /// if the usage has fallen far enough.
    pub(crate) fn check(
        &self,
        tx: &mut dyn Transaction,
        now: UnixMicros,
    ) -> Result<(), StoreError> {
        let standings = self.standings(tx, now, None)?;
        let levels: Vec<_> = standings.iter().map(|it| (it, it.level())).collect();
        self.tell(tx, now, &levels)
    }

    /// Writes an alert because a call of this project was refused. Its own budget, or that of all
    /// projects, has no room.
    pub(crate) fn note_refusal(
        &self,
        tx: &mut dyn Transaction,
        project: &str,
        now: UnixMicros,
    ) -> Result<(), StoreError> {
        if !self.webhooks.wants(WebhookEventKind::Budget) {
            return Ok(());
        }
        let standings = self.standings(tx, now, Some(project))?;
        // Of the two budgets, the one with less room caused the refusal.
        match standings.iter().min_by_key(|standing| standing.left()) {
            Some(refused) if refused.limit > 0 => self.tell(tx, now, &[(refused, USED_UP)]),
            _ => Ok(()),
        }
    }

    fn tell(
        &self,
        tx: &mut dyn Transaction,
        now: UnixMicros,
        levels: &[(&BudgetStanding, u32)],
    ) -> Result<(), StoreError> {
        let mut events = Vec::new();
        for (standing, level) in levels {
            let Some(notice) = standing.next(*level, now) else { continue };
            if notice.percent > 0 {
                events.push(standing.event(notice.percent));
            }
            let (table, id, value): (_, _, SqlValue) = match &standing.project {
                Some(project) => ("fleet_projects", "id", project.as_str().into()),
                None => ("fleet", "one", 1_i64.into()),
            };
            let sql = format!(
                "UPDATE {table} SET budget_notified = $1, budget_notified_at = $2 WHERE {id} = $3"
            );
            tx.run(&sql, &[notice.percent.into(), notice.at.into(), value])?;
        }
        event_log::record(tx, &self.webhooks, now, &events)
    }

    /// Returns the budgets of all projects, or of the project `only`, and the budget of all
    /// projects together.
    fn standings(
        &self,
        tx: &mut dyn Transaction,
        now: UnixMicros,
        only: Option<&str>,
    ) -> Result<Vec<BudgetStanding>, StoreError> {
        let sql = format!(
            "SELECT id, budget, budget_notified, budget_notified_at, {} FROM fleet_projects",
            WindowSums::COLUMNS
        );
        let mut standings = Vec::new();
        let mut total = 0_u64;
        tx.each(&sql, &[], &mut |row| {
            let used = self.window.used(&WindowSums::read(row, 4)?, now);
            total = total.saturating_add(used);
            let (project, limit) = (row.text(0)?, row.count_or_null(1)?);
            if let Some(limit) = limit.filter(|_| only.is_none_or(|only| only == project)) {
                let notice = BudgetNotice { percent: percent(row.int(2)?), at: row.moment(3)? };
                let project = Some(project);
                standings.push(BudgetStanding { project, limit, used, reserved: 0, notice });
            }
            Ok(())
        })?;
        if standings.is_empty() && self.budget.is_none() {
            return Ok(standings);
        }
        let reserved = project_account::reserved_tokens(tx)?;
        for standing in &mut standings {
            let project = standing.project.as_deref().unwrap_or_default();
            standing.reserved = reserved.get(project).copied().unwrap_or(0);
        }
        if let Some(limit) = self.budget {
            let sql = "SELECT budget_notified, budget_notified_at FROM fleet WHERE one = 1";
            let notice = tx.first(sql, &[], |row| {
                Ok(BudgetNotice { percent: percent(row.int(0)?), at: row.moment(1)? })
            })?;
            let reserved = reserved.values().copied().fold(0, u64::saturating_add);
            let notice = notice.unwrap_or_default();
            standings.push(BudgetStanding { project: None, limit, used: total, reserved, notice });
        }
        Ok(standings)
    }
}

fn percent(stored: i64) -> u32 {
    u32::try_from(stored).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(used: u64, reserved: u64, notice: u32) -> BudgetStanding {
        let notice = BudgetNotice { percent: notice, at: UnixMicros(0) };
        BudgetStanding { project: None, limit: 1_000, used, reserved, notice }
    }

    #[test]
    fn each_level_is_told_once_and_again_only_after_a_calm_hour() {
        let hour = UnixMicros(3_600_000_000);
        let soon = UnixMicros(3_599_999_999);
        for (used, reserved, notice, now, expected) in [
            (799, 0, 0, soon, None),
            (800, 0, 0, soon, Some(80)),
            (999, 0, 80, hour, None),
            (1_000, 0, 80, soon, Some(100)),
            (1_000, 0, 0, soon, Some(100)),
            (5_000, 0, 100, hour, None),
            (700, 0, 100, hour, None),
            (699, 0, 100, soon, None),
            (699, 0, 100, hour, Some(0)),
            (600, 100, 100, hour, None),
            (0, 0, 0, hour, None),
        ] {
            let it = standing(used, reserved, notice);
            let next = it.next(it.level(), now).map(|notice| notice.percent);
            assert_eq!(next, expected, "{used} + {reserved}, notice {notice}");
        }
        let stopped = BudgetStanding { limit: 0, ..standing(0, 0, 0) };
        assert_eq!(stopped.level(), 0, "a budget of 0 is no alert");
    }
}
