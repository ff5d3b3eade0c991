//! The count of lost log lines. The counter belongs to the process and not to a gateway, because log lines may be lost
//! before a gateway exists.

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;

static LOST: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Returns the counter of lost log lines: those that could not be written, or that came faster than
/// they were written.
pub fn lost_log_lines() -> Counter {
    LOST.clone()
}
