//! Errors of the methods of [`crate::Fleet`].

use fairgate_store::StoreError;

use fairgate_api::fleet::{FleetAgentState, TaskState};

/// Error of a method of [`crate::Fleet`]. The method changed nothing, with one exception: a
/// heartbeat that reports a reached cap blocks the task, and returns [`FleetError::LeaseLost`].
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Nothing with this id exists.
    #[error("there is no {what} {id:?}")]
    NotFound {
        /// Kind of the missing thing: `project`, `task`, `agent`, `workspace` or `tenant`.
        what: &'static str,
        /// Id that was looked up.
        id: String,
    },
    /// Something of this kind with this id exists already.
    #[error("there is a {what} {id:?} already")]
    Exists {
        /// Kind of the existing thing: `project`, `task`, `agent` or `workspace`.
        what: &'static str,
        /// Id that is already in use.
        id: String,
    },
    /// The project, task, workspace or folder is in use, so nothing was changed.
    #[error("{what} {id:?} is in use: {by}")]
    InUse {
        /// Kind of the thing in use: `project`, `task`, `workspace` or `folder`.
        what: &'static str,
        /// Id of the thing in use.
        id: String,
        /// Description of what uses it, and of what the caller can do.
        by: String,
    },
    /// A field has an invalid value.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path of the field from the request's root, such as `tasks[3].needs[0]`.
        field: String,
        /// Explanation of the problem and of the values that are allowed.
        problem: String,
    },
    /// A field names something that does not exist.
    #[error("{field}: {problem}")]
    Unknown {
        /// Path of the field from the request's root, such as `tasks[3].needs[0]`.
        field: String,
        /// Description of the missing thing.
        problem: String,
    },
    /// A field names an archived project.
    #[error("{field}: project {project:?} is ARCHIVED; set its status to ACTIVE first")]
    Archived {
        /// Path of the field from the request's root, such as `tasks[3].project`.
        field: String,
        /// Id of the archived project.
        project: String,
    },
    /// The value of a field is a time in the past, but must be in the future.
    #[error("{field}: has passed; {hint}")]
    Passed {
        /// Name of the field with the time.
        field: &'static str,
        /// Advice on what to send instead.
        hint: &'static str,
    },
    /// The state machine does not allow this transition.
    #[error("task {task:?} is {from} and cannot become {to}: {hint}")]
    Transition {
        /// Id of the task.
        task: String,
        /// Current state of the task.
        from: TaskState,
        /// State that the call requested.
        to: TaskState,
        /// Advice on what to do instead.
        hint: String,
    },
    /// Tasks would wait for each other. Contains the ids of the tasks along the cycle; the last id equals the first.
    #[error("needs: these tasks would wait for each other: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// The agent no longer holds the task: its lease ran out, or the task was taken from it.
    #[error("task {task:?} is no longer yours: {why}")]
    LeaseLost {
        /// Id of the task.
        task: String,
        /// Explanation that names the current holder or the task's state.
        why: String,
    },
    /// The agent is paused, retired or missing, so it gets no task.
    #[error("agent {agent:?} {why}")]
    Agent {
        /// Id of the agent.
        agent: String,
        /// State of the agent at the time of the error; a missing agent counts as retired.
        state: FleetAgentState,
        /// End of the error message, which follows the agent's name, such as `is PAUSED`.
        why: String,
    },
    /// The database failed, or the store is closed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
