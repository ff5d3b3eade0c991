//! What agents say of the tasks that they hold.

use fairgate_api::fleet::{NewTask, NewWorkspace, TaskAction, TaskLine, TaskState};
use fairgate_fleet::{
    AgentId, FleetError, TaskCompletion, TaskFailure, TaskHeartbeat, TaskQuestion, TaskRelease,
};
use fairgate_store::UnixMicros;

use crate::world::{START, World, agent, field, on_every_database, task_of};

on_every_database! {
    signs_of_life, completing_twice, each_end_may_be_said_twice, ends_are_fenced,
    failures_are_retried_and_block, limits_pause_without_a_retry, reports_count_once,
    what_tasks_use_is_learned, workspaces_and_keys_are_freed, what_agents_say_is_bounded,
    completions_count_in_the_window, histories_are_bounded,
}

async fn signs_of_life(world: World) {
    world.add(&["a"]).await;
    let epoch = world.hold("a", "a").await;
    world.pass(30);
    let beat = TaskHeartbeat { progress: Some("half\0way".into()), tokens: None };
    let held = world.fleet.heartbeat(&agent("a"), "a", epoch, beat).await.unwrap();
    assert_eq!(held.lease_until, UnixMicros(START + 90_000_000));
    assert_eq!((held.used, held.reserved), (0, 500));
    let view = world.task("a").await;
    assert_eq!(view.line.state, TaskState::InProgress);
    assert_eq!(view.progress.as_deref(), Some("half\u{fffd}way"));
    // The next one begins nothing, and leaves the progress as it is.
    let steps = view.history.len();
    world.fleet.heartbeat(&agent("a"), "a", epoch, Default::default()).await.unwrap();
    let view = world.task("a").await;
    assert_eq!((view.history.len(), view.progress.is_some()), (steps, true));
    let seen = "SELECT last_seen FROM fleet_agents WHERE id = 'a'";
    assert_eq!(world.number(seen).await, START + 30_000_000);
    // A lease that ran out and was not taken back is still the agent's.
    world.pass(1_000);
    world.fleet.heartbeat(&agent("a"), "a", epoch, Default::default()).await.unwrap();
}

async fn completing_twice(world: World) {
    world.add(&["a", "b<a", "c<a"]).await;
    let epoch = world.hold("a", "a").await;
    let done = || TaskCompletion { result: Some("fine".into()), tokens: None };
    let first = world.fleet.complete(&agent("a"), "a", epoch, done()).await.unwrap();
    assert_eq!((first.state, first.ended_at), (TaskState::Completed, Some(world.now())));
    let steps = world.task("a").await.history.len();
    world.pass(5);
    let other = TaskCompletion { result: Some("other".into()), tokens: Some(5) };
    let second = world.fleet.complete(&agent("a"), "a", epoch, other).await.unwrap();
    assert_eq!(first, second);
    let view = world.task("a").await;
    assert_eq!((view.history.len(), view.result.as_deref()), (steps, Some("fine")));
    assert_eq!(world.number("SELECT MAX(open_needs) FROM fleet_tasks").await, 0);
    assert_eq!(world.number("SELECT MIN(open_needs) FROM fleet_tasks").await, 0);
    let completed = "SELECT window_completed FROM fleet_projects WHERE id = 'p'";
    assert_eq!(world.number(completed).await, 1);
}

/// One of the four ways to end a claim.
async fn end(world: &World, verb: &str, who: &AgentId, epoch: u64) -> Result<TaskLine, FleetError> {
    let fleet = &world.fleet;
    match verb {
        "complete" => fleet.complete(who, "x", epoch, TaskCompletion::default()).await,
        "fail" => fleet.fail(who, "x", epoch, TaskFailure::default()).await,
        "ask" => {
            let question = TaskQuestion { question: "what?".into(), tokens: None };
            fleet.ask(who, "x", epoch, question).await
        }
        _ => fleet.release(who, "x", epoch, TaskRelease::default()).await,
    }
}

