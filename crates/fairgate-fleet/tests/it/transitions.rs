//! What people do with tasks: each action in each state.

use fairgate_api::fleet::{TaskAction, TaskState};
use fairgate_fleet::{FleetError, TaskQuestion};
use fairgate_store::UnixMicros;

use crate::world::{START, World, agent, field, on_every_database};

on_every_database! {
    each_action_in_each_state, agents_lose_what_is_cancelled, stuck_tasks_are_listed,
    skipping_lets_others_start, paused_tasks_keep_their_needs, questions_are_answered,
    a_restart_begins_anew, actions_are_checked,
}

fn actions() -> Vec<(TaskAction, &'static str)> {
    vec![
        (TaskAction::Cancel { reason: None }, "cancel"),
        (TaskAction::Pause { until: None, reason: None }, "pause"),
        (TaskAction::Resume, "resume"),
        (TaskAction::Restart, "restart"),
        (TaskAction::Skip { reason: None }, "skip"),
        (TaskAction::Answer { text: "yes".into() }, "answer"),
    ]
}

/// Where an action leads from a state; none where it is refused.
fn leads_to(action: &str, from: TaskState) -> Option<TaskState> {
    use TaskState::{Blocked, Completed, Failed, Paused, Ready, WaitingInput};
    match (action, from) {
        ("cancel", Completed | Failed) => None,
        ("cancel", _) => Some(Failed),
        ("pause", Completed | Failed | Blocked | Paused) => None,
        ("pause", _) => Some(Paused),
        ("resume", Paused) => Some(Ready),
        ("restart", Blocked | Failed) => Some(Ready),
        ("skip", Blocked | Failed) => Some(Completed),
        ("answer", WaitingInput) => Some(Ready),
        _ => None,
    }
}

async fn each_action_in_each_state(world: World) {
    for from in TaskState::ALL {
        for (action, word) in actions() {
            let id = format!("{}.{word}", from.word().to_lowercase());
            world.add(&[&id]).await;
            if from.is_held() {
                world.hold(&id, "a").await;
            }
            let values = vec![from.word().into(), id.as_str().into()];
            world.sql("UPDATE fleet_tasks SET state = $1 WHERE id = $2", values).await;
            let audited = world.audit().await.len();
            match (world.fleet.act("admin", &id, action).await, leads_to(word, *from)) {
                (Ok(view), Some(to)) => {
                    assert_eq!(view.line.state, to, "{id}");
                    let step = view.history.last().unwrap();
                    assert_eq!((step.from, step.to, step.actor.as_str()), (*from, to, "admin"));
                    assert_eq!(view.line.ended_at.is_some(), to.is_ended(), "{id}");
                    assert_eq!((view.lease_until, view.in_workspace), (None, None));
                    assert!(from.may_become(to));
                    assert_eq!(world.audit().await[0].action, format!("task.{word}"));
                }
                (Err(error), None) => {
                    let FleetError::Transition { from: named, to, .. } = &error else {
                        panic!("{id}: {error}")
                    };
                    assert_eq!(named, from);
                    let text = error.to_string();
                    assert!(text.contains(from.word()) && text.contains(to.word()), "{text}");
                    assert_eq!(world.state(&id).await, *from);
                    assert_eq!(world.audit().await.len(), audited);
                }
                (result, expected) => panic!("{id}: {result:?}, expected {expected:?}"),
            }
        }
    }
}

async fn agents_lose_what_is_cancelled(world: World) {
    for (id, action) in [
        ("x", TaskAction::Cancel { reason: Some("no\0longer wanted".into()) }),
        ("y", TaskAction::Pause { until: None, reason: None }),
    ] {
        world.add(&[id]).await;
        let epoch = world.hold(id, "a").await;
        world.fleet.act("admin", id, action).await.unwrap();
        let lost = world.fleet.heartbeat(&agent("a"), id, epoch, Default::default()).await;
        assert!(matches!(lost, Err(FleetError::LeaseLost { .. })), "{lost:?}");
        let lost = world.fleet.complete(&agent("a"), id, epoch, Default::default()).await;
        let Err(FleetError::LeaseLost { why, .. }) = lost else { panic!("{lost:?}") };
        assert!(why.contains(world.state(id).await.word()), "{why}");
    }
    let reason = world.task("x").await.line.reason.unwrap();
    assert_eq!(reason, "cancelled: no\u{fffd}longer wanted");
}

