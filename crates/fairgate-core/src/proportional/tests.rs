//! Tests with the published cases and with the weaknesses of the published algorithm.

#![allow(clippy::unwrap_used)]

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

/// A snapshot for a test. Every project has completed a task, so that gaps decide.
#[derive(Clone)]
struct Case(ScheduleSnapshotParts);

impl Case {
    fn new(mode: ScheduleMode) -> Self {
        Self(ScheduleSnapshotParts { mode, ..ScheduleSnapshotParts::default() })
    }

    /// Adds a project for which up to 100 agents may work at once.
    fn project(mut self, id: &str, weight: u64, usage: u64) -> Self {
        self.0.projects.push(ScheduledProject {
            credit_weight: CreditWeight::from_thousandths(weight * 1000).unwrap(),
            max_concurrent_agents: 100,
            ..ScheduledProject::new(id)
        });
        self.0.project_token_usage.insert(id.into(), Tokens(usage));
        self.0.tasks_completed_in_window.insert(id.into(), 1);
        self
    }

    /// Changes the project that was added last.
    fn with(mut self, change: impl FnOnce(&mut ScheduledProject)) -> Self {
        change(self.0.projects.last_mut().unwrap());
        self
    }

    /// Adds ready tasks of a project, with the ids `PROJECT-001`, `PROJECT-002` and so on.
    fn tasks(mut self, project: &str, count: usize) -> Self {
        let ready = |n| ScheduledTask::ready(format!("{project}-{n:03}"), project);
        self.0.tasks.extend((1..=count).map(ready));
        self
    }

    fn task(mut self, task: ScheduledTask) -> Self {
        self.0.tasks.push(task);
        self
    }

    fn agents(mut self, count: usize) -> Self {
        let before = self.0.agents.len();
        let idle = |n| ScheduledAgent::idle(format!("agent-{}", before + n));
        self.0.agents.extend((1..=count).map(idle));
        self
    }

    /// Changes any part of the snapshot.
    fn set(mut self, change: impl FnOnce(&mut ScheduleSnapshotParts)) -> Self {
        change(&mut self.0);
        self
    }

    fn in_mode(self, mode: ScheduleMode) -> Self {
        self.set(|parts| parts.mode = mode)
    }

    fn snapshot(&self) -> ScheduleSnapshot {
        ScheduleSnapshot::check(self.0.clone()).unwrap()
    }

    fn given_tasks(&self) -> Vec<String> {
        schedule(&self.snapshot()).iter().map(|a| a.task_id.to_string()).collect()
    }

    fn given_projects(&self) -> Vec<String> {
        schedule(&self.snapshot()).iter().map(|a| a.project_id.to_string()).collect()
    }

    /// Returns the project that gets the agent in each of `calls` calls with one idle agent. Each assigned task uses
    /// `tokens` tokens before the next call.
    fn one_by_one(mut self, calls: usize, tokens: u64) -> Vec<String> {
        let mut winners = Vec::new();
        for _ in 0..calls {
            let winner = self.given_projects().pop().unwrap();
            self.0.project_token_usage.entry(winner.as_str().into()).or_default().0 += tokens;
            winners.push(winner);
        }
        winners
    }
}

const BOTH: [ScheduleMode; 2] = [ScheduleMode::Classic, ScheduleMode::Strict];

/// Returns the number of entries at the beginning of `winners` that are this project.
fn in_a_row(winners: &[String], project: &str) -> usize {
    winners.iter().take_while(|winner| *winner == project).count()
}

// ── The page and its cases ──────────────────────────────────────────────────────────────────────────────────

#[test]
fn the_pages_example_goes_to_a() {
    for mode in BOTH {
        let case = Case::new(mode).project("A", 3, 1000).project("B", 1, 500);
        let case = case.tasks("A", 1).tasks("B", 1).agents(1);
        assert_eq!(case.given_projects(), ["A"]);
        let snapshot = case.snapshot();
        let shares: Vec<ProjectShare> =
            explain(&snapshot).projects.iter().map(|report| report.share.unwrap()).collect();
        assert_eq!((shares[0].actual_ppm, shares[0].target_ppm), (666_666, 750_000));
        assert_eq!((shares[1].actual_ppm, shares[1].target_ppm), (333_333, 250_000));
    }
}

