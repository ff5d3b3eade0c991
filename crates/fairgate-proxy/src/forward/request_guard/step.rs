//! The steps of a request from one stage to the next.
//!
//! A step consumes a handle on one stage and returns a handle on the next. So the methods of a
//! stage can be called in that stage only, and no step can be skipped or taken twice. The guard
//! owns the request all the time. So it does no harm to drop a handle, for example because the
//! client leaves.
//!
//! The handle is `RequestIn<S>`, which borrows the guard. Code that calls a method of a wrong stage does not compile.

use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use fairgate_dialect::estimate::TokenEstimate;
use fairgate_dialect::{RequestFields, TokenUsage};
use fairgate_runtime::Permit;
use fairgate_store::AttemptOutcome;

use super::super::attempt::WorkerAttempt;
use super::super::attempt_charge::UsageBasis;
use super::super::stage::{
    AcceptedRequest, CountedRequest, InFlightRequest, QueuedRequest, ReadRequest, RequestStage,
    RoutedRequest, StageData, SubmitTerms,
};
use super::{RequestArrival, RequestEnd, RequestGuard};
use crate::forward::row_write::RowWrite;
use crate::limits;
use crate::pools::{PoolHandle, PoolWorker};
use crate::refusal::{EndCode, Refusal};
use crate::upstream::FaultParty;
use crate::worker_time;

/// A request in stage `S`. Borrows the guard, so nothing else can advance the request while this handle exists.
pub(in crate::forward) struct RequestIn<'p, S> {
    guard: &'p mut RequestGuard,
    stage: PhantomData<S>,
}

impl<'p, S: StageData> RequestIn<'p, S> {
    fn enter(guard: &'p mut RequestGuard, known: S) -> Self {
        guard.stage = known.into();
        Self { guard, stage: PhantomData }
    }

    /// Returns the caller, the id and the arrival time of the request.
    pub(in crate::forward) fn arrival(&self) -> &RequestArrival {
        &self.guard.arrival
    }

    fn parts(&mut self) -> (&RequestArrival, &mut S) {
        let RequestGuard { arrival, stage } = &mut *self.guard;
        (arrival, S::of_mut(stage).unwrap_or_else(|| wrong_stage()))
    }

    /// Advances to another stage. Returns the handle on that stage, and the data that the new stage does not keep.
    fn step<T: StageData, R>(self, next: impl FnOnce(S) -> (T, R)) -> (RequestIn<'p, T>, R) {
        let stage = mem::replace(&mut self.guard.stage, RequestStage::Identified);
        let (known, rest) = next(S::taken(stage).unwrap_or_else(|| wrong_stage()));
        (RequestIn::enter(self.guard, known), rest)
    }

    fn step_to<T: StageData>(self, next: impl FnOnce(S) -> T) -> RequestIn<'p, T> {
        self.step(|known| (next(known), ())).0
    }
}

/// Panics because a handle does not match the guard's stage. Cannot happen, because handles are made only by
/// `RequestIn::enter`, which sets the stage, and by `RequestGuard::in_flight`, which checks it.
fn wrong_stage() -> ! {
    unreachable!("a handle on a stage borrows the guard, so the stage cannot have changed")
}

impl<S: StageData> Deref for RequestIn<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        S::of(&self.guard.stage).unwrap_or_else(|| wrong_stage())
    }
}

impl<S: StageData> DerefMut for RequestIn<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.parts().1
    }
}

impl RequestGuard {
    /// Advances to `ReadRequest`, because the body has been parsed.
    pub(in crate::forward) fn read(&mut self, ask: RequestFields) -> RequestIn<'_, ReadRequest> {
        debug_assert!(matches!(self.stage, RequestStage::Identified), "it is read once");
        RequestIn::enter(self, ReadRequest { ask })
    }

    /// Returns a handle if the request is in flight.
    pub(in crate::forward) fn in_flight(&mut self) -> Option<RequestIn<'_, InFlightRequest>> {
        let is = matches!(self.stage, RequestStage::InFlight(_));
        is.then_some(RequestIn { guard: self, stage: PhantomData })
    }
}

impl<'p> RequestIn<'p, ReadRequest> {
    /// Advances to `RoutedRequest`, because this pool serves the model and the caller may use it.
    pub(in crate::forward) fn route(
        self,
        pool: Arc<PoolHandle>,
        agent: Option<Box<str>>,
        session: Option<Box<str>>,
    ) -> RequestIn<'p, RoutedRequest> {
        self.step_to(|read| read.routed(pool, agent, session))
    }
}

impl<'p> RequestIn<'p, RoutedRequest> {
    /// Advances to `AcceptedRequest`, because the request is valid and will be submitted on these terms.
    pub(in crate::forward) fn accept(self, terms: SubmitTerms) -> RequestIn<'p, AcceptedRequest> {
        self.step_to(|routed| routed.accepted(terms))
    }
}

