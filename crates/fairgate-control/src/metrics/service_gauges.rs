//! Gauges of the service that tenants and flows got and were due, filled at each scrape.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::pool_gauges::{gauge_value, shares};
use crate::lag_in_tokens::FlowLag;

/// Maximum number of tenants per pool that have gauges. The tenants with the largest lag, above or below 0, have gauges
/// of the lag. The tenants with the largest difference between got and due service, above or below 0, have gauges of
/// this service.
const TENANTS_SHOWN: usize = 50;

/// Names and values of the labels of a series.
type Labels = Vec<(&'static str, Arc<str>)>;

/// Names under which the gauges are registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceNames {
    /// Unit at the end of each name; `None` if the unit is a label.
    suffix: Option<&'static str>,
    /// Counted quantity, for the descriptions of the gauges.
    what: &'static str,
}

impl ServiceNames {
    /// Names for pools of all units, with the unit as a label.
    pub(super) const ANY_UNIT: Self = Self { suffix: None, what: "Service in the pool's unit" };
    /// Names for pools that count tokens.
    pub(super) const TOKENS: Self = Self { suffix: Some("tokens"), what: "Tokens" };

    fn register(self, to: &mut Registry, name: &str, help: String, gauges: Family<Labels, Gauge>) {
        match self.suffix {
            Some(unit) => to.register_with_unit(name, help, Unit::Other(unit.to_owned()), gauges),
            None => to.register(name, help, gauges),
        }
    }
}

/// Gauges of service, by pool and by tenant.
#[derive(Debug, Default)]
pub(super) struct ServiceGauges {
    lag: Family<Labels, Gauge>,
    bound: Family<Labels, Gauge>,
    largest_difference: Family<Labels, Gauge>,
    tenant_got: Family<Labels, Gauge>,
    tenant_due: Family<Labels, Gauge>,
    tenant_off_bound: Family<Labels, Gauge>,
    tenant_lag: Family<Labels, Gauge>,
    tenant_bound: Family<Labels, Gauge>,
}

impl ServiceGauges {
    /// Creates one series of each gauge, for the reference of metrics.
    #[cfg(test)]
    pub(super) fn fill_sample(&self, unit: Option<&str>) {
        let labels = pool_labels(&"small".into(), unit);
        for family in [&self.lag, &self.bound, &self.largest_difference] {
            family.get_or_create(&labels).set(1);
        }
        let labels = tenant_labels(&labels, "chat");
        let of_tenant = [
            &self.tenant_got,
            &self.tenant_due,
            &self.tenant_off_bound,
            &self.tenant_lag,
            &self.tenant_bound,
        ];
        for family in of_tenant {
            family.get_or_create(&labels).set(1);
        }
    }

    /// Sets the gauges of a pool. `unit` is the value of the label, if there is one.
    pub(super) fn read_pool(
        &self,
        pool: &Arc<str>,
        unit: Option<&str>,
        nodes: &[NodeFairness],
        with_tenants: bool,
    ) {
        let labels = pool_labels(pool, unit);
        let all = || nodes.iter().flat_map(|node| &node.flows).filter_map(FlowLag::of);
        let most = |lag: FlowLag| lag.bound.map_or(0, |(_, most)| most);
        let largest =
            |values: &mut dyn Iterator<Item = i128>| gauge_value(values.max().unwrap_or(0));
        self.lag.get_or_create(&labels).set(largest(&mut all().map(|lag| lag.tokens)));
        self.bound.get_or_create(&labels).set(largest(&mut all().map(most)));
        let off = shares(nodes).filter_map(FlowFairness::difference).map(i128::unsigned_abs).max();
        self.largest_difference.get_or_create(&labels).set(gauge_value(off.unwrap_or(0)));
        if !with_tenants {
            return;
        }
        for (tenant, service) in furthest_tenants(nodes) {
            let labels = tenant_labels(&labels, tenant);
            self.tenant_got.get_or_create(&labels).set(gauge_value(service.got));
            self.tenant_due.get_or_create(&labels).set(gauge_value(service.due));
            self.tenant_off_bound.get_or_create(&labels).set(gauge_value(service.bound));
        }
        for (tenant, lag) in largest_of_tenants(nodes) {
            let labels = tenant_labels(&labels, tenant);
            self.tenant_lag.get_or_create(&labels).set(gauge_value(lag.tokens));
            if let Some((_, most)) = lag.bound {
                self.tenant_bound.get_or_create(&labels).set(gauge_value(most));
            }
        }
    }

