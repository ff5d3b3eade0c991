//! What tasks' commands print, kept in pieces: bounded for each claim, the oldest pieces go first.

use fairgate_store::{StoreError, Transaction};

use crate::call::Call;
use crate::claims::Named;
use crate::error::FleetError;
use crate::model::LogPage;
use crate::step;
use crate::text::{invalid, unknown};

/// How many bytes one call may append.
const APPEND_MAX: usize = 256 << 10;
/// How large a piece becomes, in bytes.
const PIECE: usize = 32 << 10;
/// How many pieces a full log has at least, so that a little of it goes at a time.
const PIECES: u64 = 8;
/// How many bytes a page shows.
const PAGE: usize = 256 << 10;
/// Of how many claims of a task the logs are kept.
const CLAIMS: i64 = 4;

/// Whose log it is.
#[derive(Clone, Copy, Debug)]
struct Log<'a> {
    task: &'a str,
    epoch: i64,
}

/// One piece, without its bytes.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    length: u64,
}

impl Piece {
    fn end(self) -> u64 {
        self.first + self.length
    }
}

/// Keeps bytes of a claim, from a byte on. What was kept before is left out; where bytes in between are missing, they stay
/// missing: whoever prints more than can be sent leaves them out. Says which byte comes next. The agent of the task's last
/// claim may add to it when the claim is over: the end of a log may come after the end of the task.
pub(crate) fn append(
    tx: &mut dyn Transaction,
    call: &Call,
    named: Named<'_>,
    first_byte: u64,
    bytes: &[u8],
) -> Result<u64, FleetError> {
    if bytes.len() > APPEND_MAX {
        let problem =
            format!("has {} bytes, and at most {APPEND_MAX} are taken at a time", bytes.len());
        return Err(invalid("body", problem));
    }
    // Far below what the database's numbers end at.
    if first_byte > 1 << 60 {
        return Err(invalid("first_byte", format!("{first_byte} is out of range")));
    }
    let standing = step::standing(tx, named.task)?;
    if !named.is_last(&standing) {
        return Err(named.lost(&standing));
    }
    let log = Log { task: named.task, epoch: signed(named.epoch) };
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

fn pieces(tx: &mut dyn Transaction, log: Log<'_>) -> Result<Vec<Piece>, StoreError> {
    tx.list(
        "SELECT first_byte, CAST(LENGTH(bytes) AS BIGINT) FROM fleet_logs \
         WHERE task = $1 AND epoch = $2 ORDER BY first_byte",
        &[log.task.into(), log.epoch.into()],
        |row| Ok(Piece { first: row.count(0)?, length: row.count(1)? }),
    )
}

fn forget_claims(tx: &mut dyn Transaction, log: Log<'_>) -> Result<(), StoreError> {
    let sql = "DELETE FROM fleet_logs WHERE task = $1 AND epoch <= $2";
    tx.run(sql, &[log.task.into(), (log.epoch - CLAIMS).into()])?;
    Ok(())
}

/// Writes fresh bytes in pieces. A last piece that is small grows first, so that many small writes are no many rows.
fn put(
    tx: &mut dyn Transaction,
    call: &Call,
    log: Log<'_>,
    pieces: &mut Vec<Piece>,
    start: u64,
    fresh: &[u8],
    most: u64,
) -> Result<(), StoreError> {
    let size = usize::try_from(most / PIECES).unwrap_or(PIECE).clamp(1, PIECE);
    let mut bytes = Vec::new();
    let mut first = start;
    let grows = |last: &&Piece| last.end() == start && last.length < size as u64;
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
        pieces.push(Piece { first, length: piece.len() as u64 });
        first += piece.len() as u64;
    }
    Ok(())
}

/// Removes the oldest pieces until the others are no more than what is kept.
fn drop_oldest(
    tx: &mut dyn Transaction,
    log: Log<'_>,
    pieces: &[Piece],
    most: u64,
) -> Result<(), StoreError> {
    let mut kept = 0;
    let fits = |piece: &&Piece| {
        kept += piece.length;
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

/// What a claim's command printed, from a byte on; of the last claim where none is named. A page ends where bytes are
/// missing.
pub(crate) fn page(
    tx: &mut dyn Transaction,
    task: &str,
    epoch: Option<u64>,
    first_byte: u64,
) -> Result<LogPage, FleetError> {
    let standing = step::standing(tx, task)?;
    let claim = epoch.unwrap_or(standing.epoch);
    if claim > standing.epoch {
        let problem = format!("task {task:?} was claimed {} times", standing.epoch);
        return Err(unknown("epoch", problem));
    }
    let ended = claim < standing.epoch || !standing.state.is_held();
    let log = Log { task, epoch: signed(claim) };
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

/// The bytes from this one on that follow each other, and the number of the first of them.
fn read(
    tx: &mut dyn Transaction,
    log: Log<'_>,
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

/// How many bytes at the end begin a character that goes on: they come with the next page.
fn cut_character(bytes: &[u8]) -> usize {
    let begins = |length: &usize| {
        let tail = bytes.len().checked_sub(*length).map(|at| &bytes[at..]);
        tail.is_some_and(|tail| {
            tail[0] >= 0xC0
                && std::str::from_utf8(tail).is_err_and(|wrong| wrong.error_len().is_none())
        })
    };
    // All that is there may be the beginning of one: then it is shown as it is, for whoever waits for more.
    (1..=3).filter(|length| *length < bytes.len()).find(begins).unwrap_or(0)
}
