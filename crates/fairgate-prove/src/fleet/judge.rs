//! Judge of the fleet experiment. It compares three accounts: the agents' counts, the ledger and
//! the fleet's view.

use std::collections::HashSet;

use fairgate_core::proportional::schedule;
use fairgate_journal::schedule::read_round;
use fairgate_store::AttemptRow;
use serde_json::Value;

use super::FleetEvidence;
use crate::report::{ProveBar, ProveReport, TenantReport, TokensOverTime};
use crate::scenario::{FleetPlan, Scenario};

/// Greatest difference between a project's tokens and its share, in percent of the share.
const OFF_MAX_PERCENT: f64 = 3.0;

/// Returns whether a row of the ledger belongs to a task of the project.
fn is_of(row: &AttemptRow, project: &str) -> bool {
    row.claim.as_ref().is_some_and(|claim| claim.project == project)
}

/// Returns whether a round, given as a line of the fleet's journal, gives the same assignments when
/// computed again.
pub(super) fn is_reproduced(line: &str) -> bool {
    read_round(line).is_ok_and(|round| schedule(&round.snapshot) == round.assignments)
}

pub(super) fn judge(
    scenario: &Scenario,
    plan: &FleetPlan,
    evidence: &FleetEvidence,
) -> ProveReport {
    let used: Vec<u64> = scenario
        .tenants
        .iter()
        .map(|project| {
            let rows = evidence.ledger.rows.iter();
            let of_project = rows.filter(|row| is_of(row, project.name));
            of_project.map(|row| row.provider_tokens).sum()
        })
        .collect();
    let tenants = projects(scenario, evidence, &used);
    let bars = vec![
        shares(&tenants),
        ledger(scenario, evidence, &used),
        fleets_view(scenario, evidence, &used),
        completions(plan, evidence),
        death(evidence),
        nothing_left(evidence),
        journal(evidence),
        trouble(evidence),
    ];
    ProveReport {
        scenario: scenario.name,
        title: scenario.title,
        capacity: scenario.capacity,
        partition: false,
        by_slots: false,
        overlap_ms: evidence.points.last().map_or(0.0, |point| point.at_ms),
        journal_events: evidence.rounds.all,
        journal_files: 1,
        tenants,
        bars,
        course: TokensOverTime {
            join_ms: 0.0,
            end_ms: evidence.points.last().map_or(0.0, |point| point.at_ms),
            points: evidence.points.clone(),
        },
    }
}

#[allow(clippy::cast_precision_loss, reason = "percentages, for people")]
fn projects(scenario: &Scenario, evidence: &FleetEvidence, used: &[u64]) -> Vec<TenantReport> {
    let sum = used.iter().sum::<u64>().max(1) as f64;
    let weights: u64 = scenario.tenants.iter().map(|it| it.weight).sum();
    let all_time: u64 = evidence.ledger.rows.iter().map(|row| row.worker_us).sum();
    let row = |(place, project): (usize, &crate::scenario::ScenarioTenant)| {
        let ideal = 100.0 * project.weight as f64 / weights as f64;
        let got = 100.0 * used[place] as f64 / sum;
        let own = || evidence.ledger.rows.iter().filter(|row| is_of(row, project.name));
        let rows = own().count() as u64;
        let time: u64 = own().map(|row| row.worker_us).sum();
        TenantReport {
            name: project.name,
            weight: project.weight,
            slots: None,
            ideal_percent: ideal,
            got_percent: got,
            deviation_percent: 100.0 * (got - ideal) / ideal,
            worker_time_percent: (all_time > 0).then(|| 100.0 * time as f64 / all_time as f64),
            got_tokens: used[place],
            ideal_tokens: Some(sum * ideal / 100.0),
            bound_tokens: None,
            off_tokens: None,
            gap_tokens: 0,
            gap_closest_tokens: None,
            gap_bound_tokens: None,
            wait_p50_ms: 0.0,
            wait_p95_ms: 0.0,
            wait_p99_ms: 0.0,
            grants: rows,
            requests: rows,
            completed: rows,
            left: 0,
            failed: 0,
            rows,
        }
    };
    scenario.tenants.iter().enumerate().map(row).collect()
}

fn shares(projects: &[TenantReport]) -> ProveBar {
    let says: Vec<String> = projects
        .iter()
        .map(|project| format!("{} {:+.2} % of its share", project.name, project.deviation_percent))
        .collect();
    let passed = projects.iter().all(|project| project.deviation_percent.abs() <= OFF_MAX_PERCENT);
    ProveBar::new("shares", passed, format!("{} (3 % allowed)", says.join(", ")))
}

