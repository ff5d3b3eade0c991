//! The one thread that writes. What is pending when it is free goes into one transaction (group commit), and whoever waits
//! is answered after the commit.
//!
//! Rows are acknowledged by the [`Spool`] before they come here, so the writer may wait a little for more of them; whoever
//! waits for an answer does not wait for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use fairgate_money::UnixMicros;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Beside;
use super::batch::{Batch, Held};
use super::file::Durability;
use super::queries;
use crate::budget::{Granted, Refused};
use crate::directory::{Change, Changed};
use crate::error::StoreError;
use crate::ledger::{Attempt, Reservation, Resolved};
use crate::private::FileLock;
use crate::spool::{MANY, Row, Spool};
use crate::throttle::Throttle;
use crate::transaction::{Job, Keep};
use crate::turns::Turns;

type Result<T> = std::result::Result<T, StoreError>;

/// Where an answer goes. That nobody waits for it any more does not undo what was asked.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// How many commands one transaction takes.
const BATCH_MAX: usize = 1_024;
/// How many rows one transaction takes.
const ROWS_MAX: usize = 4_096;
/// How long rows are collected before they are written.
const COLLECT: Duration = Duration::from_millis(20);
/// How many rows are written before whoever waits for this core is let go first: nobody waits for these rows, and requests do
/// wait. A tenth off the gateway's p99 at a fifth of its maximum, on two cores.
const AT_A_STRETCH: usize = 4;
/// How long after a failure the rows that are left are tried again, at the latest.
const AGAIN: Duration = Duration::from_secs(1);
/// How long those who have a turn get to say what for, when the store closes. They need microseconds.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A command, and its place among those that may be pending.
pub(super) struct Asked {
    pub(super) command: Command,
    pub(super) turn: Option<OwnedSemaphorePermit>,
}

/// What the writer is asked.
pub(super) enum Command {
    /// There are rows in the spool, or many of them.
    Rows,
    /// Answered once all rows of the spool are in the database.
    Flush(Reply<()>),
    /// A row that is not in the spool.
    Record(Box<Attempt>, Reply<()>),
    Reserve(Box<Reservation>, Reply<std::result::Result<Granted, Refused>>),
    Change(Box<(String, UnixMicros, Change)>, Reply<Changed>),
    Prune(UnixMicros, Reply<u64>),
    /// A transaction that somebody else writes.
    Transact(Box<dyn Job>),
    /// Reads on the writer's connection, between transactions: the way to a database in memory.
    Read(Box<dyn FnOnce(&Connection) + Send>),
    Close(Reply<()>),
}

/// What a command came to, until the commit makes it true.
enum Answer {
    Done,
    Reserved(std::result::Result<Granted, Refused>),
    Changed(Box<Result<Changed>>),
    Pruned(u64),
}

pub(super) struct Writer {
    connection: Connection,
    held: Held,
    /// Whether `held` must be read anew, because a transaction failed.
    stale: bool,
    /// Requests whose reservation was made for someone who had left in the meantime.
    orphans: Vec<String>,
    /// What the connection is set to.
    durability: Durability,
    /// None in memory.
    spool: Option<Arc<Spool>>,
    /// Rows that are acknowledged and not written yet: more than none only after a failure.
    rows: Vec<Row>,
    /// Rows that have no line in the spool, each with its place among those that may be pending.
    loose: Vec<(Box<Attempt>, Option<OwnedSemaphorePermit>)>,
    /// Whether the spool had more rows than one transaction takes.
    more: bool,
    complaints: Throttle<&'static str>,
    turns: Turns,
    /// Whether the last transaction failed, for whoever asks how the database is.
    failing: Arc<AtomicBool>,
    _lock: Option<FileLock>,
}

/// However the writer ends, nobody's row goes to files that are no longer its own.
impl Drop for Writer {
    fn drop(&mut self) {
        self.turns.close();
        if let Some(spool) = &self.spool {
            spool.close();
        }
    }
}

