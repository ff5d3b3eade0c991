//! Types of the fleet's API: the bodies that clients send, and the views that they get.

use std::collections::BTreeMap;
use std::fmt;

use fairgate_core::proportional::CreditWeight;
use fairgate_money::MicroUnits;
use fairgate_store::KeyRights;
use fairgate_time::UnixMicros;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::agent_access;
use crate::rights_body::{self, RightsBody, RightsPatchBody};
use crate::state::{FleetAgentState, FleetProjectStatus, TaskState};
use crate::whole_number;

/// Weight of a project relative to the other projects: 0.001 to 10^15, with at most three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = f64, minimum = 0.001, example = 3.0)]
pub struct ProjectShareWeight(pub CreditWeight);

impl fmt::Display for ProjectShareWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ProjectShareWeight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: serde_json::Number =
            self.0.to_string().parse().map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ProjectShareWeight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let exact: Result<Self, String> = number.to_string().parse();
        // A computed number may be slightly off: 0.30000000000000004.
        let near = |number: f64| {
            let text = format!("{number:.3}");
            let off = text.parse::<f64>().ok()? - number;
            (off.abs() <= number * 1e-12).then(|| text.parse().ok())?
        };
        exact
            .or_else(|problem| number.as_f64().and_then(near).ok_or(problem))
            .map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for ProjectShareWeight {
    type Err = String;

    /// Parses a decimal number exactly, without going through a float.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text} is no weight: a number from 0.001 to 1000000000000000 with at most three decimals"
            )
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let part = part.trim_end_matches('0');
        if whole.is_empty() || !is_digits(whole) || !is_digits(part) || part.len() > 3 {
            return Err(wrong());
        }
        let thousandths = format!("{whole}{part:0<3}").parse().map_err(|_| wrong())?;
        CreditWeight::from_thousandths(thousandths).map(Self).map_err(|_| wrong())
    }
}

/// Amount of money as a decimal text, such as `"50"` or `"0.25"`: below 1000000000, with at most six places. A number
/// would be read as a float by many clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$", example = "2.50")]
pub struct TaskMoney(pub MicroUnits);

impl TaskMoney {
    /// Largest amount: just below 10⁹ units of the currency.
    const LARGEST: MicroUnits = MicroUnits(999_999_999_999_999);
}

impl std::str::FromStr for TaskMoney {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let amount = MicroUnits::parse(text).filter(|amount| *amount <= Self::LARGEST);
        amount.map(Self).ok_or_else(|| {
            "must be an amount of money such as \"50\" or \"0.25\": below 1000000000, with at most six places"
                .to_owned()
        })
    }
}

impl Serialize for TaskMoney {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TaskMoney {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Deserializes an amount in a field that may be absent or null.
fn given_money<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<TaskMoney>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A label that a tenant, project or task requires, such as `docker` or `machine:m1`: a name, optionally after a name and a colon.
#[derive(Clone, Debug, ToSchema)]
#[schema(
    value_type = String,
    min_length = 1,
    max_length = 129,
    pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"
)]
pub struct LabelSchema(pub String);

/// A label of an agent. The label `type:TYPE` follows from the agent's type and cannot be given.
#[derive(Clone, Debug, ToSchema)]
#[schema(
    value_type = String,
    min_length = 1,
    max_length = 129,
    pattern = "^(?!type:)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"
)]
pub struct AgentLabelSchema(pub String);

/// Type of an agent, as a key of a JSON object: 1 to 64 of `a`–`z`, `0`–`9`, `.`, `_` and `-`.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
pub struct AgentKind(pub String);

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
    /// Rights of the project's task keys. What is absent is closed: the default class, and no leases or pins.
    #[serde(
        default,
        skip_serializing_if = "RightsPatchBody::is_empty",
        deserialize_with = "rights_body::object"
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
    pub status: Option<ProjectStatusWord>,
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
    /// Rights of the project's task keys to change. They hold for running tasks within two seconds.
    #[serde(
        default,
        skip_serializing_if = "RightsPatchBody::is_empty",
        deserialize_with = "rights_body::object"
    )]
    #[schema(default = json!({}))]
    pub rights: RightsPatchBody,
}

