//! The handle to a pool's task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Event, Submit, WorkerChange};
use fairgate_core::explain::Whereabouts;
use fairgate_core::fairness::NodeFairness;
use fairgate_core::policy::Policy;
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::{Micros, Weight};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::admission::{Admission, closed, refused};
use crate::check;
use crate::desk::Desk;
use crate::handoff::handoff;
use crate::live::{Drained, FOR_EVER, Live};
use crate::mailbox::Mailbox;
use crate::message::{Message, Ticket};
use crate::permit::Permit;
use crate::refused::{ChangeError, Closed, Refused};

/// The way into one pool. Cheap to clone; the pool's task ends when the last clone is gone and nothing is in flight.
#[derive(Clone)]
pub struct Gate {
    handle: Arc<Handle>,
}

/// What the gates and the task have in common.
pub(crate) struct Shared {
    pub(crate) mailbox: Arc<Mailbox<Message>>,
    /// How many more letters may be sent that are not the end of something.
    pub(crate) turns: Semaphore,
    tickets: AtomicU64,
    /// Asking where a request is copies the pool: one copy at a time.
    copies: Semaphore,
    /// Has no permits, and is closed when the task is over.
    pub(crate) over: Semaphore,
    /// How it ended, where it was drained.
    pub(crate) outcome: OnceLock<Drained>,
}

/// When it goes, so does the last gate.
struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let _ = self.shared.mailbox.send(Message::Drain { until: None });
    }
}

impl Shared {
    pub(crate) fn new(turns: usize) -> Self {
        Self {
            mailbox: Arc::new(Mailbox::new()),
            turns: Semaphore::new(turns.clamp(1, Semaphore::MAX_PERMITS)),
            tickets: AtomicU64::new(0),
            copies: Semaphore::new(1),
            over: Semaphore::new(0),
            outcome: OnceLock::new(),
        }
    }

    /// Waits for a turn to send a letter. The task gives it back when it has read the letter.
    async fn turn(&self) -> Result<(), Closed> {
        let turn = self.turns.acquire().await.map_err(|_| closed(&self.mailbox))?;
        turn.forget();
        Ok(())
    }
}

impl Gate {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { handle: Arc::new(Handle { shared }) }
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Asks for a slot, and waits for it as long as the pool lets requests wait.
    ///
    /// The future may be dropped at any time, so a deadline of one's own is `tokio::time::timeout_at` around it.
    /// Where it is dropped the request leaves the queue, uncharged. Where the grant was on its way just then, the
    /// slot is given back with 0 tokens: nobody is charged for what never ran. (A cancel of a granted request, in
    /// the words of the journal, is charged its cost: that is for requests that may have run.)
    pub async fn admit(&self, submit: Submit) -> Result<Permit, Refused> {
        check::submit(&submit)?;
        let shared = self.shared();
        shared.turn().await.map_err(|_| refused(&shared.mailbox))?;
        let ticket = Ticket(shared.tickets.fetch_add(1, Ordering::Relaxed));
        Admission::submit(&shared.mailbox, submit, ticket)?.await
    }

    /// Stops a flow from dispatching.
    pub async fn hold(&self, by: Attribute, flow: &str) -> Result<(), ChangeError> {
        self.change(Event::Hold { by, flow: flow.into() }).await
    }

    /// Lets a held flow go on.
    pub async fn resume(&self, by: Attribute, flow: &str) -> Result<(), ChangeError> {
        self.change(Event::Resume { by, flow: flow.into() }).await
    }

    /// Changes a flow's weight, or its class's quantum.
    pub async fn weight(
        &self,
        by: Attribute,
        flow: &str,
        weight: Weight,
    ) -> Result<(), ChangeError> {
        self.change(Event::Weight { by, flow: flow.into(), weight }).await
    }

    /// Changes how many requests of a flow may be in flight; any number where `slots` is absent.
    pub async fn cap(
        &self,
        by: Attribute,
        flow: &str,
        slots: Option<u64>,
    ) -> Result<(), ChangeError> {
        self.change(Event::Cap { by, flow: flow.into(), slots }).await
    }

    /// Changes how many requests may be in flight.
    pub async fn capacity(&self, slots: u64) -> Result<(), ChangeError> {
        self.change(Event::Capacity { slots }).await
    }