impl<'p> RequestIn<'p, AcceptedRequest> {
    /// Counts the request in the limits of its tenant and key, or refuses it. The tenant's and the key's counts of
    /// queued requests include it until the returned `limits::QueuedCountGuard` is dropped.
    pub(in crate::forward) fn count_in(
        self,
        bytes: u64,
    ) -> Result<(RequestIn<'p, CountedRequest>, limits::QueuedCountGuard), Refusal> {
        let RequestArrival { app, caller, .. } = self.arrival();
        let listed =
            app.limits.count_in(caller, bytes, self.terms.estimate_uncached, Instant::now())?;
        Ok((self.step_to(AcceptedRequest::counted), listed))
    }
}

impl<'p> RequestIn<'p, CountedRequest> {
    /// Advances to `QueuedRequest`, because the request is about to be submitted to its pool.
    pub(in crate::forward) fn queue(self) -> RequestIn<'p, QueuedRequest> {
        self.step_to(CountedRequest::queued)
    }
}

impl<'p> RequestIn<'p, QueuedRequest> {
    /// Restarts the clock of the wait, because the granted worker no longer exists and the request is submitted again.
    pub(in crate::forward) fn restart_wait(&mut self) {
        self.since = Instant::now();
    }

    /// Advances to `InFlightRequest`, because the request has a slot on this worker.
    pub(in crate::forward) fn start_attempt(
        self,
        permit: Permit,
        worker: Arc<PoolWorker>,
    ) -> RequestIn<'p, InFlightRequest> {
        let waited = permit.waited();
        let terms = self.pool.setup().attempt_terms(&worker);
        let flight = WorkerAttempt::new(permit, worker, terms, self.ask.choices);
        self.step_to(|queued| queued.in_flight(waited, flight))
    }
}

impl<'p> RequestIn<'p, InFlightRequest> {
    /// Marks the attempt as possibly received by the upstream, whose provider may count it as `quota` tokens, and starts
    /// to meter the worker's time.
    pub(in crate::forward) fn mark_sent(&mut self, brownout: bool, quota: u64) {
        let (arrival, InFlightRequest { counted, flight }) = self.parts();
        let (tenant, model) = (&*arrival.caller.tenant, &*counted.ask.model);
        flight.mark_sent(&counted.pool.name, brownout, quota);
        let TokenEstimate { input, output, .. } = counted.terms.expected;
        let cached = counted.terms.cached_on(&flight.worker.upstream.name);
        let usage = TokenUsage { input, cached: cached.min(input), output };
        let expected = worker_time::work(usage, counted.ask.choices);
        flight.start_metering((tenant, model), expected, counted.ask.stream);
    }

    /// Notes in the prefix index that the worker's cache will hold the prompt.
    pub(in crate::forward) fn note_prompt_sent(&mut self) {
        let InFlightRequest { counted, flight } = &mut **self;
        if let (Some(prefix), Some(index)) = (&counted.terms.prefix, counted.pool.caches.index()) {
            flight.prompt = index.sent(&flight.worker.upstream.name, prefix);
        }
    }

    /// Notes the time of the first token of the answer.
    pub(in crate::forward) fn note_first_token(&mut self) {
        let (arrival, in_flight) = self.parts();
        in_flight.flight.note_first_token(arrival.at.elapsed());
    }

    /// Updates the usage that the permit counts if the caller leaves now. `first_token` is true if
    /// the first token has come.
    pub(in crate::forward) fn note_used(&mut self, first_token: bool) {
        let (arrival, InFlightRequest { counted, flight }) = self.parts();
        flight.note_used(arrival, counted, first_token);
    }

    /// Records that the attempt failed and which party is at fault. If the worker is at fault, the
    /// prefix index forgets what the worker had cached.
    pub(in crate::forward) fn blame(&mut self, blame: FaultParty) {
        let (arrival, InFlightRequest { counted, flight }) = self.parts();
        flight.blame(blame, &arrival.caller.tenant);
        if blame == FaultParty::Worker {
            // The process that serves this address next may be another one, with an empty cache.
            counted.pool.caches.forget(&flight.worker.upstream.name);
        }
    }

    /// Records that the upstream broke the attempt off, before the head of an answer or in the middle of it.
    pub(in crate::forward) fn report_lost(&mut self) {
        let (arrival, in_flight) = self.parts();
        in_flight.flight.report_lost(&arrival.caller.tenant);
    }

    /// Records that the worker worked correctly, whatever the status of its answer was.
    pub(in crate::forward) fn praise_worker(&self) {
        self.flight.praise_worker(&self.arrival().caller.tenant);
    }

    /// Ends this attempt with the outcome `retried`, and returns the request to the stage before its queue, for another
    /// attempt.
    pub(in crate::forward) fn end_attempt(
        self,
        code: EndCode,
        status: u16,
    ) -> (RequestIn<'p, CountedRequest>, RowWrite) {
        let end = RequestEnd {
            status,
            outcome: AttemptOutcome::Retried,
            code: Some(code),
            used: UsageBasis::SoFar,
        };
        // From here on the guard does not have the attempt any more, so it is settled once.
        let (mut counted, flight) =
            self.step(|InFlightRequest { counted, flight }| (counted, flight));
        let flown = flight.finish(counted.arrival(), &counted, &end);
        let row = flown.row(counted.arrival(), &counted.guard.stage, &end, false);
        counted.attempt += 1;
        let app = counted.arrival().app.clone();
        (counted, RowWrite::start(app, row))
    }
}
