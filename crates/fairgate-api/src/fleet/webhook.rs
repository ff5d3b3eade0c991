//! Events that webhooks are notified of.

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of event that a webhook can be notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookEventKind {
    /// A task waits for the answer of a person.
    Question,
    /// A task is blocked until a person restarts or skips it.
    Blocked,
    /// A budget has reached 80 % or 100 %: of a project, all projects together, a tenant or a
    /// group.
    Budget,
    /// The lease of an agent ran out while it held a task.
    AgentLost,
}

impl WebhookEventKind {
    /// All kinds of events.
    pub const ALL: [Self; 4] = [Self::Question, Self::Blocked, Self::Budget, Self::AgentLost];

    /// Returns the name of the kind in bodies and in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Blocked => "blocked",
            Self::Budget => "budget",
            Self::AgentLost => "agent_lost",
        }
    }
}

/// Event that waits for its delivery to a webhook, or whose tries have all failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WebhookPendingEvent {
    /// Id of the event, which the receiver gets with each try.
    pub id: String,
    /// Kind of the event.
    #[serde(rename = "type")]
    pub kind: String,
    /// Time of the event, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub at: UnixMicros,
    /// Number of tries so far.
    pub tries: u32,
    /// Time of the next try, in microseconds since 1970; absent if all tries have failed.
    #[schema(value_type = Option<i64>)]
    pub next_try_at: Option<UnixMicros>,
    /// Failure of the last try; absent if there was none.
    pub error: Option<String>,
}

/// The webhooks of the configuration.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookList {
    /// The webhooks, in the order of the configuration.
    pub items: Vec<WebhookView>,
}

/// A webhook with the counts of its events. The counts are those of all servers on the database.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    /// Name of the webhook.
    pub name: String,
    /// Scheme and host of the URL. The rest may hold a token, and is not shown.
    pub origin: String,
    /// Kinds of events that the webhook is notified of.
    pub events: Vec<WebhookEventKind>,
    /// Number of events that wait for their delivery.
    pub pending: u64,
    /// Time of the oldest event that waits, in microseconds since 1970; absent if no event waits.
    pub oldest_at: Option<i64>,
    /// Number of events that were delivered.
    pub delivered: u64,
    /// Number of events whose tries have all failed.
    pub failed: u64,
    /// Number of events that were dropped because too many were waiting.
    pub dropped: u64,
    /// Time of the last delivery, in microseconds since 1970; absent if there was none.
    pub delivered_at: Option<i64>,
    /// Failure of the last try that failed; absent if no try has failed.
    pub error: Option<String>,
    /// Time of the last try that failed, in microseconds since 1970; absent if no try has failed.
    pub error_at: Option<i64>,
}

/// Events of a webhook that wait or have failed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookEventList {
    /// The events, the oldest first: all that wait, and the latest 200 whose tries have all failed.
    pub items: Vec<WebhookPendingEvent>,
}

/// Result of a test event.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookTestView {
    /// Id of the test event.
    pub id: String,
    /// True if the webhook answered with a status of 200 to 299.
    pub delivered: bool,
    /// HTTP status of the answer; absent if the event was not delivered.
    pub status: Option<u16>,
    /// Reason for the failure; absent if the event was delivered.
    pub error: Option<String>,
    /// Time from the request to the answer, in milliseconds.
    pub took_ms: u64,
}