impl Writer {
    /// Takes over a database: brings in the rows that an earlier process had acknowledged, and resolves what it left
    /// reserved.
    pub(super) fn new(
        connection: Connection,
        spool: Option<Arc<Spool>>,
        turns: Turns,
        failing: Arc<AtomicBool>,
        lock: Option<FileLock>,
    ) -> Result<(Self, Resolved)> {
        let mut held = held(&connection)?;
        if let Some(spool) = &spool {
            bring_in(&connection, &mut held, spool)?;
        }
        let mut batch = Batch::begin(&connection, &mut held)?;
        let resolved = batch.resolve()?;
        batch.commit()?;
        let writer = Self {
            connection,
            held,
            stale: false,
            orphans: Vec::new(),
            durability: Durability::Kill,
            spool,
            rows: Vec::new(),
            loose: Vec::new(),
            more: false,
            complaints: Throttle::default(),
            turns,
            failing,
            _lock: lock,
        };
        Ok((writer, resolved))
    }

    /// Writes until it is told to close, or until nobody is left who could ask. Then the checkpointer ends too.
    pub(super) fn run(mut self, inbox: &Receiver<Asked>, checkpointer: Option<Beside>) {
        let mut closers = Vec::new();
        while closers.is_empty() {
            let Some(asked) = self.next(inbox) else { break };
            self.serve(asked, &mut closers);
        }
        // Those who have a turn are still served, nobody else gets one.
        self.turns.close();
        if let Some(spool) = &self.spool {
            spool.stop();
        }
        let deadline = Instant::now() + LAST_WORDS;
        loop {
            let asked = inbox.recv_timeout(Duration::from_millis(1)).ok();
            self.serve(asked.into_iter().collect(), &mut closers);
            let is_idle = self.orphans.is_empty() && !self.more;
            let is_done = self.turns.taken() <= self.loose.len() && (is_idle || self.stale);
            if is_done || Instant::now() > deadline {
                break;
            }
        }
        // The files are free before anyone hears that they are closed.
        if let Some(checkpointer) = checkpointer {
            checkpointer.end();
        }
        let kept = self.spool.as_ref().map_or(0, |spool| spool.close());
        let lost = self.loose.len();
        if kept > 0 || lost > 0 {
            tracing::error!(
                rows_beside = kept,
                rows_lost = lost,
                "the database took no more rows; those beside it, in the files -rows-0 and so on, are for the next start"
            );
        }
        drop(self);
        for reply in closers {
            let _ = reply.send(Ok(()));
        }
    }

