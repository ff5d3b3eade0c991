//! Benchmarks of the proportional scheduler, strict and classic: against the naive scheduler, and against itself
//! on larger snapshots.

use std::hint::black_box;

use fairgate_core::proportional::{
    CreditWeight, ScheduleMode, ScheduleSnapshot, ScheduleSnapshotParts, ScheduledAgent,
    ScheduledProject, ScheduledTask, schedule,
};
use fairgate_core::units::Tokens;
use fairgate_testkit::naive_proportional;
use fairgate_testkit::workload::SeededRng;

use crate::measure::{TimedSubject, nanoseconds};

const TASKS_PER_PROJECT: usize = 10;

/// Builds a snapshot in which no two projects have the same weight, which is the most expensive
/// case for the fast scheduler.
fn snapshot(mode: ScheduleMode, projects: usize, agents: usize) -> ScheduleSnapshot {
    let mut rng = SeededRng::new(3);
    let mut parts = ScheduleSnapshotParts { mode, ..ScheduleSnapshotParts::default() };
    parts.global_budget = Some(Tokens(1 << 50));
    for number in 0..projects {
        let id: Box<str> = format!("project-{number:05}").into();
        let mut project = ScheduledProject::new(id.clone());
        let thousandths = 1000 + u64::try_from(number).expect("fits");
        project.credit_weight = CreditWeight::from_thousandths(thousandths).expect("in range");
        project.budget_limit = Some(Tokens(1 << 40));
        parts.project_token_usage.insert(id.clone(), Tokens(rng.range(0..=1_000_000)));
        parts.tasks_completed_in_window.insert(id.clone(), rng.range(0..=3));
        parts.project_available_workspaces.insert(id.clone(), rng.range(1..=4));
        for _ in 0..TASKS_PER_PROJECT {
            let mut task =
                ScheduledTask::ready(format!("task-{:06}", parts.tasks.len()), id.clone());
            task.priority = rng.range(0..=9).cast_signed();
            task.created = rng.range(0..=1_000_000).cast_signed();
            task.estimated_tokens = Some(Tokens(rng.range(1..=10_000)));
            parts.tasks.push(task);
        }
        parts.projects.push(project);
    }
    parts.agents =
        (0..agents).map(|agent| ScheduledAgent::idle(format!("agent-{agent:04}"))).collect();
    ScheduleSnapshot::check(parts).expect("a snapshot that can be")
}

struct ScheduleCalls(ScheduleSnapshot);

impl TimedSubject for ScheduleCalls {
    fn time(&mut self, operations: u64) -> f64 {
        let ((), took) = nanoseconds(|| {
            for _ in 0..operations {
                black_box(schedule(black_box(&self.0)));
            }
        });
        took / operations as f64
    }
}

/// Returns a subject that schedules the same snapshot in each operation. The snapshot has
/// `projects` projects with ten ready tasks each, and `agents` idle agents.
pub(crate) fn open(mode: ScheduleMode, projects: usize, agents: usize) -> Box<dyn TimedSubject> {
    Box::new(ScheduleCalls(snapshot(mode, projects, agents)))
}

struct NaiveScheduleCalls(ScheduleSnapshot);

impl TimedSubject for NaiveScheduleCalls {
    fn time(&mut self, operations: u64) -> f64 {
        let (given, took) = nanoseconds(|| {
            let call = |_| naive_proportional::schedule(&self.0);
            (0..operations).map(call).fold(Vec::new(), |_, given| given)
        });
        assert_eq!(given, schedule(&self.0), "ours and the naive one agree");
        assert_eq!(given.len(), self.0.parts().agents.len(), "every agent has something to do");
        took / operations as f64
    }
}

/// Returns a subject like that of [`open`], but with the naive scheduler. After each timing, its
/// result is compared with that of the fast scheduler.
pub(crate) fn open_naive(
    mode: ScheduleMode,
    projects: usize,
    agents: usize,
) -> Box<dyn TimedSubject> {
    Box::new(NaiveScheduleCalls(snapshot(mode, projects, agents)))
}