const VERBS: [(&str, TaskState); 4] = [
    ("complete", TaskState::Completed),
    ("fail", TaskState::Paused),
    ("ask", TaskState::WaitingInput),
    ("release", TaskState::Ready),
];

async fn each_end_may_be_said_twice(world: World) {
    world.add(&["x"]).await;
    for (verb, state) in VERBS {
        world.sql("UPDATE fleet_tasks SET state = 'READY'", vec![]).await;
        let epoch = world.hold("x", "a").await;
        assert_eq!(end(&world, verb, &agent("a"), epoch).await.unwrap().state, state);
        let before = world.task("x").await;
        for (again, _) in VERBS {
            let result = end(&world, again, &agent("a"), epoch).await;
            assert_eq!(result.is_ok(), again == verb, "{verb}, then {again}: {result:?}");
            let wrong = end(&world, again, &agent("b"), epoch).await;
            assert!(matches!(wrong, Err(FleetError::NotFound { .. })), "b never had it: {wrong:?}");
        }
        assert_eq!(world.task("x").await, before);
    }
}

async fn ends_are_fenced(world: World) {
    world.add(&["x"]).await;
    let first = world.hold("x", "a").await;
    // The lease ran out, and b has it.
    world.sql("UPDATE fleet_tasks SET state = 'READY'", vec![]).await;
    let second = world.hold("x", "b").await;
    let given = "INSERT INTO fleet_history (task, step, at, from_state, to_state, epoch, actor, reason) \
                 VALUES ('x', 1, 0, 'READY', 'ASSIGNED', 1, 'fleet', 'given to agent a')";
    world.sql(given, vec![]).await;
    let before = world.task("x").await;
    for (verb, _) in VERBS {
        for (who, epoch, says) in [
            ("a", first, "agent \"b\" holds it as claim 2; yours was claim 1"),
            ("b", first, "you hold it as claim 2, and this is about claim 1"),
            ("b", second + 1, "you hold it as claim 2, and this is about claim 3"),
            ("a", second, "agent \"b\" holds it as claim 2; yours was claim 2"),
        ] {
            let lost = end(&world, verb, &agent(who), epoch).await;
            let Err(FleetError::LeaseLost { why, .. }) = lost else { panic!("{lost:?}") };
            assert_eq!(why, says);
        }
    }
    let lost = world.fleet.heartbeat(&agent("a"), "x", first, Default::default()).await;
    assert!(matches!(lost, Err(FleetError::LeaseLost { .. })));
    assert_eq!(world.task("x").await, before);
    let unknown = world.fleet.complete(&agent("a"), "none", 1, Default::default()).await;
    assert!(matches!(unknown, Err(FleetError::NotFound { what: "task", .. })));
    end(&world, "complete", &agent("b"), second).await.unwrap();
    let lost = end(&world, "complete", &agent("a"), first).await;
    let Err(FleetError::LeaseLost { why, .. }) = lost else { panic!("{lost:?}") };
    assert_eq!(why, "it is COMPLETED, and claim 1 is over");
}

async fn failures_are_retried_and_block(world: World) {
    let task = NewTask { retries: Some(2), ..task_of("p", Some("x")) };
    world.add_all(vec![task]).await.unwrap();
    world.add(&["y<x", "z<y"]).await;
    for (retries, pause) in [(1, 60), (2, 120)] {
        let epoch = world.hold("x", "a").await;
        let failure = TaskFailure { reason: Some("boom".into()), ..TaskFailure::default() };
        let line = world.fleet.fail(&agent("a"), "x", epoch, failure).await.unwrap();
        assert_eq!((line.state, line.retries), (TaskState::Paused, retries));
        assert_eq!(line.resume_after, Some(UnixMicros(world.now().0 + pause * 1_000_000)));
        assert_eq!(line.reason.as_deref(), Some("failed: boom"));
        world.pass(pause);
    }
    let epoch = world.hold("x", "a").await;
    let line = world.fleet.fail(&agent("a"), "x", epoch, TaskFailure::default()).await.unwrap();
    assert_eq!((line.state, line.retries, line.resume_after), (TaskState::Blocked, 2, None));
    assert_eq!(
        line.reason.unwrap(),
        "failed and was tried again 2 times; the last time: it gave no reason; 2 tasks wait for it: y, z"
    );
    assert_eq!(world.task("x").await.needed_by, ["y", "z"]);
    assert_eq!(world.state("y").await, TaskState::Defined);
}

