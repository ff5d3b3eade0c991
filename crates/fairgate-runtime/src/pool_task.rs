//! The pool and the callers that wait for its decisions. The code here never waits and never reads
//! a clock: every message comes with its time. Answers go to the callers through hand-offs, and
//! events are written to the [`JournalLines`].
//!
//! If the caller of a granted request has left, the slot is released at once with 0 tokens. That
//! release is an event of its own, so that a replay of the journal makes the same decisions.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::decision::{Decision, DecisionSink, Grant, RejectedRequest, RejectionReason};
use fairgate_core::event::{Event, Submit};
use fairgate_core::fairness::NodeFairness;
use fairgate_core::units::{Micros, Tokens};
use fairgate_core::{Pool, RequestHandle};

use crate::admit_error::AdmitError;
use crate::expected_wait::{FlowGrants, FlowRates, RecentGrants};
use crate::gate_status::{GateCounts, GateStatus, JournalHealth, StateHealth};
use crate::handoff::HandoffSender;
use crate::journal_lines::JournalLines;
use crate::submitted_request::{AdmissionAnswer, PermitEnd, PermitOutcome, SubmittedRequest};
use crate::waiting_owners::{RequestOwner, WaitingOwners};

/// Observer that is called with every decision and its time, in order.
pub type DecisionObserver = Box<dyn FnMut(Micros, &Decision) + Send>;

/// A pool, its waiting callers, its rates and its counters.
pub(crate) struct PoolTask {
    pool: Pool,
    /// Caller of each request, by the request's handle. Requests of an earlier process have no
    /// caller.
    owners: Vec<Option<RequestCaller>>,
    /// Caller of the request that is being submitted, until the pool accepts or rejects it.
    newcomer: Option<RequestCaller>,
    /// Ids of granted requests whose callers have left. These requests are released right after the
    /// current event.
    unclaimed: Vec<Arc<str>>,
    outputs: PoolOutputs,
    /// Maximum time that any request may be queued; `None` if the pool sets none.
    queue_timeout: Option<Micros>,
    rates: FlowRates,
    /// Numbers of waiting requests, by owners that the policy has no flow for.
    waiting_owners: WaitingOwners,
    /// Grants of the whole pool in the last minute.
    grants: RecentGrants,
    retry_after_max: Duration,
    observer: Option<DecisionObserver>,
    draining: bool,
    /// Number of events applied since the start.
    pub(crate) steps: u64,
    pub(crate) journal_lines: JournalLines,
    pub(crate) counts: GateCounts,
    pub(crate) journal_health: JournalHealth,
    pub(crate) state_health: StateHealth,
}

/// Outputs of the pool for one event, in order.
#[derive(Default)]
struct PoolOutputs(Vec<PoolOutput>);

enum PoolOutput {
    Accepted(RequestHandle),
    Decided(Decision),
}

impl DecisionSink for PoolOutputs {
    fn decided(&mut self, decision: Decision) {
        self.0.push(PoolOutput::Decided(decision));
    }

    fn accepted(&mut self, request: RequestHandle, _id: &Arc<str>) {
        self.0.push(PoolOutput::Accepted(request));
    }
}

/// The caller of a request, and the sender of its answer.
struct RequestCaller {
    name: SubmittedRequest,
    submitted_at: Micros,
    /// Key of the request's flow in [`FlowRates`].
    flow: Arc<str>,
    /// Expected cost of the request. From the grant on, the cost with which the grant was counted.
    cost: u64,
    /// Owner of the request in [`WaitingOwners`]; `None` if each owner is a flow.
    owner: Option<Arc<RequestOwner>>,
    /// Maximum time that the request may be queued: the shorter of its own timeout and the pool's;
    /// `None` if neither is set.
    may_wait: Option<Micros>,
    /// Sends the answer; `None` once the request is in flight.
    sender: Option<HandoffSender<AdmissionAnswer>>,
}

impl PoolTask {
    /// Creates the state for this pool. Requests that are already in the pool have no callers.
    pub(crate) fn new(
        pool: Pool,
        queue_timeout: Option<Micros>,
        retry_after_max: Duration,
    ) -> Self {
        Self {
            rates: FlowRates::new(pool.now()),
            waiting_owners: WaitingOwners::default(),
            grants: RecentGrants::new(pool.now()),
            retry_after_max,
            pool,
            owners: Vec::new(),
            newcomer: None,
            unclaimed: Vec::new(),
            outputs: PoolOutputs::default(),
            queue_timeout,
            observer: None,
            draining: false,
            steps: 0,
            journal_lines: JournalLines::default(),
            counts: GateCounts::default(),
            journal_health: JournalHealth::default(),
            state_health: StateHealth::default(),
        }
    }

