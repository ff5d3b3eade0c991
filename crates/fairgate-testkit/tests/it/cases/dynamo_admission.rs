//! Cases of admission as in Dynamo's router: workers that are busy for a class, eligible workers, and errors.

use fairgate_core::event::{Event, Pin, Submit, WorkerChange, WorkerState};
use fairgate_core::units::Tokens;

use super::crowd::Crowd;
use super::scene::{Scene, request};

fn worker(name: &str) -> WorkerChange {
    WorkerChange { name: name.into(), ..WorkerChange::default() }
}

/// Creates a pool in which class A has these busy thresholds and class B has none. The worker's batch has ten tokens.
fn thresholds(of_a: &str) -> Scene {
    let policy = format!(
        r#"{{"drr":{{"by":"class","classes":[{{"name":"A","quantum":10,{of_a}}},{{"name":"B","quantum":10}}]}}}}"#
    );
    Scene::with(8, &policy, |config| {
        config.workers = vec![WorkerChange { batch_tokens: Some(Tokens(10)), ..worker("w") }];
    })
}

#[test]
fn a_worker_is_busy_over_the_absolute_threshold_and_not_at_it() {
    let mut scene = thresholds(r#""busy_tokens":4"#);
    assert_eq!(scene.ask("A1", "class:A", 4), "A1");
    assert_eq!(scene.ask("A2", "class:A", 1), "A2", "four is not over four");
    assert_eq!(scene.ask("A3", "class:A", 1), "", "five is");
}

#[test]
fn either_threshold_makes_a_worker_busy() {
    let mut scene = thresholds(r#""busy_tokens":100,"busy_fraction":0.5"#);
    assert_eq!(scene.ask("A1", "class:A", 6), "A1");
    assert_eq!(scene.ask("A2", "class:A", 1), "", "six of ten are over a half");
    let mut scene = thresholds(r#""busy_tokens":2,"busy_fraction":0.5"#);
    assert_eq!(scene.ask("A1", "class:A", 3), "A1");
    assert_eq!(scene.ask("A2", "class:A", 1), "", "three are over two");
}

#[test]
fn a_class_without_a_threshold_does_not_wait_for_prefill() {
    let mut scene = thresholds(r#""busy_tokens":4"#);
    assert_eq!(scene.ask("A1", "class:A", 9), "A1");
    assert_eq!(scene.ask("A2", "class:A", 1), "", "its class calls the worker busy");
    assert_eq!(scene.ask("B1", "class:B", 9), "B1", "this one does not");
}

/// A request queues behind its class's backlog, even if a worker is open for it.
#[test]
fn a_newcomer_joins_the_backlog_of_its_class() {
    let mut scene = Scene::with(
        8,
        r#"{"drr":{"by":"class","classes":[{"name":"A","quantum":10,"busy_tokens":4}]}}"#,
        |config| {
            config.workers = vec![worker("w0"), worker("w1")];
        },
    );
    let pinned = |id, worker: &str| Submit {
        cost: Some(Tokens(9)),
        pin: Some(Pin { worker: worker.into(), rank: None }),
        ..request(id, "class:A")
    };
    assert_eq!(scene.submit(pinned("A1", "w0")), "A1");
    assert_eq!(scene.submit(pinned("A2", "w0")), "", "its worker is busy");
    assert_eq!(scene.submit(pinned("A3", "w1")), "", "w1 is open, but A2 stands before it");
    assert_eq!(scene.apply(Event::FirstToken { id: "A1".into() }), "A2 A3");
}

/// Allow-list, availability, rank bounds and taints leave no eligible worker: `no_worker`. If the only eligible worker
/// is overloaded, the error is `overloaded`.
#[test]
fn filters_come_before_overload() {
    let mut scene = Scene::with(
        8,
        r#"{"drr":{"by":"class","classes":[{"name":"A","quantum":10}]}}"#,
        |config| {
            let zone = WorkerChange {
                ranks: Some(2),
                taints: Some(vec!["zone-a".into()]),
                ..worker("w0")
            };
            config.workers = vec![zone, worker("w1")];
        },
    );
    let allowed =
        |id, name: &str| Submit { allow: Some(vec![name.into()]), ..request(id, "class:A") };
    let on_rank = |id, rank| Submit {
        pin: Some(Pin { worker: "w0".into(), rank: Some(rank) }),
        ..request(id, "class:A")
    };
    let requiring =
        |id, taint: &str| Submit { requires: vec![taint.into()], ..request(id, "class:A") };
    assert_eq!(scene.submit(allowed("A1", "w9")), "A1:no_worker");
    assert_eq!(scene.submit(on_rank("A2", 2)), "A2:no_worker", "ranks are 0 and 1");
    assert_eq!(scene.submit(on_rank("A3", 1)), "A3");
    assert_eq!(scene.submit(requiring("A4", "zone-b")), "A4:no_worker");
    assert_eq!(scene.submit(requiring("A5", "zone-a")), "A5");
    let turned = |name: &str, state| WorkerChange { state: Some(state), ..worker(name) };
    scene.apply(Event::Worker(turned("w0", WorkerState::Overloaded)));
    assert_eq!(scene.submit(requiring("A6", "zone-a")), "A6:overloaded");
    assert_eq!(scene.submit(requiring("A7", "zone-b")), "A7:no_worker", "no taint before overload");
    assert_eq!(scene.submit(on_rank("A8", 2)), "A8:no_worker", "no such rank before overload");
    assert_eq!(scene.ask("A9", "class:A", 1), "A9", "the other worker is up");
    scene.apply(Event::Worker(turned("w1", WorkerState::Drain)));
    assert_eq!(
        scene.submit(allowed("A10", "w1")),
        "A10:no_worker",
        "a worker that drains takes nothing"
    );
    assert_eq!(
        scene.ask("A11", "class:A", 1),
        "A11:overloaded",
        "the only one that is left is overloaded"
    );
}

/// With the page's quanta as weights, the ratio is four to one for requests of a tenth, one and ten quanta in both
/// classes.
#[test]
fn with_share_the_quanta_of_the_page_hold_whatever_the_sizes() {
    let classes =
        r#"[{"name":"cached","weight":2048,"queue":"wspt"},{"name":"uncached","weight":512}]"#;
    let policy = format!(r#"{{"share":{{"by":"class","classes":{classes}}}}}"#);
    let mut crowd = Crowd::new(Scene::new(8, &policy).without_oracle());
    for cost in [205, 2048, 20_480] {
        crowd.join('c', "class:cached", 4, cost);
        crowd.join('u', "class:uncached", 4, cost);
    }
    crowd.run(20_000);
    let (cached, uncached) = (crowd.served('c'), crowd.served('u'));
    let ratio = cached as f64 / uncached as f64;
    assert!((3.92..=4.08).contains(&ratio), "{cached} : {uncached} tokens are {ratio}");
}
