//! Reads the requests of a snapshot.

use std::sync::Arc;

use fairgate_core::attribute::Attributes;
use fairgate_core::snapshot::{InFlightSnapshot, RequestSnapshot};
use fairgate_core::units::{Micros, TaskWeight, Ticks, Tokens};

use crate::journal_text_error::JournalTextError;
use crate::read::cursor::JsonCursor;
use crate::read::event::{AttributeTexts, cached, pin};
use crate::read::number::{count, signed, signed_wide, small_count, task_weight, tokens};
use crate::read::worker::texts;

/// The fields of a request. In this list and the ones below, required fields come first.
const REQUEST: &[&str] = &[
    "handle",
    "id",
    "seq",
    "at",
    "tick",
    "cost",
    "input",
    "cached_best_tokens",
    "quota",
    "priority",
    "weight",
    "class",
    "tenant",
    "group",
    "key",
    "agent",
    "project",
    "session",
    "cached",
    "pin",
    "allow",
    "requires",
    "timeout_us",
    "flight",
];
const FLIGHT: &[&str] =
    &["granted_at_us", "number", "prefill_tokens", "generations", "place", "taken"];
const PLACE: &[&str] = &["worker_number", "rank"];
const TAKEN: &[&str] = &["epoch", "units"];

/// Reads a request that is queued or in flight.
pub(super) fn request(cursor: &mut JsonCursor<'_>) -> Result<RequestSnapshot, JournalTextError> {
    let mut request = blank();
    let mut texts_by_attribute = AttributeTexts::default();
    cursor.record(REQUEST, 11, |field, cursor| {
        match field {
            "handle" => request.handle = small_count(cursor, u32::MAX)?,
            "id" => request.id = cursor.text()?.into(),
            "seq" => request.seq = count(cursor)?,
            "at" => request.at = Micros(count(cursor)?),
            "tick" => request.tick = Ticks(count(cursor)?),
            "cost" => request.cost = tokens(cursor)?,
            "input" => request.input = tokens(cursor)?,
            "cached_best_tokens" => request.cached_best = tokens(cursor)?,
            "quota" => request.quota = tokens(cursor)?,
            "priority" => request.priority = signed(cursor)?,
            "weight" => request.weight = task_weight(cursor)?,
            "cached" => request.cached = cached(cursor)?,
            "pin" => request.pin = Some(pin(cursor)?),
            "allow" => request.allow = Some(texts(cursor)?),
            "requires" => request.requires = texts(cursor)?,
            "timeout_us" => request.timeout = Some(Micros(count(cursor)?)),
            "flight" => request.flight = Some(flight(cursor)?),
            _ => texts_by_attribute.read(field, cursor)?,
        }
        Ok(())
    })?;
    request.attributes = texts_by_attribute.pack();
    Ok(request)
}

fn blank() -> RequestSnapshot {
    RequestSnapshot {
        handle: 0,
        id: Arc::default(),
        attributes: Attributes::none(),
        seq: 0,
        at: Micros(0),
        tick: Ticks(0),
        cost: Tokens(0),
        input: Tokens(0),
        cached_best: Tokens(0),
        quota: Tokens(0),
        priority: 0,
        timeout: None,
        weight: TaskWeight::ONE,
        cached: Vec::new(),
        pin: None,
        allow: None,
        requires: Vec::new(),
        flight: None,
    }
}

fn flight(cursor: &mut JsonCursor<'_>) -> Result<InFlightSnapshot, JournalTextError> {
    let mut flight = InFlightSnapshot {
        granted_at: Micros(0),
        number: 0,
        generations: None,
        place: None,
        prefill: Tokens(0),
        taken: None,
    };
    cursor.record(FLIGHT, 3, |field, cursor| {
        match field {
            "granted_at_us" => flight.granted_at = Micros(count(cursor)?),
            "number" => flight.number = count(cursor)?,
            "prefill_tokens" => flight.prefill = tokens(cursor)?,
            "generations" => flight.generations = Some(cursor.list(count)?),
            "place" => flight.place = Some(place(cursor)?),
            _ => flight.taken = Some(taken(cursor)?),
        }
        Ok(())
    })?;
    Ok(flight)
}

fn place(cursor: &mut JsonCursor<'_>) -> Result<(u32, u32), JournalTextError> {
    let (mut worker, mut rank) = (0, 0);
    cursor.record(PLACE, 2, |field, cursor| {
        match field {
            "worker_number" => worker = small_count(cursor, u32::MAX)?,
            _ => rank = small_count(cursor, u32::MAX)?,
        }
        Ok(())
    })?;
    Ok((worker, rank))
}

fn taken(cursor: &mut JsonCursor<'_>) -> Result<(u64, i128), JournalTextError> {
    let (mut epoch, mut units) = (0, 0);
    cursor.record(TAKEN, 2, |field, cursor| {
        match field {
            "epoch" => epoch = count(cursor)?,
            _ => units = signed_wide(cursor)?,
        }
        Ok(())
    })?;
    Ok((epoch, units))
}
