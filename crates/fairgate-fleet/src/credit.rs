//! Computes the charge of a claim, from the tokens that it used and the time for which it held an
//! agent.
//!
//! If only tokens counted, work that makes no calls through the gateway would be free, and its project would get nearly
//! all agents. So projects share agents by *credit*:
//!
//! ```text
//!     credit = max(tokens, price × time)     of each claim
//!     extra  = credit − tokens
//! ```
//!
//! Tokens are charged when calls are made, and the extra when the claim ends. Budgets count only
//! tokens, so the scheduler gets the extra as a part of the project's baseline. A baseline affects
//! only the comparison between projects; it limits nothing.
//!
//! # Time
//! The time of a claim runs from the claim to its end. Two kinds of waits do not count, because the
//! task does not cause them. One is a provider's limit, from the time at which the gateway records
//! it to its end. The other is an outage of the database or of all servers. A task that waits for a
//! person is not claimed, so that time does not count either. Waits may overlap, and two servers
//! may record the same outage. So a task keeps the start and the end of its last wait, and an
//! overlapping wait only moves the end. A completed call of the claim ends a wait: a task that gets
//! answers does not wait, whatever limit was recorded for one of its calls. A wait that is recorded
//! later counts again.
//!
//! # Price
//! [`SlotTimeBook`] learns the price of a second, with the tenants as payers. A tenant pays per
//! second what the ended claims of the others were charged per second. No rate counts for more than
//! 4 times a median, which is taken over the tenants' rates of completed tasks that made calls. The
//! book is computed from sums of the rolling window, so all servers on one database have the same
//! price, and the price survives restarts. Before there is any work, the default estimate of a task
//! pays for [`DEFAULT_TIME`]. An operator may state the price instead.
//!
//! # Who can move the price
//! While others work, a tenant's own work affects its price only as one of the rates of the median.
//! The median includes the default rate. Rates below a quarter of the median count for at most half
//! of the time in the sum, so that long and cheap work cannot lower the price for all; see
//! `fairgate-price`. All projects of a tenant count as one, because a tenant with many projects
//! could otherwise choose the median. A task that reports its tokens itself sets no rate below the
//! default. The server measures the time of a claim. An agent can only make it longer, and the
//! agent's own project pays for that.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use fairgate_price::{SlotTimeBook, TENANTS_MAX, TokenRate};
use fairgate_store::{RowColumns, StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::HELD_STATES;
use serde_json::json;

use crate::json_rows;
use crate::options::{FleetCredit, FleetOptions};
use crate::validate;

/// Time of an agent for which the default estimate of a task pays, until a price was learned.
const DEFAULT_TIME: Duration = Duration::from_secs(100);
/// Maximum time of one payer in the book, in microseconds. If a payer has more, the sums of all
/// payers are divided by the same number.
const BOOK_TIME_US_MAX: u64 = 300 * 86_400 * 1_000_000;

/// Options of the fleet that determine the charge of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreditTerms {
    pub(crate) unit: FleetCredit,
    /// Price of an agent's second in tokens; `None` if the operator states none.
    stated: Option<u64>,
    /// Price that is used until a price can be learned from work.
    default: TokenRate,
}

impl CreditTerms {
    pub(crate) fn new(options: &FleetOptions) -> Self {
        Self {
            unit: options.credit,
            stated: options.agent_second_tokens,
            default: TokenRate::new(options.default_estimate, DEFAULT_TIME),
        }
    }

    /// Returns true if the price is learned from the work of projects.
    fn is_learned(&self) -> bool {
        self.stated.is_none() && self.unit != FleetCredit::Tokens
    }

    /// Returns the price of an agent's second for this payer. For a payer without work in the book,
    /// the price is learned from all payers.
    pub(crate) fn price(&self, book: &SlotTimeBook, payer: &str) -> TokenRate {
        match self.stated {
            Some(tokens) => TokenRate::new(tokens, Duration::from_secs(1)),
            None => book.price(payer, self.default, Duration::ZERO),
        }
    }

    /// Returns credit − tokens for a claim with this number of used or expected tokens and this
    /// time.
    pub(crate) fn extra(&self, tokens: u64, time: Duration, price: TokenRate) -> i64 {
        let most = validate::TASK_TOKENS_MAX;
        let signed = |number: u64| i64::try_from(number.min(most)).unwrap_or(i64::MAX);
        let cost = || price.cost(time);
        match self.unit {
            FleetCredit::Tokens => 0,
            FleetCredit::Larger => signed(cost().saturating_sub(tokens)),
            FleetCredit::Time => signed(cost()) - signed(tokens),
        }
    }

