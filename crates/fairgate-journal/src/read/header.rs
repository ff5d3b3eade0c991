//! Reads the first line of a journal, with the version of the format and the state from which the pool starts.

use fairgate_core::event::PoolConfig;
use fairgate_core::policy::{BusyThresholds, Policy};
use fairgate_core::units::{Micros, OverlapCredit};

use crate::clock::JournalClock;
use crate::error::JournalError;
use crate::journal_text_error::JournalTextError;
use crate::read::cursor::{JsonCursor, JsonKind};
use crate::read::number::{count, fraction, overlap_credit, tokens};
use crate::read::policy::policy;
use crate::read::snapshot::snapshot;
use crate::read::worker::workers;
use crate::start::JournalStart;

/// The version of the journal format that this crate reads and writes.
pub const VERSION: u64 = 1;

/// Name of the field of the first line that marks the file as a journal and states its version.
pub(crate) const VERSION_FIELD: &str = "fairgate_journal";

/// Edition of the scheduling rules by which this program decides. A journal's first line states the edition of its
/// writer in the field `machine`.
pub const EDITION: u64 = 3;

/// The values that a first line states.
pub(crate) struct JournalHeader {
    pub(crate) start: JournalStart,
    pub(crate) clock: Option<JournalClock>,
    pub(crate) machine: Option<u64>,
}

/// Name of the field for the snapshot's time. Every snapshot of the first edition of the rules has this field, and no
/// snapshot of another edition has it.
const FIRST_EDITION_FIELD: &str = "now";
const FIRST_EDITION: &str = "is of the first edition, whose counters mean something else. Start with a new state \
     file or journal: counters start at 0. The version that wrote this one can still read it";

const HEADER: &[&str] = &[VERSION_FIELD, "clock", "machine", "pool", "snapshot"];
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
    "overlap_credit",
];

/// Reads a policy from text of its own, on one line or many. `text` may hold a node, such as
/// `{"share":{"by":"tenant"}}`, or an object that contains a policy: a pool, or the whole first line of a journal.
///
/// The line of an error is counted within `text`, and the field of an error is the path from the top of `text`.
pub fn parse_policy(text: &str) -> Result<Policy, JournalError> {
    read_policy(text).map_err(|fault| JournalError::from_fault(fault, text, 1))
}

fn read_policy(text: &str) -> Result<Policy, JournalTextError> {
    let mut is_header = false;
    let mut is_pool = false;
    walk(text, |name, cursor| {
        is_header |= name == VERSION_FIELD;
        is_pool |= name == "policy";
        cursor.skip()
    })?;
    if is_header {
        return Ok(match header(text)?.start {
            JournalStart::Fresh(config) => config.policy,
            JournalStart::Snapshot(snapshot) => snapshot.policy,
        });
    }
    let mut cursor = JsonCursor::new(text);
    match is_pool {
        true => Ok(pool(&mut cursor)?.policy),
        false => policy(&mut cursor),
    }
}

/// Calls `each` for every field of the object that `text` consists of, and checks that the whole text is JSON. `each`
/// must read or skip the field's value.
pub(crate) fn walk<'a>(
    text: &'a str,
    each: impl FnMut(&str, &mut JsonCursor<'a>) -> Result<(), JournalTextError>,
) -> Result<(), JournalTextError> {
    let mut cursor = JsonCursor::new(text);
    cursor.map(each)?;
    cursor.end()
}