#[test]
fn three_to_one_with_60k_and_40k_goes_to_the_first() {
    for mode in BOTH {
        let case = Case::new(mode).project("p1", 3, 60_000).project("p2", 1, 40_000);
        assert_eq!(case.tasks("p1", 1).tasks("p2", 1).agents(1).given_projects(), ["p1"]);
    }
}

#[test]
fn the_guarantee_goes_before_weight_98() {
    for mode in BOTH {
        let case =
            Case::new(mode).project("P1", 98, 10_000).project("P2", 1, 0).project("X", 1, 90_000);
        let case = case.tasks("P1", 1).tasks("P2", 1).tasks("X", 1).agents(1).set(|parts| {
            let completed = [("P1".into(), 1), ("P2".into(), 0), ("X".into(), 3)];
            parts.tasks_completed_in_window = completed.into();
        });
        assert_eq!(case.given_projects(), ["P2"]);
        let without = case.set(|parts| parts.min_task_guarantee = false);
        assert_eq!(without.given_projects(), ["P1"]);
    }
}

#[test]
fn a_project_at_its_concurrency_gets_nothing() {
    for mode in BOTH {
        let case = Case::new(mode).project("p", 1, 0).with(|p| p.max_concurrent_agents = 1);
        let case = case.tasks("p", 2).agents(2);
        assert_eq!(case.given_tasks().len(), 1, "one is given and fills it");
        let active = case.set(|parts| {
            parts.project_active_agent_counts.insert("p".into(), 1);
        });
        assert!(active.given_tasks().is_empty());
    }
}

#[test]
fn priority_10_goes_before_200() {
    for mode in BOTH {
        let late = ScheduledTask { priority: 200, ..ScheduledTask::ready("late", "p") };
        let soon = ScheduledTask { priority: 10, ..ScheduledTask::ready("soon", "p") };
        let case = Case::new(mode).project("p", 1, 0).task(late).task(soon).agents(1);
        assert_eq!(case.given_tasks(), ["soon"]);
    }
}

#[test]
fn paused_and_archived_projects_get_nothing() {
    for mode in BOTH {
        for status in [ProjectStatus::Paused, ProjectStatus::Archived] {
            let case = Case::new(mode).project("p", 1, 0).with(|p| p.status = status);
            assert!(case.tasks("p", 1).agents(1).given_tasks().is_empty());
        }
    }
}

#[test]
fn only_ready_tasks_go_to_idle_agents() {
    for mode in BOTH {
        let case = Case::new(mode).project("p", 1, 0).agents(1);
        let running = ScheduledTask {
            status: TaskStatus::InProgress,
            ..ScheduledTask::ready("running", "p")
        };
        assert!(case.clone().task(running).given_tasks().is_empty());
        let busy = case.tasks("p", 1).set(|parts| parts.agents[0].state = AgentState::Busy);
        assert!(busy.given_tasks().is_empty());
    }
}

#[test]
fn a_spent_global_budget_ends_everything_and_one_token_does_not() {
    for mode in BOTH {
        let case = Case::new(mode).project("p", 1, 0).tasks("p", 1).agents(1);
        let case = case.set(|parts| parts.global_budget = Some(Tokens(100_000)));
        let used = |tokens| case.clone().set(|parts| parts.global_tokens_used = Tokens(tokens));
        assert!(used(100_000).given_tasks().is_empty());
        assert_eq!(used(99_999).given_tasks(), ["p-001"]);
    }
}

#[test]
fn a_spent_project_budget_ends_the_project() {
    for mode in BOTH {
        let case = Case::new(mode).project("p", 1, 50_000);
        let case = case.with(|p| p.budget_limit = Some(Tokens(50_000))).tasks("p", 1).agents(1);
        assert!(case.given_tasks().is_empty());
    }
}

