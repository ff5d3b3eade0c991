//! A gate that closes: what waits is refused, what is in flight may finish, and then nothing is left.

use std::time::Duration;

use fairgate_core::units::Tokens;
use fairgate_runtime::{AdmitError, GateClosedError};
use tokio::time::{Instant, sleep};

use crate::support::{gate, live, load, submit, waiting};

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_finishes_and_what_waits_is_refused() {
    let gate = gate(1);
    let permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    let waits = waiting(&gate, submit("b", "t", 1)).await;
    let draining = gate.clone();
    let began = Instant::now();
    let drain = tokio::spawn(async move { draining.drain(Duration::from_secs(60)).await });
    assert_eq!(waits.await.unwrap().unwrap_err(), AdmitError::Draining);
    assert_eq!(gate.admit(submit("c", "t", 1)).await.unwrap_err(), AdmitError::Draining);
    assert!(live(&gate).await.draining);
    assert_eq!(load(&gate).await, (1, 0));
    sleep(Duration::from_secs(20)).await;
    permit.settle(Tokens(1));
    assert_eq!(drain.await.unwrap().unwrap().still_in_flight, 0);
    assert_eq!(began.elapsed().as_secs(), 20, "it ends when nothing is in flight any more");
    assert_eq!(gate.admit(submit("d", "t", 1)).await.unwrap_err(), AdmitError::Draining);
    assert_eq!(gate.status().await.unwrap_err(), GateClosedError::Drained);
    assert_eq!(gate.drain(Duration::ZERO).await.unwrap().still_in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_it_says_what_is_still_in_flight() {
    let gate = gate(2);
    let first = gate.admit(submit("a", "t", 1)).await.unwrap();
    let second = gate.admit(submit("b", "t", 1)).await.unwrap();
    let began = Instant::now();
    assert_eq!(gate.drain(Duration::from_secs(30)).await.unwrap().still_in_flight, 2);
    assert_eq!(began.elapsed().as_secs(), 30);
    // Too late for this process; nothing hangs and nothing panics.
    first.settle(Tokens(1));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_counts() {
    let gate = gate(1);
    let _permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    let began = Instant::now();
    let (late, early) =
        tokio::join!(gate.drain(Duration::from_secs(500)), gate.drain(Duration::from_secs(5)));
    assert_eq!((late.unwrap().still_in_flight, early.unwrap().still_in_flight), (1, 1));
    assert_eq!(began.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiting_are_all_refused() {
    let gate = gate(3);
    let mut in_flight = Vec::new();
    for i in 0..3 {
        in_flight.push(gate.admit(submit(&format!("f{i}"), "t", 1)).await.unwrap());
    }
    let admissions: Vec<_> = (0..10_000)
        .map(|i| {
            let gate = gate.clone();
            let tenant = format!("t{}", i % 37);
            tokio::spawn(async move { gate.admit(submit(&format!("w{i}"), &tenant, 1)).await })
        })
        .collect();
    while live(&gate).await.waiting < 10_000 {
        tokio::task::yield_now().await;
    }
    let draining = gate.clone();
    let drain = tokio::spawn(async move { draining.drain(Duration::from_secs(60)).await });
    for admission in admissions {
        assert_eq!(admission.await.unwrap().unwrap_err(), AdmitError::Draining);
    }
    let before = live(&gate).await;
    assert_eq!((before.in_flight, before.waiting, before.counts.drained), (3, 0, 10_000));
    assert_eq!(before.counts.granted, 3);
    in_flight.into_iter().for_each(|permit| permit.settle(Tokens(1)));
    assert_eq!(drain.await.unwrap().unwrap().still_in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn when_the_last_gate_is_gone_the_task_ends_with_the_last_permit() {
    let ended = std::sync::Arc::new(());
    let held = ended.clone();
    let options = fairgate_runtime::GateOptions::default().with_observer(move |_, _| {
        let _ = &held;
    });
    let gate = fairgate_runtime::start(crate::support::config(1), options).unwrap();
    let permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    drop(gate);
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(std::sync::Arc::strong_count(&ended), 2, "the task goes on while a permit is out");
    permit.settle(Tokens(1));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(std::sync::Arc::strong_count(&ended), 1);
}
