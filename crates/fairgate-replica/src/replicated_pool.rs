//! One pool of the cluster: the core's pool, and the owning member of each of its requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::units::Tokens;
use fairgate_core::{Pool, RequestHandle};
use fairgate_journal::{format_pool_config, parse_pool_config};
use serde::{Deserialize, Serialize};

use crate::client_names::BoundedClientNames;
use crate::decision::{ClusterDecision, ClusterEffects, SubmitRefusal};
use crate::limits::{ClusterLimits, CountedSubmit, LimitedRequest};
use crate::line::PoolLineFields;
use crate::units::{ClusterMicros, LogPosition, MemberEpoch, MemberNumber};
use crate::workers::{WorkerOpinion, WorkerTable};

/// Priority of a request that is already running. It goes before all others.
const HELD_PRIORITY: i64 = i64::MAX;

/// A pool of the cluster, with the owners of its requests.
#[derive(Clone, Debug)]
pub(crate) struct ReplicatedPool {
    name: Arc<str>,
    pool: Pool,
    /// The requests, by the index of their handles.
    requests: Vec<Option<OwnedRequest>>,
    /// Requests in flight whose members have ended, ordered by the time at which their slots are
    /// freed.
    orphans: BTreeSet<(ClusterMicros, u64, usize)>,
    config: PoolConfig,
    extras: PoolExtras,
    /// Removals of workers that have no requests in flight any more. They are applied right after
    /// the current event.
    departing: Vec<WorkerChange>,
}

/// The state of a cluster's pool that is not in the core's pool, its requests or its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolExtras {
    names: BoundedClientNames,
    workers: WorkerTable,
    /// Sequence number of the next request.
    next_number: u64,
    /// True if the configuration in force no longer has the pool.
    closing: bool,
}

/// A request that is queued or in flight, and its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnedRequest {
    pub(crate) id: Arc<str>,
    pub(crate) member: MemberNumber,
    /// Last epoch in which the member named the request.
    named_in: MemberEpoch,
    /// Sequence number of the request in the order of submits.
    number: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    counted: Option<Box<CountedSubmit>>,
    pub(crate) in_flight: bool,
    /// Position of the grant in the current epoch of the member; 0 if the request was granted
    /// before that epoch, or not at all.
    granted_at: LogPosition,
    /// True if the request was already running when it was submitted.
    held: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    orphan_until: Option<ClusterMicros>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<Arc<str>>,
}

/// The parts of the machine that a pool needs while it applies an event.
pub(crate) struct PoolContext<'a> {
    pub(crate) now: ClusterMicros,
    pub(crate) position: LogPosition,
    pub(crate) limits: &'a mut ClusterLimits,
    pub(crate) effects: &'a mut ClusterEffects,
    #[cfg(test)]
    pub(crate) mutation: Option<crate::tests::simulation::Mutation>,
}

/// The sender of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineSender {
    pub(crate) member: MemberNumber,
    pub(crate) epoch: MemberEpoch,
}

/// Fate of the requests in flight of a member whose epoch ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndedFlights {
    /// The requests keep their slots until this time, because the backends may still work on them.
    KeepUntil(ClusterMicros),
    /// Nothing works on the requests any more, so their slots are free.
    Free,
}

/// Outputs of the core's pool for one event, in order.
#[derive(Default)]
struct CoreOutputs(Vec<CoreOutput>);

enum CoreOutput {
    Accepted(RequestHandle),
    Decided(Decision),
}

impl DecisionSink for CoreOutputs {
    fn decided(&mut self, decision: Decision) {
        self.0.push(CoreOutput::Decided(decision));
    }

    fn accepted(&mut self, request: RequestHandle, _id: &Arc<str>) {
        self.0.push(CoreOutput::Accepted(request));
    }
}

impl ReplicatedPool {
    /// Creates an empty pool with this configuration.
    pub(crate) fn new(name: &Arc<str>, config: &PoolConfig, context: &mut PoolContext<'_>) -> Self {
        let without_workers = PoolConfig { workers: Vec::new(), ..config.clone() };
        let mut pool = Self {
            name: name.clone(),
            pool: Pool::new(without_workers.clone()),
            requests: Vec::new(),
            orphans: BTreeSet::new(),
            config: without_workers,
            extras: PoolExtras::default(),
            departing: Vec::new(),
        };
        pool.set_workers(&config.workers, context);
        pool.config = config.clone();
        pool
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.extras.closing
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pool.waiting() == 0 && self.pool.in_flight() == 0
    }

