//! What the pool decides, and what that means for those who wait.

use std::collections::HashSet;

use fairgate_core::decision::{Decision, Grant, Reject, Sink};
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::Writer;

use super::{Desk, Id, News, Notice, Phase, Refusal};

impl<W> Desk<W> {
    /// The pool's time now; it never goes back.
    pub(super) fn now(&self) -> Micros {
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        Micros(elapsed).max(self.pool.now())
    }

    /// Applies an event that refuses nobody who is asking.
    pub(super) fn apply_quietly(&mut self, event: Event) {
        let _ = self.apply(event, None);
    }

    /// Applies an event and notes down who is to be told of its decisions. Who is `asking` is told by the result, and
    /// by its entry, instead.
    pub(super) fn apply(&mut self, event: Event, asking: Option<Id>) -> Result<(), Refusal> {
        let at = self.now();
        if let Some(journal) = &mut self.journal {
            journal.write(at, &event);
        }
        let mut decisions = Decisions { made: Vec::new(), to_explain: &self.to_explain };
        // It cannot fail: `now` is never before the pool's time.
        let _ = self.pool.apply(at, event, &mut decisions);
        let mut answer = Ok(());
        for decision in decisions.made {
            match decision {
                Decision::Grant(grant) => self.granted(at, grant, asking),
                Decision::Reject(reject) => {
                    let id = number(&reject.id);
                    let refusal = self.refusal(&reject);
                    if asking == Some(id) {
                        let waiter = self.leave_queue(id);
                        self.discarded.extend(waiter);
                        answer = Err(refusal);
                    } else {
                        self.refused(id, refusal);
                    }
                }
                // The pool has no queue timeout.
                Decision::Expire { .. } => {}
            }
        }
        answer
    }

    fn granted(&mut self, at: Micros, mut grant: Grant, asking: Option<Id>) {
        let id = number(&grant.id);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let phase = std::mem::replace(&mut entry.phase, Phase::Flying);
        self.owners.stops_waiting(entry.owner);
        self.owners.takes(entry.owner);
        let waited_us = grant.waited.0;
        let its = self.agents.get(entry.agent);
        its.waiting -= 1;
        its.depth_thousandths -= u64::from(entry.weight.thousandths());
        its.flying += 1;
        its.granted(waited_us);
        if grant.why.is_some() && self.to_explain.remove(&id) {
            grant.place = None;
            self.whys.insert(id, text(at, Decision::Grant(grant)));
        }
        if let Phase::Waiting { waiter, .. } = phase {
            match asking == Some(id) {
                true => self.discarded.push(waiter),
                false => {
                    let news = News::Granted { waited_us };
                    self.outbox.push_back(Notice { id, waiter, news });
                }
            }
        }
    }

    fn refused(&mut self, id: Id, refusal: Refusal) {
        let Some(entry) = self.entries.get(&id) else { return };
        self.agents.get(entry.agent).refused(refusal.code());
        if let Some(waiter) = self.leave_queue(id) {
            self.outbox.push_back(Notice { id, waiter, news: News::Refused(refusal) });
        }
    }

    fn refusal(&self, reject: &Reject) -> Refusal {
        let limit = self.config.max_queue.unwrap_or(u64::MAX);
        let waiting = self.pool.waiting();
        let retry_us = self.pace.interval_us();
        Refusal::QueueFull { reason: reject.reason.code(), waiting, limit, retry_us }
    }
}

/// A request's number from its id; ids are made by [`super::name`].
fn number(id: &str) -> Id {
    id.parse().unwrap_or_default()
}

fn text(at: Micros, decision: Decision) -> String {
    let mut writer = Writer::new(Vec::new());
    // Memory takes everything.
    let _ = writer.write_decision(at, &decision);
    String::from_utf8(writer.into_inner()).unwrap_or_default()
}

/// Collects decisions, and asks for reasons where somebody wants them.
struct Decisions<'a> {
    made: Vec<Decision>,
    to_explain: &'a HashSet<Id>,
}

impl Sink for Decisions<'_> {
    fn decided(&mut self, decision: Decision) {
        self.made.push(decision);
    }

    fn wants_why(&self, id: &str) -> bool {
        !self.to_explain.is_empty() && self.to_explain.contains(&number(id))
    }
}
