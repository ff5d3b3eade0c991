//! One request's way through the gateway, from the moment that its caller is known. Whatever happens to it, it ends
//! exactly once: its permit is settled, its limits are corrected, and its row is written.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairgate_core::units::Tokens;
use fairgate_dialect::estimate::Expected;
use fairgate_dialect::{Ask, Measured, Meter, Route, Usage};
use fairgate_runtime::Permit;
use fairgate_store::{Attempt, Outcome, UnixMicros, UsageSource};

use super::continued;
use crate::app::App;
use crate::identity::Caller;
use crate::in_flight::OneInFlight;
use crate::metrics::Ended;
use crate::phase::Stage;
use crate::pools::{PoolHandle, Worker};
use crate::recording::Recording;
use crate::refusal::Refusal;
use crate::upstream::Epoch;

/// The status in the ledger of a client that left.
const CLIENT_LEFT: u16 = 499;
/// The status in the ledger of a fault of our own.
const OUR_FAULT: u16 = 500;

/// A request with a caller. Dropped before its end, it ends as one whose client has left.
pub(crate) struct Passage {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Arc<Caller>,
    pub(crate) id: Box<str>,
    pub(crate) route: Route,
    arrived: Instant,
    started_at: UnixMicros,
    pub(super) ask: Option<Ask>,
    pub(super) agent: Option<Box<str>>,
    pub(super) session: Option<Box<str>>,
    pub(super) pool: Option<Arc<PoolHandle>>,
    pub(super) expected: Option<Expected>,
    /// What is expected, in charged tokens.
    pub(super) estimate: u64,
    /// Whether the limits have counted it in.
    pub(super) counted_in: bool,
    /// When it began to wait at the gate.
    pub(super) waits_since: Option<Instant>,
    waited: Option<Duration>,
    pub(super) attempt: u32,
    pub(super) brownout: bool,
    pub(super) flight: Option<Flight>,
    over: bool,
}

/// A request that has its permit.
pub(super) struct Flight {
    pub(super) permit: Permit,
    pub(super) worker: Arc<Worker>,
    _counted: OneInFlight,
    epoch: Epoch,
    /// Whether anything may have reached the upstream.
    pub(super) sent: bool,
    pub(super) meter: Option<Meter>,
    first_token: Option<Duration>,
}

impl Flight {
    pub(super) fn new(permit: Permit, worker: Arc<Worker>) -> Self {
        let epoch = worker.upstream.condition.epoch();
        let counted = worker.in_flight.one();
        Self {
            permit,
            worker,
            _counted: counted,
            epoch,
            sent: false,
            meter: None,
            first_token: None,
        }
    }
}

/// How a request, or one attempt at it, ends.
pub(super) struct End {
    /// What the caller sees.
    pub(super) status: u16,
    pub(super) outcome: Outcome,
    pub(super) code: Option<&'static str>,
    pub(super) used: Used,
}

/// What an attempt used.
#[derive(Clone, Copy)]
pub(super) enum Used {
    /// Nothing that anybody should pay for.
    Nothing,
    /// What has passed so far.
    SoFar,
    /// This.
    Measured(Measured),
}

impl Passage {
    /// In a box, since it is handed on several times.
    pub(super) fn new(app: Arc<App>, caller: Arc<Caller>, id: Box<str>, route: Route) -> Box<Self> {
        Box::new(Self {
            app,
            caller,
            id,
            route,
            arrived: Instant::now(),
            started_at: unix_now(),
            ask: None,
            agent: None,
            session: None,
            pool: None,
            expected: None,
            estimate: 0,
            counted_in: false,
            waits_since: None,
            waited: None,
            attempt: 1,
            brownout: false,
            flight: None,
            over: false,
        })
    }

    /// It has a permit, and is on its way to this worker.
    pub(super) fn takes_off(&mut self, permit: Permit, worker: Arc<Worker>) {
        let waited = self.waited.unwrap_or_default() + permit.waited();
        self.waited = Some(waited);
        self.waits_since = None;
        self.flight = Some(Flight::new(permit, worker));
    }