#[test]
fn a_project_without_workspaces_is_passed() {
    for mode in BOTH {
        let case = Case::new(mode).project("p1", 1, 0).project("p2", 1, 0);
        let case = case.tasks("p1", 1).tasks("p2", 1).agents(1);
        let with = |workspaces: &[(&str, u64)]| {
            let map = workspaces.iter().map(|(id, free)| (Box::from(*id), *free)).collect();
            case.clone().set(|parts| parts.project_available_workspaces = map)
        };
        assert_eq!(with(&[("p1", 0), ("p2", 1)]).given_projects(), ["p2"]);
        assert_eq!(with(&[("p2", 1)]).given_projects(), ["p2"], "not named: none");
        assert_eq!(with(&[]).given_projects(), ["p1"], "an empty map counts nothing");
    }
}

#[test]
fn a_task_whose_workspace_is_locked_lets_the_next_one_go() {
    for mode in BOTH {
        let in_w1 = |id| ScheduledTask {
            preferred_workspace_id: Some("w1".into()),
            ..ScheduledTask::ready(id, "p")
        };
        let case = Case::new(mode)
            .project("p", 1, 0)
            .task(in_w1("t1"))
            .task(ScheduledTask::ready("t2", "p"));
        let lock = |holder: Option<Box<str>>| {
            case.clone().agents(1).set(|parts| {
                parts.workspace_locks.insert("w1".into(), holder);
            })
        };
        assert_eq!(lock(Some("agent-9".into())).given_tasks(), ["t2"]);
        assert_eq!(lock(None).given_tasks(), ["t1"], "null is free");
    }
}

#[test]
fn ties_go_in_the_order_of_the_list() {
    for mode in BOTH {
        let case = Case::new(mode).project("z", 1, 10).project("a", 1, 10);
        assert_eq!(case.tasks("a", 1).tasks("z", 1).agents(1).given_projects(), ["z"]);
    }
}

#[test]
fn where_nothing_was_used_the_heavier_weight_goes_first() {
    for mode in BOTH {
        let case = Case::new(mode).project("light", 1, 0).project("heavy", 2, 0);
        assert_eq!(case.tasks("light", 1).tasks("heavy", 1).agents(1).given_projects(), ["heavy"]);
    }
}

// ── The holes ───────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn hole_no_charge_within_a_round() {
    let case = Case::new(ScheduleMode::Classic).project("p1", 1, 1000).project("p2", 1, 1001);
    let case = case.tasks("p1", 10).tasks("p2", 10).agents(10);
    assert_eq!(case.given_projects(), ["p1"; 10], "one token behind takes all ten");
    let strict = case
        .in_mode(ScheduleMode::Strict)
        .set(|parts| parts.default_estimated_tokens = Tokens(500));
    assert_eq!(strict.given_projects(), ["p1", "p2"].repeat(5));
}

#[test]
fn hole_running_work_is_free() {
    let case = Case::new(ScheduleMode::Classic).project("p1", 1, 1000).project("p2", 1, 1001);
    let case = case.tasks("p1", 1).tasks("p2", 1).agents(1).set(|parts| {
        parts.project_active_agent_counts.insert("p1".into(), 5);
        parts.project_reserved_tokens.insert("p1".into(), Tokens(500_000));
    });
    assert_eq!(case.given_projects(), ["p1"]);
    assert_eq!(case.in_mode(ScheduleMode::Strict).given_projects(), ["p2"]);
}

#[test]
fn hole_a_running_agent_does_not_meet_the_guarantee() {
    let case = Case::new(ScheduleMode::Classic).project("p1", 1, 50_000).project("p2", 1, 0);
    let case = case.tasks("p1", 9).tasks("p2", 9).agents(3).set(|parts| {
        parts.tasks_completed_in_window = [("p2".into(), 1)].into();
        parts.project_active_agent_counts.insert("p1".into(), 5);
    });
    assert_eq!(case.given_projects(), ["p1"; 3], "until one of its five completes");
    assert_eq!(case.in_mode(ScheduleMode::Strict).given_projects(), ["p2"; 3]);
}

