//! The text of `/metrics`: the counters of the data plane, and the gauges of pools, fleet and webhooks, which are read at
//! each scrape.

mod classes;
mod export;
mod fleet;
mod pool_gauges;
mod service_gauges;
mod webhooks;

use std::sync::Arc;

use fairgate_api::fleet::ProjectView;
use fairgate_export::ExportStatus;
use fairgate_fleet::WebhookTotals;
use fairgate_proxy::metrics::Metrics;
use fairgate_proxy::pools::PoolHandle;
use prometheus_client::encoding::text::{encode_eof, encode_registry};

/// The `Content-Type` of the response to a scrape.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Renders all metrics as text, with the current state of the pools. A pool that does not answer
/// within a second is reported as not answering. `projects` and `webhooks` are those of the fleet.
/// `export` is absent if the ledger is not exported. Names of tenants and projects are rendered
/// only if `with_tenants` is true, because an anonymous scrape must not reveal them.
pub async fn render(
    counters: &Metrics,
    pools: &[Arc<PoolHandle>],
    projects: &[ProjectView],
    webhooks: &[WebhookTotals],
    export: Option<&ExportStatus>,
    with_tenants: bool,
) -> String {
    let mut gauges = pool_gauges::registry_of(pools, with_tenants).await;
    fleet::register(projects, with_tenants, &mut gauges);
    webhooks::register(webhooks, &mut gauges);
    if let Some(export) = export {
        export::register(export, &mut gauges);
    }
    let mut text = counters.render(with_tenants);
    // Writing to a string cannot fail.
    let _ = encode_registry(&mut text, &gauges);
    let _ = encode_eof(&mut text);
    text
}

#[cfg(test)]
#[path = "../../fairgate-proxy/src/metrics/reference.rs"]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_scrape_has_counters_and_gauges_and_one_end() {
        let metrics = Metrics::default();
        metrics.add_connections(2);
        let text = render(&metrics, &[], &[], &[], None, true).await;
        assert!(text.lines().any(|line| line == "fairgate_connections 2"), "{text}");
        assert!(text.contains("fairgate_resident_memory_bytes "), "{text}");
        assert_eq!(text.matches("# EOF").count(), 1);
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_reference_of_gauges_is_current() {
        let mut gauges = pool_gauges::sample_registry();
        fleet::register_sample(&mut gauges);
        let totals = WebhookTotals {
            webhook: "ops".into(),
            pending: 1,
            oldest_at: None,
            delivered: 1,
            failed: 1,
            dropped: 1,
            delivered_at: None,
            error: None,
            error_at: None,
        };
        webhooks::register(&[totals], &mut gauges);
        export::register(&ExportStatus::default(), &mut gauges);
        reference::check_table("gauges", &[&gauges]);
    }
}
