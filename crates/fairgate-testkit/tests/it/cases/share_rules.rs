//! Cases of the rules of share nodes: virtual time, new flows, moments, missed service, and partitions.

use fairgate_core::explain::FlowStanding;

use super::crowd::Crowd;
use super::obleth::{groups, tenants};
use super::scene::{Scene, count};

/// Returns the score, the settled score, virtual time and `new` of a waiting request's flow in the
/// root.
fn standing(scene: &Scene, id: &str) -> (String, String, String, bool) {
    match scene.standing(id) {
        FlowStanding::Share { score, settled, virtual_time, new, .. } => {
            (score.to_string(), settled.to_string(), virtual_time.to_string(), new)
        }
        other => panic!("not in a share node: {other:?}"),
    }
}

fn stands(
    score: &str,
    settled: &str,
    virtual_time: &str,
    new: bool,
) -> (String, String, String, bool) {
    (score.into(), settled.into(), virtual_time.into(), new)
}

/// Equal scores go to the flow whose last grant is longer ago, not to the older request.
#[test]
fn a_tie_goes_to_the_flow_whose_last_grant_is_longer_ago() {
    let mut scene = Scene::new(1, &tenants(""));
    assert_eq!(scene.ask("a1", "tenant:a", 100), "a1");
    scene.ask_many("b", 3, "tenant:b", 100);
    assert_eq!(scene.release("a1"), "b1");
    // b2 has waited from the start and a2 comes now; both stand at 1.
    scene.ask("a2", "tenant:a", 100);
    assert_eq!(scene.release("b1"), "a2");
}

/// Flows that start to wait at virtual time are picked in the order of their arrival.
#[test]
fn those_that_are_new_go_in_the_order_in_which_they_came() {
    let mut scene = Scene::new(0, &tenants(""));
    for name in ["d", "b", "c", "a"] {
        scene.ask_many(name, 3, &format!("tenant:{name}"), 100);
    }
    scene.capacity(1);
    assert_eq!(scene.drain(), "dbcadbcadbca");
}

/// A request with a reported usage of 0 is charged one token, so a client whose requests always
/// fail at once pays.
#[test]
fn what_ends_has_used_one_token_at_least() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask_many("a", 3, "tenant:a", 100);
    assert_eq!(scene.release_using("a1", 0), "a2");
    assert_eq!(standing(&scene, "a3"), stands("1.010", "0.010", "0.010", false));
    let mut crowd = Crowd::new(Scene::new(1, &tenants("")));
    crowd.join_using('f', "tenant:fails", 3, 1, 0);
    crowd.join('b', "tenant:works", 3, 100);
    let order = crowd.run(1010);
    // A hundred ends of one token for each of a hundred tokens.
    assert!(count(&order, 'b').abs_diff(10) <= 1, "{}", count(&order, 'b'));
}

/// a estimates a million tokens and uses 100. The estimate is part of a's score, but not of virtual time. A newcomer
/// starts at a virtual time of really used tokens, and only a waits because of its estimate.
#[test]
fn an_inflated_estimate_delays_its_owner_and_nobody_else() {
    let mut scene = Scene::new(2, &tenants(""));
    scene.ask("a1", "tenant:a", 1_000_000);
    scene.ask_many("b", 9, "tenant:b", 100);
    scene.ask("a2", "tenant:a", 1_000_000);
    assert_eq!(scene.in_flight(), ["a1", "b1"]);
    for turn in 1..=3 {
        assert_eq!(scene.release(&format!("b{turn}")), format!("b{}", turn + 1));
    }
    assert_eq!(standing(&scene, "a2"), stands("10000.000", "0.000", "3.000", false));
    scene.ask("c1", "tenant:c", 100);
    assert_eq!(standing(&scene, "c1"), stands("3.000", "3.000", "3.000", true));
}

/// A steady tenant competes with flows that have a new name for every request. New flows start at virtual time and do
/// not keep it from rising, so virtual time follows the steady tenant, and both sides get a half.
#[test]
fn names_that_are_fresh_with_every_request_do_not_hold_the_steady_one_up() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask_many("s", 100, "tenant:steady", 100);
    for fresh in 0..80 {
        scene.ask(&format!("f{fresh}"), &format!("tenant:fresh{fresh}"), 100);
        scene.run(2);
    }
    let order = scene.order();
    assert!(order[1..].starts_with("fsfsfsfs"), "{order}");
    assert!(count(&order, 's').abs_diff(80) <= 2, "{order}");
}

/// Ten new names wait at any time, so the steady tenant gets one of eleven parts.
#[test]
fn the_steady_one_gets_its_part_of_those_present() {
    let mut scene = Scene::new(1, &tenants("")).without_oracle();
    scene.ask_many("s", 400, "tenant:steady", 100);
    let mut fresh = 0;
    let mut join = |scene: &mut Scene| {
        scene.ask(&format!("f{fresh}"), &format!("tenant:fresh{fresh}"), 100);
        fresh += 1;
    };
    for _ in 0..10 {
        join(&mut scene);
    }
    for _ in 0..2200 {
        if scene.run(1) == "f" {
            join(&mut scene);
        }
    }
    let steady = count(&scene.order(), 's');
    assert!(steady.abs_diff(200) <= 2, "{steady} of 2200");
}

