//! Searches the ledger with any filter, page by page.
//!
//! Rows come newest first: by the arrival of their request, then by request and attempt. A cursor
//! is a position between two rows in this order, so no row is skipped or repeated, even if many
//! rows have the same time.
//!
//! There are indices for requests, for times, and for the times of a tenant. Any other filter has
//! to read each row. One call therefore searches one day back at most, or one million rows,
//! whichever is less. The page then says where the search stopped, and its cursor continues from
//! there.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use fairgate_time::{DAY_US, UnixMicros};

use crate::error::StoreError;
use crate::ledger::{AttemptOutcome, AttemptRow};
use crate::rows;
use crate::sql::{SqlStatement, SqlValue, attempt_columns, list_limit};
use crate::store::{Store, TransactionFuture};
use crate::stored_words::StoredWord;
use crate::transaction::Transaction;

/// Bounds of a call with filters that have no index.
const BOUNDS: SearchBounds = SearchBounds { micros: DAY_US, rows: 1_000_000 };

/// Conditions that a row must meet, all of them. `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptFilter {
    /// Id of the request.
    pub request: Option<String>,
    /// Name of the tenant.
    pub tenant: Option<String>,
    /// Id of the key.
    pub key: Option<String>,
    /// Name of the agent, as the client sent it.
    pub agent: Option<String>,
    /// Name of the pool.
    pub pool: Option<String>,
    /// Name of the worker.
    pub worker: Option<String>,
    /// Name of the model, as the client sent it.
    pub model: Option<String>,
    /// Policy class in which the request was queued.
    pub class: Option<String>,
    /// Project for whose task the request was made.
    pub project: Option<String>,
    /// Task for which the request was made.
    pub task: Option<String>,
    /// Stable error code of the refusal or failure.
    pub code: Option<String>,
    /// Result of the attempt.
    pub outcome: Option<AttemptOutcome>,
    /// Range of HTTP statuses that the client got.
    pub status: Option<RangeInclusive<u16>>,
    /// Minimum time that the attempt waited for its grant, in microseconds.
    pub waited_us_min: Option<u64>,
    /// True for the last attempt of each request only.
    pub last_only: bool,
}

/// Selects a page of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptSearch {
    /// Conditions for the rows.
    pub filter: AttemptFilter,
    /// Restricts the rows to requests that arrived at this time or later.
    pub since: Option<UnixMicros>,
    /// Restricts the rows to requests that arrived before this time.
    pub until: Option<UnixMicros>,
    /// Position after which the page begins: [`AttemptPage::next`] of the page before. `None` for
    /// the first page.
    pub cursor: Option<AttemptCursor>,
    /// Maximum number of rows on the page; 0 and values above 1 000 mean 1 000.
    pub limit: u32,
}

/// A page of the ledger, newest row first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptPage {
    /// Rows of the page.
    pub rows: Vec<AttemptRow>,
    /// Position at which the next page begins; `None` if there are no older rows in the time range.
    pub next: Option<AttemptCursor>,
    /// Position at which the search stopped before the page was full; `None` if no bound stopped
    /// it.
    pub stopped: Option<SearchStop>,
}

/// Position in the ledger's order. The page after it begins with the next older row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptCursor {
    /// Time of the row before the page.
    pub started_at: UnixMicros,
    /// Request of the row before the page. Empty if the page begins with the newest row that is older than
    /// `started_at`.
    pub request: String,
    /// Attempt of the row before the page.
    pub attempt: u32,
}

/// Position at which a search stopped, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchStop {
    /// The search has covered the rows from this time on.
    pub at: UnixMicros,
    /// Bound that was reached.
    pub because: SearchBound,
}

/// Bound of one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchBound {
    /// The search has covered one day.
    Day,
    /// The search has read one million rows.
    Rows,
}

/// Values of the bounds. Tests use smaller ones.
#[derive(Clone, Copy)]
struct SearchBounds {
    micros: i64,
    rows: i64,
}

impl AttemptCursor {
    /// Returns the position before the newest row that is older than `time`.
    fn before(time: UnixMicros) -> Self {
        Self { started_at: time, request: String::new(), attempt: 0 }
    }

    /// Returns the position after a row.
    fn after(row: &AttemptRow) -> Self {
        let AttemptRow { started_at, request, attempt, .. } = row;
        Self { started_at: *started_at, request: request.clone(), attempt: *attempt }
    }
}

impl fmt::Display for AttemptCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.started_at.0, self.attempt, self.request)
    }
}

impl FromStr for AttemptCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, '.');
        let (Some(time), Some(attempt), Some(request)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        // Ids of requests are visible ASCII characters.
        if !request.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(());
        }
        Ok(Self {
            started_at: UnixMicros(time.parse().map_err(drop)?),
            request: request.to_owned(),
            attempt: attempt.parse().map_err(drop)?,
        })
    }
}

