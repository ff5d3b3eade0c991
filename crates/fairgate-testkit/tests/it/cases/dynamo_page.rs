//! The worked examples and rules of `seeds/dynamo-drr.txt`.

use fairgate_core::event::{Event, Pin, Submit, WorkerChange, WorkerState};
use fairgate_core::explain::{FlowStanding, PickRule};
use fairgate_core::units::Tokens;

use super::dynamo::{drr, queued};
use super::scene::{Scene, request};

/// With a quantum of 10 and request costs of 3, the deficit is 10, then 7, 4 and 1. Then the cursor advances.
#[test]
fn one_quantum_of_ten_pays_for_three_requests_of_three() {
    let mut scene = queued(&[("A", 10), ("B", 10)], &[("A", 4, 3), ("B", 4, 3)]);
    assert_eq!(scene.deficits(), [0, 0]);
    assert_eq!(scene.capacity(1), "A1");
    assert_eq!(scene.deficits(), [7, 0]);
    assert_eq!(scene.release("A1"), "A2");
    assert_eq!(scene.deficits(), [4, 0]);
    assert_eq!(scene.release("A2"), "A3");
    assert_eq!(scene.deficits(), [1, 0]);
    assert_eq!(scene.release("A3"), "B1", "the cursor has advanced");
    assert_eq!(scene.deficits(), [1, 7], "what was not spent is kept");
}

/// The page's table: `standard` with a quantum of 1000 and a head of 7000 needs six more rounds, and `latency` with
/// 2000 and 9000 needs four. Both get four rounds. `latency` dispatches from a deficit of 10000 and keeps 1000, and
/// `standard` has 5000.
#[test]
fn a_ring_that_cannot_pay_is_given_four_rounds_at_once() {
    let classes = [("standard", 1000), ("latency", 2000)];
    let requests = [("standard", 2, 7000), ("latency", 2, 9000)];
    let mut scene = queued(&classes, &requests).explaining();
    assert_eq!(scene.capacity(1), "latency1");
    assert_eq!(scene.deficits(), [5000, 1000]);

    let choice = &scene.why("latency1").levels[0];
    // One round by the visit, four at once.
    assert_eq!(choice.rule, PickRule::Bulk { rounds: 5 });
    assert!(matches!(
        choice.standing,
        FlowStanding::Drr { deficit: 0, rounds_needed: Some(5), .. }
    ));
    let (runner_up, standing) = choice.runner_up.as_ref().expect("standard was ready too");
    assert_eq!(&**runner_up, "standard");
    assert!(matches!(standing, FlowStanding::Drr { deficit: 0, rounds_needed: Some(7), .. }));

    // standard needs 7000 − 5000: one round by the visit, one more; latency, at 1000, would need four.
    assert_eq!(scene.release("latency1"), "standard1");
    assert_eq!(scene.deficits(), [0, 5000]);
}

#[test]
fn a_request_of_a_million_quanta_is_dispatched_in_one_pick() {
    let mut scene = queued(&[("A", 1), ("B", 2)], &[("A", 1, 1_000_000), ("B", 2, 3_000_000)]);
    assert_eq!(scene.capacity(1), "A1");
    assert_eq!(scene.deficits(), [0, 2_000_000]);
}

#[test]
fn a_class_that_runs_empty_loses_its_credit_and_its_turn() {
    let mut scene = queued(&[("A", 100), ("B", 100)], &[("A", 1, 10), ("B", 3, 10)]);
    assert_eq!(scene.capacity(1), "A1");
    assert_eq!(scene.deficits(), [0, 0]);
    assert_eq!(scene.release("A1"), "B1");
    scene.ask("A2", "class:A", 10);
    // B can afford its next, so it stays B's turn.
    assert_eq!(scene.release("B1"), "B2");
}

#[test]
fn a_class_whose_only_request_leaves_unserved_loses_its_credit_too() {
    let mut scene = queued(&[("A", 10), ("B", 10)], &[("A", 1, 25), ("B", 2, 5)]);
    assert_eq!(scene.capacity(1), "B1", "A has one quantum of the three it needs");
    assert_eq!(scene.deficits(), [10, 5]);
    assert_eq!(scene.cancel("A1"), "");
    assert_eq!(scene.deficits(), [0, 5]);
}

