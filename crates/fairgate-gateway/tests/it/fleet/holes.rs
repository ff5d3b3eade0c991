//! Tests of one round with many waiting agents and many tasks at once. The table lists the tests
//! through the API of each published case of proportional scheduling, and of each fault that users
//! of that scheduler met.
//!
//! | Case | Test |
//! |---|---|
//! | 3:1, 60k and 40k used: the first | `cases::three_to_one_with_60k_and_40k_used_gives_to_the_first` |
//! | 98:1:1 with and without the guarantee | `cases::a_project_without_a_completion_goes_first_where_that_is_guaranteed` |
//! | one agent may work, one does; priorities 200 and 10; a paused project | `cases::caps_pauses_and_priorities` |
//! | the budget of all and of a project, to the token | `cases::a_budget_is_full_when_it_is_full_and_not_before` |
//! | workspaces: none free for the first project, one for the second | `a_project_without_a_free_workspace_is_passed_over` |
//! | the preferred workspace is taken: the next task | `cases::workspaces_that_are_taken_are_waited_for_by_their_own_tasks_alone` |
//! | defaults of a project and of a task | `what_nobody_says_is_the_published_default` |
//! | a preferred agent is busy: wait, then anyone | `cases::a_task_waits_a_while_for_the_agent_that_it_prefers` |
//! | cycles; blocked with its dependents, restarted, skipped | `life::what_needs_another_waits_for_it_and_a_circle_is_refused`, `life::a_task_that_fails_too_often_is_blocked_and_restarted_or_skipped` |
//!
//! | Hole | Test |
//! |---|---|
//! | names of others' tasks and workspaces can be tried out | `foreign_ids_are_no_oracle` |
//! | nothing is charged within a round | `what_is_given_in_one_round_is_charged_in_it` |
//! | running work is free until it ends | `cases::what_runs_counts_at_once` |
//! | an idle project's tokens are in the denominator | `an_idle_projects_tokens_do_not_delay_the_others` |
//! | a project back from idle takes all | `cases::a_project_that_comes_back_takes_its_share_and_no_more` |
//! | budgets overshoot | `one_token_left_lets_nobody_through`, `cases::many_agents_at_once_do_not_overshoot_a_budget`, `task_keys::many_calls_at_once_stay_within_the_fleets_budget` |
//! | one workspace is given five times | `one_workspace_is_given_once_in_one_round` |
//! | names are compared as text | `cases::tasks_go_in_the_order_in_which_they_were_made_and_not_of_their_names` |
//! | a weight of 0 or NaN | `weights_that_are_none_are_refused_wherever_they_are_said`, `people::what_cannot_be_is_refused_with_its_field` |
//! | what it costs, and queries for each project | `the_number_of_statements_is_constant` and `a_large_round_is_fast` in `fairgate-fleet`; `cargo xtask bench fleet` |
//! | a crash holds its budget | `what_a_dead_agent_had_set_aside_comes_back` |
//! | a provider's reset is not waited for | `a_providers_limit_pauses_its_task_alone_until_it_is_over` |
//! | no reason for what waits; no view of one's share | `everything_that_waits_says_why`, `life::a_task_is_made_claimed_worked_on_and_completed` |

use std::time::Duration;

use fairgate_time::wall_clock;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Agent, Claimed, Fleet, expect, refused};
use crate::support::client::Answer;

/// Starts this number of agents that wait for a task. A round has looked for a task for each of
/// them.
async fn waiting(it: &Fleet, count: usize) -> Vec<JoinHandle<Option<Claimed>>> {
    let mut claims = Vec::new();
    for number in 0..count {
        let agent: Agent = it.reporter(&format!("waits-{number}")).await;
        claims.push(tokio::spawn(async move { agent.claims_within(3).await }));
    }
    let has_asked = |agent: &Value| !agent["last_seen"].is_null();
    let all_asked = async {
        while !it.get("agents").await["items"].as_array().unwrap().iter().all(has_asked) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(2), all_asked).await.expect("all of them wait");
    claims
}

/// Returns the tasks that these agents got.
async fn given(claims: Vec<JoinHandle<Option<Claimed>>>) -> Vec<Claimed> {
    let mut given = Vec::new();
    for claim in claims {
        given.extend(claim.await.unwrap());
    }
    given
}

