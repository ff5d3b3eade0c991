//! The member's task over a log in memory, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use fairgate_cluster::{
    ClusterAdmitError, ClusterHandle, MemberStanding, MemoryLog, read_cluster, verify_snapshot,
};
use fairgate_replica::{ClusterConfig, LogPosition};
use tokio::time::{Instant, sleep, timeout};

use crate::test_cluster::{
    CountingBackend, SLOTS, admit, check_equal, config, end_of, in_flight, options, start, until,
};

const SECOND: Duration = Duration::from_secs(1);

fn usual() -> ClusterConfig {
    config(5 * SECOND, 30 * SECOND)
}

async fn members(log: &Arc<MemoryLog>, count: usize) -> Vec<ClusterHandle> {
    let mut members = Vec::new();
    for index in 0..count {
        let (name, process) = (format!("gateway-{index}"), format!("process-{index}"));
        members.push(start(log.clone(), options(&name, &process, usual())).await);
    }
    members
}

#[tokio::test(start_paused = true)]
async fn members_share_the_slots_and_stay_equal() {
    let log = Arc::new(MemoryLog::new());
    let members = members(&log, 3).await;
    let backend = Arc::new(CountingBackend::default());
    let mut requests = tokio::task::JoinSet::new();
    for index in 0..60 {
        let (member, backend) = (members[index % 3].clone(), backend.clone());
        requests.spawn(async move {
            let permit = admit(&member, &format!("r{index}"), "a").await.unwrap();
            backend.run(permit, Duration::from_millis(50)).await;
        });
    }
    requests.join_all().await;
    assert_eq!((backend.high_water(), backend.served()), (SLOTS, 60));
    until(&members[1], |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    check_equal(&members).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_gives_its_place_and_its_slot_back() {
    let log = Arc::new(MemoryLog::new());
    let members = members(&log, 2).await;
    let mut permits = Vec::new();
    for index in 0..SLOTS {
        permits.push(admit(&members[0], &format!("r{index}"), "a").await.unwrap());
    }
    let late = timeout(SECOND, admit(&members[1], "waits", "b")).await;
    assert!(late.is_err(), "all slots are taken");
    until(&members[1], |machine| machine.pool("llama").unwrap().waiting() == 0).await;
    // This caller leaves while its grant is on the way.
    drop(permits.pop());
    tokio::select! {
        biased;
        _ = admit(&members[1], "leaves", "b") => panic!("the grant needs a moment"),
        () = std::future::ready(()) => {}
    }
    drop(permits);
    until(&members[0], |machine| {
        let pool = machine.pool("llama").unwrap();
        (pool.in_flight(), pool.waiting()) == (0, 0)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn while_the_log_is_away_nothing_is_granted_and_nothing_is_cut() {
    let log = Arc::new(MemoryLog::new());
    let members = members(&log, 2).await;
    let mut running = admit(&members[0], "runs", "a").await.unwrap();
    log.set_away(true);
    let early = {
        let member = members[0].clone();
        tokio::spawn(async move { admit(&member, "early", "a").await.map(|it| it.id().to_owned()) })
    };
    sleep(20 * SECOND).await;
    assert!(!early.is_finished(), "it waits");
    assert!(members[0].status().trouble.unwrap().contains("away"));
    sleep(15 * SECOND).await;
    // Nobody can be asked, so this member must assume that the others go on.
    timeout(SECOND, running.must_stop()).await.unwrap();
    drop(running);
    let refused = admit(&members[0], "late", "a").await.unwrap_err();
    assert_eq!(refused, ClusterAdmitError::LogStalled);
    log.set_away(false);
    assert_eq!(timeout(5 * SECOND, early).await.unwrap().unwrap(), Ok("early".to_owned()));
    let permit = admit(&members[0], "later", "a").await.unwrap();
    permit.settle(end_of(1));
    until(&members[1], |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    check_equal(&members).await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_member_loses_what_waits_and_its_slots_are_free_after_orphans() {
    let log = Arc::new(MemoryLog::new());
    let members = members(&log, 2).await;
    let killed = &members[0];
    let mut permits = Vec::new();
    for index in 0..SLOTS {
        permits.push(admit(killed, &format!("r{index}"), "a").await.unwrap());
    }
    let waits = killed.clone();
    let waits = tokio::spawn(async move { admit(&waits, "waits", "a").await.map(drop) });
    until(&members[1], |machine| machine.pool("llama").unwrap().waiting() == 1).await;
    let start = Instant::now();
    killed.abort();
    assert_eq!(waits.await.unwrap(), Err(ClusterAdmitError::Gone));
    let next = admit(&members[1], "next", "b").await.unwrap();
    let took = start.elapsed();
    assert!((34 * SECOND..38 * SECOND).contains(&took), "{took:?}");
    assert_eq!(in_flight(&members[1]).await, 1);
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn lost_records_begin_a_generation_that_knows_what_waits_and_runs() {
    let log = Arc::new(MemoryLog::new());
    let members = members(&log, 3).await;
    let mut permits = Vec::new();
    for index in 0..SLOTS {
        permits.push(admit(&members[0], &format!("r{index}"), "a").await.unwrap());
    }
    let waits = members[1].clone();
    let waits =
        tokio::spawn(async move { admit(&waits, "waits", "b").await.map(|it| it.id().to_owned()) });
    until(&members[1], |machine| machine.pool("llama").unwrap().waiting() == 1).await;
    log.lose_records();
    for member in &members {
        until(member, |machine| machine.generation() == 2).await;
        assert!(member.joined().await);
    }
    assert_eq!(in_flight(&members[2]).await, SLOTS);
    assert!(!waits.is_finished());
    permits.pop().unwrap().settle(end_of(100));
    assert_eq!(waits.await.unwrap(), Ok("waits".to_owned()));
    check_equal(&members).await;
}

#[tokio::test(start_paused = true)]
async fn a_database_that_goes_back_in_time_gets_a_new_generation() {
    let log = Arc::new(MemoryLog::new());
    let members = members(&log, 2).await;
    let permit = admit(&members[0], "runs", "a").await.unwrap();
    for gone in [1, 2] {
        log.lose_records();
        until(&members[1], move |machine| machine.generation() == gone + 1).await;
        assert!(members[0].joined().await && members[1].joined().await);
    }
    log.go_back(1);
    for member in &members {
        until(member, |machine| machine.generation() == 4).await;
        assert!(member.joined().await);
        assert_eq!(in_flight(member).await, 1);
    }
    permit.settle(end_of(1));
    until(&members[1], |machine| machine.pool("llama").unwrap().in_flight() == 0).await;
    check_equal(&members).await;
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_read_again_and_then_the_member_begins_from_a_snapshot() {
    for times in [1, 2, 4] {
        let log = Arc::new(MemoryLog::new());
        let members = members(&log, 2).await;
        let next = members[0].status().position.0 + 20;
        log.damage(LogPosition(next), times);
        for index in 0..20 {
            admit(&members[0], &format!("r{index}"), "a").await.unwrap().settle(end_of(1));
        }
        sleep(5 * SECOND).await;
        for member in &members {
            assert!(member.joined().await);
            assert!(member.status().position.0 > next, "{:?}", member.status());
        }
        check_equal(&members).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_begins_from_a_snapshot_and_from_an_older_one_if_that_is_damaged() {
    let log = Arc::new(MemoryLog::new());
    let mut members = members(&log, 2).await;
    assert_eq!(verify_snapshot(&*log).await, Ok(None));
    sleep(100 * SECOND).await;
    let verified = verify_snapshot(&*log).await.unwrap().unwrap();
    assert_eq!(verified.stated, verified.computed, "{verified:?}");
    assert!(verified.from < verified.position && verified.from.0 > 0, "{verified:?}");
    members.push(start(log.clone(), options("gateway-2", "process-2", usual())).await);
    let outside = read_cluster(&*log).await.unwrap();
    let seen = members[0].look(|machine| (machine.position(), machine.hash())).await.unwrap();
    assert_eq!((outside.machine().position(), outside.machine().hash()), seen);
    log.damage_snapshot();
    let refused = read_cluster(&*log).await.unwrap_err();
    assert!(refused.to_string().contains("snapshot"), "{refused}");
    members.push(start(log.clone(), options("gateway-3", "process-3", usual())).await);
    check_equal(&members).await;
    assert_eq!(members[0].status().generation, 1);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_leaves_serves_what_it_has_and_admits_nothing_more() {
    let log = Arc::new(MemoryLog::new());
    let members = members(&log, 2).await;
    let permit = admit(&members[0], "runs", "a").await.unwrap();
    members[0].leave();
    let refused = admit(&members[0], "late", "a").await.unwrap_err();
    assert_eq!(refused, ClusterAdmitError::NotInCluster);
    sleep(10 * SECOND).await;
    assert!(members[0].status().is_member(), "a request is in flight");
    permit.settle(end_of(1));
    assert_eq!(members[0].over().await.phase, MemberStanding::Left);
    until(&members[1], |machine| machine.members().filter(|it| it.is_live()).count() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_name_are_not_members_at_once() {
    let log = Arc::new(MemoryLog::new());
    let first = start(log.clone(), options("gateway-0", "process-0", usual())).await;
    let second = options("gateway-0", "process-1", usual());
    let second = ClusterHandle::start(log.clone(), "test", second).await.unwrap();
    sleep(10 * SECOND).await;
    assert!(first.status().is_member() && !second.status().is_member());
    assert!(second.status().trouble.unwrap().contains("name"), "{:?}", second.status());
    first.abort();
    assert!(timeout(10 * SECOND, second.joined()).await.unwrap());
}
