//! The same arrivals under another policy.
//!
//! A recording says what reached a pool, and with it what clients and workers did in answer to its grants. Under
//! another policy the grants come at other times, so those answers move along:
//!
//! * Requests arrive as recorded. So do holds, resumes, capacities, weights, caps, workers and ticks.
//! * A request that is granted gives its first token, and ends, as long after its grant as it did in the
//!   recording, with the tokens it had there. One that never ran there takes its cost times the mean service time
//!   per token (of all flights that ended: service times over tokens used, or costs where those are not known)
//!   and uses its cost. One that still ran when the recording ended keeps its slot to the end.
//! * A client that gave up waiting gives up at the same time: out of the queue if its request still waits, or by
//!   ending it if it runs. Where it was cancelled in flight, that was the end of its service, and moves along.
//! * Policy events are left out: the new policy stands throughout.
//! * Where the new policy is a policy file, each arrival gets its class anew (`other_policy.rs`). What waits or is in flight when
//!   the recording begins keeps its own. Costs and tokens used are those of the recording.
//! * After the last line, what has been granted still ends when it would, and so do those granted thereby, until
//!   nothing that is in flight has an end.
//!
//! What ends at the same microsecond as something recorded happens goes first, in the order of the grants, but for
//! this: a request granted at the very time of its recorded grant keeps to the lines of the recording. Each line left
//! out still moves time, as a tick does. So a recording without policy events, replayed under its own policy, gives
//! its own decisions, line by line, whatever its ids, late releases and ties.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, Sink};
use fairgate_core::event::Event;
use fairgate_core::units::{Micros, Tokens};

use super::journal::{Entry, Journal};
use super::other_policy::OtherPolicy;
use super::recording::{End, Fact, Mark, Recording};
use super::roster::{Live, Number, Roster};
use super::steps::{self, Listener, Step};

/// A replay under another policy.
#[derive(Debug)]
pub(crate) struct WhatIf<'a> {
    recording: &'a Recording,
    policy: &'a OtherPolicy,
    pool: Pool,
    roster: Roster,
    due: BinaryHeap<Reverse<Due>>,
    grants: u64,
    /// The last line of the recording that has been applied.
    line: u64,
}

/// Something that a granted request will do.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Micros,
    grant: u64,
    deed: Deed,
    number: Number,
    id: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deed {
    FirstToken,
    End,
}

impl<'a> WhatIf<'a> {
    /// For the pool that the recording starts from, and the policy that stands instead of its own.
    pub(crate) fn new(recording: &'a Recording, pool: Pool, policy: &'a OtherPolicy) -> Self {
        let roster = Roster::of(&pool);
        Self { recording, policy, pool, roster, due: BinaryHeap::new(), grants: 0, line: 1 }
    }

    /// Replays the journal under the policy, and gives back the pool as it is then.
    pub(crate) fn run(
        mut self,
        journal: &mut Journal,
        listener: &mut impl Listener,
    ) -> anyhow::Result<Pool> {
        listener.start(&self.pool);
        // Even where nothing has happened yet, the pool may begin with requests that wait or are in flight.
        let policy = &self.policy.policy;
        if self.pool.policy() != policy {
            self.apply(None, self.pool.now(), Event::Policy(policy.clone()), listener)?;
        }
        while let Some(Entry { line, at, event }) = journal.next_entry()? {
            self.catch_up(Some(at), listener)?;
            let event = self.policy.classified(self.as_it_is_now(line, event));
            self.line = line;
            self.apply(Some(line), at, event, listener)?;
        }
        self.catch_up(None, listener)?;
        Ok(self.pool)
    }

