//! Tests of the sentence of each explanation.

#![allow(clippy::unwrap_used)]

use fairgate_api::fleet::TaskExplanation;

use crate::call_context::CallContext;
use crate::error::FleetError;
use crate::testing::{FleetTestWorld, START};

async fn why(w: &FleetTestWorld, task: &str) -> TaskExplanation {
    w.fleet().why(task).await.unwrap()
}

async fn said(w: &FleetTestWorld, task: &str) -> (String, String) {
    let why = why(w, task).await;
    (why.code, why.sentence)
}

fn expect(said: (String, String), code: &str, sentence: &str) {
    assert_eq!((said.0.as_str(), said.1.as_str()), (code, sentence));
}

/// Returns a test world with the project `p` with this number of tasks, and the agents a0 and a1.
async fn world(tasks: usize) -> FleetTestWorld {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.tasks("p", tasks).await;
    w.agents(2).await;
    w
}

#[tokio::test]
async fn a_task_waits_for_others() {
    let mut w = world(0).await;
    w.task("x", "p", |_| {}).await;
    w.task("y", "p", |t| t.state = "BLOCKED").await;
    w.task("t", "p", |t| (t.state, t.open_needs) = ("DEFINED", 1)).await;
    w.task("u", "p", |t| (t.state, t.open_needs) = ("DEFINED", 2)).await;
    for (task, needs) in [("t", "x"), ("u", "x"), ("u", "y")] {
        w.run(
            "INSERT INTO fleet_needs (task, needs) VALUES ($1, $2)",
            &[task.into(), needs.into()],
        )
        .await;
    }
    expect(said(&w, "t").await, "needs", "It waits for 1 task: x (READY).");
    let sentence = "It waits for 2 tasks: x (READY) and y (BLOCKED); it cannot start until somebody restarts or skips y.";
    expect(said(&w, "u").await, "needs_stuck", sentence);
}

/// The explanation names the task on which a person must act, however many steps away it is.
#[tokio::test]
async fn a_task_behind_a_blocked_one_names_the_root() {
    let mut w = world(0).await;
    w.task("root", "p", |t| t.state = "BLOCKED").await;
    for (task, needs) in [("b", "root"), ("c", "b"), ("d", "c")] {
        w.task(task, "p", |t| (t.state, t.open_needs) = ("DEFINED", 1)).await;
        let sql = "INSERT INTO fleet_needs (task, needs) VALUES ($1, $2)";
        w.run(sql, &[task.into(), needs.into()]).await;
    }
    let sentence =
        "It waits for 1 task: c (DEFINED); it cannot start until somebody restarts or skips root.";
    expect(said(&w, "d").await, "needs_stuck", sentence);
    w.run("UPDATE fleet_tasks SET state = 'READY' WHERE id = 'root'", &[]).await;
    expect(said(&w, "d").await, "needs", "It waits for 1 task: c (DEFINED).");
}

/// Returns the explanation of a task while these agents wait.
async fn said_while(w: &FleetTestWorld, task: &str, waiting: &[&str]) -> (String, String) {
    let waiting: Vec<String> = waiting.iter().map(|it| (*it).to_owned()).collect();
    let options = std::sync::Arc::new(w.options.clone());
    let call = CallContext { now: w.now, actor: "admin".to_owned(), options };
    let task = task.to_owned();
    let work = move |tx: &mut dyn fairgate_store::Transaction| {
        super::of(tx, &call, &task, &waiting, super::ExplanationScope::Everything)
    };
    let why = w.store.inspect::<_, FleetError>(work).await.unwrap();
    (why.code, why.sentence)
}

/// If the waiting agents may not take the task, the explanation does not say that it starts soon.
#[tokio::test]
async fn a_waiting_agent_of_a_type_that_the_project_may_not_have() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.agent_max = r#"{"codex":0}"#).await;
    w.tasks("p", 1).await;
    w.agent("c0", "codex").await;
    w.agent("d0", "default").await;
    let sentence = "Its project has as many agents as it may of every type that waits: 0 of at most 0 of type codex; it \
                    takes the next agent of another type.";
    expect(said_while(&w, "p-0", &["c0"]).await, "agent_type", sentence);
    expect(
        said_while(&w, "p-0", &["c0", "d0"]).await,
        "starting",
        "It starts within moments: 2 agents are waiting.",
    );
    w.run("UPDATE fleet_agents SET state = 'RETIRED' WHERE id = 'd0'", &[]).await;
    let sentence = "Its project has as many agents as it may of every type that waits: 0 of at most 0 of type codex.";
    expect(said_while(&w, "p-0", &["c0"]).await, "agent_type", sentence);
}