/// Status of a project: `ACTIVE`, `PAUSED` or `ARCHIVED`.
pub type ProjectStatusWord = FleetProjectStatus;

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
    /// Tokens that the project used in the rolling window. The tokens of the oldest 24th of the window fade linearly.
    pub used: u64,
    /// Tokens that the project is charged for in the window: for each claim, the tokens that it used or the price of its
    /// agent's time, whichever is more, unless the fleet counts one of them alone. The share is computed from it.
    pub charged: u64,
    /// Number of tasks that were completed in the window without a call through the gateway. Tasks of agents that report
    /// their tokens themselves do not count.
    pub completed_without_calls: u64,
    /// Tokens that are reserved for the project's running tasks and requests in flight, and not used yet.
    pub reserved: u64,
    /// Tokens that count as spent because the project was idle before it got work again. They fade within one window.
    pub baseline: u64,
    /// Expected usage of one of the project's tasks, in tokens, learned from its completed tasks; absent before the
    /// first.
    pub learned_estimate: Option<u64>,
    /// Tokens that this project is charged for in the window, in parts per million of what all active projects are
    /// charged for; absent if the project is not active or if nothing was charged.
    pub share_ppm: Option<u64>,
    /// Weight of this project in parts per million of the weights of all active projects, which is the share of tokens
    /// that it is due; absent if the project is not active.
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

/// Tasks to be added. Either all of them are added, or none.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTasks {
    /// Tasks to add. The `needs` of a task may name other tasks of this list, in any order, and existing tasks.
    #[schema(min_items = 1, max_items = 10000)]
    pub tasks: Vec<NewTask>,
    /// If true, the tasks are checked and returned as they would be added, but nothing is added.
    #[serde(default)]
    pub dry_run: bool,
}

/// Task to be added.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTask {
    /// Name of the task, unique among all tasks. It has up to 128 of the characters that a project's name may have, and may
    /// begin with its project's name and a colon; with a tenant's key it must. If absent, a name such as `PROJECT-1` is
    /// generated. A task that exists already with the same content is left alone,
    /// so that a file may be added twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        min_length = 1,
        max_length = 128,
        pattern = "^([A-Za-z0-9][A-Za-z0-9._-]{0,63}:)?[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
    )]
    pub id: Option<String>,
    /// Name of the project that owns the task.
    #[schema(max_length = 128)]
    pub project: String,
    /// Title of one line, for people; the prompt's first line if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    pub title: Option<String>,
    /// Instructions for the agent; at most 1 MiB. A field such as `{{results.schema}}` stands for the result of the task
    /// `schema`, which must be in `needs`.
    #[schema(max_length = 1048576, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub prompt: String,
    /// Priority among the tasks of the project; 100 if absent. Tasks with a lower number start first.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    pub priority: Option<i64>,
    /// Names of the tasks that must be completed before this task can start.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub needs: Vec<String>,
    /// Expected usage of the task, in tokens. If absent, it is learned from the project's completed tasks.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub estimate: Option<u64>,
    /// Largest number of retries after failures; 3 if absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 0, maximum = 1000)]
    pub retries: Option<u32>,
    /// Longest time from a claim of the task to its end, in seconds; no limit if absent. A claim that takes longer is
    /// ended, and this counts as a failure.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1, maximum = 2_592_000)]
    pub timeout_s: Option<u32>,
    /// Most tokens that the task may use over all its claims; no limit if absent. Calls beyond it are refused.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 1, maximum = 1_000_000_000_000_i64)]
    pub tokens_max: Option<u64>,
    /// Most money that the task may cost over all its claims, as a decimal text in the installation's currency; no limit
    /// if absent. Calls beyond it are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money_max: Option<TaskMoney>,
    /// Earliest time at which the task may start, in microseconds since 1970.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::moment"
    )]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 253_402_300_799_999_999_i64)]
    pub resume_after: Option<UnixMicros>,
    /// Name of the workspace that the task must run in. If absent, the task may run in any workspace of its project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub workspace: Option<String>,
    /// Labels that an agent must have to get the task, on top of those that its project and tenant require; none if
    /// absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<LabelSchema>, max_items = 32)]
    pub requires: Vec<String>,
    /// Name of the agent for which the task is kept for a while before any other agent may take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 128)]
    pub affinity: Option<String>,
    /// Time for which the task is kept for the agent that `affinity` names, in seconds; 120 if absent. After that any
    /// agent may take the task.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    pub affinity_wait_s: Option<u32>,
}

