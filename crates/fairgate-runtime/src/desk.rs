//! The pool and who waits for its decisions. Nothing here waits or knows a clock: letters and time come in, answers
//! go out through the hand-offs, what happened goes onto the tape.
//!
//! Whoever is granted and is not there any more has its slot taken back at once with 0 tokens, as an event of its
//! own, so that a replay of the tape decides the same.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::decision::{Decision, Grant, Reason, Reject, Sink};
use fairgate_core::event::{Event, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_core::{Handle, Pool};

use crate::handoff::Giver;
use crate::live::{Counts, JournalHealth, Live, StateHealth};
use crate::message::{Answer, End, How, Message, Name};
use crate::pace::Pace;
use crate::refused::Refused;
use crate::tape::Tape;

/// Hears every decision, in order, with its time.
pub type Watch = Box<dyn FnMut(Micros, &Decision) + Send>;

/// One pool at work.
pub(crate) struct Desk {
    pool: Pool,
    /// Who submitted each request, by its handle. What an earlier process left behind has no owner.
    owners: Vec<Option<Owner>>,
    /// The request that is being submitted, until the pool has accepted or refused it.
    newcomer: Option<Owner>,
    /// Granted, but nobody is there to have it.
    unclaimed: Vec<Arc<str>>,
    heard: Heard,
    queue_timeout: Duration,
    pace: Pace,
    watch: Option<Watch>,
    draining: bool,
    /// How many events there were since the start.
    pub(crate) steps: u64,
    pub(crate) tape: Tape,
    pub(crate) counts: Counts,
    pub(crate) journal_health: JournalHealth,
    pub(crate) state_health: StateHealth,
}

/// What the pool says to one event, in order.
#[derive(Default)]
struct Heard(Vec<Said>);

enum Said {
    Accepted(Handle),
    Decided(Decision),
}

impl Sink for Heard {
    fn decided(&mut self, decision: Decision) {
        self.0.push(Said::Decided(decision));
    }

    fn accepted(&mut self, request: Handle, _id: &Arc<str>) {
        self.0.push(Said::Accepted(request));
    }
}

/// Who submitted a request.
struct Owner {
    name: Name,
    came: Micros,
    /// Where its answer goes; nowhere any more once it is in flight.
    giver: Option<Giver<Answer>>,
}

impl Desk {
    /// A desk for this pool, of whose requests none has an owner yet.
    pub(crate) fn new(pool: Pool, queue_timeout: Duration, retry_after_max: Duration) -> Self {
        Self {
            pace: Pace::new(pool.now(), retry_after_max),
            pool,
            owners: Vec::new(),
            newcomer: None,
            unclaimed: Vec::new(),
            heard: Heard::default(),
            queue_timeout,
            watch: None,
            draining: false,
            steps: 0,
            tape: Tape::default(),
            counts: Counts::default(),
            journal_health: JournalHealth::default(),
            state_health: StateHealth::default(),
        }
    }

    /// Lets somebody hear the decisions.
    pub(crate) fn set_watch(&mut self, watch: Option<Watch>) {
        self.watch = watch;
    }

    /// The pool as it is.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The gate at this moment.
    pub(crate) fn live(&self) -> Live {
        Live {
            capacity: self.pool.capacity(),
            in_flight: self.pool.in_flight(),
            waiting: self.pool.waiting(),
            draining: self.draining,
            counts: self.counts,
            journal: self.journal_health.clone(),
            state: self.state_health.clone(),
        }
    }

    /// Does what a letter says. Draining is begun by [`Desk::begin_drain`]; when it is over is not the desk's to say.
    pub(crate) fn handle(&mut self, at: Micros, message: Message) {
        match message {
            Message::Submit { name, submit, giver } => self.submit(at, name, submit, giver),
            Message::Left(name) => self.leave(at, &name),
            Message::Ended { name, end } => self.end(at, &name, end),
            Message::FirstToken(name) => {
                if self.find(&name).is_some() {
                    self.apply(at, Event::FirstToken { id: name.id });
                }
            }
            Message::Errand(errand) => errand(self, at),
            Message::Saved(saved) => self.note_saved(saved),
            Message::Drain { .. } => self.begin_drain(at),
        }
    }

    /// Applies an event and carries the decisions to whom they concern.
    pub(crate) fn apply(&mut self, at: Micros, event: Event) {
        self.step(at, event);
        while let Some(id) = self.unclaimed.pop() {
            self.step(at, released(id, Some(Tokens(0)), Some(Tokens(0))));
        }
    }

    /// Notes how writing the state file went.
    pub(crate) fn note_saved(&mut self, saved: Result<(), String>) {
        self.state_health.saved += u64::from(saved.is_ok());
        self.state_health.error = saved.err();
    }

    /// Lets happen what time alone brings: expiries, late requests, rates that have filled, pauses that are over.
    pub(crate) fn pass_time(&mut self, at: Micros) {
        if self.pool.next_change().is_some_and(|change| change <= at) {
            self.apply(at, Event::Tick);
        }
    }

    /// Refuses what waits, and everything new from now on.
    pub(crate) fn begin_drain(&mut self, at: Micros) {
        if mem::replace(&mut self.draining, true) {
            return;
        }
        let waits = |owner: &mut Owner| owner.giver.is_some();
        let mut waiting: Vec<Owner> =
            self.owners.iter_mut().filter_map(|owner| owner.take_if(waits)).collect();
        // The latest first: the fewer heads of queues go, the fewer others are granted on the way.
        waiting.sort_unstable_by_key(|owner| std::cmp::Reverse(owner.name.ticket.0));
        let ids: Vec<Arc<str>> = waiting.iter().map(|owner| owner.name.id.clone()).collect();
        for giver in waiting.into_iter().filter_map(|owner| owner.giver) {
            self.counts.drained += 1;
            let _ = giver.give(Err(Refused::Draining));
        }
        for id in ids {
            self.apply(at, Event::Cancel { id });
        }
    }

    fn submit(&mut self, at: Micros, name: Name, submit: Box<Submit>, giver: Giver<Answer>) {
        if self.draining {
            self.counts.drained += 1;
            let _ = giver.give(Err(Refused::Draining));
            return;
        }
        if !giver.is_wanted() {
            self.counts.left += 1;
            return;
        }
        self.newcomer = Some(Owner { name, came: at, giver: Some(giver) });
        self.apply(at, Event::Submit(submit));
    }

    fn leave(&mut self, at: Micros, name: &Name) {
        let Some(owner) = self.find(name).and_then(|handle| self.take_owner(handle)) else {
            return;
        };
        let id = owner.name.id;
        self.counts.left += 1;
        match owner.giver {
            Some(_) => self.apply(at, Event::Cancel { id }),
            None => self.apply(at, released(id, Some(Tokens(0)), Some(Tokens(0)))),
        }
    }

    fn end(&mut self, at: Micros, name: &Name, end: End) {
        let Some(owner) = self.find(name).and_then(|handle| self.take_owner(handle)) else {
            return;
        };
        match end.how {
            How::Settled => self.counts.settled += 1,
            How::Failed => self.counts.failed += 1,
            How::GivenBack => self.counts.given_back += 1,
            How::Dropped => self.counts.dropped += 1,
        }
        let id = owner.name.id;
        match (end.tokens, end.quota) {
            (None, None) => self.apply(at, Event::Cancel { id }),
            (tokens, quota) => self.apply(at, released(id, tokens, quota)),
        }
    }

    /// The handle of the request by this name, where it is still its own: another may have the id by now.
    fn find(&self, name: &Name) -> Option<Handle> {
        let handle = name.request.or_else(|| self.pool.find(&name.id))?;
        let owner = self.owners.get(handle.index())?.as_ref()?;
        (owner.name.ticket == name.ticket).then_some(handle)
    }

    fn take_owner(&mut self, handle: Handle) -> Option<Owner> {
        self.owners.get_mut(handle.index())?.take()
    }

    fn put_owner(&mut self, handle: Handle, owner: Owner) {
        if self.owners.len() <= handle.index() {
            self.owners.resize_with(handle.index() + 1, || None);
        }
        self.owners[handle.index()] = Some(owner);
    }

    fn step(&mut self, at: Micros, event: Event) {
        let at = at.max(self.pool.now());
        self.steps += 1;
        self.tape.write(at, &event);
        let mut heard = mem::take(&mut self.heard);
        let ticks = self.pool.ticks().0;
        // Time has just been made not to go back.
        let _ = self.pool.apply(at, event, &mut heard);
        self.pace.observe(at, self.pool.ticks().0 - ticks, self.pool.waiting() > 0);
        for said in heard.0.drain(..) {
            match said {
                Said::Accepted(handle) => {
                    if let Some(owner) = self.newcomer.take() {
                        self.put_owner(handle, owner);
                    }
                }
                Said::Decided(decision) => {
                    if let Some(watch) = &mut self.watch {
                        watch(at, &decision);
                    }
                    self.carry(at, decision);
                }
            }
        }
        self.heard = heard;
    }

    fn carry(&mut self, at: Micros, decision: Decision) {
        match decision {
            Decision::Grant(grant) => self.carry_grant(grant),
            Decision::Reject(reject) => self.carry_reject(at, reject),
            Decision::Expire { request, .. } => {
                self.counts.expired += 1;
                let Some(owner) = self.take_owner(request) else { return };
                let waited = Duration::from_micros(at.0 - owner.came.0);
                let retry_after = self.pace.time_for(u128::from(self.pool.waiting()) + 1, at);
                let limit = self.queue_timeout;
                owner.answer(Err(Refused::Expired { waited, limit, retry_after }));
            }
        }
    }

    fn carry_grant(&mut self, grant: Grant) {
        self.counts.granted += 1;
        let handle = grant.request;
        let Some(owner) = self.owners.get_mut(handle.index()).and_then(Option::as_mut) else {
            self.unclaimed.push(grant.id);
            return;
        };
        let Some(giver) = owner.giver.take() else { return };
        if let Err(answer) = giver.give(Ok(grant)) {
            self.counts.left += 1;
            if let Ok(grant) = answer {
                self.take_owner(handle);
                self.unclaimed.push(grant.id);
            }
        }
    }

    fn carry_reject(&mut self, at: Micros, reject: Reject) {
        self.counts.rejected += 1;
        let Reject { request, reason, limit, .. } = reject;
        // Who has no handle was never accepted: it is the newcomer.
        let owner = match request {
            Some(handle) => self.take_owner(handle),
            None => self.newcomer.take(),
        };
        let Some(owner) = owner else { return };
        let waiting = u128::from(self.pool.waiting());
        let ahead = match (reason, &limit) {
            (Reason::Duplicate | Reason::NoWorker, _) => None,
            (Reason::ClassRequests, Some(limit)) => Some(limit.current),
            _ => Some(waiting),
        };
        let retry_after = ahead.map(|ahead| self.pace.time_for(ahead + 1, at));
        owner.answer(Err(Refused::Rejected { reason, limit, retry_after }));
    }
}

fn released(id: Arc<str>, tokens: Option<Tokens>, quota: Option<Tokens>) -> Event {
    Event::Release { id, tokens, quota }
}

impl Owner {
    fn answer(self, answer: Answer) {
        if let Some(giver) = self.giver {
            let _ = giver.give(answer);
        }
    }
}
