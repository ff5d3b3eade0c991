//! Cases of the end of a drr class's turn if a worker's slots are the limit, and of quanta that are not shares.

use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::explain::PickRule;
use fairgate_core::units::{Tokens, Weight};

use super::dynamo::{drr, queued};
use super::scene::{Scene, count, request};

/// Returns a change of a configuration that adds workers with these numbers of slots.
fn workers(slots: &[(&str, u64)]) -> impl FnOnce(&mut PoolConfig) {
    let worker = |(name, slots): &(&str, u64)| WorkerChange {
        name: (*name).into(),
        slots: Some(*slots),
        ..WorkerChange::default()
    };
    let list = slots.iter().map(worker).collect();
    |config| config.workers = list
}

/// Ends the oldest requests until this many requests were granted. Returns the letters of the
/// grants.
fn first_grants(scene: &mut Scene, grants: usize) -> String {
    while scene.granted().len() < grants {
        scene.release_oldest();
    }
    scene.order()[..grants].to_string()
}

/// Quanta 2048 and 512 at a cost of 300: A has six or seven requests in a turn, and B one or two. A worker with as many
/// slots as the pool is full after each grant, so no class is ready then. The turn continues when a slot is free.
#[test]
fn a_worker_that_its_own_grant_filled_does_not_end_a_turn() {
    for slots in [1, 4] {
        let mut scene = Scene::with(0, &drr(&[("A", 2048), ("B", 512)]), workers(&[("w", slots)]));
        scene.ask_many("A", 60, "class:A", 300);
        scene.ask_many("B", 60, "class:B", 300);
        scene.capacity(slots);
        let order = first_grants(&mut scene, 50);
        assert_eq!((count(&order, 'A'), count(&order, 'B')), (40, 10), "{slots} slots: {order}");
        // The same order as without workers.
        let mut bare = queued(&[("A", 2048), ("B", 512)], &[("A", 60, 300), ("B", 60, 300)]);
        bare.capacity(slots);
        assert_eq!(order, first_grants(&mut bare, 50));
    }
}

/// The cursor stayed on A, whose next head was not ready after its grant. When a slot is free, A can no longer afford
/// its head. So A's turn is over, and A is visited last.
#[test]
fn a_stay_that_comes_to_nothing_is_visited_last() {
    let classes = [("A", 10), ("B", 10), ("C", 10)];
    let mut scene = Scene::with(1, &drr(&classes), workers(&[("w", 1)])).explaining();
    scene.ask("A1", "class:A", 8);
    scene.ask("A2", "class:A", 3);
    scene.ask("B1", "class:B", 25);
    scene.ask("C1", "class:C", 10);
    assert_eq!(scene.deficits(), [0, 0, 0], "A was empty after A1, so nothing stays");
    assert_eq!(scene.release("A1"), "C1", "the cursor has moved on: B is short, C can pay");
    scene.ask_many("C2-", 2, "class:C", 4);
    assert_eq!(scene.deficits(), [0, 10, 0]);
    // C was empty: the cursor is at A, which pays 3 of 10. Its next head costs 8 and is not ready while w is full.
    scene.ask("A3", "class:A", 8);
    assert_eq!(scene.release("C1"), "A2");
    assert_eq!(scene.why("A2").levels[0].rule, PickRule::Visited);
    assert_eq!(scene.deficits(), [7, 10, 0]);
    // Its turn is over. B earns a second quantum and is still short, C earns one and pays.
    assert_eq!(scene.release("A2"), "C2-1");
    assert_eq!(scene.deficits(), [7, 20, 6]);
    // C stays: 6 covers 4.
    assert_eq!(scene.release("C2-1"), "C2-2");
    assert_eq!(scene.why("C2-2").levels[0].rule, PickRule::Stayed);
    assert_eq!(scene.release("C2-2"), "A3", "the ring begins anew at A, which has 7 and earns 10");
    assert_eq!(scene.release("A3"), "B1");
}

/// The real usage of a request changes nothing in the ring. The quanta are 10 and 10, and A uses half of what its
/// requests cost. A pays its estimates, so it always gets half of B's tokens, as the meter shows.
#[test]
fn who_estimates_too_much_never_gets_it_back() {
    let mut scene = queued(&[("A", 10), ("B", 10)], &[("A", 200, 10), ("B", 200, 10)]);
    scene.capacity(1);
    for _ in 0..100 {
        scene.release_oldest_using(5);
        assert_eq!(scene.deficits(), [0, 0]);
        scene.release_oldest_using(10);
    }
    assert_eq!(scene.order(), format!("{}A", "AB".repeat(100)));
    // A's 500 tokens and the 10 in flight, beside B's 1000.
    let (a, b) = (scene.fairness("A"), scene.fairness("B"));
    assert_eq!((a.got, b.got), (510, 1000));
    assert_eq!(a.due.map(|due| due.tokens), b.due.map(|due| due.tokens));
    assert!(!a.is_within_bound() && !b.is_within_bound(), "{a:?} {b:?}");
}

