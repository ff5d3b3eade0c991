//! Writes events for webhooks, in the transaction in which they happen.

use std::collections::{BTreeMap, HashMap};

use fairgate_api::fleet::WebhookEventKind;
use fairgate_store::{BudgetBalance, BudgetScope, StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde::Serialize;
use serde_json::json;

use super::{WebhookSubscription, WebhookSubscriptions};
use crate::json_rows;

/// Maximum number of events of one webhook that wait for their delivery. Further events are
/// dropped.
pub(crate) const PENDING_MAX: u64 = 1_000;
/// Maximum number of waiting events of one webhook that are about one tenant.
pub(crate) const PENDING_OF_TENANT_MAX: u64 = 250;

/// An event that has happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WebhookEvent<'a> {
    pub(crate) kind: WebhookEventKind,
    /// The event's project; `None` if the event is about all projects together, or about a tenant
    /// or a group.
    pub(crate) project: Option<&'a str>,
    pub(crate) subject: WebhookSubject<'a>,
}

/// The task or budget of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WebhookSubject<'a> {
    /// Claim of a task.
    Claim { task: &'a str, agent: Option<&'a str>, epoch: u64 },
    /// A budget of which `percent` percent is used. Amounts are in tokens.
    Budget { percent: u32, used: u64, reserved: u64, limit: u64 },
    /// A budget of a tenant or a group of which `percent` percent is used.
    OwnedBudget { percent: u32, balance: &'a BudgetBalance },
}

/// Body of a request to a webhook.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WebhookBody<'a> {
    pub(crate) id: &'a str,
    #[serde(rename = "type")]
    pub(crate) kind: &'a str,
    /// Time of the event, in microseconds since 1970.
    pub(crate) at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) percent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reserved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<u64>,
    /// Unit of the amounts: `tokens`, or `money` in millionths of the currency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) period: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tier: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resets_at: Option<i64>,
}

impl WebhookBody<'_> {
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl WebhookEvent<'_> {
    /// Returns the tenant of the event, given the tenants of projects; `None` if the event is not
    /// about one tenant.
    fn tenant<'t>(&'t self, tenants: &'t HashMap<String, String>) -> Option<&'t str> {
        match self.subject {
            WebhookSubject::OwnedBudget { balance, .. } => {
                (balance.scope == BudgetScope::Tenant).then_some(&*balance.owner)
            }
            _ => self.project.and_then(|project| tenants.get(project)).map(String::as_str),
        }
    }

    fn body(&self, id: &str, tenant: Option<&str>, now: UnixMicros) -> String {
        let body = WebhookBody {
            id,
            kind: self.kind.word(),
            at: now.0,
            tenant,
            project: self.project,
            ..WebhookBody::default()
        };
        match self.subject {
            WebhookSubject::Claim { task, agent, epoch } => {
                WebhookBody { task: Some(task), agent, epoch: Some(epoch), ..body }.text()
            }
            WebhookSubject::Budget { percent, used, reserved, limit } => WebhookBody {
                percent: Some(percent),
                used: Some(used),
                reserved: Some(reserved),
                limit: Some(limit),
                ..body
            }
            .text(),
            WebhookSubject::OwnedBudget { percent, balance } => {
                let is_group = balance.scope == BudgetScope::Group;
                WebhookBody {
                    group: is_group.then_some(&balance.owner),
                    percent: Some(percent),
                    used: Some(balance.used),
                    reserved: Some(balance.reserved),
                    limit: Some(balance.limit),
                    unit: Some(balance.unit.into()),
                    period: Some(balance.period.into()),
                    tier: Some(balance.tier.into()),
                    resets_at: Some(balance.resets_at.0),
                    ..body
                }
                .text()
            }
        }
    }
}

/// Returns a new id of an event: `evt-` and 32 random hexadecimal digits.
pub(crate) fn new_id() -> Result<String, StoreError> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).map_err(|problem| {
        StoreError::Database(format!("the system gives no random numbers: {problem}"))
    })?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("evt-{digits}"))
}