/// If all waiting agents have given the task back as unfit, the explanation does not say that it starts soon.
#[tokio::test]
async fn a_task_that_all_waiting_agents_have_given_back() {
    let w = world(1).await;
    let unfit = "INSERT INTO fleet_unfit (agent, task) VALUES ($1, 'p-0')";
    w.run(unfit, &["a0".into()]).await;
    let both = "It starts within moments: 2 agents are waiting.";
    expect(said_while(&w, "p-0", &["a0", "a1"]).await, "starting", both);
    let one = "The only agent that waits has given it back, because it cannot work on it: it takes the next agent that has not.";
    expect(said_while(&w, "p-0", &["a0"]).await, "given_back", one);
    w.run(unfit, &["a1".into()]).await;
    let all = "All 2 agents that wait have given it back, because they cannot work on it: it waits for another agent.";
    expect(said_while(&w, "p-0", &["a0", "a1"]).await, "given_back", all);
    let nobody = "All 2 agents have given it back, because they cannot work on it: it waits for another agent.";
    expect(said_while(&w, "p-0", &[]).await, "given_back", nobody);
}

/// The order of projects does not change with their usage, and is the same in the view and in the list of projects.
#[tokio::test]
async fn the_fleets_view_has_one_order() {
    let mut w = FleetTestWorld::new().await;
    for (id, used) in [("m", 500), ("z", 0), ("a", 900)] {
        w.project(id, |p| p.used = used).await;
        w.tasks(id, 1).await;
    }
    for used in ["0", "400", "9000"] {
        w.run(&format!("UPDATE fleet_projects SET window_tokens = {used} WHERE id = 'a'"), &[])
            .await;
        let view = w.fleet().view().await.unwrap();
        let ids: Vec<_> = view.projects.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["m", "z", "a"], "{used}");
        let tasks: Vec<_> = view.waiting.iter().map(|it| it.task.as_str()).collect();
        assert_eq!(tasks, ["m-0", "z-0", "a-0"], "{used}");
        let list = w.fleet().projects(None).await.unwrap();
        assert_eq!(list.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ids);
    }
}

/// An agent that never asked for a task is not listed as connected.
#[tokio::test]
async fn free_agents_are_connected() {
    let mut w = world(1).await;
    w.agents_named(&["late", "never"]).await;
    w.given(&["a0"]).await;
    w.round(&["a1", "late"]).await;
    assert_eq!(w.fleet().view().await.unwrap().connected, ["a0", "a1", "late"]);
    w.pass(50);
    w.round(&["a1"]).await;
    w.pass(30);
    assert_eq!(w.fleet().view().await.unwrap().connected, ["a0", "a1"]);
}

#[tokio::test]
async fn a_project_does_not_take_part() {
    let w = world(1).await;
    w.run("UPDATE fleet_projects SET status = 'PAUSED'", &[]).await;
    let sentence = "Its project p is PAUSED: nothing of it starts until somebody resumes it.";
    expect(said(&w, "p-0").await, "project_paused", sentence);
}

#[tokio::test]
async fn a_tenant_is_disabled() {
    let w = world(1).await;
    w.run("UPDATE tenants SET disabled = true", &[]).await;
    assert_eq!(w.given(&["a0"]).await, ["-"]);
    let sentence =
        "Its project's tenant acme is disabled: nothing of it starts until somebody enables it.";
    expect(said(&w, "p-0").await, "tenant_disabled", sentence);
    w.run("UPDATE tenants SET disabled = false", &[]).await;
    assert_eq!(w.given(&["a0"]).await, ["p-0"]);
}

#[tokio::test]
async fn budgets_say_when_there_is_room() {
    let mut w = FleetTestWorld::new().await;
    w.options.default_estimate = 300;
    w.project("p", |p| (p.budget, p.used) = (Some(1_000), 800)).await;
    w.tasks("p", 1).await;
    w.task("huge", "p", |t| t.estimate = Some(1_001)).await;
    // The current bucket, with 800 tokens, fades between 24 h and 25 h from now. 100 tokens have faded after 24 h 7.5
    // min.
    let sentence = "Its project used 800 and set 0 aside of a budget of 1 000 tokens, and it is expected to use 300: \
                    enough of that has left the window in 25 h.";
    expect(said(&w, "p-0").await, "project_budget", sentence);
    let (code, sentence) = said(&w, "huge").await;
    assert_eq!(code, "project_budget");
    assert!(sentence.ends_with("its estimate alone is more than that budget."), "{sentence}");
    w.run("UPDATE fleet_projects SET budget = NULL", &[]).await;
    w.options.budget = Some(1_000);
    let (code, sentence) = said(&w, "p-0").await;
    assert_eq!(code, "global_budget");
    assert!(sentence.starts_with("All projects together used 800 and set 0 aside"), "{sentence}");
}

