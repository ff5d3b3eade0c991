//! View of the policy classes of a pool.

use std::collections::BTreeMap;

use fairgate_core::units::Micros;
use serde::Serialize;
use utoipa::ToSchema;

use super::activity::GrantRate;
use super::due_share::DueShare;
use super::flows::FlowView;
use super::view::{FlowServiceSum, ServiceView, shown_part};

/// A policy class in a pool. If the policy has the class inside several tenants or groups, this is one row with the
/// sums over all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Class)]
pub struct ClassView {
    /// Name of the class, as in the policy.
    pub name: String,
    /// Weight of the class, or its quantum in tokens if deficit round robin decides. Null if the policy gives the class
    /// neither.
    pub weight: Option<u64>,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Number of queued requests.
    pub queued: u64,
    /// Expected wait in milliseconds: queued requests ÷ grants per second of the last minute. Null if nothing was
    /// granted in that minute.
    pub expected_wait_ms: Option<u64>,
    /// Time that the oldest queued request has waited, in microseconds. Null if no request is queued.
    pub oldest_wait_us: Option<u64>,
    /// Unspent credit, in tokens. Null unless deficit round robin decides among the classes.
    pub deficit_tokens: Option<u64>,
    /// Maximum number of requests in flight; null means no maximum.
    pub slot_cap: Option<u64>,
    /// Share of the pool that the class is due among the classes with requests now, from 0 to 1. Null if the class has
    /// no requests, or the policy has no weight for it.
    pub weight_share: Option<f64>,
    /// Service that the class got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
}

/// Sums by class over the flows that were visited so far.
#[derive(Debug, Default)]
pub(super) struct ClassRows(BTreeMap<String, ClassRow>);

#[derive(Debug, Default)]
struct ClassRow {
    weight: Option<u64>,
    in_flight: u64,
    queued: u64,
    rate: GrantRate,
    oldest: Option<Micros>,
    deficit: Option<u128>,
    slots: Option<u64>,
    due: DueShare,
    service: FlowServiceSum,
}

impl ClassRows {
    pub(super) fn add(&mut self, flow: &FlowView<'_>) {
        let row = self.0.entry(flow.name.to_owned()).or_default();
        row.weight = row.weight.or(flow.weight.map(|weight| weight.get()));
        if let Some(activity) = flow.activity {
            row.in_flight += activity.in_flight;
            row.queued += activity.waiting;
            row.rate.add(activity.rate());
            row.oldest = row.oldest.into_iter().chain(activity.oldest).min();
        }
        let sum = |deficit| row.deficit.unwrap_or(0).saturating_add(deficit);
        row.deficit = flow.deficit.map(sum).or(row.deficit);
        row.slots = match (row.slots, flow.slots) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        row.due.add(flow);
        if let Some(fairness) = flow.fairness {
            row.service.add(fairness);
        }
    }

    /// Returns the classes, sorted by name; `now` is the pool's time, from which waits are computed.
    pub(super) fn views(self, now: Micros) -> Vec<ClassView> {
        let view = |(name, row): (String, ClassRow)| ClassView {
            name,
            weight: row.weight,
            in_flight: row.in_flight,
            queued: row.queued,
            expected_wait_ms: row.rate.expected_wait_ms(row.queued),
            oldest_wait_us: row.oldest.map(|since| now.0.saturating_sub(since.0)),
            deficit_tokens: row.deficit.map(|tokens| u64::try_from(tokens).unwrap_or(u64::MAX)),
            slot_cap: row.slots,
            weight_share: row.due.active_part().map(shown_part),
            service: row.service.view(),
        };
        self.0.into_iter().map(view).collect()
    }
}
