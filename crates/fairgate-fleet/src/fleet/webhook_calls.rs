//! Calls of [`Fleet`] for the sender of webhook events.

use fairgate_api::fleet::{WebhookEventKind, WebhookPendingEvent};
use fairgate_store::{BudgetExhausted, TransactionDurability};

use crate::call_context::CallContext;
use crate::fleet::{Fleet, FleetFuture};
use crate::webhooks::WebhookSubscription;
use crate::webhooks::budget_alerts::BudgetAlerts;
use crate::webhooks::delivery_queue::{self, WebhookDelivery, WebhookResult, WebhookTotals};
use crate::webhooks::directory_budgets;
use crate::webhooks::event_log::{self, WebhookBody};

/// Actor of deliveries. They change nothing in the history or the audit trail.
const ACTOR: &str = "fleet";
/// Maximum number of events that [`Fleet::pending_webhook_events`] returns.
const LISTED_MAX: u32 = 1_200;

impl CallContext {
    /// Returns the settings for the alerts of budgets.
    pub(crate) fn budget_alerts(&self) -> BudgetAlerts {
        BudgetAlerts {
            webhooks: self.options.webhooks.clone(),
            window: self.window(),
            budget: self.options.budget,
        }
    }
}

impl Fleet {
    /// Replaces the webhooks in force.
    pub fn set_webhooks(&self, webhooks: Vec<WebhookSubscription>) {
        self.options().webhooks.set(webhooks);
    }

    /// Waits until a call of this handle may have written an event. Events that other servers or
    /// rounds write do not end the wait.
    pub async fn wait_for_webhook_events(&self) {
        self.events_written().notified().await;
    }

    /// Claims due events, at most the number in `wanted` for each webhook. Claiming an event counts
    /// as a try. The caller must pass the result of the try to [`Fleet::settle_webhook_event`].
    pub fn claim_webhook_events(
        &self,
        wanted: Vec<(String, u32)>,
    ) -> FleetFuture<'_, Vec<WebhookDelivery>> {
        Box::pin(async move {
            let names = wanted.clone();
            // Nothing is due most of the time, and a read-only transaction takes no lock.
            let is_any_due = self.look(move |tx, call| {
                let names: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
                Ok(delivery_queue::is_any_due(tx, &names, call.now)?)
            });
            if !is_any_due.await? {
                return Ok(Vec::new());
            }
            let claim = self.transact(
                TransactionDurability::ThroughKill,
                ACTOR.to_owned(),
                move |tx, call| Ok(delivery_queue::claim(tx, &wanted, call.now)?),
            );
            claim.await
        })
    }

    /// Records the result of a try. Without this call, the event is sent again later.
    pub fn settle_webhook_event(
        &self,
        delivery: WebhookDelivery,
        result: WebhookResult,
    ) -> FleetFuture<'_, ()> {
        self.transact(TransactionDurability::ThroughKill, ACTOR.to_owned(), move |tx, call| {
            Ok(delivery_queue::settle(tx, &delivery, &result, call.now)?)
        })
    }

    /// Records that a budget of a tenant or a group refused a request. If at least 80 % of the
    /// budget is used, the next [`Fleet::check_budgets`] reports the budget as used up. Does not
    /// access the database.
    pub fn note_budget_refusal(&self, refused: &BudgetExhausted) {
        if self.options().webhooks.wants(WebhookEventKind::Budget) {
            self.refused_budgets().note(refused);
        }
    }

    /// Writes events for budgets of projects, tenants and groups that have reached 80 % or 100 %
    /// since any server made the last call.
    pub fn check_budgets(&self) -> FleetFuture<'_, ()> {
        Box::pin(async move {
            if !self.options().webhooks.wants(WebhookEventKind::Budget) {
                return Ok(());
            }
            self.check_directory_budgets().await?;
            let is_any_due =
                self.look(|tx, call| Ok(call.budget_alerts().is_any_due(tx, call.now)?));
            if !is_any_due.await? {
                return Ok(());
            }
            let check =
                self.transact(TransactionDurability::ThroughKill, ACTOR.to_owned(), |tx, call| {
                    Ok(call.budget_alerts().check(tx, call.now)?)
                });
            check.await
        })
    }

    fn check_directory_budgets(&self) -> FleetFuture<'_, ()> {
        Box::pin(async move {
            let refused = self.refused_budgets().take();
            let noted = refused.clone();
            let due = self.look(move |tx, call| Ok(directory_budgets::due(tx, &noted, call.now)?));
            if due.await?.is_empty() {
                return Ok(());
            }
            let write = self.transact(
                TransactionDurability::ThroughKill,
                ACTOR.to_owned(),
                move |tx, call| {
                    let webhooks = &call.options.webhooks;
                    Ok(directory_budgets::write(tx, webhooks, &refused, call.now)?)
                },
            );
            write.await
        })
    }

    /// Returns the counts of all webhooks in force, in the order of the configuration.
    pub fn webhook_totals(&self) -> FleetFuture<'_, Vec<WebhookTotals>> {
        let names: Vec<String> =
            self.options().webhooks.all().iter().map(|webhook| webhook.name.clone()).collect();
        Box::pin(async move {
            if names.is_empty() {
                return Ok(Vec::new());
            }
            self.look(move |tx, _| Ok(delivery_queue::totals(tx, &names)?)).await
        })
    }

    /// Returns the events of a webhook that are not delivered yet, or whose tries have all failed,
    /// oldest first.
    pub fn pending_webhook_events<'a>(
        &'a self,
        webhook: &str,
    ) -> FleetFuture<'a, Vec<WebhookPendingEvent>> {
        let webhook = webhook.to_owned();
        self.look(move |tx, _| Ok(delivery_queue::pending(tx, &webhook, LISTED_MAX)?))
    }

    /// Creates an event of type `test` for a webhook. It is not written to the database, so there
    /// is only one try.
    pub fn test_webhook_event<'a>(&'a self, webhook: &str) -> FleetFuture<'a, WebhookDelivery> {
        let (webhook, at) = (webhook.to_owned(), self.now().0);
        Box::pin(async move {
            let id = event_log::new_id()?;
            let body = WebhookBody { id: &id, kind: "test", at, ..WebhookBody::default() }.text();
            Ok(WebhookDelivery { webhook, id, body, tries: 1 })
        })
    }
}
