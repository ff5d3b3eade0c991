//! Who gets what: a scene in, starts out. Nothing here asks a database or a clock, and nothing here compares projects:
//! `proportional` does, on snapshots that are made here.
//!
//! `proportional` knows neither types of agents nor affinity. Agents that are alike in both respects, one after another, share
//! one call. For such a call a type's maximum is a lower `max_concurrent_agents`, and tasks that wait for somebody else are
//! left out; an agent that some task waits for has a call of its own. Each call sees what the calls before it gave away.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use fairgate_core::proportional::{
    Agent, Mode, Project, Snapshot, SnapshotError, SnapshotParts, Task, TaskStatus, schedule,
};
use fairgate_core::units::Tokens;
use fairgate_journal::schedule::Round;

use super::scene::{ProjectRow, ReadyTask, Scene};

/// How many calls a round makes at most. Agents that are left wait for the next round, which follows at once.
const CALLS_MAX: usize = 64;

/// What a round decided.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// Each call of the scheduler, as it goes to the journal.
    pub(crate) calls: Vec<Round>,
    /// What starts, in the order decided.
    pub(crate) starts: Vec<Start>,
    /// Projects that ran out of loaded tasks and may have others that could start.
    pub(crate) dry: Vec<Dry>,
    /// Whether agents are left that no call was made for.
    pub(crate) is_unfinished: bool,
}

/// A project that ran out of loaded tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dry {
    /// Its place in the scene.
    pub(crate) project: usize,
    /// Whether tasks are left that cannot start because of those that did: then any number of the next ones may be like them.
    pub(crate) has_rest: bool,
}

/// A task that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// The places of both in the scene.
    pub(crate) agent: usize,
    pub(crate) task: usize,
}

/// Decides a round.
pub(crate) fn decide(scene: &Scene) -> Result<Decision, SnapshotError> {
    let mut desk = Desk::new(scene);
    let mut decision = Decision::default();
    for call in calls(scene) {
        if decision.calls.len() == CALLS_MAX {
            decision.is_unfinished = true;
            break;
        }
        let Some(snapshot) = desk.snapshot(call.clone())? else { continue };
        let assignments = schedule(&snapshot);
        for assignment in &assignments {
            let task = desk.task_places[&*assignment.task_id];
            let is_it = |agent: &usize| scene.waiting[*agent].agent == assignment.agent_id;
            let Some(agent) = call.clone().find(is_it) else { continue };
            desk.give(agent, task);
            decision.starts.push(Start { agent, task });
        }
        decision.calls.push(Round { at: scene.at.0, snapshot, assignments });
    }
    decision.dry = desk.dry();
    Ok(decision)
}

/// The agents that share a call, one group after the other.
fn calls(scene: &Scene) -> Vec<Range<usize>> {
    let limited: HashSet<&str> =
        scene.projects.iter().flat_map(|it| it.kind_max.keys().map(String::as_str)).collect();
    let awaited: HashSet<&str> =
        scene.tasks.iter().filter_map(|task| task.affinity.as_deref()).collect();
    let kind = |agent: usize| Some(&*scene.waiting[agent].kind).filter(|it| limited.contains(it));
    let is_awaited = |agent: usize| awaited.contains(&*scene.waiting[agent].agent);
    let mut calls: Vec<Range<usize>> = Vec::new();
    for agent in 0..scene.waiting.len() {
        match calls.last_mut() {
            Some(call)
                if kind(call.start) == kind(agent)
                    && !is_awaited(call.start)
                    && !is_awaited(agent) =>
            {
                call.end = agent + 1;
            }
            _ => calls.push(agent..agent + 1),
        }
    }
    calls
}

/// What the calls of a round have left.
struct Desk<'a> {
    scene: &'a Scene,
    projects: Vec<ProjectNow>,
    is_given: Vec<bool>,
    task_places: HashMap<&'a str, usize>,
    /// Workspaces that tasks of this round must have, and for which task.
    taken: BTreeMap<&'a str, usize>,
}