    /// Returns the requests that are queued or in flight, in the order of their handles.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &OwnedRequest> {
        self.requests.iter().flatten()
    }

    pub(crate) fn find(&self, id: &str) -> Option<&OwnedRequest> {
        let handle = self.pool.find(id)?;
        self.requests.get(handle.index())?.as_ref()
    }

    /// Returns the worker on which a request is in flight; `None` if it is not in flight, or the pool has no workers.
    pub(crate) fn flight_worker(&self, id: &str) -> Option<&Arc<str>> {
        self.find(id)?.worker.as_ref()
    }

    pub(crate) fn worker_flights(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.extras.workers.flights()
    }

    /// Returns the next time at which the pool changes without a line; `None` if there is none.
    pub(crate) fn next_change(&self, now: ClusterMicros) -> Option<ClusterMicros> {
        let pool = self.pool.next_change().map(ClusterMicros::from);
        let orphan = self.orphans.first().map(|(until, ..)| *until);
        let worker = self.extras.workers.next_change(now);
        [pool, orphan, worker].into_iter().flatten().min()
    }

    /// Applies the changes that are now due because time has passed.
    pub(crate) fn pass_time(&mut self, live: usize, context: &mut PoolContext<'_>) {
        self.update_workers(live, context);
        while let Some(handle) = self.first_due_orphan(context) {
            self.end_by_cluster(handle, context);
        }
        if self.pool.next_change().is_some_and(|change| change <= context.now.into()) {
            self.apply(Event::Tick, None, context);
        }
    }

    fn first_due_orphan(&self, context: &PoolContext<'_>) -> Option<usize> {
        #[cfg(test)]
        if context.mutation == Some(crate::tests::simulation::Mutation::OrphansAreKept) {
            return None;
        }
        let (until, _, handle) = self.orphans.first()?;
        (*until <= context.now).then_some(*handle)
    }

    /// Applies a line that is not a submit, not the end of a request and not about a worker.
    pub(crate) fn apply_other(&mut self, event: Event, context: &mut PoolContext<'_>) {
        self.apply(event, None, context);
    }

    /// Submits a request. A request that the pool already knows keeps its position in the queue, or
    /// its slot.
    pub(crate) fn submit(
        &mut self,
        mut submit: Submit,
        fields: &PoolLineFields,
        sender: LineSender,
        context: &mut PoolContext<'_>,
    ) {
        if let Some(handle) = self.pool.find(&submit.id).map(RequestHandle::index)
            && self.take_up(handle, &submit, fields.held, sender, context)
        {
            return;
        }
        if self.extras.closing && !fields.held {
            return self.refuse(submit.id, sender.member, context);
        }
        let counted = match fields.held {
            true => None,
            false => match self.count_in(&submit, fields, sender, context) {
                Ok(counted) => counted,
                Err(()) => return,
            },
        };
        if let Some(max) = fields.names_max {
            submit.attributes = self.extras.names.bound(submit.attributes, max);
        }
        if fields.held {
            (submit.priority, submit.timeout) = (HELD_PRIORITY, None);
        }
        self.extras.next_number += 1;
        let newcomer = OwnedRequest {
            id: submit.id.clone(),
            member: sender.member,
            named_in: sender.epoch,
            number: self.extras.next_number,
            counted: counted.map(Box::new),
            in_flight: false,
            granted_at: LogPosition(0),
            held: fields.held,
            orphan_until: None,
            worker: None,
        };
        self.apply(Event::Submit(Box::new(submit)), Some(newcomer), context);
    }

    fn refuse(&self, id: Arc<str>, member: MemberNumber, context: &mut PoolContext<'_>) {
        let (pool, reason) = (self.name.clone(), SubmitRefusal::NoPool);
        let refused = ClusterDecision::SubmitRefused { pool, id, member, reason };
        context.effects.decided(refused);
    }

    /// Counts a request in the limits of its tenant and key, or refuses it.
    fn count_in(
        &self,
        submit: &Submit,
        fields: &PoolLineFields,
        sender: LineSender,
        context: &mut PoolContext<'_>,
    ) -> Result<Option<CountedSubmit>, ()> {
        let estimate = fields.estimate.or(submit.cost.or(submit.input).map(|tokens| tokens.0));
        let request = LimitedRequest {
            tenant: submit.attributes.get(Attribute::Tenant),
            key: submit.attributes.get(Attribute::Key),
            bytes: fields.bytes,
            estimate: estimate.unwrap_or(1),
        };
        #[cfg(test)]
        if context.mutation == Some(crate::tests::simulation::Mutation::LimitsAreNotCounted) {
            return Ok(None);
        }
        match context.limits.check(&request, context.now) {
            Ok(()) => Ok(context.limits.count_in(&request, context.now)),
            Err(refusal) => {
                let (pool, id, member) = (self.name.clone(), submit.id.clone(), sender.member);
                let reached = ClusterDecision::LimitReached { pool, id, member, refusal };
                context.effects.decided(reached);
                Err(())
            }
        }
    }

    /// Keeps a request that the pool already knows, if its state agrees with what the member
    /// states. Returns false if it must be submitted as a new request.
    fn take_up(
        &mut self,
        handle: usize,
        submit: &Submit,
        held: bool,
        sender: LineSender,
        context: &mut PoolContext<'_>,
    ) -> bool {
        let Some(Some(request)) = self.requests.get_mut(handle) else { return false };
        if request.member != sender.member {
            return false;
        }
        // The member will read a grant that was made since its join, and will then start the
        // request.
        let is_coming = request.in_flight && request.granted_at.0 >= sender.epoch.0;
        // A request that was granted in a lost end of the log may be running on another worker than
        // in this state.
        let pinned = submit.pin.as_ref().map(|pin| &*pin.worker);
        let is_elsewhere =
            request.in_flight && pinned.is_some() && pinned != request.worker.as_deref();
        let is_known = match held {
            true => (request.in_flight && !is_elsewhere) || (request.held && !request.in_flight),
            false => !request.in_flight || is_coming,
        };
        if is_known {
            request.named_in = sender.epoch;
            if let Some(until) = request.orphan_until.take() {
                self.orphans.remove(&(until, request.number, handle));
            }
            let (pool, id, member) = (self.name.clone(), request.id.clone(), request.member);
            context.effects.decided(ClusterDecision::TakenUp { pool, id, member });
            return true;
        }
        // Either the request is running although it is queued here, or is running on another
        // worker. It is submitted again with the highest priority. Or it was granted and its member
        // never started it. Its slot is given back, and it is queued again.
        let (id, in_flight) = (request.id.clone(), request.in_flight);
        self.take(handle, context);
        let event = match in_flight {
            false => Event::Cancel { id },
            true => Event::Release { id, tokens: Some(Tokens(0)), quota: Some(Tokens(0)) },
        };
        self.apply(event, None, context);
        false
    }

    /// Ends a request in flight with its usage. Does nothing to a request of another member, or to
    /// a queued one.
    pub(crate) fn release(
        &mut self,
        event: Event,
        charged: Option<u64>,
        sender: LineSender,
        context: &mut PoolContext<'_>,
    ) {
        let Event::Release { id, tokens, .. } = &event else { return };
        let Some(handle) = self.find_of(id, sender.member) else { return };
        let Some(Some(request)) = self.requests.get(handle) else { return };
        if !request.in_flight {
            return;
        }
        let charged = charged.or(tokens.map(|tokens| tokens.0));
        if let (Some(counted), Some(charged)) = (&request.counted, charged) {
            context.limits.settle(counted, charged, context.now);
        }
        self.take(handle, context);
        self.apply(event, None, context);
    }

    /// Cancels a request of a member. Does nothing to a request of another member.
    pub(crate) fn cancel(
        &mut self,
        event: Event,
        sender: LineSender,
        context: &mut PoolContext<'_>,
    ) {
        let Event::Cancel { id } = &event else { return };
        let Some(handle) = self.find_of(id, sender.member) else { return };
        self.take(handle, context);
        self.apply(event, None, context);
    }

    /// Applies the first token of a member's request.
    pub(crate) fn first_token(
        &mut self,
        event: Event,
        sender: LineSender,
        context: &mut PoolContext<'_>,
    ) {
        let Event::FirstToken { id } = &event else { return };
        if self.find_of(id, sender.member).is_some() {
            self.apply(event, None, context);
        }
    }

    fn find_of(&self, id: &str, member: MemberNumber) -> Option<usize> {
        let handle = self.pool.find(id)?.index();
        let request = self.requests.get(handle)?.as_ref()?;
        (request.member == member).then_some(handle)
    }

    /// Ends the requests of a member whose epoch ends. Queued requests are cancelled, the latest
    /// first, so that few other requests become heads of their queues meanwhile.
    pub(crate) fn end_member(
        &mut self,
        member: MemberNumber,
        flights: EndedFlights,
        context: &mut PoolContext<'_>,
    ) {
        self.end_where(|request| request.member == member && !request.in_flight, context);
        match flights {
            EndedFlights::KeepUntil(until) => self.keep_flights(member, until),
            EndedFlights::Free => self.end_where(|request| request.member == member, context),
        }
    }

    /// Ends the requests that a member has not named in its current epoch.
    pub(crate) fn end_unnamed(&mut self, sender: LineSender, context: &mut PoolContext<'_>) {
        let is_old = |it: &OwnedRequest| it.member == sender.member && it.named_in != sender.epoch;
        self.end_where(is_old, context);
    }

    fn keep_flights(&mut self, member: MemberNumber, until: ClusterMicros) {
        for (handle, request) in self.requests.iter_mut().enumerate() {
            let Some(request) = request else { continue };
            if request.member == member && request.orphan_until.is_none() {
                request.orphan_until = Some(until);
                self.orphans.insert((until, request.number, handle));
            }
        }
    }

    /// Ends all requests for which `ends` is true, starting with the latest.
    fn end_where(&mut self, ends: impl Fn(&OwnedRequest) -> bool, context: &mut PoolContext<'_>) {
        for handle in self.latest_first(ends) {
            self.end_by_cluster(handle, context);
        }
    }

    /// Returns the handles of the requests for which `is_one` is true, starting with the latest.
    fn latest_first(&self, is_one: impl Fn(&OwnedRequest) -> bool) -> Vec<usize> {
        let requests = self.requests.iter().enumerate();
        let found = requests.filter_map(|(handle, request)| {
            request.as_ref().filter(|it| is_one(it)).map(|it| (it.number, handle))
        });
        let mut found: Vec<(u64, usize)> = found.collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, handle)| handle).collect()
    }

    /// Ends one request without a line of its member. A request in flight is charged its cost.
    fn end_by_cluster(&mut self, handle: usize, context: &mut PoolContext<'_>) {
        let Some(request) = self.take(handle, context) else { return };
        let OwnedRequest { id, member, in_flight: was_in_flight, .. } = request;
        let pool = self.name.clone();
        let ended = ClusterDecision::EndedByCluster { pool, id: id.clone(), member, was_in_flight };
        context.effects.decided(ended);
        self.apply(Event::Cancel { id }, None, context);
    }

    fn forget_orphan(&mut self, handle: usize, request: &OwnedRequest) {
        if let Some(until) = request.orphan_until {
            self.orphans.remove(&(until, request.number, handle));
        }
    }

    /// Removes a request from the table, just before the event that ends the request.
    fn take(&mut self, handle: usize, context: &mut PoolContext<'_>) -> Option<OwnedRequest> {
        let request = self.requests.get_mut(handle)?.take()?;
        self.forget_orphan(handle, &request);
        if let Some(counted) = request.counted.as_ref().filter(|_| !request.in_flight) {
            context.limits.leave_queue(counted);
        }
        if let Some(worker) = &request.worker {
            self.departing.extend(self.extras.workers.end_flight(worker));
        }
        Some(request)
    }

    /// Applies a line about a worker.
    pub(crate) fn change_worker(
        &mut self,
        change: WorkerChange,
        pause_for: Option<ClusterMicros>,
        context: &mut PoolContext<'_>,
    ) {
        if let Some(change) = self.extras.workers.state(change, pause_for, context.now) {
            self.apply(Event::Worker(change), None, context);
        }
    }

    /// Resets epochs and positions of the log, which start again in the new generation.
    pub(crate) fn begin_generation(&mut self) {
        for request in self.requests.iter_mut().flatten() {
            request.named_in = MemberEpoch(0);
            request.granted_at = LogPosition(0);
        }
    }

    /// Records that a member joins. It acts only on grants from here on.
    pub(crate) fn begin_epoch(&mut self, member: MemberNumber) {
        let of_member = self.requests.iter_mut().flatten().filter(|it| it.member == member);
        of_member.for_each(|request| request.granted_at = LogPosition(0));
    }

    pub(crate) fn note_opinion(&mut self, member: MemberNumber, worker: &str, is: WorkerOpinion) {
        self.extras.workers.note_opinion(member, worker, is);
    }

    pub(crate) fn forget_opinions(&mut self, member: MemberNumber) {
        self.extras.workers.forget_member(member);
    }

    /// Updates the pool's workers by opinions, pauses and the number of live members.
    pub(crate) fn update_workers(&mut self, live: usize, context: &mut PoolContext<'_>) {
        for change in self.extras.workers.changes(live, context.now) {
            self.apply(Event::Worker(change), None, context);
        }
    }

    /// Applies a new configuration. Returns true if the pool was restored from its own snapshot.
    pub(crate) fn set_config(
        &mut self,
        config: &PoolConfig,
        context: &mut PoolContext<'_>,
    ) -> bool {
        self.extras.closing = false;
        let restarted = self.set_fixed_limits(config);
        if self.config.policy != config.policy {
            self.apply(Event::Policy(config.policy.clone()), None, context);
        }
        self.set_workers(&config.workers, context);
        if self.config.capacity != config.capacity {
            self.apply(Event::Capacity { slots: config.capacity }, None, context);
        }
        self.config = config.clone();
        restarted
    }

    /// Refuses queued and new requests, so that the pool becomes empty.
    pub(crate) fn close(&mut self, context: &mut PoolContext<'_>) {
        self.extras.closing = true;
        for handle in self.latest_first(|request| !request.in_flight && !request.held) {
            let Some(request) = self.take(handle, context) else { continue };
            self.refuse(request.id.clone(), request.member, context);
            self.apply(Event::Cancel { id: request.id }, None, context);
        }
    }

    /// Changes the limits that cannot change while a pool runs, by restoring the pool from a
    /// changed snapshot. Returns true if one of them has changed.
    fn set_fixed_limits(&mut self, config: &PoolConfig) -> bool {
        let mut snapshot = self.pool.snapshot();
        let before = snapshot.clone();
        snapshot.max_queue = config.max_queue;
        snapshot.queue_timeout = config.queue_timeout;
        snapshot.brownout_wait = config.brownout_wait;
        snapshot.busy = config.busy;
        snapshot.overlap_credit = config.overlap_credit;
        if snapshot == before {
            return false;
        }
        match Pool::restore(snapshot) {
            Ok(pool) => {
                self.pool = pool;
                true
            }
            // The snapshot of a pool is always valid, and these limits have no invalid values.
            Err(_) => false,
        }
    }

    fn set_workers(&mut self, workers: &[WorkerChange], context: &mut PoolContext<'_>) {
        let before = std::mem::take(&mut self.config.workers);
        for worker in workers {
            if before.contains(worker) {
                continue;
            }
            if let Some(change) = self.extras.workers.add(worker.clone(), context.now) {
                self.apply(Event::Worker(change), None, context);
            }
        }
        let is_kept = |name: &str| workers.iter().any(|worker| *worker.name == *name);
        for gone in before.iter().filter(|worker| !is_kept(&worker.name)) {
            let name: Arc<str> = (&*gone.name).into();
            if let Some(change) = self.extras.workers.remove(&name, context.now) {
                self.apply(Event::Worker(change), None, context);
            }
        }
    }

    /// Applies one event to the core's pool, and records the resulting decisions.
    fn apply(
        &mut self,
        event: Event,
        newcomer: Option<OwnedRequest>,
        context: &mut PoolContext<'_>,
    ) {
        let mut next = Some((event, newcomer));
        while let Some((event, newcomer)) = next.take() {
            context.effects.pool_event(&self.name, context.now, &event);
            let mut outputs = CoreOutputs::default();
            // This cannot fail, because cluster time never goes back.
            let _ = self.pool.apply(context.now.into(), event, &mut outputs);
            self.note_outputs(outputs, newcomer, context);
            next = self.departing.pop().map(|gone| (Event::Worker(gone), None));
        }
    }

    fn note_outputs(
        &mut self,
        outputs: CoreOutputs,
        mut newcomer: Option<OwnedRequest>,
        context: &mut PoolContext<'_>,
    ) {
        for output in outputs.0 {
            match output {
                CoreOutput::Accepted(handle) => {
                    if self.requests.len() <= handle.index() {
                        self.requests.resize_with(handle.index() + 1, || None);
                    }
                    self.requests[handle.index()] = newcomer.take();
                }
                CoreOutput::Decided(decision) => self.note_decision(decision, &newcomer, context),
            }
        }
    }

    fn note_decision(
        &mut self,
        decision: Decision,
        newcomer: &Option<OwnedRequest>,
        context: &mut PoolContext<'_>,
    ) {
        let handle = match &decision {
            Decision::Grant(grant) => Some(grant.request),
            Decision::Reject(reject) => reject.request,
            Decision::Expire { request, .. } => Some(*request),
        };
        let request = match handle {
            Some(handle) => self.requests.get_mut(handle.index()).and_then(Option::as_mut),
            None => None,
        };
        let Some(owner) = request.as_deref().or(newcomer.as_ref()) else { return };
        let member = owner.member;
        if let Some(counted) = &owner.counted {
            context.limits.leave_queue(counted);
        }
        match (&decision, request) {
            (Decision::Grant(grant), Some(request)) => {
                request.in_flight = true;
                request.granted_at = context.position;
                request.worker = grant.place.as_ref().map(|place| place.worker.clone());
                if let Some(worker) = &request.worker {
                    self.extras.workers.begin_flight(worker);
                }
            }
            (_, _) => {
                if let Some(handle) = handle {
                    self.requests[handle.index()] = None;
                }
            }
        }
        let pool = self.name.clone();
        context.effects.decided(ClusterDecision::Pool { pool, member, decision });
    }
}

