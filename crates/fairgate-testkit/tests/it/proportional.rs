//! Tests of the proportional scheduler with the conformance vectors, the naive scheduler, and cases that were computed
//! by hand.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fairgate_core::proportional::{
    AgentState, CreditWeight, ProjectStatus, ScheduleMode, ScheduleSnapshot, ScheduleSnapshotParts,
    ScheduledAgent, ScheduledProject, ScheduledTask, TaskAssignment, TaskReason, TaskStatus,
    explain, schedule,
};
use fairgate_core::units::Tokens;
use fairgate_journal::schedule::{
    JsonLayout, ScheduleRound, read_round, read_snapshot, write_round, write_snapshot,
};
use fairgate_testkit::workload::SeededRng;
use fairgate_testkit::{naive_proportional, test_data};

// ── The vectors ─────────────────────────────────────────────────────────────────────────────────────────────

/// Returns the snapshots among the vectors, with the assignments that they must give.
fn snapshots() -> Vec<(PathBuf, String, Vec<TaskAssignment>)> {
    const SNAPSHOT: &str = ".snapshot.json";
    let paths = test_data::vectors(SNAPSHOT).into_iter();
    let read = paths.map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let stem = name.strip_suffix(SNAPSHOT).unwrap();
        let expected = path.with_file_name(format!("{stem}.assignments.json"));
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text, assignments(&std::fs::read_to_string(expected).unwrap()))
    });
    read.collect()
}

fn assignments(text: &str) -> Vec<TaskAssignment> {
    let list: Vec<BTreeMap<String, String>> = serde_json::from_str(text).unwrap();
    let assignment = |fields: BTreeMap<String, String>| TaskAssignment {
        agent_id: fields["agent_id"].as_str().into(),
        task_id: fields["task_id"].as_str().into(),
        project_id: fields["project_id"].as_str().into(),
    };
    list.into_iter().map(assignment).collect()
}

#[test]
fn vectors_are_reproduced() {
    for (path, text, expected) in snapshots() {
        let snapshot = read_snapshot(&text).unwrap();
        assert_eq!(naive_proportional::schedule(&snapshot), expected, "naive: {}", path.display());
        assert_eq!(schedule(&snapshot), expected, "{}", path.display());
    }
}

// ── Random snapshots ────────────────────────────────────────────────────────────────────────────────────────

/// Random numbers for a snapshot. The same seed gives the same snapshot.
struct Dice(SeededRng);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(SeededRng::new(seed))
    }

    /// Draws a number from 0 to `below` − 1.
    fn below(&mut self, below: u64) -> u64 {
        self.0.below(below)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    /// Draws a number of tokens of this scale: small with many ties, ordinary, or the largest.
    fn tokens(&mut self, scale: Scale) -> Tokens {
        Tokens(match scale {
            Scale::Tiny => self.below(5),
            Scale::Everyday => self.below(60_000),
            Scale::Huge => u64::MAX - self.below(4),
        })
    }

    fn weight(&mut self, scale: Scale) -> CreditWeight {
        let thousandths = match scale {
            Scale::Tiny => 1000 * (1 + self.below(3)),
            Scale::Everyday => 1 + self.below(10_000),
            Scale::Huge => CreditWeight::MAX.thousandths() - self.below(3),
        };
        CreditWeight::from_thousandths(thousandths).unwrap()
    }
}

#[derive(Clone, Copy, Debug)]
enum Scale {
    Tiny,
    Everyday,
    Huge,
}

fn random_snapshot(seed: u64) -> ScheduleSnapshot {
    let mut dice = Dice::new(seed);
    let mut scale = dice.pick(&[Scale::Tiny, Scale::Everyday, Scale::Everyday, Scale::Huge]);
    let weights = dice.pick(&[Scale::Tiny, scale]);
    let project_count = 1 + dice.below(7);
    let project_id = |p: u64| -> Box<str> { format!("p{p}").into() };
    let mut parts = ScheduleSnapshotParts {
        mode: dice.pick(&[ScheduleMode::Classic, ScheduleMode::Strict, ScheduleMode::Strict]),
        min_task_guarantee: dice.chance(70),
        default_estimated_tokens: dice.tokens(scale),
        ..ScheduleSnapshotParts::default()
    };
    for p in 0..project_count {
        let active = dice.chance(88);
        parts.projects.push(ScheduledProject {
            id: project_id(p),
            status: if active { ProjectStatus::Active } else { ProjectStatus::Paused },
            credit_weight: dice.weight(weights),
            max_concurrent_agents: dice.below(6),
            budget_limit: dice
                .chance(40)
                .then(|| Tokens(dice.tokens(scale).0 / 2 * (1 + dice.below(2)))),
        });
    }
    let mut task_ids: Vec<u64> = (0..dice.below(30)).collect();
    for i in (1..task_ids.len()).rev() {
        task_ids.swap(i, usize::try_from(dice.below(i as u64 + 1)).unwrap());
    }
    for id in task_ids {
        if dice.chance(3) {
            scale = dice.pick(&[Scale::Tiny, Scale::Everyday, Scale::Huge]);
        }
        let workspace = format!("w{}", dice.below(6)).into_boxed_str();
        parts.tasks.push(ScheduledTask {
            status: if dice.chance(85) { TaskStatus::Ready } else { TaskStatus::InProgress },
            priority: i64::try_from(dice.below(4)).unwrap() - 1,
            created: i64::try_from(dice.below(4)).unwrap() - 1,
            estimated_tokens: dice.chance(75).then(|| dice.tokens(scale)),
            preferred_workspace_id: dice.chance(35).then_some(workspace),
            ..ScheduledTask::ready(format!("t{id}"), project_id(dice.below(project_count)))
        });
    }
    for a in 0..dice.below(14) {
        let state = if dice.chance(85) { AgentState::Idle } else { AgentState::Busy };
        parts.agents.push(ScheduledAgent { id: format!("a{a}").into(), state });
    }
    // One more than there are: maps may name projects that are not listed.
    let with_workspaces = dice.chance(40);
    for id in (0..=project_count).map(project_id) {
        if dice.chance(75) {
            parts.project_token_usage.insert(id.clone(), dice.tokens(scale));
        }
        if dice.chance(30) {
            parts.project_active_agent_counts.insert(id.clone(), dice.below(4));
        }
        if dice.chance(60) {
            parts.tasks_completed_in_window.insert(id.clone(), dice.below(3));
        }
        if dice.chance(30) {
            parts.project_reserved_tokens.insert(id.clone(), dice.tokens(scale));
        }
        if dice.chance(30) {
            parts.project_baseline_tokens.insert(id.clone(), dice.tokens(scale));
        }
        if with_workspaces && dice.chance(80) {
            parts.project_available_workspaces.insert(id, dice.below(5));
        }
    }
    for w in 0..6 {
        if dice.chance(25) {
            let holder = dice.chance(50).then(|| "somebody".into());
            parts.workspace_locks.insert(format!("w{w}").into(), holder);
        }
    }
    if dice.chance(40) {
        let many = dice.below(12);
        let budget = dice.tokens(scale).0.saturating_mul(many);
        parts.global_budget = Some(Tokens(budget));
        parts.global_tokens_used = Tokens(dice.below(budget / 2 + 1));
    }
    ScheduleSnapshot::check(parts).unwrap()
}

