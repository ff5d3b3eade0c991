//! Overview of the whole fleet.

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::agent::AgentView;
use super::project::ProjectView;
use super::task::{TaskExplanation, TaskLine};

/// Overview of the whole fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FleetView {
    /// Time of this view, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub at: UnixMicros,
    /// Length of the rolling window, in seconds.
    pub window_s: u64,
    /// Budget of all projects together in the window, in tokens; no limit if absent.
    pub budget: Option<u64>,
    /// Tokens that all projects used in the window.
    pub used: u64,
    /// Tokens that are reserved for the running tasks and requests in flight of all projects, and not used yet.
    pub reserved: u64,
    /// Projects that are not archived, in the order of their creation, as in the list of projects.
    pub projects: Vec<ProjectView>,
    /// Tasks that agents hold, at most 1000. Tasks that have been held for the longest time come first.
    pub running: Vec<TaskLine>,
    /// Explanations of why the first ready tasks of each project wait, for at most 3 tasks per project and 60 in total.
    pub waiting: Vec<TaskExplanation>,
    /// Agents that are not retired, ordered by name.
    pub agents: Vec<AgentView>,
    /// Names of those agents that hold a task, wait for a task at this server, or were seen by any
    /// server within the last 75 seconds. A waiting agent sends a request at least once a minute.
    pub connected: Vec<String>,
}
