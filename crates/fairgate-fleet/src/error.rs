//! What can go wrong with the fleet.

use fairgate_store::StoreError;

use crate::state::{AgentState, TaskState};

/// Why the fleet did not do what it was asked. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// There is nothing of that name.
    #[error("there is no {what} {id:?}")]
    NotFound {
        /// `project`, `task`, `agent`, `workspace` or `tenant`.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// There is one of that name already.
    #[error("there is a {what} {id:?} already")]
    Exists {
        /// `project`, `task`, `agent` or `workspace`.
        what: &'static str,
        /// Its id.
        id: String,
    },
    /// It is in use.
    #[error("{what} {id:?} is in use: {by}")]
    InUse {
        /// `project`, `task`, `agent` or `workspace`.
        what: &'static str,
        /// Its id.
        id: String,
        /// By what.
        by: String,
    },
    /// A field has a value that it may not have.
    #[error("{field}: {problem}")]
    Invalid {
        /// The field, from the request's root: `tasks[3].needs[0]`.
        field: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// A field names something that is not there.
    #[error("{field}: {problem}")]
    Unknown {
        /// The field, from the request's root: `tasks[3].needs[0]`.
        field: String,
        /// What is not there.
        problem: String,
    },
    /// A field names a project that is finished.
    #[error("{field}: project {project:?} is ARCHIVED; set its status to ACTIVE first")]
    Archived {
        /// The field, from the request's root: `tasks[3].project`.
        field: String,
        /// The project.
        project: String,
    },
    /// A moment that must be to come has passed.
    #[error("{field}: has passed; {hint}")]
    Passed {
        /// The field.
        field: &'static str,
        /// What can be done instead.
        hint: &'static str,
    },
    /// A task cannot go from one state to the other.
    #[error("task {task:?} is {from} and cannot become {to}: {hint}")]
    Transition {
        /// The task.
        task: String,
        /// Where it stands.
        from: TaskState,
        /// Where it was to go.
        to: TaskState,
        /// What can be done instead.
        hint: String,
    },
    /// Tasks would wait for each other.
    #[error("needs: these tasks would wait for each other: {}", .0.join(" → "))]
    Cycle(Vec<String>),
    /// The agent does not hold the task any more: its lease ran out or was taken from it.
    #[error("task {task:?} is no longer yours: {why}")]
    LeaseLost {
        /// The task.
        task: String,
        /// Who has it now, or what became of it.
        why: String,
    },
    /// The agent may not do this now.
    #[error("agent {agent:?} {why}")]
    Agent {
        /// The agent.
        agent: String,
        /// Its state, which is what forbids it.
        state: AgentState,
        /// Why.
        why: String,
    },
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}