/// Result of adding tasks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AddedTasks {
    /// Tasks that were added, or that would have been added without `dry_run`, in the order of the request.
    pub added: Vec<TaskLine>,
    /// Names of the tasks that existed already with the same content.
    pub unchanged: Vec<String>,
    /// If true, nothing was added because the request asked for a dry run.
    pub dry_run: bool,
    /// Projects of the added tasks for which no active agent may work, because none has the labels that the project
    /// requires or because all are limited to other tenants. Empty as long as there are no agents.
    #[serde(default)]
    pub unmatched: Vec<String>,
    /// Added tasks that no active agent may take, although some may work for their projects: none has the labels that the
    /// task requires, or runs on the machine of its workspace.
    #[serde(default)]
    pub unmatched_tasks: Vec<String>,
}

/// Changes of a task that no agent holds and that is not completed. Absent fields stay as they are.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskPatch {
    /// Title of one line, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        max_length = 512,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*[^\\s\\x00-\\x1f\\x7f-\\x9f][^\\x00-\\x1f\\x7f-\\x9f]*$"
    )]
    pub title: Option<String>,
    /// Instructions for the agent; at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1048576, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub prompt: Option<String>,
    /// Priority among the tasks of the project. Tasks with a lower number start first.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    pub priority: Option<i64>,
    /// Expected usage of the task, in tokens.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub estimate: Option<u64>,
    /// Largest number of retries after failures.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::optional"
    )]
    #[schema(minimum = 0, maximum = 1000)]
    pub retries: Option<u32>,
    /// Longest time from a claim of the task to its end, in seconds; `null` for no limit.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::given"
    )]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 2_592_000)]
    pub timeout_s: Option<Option<u64>>,
    /// Most tokens that the task may use over all its claims; `null` for no limit.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "whole_number::given"
    )]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 1_000_000_000_000_i64)]
    pub tokens_max: Option<Option<u64>>,
    /// Most money that the task may cost over all its claims, as a decimal text; `null` for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given_money")]
    #[schema(value_type = Option<TaskMoney>)]
    pub money_max: Option<Option<TaskMoney>>,
    /// Labels that an agent must have to get the task; replaces the whole list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<LabelSchema>>, max_items = 32)]
    pub requires: Option<Vec<String>>,
}

/// Action of an operator on a task.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub enum TaskAction {
    /// Cancels the task. The task becomes `FAILED`, and an agent that holds the task loses its claim.
    Cancel {
        /// Reason for the cancellation, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Pauses the task. An agent that holds the task loses its claim.
    Pause {
        /// End of the pause, in microseconds since 1970; if absent, the task is paused until it is resumed.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "whole_number::moment"
        )]
        #[schema(value_type = Option<i64>, minimum = 0, maximum = 253_402_300_799_999_999_i64)]
        until: Option<UnixMicros>,
        /// Reason for the pause, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Resumes a paused task.
    Resume,
    /// Restarts a blocked or failed task, which again has all of its retries.
    Restart,
    /// Marks a blocked or failed task as completed, so that the tasks that need it can start.
    Skip {
        /// Reason for skipping the task, for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Answers the question of the task's agent.
    Answer {
        /// Text of the answer; at most 64 KiB.
        #[schema(max_length = 65536, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
        text: String,
    },
}

