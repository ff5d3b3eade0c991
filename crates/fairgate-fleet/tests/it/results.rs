//! Results of tasks, which the tasks that need them can use.

use std::time::Duration;

use fairgate_api::agents::{Claim, NeededResult};
use fairgate_api::fleet::{NewTask, TaskPatch, TaskState};
use fairgate_fleet::{FleetError, TaskCompletion};

use crate::world::{World, agent, field, on_every_database, task_of};

on_every_database![
    a_prompt_contains_the_results_of_needed_tasks,
    only_the_holder_of_the_claim_reads_results,
    results_have_at_most_a_mebibyte,
    a_field_names_a_needed_task,
];

fn with(id: &str, prompt: &str, needs: &[&str]) -> NewTask {
    let needs = needs.iter().map(|need| (*need).to_owned()).collect();
    NewTask { prompt: prompt.into(), needs, ..task_of("p", Some(id)) }
}

async fn claim(world: &World, id: &str) -> Claim {
    world.fleet.claim(&agent(id), Duration::ZERO).await.unwrap().unwrap()
}

/// Agent `a` completes the task that comes next.
async fn complete(world: &World, task: &str, result: Option<&str>) {
    let claim = claim(world, "a").await;
    assert_eq!(claim.task, task);
    let done = TaskCompletion { result: result.map(str::to_owned), tokens: None };
    world.fleet.complete(&agent("a"), task, claim.epoch, done).await.unwrap();
}

async fn a_prompt_contains_the_results_of_needed_tasks(world: World) {
    tokio::spawn(world.fleet.run());
    let prompt = "Build on {{results.one}}, {{ results.two }} and {{results.three}}.";
    let tasks = vec![
        with("one", "a", &[]),
        with("two", "b", &[]),
        with("three", "c", &[]),
        with("last", prompt, &["one", "two", "three"]),
    ];
    world.add_all(tasks).await.unwrap();
    complete(&world, "one", Some("see {{results.two}}")).await;
    complete(&world, "two", Some("red")).await;
    complete(&world, "three", None).await;
    let last = claim(&world, "a").await;
    let (before, rest) = last.prompt.split_once("see {{results.two}}").expect("never a template");
    assert!(before.starts_with("Build on [begin of result of task one, "), "{before}");
    assert!(rest.starts_with("\n[end of result of task one, "), "{rest}");
    assert!(rest.contains("]\nred\n[end of result of task two, "), "{rest}");
    assert!(rest.ends_with("and [task three has no result]."), "{rest}");
    let expected = [("one", 19), ("two", 3)];
    let expected = expected.map(|(task, bytes)| NeededResult { task: task.into(), bytes });
    assert_eq!(last.results, expected);
    // The same claim again has the same prompt, and the task itself keeps its fields.
    assert_eq!(claim(&world, "a").await.prompt, last.prompt);
    assert_eq!(world.task("last").await.prompt, prompt);
}

async fn only_the_holder_of_the_claim_reads_results(world: World) {
    tokio::spawn(world.fleet.run());
    let tasks = vec![with("one", "a", &[]), with("other", "b", &[]), with("last", "c", &["one"])];
    world.add_all(tasks).await.unwrap();
    complete(&world, "one", Some("mine")).await;
    complete(&world, "other", Some("not yours")).await;
    let last = claim(&world, "a").await;
    let read = |id: &'static str, epoch, need: &'static str| {
        let fleet = world.fleet.clone();
        async move { fleet.needed_result(&agent(id), "last", epoch, need).await }
    };
    assert_eq!(read("a", last.epoch, "one").await.unwrap(), "mine");
    for need in ["other", "last", "none"] {
        let refused = read("a", last.epoch, need).await;
        assert!(matches!(refused, Err(FleetError::NotFound { .. })), "{need}: {refused:?}");
    }
    let refused = read("a", last.epoch + 1, "one").await;
    assert!(matches!(refused, Err(FleetError::LeaseLost { .. })), "{refused:?}");
    // An agent that never had the task does not learn that there is such a task.
    let refused = read("b", last.epoch, "one").await;
    assert!(matches!(refused, Err(FleetError::NotFound { .. })), "{refused:?}");
    let done = TaskCompletion::default();
    world.fleet.complete(&agent("a"), "last", last.epoch, done).await.unwrap();
    assert!(read("a", last.epoch, "one").await.is_err(), "the claim is over");
}

async fn results_have_at_most_a_mebibyte(world: World) {
    world.add(&["one"]).await;
    let epoch = world.hold("one", "a").await;
    let done = |bytes| TaskCompletion { result: Some("x".repeat(bytes)), tokens: None };
    let refused = world.fleet.complete(&agent("a"), "one", epoch, done((1 << 20) + 1)).await;
    assert_eq!(field(refused), "result");
    let line = world.fleet.complete(&agent("a"), "one", epoch, done(1 << 20)).await.unwrap();
    assert_eq!(line.state, TaskState::Completed);
}

async fn a_field_names_a_needed_task(world: World) {
    world.add(&["one", "two"]).await;
    let wrong = with("x", "use {{results.two}}", &["one"]);
    let refused = world.add_all(vec![wrong]).await;
    let said = refused.as_ref().unwrap_err().to_string();
    assert!(said.contains("has the result of task \"two\", which is not in needs"), "{said}");
    assert_eq!(field(refused), "tasks[0].prompt");
    world.add_all(vec![with("x", "use {{results.one}}", &["one"])]).await.unwrap();
    let set = |prompt: &str| TaskPatch { prompt: Some(prompt.into()), ..TaskPatch::default() };
    let patched = world.fleet.patch_task("admin", "x", set("not {{results.two}}")).await;
    assert_eq!(field(patched), "prompt");
    world.fleet.patch_task("admin", "x", set("again {{results.one}}")).await.unwrap();
}
