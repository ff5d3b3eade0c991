//! The handle that shells call. Each call is one transaction.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairgate_money::UnixMicros;
use fairgate_store::{Keep, KeyHash, Store, Transaction};
use tokio::sync::Notify;

use crate::call::Call;
use crate::claims::Named;
use crate::dispatch::Dispatch;
use crate::error::FleetError;
use crate::model::*;
use crate::{actions, add, agents, claims, logs, projects, tasks, view, why, workspaces};

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
    options: Arc<FleetOptions>,
    /// Told after every change that may let a task start.
    changed: Arc<Notify>,
    dispatch: Arc<Dispatch>,
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
        let (options, changed) = (Arc::new(options), Arc::new(Notify::new()));
        let dispatch = Arc::new(Dispatch::new(&options, Arc::clone(&changed)));
        Self { inner: Arc::new(Inner { store, clock, options, changed, dispatch }) }
    }

    fn call(&self, actor: String) -> impl FnOnce() -> Call + Send + 'static {
        let (clock, options) = (self.inner.clock.clone(), self.inner.options.clone());
        move || Call { now: clock.now(), actor, options }
    }

    /// Runs one transaction.
    fn transact<'a, T: Send + 'static>(
        &'a self,
        keep: Keep,
        actor: String,
        work: impl FnOnce(&mut dyn Transaction, &Call) -> Result<T, FleetError> + Send + 'static,
    ) -> Answer<'a, T> {
        // The time is taken when the transaction's turn has come.
        let call = self.call(actor);
        self.inner.store.transact(keep, move |tx| work(tx, &call()))
    }

    /// Changes something that may let a task start, and tells the loop.
    fn change<'a, T: Send + 'static>(
        &'a self,
        actor: String,
        work: impl FnOnce(&mut dyn Transaction, &Call) -> Result<T, FleetError> + Send + 'static,
    ) -> Answer<'a, T> {
        Box::pin(async move {
            let done = self.transact(Keep::ThroughPowerLoss, actor, work).await?;
            self.inner.changed.notify_one();
            Ok(done)
        })
    }

    /// Ends a claim as its agent says.
    fn end<'a, T: Send + 'static>(
        &'a self,
        agent: &AgentId,
        task: &str,
        epoch: u64,
        work: impl FnOnce(&mut dyn Transaction, &Call, Named<'_>) -> Result<T, FleetError>
        + Send
        + 'static,
    ) -> Answer<'a, T> {
        let (agent, task) = (agent.id.clone(), task.to_owned());
        self.change(format!("agent:{agent}"), move |tx, call| {
            work(tx, call, Named { agent: &agent, task: &task, epoch })
        })
    }

    /// Takes what an agent says of a claim that goes on.
    fn hear<'a, T: Send + 'static>(
        &'a self,
        agent: &AgentId,
        task: &str,
        epoch: u64,
        work: impl FnOnce(&mut dyn Transaction, &Call, Named<'_>) -> Result<T, FleetError>
        + Send
        + 'static,
    ) -> Answer<'a, T> {
        let (agent, task) = (agent.id.clone(), task.to_owned());
        self.transact(Keep::ThroughKill, format!("agent:{agent}"), move |tx, call| {
            work(tx, call, Named { agent: &agent, task: &task, epoch })
        })
    }

    /// Looks at something, as it is at one moment.
    fn look<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&mut dyn Transaction, &Call) -> Result<T, FleetError> + Send + 'static,
    ) -> Answer<'a, T> {
        let call = self.call(String::new());
        self.inner.store.inspect(move |tx| work(tx, &call()))
    }

    /// Makes a project.
    pub fn add_project<'a>(
        &'a self,
        actor: &'a str,
        project: NewProject,
    ) -> Answer<'a, ProjectView> {
        Box::pin(async move {
            let id = project.id.clone();
            self.change(actor.to_owned(), move |tx, call| projects::add(tx, call, project)).await?;
            self.project(&id).await
        })
    }

    /// Changes a project.
    pub fn patch_project<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: ProjectPatch,
    ) -> Answer<'a, ProjectView> {
        Box::pin(async move {
            let of = id.to_owned();
            self.change(actor.to_owned(), move |tx, call| projects::patch(tx, call, &of, patch))
                .await?;
            self.project(id).await
        })
    }

    /// The projects, in the order in which they were made; of one tenant where it is named.
    pub fn projects<'a>(&'a self, tenant: Option<&'a str>) -> Answer<'a, Vec<ProjectView>> {
        let tenant = tenant.map(str::to_owned);
        self.look(move |tx, call| view::projects(tx, call, tenant.as_deref()))
    }

    /// A project.
    pub fn project<'a>(&'a self, id: &'a str) -> Answer<'a, ProjectView> {
        let id = id.to_owned();
        self.look(move |tx, call| view::project(tx, call, &id))
    }

    /// Makes tasks, all or none.
    pub fn add_tasks<'a>(&'a self, actor: &'a str, tasks: NewTasks) -> Answer<'a, AddedTasks> {
        match tasks.dry_run {
            true => self.look(move |tx, call| add::add(tx, call, tasks)),
            false => self.change(actor.to_owned(), move |tx, call| add::add(tx, call, tasks)),
        }
    }

    /// Tasks, in the order in which they were made.
    pub fn tasks<'a>(&'a self, query: TaskQuery) -> Answer<'a, Vec<TaskLine>> {
        self.look(move |tx, call| tasks::list(tx, call, &query))
    }

    /// A task.
    pub fn task<'a>(&'a self, id: &'a str) -> Answer<'a, TaskView> {
        let id = id.to_owned();
        self.look(move |tx, call| tasks::view(tx, call, &id))
    }

    /// A task as a list shows it.
    pub fn task_line<'a>(&'a self, id: &'a str) -> Answer<'a, TaskLine> {
        let id = id.to_owned();
        self.look(move |tx, call| tasks::one(tx, call, &id))
    }

    /// The task that an agent holds.
    pub fn held_by<'a>(&'a self, agent: &'a AgentId) -> Answer<'a, Option<TaskLine>> {
        let agent = agent.id.clone();
        self.look(move |tx, call| Ok(tasks::held_by(tx, call, &agent)?))
    }

    /// Changes a task that no agent holds.
    pub fn patch_task<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: TaskPatch,
    ) -> Answer<'a, TaskView> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| tasks::patch(tx, call, &id, patch))
    }

    /// Does with a task what a person asks for.
    pub fn act<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        action: TaskAction,
    ) -> Answer<'a, TaskView> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| actions::act(tx, call, &id, action))
    }

    /// Why a task stands where it does.
    pub fn why<'a>(&'a self, id: &'a str) -> Answer<'a, Why> {
        let (id, waiting) = (id.to_owned(), self.inner.dispatch.waiters.names());
        self.look(move |tx, call| why::of(tx, call, &id, &waiting))
    }

    /// What a task's command printed, from a byte on; of its last claim where none is named.
    pub fn log<'a>(
        &'a self,
        task: &'a str,
        epoch: Option<u64>,
        first_byte: u64,
    ) -> Answer<'a, LogPage> {
        let task = task.to_owned();
        self.look(move |tx, _| logs::page(tx, &task, epoch, first_byte))
    }

    /// Makes an agent and its token.
    pub fn add_agent<'a>(&'a self, actor: &'a str, agent: NewAgent) -> Answer<'a, AgentWithToken> {
        self.change(actor.to_owned(), move |tx, call| agents::add(tx, call, agent))
    }

    /// Changes an agent.
    pub fn patch_agent<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: AgentPatch,
    ) -> Answer<'a, AgentView> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| agents::patch(tx, call, &id, patch))
    }

    /// Gives an agent a new token; the old one opens nothing from now on.
    pub fn rotate_agent<'a>(&'a self, actor: &'a str, id: &'a str) -> Answer<'a, AgentWithToken> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| agents::rotate(tx, call, &id))
    }

    /// The agents, by name.
    pub fn agents<'a>(&'a self) -> Answer<'a, Vec<AgentView>> {
        self.look(|tx, _| Ok(agents::list(tx)?))
    }

    /// Makes a workspace.
    pub fn add_workspace<'a>(
        &'a self,
        actor: &'a str,
        workspace: NewWorkspace,
    ) -> Answer<'a, WorkspaceView> {
        self.change(actor.to_owned(), move |tx, call| workspaces::add(tx, call, workspace))
    }

    /// Removes a workspace that no task holds.
    pub fn remove_workspace<'a>(&'a self, actor: &'a str, id: &'a str) -> Answer<'a, ()> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| workspaces::remove(tx, call, &id))
    }

    /// The workspaces, by name; of one project where it is named.
    pub fn workspaces<'a>(&'a self, project: Option<&'a str>) -> Answer<'a, Vec<WorkspaceView>> {
        let project = project.map(str::to_owned);
        self.look(move |tx, _| workspaces::list(tx, project.as_deref()))
    }

    /// The fleet as a whole.
    pub fn view<'a>(&'a self) -> Answer<'a, FleetView> {
        let waiting = self.inner.dispatch.waiters.names();
        self.look(move |tx, call| view::fleet(tx, call, &waiting))
    }

    /// The agent whose token this is.
    pub fn agent<'a>(&'a self, token: &'a str) -> Answer<'a, Option<AgentId>> {
        let token = token.to_owned();
        self.look(move |tx, _| agents::of_token(tx, &token))
    }

    /// A task for an agent, once there is one; none when the wait is over. An agent that holds a task is given that one again.
    pub fn claim<'a>(&'a self, agent: &'a AgentId, wait: Duration) -> Answer<'a, Option<Claim>> {
        Box::pin(self.inner.dispatch.claim(agent, wait))
    }

    /// A sign of life.
    pub fn heartbeat<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        heartbeat: Heartbeat,
    ) -> Answer<'a, Held> {
        self.hear(agent, task, epoch, move |tx, call, named| {
            claims::heartbeat(tx, call, named, &heartbeat)
        })
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
        self.hear(agent, task, epoch, move |tx, call, named| {
            logs::append(tx, call, named, first_byte, &bytes)
        })
    }

    /// Ends a task well. Saying it twice is no error.
    pub fn complete<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        completion: Completion,
    ) -> Answer<'a, TaskLine> {
        self.end(agent, task, epoch, move |tx, call, named| {
            claims::complete(tx, call, named, &completion)
        })
    }

    /// Ends a claim badly: the task is tried again, waits, or is blocked. Saying it twice is no error.
    pub fn fail<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        failure: Failure,
    ) -> Answer<'a, TaskLine> {
        self.end(agent, task, epoch, move |tx, call, named| claims::fail(tx, call, named, &failure))
    }

    /// Asks a person something, and frees the agent. Saying it twice is no error.
    pub fn ask<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        question: Question,
    ) -> Answer<'a, TaskLine> {
        self.end(agent, task, epoch, move |tx, call, named| claims::ask(tx, call, named, &question))
    }

    /// Gives a task back unharmed. Saying it twice is no error.
    pub fn release<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        release: Release,
    ) -> Answer<'a, TaskLine> {
        self.end(agent, task, epoch, move |tx, call, named| {
            claims::release(tx, call, named, &release)
        })
    }

    /// Whose a task key is, where its claim is in force.
    pub fn task_key<'a>(&'a self, hash: KeyHash) -> Answer<'a, Option<TaskKey>> {
        self.look(move |tx, _| Ok(agents::of_task_key(tx, hash)?))
    }

    /// The rounds so far that had agents to serve.
    pub fn rounds(&self) -> Rounds {
        self.inner.dispatch.rounds()
    }

    /// Runs the loop until it is stopped or the store is closed.
    pub fn run(&self) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let Inner { store, clock, dispatch, .. } = &*self.inner;
        Box::pin(Arc::clone(dispatch).run(store.clone(), Arc::clone(clock)))
    }

    /// Ends the loop: agents that wait are told that there is no task, and the journal of rounds is written to its end before
    /// [`Fleet::run`] returns. Belongs before the store is closed.
    pub fn stop(&self) {
        self.inner.dispatch.stop();
    }

    /// Lets the loop look at once at what was changed by somebody else than a call of this fleet, such as a call to a model that
    /// was settled.
    pub fn wake(&self) {
        self.inner.changed.notify_one();
    }

    /// How many calls of the scheduler are missing in the journal of rounds, because it could not be written.
    pub fn rounds_not_journaled(&self) -> u64 {
        self.inner.dispatch.not_journaled()
    }

    /// The loop's own parts, for tests that make its steps.
    #[cfg(test)]
    pub(crate) fn dispatch(&self) -> &Dispatch {
        &self.inner.dispatch
    }
}
