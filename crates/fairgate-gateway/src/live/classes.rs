//! The policy classes of a pool at this moment.

use std::collections::BTreeMap;

use fairgate_core::units::Micros;
use serde::Serialize;
use utoipa::ToSchema;

use super::due::DuePart;
use super::flows::FlowView;
use super::view::{Service, ServiceView, shown_part};

/// A policy class in a pool. A class that is below tenants or groups is one row, whoever's it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Class)]
pub struct ClassView {
    /// Its name.
    pub name: String,
    /// Its weight, or its quantum in tokens where deficit round robin decides. Null where the policy gives it neither.
    pub weight: Option<u64>,
    /// How many of its requests are in flight.
    pub in_flight: u64,
    /// How many of its requests wait.
    pub queued: u64,
    /// How long the request that has waited longest has waited, in microseconds. Null where none waits.
    pub oldest_wait_us: Option<u64>,
    /// Unspent credit, in tokens. Null unless deficit round robin decides.
    pub deficit_tokens: Option<u64>,
    /// The part of the pool that it is due among those that want something now: 0 to 1. Null where nothing says.
    pub weight_share: Option<f64>,
    /// What it was served beside what it was due.
    #[serde(flatten)]
    pub service: ServiceView,
}

/// The classes that were visited so far, each with all its flows.
#[derive(Debug, Default)]
pub(super) struct Classes(BTreeMap<String, Row>);

#[derive(Debug, Default)]
struct Row {
    weight: Option<u64>,
    in_flight: u64,
    queued: u64,
    oldest: Option<Micros>,
    deficit: Option<u128>,
    due: DuePart,
    service: Service,
}

impl Classes {
    pub(super) fn add(&mut self, flow: &FlowView<'_>) {
        let row = self.0.entry(flow.name.to_owned()).or_default();
        row.weight = row.weight.or(flow.weight.map(|weight| weight.get()));
        if let Some(activity) = flow.activity {
            row.in_flight += activity.in_flight;
            row.queued += activity.waiting;
            row.oldest = row.oldest.into_iter().chain(activity.oldest).min();
        }
        let sum = |deficit| row.deficit.unwrap_or(0).saturating_add(deficit);
        row.deficit = flow.deficit.map(sum).or(row.deficit);
        row.due.add(flow);
        if let Some(fairness) = flow.fairness {
            row.service.add(fairness);
        }
    }

    /// As they are at this time of the pool's.
    pub(super) fn views(self, now: Micros) -> Vec<ClassView> {
        let view = |(name, row): (String, Row)| ClassView {
            name,
            weight: row.weight,
            in_flight: row.in_flight,
            queued: row.queued,
            oldest_wait_us: row.oldest.map(|since| now.0.saturating_sub(since.0)),
            deficit_tokens: row.deficit.map(|tokens| u64::try_from(tokens).unwrap_or(u64::MAX)),
            weight_share: row.due.part().map(shown_part),
            service: row.service.view(),
        };
        self.0.into_iter().map(view).collect()
    }
}
