//! The first line: what the journal is, and how its pool starts.

use fairgate_core::event::PoolConfig;
use fairgate_core::policy::{BusyThresholds, Policy};
use fairgate_core::units::Micros;

use crate::clock::Clock;
use crate::error::JournalError;
use crate::read::cursor::{Cursor, Kind};
use crate::read::fault::Fault;
use crate::read::number::{count, fraction, tokens};
use crate::read::policy::policy;
use crate::read::snapshot::snapshot;
use crate::read::worker::workers;
use crate::start::Start;

/// The version of the journal's form that this crate reads and writes.
pub const VERSION: u64 = 1;

/// The field of the first line that says that this is a journal, and of which version.
pub(crate) const VERSION_FIELD: &str = "fairgate_journal";

/// What the time was called in every snapshot of the first edition, and in none since.
const FIRST_EDITION_FIELD: &str = "now";
const FIRST_EDITION: &str = "is of the first edition, whose counters mean something else. Start with a new state \
     file or journal: counters start at 0. The version that wrote this one can still read it";

const HEADER: &[&str] = &[VERSION_FIELD, "clock", "pool", "snapshot"];
const CLOCK: &[&str] = &["at", "unix_us"];
const POOL: &[&str] = &[
    "capacity",
    "policy",
    "max_queue",
    "queue_timeout_us",
    "brownout_wait_us",
    "workers",
    "busy_tokens",
    "busy_fraction",
];

/// Reads a policy that stands by itself, on one line or many. `text` may hold a node, such as
/// `{"share":{"by":"tenant"}}`, or what has a policy in it: a pool, or the whole first line of a journal.
///
/// The error's line is the line of `text`, and its field the path from the top of `text`.
pub fn parse_policy(text: &str) -> Result<Policy, JournalError> {
    read_policy(text).map_err(|fault| JournalError::from_fault(fault, text, 1))
}

fn read_policy(text: &str) -> Result<Policy, Fault> {
    let mut is_header = false;
    let mut is_pool = false;
    walk(text, |name, cursor| {
        is_header |= name == VERSION_FIELD;
        is_pool |= name == "policy";
        cursor.skip()
    })?;
    if is_header {
        return Ok(match header(text)?.0 {
            Start::Fresh(config) => config.policy,
            Start::Snapshot(snapshot) => snapshot.policy,
        });
    }
    let mut cursor = Cursor::new(text);
    match is_pool {
        true => Ok(pool(&mut cursor)?.policy),
        false => policy(&mut cursor),
    }
}

/// Walks over the fields of the object that is all of `text`, checking that it is JSON from end to end.
/// `each` must pass over or read the value.
pub(crate) fn walk<'a>(
    text: &'a str,
    each: impl FnMut(&str, &mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut cursor = Cursor::new(text);
    cursor.map(each)?;
    cursor.end()
}

/// Reads a journal's first line.
pub(crate) fn header(text: &str) -> Result<(Start, Option<Clock>), Fault> {
    // The version first, wherever it stands: what else a header may hold depends on it.
    let mut version = None;
    walk(text, |name, cursor| match name {
        VERSION_FIELD => {
            version = Some(check_version(cursor)?);
            Ok(())
        }
        "snapshot" => check_edition(cursor),
        _ => cursor.skip(),
    })?;
    let mut cursor = Cursor::new(text);
    if version.is_none() {
        return Err(cursor.fault("is missing: not a journal").in_field(VERSION_FIELD));
    }
    let mut start = None;
    let mut stated_clock = None;
    cursor.object(HEADER, |field, cursor| {
        match field {
            VERSION_FIELD => return cursor.skip(),
            "clock" => stated_clock = Some(clock(cursor)?),
            _ if start.is_some() => {
                return Err(cursor.fault("pool and snapshot exclude each other"));
            }
            "pool" => start = Some(Start::Fresh(pool(cursor)?)),
            _ => start = Some(Start::Snapshot(Box::new(snapshot(cursor)?))),
        }
        Ok(())
    })?;
    Ok((start.ok_or_else(|| cursor.missing("pool"))?, stated_clock))
}

fn clock(cursor: &mut Cursor<'_>) -> Result<Clock, Fault> {
    let (mut at, mut unix_us) = (0, 0);
    cursor.record(CLOCK, 2, |field, cursor| {
        match field {
            "at" => at = count(cursor)?,
            _ => unix_us = count(cursor)?,
        }
        Ok(())
    })?;
    Ok(Clock { at: Micros(at), unix_us })
}

fn check_version(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let mark = cursor.mark();
    match count(cursor)? {
        VERSION => Ok(()),
        other => {
            let problem = format!("version {other} is not known; this program reads {VERSION}");
            Err(Fault::new(mark, problem))
        }
    }
}

/// Passes over a snapshot, but refuses one of the first edition of the rules. It would lack fields here and there; one
/// sentence says what to do about all of them.
fn check_edition(cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    let mark = cursor.mark();
    if cursor.kind()? != Kind::Object {
        return cursor.skip();
    }
    let mut is_first = false;
    cursor.map(|name, cursor| {
        is_first |= name == FIRST_EDITION_FIELD;
        cursor.skip()
    })?;
    match is_first {
        true => Err(Fault::new(mark, FIRST_EDITION)),
        false => Ok(()),
    }
}

fn pool(cursor: &mut Cursor<'_>) -> Result<PoolConfig, Fault> {
    let mut capacity = None;
    let mut tree = None;
    let mut max_queue = None;
    let mut queue_timeout = None;
    let mut brownout_wait = None;
    let mut known_workers = Vec::new();
    let mut busy = BusyThresholds::default();
    cursor.object(POOL, |field, cursor| {
        match field {
            "capacity" => capacity = Some(count(cursor)?),
            "policy" => tree = Some(policy(cursor)?),
            "max_queue" => max_queue = Some(count(cursor)?),
            "queue_timeout_us" => queue_timeout = Some(Micros(count(cursor)?)),
            "brownout_wait_us" => brownout_wait = Some(Micros(count(cursor)?)),
            "workers" => known_workers = workers(cursor)?,
            "busy_tokens" => busy.tokens = Some(tokens(cursor)?),
            _ => busy.fraction = Some(fraction(cursor)?),
        }
        Ok(())
    })?;
    Ok(PoolConfig {
        capacity: capacity.ok_or_else(|| cursor.missing("capacity"))?,
        policy: tree.ok_or_else(|| cursor.missing("policy"))?,
        max_queue,
        queue_timeout,
        brownout_wait,
        workers: known_workers,
        busy,
    })
}
