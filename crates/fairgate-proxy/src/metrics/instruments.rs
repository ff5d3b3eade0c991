//! The counters and histograms, with their names and labels.

use std::sync::Arc;

use fairgate_time::wall_clock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::log_lines::lost_log_lines;

/// Buckets of the histograms of durations, in seconds: from one millisecond to ten minutes.
const SECONDS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
];

/// Buckets of the histogram of charged cost ÷ estimate. A ratio of 1 means an exact estimate.
const RATIOS: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0];

type Histograms = Family<PoolLabel, Histogram, fn() -> Histogram>;

/// Label of a metric of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PoolLabel {
    /// Name of the pool.
    pub pool: Arc<str>,
}

/// Labels of a metric of one policy class in one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ClassLabels {
    /// Name of the pool.
    pub pool: Arc<str>,
    /// Name of the class.
    pub class: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PoolReason {
    pub(super) pool: Arc<str>,
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) pool: Arc<str>,
    pub(super) route: &'static str,
    pub(super) outcome: &'static str,
    pub(super) status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WorkerOutcome {
    pub(super) pool: Arc<str>,
    pub(super) worker: Arc<str>,
    pub(super) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PoolTier {
    pub(super) pool: Arc<str>,
    /// Label value of the tier: `own` for tier 0, `hosted` for all higher tiers.
    pub(super) tier: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProjectLabel {
    pub(super) project: Arc<str>,
}

/// Counters of attempts and tokens by project.
#[derive(Debug)]
pub(super) struct ProjectCounters {
    pub(super) requests: Family<ProjectLabel, Counter>,
    pub(super) tokens: Family<ProjectLabel, Counter>,
}

impl ProjectCounters {
    pub(super) fn registered_in(registry: &mut Registry) -> Self {
        let projects = Self { requests: Family::default(), tokens: Family::default() };
        let requests = "Attempts under task keys that used tokens, by project";
        registry.register("project_requests", requests, projects.requests.clone());
        let tokens =
            "Tokens of the attempts in fairgate_project_requests, as the provider counts them";
        let unit = Unit::Other("tokens".to_owned());
        registry.register_with_unit("project_provider", tokens, unit, projects.tokens.clone());
        projects
    }
}

/// Creates a histogram of durations, in seconds.
pub(super) fn seconds_histogram() -> Histogram {
    Histogram::new(SECONDS)
}

#[derive(Debug)]
pub(super) struct MetricInstruments {
    pub(super) requests: Family<RequestLabels, Counter>,
    pub(super) refusals: Family<PoolReason, Counter>,
    pub(super) failures: Family<PoolReason, Counter>,
    pub(super) wait: Histograms,
    pub(super) first_token: Histograms,
    pub(super) total: Histograms,
    pub(super) estimated: Family<PoolLabel, Counter>,
    pub(super) charged: Family<PoolLabel, Counter>,
    pub(super) worker_time: Family<PoolLabel, Counter>,
    pub(super) estimate_ratio: Histograms,
    pub(super) class_wait: Family<ClassLabels, Histogram, fn() -> Histogram>,
    pub(super) class_charged: Family<ClassLabels, Counter>,
    pub(super) attempts: Family<WorkerOutcome, Counter>,
    pub(super) tier_requests: Family<PoolTier, Counter>,
    pub(super) tier_tokens: Family<PoolTier, Counter>,
    pub(super) tier_money: Family<PoolTier, Counter>,
    pub(super) connections: Gauge,
    pub(super) ledger_write_failures: Counter,
    pub(super) answers_without_row: Counter,
    pub(super) ledger_rows_waiting: Gauge,
    pub(super) fleet_rounds_not_journaled: Gauge,
    pub(super) admin_denied: Counter,
}

impl MetricInstruments {
    pub(super) fn registered_in(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = seconds_histogram;
        let ratios: fn() -> Histogram = || Histogram::new(RATIOS);
        let instruments = Self {
            requests: Family::default(),
            refusals: Family::default(),
            failures: Family::default(),
            wait: Family::new_with_constructor(seconds),
            first_token: Family::new_with_constructor(seconds),
            total: Family::new_with_constructor(seconds),
            estimated: Family::default(),
            charged: Family::default(),
            worker_time: Family::default(),
            estimate_ratio: Family::new_with_constructor(ratios),
            class_wait: Family::new_with_constructor(seconds),
            class_charged: Family::default(),
            attempts: Family::default(),
            tier_requests: Family::default(),
            tier_tokens: Family::default(),
            tier_money: Family::default(),
            connections: Gauge::default(),
            ledger_write_failures: Counter::default(),
            answers_without_row: Counter::default(),
            ledger_rows_waiting: Gauge::default(),
            fleet_rounds_not_journaled: Gauge::default(),
            admin_denied: Counter::default(),
        };
        instruments.register_requests(registry);
        instruments.register_process(registry);
        instruments
    }

    fn register_requests(&self, to: &mut Registry) {
        to.register("requests", "Requests that ended", self.requests.clone());
        to.register("refusals", "Requests that were refused, by reason", self.refusals.clone());
        to.register(
            "failures",
            "Requests that failed after they were let in, by reason",
            self.failures.clone(),
        );
        let wait = "Time that granted requests waited for their slot";
        to.register_with_unit("wait", wait, Unit::Seconds, self.wait.clone());
        let first = "Time from a request's arrival to the first token of its answer";
        to.register_with_unit("first_token", first, Unit::Seconds, self.first_token.clone());
        let total = "Time from a request's arrival to its end";
        to.register_with_unit("request", total, Unit::Seconds, self.total.clone());
        let tokens = || Unit::Other("tokens".to_owned());
        let estimated = "Estimated cost of requests that ran, as weighted tokens";
        to.register_with_unit("estimated", estimated, tokens(), self.estimated.clone());
        let charged = "Charged cost of requests that ran, as weighted tokens";
        to.register_with_unit("charged", charged, tokens(), self.charged.clone());
        let time = "Time of own workers that attempts took, in microseconds of a full worker, whatever the pool counts";
        let unit = Unit::Other("microseconds".to_owned());
        to.register_with_unit("worker_time", time, unit, self.worker_time.clone());
        to.register(
            "estimate_error_ratio",
            "Charged cost of a request divided by its estimate; 1 is an exact estimate",
            self.estimate_ratio.clone(),
        );
        let wait = "Time that granted requests of the policy class waited for their slot";
        to.register_with_unit("class_wait", wait, Unit::Seconds, self.class_wait.clone());
        let charged = "Charged cost of requests of the policy class, as weighted tokens";
        to.register_with_unit("class_charged", charged, tokens(), self.class_charged.clone());
        let attempts = "Attempts on upstream workers, by outcome";
        to.register("upstream_attempts", attempts, self.attempts.clone());
        self.register_tiers(to);
    }

    fn register_tiers(&self, to: &mut Registry) {
        let requests = "Attempts that used tokens, on own workers (tier 0) or hosted ones";
        to.register("tier_requests", requests, self.tier_requests.clone());
        let tokens =
            "Tokens of the attempts in fairgate_tier_requests, as the provider counts them";
        let unit = Unit::Other("tokens".to_owned());
        to.register_with_unit("tier_provider", tokens, unit, self.tier_tokens.clone());
        let money = "Cost of the attempts in fairgate_tier_requests, in millionths of the currency";
        let unit = Unit::Other("micro_units".to_owned());
        to.register_with_unit("tier_money", money, unit, self.tier_money.clone());
    }

    fn register_process(&self, to: &mut Registry) {
        to.register("connections", "Open client connections", self.connections.clone());
        to.register(
            "ledger_write_failures",
            "Rows that could be kept neither in a file nor in the database",
            self.ledger_write_failures.clone(),
        );
        to.register(
            "answers_without_row",
            "Answers given out though their row could not be kept (on_store_failure: serve)",
            self.answers_without_row.clone(),
        );
        to.register(
            "ledger_rows_waiting",
            "Rows that are safe in files and not in the database yet",
            self.ledger_rows_waiting.clone(),
        );
        to.register(
            "fleet_rounds_not_journaled",
            "Calls of the fleet's scheduler that are missing in the journal of rounds, because it could not be written",
            self.fleet_rounds_not_journaled.clone(),
        );
        to.register(
            "admin_denied",
            "Requests to the admin API without its token",
            self.admin_denied.clone(),
        );
        let lost = "Log lines that could not be written";
        to.register("log_lines_lost", lost, lost_log_lines());
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        to.register("build", "Version of the running program", build);
        let start: Gauge = Gauge::default();
        let now = wall_clock::since_1970().as_secs();
        start.set(i64::try_from(now).unwrap_or(i64::MAX));
        let help = "Start of the process, in seconds since 1970";
        to.register_with_unit("start_time", help, Unit::Seconds, start);
    }
}
