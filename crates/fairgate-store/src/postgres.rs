//! The store on PostgreSQL, which several gateways may share: one task that writes rows, one that reserves, one that gives
//! signs of life, and a few connections for everything else.

mod address;
mod arrays;
mod budgets;
mod lease;
mod ledger;
mod link;
mod queries;
mod schema;
mod sql;
mod tls;
mod trouble;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{Mutex, mpsc, oneshot};

use crate::directory::{Change, Changed, Directory, UnixMicros};
use crate::error::StoreError;
use crate::ledger::{
    Attempt, AuditEntry, AuditQuery, BudgetLeft, Exhausted, LedgerQuery, Reservation, Resolved,
    UsageQuery, UsageRow,
};
use crate::store::StoreOptions;
use address::Address;
use budgets::Reserver;
use lease::Lease;
use ledger::Reply;
use link::{ANSWER_TIMEOUT, Link, SUM_TIMEOUT, in_time, within};
use trouble::Trouble;

type Result<T> = std::result::Result<T, StoreError>;

/// How many queries and changes run at once.
const DESKS: usize = 3;

/// A database on PostgreSQL.
pub(crate) struct Postgres {
    ledger: mpsc::Sender<ledger::Command>,
    budgets: mpsc::Sender<budgets::Command>,
    lease: mpsc::Sender<Reply<()>>,
    desks: [Mutex<Link>; DESKS],
    next_desk: AtomicUsize,
    closed: AtomicBool,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

/// Runs a query at one of the desks, and once more where its connection broke: reading twice does no harm.
macro_rules! read {
    ($self:expr, $session:ident => $query:expr) => {
        read!($self, ANSWER_TIMEOUT, $session => $query)
    };
    ($self:expr, $limit:expr, $session:ident => $query:expr) => {{
        let mut link = $self.desk().await?;
        let mut tries = 0;
        loop {
            tries += 1;
            let outcome = match link.take().await {
                Ok($session) => {
                    let outcome = within($limit, async {
                        let $session = &$session;
                        $query.await
                    });
                    let outcome = outcome.await;
                    link.give_back($session, &outcome).await;
                    outcome
                }
                Err(trouble) => Err(trouble),
            };
            match outcome {
                Err(Trouble::Link(_)) if tries == 1 => {}
                outcome => break outcome.map_err(StoreError::from),
            }
        }
    }};
}

impl Postgres {
    /// Connects, brings the schema up to date, and resolves what processes that are gone left reserved. What is wrong with the
    /// URL, where something is, is the outer error.
    pub(crate) async fn open(
        url: &str,
        options: &StoreOptions,
    ) -> std::result::Result<Result<(Self, Resolved)>, String> {
        let address = Arc::new(Address::parse(url)?);
        Ok(Self::connect(address, options).await)
    }

    async fn connect(address: Arc<Address>, options: &StoreOptions) -> Result<(Self, Resolved)> {
        let link = || Link::new(Arc::clone(&address));
        let mut first = link();
        let session = first.take().await?;
        let migrated = within(schema::TIMEOUT, schema::migrate(&session)).await;
        first.give_back(session, &migrated).await;
        migrated?;

        let instance = instance()?;
        let mut lease = Lease { link: first, instance, length: options.lease };
        let resolved = lease.begin().await?;

        let pending = options.pending_max.max(1);
        let (ledger, rows) = mpsc::channel(pending);
        let (budgets, reservations) = mpsc::channel(pending);
        let (lease_end, end) = mpsc::channel(1);
        tokio::spawn(ledger::run(link(), rows));
        tokio::spawn(Reserver::new(link(), instance).run(reservations));
        tokio::spawn(lease.run(end));
        let store = Self {
            ledger,
            budgets,
            lease: lease_end,
            desks: std::array::from_fn(|_| Mutex::new(link())),
            next_desk: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        };
        Ok((store, resolved))
    }

    /// A connection that is free, or will be.
    async fn desk(&self) -> Result<tokio::sync::MutexGuard<'_, Link>> {
        let free = self.desks.iter().find_map(|desk| desk.try_lock().ok());
        let link = match free {
            Some(link) => link,
            None => {
                let next = self.next_desk.fetch_add(1, Ordering::Relaxed) % DESKS;
                self.desks[next].lock().await
            }
        };
        if self.closed.load(Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(link) }
    }

    pub(crate) async fn directory(&self) -> Result<Directory> {
        read!(self, session => queries::directory(session))
    }

    pub(crate) async fn directory_version(&self) -> Result<i64> {
        read!(self, session => queries::directory_version(session))
    }

    /// Not tried again where the connection breaks: whether it was made is not known then.
    pub(crate) async fn change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: Change,
    ) -> Result<Changed> {
        let mut link = self.desk().await?;
        let session = link.take().await?;
        let outcome = in_time(queries::change(&session, actor, at, &change)).await;
        link.give_back(session, &outcome).await;
        Ok(outcome?)
    }

    pub(crate) async fn reserve(
        &self,
        reservation: Reservation,
    ) -> Result<std::result::Result<(), Exhausted>> {
        let command = |reply| budgets::Command::Reserve(Box::new(reservation), reply);
        ask(&self.budgets, command).await
    }

    pub(crate) async fn budgets(
        &self,
        tenant: &str,
        key: Option<&str>,
        at: UnixMicros,
    ) -> Result<Vec<BudgetLeft>> {
        read!(self, session => queries::budgets(session, tenant, key, at))
    }

    pub(crate) async fn record(&self, attempt: Attempt) -> Result<()> {
        ask(&self.ledger, |reply| ledger::Command::Record(Box::new(attempt), reply)).await
    }

    pub(crate) async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageRow>> {
        read!(self, SUM_TIMEOUT, session => queries::usage(session, &query))
    }

    pub(crate) async fn attempts(&self, query: LedgerQuery) -> Result<Vec<Attempt>> {
        read!(self, session => queries::attempts(session, &query))
    }

    pub(crate) async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        read!(self, session => queries::audit(session, &query))
    }

    pub(crate) async fn prune_some(&self, before: UnixMicros) -> Result<u64> {
        read!(self, session => queries::prune_some(session, before))
    }

    pub(crate) async fn ping(&self) -> Result<()> {
        read!(self, session => queries::ping(session))
    }

    pub(crate) async fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(StoreError::Closed);
        }
        // Rows before the lease: what they settle must not look abandoned.
        let written = ask(&self.ledger, ledger::Command::Close).await;
        let reserved = ask(&self.budgets, budgets::Command::Close).await;
        let ended = ask(&self.lease, |reply| reply).await;
        written.and(reserved).and(ended)
    }
}

/// Hands something to a task and waits for its answer. Once it is handed over, it is carried out, whether anyone waits or
/// not.
async fn ask<T, C>(task: &mpsc::Sender<C>, command: impl FnOnce(Reply<T>) -> C) -> Result<T> {
    let (reply, answer) = oneshot::channel();
    task.send(command(reply)).await.map_err(|_| StoreError::Closed)?;
    answer.await.map_err(|_| StoreError::Closed)?
}

/// A number for this process that no other has.
fn instance() -> Result<i64> {
    let number = getrandom::u64().map_err(|problem| {
        StoreError::Database(format!("the system gives no random number: {problem}"))
    })?;
    Ok(i64::from_ne_bytes(number.to_ne_bytes()))
}
