//! Metrics in the text format of Prometheus. Every label has a bounded number of values, because pools, workers,
//! routes, codes and outcomes come from the configuration or from the code, never from a client. Projects beyond a
//! maximum number share one label value.
//!
//! This module keeps the counters and histograms. Gauges about pools are read from the pools at each scrape.

mod instruments;
mod label_names;
mod log_lines;
mod pool_instruments;
mod status;
mod tenants;

use std::time::Duration;

use fairgate_money::MicroUnits;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use self::instruments::{MetricInstruments, PoolReason, ProjectCounters, ProjectLabel};
use self::label_names::LabelNames;
use self::pool_instruments::PoolInstrumentTable;
use self::status::status_label;
use self::tenants::TenantInstruments;
use crate::refusal::EndCode;

pub use self::instruments::{ClassLabels, PoolLabel};
pub use self::log_lines::lost_log_lines;

/// The counters and histograms of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    instruments: MetricInstruments,
    pools: PoolInstrumentTable,
    /// Label values of workers and classes.
    names: LabelNames,
    /// Metrics by project and by tenant, which are rendered only for a scrape with the admin token.
    by_owner: Registry,
    projects: ProjectCounters,
    /// Metrics by tenant; `None` if the configuration turns them off.
    tenants: Option<TenantInstruments>,
    project_names: LabelNames,
}

