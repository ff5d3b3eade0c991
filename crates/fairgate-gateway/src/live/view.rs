//! The live view. Its field names are those that dashboards of LLM schedulers already use.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::fairness::{CapUse, DueService, FlowFairness};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::PerWeight;
use fairgate_journal::explain_text::strict_order;
use fairgate_store::Directory;
use serde::Serialize;
use utoipa::ToSchema;

use super::activity::{FlowActivity, GrantRate};
use super::classes::{ClassRows, ClassView};
use super::due_share::DueShare;
use super::flows::{FlowView, for_each_flow};
use super::policy_description::describe_policy;
use super::pool_snapshots::PoolSnapshot;
use super::tiers::TiersView;
use super::worker::{WorkerBody, workers};
use crate::lag_in_tokens::FlowLag;
use crate::pools::PoolHandle;

/// Maximum number of tenants per pool in the view, and of projects per pool. Those with the most requests queued or in
/// flight are shown.
const ROWS_SHOWN: usize = 1000;

/// All pools at one moment. If there is only one pool, or one was asked for, the fields of that pool are also at the
/// top level.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct LiveView {
    /// Time at which the view was made, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub at: String,
    /// State of the ledger.
    pub ledger: LedgerView,
    /// Currency of all amounts of money, such as `USD`; null if the configuration has no prices.
    pub currency: Option<String>,
    /// The fields of the pool, if the view has exactly one pool.
    #[serde(flatten)]
    pub one: Option<PoolView>,
    /// The pools, each with its classes, groups, tenants, projects and workers.
    pub pools: Vec<PoolView>,
}

/// State of the ledger since the start of the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = LedgerState)]
pub struct LedgerView {
    /// Number of rows that are in the spool and not in the database yet. The number is small unless the database does
    /// not answer.
    pub rows_waiting: u64,
    /// Number of responses that were served without a row since the start, because the row could be kept nowhere
    /// (`on_store_failure: serve`).
    pub answers_without_row: u64,
}

/// One pool at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PoolView {
    /// Name of the pool, as in the configuration.
    pub pool: String,
    /// Policy in words, from the root down, such as `share by group, share by tenant`.
    pub algorithm: String,
    /// Maximum number of requests in flight.
    pub max_in_flight: u64,
    /// Number of requests in flight.
    pub global_in_flight: u64,
    /// Number of queued requests.
    pub global_queued: u64,
    /// The policy classes, sorted by name; empty if the policy has no classes.
    pub classes: Vec<ClassView>,
    /// The groups with a flow or a request in the pool, sorted by name.
    pub groups: Vec<GroupView>,
    /// The tenants with a flow or a request in the pool, sorted by group and name. If there are more than 1000, only
    /// the 1000 with the most requests queued or in flight are shown.
    pub tenants: Vec<TenantView>,
    /// Number of tenants with a flow or a request in the pool that are not in `tenants`.
    pub tenants_omitted: u64,
    /// The fleet's projects with a flow or a request in the pool, sorted by name. If there are more than 1000, only the
    /// 1000 with the most requests queued or in flight are shown. The weight is 0 if the policy does not share by
    /// projects.
    pub projects: Vec<GroupView>,
    /// Use of own and of hosted workers by all tenants.
    #[serde(flatten)]
    pub tiers: TiersView,
    /// The workers, with the known limits of their providers.
    pub workers: Vec<WorkerBody>,
}

/// Service that a flow got and service that it was due. Both are counted since the pool first saw the flow. A flow that
/// has been idle for long is dropped, and is counted from 0 when it returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = Service)]
pub struct ServiceView {
    /// Service that the flow got, in tokens. This is the sum of the costs of the flow's granted requests; a cost is
    /// corrected to the real usage when the request ends. Null if the pool does not count the service of the flow.
    pub got_tokens: Option<i64>,
    /// Service that the flow was due, in tokens. This is the flow's share by weight of everything that was served while
    /// the flow was ready. Null if the policy promises the flow no share.
    pub due_tokens: Option<i64>,
    /// Difference `got_tokens` − `due_tokens`. Below 0, the flow got less than it was due. Null if the policy promises
    /// no share.
    pub difference_tokens: Option<i64>,
    /// Greatest absolute value that is expected for `difference_tokens`, in tokens. Null if the policy promises no
    /// share.
    pub bound_tokens: Option<i64>,
    /// True if the difference of every counted flow is within the bound of that flow. Null if the policy promises no
    /// share.
    pub within_bound: Option<bool>,
    /// Requests in flight ÷ cap, averaged over the time in which the flow had queued requests, from 0 to 1. Null if the
    /// flow has no cap, or never had a queued request.
    pub cap_use: Option<f64>,
    /// Place of the flow in a strict order, such as `strict: goes before batch`. Null unless the flow is a class of a
    /// bands node. Such a node promises no share, so `due_tokens` and `bound_tokens` are then null.
    pub strict: Option<String>,
    /// The classes that come after this one, in their order; empty for the last one. Null unless the flow is a class of
    /// a bands node.
    pub goes_before: Option<Vec<String>>,
}

