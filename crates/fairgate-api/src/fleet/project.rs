//! Projects: the bodies that add and change them, and their view.

use std::collections::BTreeMap;

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema_names::{AgentKind, LabelSchema};
use super::share_weight::ProjectShareWeight;
use super::state::{FleetProjectStatus, TaskState};
use crate::rights::{self, RightsBody, RightsPatchBody};
use crate::whole_number;

/// Project to be added.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProject {
    /// Name of the project: 1 to 64 of `a`–`z`, `0`–`9`, `.`, `_` and `-`, beginning with a letter or digit.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    pub id: String,
    /// Tenant that owns the project. The requests of the project's tasks count against the tenant's budgets and share.
    #[schema(max_length = 512)]
    pub tenant: String,
    /// Weight of the project's share of the fleet's tokens; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1e15, multiple_of = 0.001, example = 3.0)]
    pub weight: Option<ProjectShareWeight>,
    /// Largest number of agents that may work for the project at once; 2 if absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
    /// If true, only one agent at a time may work for the project, whatever `concurrency` says.
    #[serde(default)]
    pub exclusive: bool,
    /// Largest number of agents of each type that may work for the project at once; no limit for types that are not
    /// named.
    #[serde(default, deserialize_with = "whole_number::map")]
    #[schema(value_type = BTreeMap<AgentKind, u32>)]
    pub agent_max: BTreeMap<String, u32>,
    /// Labels that an agent must have to work for the project, such as `docker` or `type:claude`; none if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<LabelSchema>, max_items = 32)]
    pub requires: Vec<String>,
    /// Budget of the project in the rolling window, in tokens; no limit if absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    pub budget: Option<u64>,
    /// Rights of the project's task keys. Without a stated right, they use the default class only,
    /// and get no leases or pins.
    #[serde(
        default,
        skip_serializing_if = "RightsPatchBody::is_empty",
        deserialize_with = "rights::object"
    )]
    #[schema(default = json!({}))]
    pub rights: RightsPatchBody,
}

/// Changes of a project. Absent fields stay as they are.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectPatch {
    /// New status: `ACTIVE`, `PAUSED` or `ARCHIVED`. A project cannot be archived while agents work for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<FleetProjectStatus>,
    /// New weight of the project's share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1e15, multiple_of = 0.001, example = 3.0)]
    pub weight: Option<ProjectShareWeight>,
    /// Largest number of agents that may work for the project at once.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1)]
    pub concurrency: Option<u32>,
    /// If true, only one agent at a time may work for the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<bool>,
    /// Largest number of agents of each type that may work for the project at once; replaces the whole map.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional_map"
    )]
    #[schema(value_type = Option<BTreeMap<AgentKind, u32>>)]
    pub agent_max: Option<BTreeMap<String, u32>>,
    /// Labels that an agent must have to work for the project; replaces the whole list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<LabelSchema>>, max_items = 32)]
    pub requires: Option<Vec<String>>,
    /// Budget of the project in the rolling window, in tokens; `null` for no limit.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::given"
    )]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    pub budget: Option<Option<u64>>,
    /// Changes of the rights of the project's task keys. They take effect for running tasks within
    /// two seconds.
    #[serde(
        default,
        skip_serializing_if = "RightsPatchBody::is_empty",
        deserialize_with = "rights::object"
    )]
    #[schema(default = json!({}))]
    pub rights: RightsPatchBody,
}

/// Project with its settings, usage and counts of tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProjectView {
    /// Name of the project.
    pub id: String,
    /// Name of the tenant that owns the project.
    pub tenant: String,
    /// Status of the project. Only tasks of an `ACTIVE` project start.
    pub status: FleetProjectStatus,
    /// Weight of the project's share of the fleet's tokens.
    pub weight: ProjectShareWeight,
    /// Largest number of agents that may work for the project at once.
    pub concurrency: u32,
    /// If true, only one agent at a time may work for the project.
    pub exclusive: bool,
    /// Largest number of agents of each type that may work for the project at once; no limit for types that are not
    /// named.
    pub agent_max: BTreeMap<String, u32>,
    /// Labels that an agent must have to work for the project.
    pub requires: Vec<String>,
    /// Budget of the project in the rolling window, in tokens; no limit if absent.
    pub budget: Option<u64>,
    /// Rights of the project's task keys.
    pub rights: RightsBody,
    /// Tokens that the project used in the rolling window. Tokens in the oldest 24th of the window
    /// count only in part, which falls linearly to 0.
    pub used: u64,
    /// Tokens that the project is charged for in the window. Each claim is charged the larger of
    /// its used tokens and the price of its agent's time, unless the configuration names one of the
    /// two. `got_share` is computed from this sum.
    pub charged: u64,
    /// Number of tasks that were completed in the window without a call through the gateway. Tasks of agents that report
    /// their tokens themselves do not count.
    pub completed_without_calls: u64,
    /// Tokens that are reserved for the project's running tasks and requests in flight, and not used yet.
    pub reserved: u64,
    /// Tokens that count as spent because the project was idle before it got work again. They fall
    /// to 0 within one window.
    pub baseline: u64,
    /// Expected usage of a task of the project, in tokens, learned from completed tasks; absent
    /// before the first completed task.
    pub learned_estimate: Option<u64>,
    /// Part of the tokens that the project is due by its weight, from 0 to 1, among all active projects; absent if the
    /// project is not active.
    pub due_share: Option<f64>,
    /// Share of the tokens that the project got, from 0 to 1: `charged` ÷ the sum of `charged` over
    /// all active projects. Absent if the project is not active, or if nothing was charged.
    pub got_share: Option<f64>,
    /// Former name of `got_share`, in parts per million.
    #[schema(deprecated)]
    pub share_ppm: Option<u64>,
    /// Former name of `due_share`, in parts per million.
    #[schema(deprecated)]
    pub target_ppm: Option<u64>,
    /// Number of the project's tasks in state `READY`.
    pub ready: u64,
    /// Number of the project's tasks that agents hold.
    pub running: u64,
    /// Number of the project's tasks in each state; states without tasks are left out.
    pub tasks: BTreeMap<TaskState, u64>,
    /// Time at which the project was added, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub created_at: UnixMicros,
}
