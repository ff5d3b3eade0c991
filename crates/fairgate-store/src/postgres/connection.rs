//! A connection to PostgreSQL that is opened again when it breaks.
//!
//! No operation waits forever: connecting, statements, locks and answers all have a time limit.
//! After a failed attempt to connect there is a pause, which doubles up to a limit. During the
//! pause, every operation fails at once with the error of the last attempt.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::address::PostgresAddress;
use super::error::PostgresError;
use super::liveness::ServerLiveness;
use crate::error::StoreError;
use crate::rows::RowColumns;
use crate::sql::SqlValue;

type Result<T> = std::result::Result<T, PostgresError>;

/// Maximum time of an attempt to connect.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for the server to answer a statement.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for the server to sum up a large ledger.
pub(super) const SUM_TIMEOUT: Duration = Duration::from_secs(60);
/// Statements that set the server's own timeouts. They are shorter than [`ANSWER_TIMEOUT`], so that the server gives up
/// before this process does.
const SERVER_TIMEOUTS: &str = "SET statement_timeout = '5s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '15s'";
/// Maximum number of statements of callers' transactions that a connection keeps prepared.
const DYNAMIC_PREPARED_MAX: usize = 256;
/// The pause after the first failed attempt to connect, and the maximum pause.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A connection, or the state of the attempts to get one.
pub(super) struct PostgresConnection {
    address: Arc<PostgresAddress>,
    liveness: ServerLiveness,
    session: Option<PostgresSession>,
    failure: Option<PostgresConnectError>,
}

/// Failure of the last attempt to connect.
struct PostgresConnectError {
    problem: String,
    pause: Duration,
    until: Instant,
}

/// An open connection with its prepared statements.
pub(super) struct PostgresSession {
    pub(super) client: Client,
    liveness: ServerLiveness,
    prepared: HashMap<&'static str, Statement>,
    /// Prepared statements of callers' transactions by their SQL text, with the value of `uses`
    /// when each was last used.
    dynamic_prepared: HashMap<String, (Statement, u64)>,
    uses: u64,
}

impl PostgresConnection {
    pub(super) fn new(address: Arc<PostgresAddress>, liveness: ServerLiveness) -> Self {
        Self { address, liveness, session: None, failure: None }
    }

    /// Takes the open session out of this connection, or connects if there is none.
    /// [`Self::return_session`] puts the session back. If the caller is cancelled in the middle of
    /// a transaction, the session is dropped and nobody else uses it.
    pub(super) async fn take_session(&mut self) -> Result<PostgresSession> {
        match self.session.take().filter(|session| !session.client.is_closed()) {
            Some(session) => Ok(session),
            None => self.connect().await,
        }
    }

    /// Puts a session back for the next operation, unless the session is broken. If `outcome` is an error, the open
    /// transaction is rolled back first.
    pub(super) async fn return_session<T>(
        &mut self,
        session: PostgresSession,
        outcome: &Result<T>,
    ) {
        let sound = match outcome {
            Ok(_) => {
                self.liveness.record_answer();
                true
            }
            Err(PostgresError::Connection(_)) => false,
            Err(PostgresError::Conflict(_) | PostgresError::Refused(_)) => {
                with_answer_timeout(session.run("ROLLBACK")).await.is_ok()
            }
        };
        self.session = sound.then_some(session);
    }

    /// Returns the earliest time at which the next attempt to connect is made.
    pub(super) fn next_attempt(&self) -> Instant {
        self.failure.as_ref().map_or_else(Instant::now, |failure| failure.until)
    }

    async fn connect(&mut self) -> Result<PostgresSession> {
        if let Some(failure) = &self.failure
            && Instant::now() < failure.until
        {
            return Err(PostgresError::Connection(failure.problem.clone()));
        }
        let connected = with_answer_timeout(async {
            let client = self.address.connect().await?;
            self.liveness.record_answer();
            let session = PostgresSession {
                client,
                liveness: self.liveness.clone(),
                prepared: HashMap::new(),
                dynamic_prepared: HashMap::new(),
                uses: 0,
            };
            session.run(SERVER_TIMEOUTS).await?;
            Ok(session)
        });
        match connected.await {
            Ok(session) => {
                self.failure = None;
                Ok(session)
            }
            Err(trouble) => {
                let problem = match &trouble {
                    PostgresError::Connection(text) | PostgresError::Conflict(text) => text.clone(),
                    PostgresError::Refused(error) => error.to_string(),
                };
                let problem = format!("no connection to PostgreSQL: {problem}");
                let pause = self.failure.as_ref().map_or(PAUSE.0, |last| last.pause * 2);
                let pause = pause.min(PAUSE.1);
                let until = Instant::now() + pause;
                self.failure =
                    Some(PostgresConnectError { problem: problem.clone(), pause, until });
                Err(PostgresError::Connection(problem))
            }
        }
    }
}

