//! The charge of one attempt: the tokens that it used, the tokens that the caller is charged, and the tokens that the
//! scheduler counts.
//!
//! There are four units. Rows, reports and rate limits count `charged`, in weighted tokens. The
//! scheduler shares `counted`, in the unit of the pool: `charged` tokens, microseconds of a full
//! worker, or micro-units of money. Providers and budgets count `provider_tokens`; a submit and a
//! release call this number `quota`. Money is in micro-units, by the price that applied
//! (`fairgate-money`). Each unit has columns and names of its own.

use std::time::Instant;

use fairgate_dialect::estimate::TokenEstimate;
use fairgate_dialect::{CacheWrites, MeasuredUsage, TokenUsage};
use fairgate_store::{AttemptOutcome, UsageSource};

use super::attempt::{AttemptFault, WorkerAttempt};
use super::budget;
use super::request_guard::{RequestArrival, RequestEnd};
use super::stage::{AcceptedRequest, SubmitTerms};
use crate::slot_time_books::{SlotTime, WorkKind};
use crate::worker_time::CostTerms;

/// Source of an attempt's token usage.
#[derive(Clone, Copy)]
pub(super) enum UsageBasis {
    /// The tokens that have passed through the meter so far.
    SoFar,
    /// The measurement at the end of the upstream's answer.
    Measured(MeasuredUsage),
    /// At least the expected tokens, because the model had stopped but no usage was reported.
    Expected,
    /// The usage that the holder of a lease reports.
    Stated(StatedUsage),
}

/// Usage of a call, as the holder of its lease reports it.
#[derive(Clone, Copy)]
pub(super) struct StatedUsage {
    pub(super) usage: TokenUsage,
    /// Tokens to charge, weighted; computed with the pool's weights if absent.
    pub(super) charged: Option<u64>,
    pub(super) source: UsageSource,
}

/// The cost of one attempt. All zero if nothing was sent, or if the worker did not take the request.
#[derive(Clone, Copy, Default)]
pub(super) struct AttemptCharge {
    pub(super) usage: TokenUsage,
    /// Input tokens that the upstream wrote to its cache.
    pub(super) writes: CacheWrites,
    source: Option<UsageSource>,
    /// Weighted tokens that the caller is charged in its row and its limits.
    pub(super) charged: u64,
    /// Weighted tokens that the caller would be charged if no part of the prompt had been cached.
    pub(super) charged_uncached: u64,
    /// Tokens that the caller's token budgets pay: input plus output, as a provider counts them. An attempt that did
    /// not complete, and every lease, pays at least the price of its time in the slot. That minimum is never more than
    /// the request's reservation.
    pub(super) provider_tokens: u64,
    /// Cost that the scheduler counts for the flow, in the unit of the pool.
    pub(super) counted: u64,
    /// Microseconds of the full worker that the attempt took, whatever the pool counts; 0 if the worker's time has no
    /// price.
    pub(super) worker_us: u64,
    /// Weighted tokens that are not for completed work: all of them if the attempt did not complete, else 0. They are
    /// counted also where the worker was at fault and nothing is charged.
    pub(super) occupied: u64,
}

impl AttemptCharge {
    /// Computes the bill. A completed attempt pays its metered tokens. Any other attempt pays at least the price of its
    /// time in the slot. A lease always pays at least that price, because its usage is known only from its holder's
    /// report.
    pub(super) fn of(
        arrival: &RequestArrival,
        accepted: &AcceptedRequest,
        flight: &WorkerAttempt,
        end: &RequestEnd,
    ) -> Self {
        let RequestArrival { caller, kind, .. } = arrival;
        let is_lease = *kind == WorkKind::Leases;
        if !flight.is_sent() || (flight.fault() == AttemptFault::NotTaken && !is_lease) {
            return Self::default();
        }
        let setup = accepted.pool.setup();
        let (usage, source) = used(accepted.terms.expected, flight, end.used);
        let (metered, metered_uncached) = match end.used {
            _ if usage == TokenUsage::default() && flight.fault() == AttemptFault::NotTaken => {
                (0, 0)
            }
            UsageBasis::Stated(StatedUsage { charged: Some(charged), .. }) => (charged, charged),
            _ => {
                let charge = |usage| setup.weights.charge(usage);
                (charge(usage), charge(TokenUsage { cached: 0, ..usage }))
            }
        };
        let writes = cache_writes(flight, end.used);
        let (held, at) = (flight.slot_time(), Instant::now());
        let slot = SlotTime { tenant: &caller.tenant, kind: *kind, held, at };
        let prices = &accepted.pool.slot_time_price;
        let provider_tokens = usage.input.saturating_add(usage.output);
        let time_of_work = flight.terms.worker.map_or(0, |terms| terms.cost(usage, flight.choices));
        if is_complete(end) && !is_lease {
            prices.record_completed(slot, metered);
            let source = Some(source);
            let counted = match flight.terms.cost {
                CostTerms::Tokens => metered,
                CostTerms::WorkerTime(terms) => terms.cost(usage, flight.choices),
                CostTerms::Money => money(arrival, accepted, flight, usage, writes),
            };
            return Self {
                usage,
                writes,
                source,
                charged: metered,
                charged_uncached: metered_uncached,
                provider_tokens,
                counted,
                worker_us: time_of_work,
                occupied: 0,
            };
        }
        let output_default = setup.config.cost.output_default;
        let time_price = prices.price(slot, output_default);
        let charged = metered.max(time_price);
        let counted = match flight.terms.cost {
            CostTerms::Tokens => charged,
            CostTerms::WorkerTime(terms) => {
                terms.cost(usage, flight.choices).max(terms.slot_cost(held))
            }
            CostTerms::Money => money(arrival, accepted, flight, usage, writes)
                .max(money_of_tokens(&accepted.terms, time_price)),
        };
        let worker_us =
            flight.terms.worker.map_or(0, |terms| time_of_work.max(terms.slot_cost(held)));
        let occupied = if is_complete(end) { 0 } else { charged };
        if flight.fault() == AttemptFault::Worker || flight.has_circuit_changed() {
            return Self { counted, worker_us, occupied, ..Self::default() };
        }
        match is_complete(end) {
            true => prices.record_reported(slot, metered, charged, output_default),
            false => prices.record_paid_by_time(slot, charged),
        }
        let source = if time_price > metered { UsageSource::Occupied } else { source };
        let time_tokens = time_price.min(budget::most_provider_tokens(accepted));
        Self {
            usage,
            writes,
            source: Some(source),
            charged,
            charged_uncached: metered_uncached.max(time_price),
            provider_tokens: provider_tokens.max(time_tokens),
            counted,
            worker_us,
            occupied,
        }
    }