#[test]
fn strict_guarantees_one_task_and_not_more() {
    let case = Case::new(ScheduleMode::Strict).project("p1", 1, 50_000).project("p2", 1, 0);
    let case = case.tasks("p1", 9).tasks("p2", 9).agents(3);
    let case = case.set(|parts| parts.tasks_completed_in_window = [("p2".into(), 1)].into());
    assert_eq!(case.given_projects(), ["p1", "p2", "p2"]);
    assert_eq!(case.in_mode(ScheduleMode::Classic).given_projects(), ["p1"; 3]);
}

#[test]
fn hole_denominators_differ() {
    let case = Case::new(ScheduleMode::Classic).project("light", 1, 0).project("heavy", 3, 0);
    let case = case.project("idle", 1, 1_000_000).tasks("light", 1).tasks("heavy", 1).agents(1);
    let winners = case.clone().one_by_one(120, 10_000);
    assert_eq!(in_a_row(&winners, "heavy"), 100, "the idle project's million counts in ΣT");
    let winners = case.in_mode(ScheduleMode::Strict).one_by_one(120, 10_000);
    assert!(winners.chunks(4).all(|four| four.iter().filter(|w| *w == "heavy").count() == 3));
}

#[test]
fn hole_back_from_idle() {
    let case = Case::new(ScheduleMode::Classic).project("stayed", 1, 480_000).project("back", 1, 0);
    let case = case.tasks("stayed", 1).tasks("back", 1).agents(1);
    for mode in BOTH {
        let winners = case.clone().in_mode(mode).one_by_one(60, 10_000);
        assert_eq!(in_a_row(&winners, "back"), 48, "without a baseline it catches up");
    }
    let case = case.in_mode(ScheduleMode::Strict).set(|parts| {
        parts.project_baseline_tokens.insert("back".into(), Tokens(480_000));
    });
    assert_eq!(case.one_by_one(60, 10_000), ["stayed", "back"].repeat(30));
}

#[test]
fn hole_budgets_overshoot() {
    let big = |n| ScheduledTask {
        estimated_tokens: Some(Tokens(200_000)),
        ..ScheduledTask::ready(format!("big-{n}"), "p")
    };
    let mut project = Case::new(ScheduleMode::Classic).project("p", 1, 999_999).agents(10);
    for n in 0..10 {
        project = project.task(big(n));
    }
    let global = project.clone().set(|parts| {
        parts.global_budget = Some(Tokens(1_000_000));
        parts.global_tokens_used = Tokens(999_999);
    });
    let project = project.with(|p| p.budget_limit = Some(Tokens(1_000_000)));
    for case in [project, global] {
        assert_eq!(case.given_tasks().len(), 10, "999 999 + 10 × 200 000 = 2 999 999 of 1 000 000");
        let strict = case.in_mode(ScheduleMode::Strict);
        assert!(strict.given_tasks().is_empty());
        let small = ScheduledTask { priority: 900, ..ScheduledTask::ready("small", "p") };
        assert_eq!(strict.task(small).given_tasks(), ["small"], "the next one that fits is tried");
    }
}

#[test]
fn strict_budgets_count_what_runs_and_what_was_given() {
    let case = Case::new(ScheduleMode::Strict)
        .project("p", 1, 100)
        .with(|p| p.budget_limit = Some(Tokens(1000)));
    let case = case.tasks("p", 9).agents(9).set(|parts| {
        parts.default_estimated_tokens = Tokens(150);
        parts.project_reserved_tokens.insert("p".into(), Tokens(300));
    });
    assert_eq!(case.given_tasks().len(), 4, "100 + 300 + 4 × 150 = 1000");
    let global =
        Case::new(ScheduleMode::Strict).project("p", 1, 0).tasks("p", 9).agents(9).set(|parts| {
            parts.default_estimated_tokens = Tokens(150);
            parts.global_budget = Some(Tokens(1000));
            parts.project_reserved_tokens.insert("not listed".into(), Tokens(700));
        });
    assert_eq!(global.given_tasks().len(), 2, "700 + 2 × 150 = 1000");
}

