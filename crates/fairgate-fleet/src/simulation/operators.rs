//! Simulated operators. They add projects, agents and tasks, and change them at random.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairgate_api::RightsPatchBody;
use fairgate_api::fleet::{
    FleetProjectStatus, NewAgent, NewProject, NewTask, NewTasks, NewWorkspace, ProjectPatch,
    ProjectShareWeight, TaskAction, TaskState,
};
use fairgate_core::proportional::CreditWeight;
use fairgate_store::{Transaction, TransactionDurability};

use super::expected_state::{ExpectedProject, ExpectedTask};
use super::simulated_fleet::{FleetSimActivity, FleetSimAgent, FleetSimSize, FleetSimulation};
use crate::agent_id::AgentId;
use crate::agents;
use crate::call_context::CallContext;
use crate::error::FleetError;
use crate::fleet_clock::FleetClock;

/// Label that some projects require.
const PROJECT_LABEL: &str = "tool:gpu";
/// Label that the tenant `u` requires.
pub(super) const TENANT_LABEL: &str = "zone:eu";
/// Label that some tasks require.
const TASK_LABEL: &str = "tool:net";

/// Returns the machine on which an agent runs.
pub(super) fn machine_of(agent: u64) -> String {
    format!("m{}", agent % 5 % 3)
}

/// Returns the labels of an agent by its number.
pub(super) fn labels_of(agent: u64) -> BTreeSet<String> {
    let labels = [
        agent.is_multiple_of(2).then(|| PROJECT_LABEL.to_owned()),
        (agent % 4 != 3).then(|| TENANT_LABEL.to_owned()),
        agent.is_multiple_of(3).then(|| TASK_LABEL.to_owned()),
        Some(format!("machine:{}", machine_of(agent))),
    ];
    labels.into_iter().flatten().collect()
}

impl FleetSimulation {
    pub(super) async fn add_projects(&mut self, count: u64) {
        let many = if self.size == FleetSimSize::Large { 60 } else { 1 };
        for number in 0..count {
            let id = format!("p{number}");
            let weight = CreditWeight::from_thousandths(self.dice.within(1, 40) * 250).unwrap();
            let agent_max = match self.dice.below(4) {
                0 => {
                    BTreeMap::from([("big".to_owned(), u32::try_from(self.dice.below(3)).unwrap())])
                }
                _ => BTreeMap::new(),
            };
            let tenant = if number % 3 == 2 { "u" } else { "t" };
            let project = NewProject {
                id: id.clone(),
                tenant: tenant.into(),
                weight: Some(ProjectShareWeight(weight)),
                concurrency: Some(u32::try_from(self.dice.within(1, 6) * many).unwrap()),
                exclusive: self.dice.one_in(8),
                agent_max,
                requires: if self.dice.one_in(4) {
                    vec![PROJECT_LABEL.to_owned()]
                } else {
                    Vec::new()
                },
                budget: self.dice.one_in(4).then(|| self.dice.within(500, 8_000) * many),
                rights: RightsPatchBody::default(),
            };
            let mut requires: BTreeSet<String> = project.requires.iter().cloned().collect();
            requires.extend(self.tenant_requires.iter().filter(|_| tenant == "u").cloned());
            let mut shadow = ExpectedProject {
                concurrency: project.concurrency.unwrap().into(),
                exclusive: project.exclusive,
                requires,
                big_max: project.agent_max.get("big").map(|most| u64::from(*most)),
                budget: project.budget,
                workspaces: BTreeMap::new(),
                uses: Vec::new(),
            };
            self.fleet().add_project("admin", project).await.unwrap();
            if self.dice.one_in(3) {
                for workspace in 0..self.dice.within(1, 4) * many {
                    let is_bound = self.dice.one_in(3);
                    let workspace = NewWorkspace {
                        id: format!("{id}-w{workspace}"),
                        project: id.clone(),
                        path: format!("/w/{id}-{workspace}"),
                        machine: is_bound.then(|| machine_of(self.dice.below(5))),
                    };
                    shadow.workspaces.insert(workspace.id.clone(), workspace.machine.clone());
                    self.fleet().add_workspace("admin", workspace).await.unwrap();
                }
            }
            self.expected.projects.insert(id.clone(), shadow);
            self.projects.push(id);
        }
    }

    /// Adds agents in one transaction, because there may be thousands. Most of them call models
    /// through the gateway. The others report their usage, and the reports are charged.
    pub(super) async fn add_agents(&mut self, count: u64) {
        let mut made = Vec::new();
        for number in 0..count {
            let is_big = self.dice.one_in(3);
            let reports_tokens = self.dice.one_in(4);
            let kind = is_big.then(|| "big".to_owned());
            let labels = labels_of(number).into_iter().collect();
            let id = format!("a{number}");
            made.push(NewAgent { id, kind, reports_tokens, labels, tenants: None });
            let lies = !reports_tokens && self.dice.one_in(5);
            let id = AgentId { id: format!("a{number}"), seed: [0; 32], token: None };
            let doing = FleetSimActivity::Idle;
            self.agents.push(FleetSimAgent { id, is_big, reports: reports_tokens, lies, doing });
        }
        let (now, options) = (self.clock.now(), Arc::new(self.options.clone()));
        let call = CallContext { now, actor: "admin".into(), options };
        let work = move |tx: &mut dyn Transaction| -> Result<Vec<AgentId>, FleetError> {
            let add = |agent: NewAgent| {
                let token = agents::add(tx, &call, agent)?.token;
                Ok(agents::of_token(tx, &token)?.unwrap())
            };
            made.into_iter().map(add).collect()
        };
        let ids = self.store.transact(TransactionDurability::ThroughKill, work).await.unwrap();
        for (agent, id) in self.agents.iter_mut().zip(ids) {
            agent.id = id;
        }
        self.counts.agents += count;
    }

