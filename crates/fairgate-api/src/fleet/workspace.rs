//! Workspaces: the body that adds one, and their view.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Workspace to be added.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewWorkspace {
    /// Name of the workspace. It has the same form as a project's name.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub id: String,
    /// Name of the project that may use the workspace.
    #[schema(max_length = 128)]
    pub project: String,
    /// Path of the workspace on the agents' machines.
    #[schema(
        max_length = 4096,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    pub path: String,
    /// Name of the machine that has the folder; every machine if absent. If a machine is named,
    /// only agents with the label `machine:NAME` work in the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub machine: Option<String>,
}

/// Workspace with the task that holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WorkspaceView {
    /// Name of the workspace.
    pub id: String,
    /// Name of the project that may use the workspace.
    pub project: String,
    /// Path of the workspace on the agents' machines.
    pub path: String,
    /// Name of the machine that has the folder; absent if every machine has it.
    #[serde(default)]
    pub machine: Option<String>,
    /// Name of the task that holds the workspace now; absent if the workspace is free.
    pub task: Option<String>,
    /// Name of the agent that works on the task in the workspace; absent if the workspace is free.
    pub agent: Option<String>,
}
