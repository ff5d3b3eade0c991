//! The bill of one attempt: the tokens that it used, the tokens that the caller is charged, and the tokens that the
//! scheduler counts.
//!
//! There are three units. The scheduler shares `charged`, in weighted tokens. Providers and budgets count
//! `provider_tokens`, which are `quota` in a submit and a release. Money is in micro-units, by the price that applied
//! (`fairgate-money`). Each unit has columns and names of its own.

use std::time::Instant;

use fairgate_dialect::estimate::TokenEstimate;
use fairgate_dialect::{MeasuredUsage, TokenUsage};
use fairgate_store::{AttemptOutcome, UsageSource};

use super::attempt::{AttemptFault, WorkerAttempt};
use super::request_guard::RequestEnd;
use super::stage::AcceptedRequest;

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
pub(super) struct AttemptBill {
    pub(super) usage: TokenUsage,
    source: Option<UsageSource>,
    /// Weighted tokens that the caller is charged in its row and its limits.
    pub(super) charged: u64,
    /// The same as if no part of the prompt had been cached.
    pub(super) charged_uncached: u64,
    /// Tokens that the caller's token budgets pay, counted as a provider counts them. For an attempt that did not
    /// complete, at least the price of its time in the slot.
    pub(super) provider_tokens: u64,
    /// Weighted tokens that the scheduler counts for the flow.
    pub(super) counted: u64,
    /// Tokens of `counted` that are not for completed work: all of them if the attempt did not complete, else 0.
    pub(super) occupied: u64,
}

impl AttemptBill {
    /// Computes the bill. A completed attempt pays its metered tokens; any other pays at least the price of its time in
    /// the slot.
    pub(super) fn of(
        tenant: &str,
        accepted: &AcceptedRequest,
        flight: &WorkerAttempt,
        end: &RequestEnd,
    ) -> Self {
        if !flight.is_sent() || flight.fault() == AttemptFault::NotTaken {
            return Self::default();
        }
        let setup = accepted.pool.setup();
        let (usage, source) = used(accepted.terms.expected, flight, end.used);
        let (metered, metered_uncached) = match end.used {
            UsageBasis::Stated(StatedUsage { charged: Some(charged), .. }) => (charged, charged),
            _ => {
                let charge = |usage| setup.weights.charge(usage);
                (charge(usage), charge(TokenUsage { cached: 0, ..usage }))
            }
        };
        let held = flight.slot_time();
        let now = Instant::now();
        let occupation = &accepted.pool.slot_time_price;
        if is_complete(end) {
            occupation.completed(tenant, metered, held, now);
            let source = Some(source);
            let provider_tokens = usage.input.saturating_add(usage.output);
            let (charged, counted) = (metered, metered);
            return Self {
                usage,
                source,
                charged,
                charged_uncached: metered_uncached,
                provider_tokens,
                counted,
                occupied: 0,
            };
        }
        let occupied = occupation.price(tenant, held, setup.config.cost.output_default, now);
        let counted = metered.max(occupied);
        if flight.fault() == AttemptFault::Worker || flight.has_circuit_changed() {
            return Self { counted, occupied: counted, ..Self::default() };
        }
        occupation.failed(tenant, counted, now);
        let source = if occupied > metered { UsageSource::Occupied } else { source };
        Self {
            usage,
            source: Some(source),
            charged: counted,
            charged_uncached: metered_uncached.max(occupied),
            provider_tokens: usage.input.saturating_add(usage.output).max(occupied),
            counted,
            occupied: counted,
        }
    }

    /// Returns the source of the token counts.
    pub(super) fn source(&self) -> UsageSource {
        self.source.unwrap_or(UsageSource::None)
    }
}

/// Returns the tokens of an attempt that was sent. The input always counts, because the upstream has read it.
fn used(
    expected: TokenEstimate,
    flight: &WorkerAttempt,
    used: UsageBasis,
) -> (TokenUsage, UsageSource) {
    if let UsageBasis::Stated(StatedUsage { usage, source, .. }) = used {
        return (usage, source);
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