    /// From now on something may have reached the upstream.
    pub(super) fn is_sent(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.sent = true;
        }
    }

    /// The head of an answer has come.
    pub(super) fn answered(&self) {
        if let Some(flight) = &self.flight {
            flight.worker.upstream.condition.answers(flight.epoch);
        }
    }

    /// The first token of an answer has come: the first text, tool call or reasoning of a stream, the first byte of any
    /// other body. Engines send an empty event at once, which says nothing of how long the client waits for words.
    pub(super) fn first_token(&mut self) {
        let since_arrival = self.arrived.elapsed();
        if let Some(flight) = &mut self.flight {
            flight.first_token.get_or_insert(since_arrival);
        }
    }

    /// What measures the answer, while it is under way.
    pub(super) fn meter(&mut self) -> Option<&mut Meter> {
        self.flight.as_mut()?.meter.as_mut()
    }

    /// Notes what would be charged if the caller left now.
    pub(super) fn note_used(&mut self, first_token: bool) {
        let (Some(flight), Some(pool)) = (&mut self.flight, &self.pool) else { return };
        let setup = pool.setup();
        if let Some(meter) = &flight.meter {
            flight.permit.note_used(Tokens(setup.weights.charge(meter.so_far())));
        }
        if first_token && setup.tells_first_token {
            flight.permit.first_token();
        }
    }

    /// Ends the request with a refusal. The row is written once what this returns is ready.
    pub(super) fn refuse(&mut self, refusal: &Refusal) -> Recording {
        self.end(End {
            status: refusal.problem.status.as_u16(),
            outcome: refusal.outcome,
            code: Some(refusal.problem.code),
            used: Used::Nothing,
        })
    }

    /// Ends the request.
    pub(super) fn end(&mut self, end: End) -> Recording {
        let row = self.close(&end, true);
        Recording::start(self.app.clone(), row)
    }

    /// Ends an attempt; another one follows.
    pub(super) fn end_attempt(&mut self, code: &'static str, status: u16) -> Recording {
        let end = End { status, outcome: Outcome::Retried, code: Some(code), used: Used::Nothing };
        let row = self.close(&end, false);
        self.attempt += 1;
        self.brownout = false;
        Recording::start(self.app.clone(), row)
    }

    /// The caller is taken for gone, though its connection is there.
    pub(super) fn leave(&mut self) -> Recording {
        let code = Some("client_left");
        self.end(End { status: CLIENT_LEFT, outcome: Outcome::ClientLeft, code, used: Used::SoFar })
    }

    /// Everything about an end but the writing of its row. The only place where a request comes to its end.
    fn close(&mut self, end: &End, last: bool) -> Attempt {
        self.over = last;
        let flight = self.flight.take();
        let (usage, source) = self.usage(flight.as_ref(), end);
        let charged = self.charge(usage, source);
        let meter = flight.as_ref().and_then(|flight| flight.meter.as_ref());
        continued::remember(&self.app, &self.caller, self.ask.as_ref(), meter, usage);
        let first_token = flight.as_ref().and_then(|flight| flight.first_token);
        let worker = flight.as_ref().map(|flight| flight.worker.upstream.config.name.clone());
        if let Some(flight) = flight {
            self.land(flight, end, charged);
        }
        self.learn(end);
        if last {
            self.count_out(end, charged, source, first_token);
        }
        let waiting = self.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        let (model, stream) = match &self.ask {
            Some(ask) => (ask.model.clone(), ask.stream),
            None => (String::new(), false),
        };
        Attempt {
            request: (&*self.id).into(),
            attempt: self.attempt,
            last,
            started_at: self.started_at,
            group: (&*self.caller.group).into(),
            tenant: (&*self.caller.tenant).into(),
            key: (&*self.caller.key).into(),
            agent: self.agent.as_deref().map(Into::into),
            session: self.session.as_deref().map(Into::into),
            route: self.route.path().into(),
            stream,
            model,
            pool: self.pool.as_ref().map(|pool| (&*pool.name).into()),
            worker,
            estimate: self.estimate,
            input_tokens: usage.input,
            cached_tokens: usage.cached,
            output_tokens: usage.output,
            charged,
            usage: source,
            waited_us: micros(self.waited.unwrap_or_default() + waiting),
            first_token_us: first_token.map(micros),
            total_us: micros(self.arrived.elapsed()),
            status: end.status,
            outcome: end.outcome,
            code: end.code.map(Into::into),
            brownout: self.brownout,
        }
    }

    fn usage(&self, flight: Option<&Flight>, end: &End) -> (Usage, UsageSource) {
        match (end.used, flight) {
            (Used::Nothing, _) | (_, None) => (Usage::default(), UsageSource::None),
            (Used::Measured(measured), _) if measured.reported => {
                (measured.usage, UsageSource::Reported)
            }
            (Used::Measured(measured), _) => (measured.usage, UsageSource::Counted),
            (Used::SoFar, Some(flight)) => match (&flight.meter, self.expected) {
                (Some(meter), _) => {
                    let Measured { usage, reported, .. } = meter.measured();
                    (usage, if reported { UsageSource::Reported } else { UsageSource::Counted })
                }
                // The worker was at an answer that comes in one piece. Were its tokens free, leaving just before the end
                // would be a way to more than one's share.
                (None, Some(expected))
                    if flight.sent && end.outcome == Outcome::ClientLeft && !self.is_streamed() =>
                {
                    let Expected { input, output, .. } = expected;
                    (Usage { input, cached: 0, output }, UsageSource::Assumed)
                }
                // It was sent and nothing has come back: its input was read, whoever left.
                (None, Some(expected)) if flight.sent => {
                    (Usage { input: expected.input, ..Usage::default() }, UsageSource::Counted)
                }
                (None, _) => (Usage::default(), UsageSource::None),
            },
        }
    }

    fn is_streamed(&self) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.stream)
    }

    fn charge(&self, usage: Usage, source: UsageSource) -> u64 {
        match &self.pool {
            Some(pool) if source != UsageSource::None => pool.setup().weights.charge(usage),
            _ => 0,
        }
    }

    /// Gives the slot back, and says how the worker did.
    fn land(&self, flight: Flight, end: &End, charged: u64) {
        let Flight { permit, worker, epoch, sent, .. } = flight;
        let condition = &worker.upstream.condition;
        let tokens = Tokens(charged);
        let told = match end.outcome {
            Outcome::Completed => {
                permit.settle(tokens);
                condition.succeeded(epoch);
                "ok"
            }
            _ if !sent => {
                permit.give_back();
                return;
            }
            Outcome::Refused | Outcome::ClientLeft | Outcome::Lost => {
                permit.fail(tokens);
                "left"
            }
            // Whoever is tried again pays for the attempt that ends it.
            Outcome::Retried => {
                permit.give_back();
                "error"
            }
            Outcome::Timeout => {
                permit.fail(tokens);
                "timeout"
            }
            Outcome::UpstreamError => {
                permit.fail(tokens);
                "error"
            }
        };
        if let Some(pool) = &self.pool {
            self.app.metrics.attempt(&pool.name, &worker.upstream.name, told);
        }
    }

    fn learn(&self, end: &End) {
        if let (Used::Measured(measured), Some(pool), Some(ask)) = (end.used, &self.pool, &self.ask)
            && measured.reported
            && end.outcome == Outcome::Completed
        {
            let mut usage = measured.usage;
            // What is behind an earlier response is in the upstream's count and not in the body.
            if ask.previous_response.is_some() || ask.conversation.is_some() {
                usage.input = 0;
            }
            pool.estimator.learn(&self.caller.tenant, &ask.model, ask, usage);
        }
    }

    fn count_out(
        &mut self,
        end: &End,
        charged: u64,
        source: UsageSource,
        first_token: Option<Duration>,
    ) {
        if std::mem::take(&mut self.counted_in) {
            self.app.limits.settle(&self.caller, self.estimate, charged, Instant::now());
        }
        self.app.metrics.ended(Ended {
            pool: self.pool.as_ref().map_or("-", |pool| &*pool.name),
            route: self.route.path(),
            status: end.status,
            outcome: outcome_name(end.outcome),
            code: end.code,
            waited: self.waited,
            first_token,
            total: self.arrived.elapsed(),
            estimate: self.estimate,
            charged: (source != UsageSource::None).then_some(charged),
        });
        tracing::debug!(
            request = %self.id,
            tenant = %self.caller.tenant,
            pool = self.pool.as_ref().map_or("-", |pool| &*pool.name),
            status = end.status,
            code = end.code.unwrap_or("-"),
            charged,
            "a request has ended"
        );
    }

    /// Says that an attempt failed in a way that speaks against its worker.
    pub(super) fn blame_worker(&self) {
        if let Some(flight) = &self.flight {
            flight.worker.upstream.condition.failed(flight.epoch);
        }
    }

    /// Says that the worker did well, whatever the answer was.
    pub(super) fn praise_worker(&self) {
        if let Some(flight) = &self.flight {
            flight.worker.upstream.condition.succeeded(flight.epoch);
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let (status, outcome, code) = if std::thread::panicking() {
            (OUR_FAULT, Outcome::UpstreamError, "internal_error")
        } else if self.app.phase.now() == Stage::Closing {
            (CLIENT_LEFT, Outcome::Timeout, "drained")
        } else {
            (CLIENT_LEFT, Outcome::ClientLeft, "client_left")
        };
        // Nobody waits for it any more: the row is written by a task of its own.
        drop(self.end(End { status, outcome, code: Some(code), used: Used::SoFar }));
    }
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::Refused => "refused",
        Outcome::UpstreamError => "upstream_error",
        Outcome::Timeout => "timeout",
        Outcome::ClientLeft => "client_left",
        Outcome::Retried => "retried",
        Outcome::Lost => "lost",
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The time of day.
pub(crate) fn unix_now() -> UnixMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
