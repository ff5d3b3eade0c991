//! The handle that shells call. Each call is one transaction.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairgate_money::UnixMicros;
use fairgate_store::{KeyHash, Store, StoreError};

use crate::error::FleetError;
use crate::model::*;

/// What a call of [`Fleet`] returns: a future, boxed, so that it is compiled once, in this crate.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, FleetError>> + Send + 'a>>;

/// Where the fleet has its time from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The moment that it is.
    fn now(&self) -> UnixMicros;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UnixMicros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// How a fleet behaves.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// How long usage counts.
    pub window: Duration,
    /// What all projects may use in the window together, in tokens.
    pub budget: Option<u64>,
    /// Whether a project that completed nothing in the window goes before those that did.
    pub min_task_guarantee: bool,
    /// What a task is expected to use where neither it nor its project's past says, in tokens.
    pub default_estimate: u64,
    /// How long an agent holds a task without a sign of life.
    pub lease: Duration,
    /// The pause after a first failure, and the longest; it doubles in between.
    pub backoff: (Duration, Duration),
    /// How many bytes of what a claim prints are kept.
    pub log_bytes_max: u64,
    /// The folder of the journal of rounds; none where absent.
    pub journal: Option<std::path::PathBuf>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(24 * 3600),
            budget: None,
            min_task_guarantee: false,
            default_estimate: 20_000,
            lease: Duration::from_secs(60),
            backoff: (Duration::from_secs(60), Duration::from_secs(300)),
            log_bytes_max: 1 << 20,
            journal: None,
        }
    }
}

/// A handle to the fleet. Cheap to clone; all clones are one fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    clock: Arc<dyn Clock>,
    options: FleetOptions,
}

/// The rounds so far that had agents to serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// How many.
    pub with_agents: u64,
    /// How long they took together, the database included.
    pub time: Duration,
    /// The most statements that one of them made.
    pub statements_most: u64,
}

/// An agent that has shown its token.
#[derive(Clone)]
pub struct AgentId {
    /// Its name.
    pub id: String,
    /// What its task keys are made from: derived from its token, which is kept nowhere.
    pub seed: [u8; 32],
}

impl Fleet {
    /// The fleet in this store.
    pub fn new(store: Store, clock: Arc<dyn Clock>, options: FleetOptions) -> Self {
        Self { inner: Arc::new(Inner { store, clock, options }) }
    }

