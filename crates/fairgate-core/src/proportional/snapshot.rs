//! What a call of the scheduler sees: plain data, checked once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::units::{OutOfRange, Tokens};

/// Which algorithm decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The published algorithm: within a call only concurrency and tasks already given are counted.
    #[default]
    Classic,
    /// Everything that is given away is charged at once, so that shares, budgets and workspaces hold.
    Strict,
}

/// How large a project's share is against the others': 0.001 to 10^15, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CreditWeight(u64);

impl CreditWeight {
    /// The weight of a project that states none: 1.0.
    pub const ONE: Self = Self(1000);
    /// The heaviest weight: 10^15.
    pub const MAX: Self = Self(1_000_000_000_000_000_000);

    /// A weight given in thousandths, 1 to 10^18 of them.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, OutOfRange> {
        if (1..=Self::MAX.0).contains(&thousandths) {
            Ok(Self(thousandths))
        } else {
            Err(OutOfRange { allowed: "0.001 to 1000000000000000" })
        }
    }

    /// The weight in thousandths.
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
    /// As a decimal without needless zeros: `3`, `0.5`, `5.25`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1000, self.0 % 1000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0'))
    }
}

/// Whether a project takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectStatus {
    /// It does.
    #[default]
    Active,
    /// Not until somebody resumes it.
    Paused,
    /// It is finished.
    Archived,
}

/// Where a task stands. Only [`TaskStatus::Ready`] ones can be given to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskStatus {
    /// It waits for other tasks.
    Defined,
    /// It can start.
    Ready,
    /// An agent has it but has not begun.
    Assigned,
    /// An agent works on it.
    InProgress,
    /// It waits for an answer.
    WaitingInput,
    /// It is put aside.
    Paused,
    /// It is done.
    Completed,
    /// It went wrong.
    Failed,
    /// It cannot go on by itself.
    Blocked,
}

/// What an agent does. Only [`AgentState::Idle`] ones are given tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// Nothing; it can take a task.
    Idle,
    /// It works.
    Busy,
    /// It is put aside.
    Paused,
    /// It broke.
    Error,
    /// It is gone for good.
    Retired,
}

/// A project: somebody with a share of the agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its name, unique among projects.
    pub id: Box<str>,
    /// Whether it takes part.
    pub status: ProjectStatus,
    /// How large its share is.
    pub credit_weight: CreditWeight,
    /// How many agents may work for it at once.
    pub max_concurrent_agents: u64,
    /// How many tokens it may spend in the window; no limit where absent.
    pub budget_limit: Option<Tokens>,
}

impl Project {
    /// How many agents may work at once for a project that does not say.
    pub const DEFAULT_MAX_CONCURRENT_AGENTS: u64 = 2;

    /// An active project of weight 1.0, for at most two agents, without a budget.
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

/// A task: work that one agent does for one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its name, unique among tasks.
    pub id: Box<str>,
    /// The project it belongs to.
    pub project_id: Box<str>,
    /// Where it stands.
    pub status: TaskStatus,
    /// Its place in the project's queue, lower first.
    pub priority: i64,
    /// When it was made, on any clock that counts up; strict mode lets the earlier one go first.
    pub created: i64,
    /// How many tokens it is expected to use; [`SnapshotParts::default_estimated_tokens`] where absent.
    pub estimated_tokens: Option<Tokens>,
    /// The workspace it must run in; any where absent.
    pub preferred_workspace_id: Option<Box<str>>,
}

impl Task {
    /// The priority of a task that states none.
    pub const DEFAULT_PRIORITY: i64 = 100;

    /// A ready task of this project with everything else at its default.
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

/// An agent: who does the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Its name, unique among agents.
    pub id: Box<str>,
    /// What it does now.
    pub state: AgentState,
}

impl Agent {
    /// An agent that can take a task.
    pub fn idle(id: impl Into<Box<str>>) -> Self {
        Self { id: id.into(), state: AgentState::Idle }
    }
}

/// A snapshot before it is checked. The names are those of the published page; "window" is the rolling span of
/// time over which whoever makes the snapshot counts usage and completions.
///
/// A map may name projects that are not listed: they take part in nothing, but what they used counts in the
/// classic total, and what they reserved counts against the strict global budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotParts {
    /// Which algorithm decides.
    pub mode: Mode,
    /// Whether a project without any completion in the window goes before those with one.
    pub min_task_guarantee: bool,
    /// What a task is expected to use where it does not say (strict).
    pub default_estimated_tokens: Tokens,
    /// The projects. Their order breaks ties.
    pub projects: Vec<Project>,
    /// The tasks, in any order.
    pub tasks: Vec<Task>,
    /// The agents. Idle ones are served in this order.
    pub agents: Vec<Agent>,
    /// Tokens each project used in the window.
    pub project_token_usage: BTreeMap<Box<str>, Tokens>,
    /// How many agents work for each project now.
    pub project_active_agent_counts: BTreeMap<Box<str>, u64>,
    /// How many tasks of each project were completed in the window.
    pub tasks_completed_in_window: BTreeMap<Box<str>, u64>,
    /// How many workspaces of each project are free. Empty: workspaces are not counted. Else a project that is
    /// not named has none.
    pub project_available_workspaces: BTreeMap<Box<str>, u64>,
    /// Who holds each workspace; nobody where absent or `None`.
    pub workspace_locks: BTreeMap<Box<str>, Option<Box<str>>>,
    /// Tokens that running tasks of each project are expected to use (strict).
    pub project_reserved_tokens: BTreeMap<Box<str>, Tokens>,
    /// Tokens that a project is taken to have used though it did not, because it was away (strict).
    pub project_baseline_tokens: BTreeMap<Box<str>, Tokens>,
    /// How many tokens all projects together may spend; no limit where absent.
    pub global_budget: Option<Tokens>,
    /// How many tokens have been spent of the global budget.
    pub global_tokens_used: Tokens,
}