    pub(super) async fn add_tasks(&mut self, least: u64, most: u64) {
        let first = self.next_task;
        let mut tasks = Vec::new();
        for _ in 0..self.dice.within(least, most) {
            let number = self.next_task;
            self.next_task += 1;
            let project = self.projects[self.dice.place(&self.projects)].clone();
            let workspaces: Vec<_> =
                self.expected.projects[&project].workspaces.keys().cloned().collect();
            let has_own = !workspaces.is_empty() && self.dice.one_in(3);
            let workspace = has_own.then(|| workspaces[self.dice.place(&workspaces)].clone());
            let affinity = self
                .dice
                .one_in(8)
                .then(|| self.agents[self.dice.place(&self.agents)].id.id.clone());
            let needs = (number > first && self.dice.one_in(4))
                .then(|| format!("t{}", self.dice.within(first, number - 1)));
            let resume_after = self.dice.one_in(10).then(|| self.now() + 30_000_000);
            let requires = self.dice.one_in(6).then(|| TASK_LABEL.to_owned());
            let task = ExpectedTask {
                requires: requires.iter().cloned().collect(),
                project: project.clone(),
                workspace: workspace.clone(),
                epoch: 0,
                used: 0,
                calls: 0,
                is_completed: false,
            };
            self.expected.tasks.insert(format!("t{number}"), task);
            let timeout = self.dice.one_in(4);
            tasks.push(NewTask {
                id: Some(format!("t{number}")),
                project,
                prompt: "do it".into(),
                priority: Some(self.dice.within(1, 3).cast_signed()),
                needs: needs.into_iter().collect(),
                estimate: self.dice.one_in(2).then(|| self.dice.within(1, 900)),
                retries: Some(u32::try_from(self.dice.below(4)).unwrap()),
                timeout_s: timeout.then(|| u32::try_from(self.dice.within(5, 200)).unwrap()),
                resume_after: resume_after.map(fairgate_time::UnixMicros),
                workspace,
                requires: requires.into_iter().collect(),
                affinity,
                ..NewTask::default()
            });
        }
        self.fleet().add_tasks("admin", NewTasks { tasks, dry_run: false }).await.unwrap();
    }

    /// Performs a random action of an operator. The fleet may refuse it.
    pub(super) async fn interfere(&mut self) {
        let fleet = self.fleet();
        let task = format!("t{}", self.dice.below(self.next_task));
        let project = self.projects[self.dice.place(&self.projects)].clone();
        let done: Result<(), FleetError> = match self.dice.below(9) {
            0 | 1 => {
                self.add_tasks(1, 12).await;
                Ok(())
            }
            2 => self.take_away(&task, TaskAction::Cancel { reason: None }).await,
            3 => {
                let until = fairgate_time::UnixMicros(self.now() + 20_000_000);
                let until = self.dice.one_in(2).then_some(until);
                self.take_away(&task, TaskAction::Pause { until, reason: None }).await
            }
            4 => self.act_on_all(TaskState::Paused, &TaskAction::Resume).await,
            5 => {
                self.act_on_all(TaskState::Blocked, &TaskAction::Restart).await.unwrap();
                self.act_on_all(TaskState::Failed, &TaskAction::Restart).await
            }
            6 => {
                let answer = TaskAction::Answer { text: "This one.".into() };
                self.act_on_all(TaskState::WaitingInput, &answer).await
            }
            7 => self.act_on_all(TaskState::Blocked, &TaskAction::Skip { reason: None }).await,
            _ => {
                let paused = self.dice.one_in(3);
                let status =
                    if paused { FleetProjectStatus::Paused } else { FleetProjectStatus::Active };
                let patch = ProjectPatch { status: Some(status), ..ProjectPatch::default() };
                fleet.patch_project("admin", &project, patch).await.map(drop)
            }
        };
        match done {
            Ok(()) | Err(FleetError::Transition { .. } | FleetError::InUse { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    /// Cancels or pauses a task, which ends its claim.
    async fn take_away(&mut self, task: &str, action: TaskAction) -> Result<(), FleetError> {
        self.fleet().act("admin", task, action).await?;
        self.expected.holds.remove(task);
        Ok(())
    }

    async fn act_on_all(
        &mut self,
        state: TaskState,
        action: &TaskAction,
    ) -> Result<(), FleetError> {
        let tasks = self.rows(&format!("SELECT id FROM fleet_tasks WHERE state = '{state}'")).await;
        for task in tasks {
            self.fleet().act("admin", &task, action.clone()).await?;
            if matches!(action, TaskAction::Skip { .. }) {
                self.expected.tasks.get_mut(&task).unwrap().is_completed = true;
            }
        }
        Ok(())
    }
}