fn of(given: &[Claimed], project: &str) -> usize {
    given.iter().filter(|claim| claim.project() == project).count()
}

/// Adds tasks of these projects in one call.
async fn tasks_at_once(it: &Fleet, projects: &[&str], each: usize, estimate: u64) {
    let task = |project: &&str| json!({"project": project, "prompt": "x", "estimate": estimate});
    let tasks: Vec<Value> = (0..each).flat_map(|_| projects.iter().map(task)).collect();
    expect(it.post("tasks", json!({"tasks": tasks})).await, 201);
}

#[tokio::test]
async fn what_is_given_in_one_round_is_charged_in_it() {
    let it = Fleet::new().await;
    for (project, tokens) in [("p1", 1000), ("p2", 1001)] {
        it.project(project, json!({})).await;
        it.tasks(project, 1, 1).await;
        it.reporter(&format!("worker-{project}")).await.claims().await.completes(tokens).await;
    }
    let claims = waiting(&it, 10).await;
    tasks_at_once(&it, &["p1", "p2"], 10, 500).await;
    let given = given(claims).await;
    assert_eq!((of(&given, "p1"), of(&given, "p2")), (5, 5), "{given:?}");
    it.close().await;
}

#[tokio::test]
async fn an_idle_projects_tokens_do_not_delay_the_others() {
    let it = Fleet::new().await;
    it.project("idle", json!({})).await;
    it.tasks("idle", 1, 1).await;
    it.reporter("worker").await.claims().await.completes(1_000_000).await;
    it.project("p1", json!({"weight": 3})).await;
    it.project("p2", json!({"weight": 1})).await;
    tasks_at_once(&it, &["p1", "p2"], 8, 1000).await;
    let mut claims = Vec::new();
    for number in 0..8 {
        claims.push(it.reporter(&format!("a{number}")).await.claims().await);
    }
    assert_eq!((of(&claims, "p1"), of(&claims, "p2")), (6, 2), "{claims:?}");
    it.close().await;
}

#[tokio::test]
async fn one_token_left_lets_nobody_through() {
    let it = Fleet::with(|fleet| fleet.budget = Some(1_000_000)).await;
    it.project("p", json!({})).await;
    it.tasks("p", 1, 1).await;
    it.reporter("worker").await.claims().await.completes(999_999).await;
    let claims = waiting(&it, 10).await;
    tasks_at_once(&it, &["p"], 10, 200_000).await;
    assert_eq!(given(claims).await.len(), 0);
    let fleet = it.get("fleet").await;
    let spent = fleet["used"].as_u64().unwrap() + fleet["reserved"].as_u64().unwrap();
    assert_eq!(spent, 999_999, "{fleet}");
    it.close().await;
}

#[tokio::test]
async fn one_workspace_is_given_once_in_one_round() {
    let it = Fleet::new().await;
    it.project("p", json!({})).await;
    expect(it.post("workspaces", json!({"id": "w", "project": "p", "path": "/w"})).await, 201);
    let claims = waiting(&it, 5).await;
    tasks_at_once(&it, &["p"], 5, 1).await;
    let given = given(claims).await;
    assert_eq!(given.len(), 1, "{given:?}");
    assert_eq!(given[0].body["workspace"], "w");
    it.close().await;
}

#[tokio::test]
async fn a_project_without_a_free_workspace_is_passed_over() {
    let it = Fleet::new().await;
    // The first is owed nearly everything, and its only workspace is taken.
    for (project, weight) in [("p1", 99), ("p2", 1)] {
        it.project(project, json!({"weight": weight})).await;
        let workspace = json!({"id": format!("{project}-w"), "project": project, "path": format!("/w/{project}")});
        expect(it.post("workspaces", workspace).await, 201);
    }
    tasks_at_once(&it, &["p1"], 3, 1).await;
    let first = it.reporter("one").await.claims().await;
    tasks_at_once(&it, &["p2"], 3, 1000).await;
    assert_eq!(it.reporter("two").await.claims().await.project(), "p2");
    let three = it.reporter("three").await;
    three.gets_nothing().await;
    first.completes(1).await;
    assert_eq!(three.claims().await.project(), "p1");
    it.close().await;
}

