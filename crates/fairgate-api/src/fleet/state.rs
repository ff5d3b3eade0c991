//! States of tasks, agents and projects, and the state machine of a task.

use serde::{Deserialize, Serialize};
use strum::VariantArray as _;

/// State of a task.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    utoipa::ToSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskState {
    /// The task waits for other tasks.
    Defined,
    /// The task waits for an agent, and needs no further task to be completed.
    Ready,
    /// An agent holds the task and has not begun.
    Assigned,
    /// An agent works on the task.
    InProgress,
    /// The agent asked an operator a question and gave the task back. The task becomes READY when the operator
    /// answers.
    WaitingInput,
    /// The task is paused until a given time, or until a person resumes it.
    Paused,
    /// The task is done, or was skipped.
    Completed,
    /// The task was cancelled.
    Failed,
    /// The task failed and has no retries left, so it waits until an operator restarts or skips it.
    Blocked,
}

/// State of an agent.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    utoipa::ToSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum FleetAgentState {
    /// The agent gets tasks.
    Active,
    /// The agent gets no new tasks until a person resumes the agent.
    Paused,
    /// The agent is removed for ever; its token no longer works.
    Retired,
}

/// Status of a project.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
    utoipa::ToSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum FleetProjectStatus {
    /// The project's tasks may start.
    Active,
    /// No task of the project starts until a person resumes the project.
    Paused,
    /// The project is finished, and no tasks can be added to it.
    Archived,
}

impl TaskState {
    /// All values, in the order of their declaration.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the name of the value in the API and the database.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns whether an agent holds a task in this state.
    pub fn is_held(self) -> bool {
        fairgate_usage::is_held(self.word())
    }

    /// Returns whether a task in this state is completed or cancelled.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Returns whether the state machine allows the transition from this state to `next`.
    pub fn may_become(self, next: Self) -> bool {
        use TaskState::{
            Assigned, Blocked, Completed, Defined, Failed, InProgress, Paused, Ready, WaitingInput,
        };
        match self {
            Defined => matches!(next, Ready | Paused | Failed),
            Ready => matches!(next, Assigned | Paused | Failed | Defined),
            // An assigned task becomes READY if it is released, its agent is retired, or the lease
            // ends early.
            Assigned => matches!(
                next,
                InProgress | Ready | Paused | Blocked | Failed | Completed | WaitingInput
            ),
            InProgress => {
                matches!(next, Completed | Ready | Paused | WaitingInput | Blocked | Failed)
            }
            WaitingInput => matches!(next, Ready | Paused | Failed),
            Paused => matches!(next, Ready | Defined | Failed),
            // Restarted, skipped or cancelled.
            Blocked => matches!(next, Ready | Completed | Failed),
            Failed => matches!(next, Ready | Defined | Completed),
            Completed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Allowed transitions of each state, one state per line.
    const TABLE: &str = "\
        DEFINED: READY PAUSED FAILED
        READY: DEFINED ASSIGNED PAUSED FAILED
        ASSIGNED: READY IN_PROGRESS WAITING_INPUT PAUSED COMPLETED FAILED BLOCKED
        IN_PROGRESS: READY WAITING_INPUT PAUSED COMPLETED FAILED BLOCKED
        WAITING_INPUT: READY PAUSED FAILED
        PAUSED: DEFINED READY FAILED
        COMPLETED:
        FAILED: DEFINED READY COMPLETED
        BLOCKED: READY COMPLETED FAILED";

    #[test]
    fn tasks_go_where_the_table_says() {
        let line = |from: &TaskState| {
            let next = TaskState::ALL.iter().filter(|next| from.may_become(**next));
            next.fold(format!("{from}:"), |line, next| format!("{line} {next}"))
        };
        let found: Vec<_> = TaskState::ALL.iter().map(line).collect();
        let expected: Vec<_> = TABLE.lines().map(str::trim).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_are_read_back() {
        for state in TaskState::ALL {
            assert_eq!(state.word().parse(), Ok(*state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        assert!("ready".parse::<TaskState>().is_err());
    }
}
