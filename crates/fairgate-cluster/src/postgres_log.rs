//! The log and its rows in PostgreSQL.
//!
//! One call of a function appends a record and returns what is new, so that the answer to a member's own record costs
//! one round trip, and a client that is paused holds no lock. Other members are woken by `LISTEN`; where notifications
//! do not arrive, such as behind a pooler in transaction mode, they read every 5 ms, and the program's log says so.
//!
//! Each member has three connections: one appends, one reads and listens, one is for the rows beside the log.

mod postgres_error;
mod schema;
mod wake;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairgate_replica::{
    EngineStamp, GenerationReport, LogPosition, MemberNumber, RECORD_BYTES_MAX, ShortHash,
    snapshot_hash,
};
use fairgate_store::PostgresAddress;
use tokio::sync::Mutex;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use self::postgres_error::from_postgres;
use self::wake::{PROBE, WakeSignal};
use crate::cluster_log::{
    ClusterLog, ClusterLogError, GenerationState, GenerationStore, LogCursor, LogRead,
    READ_RECORDS_MAX, StoredRecord, StoredReport, StoredSnapshot,
};

type Result<T> = std::result::Result<T, ClusterLogError>;

/// Longest time that the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Statements that set the server's own timeouts, which are shorter than [`ANSWER_TIMEOUT`].
const SERVER_TIMEOUTS: &str = "SET statement_timeout = '5s'; SET lock_timeout = '5s'";

/// Longest time for the notification that a session sends to itself.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

const APPEND: &str = "SELECT * FROM fairgate_cluster_append_1($1, $2, $3, $4, $5, $6)";
const READ: &str = "SELECT * FROM fairgate_cluster_read_1($1, $2, $3, $4)";
const PRUNE: &str = "DELETE FROM fairgate_cluster_log WHERE cluster = $1 AND generation = $2 AND position <= $3 \
     AND position < (SELECT max(position) FROM fairgate_cluster_log WHERE cluster = $1 AND generation = $2)";
const CREATE: &str = "WITH created AS (INSERT INTO fairgate_clusters (name, generation) VALUES ($1, 1) \
     ON CONFLICT (name) DO NOTHING RETURNING name) \
     INSERT INTO fairgate_cluster_snapshots (cluster, generation, position, hash, bytes) \
     SELECT name, 1, 0, $2, $3 FROM created";
const STATE: &str = "SELECT generation, \
     (extract(epoch FROM clock_timestamp() - ending_since) * 1000)::bigint FROM fairgate_clusters WHERE name = $1";
const REPORTS: &str = "SELECT process, generation, member, position, hash FROM fairgate_cluster_reports \
     WHERE cluster = $1 AND generation = $2 AND seen_at > clock_timestamp() - interval '3 seconds' ORDER BY process";
const REPORT: &str = "SELECT fairgate_cluster_report_1($1, $2, $3, $4, $5, $6, $7)";
const BEGIN: &str = "SELECT fairgate_cluster_begin_1($1, $2, $3, $4, $5, $6)";
const STORE_SNAPSHOT: &str = "SELECT fairgate_cluster_snapshot_1($1, $2, $3, $4, $5)";
const NEWEST_SNAPSHOT: &str = "SELECT s.generation, s.position, s.hash, s.bytes FROM fairgate_cluster_snapshots s \
     JOIN fairgate_clusters c ON c.name = s.cluster AND c.generation = s.generation \
     WHERE s.cluster = $1 AND ($2::bigint IS NULL OR s.position < $2) ORDER BY s.position DESC LIMIT 1";

/// The log of one cluster in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresLog {
    address: PostgresAddress,
    cluster: String,
    /// Channel of the cluster's notifications.
    channel: String,
    wake: Arc<WakeSignal>,
    /// True if the warning about missing notifications was logged.
    warned: AtomicBool,
    appender: Mutex<Option<LogSession>>,
    reader: Mutex<Option<LogSession>>,
    rows: Mutex<Option<LogSession>>,
}

