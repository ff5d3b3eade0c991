//! Measures what a cluster on PostgreSQL costs. Not a check: `cargo test -p fairgate-cluster --test it -- --ignored
//! --nocapture measures` prints the figures of this machine.

#![allow(clippy::print_stdout, reason = "it prints what it measures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairgate_cluster::{ClusterHandle, ClusterLog, GenerationStore, LogCursor, PostgresLog};
use fairgate_replica::LogPosition;
use fairgate_testkit::postgres_server::{connect, shared_server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::test_cluster::{SLOTS, admit, config, end_of, options, pool, start};

async fn members(url: &str, slots: u64, count: usize) -> Vec<ClusterHandle> {
    let mut members = Vec::new();
    for index in 0..count {
        let mut config = config(Duration::from_secs(5), Duration::from_secs(30));
        let of_pool = config.pools.get_mut(&pool()).unwrap();
        of_pool.capacity = slots;
        of_pool.workers[0].slots = Some(slots);
        let log = Arc::new(PostgresLog::open(url, "test").await.unwrap());
        let (name, process) = (format!("gateway-{index}"), format!("process-{index}"));
        members.push(start(log, options(&name, &process, config)).await);
    }
    members
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("{what}: p50 {:?}, p99 {:?} of {}", at(50), at(99), times.len());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures, and checks nothing"]
async fn measures() {
    let name = shared_server().create_database().await.unwrap();
    let url = shared_server().socket_url(&name);
    let client = connect(&url).await.unwrap();
    let select = client.prepare("SELECT 1").await.unwrap();
    let mut times = Vec::new();
    for _ in 0..300 {
        let begin = Instant::now();
        client.query(&select, &[]).await.unwrap();
        times.push(begin.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
    show("SELECT 1", times);
    let log = PostgresLog::open(&url, "raw").await.unwrap();
    log.create(b"first").await.unwrap();
    let mut cursor = LogCursor { generation: 1, after: LogPosition(0) };
    let mut times = Vec::new();
    for _ in 0..300 {
        let begin = Instant::now();
        cursor.after = log.append(cursor, &[b'x'; 300]).await.unwrap().end;
        times.push(begin.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
    show("append of 300 bytes", times);
    let few = members(&url, SLOTS, 3).await;
    let mut times = Vec::new();
    for index in 0..300 {
        let begin = Instant::now();
        let permit = admit(&few[0], &format!("own-{index}"), "a").await.unwrap();
        times.push(begin.elapsed());
        permit.settle(end_of(1));
        sleep(Duration::from_millis(15)).await;
    }
    show("admission with a free slot", times);
    let mut times = Vec::new();
    for index in 0..100 {
        let mut permits = Vec::new();
        for slot in 0..SLOTS {
            permits.push(admit(&few[0], &format!("full-{index}-{slot}"), "a").await.unwrap());
        }
        let waiter = few[1].clone();
        let waits = tokio::spawn(async move {
            let permit = admit(&waiter, &format!("foreign-{index}"), "b").await.unwrap();
            (Instant::now(), permit)
        });
        sleep(Duration::from_millis(20)).await;
        let begin = Instant::now();
        drop(permits.pop());
        let (granted, permit) = waits.await.unwrap();
        times.push(granted - begin);
        drop((permit, permits));
        sleep(Duration::from_millis(10)).await;
    }
    show("grant of a slot that another member frees", times);
    few.iter().for_each(ClusterHandle::leave);
    for count in [1, 3] {
        let name = shared_server().create_database().await.unwrap();
        let many = members(&shared_server().socket_url(&name), 256, count).await;
        let (served, begin) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let mut callers = JoinSet::new();
        for caller in 0..256 {
            let (member, served) = (many[caller % count].clone(), served.clone());
            callers.spawn(async move {
                for index in 0.. {
                    if begin.elapsed() > Duration::from_secs(4) {
                        return;
                    }
                    let id = format!("{caller}-{index}");
                    admit(&member, &id, "a").await.unwrap().settle(end_of(1));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        callers.join_all().await;
        let rate = served.load(Ordering::Relaxed) / 4;
        let records = many[0].status().position.0;
        println!("{count} members, 256 callers: {rate} admissions/s, {records} records in 4 s");
        many.iter().for_each(ClusterHandle::leave);
    }
}
