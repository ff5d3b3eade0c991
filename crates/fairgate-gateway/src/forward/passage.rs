//! One request's way through the gateway, from the moment that its caller is known. Whatever happens to it, it ends
//! exactly once: its permit is settled, its limits are corrected, and its row is written.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairgate_core::units::Tokens;
use fairgate_dialect::estimate::Expected;
use fairgate_dialect::{Ask, Measured, Meter, Route, Usage};
use fairgate_runtime::Permit;
use fairgate_store::{Attempt, MicroUnits, Outcome, UnixMicros, UsageSource};

use super::continued;
use crate::app::App;
use crate::identity::Caller;
use crate::in_flight::OneInFlight;
use crate::metrics::Ended;
use crate::phase::Stage;
use crate::pools::{PoolHandle, Worker};
use crate::recording::Recording;
use crate::refusal::Refusal;
use crate::upstream::{Blame, Epoch};

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
    /// Since when it has had its slot.
    since: Instant,
    fault: Fault,
}

/// Why an attempt that failed is not, or not all, its caller's to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// There is no such reason.
    None,
    /// The worker lost it: the scheduler counts its time in the slot, and no budget pays for it.
    Worker,
    /// The worker was not reached, or took nothing on: nothing was used.
    NotTaken,
}

impl Flight {
    /// Whether its worker's circuit has changed since it was sent.
    fn has_broken(&self) -> bool {
        self.worker.upstream.condition.epoch() != self.epoch
    }

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
            since: Instant::now(),
            fault: Fault::None,
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
    /// What has passed so far.
    SoFar,
    /// This, at an end of the upstream's.
    Measured(Measured),
    /// The model had stopped, and what it used was not said: at least what was expected.
    Expected,
}