    /// Returns the source of the token counts.
    pub(super) fn source(&self) -> UsageSource {
        self.source.unwrap_or(UsageSource::None)
    }
}

/// Returns the cost of a usage on the attempt's worker, in micro-units of money; at least 1 if
/// anything was used. A worker that was added while the gateway runs may lack a price; the expected
/// cost is returned then.
fn money(
    arrival: &RequestArrival,
    accepted: &AcceptedRequest,
    flight: &WorkerAttempt,
    usage: TokenUsage,
    writes: CacheWrites,
) -> u64 {
    if usage == TokenUsage::default() {
        return 0;
    }
    let money = flight.money(arrival, &accepted.ask.model, usage, writes);
    money.map_or(accepted.terms.scheduled, |(money, _)| money.0.max(1))
}

/// Converts the tokens of a time in a slot to money, by the money and the tokens that were expected of the request.
fn money_of_tokens(terms: &SubmitTerms, tokens: u64) -> u64 {
    let money =
        u128::from(tokens) * u128::from(terms.scheduled) / u128::from(terms.estimate.max(1));
    u64::try_from(money).unwrap_or(u64::MAX)
}

/// Returns the tokens of an attempt that was sent, and their source. The input counts even if there was no answer,
/// because the upstream has read it. The exception is a lease whose call the provider has refused: it counts only the
/// tokens that its holder reports, or none.
fn used(
    expected: TokenEstimate,
    flight: &WorkerAttempt,
    used: UsageBasis,
) -> (TokenUsage, UsageSource) {
    let is_taken = flight.fault() != AttemptFault::NotTaken;
    match used {
        UsageBasis::Stated(StatedUsage { usage, source, .. })
            if is_taken || source == UsageSource::Reported =>
        {
            return (usage, source);
        }
        _ if !is_taken => return (TokenUsage::default(), UsageSource::Counted),
        _ => {}
    }
    let TokenEstimate { input, output, .. } = expected;
    let metered = match (used, &flight.meter) {
        (UsageBasis::Measured(measured), _) => Some(measured),
        (_, Some(meter)) => Some(meter.measured()),
        (_, None) => None,
    };
    match (used, metered) {
        (_, Some(MeasuredUsage { usage, reported: true, .. })) => (usage, UsageSource::Reported),
        (UsageBasis::Expected, metered) => {
            let passed = metered.map(|measured| measured.usage).unwrap_or_default();
            let output = output.max(passed.output);
            (TokenUsage { input: input.max(passed.input), output, ..passed }, UsageSource::Assumed)
        }
        (_, Some(MeasuredUsage { usage, .. })) => (usage, UsageSource::Counted),
        (_, None) => (TokenUsage { input, ..TokenUsage::default() }, UsageSource::Counted),
    }
}

/// Returns the tokens that the upstream reported as written to its cache.
fn cache_writes(flight: &WorkerAttempt, used: UsageBasis) -> CacheWrites {
    match (used, &flight.meter) {
        (UsageBasis::Stated(_), _) | (_, None) => CacheWrites::default(),
        (UsageBasis::Measured(measured), _) => measured.writes,
        (_, Some(meter)) => meter.measured().writes,
    }
}

/// Returns true if the upstream did all of the requested work, even if the client had left.
pub(super) fn is_complete(end: &RequestEnd) -> bool {
    match end.used {
        UsageBasis::Measured(measured) => {
            measured.complete || end.outcome == AttemptOutcome::Completed
        }
        UsageBasis::Expected => true,
        UsageBasis::Stated(_) => end.outcome == AttemptOutcome::Completed,
        UsageBasis::SoFar => false,
    }
}
