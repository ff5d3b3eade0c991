//! One connection that comes back when it breaks.
//!
//! Nothing waits for ever: connecting, statements, locks and answers all have a time limit. Between attempts to connect
//! there is a pause that doubles up to a limit; whoever asks during the pause is told at once what the last attempt met.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::address::Address;
use super::pulse::Pulse;
use super::trouble::Trouble;
use crate::error::StoreError;
use crate::rows::Columns;
use crate::sql::Value;

type Result<T> = std::result::Result<T, Trouble>;

/// How long connecting may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server may take to answer anything at all.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long sums over a large ledger may take.
pub(super) const SUM_TIMEOUT: Duration = Duration::from_secs(60);
/// What the server is told, so that it gives up before we do.
const SERVER_TIMEOUTS: &str = "SET statement_timeout = '5s'; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '15s'";
/// How many statements of the fleet's transactions a connection keeps prepared.
const SOME_PREPARED_MAX: usize = 256;
/// The pause after the first attempt to connect that failed, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A connection, or the attempt to have one.
pub(super) struct Link {
    address: Arc<Address>,
    pulse: Pulse,
    session: Option<Session>,
    failure: Option<Failure>,
}

/// The last attempt to connect, which failed.
struct Failure {
    problem: String,
    pause: Duration,
    until: Instant,
}

/// A connection that stands, and the statements that it has prepared.
pub(super) struct Session {
    pub(super) client: Client,
    pulse: Pulse,
    prepared: HashMap<&'static str, Statement>,
    /// Statements of the fleet's transactions, with when each was last used, counted in uses.
    some_prepared: HashMap<String, (Statement, u64)>,
    uses: u64,
}

impl Link {
    pub(super) fn new(address: Arc<Address>, pulse: Pulse) -> Self {
        Self { address, pulse, session: None, failure: None }
    }

    /// The session, which is taken out so that whatever happens in the meantime, nobody finds it in the middle of a
    /// transaction; [`Self::give_back`] returns it.
    pub(super) async fn take(&mut self) -> Result<Session> {
        match self.session.take().filter(|session| !session.client.is_closed()) {
            Some(session) => Ok(session),
            None => self.connect().await,
        }
    }

    /// Keeps a session for the next time, unless it broke.
    pub(super) async fn give_back<T>(&mut self, session: Session, outcome: &Result<T>) {
        let sound = match outcome {
            Ok(_) => {
                self.pulse.beat();
                true
            }
            Err(Trouble::Link(_)) => false,
            Err(Trouble::Conflict(_) | Trouble::Refused(_)) => {
                in_time(session.run("ROLLBACK")).await.is_ok()
            }
        };
        self.session = sound.then_some(session);
    }

    /// When the next attempt to connect may be made.
    pub(super) fn next_attempt(&self) -> Instant {
        self.failure.as_ref().map_or_else(Instant::now, |failure| failure.until)
    }

    async fn connect(&mut self) -> Result<Session> {
        if let Some(failure) = &self.failure
            && Instant::now() < failure.until
        {
            return Err(Trouble::Link(failure.problem.clone()));
        }
        let connected = in_time(async {
            let client = self.address.connect().await?;
            self.pulse.beat();
            let session = Session {
                client,
                pulse: self.pulse.clone(),
                prepared: HashMap::new(),
                some_prepared: HashMap::new(),
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
                    Trouble::Link(text) | Trouble::Conflict(text) => text.clone(),
                    Trouble::Refused(error) => error.to_string(),
                };
                let problem = format!("no connection to PostgreSQL: {problem}");
                let pause = self.failure.as_ref().map_or(PAUSE.0, |last| last.pause * 2);
                let pause = pause.min(PAUSE.1);
                let until = Instant::now() + pause;
                self.failure = Some(Failure { problem: problem.clone(), pause, until });
                Err(Trouble::Link(problem))
            }
        }
    }
}

impl Session {
    /// Statements without values and answers.
    pub(super) async fn run(&self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).await?;
        self.pulse.beat();
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
                self.pulse.beat();
                self.prepared.insert(sql, statement);
            }
        }
        Ok(statements.map(|sql| self.prepared[sql].clone()))
    }

    /// Prepares a statement that is put together by its caller, and will often be used again. Of more than
    /// [`SOME_PREPARED_MAX`], the one that was not used for longest is prepared anew when it comes again.
    pub(super) async fn prepare_some(&mut self, sql: &str) -> Result<Statement> {
        self.uses += 1;
        if let Some((statement, last_use)) = self.some_prepared.get_mut(sql) {
            *last_use = self.uses;
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.pulse.beat();
        if self.some_prepared.len() >= SOME_PREPARED_MAX {
            let oldest = self.some_prepared.iter().min_by_key(|(_, (_, last_use))| *last_use);
            if let Some(oldest) = oldest.map(|(sql, _)| sql.clone()) {
                self.some_prepared.remove(&oldest);
            }
        }
        self.some_prepared.insert(sql.to_owned(), (statement.clone(), self.uses));
        Ok(statement)
    }

    /// All rows of a query.
    pub(super) async fn list<T>(
        &self,
        sql: &str,
        values: &[Value],
        read: impl Fn(&Row) -> std::result::Result<T, StoreError>,
    ) -> Result<Vec<T>> {
        let rows = self.client.query(sql, &references(values)).await?;
        Ok(rows.iter().map(read).collect::<std::result::Result<_, _>>()?)
    }

    /// The first row of a query, where there is one.
    pub(super) async fn first<T>(
        &self,
        sql: &str,
        values: &[Value],
        read: impl Fn(&Row) -> std::result::Result<T, StoreError>,
    ) -> Result<Option<T>> {
        Ok(self.list(sql, values, read).await?.into_iter().next())
    }
}

/// Asks for rows. Several such requests that are joined go out together, in order, and cost one round trip.
pub(super) async fn query<const N: usize>(
    client: &Client,
    statement: &Statement,
    values: [&(dyn ToSql + Sync); N],
) -> Result<Vec<Row>> {
    Ok(client.query(statement, &values).await?)
}

/// Like [`query`], where nothing is asked.
pub(super) async fn execute<const N: usize>(
    client: &Client,
    statement: &Statement,
    values: [&(dyn ToSql + Sync); N],
) -> Result<()> {
    client.execute(statement, &values).await?;
    Ok(())
}

/// Values as the driver wants them.
pub(super) fn references(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(reference).collect()
}

fn reference(value: &Value) -> &(dyn ToSql + Sync) {
    match value {
        Value::Int(int) => int,
        Value::MaybeInt(int) => int,
        Value::Text(text) => text,
        Value::MaybeText(text) => text,
        Value::Flag(flag) => flag,
        Value::Bytes(bytes) => bytes,
        Value::MaybeBytes(bytes) => bytes,
    }
}

/// What must be answered within [`ANSWER_TIMEOUT`].
pub(super) async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    within(ANSWER_TIMEOUT, work).await
}

/// What must be answered within some time.
pub(super) async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Trouble::Link(format!("no answer from PostgreSQL in {limit:?}"));
    timeout(limit, work).await.map_err(late)?
}

impl Columns for Row {
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
