//! Reads a pool's whole state, which is in the first line of a journal that continues another one.

mod counters;
mod directives;
mod request;

use fairgate_core::policy::BusyThresholds;
use fairgate_core::snapshot::{RateLevelSnapshot, Snapshot, WorkerSnapshot, WorkersSnapshot};
use fairgate_core::units::{Micros, OverlapCredit, Ticks};

use crate::journal_text_error::JournalTextError;
use crate::read::cursor::JsonCursor;
use crate::read::number::{count, fraction, overlap_credit, signed_wide, small_count, tokens};
use crate::read::policy::policy;
use crate::read::snapshot::directives::{caps, holds, weights};
use crate::read::worker;

/// The fields of a snapshot. In this list and the ones below, required fields come first.
const SNAPSHOT: &[&str] = &[
    "now_us",
    "ticks",
    "next_seq",
    "grants",
    "capacity",
    "policy",
    "holds",
    "weights",
    "caps",
    "requests",
    "root",
    "max_queue",
    "queue_timeout_us",
    "brownout_wait_us",
    "busy_tokens",
    "busy_fraction",
    "overlap_credit",
    "workers",
];
const WORKERS: &[&str] = &["next_number", "list"];
const WORKER: &[&str] = &[
    "number",
    "epochs",
    "name",
    "state",
    "ranks",
    "taints",
    "tier",
    "requests_per_minute",
    "tokens_per_minute",
    "burst_seconds",
    "pause_until",
    "slots",
    "batch_tokens",
    "requests_level",
    "tokens_level",
    "last_grants",
];
const LEVEL: &[&str] = &["units", "epoch"];

/// Reads a snapshot. The core checks later that it describes a valid pool.
pub(crate) fn snapshot(cursor: &mut JsonCursor<'_>) -> Result<Snapshot, JournalTextError> {
    let (mut now, mut ticks, mut next_seq, mut grants, mut capacity) = (0, 0, 0, 0, 0);
    let (mut max_queue, mut queue_timeout, mut brownout_wait) = (None, None, None);
    let (mut tree, mut root, mut known_workers) = (None, None, None);
    let (mut held, mut weighed, mut capped) = (Vec::new(), Vec::new(), Vec::new());
    let mut requests = Vec::new();
    let mut busy = BusyThresholds::default();
    let mut credit = OverlapCredit::DEFAULT;
    cursor.record(SNAPSHOT, 11, |field, cursor| {
        match field {
            "now_us" => now = count(cursor)?,
            "ticks" => ticks = count(cursor)?,
            "next_seq" => next_seq = count(cursor)?,
            "grants" => grants = count(cursor)?,
            "capacity" => capacity = count(cursor)?,
            "policy" => tree = Some(policy(cursor)?),
            "holds" => held = holds(cursor)?,
            "weights" => weighed = weights(cursor)?,
            "caps" => capped = caps(cursor)?,
            "requests" => requests = cursor.list(request::request)?,
            "root" => root = Some(counters::node(cursor)?),
            "max_queue" => max_queue = Some(count(cursor)?),
            "queue_timeout_us" => queue_timeout = Some(Micros(count(cursor)?)),
            "brownout_wait_us" => brownout_wait = Some(Micros(count(cursor)?)),
            "busy_tokens" => busy.tokens = Some(tokens(cursor)?),
            "busy_fraction" => busy.fraction = Some(fraction(cursor)?),
            "overlap_credit" => credit = overlap_credit(cursor)?,
            _ => known_workers = Some(workers(cursor)?),
        }
        Ok(())
    })?;
    Ok(Snapshot {
        now: Micros(now),
        ticks: Ticks(ticks),
        next_seq,
        grants,
        capacity,
        policy: tree.ok_or_else(|| cursor.missing("policy"))?,
        max_queue,
        queue_timeout,
        brownout_wait,
        busy,
        overlap_credit: credit,
        holds: held,
        weights: weighed,
        caps: capped,
        workers: known_workers,
        requests,
        root: root.ok_or_else(|| cursor.missing("root"))?,
    })
}

fn workers(cursor: &mut JsonCursor<'_>) -> Result<WorkersSnapshot, JournalTextError> {
    let mut workers = WorkersSnapshot::default();
    cursor.record(WORKERS, 2, |field, cursor| {
        match field {
            "next_number" => workers.next_number = small_count(cursor, u32::MAX)?,
            _ => workers.list = cursor.list(numbered_worker)?,
        }
        Ok(())
    })?;
    Ok(workers)
}

fn numbered_worker(cursor: &mut JsonCursor<'_>) -> Result<WorkerSnapshot, JournalTextError> {
    let mut worker = WorkerSnapshot::default();
    cursor.record(WORKER, 11, |field, cursor| {
        match field {
            "number" => worker.number = small_count(cursor, u32::MAX)?,
            "epochs" => worker.epochs = count(cursor)?,
            "requests_level" => worker.requests = Some(level(cursor)?),
            "tokens_level" => worker.tokens = Some(level(cursor)?),
            "last_grants" => worker.last_grants = cursor.list(count)?,
            _ => worker::field(&mut worker.settings, field, cursor)?,
        }
        Ok(())
    })?;
    Ok(worker)
}

fn level(cursor: &mut JsonCursor<'_>) -> Result<RateLevelSnapshot, JournalTextError> {
    let mut level = RateLevelSnapshot::default();
    cursor.record(LEVEL, 2, |field, cursor| {
        match field {
            "units" => level.level = signed_wide(cursor)?,
            _ => level.epoch = count(cursor)?,
        }
        Ok(())
    })?;
    Ok(level)
}
