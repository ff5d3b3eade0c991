//! Reads from a snapshot the holds, weights and caps that events have set. Each list may name a flow only once.

use fairgate_core::attribute::Attribute;
use fairgate_core::snapshot::{CapSnapshot, CapUseSnapshot};
use fairgate_core::units::Weight;

use crate::journal_text_error::{JournalTextError, printable};
use crate::read::cursor::JsonCursor;
use crate::read::event::repeated;
use crate::read::number::{count, weight};
use crate::read::policy::attribute;
use crate::read::snapshot::counters::cap_use;

const HOLD: &[&str] = &["by", "flow"];
const WEIGHT: &[&str] = &["by", "flow", "weight"];
const CAP: &[&str] = &["by", "flow", "cap_use", "slots"];

/// Reads the flows that are held.
pub(super) fn holds(
    cursor: &mut JsonCursor<'_>,
) -> Result<Vec<(Attribute, Box<str>)>, JournalTextError> {
    let mark = cursor.mark();
    let holds = cursor.list(|cursor| flow(cursor, HOLD, 2, |_, cursor| cursor.skip()))?;
    no_flow_twice(mark, holds.iter().map(|(by, flow)| (*by, &**flow)).collect())?;
    Ok(holds)
}

/// Reads the weights that events have set.
pub(super) fn weights(
    cursor: &mut JsonCursor<'_>,
) -> Result<Vec<(Attribute, Box<str>, Weight)>, JournalTextError> {
    let mark = cursor.mark();
    let weights = cursor.list(|cursor| {
        let mut value = None;
        let (by, flow) = flow(cursor, WEIGHT, 3, |_, cursor| {
            value = Some(weight(cursor)?);
            Ok(())
        })?;
        Ok((by, flow, value.ok_or_else(|| cursor.missing("weight"))?))
    })?;
    no_flow_twice(mark, weights.iter().map(|(by, flow, _)| (*by, &**flow)).collect())?;
    Ok(weights)
}

/// Reads the caps that events have set.
pub(super) fn caps(cursor: &mut JsonCursor<'_>) -> Result<Vec<CapSnapshot>, JournalTextError> {
    let mark = cursor.mark();
    let caps = cursor.list(|cursor| {
        let mut slots = None;
        let mut used = CapUseSnapshot::default();
        let (by, flow) = flow(cursor, CAP, 3, |field, cursor| {
            match field {
                "cap_use" => used = cap_use(cursor)?,
                _ => slots = Some(count(cursor)?),
            }
            Ok(())
        })?;
        Ok(CapSnapshot { by, flow, slots, cap_use: used })
    })?;
    no_flow_twice(mark, caps.iter().map(|cap| (cap.by, &*cap.flow)).collect())?;
    Ok(caps)
}

/// Reads the attribute and the name of a flow. `besides` reads the other fields of the object.
fn flow<'a>(
    cursor: &mut JsonCursor<'a>,
    known: &'static [&'static str],
    required: usize,
    mut besides: impl FnMut(&'static str, &mut JsonCursor<'a>) -> Result<(), JournalTextError>,
) -> Result<(Attribute, Box<str>), JournalTextError> {
    let mut by = None;
    let mut flow = Box::default();
    cursor.record(known, required, |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "flow" => flow = cursor.text()?.into(),
            _ => besides(field, cursor)?,
        }
        Ok(())
    })?;
    Ok((by.ok_or_else(|| cursor.missing("by"))?, flow))
}

fn no_flow_twice(mark: usize, flows: Vec<(Attribute, &str)>) -> Result<(), JournalTextError> {
    match repeated(flows) {
        None => Ok(()),
        Some((by, flow)) => {
            let flow = printable(flow);
            Err(JournalTextError::new(mark, format!("{} \"{flow}\" is listed twice", by.name())))
        }
    }
}
