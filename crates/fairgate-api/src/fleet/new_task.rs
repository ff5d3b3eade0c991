//! Bodies with which clients add and change tasks and act on them.

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema_names::LabelSchema;
use super::task::TaskLine;
use super::task_money::TaskMoney;
use crate::{json_field, whole_number};

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
    /// Name of the task, unique among all tasks: up to 128 of the characters that a project's name
    /// may have. It may begin with its project's name and a colon; for a tenant's key or an agent's
    /// token, it must. If absent, a name such as `PROJECT-1` is generated. A task that already
    /// exists with the same content is left alone, so a file may be added twice.
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
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json_field::nullable"
    )]
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
