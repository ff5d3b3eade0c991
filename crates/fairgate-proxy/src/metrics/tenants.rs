//! Counters and histograms by tenant, for at most the number of tenants that the configuration
//! states. They are rendered only for a scrape with the admin token.

use std::sync::Arc;

use fairgate_money::MicroUnits;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::RequestEndMetrics;
use super::instruments::seconds_histogram;
use super::label_names::LabelNames;
use crate::refusal::EndCode;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolTenantLabels {
    pool: Arc<str>,
    tenant: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantReasonLabels {
    pool: Arc<str>,
    tenant: Arc<str>,
    reason: &'static str,
}

/// Waits, tokens, worker time, refusals and money by tenant.
#[derive(Debug)]
pub(super) struct TenantInstruments {
    tenants: LabelNames,
    wait: Family<PoolTenantLabels, Histogram, fn() -> Histogram>,
    charged: Family<PoolTenantLabels, Counter>,
    worker_time: Family<PoolTenantLabels, Counter>,
    money: Family<PoolTenantLabels, Counter>,
    refusals: Family<TenantReasonLabels, Counter>,
}

impl TenantInstruments {
    /// Creates the instruments for at most `tenants_max` tenants by name. Further tenants share the label value `other`.
    pub(super) fn registered_in(registry: &mut Registry, tenants_max: usize) -> Self {
        let instruments = Self {
            tenants: LabelNames::of_at_most(tenants_max),
            wait: Family::new_with_constructor(seconds_histogram),
            charged: Family::default(),
            worker_time: Family::default(),
            money: Family::default(),
            refusals: Family::default(),
        };
        let wait = "Time that granted requests of the tenant waited for their slot";
        registry.register_with_unit("tenant_wait", wait, Unit::Seconds, instruments.wait.clone());
        let charged = "Charged cost of requests of the tenant, as weighted tokens";
        let unit = Unit::Other("tokens".to_owned());
        registry.register_with_unit("tenant_charged", charged, unit, instruments.charged.clone());
        let time = "Time of own workers that the attempts of the tenant took, in microseconds of a full worker";
        let unit = Unit::Other("microseconds".to_owned());
        let worker_time = instruments.worker_time.clone();
        registry.register_with_unit("tenant_worker_time", time, unit, worker_time);
        let money = "Cost of the attempts of the tenant, in millionths of the currency";
        let unit = Unit::Other("micro_units".to_owned());
        registry.register_with_unit("tenant_money", money, unit, instruments.money.clone());
        let refusals = "Requests of the tenant that were refused, by reason";
        registry.register("tenant_refusals", refusals, instruments.refusals.clone());
        instruments
    }

    /// Counts the end of a request of a tenant.
    pub(super) fn count_request(&self, pool: Arc<str>, ended: &RequestEndMetrics<'_>) {
        let labels = PoolTenantLabels { pool, tenant: self.tenants.label(ended.tenant) };
        if let Some(waited) = ended.waited {
            self.wait.get_or_create(&labels).observe(waited.as_secs_f64());
        }
        if let Some(charged) = ended.charged {
            self.charged.get_or_create(&labels).inc_by(charged);
        }
        if let Some(reason) = ended.code.filter(|_| ended.outcome == "refused") {
            let PoolTenantLabels { pool, tenant } = labels;
            let labels = TenantReasonLabels { pool, tenant, reason: EndCode::as_str(reason) };
            self.refusals.get_or_create(&labels).inc();
        }
    }

    /// Counts the microseconds of a full worker that an attempt of a tenant took.
    pub(super) fn count_worker_time(&self, pool: Arc<str>, tenant: &str, worker_us: u64) {
        let labels = PoolTenantLabels { pool, tenant: self.tenants.label(tenant) };
        self.worker_time.get_or_create(&labels).inc_by(worker_us);
    }

    /// Counts the money that an attempt of a tenant cost.
    pub(super) fn count_money(&self, pool: Arc<str>, tenant: &str, money: MicroUnits) {
        if money.0 > 0 {
            let labels = PoolTenantLabels { pool, tenant: self.tenants.label(tenant) };
            self.money.get_or_create(&labels).inc_by(money.0);
        }
    }
}
