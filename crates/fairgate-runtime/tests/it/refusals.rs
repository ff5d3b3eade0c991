//! What is refused says which limit, how full, and when to come back; what operators say happens.

use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{PoolConfig, Submit, WorkerChange, WorkerState};
use fairgate_core::explain::RequestLocation;
use fairgate_core::units::{Micros, Tokens, Weight};
use fairgate_journal::parse_policy;
use fairgate_runtime::{
    AdmitError, GateChangeError, GateOptions, GateStartError, MAX_SUBMIT_TEXT_BYTES, start,
};
use tokio::time::{Instant, advance, sleep, timeout_at};

use crate::support::{config, gate, live, load, submit, waiting};

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_how_full_and_when() {
    let gate = start(
        PoolConfig { max_queue: Some(10), ..config(1) },
        GateOptions { retry_after_max: Duration::from_secs(1000), ..GateOptions::default() },
    )
    .unwrap();
    let mut permit = gate.admit(submit("first", "t", 1)).await.unwrap();
    let mut queue = std::collections::VecDeque::new();
    for i in 0..10 {
        queue.push_back(waiting(&gate, submit(&format!("q{i}"), "t", 1)).await);
    }
    // One end every three seconds, and the queue is kept full.
    for i in 0..20 {
        advance(Duration::from_secs(3)).await;
        permit.settle(Tokens(1));
        permit = queue.pop_front().unwrap().await.unwrap().unwrap();
        queue.push_back(waiting(&gate, submit(&format!("more{i}"), "t", 1)).await);
    }
    let refused = gate.admit(submit("over", "t", 1)).await.unwrap_err();
    assert_eq!(refused.code(), "queue_full");
    let limit = refused.limit().unwrap();
    assert_eq!((limit.current, limit.limit), (10, 10));
    // Eleven, with itself, at one every three seconds.
    let expected = refused.expected_wait().unwrap();
    assert!((30..=33).contains(&expected.as_secs()), "{expected:?}");
    assert_eq!(refused.retry_after(), Some(expected));
    assert_eq!(refused.to_string(), "refused: queue_full (10 of 10)");
    // A quieter flow gets in, and the loud one makes room.
    let quiet = waiting_in_a_full_queue(&gate).await;
    let pushed = queue.pop_back().unwrap().await.unwrap().unwrap_err();
    assert_eq!(pushed.code(), "pushed_out");
    assert!(pushed.retry_after().unwrap() >= Duration::from_secs(27));
    drop((permit, queue, quiet));
}