    /// Returns the expected credit of a task, in tokens. `estimate` is the number of its expected
    /// tokens, and `learned` the learned credit of its project's completed tasks.
    pub(crate) fn expected(&self, estimate: u64, learned: Option<u64>) -> u64 {
        match self.unit {
            FleetCredit::Tokens => estimate,
            FleetCredit::Larger => estimate.max(learned.unwrap_or(0)),
            FleetCredit::Time => learned.unwrap_or(estimate),
        }
    }
}

/// Sums of one project's work in the window, from which the price is learned.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProjectWork {
    /// Tenant of the project.
    pub(crate) payer: String,
    /// Credit of all claims that ended, in tokens, and their time in microseconds.
    paid: u64,
    agent_us: u64,
    /// Tokens and time of completed tasks that made calls; they are part of the sums above.
    work_tokens: u64,
    work_us: u64,
}

impl ProjectWork {
    /// SQL columns of `fleet_projects`, in the order in which [`ProjectWork::read`] takes them.
    pub(crate) const COLUMNS: &str =
        "tenant, window_paid, window_agent_us, window_work_tokens, window_work_us";

    pub(crate) fn read(row: &dyn RowColumns, first: usize) -> Result<Self, StoreError> {
        let count = |column| row.int(first + column).map(|it| u64::try_from(it).unwrap_or(0));
        Ok(Self {
            payer: row.text(first)?,
            paid: count(1)?,
            agent_us: count(2)?,
            work_tokens: count(3)?,
            work_us: count(4)?,
        })
    }
}

/// Adds up the work of projects that have the same payer.
fn sums_by_payer(mut works: Vec<ProjectWork>) -> Vec<ProjectWork> {
    works.sort_by(|one, other| one.payer.cmp(&other.payer));
    works.dedup_by(|next, sum| {
        let is_same = next.payer == sum.payer;
        if is_same {
            sum.paid = sum.paid.saturating_add(next.paid);
            sum.agent_us = sum.agent_us.saturating_add(next.agent_us);
            sum.work_tokens = sum.work_tokens.saturating_add(next.work_tokens);
            sum.work_us = sum.work_us.saturating_add(next.work_us);
        }
        is_same
    });
    works
}

/// Returns the book of prices that is computed from the work of all projects.
pub(crate) fn price_book(works: Vec<ProjectWork>) -> SlotTimeBook {
    let mut works = sums_by_payer(works);
    works.retain(|work| work.agent_us > 0);
    works.sort_by_key(|work| std::cmp::Reverse(work.agent_us));
    works.truncate(TENANTS_MAX);
    // All sums are scaled by the same factor, so rates and the weights of payers do not change.
    let longest = works.first().map_or(0, |work| work.agent_us);
    let scale = longest.div_ceil(BOOK_TIME_US_MAX).max(1);
    let time = |us: u64| Duration::from_micros(us / scale);
    let mut book = SlotTimeBook::default();
    for work in &works {
        let (work_us, work_tokens) = (work.work_us.min(work.agent_us), work.work_tokens);
        if work_us > 0 {
            let tokens = work_tokens / scale;
            book.record_completed(&work.payer, tokens, time(work_us), Duration::ZERO);
        }
        let (rest_us, rest) = (work.agent_us - work_us, work.paid.saturating_sub(work_tokens));
        if rest_us > 0 {
            book.record_paid_by_time(&work.payer, rest / scale, time(rest_us), Duration::ZERO);
        }
    }
    book
}

/// The times of a claim from which its charge is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimTimes {
    pub(crate) claimed_at: UnixMicros,
    /// Total time of earlier waits, in microseconds; it is not charged.
    pub(crate) waited_us: i64,
    /// Start and end of the last wait. The end may be in the future.
    pub(crate) waited_from: UnixMicros,
    pub(crate) waited_until: UnixMicros,
}

impl ClaimTimes {
    /// SQL columns of a task `t`, in the order in which [`ClaimTimes::read`] takes them.
    pub(crate) const COLUMNS: &str = "t.claimed_at, t.waited_us, t.waited_from, t.waited_until";

