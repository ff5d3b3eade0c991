//! What may become of a task, an agent and a project.

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $state:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
        )]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum $name {
            $($(#[$of])* $state,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$state),*];

            /// Its name, as in the API and the database.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$state => $word,)*
                }
            }

            /// The one of this name.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|state| state.word() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

states! {
    /// Where a task stands.
    TaskState {
        /// It waits for other tasks.
        Defined = "DEFINED",
        /// It can start.
        Ready = "READY",
        /// An agent has it and has not begun.
        Assigned = "ASSIGNED",
        /// An agent works on it.
        InProgress = "IN_PROGRESS",
        /// Its agent asked a person something and gave it back until there is an answer.
        WaitingInput = "WAITING_INPUT",
        /// It is put aside until a moment, or until somebody resumes it.
        Paused = "PAUSED",
        /// It is done.
        Completed = "COMPLETED",
        /// It was cancelled, or gave up for good.
        Failed = "FAILED",
        /// It failed as often as it may. A person restarts or skips it.
        Blocked = "BLOCKED",
    }
}

states! {
    /// Whether an agent takes tasks.
    AgentState {
        /// It may.
        Active = "ACTIVE",
        /// Not until somebody resumes it.
        Paused = "PAUSED",
        /// It is gone for good; its token opens nothing.
        Retired = "RETIRED",
    }
}

states! {
    /// Whether a project takes part.
    ProjectStatus {
        /// It does.
        Active = "ACTIVE",
        /// Nothing new starts until somebody resumes it.
        Paused = "PAUSED",
        /// It is finished.
        Archived = "ARCHIVED",
    }
}

impl TaskState {
    /// Whether an agent holds it.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Assigned | Self::InProgress)
    }

    /// Whether nothing more becomes of it by itself.
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Whether a task may go from here to there.
    pub fn may_become(self, next: Self) -> bool {
        use TaskState::{
            Assigned, Blocked, Completed, Defined, Failed, InProgress, Paused, Ready, WaitingInput,
        };
        match self {
            Defined => matches!(next, Ready | Paused | Failed),
            Ready => matches!(next, Assigned | Paused | Failed | Defined),
            // Back to ready: released, or its lease ran out before it began.
            Assigned => matches!(
                next,
                InProgress | Ready | Paused | Blocked | Failed | Completed | WaitingInput
            ),
            InProgress => {
                matches!(next, Completed | Ready | Paused | WaitingInput | Blocked | Failed)
            }
            WaitingInput => matches!(next, Ready | Paused | Failed),
            Paused => matches!(next, Ready | Defined | Failed),
            // Restarted, or skipped.
            Blocked => matches!(next, Ready | Completed | Failed),
            Failed => matches!(next, Ready | Defined | Completed),
            Completed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each state, where a task may go from there.
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
            assert_eq!(TaskState::from_word(state.word()), Some(*state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        assert_eq!(TaskState::from_word("ready"), None);
    }
}
