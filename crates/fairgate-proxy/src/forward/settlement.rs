//! Ends a request: corrects the caller's limits, counts the request in the metrics, and builds its row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_core::attribute::Attribute;
use fairgate_store::{AttemptOutcome, AttemptRow, MicroUnits, UsageSource};

use super::bill::AttemptBill;
use super::request_guard::{RequestArrival, RequestEnd};
use super::stage::RequestStage;
use crate::metrics::RequestEndMetrics;
use crate::refusal::EndCode;

/// The result of an attempt. All fields have their defaults if the attempt had no slot.
#[derive(Default)]
pub(super) struct AttemptResult {
    pub(super) bill: AttemptBill,
    /// Name of the attempt's worker; `None` if the attempt had no slot.
    pub(super) worker: Option<String>,
    /// Tier of the attempt's worker; 0 if the attempt had no slot.
    pub(super) tier: u32,
    /// Money that the provider takes for the attempt. The field `price` is the id of the price it was computed with.
    pub(super) money: MicroUnits,
    pub(super) price: Option<String>,
    /// Id of the price set of the worker's time; `None` if the attempt was not counted by one.
    pub(super) price_set: Option<Arc<str>>,
    pub(super) first_token: Option<Duration>,
    pub(super) brownout: bool,
}

impl AttemptResult {
    /// Corrects the caller's limits when the last attempt of a request has ended, and counts the request in the
    /// metrics.
    pub(super) fn count_out(
        &self,
        arrival: &RequestArrival,
        stage: &RequestStage,
        end: &RequestEnd,
    ) {
        let RequestArrival { app, caller, .. } = arrival;
        let charged = self.bill.charged;
        if let Some(EndCode::Refused(code)) = end.code.filter(|_| is_refused(end)) {
            app.refusals.count(stage.pool_name(), code, owners(arrival, stage));
        }
        if let Some(counted) = stage.counted() {
            let taken = counted.terms.estimate_uncached;
            app.limits.settle(caller, taken, charged, Instant::now());
        }
        app.metrics.count_request(RequestEndMetrics {
            pool: stage.pool_name(),
            tenant: &caller.tenant,
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
            code = end.code.map_or("-", EndCode::as_str),
            charged,
            "a request has ended"
        );
    }

    /// Builds the row of an attempt that ended in this stage, in a box, because it is large and moves on to the store.
    /// `last` is true if no other attempt follows.
    pub(super) fn row(
        self,
        arrival: &RequestArrival,
        stage: &RequestStage,
        end: &RequestEnd,
        last: bool,
    ) -> Box<AttemptRow> {
        let Self { bill, worker, tier, money, price, price_set, first_token, brownout } = self;
        let (model, stream) = match stage.ask() {
            Some(ask) => (ask.model.clone(), ask.stream),
            None => (String::new(), false),
        };
        let routed = stage.routed();
        Box::new(AttemptRow {
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
            code: end.code.map(|code| code.as_str().into()),
            brownout,
            occupied: bill.occupied,
            provider_tokens: bill.provider_tokens,
            money,
            price,
            tier,
            class: class(stage).map(Into::into),
            cache_written_tokens: bill.writes.total,
            cache_written_1h_tokens: bill.writes.one_hour,
            estimate_uncached: (stage.accepted())
                .map_or(0, |accepted| accepted.terms.estimate_uncached),
            charged_uncached: bill.charged_uncached,
            worker_us: bill.worker_us,
            price_set: price_set.map(|id| (*id).into()),
            claim: arrival.caller.claim.clone(),
        })
    }
}

fn is_refused(end: &RequestEnd) -> bool {
    end.outcome == AttemptOutcome::Refused
}

/// Returns the flows of the request that refusals are counted for. A client names its agents and sessions itself, so
/// they are not among them.
fn owners<'a>(
    arrival: &'a RequestArrival,
    stage: &'a RequestStage,
) -> impl Iterator<Item = (Attribute, &'a str)> {
    let caller = &arrival.caller;
    let project = caller.claim.as_ref().map(|claim| (Attribute::Project, &*claim.project));
    [
        (Attribute::Group, &*caller.group),
        (Attribute::Tenant, &*caller.tenant),
        (Attribute::Key, &*caller.key),
    ]
    .into_iter()
    .chain(project)
    .chain(class(stage).map(|class| (Attribute::Class, class)))
}

/// Returns the request's estimate in charged tokens; 0 before there is one.
fn estimate(stage: &RequestStage) -> u64 {
    stage.accepted().map_or(0, |accepted| accepted.terms.estimate)
}

/// Returns the request's policy class; `None` before it is known, or if the policy has no classes.
fn class(stage: &RequestStage) -> Option<&str> {
    stage.accepted().and_then(|accepted| accepted.terms.class.as_deref())
}

/// Returns the outcome's name in the API, the log and the metrics.
pub fn outcome_name(outcome: AttemptOutcome) -> &'static str {
    match outcome {
        AttemptOutcome::Completed => "completed",
        AttemptOutcome::Refused => "refused",
        AttemptOutcome::UpstreamError => "upstream_error",
        AttemptOutcome::Timeout => "timeout",
        AttemptOutcome::ClientLeft => "client_left",
        AttemptOutcome::Retried => "retried",
        AttemptOutcome::Lost => "lost",
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
