//! The live view. Its field names are those that dashboards of LLM schedulers already use.

use std::collections::HashSet;
use std::sync::Arc;

use fairgate_api::admin::{FlowCondition, PoolView, ServiceView, TenantView, TiersView};
use fairgate_config::CostUnit;
use fairgate_core::attribute::{Attribute, DEFAULT_FLOW};
use fairgate_core::fairness::{CapUse, DueService, FlowFairness};
use fairgate_core::snapshot::Snapshot;
use fairgate_journal::explain_text::strict_order;
use fairgate_proxy::pools::PoolHandle;
use fairgate_runtime::PoolFlows;
use fairgate_store::{Directory, Tenant};

use super::activity::FlowActivity;
use super::classes::ClassRows;
use super::flow_now::FlowNowSource;
use super::flows::for_each_flow;
use super::owner_rows::{OwnerRows, ROWS_SHOWN, most_active};
use super::policy_description::describe_policy;
use super::tiers::tiers_view;
use super::worker::workers;

/// Returns the service of one flow.
pub(crate) fn service_of(flow: &FlowFairness) -> ServiceView {
    let mut service = FlowServiceSum::default();
    service.add(flow);
    service.view()
}

/// Returns the view without the token counts, which depend on what is cached; see [`shares_cached_prompts`].
///
/// [`shares_cached_prompts`]: fairgate_proxy::pools::PoolSetup::shares_cached_prompts
pub(crate) fn without_tokens(service: ServiceView) -> ServiceView {
    ServiceView {
        got: None,
        due: None,
        difference: None,
        bound: None,
        got_tokens: None,
        due_tokens: None,
        difference_tokens: None,
        bound_tokens: None,
        ..service
    }
}

/// Returns the view as a tenant may see it, with the number of other classes instead of their names.
pub(crate) fn without_names(service: ServiceView) -> ServiceView {
    let strict = service.goes_before.as_ref().map(|names| match names.len() {
        0 => strict_order(&[]),
        1 => strict_order(&["one other".into()]),
        many => strict_order(&[format!("{many} others").into()]),
    });
    ServiceView { strict, goes_before: None, ..service }
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
        let (got, due) = (self.got.map(whole), self.due.map(|due| whole(due.tokens)));
        let difference = difference.map(whole);
        let bound = self.due.map(|due| i64::try_from(due.bound).unwrap_or(i64::MAX));
        ServiceView {
            got,
            due,
            difference,
            bound,
            got_tokens: got,
            due_tokens: due,
            difference_tokens: difference,
            bound_tokens: bound,
            within_bound: self.due.map(|_| !self.outside),
            cap_use: self.cap_use.map(|cap_use| cap_use.thousandths() as f64 / 1000.0),
            strict: self.goes_before.as_deref().map(strict_order),
            goes_before: (self.goes_before.as_ref())
                .map(|names| names.iter().map(|name| name.to_string()).collect()),
        }
    }
}

/// Computes the view of a pool's flows. If the policy does not share by groups, the directory
/// supplies the groups of tenants. It also supplies the weights of groups or tenants by which the
/// policy does not share.
pub(super) fn pool_view(pool: &str, recent: &PoolFlows, directory: &Directory) -> PoolView {
    let (snapshot, counts) = (&recent.state, &recent.counts);
    let mut rows = OwnerRows::default();
    let mut classes = ClassRows::default();
    let group_of = |tenant: &str| {
        let found = directory.tenants.iter().find(|known| known.name == tenant);
        found.map_or_else(|| "-".to_owned(), |known| known.group.clone())
    };
    let activity =
        FlowActivity::of(&snapshot.policy, &snapshot.requests, &counts.fairness, &counts.grants);
    for_each_flow(snapshot, &counts.fairness, &activity, |flow| match flow.by {
        Attribute::Group => rows.group(flow.name).add(&flow),
        Attribute::Tenant => {
            let group = flow.group.map_or_else(|| group_of(flow.name), str::to_owned);
            rows.tenant(&group, flow.name).add(&flow);
        }
        // Requests without a task key are in the default flow, which is no project.
        Attribute::Project if flow.name != DEFAULT_FLOW => {
            rows.project(flow.name).add(&flow);
        }
        Attribute::Class => classes.add(&flow),
        _ => {}
    });
    snapshot.requests.iter().for_each(|request| rows.count_in_flight(request));
    recent.owners.iter().for_each(|(owner, waiting)| rows.count_waiting(owner, *waiting));
    let (shown, omitted) = most_active(rows.tenants);
    let nobody = Directory::default();
    PoolView {
        pool: pool.to_owned(),
        unit: String::new(),
        algorithm: describe_policy(&snapshot.policy),
        slots: snapshot.capacity,
        in_flight: counts.in_flight,
        waiting: counts.waiting,
        window_s: 0,
        granted: 0,
        refused: 0,
        wait_p50_ms: None,
        wait_p95_ms: None,
        max_in_flight: snapshot.capacity,
        global_in_flight: counts.in_flight,
        global_queued: counts.waiting,
        classes: classes.views(counts.now),
        groups: (rows.groups.into_iter()).map(|(name, row)| row.group(name, directory)).collect(),
        tenants_omitted: omitted.len() as u64,
        omitted: omitted.into_iter().map(|(_, tenant)| tenant).collect(),
        tenants: shown.into_iter().map(|(key, row)| row.tenant(key, directory)).collect(),
        projects: (most_active(rows.projects).0.into_iter())
            .map(|(name, row)| row.group(name, &nobody))
            .collect(),
        tiers: TiersView::default(),
        workers: Vec::new(),
    }
}