impl AttemptFilter {
    /// Returns true if every condition has an index, or if at least one row of every request meets
    /// it.
    fn is_indexed(&self) -> bool {
        let Self { request, tenant, last_only, .. } = self;
        let indexed = Self {
            request: request.clone(),
            tenant: tenant.clone(),
            last_only: *last_only,
            ..Self::default()
        };
        request.is_some() || *self == indexed
    }

    fn texts(&self) -> [(&'static str, &Option<String>); 11] {
        [
            ("request =", &self.request),
            ("tenant =", &self.tenant),
            ("key_id =", &self.key),
            ("agent =", &self.agent),
            ("pool =", &self.pool),
            ("worker =", &self.worker),
            ("model =", &self.model),
            ("class =", &self.class),
            ("project =", &self.project),
            ("task =", &self.task),
            ("code =", &self.code),
        ]
    }

    /// Returns true if no row can meet the conditions, because no text in the ledger has the character NUL. PostgreSQL
    /// accepts no such text.
    fn is_impossible(&self) -> bool {
        self.texts().iter().any(|(_, text)| text.as_ref().is_some_and(|text| text.contains('\0')))
    }

    fn add_to(&self, statement: &mut SqlStatement) {
        for (condition, text) in self.texts() {
            statement.filter(condition, text.clone().map(SqlValue::Text));
        }
        let outcome = self.outcome.map(|outcome| SqlValue::Text(outcome.word().to_owned()));
        statement.filter("outcome =", outcome);
        if let Some(status) = &self.status {
            statement.filter("status >=", Some(SqlValue::Int((*status.start()).into())));
            statement.filter("status <=", Some(SqlValue::Int((*status.end()).into())));
        }
        let waited = self.waited_us_min.map(|us| i64::try_from(us).unwrap_or(i64::MAX));
        statement.filter("waited_us >=", waited.map(SqlValue::Int));
        statement.filter("last_attempt =", self.last_only.then_some(SqlValue::Flag(true)));
    }
}

impl Store {
    /// Returns a page of the ledger. For a later page, pass [`AttemptPage::next`] as the cursor and
    /// leave the other fields unchanged.
    pub fn search_attempts(
        &self,
        search: AttemptSearch,
    ) -> TransactionFuture<'_, AttemptPage, StoreError> {
        self.inspect(move |transaction| page(transaction, &search, BOUNDS))
    }
}

/// Upper end of the part of the ledger that a call searches.
enum SearchStart<'a> {
    /// The newest row, or the newest one before this time.
    Before(Option<UnixMicros>),
    After(&'a AttemptCursor),
}

impl<'a> SearchStart<'a> {
    fn of(search: &'a AttemptSearch) -> Self {
        match (&search.cursor, search.until) {
            (Some(cursor), Some(until)) if until <= cursor.started_at => Self::Before(Some(until)),
            (Some(cursor), _) => Self::After(cursor),
            (None, until) => Self::Before(until),
        }
    }

    /// Returns the first time after all rows of the part; `None` if the part ends with the newest
    /// row.
    fn end(&self) -> Option<UnixMicros> {
        match self {
            Self::Before(until) => *until,
            // No request has an empty id.
            Self::After(cursor) if cursor.request.is_empty() => Some(cursor.started_at),
            Self::After(cursor) => Some(UnixMicros(cursor.started_at.0.saturating_add(1))),
        }
    }

    fn add_to(&self, statement: &mut SqlStatement) {
        statement.filter("started_at <", self.end().map(|end| SqlValue::Int(end.0)));
        if let Self::After(AttemptCursor { started_at, request, attempt }) = self {
            let [time, name, number] =
                [SqlValue::Int(started_at.0), request.as_str().into(), (*attempt).into()]
                    .map(|value| statement.value(value));
            statement.sql.push_str(&format!(
                " AND (started_at < {time} OR request < {name} OR (request = {name} AND attempt < {number}))"
            ));
        }
    }
}

