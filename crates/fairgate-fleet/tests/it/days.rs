//! Bad days: a clock that jumps, a server that was away, a database that is, a provider's limit.

use std::time::Duration;

use fairgate_api::agents::Claim;
use fairgate_api::fleet::{AgentPatch, FleetAgentState, TaskState};
use fairgate_fleet::{
    Fleet, FleetError, LimitCause, TaskCompletion, TaskFailure, TaskHeartbeat, TaskRelease,
};
use fairgate_store::{TaskClaim, UnixMicros};
use fairgate_testkit::postgres_server::PostgresServer;
use tokio::task::JoinHandle;

use crate::world::{Kind, World, agent, on_every_database};

on_every_database![
    a_clock_put_forward_ends_no_lease,
    a_clock_put_back_keeps_no_lease,
    a_server_that_was_away_ends_no_lease,
    a_restart_beside_others_changes_nothing,
    a_paused_agent_has_its_task_again,
    a_limit_that_the_gateway_saw_is_no_failure,
    a_limit_holds_for_what_is_given_back,
];

const HOUR: i64 = 3_600;

/// Tasks `one` and `two`, begun by agents `a` and `b` at a running server.
async fn begun(world: &World) -> JoinHandle<()> {
    let running = tokio::spawn(world.fleet.run());
    world.add(&["one", "two"]).await;
    for (id, task) in [("a", "one"), ("b", "two")] {
        assert_eq!(claim(world, id).await.unwrap().task, task);
        beat(world, id, task).await;
    }
    running
}

async fn claim(world: &World, id: &str) -> Option<Claim> {
    world.fleet.claim(&agent(id), Duration::ZERO).await.unwrap()
}

async fn beat(world: &World, id: &str, task: &str) {
    world.fleet.heartbeat(&agent(id), task, 1, TaskHeartbeat::default()).await.unwrap();
}

/// Waits until a round has been made with the clock as it is.
async fn round(fleet: &Fleet) {
    // Nobody gets anything: this agent has none that it could be given.
    assert!(fleet.claim(&agent("c"), Duration::ZERO).await.unwrap().is_none());
}

/// How long the lease of a task lasts, in seconds; below 0 where it has none.
async fn left(world: &World, task: &str) -> i64 {
    let until = world.task(task).await.lease_until;
    until.map_or(-1, |until| (until.0 - world.now().0) / 1_000_000)
}

async fn a_clock_put_forward_ends_no_lease(world: World) {
    let running = begun(&world).await;
    world.pass(10);
    round(&world.fleet).await;
    world.jump(HOUR);
    round(&world.fleet).await;
    // What was left, and no more than an agent that is on time has left at worst.
    for task in ["one", "two"] {
        assert_eq!(
            (world.state(task).await, left(&world, task).await),
            (TaskState::InProgress, 40)
        );
    }
    // From there on all is as ever: who gives a sign holds its task, who gives none does not.
    world.pass(30);
    beat(&world, "a", "one").await;
    round(&world.fleet).await;
    assert_eq!(left(&world, "two").await, 10);
    world.pass(11);
    round(&world.fleet).await;
    assert_eq!(world.state("one").await, TaskState::InProgress);
    let two = world.task("two").await;
    assert_eq!((two.line.state, two.line.retries), (TaskState::Paused, 1));
    let used = world.fleet.project("p").await.unwrap().used;
    assert_eq!(used, 0);
    world.fleet.stop();
    running.await.unwrap();
}

async fn a_clock_put_back_keeps_no_lease(world: World) {
    let running = begun(&world).await;
    world.jump(-HOUR);
    round(&world.fleet).await;
    for task in ["one", "two"] {
        assert_eq!(
            (world.state(task).await, left(&world, task).await),
            (TaskState::InProgress, 60)
        );
    }
    world.pass(40);
    beat(&world, "a", "one").await;
    world.pass(21);
    round(&world.fleet).await;
    assert_eq!(world.state("one").await, TaskState::InProgress);
    assert_eq!(world.state("two").await, TaskState::Paused, "not an hour later");
    world.fleet.stop();
    running.await.unwrap();
}

