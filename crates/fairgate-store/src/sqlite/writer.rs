//! The one thread that writes. Whatever is pending when it is free goes into one transaction (group commit), and everybody
//! is answered after the commit.

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::Beside;
use super::batch::{Batch, Held};
use super::file::FileLock;
use super::queries;
use crate::directory::{Change, Changed, UnixMicros};
use crate::error::StoreError;
use crate::ledger::{Attempt, Exhausted, Reservation, Resolved};

type Result<T> = std::result::Result<T, StoreError>;

/// Where an answer goes. That nobody waits for it any more does not undo what was asked.
pub(super) type Reply<T> = oneshot::Sender<Result<T>>;

/// How many commands one transaction takes.
const BATCH_MAX: usize = 1_024;

/// What the writer is asked.
pub(super) enum Command {
    Record(Box<Attempt>, Reply<()>),
    Reserve(Box<Reservation>, Reply<std::result::Result<(), Exhausted>>),
    Change(Box<(String, UnixMicros, Change)>, Reply<Changed>),
    Prune(UnixMicros, Reply<u64>),
    /// Reads on the writer's connection, between transactions: the way to a database in memory.
    Read(Box<dyn FnOnce(&Connection) + Send>),
    Close(Reply<()>),
}

/// What a command came to, until the commit makes it true.
enum Answer {
    Done,
    Reserved(std::result::Result<(), Exhausted>),
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
    _lock: Option<FileLock>,
}

impl Writer {
    /// Takes over a database, and resolves what an earlier process left reserved.
    pub(super) fn new(connection: Connection, lock: Option<FileLock>) -> Result<(Self, Resolved)> {
        let mut held = held(&connection)?;
        let mut batch = Batch::begin(&connection, &mut held)?;
        let resolved = batch.resolve()?;
        batch.commit()?;
        let orphans = Vec::new();
        Ok((Self { connection, held, stale: false, orphans, _lock: lock }, resolved))
    }

    /// Writes until it is told to close, or until nobody is left who could ask. Then the checkpointer ends too.
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Command>, checkpointer: Option<Beside>) {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        let mut closers = Vec::new();
        loop {
            // Orphans are released at once; after a failure, together with what is asked next.
            let idle = self.orphans.is_empty() || self.stale;
            if idle && inbox.blocking_recv_many(&mut commands, BATCH_MAX) == 0 {
                break;
            }
            let mut reads = Vec::new();
            let mut writes = Vec::with_capacity(commands.len());
            for command in commands.drain(..) {
                match command {
                    Command::Read(read) => reads.push(read),
                    Command::Close(reply) => {
                        // Those who have sent are still served, nobody else is.
                        inbox.close();
                        closers.push(reply);
                    }
                    write => writes.push(write),
                }
            }
            self.write(writes);
            reads.into_iter().for_each(|read| read(&self.connection));
        }
        // The file is free before anyone hears that it is closed.
        if let Some(checkpointer) = checkpointer {
            checkpointer.end();
        }
        drop(self);
        for reply in closers {
            let _ = reply.send(Ok(()));
        }
    }

    fn write(&mut self, commands: Vec<Command>) {
        let orphans = std::mem::take(&mut self.orphans);
        if commands.is_empty() && orphans.is_empty() {
            return;
        }
        match self.transact(&commands, &orphans) {
            Ok(answers) => {
                for (command, answer) in commands.into_iter().zip(answers) {
                    self.answer(command, answer);
                }
            }
            Err(problem) => {
                self.stale = true;
                self.orphans = orphans;
                self.roll_back();
                let problem = problem.to_string();
                tracing::error!(%problem, commands = commands.len(), "the store could not write");
                commands.into_iter().for_each(|command| refuse(command, &problem));
            }
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

    fn transact(&mut self, commands: &[Command], orphans: &[String]) -> Result<Vec<Answer>> {
        if self.stale {
            self.roll_back();
            self.held = held(&self.connection)?;
            self.stale = false;
        }
        let mut batch = Batch::begin(&self.connection, &mut self.held)?;
        orphans.iter().try_for_each(|request| batch.release(request))?;
        let answers = commands.iter().map(|command| apply(&mut batch, command)).collect();
        let answers: Result<Vec<_>> = answers;
        let answers = answers?;
        batch.commit()?;
        Ok(answers)
    }

    fn answer(&mut self, command: Command, answer: Answer) {
        match (command, answer) {
            (Command::Record(_, reply), Answer::Done) => drop(reply.send(Ok(()))),
            (Command::Reserve(reservation, reply), Answer::Reserved(reserved)) => {
                let held = reserved.is_ok();
                if reply.send(Ok(reserved)).is_err() && held {
                    self.orphans.push(reservation.request);
                }
            }
            (Command::Change(_, reply), Answer::Changed(changed)) => drop(reply.send(*changed)),
            (Command::Prune(_, reply), Answer::Pruned(rows)) => drop(reply.send(Ok(rows))),
            // `apply` gives each command its own kind of answer.
            (command, _) => refuse(command, "internal: an answer to another question"),
        }
    }
}

fn held(connection: &Connection) -> Result<Held> {
    let reservations = queries::reservations(connection)?;
    Ok(reservations.into_iter().map(|held| (held.request.clone(), held)).collect())
}

fn apply<'a>(batch: &mut Batch<'a>, command: &'a Command) -> Result<Answer> {
    Ok(match command {
        Command::Record(attempt, _) => {
            batch.record(attempt)?;
            Answer::Done
        }
        Command::Reserve(reservation, _) => Answer::Reserved(batch.reserve(reservation)?),
        Command::Change(asked, _) => {
            let (actor, at, change) = &**asked;
            Answer::Changed(Box::new(batch.change(actor, *at, change)))
        }
        Command::Prune(before, _) => Answer::Pruned(batch.prune(*before)?),
        Command::Read(_) | Command::Close(_) => Answer::Done,
    })
}

/// Tells whoever asked that nothing came of it.
fn refuse(command: Command, problem: &str) {
    let problem = StoreError::Database(problem.to_owned());
    match command {
        Command::Record(_, reply) | Command::Close(reply) => drop(reply.send(Err(problem))),
        Command::Reserve(_, reply) => drop(reply.send(Err(problem))),
        Command::Change(_, reply) => drop(reply.send(Err(problem))),
        Command::Prune(_, reply) => drop(reply.send(Err(problem))),
        Command::Read(_) => {}
    }
}
