//! The handle to a pool's task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Event, Submit, WorkerChange};
use fairgate_core::explain::RequestLocation;
use fairgate_core::fairness::NodeFairness;
use fairgate_core::policy::Policy;
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::{Micros, Weight};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::admission::{Admission, closed, refused};
use crate::admit_error::{AdmitError, GateChangeError, GateClosedError};
use crate::expected_wait::FlowGrants;
use crate::flow_counts::{FlowCounts, PoolFlows};
use crate::gate_status::{DEADLINE_MAX, DrainResult, GateStatus};
use crate::handoff::handoff;
use crate::mailbox::TaskMailbox;
use crate::message::PoolMessage;
use crate::permit::Permit;
use crate::pool_task::PoolTask;
use crate::submitted_request::AdmissionTicket;
use crate::validate;

/// Handle to one pool. Cheap to clone. After the last clone is dropped, queued requests are refused, and the pool's
/// task ends once nothing is in flight.
///
/// # The order of calls
/// 1. [`start`](fn@crate::start) creates the pool and its task, and returns the first gate.
/// 2. If the pool has workers: [`change_worker`](Self::change_worker) adds each of them. Without any worker, the pool's
///    capacity alone limits the requests in flight.
/// 3. For each request, from any task: [`admit`](Self::admit) waits for a slot and returns a [`Permit`]. Then, on the
///    permit, in this order:
///    - [`Permit::place`] says which worker and rank should run the request;
///    - [`Permit::first_token`] when the answer begins, and [`Permit::note_used`] as it goes on; both may be left out;
///    - one of [`Permit::settle`] (the request completed and used these tokens), [`Permit::fail`] (it failed after it
///      used these tokens) and [`Permit::give_back`] (it never ran and used 0 tokens). If none of them is called,
///      dropping the permit gives the slot back.
/// 4. At any time: [`hold`](Self::hold) and [`resume`](Self::resume), [`set_weight`](Self::set_weight),
///    [`set_cap`](Self::set_cap), [`set_capacity`](Self::set_capacity), [`set_policy`](Self::set_policy),
///    [`change_worker`](Self::change_worker) and [`pause_worker`](Self::pause_worker) change the pool. The task carries
///    out these calls and the submits of requests one at a time, in the order in which it reads them.
/// 5. At any time: [`status`](Self::status), [`fairness`](Self::fairness), [`recent_grants`](Self::recent_grants),
///    [`expected_wait`](Self::expected_wait) and [`whereabouts`](Self::whereabouts) only read. `whereabouts` copies the
///    pool, so it is the most expensive.
/// 6. At the end: [`drain`](Self::drain) once. It refuses all further requests, waits for those in flight, and saves
///    the journal and the state file.
///
/// If the task has ended, each of these calls fails with an error that says so.
#[derive(Clone)]
pub struct Gate {
    handle: Arc<GateHandle>,
}

/// State that all gates of a pool share with its task.
pub(crate) struct GateShared {
    pub(crate) mailbox: Arc<TaskMailbox<PoolMessage>>,
    /// Limits the number of unread submits and operator calls. The task returns a permit of this
    /// semaphore when it reads such a message.
    pub(crate) turns: Semaphore,
    tickets: AtomicU64,
    /// Allows one copy of the pool at a time for [`Gate::whereabouts`].
    copies: Semaphore,
    /// Semaphore without permits, on which callers wait for the end of the task. It is closed when
    /// the task has ended, and this wakes the callers.
    pub(crate) over: Semaphore,
    /// Result of the drain; set only if the task was drained.
    pub(crate) outcome: OnceLock<DrainResult>,
}

/// Value that all clones of a gate share. When the last clone is dropped, its `Drop` begins a drain
/// without a deadline.
struct GateHandle {
    shared: Arc<GateShared>,
}

impl Drop for GateHandle {
    fn drop(&mut self) {
        let _ = self.shared.mailbox.send(PoolMessage::Drain { until: None });
    }
}

impl GateShared {
    pub(crate) fn new(turns: usize) -> Self {
        Self {
            mailbox: Arc::new(TaskMailbox::new()),
            turns: Semaphore::new(turns.clamp(1, Semaphore::MAX_PERMITS)),
            tickets: AtomicU64::new(0),
            copies: Semaphore::new(1),
            over: Semaphore::new(0),
            outcome: OnceLock::new(),
        }
    }

    /// Waits for a free turn, so that a message may be sent. The task frees the turn when it has
    /// read the message.
    async fn wait_turn(&self) -> Result<(), GateClosedError> {
        let turn = self.turns.acquire().await.map_err(|_| closed(&self.mailbox))?;
        turn.forget();
        Ok(())
    }
}

