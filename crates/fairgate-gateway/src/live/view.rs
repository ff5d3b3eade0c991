//! The live view, in the shape that dashboards of this field know.

use std::collections::BTreeMap;

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::fairness::{CapUse, Due, FlowFairness};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::PerWeight;
use fairgate_store::Directory;
use serde::Serialize;
use utoipa::ToSchema;

use super::activity::Activity;
use super::algorithm::algorithm;
use super::classes::{ClassView, Classes};
use super::due::DuePart;
use super::flows::{FlowView, for_each_flow};
use super::sights::Sight;
use super::tiers::TiersView;
use super::worker::{WorkerBody, workers};
use crate::lag::Lag;
use crate::pools::PoolHandle;

/// How many tenants, and how many projects, of a pool are shown: those with the most under way.
const ROWS_SHOWN: usize = 1000;

/// All pools at this moment. Where there is one, or one was asked for, its fields are also at the top.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LiveView {
    /// When this was seen.
    #[schema(format = DateTime)]
    pub at: String,
    /// The ledger.
    pub ledger: LedgerView,
    /// The currency of the amounts of money, such as `USD`; null where there are no prices.
    pub currency: Option<String>,
    /// The one pool.
    #[serde(flatten)]
    pub one: Option<PoolView>,
    /// Each pool.
    pub pools: Vec<PoolView>,
}

/// How the ledger stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LedgerState)]
pub struct LedgerView {
    /// How many rows are safe in files and not in the database yet: few, unless the database is away.
    pub rows_waiting: u64,
    /// How many answers were given out without a row since the start, because it could be kept nowhere
    /// (`on_store_failure: serve`).
    pub answers_without_row: u64,
}

/// One pool at this moment.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PoolView {
    /// Its name.
    pub pool: String,
    /// How it shares, from the root down.
    pub algorithm: String,
    /// How many requests may be in flight.
    pub max_in_flight: u64,
    /// How many are.
    pub global_in_flight: u64,
    /// How many wait.
    pub global_queued: u64,
    /// Its policy classes, by name; none where its policy has no classes.
    pub classes: Vec<ClassView>,
    /// Its groups, by name.
    pub groups: Vec<GroupView>,
    /// Its tenants, by group and name; at most 1000, those with the most under way.
    pub tenants: Vec<TenantView>,
    /// How many more tenants it knows.
    pub tenants_omitted: u64,
    /// The fleet's projects with calls under way, or that it shares by; by name, at most 1000, those with the most under way.
    /// The weight is 0 where the policy does not share by projects.
    pub projects: Vec<GroupView>,
    /// What all tenants used on own and on hosted workers.
    #[serde(flatten)]
    pub tiers: TiersView,
    /// Its workers, with what is known of their providers' limits.
    pub workers: Vec<WorkerBody>,
}

/// What a flow was served beside what it was due, since the pool began to count it. A flow that has been idle for long is
/// forgotten, and begins at 0 when it comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Service)]
pub struct ServiceView {
    /// What it was served, in tokens: costs of granted requests, corrected to what they really used when they end. Null
    /// where the policy does not share by it.
    pub got_tokens: Option<i64>,
    /// What its weight made it due, in tokens, of all that was served while it was ready. Null where the policy promises
    /// it no share.
    pub due_tokens: Option<i64>,
    /// `got_tokens` less `due_tokens`: below 0 it got less than it was due.
    pub difference_tokens: Option<i64>,
    /// The most that the difference should be, above or below 0, in tokens.
    pub bound_tokens: Option<i64>,
    /// Whether the difference is within its bound.
    pub within_bound: Option<bool>,
    /// Requests in flight ÷ cap, averaged over the time in which something of it waited: 0 to 1. Null where it has no
    /// cap, or nothing of it has waited.
    pub cap_use: Option<f64>,
}

impl ServiceView {
    /// What one flow was served.
    pub(crate) fn of(flow: &FlowFairness) -> Self {
        let mut service = Service::default();
        service.add(flow);
        service.view()
    }
}