async fn limits_pause_without_a_retry(world: World) {
    world.add(&["x"]).await;
    let epoch = world.hold("x", "a").await;
    let limited =
        |until| TaskFailure { limited_until: Some(UnixMicros(until)), ..TaskFailure::default() };
    for bad in [-1, i64::MAX] {
        let wrong = world.fleet.fail(&agent("a"), "x", epoch, limited(bad)).await;
        assert_eq!(field(wrong), "limited_until");
    }
    let until = START + 3_600_000_000;
    let line = world.fleet.fail(&agent("a"), "x", epoch, limited(until)).await.unwrap();
    assert_eq!((line.state, line.retries), (TaskState::Paused, 0));
    assert_eq!(line.resume_after, Some(UnixMicros(until)));
    let again = world.fleet.fail(&agent("a"), "x", epoch, limited(until + 1)).await.unwrap();
    assert_eq!(again, line);
}

async fn reports_count_once(world: World) {
    world.add(&["x", "y"]).await;
    let used = || world.number("SELECT window_tokens FROM fleet_projects WHERE id = 'p'");
    let beat = |tokens| TaskHeartbeat { tokens: Some(tokens), progress: None };
    // One that calls through the gateway may say what it likes.
    let epoch = world.hold("x", "a").await;
    let held = world.fleet.heartbeat(&agent("a"), "x", epoch, beat(1_000_000)).await.unwrap();
    assert_eq!((held.used, used().await), (0, 0));
    // One that reports is charged for what is more than before.
    let epoch = world.hold("y", "c").await;
    for (said, counts) in [(100, 100_u64), (100, 100), (300, 300), (200, 300)] {
        let held = world.fleet.heartbeat(&agent("c"), "y", epoch, beat(said)).await.unwrap();
        assert_eq!((held.used, used().await), (counts, counts.cast_signed()));
    }
    let too_much = world.fleet.heartbeat(&agent("c"), "y", epoch, beat(u64::MAX)).await;
    assert_eq!(field(too_much), "tokens");
    let fail = TaskFailure { tokens: Some(350), ..TaskFailure::default() };
    world.fleet.fail(&agent("c"), "y", epoch, fail.clone()).await.unwrap();
    world.fleet.fail(&agent("c"), "y", epoch, fail).await.unwrap();
    assert_eq!(used().await, 350);
    // The next claim counts from 0.
    let epoch = world.hold("y", "c").await;
    let done = TaskCompletion { tokens: Some(50), result: None };
    let line = world.fleet.complete(&agent("c"), "y", epoch, done).await.unwrap();
    assert_eq!((line.used, used().await), (400, 400));
    let kept = "SELECT CAST(SUM(tokens) AS BIGINT) FROM fleet_usage WHERE project = 'p'";
    assert_eq!(world.number(kept).await, 400);
}

async fn what_tasks_use_is_learned(world: World) {
    assert_eq!(
        world.add_all(vec![task_of("p", Some("x1"))]).await.unwrap().added[0].estimate,
        20_000
    );
    let complete = |id: &'static str, tokens| {
        let world = &world;
        async move {
            let epoch = world.hold(id, "c").await;
            let done = TaskCompletion { tokens: Some(tokens), result: None };
            world.fleet.complete(&agent("c"), id, epoch, done).await.unwrap();
        }
    };
    complete("x1", 1_000).await;
    let added =
        world.add_all(vec![task_of("p", Some("x2")), task_of("q", Some("z"))]).await.unwrap();
    assert_eq!((added.added[0].estimate, added.added[1].estimate), (1_000, 20_000));
    complete("x2", 2_000).await;
    world.add(&["x3"]).await;
    assert_eq!(world.task("x3").await.line.estimate, 1_250);
    // Its own estimate goes first, and a skipped task teaches nothing.
    let own = NewTask { estimate: Some(7), ..task_of("p", Some("x4")) };
    assert_eq!(world.add_all(vec![own]).await.unwrap().added[0].estimate, 7);
    world.fleet.act("admin", "x3", TaskAction::Cancel { reason: None }).await.unwrap();
    world.fleet.act("admin", "x3", TaskAction::Skip { reason: None }).await.unwrap();
    let learned = "SELECT learned FROM fleet_projects WHERE id = 'p'";
    assert_eq!(world.number(learned).await, 1_250);
}

