//! Sums by group, tenant and project over the flows of a pool.

use std::collections::BTreeMap;

use fairgate_api::admin::{FlowNow, GroupView, TenantView, TiersView};
use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_core::units::PerWeight;
use fairgate_runtime::RequestOwner;
use fairgate_store::Directory;

use super::activity::GrantRate;
use super::due_share::DueShare;
use super::flows::FlowView;
use super::view::{FlowServiceSum, shown_part, whole};
use crate::lag_in_tokens::FlowLag;

/// Maximum number of tenants per pool in the view, and of projects per pool. Those with the most requests queued or in
/// flight are shown.
pub(super) const ROWS_SHOWN: usize = 1000;

/// Sums over all flows of one name. A name has several flows if a node above them shares by another attribute.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerRow {
    weight: Option<u64>,
    in_flight: u64,
    queued: u64,
    rate: GrantRate,
    slots: Option<u64>,
    served: u128,
    pending: u128,
    score: Option<f64>,
    due: DueShare,
    lag: i128,
    bound: Option<(i128, i128)>,
    service: FlowServiceSum,
    standing: RowStanding,
}

/// Standing of a row: whether all its flows are promised their shares, and whether any of them is
/// held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowStanding {
    has_flows: bool,
    unpromised: bool,
    held: bool,
}

impl RowStanding {
    pub(super) fn add(&mut self, flow: &FlowView<'_>) {
        self.has_flows = true;
        self.unpromised |= !flow.promised;
        self.held |= flow.held;
    }

    /// Returns the scheduler's current data about a row.
    pub(super) fn now(self, waiting: u64, cap: Option<u64>) -> FlowNow {
        FlowNow {
            waiting,
            cap,
            promised: self.has_flows && !self.unpromised,
            held: self.held,
            ..FlowNow::default()
        }
    }
}

/// Rows of groups, tenants and projects, even if the policy does not share by them.
#[derive(Default)]
pub(super) struct OwnerRows {
    pub(super) groups: BTreeMap<String, OwnerRow>,
    pub(super) tenants: BTreeMap<(String, String), OwnerRow>,
    pub(super) projects: BTreeMap<String, OwnerRow>,
}

impl OwnerRows {
    pub(super) fn group(&mut self, name: &str) -> &mut OwnerRow {
        self.groups.entry(name.to_owned()).or_default()
    }

    pub(super) fn tenant(&mut self, group: &str, name: &str) -> &mut OwnerRow {
        self.tenants.entry((group.to_owned(), name.to_owned())).or_default()
    }

    pub(super) fn project(&mut self, name: &str) -> &mut OwnerRow {
        self.projects.entry(name.to_owned()).or_default()
    }

    /// Counts a request in flight for its owners.
    pub(super) fn count_in_flight(&mut self, request: &RequestSnapshot) {
        let of = |by| request.attributes.get(by).unwrap_or("-");
        let (group, tenant) = (of(Attribute::Group), of(Attribute::Tenant));
        self.group(group).in_flight += 1;
        self.tenant(group, tenant).in_flight += 1;
        if let Some(project) = request.attributes.get(Attribute::Project) {
            self.project(project).in_flight += 1;
        }
    }

    /// Adds the waiting requests of an owner to the rows whose names are not flows. Flows count
    /// their own requests.
    pub(super) fn count_waiting(&mut self, owner: &RequestOwner, waiting: u64) {
        if let Some(group) = &owner.group {
            self.group(group).queued += waiting;
        }
        if let Some((group, tenant)) = &owner.tenant {
            self.tenant(group, tenant).queued += waiting;
        }
        if let Some(project) = &owner.project {
            self.project(project).queued += waiting;
        }
    }
}

/// Returns the [`ROWS_SHOWN`] rows with the most requests, sorted by key, and the keys of the rows that are left out.
pub(super) fn most_active<K: Ord>(rows: BTreeMap<K, OwnerRow>) -> (Vec<(K, OwnerRow)>, Vec<K>) {
    let mut rows: Vec<(K, OwnerRow)> = rows.into_iter().collect();
    let mut omitted = Vec::new();
    if rows.len() > ROWS_SHOWN {
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.in_flight + row.queued));
        omitted = rows.split_off(ROWS_SHOWN).into_iter().map(|(key, _)| key).collect();
        rows.sort_by(|a, b| a.0.cmp(&b.0));
    }
    (rows, omitted)
}