async fn a_server_that_was_away_ends_no_lease(world: World) {
    let running = begun(&world).await;
    world.fleet.stop();
    running.await.unwrap();
    world.pass(HOUR);
    let fleet = world.another_fleet();
    let running = tokio::spawn(fleet.run());
    round(&fleet).await;
    assert_eq!(left(&world, "one").await, 40);
    world.pass(39);
    fleet.heartbeat(&agent("a"), "one", 1, TaskHeartbeat::default()).await.unwrap();
    fleet.complete(&agent("a"), "one", 1, TaskCompletion::default()).await.unwrap();
    // The other agent died meanwhile.
    world.pass(2);
    round(&fleet).await;
    assert_eq!(world.state("two").await, TaskState::Paused);
    fleet.stop();
    running.await.unwrap();
}

async fn a_restart_beside_others_changes_nothing(world: World) {
    let running = begun(&world).await;
    world.pass(59);
    // The fleet was there all the time: somebody else was heard.
    beat(&world, "b", "two").await;
    world.fleet.stop();
    running.await.unwrap();
    world.pass(2);
    let fleet = world.another_fleet();
    let another = tokio::spawn(fleet.run());
    round(&fleet).await;
    assert_eq!(left(&world, "one").await, 1, "what it had left when the other was heard");
    assert_eq!(left(&world, "two").await, 58);
    world.pass(1);
    round(&fleet).await;
    assert_eq!(world.state("one").await, TaskState::Paused);
    fleet.stop();
    another.await.unwrap();
}

async fn a_paused_agent_has_its_task_again(world: World) {
    tokio::spawn(world.fleet.run());
    world.add(&["one", "two"]).await;
    let first = claim(&world, "a").await.unwrap();
    let state = |state| AgentPatch { state: Some(state), ..AgentPatch::default() };
    world.fleet.patch_agent("admin", "a", state(FleetAgentState::Paused)).await.unwrap();
    let again = claim(&world, "a").await.unwrap();
    assert_eq!((&again.task, again.epoch, &again.key), (&first.task, first.epoch, &first.key));
    world.fleet.complete(&agent("a"), &again.task, 1, TaskCompletion::default()).await.unwrap();
    let refused = world.fleet.claim(&agent("a"), Duration::ZERO).await;
    let Err(FleetError::Agent { state: FleetAgentState::Paused, .. }) = refused else {
        panic!("it gets no new one: {refused:?}")
    };
}

fn claim_of(task: &str, epoch: u64) -> TaskClaim {
    TaskClaim { project: "p".into(), task: task.into(), epoch }
}

async fn a_limit_that_the_gateway_saw_is_no_failure(world: World) {
    world.add(&["one"]).await;
    let epoch = world.hold("one", "a").await;
    let until = UnixMicros(world.now().0 + 900_000_000);
    world
        .fleet
        .note_limit(&claim_of("one", epoch), Some(until), LimitCause::Provider)
        .await
        .unwrap();
    // A shorter one, one of another claim, and one that is no moment change nothing.
    let sooner = UnixMicros(until.0 - 1);
    world
        .fleet
        .note_limit(&claim_of("one", epoch), Some(sooner), LimitCause::Provider)
        .await
        .unwrap();
    world
        .fleet
        .note_limit(
            &claim_of("one", epoch + 1),
            Some(UnixMicros(until.0 + 1)),
            LimitCause::Provider,
        )
        .await
        .unwrap();
    assert!(
        world
            .fleet
            .note_limit(&claim_of("one", epoch), Some(UnixMicros(i64::MAX)), LimitCause::Provider)
            .await
            .is_err()
    );
    assert_eq!(world.task("one").await.line.resume_after, Some(until));
    let why = world.fleet.why("one").await.unwrap();
    assert!(why.sentence.contains("its calls are stopped for another 15 min"), "{why:?}");
    let failure = TaskFailure { reason: Some("429".into()), ..TaskFailure::default() };
    let line = world.fleet.fail(&agent("a"), "one", epoch, failure.clone()).await.unwrap();
    assert_eq!((line.state, line.retries), (TaskState::Paused, 0));
    assert_eq!(line.resume_after, Some(until));
    let reason = "the provider's limit is reached; the agent says: 429";
    assert_eq!(line.reason.as_deref(), Some(reason));
    assert_eq!(world.fleet.fail(&agent("a"), "one", epoch, failure.clone()).await.unwrap(), line);
    // A limit that is over explains no failure.
    let epoch = world.hold("one", "a").await;
    world
        .fleet
        .note_limit(&claim_of("one", epoch), Some(until), LimitCause::Provider)
        .await
        .unwrap();
    world.pass(900);
    let line = world.fleet.fail(&agent("a"), "one", epoch, failure).await.unwrap();
    assert_eq!((line.state, line.retries), (TaskState::Paused, 1));
}

