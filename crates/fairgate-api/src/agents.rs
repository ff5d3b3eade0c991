//! Bodies of the agents' API: an agent claims a task, sends heartbeats, and ends its claim.

use fairgate_time::UnixMicros;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::whole_number::JsonWholeNumber;

/// Claim of a task: the right of one agent to work on that task. It contains everything that the
/// agent needs to know.
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
    /// Instructions for the agent, up to 4 MiB. The results of needed tasks are already filled in
    /// for their fields.
    pub prompt: String,
    /// Results of the tasks that this task needs, ordered by name. Tasks without a result are left out.
    #[serde(default)]
    pub results: Vec<NeededResult>,
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
    /// Time at which the claim times out, in microseconds since 1970; absent if there is no
    /// timeout. The agent should have ended its work by then. The lease is renewed to at most one
    /// lease after this time.
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

/// Body of a call that claims a task.
#[derive(Clone, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimRequest {
    /// Time to wait for a task if there is none now, in seconds, at most 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 60, default = 0)]
    pub wait_s: Option<JsonWholeNumber>,
}

/// Body of a heartbeat, with which an agent shows that it still works on its task.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// Epoch of the claim, from the response to the claim.
    #[schema(value_type = u64, minimum = 0)]
    pub epoch: JsonWholeNumber,
    /// Current activity of the agent as text; truncated to 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// Total tokens that this claim has used so far. Ignored unless the agent was added with `reports_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub tokens: Option<JsonWholeNumber>,
}

/// Body of a call that completes a task.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// Epoch of the claim, from the response to the claim.
    #[schema(value_type = u64, minimum = 0)]
    pub epoch: JsonWholeNumber,
    /// Result of the task; at most 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1048576, pattern = "^([^\\x00]*[^\\s\\x00][^\\x00]*)?$")]
    pub result: Option<String>,
    /// Total tokens that this claim used. Ignored unless the agent was added with `reports_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub tokens: Option<JsonWholeNumber>,
}

/// Body of a call that ends a claim with a failure.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    /// Epoch of the claim, from the response to the claim.
    #[schema(value_type = u64, minimum = 0)]
    pub epoch: JsonWholeNumber,
    /// Reason for the failure; truncated to 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time at which a provider's limit ends, in microseconds since 1970. If given, the task waits until then, and the
    /// end of this claim does not count as a failure of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 253_402_300_799_999_999_i64)]
    pub limited_until: Option<JsonWholeNumber>,
    /// Total tokens that this claim used. Ignored unless the agent was added with `reports_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub tokens: Option<JsonWholeNumber>,
}

/// Body of a call that asks a person a question.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskRequest {
    /// Epoch of the claim, from the response to the claim.
    #[schema(value_type = u64, minimum = 0)]
    pub epoch: JsonWholeNumber,
    /// The question for a person; at most 16 KiB.
    #[schema(max_length = 16384, pattern = "^[^\\x00]*[^\\s\\x00][^\\x00]*$")]
    pub question: String,
    /// Total tokens that this claim used. Ignored unless the agent was added with `reports_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000_000_i64)]
    pub tokens: Option<JsonWholeNumber>,
}

/// Body of a call that gives a task back without a failure.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// Epoch of the claim, from the response to the claim.
    #[schema(value_type = u64, minimum = 0)]
    pub epoch: JsonWholeNumber,
    /// Reason for giving the task back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// If true, this agent cannot work on the task, for example because the workspace's folder is not on its machine. The
    /// task is not given to this agent again until a person acts on the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfit: bool,
}

/// Result of a call that appends to a log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = LogKept)]
pub struct LogKeptBody {
    /// Offset of the byte that is expected next, counted from the start of the claim's log.
    pub next_byte: u64,
}