/// Data of one ended request that the metrics count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestEndMetrics<'a> {
    /// Name of the pool; `-` if the request reached no pool.
    pub pool: &'a str,
    pub tenant: &'a str,
    /// Path of the request's route, such as `/v1/chat/completions`.
    pub route: &'static str,
    /// HTTP status that the client saw.
    pub status: u16,
    /// Name of the outcome, as in the ledger.
    pub outcome: &'static str,
    /// Stable code of the error; `None` after a success.
    pub code: Option<EndCode>,
    /// Time that the request waited for its grant; `None` if there was no grant.
    pub waited: Option<Duration>,
    /// Time from the request's arrival to the first token; `None` if no token came.
    pub first_token: Option<Duration>,
    /// Time from the request's arrival to its end.
    pub total: Duration,
    /// Expected cost before the request ran, in charged tokens.
    pub estimate: u64,
    /// Charged cost in tokens; `None` if no attempt ran.
    pub charged: Option<u64>,
    /// Policy class in which the request was queued; `None` if the policy has no classes.
    pub class: Option<&'a str>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Metrics {
    /// Creates the instruments, all at zero. At most `tenants_max` tenants are counted by name; 0 counts no tenants.
    pub fn new(tenants_max: usize) -> Self {
        let mut registry = Registry::with_prefix("fairgate");
        let instruments = MetricInstruments::registered_in(&mut registry);
        let mut by_owner = Registry::with_prefix("fairgate");
        let projects = ProjectCounters::registered_in(&mut by_owner);
        let tenants =
            (tenants_max > 0).then(|| TenantInstruments::registered_in(&mut by_owner, tenants_max));
        let (names, project_names) = (LabelNames::default(), LabelNames::default());
        let pools = PoolInstrumentTable::default();
        Self { registry, instruments, pools, names, by_owner, projects, tenants, project_names }
    }

    /// Counts the end of a request. Called once for every request of a known client.
    pub(crate) fn count_request(&self, ended: RequestEndMetrics<'_>) {
        let to = &self.instruments;
        let pool = &*self.pools.of(ended.pool);
        if let Some(waited) = ended.waited {
            pool.find(&pool.wait, &to.wait).observe(waited.as_secs_f64());
        }
        if let Some(first_token) = ended.first_token {
            pool.find(&pool.first_token, &to.first_token).observe(first_token.as_secs_f64());
        }
        pool.find(&pool.total, &to.total).observe(ended.total.as_secs_f64());
        if let Some(charged) = ended.charged {
            pool.find(&pool.estimated, &to.estimated).inc_by(ended.estimate);
            pool.find(&pool.charged, &to.charged).inc_by(charged);
            if ended.estimate > 0 {
                let ratio = charged as f64 / ended.estimate as f64;
                pool.find(&pool.estimate_ratio, &to.estimate_ratio).observe(ratio);
            }
        }
        if let Some(reason) = ended.code.map(EndCode::as_str) {
            let family = if ended.outcome == "refused" { &to.refusals } else { &to.failures };
            family.get_or_create(&PoolReason { pool: pool.name(), reason }).inc();
        }
        if let Some(class) = ended.class {
            if let Some(waited) = ended.waited {
                pool.class_wait(to, &self.names, class).observe(waited.as_secs_f64());
            }
            pool.class_charged(to, &self.names, class).inc_by(ended.charged.unwrap_or(0));
        }
        if let Some(tenants) = &self.tenants {
            tenants.count_request(pool.name(), &ended);
        }
        pool.requests(to, [ended.route, ended.outcome, status_label(ended.status)]).inc();
    }

    /// Counts a refusal of a request that belongs to no client and no pool: an invalid key (401),
    /// an unknown path or a broken connection. Only the refusal's code is counted.
    pub(crate) fn count_refusal(&self, code: impl Into<EndCode>) {
        let pool = self.pools.of("-").name();
        let labels = PoolReason { pool, reason: code.into().as_str() };
        self.instruments.refusals.get_or_create(&labels).inc();
    }

    /// Counts one attempt on a worker by its outcome: `ok`, `error`, `timeout` or `left` (the client left).
    pub fn count_attempt(&self, pool: &str, worker: &str, outcome: &'static str) {
        let pool = self.pools.of(pool);
        pool.attempts(&self.instruments, &self.names, worker, outcome).inc();
    }

    /// Counts one attempt with its tokens and money, as `own` if the tier of its worker is 0, else as `hosted`.
    pub fn count_tier_use(&self, pool: &str, tier: u32, provider_tokens: u64, money: MicroUnits) {
        let pool = self.pools.of(pool);
        let counters = pool.tier(&self.instruments, tier);
        counters.requests.inc();
        counters.tokens.inc_by(provider_tokens);
        counters.money.inc_by(money.0);
    }

    /// Counts the money that an attempt of a tenant cost. Does nothing if the configuration turns
    /// metrics by tenant off.
    pub fn count_tenant_money(&self, pool: &str, tenant: &str, money: MicroUnits) {
        if let Some(tenants) = &self.tenants {
            tenants.count_money(self.pools.of(pool).name(), tenant, money);
        }
    }

    /// Counts the time that an attempt took of its worker, in microseconds of the full worker.
    pub fn count_worker_time(&self, pool: &str, tenant: &str, worker_us: u64) {
        if worker_us == 0 {
            return;
        }
        let pool = self.pools.of(pool);
        pool.find(&pool.worker_time, &self.instruments.worker_time).inc_by(worker_us);
        if let Some(tenants) = &self.tenants {
            tenants.count_worker_time(pool.name(), tenant, worker_us);
        }
    }

    /// Counts one attempt that was made for a task of this project, with its tokens as the provider counts them.
    pub fn count_project_use(&self, project: &str, provider_tokens: u64) {
        let labels = ProjectLabel { project: self.project_names.label(project) };
        self.projects.requests.get_or_create(&labels).inc();
        self.projects.tokens.get_or_create(&labels).inc_by(provider_tokens);
    }

    /// Adds `change`, which is 1 or −1, to the number of open connections.
    pub fn add_connections(&self, change: i64) {
        self.instruments.connections.inc_by(change);
    }

    /// Counts a row that neither a file nor the database could keep. `is_served` is true if the
    /// client gets its response nevertheless.
    pub fn count_lost_row(&self, is_served: bool) {
        self.instruments.ledger_write_failures.inc();
        if is_served {
            self.instruments.answers_without_row.inc();
        }
    }

    /// Returns the number of responses that were served without a row, since the gateway started.
    pub fn answers_without_row(&self) -> u64 {
        self.instruments.answers_without_row.get()
    }

    /// Sets the number of rows that are in the spool and not in the database yet.
    pub fn set_rows_waiting(&self, rows: u64) {
        self.instruments.ledger_rows_waiting.set(i64::try_from(rows).unwrap_or(i64::MAX));
    }

    /// Sets the number of scheduler rounds of the fleet that are missing in the journal of rounds.
    pub fn set_rounds_not_journaled(&self, rounds: u64) {
        self.instruments.fleet_rounds_not_journaled.set(i64::try_from(rounds).unwrap_or(i64::MAX));
    }

    /// Counts a request to the admin API whose token or key was missing, wrong or without the
    /// needed right.
    pub fn count_admin_denied(&self) {
        self.instruments.admin_denied.inc();
    }

    /// Renders the counters and histograms as OpenMetrics text, without its end mark. Names of
    /// projects and tenants are included only if `with_names` is true, because an anonymous scrape
    /// must not reveal them.
    pub fn render(&self, with_names: bool) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        if with_names {
            let _ = encode_registry(&mut text, &self.by_owner);
        }
        text
    }
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