async fn waiting_in_a_full_queue(gate: &fairgate_runtime::Gate) -> tokio::task::JoinHandle<()> {
    let rejected = live(gate).await.counts.rejected;
    let asking = gate.clone();
    let admission = tokio::spawn(async move {
        let _ = asking.admit(submit("quiet", "u", 1)).await;
    });
    while live(gate).await.counts.rejected == rejected {
        tokio::task::yield_now().await;
    }
    admission
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_expires_without_anything_else_happening() {
    let timeout = Some(Micros(5_000_000));
    let gate =
        start(PoolConfig { queue_timeout: timeout, ..config(1) }, GateOptions::default()).unwrap();
    let _permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    let began = Instant::now();
    let refused = gate.admit(submit("b", "t", 1)).await.unwrap_err();
    assert_eq!(began.elapsed().as_secs(), 5);
    let AdmitError::Expired { waited, limit, expected_wait, retry_after } = refused else {
        panic!("{refused}")
    };
    assert_eq!(waited.as_secs(), 5);
    assert_eq!(limit.as_secs(), 5);
    assert_eq!(retry_after.as_secs(), 5, "one was granted in these five seconds");
    assert_eq!(expected_wait, Some(retry_after));
    assert_eq!(live(&gate).await.counts.expired, 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_its_own_ends_a_wait_within_50_ms_of_its_moment() {
    let timeout = Some(Micros(5_000_000));
    let gate =
        start(PoolConfig { queue_timeout: timeout, ..config(1) }, GateOptions::default()).unwrap();
    let _permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    for (own, limit) in [(1, 1), (750_000, 750_000), (2_500_000, 2_500_000), (9_000_000, 5_000_000)]
    {
        let began = Instant::now();
        let asked = Submit { timeout: Some(Micros(own)), ..submit("b", "t", 1) };
        let refused = gate.admit(asked).await.unwrap_err();
        let late = began.elapsed() - Duration::from_micros(limit);
        assert!(late < Duration::from_millis(50), "{late:?} late for {own} µs");
        let AdmitError::Expired { limit: told, .. } = refused else { panic!("{refused}") };
        assert_eq!(told, Duration::from_micros(limit));
    }
    assert_eq!(live(&gate).await.counts.expired, 4);
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_leaves_the_queue() {
    let gate = gate(1);
    let _permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(2);
    assert!(timeout_at(deadline, gate.admit(submit("b", "t", 1))).await.is_err());
    assert_eq!(load(&gate).await, (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_knows_its_wait_its_place_and_the_brownout() {
    let worker = WorkerChange { name: "w1".into(), ranks: Some(1), ..WorkerChange::default() };
    let brownout_wait = Some(Micros(1_000_000));
    let gate = start(
        PoolConfig { brownout_wait, workers: vec![worker], ..config(1) },
        GateOptions::default(),
    )
    .unwrap();
    let mut first = gate.admit(submit("a", "t", 1)).await.unwrap();
    assert_eq!((first.brownout(), first.waited()), (Some(false), Duration::ZERO));
    assert_eq!((&*first.place().unwrap().worker, first.place().unwrap().rank), ("w1", 0));
    first.first_token();
    first.first_token();
    let second = waiting(&gate, submit("b", "t", 1)).await;
    sleep(Duration::from_secs(3)).await;
    first.settle(Tokens(1));
    let second = second.await.unwrap().unwrap();
    assert_eq!((second.brownout(), second.waited()), (Some(true), Duration::from_secs(3)));
    assert_eq!(second.id(), "b");
}

#[tokio::test(start_paused = true)]
async fn operators_are_heard_before_their_call_returns() {
    let gate = gate(0);
    let held = waiting(&gate, submit("held", "t", 1)).await;
    let free = waiting(&gate, submit("free", "u", 1)).await;
    gate.hold(Attribute::Tenant, "t").await.unwrap();
    gate.set_cap(Attribute::Tenant, "u", Some(1)).await.unwrap();
    gate.set_weight(Attribute::Tenant, "u", Weight::new(700).unwrap()).await.unwrap();
    gate.set_capacity(5).await.unwrap();
    assert_eq!(load(&gate).await, (1, 1));
    let capped = waiting(&gate, submit("capped", "u", 1)).await;
    gate.set_cap(Attribute::Tenant, "u", None).await.unwrap();
    assert_eq!(load(&gate).await, (2, 1));
    gate.resume(Attribute::Tenant, "t").await.unwrap();
    assert_eq!(load(&gate).await, (3, 0));
    gate.set_policy(parse_policy(r#"{"load":{"by":"agent"}}"#).unwrap()).await.unwrap();
    assert!(gate.snapshot().await.unwrap().weights.is_empty());
    for admission in [held, free, capped] {
        admission.await.unwrap().unwrap().settle(Tokens(1));
    }
    assert_eq!(load(&gate).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn where_a_request_is() {
    let gate = gate(1);
    assert_eq!(gate.whereabouts("a").await.unwrap(), None);
    let permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    let seen = gate.whereabouts("a").await.unwrap().unwrap();
    assert!(matches!(seen, RequestLocation::InFlight { place: None, .. }));
    let _b = waiting(&gate, submit("b", "t", 1)).await;
    let _c = waiting(&gate, submit("c", "t", 1)).await;
    let seen = gate.whereabouts("c").await.unwrap().unwrap();
    let RequestLocation::Waiting(seen) = seen else { panic!("{seen:?}") };
    assert_eq!(seen.place, Some(1));
    assert_eq!(gate.fairness().await.unwrap()[0].flows[0].waiting, 2);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn workers_come_and_go() {
    let gate = gate(1);
    let up = WorkerChange { name: "w".into(), ..WorkerChange::default() };
    gate.change_worker(up.clone()).await.unwrap();
    let drained = WorkerChange { state: Some(WorkerState::Drain), ..up.clone() };
    gate.change_worker(drained).await.unwrap();
    let refused = gate.admit(submit("a", "t", 1)).await.unwrap_err();
    assert_eq!((refused.code(), refused.retry_after()), ("no_worker", None));
    let absurd = WorkerChange { ranks: Some(u32::MAX), ..up };
    let refused = gate.change_worker(absurd).await.unwrap_err();
    assert!(matches!(refused, GateChangeError::Invalid { field: "ranks", .. }));
}

#[tokio::test(start_paused = true)]
async fn what_no_journal_could_hold_is_not_submitted() {
    let gate = gate(1);
    let mut twice = submit("a", "t", 1);
    twice.cached = vec![("w".into(), Tokens(1)), ("w".into(), Tokens(2))];
    let refused = gate.admit(twice).await.unwrap_err();
    assert!(matches!(refused, AdmitError::Invalid { field: "cached", .. }));
    let huge = submit(&"x".repeat(MAX_SUBMIT_TEXT_BYTES + 1), "t", 1);
    assert_eq!(gate.admit(huge).await.unwrap_err().code(), "invalid");
    assert_eq!(live(&gate).await.counts.rejected, 0);
}

#[tokio::test(start_paused = true)]
async fn no_gate_without_a_bound_on_what_waits() {
    let unbounded = PoolConfig { max_queue: None, ..config(1) };
    let refused = start(unbounded, GateOptions::default()).unwrap_err();
    assert!(matches!(refused, GateStartError::NoQueueLimit));
}

#[test]
fn no_gate_without_a_runtime() {
    let refused = start(config(1), GateOptions::default()).unwrap_err();
    assert!(matches!(refused, GateStartError::NoRuntime));
}