    /// Puts another policy in place.
    pub async fn policy(&self, policy: Policy) -> Result<(), ChangeError> {
        self.change(Event::Policy(policy)).await
    }

    /// Adds, changes or forgets a worker.
    pub async fn worker(&self, change: WorkerChange) -> Result<(), ChangeError> {
        check::worker(&change)?;
        self.change(Event::Worker(change)).await
    }

    /// Changes a worker, which takes nothing until then. What waits for it goes on waiting.
    pub async fn pause_worker(
        &self,
        mut change: WorkerChange,
        until: Instant,
    ) -> Result<(), ChangeError> {
        check::worker(&change)?;
        let work = move |desk: &mut Desk, at: Micros| {
            let left = until.saturating_duration_since(Instant::now()).min(FOR_EVER);
            let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
            change.pause_until = Some(Micros(at.0.saturating_add(left)));
            desk.apply(at, Event::Worker(change));
        };
        Ok(self.errand(work).await?)
    }

    /// Where a request is and what it waits for; `None` where no request of that id waits or is in flight.
    ///
    /// For a waiting request a copy of the pool is made, and asked on a thread for blocking work. One copy exists at
    /// a time, however many ask.
    pub async fn whereabouts(&self, id: &str) -> Result<Option<Whereabouts>, Closed> {
        let one_copy = self.shared().copies.acquire().await;
        let id: Box<str> = id.into();
        let asked = id.clone();
        let found = match self.errand(move |desk, _| look_for(desk, &asked)).await? {
            Sight::Seen(whereabouts) => whereabouts,
            Sight::Waits(copy) => {
                spawn_blocking(move || copy.whereabouts(&id)).await.map_err(|_| Closed::Gone)?
            }
        };
        drop(one_copy);
        Ok(found)
    }

    /// How far every backlogged flow is from its share, and how far it could be.
    pub async fn fairness(&self) -> Result<Vec<NodeFairness>, Closed> {
        self.errand(|desk, _| desk.pool().fairness()).await
    }

    /// The gate at this moment.
    pub async fn live(&self) -> Result<Live, Closed> {
        self.errand(|desk, _| desk.live()).await
    }

    /// The pool's whole state.
    pub async fn snapshot(&self) -> Result<Snapshot, Closed> {
        self.errand(|desk, _| desk.pool().snapshot()).await
    }

    /// Closes the gate: what waits and what is new is refused as [`Refused::Draining`], what is in flight may finish within
    /// `grace`; then the journal and the state file are brought to an end and the task is over. Says how many
    /// permits had not ended.
    ///
    /// Called again it changes nothing, except that the earliest deadline counts.
    pub async fn drain(&self, grace: Duration) -> Result<Drained, Closed> {
        let shared = self.shared();
        let until = Some(Instant::now() + grace.min(FOR_EVER));
        // Returned where the task has ended, or is about to.
        let _ = shared.mailbox.send(Message::Drain { until });
        let _ = shared.over.acquire().await;
        shared.outcome.get().cloned().ok_or(Closed::Gone)
    }

    /// Applies an event; once this returns, it has happened.
    async fn change(&self, event: Event) -> Result<(), ChangeError> {
        Ok(self.errand(|desk, at| desk.apply(at, event)).await?)
    }

    /// Has something done at the desk. Once it was asked for it is done, also where nobody waits for the answer.
    async fn errand<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk, Micros) -> T + Send + 'static,
    ) -> Result<T, Closed> {
        let shared = self.shared();
        shared.turn().await?;
        let (giver, taker) = handoff();
        let errand = move |desk: &mut Desk, at: Micros| {
            let _ = giver.give(work(desk, at));
        };
        let sent = shared.mailbox.send(Message::Errand(Box::new(errand))).is_ok();
        let answer = if sent { taker.await } else { None };
        answer.ok_or_else(|| closed(&shared.mailbox))
    }
}

/// What the task can say about a request without working it out.
enum Sight {
    /// All of it.
    Seen(Option<Whereabouts>),
    /// It waits: ask this copy.
    Waits(Box<Pool>),
}

fn look_for(desk: &Desk, id: &str) -> Sight {
    match desk.pool().is_in_flight(id) {
        Some(false) => Sight::Waits(Box::new(desk.pool().clone())),
        Some(true) => Sight::Seen(desk.pool().whereabouts(id)),
        None => Sight::Seen(None),
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("ended", &self.shared().mailbox.ended()).finish()
    }
}