/// A group, or a project of the fleet, in a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// Its share among groups.
    pub weight: u64,
    /// How many of its requests are in flight.
    pub in_flight: u64,
    /// How many of its requests wait.
    pub queued: u64,
    /// How many may be in flight: its slots in a pool that is divided, else its cap; null is any number.
    pub slot_cap: Option<u64>,
    /// What its ended requests have used, in tokens, since its score last began.
    pub served_tokens: u64,
    /// Tokens per weight with what is in flight: the lowest goes next. Null where the policy does not share by groups.
    pub share_score: Option<f64>,
    /// The part of the pool that it is due among those that want something now: 0 to 1. Null where nothing says.
    pub weight_share: Option<f64>,
    /// What it is owed, in tokens; below 0 it has had more than its share. 0 where nothing of it waits.
    pub lag_tokens: i64,
    /// The most that it could be owed now, in tokens. Null where nothing of it waits, or slots are divided.
    pub lag_bound_tokens: Option<i64>,
    /// The least that its lag could be now, in tokens.
    pub lag_floor_tokens: Option<i64>,
    /// What it was served beside what it was due.
    #[serde(flatten)]
    pub service: ServiceView,
}

/// A tenant in a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct TenantView {
    /// Its name.
    pub tenant_id: String,
    /// Its group.
    pub fairshare_group: String,
    /// Its share within its group.
    pub weight: u64,
    /// How many of its requests are in flight.
    pub in_flight: u64,
    /// How many of its requests wait.
    pub queued: u64,
    /// How many may be in flight: its slots in a pool that is divided, else its cap; null is any number.
    pub slot_cap: Option<u64>,
    /// What its ended requests have used, in tokens, since its score last began.
    pub served_tokens: u64,
    /// Tokens per weight with what is in flight: the lowest goes next. Null where the policy does not share by tenants.
    pub share_score: Option<f64>,
    /// The part of the pool that it is due among those that want something now: 0 to 1. Null where nothing says.
    pub weight_share: Option<f64>,
    /// What it is owed, in tokens; below 0 it has had more than its share. 0 where nothing of it waits.
    pub lag_tokens: i64,
    /// The most that it could be owed now, in tokens. Null where nothing of it waits, or slots are divided.
    pub lag_bound_tokens: Option<i64>,
    /// The least that its lag could be now, in tokens.
    pub lag_floor_tokens: Option<i64>,
    /// What it was served beside what it was due.
    #[serde(flatten)]
    pub service: ServiceView,
    /// What it used on own and on hosted workers.
    #[serde(flatten)]
    pub tiers: TiersView,
}

/// What flows of one name come to together. There are several where the policy shares by something else above them.
#[derive(Clone, Debug, Default)]
struct Row {
    weight: Option<u64>,
    in_flight: u64,
    queued: u64,
    slots: Option<u64>,
    served: u128,
    score: Option<f64>,
    due: DuePart,
    lag: i128,
    bound: Option<(i128, i128)>,
    service: Service,
}

/// What the flows of a row were served. What they were due adds up, and so do their bounds; each must be within its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Service {
    got: Option<i128>,
    due: Option<Due>,
    outside: bool,
    cap_use: Option<CapUse>,
}

impl Service {
    pub(super) fn add(&mut self, flow: &FlowFairness) {
        self.got = Some(self.got.unwrap_or(0).saturating_add(flow.got));
        self.outside |= !flow.is_within_bound();
        self.due = match (self.due, flow.due) {
            (Some(a), Some(b)) => Some(Due {
                tokens: a.tokens.saturating_add(b.tokens),
                bound: a.bound.saturating_add(b.bound),
            }),
            (a, b) => a.or(b),
        };
        self.cap_use = match (self.cap_use, flow.cap_use) {
            (Some(a), Some(b)) => Some(CapUse {
                used: a.used.saturating_add(b.used),
                allowed: a.allowed.saturating_add(b.allowed),
            }),
            (a, b) => a.or(b),
        };
    }

