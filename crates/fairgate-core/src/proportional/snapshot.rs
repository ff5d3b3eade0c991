//! The input of the proportional scheduler as plain data, which is checked once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::units::{OutOfRangeError, Tokens};

/// The algorithm by which the scheduler assigns tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScheduleMode {
    /// The published algorithm. Between two assignments it updates only the numbers of agents and the assigned tasks.
    #[default]
    Classic,
    /// Our extension, which charges every assignment at once. So the limits on shares, budgets and workspaces hold for
    /// all assignments of one call together.
    Strict,
}

/// Weight of a project's share, relative to the other projects, from 0.001 to 10^15. Stored in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreditWeight(u64);

impl CreditWeight {
    /// The weight of a project that states none, which is 1.0.
    pub const ONE: Self = Self(1000);
    /// The greatest weight, which is 10^15.
    pub const MAX: Self = Self(1_000_000_000_000_000_000);

    /// Creates a weight from thousandths; fails if the value is not from 1 to 10^18.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, OutOfRangeError> {
        if (1..=Self::MAX.0).contains(&thousandths) {
            Ok(Self(thousandths))
        } else {
            Err(OutOfRangeError { allowed: "0.001 to 1000000000000000" })
        }
    }

    /// Returns the weight in thousandths.
    pub fn thousandths(self) -> u64 {
        self.0
    }
}

impl Default for CreditWeight {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for CreditWeight {
    /// Writes the weight as a decimal without needless zeros: `3`, `0.5`, `5.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1000, self.0 % 1000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0'))
    }
}

/// The status of a project. Only projects that are [`ProjectStatus::Active`] get agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectStatus {
    /// The project competes for agents.
    #[default]
    Active,
    /// The project gets no agents until somebody resumes it.
    Paused,
    /// The project is finished.
    Archived,
}

/// The status of a task. Only tasks that are [`TaskStatus::Ready`] can be assigned to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// The task waits for other tasks.
    Defined,
    /// The task can start.
    Ready,
    /// An agent has the task but has not begun to work on it.
    Assigned,
    /// An agent works on the task.
    InProgress,
    /// The task waits for an answer to a question that its agent asked.
    WaitingInput,
    /// Somebody has paused the task.
    Paused,
    /// The task is done.
    Completed,
    /// The task has failed.
    Failed,
    /// The task cannot continue without help.
    Blocked,
}

/// The state of an agent. Only agents that are [`AgentState::Idle`] get tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// The agent has no task and can take one.
    Idle,
    /// The agent works on a task.
    Busy,
    /// Somebody has paused the agent.
    Paused,
    /// The agent has failed.
    Error,
    /// The agent has left and does not return.
    Retired,
}

/// A project, which owns tasks and has a share of the agents' work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledProject {
    /// Id of the project; unique among projects.
    pub id: Box<str>,
    /// Status of the project; only active projects get agents.
    pub status: ProjectStatus,
    /// Weight of the project's share, relative to the other projects.
    pub credit_weight: CreditWeight,
    /// Greatest number of agents that may work for the project at once.
    pub max_concurrent_agents: u64,
    /// Tokens that the project may spend in the window; no limit if absent.
    pub budget_limit: Option<Tokens>,
}

impl ScheduledProject {
    /// Greatest number of concurrent agents of a project that states none.
    pub const DEFAULT_MAX_CONCURRENT_AGENTS: u64 = 2;

    /// Creates an active project of weight 1.0, for at most two agents, without a budget.
    pub fn new(id: impl Into<Box<str>>) -> Self {
        Self {
            id: id.into(),
            status: ProjectStatus::default(),
            credit_weight: CreditWeight::ONE,
            max_concurrent_agents: Self::DEFAULT_MAX_CONCURRENT_AGENTS,
            budget_limit: None,
        }
    }
}

/// A task, which is work that one agent does for one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledTask {
    /// Id of the task; unique among tasks.
    pub id: Box<str>,
    /// Id of the project that the task belongs to.
    pub project_id: Box<str>,
    /// Status of the task; only ready tasks can be assigned.
    pub status: TaskStatus,
    /// Priority among the tasks of the project; the task with the lower number goes first.
    pub priority: i64,
    /// Creation time, on any clock that counts up. In strict mode, the task with the lower time goes first among tasks
    /// of equal priority.
    pub created: i64,
    /// Tokens that the task is expected to use; [`ScheduleSnapshotParts::default_estimated_tokens`] if absent.
    pub estimated_tokens: Option<Tokens>,
    /// Id of the workspace in which the task must run; any workspace if absent.
    pub preferred_workspace_id: Option<Box<str>>,
}

impl ScheduledTask {
    /// The priority of a task that states none.
    pub const DEFAULT_PRIORITY: i64 = 100;