    /// Makes a project.
    pub fn add_project<'a>(
        &'a self,
        actor: &'a str,
        project: NewProject,
    ) -> Answer<'a, ProjectView> {
        self.not_yet()
    }

    /// Changes a project.
    pub fn patch_project<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: ProjectPatch,
    ) -> Answer<'a, ProjectView> {
        self.not_yet()
    }

    /// The projects, in the order in which they were made; of one tenant where it is named.
    pub fn projects<'a>(&'a self, tenant: Option<&'a str>) -> Answer<'a, Vec<ProjectView>> {
        self.not_yet()
    }

    /// A project.
    pub fn project<'a>(&'a self, id: &'a str) -> Answer<'a, ProjectView> {
        self.not_yet()
    }

    /// Makes tasks, all or none.
    pub fn add_tasks<'a>(&'a self, actor: &'a str, tasks: NewTasks) -> Answer<'a, AddedTasks> {
        self.not_yet()
    }

    /// Tasks, in the order in which they were made.
    pub fn tasks<'a>(&'a self, query: TaskQuery) -> Answer<'a, Vec<TaskLine>> {
        self.not_yet()
    }

    /// A task.
    pub fn task<'a>(&'a self, id: &'a str) -> Answer<'a, TaskView> {
        self.not_yet()
    }

    /// Changes a task that no agent holds.
    pub fn patch_task<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: TaskPatch,
    ) -> Answer<'a, TaskView> {
        self.not_yet()
    }

    /// Does with a task what a person asks for.
    pub fn act<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        action: TaskAction,
    ) -> Answer<'a, TaskView> {
        self.not_yet()
    }

    /// Why a task stands where it does.
    pub fn why<'a>(&'a self, id: &'a str) -> Answer<'a, Why> {
        self.not_yet()
    }

    /// What a task's command printed, from a byte on; of its last claim where none is named.
    pub fn log<'a>(
        &'a self,
        task: &'a str,
        epoch: Option<u64>,
        first_byte: u64,
    ) -> Answer<'a, LogPage> {
        self.not_yet()
    }

    /// Makes an agent and its token.
    pub fn add_agent<'a>(&'a self, actor: &'a str, agent: NewAgent) -> Answer<'a, AgentWithToken> {
        self.not_yet()
    }

    /// Changes an agent.
    pub fn patch_agent<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: AgentPatch,
    ) -> Answer<'a, AgentView> {
        self.not_yet()
    }

    /// Gives an agent a new token; the old one opens nothing from now on.
    pub fn rotate_agent<'a>(&'a self, actor: &'a str, id: &'a str) -> Answer<'a, AgentWithToken> {
        self.not_yet()
    }

    /// The agents, by name.
    pub fn agents<'a>(&'a self) -> Answer<'a, Vec<AgentView>> {
        self.not_yet()
    }

    /// Makes a workspace.
    pub fn add_workspace<'a>(
        &'a self,
        actor: &'a str,
        workspace: NewWorkspace,
    ) -> Answer<'a, WorkspaceView> {
        self.not_yet()
    }

    /// Removes a workspace that no task holds.
    pub fn remove_workspace<'a>(&'a self, actor: &'a str, id: &'a str) -> Answer<'a, ()> {
        self.not_yet()
    }

    /// The workspaces, by name; of one project where it is named.
    pub fn workspaces<'a>(&'a self, project: Option<&'a str>) -> Answer<'a, Vec<WorkspaceView>> {
        self.not_yet()
    }

    /// The fleet as a whole.
    pub fn view<'a>(&'a self) -> Answer<'a, FleetView> {
        self.not_yet()
    }

    /// The agent whose token this is.
    pub fn agent<'a>(&'a self, token: &'a str) -> Answer<'a, Option<AgentId>> {
        self.not_yet()
    }

    /// A task for an agent, once there is one; none when the wait is over. An agent that holds a task is given that one again.
    pub fn claim<'a>(&'a self, agent: &'a AgentId, wait: Duration) -> Answer<'a, Option<Claim>> {
        self.not_yet()
    }

    /// A sign of life.
    pub fn heartbeat<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        heartbeat: Heartbeat,
    ) -> Answer<'a, Held> {
        self.not_yet()
    }

    /// Keeps what a claim's command printed. Bytes that were sent before are left out; says which byte comes next.
    pub fn append_log<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        first_byte: u64,
        bytes: Vec<u8>,
    ) -> Answer<'a, u64> {
        self.not_yet()
    }

    /// Ends a task well. Saying it twice is no error.
    pub fn complete<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        completion: Completion,
    ) -> Answer<'a, TaskLine> {
        self.not_yet()
    }

    /// Ends a claim badly: the task is tried again, waits, or is blocked. Saying it twice is no error.
    pub fn fail<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        failure: Failure,
    ) -> Answer<'a, TaskLine> {
        self.not_yet()
    }

    /// Asks a person something, and frees the agent. Saying it twice is no error.
    pub fn ask<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        question: Question,
    ) -> Answer<'a, TaskLine> {
        self.not_yet()
    }

    /// Gives a task back unharmed. Saying it twice is no error.
    pub fn release<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        release: Release,
    ) -> Answer<'a, TaskLine> {
        self.not_yet()
    }

    /// Whose a task key is, where its claim is in force.
    pub fn task_key<'a>(&'a self, hash: KeyHash) -> Answer<'a, Option<TaskKey>> {
        self.not_yet()
    }

    /// The rounds so far that had agents to serve.
    pub fn rounds(&self) -> Rounds {
        Rounds::default()
    }

    /// Runs the loop until the store is closed.
    pub fn run(&self) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(async {})
    }

    fn not_yet<T: Send + 'static>(&self) -> Answer<'_, T> {
        Box::pin(std::future::ready(Err(StoreError::Closed.into())))
    }
}