    /// What to do next, once there is something; none when nobody is left who could ask.
    fn next(&self, inbox: &Receiver<Asked>) -> Option<Vec<Asked>> {
        let is_idle = self.rows.is_empty() && self.loose.is_empty() && self.orphans.is_empty();
        let first = if is_idle && !self.more {
            Some(inbox.recv().ok()?)
        } else {
            // Orphans are released at once, and rows that are left are written; after a failure, everything is tried again
            // with what is asked next.
            let patience = if self.stale { AGAIN } else { Duration::ZERO };
            match self.news(inbox, Instant::now() + patience) {
                Ok(asked) => Some(asked),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        };
        let mut asked = Vec::new();
        if let Some(first) = first {
            let only_rows = matches!(first.command, Command::Rows);
            asked.push(first);
            if only_rows {
                asked.extend(self.collect(inbox));
            }
            asked.extend(inbox.try_iter().take(BATCH_MAX));
        }
        Some(asked)
    }

    /// What is asked until then. More rows alone do not hurry a database that has just failed.
    fn news(
        &self,
        inbox: &Receiver<Asked>,
        until: Instant,
    ) -> std::result::Result<Asked, RecvTimeoutError> {
        loop {
            let asked = inbox.recv_timeout(until.saturating_duration_since(Instant::now()))?;
            if !self.stale || !matches!(asked.command, Command::Rows) {
                return Ok(asked);
            }
        }
    }

    /// Lets rows come together, until there are many of them or somebody asks for something that cannot wait.
    fn collect(&self, inbox: &Receiver<Asked>) -> Option<Asked> {
        let until = Instant::now() + COLLECT;
        loop {
            let asked = inbox.recv_timeout(until.saturating_duration_since(Instant::now())).ok()?;
            let waiting = self.spool.as_ref().map_or(0, |spool| spool.waiting());
            if !matches!(asked.command, Command::Rows) || waiting >= MANY {
                return Some(asked);
            }
        }
    }

    fn serve(&mut self, asked: Vec<Asked>, closers: &mut Vec<Reply<()>>) {
        let mut turns = Vec::with_capacity(asked.len());
        let mut reads = Vec::new();
        let mut recorders = Vec::new();
        let mut writes = Vec::with_capacity(asked.len());
        for Asked { command, turn } in asked {
            match command {
                // From here on it is kept until the database takes it, whatever its recorder is told.
                Command::Record(attempt, reply) => {
                    self.loose.push((attempt, turn));
                    recorders.push(reply);
                    continue;
                }
                Command::Rows => {}
                Command::Read(read) => reads.push(read),
                Command::Close(reply) => closers.push(reply),
                write => writes.push(write),
            }
            turns.push(turn);
        }
        self.take_rows();
        let must_all_be_in = writes.iter().any(|write| matches!(write, Command::Flush(_)));
        while must_all_be_in && self.more && self.write(Vec::new()).is_ok() {
            self.take_rows();
        }
        let written = self.write(writes);
        for reply in recorders {
            let _ = reply.send(written.clone().map_err(StoreError::Database));
        }
        reads.into_iter().for_each(|read| read(&self.connection));
    }

    /// Takes rows from the spool, as many as one transaction is for.
    fn take_rows(&mut self) {
        let Some(spool) = &self.spool else { return };
        if let Err(problem) = spool.take(&mut self.rows, ROWS_MAX) {
            // Tried again later, like all that fails.
            self.stale = true;
            if let Some(left_out) = self.complaints.admit("read", tokio::time::Instant::now()) {
                tracing::error!(%problem, left_out, "rows beside the database cannot be read");
            }
        }
        self.more = spool.waiting() > 0;
    }

    /// Writes the rows that wait and does what is asked; says what went wrong.
    fn write(&mut self, mut commands: Vec<Command>) -> std::result::Result<(), String> {
        let orphans = std::mem::take(&mut self.orphans);
        let has_rows = !self.rows.is_empty() || !self.loose.is_empty();
        if commands.is_empty() && orphans.is_empty() && !has_rows {
            return Ok(());
        }
        let answers = self.transact(&mut commands, &orphans);
        self.failing.store(answers.is_err(), Ordering::Relaxed);
        match answers {
            Ok(answers) => {
                self.loose.clear();
                let rows = std::mem::take(&mut self.rows);
                if let Some(spool) = &self.spool {
                    spool.written(rows);
                }
                for (command, answer) in commands.into_iter().zip(answers) {
                    self.answer(command, answer);
                }
                Ok(())
            }
            Err(problem) => {
                self.stale = true;
                self.orphans = orphans;
                self.roll_back();
                let problem = problem.to_string();
                self.complain(&problem, commands.len());
                commands.into_iter().for_each(|command| refuse(command, &problem));
                Err(problem)
            }
        }
    }

    /// Says that the database takes nothing, and brings the rows beside it to the disk: they may be the only copy for long.
    fn complain(&self, problem: &str, commands_failed: usize) {
        let unsynced = self.spool.as_ref().and_then(|spool| spool.sync().err());
        let Some(left_out) = self.complaints.admit("write", tokio::time::Instant::now()) else {
            return;
        };
        let rows_beside = self.spool.as_ref().map_or(0, |spool| spool.ahead());
        let rows_in_memory = self.loose.len();
        tracing::error!(
            %problem,
            commands_failed,
            rows_beside,
            rows_in_memory,
            left_out,
            "the store could not write; rows are kept and tried again"
        );
        if let Some(problem) = unsynced {
            tracing::error!(%problem, "rows beside the database could not be synced");
        }
    }

    /// Ends a transaction that failed, unless SQLite has done so already.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(problem) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%problem, "the store could not roll back");
        }
    }

    fn transact(&mut self, commands: &mut [Command], orphans: &[String]) -> Result<Vec<Answer>> {
        if self.stale {
            self.roll_back();
            self.held = held(&self.connection)?;
            self.stale = false;
        }
        self.make_durable(commands)?;
        let mut batch = Batch::begin(&self.connection, &mut self.held)?;
        orphans.iter().try_for_each(|request| batch.release(request))?;
        for some in self.rows.chunks(AT_A_STRETCH) {
            some.iter().try_for_each(|row| batch.record(&row.attempt))?;
            std::thread::yield_now();
        }
        self.loose.iter().try_for_each(|(attempt, _)| batch.record(attempt))?;
        let answers = commands.iter_mut().map(|command| apply(&mut batch, command)).collect();
        let answers: Result<Vec<_>> = answers;
        let answers = answers?;
        batch.commit()?;
        Ok(answers)
    }

    /// Has the next transaction outlive what these commands must outlive.
    fn make_durable(&mut self, commands: &[Command]) -> Result<()> {
        let must_sync = |command: &Command| match command {
            Command::Change(..) => true,
            Command::Transact(job) => job.keep() == Keep::ThroughPowerLoss,
            _ => false,
        };
        let durability = match commands.iter().any(must_sync) {
            true => Durability::PowerLoss,
            false => Durability::Kill,
        };
        if durability != self.durability {
            durability.set(&self.connection)?;
            self.durability = durability;
        }
        Ok(())
    }

    fn answer(&mut self, command: Command, answer: Answer) {
        match (command, answer) {
            (Command::Record(_, reply) | Command::Flush(reply), Answer::Done) => {
                drop(reply.send(Ok(())))
            }
            (Command::Reserve(reservation, reply), Answer::Reserved(reserved)) => {
                let held = reserved.is_ok();
                if reply.send(Ok(reserved)).is_err() && held {
                    self.orphans.push(reservation.request);
                }
            }
            (Command::Change(_, reply), Answer::Changed(changed)) => drop(reply.send(*changed)),
            (Command::Prune(_, reply), Answer::Pruned(rows)) => drop(reply.send(Ok(rows))),
            (Command::Transact(job), Answer::Done) => job.answer(Ok(())),
            // `apply` gives each command its own kind of answer.
            (command, _) => refuse(command, "internal: an answer to another question"),
        }
    }
}

