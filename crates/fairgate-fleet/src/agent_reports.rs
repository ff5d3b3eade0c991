//! Reports of agents about the tasks that they hold. The claim is passed separately.

use fairgate_time::UnixMicros;

/// Report that the agent still works on the task.
#[derive(Clone, Debug, Default)]
pub struct TaskHeartbeat {
    /// Current progress, shown to people; cut after 4 KiB.
    pub progress: Option<String>,
    /// Tokens that this claim used so far, in total. Ignored unless the agent was added with `reports_tokens`.
    pub tokens: Option<u64>,
}

/// Report that a task is completed.
#[derive(Clone, Debug, Default)]
pub struct TaskCompletion {
    /// Result of the task, for people and for tasks that need this one; at most 1 MiB.
    pub result: Option<String>,
    /// Tokens that this claim used, in total. Ignored unless the agent was added with `reports_tokens`.
    pub tokens: Option<u64>,
}

/// Report that a task failed.
#[derive(Clone, Debug, Default)]
pub struct TaskFailure {
    /// Reason for the failure, shown to people; cut after 4 KiB.
    pub reason: Option<String>,
    /// Time until which a provider refuses requests because of a limit, in microseconds since 1970.
    /// If set, the task waits until then, and no failure is counted.
    pub limited_until: Option<UnixMicros>,
    /// Tokens that this claim used, in total. Ignored unless the agent was added with `reports_tokens`.
    pub tokens: Option<u64>,
}

/// Question of an agent to an operator. The task waits for the answer, and the agent is free for other tasks.
#[derive(Clone, Debug)]
pub struct TaskQuestion {
    /// Text of the question; at most 16 KiB.
    pub question: String,
    /// Tokens that this claim used, in total. Ignored unless the agent was added with `reports_tokens`.
    pub tokens: Option<u64>,
}

/// Request of an agent to give its task back. No failure is counted.
#[derive(Clone, Debug, Default)]
pub struct TaskRelease {
    /// Reason for giving the task back, shown to people; cut after 4 KiB.
    pub reason: Option<String>,
    /// True if this agent cannot work on the task, for example because the workspace's folder is
    /// not on its machine. The agent does not get the task again until a person acts on the task.
    pub unfit: bool,
}
