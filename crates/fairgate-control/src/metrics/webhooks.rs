//! Counters of webhooks, filled at each scrape from the database. They are the same on all servers of one database.

use fairgate_fleet::WebhookTotals;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::pool_gauges::gauge_value;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabel {
    webhook: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookOutcomeLabels {
    webhook: String,
    outcome: &'static str,
}

/// Adds the counters of all webhooks to a registry; adds none if there is no webhook.
pub(super) fn register(webhooks: &[WebhookTotals], to: &mut Registry) {
    if webhooks.is_empty() {
        return;
    }
    let pending = Family::<WebhookLabel, Gauge>::default();
    let events = Family::<WebhookOutcomeLabels, Counter>::default();
    for totals in webhooks {
        let webhook = totals.webhook.clone();
        let label = WebhookLabel { webhook: webhook.clone() };
        pending.get_or_create(&label).set(gauge_value(totals.pending));
        for (outcome, count) in [
            ("delivered", totals.delivered),
            ("failed", totals.failed),
            ("dropped", totals.dropped),
        ] {
            let labels = WebhookOutcomeLabels { webhook: webhook.clone(), outcome };
            events.get_or_create(&labels).inc_by(count);
        }
    }
    let help = "Events that wait for their delivery to the webhook";
    to.register("fleet_webhook_pending", help, pending);
    let help = "Events for the webhook that were delivered, failed in all tries, or were dropped because too many waited";
    to.register("fleet_webhook_events", help, events);
}