#[test]
fn a_spent_budget_stops_even_tasks_that_cost_nothing() {
    let free = |n| ScheduledTask {
        estimated_tokens: Some(Tokens(0)),
        ..ScheduledTask::ready(format!("free-{n}"), "p")
    };
    let all = ScheduledTask {
        estimated_tokens: Some(Tokens(10)),
        priority: 1,
        ..ScheduledTask::ready("all", "q")
    };
    let case = Case::new(ScheduleMode::Strict).project("p", 1, 0).project("q", 2, 0);
    let case = case.task(free(1)).task(free(2)).task(all).agents(3);
    assert_eq!(case.given_tasks(), ["all", "free-1", "free-2"]);
    let case = case.set(|parts| parts.global_budget = Some(Tokens(10)));
    assert_eq!(case.given_tasks(), ["all"]);
}

#[test]
fn hole_one_workspace_given_five_times() {
    let case =
        Case::new(ScheduleMode::Classic).project("p", 1, 0).tasks("p", 5).agents(5).set(|parts| {
            parts.project_available_workspaces.insert("p".into(), 1);
        });
    assert_eq!(case.given_tasks().len(), 5);
    assert_eq!(case.in_mode(ScheduleMode::Strict).given_tasks(), ["p-001"]);
}

#[test]
fn hole_one_preferred_workspace_given_five_times() {
    let case = Case::new(ScheduleMode::Classic).project("p", 1, 0).project("q", 1, 0).agents(5);
    let case = case.tasks("p", 3).tasks("q", 2).set(|parts| {
        for task in &mut parts.tasks {
            task.preferred_workspace_id = Some("w".into());
        }
    });
    assert_eq!(case.given_tasks().len(), 5);
    assert_eq!(
        case.in_mode(ScheduleMode::Strict).given_tasks(),
        ["p-001"],
        "also for other projects"
    );
}

#[test]
fn hole_ids_as_creation_order() {
    let made = |id: &str, created| ScheduledTask { created, ..ScheduledTask::ready(id, "p") };
    let case = Case::new(ScheduleMode::Classic)
        .project("p", 1, 0)
        .task(made("t-2", 2))
        .task(made("t-10", 10));
    let case = case.agents(2);
    assert_eq!(case.given_tasks(), ["t-10", "t-2"]);
    assert_eq!(case.in_mode(ScheduleMode::Strict).given_tasks(), ["t-2", "t-10"]);
}

#[test]
fn hole_weight_zero() {
    assert!(CreditWeight::from_thousandths(0).is_err(), "it cannot even be said");
    assert_eq!(CreditWeight::from_thousandths(1).unwrap().to_string(), "0.001");
    let over = CreditWeight::MAX.thousandths() + 1;
    assert!(CreditWeight::from_thousandths(over).is_err());
}

// ── Exactness ───────────────────────────────────────────────────────────────────────────────────────────────

#[test]
fn the_largest_usages_differ_by_one_token() {
    for mode in BOTH {
        let most = CreditWeight::MAX;
        let case = Case::new(mode).project("p1", 1, u64::MAX).with(|p| p.credit_weight = most);
        let case = case.project("p2", 1, u64::MAX - 1).with(|p| p.credit_weight = most);
        let case = case.project("p3", 1, u64::MAX).with(|p| p.credit_weight = most);
        let case = case.tasks("p1", 1).tasks("p2", 1).tasks("p3", 1).agents(3).set(|parts| {
            parts.default_estimated_tokens = Tokens(u64::MAX);
            for map in [&mut parts.project_reserved_tokens, &mut parts.project_baseline_tokens] {
                *map = ["p1", "p2", "p3"].map(|id| (id.into(), Tokens(u64::MAX))).into();
            }
        });
        assert_eq!(case.given_projects(), ["p2", "p1", "p3"]);
        let limited = case.set(|parts| parts.projects[1].budget_limit = Some(Tokens(u64::MAX)));
        assert_eq!(
            limited.given_projects().len(),
            if mode == ScheduleMode::Strict { 2 } else { 3 }
        );
    }
}