#[tokio::test]
async fn a_project_is_full() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.concurrency = 1).await;
    w.project("q", |p| p.agent_max = r#"{"default":1}"#).await;
    for project in ["p", "q"] {
        w.tasks(project, 2).await;
    }
    w.agents(2).await;
    w.round(&["a0", "a1"]).await;
    expect(said(&w, "p-1").await, "concurrency", "Its project has 1 of at most 1 agent.");
    let sentence = "Its project has as many agents as it may of every type that there is: 1 of at most 1 of type default.";
    expect(said(&w, "q-1").await, "agent_type", sentence);
}

#[tokio::test]
async fn workspaces_are_taken() {
    let mut w = world(1).await;
    w.workspace("w", "p", None).await;
    w.task("mine", "p", |t| t.workspace = Some("w")).await;
    w.task("lost", "p", |t| t.workspace = Some("gone")).await;
    w.round(&["a0"]).await;
    w.tasks("p2", 0).await;
    w.task("any", "p", |_| {}).await;
    expect(said(&w, "any").await, "no_workspace", "None of its project's workspaces is free.");
    let sentence = "Its workspace w is held by task p-0 of agent a0.";
    expect(said(&w, "mine").await, "workspace_taken", sentence);
    let sentence = "Its project has no workspace gone, and it must run there.";
    expect(said(&w, "lost").await, "workspace_missing", sentence);
}

#[tokio::test]
async fn a_task_waits_for_its_agent() {
    let mut w = world(1).await;
    w.task("t", "p", |t| t.affinity = Some("a0")).await;
    w.round(&["a0"]).await;
    w.pass(40);
    let sentence = "It waits for agent a0, which works on p-0; in 80 s anybody may take it.";
    expect(said(&w, "t").await, "affinity", sentence);
    w.pass(80);
    assert_eq!(said(&w, "t").await.0, "no_agent");
}

#[tokio::test]
async fn pauses_and_retries_have_a_time() {
    let mut w = world(0).await;
    let until = Some(START.0 + 60_000_000);
    w.task("t", "p", |t| (t.state, t.resume_after) = ("PAUSED", until)).await;
    w.task("r", "p", |t| (t.state, t.resume_after, t.retries) = ("PAUSED", until, 2)).await;
    w.task("s", "p", |t| t.state = "PAUSED").await;
    w.run("UPDATE fleet_tasks SET reason = 'the tests failed.' WHERE id = 'r'", &[]).await;
    expect(
        said(&w, "t").await,
        "paused_until",
        "It is paused for another 60 s, until 2027-01-15 08:01:01 UTC.",
    );
    let sentence =
        "It is tried again in 60 s, at 2027-01-15 08:01:01 UTC (retry 2 of 3): the tests failed.";
    expect(said(&w, "r").await, "retry", sentence);
    expect(said(&w, "s").await, "paused", "It is paused until somebody resumes it.");
}

#[tokio::test]
async fn no_agent_is_there_or_all_are_busy() {
    let w = world(3).await;
    expect(
        said(&w, "p-0").await,
        "no_agent",
        "It takes the first agent that comes: no agent is there.",
    );
    w.round(&["a0"]).await;
    let sentence = "It takes the next agent: no agent is waiting, 1 agent is busy.";
    expect(said(&w, "p-1").await, "no_agent", sentence);
    let sentence =
        "Task p-1 of its own project goes first, and no agent is waiting, 1 agent is busy.";
    expect(said(&w, "p-2").await, "behind_task", sentence);
}

#[tokio::test]
async fn a_task_far_behind_has_the_same_sentence() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |_| {}).await;
    w.tasks("p", 30).await;
    let sentence = "Task p-0 of its own project goes first, and no agent is there.";
    expect(said(&w, "p-29").await, "behind_task", sentence);
}

#[tokio::test]
async fn another_project_is_owed_more() {
    let mut w = FleetTestWorld::new().await;
    w.project("p", |p| p.used = 610).await;
    w.project("q", |p| p.used = 390).await;
    w.tasks("p", 1).await;
    w.tasks("q", 1).await;
    let sentence = "Its project has 61.0 % of the tokens where its weight promises 50.0 %, so project q goes first, \
                    and no agent is there.";
    expect(said(&w, "p-0").await, "behind_others", sentence);
    let facts: Vec<_> = why(&w, "p-0").await.facts.into_iter().map(|it| it.value).collect();
    assert_eq!(facts, ["61.0 %", "50.0 %", "q", "39.0 %, promised 50.0 %", "0", "0"]);
}

