//! The live view: all pools at one moment. Its field names are those that dashboards of LLM schedulers already use.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::flow_now::FlowNow;
use super::worker::WorkerBody;

/// All pools at one moment. If there is only one pool, or the client asked for one pool, the fields
/// of that pool are also at the top level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LedgerState)]
pub struct LedgerView {
    /// Number of rows that are in the spool and not in the database yet. The number is small unless the database does
    /// not answer.
    pub rows_waiting: u64,
    /// Number of responses since the start that have no row in the ledger, because neither the
    /// database nor the spool could keep the row (`on_store_failure: serve`).
    pub answers_without_row: u64,
}

/// One pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolView {
    /// Name of the pool, as in the configuration.
    pub pool: String,
    /// Unit in which the pool's scheduler counts: `tokens`, `worker_time` (microseconds of a full worker) or `money`
    /// (micro-units of the currency of the prices). Fields whose names contain no unit are in this unit.
    #[serde(default)]
    pub unit: String,
    /// Policy in words, from the root down, such as `share by group, share by tenant`.
    pub algorithm: String,
    /// Maximum number of requests in flight.
    #[serde(default)]
    pub slots: u64,
    /// Number of requests in flight.
    #[serde(default)]
    pub in_flight: u64,
    /// Number of requests that wait for a slot.
    #[serde(default)]
    pub waiting: u64,
    /// Time over which `granted`, `refused` and the waits are counted, in seconds: 60, or less after a start.
    #[serde(default)]
    pub window_s: u64,
    /// Number of requests that were granted a slot in the window.
    #[serde(default)]
    pub granted: u64,
    /// Number of requests that were refused in the window.
    #[serde(default)]
    pub refused: u64,
    /// Median wait of the requests granted in the window, in milliseconds. Null if none was
    /// granted.
    pub wait_p50_ms: Option<u64>,
    /// Wait in milliseconds that 95 % of the requests granted in the window did not exceed. Null if none was granted.
    pub wait_p95_ms: Option<u64>,
    /// Former name of `slots`.
    #[schema(deprecated)]
    pub max_in_flight: u64,
    /// Former name of `in_flight`.
    #[schema(deprecated)]
    pub global_in_flight: u64,
    /// Former name of `waiting`.
    #[schema(deprecated)]
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
    /// Names of the tenants that are not in `tenants`.
    #[serde(skip)]
    pub omitted: Vec<String>,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Service)]
pub struct ServiceView {
    /// Service that the flow got, in the unit of the pool. This is the sum of the costs of the flow's granted requests; a
    /// cost is corrected to the real usage when the request ends. Null if the pool does not count the service of the
    /// flow.
    pub got: Option<i64>,
    /// Service that the flow was due, in the unit of the pool. This is the flow's share by weight of everything that was
    /// served while the flow was ready. Null if the policy promises the flow no share.
    pub due: Option<i64>,
    /// Difference `got` − `due`. Below 0, the flow got less than it was due. Null if the policy promises no share.
    pub difference: Option<i64>,
    /// Greatest absolute value that is expected for `difference`. Null if the policy promises no share.
    pub bound: Option<i64>,
    /// The same as `got`; null if the pool does not count tokens.
    pub got_tokens: Option<i64>,
    /// The same as `due`; null if the pool does not count tokens.
    pub due_tokens: Option<i64>,
    /// The same as `difference`; null if the pool does not count tokens.
    pub difference_tokens: Option<i64>,
    /// The same as `bound`; null if the pool does not count tokens.
    pub bound_tokens: Option<i64>,
    /// True if the difference of every counted flow is within the bound of that flow. Null if the policy promises no
    /// share.
    pub within_bound: Option<bool>,
    /// Requests in flight ÷ cap, averaged over the time in which the flow had queued requests, from 0 to 1. Null if the
    /// flow has no cap, or never had a queued request.
    pub cap_use: Option<f64>,
    /// Place of the flow in a strict order, such as `strict: goes before batch`. Null unless the flow is a class of a
    /// bands node. Such a node promises no share, so `due` and `bound` are then null.
    pub strict: Option<String>,
    /// The classes that come after this class, in their order; empty for the last class. Null
    /// unless the flow is a class of a bands node.
    pub goes_before: Option<Vec<String>>,
}