fn page(
    transaction: &mut dyn Transaction,
    search: &AttemptSearch,
    bounds: SearchBounds,
) -> Result<AttemptPage, StoreError> {
    if search.filter.is_impossible() {
        return Ok(AttemptPage::default());
    }
    let start = SearchStart::of(search);
    let stop = match search.filter.is_indexed() {
        true => None,
        false => stop(transaction, search, &start, bounds)?,
    };
    let limit = list_limit(search.limit);
    let mut statement =
        SqlStatement::new(concat!("SELECT ", attempt_columns!(), " FROM attempts"), Vec::new());
    search.filter.add_to(&mut statement);
    let since = stop.map(|stop| stop.at).max(search.since);
    statement.filter("started_at >=", since.map(|at| SqlValue::Int(at.0)));
    start.add_to(&mut statement);
    statement.sql.push_str(" ORDER BY started_at DESC, request DESC, attempt DESC");
    // One row more shows whether another page follows.
    statement.limit(limit + 1);
    let mut rows = transaction.list(&statement.sql, &statement.values, |row| rows::attempt(row))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if rows.len() > limit {
        rows.truncate(limit);
        let next = rows.last().map(AttemptCursor::after);
        return Ok(AttemptPage { rows, next, stopped: None });
    }
    let Some(stop) = stop else { return Ok(AttemptPage { rows, next: None, stopped: None }) };
    // The next page begins at the next older row, however old it is.
    let older = newest_time(transaction, search, stop.at)?;
    let next = older.map(|time| AttemptCursor::before(UnixMicros(time.0.saturating_add(1))));
    let stopped = next.is_some().then_some(stop);
    Ok(AttemptPage { rows, next, stopped })
}

/// Returns the position at which a search without index must stop; `None` if it may read the whole
/// time range.
fn stop(
    transaction: &mut dyn Transaction,
    search: &AttemptSearch,
    start: &SearchStart<'_>,
    bounds: SearchBounds,
) -> Result<Option<SearchStop>, StoreError> {
    let newest = match start.end() {
        Some(end) => newest_time(transaction, search, end)?,
        None => newest_time(transaction, search, UnixMicros(i64::MAX))?,
    };
    let Some(newest) = newest else { return Ok(None) };
    let day = UnixMicros(newest.0.saturating_sub(bounds.micros));
    let low = search.since.map_or(day, |since| since.max(day));
    let mut statement = times_of(search, "SELECT started_at FROM attempts");
    statement.filter("started_at <=", Some(SqlValue::Int(newest.0)));
    statement.filter("started_at >=", Some(SqlValue::Int(low.0)));
    statement.sql.push_str(" ORDER BY started_at DESC");
    statement.limit(1);
    let offset = statement.value(SqlValue::Int(bounds.rows));
    statement.sql.push_str(&format!(" OFFSET {offset}"));
    let rows = transaction.first(&statement.sql, &statement.values, |row| row.moment(0))?;
    if let Some(at) = rows {
        return Ok(Some(SearchStop { at, because: SearchBound::Rows }));
    }
    let is_bound = search.since.is_none_or(|since| since < day);
    Ok(is_bound.then_some(SearchStop { at: day, because: SearchBound::Day }))
}

/// Returns the time of the newest row before `end` that meets the indexed conditions; `None` if
/// there is none.
fn newest_time(
    transaction: &mut dyn Transaction,
    search: &AttemptSearch,
    end: UnixMicros,
) -> Result<Option<UnixMicros>, StoreError> {
    let mut statement = times_of(search, "SELECT MAX(started_at) FROM attempts");
    statement.filter("started_at <", Some(SqlValue::Int(end.0)));
    statement.filter("started_at >=", search.since.map(|at| SqlValue::Int(at.0)));
    let newest =
        transaction.first(&statement.sql, &statement.values, |row| row.moment_or_null(0))?;
    Ok(newest.flatten())
}