/// Writes events, one row for each webhook that receives them. Runs no statement if no webhook
/// does, otherwise at most four.
pub(crate) fn record(
    tx: &mut dyn Transaction,
    subscriptions: &WebhookSubscriptions,
    now: UnixMicros,
    events: &[WebhookEvent<'_>],
) -> Result<(), StoreError> {
    let webhooks = subscriptions.all();
    let wants = |webhook: &&WebhookSubscription| {
        events.iter().any(|event| webhook.events.contains(&event.kind))
    };
    let webhooks: Vec<&WebhookSubscription> = webhooks.iter().filter(wants).collect();
    if webhooks.is_empty() {
        return Ok(());
    }
    let tenants = tenants_of(tx, events)?;
    let mut room = PendingRoom::load(tx, &webhooks)?;
    let mut rows = Vec::new();
    for event in events {
        let tenant = event.tenant(&tenants);
        let id = new_id()?;
        let body = event.body(&id, tenant, now);
        for webhook in webhooks.iter().filter(|webhook| webhook.events.contains(&event.kind)) {
            if room.take(&webhook.name, tenant.unwrap_or_default()) {
                let tenant = tenant.unwrap_or_default();
                rows.push(json!([webhook.name, id, tenant, event.kind.word(), now.0, body]));
            }
        }
    }
    insert(tx, rows)?;
    room.write_dropped(tx)
}

fn insert(tx: &mut dyn Transaction, rows: Vec<serde_json::Value>) -> Result<(), StoreError> {
    if rows.is_empty() {
        return Ok(());
    }
    let types = ["TEXT", "TEXT", "TEXT", "TEXT", "BIGINT", "TEXT"];
    let table = json_rows::table(tx.database(), 1, &types);
    let sql = format!(
        "INSERT INTO fleet_webhook_events (webhook, id, tenant, kind, made_at, due_at, body, tries) \
         SELECT v.column1, v.column2, v.column3, v.column4, v.column5, v.column5, v.column6, 0 FROM {table} AS v"
    );
    tx.run(&sql, &[json_rows::value(rows)])?;
    Ok(())
}

/// Returns the tenants of the events' projects, by project.
fn tenants_of(
    tx: &mut dyn Transaction,
    events: &[WebhookEvent<'_>],
) -> Result<HashMap<String, String>, StoreError> {
    let names = json_rows::texts(tx.database(), 1);
    let sql = format!("SELECT id, tenant FROM fleet_projects WHERE id IN {names}");
    let projects = json_rows::names(events.iter().filter_map(|event| event.project));
    let rows = tx.list(&sql, &[projects], |row| Ok((row.text(0)?, row.text(1)?)))?;
    Ok(rows.into_iter().collect())
}

/// Room for further events of each webhook, and the number of events that were dropped because
/// there was no room.
struct PendingRoom {
    /// Number of pending events, by webhook.
    pending: HashMap<String, u64>,
    /// Number of pending events, by webhook and tenant.
    of_tenants: HashMap<(String, String), u64>,
    dropped: BTreeMap<String, u64>,
}

impl PendingRoom {
    fn load(
        tx: &mut dyn Transaction,
        webhooks: &[&WebhookSubscription],
    ) -> Result<Self, StoreError> {
        let names = json_rows::texts(tx.database(), 1);
        let sql = format!(
            "SELECT webhook, tenant, COUNT(*) FROM fleet_webhook_events WHERE webhook IN {names} \
             AND due_at IS NOT NULL GROUP BY webhook, tenant"
        );
        let names = json_rows::names(webhooks.iter().map(|webhook| webhook.name.as_str()));
        let mut room =
            Self { pending: HashMap::new(), of_tenants: HashMap::new(), dropped: BTreeMap::new() };
        tx.each(&sql, &[names], &mut |row| {
            let (webhook, tenant, count) = (row.text(0)?, row.text(1)?, row.count(2)?);
            *room.pending.entry(webhook.clone()).or_default() += count;
            room.of_tenants.insert((webhook, tenant), count);
            Ok(())
        })?;
        Ok(room)
    }

    /// Takes room for one more event. If there is none, counts a dropped event and returns false.
    fn take(&mut self, webhook: &str, tenant: &str) -> bool {
        let pending = self.pending.entry(webhook.to_owned()).or_default();
        let of_tenant = self.of_tenants.entry((webhook.to_owned(), tenant.to_owned())).or_default();
        if *pending >= PENDING_MAX || *of_tenant >= PENDING_OF_TENANT_MAX {
            *self.dropped.entry(webhook.to_owned()).or_default() += 1;
            return false;
        }
        *pending += 1;
        *of_tenant += 1;
        true
    }

    fn write_dropped(self, tx: &mut dyn Transaction) -> Result<(), StoreError> {
        if self.dropped.is_empty() {
            return Ok(());
        }
        let table = json_rows::table(tx.database(), 1, &["TEXT", "BIGINT"]);
        let sql = format!(
            "INSERT INTO fleet_webhooks (webhook, delivered, failed, dropped) \
             SELECT v.column1, 0, 0, v.column2 FROM {table} AS v WHERE true \
             ON CONFLICT (webhook) DO UPDATE SET dropped = fleet_webhooks.dropped + excluded.dropped"
        );
        let rows = self.dropped.iter().map(|(webhook, count)| json!([webhook, count]));
        tx.run(&sql, &[json_rows::value(rows)])?;
        Ok(())
    }
}