async fn stuck_tasks_are_listed(world: World) {
    world.add(&["a", "b<a", "c<b", "d"]).await;
    let cancel = TaskAction::Cancel { reason: None };
    let view = world.fleet.act("admin", "a", cancel).await.unwrap();
    assert_eq!(view.needed_by, ["b", "c"]);
    let reason = view.line.reason.unwrap();
    assert_eq!(reason, "cancelled; 2 tasks wait for it: b, c");
}

async fn skipping_lets_others_start(world: World) {
    world.add(&["a", "b<a", "c<a,b"]).await;
    world.sql("UPDATE fleet_tasks SET state = 'BLOCKED' WHERE id = 'a'", vec![]).await;
    let skip = TaskAction::Skip { reason: Some("done by hand".into()) };
    let view = world.fleet.act("admin", "a", skip).await.unwrap();
    assert_eq!(view.line.reason.as_deref(), Some("skipped: done by hand"));
    assert_eq!(view.needed_by, [""; 0]);
    assert_eq!(world.state("b").await, TaskState::Ready);
    assert_eq!(world.state("c").await, TaskState::Defined);
    // Nobody worked for that.
    assert_eq!(world.number("SELECT window_completed FROM fleet_projects WHERE id = 'p'").await, 0);
}

async fn paused_tasks_keep_their_needs(world: World) {
    world.add(&["a", "b<a", "c<a"]).await;
    let pause = |until| TaskAction::Pause { until, reason: Some("later".into()) };
    let until = UnixMicros(START + 5);
    let view = world.fleet.act("admin", "b", pause(Some(until))).await.unwrap();
    assert_eq!((view.line.resume_after, view.line.reason.as_deref()), (Some(until), Some("later")));
    world.fleet.act("admin", "c", pause(None)).await.unwrap();
    let view = world.fleet.act("admin", "c", TaskAction::Resume).await.unwrap();
    assert_eq!(view.line.state, TaskState::Defined, "it still needs a");
    world.fleet.act("admin", "c", pause(None)).await.unwrap();
    let epoch = world.hold("a", "a").await;
    world.fleet.complete(&agent("a"), "a", epoch, Default::default()).await.unwrap();
    assert_eq!(world.state("c").await, TaskState::Paused);
    let view = world.fleet.act("admin", "c", TaskAction::Resume).await.unwrap();
    assert_eq!((view.line.state, view.line.reason), (TaskState::Ready, None));
}

async fn questions_are_answered(world: World) {
    world.add(&["a"]).await;
    let epoch = world.hold("a", "a").await;
    let question = TaskQuestion { question: "which?".into(), tokens: None };
    let line = world.fleet.ask(&agent("a"), "a", epoch, question).await.unwrap();
    assert_eq!(line.state, TaskState::WaitingInput);
    let answer = |text: String| TaskAction::Answer { text };
    assert_eq!(field(world.fleet.act("admin", "a", answer(String::new())).await), "text");
    assert_eq!(field(world.fleet.act("admin", "a", answer("x".repeat(70_000))).await), "text");
    let view = world.fleet.act("admin", "a", answer("both".into())).await.unwrap();
    assert_eq!(view.line.state, TaskState::Ready);
    assert_eq!((view.question.as_deref(), view.answer.as_deref()), (Some("which?"), Some("both")));
}

async fn a_restart_begins_anew(world: World) {
    world.add(&["z", "a<z"]).await;
    let cancel = TaskAction::Cancel { reason: None };
    world.fleet.act("admin", "a", cancel).await.unwrap();
    let view = world.fleet.act("admin", "a", TaskAction::Restart).await.unwrap();
    assert_eq!(view.line.state, TaskState::Defined, "it still needs z");
    let sql = "UPDATE fleet_tasks SET state = 'BLOCKED', retries = 3, question = 'q', result = 'r' WHERE id = 'z'";
    world.sql(sql, vec![]).await;
    let view = world.fleet.act("admin", "z", TaskAction::Restart).await.unwrap();
    assert_eq!((view.line.state, view.line.retries), (TaskState::Ready, 0));
    assert_eq!((view.question, view.result), (None, None));
}

async fn actions_are_checked(world: World) {
    world.add(&["a"]).await;
    for until in [-1, START, i64::MAX] {
        let pause = TaskAction::Pause { until: Some(UnixMicros(until)), reason: None };
        assert_eq!(field(world.fleet.act("admin", "a", pause).await), "until");
    }
    let unknown = world.fleet.act("admin", "none", TaskAction::Resume).await;
    assert!(matches!(unknown, Err(FleetError::NotFound { what: "task", .. })));
}