    /// Sets the observer of decisions.
    pub(crate) fn set_observer(&mut self, watch: Option<DecisionObserver>) {
        self.observer = watch;
    }

    /// Returns the pool, for reading only.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the counts and the health of the gate at this moment.
    pub(crate) fn status(&self) -> GateStatus {
        GateStatus {
            capacity: self.pool.capacity(),
            in_flight: self.pool.in_flight(),
            waiting: self.pool.waiting(),
            draining: self.draining,
            counts: self.counts,
            journal: self.journal_health.clone(),
            state: self.state_health.clone(),
        }
    }

    /// Returns the grants of the last minute: one entry for each flow, and one with an empty path for the whole pool.
    pub(crate) fn recent_grants(&self, now: Micros) -> Vec<FlowGrants> {
        let pool = FlowGrants {
            path: Vec::new(),
            grants: self.grants.count(now),
            observed: self.grants.observed(now),
            totals: self.rates.totals(),
        };
        let mut all = self.rates.all(now);
        all.push(pool);
        all
    }

    /// Returns the fairness of all flows.
    pub(crate) fn fairness(&self) -> Vec<NodeFairness> {
        self.pool.fairness()
    }

    /// Returns the owners that the policy has no flow for, with the numbers of their waiting
    /// requests.
    pub(crate) fn waiting_owners(&self) -> Vec<(Arc<RequestOwner>, u64)> {
        self.waiting_owners.all()
    }

    /// Returns the expected wait of the last queued request in this request's flow.
    pub(crate) fn expected_wait(&self, id: &str, now: Micros) -> Option<Duration> {
        let handle = self.pool.find(id)?;
        let owner = self.owners.get(handle.index())?.as_ref()?;
        owner.sender.as_ref()?;
        self.rates.of_flow(&owner.flow, now)
    }

    /// Applies an event, and delivers the resulting decisions to the callers.
    pub(crate) fn apply(&mut self, at: Micros, event: Event) {
        let has_new_policy = matches!(event, Event::Policy(_));
        self.step(at, event);
        if has_new_policy {
            self.find_owners_again();
        }
        while let Some(id) = self.unclaimed.pop() {
            self.step(at, released(id, Some(Tokens(0)), Some(Tokens(0))));
        }
    }

    /// Determines the flow and the owner of each request under a new policy. This reads every
    /// request once, as applying the new policy does.
    fn find_owners_again(&mut self) {
        self.waiting_owners.clear();
        let snapshot = self.pool.snapshot();
        for request in &snapshot.requests {
            let handle = usize::try_from(request.handle).unwrap_or(usize::MAX);
            let Some(Some(caller)) = self.owners.get_mut(handle) else { continue };
            let waits = caller.sender.is_some();
            let path = snapshot.policy.path_of(|by| request.attributes.get(by));
            let path: Vec<&str> = path.map(|(_, flow)| flow).collect();
            let flow = FlowRates::key(&path);
            if flow != caller.flow {
                self.rates.move_request(&caller.flow, &flow, waits, self.pool.now());
                caller.flow = flow;
            }
            caller.owner = None;
            if waits {
                caller.owner = RequestOwner::of(&snapshot.policy, &request.attributes);
            }
            if let Some(owner) = &caller.owner {
                self.waiting_owners.begin(owner);
            }
        }
        self.rates.keep_paths_of(&snapshot.policy);
    }

    /// Removes a request that was not granted from the counts of waiting requests.
    fn end_wait(&mut self, caller: &RequestCaller) {
        self.rates.end_wait(&caller.flow);
        if let Some(owner) = &caller.owner {
            self.waiting_owners.end(owner);
        }
    }

    /// Records the result of writing the state file.
    pub(crate) fn note_saved(&mut self, saved: Result<(), String>) {
        self.state_health.saved += u64::from(saved.is_ok());
        self.state_health.error = saved.err();
    }

    /// Applies a tick if the passing of time alone has changed the state. For example, a request
    /// has timed out or become late, a worker's rate allows a request again, or a worker's pause
    /// has ended.
    pub(crate) fn apply_due_tick(&mut self, at: Micros) {
        if self.pool.next_change().is_some_and(|change| change <= at) {
            self.apply(at, Event::Tick);
        }
    }

