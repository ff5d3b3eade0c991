//! Cases of the bound: no backlogged flow is ever further from its share than its discipline allows. Every scene checks
//! this after every event. These cases reach the bound, with numbers that were computed by hand.

use fairgate_core::Pool;
use fairgate_testkit::workload::{WorkloadShape, generate_answered};

use super::dynamo::drr;
use super::obleth::tenants;
use super::scene::{Scene, lag_out_of_bound};

fn range(least: &str, most: &str) -> (String, String) {
    (least.into(), most.into())
}

/// Creates a pool with two equal tenants and two slots. Each tenant has one request in flight and more requests
/// waiting, those of a first. Each request of b costs 100.
fn one_in_flight_each(cost_of_a: u64) -> Scene {
    let mut scene = Scene::new(2, &tenants(""));
    scene.ask("a1", "tenant:a", cost_of_a);
    scene.ask("b1", "tenant:b", 100);
    for turn in 2..=4 {
        scene.ask(&format!("a{turn}"), "tenant:a", cost_of_a);
    }
    for turn in 2..=60 {
        scene.ask(&format!("b{turn}"), "tenant:b", 100);
    }
    assert_eq!(scene.in_flight(), ["a1", "b1"]);
    scene
}

/// A flow may be behind by its tokens in flight per weight: 1000 tokens at weight 100 are 10 tokens
/// per weight.
#[test]
fn a_tenant_is_behind_by_no_more_than_its_own_estimates_in_flight() {
    let mut scene = one_in_flight_each(1000);
    assert_eq!((scene.lag("a"), scene.bound("a")), ("0.000".into(), range("0.000", "10.000")));
    for turn in 2..=10 {
        assert_eq!(scene.release(&format!("b{}", turn - 1)), format!("b{turn}"));
        assert_eq!(scene.lag("a"), format!("{}.000", turn - 1));
        assert_eq!(scene.bound("a"), range("0.000", "10.000"));
    }
    // Both scores are 10 now, and a's last grant is longer ago. Virtual time rises to b's settled, which is 10 too.
    assert_eq!(scene.release("b10"), "a2");
    assert_eq!((scene.lag("a"), scene.bound("a")), ("10.000".into(), range("0.000", "20.000")));
    assert_eq!((scene.lag("b"), scene.bound("b")), ("0.000".into(), range("-1.000", "0.000")));
}

/// A refund lowers the score below virtual time. The flow is then behind by the refund, and goes first.
#[test]
fn a_refund_is_part_of_the_bound_until_it_is_made_good() {
    let mut scene = one_in_flight_each(1000);
    for turn in 1..=9 {
        scene.release(&format!("b{turn}"));
    }
    assert_eq!(scene.lag("a"), "9.000");
    scene.capacity(0);
    scene.release_using("a1", 100);
    // 900 of its 1000 tokens came back: it has used 1 per weight where the other is at 9.
    assert_eq!((scene.lag("a"), scene.bound("a")), ("8.000".into(), range("-1.000", "9.000")));
    scene.release("b10");
    assert_eq!(scene.capacity(1), "a2");
}

/// Usage beyond an estimate puts a flow ahead, but by no more than that usage.
#[test]
fn a_tenant_is_ahead_by_no_more_than_its_answers_that_just_ended() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask_many("b", 60, "tenant:b", 100);
    scene.ask_many("a", 3, "tenant:a", 100);
    assert_eq!(scene.release("b1"), "a1");
    assert_eq!(scene.release_using("a1", 5000), "b2");
    // a stands at 50, and virtual time where b is, at 1.
    assert_eq!((scene.lag("a"), scene.bound("a")), ("-49.000".into(), range("-50.000", "0.000")));
    for turn in 2..=50 {
        scene.release(&format!("b{turn}"));
    }
    // b has had as much, and a's last grant is longer ago.
    assert_eq!(scene.in_flight(), ["a2"]);
    assert_eq!((scene.lag("a"), scene.bound("a")), ("0.000".into(), range("0.000", "1.000")));
}

