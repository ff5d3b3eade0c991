//! What there is to see, in Prometheus' text format. Every label set is bounded: pools, workers, routes, codes and outcomes
//! come from the configuration or from the code, never from a client.

use std::time::Duration;

/// The counters and histograms of the process.
pub struct Metrics {/* control plane */}

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
}

#[allow(clippy::todo, unused_variables, missing_docs, clippy::new_without_default)]
impl Metrics {
    pub fn new() -> Self {
        todo!()
    }

    /// Counts the end of a request. Called once for every request that had a caller.
    pub fn ended(&self, ended: Ended<'_>) {
        todo!()
    }

    /// Counts a request that had no caller (401), was no route or no HTTP: only by its code.
    pub fn turned_away(&self, code: &'static str) {
        todo!()
    }

    /// A worker's attempts by outcome (`ok`, `error`, `timeout`).
    pub fn attempt(&self, pool: &str, worker: &str, outcome: &'static str) {
        todo!()
    }

    /// Open connections, by one more or less.
    pub fn connections(&self, change: i64) {
        todo!()
    }
}
