//! Notifies webhooks when 80 % or 100 % of a budget of a tenant or a group, in tokens or money, is
//! used.
//!
//! Requests do not wait for this, because every server checks the budgets at intervals. The event
//! is written in the transaction that inserts a row with the budget, its amount, its period and the
//! level. The row is unique, so only one of several servers on a database writes the event, once in
//! each period. After a change of the amount, the same level causes an event again.
//!
//! A budget is rarely used to its last token, because the gateway refuses a request that may use
//! more than is left. So a refusal counts as 100 % if at least 80 % is used. Below 80 %, a refusal
//! only means that the request was too large.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use fairgate_api::fleet::WebhookEventKind;
use fairgate_store::{
    BudgetBalance, BudgetExhausted, BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, StoreError,
    Transaction, budgets_used,
};
use fairgate_time::UnixMicros;

use super::WebhookSubscriptions;
use super::event_log::{self, WebhookEvent, WebhookSubject};

/// Lower level of the alerts, in percent of the budget.
const WARNING: u32 = 80;
/// Upper level of the alerts, in percent of the budget.
const USED_UP: u32 = 100;
/// Maximum number of budgets whose refusals are remembered until the next check.
const REFUSED_MAX: usize = 1_000;

/// A budget of a tenant or a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnedBudgetKind {
    scope: BudgetScope,
    owner: String,
    period: BudgetPeriod,
    unit: BudgetUnit,
    tier: BudgetTier,
}

impl OwnedBudgetKind {
    fn of(balance: &BudgetBalance) -> Self {
        let &BudgetBalance { scope, period, unit, tier, .. } = balance;
        Self { scope, owner: balance.owner.clone(), period, unit, tier }
    }
}

/// Budgets of tenants and groups that refused a request on this server since the last check.
#[derive(Debug, Default)]
pub(crate) struct RefusedBudgets(Mutex<HashSet<OwnedBudgetKind>>);

impl RefusedBudgets {
    /// Records a refusal. It only locks a mutex for a short time, so requests do not wait.
    pub(crate) fn note(&self, refused: &BudgetExhausted) {
        let &BudgetExhausted { scope, period, unit, tier, .. } = refused;
        let is_spent = refused.used.saturating_add(refused.wanted) > refused.limit;
        if !is_spent || !matches!(scope, BudgetScope::Tenant | BudgetScope::Group) {
            return;
        }
        let kind = OwnedBudgetKind { scope, owner: refused.owner.clone(), period, unit, tier };
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if budgets.len() < REFUSED_MAX {
            budgets.insert(kind);
        }
    }

    /// Removes and returns all recorded budgets.
    pub(crate) fn take(&self) -> NotedRefusals {
        let mut budgets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        NotedRefusals(std::mem::take(&mut *budgets))
    }
}

/// Budgets that refused a request before a check; taken from [`RefusedBudgets`].
#[derive(Clone, Debug, Default)]
pub(crate) struct NotedRefusals(HashSet<OwnedBudgetKind>);

/// A budget that has reached a level for which no event was written yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DueNotice {
    percent: u32,
    balance: BudgetBalance,
}

impl DueNotice {
    fn event(&self) -> WebhookEvent<'_> {
        let &Self { percent, ref balance } = self;
        let subject = WebhookSubject::OwnedBudget { percent, balance };
        WebhookEvent { kind: WebhookEventKind::Budget, project: None, subject }
    }
}

/// Returns the budgets whose events [`write`](fn@write) would write.
pub(crate) fn due(
    tx: &mut dyn Transaction,
    refused: &NotedRefusals,
    now: UnixMicros,
) -> Result<Vec<DueNotice>, StoreError> {
    let balances = budgets_used(tx, WARNING, now)?;
    if balances.is_empty() {
        return Ok(Vec::new());
    }
    let notified = notified(tx, now)?;
    let mut due = Vec::new();
    for balance in balances {
        let is_refused = refused.0.contains(&OwnedBudgetKind::of(&balance));
        let is_used_up = is_refused || balance.is_used(USED_UP);
        let percent = if is_used_up { USED_UP } else { WARNING };
        let before = notified.get(&row_key(&balance)).copied().unwrap_or(0);
        if i64::from(percent) > before {
            due.push(DueNotice { percent, balance });
        }
    }
    Ok(due)
}

/// Writes the events of all budgets that have reached a further level in their period.
pub(crate) fn write(
    tx: &mut dyn Transaction,
    webhooks: &WebhookSubscriptions,
    refused: &NotedRefusals,
    now: UnixMicros,
) -> Result<(), StoreError> {
    if !webhooks.wants(WebhookEventKind::Budget) {
        return Ok(());
    }
    let mut due = due(tx, refused, now)?;
    // All servers write in the same order, so that they cannot deadlock.
    due.sort_by_cached_key(|notice| row_key(&notice.balance));
    tx.run("DELETE FROM fleet_budget_notices WHERE resets_at <= $1", &[now.into()])?;
    let mut first = Vec::new();
    for notice in due {
        if insert(tx, &notice)? {
            first.push(notice);
        }
    }
    let events: Vec<_> = first.iter().map(DueNotice::event).collect();
    event_log::record(tx, webhooks, now, &events)
}

/// Inserts the row of a notice. Returns false if another server has already inserted it.
fn insert(tx: &mut dyn Transaction, notice: &DueNotice) -> Result<bool, StoreError> {
    let NoticeRow { scope, owner, period, unit, tier, amount, resets_at } =
        row_key(&notice.balance);
    let values = [
        scope.into(),
        owner.into(),
        period.into(),
        unit.into(),
        tier.into(),
        amount.into(),
        resets_at.into(),
        notice.percent.into(),
    ];
    let sql = "INSERT INTO fleet_budget_notices (scope, owner, period, unit, tier, amount, resets_at, percent) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";
    Ok(tx.run(sql, &values)? > 0)
}

/// Columns of a row of notices, apart from the level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct NoticeRow {
    scope: String,
    owner: String,
    period: String,
    unit: String,
    tier: String,
    amount: i64,
    resets_at: UnixMicros,
}

fn row_key(balance: &BudgetBalance) -> NoticeRow {
    let &BudgetBalance { scope, period, unit, tier, limit, resets_at, .. } = balance;
    let word = str::to_owned;
    NoticeRow {
        scope: word(scope.into()),
        owner: balance.owner.clone(),
        period: word(period.into()),
        unit: word(unit.into()),
        tier: word(tier.into()),
        amount: i64::try_from(limit).unwrap_or(i64::MAX),
        resets_at,
    }
}

/// Returns the highest level with an event, for each budget in a period that has not ended.
fn notified(
    tx: &mut dyn Transaction,
    now: UnixMicros,
) -> Result<HashMap<NoticeRow, i64>, StoreError> {
    let sql = "SELECT scope, owner, period, unit, tier, amount, resets_at, MAX(percent) FROM fleet_budget_notices \
               WHERE resets_at > $1 GROUP BY scope, owner, period, unit, tier, amount, resets_at";
    let rows = tx.list(sql, &[now.into()], |row| {
        let key = NoticeRow {
            scope: row.text(0)?,
            owner: row.text(1)?,
            period: row.text(2)?,
            unit: row.text(3)?,
            tier: row.text(4)?,
            amount: row.int(5)?,
            resets_at: row.moment(6)?,
        };
        Ok((key, row.int(7)?))
    })?;
    Ok(rows.into_iter().collect())
}