/// A flow that started to wait at virtual time and has had no grant does not keep virtual time from rising. The overrun
/// of a flow that was alone may raise virtual time above it. Its bound includes this distance, and it goes first until
/// it is level.
#[test]
fn a_new_tenant_may_be_passed_by_virtual_time_and_then_goes_first() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask_many("a", 3, "tenant:a", 100);
    scene.ask_many("b", 60, "tenant:b", 100);
    assert_eq!(scene.release_using("a1", 5000), "b1");
    assert_eq!((scene.lag("a"), scene.bound("a")), ("0.000".into(), range("-50.000", "0.000")));
    assert_eq!((scene.lag("b"), scene.bound("b")), ("50.000".into(), range("0.000", "50.000")));
    assert_eq!(scene.run(50), format!("{}a", "b".repeat(49)));
}

#[test]
fn the_lag_of_a_held_tenant_stands_still_until_it_resumes() {
    let mut scene = one_in_flight_each(300);
    scene.release("b1");
    scene.release("b2");
    let before = (scene.lag("a"), scene.bound("a"));
    assert_eq!(before, ("2.000".into(), range("0.000", "3.000")));
    scene.hold("tenant:a");
    for turn in 3..=50 {
        scene.release(&format!("b{turn}"));
        assert_eq!((scene.lag("a"), scene.bound("a")), before);
    }
    // It was ahead of virtual time by one of its three tokens per weight in flight, which it need not wait for again.
    scene.resume("tenant:a");
    assert_eq!((scene.lag("a"), scene.bound("a")), ("3.000".into(), range("0.000", "3.000")));
}

#[test]
fn a_new_weight_keeps_what_is_settled_and_counts_what_is_in_flight_anew() {
    let mut scene = one_in_flight_each(1000);
    for turn in 1..=5 {
        scene.release(&format!("b{turn}"));
    }
    assert_eq!((scene.lag("a"), scene.bound("a")), ("5.000".into(), range("0.000", "10.000")));
    // 1000 tokens in flight are 2 at weight 500. The score fell by 8, which is what keeps a behind.
    scene.weigh("tenant:a", 500);
    assert_eq!((scene.lag("a"), scene.bound("a")), ("5.000".into(), range("0.000", "10.000")));
    // With the next rise of virtual time that is made good: it goes first.
    assert_eq!(scene.release("b6"), "a2");
    scene.release_using("a1", 1000);
    // What was settled, 0, stays; the 1000 count at the new weight: 2.
    assert_eq!(scene.lag("a"), "3.000");
}

