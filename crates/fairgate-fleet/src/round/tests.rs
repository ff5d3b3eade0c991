//! Tests of rounds on a database in memory: the published cases, the defects that strict mode removes, and the rules
//! that the fleet adds.

#![allow(clippy::unwrap_used)]

use fairgate_api::fleet::NewTasks;
use fairgate_core::proportional::schedule;

use super::*;
use crate::agent_id::AgentId;
use crate::agent_reports::{TaskCompletion, TaskFailure, TaskRelease};
use crate::options::FleetShare;
use crate::testing::{FleetTestWorld, START, claim_of};

fn agent_id(id: &str) -> AgentId {
    AgentId { id: id.into(), seed: [0; 32], token: None }
}

/// Returns the number of tasks whose name begins with `prefix`.
fn count(given: &[String], prefix: &str) -> usize {
    given.iter().filter(|task| task.starts_with(prefix)).count()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("a{number}")).collect()
}

fn borrowed(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

// The published cases.

#[tokio::test]
async fn whoever_is_below_its_share_goes_first() {
    let mut w = FleetTestWorld::new().await;
    w.project("p1", |p| (p.weight, p.used) = (3_000, 60_000)).await;
    w.project("p2", |p| p.used = 40_000).await;
    w.tasks("p1", 1).await;
    w.tasks("p2", 1).await;
    w.agents(1).await;
    assert_eq!(w.given(&["a0"]).await, ["p1-0"]);
}

#[tokio::test]
async fn the_guarantee_is_a_setting() {
    for (is_guaranteed, expected) in [(true, "p2-0"), (false, "p1-0")] {
        let mut w = FleetTestWorld::new().await;
        w.options.min_task_guarantee = is_guaranteed;
        w.project("p1", |p| (p.weight, p.used, p.completed) = (98_000, 10_000, 1)).await;
        w.project("p2", |_| {}).await;
        w.project("x", |p| (p.used, p.completed) = (90_000, 3)).await;
        for project in ["p1", "p2", "x"] {
            w.tasks(project, 1).await;
        }
        w.agents(1).await;
        assert_eq!(w.given(&["a0"]).await, [expected]);
    }
}

/// A failed try counts for `min_task_guarantee`. Otherwise a project whose tasks all fail would go first as long as it
/// has tasks.
#[tokio::test]
async fn a_failed_try_uses_up_the_guarantee() {
    let mut w = FleetTestWorld::new().await;
    w.project("broken", |p| p.used = 50_000).await;
    w.project("busy", |p| (p.used, p.completed) = (40_000, 9)).await;
    w.tasks("broken", 3).await;
    w.tasks("busy", 3).await;
    w.agents(1).await;
    assert_eq!(w.given(&["a0"]).await, ["broken-0"], "nothing of it has ended yet");
    w.run("UPDATE fleet_tasks SET state = 'IN_PROGRESS' WHERE id = 'broken-0'", &[]).await;
    w.pass(61);
    assert_eq!(w.given(&["a0"]).await, ["busy-0"], "its agent died");
    w.fleet().release(&agent_id("a0"), "busy-0", 1, TaskRelease::default()).await.unwrap();
    w.run("UPDATE fleet_projects SET window_completed = 0 WHERE id = 'broken'", &[]).await;
    assert_eq!(w.given(&["a0"]).await, ["broken-1"]);
    let failure = TaskFailure::default();
    w.fleet().fail(&agent_id("a0"), "broken-1", 1, failure).await.unwrap();
    assert_eq!(w.given(&["a0"]).await, ["busy-0"], "its agent says that it failed");
}

#[tokio::test]
async fn a_full_project_gets_nobody() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 1).await;
    w.tasks("p", 2).await;
    w.agents(2).await;
    assert_eq!(w.given(&["a0"]).await, ["p-0"]);
    assert_eq!(w.given(&["a1"]).await, ["-"]);
}

#[tokio::test]
async fn the_lower_priority_goes_first() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.task("late", "p", |t| t.priority = 200).await;
    w.task("early", "p", |t| t.priority = 10).await;
    w.agents(1).await;
    assert_eq!(w.given(&["a0"]).await, ["early"]);
}

