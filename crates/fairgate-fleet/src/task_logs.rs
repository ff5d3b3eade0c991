//! Logs of tasks. A log is the output of a task's command, stored in pieces. The size of each
//! claim's log is limited: beyond the limit, the oldest pieces are dropped.

use fairgate_api::fleet::LogPage;
use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;

use crate::call_context::CallContext;
use crate::claim_ref::{ClaimRef, not_held};
use crate::error::FleetError;
use crate::json_rows;
use crate::transition;
use crate::validate::{invalid, unknown};

/// Maximum number of bytes that one call of [`append`] may append.
const APPEND_MAX: usize = 256 << 10;
/// Maximum size of a piece, in bytes.
const PIECE: usize = 32 << 10;
/// Minimum number of pieces of a full log, so that only a small part of the log is dropped at a
/// time.
const PIECES: u64 = 8;
/// Maximum number of pieces of a log. A piece counts with its length, but at least with the log's
/// size limit divided by this number. So the number of rows is limited even if gaps keep the pieces
/// small.
const PART_MIN: u64 = 64;
/// Maximum number of bytes in a page of a log.
const PAGE: usize = 256 << 10;
/// Number of claims of each task whose logs are kept.
const CLAIMS: i64 = 4;
/// Maximum number of tasks whose logs one call of [`forget`] deletes.
const FORGOTTEN: i64 = 50;

/// Identifies a log by the task and the epoch of the claim.
#[derive(Clone, Copy, Debug)]
struct ClaimLog<'a> {
    task: &'a str,
    epoch: i64,
}

/// A piece of a log: the position of its first byte in the log, and its length in bytes.
#[derive(Clone, Copy, Debug)]
struct LogPiece {
    first: u64,
    length: u64,
}

impl LogPiece {
    fn end(self) -> u64 {
        self.first + self.length
    }
}

