//! What the pool decides, and what that means for those who wait.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use fairgate_core::Handle;
use fairgate_core::decision::{Decision, Grant, Reject, Sink};
use fairgate_core::event::{Event, Submit};
use fairgate_core::units::Micros;
use fairgate_journal::Writer;

use super::{Desk, Entry, News, Number, Phase, Refusal, Request};
use crate::owners::Owner;

/// A request that is being submitted.
struct Newcomer<W> {
    request: Request,
    waiter: Option<W>,
}

/// What the pool says to one event, in order.
pub(super) enum Said {
    Accepted(Handle),
    Decided(Decision),
}

/// Hears the pool, and asks for reasons where somebody wants them.
struct Heard<'a> {
    said: Vec<Said>,
    to_explain: &'a HashSet<Arc<str>>,
}

impl Sink for Heard<'_> {
    fn decided(&mut self, decision: Decision) {
        self.said.push(Said::Decided(decision));
    }

    fn accepted(&mut self, request: Handle, _id: &Arc<str>) {
        self.said.push(Said::Accepted(request));
    }

    fn wants_why(&self, id: &str) -> bool {
        !self.to_explain.is_empty() && self.to_explain.contains(id)
    }
}

impl<W> Desk<W> {
    /// The pool's time now; it never goes back.
    pub(super) fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Micros(elapsed).max(self.pool.now())
    }

    /// Puts a request into the pool. Who is `asking` is told by the result, and by its entry, instead of by a notice.
    pub(super) fn submit(
        &mut self,
        request: Request,
        waiter: Option<W>,
        submit: Box<Submit>,
        asking: bool,
    ) -> Result<Option<Handle>, Refusal> {
        let asking = asking.then_some(request.number);
        self.apply_with(Event::Submit(submit), Some(Newcomer { request, waiter }), asking)
    }

    /// Applies an event of nobody who is asking.
    pub(super) fn apply(&mut self, event: Event) {
        let _ = self.apply_with(event, None, None);
    }

    /// Applies an event and notes down who is to be told of its decisions: the newcomer's handle, or why it is refused.
    fn apply_with(
        &mut self,
        event: Event,
        mut newcomer: Option<Newcomer<W>>,
        asking: Option<Number>,
    ) -> Result<Option<Handle>, Refusal> {
        let at = self.now();
        if let Some(journal) = &mut self.journal {
            journal.write(at, &event);
        }
        let mut heard = Heard { said: mem::take(&mut self.said), to_explain: &self.to_explain };
        // It cannot fail: `now` is never before the pool's time.
        let _ = self.pool.apply(at, event, &mut heard);
        let mut said = heard.said;
        let mut answer = Ok(None);
        for each in said.drain(..) {
            match each {
                Said::Accepted(handle) => {
                    if let Some(newcomer) = newcomer.take() {
                        self.accepted(handle, newcomer);
                        answer = Ok(Some(handle));
                    }
                }
                Said::Decided(Decision::Grant(grant)) => self.granted(at, grant, asking),
                Said::Decided(Decision::Reject(reject)) => {
                    let refusal = self.refusal(&reject);
                    match reject.request {
                        Some(handle) => self.pushed_out(handle, refusal),
                        // Who has no handle was never accepted.
                        None => {
                            if let Some(newcomer) = newcomer.take() {
                                answer = Err(refusal.clone());
                                self.turned_away(newcomer, refusal, asking);
                            }
                        }
                    }
                }
                // The pool has no queue timeout.
                Said::Decided(Decision::Expire { .. }) => {}
            }
        }
        self.said = said;
        answer
    }

    fn accepted(&mut self, handle: Handle, newcomer: Newcomer<W>) {
        let Newcomer { request, waiter } = newcomer;
        self.owners.starts_to_wait(request.waiting_owner());
        let its = self.agents.get(request.agent);
        its.waiting += 1;
        its.depth_thousandths += u64::from(request.weight.thousandths());
        let phase = Phase::Waiting { waiter, since: self.pool.ticks() };
        self.put_entry(handle, Entry { request, phase });
    }

    fn granted(&mut self, at: Micros, grant: Grant, asking: Option<Number>) {
        let handle = grant.request.index();
        let Some(Some(entry)) = self.entries.get_mut(handle) else { return };
        let request = &mut entry.request;
        self.owners.stops_waiting(request.waiting_owner());
        if !request.keeps {
            request.owner = Owner::NOBODY;
        }
        self.owners.takes(request.owner);
        let waited_us = grant.waited.0;
        let its = self.agents.get(request.agent);
        its.waiting -= 1;
        its.depth_thousandths -= u64::from(request.weight.thousandths());
        its.in_flight += 1;
        its.granted(waited_us);
        let why = (grant.why.is_some() && self.to_explain.remove(&request.id))
            .then(|| text(at, Decision::Grant(grant)));
        let number = request.number;
        let ticket = self.provider.sends(request.cost, at);
        if let Phase::Waiting { waiter, .. } =
            mem::replace(&mut entry.phase, Phase::InFlight { why, ticket })
            && asking != Some(number)
        {
            self.tell(number, waiter, News::Granted { waited_us });
        }
    }

    /// A request that waited is refused.
    fn pushed_out(&mut self, handle: Handle, refusal: Refusal) {
        let Some(Entry { request, phase }) = self.take_entry(handle) else { return };
        self.agents.get(request.agent).refused(refusal.code());
        self.leave_queue(&request);
        if let Phase::Waiting { waiter, .. } = phase {
            self.tell(request.number, waiter, News::Refused(refusal));
        }
    }

    /// A request is refused before it could wait.
    fn turned_away(&mut self, newcomer: Newcomer<W>, refusal: Refusal, asking: Option<Number>) {
        let Newcomer { request, waiter } = newcomer;
        self.to_explain.remove(&request.id);
        self.unreserve(&request);
        if asking != Some(request.number) {
            self.agents.get(request.agent).refused(refusal.code());
            self.tell(request.number, waiter, News::Refused(refusal));
        }
    }

    fn refusal(&self, reject: &Reject) -> Refusal {
        let limit = self.config.max_queue.unwrap_or(u64::MAX);
        let waiting = self.pool.waiting();
        let retry_us = self.pace.interval_us();
        Refusal::QueueFull { reason: reject.reason.code(), waiting, limit, retry_us }
    }
}

fn text(at: Micros, decision: Decision) -> Box<str> {
    let mut writer = Writer::new(Vec::new());
    // Memory takes everything.
    let _ = writer.write_decision(at, &decision);
    String::from_utf8(writer.into_inner()).unwrap_or_default().into()
}
