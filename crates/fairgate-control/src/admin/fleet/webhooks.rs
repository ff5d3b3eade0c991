//! Handlers for webhooks, used by people.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use fairgate_api::error::ErrorBody;
use fairgate_api::fleet::WebhookEventKind;
use fairgate_api::fleet::{WebhookEventList, WebhookList, WebhookTestView, WebhookView};
use fairgate_config::WebhookConfig;
use fairgate_store::DirectoryChange;
use fairgate_time::wall_clock;
use serde_json::json;
use tokio::time::Instant;

use crate::admin::api_error::ApiError;
use crate::admin::auth::AdminCaller;
use crate::admin::path::PathName;
use crate::control_plane::ControlPlane;
use crate::webhooks::{WebhookSender, origin, subscriptions};

/// Lists the webhooks of the configuration, with the counts of their events.
#[utoipa::path(
    get, path = "/api/v1/webhooks", tag = "fleet",
    responses((status = 200, description = "All webhooks", body = WebhookList)),
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
) -> Result<Json<WebhookList>, ApiError> {
    let config = app.data.config.load();
    let webhooks = &config.fleet.webhooks;
    let totals = app.fleet.webhook_totals().await?;
    let view = |(webhook, events): (&WebhookConfig, Vec<WebhookEventKind>)| {
        let totals = totals.iter().find(|totals| totals.webhook == webhook.name);
        let totals = totals.cloned().unwrap_or_default();
        WebhookView {
            name: webhook.name.clone(),
            origin: origin(webhook),
            events,
            pending: totals.pending,
            oldest_at: totals.oldest_at.map(|at| at.0),
            delivered: totals.delivered,
            failed: totals.failed,
            dropped: totals.dropped,
            delivered_at: totals.delivered_at.map(|at| at.0),
            error: totals.error,
            error_at: totals.error_at.map(|at| at.0),
        }
    };
    let events = subscriptions(webhooks).into_iter().map(|subscription| subscription.events);
    Ok(Json(WebhookList { items: webhooks.iter().zip(events).map(view).collect() }))
}

/// Lists the events of a webhook that wait for their delivery, and the latest that failed.
#[utoipa::path(
    get, path = "/api/v1/webhooks/{name}/events", tag = "fleet",
    params(("name" = String, Path, description = "The webhook's name")),
    responses((status = 200, description = "Its events", body = WebhookEventList)),
)]
pub(in crate::admin) async fn events(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<WebhookEventList>, ApiError> {
    find(&app, &name)?;
    Ok(Json(WebhookEventList { items: app.fleet.pending_webhook_events(&name).await? }))
}

/// Sends one test event to a webhook at once, and returns the webhook's answer.
#[utoipa::path(
    post, path = "/api/v1/webhooks/{name}/test", tag = "fleet",
    params(("name" = String, Path, description = "The webhook's name")),
    responses(
        (status = 200, description = "What became of the event", body = WebhookTestView),
        (status = 404, description = "There is no such webhook", body = ErrorBody),
    ),
)]
pub(in crate::admin) async fn test(
    State(app): State<Arc<ControlPlane>>,
    admin: AdminCaller,
    PathName(name): PathName,
) -> Result<Json<WebhookTestView>, ApiError> {
    let webhook = find(&app, &name)?;
    let event = app.fleet.test_webhook_event(&name).await?;
    let began = Instant::now();
    let sent = match WebhookSender::new(&webhook) {
        Ok(sender) => sender.send(&event).await,
        Err(problem) => Err(problem),
    };
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let (delivered, status) = (sent.is_ok(), sent.as_ref().ok().map(|status| status.as_u16()));
    let error = sent.err();
    let after = json!({"event": event.id, "delivered": delivered});
    let note = DirectoryChange::Note { action: "webhook.test", subject: name, before: None, after };
    app.data.store.change(&admin.actor, wall_clock::now(), note).await?;
    Ok(Json(WebhookTestView { id: event.id, delivered, status, error, took_ms }))
}

fn find(app: &ControlPlane, name: &str) -> Result<WebhookConfig, ApiError> {
    let config = app.data.config.load();
    let webhook = config.fleet.webhooks.iter().find(|webhook| webhook.name == name);
    webhook.cloned().ok_or_else(|| ApiError::not_found("webhook", name))
}