    /// Does what is due until then, or all that is ever due.
    fn catch_up(
        &mut self,
        until: Option<Micros>,
        listener: &mut impl Listener,
    ) -> anyhow::Result<()> {
        while let Some(Reverse(next)) = self.due.peek() {
            if until.is_some_and(|until| next.at > until) {
                break;
            }
            let Some(Reverse(Due { at, number, deed, id, .. })) = self.due.pop() else { break };
            if self.roster.get(&id).is_none_or(|live| live.number != number) {
                continue;
            }
            let event = match (deed, self.recording.fact(number).end) {
                (Deed::FirstToken, _) => Event::FirstToken { id },
                (Deed::End, End::Flight { tokens, quota, .. }) => {
                    Event::Release { id, tokens, quota }
                }
                (Deed::End, _) => Event::Release { id, tokens: None, quota: None },
            };
            self.apply(None, at, event, listener)?;
        }
        Ok(())
    }

    /// A line's event, or a tick in the place of one that the new policy overtakes.
    fn as_it_is_now(&self, line: u64, event: Event) -> Event {
        let stands = match &event {
            Event::Release { id, .. } | Event::Cancel { id } => {
                self.known(id).is_some_and(|(live, fact)| match fact.end {
                    End::GaveUp { line: given_up } => given_up == line,
                    End::Flight { mark, .. } => mark.line == line && on_record(live, fact),
                    End::Unsaid => false,
                })
            }
            Event::FirstToken { id } => self.known(id).is_some_and(|(live, fact)| {
                let recorded = fact.first_token.is_some_and(|mark| mark.line == line);
                recorded && on_record(live, fact)
            }),
            Event::Policy(_) => false,
            _ => true,
        };
        if stands { event } else { Event::Tick }
    }

    fn known(&self, id: &str) -> Option<(Live, &'a Fact)> {
        let live = self.roster.get(id)?;
        Some((live, self.recording.fact(live.number)))
    }

    fn apply(
        &mut self,
        line: Option<u64>,
        at: Micros,
        event: Event,
        listener: &mut impl Listener,
    ) -> anyhow::Result<()> {
        let mut tap = Tap { listener, roster: &mut self.roster, at, granted: Vec::new() };
        steps::apply(&mut self.pool, (line, at, event), &mut tap)?;
        for (number, id, cost) in tap.granted {
            self.schedule(at, number, id, cost);
        }
        Ok(())
    }

    fn schedule(&mut self, granted: Micros, number: Number, id: Arc<str>, cost: Tokens) {
        let fact = self.recording.fact(number);
        let grant = self.grants;
        self.grants += 1;
        let mut push = |deed, after: Micros| {
            let at = Micros(granted.0.saturating_add(after.0));
            self.due.push(Reverse(Due { at, grant, deed, number, id: id.clone() }));
        };
        let on_record = |mark: Mark| fact.granted_at() == Some(granted) && mark.line > self.line;
        if let (Some(mark), Some(then)) = (fact.first_token, fact.granted_at())
            && !on_record(mark)
        {
            push(Deed::FirstToken, Micros(mark.at.0 - then.0));
        }
        match (fact.end, self.recording.service(fact, cost)) {
            (End::Flight { mark, .. }, _) if on_record(mark) => {}
            (_, Some(service)) => push(Deed::End, service),
            (_, None) => {}
        }
    }
}

/// Whether a request was granted when the recording granted it, and so follows its lines.
fn on_record(live: Live, fact: &Fact) -> bool {
    live.granted.is_some() && live.granted == fact.granted_at()
}

/// Listens in on a replay for grants, and passes everything on.
struct Tap<'t, L> {
    listener: &'t mut L,
    roster: &'t mut Roster,
    at: Micros,
    granted: Vec<(Number, Arc<str>, Tokens)>,
}

impl<L: Listener> Sink for Tap<'_, L> {
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

impl<L: Listener> Listener for Tap<'_, L> {
    fn before(&mut self, step: Step<'_>, pool: &Pool) {
        self.roster.before(step.event);
        self.listener.before(step, pool);
    }

    fn after(&mut self, pool: &Pool) -> anyhow::Result<()> {
        self.roster.after();
        self.listener.after(pool)
    }
}
