//! Simulated clients and their requests.

use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::Submit;
use fairgate_core::units::{Micros, Tokens};
use fairgate_random::SeededRng;

use crate::line::PoolLineFields;
use crate::member_protocol::FlightEnd;

use super::backends::WorkerName;

/// Tenants, each with its percentage of the requests. The policies give them the weights 4, 1 and
/// 1.
pub(super) const TENANTS: [(u64, &str); 3] = [(50, "a"), (30, "b"), (20, "c")];

/// The tenant whose requests per minute are limited.
pub(super) const LIMITED: &str = "c";

/// A request of a client.
#[derive(Debug)]
pub(super) struct SimulatedRequest {
    pub(super) pool: Arc<str>,
    pub(super) tenant: &'static str,
    /// Index of the node that the client called, and number of the process there.
    pub(super) node: usize,
    pub(super) process: u64,
    /// Time that the backend needs, in microseconds.
    pub(super) duration: u64,
    pub(super) end: FlightEnd,
    pub(super) state: RequestState,
}

/// The state of a request from the view of its client and its backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestState {
    Waiting,
    Running(WorkerName),
    /// The request ended in this way, and has its one row.
    Ended(&'static str),
}

/// Draws a request. `long_answers` percent of the answers are long.
pub(super) fn draw_submit(
    rng: &mut SeededRng,
    id: &Arc<str>,
    tenant: &'static str,
    long_answers: u64,
) -> (Submit, PoolLineFields, u64, FlightEnd) {
    let cost = rng.range(1..=40) * 10;
    let mut submit = Submit::new(id);
    submit.attributes = Attributes::none()
        .with(Attribute::Tenant, tenant)
        .with(Attribute::Key, &format!("key-{tenant}"));
    submit.cost = Some(Tokens(cost));
    if rng.percent(10) {
        submit.attributes.set(Attribute::Agent, &format!("agent-{}", rng.below(9)));
    }
    if rng.percent(15) {
        submit.timeout = Some(Micros(rng.range(2_000..=20_000) * 1000));
    }
    let fields = PoolLineFields {
        bytes: rng.range(100..=5000),
        names_max: Some(4),
        ..PoolLineFields::default()
    };
    // A few answers are long, so that some requests are in flight when their members end.
    let duration = match rng.percent(long_answers) {
        true => rng.range(20..=45) * 1_000_000,
        false => cost * rng.range(1_000..=6_000),
    };

    let tokens = match rng.below(10) {
        0 => None,
        1 => Some(Tokens(0)),
        _ => Some(Tokens(rng.range(1..=2 * cost))),
    };
    (submit, fields, duration, FlightEnd { tokens, ..FlightEnd::default() })
}