/// A group, or a project of the fleet, in a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Name of the group; for a project, its id.
    pub name: String,
    /// Weight among the groups or among the projects; 0 if neither the policy nor the directory gives one.
    pub weight: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Former name of `waiting`.
    #[schema(deprecated)]
    pub queued: u64,
    /// State of the flow now, and its part of the last minute.
    #[serde(flatten)]
    pub now: FlowNow,
    /// Expected wait in milliseconds: queued requests ÷ grants per second of the last minute. Null if nothing was
    /// granted in that minute, or the policy does not share by groups.
    pub expected_wait_ms: Option<u64>,
    /// Former name of `cap`: the slots that the policy's `partition` gives, else the cap. Null means no maximum.
    #[schema(deprecated)]
    pub slot_cap: Option<u64>,
    /// Cost of the requests that ended since the score was last raised to the virtual time, which happens after an idle
    /// time.
    #[serde(default)]
    pub served: u64,
    /// Cost of the requests in flight, at their estimates. It is not in `served`.
    #[serde(default)]
    pub in_flight_cost: u64,
    /// The same as `served`; null if the pool does not count tokens.
    pub served_tokens: Option<u64>,
    /// The same as `in_flight_cost`; null if the pool does not count tokens.
    pub in_flight_tokens: Option<u64>,
    /// `served` ÷ `weight`. Null if the policy does not share by groups.
    pub share_score: Option<f64>,
    /// Number by which the group is ordered: (`served` + `in_flight_cost`) ÷ `weight`, plus the
    /// virtual time at which the group last began to wait. The group with the lowest number goes
    /// next. Null if the policy does not share by groups.
    pub order_score: Option<f64>,
    /// Share of the pool that the group's weight gives it now, among the groups that have requests,
    /// from 0 to 1. Null if the policy has no weight for the group. The share that the group was
    /// due in the last minute is `due_share`.
    pub weight_share: Option<f64>,
    /// Lag: the service that the group is owed, in the unit of the pool. Below 0, the group got
    /// more than its share. 0 if the group has no queued request.
    #[serde(default)]
    pub lag: i64,
    /// Maximum possible lag now. Null if nothing is queued, or if the policy divides slots by weight (`partition`).
    pub lag_bound: Option<i64>,
    /// Minimum possible lag now. Null if nothing is queued, or if the policy divides slots by weight (`partition`).
    pub lag_floor: Option<i64>,
    /// The same as `lag`; null if the pool does not count tokens.
    pub lag_tokens: Option<i64>,
    /// The same as `lag_bound`; null if the pool does not count tokens.
    pub lag_bound_tokens: Option<i64>,
    /// The same as `lag_floor`; null if the pool does not count tokens.
    pub lag_floor_tokens: Option<i64>,
    /// Service that the group got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
}

/// A tenant in a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Name of the tenant; unique across groups.
    #[serde(default)]
    pub tenant: String,
    /// Name of the tenant's group; `-` if the group is not known.
    #[serde(default)]
    pub group: String,
    /// Former name of `tenant`.
    #[schema(deprecated)]
    pub tenant_id: String,
    /// Former name of `group`.
    #[schema(deprecated)]
    pub fairshare_group: String,
    /// Weight within the group; 0 if neither the policy nor the directory gives one.
    pub weight: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Former name of `waiting`.
    #[schema(deprecated)]
    pub queued: u64,
    /// State of the flow now, and its part of the last minute.
    #[serde(flatten)]
    pub now: FlowNow,
    /// Expected wait in milliseconds: queued requests ÷ grants per second of the last minute. Null if nothing was
    /// granted in that minute, or the policy does not share by tenants.
    pub expected_wait_ms: Option<u64>,
    /// Former name of `cap`: the slots that the policy's `partition` gives, else the cap. Null means no maximum.
    #[schema(deprecated)]
    pub slot_cap: Option<u64>,
    /// Cost of the requests that ended since the score was last raised to the virtual time, which happens after an idle
    /// time.
    #[serde(default)]
    pub served: u64,
    /// Cost of the requests in flight, at their estimates. It is not in `served`.
    #[serde(default)]
    pub in_flight_cost: u64,
    /// The same as `served`; null if the pool does not count tokens.
    pub served_tokens: Option<u64>,
    /// The same as `in_flight_cost`; null if the pool does not count tokens.
    pub in_flight_tokens: Option<u64>,
    /// `served` ÷ `weight`. Null if the policy does not share by tenants.
    pub share_score: Option<f64>,
    /// Number by which the tenant is ordered: (`served` + `in_flight_cost`) ÷ `weight`, plus the
    /// virtual time at which the tenant last began to wait. The tenant with the lowest number goes
    /// next. Null if the policy does not share by tenants.
    pub order_score: Option<f64>,
    /// Share of the pool that the tenant is due among the tenants that have requests now, from 0 to 1. Null if the
    /// policy has no weight for the tenant.
    pub weight_share: Option<f64>,
    /// Lag: the service that the tenant is owed, in the unit of the pool. Below 0, the tenant got
    /// more than its share. 0 if the tenant has no queued request.
    #[serde(default)]
    pub lag: i64,
    /// Maximum possible lag now. Null if nothing is queued, or if the policy divides slots by weight (`partition`).
    pub lag_bound: Option<i64>,
    /// Minimum possible lag now. Null if nothing is queued, or if the policy divides slots by weight (`partition`).
    pub lag_floor: Option<i64>,
    /// The same as `lag`; null if the pool does not count tokens.
    pub lag_tokens: Option<i64>,
    /// The same as `lag_bound`; null if the pool does not count tokens.
    pub lag_bound_tokens: Option<i64>,
    /// The same as `lag_floor`; null if the pool does not count tokens.
    pub lag_floor_tokens: Option<i64>,
    /// Service that the tenant got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
    /// This tenant's part of the tokens of all tenants on the installation's own workers since the gateway started,
    /// from 0 to 1. Null if there are none.
    #[serde(default)]
    pub share_of_tokens: Option<f64>,
    /// This tenant's part of the worker time of all tenants since the gateway started, from 0 to 1.
    /// It is computed even if the pool counts another unit. Null if no worker time was used.
    #[serde(default)]
    pub share_of_worker_time: Option<f64>,
    /// Use of own and of hosted workers by the tenant.
    #[serde(flatten)]
    pub tiers: TiersView,
}

