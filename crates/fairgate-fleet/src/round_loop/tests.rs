//! Tests of the loop with the real clock and a real store.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_journal::schedule::read_round;
use fairgate_store::{Store, StoreError, StoreOptions, Transaction, TransactionDurability};

use crate::agent_id::AgentId;
use crate::agent_reports::TaskCompletion;
use crate::error::FleetError;
use crate::fleet::Fleet;
use crate::fleet_clock::SystemClock;
use crate::options::{FleetOptions, FleetShare};
use crate::testing::FleetTestWorld;

const LONG: Duration = Duration::from_secs(30);

fn agent(id: &str) -> AgentId {
    AgentId { id: id.to_owned(), seed: [7; 32], token: None }
}

/// Returns a test world at the real current time, its fleet, and the running loop.
async fn running(options: FleetOptions) -> (FleetTestWorld, Fleet, tokio::task::JoinHandle<()>) {
    let mut w = FleetTestWorld::with(options).await;
    w.now = crate::fleet_clock::FleetClock::now(&SystemClock);
    let fleet = Fleet::new(w.store.clone(), Arc::new(SystemClock), w.options.clone());
    let running = tokio::spawn(fleet.run());
    (w, fleet, running)
}

#[tokio::test]
async fn a_claim_is_answered_as_soon_as_there_is_a_task() {
    let (mut w, fleet, running) = running(FleetOptions::default()).await;
    w.project("p", |_| {}).await;
    w.agents(2).await;
    assert!(fleet.claim(&agent("a0"), Duration::ZERO).await.unwrap().is_none());
    let waiting = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.claim(&agent("a0"), LONG).await }
    });
    while fleet.view().await.unwrap().agents[0].last_seen.is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    w.task("t", "p", |_| {}).await;
    // The task was inserted by SQL, so the loop is woken here, as a call of the fleet would do.
    fleet.wake();
    let begun = Instant::now();
    let claim = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(claim.task, "t");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let again = fleet.claim(&agent("a0"), LONG).await.unwrap().unwrap();
    assert_eq!((again.task, again.epoch, again.key), (claim.task, claim.epoch, claim.key));
    fleet.stop();
    running.await.unwrap();
    assert!(fleet.claim(&agent("a1"), LONG).await.is_err());
}

#[tokio::test]
async fn another_servers_change_is_seen_within_a_look() {
    let (mut w, fleet, running) = running(FleetOptions::default()).await;
    w.project("p", |_| {}).await;
    w.agents(1).await;
    let waiting = tokio::spawn({
        let fleet = fleet.clone();
        async move { fleet.claim(&agent("a0"), LONG).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    w.task("t", "p", |_| {}).await;
    w.run("UPDATE fleet SET version = version + 1", &[]).await;
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().task, "t");
    fleet.stop();
    running.await.unwrap();
}

#[tokio::test]
async fn an_agent_that_leaves_gets_nothing() {
    let (mut w, fleet, running) = running(FleetOptions::default()).await;
    w.project("p", |_| {}).await;
    w.agents(1).await;
    let left = tokio::time::timeout(Duration::from_millis(20), async {
        fleet.claim(&agent("a0"), LONG).await
    });
    assert!(left.await.is_err());
    w.task("t", "p", |_| {}).await;
    fleet.wake();
    assert!(fleet.claim(&agent("a9"), Duration::ZERO).await.is_err(), "there is no such agent");
    assert_eq!(w.task_state("t").await, "READY");
    fleet.stop();
    running.await.unwrap();
}

#[tokio::test]
async fn a_lease_that_ends_is_a_task_for_the_next_agent() {
    let options = FleetOptions { lease: Duration::from_millis(100), ..FleetOptions::default() };
    let (mut w, fleet, running) = running(options).await;
    w.project("p", |_| {}).await;
    w.agents(2).await;
    w.task("t", "p", |_| {}).await;
    let first = fleet.claim(&agent("a0"), LONG).await.unwrap().unwrap();
    let second = fleet.claim(&agent("a1"), LONG).await.unwrap().unwrap();
    assert_eq!((first.epoch, second.epoch), (1, 2));
    let late = fleet.complete(&agent("a0"), "t", 1, TaskCompletion::default()).await;
    assert!(matches!(late, Err(FleetError::LeaseLost { .. })), "{late:?}");
    fleet.complete(&agent("a1"), "t", 2, TaskCompletion::default()).await.unwrap();
    fleet.stop();
    running.await.unwrap();
}

#[tokio::test]
async fn what_is_decided_is_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("rounds"));
    let (mut w, fleet, running) =
        running(FleetOptions { journal, ..FleetOptions::default() }).await;
    w.project("p", |_| {}).await;
    w.agents(2).await;
    w.tasks("p", 2).await;
    for name in ["a0", "a1"] {
        fleet.claim(&agent(name), LONG).await.unwrap().unwrap();
    }
    fleet.stop();
    running.await.unwrap();
    let text = std::fs::read_to_string(folder.path().join("rounds/00000001.jsonl")).unwrap();
    let rounds: Vec<_> = text.lines().map(|line| read_round(line).unwrap()).collect();
    assert_eq!(rounds.len(), 2);
    for (round, task) in rounds.iter().zip(["p-0", "p-1"]) {
        assert_eq!(&*round.assignments[0].task_id, task);
        assert_eq!(fairgate_core::proportional::schedule(&round.snapshot), round.assignments);
    }
    assert_eq!(fleet.rounds_not_journaled(), 0);
}