async fn workspaces_and_keys_are_freed(world: World) {
    let workspace =
        NewWorkspace { id: "w".into(), project: "p".into(), path: "/w".into(), machine: None };
    world.fleet.add_workspace("admin", workspace).await.unwrap();
    world.add(&["x"]).await;
    for (verb, _) in VERBS {
        world.sql("UPDATE fleet_tasks SET state = 'READY'", vec![]).await;
        let epoch = world.hold("x", "a").await;
        world.sql("UPDATE fleet_workspaces SET task = 'x', agent = 'a'", vec![]).await;
        world.sql("UPDATE fleet_tasks SET in_workspace = 'w', used = 10", vec![]).await;
        end(&world, verb, &agent("a"), epoch).await.unwrap();
        let workspace = world.fleet.workspaces(Some("p")).await.unwrap().remove(0);
        assert_eq!((workspace.task, workspace.agent), (None, None), "{verb}");
        let view = world.task("x").await;
        assert_eq!((view.in_workspace, view.lease_until), (None, None), "{verb}");
        assert_eq!(view.line.agent.as_deref(), Some("a"), "who held it last");
        let left = "SELECT COUNT(*) FROM fleet_tasks WHERE key_hash IS NOT NULL OR reserved <> 0 OR used <> 0";
        assert_eq!(world.number(left).await, 0, "{verb}");
    }
    assert_eq!(world.task("x").await.line.used, 40);
}

async fn what_agents_say_is_bounded(world: World) {
    world.add(&["x"]).await;
    let epoch = world.hold("x", "a").await;
    let beat = TaskHeartbeat { progress: Some("ä".repeat(4_000)), tokens: None };
    world.fleet.heartbeat(&agent("a"), "x", epoch, beat).await.unwrap();
    assert_eq!(world.task("x").await.progress.unwrap().len(), 4_096);
    let done = TaskCompletion { result: Some("x".repeat((1 << 20) + 1)), tokens: None };
    assert_eq!(field(world.fleet.complete(&agent("a"), "x", epoch, done).await), "result");
    for question in [String::new(), "x".repeat((16 << 10) + 1)] {
        let question = TaskQuestion { question, tokens: None };
        assert_eq!(field(world.fleet.ask(&agent("a"), "x", epoch, question).await), "question");
    }
    let failure = TaskFailure { reason: Some("y".repeat(1 << 20)), ..TaskFailure::default() };
    let line = world.fleet.fail(&agent("a"), "x", epoch, failure).await.unwrap();
    assert_eq!(line.reason.unwrap().len(), "failed: ".len() + 4_096);
}

async fn completions_count_in_the_window(world: World) {
    let count = || world.number("SELECT window_completed FROM fleet_projects WHERE id = 'p'");
    world.add(&["x", "y"]).await;
    for id in ["x", "y"] {
        let epoch = world.hold(id, "a").await;
        world.fleet.complete(&agent("a"), id, epoch, TaskCompletion::default()).await.unwrap();
    }
    assert_eq!(count().await, 2);
}

async fn histories_are_bounded(world: World) {
    world.add(&["x"]).await;
    for _ in 0..205 {
        let epoch = world.hold("x", "a").await;
        world.fleet.release(&agent("a"), "x", epoch, TaskRelease::default()).await.unwrap();
    }
    let history = world.task("x").await.history;
    assert_eq!((history.len(), history[0].epoch, history[199].epoch), (200, 6, 205));
}
