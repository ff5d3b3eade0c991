//! Every way in which a permit or an admission ends: once, and with the right charge.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use fairgate_core::units::Tokens;
use fairgate_runtime::{AdmitError, GateClosedError, GateOptions, start};

use crate::support::{config, gate, live, load, served, submit, waiting};

#[tokio::test(start_paused = true)]
async fn settled_with_what_it_used() {
    let gate = gate(1);
    let permit = gate.admit(submit("a", "t", 100)).await.unwrap();
    assert_eq!(load(&gate).await, (1, 0));
    permit.settle(Tokens(70));
    assert_eq!(load(&gate).await, (0, 0));
    assert_eq!(served(&gate, "t").await, 70);
    assert_eq!(live(&gate).await.counts.settled, 1);
}

#[tokio::test(start_paused = true)]
async fn failed_with_what_it_had_used() {
    let gate = gate(1);
    let mut permit = gate.admit(submit("a", "t", 100)).await.unwrap();
    permit.note_used(Tokens(90));
    permit.fail(Tokens(30));
    assert_eq!(served(&gate, "t").await, 30);
    assert_eq!(live(&gate).await.counts.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn given_back_it_counts_one_token() {
    let gate = gate(1);
    gate.admit(submit("a", "t", 100)).await.unwrap().give_back();
    assert_eq!(load(&gate).await, (0, 0));
    assert_eq!(served(&gate, "t").await, 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_it_is_charged_its_cost() {
    let gate = gate(1);
    drop(gate.admit(submit("a", "t", 100)).await.unwrap());
    assert_eq!(served(&gate, "t").await, 100);
    assert_eq!(live(&gate).await.counts.dropped, 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_it_is_charged_what_was_noted_last() {
    let gate = gate(1);
    let mut permit = gate.admit(submit("a", "t", 100)).await.unwrap();
    permit.note_used(Tokens(10));
    permit.note_used(Tokens(25));
    drop(permit);
    assert_eq!(served(&gate, "t").await, 25);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_panics_gives_it_back() {
    let gate = gate(1);
    let mut permit = gate.admit(submit("a", "t", 100)).await.unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        permit.note_used(Tokens(7));
        panic!("the holder's own panic");
    }));
    assert!(panicked.is_err());
    assert_eq!(load(&gate).await, (0, 0));
    assert_eq!(served(&gate, "t").await, 7);
}

#[tokio::test(start_paused = true)]
async fn an_aborted_task_gives_it_back() {
    let gate = gate(1);
    let asking = gate.clone();
    let holder = tokio::spawn(async move {
        let _permit = asking.admit(submit("a", "t", 100)).await.unwrap();
        std::future::pending::<()>().await;
    });
    while load(&gate).await != (1, 0) {
        tokio::task::yield_now().await;
    }
    holder.abort();
    assert!(holder.await.unwrap_err().is_cancelled());
    assert_eq!(load(&gate).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_admission_dropped_while_it_waits_leaves_the_queue_uncharged() {
    let gate = gate(1);
    let first = gate.admit(submit("a", "t", 100)).await.unwrap();
    let second = waiting(&gate, submit("b", "u", 100)).await;
    assert_eq!(load(&gate).await, (1, 1));
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    assert_eq!(load(&gate).await, (1, 0));
    assert_eq!(served(&gate, "u").await, 0);
    first.settle(Tokens(1));
    assert_eq!(load(&gate).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_never_reached_its_owner_is_given_back_for_one_token() {
    let gate = gate(1);
    {
        let mut admission = pin!(gate.admit(submit("a", "t", 100)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(admission.as_mut().poll(&mut context).is_pending());
        // The task has granted it; nobody has looked.
        assert_eq!(load(&gate).await, (1, 0));
    }
    assert_eq!(load(&gate).await, (0, 0));
    assert_eq!(served(&gate, "t").await, 1);
    assert_eq!(live(&gate).await.counts.abandoned, 1);
}

#[tokio::test(start_paused = true)]
async fn an_admission_dropped_before_the_task_saw_it_was_never_there() {
    let gate = gate(1);
    {
        let mut admission = pin!(gate.admit(submit("a", "t", 100)));
        let mut context = Context::from_waker(Waker::noop());
        assert!(admission.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(load(&gate).await, (0, 0));
    assert_eq!(live(&gate).await.counts.granted, 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_end_does_not_touch_the_next_request_of_the_same_id() {
    let gate = gate(2);
    let first = gate.admit(submit("a", "t", 100)).await.unwrap();
    first.settle(Tokens(1));
    let again = gate.admit(submit("a", "t", 100)).await.unwrap();
    assert_eq!(load(&gate).await, (1, 0));
    let duplicate = gate.admit(submit("a", "t", 100)).await.unwrap_err();
    assert_eq!(duplicate.code(), "duplicate");
    assert_eq!(duplicate.retry_after(), None);
    assert_eq!(load(&gate).await, (1, 0));
    again.settle(Tokens(1));
    assert_eq!(load(&gate).await, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_does_not_keep_a_permit_from_ending() {
    let gate = start(config(1), GateOptions { turns: 1, ..GateOptions::default() }).unwrap();
    let permit = gate.admit(submit("a", "t", 100)).await.unwrap();
    // One turn: the second of these waits outside.
    let mut context = Context::from_waker(Waker::noop());
    let mut inside = pin!(gate.admit(submit("b", "t", 1)));
    let mut outside = pin!(gate.admit(submit("c", "t", 1)));
    assert!(inside.as_mut().poll(&mut context).is_pending());
    assert!(outside.as_mut().poll(&mut context).is_pending());
    permit.settle(Tokens(5));
    inside.await.unwrap().settle(Tokens(1));
    outside.await.unwrap().settle(Tokens(1));
    assert_eq!(load(&gate).await, (0, 0));
    assert_eq!(served(&gate, "t").await, 7);
}

#[test]
fn a_permit_outlives_its_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let (gate, permit) = runtime.block_on(async {
        let gate = gate(1);
        let permit = gate.admit(submit("a", "t", 100)).await.unwrap();
        (gate, permit)
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
    permit.settle(Tokens(1));
    let other = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    other.block_on(async {
        assert_eq!(gate.admit(submit("b", "t", 1)).await.unwrap_err(), AdmitError::Gone);
        assert_eq!(gate.status().await.unwrap_err(), GateClosedError::Gone);
        assert_eq!(gate.drain(Duration::ZERO).await.unwrap_err(), GateClosedError::Gone);
    });
}

#[tokio::test(start_paused = true)]
async fn a_task_that_dies_leaves_nobody_waiting() {
    let options = GateOptions::default().with_observer(|_, decision| {
        let grant = matches!(decision, fairgate_core::decision::Decision::Grant(grant) if &*grant.id == "bad");
        assert!(!grant, "a bug in the task");
    });
    let gate = start(config(1), options).unwrap();
    let permit = gate.admit(submit("a", "t", 100)).await.unwrap();
    let bad = waiting(&gate, submit("bad", "t", 1)).await;
    let good = waiting(&gate, submit("good", "t", 1)).await;
    permit.settle(Tokens(1));
    assert_eq!(bad.await.unwrap().unwrap_err(), AdmitError::Gone);
    assert_eq!(good.await.unwrap().unwrap_err(), AdmitError::Gone);
    assert_eq!(gate.admit(submit("late", "t", 1)).await.unwrap_err(), AdmitError::Gone);
    assert_eq!(gate.set_capacity(2).await.unwrap_err(), GateClosedError::Gone.into());
    assert_eq!(gate.drain(Duration::from_secs(1)).await.unwrap_err(), GateClosedError::Gone);
}