async fn a_limit_holds_for_what_is_given_back(world: World) {
    tokio::spawn(world.fleet.run());
    world.add(&["one"]).await;
    let first = claim(&world, "a").await.unwrap();
    let until = UnixMicros(world.now().0 + 100_000_000);
    world
        .fleet
        .note_limit(&claim_of("one", first.epoch), Some(until), LimitCause::Provider)
        .await
        .unwrap();
    for _ in 0..2 {
        let release = TaskRelease { reason: Some("not now".into()), unfit: false };
        let line = world.fleet.release(&agent("a"), "one", first.epoch, release).await.unwrap();
        assert_eq!((line.state, line.retries), (TaskState::Paused, 0));
        assert_eq!(line.resume_after, Some(until));
    }
    assert!(claim(&world, "b").await.is_none(), "it would meet the same limit");
    world.pass(100);
    assert_eq!(claim(&world, "b").await.unwrap().epoch, 2);
}

/// PostgreSQL stands still for an hour of the fleet's time, which is a second of ours.
#[test]
fn while_the_database_is_away_no_lease_ends() {
    let server = PostgresServer::start_for_tests().unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async {
        let url = server.socket_url(&server.create_database().await.unwrap());
        let world = World::at(Kind::Postgres, url, tempfile::tempdir().unwrap()).await;
        let running = begun(&world).await;
        let waiting = tokio::spawn({
            let fleet = world.fleet.clone();
            async move { fleet.claim(&agent("c"), Duration::from_secs(60)).await }
        });
        server.hang().unwrap();
        let refused = world.fleet.heartbeat(&agent("a"), "one", 1, TaskHeartbeat::default()).await;
        assert!(matches!(refused, Err(FleetError::Store(_))), "{refused:?}");
        let refused = world.fleet.complete(&agent("b"), "two", 1, TaskCompletion::default()).await;
        assert!(matches!(refused, Err(FleetError::Store(_))), "{refused:?}");
        world.pass(HOUR);
        server.go_on().unwrap();
        // The loop goes on by itself, and so does whoever waits.
        world.add_soon("q", "three").await;
        assert_eq!(waiting.await.unwrap().unwrap().unwrap().task, "three");
        assert_eq!(world.task("one").await.line.retries, 0);
        assert!(left(&world, "one").await >= 39, "{}", left(&world, "one").await);
        beat(&world, "a", "one").await;
        for _ in 0..2 {
            world.fleet.complete(&agent("b"), "two", 1, TaskCompletion::default()).await.unwrap();
        }
        let two = world.task("two").await;
        let ends = two.history.iter().filter(|step| step.to == TaskState::Completed).count();
        assert_eq!((two.line.state, two.line.retries, ends), (TaskState::Completed, 0, 1));
        world.fleet.stop();
        running.await.unwrap();
    });
}