#[test]
fn a_blocked_class_keeps_what_it_has_and_earns_nothing_more() {
    let mut scene = queued(&[("A", 10), ("B", 10)], &[("A", 2, 25), ("B", 30, 5)]);
    assert_eq!(scene.capacity(1), "B1");
    assert_eq!(scene.deficits(), [10, 5]);
    scene.hold("class:A");
    assert_eq!(scene.run(10), "BBBBBBBBBB");
    assert_eq!(scene.deficits()[0], 10);
    scene.resume("class:A");
    // It earns again from here: twenty with the next visit, thirty with the one after.
    assert_eq!(scene.run(4), "BBBA");
}

/// The page's formulas: uncached_tokens = raw_isl_tokens − cached_tokens, scheduling_cost = max(1,
/// uncached_tokens).
#[test]
fn the_cost_is_what_is_not_cached_and_at_least_one() {
    let worker = |name: &str| WorkerChange { name: name.into(), ..WorkerChange::default() };
    let mut scene = Scene::with(0, &drr(&[("A", 10)]), |config| {
        config.workers = vec![worker("w0"), worker("w1")];
    });
    let cached = |id, tokens: &[(&str, u64)]| Submit {
        input: Some(Tokens(3000)),
        cached: tokens.iter().map(|(name, t)| ((*name).into(), Tokens(*t))).collect(),
        ..request(id, "class:A")
    };
    scene.submit(cached("best", &[("w0", 512), ("w1", 2048)]));
    scene.submit(Submit {
        pin: Some(Pin { worker: "w0".into(), rank: None }),
        ..cached("pinned", &[("w0", 512), ("w1", 2048)])
    });
    scene.submit(cached("all", &[("w0", 9999)]));
    scene.submit(cached("none", &[]));
    let costs = ["best", "pinned", "all", "none"].map(|id| scene.waiting(id).cost.0);
    assert_eq!(costs, [952, 2488, 1, 3000]);
    // Immutable: a worker that leaves with its cache changes nothing.
    let gone = WorkerChange { state: Some(WorkerState::Gone), ..worker("w1") };
    assert_eq!(scene.apply(Event::Worker(gone)), "");
    assert_eq!(scene.waiting("best").cost.0, 952);
}

#[test]
fn a_pinned_head_blocks_what_is_behind_it_in_its_class_and_in_no_other() {
    let worker =
        |name: &str| WorkerChange { name: name.into(), slots: Some(1), ..WorkerChange::default() };
    let mut scene = Scene::with(8, &drr(&[("A", 10), ("B", 10)]), |config| {
        config.workers = vec![worker("w0"), worker("w1")];
    });
    let pinned = |id| Submit {
        pin: Some(Pin { worker: "w0".into(), rank: None }),
        ..request(id, "class:A")
    };
    assert_eq!(scene.submit(pinned("A1")), "A1");
    assert_eq!(scene.submit(pinned("A2")), "");
    assert_eq!(scene.ask("A3", "class:A", 1), "", "w1 is free, but A2 stands before it");
    assert_eq!(scene.ask("B1", "class:B", 1), "B1");
    assert_eq!(scene.release("B1"), "");
    assert_eq!(scene.release("A1"), "A2 A3");
}