#[tokio::test]
async fn weights_that_are_none_are_refused_wherever_they_are_said() {
    let it = Fleet::new().await;
    it.project("p", json!({"weight": 2.5})).await;
    for weight in [json!(0), json!(-1), json!("NaN"), json!(1e300), json!(0.0004)] {
        let new = json!({"id": "q", "tenant": "acme", "weight": weight});
        for answer in [
            it.patch("projects/p", json!({"weight": weight})).await,
            it.post("projects", new).await,
        ] {
            assert_eq!(answer.json()["error"]["field"], "weight", "{weight}: {}", answer.text());
            assert_eq!(answer.status.as_u16(), 422);
        }
    }
    assert_eq!(it.get("projects/p").await["weight"], json!(2.5));
    it.close().await;
}

#[tokio::test]
async fn what_nobody_says_is_the_published_default() {
    let it = Fleet::new().await;
    let project = expect(it.post("projects", json!({"id": "p", "tenant": "acme"})).await, 201);
    assert_eq!(
        (&project["weight"], &project["concurrency"], &project["status"], &project["budget"]),
        (&json!(1), &json!(2), &json!("ACTIVE"), &Value::Null),
        "{project}"
    );
    it.task("p", "t", json!({})).await;
    let task = it.get("tasks/t").await;
    assert_eq!(
        (&task["priority"], &task["retries"], &task["retries_max"], &task["state"]),
        (&json!(100), &json!(0), &json!(3), &json!("READY")),
        "{task}"
    );
    it.close().await;
}

#[tokio::test]
async fn what_a_dead_agent_had_set_aside_comes_back() {
    let it = Fleet::with(|fleet| fleet.lease = Duration::from_secs(1)).await;
    it.project("p", json!({"budget": 1000})).await;
    expect(it.post("workspaces", json!({"id": "w", "project": "p", "path": "/w"})).await, 201);
    tasks_at_once(&it, &["p"], 2, 1000).await;
    let dead = it.reporter("dies").await.claims().await;
    assert_eq!(it.get("projects/p").await["reserved"], 1000);
    let other = it.reporter("other").await;
    other.gets_nothing().await;
    // The lease ends, and with it the reservation and the lock: there is room for one task, and only for one.
    let taken = other.claims().await;
    assert_eq!((taken.body["workspace"].as_str(), dead.epoch), (Some("w"), 1));
    assert_eq!(it.get("projects/p").await["reserved"], 1000);
    assert_eq!(refused(dead.say("complete", json!({"tokens": 900})).await, 409), "lease_lost");
    taken.completes(10).await;
    let project = it.get("projects/p").await;
    assert_eq!((&project["reserved"], &project["used"]), (&json!(0), &json!(10)), "{project}");
    it.close().await;
}

#[tokio::test]
async fn a_providers_limit_pauses_its_task_alone_until_it_is_over() {
    let it = Fleet::new().await;
    it.project("p", json!({})).await;
    it.task("p", "limited", json!({"priority": 1})).await;
    it.task("p", "another", json!({"priority": 2})).await;
    let agent = it.reporter("one").await;
    let claim = agent.claims().await;
    let now_us = wall_clock::since_1970().as_micros();
    let until = u64::try_from(now_us).unwrap() + 2_000_000;
    let line = expect(claim.say("fail", json!({"limited_until": until})).await, 200);
    assert_eq!((&line["state"], &line["retries"]), (&json!("PAUSED"), &json!(0)), "{line}");
    let another = agent.claims().await;
    assert_eq!(another.task, "another", "what else there is goes on");
    another.completes(1).await;
    agent.gets_nothing().await;
    let again = agent.claims().await;
    assert_eq!((again.task.as_str(), again.epoch), ("limited", 2));
    let now_us = wall_clock::since_1970().as_micros();
    assert!(now_us >= u128::from(until), "not before the provider's reset");
    it.close().await;
}