impl OwnerRow {
    pub(super) fn add(&mut self, flow: &FlowView<'_>) {
        self.weight = self.weight.or(flow.weight.map(|weight| weight.get()));
        self.standing.add(flow);
        if let Some(activity) = flow.activity {
            self.rate.add(activity.rate());
            if flow.name != DEFAULT_FLOW {
                self.queued += activity.waiting;
            }
        }
        self.slots = match (self.slots, flow.slots) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.served = self.served.saturating_add(flow.served.unwrap_or(0));
        self.pending = self.pending.saturating_add(flow.pending.unwrap_or(0));
        // If the tenant's flow is in several nodes, the highest score is shown.
        let score = flow.score.map(shown_score);
        self.score =
            score.map(|score| self.score.map_or(score, |other| other.max(score))).or(self.score);
        self.due.add(flow);
        if let Some(fairness) = flow.fairness {
            self.service.add(fairness);
        }
        if let Some(lag) = flow.fairness.and_then(FlowLag::of) {
            self.lag = self.lag.saturating_add(lag.tokens);
            let (least, most) = self.bound.unwrap_or((0, 0));
            self.bound = lag.bound.map(|(a, b)| (least.saturating_add(a), most.saturating_add(b)));
        }
    }

    pub(super) fn group(self, name: String, directory: &Directory) -> GroupView {
        let known = directory.groups.iter().find(|group| group.name == name);
        let served = u64::try_from(self.served).unwrap_or(u64::MAX);
        let in_flight_cost = u64::try_from(self.pending).unwrap_or(u64::MAX);
        let lag = whole(self.lag);
        let lag_bound = self.bound.map(|(_, most)| whole(most));
        let lag_floor = self.bound.map(|(least, _)| whole(least));
        let shared_by = self.weight.filter(|weight| *weight > 0 && self.score.is_some());
        GroupView {
            weight: self.weight.or(known.map(|group| group.weight)).unwrap_or(0),
            name,
            in_flight: self.in_flight,
            queued: self.queued,
            now: self.standing.now(self.queued, self.slots),
            expected_wait_ms: self.rate.expected_wait_ms(self.queued),
            slot_cap: self.slots,
            served,
            in_flight_cost,
            served_tokens: Some(served),
            in_flight_tokens: Some(in_flight_cost),
            share_score: shared_by
                .map(|weight| (served as f64 / weight as f64 * 1000.0).round() / 1000.0),
            order_score: self.score,
            weight_share: self.due.part().map(shown_part),
            lag,
            lag_bound,
            lag_floor,
            lag_tokens: Some(lag),
            lag_bound_tokens: lag_bound,
            lag_floor_tokens: lag_floor,
            service: self.service.view(),
        }
    }

    pub(super) fn tenant(
        self,
        (group, name): (String, String),
        directory: &Directory,
    ) -> TenantView {
        let known = directory.tenants.iter().find(|tenant| tenant.name == name);
        let view = self.group(name, &Directory::default());
        let weight = match view.weight {
            0 => known.map_or(0, |tenant| tenant.weight),
            weight => weight,
        };
        TenantView {
            tenant: view.name.clone(),
            group: group.clone(),
            tenant_id: view.name,
            fairshare_group: group,
            weight,
            in_flight: view.in_flight,
            queued: view.queued,
            now: view.now,
            expected_wait_ms: view.expected_wait_ms,
            slot_cap: view.slot_cap,
            served: view.served,
            in_flight_cost: view.in_flight_cost,
            served_tokens: view.served_tokens,
            in_flight_tokens: view.in_flight_tokens,
            share_score: view.share_score,
            order_score: view.order_score,
            weight_share: view.weight_share,
            lag: view.lag,
            lag_bound: view.lag_bound,
            lag_floor: view.lag_floor,
            lag_tokens: view.lag_tokens,
            lag_bound_tokens: view.lag_bound_tokens,
            lag_floor_tokens: view.lag_floor_tokens,
            service: view.service,
            share_of_tokens: None,
            share_of_worker_time: None,
            tiers: TiersView::default(),
        }
    }
}

/// Rounds a score to thousandths of a token per weight.
fn shown_score(score: PerWeight) -> f64 {
    let thousandths = (score.0 as f64) * 1000.0 / 4_294_967_296.0;
    thousandths.round() / 1000.0
}
