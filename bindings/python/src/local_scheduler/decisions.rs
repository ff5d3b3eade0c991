//! Applies events to the pool, and acts on the pool's decisions.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use fairgate_core::RequestHandle;
use fairgate_core::decision::{Decision, DecisionSink, Grant, RejectedRequest};
use fairgate_core::event::{Event, Submit};
use fairgate_core::units::Micros;
use fairgate_journal::JournalWriter;

use super::{LocalRequest, LocalScheduler, PoolEntry, PoolEntryPhase, SlotRefusal, WaitResult};
use crate::owners::SlotOwner;
use crate::request_number::RequestNumber;

/// A request that is being submitted to the pool, with its waker if a waker is already set.
struct NewPoolRequest<W> {
    request: LocalRequest,
    waiter: Option<W>,
}

/// One output of the pool for an event: an accepted request or a decision.
pub(super) enum LocalPoolOutput {
    Accepted(RequestHandle),
    Decided(Decision),
}

/// Collects the pool's outputs for one event, and requests the reasons for the grants that should be explained.
struct LocalPoolSink<'a> {
    said: Vec<LocalPoolOutput>,
    to_explain: &'a HashSet<Arc<str>>,
}

impl DecisionSink for LocalPoolSink<'_> {
    fn decided(&mut self, decision: Decision) {
        self.said.push(LocalPoolOutput::Decided(decision));
    }

    fn accepted(&mut self, request: RequestHandle, _id: &Arc<str>) {
        self.said.push(LocalPoolOutput::Accepted(request));
    }

    fn wants_why(&self, id: &str) -> bool {
        !self.to_explain.is_empty() && self.to_explain.contains(id)
    }
}