fn times_of(search: &AttemptSearch, select: &str) -> SqlStatement {
    let mut statement = SqlStatement::new(select, Vec::new());
    statement.filter("tenant =", search.filter.tenant.clone().map(SqlValue::Text));
    statement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::UsageSource;
    use crate::store_options::StoreOptions;

    /// Creates twelve rows: three requests in each of four microseconds. Every second request is
    /// refused.
    async fn store() -> Store {
        let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await.unwrap();
        for number in 0..12_u32 {
            let refused = number % 2 == 1;
            let row = AttemptRow {
                request: format!("r{number:02}"),
                started_at: UnixMicros(1_000 + i64::from(number / 3)),
                status: if refused { 429 } else { 200 },
                code: refused.then(|| "queue_full".to_owned()),
                waited_us: u64::from(number) * 10,
                ..row()
            };
            store.record(row).await.unwrap();
        }
        store
    }

    fn row() -> AttemptRow {
        serde_json::from_value(serde_json::json!({
            "request": "", "attempt": 1, "last": true, "started_at": 0, "group": "g", "tenant": "t", "key": "k",
            "agent": null, "session": null, "route": "/v1/chat/completions", "stream": false, "model": "m", "pool": "p",
            "worker": "w", "estimate": 1, "input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "charged": 2,
            "usage": UsageSource::Reported, "waited_us": 0, "first_token_us": null, "total_us": 1, "status": 200,
            "outcome": AttemptOutcome::Completed, "code": null, "brownout": false, "provider_tokens": 2
        }))
        .unwrap()
    }

    /// Returns the requests of all pages, and the number of calls that a bound stopped.
    async fn all(store: &Store, search: AttemptSearch, bounds: SearchBounds) -> (String, usize) {
        let (mut search, mut found, mut cut) = (search, Vec::new(), 0);
        for _ in 0..50 {
            let asked = search.clone();
            let page = store.inspect(move |on| page(on, &asked, bounds)).await.unwrap();
            assert!(page.rows.len() <= search.limit as usize);
            cut += usize::from(page.stopped.is_some());
            found.extend(page.rows.into_iter().map(|row| row.request));
            let Some(next) = page.next else { return (found.join(" "), cut) };
            search.cursor = Some(next.to_string().parse().unwrap());
        }
        panic!("the pages do not end");
    }

    const EVERYTHING: &str = "r11 r10 r09 r08 r07 r06 r05 r04 r03 r02 r01 r00";
    const REFUSED: &str = "r11 r09 r07 r05 r03 r01";

    #[tokio::test]
    async fn pages_of_any_length_skip_and_repeat_nothing() {
        let store = store().await;
        for limit in 1..=13 {
            let search = AttemptSearch { limit, ..AttemptSearch::default() };
            assert_eq!(all(&store, search.clone(), BOUNDS).await, (EVERYTHING.to_owned(), 0));
            let code = Some("queue_full".to_owned());
            let filter = AttemptFilter { code, ..AttemptFilter::default() };
            let refused = AttemptSearch { filter, ..search };
            assert_eq!(all(&store, refused, BOUNDS).await, (REFUSED.to_owned(), 0));
        }
    }

    #[tokio::test]
    async fn a_search_without_index_stops_at_its_bounds_and_goes_on() {
        let store = store().await;
        let filter = AttemptFilter { status: Some(400..=499), ..AttemptFilter::default() };
        let search = AttemptSearch { filter, limit: 100, ..AttemptSearch::default() };
        let bounds = |micros, rows| SearchBounds { micros, rows };
        let wide = DAY_US;
        let by_rows = all(&store, search.clone(), bounds(wide, 4)).await;
        assert_eq!(by_rows, (REFUSED.to_owned(), 1), "more than four rows, until the time ends");
        let by_time = all(&store, search.clone(), bounds(0, 1_000)).await;
        assert_eq!(by_time, (REFUSED.to_owned(), 3), "each call looks at one microsecond");
        let since = Some(UnixMicros(1_002));
        let some = all(&store, AttemptSearch { since, ..search }, bounds(wide, 1_000)).await;
        assert_eq!(some, ("r11 r09 r07".to_owned(), 0));
    }

    #[tokio::test]
    async fn every_condition_counts() {
        let store = store().await;
        let text = |text: &str| Some(text.to_owned());
        let any = AttemptFilter::default();
        let filters = [
            (AttemptFilter { request: text("r03"), ..any.clone() }, 1),
            (AttemptFilter { tenant: text("t"), ..any.clone() }, 12),
            (AttemptFilter { tenant: text("x"), ..any.clone() }, 0),
            (AttemptFilter { key: text("x"), ..any.clone() }, 0),
            (AttemptFilter { agent: text("x"), ..any.clone() }, 0),
            (AttemptFilter { pool: text("p"), ..any.clone() }, 12),
            (AttemptFilter { worker: text("x"), ..any.clone() }, 0),
            (AttemptFilter { model: text("m"), ..any.clone() }, 12),
            (AttemptFilter { class: text("x"), ..any.clone() }, 0),
            (AttemptFilter { project: text("x"), ..any.clone() }, 0),
            (AttemptFilter { task: text("x"), ..any.clone() }, 0),
            (AttemptFilter { outcome: Some(AttemptOutcome::Lost), ..any.clone() }, 0),
            (AttemptFilter { status: Some(200..=200), ..any.clone() }, 6),
            (AttemptFilter { waited_us_min: Some(70), ..any.clone() }, 5),
            (AttemptFilter { last_only: true, ..any }, 12),
        ];
        for (filter, count) in filters {
            let search = AttemptSearch { filter: filter.clone(), ..AttemptSearch::default() };
            let page = store.search_attempts(search).await.unwrap();
            assert_eq!(page.rows.len(), count, "{filter:?}");
        }
    }

    #[test]
    fn cursors_are_read_as_they_are_written() {
        let cursor =
            AttemptCursor { started_at: UnixMicros(-5), request: "a.b".into(), attempt: 7 };
        assert_eq!(cursor.to_string(), "-5.7.a.b");
        assert_eq!("-5.7.a.b".parse(), Ok(cursor));
        for text in ["", "1.2", "x.1.a", "1.-1.a"] {
            assert_eq!(text.parse::<AttemptCursor>(), Err(()), "{text}");
        }
    }
}