    pub(crate) fn read(row: &dyn RowColumns, first: usize) -> Result<Self, StoreError> {
        Ok(Self {
            claimed_at: row.moment_or_null(first)?.unwrap_or_default(),
            waited_us: row.int(first + 1)?,
            waited_from: row.moment(first + 2)?,
            waited_until: row.moment(first + 3)?,
        })
    }

    /// Returns the time of the claim from its beginning to `now`, without its waits.
    pub(crate) fn counted(self, now: UnixMicros) -> Duration {
        let last_us = self.waited_until.0.min(now.0).saturating_sub(self.waited_from.0).max(0);
        let waited_us = self.waited_us.max(0).saturating_add(last_us);
        let held_us = now.0.saturating_sub(self.claimed_at.0);
        Duration::from_micros(u64::try_from(held_us.saturating_sub(waited_us)).unwrap_or(0))
    }
}

/// Returns SQL assignments that record a wait of a held task from `from` until `until`. Time that
/// overlaps with the last recorded wait is counted once. SQLite numbers parameters as they appear,
/// and `until` appears first.
pub(crate) fn note_wait(from: &str, until: &str) -> String {
    let is_apart = format!("waited_until < {from}");
    format!(
        "waited_until = CASE WHEN {until} > waited_until THEN {until} ELSE waited_until END, \
         waited_us = waited_us + CASE WHEN {is_apart} THEN waited_until - waited_from ELSE 0 END, \
         waited_from = CASE WHEN {is_apart} THEN {from} ELSE waited_from END"
    )
}

/// A task whose claim ends, and the way it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndingClaim<'a> {
    pub(crate) task: &'a str,
    pub(crate) is_completed: bool,
}

/// Charge of one claim, as columns of `fleet_usage`.
#[derive(Clone, Copy, Debug, Default)]
struct ClaimCharge {
    extra: i64,
    paid: u64,
    agent_us: u64,
    work_tokens: u64,
    work_us: u64,
    without_calls: u64,
}

impl ClaimCharge {
    fn columns(self) -> [i64; 6] {
        let int = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        [
            self.extra,
            int(self.paid),
            int(self.agent_us),
            int(self.work_tokens),
            int(self.work_us),
            int(self.without_calls),
        ]
    }
}

/// A held task whose claim ends.
struct EndingTask {
    id: String,
    project: String,
    tenant: String,
    tokens: u64,
    calls: u64,
    /// True if its agent reports its tokens itself.
    reports: bool,
    times: ClaimTimes,
}

