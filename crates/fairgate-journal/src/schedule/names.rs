//! The names of modes, states and statuses that a scheduler's snapshot uses.

use fairgate_core::proportional::{AgentState, ProjectStatus, ScheduleMode, TaskStatus};

pub(super) const MODES: [(&str, ScheduleMode); 2] =
    [("classic", ScheduleMode::Classic), ("strict", ScheduleMode::Strict)];

pub(super) const PROJECT_STATUSES: [(&str, ProjectStatus); 3] =
    [named(ProjectStatus::Active), named(ProjectStatus::Paused), named(ProjectStatus::Archived)];

pub(super) const TASK_STATUSES: [(&str, TaskStatus); 9] = [
    ("DEFINED", TaskStatus::Defined),
    ("READY", TaskStatus::Ready),
    ("ASSIGNED", TaskStatus::Assigned),
    ("IN_PROGRESS", TaskStatus::InProgress),
    ("WAITING_INPUT", TaskStatus::WaitingInput),
    ("PAUSED", TaskStatus::Paused),
    ("COMPLETED", TaskStatus::Completed),
    ("FAILED", TaskStatus::Failed),
    ("BLOCKED", TaskStatus::Blocked),
];

pub(super) const AGENT_STATES: [(&str, AgentState); 5] = [
    ("IDLE", AgentState::Idle),
    ("BUSY", AgentState::Busy),
    ("PAUSED", AgentState::Paused),
    ("ERROR", AgentState::Error),
    ("RETIRED", AgentState::Retired),
];

const fn named(status: ProjectStatus) -> (&'static str, ProjectStatus) {
    (status_name(status), status)
}

/// Returns the name of a project's status in a snapshot.
pub(super) const fn status_name(status: ProjectStatus) -> &'static str {
    match status {
        ProjectStatus::Active => "ACTIVE",
        ProjectStatus::Paused => "PAUSED",
        ProjectStatus::Archived => "ARCHIVED",
    }
}

/// Returns the name of a value from one of the lists above, which have a name for every value.
pub(super) fn name_of<T: PartialEq, const N: usize>(
    names: [(&'static str, T); N],
    what: T,
) -> &'static str {
    names.into_iter().find(|(_, it)| *it == what).map_or("", |(name, _)| name)
}