    pub(super) fn view(&self) -> ServiceView {
        let difference = self.got.zip(self.due).map(|(got, due)| got.saturating_sub(due.tokens));
        ServiceView {
            got_tokens: self.got.map(whole),
            due_tokens: self.due.map(|due| whole(due.tokens)),
            difference_tokens: difference.map(whole),
            bound_tokens: self.due.map(|due| i64::try_from(due.bound).unwrap_or(i64::MAX)),
            within_bound: self.due.map(|_| !self.outside),
            cap_use: self.cap_use.map(|cap_use| cap_use.thousandths() as f64 / 1000.0),
        }
    }
}

impl PoolView {
    /// What a sight shows. The directory says the group of tenants, where the policy does not, and the weights of those
    /// that the pool shares by nothing.
    pub(crate) fn new(pool: &str, sight: &Sight, directory: &Directory) -> Self {
        let snapshot = &sight.snapshot;
        let mut groups: BTreeMap<String, Row> = BTreeMap::new();
        let mut tenants: BTreeMap<(String, String), Row> = BTreeMap::new();
        let mut projects: BTreeMap<String, Row> = BTreeMap::new();
        let mut classes = Classes::default();
        let group_of = |tenant: &str| {
            let found = directory.tenants.iter().find(|known| known.name == tenant);
            found.map_or_else(|| "-".to_owned(), |known| known.group.clone())
        };
        let activity = Activity::of(snapshot.policy.root(), &snapshot.requests);
        for_each_flow(sight, &activity, |flow| match flow.by {
            Attribute::Group => groups.entry(flow.name.to_owned()).or_default().add(&flow),
            Attribute::Tenant => {
                let group = flow.group.map_or_else(|| group_of(flow.name), str::to_owned);
                tenants.entry((group, flow.name.to_owned())).or_default().add(&flow);
            }
            // Calls that are no task's are in no project.
            Attribute::Project if flow.name != DEFAULT_FLOW => {
                projects.entry(flow.name.to_owned()).or_default().add(&flow);
            }
            Attribute::Class => classes.add(&flow),
            _ => {}
        });
        count(sight, &mut groups, &mut tenants, &mut projects);
        let shown = most_active(tenants);
        let nobody = Directory::default();
        Self {
            pool: pool.to_owned(),
            algorithm: algorithm(&snapshot.policy),
            max_in_flight: snapshot.capacity,
            global_in_flight: activity.in_flight,
            global_queued: activity.waiting,
            classes: classes.views(sight.now),
            groups: groups.into_iter().map(|(name, row)| row.group(name, directory)).collect(),
            tenants_omitted: shown.1,
            tenants: shown.0.into_iter().map(|(key, row)| row.tenant(key, directory)).collect(),
            projects: (most_active(projects).0.into_iter())
                .map(|(name, row)| row.group(name, &nobody))
                .collect(),
            tiers: TiersView::default(),
            workers: Vec::new(),
        }
    }

    /// Adds what the scheduler does not know: what tenants used on which workers, and how these stand.
    pub(crate) fn with_tiers(mut self, pool: &PoolHandle, snapshot: &Snapshot) -> Self {
        let tenants = self.tenants.iter().map(|tenant| &*tenant.tenant_id);
        let spent = pool.spending.of(tenants);
        for (tenant, spent) in self.tenants.iter_mut().zip(spent) {
            tenant.tiers = spent.into();
        }
        self.tiers = pool.spending.all().into();
        self.workers = workers(snapshot, pool);
        self
    }
}

/// What is under way, by who it belongs to, whatever the policy shares by.
fn count(
    sight: &Sight,
    groups: &mut BTreeMap<String, Row>,
    tenants: &mut BTreeMap<(String, String), Row>,
    projects: &mut BTreeMap<String, Row>,
) {
    for request in &sight.snapshot.requests {
        let of = |by| request.attributes.get(by).unwrap_or("-").to_owned();
        let (group, tenant) = (of(Attribute::Group), of(Attribute::Tenant));
        let project = request.attributes.get(Attribute::Project);
        let rows =
            [groups.entry(group.clone()).or_default(), tenants.entry((group, tenant)).or_default()];
        let project = project.map(|project| projects.entry(project.to_owned()).or_default());
        for row in rows.into_iter().chain(project) {
            match request.flight.is_some() {
                true => row.in_flight += 1,
                false => row.queued += 1,
            }
        }
    }
}

