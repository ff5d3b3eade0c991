//! The pool and who waits for its decisions. Nothing here waits or knows a clock: letters and time come in, answers
//! go out through the hand-offs, what happened goes onto the tape.
//!
//! Whoever is granted and is not there any more has its slot taken back at once with 0 tokens, as an event of its
//! own, so that a replay of the tape decides the same.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, Grant, Reason, Reject};
use fairgate_core::event::{Event, Submit};
use fairgate_core::units::{Micros, Tokens};

use crate::handoff::Giver;
use crate::live::{Counts, JournalHealth, Live, StateHealth};
use crate::message::{Answer, End, How, Message, Name, Ticket};
use crate::pace::Pace;
use crate::refused::Refused;
use crate::tape::Tape;

/// Hears every decision, in order, with its time.
pub type Watch = Box<dyn FnMut(Micros, &Decision) + Send>;

/// One pool at work.
pub(crate) struct Desk {
    pool: Pool,
    owners: HashMap<Arc<str>, Owner>,
    /// The request that is being submitted, until its answer, or that it waits, is known.
    newcomer: Option<(Arc<str>, Owner)>,
    /// Granted, but nobody is there to have it.
    unclaimed: Vec<Box<str>>,
    decisions: Vec<Decision>,
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

/// Who submitted a request.
struct Owner {
    ticket: Ticket,
    came: Micros,
    /// Where its answer goes; nowhere any more once it flies.
    giver: Option<Giver<Answer>>,
}

impl Desk {
    /// A desk for this pool, in which nothing waits or flies that has an owner.
    pub(crate) fn new(pool: Pool, queue_timeout: Duration, retry_after_max: Duration) -> Self {
        Self {
            pace: Pace::new(pool.now(), retry_after_max),
            pool,
            owners: HashMap::new(),
            newcomer: None,
            unclaimed: Vec::new(),
            decisions: Vec::new(),
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

    /// Whether a request of that id waits or flies, and which.
    pub(crate) fn whether_it_flies(&self, id: &str) -> Option<bool> {
        self.owners.get(id).map(|owner| owner.giver.is_none())
    }

    /// The gate at this moment.
    pub(crate) fn live(&self) -> Live {
        Live {
            capacity: self.pool.capacity(),
            flying: self.pool.flying(),
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
                if self.owner(&name).is_some() {
                    self.apply(at, Event::FirstToken { id: (*name.id).into() });
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
            self.step(at, Event::Release { id, tokens: Some(Tokens(0)) });
        }
    }

    /// Notes how writing the state file went.
    pub(crate) fn note_saved(&mut self, saved: Result<(), String>) {
        self.state_health.saved += u64::from(saved.is_ok());
        self.state_health.error = saved.err();
    }

    /// Lets what has waited too long expire.
    pub(crate) fn expire(&mut self, at: Micros) {
        if self.pool.next_expiry().is_some_and(|expiry| expiry <= at) {
            self.apply(at, Event::Tick);
        }
    }

    /// Refuses what waits, and everything new from now on.
    pub(crate) fn begin_drain(&mut self, at: Micros) {
        if mem::replace(&mut self.draining, true) {
            return;
        }
        let waits = |(_, owner): &(&Arc<str>, &Owner)| owner.giver.is_some();
        let waiting = self.owners.iter().filter(waits);
        let mut waiting: Vec<(u64, Arc<str>)> =
            waiting.map(|(id, owner)| (owner.ticket.0, id.clone())).collect();
        // The latest first: the fewer heads of queues go, the fewer others are granted on the way.
        waiting.sort_unstable_by(|a, b| b.cmp(a));
        for (_, id) in &waiting {
            if let Some(giver) = self.owners.remove(id).and_then(|owner| owner.giver) {
                self.counts.drained += 1;
                let _ = giver.give(Err(Refused::Draining));
            }
        }
        for (_, id) in waiting {
            self.apply(at, Event::Cancel { id: (*id).into() });
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
        let owner = Owner { ticket: name.ticket, came: at, giver: Some(giver) };
        self.newcomer = Some((name.id, owner));
        self.apply(at, Event::Submit(submit));
        if let Some((id, owner)) = self.newcomer.take() {
            self.owners.insert(id, owner);
        }
    }

    fn leave(&mut self, at: Micros, name: &Name) {
        if self.owner(name).is_none() {
            return;
        }
        let id = (*name.id).into();
        self.counts.left += 1;
        match self.owners.remove(&name.id).and_then(|owner| owner.giver) {
            Some(_) => self.apply(at, Event::Cancel { id }),
            None => self.apply(at, Event::Release { id, tokens: Some(Tokens(0)) }),
        }
    }

    fn end(&mut self, at: Micros, name: &Name, end: End) {
        if self.owner(name).is_none() {
            return;
        }
        self.owners.remove(&name.id);
        match end.how {
            How::Settled => self.counts.settled += 1,
            How::Failed => self.counts.failed += 1,
            How::GivenBack => self.counts.given_back += 1,
            How::Dropped => self.counts.dropped += 1,
        }
        let id = (*name.id).into();
        match end.tokens {
            Some(_) => self.apply(at, Event::Release { id, tokens: end.tokens }),
            None => self.apply(at, Event::Cancel { id }),
        }
    }

    /// The owner by this name, where the id is still its own.
    fn owner(&self, name: &Name) -> Option<&Owner> {
        self.owners.get(&name.id).filter(|owner| owner.ticket == name.ticket)
    }

    fn step(&mut self, at: Micros, event: Event) {
        let at = at.max(self.pool.now());
        self.steps += 1;
        self.tape.write(at, &event);
        let mut decisions = mem::take(&mut self.decisions);
        let ticks = self.pool.ticks().0;
        // Time has just been made not to go back.
        let _ = self.pool.apply(at, event, &mut decisions);
        self.pace.observe(at, self.pool.ticks().0 - ticks, self.pool.waiting() > 0);
        for decision in decisions.drain(..) {
            if let Some(watch) = &mut self.watch {
                watch(at, &decision);
            }
            self.carry(at, decision);
        }
        self.decisions = decisions;
    }

    fn carry(&mut self, at: Micros, decision: Decision) {
        match decision {
            Decision::Grant(grant) => self.carry_grant(grant),
            Decision::Reject(reject) => self.carry_reject(at, reject),
            Decision::Expire { id } => {
                self.counts.expired += 1;
                let Some(owner) = self.owners.remove(&*id) else { return };
                let waited = Duration::from_micros(at.0 - owner.came.0);
                let retry_after = self.pace.time_for(u128::from(self.pool.waiting()) + 1, at);
                let limit = self.queue_timeout;
                owner.answer(Err(Refused::Expired { waited, limit, retry_after }));
            }
        }
    }

    fn carry_grant(&mut self, grant: Grant) {
        self.counts.granted += 1;
        // A newcomer of that id was accepted, else it had been rejected as a duplicate before this.
        if let Some((id, owner)) = self.newcomer.take_if(|(id, _)| **id == *grant.id) {
            self.owners.insert(id, owner);
        }
        let Some(owner) = self.owners.get_mut(&*grant.id) else {
            self.unclaimed.push(grant.id);
            return;
        };
        let Some(giver) = owner.giver.take() else { return };
        if let Err(answer) = giver.give(Ok(grant)) {
            self.counts.left += 1;
            if let Ok(grant) = answer {
                self.owners.remove(&*grant.id);
                self.unclaimed.push(grant.id);
            }
        }
    }

    fn carry_reject(&mut self, at: Micros, reject: Reject) {
        self.counts.rejected += 1;
        let Reject { id, reason, limit } = reject;
        // Whoever is just coming is meant, wherever an older one of the same id is: that one stays.
        let newcomer = self.newcomer.take_if(|(newcomer, _)| **newcomer == *id);
        let owner = newcomer.map(|(_, owner)| owner).or_else(|| self.owners.remove(&*id));
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

impl Owner {
    fn answer(self, answer: Answer) {
        if let Some(giver) = self.giver {
            let _ = giver.give(answer);
        }
    }
}
