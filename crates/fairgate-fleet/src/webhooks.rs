//! Webhooks: events of the fleet that somebody outside should be notified of.
//!
//! An event is written to the database in the transaction in which it happens, one row for each webhook that wants it
//! ([`event_log`]). So neither a restart nor a rollback loses or invents an event. Any server on the database claims
//! rows that are due, sends them, and records the result ([`delivery_queue`]). This crate does not know HTTP: the
//! gateway sends.
//!
//! # At least once
//! A claim of a row counts as a try, and sets the moment of the next one. A server that is killed while it sends leaves
//! the row to the next try, of whichever server. The receiver may then get the event twice, with the same id.
//!
//! # Bounds
//! An event is tried ten times within a day ([`retry_schedule`]). A webhook has at most [`event_log::PENDING_MAX`]
//! events that wait, of which one tenant has at most a quarter, so that no tenant can use up the room of the others.
//! Further events are dropped and counted.
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

/// Webhook, as the fleet sees it: its name and the events that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSubscription {
    /// Name of the webhook.
    pub name: String,
    /// Kinds of events that the webhook is notified of.
    pub events: Vec<WebhookEventKind>,
}

/// Webhooks in force, which a reload of the configuration may replace. All clones share them.
#[derive(Clone, Debug, Default)]
pub struct WebhookSubscriptions(Arc<RwLock<Arc<[WebhookSubscription]>>>);

impl WebhookSubscriptions {
    /// Creates the list of webhooks.
    pub fn new(webhooks: Vec<WebhookSubscription>) -> Self {
        Self(Arc::new(RwLock::new(webhooks.into())))
    }

    /// Replaces all webhooks. Events that were written for a webhook that is no longer in the list are not sent. They
    /// are given up after 25 hours, unless the webhook is in the list again before.
    pub fn set(&self, webhooks: Vec<WebhookSubscription>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = webhooks.into();
    }

    /// Returns the webhooks in force.
    pub fn all(&self) -> Arc<[WebhookSubscription]> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether some webhook is notified of this kind of event.
    pub(crate) fn wants(&self, kind: WebhookEventKind) -> bool {
        self.all().iter().any(|webhook| webhook.events.contains(&kind))
    }
}
