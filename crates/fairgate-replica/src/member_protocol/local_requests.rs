//! The requests of this process's own clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::decision::Grant;
use fairgate_core::event::{Event, Pin, Submit};
use fairgate_core::units::{Micros, Tokens};

use super::{LocalMicros, MemberOutput, MemberPhase, MemberProtocol, RequestRefusal};
use crate::limits::{LimitRefusal, LimitedRequest};
use crate::line::{LogLine, PoolLine, PoolLineFields};
use fairgate_core::attribute::Attribute;

/// Name of a pool, and id of a request in it.
pub(super) type RequestKey = (Arc<str>, Arc<str>);

/// Requests of this process, and ends of requests that were not read back from the log yet.
#[derive(Debug, Default)]
pub(super) struct LocalRequests {
    pub(super) open: BTreeMap<RequestKey, MemberRequest>,
    /// The lines that end a request. They are kept until they are read back.
    pub(super) ends: BTreeMap<RequestKey, Vec<PoolLine>>,
}

/// A request of one of this process's clients.
#[derive(Debug)]
pub(super) struct MemberRequest {
    submit: Submit,
    fields: PoolLineFields,
    submitted_at: LocalMicros,
    pub(super) state: LocalState,
}

/// The state of a request from its client's point of view.
#[derive(Debug)]
pub(super) enum LocalState {
    /// The request waits for its slot.
    Waiting,
    /// The request was granted at a time when the process was not sure to be still a member. The
    /// grant is not used yet.
    Postponed { grant: Grant, since: LocalMicros },
    /// The request has its slot, and runs.
    Running {
        worker: Option<Arc<str>>,
        /// Time at which the request is submitted again, because the cluster refused it. `None` if
        /// it has its slot or if its submit was sent.
        again_at: Option<LocalMicros>,
    },
}

/// The end of a request in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlightEnd {
    /// Usage in the unit of the pool; `None` for the request's cost.
    pub tokens: Option<Tokens>,
    /// Tokens that the provider counts; `None` if they equal `tokens`.
    pub quota: Option<Tokens>,
    /// Tokens that the limits per minute count; `None` if they equal `tokens`. Ignored if both
    /// `tokens` and `quota` are `None`.
    pub charged: Option<u64>,
}

/// Reason why a request was not submitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The process is not in the cluster, or is about to leave it.
    #[error("this gateway is not in its cluster at the moment")]
    NotInCluster,
    /// A limit is reached in this member's replica.
    #[error("a limit of the caller is reached")]
    Limit(LimitRefusal),
    /// The request's names are too long for the log.
    #[error("the request's names take more room than a record of the log has")]
    TooLong,
}

impl MemberRequest {
    fn running(worker: Option<Arc<str>>) -> LocalState {
        LocalState::Running { worker, again_at: None }
    }

    /// Returns the line that submits the request for the first time or again; `None` if it has
    /// waited too long.
    fn line(
        &self,
        pool: &Arc<str>,
        pool_timeout: Option<Micros>,
        now: LocalMicros,
    ) -> Option<LogLine> {
        let mut line = PoolLine::new(pool, Event::Tick);
        line.fields = self.fields.clone();
        let mut submit = self.submit.clone();
        match &self.state {
            LocalState::Running { worker, .. } => {
                line.fields.held = true;
                let rank = None;
                submit.pin = worker.as_ref().map(|name| Pin { worker: (&**name).into(), rank });
                (submit.allow, submit.timeout) = (None, None);
                submit.requires.clear();
            }
            LocalState::Waiting | LocalState::Postponed { .. } => {
                let waited = now.since(self.submitted_at).0;
                // The pool's timeout also counts from the first submit.
                let may_wait = submit.timeout.into_iter().chain(pool_timeout).min();
                let left = may_wait.map(|may| may.0.saturating_sub(waited));
                if left == Some(0) && waited > 0 {
                    return None;
                }
                if waited > 0 {
                    submit.timeout = left.map(Micros);
                }
            }
        }
        line.event = Event::Submit(Box::new(submit));
        Some(LogLine::Pool(line))
    }
}

