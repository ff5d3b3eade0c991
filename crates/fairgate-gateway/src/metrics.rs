//! What there is to see, in Prometheus' text format. Every label set is bounded: pools, workers, routes, codes and outcomes
//! come from the configuration or from the code, never from a client; projects are as many as there are label values for.
//!
//! Counters and histograms are kept here; what a pool looks like is asked of it when somebody scrapes (`scrape.rs`).

mod classes;
mod fleet;
mod instruments;
mod log_lines;
mod names;
mod scrape;
mod status;

use std::sync::Arc;
use std::time::Duration;

use fairgate_fleet::ProjectView;
use fairgate_money::MicroUnits;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use self::instruments::{
    ClassLabels, Instruments, PoolLabel, PoolReason, PoolTier, ProjectLabel, Projects,
    RequestLabels, WorkerOutcome,
};
use self::names::Names;
use self::status::status_label;
use crate::pools::PoolHandle;

pub use self::log_lines::lost_log_lines;

/// What the answer to a scrape is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The counters and histograms of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    instruments: Instruments,
    names: Names,
    /// By project: like those by tenant, not for everybody to see.
    of_projects: Registry,
    projects: Projects,
    project_names: Names,
}

/// How one request ended, for the metrics.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// The pool; `-` where it got to none.
    pub pool: &'a str,
    /// The route's path.
    pub route: &'static str,
    /// The status that the caller saw.
    pub status: u16,
    /// The outcome's name, as in the ledger.
    pub outcome: &'static str,
    /// The stable code where it was no success.
    pub code: Option<&'static str>,
    /// How long it waited for its grant; absent where it never got one.
    pub waited: Option<Duration>,
    /// From arrival to the first token.
    pub first_token: Option<Duration>,
    /// From arrival to the end.
    pub total: Duration,
    /// What was expected, in charged tokens.
    pub estimate: u64,
    /// What was charged, in tokens; absent where nothing ran.
    pub charged: Option<u64>,
    /// The policy class that it was queued in; absent where the policy has no classes.
    pub class: Option<&'a str>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Nothing counted yet.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("fairgate");
        let instruments = Instruments::registered_in(&mut registry);
        let mut of_projects = Registry::with_prefix("fairgate");
        let projects = Projects::registered_in(&mut of_projects);
        let (names, project_names) = (Names::default(), Names::default());
        Self { registry, instruments, names, of_projects, projects, project_names }
    }

    /// Counts the end of a request. Called once for every request that had a caller.
    pub fn ended(&self, ended: Ended<'_>) {
        let to = &self.instruments;
        let pool = self.names.label(ended.pool);
        let labels = PoolLabel { pool: pool.clone() };
        if let Some(waited) = ended.waited {
            to.wait.get_or_create(&labels).observe(waited.as_secs_f64());
        }
        if let Some(first_token) = ended.first_token {
            to.first_token.get_or_create(&labels).observe(first_token.as_secs_f64());
        }
        to.total.get_or_create(&labels).observe(ended.total.as_secs_f64());
        if let Some(charged) = ended.charged {
            to.estimated.get_or_create(&labels).inc_by(ended.estimate);
            to.charged.get_or_create(&labels).inc_by(charged);
            if ended.estimate > 0 {
                let ratio = charged as f64 / ended.estimate as f64;
                to.estimate_ratio.get_or_create(&labels).observe(ratio);
            }
        }
        if let Some(reason) = ended.code {
            let family = if ended.outcome == "refused" { &to.refusals } else { &to.failures };
            family.get_or_create(&PoolReason { pool: pool.clone(), reason }).inc();
        }
        if let Some(class) = ended.class {
            let labels = ClassLabels { pool: pool.clone(), class: self.names.label(class) };
            if let Some(waited) = ended.waited {
                to.class_wait.get_or_create(&labels).observe(waited.as_secs_f64());
            }
            to.class_charged.get_or_create(&labels).inc_by(ended.charged.unwrap_or(0));
        }
        let status = status_label(ended.status);
        let labels = RequestLabels { pool, route: ended.route, outcome: ended.outcome, status };
        to.requests.get_or_create(&labels).inc();
    }

    /// Counts a request that had no caller (401), was no route or no HTTP: only by its code.
    pub fn turned_away(&self, code: &'static str) {
        let labels = PoolReason { pool: self.names.label("-"), reason: code };
        self.instruments.refusals.get_or_create(&labels).inc();
    }

    /// A worker's attempts by outcome (`ok`, `error`, `timeout`).
    pub fn attempt(&self, pool: &str, worker: &str, outcome: &'static str) {
        let (pool, worker) = (self.names.label(pool), self.names.label(worker));
        let labels = WorkerOutcome { pool, worker, outcome };
        self.instruments.attempts.get_or_create(&labels).inc();
    }

    /// What an attempt on a worker of this tier used, and what that cost.
    pub fn used(&self, pool: &str, tier: u32, provider_tokens: u64, money: MicroUnits) {
        let to = &self.instruments;
        let tier = if tier == 0 { "own" } else { "hosted" };
        let labels = PoolTier { pool: self.names.label(pool), tier };
        to.tier_requests.get_or_create(&labels).inc();
        to.tier_tokens.get_or_create(&labels).inc_by(provider_tokens);
        to.tier_money.get_or_create(&labels).inc_by(money.0);
    }

    /// What an attempt for a project's task used.
    pub fn used_by_project(&self, project: &str, provider_tokens: u64) {
        let labels = ProjectLabel { project: self.project_names.label(project) };
        self.projects.requests.get_or_create(&labels).inc();
        self.projects.tokens.get_or_create(&labels).inc_by(provider_tokens);
    }

    /// Open connections, by one more or less.
    pub fn connections(&self, change: i64) {
        self.instruments.connections.inc_by(change);
    }

    /// A row that could be kept neither in a file nor in the database. `is_served`: its answer is given out all the same.
    pub fn row_not_kept(&self, is_served: bool) {
        self.instruments.ledger_write_failures.inc();
        if is_served {
            self.instruments.answers_without_row.inc();
        }
    }

    /// How many answers were given out without a row.
    pub fn answers_without_row(&self) -> u64 {
        self.instruments.answers_without_row.get()
    }

    /// How many rows are safe in files and not in the database yet.
    pub fn rows_waiting(&self, rows: u64) {
        self.instruments.ledger_rows_waiting.set(i64::try_from(rows).unwrap_or(i64::MAX));
    }

    /// Somebody asked the admin API without its token.
    pub fn admin_denied(&self) {
        self.instruments.admin_denied.inc();
    }

    /// Everything, as text, with what the pools look like at this moment. A pool that does not answer within a second
    /// is shown as not answering. `projects` are those of the fleet. Tenants and projects are named only where
    /// `with_tenants` is true: not everybody may know them.
    pub async fn render(
        &self,
        pools: &[Arc<PoolHandle>],
        projects: &[ProjectView],
        with_tenants: bool,
    ) -> String {
        let mut seen = scrape::registry_of(pools, with_tenants).await;
        fleet::register(projects, with_tenants, &mut seen);
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        if with_tenants {
            let _ = encode_registry(&mut text, &self.of_projects);
        }
        let _ = encode_registry(&mut text, &seen);
        let _ = encode_eof(&mut text);
        text
    }
}

#[cfg(test)]
mod tests;