/// An open connection, with the statement that it repeats.
#[derive(Debug)]
struct LogSession {
    client: Client,
    repeated: Option<Statement>,
}

impl PostgresLog {
    /// Connects, and creates the tables that are missing. `address` is the URL of the store.
    pub async fn open(address: &str, cluster: &str) -> Result<Self> {
        let parsed = PostgresAddress::parse(address).map_err(ClusterLogError::Refused)?;
        let digest = ShortHash::of(&blake3::hash(cluster.as_bytes()));
        let log = Self {
            address: parsed,
            cluster: cluster.to_owned(),
            channel: format!("fairgate_cluster_{digest}"),
            wake: Arc::new(WakeSignal::new()),
            warned: AtomicBool::new(false),
            appender: Mutex::new(None),
            reader: Mutex::new(None),
            rows: Mutex::new(None),
        };
        let mut client = in_time(log.connect()).await?;
        in_time(schema::create_missing(&mut client)).await?;
        *log.rows.lock().await = Some(LogSession { client, repeated: None });
        Ok(log)
    }

    /// Reads every 5 ms instead of waiting for notifications.
    #[must_use]
    pub fn without_notifications(self) -> Self {
        self.warned.store(true, Ordering::Relaxed);
        self.wake.poll();
        self
    }

    async fn connect(&self) -> Result<Client> {
        let wake = self.wake.clone();
        let client = self.address.connect_notified(move |payload| wake.take(payload)).await;
        let client = client.map_err(from_postgres)?;
        client.batch_execute(SERVER_TIMEOUTS).await.map_err(from_postgres)?;
        Ok(client)
    }

    /// Opens the connection that reads, and tests if it is woken.
    async fn connect_reader(&self) -> Result<LogSession> {
        let client = self.connect().await?;
        if !self.warned.load(Ordering::Relaxed) {
            client
                .batch_execute(&format!("LISTEN {}", self.channel))
                .await
                .map_err(from_postgres)?;
            let probe = "SELECT pg_notify($1, $2)";
            client.execute(probe, &[&self.channel, &PROBE]).await.map_err(from_postgres)?;
            if !self.wake.wait_for_probe(PROBE_TIMEOUT).await {
                self.warned.store(true, Ordering::Relaxed);
                tracing::warn!(
                    cluster = self.cluster,
                    "PostgreSQL's notifications do not arrive, such as behind a pooler in transaction mode: the \
                     cluster's log is read every 5 ms instead"
                );
            }
        }
        let types = [Type::TEXT, Type::INT8, Type::INT8, Type::INT4];
        let repeated = client.prepare_typed(READ, &types).await.map_err(from_postgres)?;
        Ok(LogSession { client, repeated: Some(repeated) })
    }

    async fn connect_appender(&self) -> Result<LogSession> {
        let client = self.connect().await?;
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await.map_err(from_postgres)?;
        self.wake.set_appender(row.try_get(0).map_err(from_postgres)?);
        let repeated = client.prepare(APPEND).await.map_err(from_postgres)?;
        Ok(LogSession { client, repeated: Some(repeated) })
    }

