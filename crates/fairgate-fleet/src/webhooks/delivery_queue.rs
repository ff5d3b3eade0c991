//! Queue of events that wait for their delivery. Servers claim due events and record the results.

use fairgate_api::fleet::WebhookPendingEvent;
use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;

use super::retry_schedule::{LIFETIME, TRIES_MAX, pause_after};
use crate::json_rows;
use crate::retry_policy;
use crate::validate;

/// Number of events of each webhook that are kept for people after all their tries have failed.
const FAILED_KEPT: i64 = 200;
/// Maximum number of events that are given up at once because they are too old.
const OLD_MAX: i64 = 500;
/// Maximum length of a stored failure of a try, in bytes.
const ERROR_MAX: usize = 300;

/// An event that a server has claimed, to send it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookDelivery {
    /// Name of the webhook.
    pub webhook: String,
    /// Id of the event.
    pub id: String,
    /// JSON text of the event.
    pub body: String,
    /// Number of this try, counted from 1.
    pub tries: u32,
}

/// Result of a try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebhookResult {
    /// The receiver accepted the event.
    Delivered,
    /// The receiver did not accept the event. The text is the reason.
    Failed(String),
}

/// Counts of a webhook's events, over all servers on the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookTotals {
    /// Name of the webhook.
    pub webhook: String,
    /// Number of events that wait for their delivery.
    pub pending: u64,
    /// Time of the oldest waiting event; `None` if no event waits.
    pub oldest_at: Option<UnixMicros>,
    /// Number of events that were delivered.
    pub delivered: u64,
    /// Number of events whose tries have all failed.
    pub failed: u64,
    /// Number of events that were dropped because too many were waiting.
    pub dropped: u64,
    /// Time of the last delivery; `None` before the first.
    pub delivered_at: Option<UnixMicros>,
    /// Failure of the last failed try; `None` if no try has failed.
    pub error: Option<String>,
    /// Time of the last failed try; `None` if no try has failed.
    pub error_at: Option<UnixMicros>,
}

/// Returns true if [`claim`] would find anything to do.
pub(crate) fn is_any_due(
    tx: &mut dyn Transaction,
    webhooks: &[&str],
    now: UnixMicros,
) -> Result<bool, StoreError> {
    let names = json_rows::texts(tx.database(), 1);
    let sql = format!(
        "SELECT 1 FROM fleet_webhook_events WHERE webhook IN {names} AND due_at <= $2 \
         UNION ALL SELECT 1 FROM fleet_webhook_events WHERE due_at IS NOT NULL AND made_at < $3 LIMIT 1"
    );
    let values = [json_rows::names(webhooks.iter().copied()), now.into(), oldest(now).into()];
    Ok(tx.first(&sql, &values, |_| Ok(()))?.is_some())
}

fn oldest(now: UnixMicros) -> UnixMicros {
    let micros = i64::try_from(LIFETIME.as_micros()).unwrap_or(i64::MAX);
    UnixMicros(now.0.saturating_sub(micros))
}

/// Claims due events, at most the number in `wanted` for each webhook. Claiming counts as a try;
/// the event is due again after the pause that follows this try. Gives up events that are too old,
/// and events whose last try has no result.
pub(crate) fn claim(
    tx: &mut dyn Transaction,
    wanted: &[(String, u32)],
    now: UnixMicros,
) -> Result<Vec<WebhookDelivery>, StoreError> {
    give_up_old(tx, now)?;
    let mut claimed = Vec::new();
    for (webhook, count) in wanted.iter().filter(|(_, count)| *count > 0) {
        let due = tx.list(
            "SELECT id, body, tries FROM fleet_webhook_events WHERE webhook = $1 AND due_at <= $2 \
             ORDER BY due_at, id LIMIT $3",
            &[webhook.as_str().into(), now.into(), (*count).into()],
            |row| Ok((row.text(0)?, row.text(1)?, u32::try_from(row.int(2)?).unwrap_or(u32::MAX))),
        )?;
        for (id, body, tries) in due {
            if tries >= TRIES_MAX {
                give_up(tx, webhook, &id, "the server ended during the last try", now)?;
                continue;
            }
            let tries = tries + 1;
            let due_at = retry_policy::later(now, pause_after(tries));
            tx.run(
                "UPDATE fleet_webhook_events SET tries = $1, due_at = $2 WHERE webhook = $3 AND id = $4",
                &[tries.into(), due_at.into(), webhook.as_str().into(), id.as_str().into()],
            )?;
            claimed.push(WebhookDelivery { webhook: webhook.clone(), id, body, tries });
        }
    }
    Ok(claimed)
}

/// Gives up at most [`OLD_MAX`] events that are older than [`LIFETIME`].
fn give_up_old(tx: &mut dyn Transaction, now: UnixMicros) -> Result<(), StoreError> {
    let old = tx.list(
        "SELECT webhook, id FROM fleet_webhook_events WHERE due_at IS NOT NULL AND made_at < $1 \
         ORDER BY made_at LIMIT $2",
        &[oldest(now).into(), OLD_MAX.into()],
        |row| Ok((row.text(0)?, row.text(1)?)),
    )?;
    for (webhook, id) in old {
        give_up(tx, &webhook, &id, "it could not be delivered within a day", now)?;
    }
    Ok(())
}

