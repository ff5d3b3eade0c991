//! The requests of a snapshot.

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::snapshot::{FlightSnapshot, RequestSnapshot};
use fairgate_core::units::{Micros, TaskWeight, Ticks, Tokens};

use crate::read::cursor::Cursor;
use crate::read::event::{cached, pin};
use crate::read::fault::Fault;
use crate::read::number::{count, signed, small_count, task_weight, tokens};
use crate::read::worker::texts;

/// The fields of a request, those that must be there first; so too below.
const REQUEST: &[&str] = &[
    "id",
    "seq",
    "at",
    "tick",
    "cost",
    "input",
    "cached_best",
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
    "flight",
];
const FLIGHT: &[&str] = &["granted_at", "number", "prefill", "generations", "place"];
const PLACE: &[&str] = &["worker_number", "rank"];

/// Reads a request that waits or flies.
pub(super) fn request(cursor: &mut Cursor<'_>) -> Result<RequestSnapshot, Fault> {
    let mut request = blank();
    cursor.record(REQUEST, 9, |field, cursor| {
        match field {
            "id" => request.id = cursor.text()?.into(),
            "seq" => request.seq = count(cursor)?,
            "at" => request.at = Micros(count(cursor)?),
            "tick" => request.tick = Ticks(count(cursor)?),
            "cost" => request.cost = tokens(cursor)?,
            "input" => request.input = tokens(cursor)?,
            "cached_best" => request.cached_best = tokens(cursor)?,
            "priority" => request.priority = signed(cursor)?,
            "weight" => request.weight = task_weight(cursor)?,
            "cached" => request.cached = cached(cursor)?,
            "pin" => request.pin = Some(pin(cursor)?),
            "allow" => request.allow = Some(texts(cursor)?),
            "requires" => request.requires = texts(cursor)?,
            "flight" => request.flight = Some(flight(cursor)?),
            _ => {
                if let Some(attribute) = Attribute::from_name(field) {
                    request.attributes.set(attribute, cursor.text()?.into());
                }
            }
        }
        Ok(())
    })?;
    Ok(request)
}

fn blank() -> RequestSnapshot {
    RequestSnapshot {
        id: Box::default(),
        attributes: Attributes::none(),
        seq: 0,
        at: Micros(0),
        tick: Ticks(0),
        cost: Tokens(0),
        input: Tokens(0),
        cached_best: Tokens(0),
        priority: 0,
        weight: TaskWeight::ONE,
        cached: Vec::new(),
        pin: None,
        allow: None,
        requires: Vec::new(),
        flight: None,
    }
}

fn flight(cursor: &mut Cursor<'_>) -> Result<FlightSnapshot, Fault> {
    let mut flight = FlightSnapshot {
        granted_at: Micros(0),
        number: 0,
        generations: None,
        place: None,
        prefill: Tokens(0),
    };
    cursor.record(FLIGHT, 3, |field, cursor| {
        match field {
            "granted_at" => flight.granted_at = Micros(count(cursor)?),
            "number" => flight.number = count(cursor)?,
            "prefill" => flight.prefill = tokens(cursor)?,
            "generations" => flight.generations = Some(cursor.list(count)?),
            _ => flight.place = Some(place(cursor)?),
        }
        Ok(())
    })?;
    Ok(flight)
}

fn place(cursor: &mut Cursor<'_>) -> Result<(u32, u32), Fault> {
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