/// Task as a list shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskLine {
    /// Name of the task.
    pub id: String,
    /// Name of the project that owns the task.
    pub project: String,
    /// Title of one line, for people.
    pub title: String,
    /// Current state of the task.
    pub state: TaskState,
    /// Reason for the state, for people; absent if the state speaks for itself.
    pub reason: Option<String>,
    /// Priority among the tasks of the project. Tasks with a lower number start first.
    pub priority: i64,
    /// Name of the agent that holds the task, or that held the task last.
    pub agent: Option<String>,
    /// Expected usage of the task, in tokens. This is the task's own estimate, else the estimate that its project
    /// learned, else the fleet's default.
    pub estimate: u64,
    /// Tokens that the task has used, over all its claims.
    pub used: u64,
    /// Number of retries of the task so far.
    pub retries: u32,
    /// Largest number of retries of the task. After that many retries, the next failure blocks the task.
    pub retries_max: u32,
    /// Earliest time at which the task may start, in microseconds since 1970. For a task that an agent holds, this is
    /// the time until which a provider's limit stops the task's requests.
    #[schema(value_type = Option<i64>)]
    pub resume_after: Option<UnixMicros>,
    /// Time at which the task was added, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub created_at: UnixMicros,
    /// Time at which the task was completed or cancelled, in microseconds since 1970.
    #[schema(value_type = Option<i64>)]
    pub ended_at: Option<UnixMicros>,
}

/// Task with all its fields, its dependencies and its history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// Fields that a list of tasks shows, too.
    #[serde(flatten)]
    pub line: TaskLine,
    /// Instructions for the agent.
    pub prompt: String,
    /// Tasks that must be completed before this task can start, with their states.
    pub needs: BTreeMap<String, TaskState>,
    /// Open tasks that need this task, directly or through other tasks; empty once this task is completed. At most 1000
    /// are listed, the nearest first.
    pub needed_by: Vec<String>,
    /// Name of the workspace that the task must run in; absent if the task may run in any workspace of its project.
    pub workspace: Option<String>,
    /// Labels that an agent must have to get the task, on top of those that its project and tenant require.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Name of the workspace that the task holds now; absent if it holds none.
    pub in_workspace: Option<String>,
    /// Name of the agent for which the task is kept for a while before any other agent may take it.
    pub affinity: Option<String>,
    /// Number of claims of the task so far, which is also the epoch of its latest claim.
    pub epoch: u64,
    /// Time at which the claim's lease ends unless a heartbeat renews it, in microseconds since 1970.
    #[schema(value_type = Option<i64>)]
    pub lease_until: Option<UnixMicros>,
    /// Longest time from a claim of the task to its end, in seconds; no limit if absent.
    pub timeout_s: Option<u64>,
    /// Most tokens that the task may use over all its claims; no limit if absent.
    pub tokens_max: Option<u64>,
    /// Most money that the task may cost over all its claims; no limit if absent.
    pub money_max: Option<TaskMoney>,
    /// Money that the task's requests through the gateway have cost, over all its claims; 0 for models without a price.
    pub money: TaskMoney,
    /// Number of times in a row that the task's agent put it off, because of a limit or for something that is not there
    /// yet. Limits that the gateway saw are not counted.
    pub put_offs: u32,
    /// Number of requests that agents sent through the gateway for the task.
    pub calls: u64,
    /// Tokens that the task was charged for in its project's share: its used tokens, or the price of its agents' time if
    /// that is more. Of a claim that goes on, only the tokens count so far.
    pub charged: u64,
    /// Time for which agents held the task in claims that ended, in milliseconds, without waits for a provider's limit
    /// or an outage.
    pub agent_ms: u64,
    /// Latest progress that the agent reported.
    pub progress: Option<String>,
    /// Latest question of the agent.
    pub question: Option<String>,
    /// Operator's answer to the question.
    pub answer: Option<String>,
    /// Result that the agent reported on completion.
    pub result: Option<String>,
    /// Last 200 changes of the task's state, oldest first.
    pub history: Vec<TaskStep>,
}