/// What of a project changes during a round.
struct ProjectNow {
    reserved: u64,
    running: u64,
    running_by_kind: BTreeMap<String, u64>,
    /// How many of its workspaces are free.
    free: Option<u64>,
}

impl<'a> Desk<'a> {
    fn new(scene: &'a Scene) -> Self {
        let now = |project: &ProjectRow| ProjectNow {
            reserved: project.reserved,
            running: project.running,
            running_by_kind: project.running_by_kind.clone(),
            free: project.free_workspaces,
        };
        Self {
            scene,
            projects: scene.projects.iter().map(now).collect(),
            is_given: vec![false; scene.tasks.len()],
            task_places: (scene.tasks.iter().enumerate())
                .map(|(place, task)| (&*task.id, place))
                .collect(),
            taken: BTreeMap::new(),
        }
    }

    /// What the scheduler sees for these agents; none where no task could start for them.
    fn snapshot(&self, call: Range<usize>) -> Result<Option<Snapshot>, SnapshotError> {
        let waiting = &self.scene.waiting[call];
        let Some(first) = waiting.first() else { return Ok(None) };
        let may_take = |task: &ReadyTask| match &task.affinity {
            Some(agent) => waiting.len() == 1 && *agent == first.agent,
            None => true,
        };
        let tasks = self.scene.tasks.iter().zip(&self.is_given);
        let tasks = tasks.filter(|(task, is_given)| !**is_given && may_take(task));
        let tasks: Vec<&ReadyTask> = tasks.map(|(task, _)| task).collect();
        if tasks.is_empty() {
            return Ok(None);
        }
        let agents = waiting.iter().map(|it| Agent::idle(it.agent.clone())).collect();
        self.parts(&tasks, agents, Some(&first.kind)).map(Some)
    }

    fn parts(
        &self,
        tasks: &[&ReadyTask],
        agents: Vec<Agent>,
        kind: Option<&str>,
    ) -> Result<Snapshot, SnapshotError> {
        let mut parts = SnapshotParts {
            mode: Mode::Strict,
            min_task_guarantee: self.scene.min_task_guarantee,
            global_budget: self.scene.budget.map(Tokens),
            global_tokens_used: Tokens(self.scene.used()),
            agents,
            ..SnapshotParts::default()
        };
        let mut is_listed = vec![false; self.projects.len()];
        for task in tasks {
            is_listed[task.project] = true;
            parts.tasks.push(self.task(task));
            if let Some(workspace) = &task.workspace
                && let Some(taker) = self.taken.get(&**workspace)
            {
                let holder = self.scene.tasks[*taker].id.clone();
                parts.workspace_locks.insert(workspace.clone(), Some(holder));
            }
        }
        let are_counted =
            is_listed.iter().zip(&self.projects).any(|(is, it)| *is && it.free.is_some());
        for (place, is_listed) in is_listed.into_iter().enumerate() {
            self.add_project(&mut parts, place, is_listed, are_counted, kind);
        }
        Snapshot::check(parts)
    }

    fn task(&self, task: &ReadyTask) -> Task {
        Task {
            id: task.id.clone(),
            project_id: self.scene.projects[task.project].id.clone(),
            status: TaskStatus::Ready,
            priority: task.priority,
            created: task.made,
            estimated_tokens: Some(Tokens(task.estimate)),
            preferred_workspace_id: task.workspace.clone(),
        }
    }