    pub(super) fn register_in(self, to: &mut Registry, names: ServiceNames) {
        let what = names.what;
        let got = match names.suffix {
            Some(unit) => format!("fairgate_tenant_got_{unit}"),
            None => "fairgate_tenant_got".to_owned(),
        };
        let lag = got.replace("_got", "_lag");
        let help = format!("{what}: the largest lag of any flow, which is what it is owed");
        names.register(to, "pool_lag", help, self.lag);
        let help = format!("{what}: the largest lag that the policy allows any flow at the moment");
        names.register(to, "pool_lag_bound", help, self.bound);
        let help = format!(
            "{what}: the largest difference between got and due of any flow of a share node"
        );
        names.register(to, "pool_difference", help, self.largest_difference);
        let help = format!(
            "{what} that the tenant got; only the 50 tenants with the largest difference are listed"
        );
        names.register(to, "tenant_got", help, self.tenant_got);
        let help = format!("{what} that the tenant was due by its weight; same tenants as {got}");
        names.register(to, "tenant_due", help, self.tenant_due);
        let help =
            format!("{what}: bound of the difference between got and due; same tenants as {got}");
        names.register(to, "tenant_difference_bound", help, self.tenant_off_bound);
        let help = format!(
            "{what} that the tenant is owed; only the 50 tenants furthest from their share are listed"
        );
        names.register(to, "tenant_lag", help, self.tenant_lag);
        let help = format!(
            "{what}: the largest lag that the policy allows the tenant; same tenants as {lag}"
        );
        names.register(to, "tenant_lag_bound", help, self.tenant_bound);
    }
}

fn pool_labels(pool: &Arc<str>, unit: Option<&str>) -> Labels {
    let unit = unit.map(|unit| ("unit", unit.into()));
    [("pool", pool.clone())].into_iter().chain(unit).collect()
}

fn tenant_labels(of_pool: &Labels, tenant: &str) -> Labels {
    of_pool.iter().cloned().chain([("tenant", tenant.into())]).collect()
}

/// Returns the tenants with the largest lags, above or below 0. If a tenant is in several nodes of the tree, its
/// largest lag counts.
fn largest_of_tenants(nodes: &[NodeFairness]) -> Vec<(&str, FlowLag)> {
    let nodes = nodes.iter().filter(|node| node.by == Attribute::Tenant);
    let mut lags: Vec<(&str, FlowLag)> = nodes
        .flat_map(|node| &node.flows)
        .filter_map(|flow| Some((&*flow.name, FlowLag::of(flow)?)))
        .collect();
    lags.sort_by_key(|(tenant, lag)| (std::cmp::Reverse(lag.tokens.unsigned_abs()), *tenant));
    let mut seen = std::collections::HashSet::new();
    lags.retain(|(tenant, _)| seen.insert(*tenant));
    lags.truncate(TENANTS_SHOWN);
    lags
}

/// Service that a tenant got and was due, with the bound of the difference between the two.
#[derive(Clone, Copy, Debug, Default)]
struct TenantServiceSum {
    got: i128,
    due: i128,
    bound: u128,
}

/// Returns the tenants with the largest difference, above or below 0, between the service that they got and the service
/// that they were due. If a tenant is in several nodes, the sums over these nodes count.
fn furthest_tenants(nodes: &[NodeFairness]) -> Vec<(&str, TenantServiceSum)> {
    let mut tenants: BTreeMap<&str, TenantServiceSum> = BTreeMap::new();
    let nodes = nodes.iter().filter(|node| node.by == Attribute::Tenant);
    for flow in nodes.flat_map(|node| &node.flows) {
        let Some(due) = flow.due else { continue };
        let service = tenants.entry(&flow.name).or_default();
        service.got = service.got.saturating_add(flow.got);
        service.due = service.due.saturating_add(due.tokens);
        service.bound = service.bound.saturating_add(due.bound);
    }
    let mut tenants: Vec<(&str, TenantServiceSum)> = tenants.into_iter().collect();
    tenants
        .sort_by_key(|(_, service)| std::cmp::Reverse((service.got - service.due).unsigned_abs()));
    tenants.truncate(TENANTS_SHOWN);
    tenants
}
