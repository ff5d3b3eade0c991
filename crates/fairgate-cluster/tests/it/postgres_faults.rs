//! Members and servers that stop, over a PostgreSQL of their own.

use std::sync::Arc;
use std::time::Duration;

use fairgate_cluster::{ClusterAdmitError, ClusterHandle, PostgresLog};
use fairgate_replica::ClusterConfig;
use fairgate_testkit::postgres_server::{PostgresServer, shared_server};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::test_cluster::{
    CountingBackend, SLOTS, admit, check_equal, config, end_of, in_flight, options, start, until,
};

/// Short, so that the tests are.
fn short() -> ClusterConfig {
    config(Duration::from_secs(3), Duration::from_secs(3))
}

async fn members(url: &str, count: usize) -> Vec<ClusterHandle> {
    let mut members = Vec::new();
    for index in 0..count {
        let (name, process) = (format!("gateway-{index}"), format!("process-{index}"));
        let log = Arc::new(PostgresLog::open(url, "test").await.unwrap());
        members.push(start(log, options(&name, &process, short())).await);
    }
    members
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_member_frees_its_slots_after_orphans() {
    let name = shared_server().create_database().await.unwrap();
    let members = members(&shared_server().socket_url(&name), 3).await;
    let killed = &members[0];
    let mut permits = Vec::new();
    for index in 0..SLOTS {
        permits.push(admit(killed, &format!("r{index}"), "a").await.unwrap());
    }
    let waits = killed.clone();
    let waits = tokio::spawn(async move { admit(&waits, "waits", "a").await.map(drop) });
    until(&members[1], |machine| machine.pool("llama").unwrap().waiting() == 1).await;
    let begin = Instant::now();
    killed.abort();
    assert_eq!(waits.await.unwrap(), Err(ClusterAdmitError::Gone));
    let next = timeout(Duration::from_secs(20), admit(&members[1], "next", "b"));
    let next = next.await.unwrap().unwrap();
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(5500), "lease and orphans have not passed: {took:?}");
    until(&members[2], |machine| machine.pool("llama").unwrap().in_flight() == 1).await;
    next.settle(end_of(1));
    check_equal(&members[1..]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_holds_the_lock_of_the_spool_frees_the_slots_of_the_one_before_it() {
    let name = shared_server().create_database().await.unwrap();
    let url = shared_server().socket_url(&name);
    let long = config(Duration::from_secs(30), Duration::from_secs(60));
    let open = async || Arc::new(PostgresLog::open(&url, "test").await.unwrap());
    let killed = start(open().await, options("gateway-0", "before", long.clone())).await;
    let other = start(open().await, options("gateway-1", "other", long.clone())).await;
    let mut permits = Vec::new();
    for index in 0..SLOTS {
        permits.push(admit(&killed, &format!("r{index}"), "a").await.unwrap());
    }
    killed.abort();
    let mut again = options("gateway-0", "after", long);
    again.identity.spool_lock = true;
    let again = start(open().await, again).await;
    for (member, id) in [(&other, "one"), (&again, "two")] {
        let admitted = timeout(Duration::from_secs(10), admit(member, id, "b"));
        admitted.await.unwrap().unwrap().settle(end_of(1));
    }
}

/// Runs requests at all members, and does something to the server meanwhile.
async fn run_through(server: &PostgresServer, members: &[ClusterHandle], stop: impl FnOnce()) {
    let backend = Arc::new(CountingBackend::default());
    let mut requests = JoinSet::new();
    for index in 0..300 {
        let (member, backend) = (members[index % members.len()].clone(), backend.clone());
        requests.spawn(async move {
            let tenant = if index % 2 == 0 { "a" } else { "b" };
            let permit = admit(&member, &format!("r{index}"), tenant).await.unwrap();
            backend.run(permit, Duration::from_millis(30)).await;
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop();
    server.start_again().unwrap();
    timeout(Duration::from_secs(40), requests.join_all()).await.unwrap();
    assert_eq!(backend.served(), 300);
    assert_eq!(backend.high_water(), SLOTS);
    until(&members[0], |machine| {
        let pool = machine.pool("llama").unwrap();
        (pool.in_flight(), pool.waiting()) == (0, 0)
    })
    .await;
    check_equal(members).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_server_begins_a_generation_and_a_restart_does_not() {
    let server = PostgresServer::start_for_tests().unwrap();
    let database = server.create_database().await.unwrap();
    let members = members(&server.socket_url(&database), 3).await;
    run_through(&server, &members, || server.shut_down().unwrap()).await;
    assert!(members.iter().all(|it| it.status().generation == 1), "a clean restart keeps the log");
    server.hang().unwrap();
    let member = members[1].clone();
    let waits = tokio::spawn(async move { admit(&member, "in a hang", "b").await.map(drop) });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!waits.is_finished(), "nothing is granted alone");
    server.go_on().unwrap();
    timeout(Duration::from_secs(20), waits).await.unwrap().unwrap().unwrap();
    until(&members[0], |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    // What runs and what waits in the crash is named again in the next generation.
    let mut permits = Vec::new();
    for index in 0..SLOTS {
        permits.push(admit(&members[0], &format!("runs-{index}"), "a").await.unwrap());
    }
    let waits = members[1].clone();
    let waits = tokio::spawn(async move { admit(&waits, "waits", "b").await.map(drop) });
    until(&members[0], |machine| machine.pool("llama").unwrap().waiting() == 1).await;
    server.crash().unwrap();
    server.start_again().unwrap();
    for member in &members {
        until(member, |machine| machine.generation() == 2).await;
        assert!(timeout(Duration::from_secs(10), member.joined()).await.unwrap());
    }
    assert_eq!(in_flight(&members[2]).await, SLOTS);
    assert!(!waits.is_finished());
    permits.drain(..).for_each(|permit| permit.settle(end_of(100)));
    timeout(Duration::from_secs(10), waits).await.unwrap().unwrap().unwrap();
    check_equal(&members).await;
}