    /// Creates a ready task of this project, with defaults for everything else.
    pub fn ready(id: impl Into<Box<str>>, project_id: impl Into<Box<str>>) -> Self {
        Self {
            id: id.into(),
            project_id: project_id.into(),
            status: TaskStatus::Ready,
            priority: Self::DEFAULT_PRIORITY,
            created: 0,
            estimated_tokens: None,
            preferred_workspace_id: None,
        }
    }
}

/// An agent, which is a program that works on tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledAgent {
    /// Id of the agent; unique among agents.
    pub id: Box<str>,
    /// State of the agent; only idle agents get tasks.
    pub state: AgentState,
}

impl ScheduledAgent {
    /// Creates an agent that can take a task.
    pub fn idle(id: impl Into<Box<str>>) -> Self {
        Self { id: id.into(), state: AgentState::Idle }
    }
}

/// A snapshot before it is checked. The names are those of agent-queue's page. The "window" is the rolling span of time
/// over which the caller counts usage and completions.
///
/// A map may name projects that are not listed. Such projects get no agents. But in classic mode their usage is part of
/// the total usage, and in strict mode their reservations count against the global budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSnapshotParts {
    /// The algorithm by which tasks are assigned.
    pub mode: ScheduleMode,
    /// True if a project that completed no task in the window goes before the projects that did.
    pub min_task_guarantee: bool,
    /// Tokens that a task is expected to use if it states no estimate; strict mode only.
    pub default_estimated_tokens: Tokens,
    /// The projects. If two have equal gaps, the one listed first goes first.
    pub projects: Vec<ScheduledProject>,
    /// The tasks, in any order.
    pub tasks: Vec<ScheduledTask>,
    /// The agents. Idle agents get tasks in this order.
    pub agents: Vec<ScheduledAgent>,
    /// Tokens that each project used in the window.
    pub project_token_usage: BTreeMap<Box<str>, Tokens>,
    /// Number of agents that work for each project now.
    pub project_active_agent_counts: BTreeMap<Box<str>, u64>,
    /// Number of tasks of each project that were completed in the window.
    pub tasks_completed_in_window: BTreeMap<Box<str>, u64>,
    /// Number of free workspaces of each project. An empty map means that workspaces are not counted. Otherwise a
    /// project that the map does not name has no free workspace.
    pub project_available_workspaces: BTreeMap<Box<str>, u64>,
    /// Id of the holder of each workspace. A workspace is free if the map does not name it or its holder is `None`.
    pub workspace_locks: BTreeMap<Box<str>, Option<Box<str>>>,
    /// Tokens that running tasks of each project are expected to use; strict mode only.
    pub project_reserved_tokens: BTreeMap<Box<str>, Tokens>,
    /// Tokens that are added to a project's usage when projects are compared; strict mode only. Without them, a project
    /// that returns after an idle time would get every agent until its usage had caught up with the others.
    pub project_baseline_tokens: BTreeMap<Box<str>, Tokens>,
    /// The global budget: tokens that all projects together may spend in the window; no limit if absent.
    pub global_budget: Option<Tokens>,
    /// Tokens that all projects together have used of the global budget, without reservations of running tasks.
    pub global_tokens_used: Tokens,
}

impl Default for ScheduleSnapshotParts {
    fn default() -> Self {
        Self {
            mode: ScheduleMode::Classic,
            min_task_guarantee: true,
            default_estimated_tokens: Tokens(1),
            projects: Vec::new(),
            tasks: Vec::new(),
            agents: Vec::new(),
            project_token_usage: BTreeMap::new(),
            project_active_agent_counts: BTreeMap::new(),
            tasks_completed_in_window: BTreeMap::new(),
            project_available_workspaces: BTreeMap::new(),
            workspace_locks: BTreeMap::new(),
            project_reserved_tokens: BTreeMap::new(),
            project_baseline_tokens: BTreeMap::new(),
            global_budget: None,
            global_tokens_used: Tokens(0),
        }
    }
}

/// A checked snapshot, in which every id is unique and every task's project is listed. [`ScheduleSnapshot::check`] is
/// the only constructor, so a snapshot never needs another check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSnapshot {
    parts: ScheduleSnapshotParts,
    /// For each project, its values from the maps of the snapshot.
    pub(super) records: Vec<ProjectRecord>,
    /// For each task, the index of its project.
    pub(super) project_of: Vec<usize>,
    /// For each task, the index of the workspace that it prefers; `None` if it prefers none.
    pub(super) workspace_of: Vec<Option<usize>>,
    /// For each workspace, by its index, true if the snapshot says that it is held.
    pub(super) workspace_locked: Vec<bool>,
}

/// The values of one project from the maps of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProjectRecord {
    pub(super) usage: Tokens,
    pub(super) reserved: Tokens,
    pub(super) baseline: Tokens,
    pub(super) active_agents: u64,
    pub(super) completed: u64,
    /// Number of free workspaces; `None` if workspaces are not counted.
    pub(super) workspaces: Option<u64>,
}