/// Reads the first line of a journal, with its version and the state from which the pool starts.
pub(crate) fn header(text: &str) -> Result<JournalHeader, JournalTextError> {
    // The version first, at any position: the other allowed fields depend on it.
    let mut version = None;
    walk(text, |name, cursor| match name {
        VERSION_FIELD => {
            version = Some(check_version(cursor)?);
            Ok(())
        }
        "snapshot" => check_edition(cursor),
        _ => cursor.skip(),
    })?;
    let mut cursor = JsonCursor::new(text);
    if version.is_none() {
        return Err(cursor.fault("is missing: not a journal").in_field(VERSION_FIELD));
    }
    let mut start = None;
    let mut stated_clock = None;
    let mut machine = None;
    cursor.object(HEADER, |field, cursor| {
        match field {
            VERSION_FIELD => return cursor.skip(),
            "clock" => stated_clock = Some(clock(cursor)?),
            "machine" => machine = Some(count(cursor)?),
            _ if start.is_some() => {
                return Err(cursor.fault("pool and snapshot exclude each other"));
            }
            "pool" => start = Some(JournalStart::Fresh(pool(cursor)?)),
            _ => start = Some(JournalStart::Snapshot(Box::new(snapshot(cursor)?))),
        }
        Ok(())
    })?;
    let start = start.ok_or_else(|| cursor.missing("pool"))?;
    Ok(JournalHeader { start, clock: stated_clock, machine })
}

fn clock(cursor: &mut JsonCursor<'_>) -> Result<JournalClock, JournalTextError> {
    let (mut at, mut unix_us) = (0, 0);
    cursor.record(CLOCK, 2, |field, cursor| {
        match field {
            "at" => at = count(cursor)?,
            _ => unix_us = count(cursor)?,
        }
        Ok(())
    })?;
    Ok(JournalClock { at: Micros(at), unix_us })
}

fn check_version(cursor: &mut JsonCursor<'_>) -> Result<(), JournalTextError> {
    let mark = cursor.mark();
    match count(cursor)? {
        VERSION => Ok(()),
        other => {
            let problem = format!("version {other} is not known; this program reads {VERSION}");
            Err(JournalTextError::new(mark, problem))
        }
    }
}

/// Skips a snapshot, and fails if it belongs to the first edition of the rules. Such a snapshot lacks several fields.
/// One error message covers all of them and says what to do.
fn check_edition(cursor: &mut JsonCursor<'_>) -> Result<(), JournalTextError> {
    let mark = cursor.mark();
    if cursor.kind()? != JsonKind::Object {
        return cursor.skip();
    }
    let mut is_first = false;
    cursor.map(|name, cursor| {
        is_first |= name == FIRST_EDITION_FIELD;
        cursor.skip()
    })?;
    match is_first {
        true => Err(JournalTextError::new(mark, FIRST_EDITION)),
        false => Ok(()),
    }
}

/// Reads the configuration of a pool from text of its own, as the first line of a journal states it in `pool`.
///
/// The line of an error is counted within `text`.
pub fn parse_pool_config(text: &str) -> Result<PoolConfig, JournalError> {
    let mut cursor = JsonCursor::new(text);
    let read = pool(&mut cursor).and_then(|config| cursor.end().map(|()| config));
    read.map_err(|fault| JournalError::from_fault(fault, text, 1))
}

fn pool(cursor: &mut JsonCursor<'_>) -> Result<PoolConfig, JournalTextError> {
    let mut capacity = None;
    let mut tree = None;
    let mut max_queue = None;
    let mut queue_timeout = None;
    let mut brownout_wait = None;
    let mut known_workers = Vec::new();
    let mut busy = BusyThresholds::default();
    let mut credit = OverlapCredit::DEFAULT;
    cursor.object(POOL, |field, cursor| {
        match field {
            "capacity" => capacity = Some(count(cursor)?),
            "policy" => tree = Some(policy(cursor)?),
            "max_queue" => max_queue = Some(count(cursor)?),
            "queue_timeout_us" => queue_timeout = Some(Micros(count(cursor)?)),
            "brownout_wait_us" => brownout_wait = Some(Micros(count(cursor)?)),
            "workers" => known_workers = workers(cursor)?,
            "busy_tokens" => busy.tokens = Some(tokens(cursor)?),
            "busy_fraction" => busy.fraction = Some(fraction(cursor)?),
            _ => credit = overlap_credit(cursor)?,
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
        overlap_credit: credit,
    })
}