#[test]
fn fast_equals_naive() {
    let cases = std::env::var("FAIRGATE_CASES").map_or(20_000, |cases| cases.parse().unwrap());
    let mut given = [0, 0];
    for seed in 0..cases {
        let snapshot = random_snapshot(seed);
        let expected = naive_proportional::schedule(&snapshot);
        assert_eq!(schedule(&snapshot), expected, "seed {seed}: {:#?}", snapshot.parts());
        given[usize::from(snapshot.parts().mode == ScheduleMode::Strict)] += expected.len() as u64;
    }
    assert!(
        given.iter().all(|n| *n > cases / 2),
        "too few assignments to mean anything: {given:?}"
    );
}

/// One more idle agent must get a task that only waited for an agent by the explanation, and no
/// task if there is none.
#[test]
fn explanations_foretell_what_another_agent_gets() {
    let mut extended = 0;
    for seed in 0..10_000 {
        let snapshot = random_snapshot(seed);
        let explanation = explain(&snapshot);
        assert_eq!(explanation.assignments, schedule(&snapshot), "seed {seed}");
        let ids = |wanted: fn(&TaskReason<'_>) -> bool| -> Vec<&str> {
            let tasks = explanation.tasks.iter().filter(|report| wanted(&report.reason));
            tasks.map(|report| &*report.task.id).collect()
        };
        let mut given: Vec<&str> = explanation.assignments.iter().map(|a| &*a.task_id).collect();
        let mut said = ids(|reason| matches!(reason, TaskReason::Given { .. }));
        given.sort_unstable();
        said.sort_unstable();
        assert_eq!(said, given, "seed {seed}");
        let unexplained =
            ids(|reason| matches!(reason, TaskReason::Blocked(why) if why.is_empty()));
        assert!(unexplained.is_empty(), "seed {seed}: {unexplained:?}");

        let mut parts = snapshot.parts().clone();
        parts.agents.push(ScheduledAgent::idle("one more"));
        let more = schedule(&ScheduleSnapshot::check(parts).unwrap());
        let waiting = ids(|reason| matches!(reason, TaskReason::OutOfAgents(_)));
        match more.get(explanation.assignments.len()) {
            Some(extra) => assert!(waiting.contains(&&*extra.task_id), "seed {seed}: {extra:?}"),
            None => assert!(waiting.is_empty(), "seed {seed}: nobody got it, not even {waiting:?}"),
        }
        extended += usize::from(more.len() > explanation.assignments.len());
    }
    assert!(extended > 1000, "too few to mean anything: {extended}");
}

#[test]
fn a_written_snapshot_reads_back_the_same() {
    for seed in 0..5_000 {
        let snapshot = random_snapshot(seed);
        for layout in [JsonLayout::Compact, JsonLayout::Pretty] {
            let mut text = Vec::new();
            write_snapshot(&mut text, &snapshot, layout).unwrap();
            let read = read_snapshot(str::from_utf8(&text).unwrap());
            assert_eq!(read.as_ref(), Ok(&snapshot), "seed {seed}");
        }
        let round = ScheduleRound {
            at: seed.cast_signed() - 7,
            price_per_1000_s: (seed % 3 > 0).then_some(seed),
            assignments: schedule(&snapshot),
            snapshot,
        };
        let mut line = Vec::new();
        write_round(&mut line, &round).unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "seed {seed}");
        assert_eq!(read_round(str::from_utf8(&line).unwrap()), Ok(round), "seed {seed}");
    }
}