impl Gate {
    pub(crate) fn new(shared: Arc<GateShared>) -> Self {
        Self { handle: Arc::new(GateHandle { shared }) }
    }

    fn shared(&self) -> &GateShared {
        &self.handle.shared
    }

    /// Requests a slot, and waits for it at most for the shorter of the submit's `timeout` and the
    /// pool's `queue_timeout`. After that, the request is refused as [`AdmitError::Expired`].
    ///
    /// The future may be dropped at any time; the request then leaves the queue and is not charged. If the request was
    /// granted but the caller has not received the grant yet, the slot is given back with 0 tokens, because the request
    /// never ran. (A cancel event for a granted request does charge the request's cost, because such a request may have
    /// run.)
    pub async fn admit(&self, submit: Submit) -> Result<Permit, AdmitError> {
        validate::submit(&submit)?;
        let shared = self.shared();
        shared.wait_turn().await.map_err(|_| refused(&shared.mailbox))?;
        let ticket = AdmissionTicket(shared.tickets.fetch_add(1, Ordering::Relaxed));
        Admission::submit(&shared.mailbox, submit, ticket)?.await
    }

    /// Holds a flow: none of its requests are granted until [`Gate::resume`].
    pub async fn hold(&self, by: Attribute, flow: &str) -> Result<(), GateChangeError> {
        self.change(Event::Hold { by, flow: flow.into() }).await
    }

    /// Resumes a held flow, so that its requests are granted again.
    pub async fn resume(&self, by: Attribute, flow: &str) -> Result<(), GateChangeError> {
        self.change(Event::Resume { by, flow: flow.into() }).await
    }

    /// Sets the weight of a flow, or in a `drr` node the quantum of its class.
    pub async fn set_weight(
        &self,
        by: Attribute,
        flow: &str,
        weight: Weight,
    ) -> Result<(), GateChangeError> {
        self.change(Event::Weight { by, flow: flow.into(), weight }).await
    }

    /// Sets the maximum number of a flow's requests in flight; `None` removes the cap.
    pub async fn set_cap(
        &self,
        by: Attribute,
        flow: &str,
        slots: Option<u64>,
    ) -> Result<(), GateChangeError> {
        self.change(Event::Cap { by, flow: flow.into(), slots }).await
    }

    /// Sets the maximum number of the pool's requests in flight.
    pub async fn set_capacity(&self, slots: u64) -> Result<(), GateChangeError> {
        self.change(Event::Capacity { slots }).await
    }