/// What an attempt comes to.
#[derive(Clone, Copy, Default)]
struct Bill {
    usage: Usage,
    source: Option<UsageSource>,
    /// What its caller pays: in its row, its budgets and its limits.
    charged: u64,
    /// What the scheduler counts.
    counted: u64,
    /// The same, where it did not complete.
    occupied: u64,
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
            used: Used::SoFar,
        })
    }

    /// Ends the request.
    pub(super) fn end(&mut self, end: End) -> Recording {
        let row = self.close(&end, true);
        Recording::start(self.app.clone(), row)
    }

    /// Ends an attempt; another one follows.
    pub(super) fn end_attempt(&mut self, code: &'static str, status: u16) -> Recording {
        let end = End { status, outcome: Outcome::Retried, code: Some(code), used: Used::SoFar };
        let row = self.close(&end, false);
        self.attempt += 1;
        self.brownout = false;
        Recording::start(self.app.clone(), row)
    }

    /// The caller is gone, or taken for gone.
    pub(super) fn leave(&mut self, used: Used) -> Recording {
        let code = Some("client_left");
        self.end(End { status: CLIENT_LEFT, outcome: Outcome::ClientLeft, code, used })
    }

    /// Everything about an end but the writing of its row. The only place where a request comes to its end.
    fn close(&mut self, end: &End, last: bool) -> Attempt {
        self.over = last;
        let flight = self.flight.take();
        let bill = self.bill(flight.as_ref(), end);
        let Bill { usage, charged, .. } = bill;
        let source = bill.source.unwrap_or(UsageSource::None);
        let meter = flight.as_ref().and_then(|flight| flight.meter.as_ref());
        continued::remember(&self.app, &self.caller, self.ask.as_ref(), meter, usage);
        let first_token = flight.as_ref().and_then(|flight| flight.first_token);
        let worker = flight.as_ref().map(|flight| flight.worker.upstream.config.name.clone());
        if let Some(flight) = flight {
            self.land(flight, end, bill.counted);
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
            occupied: bill.occupied,
            // Until provider tokens and prices are worked out here: as it was.
            provider_tokens: charged,
            money: MicroUnits::ZERO,
            price: None,
            tier: 0,
        }
    }

    /// What an attempt comes to: a completed one what was metered, any other at least what its time in the slot is worth.
    fn bill(&self, flight: Option<&Flight>, end: &End) -> Bill {
        let (Some(flight), Some(pool)) = (flight, &self.pool) else { return Bill::default() };
        if !flight.sent || flight.fault == Fault::NotTaken {
            return Bill::default();
        }
        let setup = pool.setup();
        let (usage, source) = self.used(flight, end.used);
        let metered = setup.weights.charge(usage);
        let held = flight.since.elapsed();
        let tenant = &*self.caller.tenant;
        let now = Instant::now();
        if is_whole(end) {
            pool.occupation.completed(tenant, metered, held, now);
            let source = Some(source);
            return Bill { usage, source, charged: metered, counted: metered, occupied: 0 };
        }
        let occupied = pool.occupation.price(tenant, held, setup.config.cost.output_default, now);
        let counted = metered.max(occupied);
        if flight.fault == Fault::Worker || flight.has_broken() {
            return Bill { counted, occupied: counted, ..Bill::default() };
        }
        let source = if occupied > metered { UsageSource::Occupied } else { source };
        Bill { usage, source: Some(source), charged: counted, counted, occupied: counted }
    }

    /// The tokens of an attempt that was sent: at least its input, for that was read.
    fn used(&self, flight: &Flight, used: Used) -> (Usage, UsageSource) {
        let expected = self.expected.map(|Expected { input, output, .. }| (input, output));
        let (input, output) = expected.unwrap_or_default();
        let metered = match (used, &flight.meter) {
            (Used::Measured(measured), _) => Some(measured),
            (_, Some(meter)) => Some(meter.measured()),
            (_, None) => None,
        };
        match (used, metered) {
            (_, Some(Measured { usage, reported: true, .. })) => (usage, UsageSource::Reported),
            (Used::Expected, metered) => {
                let passed = metered.map(|measured| measured.usage).unwrap_or_default();
                let output = output.max(passed.output);
                (Usage { input: input.max(passed.input), output, ..passed }, UsageSource::Assumed)
            }
            (_, Some(Measured { usage, .. })) => (usage, UsageSource::Counted),
            (_, None) => (Usage { input, ..Usage::default() }, UsageSource::Counted),
        }
    }

    /// Gives the slot back, and says how the worker did.
    fn land(&self, flight: Flight, end: &End, counted: u64) {
        let Flight { permit, worker, epoch, sent, fault, .. } = flight;
        let condition = &worker.upstream.condition;
        let tokens = Tokens(counted);
        let told = match end.outcome {
            Outcome::Completed => {
                permit.settle(tokens);
                condition.succeeded(epoch, &self.caller.tenant);
                "ok"
            }
            _ if !sent => {
                permit.give_back();
                return;
            }
            _ if fault == Fault::NotTaken => {
                permit.give_back();
                "error"
            }
            Outcome::Refused | Outcome::ClientLeft | Outcome::Lost => {
                permit.fail(tokens);
                "left"
            }
            Outcome::Timeout => {
                permit.fail(tokens);
                "timeout"
            }
            Outcome::Retried | Outcome::UpstreamError => {
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
            && is_whole(end)
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

    /// Says that an attempt failed, and whose fault that is.
    pub(super) fn blame(&mut self, blame: Blame) {
        let Some(flight) = &mut self.flight else { return };
        let condition = &flight.worker.upstream.condition;
        match blame {
            Blame::Worker => {
                condition.unreachable(flight.epoch);
            }
            Blame::Unknown => condition.failed(flight.epoch, &self.caller.tenant),
            Blame::Nobody => {}
        }
        if blame != Blame::Unknown {
            flight.fault = Fault::Worker;
        }
    }

    /// Says that the connection was lost in the middle of an answer.
    pub(super) fn lost(&mut self) {
        self.blame(Blame::Unknown);
        if let Some(flight) = &mut self.flight {
            flight.fault = Fault::Worker;
        }
    }

    /// Says that the worker was not reached, or has refused to take it on now.
    pub(super) fn not_taken(&mut self) {
        if let Some(flight) = &mut self.flight {
            flight.fault = Fault::NotTaken;
        }
    }

    /// Says that the worker did well, whatever the answer was.
    pub(super) fn praise_worker(&self) {
        if let Some(flight) = &self.flight {
            flight.worker.upstream.condition.succeeded(flight.epoch, &self.caller.tenant);
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

/// Whether the upstream did all that it was asked for, whoever was there to see it.
fn is_whole(end: &End) -> bool {
    match end.used {
        Used::Measured(measured) => measured.complete || end.outcome == Outcome::Completed,
        Used::Expected => true,
        Used::SoFar => false,
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