impl Default for SnapshotParts {
    fn default() -> Self {
        Self {
            mode: Mode::Classic,
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

/// A checked snapshot: every id is unique, every task's project is listed. [`Snapshot::check`] is the only way
/// in; whoever holds one need not check again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    parts: SnapshotParts,
    /// Per project, what the maps say about it.
    pub(super) records: Vec<Record>,
    /// Per task, the position of its project.
    pub(super) project_of: Vec<usize>,
    /// Per task, the number of the workspace it prefers.
    pub(super) workspace_of: Vec<Option<usize>>,
    /// Per workspace number, whether somebody holds it.
    pub(super) workspace_locked: Vec<bool>,
}

/// What the maps of a snapshot say about one project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) usage: Tokens,
    pub(super) reserved: Tokens,
    pub(super) baseline: Tokens,
    pub(super) active_agents: u64,
    pub(super) completed: u64,
    /// `None`: workspaces are not counted.
    pub(super) workspaces: Option<u64>,
}

/// A snapshot that cannot be: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotError {
    /// The field, from the snapshot's root: `tasks[3].project_id`.
    pub field: String,
    /// What is wrong with it.
    pub problem: SnapshotProblem,
}

/// What may be wrong with a snapshot whose single values are in range.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotProblem {
    /// A task belongs to a project that is not listed.
    UnknownProject(Box<str>),
    /// Two projects, two tasks or two agents have one id.
    DuplicateId {
        /// The id.
        id: Box<str>,
        /// The position of the first that has it.
        first: usize,
    },
}

impl fmt::Display for SnapshotProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProject(id) => write!(f, "there is no project {id:?}"),
            Self::DuplicateId { id, first } => write!(f, "{id:?} is already the id of [{first}]"),
        }
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl core::error::Error for SnapshotError {}

impl Snapshot {
    /// Checks the parts and makes them a snapshot.
    pub fn check(parts: SnapshotParts) -> Result<Self, SnapshotError> {
        unique("projects", parts.projects.iter().map(|p| &*p.id))?;
        unique("tasks", parts.tasks.iter().map(|t| &*t.id))?;
        unique("agents", parts.agents.iter().map(|a| &*a.id))?;
        let project_of = projects_of_tasks(&parts)?;
        let records = parts.projects.iter().map(|p| Record::of(&p.id, &parts)).collect();
        let (workspace_of, workspace_locked) = number_workspaces(&parts);
        Ok(Self { parts, records, project_of, workspace_of, workspace_locked })
    }

    /// What was checked.
    pub fn parts(&self) -> &SnapshotParts {
        &self.parts
    }

    /// The plain data again, to change and check anew.
    pub fn into_parts(self) -> SnapshotParts {
        self.parts
    }
}

impl Record {
    fn of(id: &str, parts: &SnapshotParts) -> Self {
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

/// Fails on the earliest id that an earlier element of the list has already.
fn unique<'a>(list: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), SnapshotError> {
    let mut sorted: Vec<(&str, usize)> = ids.enumerate().map(|(i, id)| (id, i)).collect();
    sorted.sort_unstable();
    let repeats = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    let Some(pair) = repeats.min_by_key(|pair| pair[1].1) else { return Ok(()) };
    let [(id, first), (_, second)] = [pair[0], pair[1]];
    Err(SnapshotError {
        field: format!("{list}[{second}].id"),
        problem: SnapshotProblem::DuplicateId { id: id.into(), first },
    })
}

fn projects_of_tasks(parts: &SnapshotParts) -> Result<Vec<usize>, SnapshotError> {
    let positions: BTreeMap<&str, usize> =
        parts.projects.iter().enumerate().map(|(i, project)| (&*project.id, i)).collect();
    let find = |(i, task): (usize, &Task)| {
        positions.get(&*task.project_id).copied().ok_or_else(|| SnapshotError {
            field: format!("tasks[{i}].project_id"),
            problem: SnapshotProblem::UnknownProject(task.project_id.clone()),
        })
    };
    parts.tasks.iter().enumerate().map(find).collect()
}

/// Gives every workspace that some task prefers a number, and says which of them are held.
fn number_workspaces(parts: &SnapshotParts) -> (Vec<Option<usize>>, Vec<bool>) {
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
