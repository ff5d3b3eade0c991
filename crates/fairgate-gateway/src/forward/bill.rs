//! What an attempt comes to: its tokens, what its caller pays, and what the scheduler counts.

use std::time::Instant;

use fairgate_dialect::estimate::Expected;
use fairgate_dialect::{Measured, Usage};
use fairgate_store::{Outcome, UsageSource};

use super::flight::{Fault, Flight};
use super::passage::End;
use super::stage::Accepted;

/// What an attempt used.
#[derive(Clone, Copy)]
pub(super) enum Used {
    /// What has passed so far.
    SoFar,
    /// This, at an end of the upstream's.
    Measured(Measured),
    /// The model had stopped, and what it used was not said: at least what was expected.
    Expected,
    /// What the holder of a lease says.
    Stated(Stated),
}

/// What the holder of a lease says that its call used.
#[derive(Clone, Copy)]
pub(super) struct Stated {
    pub(super) usage: Usage,
    /// What it is charged, in weighted tokens; by the pool's weights where absent.
    pub(super) charged: Option<u64>,
    pub(super) source: UsageSource,
}

/// What an attempt comes to. Nothing, where nothing was sent.
#[derive(Clone, Copy, Default)]
pub(super) struct Bill {
    pub(super) usage: Usage,
    source: Option<UsageSource>,
    /// What its caller is charged in its row and its limits, in weighted tokens.
    pub(super) charged: u64,
    /// What its caller's budgets of tokens pay: its tokens as a provider counts them; where it did not complete, at least
    /// what its time in the slot is worth.
    pub(super) provider_tokens: u64,
    /// What the scheduler counts.
    pub(super) counted: u64,
    /// The same, where it did not complete.
    pub(super) occupied: u64,
}

impl Bill {
    /// A completed attempt comes to what was metered, any other to at least what its time in the slot is worth.
    pub(super) fn of(tenant: &str, accepted: &Accepted, flight: &Flight, end: &End) -> Self {
        if !flight.is_sent() || flight.fault() == Fault::NotTaken {
            return Self::default();
        }
        let setup = accepted.pool.setup();
        let (usage, source) = used(accepted.terms.expected, flight, end.used);
        let metered = match end.used {
            Used::Stated(Stated { charged: Some(charged), .. }) => charged,
            _ => setup.weights.charge(usage),
        };
        let held = flight.held();
        let now = Instant::now();
        let occupation = &accepted.pool.occupation;
        if is_whole(end) {
            occupation.completed(tenant, metered, held, now);
            let source = Some(source);
            let provider_tokens = usage.input.saturating_add(usage.output);
            let (charged, counted) = (metered, metered);
            return Self { usage, source, charged, provider_tokens, counted, occupied: 0 };
        }
        let occupied = occupation.price(tenant, held, setup.config.cost.output_default, now);
        let counted = metered.max(occupied);
        if flight.fault() == Fault::Worker || flight.has_broken() {
            return Self { counted, occupied: counted, ..Self::default() };
        }
        occupation.failed(tenant, counted, now);
        let source = if occupied > metered { UsageSource::Occupied } else { source };
        Self {
            usage,
            source: Some(source),
            charged: counted,
            provider_tokens: usage.input.saturating_add(usage.output).max(occupied),
            counted,
            occupied: counted,
        }
    }

    /// Where its tokens are known from.
    pub(super) fn source(&self) -> UsageSource {
        self.source.unwrap_or(UsageSource::None)
    }
}

/// The tokens of an attempt that was sent: at least its input, for that was read.
fn used(expected: Expected, flight: &Flight, used: Used) -> (Usage, UsageSource) {
    if let Used::Stated(Stated { usage, source, .. }) = used {
        return (usage, source);
    }
    let Expected { input, output, .. } = expected;
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

/// Whether the upstream did all that it was asked for, whoever was there to see it.
pub(super) fn is_whole(end: &End) -> bool {
    match end.used {
        Used::Measured(measured) => measured.complete || end.outcome == Outcome::Completed,
        Used::Expected => true,
        Used::Stated(_) => end.outcome == Outcome::Completed,
        Used::SoFar => false,
    }
}