#[tokio::test]
async fn what_runs_or_has_ended_says_so() {
    let mut w = world(1).await;
    for state in ["COMPLETED", "FAILED", "BLOCKED", "WAITING_INPUT"] {
        w.task(state, "p", |t| t.state = state).await;
    }
    w.run(
        "UPDATE fleet_tasks SET question = 'Which port?', agent = 'a1' WHERE id = 'WAITING_INPUT'",
        &[],
    )
    .await;
    w.round(&["a0"]).await;
    w.pass(12);
    let sentence = "Agent a0 was given it 12 s ago and has not begun yet.";
    expect(said(&w, "p-0").await, "assigned", sentence);
    w.run("UPDATE fleet_tasks SET state = 'IN_PROGRESS' WHERE id = 'p-0'", &[]).await;
    expect(said(&w, "p-0").await, "running", "Agent a0 has worked on it for 12 s.");
    expect(said(&w, "COMPLETED").await, "completed", "It is completed.");
    expect(said(&w, "FAILED").await, "failed", "It ended without success.");
    let sentence = "It failed as often as it may, and waits for somebody to restart or skip it.";
    expect(said(&w, "BLOCKED").await, "blocked", sentence);
    let sentence = "It waits for an answer to what agent a1 asked: Which port?";
    expect(said(&w, "WAITING_INPUT").await, "waiting_input", sentence);
    assert!(w.fleet().why("nothing").await.is_err());
}

#[tokio::test]
async fn the_fleet_shows_shares_and_who_waits() {
    let mut w = FleetTestWorld::new().await;
    w.options.budget = Some(10_000);
    w.project("p", |p| (p.used, p.weight) = (600, 3_000)).await;
    w.project("q", |p| (p.used, p.concurrency) = (400, 1)).await;
    w.project("gone", |p| (p.status, p.used) = ("ARCHIVED", 50)).await;
    w.tasks("p", 5).await;
    w.tasks("q", 2).await;
    w.agents(2).await;
    w.round(&["a0"]).await;
    let view = w.fleet().view().await.unwrap();
    assert_eq!((view.used, view.reserved, view.budget), (1_050, 100, Some(10_000)));
    let shown: Vec<_> = view
        .projects
        .iter()
        .map(|it| (it.id.as_str(), it.got_share, it.due_share, it.ready, it.running, it.reserved))
        .collect();
    let expected = [("p", Some(0.6), Some(0.75), 4, 1, 100), ("q", Some(0.4), Some(0.25), 2, 0, 0)];
    assert_eq!(shown, expected);
    assert_eq!(view.running.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["p-0"]);
    let waiting: Vec<_> =
        view.waiting.iter().map(|it| (it.task.as_str(), it.code.as_str())).collect();
    let expected = [
        ("p-1", "behind_others"),
        ("p-2", "behind_task"),
        ("p-3", "behind_task"),
        ("q-0", "no_agent"),
        ("q-1", "behind_task"),
    ];
    assert_eq!(waiting, expected);
    // An agent works for p, and no task of q has ended in the window.
    let first = "Another project has had no task completed or failed within the window, so project q goes first, and";
    assert!(view.waiting[0].sentence.starts_with(first), "{:?}", view.waiting[0]);
    assert_eq!(view.agents.len(), 2);
    let all = w.fleet().projects(Some("acme")).await.unwrap();
    assert_eq!(all.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["p", "q", "gone"]);
    assert_eq!(w.fleet().projects(Some("other")).await.unwrap().len(), 0);
    let one = w.fleet().project("q").await.unwrap();
    assert_eq!(one, all[1]);
    assert!(w.fleet().project("nothing").await.is_err());
}

#[tokio::test]
async fn what_belongs_to_others_is_not_named_to_a_tenant() {
    let mut w = FleetTestWorld::new().await;
    w.run(
        "INSERT INTO tenants (name, group_name, weight, disabled, hosted, created_at) \
         VALUES ('rival', 'g', 1, false, 'forbidden', 0)",
        &[],
    )
    .await;
    w.project("mine", |p| (p.used, p.completed) = (900, 1)).await;
    w.project("secret", |p| p.completed = 1).await;
    w.run("UPDATE fleet_projects SET tenant = 'rival' WHERE id = 'secret'", &[]).await;
    w.tasks("mine", 1).await;
    w.tasks("secret", 2).await;
    w.agents(1).await;
    assert_eq!(w.given(&["a0"]).await, ["secret-0"]);
    w.task("waits", "mine", |t| t.affinity = Some("a0")).await;
    for (task, code) in [("mine-0", "behind_others"), ("waits", "affinity")] {
        let whole = why(&w, task).await;
        assert!(format!("{whole:?}").contains("secret"), "{whole:?}");
        let seen = w.fleet().why_within_tenant(task).await.unwrap();
        assert!(!format!("{seen:?}").contains("secret"), "{seen:?}");
        assert_eq!((seen.code.as_str(), &seen.code), (code, &whole.code));
    }
}