/// One change of a task's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskStep {
    /// Time of the change, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub at: UnixMicros,
    /// State before the change.
    pub from: TaskState,
    /// State after the change.
    pub to: TaskState,
    /// Epoch of the task's latest claim at the time of the change.
    pub epoch: u64,
    /// Actor of the change: `agent:NAME`, `admin`, `admin:NAME`, `tenant:NAME`, or `fleet`.
    pub actor: String,
    /// Reason for the change, for people.
    pub reason: Option<String>,
}

/// Filter of a list of tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    /// Lists only tasks of this project.
    pub project: Option<String>,
    /// Lists only tasks in these states; lists tasks in all states if empty.
    pub states: Vec<TaskState>,
    /// Lists only tasks of this tenant's projects.
    pub tenant: Option<String>,
    /// Lists only tasks that come after the task with this name.
    pub after: Option<String>,
    /// Largest number of tasks to list, up to 1001; 0 means 100.
    pub limit: u32,
}

/// Explanation of why a task is in its state, as one sentence and the numbers behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskExplanation {
    /// Name of the task.
    pub task: String,
    /// Current state of the task.
    pub state: TaskState,
    /// Explanation in one sentence, for people.
    pub sentence: String,
    /// Stable code for programs, such as `needs`, `project_budget`, `no_agent`, `behind_others`.
    pub code: String,
    /// Numbers and names behind the sentence, the most important first.
    pub facts: Vec<ExplanationFact>,
}

/// One number or name behind an explanation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplanationFact {
    /// Label of the number or name, for people, such as `project's share`.
    pub name: String,
    /// Value with its unit, for people, such as `61.2 %`.
    pub value: String,
}

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
    /// Labels of the agent, such as `docker` or `machine:m1`: names, optionally after a name and a colon. The agent has
    /// the label `type:TYPE` in any case. A project may require labels.
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
    /// Tenants for which the agent may work; `null` for all. A task that the agent holds goes on.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "agent_access::given_tenants"
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
    /// Name of the machine that has the folder; every machine if absent. Only agents with the label `machine:NAME` work in
    /// the workspace then.
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

/// Claim of a task, which is the right of one agent to work on it, with everything that the agent needs to know.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Claim {
    /// Name of the task.
    pub task: String,
    /// Name of the project that owns the task.
    pub project: String,
    /// Name of the tenant that owns the project.
    pub tenant: String,
    /// Number of this claim of the task. The agent sends this number with each of its reports about the task.
    pub epoch: u64,
    /// Title of one line, for people.
    pub title: String,
    /// Instructions for the agent, with the results of needed tasks in place of their fields, up to 4 MiB.
    pub prompt: String,
    /// Results of the tasks that this task needs, ordered by name. Tasks without a result are left out.
    #[serde(default)]
    pub results: Vec<NeededResult>,
    /// True if the task needs other tasks, so that it may have results.
    #[serde(skip)]
    pub has_needs: bool,
    /// Question that an agent asked earlier, if the task waited for an answer.
    pub question: Option<String>,
    /// Operator's answer to `question`.
    pub answer: Option<String>,
    /// Name of the workspace that only this task may use now; absent if the project has no workspaces.
    pub workspace: Option<String>,
    /// Path of `workspace` on the agents' machines.
    pub workspace_path: Option<String>,
    /// Tokens that are reserved for the task.
    pub reserved: u64,
    /// Task key with which the agent sends requests through the gateway; valid until the claim ends. Absent for agents
    /// that report their usage themselves.
    pub key: Option<String>,
    /// Time at which the claim's lease ends unless a heartbeat renews it, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub lease_until: UnixMicros,
    /// Interval at which the agent should send heartbeats, in seconds.
    pub heartbeat_s: u32,
    /// Longest time from the claim to its end, in seconds; no limit if absent.
    #[serde(default)]
    pub timeout_s: Option<u64>,
    /// Time at which the claim's timeout is over, in microseconds since 1970; absent if there is none. The agent should
    /// have ended its work by then. The lease is renewed to at most one lease after this time.
    #[serde(default)]
    #[schema(value_type = Option<i64>)]
    pub timeout_at: Option<UnixMicros>,
}