#[tokio::test]
async fn a_paused_project_gets_nobody() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.status = "PAUSED").await;
    w.tasks("p", 1).await;
    w.agents(1).await;
    assert_eq!(w.given(&["a0"]).await, ["-"]);
}

#[tokio::test]
async fn the_budget_of_all_holds() {
    for (used, estimate, expected) in [(100_000, 1, "-"), (99_999, 1, "p-0"), (99_999, 2, "-")] {
        let mut w = FleetTestWorld::new().await;
        w.options.budget = Some(100_000);
        w.options.default_estimate = estimate;
        w.project("p", |_| {}).await;
        // Usage of an archived project counts against the budget of all projects, too.
        w.project("gone", |p| (p.status, p.used) = ("ARCHIVED", used)).await;
        w.tasks("p", 1).await;
        w.agents(1).await;
        assert_eq!(w.given(&["a0"]).await, [expected], "{used} {estimate}");
    }
}

#[tokio::test]
async fn a_projects_budget_holds() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| (p.budget, p.used) = (Some(50_000), 50_000)).await;
    w.project("q", |p| (p.budget, p.used) = (Some(50_000), 49_900)).await;
    w.tasks("p", 1).await;
    w.tasks("q", 2).await;
    w.agents(2).await;
    assert_eq!(w.given(&["a0", "a1"]).await, ["q-0", "-"]);
}

#[tokio::test]
async fn a_project_without_a_free_workspace_gets_nobody() {
    let mut w = FleetTestWorld::new().await;
    w.project("p1", |p| p.weight = 9_000).await;
    w.project("p2", |_| {}).await;
    w.tasks("p1", 1).await;
    w.tasks("p2", 2).await;
    w.workspace("w1", "p1", Some("somebody's")).await;
    w.workspace("w2", "p2", None).await;
    w.agents(2).await;
    assert_eq!(w.given(&["a0", "a1"]).await, ["p2-0", "-"]);
}

#[tokio::test]
async fn a_task_whose_workspace_is_taken_is_passed_over() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 9).await;
    w.workspace("w1", "p", Some("somebody's")).await;
    w.workspace("w2", "p", None).await;
    w.workspace("w3", "p", None).await;
    w.task("needs-w1", "p", |t| t.workspace = Some("w1")).await;
    w.task("any", "p", |_| {}).await;
    w.task("needs-w2", "p", |t| t.workspace = Some("w2")).await;
    w.task("too", "p", |t| t.workspace = Some("w2")).await;
    w.agents(4).await;
    assert_eq!(w.given(&["a0", "a1", "a2"]).await, ["any", "needs-w2", "-"]);
    let locks = w.rows("SELECT id, task, agent FROM fleet_workspaces ORDER BY id", 3).await;
    assert_eq!(
        locks,
        ["w1 somebody's -", "w2 needs-w2 a1", "w3 any a0"],
        "any took the one nobody needs"
    );
}

// Defects that strict mode removes.

#[tokio::test]
async fn what_is_given_in_a_round_is_charged() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| (p.used, p.concurrency) = (1_000, 10)).await;
    w.project("q", |p| (p.used, p.concurrency) = (1_001, 10)).await;
    w.tasks("p", 10).await;
    w.tasks("q", 10).await;
    w.agents(10).await;
    let given = w.given(&borrowed(&names(10))).await;
    assert_eq!((count(&given, "p-"), count(&given, "q-")), (5, 5), "{given:?}");
}

#[tokio::test]
async fn running_work_is_charged() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 10).await;
    w.project("q", |p| p.concurrency = 10).await;
    w.task("p-big", "p", |t| t.estimate = Some(1_000)).await;
    w.tasks("p", 10).await;
    w.tasks("q", 10).await;
    w.agents(6).await;
    // One agent at a time. No task has ended, but the running task of p counts with its estimate, so q goes first until
    // it is level.
    let mut given = Vec::new();
    for agent in names(6) {
        given.extend(w.given(&[&agent]).await);
    }
    assert_eq!(given, ["p-big", "q-0", "q-1", "q-2", "q-3", "q-4"]);
}

