//! Lines of the log that were lost. The log is the process's, and so is this count: it may begin before there is a gateway.

use std::sync::LazyLock;

use prometheus_client::metrics::counter::Counter;

static LOST: LazyLock<Counter> = LazyLock::new(Counter::default);

/// How many lines of the log could not be written, or came faster than they could be.
pub fn lost_log_lines() -> Counter {
    LOST.clone()
}
