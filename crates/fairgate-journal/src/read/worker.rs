//! Workers: the worker event, and the list in the header.

use std::collections::BTreeSet;

use fairgate_core::event::{MAX_RANKS, WorkerChange, WorkerState};
use fairgate_core::units::Micros;

use crate::read::cursor::Cursor;
use crate::read::fault::{Fault, printable};
use crate::read::number::{burst_seconds, count, per_minute, small_count, tokens};

/// The fields of a worker in the header. The worker event has `at`, `event` and `state` besides.
const FIELDS: &[&str] = &[
    "name",
    "ranks",
    "slots",
    "taints",
    "batch_tokens",
    "tier",
    "requests_per_minute",
    "tokens_per_minute",
    "burst_seconds",
    "requests_remaining",
    "tokens_remaining",
    "pause_until",
];

/// Reads one field of a worker, of those that both forms have, and `state`.
pub(crate) fn field(
    worker: &mut WorkerChange,
    field: &str,
    cursor: &mut Cursor<'_>,
) -> Result<(), Fault> {
    match field {
        "name" => worker.name = cursor.text()?.into(),
        "state" => worker.state = Some(state(cursor)?),
        "ranks" => worker.ranks = Some(small_count(cursor, MAX_RANKS)?),
        "slots" => worker.slots = Some(count(cursor)?),
        "taints" => worker.taints = Some(texts(cursor)?),
        "batch_tokens" => worker.batch_tokens = Some(tokens(cursor)?),
        "tier" => worker.tier = Some(count(cursor)?),
        // null takes a rate away.
        "requests_per_minute" => worker.requests_per_minute = Some(cursor.nullable(per_minute)?),
        "tokens_per_minute" => worker.tokens_per_minute = Some(cursor.nullable(per_minute)?),
        "burst_seconds" => worker.burst_seconds = Some(burst_seconds(cursor)?),
        "requests_remaining" => worker.requests_remaining = Some(count(cursor)?),
        "tokens_remaining" => worker.tokens_remaining = Some(count(cursor)?),
        "pause_until" => worker.pause_until = Some(Micros(count(cursor)?)),
        _ => cursor.skip()?,
    }
    Ok(())
}

/// Reads the header's list of workers, each named once.
pub(crate) fn workers(cursor: &mut Cursor<'_>) -> Result<Vec<WorkerChange>, Fault> {
    let mut names = BTreeSet::new();
    cursor.list(|cursor| {
        let mut worker = WorkerChange::default();
        let mut named = None;
        cursor.object(FIELDS, |name, cursor| {
            if name == "name" {
                named = Some(cursor.mark());
            }
            field(&mut worker, name, cursor)
        })?;
        let Some(mark) = named else { return Err(cursor.missing("name")) };
        if !names.insert(worker.name.clone()) {
            let problem = format!("worker \"{}\" is listed twice", printable(&worker.name));
            return Err(Fault::new(mark, problem).in_field("name"));
        }
        Ok(worker)
    })
}

/// Reads a list of text.
pub(crate) fn texts(cursor: &mut Cursor<'_>) -> Result<Vec<Box<str>>, Fault> {
    cursor.list(|cursor| Ok(cursor.text()?.into()))
}

fn state(cursor: &mut Cursor<'_>) -> Result<WorkerState, Fault> {
    cursor.one_of(WorkerState::ALL.map(|s| (s.name(), s)))
}
