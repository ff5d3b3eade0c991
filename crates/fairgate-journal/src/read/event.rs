//! Reads the events of a journal, one line each.

use std::borrow::Cow;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, Pin, Submit, WorkerChange};
use fairgate_core::units::{Micros, TaskWeight, Tokens};

use crate::journal_text_error::JournalTextError;
use crate::read::cursor::JsonCursor;
use crate::read::header::walk;
use crate::read::number::{count, signed, small_count, task_weight, tokens, weight};
use crate::read::policy::{attribute, policy};
use crate::read::worker::{self, texts};

/// The fields of each kind of event. They include `at` and `event`, which all events have and which [`fields`] skips.
const TICK: &[&str] = &["at", "event"];
const ID: &[&str] = &["at", "event", "id"];
const RELEASE: &[&str] = &["at", "event", "id", "tokens", "quota"];
const FLOW: &[&str] = &["at", "event", "by", "flow"];
const WEIGHT: &[&str] = &["at", "event", "by", "flow", "weight"];
const CAP: &[&str] = &["at", "event", "by", "flow", "slots"];
const CAPACITY: &[&str] = &["at", "event", "slots"];
const POLICY: &[&str] = &["at", "event", "policy"];
const WORKER: &[&str] = &[
    "at",
    "event",
    "name",
    "state",
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
const SUBMIT: &[&str] = &[
    "at",
    "event",
    "id",
    "class",
    "tenant",
    "group",
    "key",
    "agent",
    "project",
    "session",
    "cost",
    "priority",
    "weight",
    "input",
    "cached",
    "pin",
    "allow",
    "requires",
    "quota",
    "timeout_us",
];
const PIN: &[&str] = &["worker", "rank"];

/// A function that reads the fields of one kind of event from the line of the event.
type EventReader = fn(&mut JsonCursor<'_>) -> Result<Event, JournalTextError>;

/// The function that reads each kind of event, by the event's name.
const EVENTS: [(&str, EventReader); 12] = [
    ("submit", submit),
    ("release", release),
    ("cancel", cancel),
    ("first_token", first_token),
    ("tick", tick),
    ("hold", hold),
    ("resume", resume),
    ("capacity", capacity),
    ("weight", flow_weight),
    ("cap", flow_cap),
    ("policy", new_policy),
    ("worker", worker_change),
];

/// Reads the line of an event, and returns its time and the event.
pub(crate) fn event(text: &str) -> Result<(Micros, Event), JournalTextError> {
    let mut at = None;
    let mut read = None;
    walk(text, |name, cursor| {
        match name {
            "at" => at = Some(Micros(count(cursor)?)),
            "event" => read = Some(cursor.one_of(EVENTS)?),
            _ => cursor.skip()?,
        }
        Ok(())
    })?;
    let mut cursor = JsonCursor::new(text);
    let at = at.ok_or_else(|| cursor.missing("at"))?;
    let read = read.ok_or_else(|| cursor.missing("event"))?;
    Ok((at, read(&mut cursor)?))
}

/// Reads the line of an event in a log, which has no `at`. `own` names the fields that the log adds to events; `each`
/// must read the value of each that the line has.
pub(crate) fn untimed_event<'a>(
    text: &'a str,
    own: &'static [&'static str],
    mut each: impl FnMut(&'static str, &mut JsonCursor<'a>) -> Result<(), JournalTextError>,
) -> Result<Event, JournalTextError> {
    let mut read = None;
    let mut seen = 0u64;
    walk(text, |name, cursor| {
        match name {
            "at" => return Err(cursor.fault("unknown: a line of a log has no time of its own")),
            "event" => read = Some(cursor.one_of(EVENTS)?),
            _ => match own.iter().position(|known| *known == name) {
                Some(i) if seen & 1 << i != 0 => return Err(cursor.fault("given twice")),
                Some(i) => {
                    seen |= 1 << i;
                    each(own[i], cursor)?;
                }
                None => cursor.skip()?,
            },
        }
        Ok(())
    })?;
    let mut cursor = JsonCursor::new(text).with_fields_read_before(own);
    let read = read.ok_or_else(|| cursor.missing("event"))?;
    read(&mut cursor)
}