/// Returns the view without its rows.
pub(crate) fn without_rows(view: &PoolView) -> PoolView {
    PoolView {
        pool: view.pool.clone(),
        unit: view.unit.clone(),
        algorithm: view.algorithm.clone(),
        classes: Vec::new(),
        groups: Vec::new(),
        tenants: Vec::new(),
        omitted: Vec::new(),
        projects: Vec::new(),
        tiers: view.tiers.clone(),
        workers: Vec::new(),
        ..*view
    }
}

/// Adds the data of the history and the directory: the shares of the last minute, and the states of
/// the flows.
pub(crate) fn with_window(view: PoolView, source: &FlowNowSource<'_>) -> PoolView {
    let mut view = with_refused(view, source);
    let window = &source.window;
    (view.window_s, view.granted) = (window.seconds, window.granted);
    view.refused = window.refused;
    (view.wait_p50_ms, view.wait_p95_ms) = window.waits_ms();
    for (by, rows) in
        [(Attribute::Group, &mut view.groups), (Attribute::Project, &mut view.projects)]
    {
        rows.iter_mut().for_each(|row| source.complete(by, &row.name, row.in_flight, &mut row.now));
    }
    for row in &mut view.tenants {
        source.complete(Attribute::Tenant, &row.tenant, row.in_flight, &mut row.now);
    }
    for row in &mut view.classes {
        source.complete(Attribute::Class, &row.name, row.in_flight, &mut row.now);
    }
    view
}

/// Adds the tenants that the scheduler does not know because all their requests were refused, at
/// least one of them in the last minute.
fn with_refused(mut view: PoolView, source: &FlowNowSource<'_>) -> PoolView {
    let lately = source.refusals.refused_lately(source.pool, Attribute::Tenant);
    if lately.is_empty() {
        return view;
    }
    let lately: HashSet<&str> = lately.iter().map(|name| &**name).collect();
    let absent = absent_tenants(&view, source.directory);
    let refused: Vec<&Tenant> = absent.filter(|tenant| lately.contains(&*tenant.name)).collect();
    let room = ROWS_SHOWN.saturating_sub(view.tenants.len());
    let (shown, omitted) = refused.split_at(room.min(refused.len()));
    view.tenants.extend(shown.iter().map(|tenant| row_without_requests(tenant)));
    view.tenants.sort_by(|a, b| (&a.group, &a.tenant).cmp(&(&b.group, &b.tenant)));
    view.tenants_omitted += omitted.len() as u64;
    view
}

/// Adds the tenants of the directory that the view does not list. Tenants that sent no request have
/// the state `never_seen`.
pub(crate) fn with_never_seen(mut view: PoolView, source: &FlowNowSource<'_>) -> PoolView {
    let absent = absent_tenants(&view, source.directory);
    let mut absent: Vec<TenantView> = absent.map(row_without_requests).collect();
    for row in &mut absent {
        source.complete(Attribute::Tenant, &row.tenant, 0, &mut row.now);
        if row.now.state == FlowCondition::Idle && row.now.last_refusal.is_none() {
            row.now.state = FlowCondition::NeverSeen;
        }
    }
    view.tenants.extend(absent);
    view
}

/// Returns the tenants of the directory that the view neither shows nor names as omitted.
fn absent_tenants<'a>(
    view: &PoolView,
    directory: &'a Directory,
) -> impl Iterator<Item = &'a Tenant> + use<'a> {
    let shown = view.tenants.iter().map(|row| row.tenant.clone());
    let seen: HashSet<String> = shown.chain(view.omitted.iter().cloned()).collect();
    directory.tenants.iter().filter(move |tenant| !seen.contains(&tenant.name))
}

fn row_without_requests(tenant: &Tenant) -> TenantView {
    TenantView {
        tenant: tenant.name.clone(),
        group: tenant.group.clone(),
        tenant_id: tenant.name.clone(),
        fairshare_group: tenant.group.clone(),
        weight: tenant.weight,
        ..TenantView::default()
    }
}

/// Adds the data that the scheduler does not have: the use of tokens and money by tier, and the state of the
/// workers.
pub(crate) fn with_tiers(mut view: PoolView, pool: &PoolHandle, snapshot: &Snapshot) -> PoolView {
    let tenants = view.tenants.iter().map(|tenant| &*tenant.tenant);
    let spent = pool.spending.of(tenants);
    let all = pool.spending.all();
    for (tenant, spent) in view.tenants.iter_mut().zip(spent) {
        tenant.share_of_tokens = part(spent.own.provider_tokens, all.own.provider_tokens);
        tenant.share_of_worker_time = part(spent.worker_us, all.worker_us);
        tenant.tiers = tiers_view(spent);
    }
    view.tiers = tiers_view(all);
    view.workers = workers(snapshot, pool);
    view
}

/// Sets the unit in which the pool's scheduler counts. If it is not tokens, clears the fields that
/// are named after tokens.
pub(crate) fn with_unit(mut view: PoolView, unit: CostUnit) -> PoolView {
    unit.name().clone_into(&mut view.unit);
    if unit != CostUnit::Tokens {
        view.clear_token_names();
    }
    view
}

/// Returns a part of a total; `None` if the total is 0.
fn part(some: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| shown_part(some as f64 / all as f64))
}

/// Rounds a share to the millionth.
pub(super) fn shown_part(part: f64) -> f64 {
    (part * 1e6).round() / 1e6
}

pub(super) fn whole(tokens: i128) -> i64 {
    i64::try_from(tokens).unwrap_or(if tokens < 0 { i64::MIN } else { i64::MAX })
}
