//! The report of an experiment: its bars, and the results of each tenant.

use serde::Serialize;

/// Result of one experiment.
#[derive(Clone, Debug, Serialize)]
pub struct ProveReport {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Description of the scenario, in one line.
    pub title: &'static str,
    /// Requests that may be in flight at once in a pool.
    pub capacity: u64,
    /// True if the policy divides the pool's capacity into slots for each tenant.
    pub partition: bool,
    /// True if slots are judged instead of tokens, because the policy divides the capacity into
    /// slots or is a strict order of classes with caps.
    pub by_slots: bool,
    /// Length of the measured window in milliseconds. In this window all tenants had requests queued.
    pub overlap_ms: f64,
    /// Number of events in the journal.
    pub journal_events: u64,
    /// Number of files of the journal.
    pub journal_files: usize,
    /// Results of each tenant, in the scenario's order.
    pub tenants: Vec<TenantReport>,
    /// All bars of the experiment, passed or failed.
    pub bars: Vec<ProveBar>,
    /// Tokens of each tenant over time.
    pub course: TokensOverTime,
}

impl ProveReport {
    /// Returns whether every bar passed.
    pub fn passed(&self) -> bool {
        self.bars.iter().all(|bar| bar.passed)
    }
}

/// One bar: a check of the experiment and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProveBar {
    /// Name of the bar. It never changes, so that programs can rely on it.
    pub name: &'static str,
    /// True if the bar passed.
    pub passed: bool,
    /// Measured value and limit, in words with numbers. If the bar failed, names the tenant and the
    /// difference.
    pub says: String,
}

impl ProveBar {
    pub(crate) fn new(name: &'static str, passed: bool, says: impl Into<String>) -> Self {
        Self { name, passed, says: says.into() }
    }

    /// Merges the second pool's bar of the same name into this one. Both must pass.
    pub(crate) fn and(self, second: Self) -> Self {
        let says = format!("{}; second pool: {}", self.says, second.says);
        Self { name: self.name, passed: self.passed && second.passed, says }
    }

    pub(crate) fn renamed(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

/// Results of one tenant.
#[derive(Clone, Debug, Serialize)]
pub struct TenantReport {
    /// Name of the tenant, as in the scenario.
    pub name: &'static str,
    /// Weight of the tenant, or of its group if each tenant has its own group.
    pub weight: u64,
    /// Slots that the tenant is due; `None` if slots are not judged.
    pub slots: Option<u64>,
    /// Share that the tenant is due, in percent of all tenants' shares: by weight, or by slots if
    /// slots are judged.
    pub ideal_percent: f64,
    /// Share that the tenant got, in percent: of all tokens, or of all slot time if slots are
    /// judged.
    pub got_percent: f64,
    /// Difference between the share that the tenant got and the share that it is due, in percent of the share that it
    /// is due.
    pub deviation_percent: f64,
    /// Part of the own workers' time that the tenant's requests took, in percent of all tenants', by the gateway's meters
    /// and over the whole experiment. `None` if the ledger has no such time.
    pub worker_time_percent: Option<f64>,
    /// Tokens used by the tenant's requests that ended within the measured window.
    pub got_tokens: u64,
    /// Tokens that the tenant's requests should ideally have used within the measured window.
    /// `None` if slots are judged, or if the policy promises no shares of tokens.
    pub ideal_tokens: Option<f64>,
    /// Proven bound on the difference between the tenant's tokens and its ideal, in tokens. The
    /// value is that of the moment at which the difference came closest to the bound.
    pub bound_tokens: Option<f64>,
    /// Difference between the tenant's tokens and its ideal, in tokens, at the moment at which this difference came
    /// closest to its bound.
    pub off_tokens: Option<f64>,
    /// Largest gap of this tenant. A gap is the number of tokens that other tenants were charged between two successive
    /// grants of this tenant.
    pub gap_tokens: u64,
    /// Size of the gap that came closest to its proven bound, in tokens.
    pub gap_closest_tokens: Option<f64>,
    /// Proven bound of the gap in `gap_closest_tokens`, in tokens.
    pub gap_bound_tokens: Option<f64>,
    /// Median wait of the tenant's granted requests, in milliseconds.
    pub wait_p50_ms: f64,
    /// Wait that 95 % of the tenant's granted requests did not exceed, in milliseconds.
    pub wait_p95_ms: f64,
    /// Wait that 99 % of the tenant's granted requests did not exceed, in milliseconds.
    pub wait_p99_ms: f64,
    /// Grants that the tenant got within the measured window.
    pub grants: u64,
    /// Requests that the tenant's clients sent during the whole experiment.
    pub requests: u64,
    /// Requests whose clients got the whole answer.
    pub completed: u64,
    /// Requests that the client ended early on purpose.
    pub left: u64,
    /// Requests that broke off or failed, as the clients saw it.
    pub failed: u64,
    /// Final rows of this tenant in the ledger.
    pub rows: u64,
}

/// Tokens of all tenants over time, thinned out for drawing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TokensOverTime {
    /// Time at which the other tenants joined the first, in milliseconds since the first request.
    pub join_ms: f64,
    /// End of the measured window in milliseconds since the first request. After it, some tenant had nothing queued.
    pub end_ms: f64,
    /// Counters at the moments that are drawn, in order of time.
    pub points: Vec<TokensPoint>,
}

/// Counters of all tenants at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct TokensPoint {
    /// Time in milliseconds since the first request.
    pub at_ms: f64,
    /// Tokens used so far by each tenant's ended requests.
    pub tokens: Vec<u64>,
    /// Ideal tokens of each tenant: the tokens that it had at the join, plus its ideal share of the tokens used since
    /// the join. `None` outside the measured window.
    pub ideal_tokens: Option<Vec<f64>>,
    /// Proven bound on the difference between each tenant's tokens and its ideal, in tokens; `None`
    /// outside the measured window.
    pub bound_tokens: Option<Vec<f64>>,
    /// Number of requests in flight of each tenant.
    pub in_flight: Vec<u64>,
}