/// A policy class in a pool. If the policy has the class inside several tenants or groups, this is one row with the
/// sums over all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Class)]
pub struct ClassView {
    /// Name of the class, as in the policy.
    pub name: String,
    /// Weight of the class, or its quantum in the unit of the pool if deficit round robin decides. Null if the policy gives the class
    /// neither.
    pub weight: Option<u64>,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Former name of `waiting`.
    #[schema(deprecated)]
    pub queued: u64,
    /// State of the flow now, and its part of the last minute.
    #[serde(flatten)]
    pub now: FlowNow,
    /// Expected wait in milliseconds: queued requests ÷ grants per second of the last minute. Null if nothing was
    /// granted in that minute.
    pub expected_wait_ms: Option<u64>,
    /// Time that the oldest queued request has waited, in microseconds. Null if no request is queued.
    pub oldest_wait_us: Option<u64>,
    /// Unspent credit, in the unit of the pool. Null unless deficit round robin decides among the classes.
    pub deficit: Option<u64>,
    /// The same as `deficit`; null if the pool does not count tokens.
    pub deficit_tokens: Option<u64>,
    /// Former name of `cap`.
    #[schema(deprecated)]
    pub slot_cap: Option<u64>,
    /// Share of the pool that the weight of the class gives it now, among the classes that have
    /// requests, from 0 to 1. Null if the policy has no weight for the class. The share that the
    /// class was due in the last minute is `due_share`.
    pub weight_share: Option<f64>,
    /// Service that the class got, and service that it was due.
    #[serde(flatten)]
    pub service: ServiceView,
}

/// Use of own and of hosted workers since the gateway started. For sums that include earlier runs of the gateway, see
/// `/api/v1/usage`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Tiers)]
pub struct TiersView {
    /// Use of own workers, which have tier 0.
    pub own: TierUseView,
    /// Use of hosted workers, which have tier 1 or more.
    pub hosted: TierUseView,
    /// Time of own workers that was used, in microseconds of a full worker. It is recorded even if
    /// the pool counts another unit.
    #[serde(default)]
    pub worker_us: u64,
}

/// Use of own workers, or of hosted workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TierUse)]
pub struct TierUseView {
    /// Number of attempts that used any tokens.
    pub requests: u64,
    /// Input and output tokens as a provider counts them, not weighted.
    pub provider_tokens: u64,
    /// Cost in money, as a decimal text in the `currency` of the view.
    pub money: String,
}

impl PoolView {
    /// Clears fields such as `served_tokens`, because the pool counts in another unit than tokens.
    pub fn clear_token_names(&mut self) {
        for row in self.groups.iter_mut().chain(&mut self.projects) {
            (row.served_tokens, row.in_flight_tokens) = (None, None);
            (row.lag_tokens, row.lag_bound_tokens, row.lag_floor_tokens) = (None, None, None);
            row.now.clear_token_names();
            row.service.clear_token_names();
        }
        for row in &mut self.tenants {
            (row.served_tokens, row.in_flight_tokens) = (None, None);
            (row.lag_tokens, row.lag_bound_tokens, row.lag_floor_tokens) = (None, None, None);
            row.now.clear_token_names();
            row.service.clear_token_names();
        }
        self.classes.iter_mut().for_each(ClassView::clear_token_names);
    }
}

impl ClassView {
    /// Clears fields such as `deficit_tokens`, because the pool counts in another unit than tokens.
    pub fn clear_token_names(&mut self) {
        self.deficit_tokens = None;
        self.now.clear_token_names();
        self.service.clear_token_names();
    }
}

impl ServiceView {
    /// Clears fields such as `got_tokens`, because the pool counts in another unit than tokens.
    pub fn clear_token_names(&mut self) {
        (self.got_tokens, self.due_tokens) = (None, None);
        (self.difference_tokens, self.bound_tokens) = (None, None);
    }
}