    /// Runs a query on the connection for the rows beside the log.
    async fn query(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>> {
        let mut session = self.rows.lock().await;
        let answered = in_time(async {
            if session.as_ref().is_none_or(|session| session.client.is_closed()) {
                *session = Some(LogSession { client: self.connect().await?, repeated: None });
            }
            match session.as_ref() {
                Some(session) => session.client.query(sql, values).await.map_err(from_postgres),
                None => Ok(Vec::new()),
            }
        });
        let answered = answered.await;
        if matches!(answered, Err(ClusterLogError::Unavailable(_))) {
            *session = None;
        }
        answered
    }

    async fn query_flag(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<bool> {
        let rows = self.query(sql, values).await?;
        rows.first().map_or(Ok(false), |row| row.try_get(0).map_err(from_postgres))
    }
}

/// Runs the repeated statement of a session.
async fn query_repeated(
    session: Option<&LogSession>,
    values: &[&(dyn ToSql + Sync)],
) -> Result<LogRead> {
    let none = || ClusterLogError::Unavailable("there is no connection".to_owned());
    let session = session.ok_or_else(none)?;
    let statement = session.repeated.as_ref().ok_or_else(none)?;
    let row = session.client.query_one(statement, values).await.map_err(from_postgres)?;
    read_row(&row)
}

fn read_row(row: &Row) -> Result<LogRead> {
    let generation: Option<i64> = row.try_get("in_force").map_err(from_postgres)?;
    let generation = generation
        .ok_or_else(|| ClusterLogError::Refused("there is no such cluster".to_owned()))?;
    let is_ending: Option<bool> = row.try_get("is_ending").map_err(from_postgres)?;
    let end: Option<i64> = row.try_get("last").map_err(from_postgres)?;
    let positions: Option<Vec<i64>> = row.try_get("positions").map_err(from_postgres)?;
    let stamps: Option<Vec<i64>> = row.try_get("stamps").map_err(from_postgres)?;
    let records: Option<Vec<Vec<u8>>> = row.try_get("records").map_err(from_postgres)?;
    let places = positions.unwrap_or_default().into_iter().zip(stamps.unwrap_or_default());
    let records =
        places.zip(records.unwrap_or_default()).map(|((position, stamp), bytes)| StoredRecord {
            position: LogPosition(from_int8(position)),
            stamp: EngineStamp(from_int8(stamp)),
            bytes,
        });
    Ok(LogRead {
        generation: from_int8(generation),
        is_ending: is_ending.unwrap_or(false),
        end: LogPosition(from_int8(end.unwrap_or(0))),
        records: records.collect(),
    })
}

fn read_report(row: &Row) -> Result<StoredReport> {
    let number =
        |column| -> Result<u64> { Ok(from_int8(row.try_get(column).map_err(from_postgres)?)) };
    Ok(StoredReport {
        process: row.try_get("process").map_err(from_postgres)?,
        report: GenerationReport {
            member: MemberNumber(number("member")?),
            generation: number("generation")?,
            position: LogPosition(number("position")?),
            hash: read_hash(row)?,
        },
    })
}

fn read_hash(row: &Row) -> Result<ShortHash> {
    let text: String = row.try_get("hash").map_err(from_postgres)?;
    ShortHash::parse(&text)
        .ok_or_else(|| ClusterLogError::Refused(format!("{text:?} is no hash of a state")))
}

/// Numbers of the log are counted up from 0 and never reach 2⁶³.
fn from_int8(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn to_int8(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn in_time<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| ClusterLogError::Unavailable(format!("no answer in {ANSWER_TIMEOUT:?}"));
    tokio::time::timeout(ANSWER_TIMEOUT, work).await.map_err(late)?
}

/// Number of rows that one call returns, as the functions take it.
fn rows_max() -> i32 {
    i32::try_from(READ_RECORDS_MAX).unwrap_or(i32::MAX)
}

impl ClusterLog for PostgresLog {
    async fn append(&self, cursor: LogCursor, record: &[u8]) -> Result<LogRead> {
        let (bytes, max) = (record.len(), RECORD_BYTES_MAX);
        if bytes > max {
            return Err(ClusterLogError::RecordTooLarge { bytes, max });
        }
        let mut session = self.appender.lock().await;
        let answered = in_time(async {
            if session.as_ref().is_none_or(|session| session.client.is_closed()) {
                *session = Some(self.connect_appender().await?);
            }
            let (generation, after) = (to_int8(cursor.generation), to_int8(cursor.after.0));
            let rows = rows_max();
            query_repeated(
                session.as_ref(),
                &[&self.cluster, &generation, &after, &rows, &record, &self.channel],
            )
            .await
        });
        let answered = answered.await;
        if matches!(answered, Err(ClusterLogError::Unavailable(_))) {
            *session = None;
        }
        answered
    }

    async fn read(&self, cursor: LogCursor) -> Result<LogRead> {
        let mut session = self.reader.lock().await;
        let answered = in_time(async {
            if session.as_ref().is_none_or(|session| session.client.is_closed()) {
                *session = Some(self.connect_reader().await?);
            }
            let (generation, after) = (to_int8(cursor.generation), to_int8(cursor.after.0));
            let rows = rows_max();
            query_repeated(session.as_ref(), &[&self.cluster, &generation, &after, &rows]).await
        });
        let answered = answered.await;
        if matches!(answered, Err(ClusterLogError::Unavailable(_))) {
            *session = None;
        }
        answered
    }

    async fn changed(&self, cursor: LogCursor) {
        let is_open =
            self.reader.lock().await.as_ref().is_some_and(|session| !session.client.is_closed());
        if is_open {
            self.wake.changed(cursor).await;
        }
    }

    async fn prune(&self, generation: u64, up_to: LogPosition) -> Result<()> {
        let (generation, up_to) = (to_int8(generation), to_int8(up_to.0));
        self.query(PRUNE, &[&self.cluster, &generation, &up_to]).await.map(drop)
    }
}

impl GenerationStore for PostgresLog {
    async fn create(&self, first: &[u8]) -> Result<()> {
        let hash = snapshot_hash(first).to_string();
        self.query(CREATE, &[&self.cluster, &hash, &first]).await.map(drop)
    }

    async fn state(&self) -> Result<GenerationState> {
        let rows = self.query(STATE, &[&self.cluster]).await?;
        let row = rows
            .first()
            .ok_or_else(|| ClusterLogError::Refused("there is no such cluster".to_owned()))?;
        let generation: i64 = row.try_get(0).map_err(from_postgres)?;
        let ending: Option<i64> = row.try_get(1).map_err(from_postgres)?;
        let reports = match ending {
            Some(_) => self.query(REPORTS, &[&self.cluster, &generation]).await?,
            None => Vec::new(),
        };
        Ok(GenerationState {
            generation: from_int8(generation),
            ending_for: ending.map(|ms| Duration::from_millis(from_int8(ms))),
            reports: reports.iter().map(read_report).collect::<Result<_>>()?,
        })
    }

    async fn report(&self, report: &StoredReport) -> Result<()> {
        let GenerationReport { member, generation, position, hash } = report.report;
        let (member, generation) = (to_int8(member.0), to_int8(generation));
        let (position, hash) = (to_int8(position.0), hash.to_string());
        let values: [&(dyn ToSql + Sync); 7] =
            [&self.cluster, &report.process, &generation, &member, &position, &hash, &self.channel];
        self.query(REPORT, &values).await.map(drop)
    }

    async fn begin(&self, ended: u64, next: u64, base: &[u8]) -> Result<bool> {
        let (ended, next) = (to_int8(ended), to_int8(next));
        let hash = snapshot_hash(base).to_string();
        self.query_flag(BEGIN, &[&self.cluster, &ended, &next, &hash, &base, &self.channel]).await
    }

    async fn store_snapshot(&self, snapshot: &StoredSnapshot) -> Result<bool> {
        let generation = to_int8(snapshot.generation);
        let (position, hash) = (to_int8(snapshot.position.0), snapshot.hash.to_string());
        let values: [&(dyn ToSql + Sync); 5] =
            [&self.cluster, &generation, &position, &hash, &snapshot.bytes];
        self.query_flag(STORE_SNAPSHOT, &values).await
    }

    async fn newest_snapshot(&self, before: Option<LogPosition>) -> Result<Option<StoredSnapshot>> {
        let before = before.map(|position| to_int8(position.0));
        let rows = self.query(NEWEST_SNAPSHOT, &[&self.cluster, &before]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let number =
            |column| -> Result<u64> { Ok(from_int8(row.try_get(column).map_err(from_postgres)?)) };
        Ok(Some(StoredSnapshot {
            generation: number("generation")?,
            position: LogPosition(number("position")?),
            hash: read_hash(row)?,
            bytes: row.try_get("bytes").map_err(from_postgres)?,
        }))
    }
}
