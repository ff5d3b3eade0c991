//! Gauges and counters of the export of the ledger, as this gateway knows it.

use fairgate_export::ExportStatus;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::pool_gauges::gauge_value;

/// Adds the metrics of an export to a registry.
pub(super) fn register(export: &ExportStatus, to: &mut Registry) {
    let gauge = |value: u64| {
        let gauge: Gauge = Gauge::default();
        gauge.set(gauge_value(value));
        gauge
    };
    let counter = |value: u64| {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        counter
    };
    let help = "1 if this gateway exports the ledger to ClickHouse, 0 if another one does or none";
    to.register("export_active", help, gauge(export.is_active.into()));
    let help = "Ledger rows that ClickHouse does not have yet; an upper bound, the same on all gateways of a database";
    to.register("export_backlog_rows", help, gauge(export.backlog_rows));
    let help = "Age of the oldest ledger row that ClickHouse does not have yet";
    to.register_with_unit("export_backlog", help, Unit::Seconds, gauge(export.backlog_seconds));
    let help = "Rows that this gateway has sent to ClickHouse, with those that were sent again";
    to.register("export_rows", help, counter(export.rows_sent));
    let help = "Steps of the export that failed and were tried again";
    to.register("export_failures", help, counter(export.failures));
    let help = "Rows that left the ledger before ClickHouse got them (store.keep_days and seven days more)";
    to.register("export_rows_dropped", help, counter(export.rows_dropped));
}