#[test]
fn strict_priority_goes_before_fcfs_and_wspt_within_a_class_only() {
    let classes = r#"[{"name":"A","quantum":10,"queue":"wspt"},{"name":"B","quantum":10}]"#;
    let policy = format!(r#"{{"drr":{{"by":"class","classes":{classes}}}}}"#);
    let mut scene = Scene::new(0, &policy);
    for (id, who, cost, priority) in [
        ("A1", "class:A", 9, 0),
        ("A2", "class:A", 3, 0),
        ("A3", "class:A", 8, 7),
        ("A4", "class:A", 3, 0),
        ("A5", "class:A", 1, -1),
        ("B1", "class:B", 9, 0),
        ("B2", "class:B", 3, 0),
        ("B3", "class:B", 8, 7),
    ] {
        let cost = Some(Tokens(cost));
        scene.submit(Submit { cost, priority, ..request(id, who) });
    }
    scene.capacity(1);
    scene.drain();
    let of = |class: char| {
        let ids = scene.granted().iter().filter(|id| id.starts_with(class));
        ids.map(|id| &**id).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of('A'), "A3 A2 A4 A1 A5");
    assert_eq!(of('B'), "B3 B1 B2");
    // A's costs are 8, 3, 3, 9, 1 in that order and B's 8, 9, 3, at ten a round: A has 2 left after one, B
    // too; A's twelve pay for two and leave 6, B's twelve for two and leave nothing; A's sixteen pay for
    // the rest.
    assert_eq!(scene.order(), "ABAABBAA");
}

#[test]
fn one_class_alone_is_an_ordinary_queue() {
    let mut scene = queued(&[("A", 3)], &[("A", 5, 7)]);
    assert_eq!(scene.capacity(2), "A1 A2");
    assert_eq!(scene.release("A1"), "A3");
    assert_eq!(scene.release("A2"), "A4");
}

#[test]
fn a_request_that_names_no_class_goes_to_the_default_and_that_is_the_first() {
    let mut scene = queued(&[("A", 10), ("B", 10)], &[]);
    scene.ask("x", "class:unheard-of", 1);
    scene.ask("y", "tenant:t", 1);
    assert_eq!(&*scene.waiting("x").levels[0].flow, "A");
    assert_eq!(&*scene.waiting("y").levels[0].flow, "A");
}

/// If no eligible worker remains, the head gets an error instead of waiting for ever, and no longer blocks the requests
/// behind it.
#[test]
fn a_head_that_no_worker_can_take_any_more_is_rejected_and_blocks_nobody() {
    let worker =
        |name: &str| WorkerChange { name: name.into(), slots: Some(1), ..WorkerChange::default() };
    let mut scene = Scene::with(8, &drr(&[("A", 10)]), |config| {
        config.workers = vec![worker("w0"), worker("w1")];
    });
    let allowed = |id, workers: &[&str]| Submit {
        allow: Some(workers.iter().map(|name| (*name).into()).collect()),
        ..request(id, "class:A")
    };
    assert_eq!(scene.submit(allowed("A1", &["w0"])), "A1");
    assert_eq!(scene.submit(allowed("A2", &["w0"])), "");
    assert_eq!(scene.submit(allowed("A3", &["w0", "w1"])), "", "A2 stands before it");
    let gone = WorkerChange { state: Some(WorkerState::Gone), ..worker("w0") };
    assert_eq!(scene.apply(Event::Worker(gone)), "A2:no_worker A3");
    assert_eq!(scene.submit(allowed("A4", &["w0"])), "A4:no_worker");
    let overloaded = WorkerChange { state: Some(WorkerState::Overloaded), ..worker("w1") };
    assert_eq!(scene.apply(Event::Worker(overloaded)), "");
    assert_eq!(scene.submit(allowed("A5", &["w1"])), "A5:overloaded");
}

/// The page's table of classes: `cached` has a quantum of 2048 and serves the cheapest request first, `uncached` has
/// 512 and is first come, first served. At equal costs the ratio is four to one, and each class keeps its own order.
#[test]
fn the_configuration_of_the_page_gives_four_to_one() {
    let classes = r#"[{"name":"cached","quantum":2048,"queue":"wspt"},{"name":"uncached","quantum":512,"queue":"fcfs"}]"#;
    let mut scene = Scene::new(0, &format!(r#"{{"drr":{{"by":"class","classes":{classes}}}}}"#));
    scene.ask_many("c", 40, "class:cached", 512);
    scene.ask_many("u", 40, "class:uncached", 512);
    scene.ask("c-small", "class:cached", 512 - 64);
    scene.ask("u-small", "class:uncached", 512 - 64);
    scene.capacity(1);
    scene.run(49);
    let order = scene.order();
    assert!(order.starts_with("ccccucccc"), "{order}");
    assert_eq!(order.chars().filter(|c| *c == 'c').count(), 40, "{order}");
    assert_eq!(&*scene.granted()[0], "c-small", "the cheapest first");
    assert_eq!(&*scene.granted()[4], "u1", "first come, first served");
}