/// Reads the fields of one event, except `at` and `event`, which all events share.
fn fields<'a>(
    cursor: &mut JsonCursor<'a>,
    known: &'static [&'static str],
    mut each: impl FnMut(&'static str, &mut JsonCursor<'a>) -> Result<(), JournalTextError>,
) -> Result<(), JournalTextError> {
    cursor.object(known, |field, cursor| match field {
        "at" | "event" => cursor.skip(),
        _ => each(field, cursor),
    })
}

fn submit(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    let mut id = None;
    let mut texts_by_attribute = AttributeTexts::default();
    let mut submit = blank();
    fields(cursor, SUBMIT, |field, cursor| {
        match field {
            "id" => id = Some(cursor.text()?.into()),
            "cost" => submit.cost = Some(tokens(cursor)?),
            "priority" => submit.priority = signed(cursor)?,
            "weight" => submit.weight = task_weight(cursor)?,
            "input" => submit.input = Some(tokens(cursor)?),
            "cached" => submit.cached = cached(cursor)?,
            "pin" => submit.pin = Some(pin(cursor)?),
            "allow" => submit.allow = Some(texts(cursor)?),
            "requires" => submit.requires = texts(cursor)?,
            "quota" => submit.quota = Some(tokens(cursor)?),
            "timeout_us" => submit.timeout = Some(Micros(count(cursor)?)),
            _ => texts_by_attribute.read(field, cursor)?,
        }
        Ok(())
    })?;
    submit.id = id.ok_or_else(|| cursor.missing("id"))?;
    submit.attributes = texts_by_attribute.pack();
    Ok(Event::Submit(Box::new(submit)))
}

/// Creates a submit with default fields. Unlike [`Submit::new`], this allocates nothing.
fn blank() -> Submit {
    Submit {
        id: Arc::default(),
        attributes: Attributes::none(),
        cost: None,
        priority: 0,
        weight: TaskWeight::ONE,
        input: None,
        cached: Vec::new(),
        pin: None,
        allow: None,
        requires: Vec::new(),
        quota: None,
        timeout: None,
    }
}

/// The texts of a request's attributes, collected so that they are packed only once.
#[derive(Default)]
pub(crate) struct AttributeTexts<'a>([Option<Cow<'a, str>>; Attribute::ALL.len()]);

impl<'a> AttributeTexts<'a> {
    /// Reads the value of the attribute whose name is the name of the field.
    pub(crate) fn read(
        &mut self,
        field: &str,
        cursor: &mut JsonCursor<'a>,
    ) -> Result<(), JournalTextError> {
        match Attribute::from_name(field) {
            Some(attribute) => self.0[attribute as usize] = Some(cursor.text()?),
            None => cursor.skip()?,
        }
        Ok(())
    }

    /// Returns the attributes that were read.
    pub(crate) fn pack(&self) -> Attributes {
        Attributes::of(self.0.each_ref().map(Option::as_deref))
    }
}

/// Reads the cached tokens of a request; fails if a worker is named twice.
pub(crate) fn cached(
    cursor: &mut JsonCursor<'_>,
) -> Result<Vec<(Arc<str>, Tokens)>, JournalTextError> {
    let mark = cursor.mark();
    let mut cached: Vec<(Arc<str>, Tokens)> = Vec::new();
    cursor.map(|worker, cursor| {
        cached.push((worker.into(), tokens(cursor)?));
        Ok(())
    })?;
    match repeated(cached.iter().map(|(worker, _)| &**worker).collect()) {
        Some(worker) => Err(JournalTextError::new(mark, "given twice").in_field(worker)),
        None => Ok(cached),
    }
}