impl ServiceView {
    /// Returns the service of one flow.
    pub(crate) fn of(flow: &FlowFairness) -> Self {
        let mut service = FlowServiceSum::default();
        service.add(flow);
        service.view()
    }

    /// Returns the view without the token counts, which depend on what is cached; see [`shares_cached_prompts`].
    ///
    /// [`shares_cached_prompts`]: crate::pools::PoolSetup::shares_cached_prompts
    pub(crate) fn without_tokens(self) -> Self {
        Self {
            got_tokens: None,
            due_tokens: None,
            difference_tokens: None,
            bound_tokens: None,
            ..self
        }
    }

    /// Returns the view as a tenant may see it, with the number of other classes instead of their names.
    pub(crate) fn without_names(self) -> Self {
        let strict = self.goes_before.as_ref().map(|names| match names.len() {
            0 => strict_order(&[]),
            1 => strict_order(&["one other".into()]),
            many => strict_order(&[format!("{many} others").into()]),
        });
        Self { strict, goes_before: None, ..self }
    }
}

/// A group, or a project of the fleet, in a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct GroupView {
    /// Name of the group; for a project, its id.
    pub name: String,
    /// Weight among the groups or among the projects; 0 if neither the policy nor the directory gives one.
    pub weight: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Number of queued requests.
    pub queued: u64,
    /// Expected wait in milliseconds: queued requests ÷ grants per second of the last minute. Null if nothing was
    /// granted in that minute, or the policy does not share by groups.
    pub expected_wait_ms: Option<u64>,
    /// Maximum number of requests in flight: the slots that the policy's `partition` gives, else the cap. Null means no
    /// maximum.
    pub slot_cap: Option<u64>,
    /// Tokens that ended requests used since the score was last raised to the virtual time, which happens after an idle
    /// time.
    pub served_tokens: u64,
    /// Tokens of the requests in flight, at their estimates. They are not in `served_tokens`.
    pub in_flight_tokens: u64,
    /// `served_tokens` ÷ `weight`. Null if the policy does not share by groups.
    pub share_score: Option<f64>,
    /// Number by which the group is ordered, in tokens per weight: (`served_tokens` + `in_flight_tokens`) ÷ `weight`, plus
    /// the virtual time at which it last began to wait. The group with the lowest number goes next. Null if the policy
    /// does not share by groups.
    pub order_score: Option<f64>,
    /// Share of the pool that the group is due among the groups that have requests now, from 0 to 1. Null if the policy
    /// has no weight for the group.
    pub weight_share: Option<f64>,
    /// Lag in tokens, which is the service that the group is owed. Below 0, the group got more than its share. 0 if the
    /// group has no queued request.
    pub lag_tokens: i64,
    /// Maximum possible lag now, in tokens. Null if nothing is queued, or if the policy divides slots by weight
    /// (`partition`).
    pub lag_bound_tokens: Option<i64>,
    /// Minimum possible lag now, in tokens. Null if nothing is queued, or if the policy divides slots by weight
    /// (`partition`).
    pub lag_floor_tokens: Option<i64>,
    /// Service that the group got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
}