    fn add_project(
        &self,
        parts: &mut SnapshotParts,
        place: usize,
        is_listed: bool,
        are_workspaces_counted: bool,
        kind: Option<&str>,
    ) {
        let (row, now) = (&self.scene.projects[place], &self.projects[place]);
        let id = || row.id.clone();
        // What others have reserved counts against the budget of all.
        if now.reserved > 0 && (is_listed || self.scene.budget.is_some()) {
            parts.project_reserved_tokens.insert(id(), Tokens(now.reserved));
        }
        if !is_listed {
            return;
        }
        parts.projects.push(Project {
            max_concurrent_agents: agents_max(row, now, kind),
            credit_weight: row.weight,
            budget_limit: row.budget.map(Tokens),
            ..Project::new(id())
        });
        let tokens = [
            (&mut parts.project_token_usage, row.used),
            (&mut parts.project_baseline_tokens, row.baseline),
        ];
        for (map, count) in tokens {
            if count > 0 {
                map.insert(id(), Tokens(count));
            }
        }
        let counts = [
            (&mut parts.project_active_agent_counts, now.running),
            (&mut parts.tasks_completed_in_window, row.completed),
        ];
        for (map, count) in counts {
            if count > 0 {
                map.insert(id(), count);
            }
        }
        if are_workspaces_counted {
            // A project without any needs none: as many as there are agents is as good as no limit.
            let free = now.free.unwrap_or(parts.agents.len() as u64);
            parts.project_available_workspaces.insert(id(), free);
        }
    }

    fn give(&mut self, agent: usize, place: usize) {
        let scene = self.scene;
        let task = &scene.tasks[place];
        let now = &mut self.projects[task.project];
        now.reserved = now.reserved.saturating_add(task.estimate);
        now.running += 1;
        *now.running_by_kind.entry(scene.waiting[agent].kind.to_string()).or_default() += 1;
        now.free = now.free.map(|free| free.saturating_sub(1));
        if let Some(workspace) = &task.workspace {
            self.taken.insert(workspace, place);
        }
        self.is_given[place] = true;
    }

    /// Projects that could take more agents, had more of their tasks been loaded.
    fn dry(&self) -> Vec<Dry> {
        let scene = self.scene;
        if !scene.projects.iter().any(|project| project.is_cut) {
            return Vec::new();
        }
        let reserved = self.projects.iter().map(|it| it.reserved);
        let spent = reserved.fold(scene.used(), u64::saturating_add);
        let global = scene.budget.map_or(u64::MAX, |budget| budget.saturating_sub(spent));
        let left = |place: usize| {
            let (row, now) = (&scene.projects[place], &self.projects[place]);
            let spent = row.used.saturating_add(now.reserved);
            row.budget.map_or(u64::MAX, |budget| budget.saturating_sub(spent)).min(global)
        };
        let (mut has_next, mut has_rest) =
            (vec![false; self.projects.len()], vec![false; self.projects.len()]);
        let tasks = scene.tasks.iter().zip(&self.is_given);
        for (task, _) in tasks.filter(|(task, is_given)| !**is_given && task.affinity.is_none()) {
            let is_taken = task.workspace.as_ref().is_some_and(|it| self.taken.contains_key(&**it));
            let can_start = !is_taken && task.estimate <= left(task.project);
            let which = if can_start { &mut has_next } else { &mut has_rest };
            which[task.project] = true;
        }
        let dry = |project: usize| {
            let (row, now) = (&scene.projects[project], &self.projects[project]);
            let has_room = now.running < row.agents_max && now.free != Some(0) && left(project) > 0;
            let is_dry = row.is_cut && row.is_active && has_room && !has_next[project];
            is_dry.then_some(Dry { project, has_rest: has_rest[project] })
        };
        (0..self.projects.len()).filter_map(dry).collect()
    }
}

/// How many agents may work for a project in a call for agents of one type.
fn agents_max(row: &ProjectRow, now: &ProjectNow, kind: Option<&str>) -> u64 {
    let of_kind = |kind: &str| {
        let most = row.kind_max.get(kind)?;
        let running = now.running_by_kind.get(kind).copied().unwrap_or_default();
        Some(now.running.saturating_add(most.saturating_sub(running)))
    };
    kind.and_then(of_kind).map_or(row.agents_max, |most| most.min(row.agents_max))
}