#[tokio::test]
async fn an_idle_project_does_not_swell_the_denominator() {
    let mut w = FleetTestWorld::new().await;
    w.project("idle", |p| p.used = 1_000_000).await;
    w.project("p", |p| (p.weight, p.concurrency) = (3_000, 100)).await;
    w.project("q", |p| p.concurrency = 100).await;
    w.tasks("p", 20).await;
    w.tasks("q", 20).await;
    w.agents(8).await;
    let given = w.given(&borrowed(&names(8))).await;
    assert_eq!((count(&given, "p-"), count(&given, "q-")), (6, 2), "{given:?}");
}

#[tokio::test]
async fn a_project_back_from_idle_joins_the_others() {
    let mut w = FleetTestWorld::new().await;
    w.project("steady", |p| (p.used, p.concurrency) = (100_000, 100)).await;
    w.project("back", |p| (p.busy, p.concurrency) = (false, 100)).await;
    w.tasks("steady", 20).await;
    for number in 0..20 {
        let until = Some(START.0 + 1_000_000);
        let set =
            |t: &mut crate::testing::TaskFixture| (t.state, t.resume_after) = ("PAUSED", until);
        w.task(&format!("back-{number}"), "back", set).await;
    }
    w.agents(8).await;
    w.pass(1);
    let given = w.given(&borrowed(&names(8))).await;
    assert_eq!((count(&given, "steady-"), count(&given, "back-")), (4, 4), "{given:?}");
}

#[tokio::test]
async fn budgets_do_not_overshoot() {
    let mut w = FleetTestWorld::new().await;
    w.options.budget = Some(1_000_000);
    w.options.default_estimate = 200_000;
    w.project("p", |p| (p.used, p.concurrency) = (399_999, 100)).await;
    w.tasks("p", 10).await;
    w.agents(10).await;
    let given = w.given(&borrowed(&names(10))).await;
    assert_eq!(count(&given, "p-"), 3);
    let given = w.given(&["a4", "a5"]).await;
    assert_eq!(count(&given, "p-"), 0, "what runs is reserved");
}

#[tokio::test]
async fn a_workspace_is_given_once() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 100).await;
    w.tasks("p", 5).await;
    w.workspace("w", "p", None).await;
    w.agents(5).await;
    assert_eq!(w.given(&borrowed(&names(5))).await, ["p-0", "-", "-", "-", "-"]);
}

#[tokio::test]
async fn tasks_go_in_the_order_in_which_they_were_made() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 100).await;
    w.task("t-2", "p", |_| {}).await;
    w.task("t-10", "p", |_| {}).await;
    w.agents(2).await;
    assert_eq!(w.given(&["a0", "a1"]).await, ["t-2", "t-10"]);
}

// Rules that the fleet adds.

#[tokio::test]
async fn a_task_waits_for_its_agent_and_then_for_anyone() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 9).await;
    w.task("mine", "p", |t| t.affinity = Some("a1")).await;
    w.task("any", "p", |_| {}).await;
    w.agents(4).await;
    assert_eq!(w.given(&["a0", "a2"]).await, ["any", "-"]);
    w.run("UPDATE fleet_tasks SET state = 'COMPLETED', lease_until = NULL WHERE id = 'any'", &[])
        .await;
    let due = w.round(&["a2"]).await.due;
    assert_eq!(due.map(|due| due.0), Some(START.0 + 120_000_000));
    w.pass(119);
    assert_eq!(w.given(&["a2"]).await, ["-"]);
    w.pass(1);
    assert_eq!(w.given(&["a2"]).await, ["mine"]);
}

#[tokio::test]
async fn a_task_that_waits_for_an_agent_goes_to_it() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 9).await;
    w.task("mine", "p", |t| t.affinity = Some("a1")).await;
    w.task("any", "p", |_| {}).await;
    w.agents(3).await;
    assert_eq!(w.given(&["a0", "a1", "a2"]).await, ["any", "mine", "-"]);
}