/// A tenant in a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct TenantView {
    /// Name of the tenant; unique across groups.
    pub tenant_id: String,
    /// Name of the tenant's group; `-` if the group is not known.
    pub fairshare_group: String,
    /// Weight within the group; 0 if neither the policy nor the directory gives one.
    pub weight: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Number of queued requests.
    pub queued: u64,
    /// Expected wait in milliseconds: queued requests ÷ grants per second of the last minute. Null if nothing was
    /// granted in that minute, or the policy does not share by tenants.
    pub expected_wait_ms: Option<u64>,
    /// Maximum number of requests in flight: the slots that the policy's `partition` gives, else the cap. Null means no
    /// maximum.
    pub slot_cap: Option<u64>,
    /// Tokens that ended requests used since the score was last raised to the virtual time, which happens after an idle
    /// time.
    pub served_tokens: u64,
    /// Tokens of the requests in flight, at their estimates. They are not in `served_tokens`.
    pub in_flight_tokens: u64,
    /// `served_tokens` ÷ `weight`. Null if the policy does not share by tenants.
    pub share_score: Option<f64>,
    /// Number by which the tenant is ordered, in tokens per weight: (`served_tokens` + `in_flight_tokens`) ÷ `weight`, plus
    /// the virtual time at which it last began to wait. The tenant with the lowest number goes next. Null if the policy
    /// does not share by tenants.
    pub order_score: Option<f64>,
    /// Share of the pool that the tenant is due among the tenants that have requests now, from 0 to 1. Null if the
    /// policy has no weight for the tenant.
    pub weight_share: Option<f64>,
    /// Lag in tokens, which is the service that the tenant is owed. Below 0, the tenant got more than its share. 0 if
    /// the tenant has no queued request.
    pub lag_tokens: i64,
    /// Maximum possible lag now, in tokens. Null if nothing is queued, or if the policy divides slots by weight
    /// (`partition`).
    pub lag_bound_tokens: Option<i64>,
    /// Minimum possible lag now, in tokens. Null if nothing is queued, or if the policy divides slots by weight
    /// (`partition`).
    pub lag_floor_tokens: Option<i64>,
    /// Service that the tenant got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
    /// Use of own and of hosted workers by the tenant.
    #[serde(flatten)]
    pub tiers: TiersView,
}

/// Sums over all flows of one name. A name has several flows if a node above them shares by another attribute.
#[derive(Clone, Debug, Default)]
struct OwnerRow {
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
}

/// Sum of the service of all flows of one row. Due tokens and bounds are added up. The row is within its bound if each
/// flow is within the flow's own bound.
#[derive(Clone, Debug, Default)]
pub(super) struct FlowServiceSum {
    got: Option<i128>,
    due: Option<DueService>,
    outside: bool,
    cap_use: Option<CapUse>,
    goes_before: Option<Vec<Arc<str>>>,
}