/// Returns the lowest of the keys that occurs more than once; `None` if all are different.
pub(crate) fn repeated<K: Ord + Copy>(mut keys: Vec<K>) -> Option<K> {
    keys.sort_unstable();
    keys.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// Reads a pin, which names a worker and optionally a rank.
pub(crate) fn pin(cursor: &mut JsonCursor<'_>) -> Result<Pin, JournalTextError> {
    let mut worker = None;
    let mut rank = None;
    cursor.object(PIN, |field, cursor| {
        match field {
            "worker" => worker = Some(cursor.text()?.into()),
            _ => rank = Some(small_count(cursor, u32::MAX)?),
        }
        Ok(())
    })?;
    Ok(Pin { worker: worker.ok_or_else(|| cursor.missing("worker"))?, rank })
}

fn release(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    let mut id = None;
    let mut used = None;
    let mut quota = None;
    fields(cursor, RELEASE, |field, cursor| {
        match field {
            "id" => id = Some(cursor.text()?.into()),
            "tokens" => used = Some(tokens(cursor)?),
            _ => quota = Some(tokens(cursor)?),
        }
        Ok(())
    })?;
    Ok(Event::Release { id: id.ok_or_else(|| cursor.missing("id"))?, tokens: used, quota })
}

fn only_id(cursor: &mut JsonCursor<'_>) -> Result<Arc<str>, JournalTextError> {
    let mut id = None;
    fields(cursor, ID, |_, cursor| {
        id = Some(cursor.text()?.into());
        Ok(())
    })?;
    id.ok_or_else(|| cursor.missing("id"))
}

fn cancel(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    Ok(Event::Cancel { id: only_id(cursor)? })
}

fn first_token(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    Ok(Event::FirstToken { id: only_id(cursor)? })
}

fn tick(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    fields(cursor, TICK, |_, cursor| cursor.skip())?;
    Ok(Event::Tick)
}

/// Reads an event about a flow. `value` reads the event's additional field.
fn flow<'a, T>(
    cursor: &mut JsonCursor<'a>,
    known: &'static [&'static str],
    value: impl Fn(&mut JsonCursor<'a>) -> Result<T, JournalTextError>,
) -> Result<(Attribute, Box<str>, Option<T>), JournalTextError> {
    let mut by = None;
    let mut flow: Option<Cow<'a, str>> = None;
    let mut besides = None;
    fields(cursor, known, |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "flow" => flow = Some(cursor.text()?),
            _ => besides = Some(value(cursor)?),
        }
        Ok(())
    })?;
    let by = by.ok_or_else(|| cursor.missing("by"))?;
    let flow = flow.ok_or_else(|| cursor.missing("flow"))?;
    Ok((by, flow.into(), besides))
}

fn hold(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    flow(cursor, FLOW, JsonCursor::skip).map(|(by, flow, _)| Event::Hold { by, flow })
}

fn resume(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    flow(cursor, FLOW, JsonCursor::skip).map(|(by, flow, _)| Event::Resume { by, flow })
}

fn flow_weight(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    let (by, flow, weight) = flow(cursor, WEIGHT, weight)?;
    Ok(Event::Weight { by, flow, weight: weight.ok_or_else(|| cursor.missing("weight"))? })
}

fn flow_cap(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    flow(cursor, CAP, count).map(|(by, flow, slots)| Event::Cap { by, flow, slots })
}

fn capacity(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    let mut slots = None;
    fields(cursor, CAPACITY, |_, cursor| {
        slots = Some(count(cursor)?);
        Ok(())
    })?;
    Ok(Event::Capacity { slots: slots.ok_or_else(|| cursor.missing("slots"))? })
}

fn new_policy(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    let mut tree = None;
    fields(cursor, POLICY, |_, cursor| {
        tree = Some(policy(cursor)?);
        Ok(())
    })?;
    Ok(Event::Policy(tree.ok_or_else(|| cursor.missing("policy"))?))
}

fn worker_change(cursor: &mut JsonCursor<'_>) -> Result<Event, JournalTextError> {
    let mut worker = WorkerChange::default();
    let mut named = false;
    fields(cursor, WORKER, |field, cursor| {
        named |= field == "name";
        worker::field(&mut worker, field, cursor)
    })?;
    match named {
        true => Ok(Event::Worker(worker)),
        false => Err(cursor.missing("name")),
    }
}