impl<W> LocalScheduler<W> {
    /// Returns the current time on the pool's clock, which never goes back.
    pub(super) fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX);
        Micros(elapsed).max(self.pool.now())
    }

    /// Returns the time on the pool's clock that is `time` from now.
    pub(super) fn after(&self, time: Micros) -> Micros {
        Micros(self.now().0.saturating_add(time.0))
    }

    /// Puts a request into the pool. If `asking` is true, no notice of the decision is sent, because the caller reads
    /// the decision from the result and from the request's entry.
    pub(super) fn submit(
        &mut self,
        request: LocalRequest,
        waiter: Option<W>,
        submit: Box<Submit>,
        asking: bool,
    ) -> Result<Option<RequestHandle>, SlotRefusal> {
        let asking = asking.then_some(request.number);
        self.apply_with(Event::Submit(submit), Some(NewPoolRequest { request, waiter }), asking)
    }

    /// Applies an event other than a submit. Clients get notices of the decisions.
    pub(super) fn apply(&mut self, event: Event) {
        let _ = self.apply_with(event, None, None);
    }

    /// Applies an event and records notices of the resulting decisions. Returns the handle of the new request, or the
    /// reason why the new request was refused.
    fn apply_with(
        &mut self,
        event: Event,
        mut newcomer: Option<NewPoolRequest<W>>,
        asking: Option<RequestNumber>,
    ) -> Result<Option<RequestHandle>, SlotRefusal> {
        let at = self.now();
        if let Some(journal) = &mut self.journal {
            journal.write(at, &event);
        }
        let mut heard =
            LocalPoolSink { said: mem::take(&mut self.pool_outputs), to_explain: &self.to_explain };
        // This cannot fail, because `now` is never before the pool's time.
        let _ = self.pool.apply(at, event, &mut heard);
        let mut said = heard.said;
        let mut answer = Ok(None);
        for each in said.drain(..) {
            match each {
                LocalPoolOutput::Accepted(handle) => {
                    if let Some(newcomer) = newcomer.take() {
                        self.accepted(handle, newcomer);
                        answer = Ok(Some(handle));
                    }
                }
                LocalPoolOutput::Decided(Decision::Grant(grant)) => self.granted(at, grant, asking),
                LocalPoolOutput::Decided(Decision::Reject(reject)) => {
                    let refusal = self.refusal(&reject);
                    match reject.request {
                        Some(handle) => self.evicted(handle, refusal),
                        // A rejection without a handle is that of a request that was never accepted.
                        None => {
                            if let Some(newcomer) = newcomer.take() {
                                answer = Err(refusal.clone());
                                self.refuse_submitted(newcomer, refusal, asking);
                            }
                        }
                    }
                }
                LocalPoolOutput::Decided(Decision::Expire { request, .. }) => self.expired(request),
            }
        }
        self.pool_outputs = said;
        answer
    }

    fn accepted(&mut self, handle: RequestHandle, newcomer: NewPoolRequest<W>) {
        let NewPoolRequest { request, waiter } = newcomer;
        self.owners.add_wait(request.waiting_owner());
        let its = self.agents.get(request.agent);
        its.waiting += 1;
        its.depth_thousandths += u64::from(request.weight.thousandths());
        let phase = PoolEntryPhase::Waiting { waiter, since: self.pool.ticks() };
        self.put_entry(handle, PoolEntry { request, phase });
    }

    fn granted(&mut self, at: Micros, grant: Grant, asking: Option<RequestNumber>) {
        let handle = grant.request.index();
        let Some(Some(entry)) = self.entries.get_mut(handle) else { return };
        let request = &mut entry.request;
        self.owners.remove_wait(request.waiting_owner());
        if !request.keeps {
            request.owner = SlotOwner::NOBODY;
        }
        self.owners.add_held(request.owner);
        let waited_us = grant.waited.0;
        let its = self.agents.get(request.agent);
        its.waiting -= 1;
        its.depth_thousandths -= u64::from(request.weight.thousandths());
        its.in_flight += 1;
        its.granted(waited_us);
        let why = (grant.why.is_some() && self.to_explain.remove(&request.id))
            .then(|| text(at, Decision::Grant(grant)));
        let number = request.number;
        let ticket = self.provider.record_sent(request.cost, at);
        if let PoolEntryPhase::Waiting { waiter, .. } =
            mem::replace(&mut entry.phase, PoolEntryPhase::InFlight { why, ticket })
            && asking != Some(number)
        {
            self.notify(number, waiter, WaitResult::Granted { waited_us });
        }
    }

    /// Refuses a queued request that the pool evicted.
    fn evicted(&mut self, handle: RequestHandle, refusal: SlotRefusal) {
        let Some(PoolEntry { request, phase }) = self.take_entry(handle) else { return };
        self.agents.get(request.agent).refused(refusal.code());
        self.leave_queue(&request);
        if let PoolEntryPhase::Waiting { waiter, .. } = phase {
            self.notify(request.number, waiter, WaitResult::Refused(refusal));
        }
    }

    /// Ends a queued request at its deadline.
    fn expired(&mut self, handle: RequestHandle) {
        let Some(PoolEntry { request, phase }) = self.take_entry(handle) else { return };
        self.leave_queue(&request);
        if let PoolEntryPhase::Waiting { waiter, .. } = phase {
            self.notify_expired(&request, waiter);
        }
    }

    /// Reports to a client that its deadline has passed, and counts a withdrawal.
    pub(super) fn notify_expired(&mut self, request: &LocalRequest, waiter: Option<W>) {
        self.agents.get(request.agent).withdrawals += 1;
        self.notify(request.number, waiter, WaitResult::Refused(SlotRefusal::DeadlinePassed));
    }

    /// Refuses a request that the pool did not accept.
    fn refuse_submitted(
        &mut self,
        newcomer: NewPoolRequest<W>,
        refusal: SlotRefusal,
        asking: Option<RequestNumber>,
    ) {
        let NewPoolRequest { request, waiter } = newcomer;
        self.to_explain.remove(&request.id);
        self.unreserve(&request);
        if asking != Some(request.number) {
            self.agents.get(request.agent).refused(refusal.code());
            self.notify(request.number, waiter, WaitResult::Refused(refusal));
        }
    }

    fn refusal(&self, reject: &RejectedRequest) -> SlotRefusal {
        let limit = self.config.max_queue.unwrap_or(u64::MAX);
        let waiting = self.pool.waiting();
        let retry_us = self.pace.interval_us();
        SlotRefusal::QueueFull { reason: reject.reason.code(), waiting, limit, retry_us }
    }
}

fn text(at: Micros, decision: Decision) -> Box<str> {
    let mut writer = JournalWriter::new(Vec::new());
    // Writing to memory cannot fail.
    let _ = writer.write_decision(at, &decision);
    String::from_utf8(writer.into_inner()).unwrap_or_default().into()
}