#[tokio::test]
async fn nobody_waits_for_an_agent_that_is_gone() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.task("its", "p", |t| t.affinity = Some("a1")).await;
    w.agents(2).await;
    w.run("UPDATE fleet_agents SET state = 'RETIRED' WHERE id = 'a1'", &[]).await;
    assert_eq!(w.given(&["a0"]).await, ["its"]);
}

#[tokio::test]
async fn a_types_maximum_holds() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| (p.concurrency, p.agent_max) = (9, r#"{"big":1}"#)).await;
    w.tasks("p", 9).await;
    for (agent, kind) in
        [("b1", "big"), ("b2", "big"), ("s1", "small"), ("b3", "big"), ("s2", "small")]
    {
        w.agent(agent, kind).await;
    }
    let given = w.given(&["b1", "b2", "s1", "b3", "s2"]).await;
    assert_eq!(given, ["p-0", "-", "p-1", "-", "p-2"]);
    assert_eq!(w.given(&["b2"]).await, ["-"]);
}

#[tokio::test]
async fn an_exclusive_project_has_one_agent() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| (p.concurrency, p.exclusive) = (9, true)).await;
    w.tasks("p", 3).await;
    w.agents(3).await;
    assert_eq!(w.given(&["a0", "a1", "a2"]).await, ["p-0", "-", "-"]);
}

#[tokio::test]
async fn a_claim_has_an_epoch_a_lease_a_reservation_and_a_key() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.task("t", "p", |t| t.estimate = Some(777)).await;
    w.workspace("w", "p", None).await;
    w.agents(1).await;
    let outcome = w.round(&["a0"]).await;
    let claim = claim_of(outcome.replies[0].as_ref()).unwrap();
    assert_eq!((claim.epoch, claim.reserved, claim.heartbeat_s), (1, 777, 20));
    assert_eq!(claim.lease_until.0, START.0 + 60_000_000);
    assert_eq!(
        (claim.workspace.as_deref(), claim.workspace_path.as_deref()),
        (Some("w"), Some("/w"))
    );
    assert_eq!((claim.tenant.as_str(), claim.prompt.as_str()), ("acme", "a prompt"));
    assert!(claim.key.as_ref().is_some_and(|key| key.starts_with("fgt-")));
    let row = w.rows("SELECT state, agent, in_workspace FROM fleet_tasks", 3).await;
    assert_eq!(row, ["ASSIGNED a0 w"]);
    let steps = w.rows("SELECT from_state, to_state, actor FROM fleet_history", 3).await;
    assert_eq!(steps, ["READY ASSIGNED fleet"]);
    assert_eq!(outcome.version, 1);
}

#[tokio::test]
async fn an_agent_that_asks_again_is_given_the_same_task() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.tasks("p", 2).await;
    w.agents(1).await;
    let first = w.round(&["a0"]).await;
    w.pass(50);
    let second = w.round(&["a0"]).await;
    let [first, second] = [&first, &second].map(|it| claim_of(it.replies[0].as_ref()).unwrap());
    assert_eq!((&first.task, first.epoch, &first.key), (&second.task, second.epoch, &second.key));
    assert_eq!(second.lease_until.0, first.lease_until.0 + 50_000_000);
}

#[tokio::test]
async fn an_agent_that_may_not_is_told_so() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.tasks("p", 2).await;
    w.agents(2).await;
    w.run("UPDATE fleet_agents SET state = 'PAUSED' WHERE id = 'a0'", &[]).await;
    let outcome = w.round(&["a0", "nobody", "a1"]).await;
    let why = |place: usize| match &outcome.replies[place] {
        Some(ClaimReply::Refused { why, .. }) => why.clone(),
        other => format!("{other:?}"),
    };
    assert_eq!((why(0).as_str(), why(1).as_str()), ("is PAUSED", "is not there any more"));
    assert!(claim_of(outcome.replies[2].as_ref()).is_some());
}

