//! Webhooks: events of the fleet about which outside receivers are notified.
//!
//! An event is written to the database in the transaction in which it happens, as one row for each
//! webhook that receives it ([`event_log`]). So no event is lost in a restart, and none remains
//! after a rollback. Any server on the database claims rows that are due, sends them, and records
//! the result ([`delivery_queue`]). This crate does not know HTTP: the gateway sends.
//!
//! # At least once
//! A claim of a row counts as a try, and sets the time of the next one. If a server is killed while
//! it sends, the next try of any server sends the row again. The receiver may then get the event
//! twice, with the same id.
//!
//! # Bounds
//! An event is tried ten times within a day ([`retry_schedule`]). At most
//! [`event_log::PENDING_MAX`] events of a webhook can wait. At most a quarter of them may be about
//! one tenant, so that no tenant can use up the room of the others. Further events are dropped and
//! counted.
//!
//! # Content
//! The body of an event has names and numbers. It has no text that people or agents wrote: no prompt, no result, no
//! question, no reason, and no title, because a title may be the first line of a prompt.

pub(crate) mod budget_alerts;
pub(crate) mod delivery_queue;
pub(crate) mod directory_budgets;
pub(crate) mod event_log;
pub(crate) mod retry_schedule;

use std::sync::{Arc, PoisonError, RwLock};

use fairgate_api::fleet::WebhookEventKind;

pub use delivery_queue::{WebhookDelivery, WebhookResult, WebhookTotals};

/// A webhook, with the data that the fleet needs: its name and its kinds of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSubscription {
    /// Name of the webhook.
    pub name: String,
    /// Kinds of events that the webhook receives.
    pub events: Vec<WebhookEventKind>,
}

/// The webhooks in force, which a reload of the configuration may replace. All clones share them.
#[derive(Clone, Debug, Default)]
pub struct WebhookSubscriptions(Arc<RwLock<Arc<[WebhookSubscription]>>>);

impl WebhookSubscriptions {
    /// Creates the list of webhooks.
    pub fn new(webhooks: Vec<WebhookSubscription>) -> Self {
        Self(Arc::new(RwLock::new(webhooks.into())))
    }

    /// Replaces all webhooks. Waiting events of a webhook that is no longer in the list are not
    /// sent. They are given up after 25 hours, unless the webhook is in the list again before.
    pub fn set(&self, webhooks: Vec<WebhookSubscription>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = webhooks.into();
    }

    /// Returns the webhooks in force.
    pub fn all(&self) -> Arc<[WebhookSubscription]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if any webhook receives this kind of event.
    pub(crate) fn wants(&self, kind: WebhookEventKind) -> bool {
        self.all().iter().any(|webhook| webhook.events.contains(&kind))
    }
}