/// Charges claims that end now for their time. The claims must belong to different tasks. Must be
/// called before the new states of the tasks are written. Ignores tasks that no agent holds. Runs a
/// constant number of SQL statements.
pub(crate) fn charge(
    tx: &mut dyn Transaction,
    terms: &CreditTerms,
    ending: &[EndingClaim<'_>],
    now: UnixMicros,
) -> Result<(), StoreError> {
    let tasks = ending_tasks(tx, ending)?;
    if tasks.is_empty() {
        return Ok(());
    }
    let book = match terms.is_learned() {
        true => price_book(project_works(tx)?),
        false => SlotTimeBook::default(),
    };
    let completed: HashSet<&str> =
        ending.iter().filter(|claim| claim.is_completed).map(|claim| claim.task).collect();
    let mut by_task = Vec::new();
    let mut by_project: BTreeMap<&str, [i64; 6]> = BTreeMap::new();
    for task in &tasks {
        let is_completed = completed.contains(task.id.as_str());
        let charge = claim_charge(terms, &book, task, is_completed, now).columns();
        by_task.push(json!([task.id, charge[2], charge[0]]));
        let sums = by_project.entry(&task.project).or_default();
        for (sum, more) in sums.iter_mut().zip(charge) {
            *sum = sum.saturating_add(more);
        }
    }
    let table = json_rows::table(tx.database(), 1, &["TEXT", "BIGINT", "BIGINT"]);
    let sql = format!(
        "UPDATE fleet_tasks SET agent_us = agent_us + v.column2, credit_extra = credit_extra + v.column3 \
         FROM {table} AS v WHERE id = v.column1"
    );
    tx.run(&sql, &[json_rows::value(by_task)])?;
    add_to_projects(tx, &by_project)
}

fn claim_charge(
    terms: &CreditTerms,
    book: &SlotTimeBook,
    task: &EndingTask,
    is_completed: bool,
    now: UnixMicros,
) -> ClaimCharge {
    let time = task.times.counted(now);
    let agent_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let extra = terms.extra(task.tokens, time, terms.price(book, &task.tenant));
    // An agent could otherwise lower the price by reporting few tokens.
    let is_seen = !task.reports || task.tokens >= terms.default.cost(time);
    let is_work = is_completed && task.tokens > 0 && is_seen;
    ClaimCharge {
        extra,
        paid: task.tokens.saturating_add_signed(extra),
        agent_us,
        work_tokens: if is_work { task.tokens } else { 0 },
        work_us: if is_work { agent_us } else { 0 },
        without_calls: u64::from(is_completed && task.calls == 0 && !task.reports),
    }
}

fn ending_tasks(
    tx: &mut dyn Transaction,
    ending: &[EndingClaim<'_>],
) -> Result<Vec<EndingTask>, StoreError> {
    if ending.is_empty() {
        return Ok(Vec::new());
    }
    // SQLite would otherwise start with the index of all held tasks, and read each of them.
    let table = json_rows::table(tx.database(), 1, &["TEXT"]);
    let sql = format!(
        "SELECT t.id, t.project, t.used, t.calls, \
         EXISTS (SELECT 1 FROM fleet_agents a WHERE a.id = t.agent AND a.reports), {}, \
         (SELECT p.tenant FROM fleet_projects p WHERE p.id = t.project) FROM {table} AS v CROSS JOIN fleet_tasks t \
         WHERE t.id = v.column1 AND t.state IN {HELD_STATES} ORDER BY t.id",
        ClaimTimes::COLUMNS
    );
    let ids = json_rows::value(ending.iter().map(|claim| json!([claim.task])));
    tx.list(&sql, &[ids], |row| {
        Ok(EndingTask {
            id: row.text(0)?,
            project: row.text(1)?,
            tokens: u64::try_from(row.int(2)?).unwrap_or(0),
            calls: u64::try_from(row.int(3)?).unwrap_or(0),
            reports: row.flag(4)?,
            times: ClaimTimes::read(row, 5)?,
            tenant: row.text(9)?,
        })
    })
}

fn project_works(tx: &mut dyn Transaction) -> Result<Vec<ProjectWork>, StoreError> {
    let sql =
        format!("SELECT {} FROM fleet_projects WHERE window_agent_us > 0", ProjectWork::COLUMNS);
    tx.list(&sql, &[], |row| ProjectWork::read(row, 0))
}

fn add_to_projects(
    tx: &mut dyn Transaction,
    charges: &BTreeMap<&str, [i64; 6]>,
) -> Result<(), StoreError> {
    const USAGE: [&str; 6] =
        ["credit_extra", "paid", "agent_us", "work_tokens", "work_us", "without_calls"];
    let rows =
        charges.iter().map(|(project, [a, b, c, d, e, f])| json!([project, a, b, c, d, e, f]));
    let rows = json_rows::value(rows);
    let types = [&["TEXT"], &["BIGINT"; 6][..]].concat();
    let table = json_rows::table(tx.database(), 1, &types);
    let more =
        USAGE.map(|name| format!("{name} = fleet_usage.{name} + excluded.{name}")).join(", ");
    let add_to_buckets = format!(
        "INSERT INTO fleet_usage (project, bucket, tokens, completed, {}) \
         SELECT p.id, p.window_bucket, 0, 0, v.column2, v.column3, v.column4, v.column5, v.column6, v.column7 \
         FROM {table} AS v JOIN fleet_projects p ON p.id = v.column1 WHERE true \
         ON CONFLICT (project, bucket) DO UPDATE SET {more}",
        USAGE.join(", ")
    );
    tx.run(&add_to_buckets, std::slice::from_ref(&rows))?;
    let add_to_sums = format!(
        "UPDATE fleet_projects SET window_extra = window_extra + v.column2, window_paid = window_paid + v.column3, \
         window_agent_us = window_agent_us + v.column4, window_work_tokens = window_work_tokens + v.column5, \
         window_work_us = window_work_us + v.column6, window_without_calls = window_without_calls + v.column7 \
         FROM {table} AS v WHERE id = v.column1"
    );
    tx.run(&add_to_sums, &[rows])?;
    Ok(())
}

#[cfg(test)]
mod tests;
