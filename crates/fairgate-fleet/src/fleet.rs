//! The handle through which the gateway and the command line use the fleet. Each call is one
//! transaction; completions of tasks may share one.
//!
//! Only one transaction at a time changes the fleet, over all processes. SQLite has one writer. On
//! PostgreSQL, each transaction that changes the fleet first locks the only row of the table
//! `fleet`. Tasks take minutes, so a lock of milliseconds does not matter. In return, two servers
//! cannot assign a task twice, exceed a maximum number of agents or a budget, or give one workspace
//! to two tasks.

mod complete_call;
mod webhook_calls;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fairgate_api::agents::{Claim, TaskLeaseBody};
use fairgate_api::fleet::{
    AddedTasks, AgentPatch, AgentView, AgentWithToken, FleetView, LogPage, NewAgent, NewProject,
    NewTasks, NewWorkspace, ProjectPatch, ProjectView, TaskAction, TaskExplanation, TaskLine,
    TaskPatch, TaskView, WorkspaceView,
};
use fairgate_store::{
    AuditEntry, KeyHash, Store, StoreError, TaskClaim, Transaction, TransactionDurability,
};
use fairgate_time::UnixMicros;
use tokio::sync::Notify;

use crate::agent_id::AgentId;
use crate::agent_reports::{TaskFailure, TaskHeartbeat, TaskQuestion, TaskRelease};
use crate::call_context::CallContext;
use crate::claim_ref::ClaimRef;
use crate::claims::LimitCause;
use crate::completion_queue::CompletionQueue;
use crate::error::FleetError;
use crate::explain::ExplanationScope;
use crate::fleet_clock::FleetClock;
use crate::options::FleetOptions;
use crate::round::GrantedClaim;
use crate::round_loop::{RoundLoop, RoundStats};
use crate::task_key::TaskKey;
use crate::tasks::TaskQuery;
use crate::webhooks::directory_budgets::RefusedBudgets;
use crate::{
    add_tasks, agents, claims, explain, fleet_view, model_calls, projects, task_actions, task_logs,
    task_results, tasks, undo, workspaces,
};

/// Future that the methods of [`Fleet`] return. It is boxed, so that its code is compiled once, in
/// this crate.
pub type FleetFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FleetError>> + Send + 'a>>;

/// Handle to the fleet. Cheap to clone; all clones share one fleet.
///
/// # Order of calls
///
/// A process that serves agents:
///
/// 1. [`Fleet::new`], then [`Fleet::run`] in an async task of its own. An agent that waits in a process
///    without this loop gets no task.
/// 2. [`Fleet::wake`] after each settlement of a request that had a task key, because it may make room in a budget.
///    Calls of this handle wake the loop themselves.
/// 3. [`Fleet::stop`] before [`Store::close`].
///
/// An operator, in any process: [`Fleet::add_project`], [`Fleet::add_agent`] (its token is shown once) and, if tasks
/// need folders, [`Fleet::add_workspace`]; then [`Fleet::add_tasks`]. [`Fleet::act`] pauses, resumes, restarts, cancels,
/// skips or answers a task. [`Fleet::why`] explains why a task waits; [`Fleet::view`], [`Fleet::projects`],
/// [`Fleet::tasks`] and [`Fleet::log`] show what happens.
///
/// An agent:
///
/// 1. [`Fleet::agent`] with its token.
/// 2. [`Fleet::claim`], again and again while it returns `None`.
/// 3. [`Fleet::heartbeat`] at once, which says that it has begun, and then every [`Claim::heartbeat_s`] seconds. In
///    between [`Fleet::append_log`], and model calls with the claim's key ([`Fleet::task_key`] returns the claim that a
///    key belongs to).
/// 4. One of [`Fleet::complete`], [`Fleet::fail`], [`Fleet::ask`] and [`Fleet::release`]. Each ends the claim and may be
///    repeated.
///
/// Each call of an agent names its claim by task and epoch. [`FleetError::LeaseLost`] means that the agent no longer
/// holds the task: it must stop and claim again.
#[derive(Clone, Debug)]
pub struct Fleet {
    inner: Arc<FleetInner>,
}