/// Error for a snapshot that is not valid, with the field and the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSnapshotError {
    /// Path of the bad field from the snapshot's root, such as `tasks[3].project_id`.
    pub field: String,
    /// The rule that the field breaks.
    pub problem: ScheduleSnapshotErrorKind,
}

/// A rule that a snapshot can break although its single values are in range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleSnapshotErrorKind {
    /// A task belongs to a project that is not listed.
    UnknownProject(Box<str>),
    /// Two projects, two tasks or two agents have the same id.
    DuplicateId {
        /// The id that occurs twice.
        id: Box<str>,
        /// Index of the first element with this id.
        first: usize,
    },
}

impl fmt::Display for ScheduleSnapshotErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProject(id) => write!(f, "there is no project {id:?}"),
            Self::DuplicateId { id, first } => write!(f, "{id:?} is already the id of [{first}]"),
        }
    }
}

impl fmt::Display for ScheduleSnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl core::error::Error for ScheduleSnapshotError {}

impl ScheduleSnapshot {
    /// Checks the parts and makes them a snapshot; fails with the first rule that they break.
    pub fn check(parts: ScheduleSnapshotParts) -> Result<Self, ScheduleSnapshotError> {
        unique("projects", parts.projects.iter().map(|p| &*p.id))?;
        unique("tasks", parts.tasks.iter().map(|t| &*t.id))?;
        unique("agents", parts.agents.iter().map(|a| &*a.id))?;
        let project_of = projects_of_tasks(&parts)?;
        let records = parts.projects.iter().map(|p| ProjectRecord::of(&p.id, &parts)).collect();
        let (workspace_of, workspace_locked) = number_workspaces(&parts);
        Ok(Self { parts, records, project_of, workspace_of, workspace_locked })
    }

    /// Returns the checked parts.
    pub fn parts(&self) -> &ScheduleSnapshotParts {
        &self.parts
    }

    /// Returns the plain data, to be changed and checked again.
    pub fn into_parts(self) -> ScheduleSnapshotParts {
        self.parts
    }
}

impl ProjectRecord {
    fn of(id: &str, parts: &ScheduleSnapshotParts) -> Self {
        let tokens = |map: &BTreeMap<_, Tokens>| map.get(id).copied().unwrap_or_default();
        let count = |map: &BTreeMap<_, u64>| map.get(id).copied().unwrap_or_default();
        let workspaces = &parts.project_available_workspaces;
        Self {
            usage: tokens(&parts.project_token_usage),
            reserved: tokens(&parts.project_reserved_tokens),
            baseline: tokens(&parts.project_baseline_tokens),
            active_agents: count(&parts.project_active_agent_counts),
            completed: count(&parts.tasks_completed_in_window),
            workspaces: (!workspaces.is_empty()).then(|| count(workspaces)),
        }
    }
}

/// Fails if an element of the list has the id of an earlier element.
fn unique<'a>(list: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), ScheduleSnapshotError> {
    let mut sorted: Vec<(&str, usize)> = ids.enumerate().map(|(i, id)| (id, i)).collect();
    sorted.sort_unstable();
    let repeats = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    let Some(pair) = repeats.min_by_key(|pair| pair[1].1) else { return Ok(()) };
    let [(id, first), (_, second)] = [pair[0], pair[1]];
    Err(ScheduleSnapshotError {
        field: format!("{list}[{second}].id"),
        problem: ScheduleSnapshotErrorKind::DuplicateId { id: id.into(), first },
    })
}

fn projects_of_tasks(parts: &ScheduleSnapshotParts) -> Result<Vec<usize>, ScheduleSnapshotError> {
    let positions: BTreeMap<&str, usize> =
        parts.projects.iter().enumerate().map(|(i, project)| (&*project.id, i)).collect();
    let find = |(i, task): (usize, &ScheduledTask)| {
        positions.get(&*task.project_id).copied().ok_or_else(|| ScheduleSnapshotError {
            field: format!("tasks[{i}].project_id"),
            problem: ScheduleSnapshotErrorKind::UnknownProject(task.project_id.clone()),
        })
    };
    parts.tasks.iter().enumerate().map(find).collect()
}

/// Gives an index to every workspace that a task prefers. Returns the index of each task's workspace (`None` if the
/// task prefers none), and for each index whether the workspace is held.
fn number_workspaces(parts: &ScheduleSnapshotParts) -> (Vec<Option<usize>>, Vec<bool>) {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut locked = Vec::new();
    let mut number = |workspace| {
        *numbers.entry(workspace).or_insert_with(|| {
            locked.push(parts.workspace_locks.get(workspace).is_some_and(Option::is_some));
            locked.len() - 1
        })
    };
    let preferred = parts.tasks.iter().map(|task| task.preferred_workspace_id.as_deref());
    let workspace_of = preferred.map(|workspace| workspace.map(&mut number)).collect();
    (workspace_of, locked)
}
