//! Replays the same arrivals under another policy.
//!
//! A recording has everything that reached a pool, including the reactions of clients and workers to its grants. Under
//! another policy the grants come at other times, so those reactions move too:
//!
//! * Requests arrive as recorded. So do holds, resumes, capacities, weights, caps, workers and ticks.
//! * A granted request gives its first token, and ends, as long after its grant as it did in the recording, with its
//!   recorded tokens. A request that never ran there takes its cost times the mean service time per token (over all
//!   requests that ran to their end: service times ÷ tokens used, or costs if those are not known) and uses its cost. A
//!   request that still ran when the recording ended keeps its slot to the end.
//! * A client that gave up waiting gives up at the same time: its request leaves the queue if it still waits, or ends
//!   if it runs. The cancel of a request in flight counts as the end of its service, and moves with the grant.
//! * Policy events are left out: the new policy applies throughout.
//! * If the new policy is a policy file, each arrival gets a new class (`other_policy.rs`).
//!   Requests that wait or are in flight when the recording begins keep their classes. Costs and
//!   tokens used are those of the recording.
//! * After the last line, requests in flight still end after their service times. So do requests that are granted as a
//!   result, until only requests without a known end are in flight.
//!
//! An end at the same microsecond as a recorded event goes first, in the order of the grants, with one exception: a
//! request granted at the very time of its recorded grant follows the lines of the recording. Each line that is left
//! out still advances time, like a tick. A recording without policy events, replayed under its own policy, therefore
//! gives its own decisions, line by line, whatever its ids, late releases and ties.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::event::Event;
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::{Micros, Tokens};

use super::journal::{ReplayEntry, ReplayJournal};
use super::live_requests::{LiveRequest, LiveRequests, ReplayRequestIndex};
use super::other_policy::{FlowWeight, OtherPolicy};
use super::recording::{RecordedEnd, RecordedLine, RecordedRequest, ReplayRecording};
use super::steps::{self, ReplayListener, ReplayStep};
use crate::error::ReplayError;

/// A replay under another policy.
#[derive(Debug)]
pub(crate) struct WhatIfReplay<'a> {
    recording: &'a ReplayRecording,
    policy: &'a OtherPolicy,
    pool: Pool,
    roster: LiveRequests,
    due: BinaryHeap<Reverse<ScheduledEvent>>,
    grants: u64,
    /// Number of the last line of the recording that has been applied.
    line: u64,
}

/// A future event of a granted request: its first token or its end.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ScheduledEvent {
    at: Micros,
    grant: u64,
    kind: ScheduledEventKind,
    number: ReplayRequestIndex,
    id: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledEventKind {
    FirstToken,
    End,
}

impl<'a> WhatIfReplay<'a> {
    /// Creates a replay of the pool that the recording starts from, with the policy that replaces
    /// the recorded one.
    pub(crate) fn new(recording: &'a ReplayRecording, pool: Pool, policy: &'a OtherPolicy) -> Self {
        let roster = LiveRequests::of(&pool);
        Self { recording, policy, pool, roster, due: BinaryHeap::new(), grants: 0, line: 1 }
    }

    /// Replays the journal under the policy; returns the pool at the end.
    pub(crate) fn run(
        mut self,
        journal: &mut ReplayJournal,
        listener: &mut impl ReplayListener,
    ) -> Result<Pool, ReplayError> {
        listener.opened(journal.clock());
        listener.start(&self.pool);
        // The pool may begin with requests that wait or are in flight, even before the first event.
        for event in self.first_events() {
            self.apply(None, self.pool.now(), event, listener)?;
        }
        while let Some(ReplayEntry { line, at, event }) = journal.next_entry()? {
            self.catch_up(Some(at), listener)?;
            let event = self.policy.classified(self.adjusted_event(line, event));
            self.line = line;
            self.apply(Some(line), at, event, listener)?;
        }
        self.catch_up(None, listener)?;
        Ok(self.pool)
    }

