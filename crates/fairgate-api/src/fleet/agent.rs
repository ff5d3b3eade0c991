//! Agents: the bodies that add and change them, and their views.

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema_names::AgentLabelSchema;
use super::state::FleetAgentState;
use crate::json_field;

/// Agent to be added.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    /// Name of the agent. It has the same form as a project's name.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub id: String,
    /// Type of the agent; `default` if absent. Projects may limit the number of their agents of each type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub kind: Option<String>,
    /// If true, the agent does not send requests through the gateway, reports its usage itself, and gets no task keys.
    #[serde(default)]
    pub reports_tokens: bool,
    /// Labels of the agent, such as `docker` or `machine:m1`. A label is a name, or two names with
    /// a colon between them. The agent always has the label `type:TYPE` as well. A project may
    /// require labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<AgentLabelSchema>, max_items = 32)]
    pub labels: Vec<String>,
    /// Tenants for which the agent may work; all if absent. The agent gets no task of other tenants, and so never sees
    /// their prompts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 256)]
    pub tenants: Option<Vec<String>>,
}

/// Changes of an agent. Absent fields stay as they are.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    /// New state of the agent. `RETIRED` is final, and the task that the agent holds becomes `READY` again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<FleetAgentState>,
    /// New type of the agent.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub kind: Option<String>,
    /// New labels of the agent; replaces the whole list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<AgentLabelSchema>>, max_items = 32)]
    pub labels: Option<Vec<String>>,
    /// Tenants for which the agent may work; `null` for all. A task that the agent holds is not
    /// affected.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json_field::nullable"
    )]
    #[schema(value_type = Option<Vec<String>>, min_items = 1, max_items = 256)]
    pub tenants: Option<Option<Vec<String>>>,
}

/// Agent with its settings and the task that it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentView {
    /// Name of the agent.
    pub id: String,
    /// Type of the agent. Projects may limit the number of their agents of each type.
    #[serde(rename = "type")]
    pub kind: String,
    /// State of the agent. Only an `ACTIVE` agent gets tasks.
    pub state: FleetAgentState,
    /// If true, the agent reports its usage itself and gets no task keys.
    pub reports_tokens: bool,
    /// Last four characters of the agent's token, by which a person can tell tokens apart.
    pub token_hint: String,
    /// Name of the task that the agent holds; absent if it holds none.
    pub task: Option<String>,
    /// Time of the agent's last claim, heartbeat or other report, in microseconds since 1970; absent if there was none.
    #[schema(value_type = Option<i64>)]
    pub last_seen: Option<UnixMicros>,
    /// Time at which the agent was added, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub created_at: UnixMicros,
    /// Labels of the agent, without that of its type.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Tenants for which the agent may work; absent for all.
    pub tenants: Option<Vec<String>>,
}

/// Agent that was just added, or whose token was replaced. The token is shown only this once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AgentWithToken {
    /// Agent that the token belongs to.
    pub agent: AgentView,
    /// Token with which the agent authenticates.
    pub token: String,
}
