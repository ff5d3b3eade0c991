//! The lines of a record.
//!
//! A line about a pool is a line of a journal without `at`, with the pool's name and the fields of
//! [`PoolLineFields`]. The other lines ([`ClusterLine`]) are about members, limits, workers'
//! health, the configuration and the log itself. No line contains a prompt, a request body or a
//! secret.

use std::sync::Arc;

use fairgate_core::event::{Event, WorkerState};
use fairgate_journal::{LogFieldValue, read_log_line, write_log_line};
use serde::{Deserialize, Serialize};

use crate::cluster_config::ClusterConfig;
use crate::limits::{CallerKind, CallerLimit};
use crate::units::{ClusterMicros, LogPosition, ShortHash};

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine {
    /// An event of one pool.
    Pool(PoolLine),
    /// A line about the cluster as a whole.
    Cluster(ClusterLine),
}

/// An event of one pool, with the additional fields of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLine {
    /// Name of the pool.
    pub pool: Arc<str>,
    /// The event. [`Event::Tick`] is not allowed, because [`ClusterLine::Tick`] applies to all
    /// pools.
    pub event: Event,
    /// The fields that a journal's line does not have.
    pub fields: PoolLineFields,
}

/// Fields of a pool's line that a line of a journal does not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolLineFields {
    /// Of a submit: size of the body in bytes, for the limits on queues.
    pub bytes: u64,
    /// Of a submit: tokens that the limits per minute count. `None` if they equal its cost.
    pub estimate: Option<u64>,
    /// Of a submit: maximum number of different agents, and of different sessions, that the
    /// request's key may name. `None` for no maximum.
    pub names_max: Option<u64>,
    /// Of a submit: true if the request is already running, because its member lost contact or its
    /// grant was lost. If the pool has it in flight, it keeps its slot. Otherwise it gets the next
    /// free slot before all other requests, and no limit refuses it.
    pub held: bool,
    /// Of a release: tokens that the limits per minute count. `None` if they equal the tokens of
    /// the release.
    pub charged: Option<u64>,
    /// Of a worker: time from now for which its provider accepts no requests; 0 ends the pause.
    pub pause_for: Option<ClusterMicros>,
    /// Of a weight or cap from the directory: version of the directory. The line is ignored if this
    /// version is older than one that the cluster has already seen.
    pub directory: Option<u64>,
}

/// A line about the cluster as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClusterLine {
    /// A process joins the cluster, or joins it again. The only line of its record.
    Join(Box<JoinLine>),
    /// The process has submitted again all its running and all its queued requests. Earlier
    /// requests that it did not name are ended.
    Ready {},
    /// The process is alive.
    Alive {
        /// Cluster time up to which the process has applied the log.
        applied_at: ClusterMicros,
        /// Version of the directory that the process has read.
        directory: u64,
    },
    /// The process leaves the cluster. The last line of its epoch.
    Leave {},
    /// An operator states that the processes of this name no longer run. Their slots are freed at once.
    Remove {
        /// Name of the member.
        name: Box<str>,
    },
    /// Advances time, and does nothing else.
    Tick {},
    /// The directory has a new version, which every member should read.
    Directory {
        /// Version of the directory.
        version: u64,
    },
    /// The limits of a tenant or key in the directory.
    Limit {
        /// Version of the directory. The line is ignored if this version is older than one that the
        /// cluster has already seen.
        version: u64,
        /// Kind of the limits' owner: tenant or key.
        owner: CallerKind,
        /// Name of the tenant, or id of the key.
        name: Arc<str>,
        /// The limits. If none is set, the account is removed with its counts.
        limit: CallerLimit,
    },
    /// An operator has reloaded the configuration of one member. It is now in force for the
    /// cluster.
    Reload {
        /// The configuration of the sender's file.
        config: Box<ClusterConfig>,
    },
    /// A member's opinion on a worker. It is valid until the member states another one or its epoch
    /// ends.
    Opinion {
        /// Name of the pool.
        pool: Arc<str>,
        /// Name of the worker.
        worker: Arc<str>,
        /// True if the worker answers this member.
        up: bool,
        /// If the worker is down, the time for which queued requests wait for it.
        wait: ClusterMicros,
    },
    /// A text for code outside of the machine, such as the rate limits that a provider reported.
    /// The machine passes it on in the order of the log, without parsing it.
    Publish {
        /// Topic. Readers use it to select the texts that they need.
        topic: Box<str>,
        /// Text, whose format depends on the topic. It must not contain a prompt, a request body or a secret.
        body: Box<str>,
    },
    /// A snapshot is due at this position.
    Mark {},
    /// The sender has stored a snapshot.
    SnapshotStored {
        /// Position of the mark.
        position: LogPosition,
        /// Hash of the snapshot's bytes.
        hash: ShortHash,
    },
    /// The rules of the next version apply from here on.
    Upgrade {
        /// The new version, which is that in force plus 1.
        to: u32,
    },
}