/// In a ring the lag is the deficit in rounds. It is at most (320 + 128 − 1)/128 rounds, for a head of 320 and a
/// quantum of 128.
#[test]
fn a_class_is_behind_by_less_than_its_head_and_a_quantum() {
    let classes = r#"[{"name":"a","quantum":128},{"name":"b","quantum":16}]"#;
    let mut scene = Scene::new(1, &format!(r#"{{"drr":{{"by":"class","classes":{classes}}}}}"#));
    scene.ask("b1", "class:b", 16);
    scene.ask_many("b2-", 9, "class:b", 16);
    scene.ask_many("a", 3, "class:a", 320);
    assert_eq!((scene.lag("a"), scene.bound("a")), ("0.000".into(), range("0.000", "3.492")));
    assert_eq!(scene.run(1), "b");
    assert_eq!((scene.lag("a"), scene.bound("a")), ("1.000".into(), range("0.000", "3.492")));
    assert_eq!(scene.run(1), "b");
    assert_eq!((scene.lag("a"), scene.bound("a")), ("2.000".into(), range("0.000", "3.492")));
    // The third quantum covers its head, and leaves 64 of 384.
    assert_eq!(scene.run(1), "a");
    assert_eq!((scene.lag("a"), scene.bound("a")), ("0.500".into(), range("0.000", "3.492")));
}

/// The real usage of a request changes no deficit, because a request pays its cost. The meter counts the real usage.
#[test]
fn an_overrun_is_no_debt_of_rounds_and_a_refund_no_credit() {
    let mut scene = Scene::new(1, &drr(&[("a", 100), ("b", 50)]));
    scene.ask_many("a", 9, "class:a", 100);
    scene.ask_many("b", 30, "class:b", 50);
    assert_eq!(scene.in_flight(), ["a1"]);
    assert_eq!(scene.release_using("a1", 400), "b1");
    assert_eq!((scene.lag("a"), scene.bound("a").0), ("0.000".into(), "0.000".into()));
    assert_eq!(scene.fairness("a").got, 400);
    assert_eq!(scene.release_using("b1", 0), "a2");
    assert_eq!(scene.fairness("b").got, 1, "what ends used one token at least");
    assert_eq!(scene.run(4), "baba");
}

/// Runs tenants with all kinds of events. They use no tokens, half, all or three times their estimates. They are held,
/// capped, cancelled and get other weights, and the capacity changes. Each `wheel` has its own period, so that the
/// events meet in many orders.
fn everything_happens(policy: &str, steps: u64) {
    let mut scene = Scene::new(3, policy);
    let names = ["a", "b", "c", "d"];
    for step in 0..steps {
        let wheel =
            |pace: u64, length: usize| usize::try_from(step / pace).expect("few steps") % length;
        let name = names[wheel(1, 4)];
        let who = format!("tenant:{name} class:{name} group:g{} key:k{}", wheel(3, 2), wheel(5, 3));
        let cost = [1, 700, 30, 4096, 100][wheel(1, 5)];
        if scene.pool.waiting() < 30 {
            scene.ask(&format!("{name}{step}"), &who, cost);
        }
        let flow = format!("tenant:{}", names[wheel(7, 4)]);
        let class = format!("class:{}", names[wheel(7, 4)]);
        match wheel(1, 23) {
            2 => scene.hold(&flow),
            9 => scene.resume(&flow),
            4 => scene.weigh(&flow, [1, 1000, 100, 7][wheel(23, 4)]),
            5 => scene.weigh(&class, [1, 1000, 100, 7][wheel(23, 4)]),
            6 => scene.cap(&flow, [Some(1), None, Some(0), Some(2)][wheel(23, 4)]),
            11 => scene.capacity([0, 5, 1, 3][wheel(23, 4)]),
            13 => scene.hold(&class),
            17 => scene.resume(&class),
            19 => scene.cancel(&format!("{name}{}", step.saturating_sub(12))),
            _ => String::new(),
        };
        if wheel(1, 7) < 5 && !scene.in_flight().is_empty() {
            let in_flight = scene.in_flight();
            let id = in_flight[wheel(2, in_flight.len())].to_string();
            let used = [0, cost / 2, cost, 3 * cost, 9999][wheel(4, 5)];
            match wheel(1, 11) {
                0 => scene.cancel(&id),
                1 => scene.release(&id),
                _ => scene.release_using(&id, used),
            };
        }
    }
    assert!(scene.granted().len() > 200, "only {} grants", scene.granted().len());
}

#[test]
fn the_bound_of_share_holds_whatever_happens() {
    everything_happens(&tenants(r#""a":500,"b":50"#), 1500);
    everything_happens(r#"{"share":{"by":"tenant","default_cap":2}}"#, 1500);
    let nested = r#"{"share":{"by":"group","inside":{"share":{"by":"tenant","inside":{"share":{"by":"key"}}}}}}"#;
    everything_happens(nested, 1500);
}

#[test]
fn the_bound_of_drr_holds_whatever_happens() {
    let class = |name: &str, quantum: u64| format!(r#"{{"name":"{name}","quantum":{quantum}}}"#);
    let classes = [class("a", 500), class("b", 50), class("c", 1), class("d", 2000)].join(",");
    let drr = format!(r#"{{"drr":{{"by":"class","classes":[{classes}]}}}}"#);
    everything_happens(&drr, 1500);
    let nested = format!(r#"{{"share":{{"by":"group","inside":{drr}}}}}"#);
    everything_happens(&nested, 1500);
}

#[test]
fn the_bound_holds_on_random_journals() {
    for (name, shape) in WorkloadShape::quick() {
        for seed in 1000..1030 {
            let (config, events) = generate_answered(&shape, seed);
            let mut pool = Pool::new(config);
            for (step, (at, event)) in events.into_iter().enumerate() {
                pool.apply(at, event, &mut Vec::new()).expect("time goes on");
                assert_eq!(lag_out_of_bound(&pool), None, "{name}, seed {seed}, step {step}");
            }
        }
    }
}