/// Checks that the ledger has all tokens that the agents counted, each under the right project.
fn ledger(scenario: &Scenario, evidence: &FleetEvidence, used: &[u64]) -> ProveBar {
    let counted: Vec<u64> = (0..used.len())
        .map(|place| evidence.work.iter().map(|work| work.tokens[place]).sum())
        .collect();
    let calls: u64 = evidence.work.iter().map(|work| work.calls).sum();
    let says = scenario.tenants.iter().zip(&counted).zip(used).map(|((project, seen), row)| {
        format!("{}: agents counted {seen} tokens, the ledger {row}", project.name)
    });
    let says = says.collect::<Vec<_>>().join("; ");
    ProveBar::new("ledger", counted == used, format!("{says}; {calls} calls"))
}

/// Checks that the fleet's view has the same tokens as the ledger, so that the tokens that a lying
/// agent reported do not count.
fn fleets_view(scenario: &Scenario, evidence: &FleetEvidence, used: &[u64]) -> ProveBar {
    let shown: Vec<u64> = scenario
        .tenants
        .iter()
        .map(|project| {
            let projects = evidence.view["projects"].as_array();
            let mut projects = projects.into_iter().flatten();
            let view = projects.find(|view| view["id"] == project.name);
            view.and_then(|view| view["used"].as_u64()).unwrap_or(u64::MAX)
        })
        .collect();
    let says = format!("the fleet shows {shown:?} tokens used, the ledger has {used:?}");
    ProveBar::new("lies count nothing", shown == used, says)
}

/// Checks that the tasks that the fleet shows as completed are exactly those whose completion an
/// agent saw acknowledged, and that each was completed once.
fn completions(plan: &FleetPlan, evidence: &FleetEvidence) -> ProveBar {
    let reported: Vec<&str> =
        evidence.work.iter().flat_map(|work| work.completed.iter().map(String::as_str)).collect();
    let distinct: HashSet<&str> = reported.iter().copied().collect();
    let steps = |task: &Value| {
        let history = task["history"].as_array();
        history.into_iter().flatten().filter(|step| step["to"] == "COMPLETED").count()
    };
    let completed = evidence.tasks.iter().filter(|task| task["state"] == "COMPLETED");
    let completed: Vec<&Value> = completed.collect();
    let once = completed.iter().all(|task| steps(task) == 1);
    let same = completed.len() == reported.len()
        && completed.iter().all(|task| distinct.contains(task["id"].as_str().unwrap_or_default()));
    let enough = reported.len() as u64 >= plan.completed_min;
    let says = format!(
        "{} completions acknowledged for {} tasks; {} tasks are completed, {}",
        reported.len(),
        distinct.len(),
        completed.len(),
        if once { "each once" } else { "some more than once" },
    );
    ProveBar::new(
        "completed once",
        once && same && enough && distinct.len() == reported.len(),
        says,
    )
}

/// Checks that the fleet took the dead agent's task away from it, and that the task's key is
/// refused.
fn death(evidence: &FleetEvidence) -> ProveBar {
    let Some(task) = evidence.work.iter().find_map(|work| work.died_with.clone()) else {
        return ProveBar::new("a death costs nobody a task", false, "no agent died");
    };
    let found = evidence.tasks.iter().find(|it| it["id"] == task.as_str());
    let state = found.and_then(|it| it["state"].as_str()).unwrap_or("READY");
    let moved_on = found.is_some_and(|it| {
        let history = it["history"].as_array();
        history.into_iter().flatten().any(|step| step["actor"] == "fleet")
    });
    let zombie = evidence.lost_key_response.as_deref().unwrap_or("no answer");
    let refused = zombie == "401 lease_lost" || zombie == "401 invalid_api_key";
    let says = format!(
        "the task {task:?} of the agent that died was taken from it and is {state}; a call with its key: {zombie}"
    );
    ProveBar::new("a death costs nobody a task", moved_on && refused, says)
}

fn nothing_left(evidence: &FleetEvidence) -> ProveBar {
    let held = evidence
        .tasks
        .iter()
        .filter(|task| ["ASSIGNED", "IN_PROGRESS"].iter().any(|it| task["state"] == *it));
    let held = held.count();
    let reserved = evidence.view["reserved"].as_u64().unwrap_or(u64::MAX);
    let left = evidence.ledger.reservations_left;
    let locks = evidence.workspaces_held;
    let says = format!(
        "{held} tasks held, {reserved} tokens set aside, {left} calls reserved, {locks} workspaces locked"
    );
    ProveBar::new(
        "nothing left behind",
        held == 0 && reserved == 0 && left == 0 && locks == 0,
        says,
    )
}

fn journal(evidence: &FleetEvidence) -> ProveBar {
    let rounds = &evidence.rounds;
    let says = format!("{} of {} decisions are reproduced", rounds.same, rounds.all);
    ProveBar::new("reproduced", rounds.all > 0 && rounds.same == rounds.all, says)
}

fn trouble(evidence: &FleetEvidence) -> ProveBar {
    let mut trouble = evidence.work.iter().flat_map(|work| &work.trouble);
    match trouble.next() {
        None => ProveBar::new("no trouble", true, "no call and no report was refused"),
        Some(first) => ProveBar::new(
            "no trouble",
            false,
            format!("{} times; first: {first}", trouble.count() + 1),
        ),
    }
}