/// A process that joins the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinLine {
    /// Name of the member, such as that of its pod.
    pub name: Arc<str>,
    /// Id of the process. No other process ever has this id.
    pub process: Arc<str>,
    /// Number of this join. The process increments it for each join. A join is ignored unless its
    /// number is above that of the process's last accepted join.
    pub attempt: u64,
    /// The oldest and the newest version of the rules that the process knows.
    pub knows: (u32, u32),
    /// Address at which other members reach the process.
    pub address: Arc<str>,
    /// Version of the directory that the process has read.
    pub directory: u64,
    /// True if the process holds the lock of the spool of its name. This proves that no earlier process of this name
    /// still runs.
    pub spool_lock: bool,
    /// The configuration of the process's file.
    pub config: ClusterConfig,
}

/// Error for a text that this version cannot parse as a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a line of this log: {problem}")]
pub struct LineError {
    /// The rule that the line breaks.
    pub problem: String,
}

const OWN_FIELDS: &[&str] =
    &["pool", "bytes", "estimate", "names_max", "held", "charged", "pause_for_us", "directory"];

/// The beginning of every line about a pool.
const POOL_LINE: &str = r#"{"pool":"#;

impl LogLine {
    /// Parses one line, without its line end.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        if text.starts_with(POOL_LINE) {
            return PoolLine::parse(text).map(Self::Pool);
        }
        let line = serde_json::from_str(text);
        line.map(Self::Cluster).map_err(|error| LineError { problem: error.to_string() })
    }

    /// Appends the line, with its line end, to `out`.
    pub fn write(&self, out: &mut String) {
        match self {
            Self::Pool(line) => line.write(out),
            Self::Cluster(line) => {
                // This cannot fail, because all keys in a line are texts.
                out.push_str(&serde_json::to_string(line).unwrap_or_default());
                out.push('\n');
            }
        }
    }
}

impl PoolLine {
    /// Creates a line whose additional fields are absent.
    pub fn new(pool: &Arc<str>, event: Event) -> Self {
        Self { pool: pool.clone(), event, fields: PoolLineFields::default() }
    }

    fn parse(text: &str) -> Result<Self, LineError> {
        let mut pool = None;
        let mut fields = PoolLineFields::default();
        let mut wrong = None;
        let event = read_log_line(text, OWN_FIELDS, |name, value| match (name, value) {
            ("pool", LogFieldValue::Text(text)) => pool = Some(Arc::from(text)),
            ("held", LogFieldValue::Flag(held)) => fields.held = held,
            ("bytes", LogFieldValue::Count(count)) => fields.bytes = count,
            ("estimate", LogFieldValue::Count(count)) => fields.estimate = Some(count),
            ("names_max", LogFieldValue::Count(count)) => fields.names_max = Some(count),
            ("charged", LogFieldValue::Count(count)) => fields.charged = Some(count),
            ("pause_for_us", LogFieldValue::Count(count)) => {
                fields.pause_for = Some(ClusterMicros(count));
            }
            ("directory", LogFieldValue::Count(count)) => fields.directory = Some(count),
            (name, _) => wrong = Some(name),
        });
        let event = event.map_err(|error| LineError { problem: error.to_string() })?;
        if let Some(name) = wrong {
            return Err(LineError { problem: format!("field {name:?} is of the wrong kind") });
        }
        let pool = pool.ok_or_else(|| LineError { problem: "field \"pool\" is missing".into() })?;
        let line = Self { pool, event, fields };
        match line.misplaced() {
            Some(problem) => Err(LineError { problem: problem.into() }),
            None => Ok(line),
        }
    }