#[test]
fn agent_counts_do_not_wrap() {
    for mode in BOTH {
        let case = Case::new(mode).project("p", 1, 0).with(|p| p.max_concurrent_agents = u64::MAX);
        let case = case.tasks("p", 3).agents(3).set(|parts| {
            parts.project_active_agent_counts.insert("p".into(), u64::MAX - 1);
        });
        assert_eq!(case.given_tasks().len(), 1);
    }
}

// ── Snapshots that cannot be ────────────────────────────────────────────────────────────────────────────────

#[test]
fn errors_name_the_field() {
    let case = Case::new(ScheduleMode::Classic).project("p", 1, 0).tasks("p", 3).agents(3);
    let error = |change: fn(&mut ScheduleSnapshotParts)| {
        ScheduleSnapshot::check(case.clone().set(change).0).unwrap_err().to_string()
    };
    assert_eq!(
        error(|parts| parts.tasks[2].project_id = "q".into()),
        "tasks[2].project_id: there is no project \"q\""
    );
    assert_eq!(
        error(|parts| parts.tasks[2].id = "p-001".into()),
        "tasks[2].id: \"p-001\" is already the id of [0]"
    );
    assert_eq!(
        error(|parts| parts.agents[1].id = "agent-1".into()),
        "agents[1].id: \"agent-1\" is already the id of [0]"
    );
    assert_eq!(
        error(|parts| parts.projects.push(ScheduledProject::new("p"))),
        "projects[1].id: \"p\" is already the id of [0]"
    );
}

// ── Reasons ─────────────────────────────────────────────────────────────────────────────────────────────────

/// Returns the codes of the reasons of all projects, and of all ready tasks.
fn codes(case: &Case) -> (Vec<&'static str>, Vec<&'static str>) {
    let snapshot = case.snapshot();
    let explanation = explain(&snapshot);
    let projects = explanation.projects.iter().map(|report| report.reason.code()).collect();
    (projects, explanation.tasks.iter().map(|report| report.reason.code()).collect())
}

#[test]
fn reasons_of_those_who_compete() {
    let case = Case::new(ScheduleMode::Strict).project("p", 1, 10).project("q", 1, 20);
    let case = case.tasks("p", 2).tasks("q", 2);
    assert_eq!(codes(&case).0, ["no_idle_agent"; 2]);
    assert_eq!(codes(&case).1, ["no_idle_agent", "behind", "no_idle_agent", "behind"]);
    let case = case.agents(1);
    assert_eq!(codes(&case).0, ["took_the_last_agent", "lost_to"]);
    assert_eq!(codes(&case).1, ["given", "took_the_last_agent", "lost_to", "behind"]);
    let case = case.agents(3);
    assert_eq!(codes(&case).0, ["all_tasks_given"; 2]);
    assert_eq!(codes(&case).1, ["given"; 4]);
}

#[test]
fn a_loss_says_by_what() {
    let loss = |case: &Case| {
        let snapshot = case.snapshot();
        let explanation = explain(&snapshot);
        let lost = explanation.projects.iter().find_map(|report| match report.reason {
            ProjectReason::OutOfAgents(OutOfAgents::LostTo(loss)) => {
                Some((loss.winner.to_string(), loss.margin))
            }
            _ => None,
        });
        lost.unwrap()
    };
    let case = Case::new(ScheduleMode::Classic).project("p", 1, 600).project("q", 1, 400);
    let case = case.tasks("p", 1).tasks("q", 1).agents(1);
    assert_eq!(loss(&case), ("q".into(), ComparisonMargin::Gap { ppm: 200_000 }));
    let alike = case.clone().set(|parts| parts.project_token_usage.clear());
    assert_eq!(loss(&alike), ("p".into(), ComparisonMargin::ListOrder));
    let first = case.set(|parts| {
        parts.tasks_completed_in_window.remove("p");
    });
    assert_eq!(loss(&first), ("p".into(), ComparisonMargin::FirstTask));
}