#[derive(Debug)]
struct FleetInner {
    store: Store,
    clock: Arc<dyn FleetClock>,
    options: Arc<FleetOptions>,
    /// Wakes the loop of rounds after every change that may let a task start.
    changed: Arc<Notify>,
    /// Wakes the sender of webhook events after every change that may have written one.
    events_written: Notify,
    dispatch: Arc<RoundLoop>,
    completions: CompletionQueue,
    refused_budgets: RefusedBudgets,
}

impl Fleet {
    /// Creates a handle to the fleet in this store. Rounds run only while [`Fleet::run`] is polled.
    pub fn new(store: Store, clock: Arc<dyn FleetClock>, options: FleetOptions) -> Self {
        let (options, changed) = (Arc::new(options), Arc::new(Notify::new()));
        let dispatch = Arc::new(RoundLoop::new(&options, Arc::clone(&changed)));
        let events_written = Notify::new();
        let completions = CompletionQueue::default();
        let inner = FleetInner {
            store,
            clock,
            options,
            changed,
            events_written,
            dispatch,
            completions,
            refused_budgets: RefusedBudgets::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn options(&self) -> &FleetOptions {
        &self.inner.options
    }

    pub(crate) fn events_written(&self) -> &Notify {
        &self.inner.events_written
    }

    pub(crate) fn refused_budgets(&self) -> &RefusedBudgets {
        &self.inner.refused_budgets
    }

    pub(crate) fn now(&self) -> UnixMicros {
        self.inner.clock.now()
    }

    fn call(&self, actor: String) -> impl FnOnce() -> CallContext + Send + 'static {
        let (clock, options) = (self.inner.clock.clone(), self.inner.options.clone());
        move || CallContext { now: clock.now(), actor, options }
    }

    /// Runs `work` in one transaction that may change the fleet.
    pub(crate) fn transact<'a, T: Send + 'static>(
        &'a self,
        keep: TransactionDurability,
        actor: String,
        work: impl FnOnce(&mut dyn Transaction, &CallContext) -> Result<T, FleetError> + Send + 'static,
    ) -> FleetFuture<'a, T> {
        // The clock is read inside the transaction, which may have waited for other transactions.
        let call = self.call(actor);
        self.inner.store.transact(keep, move |tx| work(tx, &call()))
    }

