//! View of the policy classes of a pool.

use std::collections::BTreeMap;

use fairgate_api::admin::ClassView;
use fairgate_core::units::Micros;

use super::activity::GrantRate;
use super::due_share::DueShare;
use super::flows::FlowView;
use super::owner_rows::RowStanding;
use super::view::{FlowServiceSum, shown_part};

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
    standing: RowStanding,
}

impl ClassRows {
    pub(super) fn add(&mut self, flow: &FlowView<'_>) {
        let row = self.0.entry(flow.name.to_owned()).or_default();
        row.weight = row.weight.or(flow.weight.map(|weight| weight.get()));
        row.standing.add(flow);
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
        let deficit =
            |row: &ClassRow| row.deficit.map(|credit| u64::try_from(credit).unwrap_or(u64::MAX));
        let view = |(name, row): (String, ClassRow)| ClassView {
            name,
            weight: row.weight,
            in_flight: row.in_flight,
            queued: row.queued,
            now: row.standing.now(row.queued, row.slots),
            expected_wait_ms: row.rate.expected_wait_ms(row.queued),
            oldest_wait_us: row.oldest.map(|since| now.0.saturating_sub(since.0)),
            deficit: deficit(&row),
            deficit_tokens: deficit(&row),
            slot_cap: row.slots,
            weight_share: row.due.active_part().map(shown_part),
            service: row.service.view(),
        };
        self.0.into_iter().map(view).collect()
    }
}