impl FlowServiceSum {
    pub(super) fn add(&mut self, flow: &FlowFairness) {
        self.got = Some(self.got.unwrap_or(0).saturating_add(flow.got));
        self.outside |= !flow.is_within_bound();
        self.due = match (self.due, flow.due) {
            (Some(a), Some(b)) => Some(DueService {
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
        if self.goes_before.is_none() {
            self.goes_before.clone_from(&flow.goes_before);
        }
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
            strict: self.goes_before.as_deref().map(strict_order),
            goes_before: (self.goes_before.as_ref())
                .map(|names| names.iter().map(|name| name.to_string()).collect()),
        }
    }
}

impl PoolView {
    /// Computes the view of a snapshot. The directory supplies what the policy does not know: a tenant's group if the
    /// policy does not share by groups, and the weights of groups or tenants if it does not share by them.
    pub(crate) fn new(pool: &str, recent: &PoolSnapshot, directory: &Directory) -> Self {
        let snapshot = &recent.snapshot;
        let mut groups: BTreeMap<String, OwnerRow> = BTreeMap::new();
        let mut tenants: BTreeMap<(String, String), OwnerRow> = BTreeMap::new();
        let mut projects: BTreeMap<String, OwnerRow> = BTreeMap::new();
        let mut classes = ClassRows::default();
        let group_of = |tenant: &str| {
            let found = directory.tenants.iter().find(|known| known.name == tenant);
            found.map_or_else(|| "-".to_owned(), |known| known.group.clone())
        };
        let activity = FlowActivity::of(recent);
        for_each_flow(recent, &activity, |flow| match flow.by {
            Attribute::Group => groups.entry(flow.name.to_owned()).or_default().add(&flow),
            Attribute::Tenant => {
                let group = flow.group.map_or_else(|| group_of(flow.name), str::to_owned);
                tenants.entry((group, flow.name.to_owned())).or_default().add(&flow);
            }
            // Requests without a task key are in the default flow, which is no project.
            Attribute::Project if flow.name != DEFAULT_FLOW => {
                projects.entry(flow.name.to_owned()).or_default().add(&flow);
            }
            Attribute::Class => classes.add(&flow),
            _ => {}
        });
        count_requests(recent, &mut groups, &mut tenants, &mut projects);
        let shown = most_active(tenants);
        let nobody = Directory::default();
        Self {
            pool: pool.to_owned(),
            algorithm: describe_policy(&snapshot.policy),
            max_in_flight: snapshot.capacity,
            global_in_flight: activity.in_flight,
            global_queued: activity.waiting,
            classes: classes.views(recent.now),
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

    /// Adds the data that the scheduler does not have: the use of tokens and money by tier, and the state of the
    /// workers.
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

/// Counts all queued and running requests by group, tenant and project, even if the policy does not share by these
/// attributes.
fn count_requests(
    recent: &PoolSnapshot,
    groups: &mut BTreeMap<String, OwnerRow>,
    tenants: &mut BTreeMap<(String, String), OwnerRow>,
    projects: &mut BTreeMap<String, OwnerRow>,
) {
    for request in &recent.snapshot.requests {
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

/// Returns the [`ROWS_SHOWN`] rows with the most requests, sorted by key, and the number of omitted rows.
fn most_active<K: Ord>(rows: BTreeMap<K, OwnerRow>) -> (Vec<(K, OwnerRow)>, u64) {
    let mut rows: Vec<(K, OwnerRow)> = rows.into_iter().collect();
    let omitted = rows.len().saturating_sub(ROWS_SHOWN);
    if omitted > 0 {
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.in_flight + row.queued));
        rows.truncate(ROWS_SHOWN);
        rows.sort_by(|a, b| a.0.cmp(&b.0));
    }
    (rows, omitted as u64)
}

impl OwnerRow {
    fn add(&mut self, flow: &FlowView<'_>) {
        self.weight = self.weight.or(flow.weight.map(|weight| weight.get()));
        if let Some(activity) = flow.activity {
            self.rate.add(activity.rate());
        }
        self.slots = match (self.slots, flow.slots) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.served = self.served.saturating_add(flow.served.unwrap_or(0));
        self.pending = self.pending.saturating_add(flow.pending.unwrap_or(0));
        // In several nodes: the highest score, from the node in which it got most.
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

    fn group(self, name: String, directory: &Directory) -> GroupView {
        let known = directory.groups.iter().find(|group| group.name == name);
        let served_tokens = u64::try_from(self.served).unwrap_or(u64::MAX);
        let shared_by = self.weight.filter(|weight| *weight > 0 && self.score.is_some());
        GroupView {
            weight: self.weight.or(known.map(|group| group.weight)).unwrap_or(0),
            name,
            in_flight: self.in_flight,
            queued: self.queued,
            expected_wait_ms: self.rate.expected_wait_ms(self.queued),
            slot_cap: self.slots,
            served_tokens,
            in_flight_tokens: u64::try_from(self.pending).unwrap_or(u64::MAX),
            share_score: shared_by
                .map(|weight| (served_tokens as f64 / weight as f64 * 1000.0).round() / 1000.0),
            order_score: self.score,
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
            expected_wait_ms: view.expected_wait_ms,
            slot_cap: view.slot_cap,
            served_tokens: view.served_tokens,
            in_flight_tokens: view.in_flight_tokens,
            share_score: view.share_score,
            order_score: view.order_score,
            weight_share: view.weight_share,
            lag_tokens: view.lag_tokens,
            lag_bound_tokens: view.lag_bound_tokens,
            lag_floor_tokens: view.lag_floor_tokens,
            service: view.service,
            tiers: TiersView::default(),
        }
    }
}

/// Rounds a score to thousandths of a token per weight.
fn shown_score(score: PerWeight) -> f64 {
    let thousandths = (score.0 as f64) * 1000.0 / 4_294_967_296.0;
    thousandths.round() / 1000.0
}

/// Rounds a share to the millionth.
pub(super) fn shown_part(part: f64) -> f64 {
    (part * 1e6).round() / 1e6
}

fn whole(tokens: i128) -> i64 {
    i64::try_from(tokens).unwrap_or(if tokens < 0 { i64::MIN } else { i64::MAX })
}