    /// Runs a change that may let a task start, and then wakes the loop of rounds.
    fn change<'a, T: Send + 'static>(
        &'a self,
        actor: String,
        work: impl FnOnce(&mut dyn Transaction, &CallContext) -> Result<T, FleetError> + Send + 'static,
    ) -> FleetFuture<'a, T> {
        Box::pin(async move {
            let done = self.transact(TransactionDurability::ThroughPowerLoss, actor, work).await?;
            self.inner.changed.notify_one();
            self.inner.events_written.notify_one();
            Ok(done)
        })
    }

    /// Runs an operation with which an agent ends its claim.
    fn end<'a, T: Send + 'static>(
        &'a self,
        agent: &AgentId,
        task: &str,
        epoch: u64,
        work: impl FnOnce(&mut dyn Transaction, &CallContext, ClaimRef<'_>) -> Result<T, FleetError>
        + Send
        + 'static,
    ) -> FleetFuture<'a, T> {
        let (agent, task) = (agent.id.clone(), task.to_owned());
        self.report_write_failure(self.change(format!("agent:{agent}"), move |tx, call| {
            work(tx, call, ClaimRef { agent: &agent, task: &task, epoch })
        }))
    }

    /// Runs an operation of an agent after which its claim continues.
    fn update_claim<'a, T: Send + 'static>(
        &'a self,
        agent: &AgentId,
        task: &str,
        epoch: u64,
        work: impl FnOnce(&mut dyn Transaction, &CallContext, ClaimRef<'_>) -> Result<T, FleetError>
        + Send
        + 'static,
    ) -> FleetFuture<'a, T> {
        let (agent, task) = (agent.id.clone(), task.to_owned());
        self.report_write_failure(self.transact(
            TransactionDurability::ThroughKill,
            format!("agent:{agent}"),
            move |tx, call| work(tx, call, ClaimRef { agent: &agent, task: &task, epoch }),
        ))
    }

    /// Awaits an agent's operation. If the database could not write it, reports this to the loop of
    /// rounds.
    fn report_write_failure<'a, T: Send + 'a>(
        &'a self,
        operation: FleetFuture<'a, T>,
    ) -> FleetFuture<'a, T> {
        Box::pin(async move {
            let result = operation.await;
            if matches!(
                result,
                Err(FleetError::Store(StoreError::Database(_) | StoreError::Full(_)))
            ) {
                self.inner.dispatch.set_write_failed();
            }
            result
        })
    }

    /// Runs a read-only transaction.
    pub(crate) fn look<'a, T: Send + 'static>(
        &'a self,
        work: impl FnOnce(&mut dyn Transaction, &CallContext) -> Result<T, FleetError> + Send + 'static,
    ) -> FleetFuture<'a, T> {
        let call = self.call(String::new());
        self.inner.store.inspect(move |tx| work(tx, &call()))
    }

    /// Adds a project, and returns it.
    pub fn add_project<'a>(
        &'a self,
        actor: &'a str,
        project: NewProject,
    ) -> FleetFuture<'a, ProjectView> {
        Box::pin(async move {
            let id = project.id.clone();
            self.change(actor.to_owned(), move |tx, call| projects::add(tx, call, project)).await?;
            self.project(&id).await
        })
    }

    /// Changes those fields of a project that the patch sets.
    pub fn patch_project<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: ProjectPatch,
    ) -> FleetFuture<'a, ProjectView> {
        Box::pin(async move {
            let of = id.to_owned();
            self.change(actor.to_owned(), move |tx, call| projects::patch(tx, call, &of, patch))
                .await?;
            self.project(id).await
        })
    }

    /// Makes the inverse of a change of a project, or of a pause or resumption of a task, from its audit entry. Fails with
    /// [`StoreError::ChangedSince`](fairgate_store::StoreError::ChangedSince) if somebody has changed the same since.
    pub fn undo<'a>(&'a self, actor: &'a str, entry: AuditEntry) -> FleetFuture<'a, ()> {
        self.change(actor.to_owned(), move |tx, call| undo::undo(tx, call, &entry))
    }

    /// Returns the projects of `tenant`, or all projects if `tenant` is `None`, in the order of their creation.
    pub fn projects<'a>(&'a self, tenant: Option<&'a str>) -> FleetFuture<'a, Vec<ProjectView>> {
        let tenant = tenant.map(str::to_owned);
        self.look(move |tx, call| fleet_view::projects(tx, call, tenant.as_deref()))
    }

    /// Returns the project with this id.
    pub fn project<'a>(&'a self, id: &'a str) -> FleetFuture<'a, ProjectView> {
        let id = id.to_owned();
        self.look(move |tx, call| fleet_view::project(tx, call, &id))
    }

    /// Adds all of the tasks, or none if one is invalid. With `dry_run` the tasks are checked and nothing is written.
    pub fn add_tasks<'a>(&'a self, actor: &'a str, tasks: NewTasks) -> FleetFuture<'a, AddedTasks> {
        self.add_tasks_for(actor.to_owned(), tasks, None)
    }

    /// Adds tasks for a tenant, as [`Fleet::add_tasks`] does. Projects of other tenants count as
    /// missing.
    pub fn add_tasks_of_tenant<'a>(
        &'a self,
        tenant: &'a str,
        tasks: NewTasks,
    ) -> FleetFuture<'a, AddedTasks> {
        self.add_tasks_for(format!("tenant:{tenant}"), tasks, Some(tenant.to_owned()))
    }

    fn add_tasks_for(
        &self,
        actor: String,
        tasks: NewTasks,
        tenant: Option<String>,
    ) -> FleetFuture<'_, AddedTasks> {
        match tasks.dry_run {
            true => {
                let call = self.call(actor);
                let add = move |tx: &mut dyn Transaction| {
                    add_tasks::add(tx, &call(), tasks, tenant.as_deref())
                };
                self.inner.store.inspect(add)
            }
            false => self
                .change(actor, move |tx, call| add_tasks::add(tx, call, tasks, tenant.as_deref())),
        }
    }

    /// Returns the tasks that match the query, in the order of their creation.
    pub fn tasks<'a>(&'a self, query: TaskQuery) -> FleetFuture<'a, Vec<TaskLine>> {
        self.look(move |tx, call| tasks::list(tx, call, &query))
    }

    /// Returns the task with this id, with its history and dependencies.
    pub fn task<'a>(&'a self, id: &'a str) -> FleetFuture<'a, TaskView> {
        let id = id.to_owned();
        self.look(move |tx, call| tasks::view(tx, call, &id))
    }

    /// Returns the task with this id, with only those fields that a list of tasks shows.
    pub fn task_line<'a>(&'a self, id: &'a str) -> FleetFuture<'a, TaskLine> {
        let id = id.to_owned();
        self.look(move |tx, call| tasks::one(tx, call, &id))
    }

    /// Returns the task that an agent holds, or `None` if the agent holds no task.
    pub fn held_by<'a>(&'a self, agent: &'a AgentId) -> FleetFuture<'a, Option<TaskLine>> {
        let agent = agent.id.clone();
        self.look(move |tx, call| Ok(tasks::held_by(tx, call, &agent)?))
    }

    /// Changes a task that no agent holds and that is not completed.
    pub fn patch_task<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: TaskPatch,
    ) -> FleetFuture<'a, TaskView> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| tasks::patch(tx, call, &id, patch))
    }

    /// Applies an operator's action to a task.
    pub fn act<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        action: TaskAction,
    ) -> FleetFuture<'a, TaskView> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| {
            task_actions::apply_action(tx, call, &id, action)
        })
    }

    /// Explains why a task is in its state.
    pub fn why<'a>(&'a self, id: &'a str) -> FleetFuture<'a, TaskExplanation> {
        self.why_for(id, ExplanationScope::Everything)
    }

    /// Explains why a task is in its state, without naming projects or tasks of other tenants.
    pub fn why_within_tenant<'a>(&'a self, id: &'a str) -> FleetFuture<'a, TaskExplanation> {
        self.why_for(id, ExplanationScope::ItsTenant)
    }

    fn why_for<'a>(
        &'a self,
        id: &'a str,
        for_whom: ExplanationScope,
    ) -> FleetFuture<'a, TaskExplanation> {
        let (id, waiting) = (id.to_owned(), self.inner.dispatch.waiters.names());
        self.look(move |tx, call| explain::of(tx, call, &id, &waiting, for_whom))
    }

    /// Returns a page of the log of a claim, starting at `first_byte`. `None` as `epoch` means the
    /// task's latest claim.
    pub fn log<'a>(
        &'a self,
        task: &'a str,
        epoch: Option<u64>,
        first_byte: u64,
    ) -> FleetFuture<'a, LogPage> {
        let task = task.to_owned();
        self.look(move |tx, _| task_logs::page(tx, &task, epoch, first_byte))
    }

    /// Adds an agent, and returns the agent with its token, which is never shown again.
    pub fn add_agent<'a>(
        &'a self,
        actor: &'a str,
        agent: NewAgent,
    ) -> FleetFuture<'a, AgentWithToken> {
        self.change(actor.to_owned(), move |tx, call| agents::add(tx, call, agent))
    }

    /// Changes those fields of an agent that the patch sets.
    pub fn patch_agent<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
        patch: AgentPatch,
    ) -> FleetFuture<'a, AgentView> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| agents::patch(tx, call, &id, patch))
    }

    /// Replaces an agent's token. The old token stops working at once.
    pub fn rotate_agent<'a>(
        &'a self,
        actor: &'a str,
        id: &'a str,
    ) -> FleetFuture<'a, AgentWithToken> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| agents::rotate(tx, call, &id))
    }

    /// Returns all agents, ordered by name.
    pub fn agents<'a>(&'a self) -> FleetFuture<'a, Vec<AgentView>> {
        self.look(|tx, _| Ok(agents::list(tx)?))
    }

    /// Adds a workspace to a project.
    pub fn add_workspace<'a>(
        &'a self,
        actor: &'a str,
        workspace: NewWorkspace,
    ) -> FleetFuture<'a, WorkspaceView> {
        self.change(actor.to_owned(), move |tx, call| workspaces::add(tx, call, workspace))
    }

    /// Removes a workspace. Fails if a task holds the workspace, or if an open task must run in it.
    pub fn remove_workspace<'a>(&'a self, actor: &'a str, id: &'a str) -> FleetFuture<'a, ()> {
        let id = id.to_owned();
        self.change(actor.to_owned(), move |tx, call| workspaces::remove(tx, call, &id))
    }

    /// Returns the workspaces of `project`, or all workspaces if `project` is `None`, ordered by name.
    pub fn workspaces<'a>(
        &'a self,
        project: Option<&'a str>,
    ) -> FleetFuture<'a, Vec<WorkspaceView>> {
        let project = project.map(str::to_owned);
        self.look(move |tx, _| workspaces::list(tx, project.as_deref()))
    }

    /// Returns an overview of the whole fleet.
    pub fn view<'a>(&'a self) -> FleetFuture<'a, FleetView> {
        let waiting = self.inner.dispatch.waiters.names();
        self.look(move |tx, call| fleet_view::fleet(tx, call, &waiting))
    }

    /// Returns the agent with this token; `None` if no agent has it.
    pub fn agent<'a>(&'a self, token: &'a str) -> FleetFuture<'a, Option<AgentId>> {
        let token = token.to_owned();
        self.look(move |tx, _| agents::of_token(tx, &token))
    }

    /// Waits up to `wait` for a task, and returns `None` if there was none. An agent that already holds a task gets the
    /// same task again.
    pub fn claim<'a>(
        &'a self,
        agent: &'a AgentId,
        wait: Duration,
    ) -> FleetFuture<'a, Option<Claim>> {
        Box::pin(async move {
            let Some(granted) = self.inner.dispatch.claim(agent, wait).await? else {
                return Ok(None);
            };
            let GrantedClaim { mut claim, has_needs } = granted;
            if has_needs {
                // If this fails, the agent calls again and gets the same claim.
                claim = self
                    .look(move |tx, _| {
                        task_results::add_to_claim(tx, &mut claim)?;
                        Ok(claim)
                    })
                    .await?;
            }
            Ok(Some(claim))
        })
    }

    /// Returns the result of a task that the claim's task needs. Only the agent that holds the
    /// claim may read it.
    pub fn needed_result<'a>(
        &'a self,
        agent: &AgentId,
        task: &str,
        epoch: u64,
        need: &str,
    ) -> FleetFuture<'a, String> {
        let (agent, task, need) = (agent.id.clone(), task.to_owned(), need.to_owned());
        self.look(move |tx, _| {
            let named = ClaimRef { agent: &agent, task: &task, epoch };
            task_results::of_need(tx, named, &need)
        })
    }

    /// Renews the lease of a claim.
    pub fn heartbeat<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        heartbeat: TaskHeartbeat,
    ) -> FleetFuture<'a, TaskLeaseBody> {
        let beat = self.update_claim(agent, task, epoch, move |tx, call, named| {
            claims::heartbeat(tx, call, named, &heartbeat)
        });
        Box::pin(async move { beat.await? })
    }

    /// Appends bytes to the log of a claim, and returns the position at which the next byte must
    /// start. Bytes that were received before are ignored.
    pub fn append_log<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        first_byte: u64,
        bytes: Vec<u8>,
    ) -> FleetFuture<'a, u64> {
        self.update_claim(agent, task, epoch, move |tx, call, named| {
            task_logs::append(tx, call, named, first_byte, &bytes)
        })
    }

    /// Deletes the logs of at most 50 tasks that ended before the time `before`, and returns the
    /// number of these tasks. To delete all such logs, repeat the call until the result is 0.
    pub fn forget_logs(&self, before: UnixMicros) -> FleetFuture<'_, u64> {
        self.transact(TransactionDurability::ThroughKill, "fleet".to_owned(), move |tx, _| {
            Ok(task_logs::forget(tx, before)?)
        })
    }

    /// Ends a claim because its task failed. The task is retried later, waits until a provider's limit ends, or is
    /// blocked. Repeating the call is not an error.
    pub fn fail<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        failure: TaskFailure,
    ) -> FleetFuture<'a, TaskLine> {
        self.end(agent, task, epoch, move |tx, call, named| claims::fail(tx, call, named, &failure))
    }

    /// Ends a claim with a question to an operator. The task waits for the answer, and the agent is free for other
    /// tasks. Repeating the call is not an error.
    pub fn ask<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        question: TaskQuestion,
    ) -> FleetFuture<'a, TaskLine> {
        self.end(agent, task, epoch, move |tx, call, named| claims::ask(tx, call, named, &question))
    }

    /// Ends a claim and gives its task back, without counting a failure. Repeating the call is not an error.
    pub fn release<'a>(
        &'a self,
        agent: &'a AgentId,
        task: &'a str,
        epoch: u64,
        release: TaskRelease,
    ) -> FleetFuture<'a, TaskLine> {
        self.end(agent, task, epoch, move |tx, call, named| {
            claims::release(tx, call, named, &release)
        })
    }

    /// Records that a limit stops the model calls of a claim until `until`. If the agent fails or
    /// releases the task before that time, the task waits until then, and no failure is counted.
    /// `None` as `until` means the task's cap; if the agent then fails the task, the task is
    /// blocked.
    pub fn note_limit<'a>(
        &'a self,
        claim: &TaskClaim,
        until: Option<UnixMicros>,
        cause: LimitCause,
    ) -> FleetFuture<'a, ()> {
        let claim = claim.clone();
        self.transact(TransactionDurability::ThroughKill, "fleet".to_owned(), move |tx, call| {
            claims::note_limit(tx, call, &claim, until, cause)
        })
    }

    /// Returns the claim of a task key; `None` if the claim is over.
    pub fn task_key<'a>(&'a self, hash: KeyHash) -> FleetFuture<'a, Option<TaskKey>> {
        self.look(move |tx, _| Ok(agents::of_task_key(tx, hash)?))
    }

    /// Returns the task for each of these requests in flight. Requests that belong to no task, or
    /// have ended, are left out.
    pub fn tasks_of_calls(
        &self,
        requests: Vec<String>,
    ) -> FleetFuture<'_, HashMap<String, String>> {
        self.look(move |tx, _| Ok(model_calls::tasks_of(tx, &requests)?))
    }

    /// Returns the statistics of all past rounds in which at least one agent waited.
    pub fn rounds(&self) -> RoundStats {
        self.inner.dispatch.rounds()
    }

    /// Runs the loop of rounds until [`Fleet::stop`] is called or the store is closed.
    pub fn run(&self) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let FleetInner { store, clock, dispatch, .. } = &*self.inner;
        Box::pin(Arc::clone(dispatch).run(store.clone(), Arc::clone(clock)))
    }

    /// Ends the loop of rounds. Waiting agents get the answer that there is no task, and the journal of rounds is
    /// flushed before [`Fleet::run`] returns. Must be called before the store is closed.
    pub fn stop(&self) {
        self.inner.dispatch.stop();
    }

    /// Wakes the loop of rounds after a change that was made without this handle, such as the
    /// settlement of a request.
    pub fn wake(&self) {
        self.inner.changed.notify_one();
    }

    /// Returns the number of scheduler calls that are missing in the journal of rounds, because
    /// they could not be written.
    pub fn rounds_not_journaled(&self) -> u64 {
        self.inner.dispatch.not_journaled()
    }

    /// Returns the state of the loop of rounds, for tests that run the steps of the loop by
    /// themselves.
    #[cfg(test)]
    pub(crate) fn dispatch(&self) -> &RoundLoop {
        &self.inner.dispatch
    }
}
