//! Delivers the fleet's events to webhooks. [`fairgate_fleet`] keeps the events and says when each is due; this module
//! only sends them and reports the results.
//!
//! Deliveries run beside everything else: the fleet never waits for a receiver. A webhook has at
//! most `IN_FLIGHT_MAX` requests at once, each for at most `sender::SEND_TIMEOUT`. So a receiver
//! that hangs delays only its own events.

mod sender;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fairgate_api::fleet::WebhookEventKind;
use fairgate_config::{FleetEventKind, WebhookConfig};
use fairgate_fleet::{Fleet, FleetError, WebhookDelivery, WebhookResult, WebhookSubscription};
use fairgate_proxy::phase::GatewayPhase;
use fairgate_store::{LogThrottle, StoreError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub(crate) use self::sender::{WebhookSender, origin};

use crate::control_plane::ControlPlane;

/// Largest number of requests to one webhook at once.
const IN_FLIGHT_MAX: u32 = 4;
/// Interval at which the database is searched for events of other servers and for events that are
/// due again.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Interval at which budgets are checked.
const BUDGETS_EVERY: Duration = Duration::from_secs(5);
/// Interval at which dropped events are looked for.
const DROPPED_EVERY: Duration = Duration::from_secs(60);

/// Returns the webhooks as the fleet sees them.
pub fn subscriptions(webhooks: &[WebhookConfig]) -> Vec<WebhookSubscription> {
    let kind = |kind: &FleetEventKind| match kind {
        FleetEventKind::Question => WebhookEventKind::Question,
        FleetEventKind::Blocked => WebhookEventKind::Blocked,
        FleetEventKind::Budget => WebhookEventKind::Budget,
        FleetEventKind::AgentLost => WebhookEventKind::AgentLost,
    };
    let subscription = |webhook: &WebhookConfig| WebhookSubscription {
        name: webhook.name.clone(),
        events: webhook.events.iter().map(kind).collect(),
    };
    webhooks.iter().map(subscription).collect()
}

/// Delivers events until the gateway drains. Requests that are in flight then may end.
pub async fn deliver_until_draining(app: Arc<ControlPlane>) {
    let configured = app.clone();
    let webhooks = move || configured.data.config.load().fleet.webhooks.clone();
    let mut deliveries = WebhookDeliveries::new(app.fleet.clone(), webhooks);
    let mut phase = app.data.phase.watch();
    loop {
        deliveries.step().await;
        tokio::select! {
            () = deliveries.wait() => {}
            _ = phase.wait_for(|stage| *stage > GatewayPhase::Serving) => break,
        }
    }
    tokio::select! {
        () = deliveries.finish() => {}
        _ = phase.wait_for(|stage| *stage >= GatewayPhase::Closing) => {}
    }
}

/// Requests in flight to webhooks, and the means to start further ones.
struct WebhookDeliveries<W> {
    fleet: Fleet,
    /// Returns the webhooks of the current configuration.
    webhooks: W,
    in_flight: HashMap<String, u32>,
    sends: JoinSet<(WebhookDelivery, WebhookResult)>,
    budgets_at: Option<Instant>,
    dropped_at: Option<Instant>,
    /// Number of events of each webhook that are known to have been dropped.
    dropped: HashMap<String, u64>,
    log_throttle: LogThrottle<String>,
}

impl<W: Fn() -> Vec<WebhookConfig>> WebhookDeliveries<W> {
    fn new(fleet: Fleet, webhooks: W) -> Self {
        Self {
            fleet,
            webhooks,
            in_flight: HashMap::new(),
            sends: JoinSet::new(),
            budgets_at: None,
            dropped_at: None,
            dropped: HashMap::new(),
            log_throttle: LogThrottle::default(),
        }
    }

    /// Starts a request for each event that is due and for which its webhook has room.
    async fn step(&mut self) {
        let webhooks = (self.webhooks)();
        if webhooks.is_empty() {
            return;
        }
        if let Err(error) = self.start(&webhooks).await
            && !matches!(error, FleetError::Store(StoreError::Closed))
            && let Some(left_out) = self.log_throttle.admit(String::new(), Instant::now())
        {
            tracing::warn!(%error, left_out, "events for webhooks cannot be read; this is tried again");
        }
    }

    async fn start(&mut self, webhooks: &[WebhookConfig]) -> Result<(), FleetError> {
        let now = Instant::now();
        if is_due(&mut self.budgets_at, now, BUDGETS_EVERY) {
            self.fleet.check_budgets().await?;
        }
        if is_due(&mut self.dropped_at, now, DROPPED_EVERY) {
            self.log_dropped().await?;
        }
        let room = |webhook: &WebhookConfig| {
            let used = self.in_flight.get(&webhook.name).copied().unwrap_or(0);
            (webhook.name.clone(), IN_FLIGHT_MAX.saturating_sub(used))
        };
        let wanted = webhooks.iter().map(room).filter(|(_, room)| *room > 0).collect();
        for delivery in self.fleet.claim_webhook_events(wanted).await? {
            let Some(webhook) = webhooks.iter().find(|it| it.name == delivery.webhook) else {
                continue;
            };
            *self.in_flight.entry(delivery.webhook.clone()).or_default() += 1;
            let webhook = webhook.clone();
            self.sends.spawn(async move {
                let result = match WebhookSender::new(&webhook) {
                    Ok(sender) => sender.send(&delivery).await.map(drop),
                    Err(problem) => Err(problem),
                };
                (delivery, result.map_or_else(WebhookResult::Failed, |()| WebhookResult::Delivered))
            });
        }
        Ok(())
    }

    /// Waits for the end of a request and records its result, or until there may be further events.
    async fn wait(&mut self) {
        tokio::select! {
            Some(sent) = self.sends.join_next() => {
                if let Ok((delivery, result)) = sent {
                    self.settle(delivery, result).await;
                }
            }
            () = self.fleet.wait_for_webhook_events() => {}
            () = sleep(LOOK_EVERY) => {}
        }
    }

    /// Waits for the end of all requests.
    async fn finish(&mut self) {
        while let Some(sent) = self.sends.join_next().await {
            if let Ok((delivery, result)) = sent {
                self.settle(delivery, result).await;
            }
        }
    }

    async fn settle(&mut self, delivery: WebhookDelivery, result: WebhookResult) {
        if let Some(count) = self.in_flight.get_mut(&delivery.webhook) {
            *count = count.saturating_sub(1);
        }
        let WebhookDelivery { webhook, id, tries, .. } = delivery.clone();
        if let WebhookResult::Failed(error) = &result
            && let Some(left_out) = self.log_throttle.admit(webhook.clone(), Instant::now())
        {
            tracing::warn!(%webhook, event = %id, tries, %error, left_out, "a webhook did not take an event");
        }
        if let Err(error) = self.fleet.settle_webhook_event(delivery, result).await {
            tracing::warn!(%webhook, event = %id, %error, "the result of a delivery could not be written; the event is sent again");
        }
    }

    /// Logs the number of events that were dropped since the last call, by whichever server.
    async fn log_dropped(&mut self) -> Result<(), FleetError> {
        for totals in self.fleet.webhook_totals().await? {
            let before = self.dropped.insert(totals.webhook.clone(), totals.dropped);
            let more = totals.dropped.saturating_sub(before.unwrap_or(totals.dropped));
            if more > 0 {
                let (webhook, pending) = (&totals.webhook, totals.pending);
                tracing::warn!(%webhook, dropped = more, pending, "events for a webhook were dropped, because too many wait for it");
            }
        }
        Ok(())
    }
}

/// Returns whether an action with this interval is due now. If so, sets `last` to now.
fn is_due(last: &mut Option<Instant>, now: Instant, every: Duration) -> bool {
    let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= every);
    if is_due {
        *last = Some(now);
    }
    is_due
}