/// The part of a pool's snapshot that is not in the core's own snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolSnapshotBody {
    pub(crate) pool: Arc<str>,
    config: Box<str>,
    extras: PoolExtras,
    requests: Vec<(usize, OwnedRequest)>,
}

impl ReplicatedPool {
    /// Returns the part of a snapshot that the core's own snapshot does not contain.
    pub(crate) fn body(&self) -> PoolSnapshotBody {
        let requests = self.requests.iter().enumerate();
        let requests = requests.filter_map(|(handle, it)| Some((handle, it.clone()?)));
        PoolSnapshotBody {
            pool: self.name.clone(),
            config: format_pool_config(&self.config).into(),
            extras: self.extras.clone(),
            requests: requests.collect(),
        }
    }

    /// Restores a pool from both parts of a snapshot.
    pub(crate) fn restore(body: PoolSnapshotBody, pool: Pool) -> Result<Self, String> {
        let config = parse_pool_config(&body.config).map_err(|error| error.to_string())?;
        let mut restored = Self {
            name: body.pool,
            pool,
            requests: Vec::new(),
            orphans: BTreeSet::new(),
            config,
            extras: body.extras,
            departing: Vec::new(),
        };
        for (handle, request) in body.requests {
            restored.put_back(handle, request)?;
        }
        let count = u64::try_from(restored.requests().count()).unwrap_or(u64::MAX);
        match count == restored.pool.waiting() + restored.pool.in_flight() {
            true => Ok(restored),
            false => Err("a request of the pool has no owner".into()),
        }
    }

    fn put_back(&mut self, handle: usize, request: OwnedRequest) -> Result<(), String> {
        let is_there = self.pool.find(&request.id).is_some_and(|it| it.index() == handle)
            && self.pool.flight_state(&request.id) == Some(request.in_flight);
        if !is_there {
            return Err(format!("the pool has no request {:?} in this state", request.id));
        }
        if let Some(until) = request.orphan_until {
            self.orphans.insert((until, request.number, handle));
        }
        if self.requests.len() <= handle {
            self.requests.resize_with(handle + 1, || None);
        }
        self.requests[handle] = Some(request);
        Ok(())
    }
}