/// Records the result of a try. The event may no longer exist, because another server has delivered
/// it meanwhile. A delivery is then not counted again. A failure is still stored as the webhook's
/// last error, unless it was the last try.
pub(crate) fn settle(
    tx: &mut dyn Transaction,
    delivery: &WebhookDelivery,
    result: &WebhookResult,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let WebhookDelivery { webhook, id, tries, .. } = delivery;
    match result {
        WebhookResult::Delivered => {
            let gone = tx.run(
                "DELETE FROM fleet_webhook_events WHERE webhook = $1 AND id = $2",
                &[webhook.as_str().into(), id.as_str().into()],
            )?;
            if gone > 0 {
                count(tx, webhook, "delivered", Some(now))?;
            }
            Ok(())
        }
        WebhookResult::Failed(error) if *tries >= TRIES_MAX => give_up(tx, webhook, id, error, now),
        WebhookResult::Failed(error) => {
            let error = validate::cut(error, ERROR_MAX);
            let sql = "UPDATE fleet_webhook_events SET error = $1 WHERE webhook = $2 AND id = $3";
            let values = [error.as_str().into(), webhook.as_str().into(), id.as_str().into()];
            tx.run(sql, &values)?;
            note_error(tx, webhook, &error, now)
        }
    }
}

/// Records that all tries of an event have failed. The latest of these events are kept for people.
fn give_up(
    tx: &mut dyn Transaction,
    webhook: &str,
    id: &str,
    error: &str,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let error = validate::cut(error, ERROR_MAX);
    let given_up = tx.run(
        "UPDATE fleet_webhook_events SET due_at = NULL, error = $1 WHERE webhook = $2 AND id = $3 \
         AND due_at IS NOT NULL",
        &[error.as_str().into(), webhook.into(), id.into()],
    )?;
    if given_up == 0 {
        return Ok(());
    }
    count(tx, webhook, "failed", None)?;
    note_error(tx, webhook, &error, now)?;
    tx.run(
        "DELETE FROM fleet_webhook_events WHERE webhook = $1 AND due_at IS NULL AND id NOT IN \
         (SELECT k.id FROM fleet_webhook_events k WHERE k.webhook = $1 AND k.due_at IS NULL \
          ORDER BY k.made_at DESC, k.id LIMIT $2)",
        &[webhook.into(), FAILED_KEPT.into()],
    )?;
    Ok(())
}

/// Adds 1 to a count of a webhook. `column` is the name of the count.
fn count(
    tx: &mut dyn Transaction,
    webhook: &str,
    column: &str,
    delivered_at: Option<UnixMicros>,
) -> Result<(), StoreError> {
    add_row(tx, webhook)?;
    let sql = format!(
        "UPDATE fleet_webhooks SET delivered_at = COALESCE($1, delivered_at), {column} = {column} + 1 \
         WHERE webhook = $2"
    );
    tx.run(&sql, &[delivered_at.map(|at| at.0).into(), webhook.into()])?;
    Ok(())
}

fn note_error(
    tx: &mut dyn Transaction,
    webhook: &str,
    error: &str,
    now: UnixMicros,
) -> Result<(), StoreError> {
    add_row(tx, webhook)?;
    let sql = "UPDATE fleet_webhooks SET error = $1, error_at = $2 WHERE webhook = $3";
    tx.run(sql, &[error.into(), now.into(), webhook.into()])?;
    Ok(())
}

fn add_row(tx: &mut dyn Transaction, webhook: &str) -> Result<(), StoreError> {
    tx.run(
        "INSERT INTO fleet_webhooks (webhook, delivered, failed, dropped) VALUES ($1, 0, 0, 0) \
         ON CONFLICT (webhook) DO NOTHING",
        &[webhook.into()],
    )?;
    Ok(())
}

/// Returns the counts of these webhooks, in their order.
pub(crate) fn totals(
    tx: &mut dyn Transaction,
    webhooks: &[String],
) -> Result<Vec<WebhookTotals>, StoreError> {
    let mut all = Vec::new();
    for webhook in webhooks {
        let sql = "SELECT COUNT(*), MIN(made_at) FROM fleet_webhook_events WHERE webhook = $1 \
                   AND due_at IS NOT NULL";
        let waiting = tx.first(sql, &[webhook.as_str().into()], |row| {
            Ok((row.count(0)?, row.moment_or_null(1)?))
        })?;
        let (pending, oldest_at) = waiting.unwrap_or_default();
        let sql = "SELECT delivered, failed, dropped, delivered_at, error, error_at FROM fleet_webhooks \
                   WHERE webhook = $1";
        let totals = tx.first(sql, &[webhook.as_str().into()], |row| {
            Ok(WebhookTotals {
                delivered: row.count(0)?,
                failed: row.count(1)?,
                dropped: row.count(2)?,
                delivered_at: row.moment_or_null(3)?,
                error: row.text_or_null(4)?,
                error_at: row.moment_or_null(5)?,
                ..WebhookTotals::default()
            })
        })?;
        let webhook = webhook.clone();
        all.push(WebhookTotals { webhook, pending, oldest_at, ..totals.unwrap_or_default() });
    }
    Ok(all)
}

/// Returns the events of a webhook that wait or have failed, oldest first.
pub(crate) fn pending(
    tx: &mut dyn Transaction,
    webhook: &str,
    limit: u32,
) -> Result<Vec<WebhookPendingEvent>, StoreError> {
    tx.list(
        "SELECT id, kind, made_at, tries, due_at, error FROM fleet_webhook_events WHERE webhook = $1 \
         ORDER BY made_at, id LIMIT $2",
        &[webhook.into(), limit.into()],
        |row| {
            Ok(WebhookPendingEvent {
                id: row.text(0)?,
                kind: row.text(1)?,
                at: row.moment(2)?,
                tries: u32::try_from(row.int(3)?).unwrap_or(u32::MAX),
                next_try_at: row.moment_or_null(4)?,
                error: row.text_or_null(5)?,
            })
        },
    )
}
