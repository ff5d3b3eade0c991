//! Views of tasks, and the explanation of a task's state.

use std::collections::BTreeMap;

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::state::TaskState;
use super::task_money::TaskMoney;

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
    /// Reason for the state, for people; absent if the state needs no reason.
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
    /// Number of times in a row that an agent postponed the task, because of a limit or because
    /// something is not there yet. Limits that the gateway saw are not counted.
    pub put_offs: u32,
    /// Number of requests that agents sent through the gateway for the task.
    pub calls: u64,
    /// Tokens that the task was charged for in its project's share: for each claim, its used
    /// tokens, or the price of its agent's time if that is more. For an active claim, only the
    /// tokens count.
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