    /// Replaces the pool's policy. Weights and caps from [`set_weight`](Self::set_weight) and
    /// [`set_cap`](Self::set_cap) are dropped.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), GateChangeError> {
        self.change(Event::Policy(policy)).await
    }

    /// Adds, changes or removes a worker.
    pub async fn change_worker(&self, change: WorkerChange) -> Result<(), GateChangeError> {
        validate::worker(&change)?;
        self.change(Event::Worker(change)).await
    }

    /// Changes a worker and pauses it until `until`. Requests for the worker stay queued.
    pub async fn pause_worker(
        &self,
        mut change: WorkerChange,
        until: Instant,
    ) -> Result<(), GateChangeError> {
        validate::worker(&change)?;
        let work = move |pool_task: &mut PoolTask, at: Micros| {
            let left = until.saturating_duration_since(Instant::now()).min(DEADLINE_MAX);
            let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
            change.pause_until = Some(Micros(at.0.saturating_add(left)));
            pool_task.apply(at, Event::Worker(change));
        };
        Ok(self.run_on_pool(work).await?)
    }

    /// Returns the state of a request, and the reasons why it waits if it is queued; `None` if no request with that id
    /// is queued or in flight.
    ///
    /// For a queued request the pool is copied, and the answer is computed on a thread for blocking work. Only one
    /// copy exists at a time, however many callers there are.
    pub async fn whereabouts(&self, id: &str) -> Result<Option<RequestLocation>, GateClosedError> {
        let one_copy = self.shared().copies.acquire().await;
        let id: Box<str> = id.into();
        let asked = id.clone();
        let found =
            match self.run_on_pool(move |pool_task, _| look_up_request(pool_task, &asked)).await? {
                RequestLookup::Seen(whereabouts) => whereabouts,
                RequestLookup::Waits(copy) => spawn_blocking(move || copy.request_location(&id))
                    .await
                    .map_err(|_| GateClosedError::Gone)?,
            };
        drop(one_copy);
        Ok(found)
    }

    /// Returns, for each flow of every active node, the tokens that the flow got, the tokens that
    /// it was due, the bound on the difference between the two, and the flow's lag.
    pub async fn fairness(&self) -> Result<Vec<NodeFairness>, GateClosedError> {
        self.run_on_pool(|pool_task, _| pool_task.pool().fairness()).await
    }

    /// Returns the grants of the last minute for each flow that has queued requests or had grants in that minute. The
    /// entry with an empty path counts the whole pool.
    pub async fn recent_grants(&self) -> Result<Vec<FlowGrants>, GateClosedError> {
        self.run_on_pool(|pool_task, now| pool_task.recent_grants(now)).await
    }

    /// Returns the expected wait of the last queued request in the flow of request `id`: requests queued in the flow ÷
    /// the flow's grants per second in the last minute. `None` if the flow had no grants, or if no request with that id
    /// is queued.
    pub async fn expected_wait(&self, id: &str) -> Result<Option<Duration>, GateClosedError> {
        let id: Box<str> = id.into();
        self.run_on_pool(move |pool_task, now| pool_task.expected_wait(&id, now)).await
    }

    /// Returns the counts and the health of the gate at this moment.
    pub async fn status(&self) -> Result<GateStatus, GateClosedError> {
        self.run_on_pool(|pool_task, _| pool_task.status()).await
    }

    /// Returns the complete state of the pool.
    pub async fn snapshot(&self) -> Result<Snapshot, GateClosedError> {
        self.run_on_pool(|pool_task, _| pool_task.pool().snapshot()).await
    }

    /// Closes the gate. Queued and new requests are refused as [`AdmitError::Draining`]. Requests
    /// in flight may finish within `grace`. Then the task writes the rest of the journal and the
    /// state file, and ends. The result contains the number of permits that had not ended after
    /// `grace`.
    ///
    /// A further call waits for the end of the same drain. If it sets an earlier deadline than the calls before it,
    /// that deadline applies to all of them.
    pub async fn drain(&self, grace: Duration) -> Result<DrainResult, GateClosedError> {
        let shared = self.shared();
        let until = Some(Instant::now() + grace.min(DEADLINE_MAX));
        // Sending fails if the task has ended or is about to end.
        let _ = shared.mailbox.send(PoolMessage::Drain { until });
        let _ = shared.over.acquire().await;
        shared.outcome.get().cloned().ok_or(GateClosedError::Gone)
    }

    /// Returns the state of the pool without its waiting requests, which would be expensive to
    /// copy.
    pub async fn flows(&self) -> Result<PoolFlows, GateClosedError> {
        self.run_on_pool(PoolFlows::of).await
    }

    /// Returns the counts of all flows. It reads only flows, and no requests.
    pub async fn flow_counts(&self) -> Result<FlowCounts, GateClosedError> {
        self.run_on_pool(FlowCounts::of).await
    }

    /// Applies an event. The event has been applied when this returns `Ok`.
    async fn change(&self, event: Event) -> Result<(), GateChangeError> {
        Ok(self.run_on_pool(|pool_task, at| pool_task.apply(at, event)).await?)
    }

    /// Runs `work` on the state of the task and returns its result. Once the message is sent, `work` runs even if the
    /// caller stops waiting.
    async fn run_on_pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut PoolTask, Micros) -> T + Send + 'static,
    ) -> Result<T, GateClosedError> {
        let shared = self.shared();
        shared.wait_turn().await?;
        let (giver, taker) = handoff();
        let run = move |pool_task: &mut PoolTask, at: Micros| {
            let _ = giver.send(work(pool_task, at));
        };
        let sent = shared.mailbox.send(PoolMessage::Run(Box::new(run))).is_ok();
        let answer = if sent { taker.await } else { None };
        answer.ok_or_else(|| closed(&shared.mailbox))
    }
}

/// The task's answer about a request, before the expensive part is computed.
enum RequestLookup {
    /// The complete answer; `None` if the request is unknown.
    Seen(Option<RequestLocation>),
    /// The request is queued, and the answer is computed from this copy of the pool.
    Waits(Box<Pool>),
}

fn look_up_request(pool_task: &PoolTask, id: &str) -> RequestLookup {
    match pool_task.pool().flight_state(id) {
        Some(false) => RequestLookup::Waits(Box::new(pool_task.pool().clone())),
        Some(true) => RequestLookup::Seen(pool_task.pool().request_location(id)),
        None => RequestLookup::Seen(None),
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("ended", &self.shared().mailbox.ended()).finish()
    }
}
