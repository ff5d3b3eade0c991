//! Reads workers, both from the worker event and from the list in the first line.

use std::collections::BTreeSet;

use fairgate_core::event::{MAX_RANKS, WorkerChange, WorkerState};
use fairgate_core::units::Micros;

use crate::journal_text_error::{JournalTextError, printable};
use crate::read::cursor::JsonCursor;
use crate::read::number::{burst_seconds, count, per_minute, small_count, tokens};

/// The fields of a worker in the first line. The worker event also has `at`, `event` and `state`.
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

/// Reads one field of a worker, including `state`, which only the worker event has.
pub(crate) fn field(
    worker: &mut WorkerChange,
    field: &str,
    cursor: &mut JsonCursor<'_>,
) -> Result<(), JournalTextError> {
    match field {
        "name" => worker.name = cursor.text()?.into(),
        "state" => worker.state = Some(state(cursor)?),
        "ranks" => worker.ranks = Some(small_count(cursor, MAX_RANKS)?),
        "slots" => worker.slots = Some(count(cursor)?),
        "taints" => worker.taints = Some(texts(cursor)?),
        "batch_tokens" => worker.batch_tokens = Some(tokens(cursor)?),
        "tier" => worker.tier = Some(count(cursor)?),
        // `null` removes a rate.
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

/// Reads the list of workers in the first line; fails if a worker is named twice.
pub(crate) fn workers(cursor: &mut JsonCursor<'_>) -> Result<Vec<WorkerChange>, JournalTextError> {
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
            return Err(JournalTextError::new(mark, problem).in_field("name"));
        }
        Ok(worker)
    })
}

/// Reads a list of texts, such as taints.
pub(crate) fn texts(cursor: &mut JsonCursor<'_>) -> Result<Vec<Box<str>>, JournalTextError> {
    cursor.list(|cursor| Ok(cursor.text()?.into()))
}

fn state(cursor: &mut JsonCursor<'_>) -> Result<WorkerState, JournalTextError> {
    cursor.one_of(WorkerState::ALL.map(|s| (s.name(), s)))
}