#[test]
fn reasons_of_those_who_cannot_start() {
    let base = Case::new(ScheduleMode::Strict).project("p", 1, 10).tasks("p", 2).agents(3);
    let paused = base.clone().with(|p| p.status = ProjectStatus::Paused);
    assert_eq!(codes(&paused), (vec!["project_inactive"], vec!["project_inactive"; 2]));
    let global = base.clone().set(|parts| parts.global_budget = Some(Tokens(0)));
    assert_eq!(codes(&global), (vec!["global_budget_spent"], vec!["global_budget_spent"; 2]));
    let spent = base.clone().with(|p| p.budget_limit = Some(Tokens(10)));
    assert_eq!(codes(&spent), (vec!["project_budget_spent"], vec!["project_budget_spent"; 2]));
    let full = base.clone().with(|p| p.max_concurrent_agents = 1);
    assert_eq!(codes(&full), (vec!["concurrency_limit"], vec!["given", "concurrency_limit"]));
    let no_room = base.clone().set(|parts| {
        parts.project_available_workspaces.insert("p".into(), 1);
    });
    assert_eq!(codes(&no_room), (vec!["no_workspace"], vec!["given", "no_workspace"]));
    let large = base.clone().with(|p| p.budget_limit = Some(Tokens(20)));
    let large = large.set(|parts| parts.tasks[0].estimated_tokens = Some(Tokens(11)));
    assert_eq!(codes(&large), (vec!["no_task_can_start"], vec!["over_project_budget", "given"]));
    let large = base.clone().set(|parts| {
        parts.global_budget = Some(Tokens(10));
        parts.tasks[0].estimated_tokens = Some(Tokens(11));
    });
    assert_eq!(codes(&large), (vec!["no_task_can_start"], vec!["over_global_budget", "given"]));
    let locked = base.clone().set(|parts| {
        for task in &mut parts.tasks {
            task.preferred_workspace_id = Some("w".into());
        }
    });
    assert_eq!(codes(&locked), (vec!["no_task_can_start"], vec!["given", "workspace_locked"]));
    let nothing = base.set(|parts| parts.tasks.clear());
    assert_eq!(codes(&nothing), (vec!["no_ready_task"], vec![]));
}

#[test]
fn a_blocked_task_names_everything_that_would_have_to_change() {
    let case = Case::new(ScheduleMode::Strict).project("p", 1, 10).agents(2).tasks("p", 1);
    let case = case.with(|p| (p.max_concurrent_agents, p.budget_limit) = (1, Some(Tokens(20))));
    let stuck = ScheduledTask {
        estimated_tokens: Some(Tokens(99)),
        preferred_workspace_id: Some("w".into()),
        ..ScheduledTask::ready("stuck", "p")
    };
    let case = case.task(stuck).set(|parts| {
        parts.workspace_locks.insert("w".into(), Some("agent-9".into()));
    });
    let snapshot = case.snapshot();
    let explanation = explain(&snapshot);
    let stuck = &explanation.tasks[1];
    let obstacles = vec![
        StartObstacle::ConcurrencyLimit { agents: 1, limit: 1 },
        StartObstacle::WorkspaceLocked {
            workspace: "w",
            holder: WorkspaceHolder::AlreadyHeld("agent-9"),
        },
        StartObstacle::OverProjectBudget { spent: 11, estimate: Tokens(99), limit: Tokens(20) },
    ];
    assert_eq!(stuck.reason, TaskReason::Blocked(obstacles));
    assert_eq!(stuck.went_first, Some("p-001"));
}
