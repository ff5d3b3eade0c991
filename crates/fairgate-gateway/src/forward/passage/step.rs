//! The steps of a request from one stage to the next.
//!
//! A step takes a handle on one stage and gives a handle on the next. So what belongs to a stage can be called in that
//! stage only, and no step can be left out or taken twice. The guard owns the request throughout: dropping a handle changes
//! nothing, and a client may leave at any time.

use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use fairgate_dialect::Ask;
use fairgate_runtime::Permit;
use fairgate_store::Outcome;

use super::super::bill::Used;
use super::super::flight::Flight;
use super::super::stage::{Accepted, Counted, InFlight, Known, Queued, Read, Routed, Stage, Terms};
use super::{Arrival, End, Passage};
use crate::limits::{self, Limited};
use crate::pools::{PoolHandle, Worker};
use crate::recording::Recording;
use crate::upstream::Blame;

/// A request that is in stage `S`. It borrows the guard, so nobody else can move the request on meanwhile.
pub(in crate::forward) struct In<'p, S> {
    passage: &'p mut Passage,
    stage: PhantomData<S>,
}

impl<'p, S: Known> In<'p, S> {
    fn enter(passage: &'p mut Passage, known: S) -> Self {
        passage.stage = known.into();
        Self { passage, stage: PhantomData }
    }

    /// Who sent the request, and when.
    pub(in crate::forward) fn arrival(&self) -> &Arrival {
        &self.passage.arrival
    }

    fn parts(&mut self) -> (&Arrival, &mut S) {
        let Passage { arrival, stage } = &mut *self.passage;
        (arrival, S::of_mut(stage).unwrap_or_else(|| wrong_stage()))
    }

    /// Goes on to another stage. What the next stage does not keep is returned beside it.
    fn step<T: Known, R>(self, next: impl FnOnce(S) -> (T, R)) -> (In<'p, T>, R) {
        let stage = mem::replace(&mut self.passage.stage, Stage::Identified);
        let (known, rest) = next(S::taken(stage).unwrap_or_else(|| wrong_stage()));
        (In::enter(self.passage, known), rest)
    }

    fn step_to<T: Known>(self, next: impl FnOnce(S) -> T) -> In<'p, T> {
        self.step(|known| (next(known), ())).0
    }
}

/// Handles are made by `In::enter`, which sets the stage, and by `Passage::in_flight`, which checks it.
fn wrong_stage() -> ! {
    unreachable!("a handle on a stage borrows the guard, so the stage cannot have changed")
}

impl<S: Known> Deref for In<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        S::of(&self.passage.stage).unwrap_or_else(|| wrong_stage())
    }
}

impl<S: Known> DerefMut for In<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.parts().1
    }
}

impl Passage {
    /// The body was read.
    pub(in crate::forward) fn read(&mut self, ask: Ask) -> In<'_, Read> {
        debug_assert!(matches!(self.stage, Stage::Identified), "it is read once");
        In::enter(self, Read { ask })
    }

    /// The request, where it is in flight.
    pub(in crate::forward) fn in_flight(&mut self) -> Option<In<'_, InFlight>> {
        let is = matches!(self.stage, Stage::InFlight(_));
        is.then_some(In { passage: self, stage: PhantomData })
    }
}

impl<'p> In<'p, Read> {
    /// This pool serves its model, and the caller may use it.
    pub(in crate::forward) fn route(
        self,
        pool: Arc<PoolHandle>,
        agent: Option<Box<str>>,
        session: Option<Box<str>>,
    ) -> In<'p, Routed> {
        self.step_to(|read| read.routed(pool, agent, session))
    }
}

impl<'p> In<'p, Routed> {
    /// It will be submitted on these terms.
    pub(in crate::forward) fn accept(self, terms: Terms) -> In<'p, Accepted> {
        self.step_to(|routed| routed.accepted(terms))
    }
}

impl<'p> In<'p, Accepted> {
    /// Counts it in with its owner's limits, or refuses it. Its owner's queue is shorter again once `limits::Queued` is
    /// dropped.
    pub(in crate::forward) fn count_in(
        self,
        bytes: u64,
    ) -> Result<(In<'p, Counted>, limits::Queued), Limited> {
        let Arrival { app, caller, .. } = self.arrival();
        let listed = app.limits.enter(caller, bytes, self.terms.estimate, Instant::now())?;
        Ok((self.step_to(Accepted::counted), listed))
    }
}

impl<'p> In<'p, Counted> {
    /// It is about to be submitted to its pool.
    pub(in crate::forward) fn queue(self) -> In<'p, Queued> {
        self.step_to(Counted::queued)
    }
}

impl<'p> In<'p, Queued> {
    /// It is submitted once more, since what it was granted does not exist any more.
    pub(in crate::forward) fn waits_from_now(&mut self) {
        self.since = Instant::now();
    }

    /// It has a slot on this worker.
    pub(in crate::forward) fn take_off(
        self,
        permit: Permit,
        worker: Arc<Worker>,
    ) -> In<'p, InFlight> {
        let waited = permit.waited();
        let flight = Flight::new(permit, worker);
        self.step_to(|queued| queued.in_flight(waited, flight))
    }
}

impl<'p> In<'p, InFlight> {
    /// The request goes to its worker, whose cache will hold its prompt.
    pub(in crate::forward) fn prompt_is_sent(&mut self) {
        let InFlight { counted, flight } = &mut **self;
        if let (Some(prefix), Some(index)) = (&counted.terms.prefix, counted.pool.caches.index()) {
            flight.prompt = index.sent(&flight.worker.upstream.name, prefix);
        }
    }

    /// The first token of an answer has come.
    pub(in crate::forward) fn first_token(&mut self) {
        let (arrival, in_flight) = self.parts();
        in_flight.flight.first_token(arrival.at.elapsed());
    }

    /// Notes what would be charged if the caller left now.
    pub(in crate::forward) fn note_used(&mut self, first_token: bool) {
        let InFlight { counted, flight } = &mut **self;
        flight.note_used(&counted.pool, first_token);
    }

    /// Says that the attempt failed, and whose fault that is.
    pub(in crate::forward) fn blame(&mut self, blame: Blame) {
        let (arrival, InFlight { counted, flight }) = self.parts();
        flight.blame(blame, &arrival.caller.tenant);
        if blame == Blame::Worker {
            // Whoever answers at its address next may be another process.
            counted.pool.caches.forget(&flight.worker.upstream.name);
        }
    }

    /// Says that the connection was lost in the middle of an answer.
    pub(in crate::forward) fn lost(&mut self) {
        let (arrival, in_flight) = self.parts();
        in_flight.flight.lost(&arrival.caller.tenant);
    }

    /// Says that the worker did well, whatever the answer was.
    pub(in crate::forward) fn praise_worker(&self) {
        self.flight.praise_worker(&self.arrival().caller.tenant);
    }

    /// Ends this attempt. Another one follows, which waits again.
    pub(in crate::forward) fn end_attempt(
        self,
        code: &'static str,
        status: u16,
    ) -> (In<'p, Counted>, Recording) {
        let end = End { status, outcome: Outcome::Retried, code: Some(code), used: Used::SoFar };
        // From here on the guard does not know of the flight: it is settled once.
        let (mut counted, flight) = self.step(|InFlight { counted, flight }| (counted, flight));
        let flown = flight.land(counted.arrival(), &counted, &end);
        let row = flown.row(counted.arrival(), &counted.passage.stage, &end, false);
        counted.attempt += 1;
        let app = counted.arrival().app.clone();
        (counted, Recording::start(app, row))
    }
}
