//! Exports the ledger in steps.
//!
//! A step takes the lock, checks the table if that is due, sends removed rows, new rows and rows that became visible
//! late, and stores the position. After a failure, the next step continues at the stored position, after a pause that
//! doubles up to a limit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use fairgate_store::{
    ExportLock, ExportPosition, ExportedRowLimits, NumberedAttempt, Store, StoreError,
};
use fairgate_time::{DAY_US, UnixMicros, wall_clock};
use tokio::time::{Instant, sleep};

use crate::clickhouse_client::{ClickHouseClient, ClickHouseStatement, ClickHouseTarget};
use crate::export_error::ExportError;
use crate::export_status::ExportStatus;
use crate::row_json::{push_removal, push_row};
use crate::sent_numbers::SentNumbers;
use crate::table::{FoundTable, create_table, find_table, insert_statement};

/// Most removed rows in one batch.
const REMOVED_MAX: u32 = 1_000;
/// Greatest number of row numbers that one step compares with those that were sent.
const NUMBERS_MAX: u32 = 10_000;
/// Number of days for which rows that were not sent stay in the ledger longer than other rows.
pub const UNSENT_DAYS: i64 = 7;
/// Time between two checks of the table while no step fails.
const TABLE_CHECK_INTERVAL: Duration = Duration::from_secs(600);

/// Sizes and times of an export.
#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Most rows in one batch.
    pub batch_rows: u32,
    /// Most bytes in one batch, unless a single row is larger.
    pub batch_bytes: usize,
    /// Pause after a step that left nothing to send.
    pub interval: Duration,
    /// Longest time for one statement.
    pub timeout: Duration,
    /// Time after which a range of row numbers is read again, to find rows that became visible after rows with higher
    /// numbers. It must be longer than the longest transaction that writes rows.
    pub reread_after: Duration,
    /// Longest pause after a failure. The first is `interval`.
    pub pause_max: Duration,
    /// Least time between two log messages about failures.
    pub warning_interval: Duration,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            batch_rows: 2_000,
            batch_bytes: 4 << 20,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(30),
            reread_after: Duration::from_secs(60),
            pause_max: Duration::from_secs(60),
            warning_interval: Duration::from_secs(60),
        }
    }
}

/// Export of one ledger to one ClickHouse.
pub struct LedgerExport {
    pub(crate) store: Store,
    pub(crate) client: ClickHouseClient,
    pub(crate) target: String,
    options: ExportOptions,
    status: Mutex<ExportStatus>,
}

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportStep {
    /// There may be more rows to send.
    More,
    /// Nothing is left to send, or another gateway sends.
    Done,
}

impl LedgerExport {
    /// Creates an export that does nothing yet.
    pub fn new(store: Store, target: &ClickHouseTarget, options: ExportOptions) -> Arc<Self> {
        let client = ClickHouseClient::new(target, options.timeout);
        let status = Mutex::default();
        Arc::new(Self { store, client, target: target.name(), options, status })
    }

    /// Returns the name of the target in the ledger's database.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the state of the export.
    pub fn status(&self) -> ExportStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes ledger rows of requests that arrived before `before`. Rows that were not sent stay [`UNSENT_DAYS`] longer;
    /// then they are removed and counted. Returns the number of removed rows.
    pub async fn prune(&self, before: UnixMicros) -> Result<u64, StoreError> {
        let unsent_before = UnixMicros(before.0.saturating_sub(UNSENT_DAYS * DAY_US));
        let limits = ExportedRowLimits { sent_before: before, unsent_before };
        let removed = self.store.prune_exported(self.target.clone(), limits).await?;
        if removed.unsent > 0 {
            self.update_status(|status| status.rows_dropped += removed.unsent);
            tracing::error!(
                rows = removed.unsent,
                "rows left the ledger that ClickHouse never got, because they waited longer than store.keep_days and a week"
            );
        }
        Ok(removed.sent.saturating_add(removed.unsent))
    }