impl PostgresSession {
    /// Records that the server has answered.
    pub(super) fn record_answer(&self) {
        self.liveness.record_answer();
    }

    /// Runs statements without values and results.
    pub(super) async fn run(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await?;
        self.liveness.record_answer();
        Ok(())
    }

    /// Prepares statements that will be used again.
    pub(super) async fn prepare<const N: usize>(
        &mut self,
        statements: [&'static str; N],
    ) -> Result<[Statement; N]> {
        for sql in statements {
            if !self.prepared.contains_key(sql) {
                let statement = self.client.prepare(sql).await?;
                self.liveness.record_answer();
                self.prepared.insert(sql, statement);
            }
        }
        Ok(statements.map(|sql| self.prepared[sql].clone()))
    }

    /// Prepares a statement whose text the caller has built and will often use again. Beyond
    /// [`DYNAMIC_PREPARED_MAX`] such statements, the least recently used one is dropped.
    pub(super) async fn prepare_dynamic(&mut self, sql: &str) -> Result<Statement> {
        self.uses += 1;
        if let Some((statement, last_use)) = self.dynamic_prepared.get_mut(sql) {
            *last_use = self.uses;
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.liveness.record_answer();
        if self.dynamic_prepared.len() >= DYNAMIC_PREPARED_MAX {
            let oldest = self.dynamic_prepared.iter().min_by_key(|(_, (_, last_use))| *last_use);
            if let Some(oldest) = oldest.map(|(sql, _)| sql.clone()) {
                self.dynamic_prepared.remove(&oldest);
            }
        }
        self.dynamic_prepared.insert(sql.to_owned(), (statement.clone(), self.uses));
        Ok(statement)
    }

    /// Returns all rows of a query.
    pub(super) async fn list<T>(
        &self,
        sql: &str,
        values: &[SqlValue],
        read: impl Fn(&Row) -> std::result::Result<T, StoreError>,
    ) -> Result<Vec<T>> {
        let rows = self.client.query(sql, &references(values)).await?;
        Ok(rows.iter().map(read).collect::<std::result::Result<_, _>>()?)
    }

    /// Returns the first row of a query, or `None` if the query has no rows.
    pub(super) async fn first<T>(
        &self,
        sql: &str,
        values: &[SqlValue],
        read: impl Fn(&Row) -> std::result::Result<T, StoreError>,
    ) -> Result<Option<T>> {
        Ok(self.list(sql, values, read).await?.into_iter().next())
    }
}

/// Runs a query. Queries that are run together with `tokio::join!` are sent in order, without
/// waiting in between, and cost one round trip.
pub(super) async fn query<const N: usize>(
    client: &Client,
    statement: &Statement,
    values: [&(dyn ToSql + Sync); N],
) -> Result<Vec<Row>> {
    Ok(client.query(statement, &values).await?)
}

/// Runs a statement without results. Several statements can be sent together, as with [`query`].
pub(super) async fn execute<const N: usize>(
    client: &Client,
    statement: &Statement,
    values: [&(dyn ToSql + Sync); N],
) -> Result<()> {
    client.execute(statement, &values).await?;
    Ok(())
}

/// Converts values to the references that the database driver takes.
pub(super) fn references(values: &[SqlValue]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(reference).collect()
}

fn reference(value: &SqlValue) -> &(dyn ToSql + Sync) {
    match value {
        SqlValue::Int(int) => int,
        SqlValue::MaybeInt(int) => int,
        SqlValue::Text(text) => text,
        SqlValue::MaybeText(text) => text,
        SqlValue::Flag(flag) => flag,
        SqlValue::Bytes(bytes) => bytes,
        SqlValue::MaybeBytes(bytes) => bytes,
    }
}

/// Limits the time of `work` to [`ANSWER_TIMEOUT`].
pub(super) async fn with_answer_timeout<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    with_timeout(ANSWER_TIMEOUT, work).await
}

/// Limits the time of `work`. A timeout counts as a broken connection.
pub(super) async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let late = |_| PostgresError::Connection(format!("no answer from PostgreSQL in {limit:?}"));
    timeout(limit, work).await.map_err(late)?
}

impl RowColumns for Row {
    fn int_or_null(&self, column: usize) -> std::result::Result<Option<i64>, StoreError> {
        self.try_get(column).map_err(unreadable)
    }

    fn text_or_null(&self, column: usize) -> std::result::Result<Option<String>, StoreError> {
        self.try_get(column).map_err(unreadable)
    }

    fn flag(&self, column: usize) -> std::result::Result<bool, StoreError> {
        self.try_get(column).map_err(unreadable)
    }

    fn bytes(&self, column: usize) -> std::result::Result<Vec<u8>, StoreError> {
        self.try_get(column).map_err(unreadable)
    }
}

fn unreadable(error: tokio_postgres::Error) -> StoreError {
    StoreError::Database(error.to_string())
}