    /// Refuses all queued requests, and every new one from now on.
    pub(crate) fn begin_drain(&mut self, at: Micros) {
        if mem::replace(&mut self.draining, true) {
            return;
        }
        let waits = |owner: &mut RequestCaller| owner.sender.is_some();
        let mut waiting: Vec<RequestCaller> =
            self.owners.iter_mut().filter_map(|owner| owner.take_if(waits)).collect();
        // The latest request is cancelled first. Then fewer heads of queues leave, so fewer other
        // requests are granted meanwhile.
        waiting.sort_unstable_by_key(|owner| std::cmp::Reverse(owner.name.ticket.0));
        let ids: Vec<Arc<str>> = waiting.iter().map(|owner| owner.name.id.clone()).collect();
        for owner in &waiting {
            self.end_wait(owner);
        }
        for giver in waiting.into_iter().filter_map(|owner| owner.sender) {
            self.counts.drained += 1;
            let _ = giver.send(Err(AdmitError::Draining));
        }
        for id in ids {
            self.apply(at, Event::Cancel { id });
        }
    }

    pub(crate) fn submit(
        &mut self,
        at: Micros,
        name: SubmittedRequest,
        submit: Box<Submit>,
        giver: HandoffSender<AdmissionAnswer>,
    ) {
        if self.draining {
            self.counts.drained += 1;
            let _ = giver.send(Err(AdmitError::Draining));
            return;
        }
        if !giver.is_awaited() {
            self.counts.abandoned += 1;
            return;
        }
        let may_wait = submit.timeout.into_iter().chain(self.queue_timeout).min();
        let named = |by| submit.attributes.get(by);
        let path: Vec<&str> = self.pool.policy().path_of(named).map(|(_, flow)| flow).collect();
        let flow = FlowRates::key(&path);
        let cost = submit.cost.or(submit.input).map_or(1, |cost| cost.0);
        let owner = RequestOwner::of(self.pool.policy(), &submit.attributes);
        let sender = Some(giver);
        self.newcomer =
            Some(RequestCaller { name, submitted_at: at, flow, cost, owner, may_wait, sender });
        self.apply(at, Event::Submit(submit));
    }

    pub(crate) fn leave(&mut self, at: Micros, name: &SubmittedRequest) {
        let Some(owner) = self.find(name).and_then(|handle| self.take_owner(handle)) else {
            return;
        };
        self.counts.abandoned += 1;
        let id = owner.name.id.clone();
        match owner.sender {
            Some(_) => {
                self.end_wait(&owner);
                self.apply(at, Event::Cancel { id });
            }
            None => {
                self.rates.end_flight(&owner.flow, at, owner.correction(Some(Tokens(0))));
                self.apply(at, released(id, Some(Tokens(0)), Some(Tokens(0))));
            }
        }
    }

    pub(crate) fn end(&mut self, at: Micros, name: &SubmittedRequest, end: PermitEnd) {
        let Some(owner) = self.find(name).and_then(|handle| self.take_owner(handle)) else {
            return;
        };
        match end.how {
            PermitOutcome::Settled => self.counts.settled += 1,
            PermitOutcome::Failed => self.counts.failed += 1,
            PermitOutcome::GivenBack => self.counts.given_back += 1,
            PermitOutcome::Dropped => self.counts.dropped += 1,
        }
        self.rates.end_flight(&owner.flow, at, owner.correction(end.tokens));
        let id = owner.name.id;
        match (end.tokens, end.quota) {
            (None, None) => self.apply(at, Event::Cancel { id }),
            (tokens, quota) => self.apply(at, released(id, tokens, quota)),
        }
    }

    /// Returns the handle of the request. `None` if its id now belongs to another admission,
    /// because the id was used again.
    pub(crate) fn find(&self, name: &SubmittedRequest) -> Option<RequestHandle> {
        let handle = name.request.or_else(|| self.pool.find(&name.id))?;
        let owner = self.owners.get(handle.index())?.as_ref()?;
        (owner.name.ticket == name.ticket).then_some(handle)
    }

    fn take_owner(&mut self, handle: RequestHandle) -> Option<RequestCaller> {
        self.owners.get_mut(handle.index())?.take()
    }

    fn put_owner(&mut self, handle: RequestHandle, owner: RequestCaller) {
        if self.owners.len() <= handle.index() {
            self.owners.resize_with(handle.index() + 1, || None);
        }
        self.owners[handle.index()] = Some(owner);
    }

