//! Clusters over a real PostgreSQL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fairgate_cluster::{
    ClusterAdmitError, ClusterHandle, ClusterLog, ClusterLogError, GenerationStore, LogCursor,
    PostgresLog,
};
use fairgate_replica::{ClusterConfig, LogPosition, RECORD_BYTES_MAX};
use fairgate_testkit::postgres_server::shared_server;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::test_cluster::{
    CountingBackend, LIMITED, SLOTS, admit, check_equal, config, end_of, options, pool, replay,
    start, until, with_events,
};

fn usual() -> ClusterConfig {
    config(Duration::from_secs(5), Duration::from_secs(30))
}

/// Returns the URL of an empty database.
async fn database() -> String {
    let name = shared_server().create_database().await.unwrap();
    shared_server().socket_url(&name)
}

async fn open(url: &str) -> Arc<PostgresLog> {
    Arc::new(PostgresLog::open(url, "test").await.unwrap())
}

async fn members(url: &str, count: usize) -> Vec<ClusterHandle> {
    let mut members = Vec::new();
    for index in 0..count {
        let (name, process) = (format!("gateway-{index}"), format!("process-{index}"));
        members.push(start(open(url).await, options(&name, &process, usual())).await);
    }
    members
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_keep_weights_slots_and_limits() {
    let url = database().await;
    let (mut members, mut journals) = (Vec::new(), Vec::new());
    for index in 0..3 {
        let options = options(&format!("gateway-{index}"), &format!("process-{index}"), usual());
        let (options, events) = with_events(options);
        members.push(start(open(&url).await, options).await);
        journals.push(events);
    }
    let mut limited = JoinSet::new();
    for index in 0..30 {
        let member = members[index % 3].clone();
        limited.spawn(async move {
            let id = format!("limited-{index}");
            admit(&member, &id, LIMITED).await.map(|permit| permit.settle(end_of(0)))
        });
    }
    let limited = limited.join_all().await;
    let served = limited.iter().filter(|it| it.is_ok()).count();
    assert_eq!(served, 10, "{limited:?}");
    let is_limit = |it: &_| matches!(it, Ok(()) | Err(ClusterAdmitError::Limit(_)));
    assert!(limited.iter().all(is_limit), "{limited:?}");

    // All of tenant `a` at one member; tenant `b` at the two others.
    let backend = Arc::new(CountingBackend::default());
    let mut requests = JoinSet::new();
    for index in 0..400 {
        let (tenant, member) = match index % 2 {
            0 => ("a", 0),
            _ => ("b", 1 + index / 2 % 2),
        };
        let (member, backend) = (members[member].clone(), backend.clone());
        requests.spawn(async move {
            let permit = admit(&member, &format!("{tenant}-{index}"), tenant).await.unwrap();
            backend.run(permit, Duration::from_millis(10)).await;
        });
    }
    requests.join_all().await;
    assert_eq!((backend.high_water(), backend.served()), (SLOTS, 400));
    until(&members[1], |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    check_equal(&members).await;
    assert_eq!(members[0].status().generation, 1, "nobody saw another state than its own");
    let journals: Vec<_> = journals.iter().map(|it| it.lock().unwrap().clone()).collect();
    assert!(journals[0].len() > 800, "{} events", journals[0].len());
    let shortest = journals.iter().map(Vec::len).min().unwrap();
    assert!(journals.iter().all(|it| it[..shortest] == journals[0][..shortest]));
    check_shares(&*open(&url).await).await;
}

/// Replays the log in a machine of its own, and checks each grant for which both tenants still wait.
async fn check_shares(log: &PostgresLog) {
    let mut contested: BTreeMap<String, u64> = BTreeMap::new();
    let mut beyond = Vec::new();
    replay(log, |machine, id| {
        let nodes = machine.pool(&pool()).unwrap().fairness();
        let flows: Vec<_> = nodes.iter().flat_map(|node| &node.flows).collect();
        let waits = |name: &str| flows.iter().any(|it| &*it.name == name && it.waiting > 0);
        if waits("a") && waits("b") {
            let tenant = id.split('-').next().unwrap_or_default();
            *contested.entry(tenant.to_owned()).or_default() += 1;
        }
        let is_beyond = |it: &&&_| !fairgate_core::fairness::FlowFairness::is_within_bound(it);
        beyond.extend(flows.iter().filter(is_beyond).map(|it| format!("{id}: {it:?}")));
    })
    .await;
    assert!(beyond.is_empty(), "{beyond:?}");
    let (a, b) = (contested["a"], contested["b"]);
    assert!(a >= 150 && b >= 30, "{contested:?}");
    assert!(a.abs_diff(4 * b) <= 20, "4:1 became {a}:{b}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_another_member_frees_is_granted_without_notifications_too() {
    let url = database().await;
    let quiet = PostgresLog::open(&url, "test").await.unwrap().without_notifications();
    let first = start(Arc::new(quiet), options("quiet", "process-0", usual())).await;
    let second = start(open(&url).await, options("loud", "process-1", usual())).await;
    for (holder, waiter) in [(&first, &second), (&second, &first)] {
        let mut permits = Vec::new();
        for index in 0..SLOTS {
            let id = format!("{index}-{}", holder.status().position.0);
            permits.push(admit(holder, &id, "a").await.unwrap());
        }
        let waits = waiter.clone();
        let id = format!("waits-{}", waiter.status().position.0);
        let waits = tokio::spawn(async move { admit(&waits, &id, "b").await.map(drop) });
        until(holder, |machine| machine.pool("llama").unwrap().waiting() == 1).await;
        drop(permits.pop());
        timeout(Duration::from_secs(10), waits).await.unwrap().unwrap().unwrap();
        drop(permits);
        until(waiter, |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    }
    check_equal(&[first, second]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_are_opened_again() {
    let url = database().await;
    let members = members(&url, 2).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
               AND pid <> pg_backend_pid()";
    let name = url.split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
    for round in 0..3 {
        shared_server().run(&name, cut).await.unwrap();
        let permit = admit(&members[round % 2], &format!("r{round}"), "a").await.unwrap();
        permit.settle(end_of(1));
    }
    until(&members[0], |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    check_equal(&members).await;
    assert!(members.iter().all(|it| it.status().generation == 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_created_once_and_clusters_of_a_database_are_apart() {
    let url = database().await;
    let mut opened = JoinSet::new();
    for index in 0..6 {
        let url = url.clone();
        opened.spawn(async move {
            let log = PostgresLog::open(&url, &format!("cluster \u{e9} {}", index % 2)).await?;
            log.create(b"first").await?;
            log.newest_snapshot(None).await
        });
    }
    for found in opened.join_all().await {
        assert_eq!(found.unwrap().unwrap().bytes, b"first");
    }
    let one = open(&url).await;
    one.create(b"one").await.unwrap();
    let cursor = LogCursor { generation: 1, after: LogPosition(0) };
    for expected in 1..4 {
        let read = one.append(cursor, b"record").await.unwrap();
        assert_eq!(
            (read.end.0, read.records.len()),
            (expected, usize::try_from(expected).unwrap())
        );
    }
    one.prune(1, LogPosition(99)).await.unwrap();
    let read = one.read(cursor).await.unwrap();
    assert_eq!(read.records.len(), 1, "the last record stays, so that places go on");
    assert_eq!((read.end, read.records[0].position), (LogPosition(3), LogPosition(3)));
    let other = PostgresLog::open(&url, "cluster \u{e9} 0").await.unwrap();
    assert_eq!(other.read(cursor).await.unwrap().end, LogPosition(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_log_is_read_in_parts() {
    let url = database().await;
    let log = open(&url).await;
    log.create(b"first").await.unwrap();
    let mut cursor = LogCursor { generation: 1, after: LogPosition(0) };
    let record = vec![b'x'; RECORD_BYTES_MAX];
    for _ in 0..40 {
        log.append(cursor, &record).await.unwrap();
    }
    let (mut calls, mut records) = (0, 0);
    while cursor.after < LogPosition(40) {
        let read = log.read(cursor).await.unwrap();
        assert_eq!(read.end, LogPosition(40));
        let bytes: usize = read.records.iter().map(|it| it.bytes.len()).sum();
        assert!((1..=5 << 20).contains(&bytes), "{bytes} bytes");
        (calls, records) = (calls + 1, records + read.records.len());
        cursor.after = read.records.last().unwrap().position;
    }
    assert_eq!((calls, records), (3, 40));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_or_does_not_exist_is_refused() {
    let url = database().await;
    let log = open(&url).await;
    let cursor = LogCursor { generation: 1, after: LogPosition(0) };
    let refused = log.read(cursor).await.unwrap_err();
    assert!(refused.to_string().contains("no such cluster"), "{refused}");
    log.create(b"first").await.unwrap();
    let record = vec![b'x'; RECORD_BYTES_MAX + 1];
    let refused = log.append(cursor, &record).await.unwrap_err();
    assert!(matches!(refused, ClusterLogError::RecordTooLarge { .. }), "{refused}");
    let other = LogCursor { generation: 2, ..cursor };
    let read = log.append(other, b"of another generation").await.unwrap();
    assert_eq!((read.generation, read.end), (1, LogPosition(0)));
    let refused = PostgresLog::open("postgres://u@h", "test").await.unwrap_err();
    assert!(refused.to_string().contains("database"), "{refused}");
}