/// With shares by tenant, the journal has the call over the tenants and the call over the projects of the winner, and
/// both decide the same when they are read again.
#[tokio::test]
async fn both_calls_of_shares_by_tenant_are_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Some(folder.path().join("rounds"));
    let options = FleetOptions { journal, share: FleetShare::Tenant, ..FleetOptions::default() };
    let (mut w, fleet, running) = running(options).await;
    w.project("p", |_| {}).await;
    w.agents(2).await;
    w.tasks("p", 2).await;
    for name in ["a0", "a1"] {
        fleet.claim(&agent(name), LONG).await.unwrap().unwrap();
    }
    fleet.stop();
    running.await.unwrap();
    let text = std::fs::read_to_string(folder.path().join("rounds/00000001.jsonl")).unwrap();
    let rounds: Vec<_> = text.lines().map(|line| read_round(line).unwrap()).collect();
    let winners = rounds.iter().map(|round| {
        assert_eq!(fairgate_core::proportional::schedule(&round.snapshot), round.assignments);
        let [assignment] = &round.assignments[..] else { panic!("one agent: {round:?}") };
        (&*assignment.project_id, &*assignment.task_id, &*assignment.agent_id)
    });
    let expected = [
        ("tenant:acme", "p-0", "a0"),
        ("p", "p-0", "a0"),
        ("tenant:acme", "p-1", "a1"),
        ("p", "p-1", "a1"),
    ];
    assert_eq!(winners.collect::<Vec<_>>(), expected);
    assert_eq!(fleet.rounds_not_journaled(), 0);
}

#[tokio::test]
async fn a_database_that_fails_is_an_error_for_those_who_do_not_wait() {
    let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await.unwrap();
    let work = |tx: &mut dyn Transaction| tx.run("DROP TABLE fleet_workspaces", &[]);
    store.transact::<_, StoreError>(TransactionDurability::ThroughKill, work).await.unwrap();
    let fleet = Fleet::new(store.clone(), Arc::new(SystemClock), FleetOptions::default());
    let running = tokio::spawn(fleet.run());
    let add = |tx: &mut dyn Transaction| {
        tx.run(
            "INSERT INTO fleet_agents (id, kind, hash, hint, state, reports, created_at) \
             VALUES ('a0', 'default', x'00', '', 'ACTIVE', false, 0)",
            &[],
        )
    };
    store.transact::<_, StoreError>(TransactionDurability::ThroughKill, add).await.unwrap();
    let claimed = fleet.claim(&agent("a0"), Duration::ZERO).await;
    assert!(matches!(claimed, Err(FleetError::Store(_))), "{claimed:?}");
    // After a failed round, an agent whose wait is not over continues to wait.
    let waiting = tokio::time::timeout(Duration::from_millis(50), async {
        fleet.claim(&agent("a0"), LONG).await
    });
    assert!(waiting.await.is_err());
    store.close().await.unwrap();
    fleet.wake();
    running.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_agents_at_once_get_each_task_once() {
    let options = FleetOptions { default_estimate: 100, ..FleetOptions::default() };
    let (mut w, fleet, running) = running(options).await;
    for project in ["p", "q", "r"] {
        w.project(project, |p| p.concurrency = 100).await;
        w.tasks(project, 30).await;
    }
    w.agents(60).await;
    let claims = (0..60).map(|number| {
        let fleet = fleet.clone();
        tokio::spawn(async move { fleet.claim(&agent(&format!("a{number}")), LONG).await })
    });
    let mut tasks = Vec::new();
    for claim in claims.collect::<Vec<_>>() {
        tasks.push(claim.await.unwrap().unwrap().unwrap().task);
    }
    for project in ["p-", "q-", "r-"] {
        assert_eq!(tasks.iter().filter(|task| task.starts_with(project)).count(), 20);
    }
    tasks.sort_unstable();
    tasks.dedup();
    assert_eq!(tasks.len(), 60);
    fleet.stop();
    running.await.unwrap();
}
