//! Known weaknesses of obleth's decisions. Each case shows that Fairgate does not have the
//! weakness.

use std::sync::Arc;

use super::crowd::Crowd;
use super::obleth::tenants;
use super::scene::{Scene, longest_run};

/// The scheduler of obleth keeps the estimate for ever. Here the requests of `u` and `o` have estimates of 100 and
/// equal weights, but those of u really use 10 tokens and those of o 1000. In the end the used tokens are equal, except
/// for one request in flight of each.
#[test]
fn settlement_reaches_the_scheduler() {
    let mut crowd = Crowd::new(Scene::new(1, &tenants("")));
    crowd.join_using('u', "tenant:u", 3, 100, 10);
    crowd.join_using('o', "tenant:o", 3, 100, 1000);
    for _ in 0..1010 {
        crowd.end_oldest();
        let (under, over) = (crowd.served('u'), crowd.served('o'));
        assert!(under.abs_diff(over) <= 1000 + 100, "{under} and {over} tokens");
    }
    assert_eq!((crowd.served('u'), crowd.served('o')), (10_000, 10_000));
}

/// In obleth a returning tenant starts from a number of raw tokens. A tenant of weight 500 that joins a tenant of
/// weight 50 that ran alone takes about 9000 grants in a row there. Here it starts at the virtual time of the other.
/// The other has `capacity` requests of 100 tokens in flight, each 2 tokens per weight, and the joining tenant rises by
/// 0.2 per grant. So both are level after ten grants for each request in flight.
#[test]
fn a_joiner_is_level_after_what_it_met_in_flight() {
    for capacity in [1, 2, 8] {
        let scene = Scene::new(capacity, &tenants(r#""loner":50,"joiner":500"#)).without_oracle();
        let mut crowd = Crowd::new(scene);
        crowd.join('l', "tenant:loner", 12, 100);
        crowd.run(10_000);
        crowd.join('j', "tenant:joiner", 12, 100);
        let order = crowd.run(500);
        let bound = 10 * usize::try_from(capacity).unwrap();
        let run = longest_run(&order, 'j');
        assert!(run <= bound, "capacity {capacity}: {run} in a row");
        if capacity == 1 {
            assert_eq!(run, 10);
        }
    }
}

/// A light flow that joins a heavy one has no debt from the time before it joined either.
#[test]
fn a_light_joiner_waits_for_no_more_than_its_weight_says() {
    let mut crowd = Crowd::new(Scene::new(1, &tenants(r#""loner":500,"joiner":50"#)));
    crowd.join('l', "tenant:loner", 3, 100);
    crowd.run(300);
    crowd.join('j', "tenant:joiner", 3, 100);
    let order = crowd.run(111);
    assert!(order.starts_with('j'), "{order}");
    assert_eq!(longest_run(&order, 'l'), 10);
    assert_eq!(longest_run(&order, 'j'), 1);
}

/// Forty flows with the same score are served first come, first served, whatever the order of their names.
#[test]
fn ties_go_to_who_came_first_whatever_the_names() {
    for policy in [tenants(""), r#"{"load":{"by":"tenant"}}"#.to_string()] {
        let orders: Vec<_> = [1, 3, 7, 11, 13, 17, 39]
            .map(|step| {
                let mut scene = Scene::new(0, &policy);
                for i in 0..40 {
                    // Each step is coprime to 40, so the names are the same forty in another order.
                    let who = format!("tenant:t{}", i * step % 40);
                    scene.ask(&format!("first{i:02}"), &who, 5);
                }
                scene.capacity(4);
                scene.drain();
                scene.granted().to_vec()
            })
            .into();
        let came: Vec<Arc<str>> = (0..40).map(|i| format!("first{i:02}").into()).collect();
        assert!(orders.iter().all(|order| *order == came), "{policy}");
    }
}

/// Renaming flows changes no decision if the names are not configured, with any costs, refunds and holds.
#[test]
fn renamed_flows_get_the_same_decisions() {
    let policy = r#"{"share":{"by":"group","inside":{"load":{"by":"agent","inside":{"share":{"by":"tenant"}}}}}}"#;
    let play = |names: [&str; 3]| {
        let mut scene = Scene::new(3, policy);
        for i in 0..60_usize {
            let [group, agent, tenant] = [names[i % 3], names[i / 3 % 3], names[i * i % 3]];
            let who = format!("group:{group} agent:{agent} tenant:{tenant}");
            scene.ask(&format!("r{i:02}"), &who, 1 + (i as u64 * 37) % 50);
            match i % 10 {
                4 => scene.hold(&format!("group:{}", names[1])),
                7 => scene.resume(&format!("group:{}", names[1])),
                9 => scene.release_oldest_using(17),
                _ => String::new(),
            };
        }
        scene.drain();
        scene.granted().to_vec()
    };
    let first = play(["a", "b", "c"]);
    assert_eq!(first.len(), 60);
    for names in [["c", "b", "a"], ["b", "c", "a"], ["zebra", "", "Ω"]] {
        assert_eq!(play(names), first, "{names:?}");
    }
}

#[test]
fn the_queue_has_a_length_and_a_refusal_says_it() {
    let mut scene = Scene::with(1, &tenants(""), |config| config.max_queue = Some(3));
    scene.ask_many("r", 4, "tenant:t", 1);
    assert_eq!((scene.pool.in_flight(), scene.pool.waiting()), (1, 3));
    assert_eq!(scene.ask("r5", "tenant:t", 1), "r5:queue_full");
    let limit = scene.last_refusal().limit.as_ref().expect("a limit");
    assert_eq!((limit.class.as_deref(), limit.current, limit.limit), (None, 3, 3));
    // Room again, and it is taken.
    assert_eq!(scene.release("r1"), "r2");
    assert_eq!(scene.ask("r5", "tenant:t", 1), "");
    assert_eq!(scene.pool.waiting(), 3);
}

#[test]
fn a_pool_without_a_queue_takes_what_need_not_wait() {
    let mut scene = Scene::with(1, &tenants(""), |config| config.max_queue = Some(0));
    assert_eq!(scene.ask("r1", "tenant:t", 1), "r1");
    assert_eq!(scene.ask("r2", "tenant:t", 1), "r2:queue_full");
    assert_eq!(scene.release("r1"), "");
    assert_eq!(scene.ask("r2", "tenant:t", 1), "r2");
}