impl LocalRequests {
    /// Drops postponed grants, because the epoch has ended. Their requests wait again.
    pub(super) fn forget_epoch(&mut self) {
        for request in self.open.values_mut() {
            if let LocalState::Postponed { .. } = request.state {
                request.state = LocalState::Waiting;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ends.is_empty()
    }

    fn running(&self) -> impl Iterator<Item = &RequestKey> {
        let is_running = |it: &MemberRequest| matches!(it.state, LocalState::Running { .. });
        self.open.iter().filter(move |(_, it)| is_running(it)).map(|(key, _)| key)
    }

    pub(super) fn has_running(&self) -> bool {
        self.running().next().is_some()
    }
}

impl MemberProtocol {
    /// Submits a client's request. The request is refused at once if the process's epoch was ended,
    /// if it has not joined yet, or if a limit is reached in its own replica. While the process
    /// changes to the next generation or restarts from a snapshot, the request is accepted, and is
    /// submitted when the process has joined.
    pub fn submit(
        &mut self,
        pool: &Arc<str>,
        submit: Submit,
        fields: PoolLineFields,
        now: LocalMicros,
    ) -> Result<(), SubmitError> {
        let is_out = match self.phase {
            MemberPhase::Out { was_ended, .. } | MemberPhase::Joining { was_ended, .. } => {
                was_ended
            }
            MemberPhase::In { .. } | MemberPhase::Suspended => false,
            MemberPhase::Gone => true,
        };
        if is_out || self.leaving {
            return Err(SubmitError::NotInCluster);
        }
        self.check_limits(&submit, &fields).map_err(SubmitError::Limit)?;
        let key = (pool.clone(), submit.id.clone());
        let request =
            MemberRequest { submit, fields, submitted_at: now, state: LocalState::Waiting };
        if let (Some(_), Some(line)) = (self.epoch(), request.line(pool, None, now)) {
            self.publish(&line).map_err(|_| SubmitError::TooLong)?;
        }
        self.requests.open.insert(key, request);
        Ok(())
    }

    fn check_limits(&self, submit: &Submit, fields: &PoolLineFields) -> Result<(), LimitRefusal> {
        let machine = self.replica.machine();
        let request = LimitedRequest {
            tenant: submit.attributes.get(Attribute::Tenant),
            key: submit.attributes.get(Attribute::Key),
            bytes: fields.bytes,
            estimate: 0,
        };
        machine.limits().check(&request, machine.now())
    }

    /// Records that the client of a request has left while the request was queued or had just been
    /// granted.
    pub fn abandon(&mut self, pool: &Arc<str>, id: &Arc<str>) {
        let key = (pool.clone(), id.clone());
        if self.requests.open.remove(&key).is_some() {
            self.say_given_up(key);
        }
    }

    /// Sends lines that end a request whether it is queued or granted: a release with 0 tokens for
    /// a granted one, and a cancel for a queued one.
    fn say_given_up(&mut self, key: RequestKey) {
        let id = key.1.clone();
        let (tokens, quota) = (Some(Tokens(0)), Some(Tokens(0)));
        let release = Event::Release { id: id.clone(), tokens, quota };
        let lines = [release, Event::Cancel { id }].map(|event| PoolLine::new(&key.0, event));
        self.say_end(key, lines.into());
    }

    /// Sends the first token of a request in flight to the log.
    pub fn first_token(&mut self, pool: &Arc<str>, id: &Arc<str>) {
        if self.epoch().is_some() {
            let line = PoolLine::new(pool, Event::FirstToken { id: id.clone() });
            self.say_of(&LogLine::Pool(line), None);
        }
    }

    /// Records the end of a request in flight. The end reaches the log even if the process has lost
    /// contact for now.
    pub fn release(&mut self, pool: &Arc<str>, id: &Arc<str>, end: FlightEnd) {
        let key = (pool.clone(), id.clone());
        if self.requests.open.remove(&key).is_none() {
            return;
        }
        let FlightEnd { tokens, quota, charged } = end;
        let event = match (tokens, quota) {
            (None, None) => Event::Cancel { id: id.clone() },
            _ => Event::Release { id: id.clone(), tokens, quota },
        };
        let mut line = PoolLine::new(pool, event);
        if tokens.is_some() || quota.is_some() {
            line.fields.charged = charged;
        }
        self.say_end(key, vec![line]);
    }

    /// Sends the end of a request, now or as soon as the process is a member. It is sent again in
    /// each epoch until it is read back.
    fn say_end(&mut self, key: RequestKey, lines: Vec<PoolLine>) {
        if self.epoch().is_some() {
            self.say_end_lines(&key, &lines);
        }
        self.requests.ends.insert(key, lines);
    }

    fn say_end_lines(&mut self, key: &RequestKey, lines: &[PoolLine]) {
        for (index, line) in lines.iter().enumerate() {
            let is_last = index + 1 == lines.len();
            self.say_of(&LogLine::Pool(line.clone()), is_last.then(|| key.clone()));
        }
    }

    /// Sends all ends of requests, running requests and queued requests again, at the start of an
    /// epoch.
    pub(super) fn say_all_requests(&mut self, now: LocalMicros) {
        for (key, lines) in self.requests.ends.clone() {
            self.say_end_lines(&key, &lines);
        }
        #[cfg(test)]
        if self.is_mutated(crate::tests::simulation::Mutation::WhatRunsIsSaidToWait) {
            self.requests.open.values_mut().for_each(|it| it.state = LocalState::Waiting);
        }
        // Running requests come first, so that they get their slots before other requests.
        let running: Vec<RequestKey> = self.requests.running().cloned().collect();
        for key in &running {
            self.say_request(key, now);
        }
        let mut waiting: Vec<(LocalMicros, RequestKey)> = Vec::new();
        for (key, request) in &mut self.requests.open {
            if !matches!(request.state, LocalState::Running { .. }) {
                request.state = LocalState::Waiting;
                waiting.push((request.submitted_at, key.clone()));
            }
        }
        waiting.sort();
        for (_, key) in waiting {
            self.say_request(&key, now);
        }
    }

    /// Submits a request again. A queued request that has waited too long by now is refused here.
    pub(super) fn say_request(&mut self, key: &RequestKey, now: LocalMicros) {
        let machine = self.replica.machine();
        let pool_timeout = machine.config().pools.get(&key.0).and_then(|pool| pool.queue_timeout);
        let Some(request) = self.requests.open.get_mut(key) else { return };
        if let LocalState::Running { again_at, .. } = &mut request.state {
            *again_at = None;
        }
        match request.line(&key.0, pool_timeout, now) {
            Some(line) => self.say_of(&line, None),
            None => {
                self.requests.open.remove(key);
                self.refuse(key, RequestRefusal::Expired);
            }
        }
    }

    fn refuse(&mut self, (pool, id): &RequestKey, reason: RequestRefusal) {
        let (pool, id) = (pool.clone(), id.clone());
        self.outputs.push_back(MemberOutput::Refused { pool, id, reason });
    }

    /// Passes a grant to the client if the process is sure to be a member; otherwise postpones it.
    /// A grant of a request that this process no longer has is given back.
    pub(super) fn take_grant(&mut self, pool: &Arc<str>, grant: Grant, now: LocalMicros) {
        let key = (pool.clone(), grant.id.clone());
        let is_sure = self.is_sure(now);
        let Some(request) = self.requests.open.get_mut(&key) else {
            if !self.requests.ends.contains_key(&key) {
                self.say_given_up(key);
            }
            return;
        };
        let worker = grant.place.as_ref().map(|place| place.worker.clone());
        match &mut request.state {
            // The request is already running, and now has a slot.
            LocalState::Running { again_at, .. } => *again_at = None,
            _ if is_sure => {
                request.state = MemberRequest::running(worker);
                self.outputs.push_back(MemberOutput::Granted { pool: pool.clone(), grant });
            }
            state => *state = LocalState::Postponed { grant, since: now },
        }
    }

    /// Uses the postponed grants that are older than an `alive` that was read back. The process was
    /// still a member after these grants were made.
    pub(super) fn use_postponed_grants(&mut self, alive_written_at: LocalMicros) {
        for ((pool, _), request) in &mut self.requests.open {
            let LocalState::Postponed { grant, since } = &request.state else { continue };
            if *since > alive_written_at {
                continue;
            }
            let grant = grant.clone();
            let worker = grant.place.as_ref().map(|place| place.worker.clone());
            request.state = MemberRequest::running(worker);
            self.outputs.push_back(MemberOutput::Granted { pool: pool.clone(), grant });
        }
    }

    /// Passes a refusal to the client. A request that is already running continues, and is
    /// submitted again later.
    pub(super) fn take_refusal(
        &mut self,
        pool: &Arc<str>,
        id: &Arc<str>,
        reason: RequestRefusal,
        now: LocalMicros,
    ) {
        let key = (pool.clone(), id.clone());
        match self.requests.open.get_mut(&key).map(|request| &mut request.state) {
            None => {}
            Some(LocalState::Running { again_at, worker }) => {
                // The request's worker may have been removed, so the request is submitted again
                // without a worker.
                *worker = None;
                *again_at = Some(now.after(super::JOIN_AGAIN_AFTER));
            }
            Some(LocalState::Waiting | LocalState::Postponed { .. }) => {
                self.requests.open.remove(&key);
                self.refuse(&key, reason);
            }
        }
    }

    /// Aborts a request in flight whose slot the machine has freed.
    pub(super) fn cut_if_running(&mut self, pool: &Arc<str>, id: &Arc<str>) {
        let key = (pool.clone(), id.clone());
        let request = self.requests.open.get(&key);
        if request.is_some_and(|it| matches!(it.state, LocalState::Running { .. })) {
            self.requests.open.remove(&key);
            let (pool, id) = key;
            self.outputs.push_back(MemberOutput::CutFlight { pool, id });
        }
    }

    /// Aborts all running requests, because their slots are about to be freed.
    pub(super) fn cut_all(&mut self) {
        let running: Vec<RequestKey> = self.requests.running().cloned().collect();
        for key in running {
            self.requests.open.remove(&key);
            let (pool, id) = key.clone();
            self.outputs.push_back(MemberOutput::CutFlight { pool, id: id.clone() });
            let line = PoolLine::new(&key.0, Event::Cancel { id });
            self.say_end(key, vec![line]);
        }
    }

    /// Submits again the running requests that were refused before.
    pub(super) fn say_uncounted(&mut self, now: LocalMicros) {
        let is_due = |it: &MemberRequest| match it.state {
            LocalState::Running { again_at, .. } => again_at.is_some_and(|at| at <= now),
            _ => false,
        };
        let due = self.requests.open.iter().filter(|(_, it)| is_due(it));
        let due: Vec<RequestKey> = due.map(|(key, _)| key.clone()).collect();
        due.iter().for_each(|key| self.say_request(key, now));
    }
}