    pub(crate) fn update_status(&self, change: impl FnOnce(&mut ExportStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Creates a task that exports from the position that the database has. Nothing is sent before its first step.
    pub fn task(self: &Arc<Self>) -> ExportTask {
        ExportTask {
            lock: self.store.export_lock(),
            export: Arc::clone(self),
            progress: None,
            table_checked: None,
            settings: &[],
        }
    }

    /// Exports until the store is closed. Failures are logged and tried again.
    pub async fn run(self: Arc<Self>) {
        let mut task = self.task();
        let mut pause = self.options.interval;
        let mut warning = WarningThrottle::default();
        loop {
            match task.step().await {
                Ok(ExportStep::More) => {
                    pause = self.options.interval;
                    continue;
                }
                Ok(ExportStep::Done) => pause = self.options.interval,
                Err(ExportError::Ledger(StoreError::Closed)) => return,
                Err(error) => {
                    let every = self.options.warning_interval;
                    if let Some(left_out) = warning.admit(Instant::now(), every) {
                        let rows_waiting = self.status().backlog_rows;
                        tracing::warn!(
                            %error,
                            rows_waiting,
                            left_out,
                            "the ledger cannot be exported; rows wait in the ledger, and this is tried again"
                        );
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(self.options.pause_max);
                    continue;
                }
            }
            sleep(pause).await;
        }
    }
}

/// Lets one failure into the log per interval, and counts the others.
#[derive(Default)]
struct WarningThrottle {
    logged: Option<Instant>,
    left_out: u64,
}

impl WarningThrottle {
    fn admit(&mut self, now: Instant, every: Duration) -> Option<u64> {
        if self.logged.is_some_and(|logged| now < logged + every) {
            self.left_out += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Task that exports. Several gateways may have one, but only the one that holds the lock sends.
pub struct ExportTask {
    export: Arc<LedgerExport>,
    lock: ExportLock,
    /// Position of the export; `None` if the lock is not held.
    progress: Option<ExportProgress>,
    /// Time at which the table was found to fit; `None` if that is not known.
    table_checked: Option<Instant>,
    /// Settings of inserts that the server knows.
    settings: &'static [&'static str],
}

/// Position of an export, and the numbers of the sent rows among which rows may still become visible.
struct ExportProgress {
    position: ExportPosition,
    /// Position that the database has.
    saved: ExportPosition,
    /// Numbers after `position.settled` that this process has sent.
    sent: SentNumbers,
    /// Positions with the times at which they were reached, oldest first.
    marks: VecDeque<(Instant, i64)>,
}

impl ExportProgress {
    fn at(position: ExportPosition, now: Instant) -> Self {
        let marks = VecDeque::from([(now, position.sent)]);
        Self { position, saved: position, sent: SentNumbers::default(), marks }
    }

    /// Notes the highest number that was sent and the time, at most once in `every`.
    fn mark(&mut self, now: Instant, every: Duration) {
        let is_due = self.marks.back().is_none_or(|(at, number)| {
            *number < self.position.sent && now.saturating_duration_since(*at) >= every
        });
        if is_due && self.position.settled < self.position.sent {
            self.marks.push_back((now, self.position.sent));
        }
    }

    /// Returns the highest number that was reached at least `after` ago, so that all rows up to it are visible by now;
    /// `None` if it is not after `settled`.
    fn due(&mut self, now: Instant, after: Duration) -> Option<i64> {
        let is_due = |(at, _): &&(Instant, i64)| now.saturating_duration_since(*at) >= after;
        let number = self.marks.iter().take_while(is_due).map(|(_, number)| *number).last()?;
        if number <= self.position.settled {
            self.marks.retain(|(_, marked)| *marked > number);
            return None;
        }
        Some(number)
    }
}

impl ExportTask {
    /// Does one step. After an error, the next step continues at the position in the database, so no row is lost.
    pub async fn step(&mut self) -> Result<ExportStep, ExportError> {
        let outcome = self.try_step().await;
        if outcome.is_err() {
            self.table_checked = None;
        }
        self.export.update_status(|status| match &outcome {
            Ok(_) => status.problem = None,
            Err(error) => {
                status.failures += 1;
                status.problem = Some(error.summary());
            }
        });
        outcome
    }

    async fn try_step(&mut self) -> Result<ExportStep, ExportError> {
        let is_active = match self.lock.try_hold().await {
            Ok(is_active) => is_active,
            Err(error) => {
                self.set_active(false);
                return Err(error.into());
            }
        };
        self.set_active(is_active);
        self.refresh_backlog().await?;
        if !is_active {
            return Ok(ExportStep::Done);
        }
        self.begin().await?;
        self.check_table().await?;
        self.send_removed().await?;
        let has_more_rows = self.send_new().await?;
        let has_more_late = self.settle().await?;
        self.save().await?;
        self.refresh_backlog().await?;
        Ok(if has_more_rows || has_more_late { ExportStep::More } else { ExportStep::Done })
    }

    fn set_active(&mut self, is_active: bool) {
        if !is_active {
            // Another gateway may move the position on.
            self.progress = None;
        }
        self.export.update_status(|status| status.is_active = is_active);
    }

    async fn refresh_backlog(&self) -> Result<(), ExportError> {
        let export = &self.export;
        let (_, backlog) = export.store.export_progress(export.target.clone()).await?;
        let age = backlog.oldest.map(|oldest| wall_clock::now().0.saturating_sub(oldest.0));
        let seconds = age.and_then(|micros| u64::try_from(micros / 1_000_000).ok()).unwrap_or(0);
        export.update_status(|status| {
            status.backlog_rows = backlog.rows;
            status.backlog_seconds = seconds;
        });
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), ExportError> {
        if self.progress.is_none() {
            let export = &self.export;
            let position = export.store.register_export(export.target.clone()).await?;
            self.progress = Some(ExportProgress::at(position, Instant::now()));
        }
        Ok(())
    }

    /// Checks the table if that is due, and creates it if it is missing. A new table gets all rows of the ledger.
    async fn check_table(&mut self) -> Result<(), ExportError> {
        let now = Instant::now();
        if self.table_checked.is_some_and(|at| now < at + TABLE_CHECK_INTERVAL) {
            return Ok(());
        }
        let export = &self.export;
        if find_table(&export.client).await? == FoundTable::Missing {
            // The position is set back first: if this process ends here, the table is still missing.
            export.store.restart_export(export.target.clone()).await?;
            self.progress = Some(ExportProgress::at(ExportPosition::default(), now));
            create_table(&export.client).await?;
            if find_table(&export.client).await? == FoundTable::Missing {
                let statement = "CREATE TABLE";
                return Err(export.client.not_understood(statement, "there is no table after it"));
            }
            tracing::info!(target = %export.target, "made a table in ClickHouse; the whole ledger is sent to it");
        }
        self.settings = insert_settings(&export.client).await?;
        self.table_checked = Some(now);
        Ok(())
    }

    /// Sends the removals of guessed rows, and deletes them from the list of removals.
    async fn send_removed(&self) -> Result<(), ExportError> {
        let removed = self.export.store.removed_attempts(REMOVED_MAX).await?;
        if removed.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        removed.iter().for_each(|row| push_removal(&mut lines, row));
        self.insert(lines, removed.len()).await?;
        let numbers = removed.iter().map(|row| row.number).collect();
        Ok(self.export.store.forget_removed_attempts(numbers).await?)
    }

    /// Sends the next new rows. Returns whether there may be more.
    async fn send_new(&mut self) -> Result<bool, ExportError> {
        let Some(progress) = &self.progress else { return Ok(false) };
        let options = self.export.options;
        let (sent, limit) = (progress.position.sent, options.batch_rows);
        let rows = self.export.store.export_rows(sent, i64::MAX, limit).await?;
        let is_full = rows.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let taken = self.insert_rows(&rows).await?;
        if let Some(progress) = &mut self.progress {
            if let Some(last) = rows[..taken].last() {
                progress.position.sent = last.number;
            }
            progress.mark(Instant::now(), options.reread_after / 12);
        }
        Ok(is_full || taken < rows.len())
    }

    /// Sends rows, as many as fit into a batch. Returns their number.
    async fn insert_rows(&mut self, rows: &[NumberedAttempt]) -> Result<usize, ExportError> {
        let mut lines = Vec::new();
        let mut taken = 0;
        for row in rows {
            let before = lines.len();
            push_row(&mut lines, row);
            if lines.len() > self.export.options.batch_bytes && taken > 0 {
                lines.truncate(before);
                break;
            }
            taken += 1;
        }
        if taken > 0 {
            self.insert(lines, taken).await?;
        }
        if let Some(progress) = &mut self.progress {
            rows[..taken].iter().for_each(|row| progress.sent.insert(row.number));
        }
        Ok(taken)
    }

    async fn insert(&self, lines: Vec<u8>, rows: usize) -> Result<(), ExportError> {
        let insert = ClickHouseStatement {
            kind: "an insert",
            sql: insert_statement(),
            rows: Bytes::from(lines),
            settings: self.settings,
        };
        self.export.client.run(insert).await?;
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        self.export.update_status(|status| status.rows_sent += rows);
        Ok(())
    }

    /// Sends rows that became visible after rows with higher numbers, up to the number that was reached `reread_after`
    /// ago. Returns whether there may be more.
    async fn settle(&mut self) -> Result<bool, ExportError> {
        let Some(progress) = &mut self.progress else { return Ok(false) };
        if !self.export.store.numbers_rows_out_of_order() {
            progress.position.settled = progress.position.sent;
            progress.sent.clear();
            progress.marks.clear();
            return Ok(false);
        }
        let after = self.export.options.reread_after;
        let Some(due) = progress.due(Instant::now(), after) else { return Ok(false) };
        let settled = progress.position.settled;
        let numbers = self.export.store.export_numbers(settled, due, NUMBERS_MAX).await?;
        let is_last = numbers.len() < usize::try_from(NUMBERS_MAX).unwrap_or(usize::MAX);
        let end = numbers.last().copied().filter(|_| !is_last).unwrap_or(due);
        let late = numbers.into_iter().find(|number| !progress.sent.contains(*number));
        let reached = match late {
            None => end,
            Some(late) => self.send_late(late, end).await?,
        };
        if let Some(progress) = &mut self.progress {
            progress.position.settled = reached;
            progress.sent.forget_through(reached);
        }
        Ok(reached < due)
    }

    /// Sends the rows from number `first` to number `last` that were not sent. Returns the number that was reached.
    async fn send_late(&mut self, first: i64, last: i64) -> Result<i64, ExportError> {
        let limit = self.export.options.batch_rows;
        let mut rows = self.export.store.export_rows(first - 1, last, limit).await?;
        let is_full = rows.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        let reached = rows.last().filter(|_| is_full).map_or(last, |row| row.number);
        if let Some(progress) = &self.progress {
            rows.retain(|row| !progress.sent.contains(row.number));
        }
        let taken = self.insert_rows(&rows).await?;
        Ok(match rows.get(taken) {
            Some(left) => left.number - 1,
            None => reached,
        })
    }

    async fn save(&mut self) -> Result<(), ExportError> {
        let Some(progress) = &mut self.progress else { return Ok(()) };
        if progress.position == progress.saved {
            return Ok(());
        }
        let (target, position) = (self.export.target.clone(), progress.position);
        self.export.store.advance_export(target, position).await?;
        progress.saved = position;
        Ok(())
    }
}

/// Returns the settings of inserts. Newer servers may answer an insert before its rows are stored, unless
/// `async_insert` is 0; older servers do not know that setting.
async fn insert_settings(
    client: &ClickHouseClient,
) -> Result<&'static [&'static str], ExportError> {
    let query = ClickHouseStatement {
        kind: "the query for settings",
        sql: "SELECT name FROM system.settings WHERE name = 'async_insert' FORMAT TabSeparated"
            .to_owned(),
        rows: Bytes::new(),
        settings: &[],
    };
    let known = client.run(query).await?;
    Ok(if known.trim() == "async_insert" { &["async_insert=0"] } else { &[] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_once_an_interval() {
        let (mut throttle, start) = (WarningThrottle::default(), Instant::now());
        let mut admit =
            |seconds| throttle.admit(start + Duration::from_secs(seconds), Duration::from_secs(60));
        assert_eq!(admit(0), Some(0));
        assert_eq!((admit(1), admit(59)), (None, None));
        assert_eq!(admit(60), Some(2));
        assert_eq!(admit(61), None);
    }

    #[test]
    fn a_number_is_settled_a_minute_after_it_was_reached() {
        let start = Instant::now();
        let (minute, every) = (Duration::from_secs(60), Duration::from_secs(5));
        let mut progress = ExportProgress::at(ExportPosition { sent: 10, settled: 4 }, start);
        assert_eq!(progress.due(start + minute / 2, minute), None);
        progress.position.sent = 20;
        progress.mark(start + every, every);
        progress.position.sent = 30;
        // Too early for a mark of its own: it is settled with a later one.
        progress.mark(start + every + every / 2, every);
        progress.mark(start + every * 3, every);
        assert_eq!(progress.due(start + minute, minute), Some(10));
        assert_eq!(progress.due(start + minute + every, minute), Some(20));
        progress.position.settled = 20;
        assert_eq!(progress.due(start + minute + every, minute), None);
        assert_eq!(progress.due(start + minute + every * 3, minute), Some(30));
        progress.position.settled = 30;
        assert_eq!(progress.due(start + minute * 2, minute), None);
        progress.mark(start + minute * 2, every);
        assert!(progress.marks.is_empty(), "nothing is marked while nothing comes");
    }
}
