//! Pools, and changes of their flows.

use fairgate_core::attribute::Attribute;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::worker::WorkerBody;
use crate::whole_number::JsonWholeNumber;

/// A pool of workers. Its models share one capacity.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Pool)]
pub struct PoolBody {
    /// Name of the pool, as in the configuration.
    pub name: String,
    /// Names of the models that the pool serves.
    pub models: Vec<String>,
    /// Unit in which the pool's scheduler counts: `tokens`, `worker_time` (microseconds of a full worker) or `money`
    /// (micro-units of the currency of the prices).
    #[serde(default)]
    pub unit: String,
    /// Policy in words, from the root down, such as `share by group, share by tenant`.
    pub algorithm: String,
    /// Maximum number of requests in flight.
    pub capacity: u64,
    /// Number of requests in flight.
    pub in_flight: u64,
    /// Number of queued requests.
    pub queued: u64,
    /// Maximum number of queued requests.
    pub queued_max: u64,
    /// Maximum time in the queue, in milliseconds.
    pub queue_timeout_ms: u64,
    /// True while the pool is draining.
    pub draining: bool,
    /// Flows that are held and get no slots.
    pub held: Vec<FlowBody>,
    /// The workers of the pool.
    pub workers: Vec<WorkerBody>,
    /// State of the pool's journal.
    pub journal: JournalBody,
    /// Numbers of requests by their outcome, since the pool started.
    pub counts: CountsBody,
}

/// State of a pool's journal.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Journal)]
pub struct JournalBody {
    /// State of the journal: `off` if no journal is kept, else `writing` or `stopped`.
    pub status: String,
    /// Reason why the journal stopped; null unless it is stopped.
    pub error: Option<String>,
    /// Number of events that are in no journal because the journal had stopped.
    pub events_lost: u64,
    /// Number of times that the journal stopped.
    pub gaps: u64,
}

/// Numbers of requests by their outcome, since the pool started.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Counts)]
pub struct CountsBody {
    /// Requests that were granted a slot.
    pub granted: u64,
    /// Requests that the pool rejected.
    pub rejected: u64,
    /// Requests that timed out in the queue.
    pub expired: u64,
    /// Requests whose clients left while the requests were queued.
    pub left: u64,
    /// Requests that ended with known usage.
    pub settled: u64,
    /// Requests that failed in flight.
    pub failed: u64,
}

/// All pools of the gateway.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PoolList)]
pub struct PoolList {
    /// The pools, sorted by name.
    pub items: Vec<PoolBody>,
}

/// A flow of a pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Flow)]
pub struct FlowBody {
    /// Attribute by which the flow is named.
    pub by: FlowAttribute,
    /// Name of the flow; for a key, its id.
    pub flow: String,
}

/// A flow to hold or resume.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FlowRef)]
pub struct FlowRefBody {
    /// Attribute by which the flow is named.
    pub by: FlowAttribute,
    /// Name of the flow; for a key, its id. The flow need not have sent anything yet. To be held, a group, tenant or
    /// key must exist.
    #[schema(min_length = 1, max_length = 256)]
    pub flow: String,
}

/// A new weight of a flow.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FlowWeightChange)]
pub struct FlowWeightBody {
    /// Attribute by which the flow is named: `class`, `agent` or `session`. The weights of groups, tenants, keys and
    /// projects are set on these themselves.
    pub by: FlowAttribute,
    /// Name of the flow. The flow need not have sent anything yet. A class must be a class of the
    /// policy.
    #[schema(min_length = 1, max_length = 256)]
    pub flow: String,
    /// Weight from now on, 1 to 1000000; for a class of deficit round robin, its quantum in the unit of the
    /// pool.
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000)]
    pub weight: JsonWholeNumber,
}

/// A new cap of a flow.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FlowCapChange)]
pub struct FlowCapBody {
    /// Attribute by which the flow is named: `class`, `project`, `agent` or `session`. The caps of tenants and keys are
    /// their limits `in_flight`.
    pub by: FlowAttribute,
    /// Name of the flow. The flow need not have sent anything yet. A class must be a class of the
    /// policy.
    #[schema(min_length = 1, max_length = 256)]
    pub flow: String,
    /// Maximum number of the flow's requests in flight; null removes the cap. A lower cap does not
    /// stop requests that are in flight.
    #[schema(value_type = Option<u64>, minimum = 0)]
    pub slots: Option<JsonWholeNumber>,
}

/// Weight of a flow after it was changed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = FlowWeight)]
pub struct ChangedWeightBody {
    /// Name of the pool, as in the configuration.
    pub pool: String,
    /// Attribute by which the flow is named.
    pub by: FlowAttribute,
    /// Name of the flow.
    pub flow: String,
    /// Weight of the flow, or its quantum in the unit of the pool.
    pub weight: u64,
}

/// Cap of a flow after it was changed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = FlowCap)]
pub struct ChangedCapBody {
    /// Name of the pool, as in the configuration.
    pub pool: String,
    /// Attribute by which the flow is named.
    pub by: FlowAttribute,
    /// Name of the flow.
    pub flow: String,
    /// Maximum number of the flow's requests in flight; null means no maximum.
    pub slots: Option<u64>,
}

/// State of a flow after it was held or resumed.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = FlowState)]
pub struct HeldFlowBody {
    /// Name of the pool, as in the configuration.
    pub pool: String,
    /// Attribute by which the flow is named.
    pub by: FlowAttribute,
    /// Name of the flow; for a key, its id.
    pub flow: String,
    /// True if the flow is held.
    pub held: bool,
}

/// Attribute by which flows are named.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FlowAttribute {
    /// Name of a class in the policy.
    Class,
    /// Tenant of the client.
    Tenant,
    /// Group of the tenant.
    Group,
    /// Key of the client, by its id.
    Key,
    /// Agent that the client named.
    Agent,
    /// Project of the fleet.
    Project,
    /// Session that the client named.
    Session,
}

impl From<FlowAttribute> for Attribute {
    fn from(by: FlowAttribute) -> Self {
        match by {
            FlowAttribute::Class => Self::Class,
            FlowAttribute::Tenant => Self::Tenant,
            FlowAttribute::Group => Self::Group,
            FlowAttribute::Key => Self::Key,
            FlowAttribute::Agent => Self::Agent,
            FlowAttribute::Project => Self::Project,
            FlowAttribute::Session => Self::Session,
        }
    }
}

impl From<Attribute> for FlowAttribute {
    fn from(by: Attribute) -> Self {
        match by {
            Attribute::Class => Self::Class,
            Attribute::Tenant => Self::Tenant,
            Attribute::Group => Self::Group,
            Attribute::Key => Self::Key,
            Attribute::Agent => Self::Agent,
            Attribute::Project => Self::Project,
            Attribute::Session => Self::Session,
        }
    }
}
