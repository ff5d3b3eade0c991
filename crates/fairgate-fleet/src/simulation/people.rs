//! What people make, and how they interfere.

use std::collections::BTreeMap;

use fairgate_core::proportional::CreditWeight;

use super::world::{Agent, Doing, World};
use crate::error::FleetError;
use crate::fleet::AgentId;
use crate::model::*;
use crate::state::{ProjectStatus, TaskState};

impl World {
    pub(super) async fn add_projects(&mut self, most: u64) {
        for number in 0..self.dice.within(2, most) {
            let id = format!("p{number}");
            let weight = CreditWeight::from_thousandths(self.dice.within(1, 40) * 250).unwrap();
            let agent_max = match self.dice.below(4) {
                0 => {
                    BTreeMap::from([("big".to_owned(), u32::try_from(self.dice.below(3)).unwrap())])
                }
                _ => BTreeMap::new(),
            };
            let project = NewProject {
                id: id.clone(),
                tenant: "t".into(),
                weight: Some(Weight(weight)),
                concurrency: Some(u32::try_from(self.dice.within(1, 6)).unwrap()),
                exclusive: self.dice.one_in(8),
                agent_max,
                budget: self.dice.one_in(4).then(|| self.dice.within(500, 8_000)),
            };
            self.fleet().add_project("admin", project).await.unwrap();
            if self.dice.one_in(3) {
                for workspace in 0..self.dice.within(1, 4) {
                    let workspace = NewWorkspace {
                        id: format!("{id}-w{workspace}"),
                        project: id.clone(),
                        path: "/w".into(),
                    };
                    self.fleet().add_workspace("admin", workspace).await.unwrap();
                }
            }
            self.projects.push(id);
        }
    }

    pub(super) async fn add_agents(&mut self, most: u64) {
        for number in 0..self.dice.within(2, most) {
            let kind = self.dice.one_in(3).then(|| "big".to_owned());
            let id = format!("a{number}");
            // They say themselves what they use, so that it is known here what must be charged.
            let agent = NewAgent { id: id.clone(), kind, reports_tokens: true };
            self.fleet().add_agent("admin", agent).await.unwrap();
            self.agents.push(Agent { id: AgentId { id, seed: [0; 32] }, doing: Doing::Idle });
        }
    }

    pub(super) async fn add_tasks(&mut self, most: u64) {
        let first = self.next_task;
        let mut tasks = Vec::new();
        for _ in 0..self.dice.within(1, most) {
            let number = self.next_task;
            self.next_task += 1;
            let project = self.projects[self.dice.place(&self.projects)].clone();
            let workspaces = self
                .rows(&format!("SELECT id FROM fleet_workspaces WHERE project = '{project}'"))
                .await;
            let has_own = !workspaces.is_empty() && self.dice.one_in(3);
            let workspace = has_own.then(|| workspaces[self.dice.place(&workspaces)].clone());
            let affinity = self
                .dice
                .one_in(8)
                .then(|| self.agents[self.dice.place(&self.agents)].id.id.clone());
            let needs = (number > first && self.dice.one_in(4))
                .then(|| format!("t{}", self.dice.within(first, number - 1)));
            let resume_after = self.dice.one_in(10).then(|| self.now() + 30_000_000);
            tasks.push(NewTask {
                id: Some(format!("t{number}")),
                project,
                title: None,
                prompt: "do it".into(),
                priority: Some(self.dice.within(1, 3).cast_signed()),
                needs: needs.into_iter().collect(),
                estimate: self.dice.one_in(2).then(|| self.dice.within(1, 900)),
                retries: Some(u32::try_from(self.dice.below(4)).unwrap()),
                resume_after: resume_after.map(fairgate_money::UnixMicros),
                workspace,
                affinity,
                affinity_wait_s: None,
            });
        }
        self.fleet().add_tasks("admin", NewTasks { tasks, dry_run: false }).await.unwrap();
    }

    /// A person does something, possible or not.
    pub(super) async fn interfere(&mut self) {
        let fleet = self.fleet();
        let task = format!("t{}", self.dice.below(self.next_task));
        let project = self.projects[self.dice.place(&self.projects)].clone();
        let done: Result<(), FleetError> = match self.dice.below(9) {
            0 | 1 => {
                self.add_tasks(12).await;
                Ok(())
            }
            2 => fleet.act("admin", &task, TaskAction::Cancel { reason: None }).await.map(drop),
            3 => {
                let until = fairgate_money::UnixMicros(self.now() + 20_000_000);
                let until = self.dice.one_in(2).then_some(until);
                fleet.act("admin", &task, TaskAction::Pause { until, reason: None }).await.map(drop)
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
                let status = if paused { ProjectStatus::Paused } else { ProjectStatus::Active };
                let patch = ProjectPatch { status: Some(status), ..ProjectPatch::default() };
                fleet.patch_project("admin", &project, patch).await.map(drop)
            }
        };
        match done {
            Ok(()) | Err(FleetError::Transition { .. } | FleetError::InUse { .. }) => {}
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    async fn act_on_all(
        &mut self,
        state: TaskState,
        action: &TaskAction,
    ) -> Result<(), FleetError> {
        let tasks = self.rows(&format!("SELECT id FROM fleet_tasks WHERE state = '{state}'")).await;
        for task in tasks {
            self.fleet().act("admin", &task, action.clone()).await?;
        }
        Ok(())
    }
}