#[tokio::test]
async fn everything_that_waits_says_why() {
    let it = Fleet::new().await;
    it.project("paused", json!({})).await;
    it.project("capped", json!({"concurrency": 1})).await;
    it.project("broke", json!({"budget": 10})).await;
    it.project("locked", json!({})).await;
    expect(it.post("workspaces", json!({"id": "w", "project": "locked", "path": "/w"})).await, 201);
    expect(it.patch("projects/paused", json!({"status": "PAUSED"})).await, 200);
    it.task("paused", "in-paused", json!({})).await;
    it.task("broke", "too-large", json!({"estimate": 11})).await;
    for project in ["capped", "locked"] {
        for place in ["first", "second"] {
            it.task(project, &format!("{project}-{place}"), json!({"estimate": 1})).await;
        }
    }
    it.task("locked", "needs-it", json!({"needs": ["locked-second"]})).await;
    for name in ["one", "two"] {
        it.reporter(name).await.claims().await;
    }
    let three = it.reporter("three").await;
    three.gets_nothing().await;
    let mut codes = Vec::new();
    for task in ["in-paused", "too-large", "capped-second", "locked-second", "needs-it"] {
        let why = it.get(&format!("tasks/{task}/why")).await;
        assert!(why["sentence"].as_str().is_some_and(|it| it.len() > 20), "{why}");
        codes.push(why["code"].as_str().unwrap().to_owned());
    }
    assert_eq!(codes, ["project_paused", "project_budget", "concurrency", "no_workspace", "needs"]);
    it.close().await;
}

/// An agent learns nothing from the names of other agents' tasks: they behave like tasks that do
/// not exist.
#[tokio::test]
async fn foreign_ids_are_no_oracle() {
    let it = Fleet::new().await;
    let group = json!({"name": "rivals", "weight": 1});
    expect(it.post("groups", group).await, 201);
    let tenant = json!({"name": "rival", "group": "rivals", "weight": 1});
    expect(it.post("tenants", tenant).await, 201);
    it.project("mine", json!({})).await;
    it.project("secret", json!({"tenant": "rival"})).await;
    let workspace = json!({"id": "secret-w", "project": "secret", "path": "/w"});
    it.task("mine", "one", json!({})).await;
    let agent = it.reporter("spy").await;
    let claim = agent.claims().await;
    assert_eq!(claim.task, "one");
    it.task("secret", "hidden", json!({})).await;
    it.task("secret", "secret:hidden", json!({})).await;
    expect(it.post("workspaces", workspace).await, 201);
    let same = |there: Answer, absent: Answer, names: [&str; 2]| {
        assert_eq!(there.status, absent.status);
        let text = |answer: &Answer, name: &str| answer.json().to_string().replace(name, "NAME");
        assert_eq!(text(&there, names[0]), text(&absent, names[1]));
    };
    let tries = [
        ("id", ["hidden", "nothing"], json!("hidden"), json!("nothing")),
        (
            "id",
            ["secret:hidden", "secret:nothing"],
            json!("secret:hidden"),
            json!("secret:nothing"),
        ),
        ("needs", ["hidden", "nothing"], json!(["hidden"]), json!(["nothing"])),
        ("workspace", ["secret-w", "nothing"], json!("secret-w"), json!("nothing")),
    ];
    for (field, names, there, absent) in tries {
        let add = async |value: Value| {
            let task = json!({"project": "mine", "prompt": "x", field: value});
            agent.post("tasks", json!({"tasks": [task]})).await
        };
        same(add(there).await, add(absent).await, names);
    }
    let names = ["hidden", "nothing"];
    let why = async |task: &str| agent.get(&format!("tasks/{task}/why")).await;
    same(why("hidden").await, why("nothing").await, names);
    for verb in ["heartbeat", "complete", "fail", "ask", "release"] {
        let body = json!({"epoch": 1, "question": "what?"});
        let body = if verb == "ask" { body } else { json!({"epoch": 1}) };
        let end =
            async |task: &str| agent.post(&format!("tasks/{task}/{verb}"), body.clone()).await;
        let (there, absent) = (end("hidden").await, end("nothing").await);
        assert_eq!(there.status.as_u16(), 404, "{verb}: {there:?}");
        same(there, absent, names);
    }
    claim.completes(1).await;
    it.close().await;
}
