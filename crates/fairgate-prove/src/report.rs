//! What came out.

use serde::Serialize;

/// One experiment, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: &'static str,
    /// What happened in it.
    pub title: &'static str,
    /// How many requests could be in flight at once.
    pub capacity: u64,
    /// Whether capacity was divided into slots first.
    pub partition: bool,
    /// How long everybody was there and waited, in milliseconds.
    pub overlap_ms: f64,
    /// How many events the journal has.
    pub journal_events: u64,
    /// In how many files.
    pub journal_files: usize,
    /// By tenant.
    pub tenants: Vec<TenantReport>,
    /// What had to hold.
    pub bars: Vec<Bar>,
    /// Tokens over time.
    pub course: Course,
}

impl Report {
    /// Whether every bar held.
    pub fn passed(&self) -> bool {
        self.bars.iter().all(|bar| bar.passed)
    }
}

/// Something that had to hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    /// Its name, always the same.
    pub name: &'static str,
    /// Whether it held.
    pub passed: bool,
    /// What was measured against what, in words with numbers; where it failed, who and by how much.
    pub says: String,
}

impl Bar {
    pub(crate) fn new(name: &'static str, passed: bool, says: impl Into<String>) -> Self {
        Self { name, passed, says: says.into() }
    }

    /// The same bar in the second pool must hold too.
    pub(crate) fn and(self, second: Self) -> Self {
        let says = format!("{}; second pool: {}", self.says, second.says);
        Self { name: self.name, passed: self.passed && second.passed, says }
    }

    pub(crate) fn renamed(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

/// One tenant's part.
#[derive(Clone, Debug, Serialize)]
pub struct TenantReport {
    /// Its name.
    pub name: &'static str,
    /// Its weight.
    pub weight: u64,
    /// Its slots, in a partitioned pool.
    pub slots: Option<u64>,
    /// The part that it should get, in percent: by weight, or by slots in a partitioned pool.
    pub ideal_percent: f64,
    /// The part that it got, in percent: of tokens, or of slot time in a partitioned pool.
    pub got_percent: f64,
    /// How far that is from the ideal, in percent of the ideal.
    pub deviation_percent: f64,
    /// Tokens used by its requests that ended since the join, while all waited.
    pub got_tokens: u64,
    /// Its ideal then, in tokens; none in a partitioned pool, where slots are shared.
    pub ideal_tokens: Option<f64>,
    /// The proven bound on their difference at the moment when it was closest, in tokens.
    pub bound_tokens: Option<f64>,
    /// Their difference at that moment, in tokens.
    pub off_tokens: Option<f64>,
    /// The most that others were charged between two of its grants, in tokens.
    pub gap_tokens: u64,
    /// What others were charged in the gap that came closest to its bound, in tokens.
    pub gap_closest_tokens: Option<f64>,
    /// The bound of that gap, in tokens.
    pub gap_bound_tokens: Option<f64>,
    /// The median wait of its grants, in milliseconds.
    pub wait_p50_ms: f64,
    /// The wait that 95 in 100 did not exceed, in milliseconds.
    pub wait_p95_ms: f64,
    /// The wait that 99 in 100 did not exceed, in milliseconds.
    pub wait_p99_ms: f64,
    /// Its grants while all waited.
    pub grants: u64,
    /// Requests that its clients sent in all.
    pub requests: u64,
    /// Of these, completed.
    pub completed: u64,
    /// Of these, left by the client.
    pub left: u64,
    /// Of these, broken off or failed.
    pub failed: u64,
    /// Final rows of it in the ledger.
    pub rows: u64,
}

/// Tokens over time, thinned out for drawing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Course {
    /// When the others joined, in milliseconds since the first request.
    pub join_ms: f64,
    /// When one of them no longer waited.
    pub end_ms: f64,
    /// The moments, in order.
    pub points: Vec<Point>,
}

/// All tenants at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// In milliseconds since the first request.
    pub at_ms: f64,
    /// Tokens used by the requests of each tenant that have ended.
    pub tokens: Vec<u64>,
    /// Each tenant's ideal since the join, on top of what it had then; while all wait.
    pub ideal_tokens: Option<Vec<f64>>,
    /// How far it may be from that.
    pub bound_tokens: Option<Vec<f64>>,
    /// Requests in flight of each tenant.
    pub in_flight: Vec<u64>,
}