/// a was held while virtual time rose by 10. Its score is lifted by no more than 10, and at most to
/// virtual time.
#[test]
fn who_was_held_keeps_nothing_of_what_it_missed() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask("a1", "tenant:a", 100);
    scene.ask_many("b", 30, "tenant:b", 100);
    scene.ask("a2", "tenant:a", 100);
    assert_eq!(scene.release("a1"), "b1");
    scene.hold("tenant:a");
    scene.run(10);
    assert_eq!(standing(&scene, "a2").0, "1.000");
    scene.capacity(0);
    scene.run(1);
    scene.resume("tenant:a");
    let (score, _, virtual_time, _) = standing(&scene, "a2");
    assert_eq!((score, virtual_time), ("10.000".into(), "10.000".into()));
}

/// a has a cap of one request, and ends one request for every two of b. It is served at its cap and falls behind. When
/// it is ready again, its score is lifted by the rise of virtual time while it was at its cap, minus the rise of its
/// score by its own request. So the service that it got at its cap is not charged a second time.
#[test]
fn who_was_served_at_its_cap_has_not_paid_twice() {
    let policy = r#"{"share":{"by":"tenant","caps":{"a":1}}}"#;
    let mut scene = Scene::new(3, policy);
    scene.ask_many("a", 9, "tenant:a", 300);
    scene.ask_many("b", 30, "tenant:b", 100);
    assert_eq!(scene.in_flight(), ["a1", "b1", "b2"]);
    for turn in 1..=4 {
        assert_eq!(scene.release(&format!("b{turn}")), format!("b{}", turn + 2));
    }
    // a stands at 3 with its request in flight, b at 6 with two.
    assert_eq!(standing(&scene, "a2"), stands("3.000", "0.000", "4.000", false));
    // It stopped being ready at 0. It is below virtual time by 1, which rose by 4: it is lifted by 1 and not by 4.
    assert_eq!(scene.release("a1"), "a2");
    assert_eq!(standing(&scene, "a3").0, "7.000");
}

/// Slots are divided among the groups that are ready or have requests in flight. A held group that only waits has no
/// slots. A group whose last request is in flight still has its slots.
#[test]
fn slots_are_divided_among_those_ready_or_in_flight() {
    let policy = groups(r#""a":300,"b":100,"c":100"#, true);
    let in_flight =
        |scene: &Scene| ["a", "b", "c"].map(|g| scene.in_flight_of(&format!("group:{g}")));
    let mut scene = Scene::new(0, &policy);
    scene.hold("group:b");
    for group in ["a", "b", "c"] {
        scene.ask_many(group, 9, &format!("group:{group}"), 100);
    }
    // Four slots over 300 and 100.
    scene.capacity(4);
    assert_eq!(in_flight(&scene), [3, 0, 1]);
    // Over 300, 100 and 100 a has two; it gives one back when it ends.
    scene.resume("group:b");
    assert_eq!(scene.release("a1"), "b1");
    assert_eq!(in_flight(&scene), [2, 1, 1]);
    // b's others leave. b1 is in flight, so one of the four slots is still b's: a has its two.
    for i in 2..=9 {
        scene.cancel(&format!("b{i}"));
    }
    assert_eq!(scene.release("c1"), "c2", "c is below its slot, a has its two");
    assert_eq!(in_flight(&scene), [2, 1, 1]);
    // And when b1 ends, nobody is in b: three slots are a's.
    assert_eq!(scene.release("b1"), "a4");
    assert_eq!(in_flight(&scene), [3, 0, 1]);
}

/// The tokens of the classes of a share node are in the ratio 4 : 1, whatever the order inside the classes and the real
/// usage of the requests.
#[test]
fn classes_share_by_weight_with_the_cheapest_first_in_one_of_them() {
    let classes = r#"[{"name":"chat","weight":4,"queue":"wspt"},{"name":"batch","weight":1}]"#;
    let scene = Scene::new(2, &format!(r#"{{"share":{{"by":"class","classes":{classes}}}}}"#));
    let mut crowd = Crowd::new(scene);
    crowd.join_using('c', "class:chat", 4, 90, 60);
    crowd.join_using('C', "class:chat", 4, 40, 80);
    crowd.join_using('b', "class:batch", 4, 100, 70);
    crowd.run(1000);
    let (chat, batch) = (crowd.served('c') + crowd.served('C'), crowd.served('b'));
    // Two requests of each in flight, and the errors that end between two grants.
    assert!(chat.abs_diff(4 * batch) <= 2 * (90 + 80) + 4 * 2 * (100 + 30), "{chat} and {batch}");
}