    /// Returns the events that switch to the other policy. A new policy begins without weights and
    /// caps, so the weights and caps that operators or a directory had set are set again.
    fn first_events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(policy) = &self.policy.policy
            && self.pool.policy() != policy
        {
            let Snapshot { weights, caps, .. } = self.pool.snapshot();
            events.push(Event::Policy(policy.clone()));
            let weights =
                weights.into_iter().map(|(by, flow, weight)| Event::Weight { by, flow, weight });
            events.extend(weights);
            let caps = caps.into_iter().map(|cap| Event::Cap {
                by: cap.by,
                flow: cap.flow,
                slots: cap.slots,
            });
            events.extend(caps);
        }
        let set = self.policy.weights.iter().cloned();
        events.extend(set.map(|FlowWeight { by, flow, weight }| Event::Weight {
            by,
            flow,
            weight,
        }));
        events
    }

    /// Applies all scheduled events that are due up to the given time, or all scheduled events if no time is given.
    fn catch_up(
        &mut self,
        until: Option<Micros>,
        listener: &mut impl ReplayListener,
    ) -> Result<(), ReplayError> {
        while let Some(Reverse(next)) = self.due.peek() {
            if until.is_some_and(|until| next.at > until) {
                break;
            }
            let Some(Reverse(ScheduledEvent { at, number, kind: deed, id, .. })) = self.due.pop()
            else {
                break;
            };
            if self.roster.get(&id).is_none_or(|live| live.number != number) {
                continue;
            }
            let event = match (deed, self.recording.fact(number).end) {
                (ScheduledEventKind::FirstToken, _) => Event::FirstToken { id },
                (ScheduledEventKind::End, RecordedEnd::Flight { tokens, quota, .. }) => {
                    Event::Release { id, tokens, quota }
                }
                (ScheduledEventKind::End, _) => Event::Release { id, tokens: None, quota: None },
            };
            self.apply(None, at, event, listener)?;
        }
        Ok(())
    }

    /// Returns the event of a line, or a tick if the event does not apply under the new policy.
    fn adjusted_event(&self, line: u64, event: Event) -> Event {
        let stands = match &event {
            Event::Release { id, .. } | Event::Cancel { id } => {
                self.known(id).is_some_and(|(live, fact)| match fact.end {
                    RecordedEnd::GaveUp { line: given_up } => given_up == line,
                    RecordedEnd::Flight { mark, .. } => {
                        mark.line == line && is_on_record(live, fact)
                    }
                    RecordedEnd::Unknown => false,
                })
            }
            Event::FirstToken { id } => self.known(id).is_some_and(|(live, fact)| {
                let recorded = fact.first_token.is_some_and(|mark| mark.line == line);
                recorded && is_on_record(live, fact)
            }),
            Event::Policy(_) => false,
            Event::Weight { by, flow, .. } => !self.policy.sets_weight(*by, flow),
            _ => true,
        };
        if stands { event } else { Event::Tick }
    }

    fn known(&self, id: &str) -> Option<(LiveRequest, &'a RecordedRequest)> {
        let live = self.roster.get(id)?;
        Some((live, self.recording.fact(live.number)))
    }

    fn apply(
        &mut self,
        line: Option<u64>,
        at: Micros,
        event: Event,
        listener: &mut impl ReplayListener,
    ) -> Result<(), ReplayError> {
        let mut tap = GrantListener { listener, roster: &mut self.roster, at, granted: Vec::new() };
        steps::apply(&mut self.pool, (line, at, event), &mut tap)?;
        for (number, id, cost) in tap.granted {
            self.schedule(at, number, id, cost);
        }
        Ok(())
    }

    fn schedule(
        &mut self,
        granted: Micros,
        number: ReplayRequestIndex,
        id: Arc<str>,
        cost: Tokens,
    ) {
        let fact = self.recording.fact(number);
        let grant = self.grants;
        self.grants += 1;
        let mut push = |deed, after: Micros| {
            let at = Micros(granted.0.saturating_add(after.0));
            self.due.push(Reverse(ScheduledEvent {
                at,
                grant,
                kind: deed,
                number,
                id: id.clone(),
            }));
        };
        let on_record =
            |mark: RecordedLine| fact.granted_at() == Some(granted) && mark.line > self.line;
        if let (Some(mark), Some(then)) = (fact.first_token, fact.granted_at())
            && !on_record(mark)
        {
            push(ScheduledEventKind::FirstToken, Micros(mark.at.0 - then.0));
        }
        match (fact.end, self.recording.service(fact, cost)) {
            (RecordedEnd::Flight { mark, .. }, _) if on_record(mark) => {}
            (_, Some(service)) => push(ScheduledEventKind::End, service),
            (_, None) => {}
        }
    }
}

/// Returns true if a request was granted at its recorded time, so that its end comes from the recorded lines.
fn is_on_record(live: LiveRequest, fact: &RecordedRequest) -> bool {
    live.granted.is_some() && live.granted == fact.granted_at()
}

/// Listener that notes the grants of a replay, and passes everything on to another listener.
struct GrantListener<'t, L> {
    listener: &'t mut L,
    roster: &'t mut LiveRequests,
    at: Micros,
    granted: Vec<(ReplayRequestIndex, Arc<str>, Tokens)>,
}

impl<L: ReplayListener> DecisionSink for GrantListener<'_, L> {
    fn decided(&mut self, decision: Decision) {
        let about = self.roster.decided(self.at, &decision);
        if let (Some(number), Decision::Grant(grant)) = (about, &decision) {
            self.granted.push((number, grant.id.clone(), grant.cost));
        }
        self.listener.decided(decision);
    }

    fn wants_why(&self, id: &str) -> bool {
        self.listener.wants_why(id)
    }
}

impl<L: ReplayListener> ReplayListener for GrantListener<'_, L> {
    fn before(&mut self, step: ReplayStep<'_>, pool: &Pool) {
        self.roster.before(step.event);
        self.listener.before(step, pool);
    }

    fn after(&mut self, pool: &Pool) -> Result<(), ReplayError> {
        self.roster.after();
        self.listener.after(pool)
    }
}