/// Result of a task that another task needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NeededResult {
    /// Name of the task that has the result.
    pub task: String,
    /// Length of the result in bytes.
    pub bytes: u64,
}

/// Report of an agent that it still works on the task.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskHeartbeatBody {
    /// Current progress, for people; cut after 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Tokens that this claim used so far, in total. Ignored unless the agent was added with `reports_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// Answer to a heartbeat, with the renewed lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskLeaseBody {
    /// End of the renewed lease, in microseconds since 1970.
    #[schema(value_type = i64)]
    pub lease_until: UnixMicros,
    /// Tokens that the claim used so far.
    pub used: u64,
    /// Tokens that are reserved for the task.
    pub reserved: u64,
}

/// Report of an agent that a task is completed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskCompletionBody {
    /// Result of the task, for people and for the tasks that need it; at most 1 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Tokens that this claim used, in total. Ignored unless the agent was added with `reports_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// Report of an agent that a task failed.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskFailureBody {
    /// Reason for the failure, for people; cut after 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time until which a provider refuses requests because a limit is reached, in microseconds since 1970. If set, the
    /// task waits until then, and no failure is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>)]
    pub limited_until: Option<UnixMicros>,
    /// Tokens that this claim used, in total. Ignored unless the agent was added with `reports_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// Question of an agent to an operator. The task waits for the answer, and the agent is free for other tasks.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskQuestionBody {
    /// Text of the question; at most 16 KiB.
    pub question: String,
    /// Tokens that this claim used, in total. Ignored unless the agent was added with `reports_tokens`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

/// Request of an agent to give its task back. No failure is counted.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskReleaseBody {
    /// Reason for giving the task back, for people; cut after 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// If true, this agent cannot work on the task, for example because the workspace's folder is not on its machine. The
    /// task is not given to this agent again until a person acts on the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
}

/// Part of the log of a claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    /// Epoch of the claim that wrote the log.
    pub epoch: u64,
    /// Number of the first byte of this page. The first byte of the claim's log has the number 0.
    pub first_byte: u64,
    /// Number of the byte after this page, at which the next page begins.
    pub next_byte: u64,
    /// Number of bytes that are missing at the beginning of the log, because they were dropped or never sent.
    pub dropped_bytes: u64,
    /// Text of the page; bytes that are not valid UTF-8 are replaced.
    pub text: String,
    /// If true, the claim is over. The claim's agent may still append its last output.
    pub ended: bool,
}

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
    /// Names of those agents that hold a task, wait for one at this server, or were seen by any server within the last 75
    /// seconds. An agent that waits asks at least once a minute.
    pub connected: Vec<String>,
}

/// Claim that a task key belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskKey {
    /// Name of the tenant that owns the project.
    pub tenant: String,
    /// Name of the project that owns the task.
    pub project: String,
    /// Name of the task that is claimed.
    pub task: String,
    /// Number of the task's claim, counted from 1.
    pub epoch: u64,
    /// Name of the agent that holds the task.
    pub agent: String,
    /// Rights of the project.
    pub rights: KeyRights,
    /// True if the task has a cap in money.
    pub has_money_max: bool,
}
