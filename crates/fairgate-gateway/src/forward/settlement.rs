//! The end of a request: its limits are corrected, it is counted, and its row is made.

use std::time::{Duration, Instant};

use fairgate_store::{Attempt, MicroUnits, Outcome, UsageSource};

use super::bill::Bill;
use super::passage::{Arrival, End};
use super::stage::Stage;
use crate::metrics::Ended;

/// What an attempt left behind. Nothing, where it had no slot.
#[derive(Default)]
pub(super) struct Flown {
    pub(super) bill: Bill,
    /// The name of its worker.
    pub(super) worker: Option<String>,
    /// Its worker's tier.
    pub(super) tier: u32,
    /// What its provider asks for it, and the id of the price that this follows from.
    pub(super) money: MicroUnits,
    pub(super) price: Option<String>,
    pub(super) first_token: Option<Duration>,
    pub(super) brownout: bool,
}

impl Flown {
    /// Corrects the limits of a request at its last end, and counts it.
    pub(super) fn count_out(&self, arrival: &Arrival, stage: &Stage, end: &End) {
        let Arrival { app, caller, .. } = arrival;
        let charged = self.bill.charged;
        if let Some(counted) = stage.counted() {
            app.limits.settle(caller, counted.terms.estimate, charged, Instant::now());
        }
        app.metrics.ended(Ended {
            pool: stage.pool_name(),
            route: arrival.path,
            status: end.status,
            outcome: outcome_name(end.outcome),
            code: end.code,
            waited: stage.counted().and_then(|counted| counted.waited),
            first_token: self.first_token,
            total: arrival.at.elapsed(),
            estimate: estimate(stage),
            charged: (self.bill.source() != UsageSource::None).then_some(charged),
            class: class(stage),
        });
        tracing::debug!(
            request = %arrival.id,
            tenant = %caller.tenant,
            pool = stage.pool_name(),
            status = end.status,
            code = end.code.unwrap_or("-"),
            charged,
            "a request has ended"
        );
    }

    /// The row of an attempt that ended in this stage. `last`: no other attempt follows.
    pub(super) fn row(self, arrival: &Arrival, stage: &Stage, end: &End, last: bool) -> Attempt {
        let Self { bill, worker, tier, money, price, first_token, brownout } = self;
        let (model, stream) = match stage.ask() {
            Some(ask) => (ask.model.clone(), ask.stream),
            None => (String::new(), false),
        };
        let routed = stage.routed();
        Attempt {
            request: (&*arrival.id).into(),
            attempt: stage.counted().map_or(1, |counted| counted.attempt),
            last,
            started_at: arrival.started_at,
            group: (&*arrival.caller.group).into(),
            tenant: (&*arrival.caller.tenant).into(),
            key: (&*arrival.caller.key).into(),
            agent: routed.and_then(|routed| routed.agent.as_deref()).map(Into::into),
            session: routed.and_then(|routed| routed.session.as_deref()).map(Into::into),
            route: arrival.path.into(),
            stream,
            model,
            pool: routed.map(|routed| (&*routed.pool.name).into()),
            worker,
            estimate: estimate(stage),
            input_tokens: bill.usage.input,
            cached_tokens: bill.usage.cached,
            output_tokens: bill.usage.output,
            charged: bill.charged,
            usage: bill.source(),
            waited_us: micros(stage.waited()),
            first_token_us: first_token.map(micros),
            total_us: micros(arrival.at.elapsed()),
            status: end.status,
            outcome: end.outcome,
            code: end.code.map(Into::into),
            brownout,
            occupied: bill.occupied,
            provider_tokens: bill.provider_tokens,
            money,
            price,
            tier,
            class: class(stage).map(Into::into),
            claim: arrival.caller.claim.clone(),
        }
    }
}

/// In charged tokens; 0 before there is an estimate.
fn estimate(stage: &Stage) -> u64 {
    stage.accepted().map_or(0, |accepted| accepted.terms.estimate)
}

/// The policy class; none before it is known, and where the policy has no classes.
fn class(stage: &Stage) -> Option<&str> {
    stage.accepted().and_then(|accepted| accepted.terms.class.as_deref())
}

/// What the API, the log and the metrics call it.
pub(crate) fn outcome_name(outcome: Outcome) -> &'static str {
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
