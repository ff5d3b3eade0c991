//! Worked examples of the obleth page on deficit round robin, and further cases of obleth.

use fairgate_core::explain::FlowStanding;
use fairgate_core::units::Micros;

use super::crowd::Crowd;
use super::scene::{Scene, count, longest_run};

/// Returns a share policy by group, with weights such as `"prod":500,"dev":50`.
pub(crate) fn groups(weights: &str, partition: bool) -> String {
    format!(r#"{{"share":{{"by":"group","weights":{{{weights}}},"partition":{partition}}}}}"#)
}

/// Returns a share policy by tenant, with these weights.
pub(crate) fn tenants(weights: &str) -> String {
    format!(r#"{{"share":{{"by":"tenant","weights":{{{weights}}}}}}}"#)
}

/// Returns the number of requests of each group in flight, if all groups have large backlogs in a partitioned pool of
/// this many slots.
fn in_flight(slots: usize, weights: &[u64]) -> Vec<usize> {
    let name = |i: usize| char::from(b'a' + u8::try_from(i).expect("a few groups"));
    let listed: Vec<String> =
        weights.iter().enumerate().map(|(i, w)| format!(r#""{}":{w}"#, name(i))).collect();
    let mut scene = Scene::new(0, &groups(&listed.join(","), true));
    for i in 0..weights.len() {
        let who = format!("group:{}", name(i));
        scene.ask_many(&name(i).to_string(), slots as u64, &who, 1);
    }
    scene.capacity(slots as u64);
    assert_eq!(scene.in_flight().len(), slots);
    (0..weights.len()).map(|i| scene.in_flight_of(&format!("group:{}", name(i)))).collect()
}

/// The page's worked example: floor(8 · 500/550) = 7, and floor(8 · 50/550) = 0, which is raised to
/// 1.
#[test]
fn eight_slots_over_500_and_50_are_seven_and_one() {
    let policy = groups(r#""prod":500,"dev":50"#, true);
    let mut scene = Scene::new(0, &policy);
    scene.ask_many("d", 10, "group:dev", 100);
    scene.ask_many("p", 10, "group:prod", 100);
    scene.capacity(8);
    assert_eq!((scene.in_flight_of("group:prod"), scene.in_flight_of("group:dev")), (7, 1));
}

#[test]
fn slots_are_filled_as_they_are_apportioned() {
    assert_eq!(in_flight(8, &[500, 50]), [7, 1]);
    assert_eq!(in_flight(8, &[100, 100]), [4, 4]);
    assert_eq!(in_flight(10, &[300, 100]), [8, 2]);
    assert_eq!(in_flight(4, &[1000, 1]), [3, 1]);
    assert_eq!(in_flight(4, &[1000, 1, 1, 1]), [1, 1, 1, 1]);
    assert_eq!(in_flight(8, &[500, 50, 100]), [6, 1, 1]);
    assert_eq!(in_flight(16, &[500, 50, 100]), [12, 1, 3]);
    assert_eq!(in_flight(32, &[500, 50, 100]), [25, 2, 5]);
    assert_eq!(in_flight(64, &[500, 50, 100]), [49, 5, 10]);
    assert_eq!(in_flight(5, &[9, 19, 22]), [1, 2, 2]);
}

/// The page's formula: share_score = served_tokens / weight.
#[test]
fn a_thousand_tokens_are_a_score_of_2_at_weight_500_and_of_20_at_weight_50() {
    let mut scene = Scene::new(2, &tenants(r#""chat":500,"api":50"#));
    scene.ask("c1", "tenant:chat", 1000);
    scene.ask("a1", "tenant:api", 1000);
    assert_eq!(scene.in_flight(), ["c1", "a1"]);
    scene.ask("c2", "tenant:chat", 1);
    scene.ask("a2", "tenant:api", 1);
    let scores = |scene: &Scene| {
        ["c2", "a2"].map(|id| match scene.standing(id) {
            FlowStanding::Share { score, settled, .. } => (score.to_string(), settled.to_string()),
            other => panic!("{other:?}"),
        })
    };
    let pair = |score: &str, settled: &str| (score.to_string(), settled.to_string());
    // In flight they count in the score; ended, in what is settled.
    assert_eq!(scores(&scene), [pair("2.000", "0.000"), pair("20.000", "0.000")]);
    scene.capacity(0);
    scene.release_using("c1", 1000);
    scene.release_using("a1", 1000);
    assert_eq!(scores(&scene), [pair("2.000", "2.000"), pair("20.000", "20.000")]);
    // Lower means more behind, and admitted next.
    assert_eq!(scene.capacity(1), "c2");
}

#[test]
fn a_tenant_of_weight_500_gets_ten_grants_for_each_of_weight_50() {
    let mut crowd = Crowd::new(Scene::new(1, &tenants(r#""b":500,"s":50"#)));
    crowd.join('s', "tenant:s", 3, 100);
    crowd.join('b', "tenant:b", 3, 100);
    let order = crowd.run(220);
    assert_eq!((count(&order, 'b'), count(&order, 's')), (200, 20));
    assert_eq!(longest_run(&order, 'b'), 10);
}

/// Every tenant with a weight is served. With a weight of 1 beside 1000, it gets about one of 1001 grants.
#[test]
fn the_lightest_tenant_is_never_starved() {
    let scene = Scene::new(1, &tenants(r#""h":1000,"l":1"#)).without_oracle();
    let mut crowd = Crowd::new(scene);
    crowd.join('h', "tenant:h", 3, 1);
    crowd.join('l', "tenant:l", 3, 1);
    let order = crowd.run(10 * 1001);
    assert!((10..=11).contains(&count(&order, 'l')), "{}", count(&order, 'l'));
    assert!(longest_run(&order, 'h') <= 1001, "{}", longest_run(&order, 'h'));
}

/// Idle tenants save up nothing. They return at the present virtual time.
#[test]
fn an_idle_tenant_comes_back_at_the_height_of_the_others() {
    let mut crowd = Crowd::new(Scene::new(1, &tenants("")));
    crowd.scene.ask("idle", "tenant:i", 100);
    crowd.join('b', "tenant:b", 3, 100);
    crowd.scene.release("idle");
    crowd.run(500);
    crowd.join('i', "tenant:i", 3, 100);
    // It is one flight behind, no more; from there on they take turns, up to a tie.
    let order = crowd.run(100);
    assert!(order.starts_with("ib"), "{order}");
    assert!(longest_run(&order, 'i') <= 2 && longest_run(&order, 'b') <= 2, "{order}");
    assert!((50..=51).contains(&count(&order, 'i')), "{order}");
}

/// The sixth step of the page's scheduler loop.
#[test]
fn a_grant_after_a_longer_wait_than_the_brownout_is_marked() {
    let mut scene = Scene::with(1, &tenants(""), |config| {
        config.brownout_wait = Some(Micros(750_000));
    });
    scene.ask_many("r", 3, "tenant:t", 1);
    scene.at(750_000).release("r1");
    scene.at(750_001).release("r2");
    let marks = ["r1", "r2", "r3"].map(|id| scene.grant(id).brownout);
    assert_eq!(marks, [Some(false), Some(false), Some(true)]);
    assert_eq!(scene.grant("r3").waited, Micros(750_001));
}

/// The proof of obleth: `api` has a large backlog and `chatbot` joins, both with 32 clients in closed loops, on eight
/// slots. There `chatbot` needs to get only twice as much. With weights of 10 : 1 it should get ten times as much. By
/// weight, neither is ahead or behind by more than its requests in flight, 8 · 150 tokens.
#[test]
fn the_heavier_group_gets_ten_times_the_tokens_after_it_joins_a_flood() {
    let policy = groups(r#""chatbot":500,"api":50"#, false);
    let mut crowd = Crowd::new(Scene::new(8, &policy).without_oracle());
    crowd.join('a', "group:api", 32, 150);
    crowd.run(1000);
    crowd.join('c', "group:chatbot", 32, 150);
    let before = crowd.served('a');
    crowd.run(4400);
    let (chatbot, api) = (crowd.served('c'), crowd.served('a') - before);
    let in_flight = 8 * 150;
    assert!(chatbot.abs_diff(10 * api) <= 2 * (in_flight + 10 * in_flight), "{chatbot} and {api}");
    assert!(chatbot >= 9 * api && api >= chatbot / 11, "{chatbot} and {api}");
}

/// The same in a partitioned pool, which divides slots and not tokens. The slots are seven to one, and all answers are
/// equal.
#[test]
fn in_a_partitioned_pool_it_gets_seven_slots_of_eight() {
    let policy = groups(r#""chatbot":500,"api":50"#, true);
    let mut crowd = Crowd::new(Scene::new(8, &policy).without_oracle());
    crowd.join('a', "group:api", 32, 150);
    crowd.run(1000);
    crowd.join('c', "group:chatbot", 32, 150);
    // The first seven slots that are freed.
    assert_eq!(crowd.run(7), "ccccccc");
    let order = crowd.run(800);
    assert_eq!((count(&order, 'c'), count(&order, 'a')), (700, 100));
}

/// Creates a pool of eight slots with groups of the weights 500 and 50. The big group holds one
/// slot, and the small group has a large backlog.
fn lent() -> Scene {
    let mut scene = Scene::new(8, &groups(r#""big":500,"small":50"#, true));
    assert_eq!(scene.ask("b1", "group:big", 100), "b1");
    scene.ask_many("s", 10, "group:small", 100);
    scene
}

#[test]
fn slots_that_a_group_does_not_want_are_lent() {
    let scene = lent();
    assert_eq!((scene.in_flight_of("group:big"), scene.in_flight_of("group:small")), (1, 7));
}

#[test]
fn the_lenders_next_request_gets_the_first_slot_that_is_freed() {
    let mut scene = lent();
    assert_eq!(
        scene.ask("b2", "group:big", 100),
        "",
        "no slot is taken back from what is in flight"
    );
    assert_eq!(scene.release("s1"), "b2");
    scene.ask_many("b3-", 6, "group:big", 100);
    // So does each further one, until it has its seven.
    assert_eq!(scene.run(1), "b", "b1 ended");
    assert_eq!(scene.run(5), "bbbbb", "five of small's");
    assert_eq!((scene.in_flight_of("group:big"), scene.in_flight_of("group:small")), (7, 1));
    assert_eq!(scene.run(1), "s", "the last of the lent: one slot is small's own");
}

#[test]
fn an_abandoned_waiter_is_not_charged() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask("a1", "tenant:a", 100);
    scene.ask("a2", "tenant:a", 1_000_000);
    scene.ask("a3", "tenant:a", 100);
    scene.ask("b1", "tenant:b", 150);
    let before = scene.standing("a3");
    assert_eq!(scene.cancel("a2"), "");
    assert_eq!(scene.standing("a3"), before);
    // Nobody notices that it was there: a stands at 100, b at 0, then b at 150.
    assert_eq!(scene.release("a1"), "b1");
    assert_eq!(scene.release("b1"), "a3");
}

#[test]
fn an_abandoned_request_gives_its_slot_back_once() {
    let mut scene = Scene::new(2, &tenants(""));
    scene.ask_many("a", 9, "tenant:a", 100);
    assert_eq!(scene.in_flight(), ["a1", "a2"]);
    // A waiter had no slot to give back, however often it is said to be gone.
    assert_eq!(scene.cancel("a9"), "");
    assert_eq!(scene.cancel("a9"), "");
    assert_eq!(scene.release("a9"), "");
    assert_eq!(scene.pool.in_flight(), 2);
    // A holder had one, and gives it back once.
    assert_eq!(scene.cancel("a1"), "a3");
    assert_eq!(scene.cancel("a1"), "");
    assert_eq!(scene.release_using("a1", 5), "");
    assert_eq!(scene.pool.in_flight(), 2);
}

#[test]
fn a_shrunk_pool_keeps_its_permits_and_a_grown_one_wakes_waiters() {
    let mut scene = Scene::new(8, &tenants(""));
    scene.ask_many("r", 20, "tenant:t", 1);
    assert_eq!(scene.pool.in_flight(), 8);
    assert_eq!(scene.capacity(3), "");
    assert_eq!(scene.pool.in_flight(), 8, "nothing in flight is called back");
    assert_eq!(scene.run(5), "", "until fewer are in flight than may be, nobody is granted");
    assert_eq!(scene.pool.in_flight(), 3);
    assert_eq!(scene.release_oldest(), "r9");
    assert_eq!(scene.capacity(6), "r10 r11 r12");
}

#[test]
fn of_eighty_requests_no_more_than_five_are_in_flight_at_once() {
    let mut scene = Scene::new(5, &tenants(""));
    let mut most = 0;
    // Four gateways of twenty requests each; an end comes after every third.
    for i in 0..20 {
        for gateway in ["g0", "g1", "g2", "g3"] {
            scene.ask(&format!("{gateway}-{i}"), &format!("tenant:{gateway}"), 1 + i % 7);
            most = most.max(scene.pool.in_flight());
        }
        if i % 3 == 0 {
            scene.release_oldest();
        }
        most = most.max(scene.pool.in_flight());
    }
    while scene.pool.in_flight() > 0 {
        scene.release_oldest();
        most = most.max(scene.pool.in_flight());
    }
    assert_eq!((most, scene.granted().len(), scene.pool.waiting()), (5, 80, 0));
}
