//! Cases of the tokens that a flow got and was due.

use fairgate_core::event::WorkerChange;
use fairgate_core::fairness::FlowFairness;

use super::crowd::Crowd;
use super::obleth::tenants;
use super::scene::Scene;

/// Returns the tokens that a flow got, the tokens that it was due, and the bound.
fn numbers(flow: &FlowFairness) -> (i128, i128, u128) {
    let due = flow.due.expect("a share");
    (flow.got, due.tokens, due.bound)
}

/// Requests with estimates of 400 use 100 tokens on a worker with one slot. They end while the worker is full and no
/// flow is ready. The errors of their estimates are divided among the flows that are ready at the next grant.
#[test]
fn errors_that_end_while_nobody_is_ready_are_divided_at_the_next_grant() {
    let mut crowd = Crowd::new(Scene::with(4, &tenants(""), |config| {
        let one = WorkerChange { name: "w".into(), slots: Some(1), ..WorkerChange::default() };
        config.workers = vec![one];
    }));
    crowd.join_using('a', "tenant:a", 3, 400, 100);
    crowd.join_using('b', "tenant:b", 3, 400, 100);
    crowd.run(1000);
    for name in ["a", "b"] {
        let flow = crowd.scene.fairness(name);
        let (got, due, _) = numbers(&flow);
        assert!(got.abs_diff(50_000) <= 400, "{name} got {got}");
        assert!(flow.is_within_bound(), "{name} got {got}, due {due}");
    }
}

/// b has eight requests in flight that were estimated at 4000 and use one token. They end one after the other, and
/// after each end b is granted a small request. So b falls by eight refunds before a is granted another request.
#[test]
fn refunds_that_come_one_after_the_other_are_within_the_bound() {
    let mut scene = Scene::new(0, &tenants(""));
    for i in 0..20 {
        scene.ask(&format!("a{i}"), "tenant:a", 4000);
    }
    for i in 0..8 {
        scene.ask(&format!("b{i}"), "tenant:b", 4000);
    }
    for i in 8..40 {
        scene.ask(&format!("b{i}"), "tenant:b", 1);
    }
    scene.capacity(16);
    assert_eq!(scene.in_flight_of("tenant:a"), 8);
    for i in 0..8 {
        assert_eq!(scene.release_using(&format!("b{i}"), 1), format!("b{}", i + 8));
    }
    let (a, b) = (scene.fairness("a"), scene.fairness("b"));
    assert_eq!((a.got, b.got), (32_000, 16));
    assert!(a.is_within_bound() && b.is_within_bound(), "{:?} {:?}", numbers(&a), numbers(&b));
}
