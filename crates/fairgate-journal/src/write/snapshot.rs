//! Writes a pool's whole state piece by piece, so that the text of a million waiting requests is never in memory at
//! once.

mod counters;
mod request;

use std::io::{self, Write};

use fairgate_core::event::WorkerChange;
use fairgate_core::snapshot::{RateLevelSnapshot, Snapshot, WorkersSnapshot};

use crate::clock::JournalClock;
use crate::write::event::flow;
use crate::write::header::{overlap_credit, version, worker};
use crate::write::json::JsonWriter;
use crate::write::policy::{busy, node};

/// Number of bytes that are collected before they are written to the output.
const PART_BYTES: usize = 64 << 10;

/// JSON text that is collected before it is written to the output `W`.
struct SnapshotOutput<'a, W> {
    json: &'a mut JsonWriter,
    output: &'a mut W,
}

impl<W: Write> SnapshotOutput<'_, W> {
    /// Writes the collected text to the output once it is long enough. Call this only after a complete value, when the
    /// next text will begin with a comma or a closing bracket.
    fn pass_on(&mut self) -> io::Result<()> {
        match self.json.as_str().len() < PART_BYTES {
            true => Ok(()),
            false => self.pass_on_all(),
        }
    }

    fn pass_on_all(&mut self) -> io::Result<()> {
        self.output.write_all(self.json.as_str().as_bytes())?;
        self.json.clear();
        Ok(())
    }
}

/// Writes the first line of a journal that starts from this snapshot. `json` must be empty, and is empty again
/// afterwards.
pub(crate) fn write(
    json: &mut JsonWriter,
    output: &mut impl Write,
    clock: Option<JournalClock>,
    snapshot: &Snapshot,
) -> io::Result<()> {
    check_workers(snapshot)?;
    let mut parts = SnapshotOutput { json, output };
    parts.json.open('{');
    version(parts.json, clock);
    parts.json.name("snapshot").open('{');
    pool(parts.json, snapshot);
    parts.json.name("requests").open('[');
    for each in &snapshot.requests {
        parts.json.element().object(|json| request::request(json, each));
        parts.pass_on()?;
    }
    parts.json.close(']');
    parts.json.name("root");
    counters::node(&mut parts, &snapshot.root)?;
    parts.json.close('}');
    parts.json.close('}');
    parts.json.end_line();
    parts.pass_on_all()
}

fn check_workers(snapshot: &Snapshot) -> io::Result<()> {
    let mut workers = snapshot.workers.iter().flat_map(|workers| &workers.list);
    match workers.find(|worker| !is_stated(&worker.settings)) {
        None => Ok(()),
        Some(worker) => {
            let problem =
                format!("worker {:?} of a snapshot must state all it is", worker.settings.name);
            Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
        }
    }
}

/// Returns true if a worker states every field that a snapshot needs, and none that only an event can have.
fn is_stated(worker: &WorkerChange) -> bool {
    worker.state.is_some()
        && worker.ranks.is_some()
        && worker.taints.is_some()
        && worker.tier.is_some()
        && worker.requests_per_minute.is_some()
        && worker.tokens_per_minute.is_some()
        && worker.burst_seconds.is_some()
        && worker.pause_until.is_some()
        && worker.requests_remaining.is_none()
        && worker.tokens_remaining.is_none()
}

/// Writes the fields of a snapshot that exist once per pool.
fn pool(json: &mut JsonWriter, snapshot: &Snapshot) {
    json.field("now_us", snapshot.now.0);
    json.field("ticks", snapshot.ticks.0);
    json.field("next_seq", snapshot.next_seq);
    json.field("grants", snapshot.grants);
    json.field("capacity", snapshot.capacity);
    node(json.name("policy"), snapshot.policy.root());
    json.optional("max_queue", snapshot.max_queue);
    json.optional("queue_timeout_us", snapshot.queue_timeout.map(|t| t.0));
    json.optional("brownout_wait_us", snapshot.brownout_wait.map(|t| t.0));
    busy(json, &snapshot.busy);
    overlap_credit(json, snapshot.overlap_credit);
    directives(json, snapshot);
    if let Some(it) = &snapshot.workers {
        json.name("workers").object(|json| workers(json, it));
    }
}

fn directives(json: &mut JsonWriter, snapshot: &Snapshot) {
    json.name("holds").list(&snapshot.holds, |json, (by, name)| {
        json.object(|json| flow(json, *by, name));
    });
    json.name("weights").list(&snapshot.weights, |json, (by, name, weight)| {
        json.object(|json| {
            flow(json, *by, name);
            json.field("weight", weight.get());
        });
    });
    json.name("caps").list(&snapshot.caps, |json, cap| {
        json.object(|json| {
            flow(json, cap.by, &cap.flow);
            json.optional("slots", cap.slots);
            counters::cap_use(json, cap.cap_use);
        });
    });
}

fn workers(json: &mut JsonWriter, workers: &WorkersSnapshot) {
    json.field("next_number", workers.next_number);
    json.name("list").list(&workers.list, |json, each| {
        json.object(|json| {
            json.field("number", each.number);
            json.text_field("name", &each.settings.name);
            if let Some(state) = each.settings.state {
                json.text_field("state", state.name());
            }
            worker(json, &each.settings);
            level(json, "requests_level", each.requests);
            level(json, "tokens_level", each.tokens);
            json.field("epochs", each.epochs);
            if !each.last_grants.is_empty() {
                json.name("last_grants").list(&each.last_grants, JsonWriter::display);
            }
        });
    });
}

/// Writes the level of a rate as a field; writes nothing for `None`.
fn level(json: &mut JsonWriter, name: &str, level: Option<RateLevelSnapshot>) {
    if let Some(level) = level {
        json.name(name).object(|json| {
            json.wide_field("units", level.level);
            json.field("epoch", level.epoch);
        });
    }
}