/// Brings in the rows that an earlier process left, some at a time.
fn bring_in(connection: &Connection, held: &mut Held, spool: &Spool) -> Result<()> {
    let unreadable =
        |problem| StoreError::Database(format!("the rows beside it cannot be read: {problem}"));
    loop {
        let mut rows = Vec::new();
        spool.take(&mut rows, ROWS_MAX).map_err(unreadable)?;
        if rows.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::begin(connection, held)?;
        rows.iter().try_for_each(|row| batch.record(&row.attempt))?;
        batch.commit()?;
        spool.written(rows);
    }
}

fn held(connection: &Connection) -> Result<Held> {
    let reservations = queries::reservations(connection)?;
    Ok(reservations.into_iter().map(|held| (held.request.clone(), held)).collect())
}

fn apply<'a>(batch: &mut Batch<'a>, command: &'a mut Command) -> Result<Answer> {
    Ok(match command {
        // Whoever asked has left. Its last row may be in this transaction, before this, and nothing would end what is held.
        Command::Reserve(_, reply) if reply.is_closed() => Answer::Done,
        Command::Reserve(reservation, _) => Answer::Reserved(batch.reserve(reservation)?),
        Command::Change(asked, _) => {
            let (actor, at, change) = &**asked;
            Answer::Changed(Box::new(batch.change(actor, *at, change)?))
        }
        Command::Prune(before, _) => Answer::Pruned(batch.prune(*before)?),
        Command::Transact(job) => {
            batch.transact(&mut **job)?;
            Answer::Done
        }
        Command::Rows
        | Command::Flush(_)
        | Command::Record(..)
        | Command::Read(_)
        | Command::Close(_) => Answer::Done,
    })
}

/// Tells whoever asked that nothing came of it.
fn refuse(command: Command, problem: &str) {
    let problem = StoreError::Database(problem.to_owned());
    match command {
        Command::Record(_, reply) | Command::Flush(reply) | Command::Close(reply) => {
            drop(reply.send(Err(problem)));
        }
        Command::Reserve(_, reply) => drop(reply.send(Err(problem))),
        Command::Change(_, reply) => drop(reply.send(Err(problem))),
        Command::Prune(_, reply) => drop(reply.send(Err(problem))),
        Command::Transact(job) => job.answer(Err(problem)),
        Command::Rows | Command::Read(_) => {}
    }
}