/// Appends bytes to the log of a claim, starting at `first_byte`, and returns the position at which
/// the next byte must start. Bytes that are stored already are ignored. A gap before `first_byte`
/// is allowed, because an agent leaves bytes out if its command prints more than the agent can
/// send. The agent of the task's latest claim may append after the claim is over, because the end
/// of a log may arrive after the end of the task.
pub(crate) fn append(
    tx: &mut dyn Transaction,
    call: &CallContext,
    named: ClaimRef<'_>,
    first_byte: u64,
    bytes: &[u8],
) -> Result<u64, FleetError> {
    if bytes.len() > APPEND_MAX {
        let problem =
            format!("has {} bytes, and at most {APPEND_MAX} are taken at a time", bytes.len());
        return Err(invalid("body", problem));
    }
    // This is far below the largest integer of the database.
    if first_byte > 1 << 60 {
        return Err(invalid("first_byte", format!("{first_byte} is out of range")));
    }
    let standing = transition::load_task(tx, named.task)?;
    if !named.is_last(&standing) {
        return Err(not_held(tx, named, &standing)?);
    }
    let log = ClaimLog { task: named.task, epoch: signed(named.epoch) };
    let mut pieces = pieces(tx, log)?;
    let next = pieces.last().map_or(0, |piece| piece.end());
    let known = usize::try_from(next.saturating_sub(first_byte)).unwrap_or(usize::MAX);
    let fresh = bytes.get(known..).unwrap_or_default();
    if fresh.is_empty() {
        return Ok(next);
    }
    if pieces.is_empty() {
        forget_claims(tx, log)?;
    }
    let start = first_byte.max(next);
    let most = call.options.log_bytes_max.max(1);
    put(tx, call, log, &mut pieces, start, fresh, most)?;
    drop_oldest(tx, log, &pieces, most)?;
    Ok(start + fresh.len() as u64)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn pieces(tx: &mut dyn Transaction, log: ClaimLog<'_>) -> Result<Vec<LogPiece>, StoreError> {
    tx.list(
        "SELECT first_byte, CAST(LENGTH(bytes) AS BIGINT) FROM fleet_logs \
         WHERE task = $1 AND epoch = $2 ORDER BY first_byte",
        &[log.task.into(), log.epoch.into()],
        |row| Ok(LogPiece { first: row.count(0)?, length: row.count(1)? }),
    )
}

fn forget_claims(tx: &mut dyn Transaction, log: ClaimLog<'_>) -> Result<(), StoreError> {
    let sql = "DELETE FROM fleet_logs WHERE task = $1 AND epoch <= $2";
    tx.run(sql, &[log.task.into(), (log.epoch - CLAIMS).into()])?;
    Ok(())
}

/// Writes new bytes in pieces. If the last stored piece is small, it is extended first, so that many small writes do
/// not become many rows.
fn put(
    tx: &mut dyn Transaction,
    call: &CallContext,
    log: ClaimLog<'_>,
    pieces: &mut Vec<LogPiece>,
    start: u64,
    fresh: &[u8],
    most: u64,
) -> Result<(), StoreError> {
    let size = usize::try_from(most / PIECES).unwrap_or(PIECE).clamp(1, PIECE);
    let mut bytes = Vec::new();
    let mut first = start;
    let grows = |last: &&LogPiece| last.end() == start && last.length < size as u64;
    if let Some(last) = pieces.last().filter(grows).copied() {
        let sql = "DELETE FROM fleet_logs WHERE task = $1 AND epoch = $2 AND first_byte = $3 RETURNING bytes";
        let values = [log.task.into(), log.epoch.into(), signed(last.first).into()];
        bytes = tx.first(sql, &values, |row| row.bytes(0))?.unwrap_or_default();
        first = last.first;
        pieces.pop();
    }
    bytes.extend_from_slice(fresh);
    for piece in bytes.chunks(size) {
        tx.run(
            "INSERT INTO fleet_logs (task, epoch, first_byte, bytes, at) VALUES ($1, $2, $3, $4, $5)",
            &[
                log.task.into(),
                log.epoch.into(),
                signed(first).into(),
                piece.to_vec().into(),
                call.now.into(),
            ],
        )?;
        pieces.push(LogPiece { first, length: piece.len() as u64 });
        first += piece.len() as u64;
    }
    Ok(())
}

/// Deletes the oldest pieces of a log until the remaining ones have at most `most` bytes in total.
/// A small piece counts for more than its length; see [`PART_MIN`].
fn drop_oldest(
    tx: &mut dyn Transaction,
    log: ClaimLog<'_>,
    pieces: &[LogPiece],
    most: u64,
) -> Result<(), StoreError> {
    let mut kept = 0;
    let fits = |piece: &&LogPiece| {
        kept += piece.length.max(most / PART_MIN);
        kept <= most
    };
    let oldest = pieces.iter().rev().take_while(fits).last();
    if let Some(oldest) = oldest.filter(|oldest| oldest.first > pieces[0].first) {
        tx.run(
            "DELETE FROM fleet_logs WHERE task = $1 AND epoch = $2 AND first_byte < $3",
            &[log.task.into(), log.epoch.into(), signed(oldest.first).into()],
        )?;
    }
    Ok(())
}

/// Deletes the logs of at most [`FORGOTTEN`] tasks that ended before the time `before`, and returns
/// the number of these tasks. Because of the limit, other transactions do not wait long.
pub(crate) fn forget(tx: &mut dyn Transaction, before: UnixMicros) -> Result<u64, StoreError> {
    let tasks = tx.list(
        "SELECT t.id FROM fleet_tasks t WHERE t.ended_at < $1 \
         AND EXISTS (SELECT 1 FROM fleet_logs l WHERE l.task = t.id) LIMIT $2",
        &[before.into(), FORGOTTEN.into()],
        |row| row.text(0),
    )?;
    if tasks.is_empty() {
        return Ok(0);
    }
    let texts = json_rows::texts(tx.database(), 1);
    let names = json_rows::names(tasks.iter().map(String::as_str));
    tx.run(&format!("DELETE FROM fleet_logs WHERE task IN {texts}"), &[names])?;
    Ok(tasks.len() as u64)
}

/// Returns a page of the log of a claim, starting at `first_byte`. `None` as `epoch` means the
/// task's latest claim. A page ends before a gap in the log.
pub(crate) fn page(
    tx: &mut dyn Transaction,
    task: &str,
    epoch: Option<u64>,
    first_byte: u64,
) -> Result<LogPage, FleetError> {
    let standing = transition::load_task(tx, task)?;
    let claim = epoch.unwrap_or(standing.epoch);
    if claim > standing.epoch {
        let problem = format!("task {task:?} was claimed {} times", standing.epoch);
        return Err(unknown("epoch", problem));
    }
    let ended = claim < standing.epoch || !standing.state.is_held();
    let log = ClaimLog { task, epoch: signed(claim) };
    let pieces = pieces(tx, log)?;
    let dropped_bytes = pieces.first().map_or(0, |piece| piece.first);
    let end = pieces.last().map_or(0, |piece| piece.end());
    let first_byte = first_byte.max(dropped_bytes);
    let (start, mut bytes) = read(tx, log, first_byte)?;
    let first_byte = start.unwrap_or(end.min(first_byte));
    let is_last = first_byte + bytes.len() as u64 >= end;
    if !(is_last && ended) {
        bytes.truncate(bytes.len() - cut_character(&bytes));
    }
    Ok(LogPage {
        epoch: claim,
        first_byte,
        next_byte: first_byte + bytes.len() as u64,
        dropped_bytes,
        text: String::from_utf8_lossy(&bytes).into_owned(),
        ended,
    })
}

/// Reads contiguous bytes of a log, starting at the byte `from` or, if that byte is missing, at the
/// next stored byte. Returns the position of the first byte that was read, and the bytes.
fn read(
    tx: &mut dyn Transaction,
    log: ClaimLog<'_>,
    from: u64,
) -> Result<(Option<u64>, Vec<u8>), StoreError> {
    let most = signed((PAGE / PIECE + 1) as u64);
    let rows = tx.list(
        "SELECT first_byte, bytes FROM fleet_logs WHERE task = $1 AND epoch = $2 \
         AND first_byte + LENGTH(bytes) > $3 ORDER BY first_byte LIMIT $4",
        &[log.task.into(), log.epoch.into(), signed(from).into(), most.into()],
        |row| Ok((row.count(0)?, row.bytes(1)?)),
    )?;
    let mut start = None;
    let mut bytes = Vec::new();
    for (first, piece) in rows {
        let first_wanted = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let piece = piece.get(first_wanted..).unwrap_or_default();
        let begins = first.max(from);
        if *start.get_or_insert(begins) + bytes.len() as u64 != begins {
            break;
        }
        bytes.extend_from_slice(piece);
    }
    bytes.truncate(PAGE);
    Ok((start, bytes))
}

/// Returns the number of bytes at the end that form an incomplete UTF-8 character. A page leaves
/// these bytes to the next page.
fn cut_character(bytes: &[u8]) -> usize {
    let begins = |length: &usize| {
        let tail = bytes.len().checked_sub(*length).map(|at| &bytes[at..]);
        tail.is_some_and(|tail| {
            tail[0] >= 0xC0
                && std::str::from_utf8(tail).is_err_and(|wrong| wrong.error_len().is_none())
        })
    };
    // If the page would otherwise be empty, the incomplete character is included, because a reader
    // that waits for more must get something.
    (1..=3).filter(|length| *length < bytes.len()).find(begins).unwrap_or(0)
}