#[tokio::test]
async fn a_lease_that_runs_out_gives_the_task_back() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.tasks("p", 1).await;
    w.workspace("w", "p", None).await;
    w.agents(2).await;
    w.given(&["a0"]).await;
    w.pass(59);
    assert_eq!(w.given(&["a1"]).await, ["-"]);
    w.pass(1);
    // The agent never began the task, so no failure is counted, and the next agent gets it at once with a new claim.
    let outcome = w.round(&["a1"]).await;
    let claim = claim_of(outcome.replies[0].as_ref()).unwrap();
    assert_eq!((claim.epoch, claim.workspace.as_deref()), (2, Some("w")));
    assert_eq!(w.rows("SELECT agent FROM fleet_tasks WHERE retries = 0", 1).await, ["a1"]);
}

#[tokio::test]
async fn an_agent_that_dies_at_work_costs_a_retry() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.task("t", "p", |t| t.retries = 2).await;
    w.workspace("w", "p", None).await;
    w.agents(1).await;
    let dies = async |w: &mut FleetTestWorld| {
        assert_eq!(w.given(&["a0"]).await, ["t"]);
        w.run("UPDATE fleet_tasks SET state = 'IN_PROGRESS', used = 5", &[]).await;
        w.pass(60);
        w.round(&[]).await.due.map(|due| due.0 - w.now.0)
    };
    let due = dies(&mut w).await;
    assert_eq!(w.task_state("t").await, "PAUSED");
    assert_eq!(due, Some(240_000_000), "60 s · 2²");
    assert_eq!(w.rows("SELECT id FROM fleet_workspaces WHERE task IS NULL", 1).await, ["w"]);
    let kept =
        "SELECT id FROM fleet_tasks WHERE used_before = 5 AND reserved = 0 AND key_hash IS NULL";
    assert_eq!(w.rows(kept, 1).await, ["t"]);
    w.pass(240);
    dies(&mut w).await;
    assert_eq!(w.task_state("t").await, "BLOCKED");
    assert_eq!(w.given(&["a0"]).await, ["-"]);
}

#[tokio::test]
async fn a_pause_ends_by_itself() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    let until = Some(START.0 + 5_000_000);
    w.task("t", "p", |t| (t.state, t.resume_after) = ("PAUSED", until)).await;
    w.task("u", "p", |t| (t.state, t.resume_after, t.open_needs) = ("PAUSED", until, 1)).await;
    w.agents(2).await;
    let outcome = w.round(&["a0"]).await;
    assert_eq!(outcome.due.map(|due| due.0), until);
    assert_eq!(w.given(&["a0"]).await, ["-"]);
    w.pass(5);
    assert_eq!(w.given(&["a0", "a1"]).await, ["t", "-"]);
    assert_eq!(w.task_state("u").await, "DEFINED", "it still needs another task");
}

#[tokio::test]
async fn tasks_in_each_others_way_are_no_end() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| (p.concurrency, p.budget) = (3, Some(1_000))).await;
    // More tasks than are loaded at first. Once the first one has started, none of the others can.
    for number in 0..20 {
        w.task(&format!("w-{number}"), "p", |t| t.workspace = Some("w1")).await;
    }
    for number in 0..20 {
        w.task(&format!("big-{number}"), "p", |t| t.estimate = Some(901)).await;
    }
    w.task("last", "p", |_| {}).await;
    for workspace in ["w1", "w2", "w3"] {
        w.workspace(workspace, "p", None).await;
    }
    w.agents(3).await;
    assert_eq!(w.given(&["a0", "a1", "a2"]).await, ["w-0", "last", "-"]);
}