/// Those with the most under way, by name, and how many others there are.
fn most_active<K: Ord>(rows: BTreeMap<K, Row>) -> (Vec<(K, Row)>, u64) {
    let mut rows: Vec<(K, Row)> = rows.into_iter().collect();
    let omitted = rows.len().saturating_sub(ROWS_SHOWN);
    if omitted > 0 {
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.in_flight + row.queued));
        rows.truncate(ROWS_SHOWN);
        rows.sort_by(|a, b| a.0.cmp(&b.0));
    }
    (rows, omitted as u64)
}

impl Row {
    fn add(&mut self, flow: &FlowView<'_>) {
        self.weight = self.weight.or(flow.weight.map(|weight| weight.get()));
        self.slots = match (self.slots, flow.slots) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.served = self.served.saturating_add(flow.served.unwrap_or(0));
        // Where it is in several nodes, the one in which it has had most.
        let score = flow.score.map(shown_score);
        self.score =
            score.map(|score| self.score.map_or(score, |other| other.max(score))).or(self.score);
        self.due.add(flow);
        if let Some(fairness) = flow.fairness {
            self.service.add(fairness);
        }
        if let Some(lag) = flow.fairness.and_then(Lag::of) {
            self.lag = self.lag.saturating_add(lag.tokens);
            let (least, most) = self.bound.unwrap_or((0, 0));
            self.bound = lag.bound.map(|(a, b)| (least.saturating_add(a), most.saturating_add(b)));
        }
    }

    fn group(self, name: String, directory: &Directory) -> GroupView {
        let known = directory.groups.iter().find(|group| group.name == name);
        GroupView {
            weight: self.weight.or(known.map(|group| group.weight)).unwrap_or(0),
            name,
            in_flight: self.in_flight,
            queued: self.queued,
            slot_cap: self.slots,
            served_tokens: u64::try_from(self.served).unwrap_or(u64::MAX),
            share_score: self.score,
            weight_share: self.due.part().map(shown_part),
            lag_tokens: whole(self.lag),
            lag_bound_tokens: self.bound.map(|(_, most)| whole(most)),
            lag_floor_tokens: self.bound.map(|(least, _)| whole(least)),
            service: self.service.view(),
        }
    }

    fn tenant(self, (group, name): (String, String), directory: &Directory) -> TenantView {
        let known = directory.tenants.iter().find(|tenant| tenant.name == name);
        let view = self.group(name, &Directory::default());
        let weight = match view.weight {
            0 => known.map_or(0, |tenant| tenant.weight),
            weight => weight,
        };
        TenantView {
            tenant_id: view.name,
            fairshare_group: group,
            weight,
            in_flight: view.in_flight,
            queued: view.queued,
            slot_cap: view.slot_cap,
            served_tokens: view.served_tokens,
            share_score: view.share_score,
            weight_share: view.weight_share,
            lag_tokens: view.lag_tokens,
            lag_bound_tokens: view.lag_bound_tokens,
            lag_floor_tokens: view.lag_floor_tokens,
            service: view.service,
            tiers: TiersView::default(),
        }
    }
}

/// To the thousandth.
fn shown_score(score: PerWeight) -> f64 {
    let thousandths = (score.0 as f64) * 1000.0 / 4_294_967_296.0;
    thousandths.round() / 1000.0
}

/// To the millionth.
pub(super) fn shown_part(part: f64) -> f64 {
    (part * 1e6).round() / 1e6
}

fn whole(tokens: i128) -> i64 {
    i64::try_from(tokens).unwrap_or(if tokens < 0 { i64::MIN } else { i64::MAX })
}
