//! The hand-off between task and callers in the orders in which they can take their locks. These are the library's
//! own sources, with a lock in place of the standard one that lets a scheduler choose the order; a hang is found too.
//!
//! The hand-off and the mailbox by themselves are tried in every order there is; the whole of them with a real pool,
//! which has too many, in thousands of random ones.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../src/admission.rs"]
mod admission;
#[path = "../src/admit_error.rs"]
mod admit_error;
#[path = "../src/expected_wait.rs"]
mod expected_wait;
#[path = "../src/flow_totals.rs"]
mod flow_totals;
#[path = "../src/gate_status.rs"]
mod gate_status;
#[path = "../src/handoff.rs"]
mod handoff;
#[path = "../src/journal_lines.rs"]
mod journal_lines;
#[path = "../src/mailbox.rs"]
mod mailbox;
#[path = "../src/message.rs"]
mod message;
#[path = "../src/permit.rs"]
mod permit;
#[path = "../src/pool_task.rs"]
mod pool_task;
#[path = "../src/submitted_request.rs"]
mod submitted_request;
#[path = "../src/waiting_owners.rs"]
mod waiting_owners;

mod sync {
    //! The lock whose every order is tried.

    pub(crate) use shuttle::sync::Mutex;
    use shuttle::sync::MutexGuard;
    use std::sync::PoisonError;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use fairgate_core::Pool;
use fairgate_core::event::{PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::parse_policy;
use shuttle::future::block_on;
use shuttle::thread::{self, JoinHandle};

use admission::Admission;
use admit_error::AdmitError;
use mailbox::{TaskEnd, TaskMailbox};
use message::PoolMessage;
use pool_task::PoolTask;
use submitted_request::{AdmissionTicket, SubmittedRequest};

type Letters = Arc<TaskMailbox<PoolMessage>>;
type Caller = Box<dyn FnOnce(&Letters) + Send>;

fn pool_task(capacity: u64) -> PoolTask {
    let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
    let config = PoolConfig { max_queue: Some(10), ..PoolConfig::new(capacity, policy) };
    PoolTask::new(Pool::new(config), None, Duration::from_secs(60))
}

/// The task: reads letters until an errand says that all are read, or `letters_max` have been; then it dies.
fn task(letters: &Letters, capacity: u64, letters_max: usize) -> JoinHandle<PoolTask> {
    let letters = letters.clone();
    thread::spawn(move || {
        let mut pool_task = pool_task(capacity);
        let mut batch = VecDeque::new();
        let mut read = 0;
        while !pool_task.status().draining {
            block_on(letters.wait_filled());
            letters.take(&mut batch);
            while let Some(message) = batch.pop_front() {
                if read == letters_max {
                    // As when the task unwinds: what was taken out and not read is dropped, then all that is left.
                    batch.clear();
                    drop(message);
                    drop(letters.close(TaskEnd::Died));
                    return pool_task;
                }
                read += 1;
                pool_task.handle(Micros(0), message);
            }
        }
        pool_task
    })
}

fn submit(letters: &Letters, id: &str, ticket: u64) -> Result<Admission, AdmitError> {
    let request = Submit { cost: Some(Tokens(100)), ..Submit::new(id) };
    Admission::submit(letters, request, AdmissionTicket(ticket))
}

/// Every slot was given back, and every grant ended exactly once.
fn nothing_is_left(pool_task: &PoolTask) {
    let live = pool_task.status();
    assert_eq!((live.in_flight, live.waiting), (0, 0));
    for id in ["leaves", "looks", "settles", "same", "drops"] {
        assert_eq!(pool_task.pool().find(id), None, "{id} is still in the pool");
    }
    assert_eq!(pool_task.pool().ticks().0, live.counts.granted, "ends and grants");
}

/// What the callers do, each on a thread of its own, and then the task is told that all is said.
fn race(capacity: u64, callers: Vec<Caller>) -> PoolTask {
    let letters: Letters = Arc::new(TaskMailbox::new());
    let task = task(&letters, capacity, usize::MAX);
    let callers: Vec<_> = callers
        .into_iter()
        .map(|caller| {
            let letters = letters.clone();
            thread::spawn(move || caller(&letters))
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    letters
        .send(PoolMessage::Drain { until: None })
        .unwrap_or_else(|_| panic!("the task is there"));
    let pool_task = task.join().unwrap();
    nothing_is_left(&pool_task);
    pool_task
}

fn leaves_at_once(letters: &Letters) {
    drop(submit(letters, "leaves", 1).unwrap());
}

fn looks_once_and_leaves(letters: &Letters) {
    let mut admission = submit(letters, "looks", 2).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    drop(Pin::new(&mut admission).poll(&mut context));
}

fn settles(letters: &Letters) {
    block_on(submit(letters, "settles", 3).unwrap()).unwrap().settle(Tokens(7));
}

/// In every order there is.
fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    shuttle::check_dfs(model, None);
}

/// In many random orders, and in those that a few well-placed switches give.
fn in_many_orders(model: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(model.clone(), 3_000);
    shuttle::check_pct(model, 2_000, 3);
}

#[test]
fn a_gift_and_a_leave_in_every_order() {
    in_every_order(|| {
        let (giver, taker) = handoff::handoff();
        let giving = thread::spawn(move || giver.send("slot").is_err());
        let left_with_it = matches!(taker.leave(), handoff::HandoffLeft::WithValue(_));
        let came_back = giving.join().unwrap();
        assert!(left_with_it ^ came_back, "exactly one side has the slot to give back");
    });
}

#[test]
fn a_gift_and_a_look_and_a_leave_in_every_order() {
    in_every_order(|| {
        let (giver, mut taker) = handoff::handoff();
        let giving = thread::spawn(move || giver.send("slot").is_err());
        let mut context = Context::from_waker(Waker::noop());
        let taken = Pin::new(&mut taker).poll(&mut context).is_ready();
        let left_with_it = matches!(taker.leave(), handoff::HandoffLeft::WithValue(_));
        let came_back = giving.join().unwrap();
        let ends = [taken, left_with_it, came_back].into_iter().filter(|end| *end).count();
        assert_eq!(ends, 1, "taken, left with or come back: exactly one");
    });
}

#[test]
fn a_gift_and_a_wait_in_every_order() {
    in_every_order(|| {
        let (giver, taker) = handoff::handoff();
        let giving = thread::spawn(move || giver.send("slot"));
        assert_eq!(block_on(taker), Some("slot"));
        assert_eq!(giving.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_giver_that_goes_and_a_wait_in_every_order() {
    in_every_order(|| {
        let (giver, taker) = handoff::handoff::<()>();
        let going = thread::spawn(move || drop(giver));
        assert_eq!(block_on(taker), None);
        going.join().unwrap();
    });
}

#[test]
fn a_letter_and_the_closing_in_every_order() {
    in_every_order(|| {
        let letters = Arc::new(TaskMailbox::new());
        let to = letters.clone();
        let sending = thread::spawn(move || to.send(7).is_err());
        let mut batch = VecDeque::new();
        letters.take(&mut batch);
        batch.extend(letters.close(TaskEnd::Died));
        let came_back = sending.join().unwrap();
        assert!(batch.contains(&7) ^ came_back, "read or returned, never lost");
        assert!(letters.close(TaskEnd::Died).is_empty());
    });
}

#[test]
fn a_letter_and_the_reader_in_every_order() {
    in_every_order(|| {
        let letters = Arc::new(TaskMailbox::new());
        let to = letters.clone();
        let sending = thread::spawn(move || to.send(7));
        block_on(letters.wait_filled());
        let mut batch = VecDeque::new();
        assert!(letters.take(&mut batch));
        sending.join().unwrap().unwrap();
    });
}

#[test]
fn leaving_races_the_grant() {
    in_many_orders(|| {
        let pool_task = race(1, vec![Box::new(leaves_at_once)]);
        // What was granted and taken back counts one token, the least that any request counts.
        assert_eq!(
            served(&pool_task),
            u128::from(pool_task.status().counts.granted),
            "charged for what never ran"
        );
    });
}

#[test]
fn looking_and_leaving_races_the_grant() {
    in_many_orders(|| {
        let pool_task = race(1, vec![Box::new(looks_once_and_leaves)]);
        // Where the look was in time there was a permit, which was dropped.
        let counts = pool_task.status().counts;
        let expected = counts.dropped * 100 + (counts.granted - counts.dropped);
        assert_eq!(served(&pool_task), u128::from(expected));
    });
}

#[test]
fn who_waits_is_always_woken() {
    in_many_orders(|| {
        let pool_task = race(1, vec![Box::new(settles)]);
        assert_eq!(served(&pool_task), 7);
    });
}

/// The tenant's served tokens, 0 where nobody ever came that far.
fn served(pool_task: &PoolTask) -> u128 {
    let flows = pool_task.pool().snapshot().root.flows;
    flows.into_iter().filter_map(|flow| flow.share).map(|share| share.served).sum()
}

#[test]
fn the_same_id_again_is_another_request() {
    in_many_orders(|| {
        let again = |letters: &Letters| {
            drop(submit(letters, "same", 1).unwrap());
            // The late letter about the first must not end this one.
            let permit = block_on(submit(letters, "same", 2).unwrap());
            if let Ok(permit) = permit {
                permit.settle(Tokens(7));
            }
        };
        let pool_task = race(1, vec![Box::new(again)]);
        let counts = pool_task.status().counts;
        assert_eq!(counts.settled, 1);
        assert_eq!(served(&pool_task), u128::from(7 + counts.granted - 1));
    });
}

#[test]
fn a_late_letter_does_not_end_another_request_of_the_same_id() {
    in_many_orders(|| {
        let settled = Arc::new(AtomicBool::new(false));
        let said = settled.clone();
        let other = move |letters: &Letters| {
            // Refused as a duplicate where the first is still there.
            if let Ok(permit) = block_on(submit(letters, "same", 2).unwrap()) {
                permit.settle(Tokens(7));
                said.store(true, Ordering::Relaxed);
            }
        };
        let leaves = |letters: &Letters| drop(submit(letters, "same", 1).unwrap());
        let pool_task = race(1, vec![Box::new(leaves), Box::new(other)]);
        let settled = u64::from(settled.load(Ordering::Relaxed));
        let counts = pool_task.status().counts;
        assert_eq!(counts.settled, settled);
        assert_eq!(served(&pool_task), u128::from(7 * settled + counts.granted - settled));
    });
}

#[test]
fn a_task_that_dies_leaves_nobody_waiting() {
    for letters_max in 0..3 {
        in_many_orders(move || {
            let letters: Letters = Arc::new(TaskMailbox::new());
            let task = task(&letters, 1, letters_max);
            let done = Arc::new(AtomicBool::new(false));
            let (to, said) = (letters.clone(), done.clone());
            let caller = thread::spawn(move || {
                if let Ok(Ok(permit)) = submit(&to, "a", 1).map(block_on) {
                    permit.settle(Tokens(1));
                }
                said.store(true, Ordering::Relaxed);
            });
            // The pool_task goes with the task: whoever waits for it learns that.
            let _ = letters.send(PoolMessage::FirstToken(SubmittedRequest {
                id: "nobody".into(),
                ticket: AdmissionTicket(9),
                request: None,
            }));
            let _ = letters.send(PoolMessage::Drain { until: None });
            let pool_task = task.join().unwrap();
            drop(pool_task);
            letters.close(TaskEnd::Died);
            caller.join().unwrap();
            assert!(done.load(Ordering::Relaxed));
        });
    }
}

#[test]
fn several_at_once_over_random_orders() {
    let several = || {
        race(
            1,
            vec![
                Box::new(settles),
                Box::new(leaves_at_once),
                Box::new(looks_once_and_leaves),
                Box::new(|letters: &Letters| drop(block_on(submit(letters, "drops", 4).unwrap()))),
            ],
        );
    };
    in_many_orders(several);
}