    /// Returns the reason why this event or one of its fields may not be in a log; `None` if all
    /// are allowed.
    fn misplaced(&self) -> Option<&'static str> {
        let PoolLineFields { bytes, estimate, names_max, held, charged, pause_for, directory } =
            &self.fields;
        let is_submit = matches!(self.event, Event::Submit(_));
        let of_submit = *bytes > 0 || estimate.is_some() || names_max.is_some() || *held;
        match &self.event {
            Event::Tick => Some("a tick is for all pools and has no pool"),
            Event::Worker(it) if it.pause_until.is_some() => {
                Some("a pause in a log is relative: `pause_for_us`")
            }
            Event::Worker(it) if it.state == Some(WorkerState::Gone) && pause_for.is_some() => {
                Some("a worker that is gone has no pause")
            }
            _ if of_submit && !is_submit => Some("a field of submits in another event"),
            event if charged.is_some() && !matches!(event, Event::Release { .. }) => {
                Some("`charged` is of releases alone")
            }
            event if pause_for.is_some() && !matches!(event, Event::Worker(_)) => {
                Some("`pause_for_us` is of workers alone")
            }
            event
                if directory.is_some()
                    && !matches!(event, Event::Weight { .. } | Event::Cap { .. }) =>
            {
                Some("`directory` is of weights and caps alone")
            }
            _ => None,
        }
    }

    fn write(&self, out: &mut String) {
        let PoolLineFields { bytes, estimate, names_max, held, charged, pause_for, directory } =
            &self.fields;
        let counts = [
            ("bytes", (*bytes > 0).then_some(*bytes)),
            ("estimate", *estimate),
            ("names_max", *names_max),
            ("charged", *charged),
            ("pause_for_us", pause_for.map(|span| span.0)),
            ("directory", *directory),
        ];
        let mut own = Vec::with_capacity(OWN_FIELDS.len());
        own.push(("pool", LogFieldValue::Text((&*self.pool).into())));
        if *held {
            own.push(("held", LogFieldValue::Flag(true)));
        }
        let stated = counts.into_iter().filter_map(|(name, count)| Some((name, count?)));
        own.extend(stated.map(|(name, count)| (name, LogFieldValue::Count(count))));
        write_log_line(out, &own, &self.event);
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::event::{Submit, WorkerChange};
    use fairgate_core::units::Micros;

    use super::*;

    fn round_trip(line: LogLine) {
        let mut text = String::new();
        line.write(&mut text);
        assert_eq!(LogLine::parse(text.trim_end()), Ok(line), "{text}");
    }

    #[test]
    fn lines_come_back_as_they_were_written() {
        let mut submit = PoolLine::new(&"llama".into(), Event::Submit(Box::new(Submit::new("r1"))));
        submit.fields = PoolLineFields {
            bytes: 2311,
            estimate: Some(7),
            names_max: Some(100),
            held: true,
            ..PoolLineFields::default()
        };
        round_trip(LogLine::Pool(submit));
        let worker = WorkerChange { name: "w".into(), ..WorkerChange::default() };
        let mut pause = PoolLine::new(&"llama".into(), Event::Worker(worker));
        pause.fields.pause_for = Some(ClusterMicros(5));
        round_trip(LogLine::Pool(pause));
        let limit = CallerLimit { requests_per_minute: Some(10), ..CallerLimit::default() };
        let lines = [
            ClusterLine::Alive { applied_at: ClusterMicros(u64::MAX), directory: 3 },
            ClusterLine::Ready {},
            ClusterLine::Limit { version: 7, owner: CallerKind::Key, name: "k".into(), limit },
            ClusterLine::SnapshotStored { position: LogPosition(9), hash: ShortHash([7; 8]) },
            ClusterLine::Publish { topic: "heard".into(), body: "{\"a\":1}".into() },
            ClusterLine::Reload { config: Box::default() },
        ];
        lines.into_iter().map(LogLine::Cluster).for_each(round_trip);
    }

    #[test]
    fn the_names_of_lines_are_those_of_the_format() {
        let mut text = String::new();
        LogLine::Cluster(ClusterLine::Alive { applied_at: ClusterMicros(5), directory: 1 })
            .write(&mut text);
        LogLine::Pool(PoolLine::new(&"llama".into(), Event::Cancel { id: "r".into() }))
            .write(&mut text);
        assert_eq!(
            text,
            "{\"event\":\"alive\",\"applied_at\":5,\"directory\":1}\n\
             {\"pool\":\"llama\",\"event\":\"cancel\",\"id\":\"r\"}\n"
        );
    }

    #[test]
    fn lines_are_read_strictly() {
        let bad = [
            (r#"{"pool":"p","event":"tick"}"#, "has no pool"),
            (r#"{"pool":"p","event":"cancel","id":"r","bytes":1}"#, "of submits in another"),
            (r#"{"pool":"p","event":"cancel","id":"r","charged":1}"#, "of releases alone"),
            (r#"{"pool":"p","event":"cancel","id":"r","directory":1}"#, "weights and caps"),
            (r#"{"pool":"p","event":"worker","name":"w","pause_until":1}"#, "is relative"),
            (r#"{"pool":"p","event":"cancel","id":"r","held":1}"#, "wrong kind"),
            (r#"{"pool":"p","at":1,"event":"cancel","id":"r"}"#, "no time of its own"),
            (r#"{"event":"alive","applied_at":5}"#, "missing field `directory`"),
            (r#"{"event":"alive","applied_at":5,"directory":1,"x":1}"#, "unknown field `x`"),
            (r#"{"event":"dance"}"#, "unknown variant `dance`"),
            ("", "EOF"),
        ];
        for (line, problem) in bad {
            let error = LogLine::parse(line).unwrap_err().to_string();
            assert!(error.contains(problem), "{line}: {error}");
        }
        let past = WorkerChange { pause_until: Some(Micros(1)), ..WorkerChange::default() };
        let line = PoolLine::new(&"p".into(), Event::Worker(past));
        assert!(line.misplaced().is_some());
    }
}