    fn step(&mut self, at: Micros, event: Event) {
        let at = at.max(self.pool.now());
        self.steps += 1;
        self.journal_lines.write(at, &event);
        let mut outputs = mem::take(&mut self.outputs);
        // This cannot fail, because `at` was just raised to the pool's time.
        let _ = self.pool.apply(at, event, &mut outputs);
        for output in outputs.0.drain(..) {
            match output {
                PoolOutput::Accepted(handle) => {
                    if let Some(owner) = self.newcomer.take() {
                        self.rates.begin_wait(&owner.flow, at, owner.cost);
                        if let Some(owner) = &owner.owner {
                            self.waiting_owners.begin(owner);
                        }
                        self.put_owner(handle, owner);
                    }
                }
                PoolOutput::Decided(decision) => {
                    if let Some(watch) = &mut self.observer {
                        watch(at, &decision);
                    }
                    self.deliver(at, decision);
                }
            }
        }
        self.outputs = outputs;
    }

    fn deliver(&mut self, at: Micros, decision: Decision) {
        match decision {
            Decision::Grant(grant) => self.deliver_grant(at, grant),
            Decision::Reject(reject) => self.deliver_reject(at, reject),
            Decision::Expire { request, .. } => {
                self.counts.expired += 1;
                let Some(owner) = self.take_owner(request) else { return };
                let waited = Duration::from_micros(at.0 - owner.submitted_at.0);
                self.end_wait(&owner);
                let (expected_wait, retry_after) =
                    self.rates.of_one_more(&owner.flow, at, self.retry_after_max);
                let limit = Duration::from_micros(owner.may_wait.unwrap_or_default().0);
                owner.answer(Err(AdmitError::Expired {
                    waited,
                    limit,
                    expected_wait,
                    retry_after,
                }));
            }
        }
    }

    fn deliver_grant(&mut self, at: Micros, grant: Grant) {
        self.grants.note(at);
        self.counts.granted += 1;
        let handle = grant.request;
        let Some(owner) = self.owners.get_mut(handle.index()).and_then(Option::as_mut) else {
            self.unclaimed.push(grant.id);
            return;
        };
        let Some(giver) = owner.sender.take() else { return };
        owner.cost = grant.cost.0;
        self.rates.grant(&owner.flow, at, grant.cost.0, grant.waited);
        if let Some(owner) = &owner.owner {
            self.waiting_owners.end(owner);
        }
        if let Err(answer) = giver.send(Ok(grant)) {
            self.counts.abandoned += 1;
            if let Ok(grant) = answer {
                if let Some(owner) = self.take_owner(handle) {
                    self.rates.end_flight(&owner.flow, at, owner.correction(Some(Tokens(0))));
                }
                self.unclaimed.push(grant.id);
            }
        }
    }

    fn deliver_reject(&mut self, at: Micros, reject: RejectedRequest) {
        self.counts.rejected += 1;
        let RejectedRequest { request, reason, limit, .. } = reject;
        // A rejection without a handle is about the newcomer, because that request was never
        // accepted.
        let owner = match request {
            Some(handle) => self.take_owner(handle),
            None => self.newcomer.take(),
        };
        let Some(owner) = owner else { return };
        match request {
            Some(_) => self.end_wait(&owner),
            None => self.rates.ask(&owner.flow, at, owner.cost),
        }
        let (expected_wait, retry_after) = match reason {
            // A retry would not help.
            RejectionReason::Duplicate | RejectionReason::NoWorker => (None, None),
            _ => {
                let (wait, retry) = self.rates.of_one_more(&owner.flow, at, self.retry_after_max);
                (wait, Some(retry))
            }
        };
        owner.answer(Err(AdmitError::Rejected { reason, limit, expected_wait, retry_after }));
    }
}

fn released(id: Arc<str>, tokens: Option<Tokens>, quota: Option<Tokens>) -> Event {
    Event::Release { id, tokens, quota }
}

impl RequestCaller {
    /// Returns the tokens that the request used beyond the cost of its grant. A request with
    /// unknown usage is charged its cost, so the result is then 0.
    fn correction(&self, used: Option<Tokens>) -> i64 {
        let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        used.map_or(0, |used| signed(used.0).saturating_sub(signed(self.cost)))
    }

    fn answer(self, answer: AdmissionAnswer) {
        if let Some(giver) = self.sender {
            let _ = giver.send(answer);
        }
    }
}