/// With the cheapest first in A, a cheap newcomer that A's deficit covers costs A the quantum of that visit. Here
/// one comes after every turn: A's head of 16 is never reached with the credit that it was given for it.
#[test]
fn a_cheap_newcomer_that_the_deficit_covers_costs_its_class_a_quantum() {
    let classes = r#"[{"name":"A","quantum":10,"queue":"wspt"},{"name":"B","quantum":10}]"#;
    let mut scene = Scene::new(1, &format!(r#"{{"drr":{{"by":"class","classes":{classes}}}}}"#));
    scene.ask_many("B", 60, "class:B", 10);
    scene.ask_many("A", 60, "class:A", 16);
    for turn in 0..40 {
        scene.ask(&format!("A-cheap{turn}"), "class:A", 1);
        scene.release_oldest();
        scene.release_oldest();
    }
    let (a, b) = (scene.fairness("A"), scene.fairness("B"));
    let due = a.due.expect("shares").tokens;
    assert!(a.got * 10 < due * 8, "A got {} and was due {due}, B got {}", a.got, b.got);
    assert!(!a.is_within_bound(), "{a:?}");
}

/// C's grants come between B's, and leave the cursor at C. When w0 is free the scan begins behind C, at B; A, behind
/// B, is never visited while w0 is open. A share node gives A its third, and drr's meter shows what A was due.
#[test]
fn a_class_whose_worker_is_full_whenever_it_is_visited_waits_for_ever_and_the_meter_says_so() {
    let play = |policy: &str| {
        let mut scene = Scene::with(2, policy, workers(&[("w0", 1), ("w1", 1)]));
        let mut sent = 0;
        let mut ask = |scene: &mut Scene, class: &str, worker: &str| {
            sent += 1;
            scene.submit(Submit {
                cost: Some(Tokens(10)),
                allow: Some(vec![worker.into()]),
                ..request(&format!("{class}{sent}"), &format!("class:{class}"))
            });
        };
        for (class, worker) in [("C", "w1"), ("B", "w0"), ("A", "w0")] {
            ask(&mut scene, class, worker);
            ask(&mut scene, class, worker);
        }
        for _ in 0..200 {
            let ended = scene.in_flight()[0].to_string();
            let before = scene.granted().len();
            scene.release(&ended);
            let granted: Vec<_> = scene.granted()[before..].to_vec();
            for id in granted {
                let worker = if id.starts_with('C') { "w1" } else { "w0" };
                ask(&mut scene, &id[..1], worker);
            }
        }
        scene
    };
    let ring = play(&drr(&[("C", 10), ("B", 10), ("A", 10)]));
    assert_eq!(count(&ring.order(), 'A'), 0, "{}", ring.order());
    let a = ring.fairness("A");
    // At each of B's hundred grants of 10 tokens A was ready too, and due a third.
    assert_eq!((a.got, a.due.map(|due| due.tokens / 100)), (0, Some(3)));
    assert!(!a.is_within_bound(), "{a:?}");

    let class = |name| format!(r#"{{"name":"{name}","weight":10}}"#);
    let classes = ["C", "B", "A"].map(class).join(",");
    let share = play(&format!(r#"{{"share":{{"by":"class","classes":[{classes}]}}}}"#));
    let order = share.order();
    assert!(count(&order, 'A').abs_diff(count(&order, 'B')) <= 1, "{order}");
    assert!(share.fairness("A").is_within_bound());
}

/// A weight event sets a class's quantum at once. The deficit stays the same.
#[test]
fn a_new_quantum_counts_from_the_next_visit_and_leaves_the_deficit() {
    let mut scene = queued(&[("A", 10), ("B", 10)], &[("A", 9, 7), ("B", 9, 7)]);
    assert_eq!(scene.capacity(1), "A1");
    assert_eq!(scene.deficits(), [3, 0]);
    scene.weigh("class:A", 40);
    assert_eq!(scene.deficits(), [3, 0]);
    assert_eq!(scene.release("A1"), "B1", "A's turn was over");
    assert_eq!(scene.run(6), "AAAAAA", "3 + 40 pay for six");
    assert_eq!(scene.deficits(), [1, 3]);
    assert_eq!(scene.fairness("A").weight, Weight::new(40).ok());
}

#[test]
fn a_pick_that_finds_nothing_gives_no_credit() {
    let mut scene = Scene::with(4, &drr(&[("A", 10), ("B", 10)]), workers(&[("w", 1)]));
    assert_eq!(scene.ask("A1", "class:A", 4), "A1");
    scene.ask("A2", "class:A", 4);
    scene.ask("B1", "class:B", 4);
    let before = scene.deficits();
    for _ in 0..100 {
        assert_eq!(scene.apply(Event::Tick), "");
        assert_eq!(scene.deficits(), before);
    }
}