#[tokio::test]
async fn every_call_is_what_the_scheduler_decides_on_its_snapshot() {
    let mut w = FleetTestWorld::new().await;
    w.options.budget = Some(10_000);
    w.project("p", |p| (p.concurrency, p.agent_max) = (9, r#"{"big":1}"#)).await;
    w.project("q", |p| (p.concurrency, p.weight) = (9, 2_500)).await;
    w.tasks("p", 5).await;
    w.tasks("q", 5).await;
    w.task("mine", "q", |t| t.affinity = Some("a1")).await;
    w.workspace("w", "p", None).await;
    w.agents(4).await;
    w.agent("b", "big").await;
    let calls = w.round(&["a0", "b", "a1", "a2"]).await.calls;
    assert_eq!(calls.len(), 4);
    for call in &calls {
        assert_eq!(schedule(&call.snapshot), call.assignments);
    }
}

#[tokio::test]
async fn the_number_of_statements_is_constant() {
    let mut counts = Vec::new();
    for size in [1_usize, 3, 40] {
        let mut w = FleetTestWorld::new().await;
        for project in 0..size {
            let id = format!("p{project}");
            w.project(&id, |p| p.concurrency = 100).await;
            w.tasks(&id, size * 2).await;
            w.task(&format!("{id}-paused"), &id, |t| {
                (t.state, t.resume_after) = ("PAUSED", Some(START.0));
            })
            .await;
            w.workspace(&format!("w{project}"), &id, None).await;
        }
        w.agents(size * 2).await;
        let names = names(size * 2);
        // The first round only ends pauses and gives tasks; the second one also ends leases.
        let first = w.counted_round(&borrowed(&names[..size])).await.1;
        w.pass(61);
        let second = w.counted_round(&borrowed(&names)).await.1;
        let nothing = w.counted_round(&[]).await.1;
        counts.push((first, second, nothing));
    }
    assert_eq!(counts[0], counts[1]);
    assert_eq!(counts[1], counts[2]);
    assert!(counts[0].1 <= 27, "{counts:?}");
    assert_eq!(counts[0].2, 5, "when nobody waits and nothing ends");
}

// Labels and tenants.

#[tokio::test]
async fn only_agents_with_all_labels_get_a_task() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.run("UPDATE fleet_projects SET requires = '[\"docker\",\"type:big\"]'", &[]).await;
    w.tasks("p", 3).await;
    for (agent, kind) in [("a", "big"), ("b", "default"), ("c", "big"), ("d", "big")] {
        w.agent(agent, kind).await;
    }
    let label = "UPDATE fleet_agents SET labels = '[\"docker\",\"gpu\"]' WHERE id IN ('b', 'c')";
    w.run(label, &[]).await;
    assert_eq!(w.given(&["a", "b", "c", "d"]).await, ["-", "-", "p-0", "-"]);
}

/// An agent that is limited to some tenants gets no task of another tenant, not even a task that is kept for the agent,
/// and sees no prompt of that tenant.
#[tokio::test]
async fn an_agent_works_for_its_tenants_alone() {
    let mut w = FleetTestWorld::new().await;
    w.run(
        "INSERT INTO tenants (name, group_name, weight, disabled, hosted, created_at) \
         VALUES ('rival', 'g', 1, false, 'forbidden', 0)",
        &[],
    )
    .await;
    w.project("mine", |p| (p.used, p.completed) = (90_000, 1)).await;
    w.project("secret", |_| {}).await;
    w.run("UPDATE fleet_projects SET tenant = 'rival' WHERE id = 'secret'", &[]).await;
    w.tasks("mine", 1).await;
    w.tasks("secret", 2).await;
    w.task("kept", "secret", |t| t.affinity = Some("a0")).await;
    w.agents(2).await;
    w.run("UPDATE fleet_agents SET tenants = '[\"acme\"]' WHERE id = 'a0'", &[]).await;
    assert_eq!(w.given(&["a0", "a1"]).await, ["mine-0", "secret-0"]);
    let why = w.fleet().why("kept").await.unwrap();
    assert_eq!(why.code, "affinity");
    w.run("UPDATE fleet_agents SET tenants = '[\"acme\"]'", &[]).await;
    let why = w.fleet().why("secret-1").await.unwrap();
    assert_eq!(why.code, "no_matching_agent", "{}", why.sentence);
    let new = serde_json::json!({"dry_run": true, "tasks": [{"project": "secret", "prompt": "x"}]});
    let tasks: NewTasks = serde_json::from_value(new).unwrap();
    let added = w.fleet().add_tasks("admin", tasks).await.unwrap();
    assert_eq!(added.unmatched, ["secret"]);
}

// Shares by tenant.

/// Five projects of one tenant, one project of another tenant with the same settings, and one agent
/// at a time.
async fn tasks_of_tenants(share: FleetShare, weight: i64) -> [usize; 2] {
    let mut w = FleetTestWorld::new().await;
    w.options.share = share;
    w.run(
        "INSERT INTO tenants (name, group_name, weight, disabled, hosted, created_at) \
         VALUES ('rival', 'g', $1, false, 'forbidden', 0)",
        &[weight.into()],
    )
    .await;
    for number in 0..6 {
        let id = format!("p{number}");
        w.project(&id, |p| p.concurrency = 100).await;
        w.many_tasks(&id, 60).await;
    }
    w.run("UPDATE fleet_projects SET tenant = 'rival' WHERE id = 'p5'", &[]).await;
    w.agents(1).await;
    let mut counts = [0, 0];
    for _ in 0..60 {
        let outcome = w.round(&["a0"]).await;
        for call in &outcome.calls {
            assert_eq!(schedule(&call.snapshot), call.assignments);
        }
        assert_eq!(outcome.calls.len(), if share == FleetShare::Tenant { 2 } else { 1 });
        let claim = claim_of(outcome.replies[0].as_ref()).unwrap().clone();
        counts[usize::from(claim.project == "p5")] += 1;
        let sql = "UPDATE fleet_projects SET window_tokens = window_tokens + 100 WHERE id = $1";
        w.run(sql, &[claim.project.as_str().into()]).await;
        w.run("UPDATE fleet_tasks SET used = 100 WHERE id = $1", &[claim.task.as_str().into()])
            .await;
        let done = TaskCompletion::default();
        w.fleet().complete(&agent_id("a0"), &claim.task, claim.epoch, done).await.unwrap();
    }
    counts
}

#[tokio::test]
async fn tenants_share_before_their_projects() {
    assert_eq!(tasks_of_tenants(FleetShare::Project, 1).await, [50, 10], "83 % for one tenant");
    let [many, one] = tasks_of_tenants(FleetShare::Tenant, 1).await;
    assert!((29..=31).contains(&many), "{many} and {one} tasks");
    let [many, one] = tasks_of_tenants(FleetShare::Tenant, 3).await;
    assert!((14..=16).contains(&many), "{many} and {one} tasks: the directory's weights");
}

/// A tenant that was idle starts at the level of the others. A tenant that adds a project does not
/// pay for it.
#[tokio::test]
async fn an_idle_tenant_joins_level_with_the_others() {
    let mut w = FleetTestWorld::new().await;
    w.options.share = FleetShare::Tenant;
    w.run(
        "INSERT INTO tenants (name, group_name, weight, disabled, hosted, created_at) \
         VALUES ('rival', 'g', 2, false, 'forbidden', 0)",
        &[],
    )
    .await;
    for (id, used) in [("a1", 900), ("a2", 100), ("r", 0)] {
        w.project(id, |p| (p.used, p.busy) = (used, false)).await;
    }
    w.run("UPDATE fleet_projects SET tenant = 'rival' WHERE id = 'r'", &[]).await;
    let add = async |w: &FleetTestWorld, project: &str| {
        let new =
            serde_json::json!({"tasks": [{"project": project, "prompt": "x"}], "dry_run": false});
        let new: NewTasks = serde_json::from_value(new).unwrap();
        w.fleet().add_tasks("admin", new).await.unwrap();
    };
    for project in ["a1", "r", "a2"] {
        add(&w, project).await;
    }
    let tenants = "SELECT tenant || ' ' || baseline FROM fleet_tenants WHERE busy ORDER BY tenant";
    assert_eq!(w.rows(tenants, 1).await, ["acme 0", "rival 2000"], "twice the weight of acme");
    // Within its tenant, a2 starts level with a1.
    let projects = "SELECT id || ' ' || baseline FROM fleet_projects ORDER BY id";
    assert_eq!(w.rows(projects, 1).await, ["a1 0", "a2 800", "r 0"]);
}
