//! Cases in which a tenant tries, or an operator's action would allow, to get more than a share. None of them succeeds.

use fairgate_core::event::Submit;

use super::crowd::Crowd;
use super::dynamo::drr;
use super::obleth::{groups, tenants};
use super::scene::{Scene, count, longest_run, request};

/// Returns a drr policy of two classes, each with a quantum of 1000 tokens.
fn two_classes() -> String {
    drr(&[("a", 1000), ("b", 1000)])
}

/// Returns the greatest lead of `a` over the honest tenant `b` in really used tokens, and how far `a` is behind at the
/// end. Both always have requests waiting, which use 100 tokens each. b states a cost of 100, and a states `cost`.
fn gain_of_a_liar(policy: &str, capacity: u64, cost: u64) -> (i128, i128) {
    let mut crowd = Crowd::new(Scene::new(capacity, policy));
    crowd.join_using('a', "tenant:a class:a", 12, cost, 100);
    crowd.join_using('b', "tenant:b class:b", 12, 100, 100);
    let mut most = 0;
    let ahead = |crowd: &Crowd| i128::from(crowd.served('a')) - i128::from(crowd.served('b'));
    for _ in 0..600 {
        crowd.end_oldest();
        most = most.max(ahead(&crowd));
    }
    (most, -ahead(&crowd))
}

/// b is behind by at most its estimates in flight, and a is ahead by at most its requests that just ended. Both are
/// `capacity` requests.
#[test]
fn an_inflated_estimate_gains_nothing_under_share() {
    for capacity in [1, 4, 8] {
        for cost in [200, 1000, 1_000_000] {
            let (most, behind) = gain_of_a_liar(&tenants(""), capacity, cost);
            let bound = 2 * i128::from(capacity) * 100;
            assert!(most <= bound, "×{cost} at capacity {capacity}: {most} ahead");
            assert!(behind >= -bound, "×{cost} at capacity {capacity}: {behind} behind");
        }
    }
}

/// b has earned as much credit as a, except for one quantum. It keeps less than the cost of its head plus a quantum of
/// this credit, and has requests in flight.
#[test]
fn an_inflated_estimate_gains_nothing_under_drr() {
    for capacity in [1, 4, 8] {
        for cost in [200, 1000, 1_000_000] {
            let (most, _) = gain_of_a_liar(&two_classes(), capacity, cost);
            let bound = 1000 + (100 + 1000) + i128::from(capacity) * 100;
            assert!(most <= bound, "×{cost} at capacity {capacity}: {most} ahead");
        }
    }
}

/// Understated tokens are charged when the real usage is known. Understating helps only for the requests in flight, and
/// only until they end.
#[test]
fn an_understated_estimate_gains_no_more_than_what_is_in_flight() {
    for capacity in [1, 4, 8] {
        let in_flight = i128::from(capacity) * 100;
        let (most, behind) = gain_of_a_liar(&tenants(""), capacity, 1);
        assert!(most <= 2 * in_flight, "share, capacity {capacity}: {most} ahead");
        assert!(behind >= -2 * in_flight, "share, capacity {capacity}: {behind} behind");
    }
}

/// In drr, as on its page, a request pays its cost. Understated tokens are never charged, and overstated tokens are
/// never given back. Identity and estimates must therefore not come from the client in a drr node.
#[test]
fn in_drr_an_understated_estimate_is_had_for_nothing_and_an_overstated_one_is_lost() {
    let (most, _) = gain_of_a_liar(&two_classes(), 1, 1);
    assert!(most > 50_000, "{most} ahead");
    let (_, behind) = gain_of_a_liar(&two_classes(), 1, 1000);
    assert!(behind > 45_000, "{behind} behind");
}

/// Creates a scene in which `a` has one request of 10 000 tokens in flight and no requests waiting. Meanwhile `b` is
/// served `served` requests of 100 tokens.
fn idling(served: usize) -> Crowd {
    let mut crowd = Crowd::new(Scene::new(2, &tenants("")));
    crowd.scene.ask("a-estimate", "tenant:a", 10_000);
    crowd.join('b', "tenant:b", 3, 100);
    for _ in 0..served {
        let in_flight = crowd.scene.in_flight();
        let of_b = in_flight.into_iter().find(|id| id.starts_with('b'));
        let id = of_b.expect("one of b's is in flight").to_string();
        crowd.happen(|scene| {
            scene.release(&id);
        });
    }
    crowd
}

/// b then has a score of 200 tokens per weight, and a would have 0 after the refund of its 10 000 tokens. The
/// difference must not be a credit of 20 000 tokens.
#[test]
fn a_refund_that_comes_to_an_idle_tenant_banks_nothing() {
    let mut crowd = idling(200);
    crowd.scene.release_using("a-estimate", 0);
    crowd.join('a', "tenant:a", 3, 100);
    let order = crowd.run(60);
    assert!(longest_run(&order, 'a') <= 3, "{order}");
    assert!((29..=32).contains(&count(&order, 'a')), "{order}");
}

/// The tenant returns before the refund. Its requests in flight from before its pause no longer count.
#[test]
fn a_refund_that_comes_after_the_pause_banks_nothing() {
    let mut crowd = idling(200);
    crowd.join('a', "tenant:a", 3, 100);
    crowd.scene.release_using("a-estimate", 0);
    let order = crowd.run(60);
    assert!(longest_run(&order, 'a') <= 3, "{order}");
    assert!((29..=32).contains(&count(&order, 'a')), "{order}");
}

/// The greatest effect of a refund. A refund counts if the tenant's own estimate kept its score above virtual time. The
/// tenant is then behind by the tokens that the others got meanwhile, but never by more than that estimate of 10 000
/// tokens.
#[test]
fn a_refund_gives_back_no_more_than_was_estimated() {
    for (served, most) in [(50, 50), (99, 99)] {
        let mut crowd = idling(served);
        crowd.join('a', "tenant:a", 3, 100);
        crowd.happen(|scene| {
            scene.release_using("a-estimate", 0);
        });
        let order = crowd.run(300);
        assert!(longest_run(&order, 'a') <= most + 2, "{served}: {order}");
        assert!(longest_run(&order[most + 2..], 'a') <= 2, "{served}: {order}");
    }
}

/// Usage beyond the estimate is charged whenever it becomes known.
#[test]
fn an_overrun_that_comes_after_the_pause_is_paid() {
    let mut crowd = idling(200);
    crowd.join('a', "tenant:a", 3, 100);
    crowd.scene.release_using("a-estimate", 12_000);
    // 2000 tokens over its estimate are twenty turns of b's.
    let order = crowd.run(60);
    assert!((17..=22).contains(&longest_run(&order, 'b')), "{order}");
}

/// A tenant that is ahead of its share and cancels all its waiting requests is still ahead when it returns.
#[test]
fn leaving_and_coming_back_wipes_out_no_debt() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask("a1", "tenant:a", 1);
    scene.ask("a2", "tenant:a", 1);
    scene.ask_many("b", 60, "tenant:b", 100);
    assert_eq!(scene.release_using("a1", 3000), "b1");
    for turn in 2..=30 {
        scene.cancel("a2");
        scene.ask("a2", "tenant:a", 1);
        assert_eq!(scene.release_oldest(), format!("b{turn}"), "a has had 3000, b {turn}00");
    }
    // Both stand at 3000, and a's last grant is longer ago.
    assert_eq!(scene.release_oldest(), "a2");
    assert_eq!(scene.release_oldest(), "b31");
}

/// Tokens count and not requests. Many small requests cost as much as few large ones.
#[test]
fn cutting_work_into_small_pieces_gains_nothing() {
    for policy in [tenants(""), two_classes()] {
        let mut crowd = Crowd::new(Scene::new(1, &policy));
        crowd.join('a', "tenant:a class:a", 5, 10);
        crowd.join('b', "tenant:b class:b", 5, 1000);
        crowd.run(2020);
        let (a, b) = (crowd.served('a'), crowd.served('b'));
        assert!(a.abs_diff(b) <= 2000, "{a} and {b} tokens");
    }
}

/// Runs three flows that always have requests waiting. One is held while the others are served for an hour, 3600
/// requests of 100 tokens.
fn held_for_an_hour(policy: &str, held: &str, mid_turn: usize) -> String {
    let mut crowd = Crowd::new(Scene::new(1, policy).without_oracle());
    for letter in ['a', 'b', 'c'] {
        crowd.join(letter, &format!("tenant:{letter} class:{letter} group:g{letter}"), 30, 100);
    }
    crowd.run(30 + mid_turn);
    crowd.happen(|scene| {
        scene.hold(held);
    });
    let order = crowd.run(3600);
    assert!(count(&order, 'a') == 0 && longest_run(&order, 'b') < 10, "{order}");
    crowd.happen(|scene| {
        scene.resume(held);
    });
    crowd.run(300)
}

#[test]
fn a_tenant_held_for_an_hour_goes_on_where_it_was() {
    let nested = r#"{"share":{"by":"group","inside":{"share":{"by":"tenant"}}}}"#;
    for (policy, held) in [(&*tenants(""), "tenant:a"), (nested, "tenant:a"), (nested, "group:ga")]
    {
        for mid_turn in 0..3 {
            let order = held_for_an_hour(policy, held, mid_turn);
            assert!(longest_run(&order, 'a') <= 2, "{held}: {order}");
            assert!((99..=101).contains(&count(&order, 'a')), "{held}: {order}");
        }
    }
}

/// The class keeps at most its interrupted turn, which is three requests of 100 tokens at a quantum
/// of 300.
#[test]
fn a_class_held_for_an_hour_goes_on_where_it_was() {
    let class = |name| format!(r#"{{"name":"{name}","quantum":300}}"#);
    let classes = ["a", "b", "c"].map(class).join(",");
    let policy = format!(r#"{{"drr":{{"by":"class","classes":[{classes}]}}}}"#);
    for mid_turn in 0..9 {
        let order = held_for_an_hour(&policy, "class:a", mid_turn);
        assert!(longest_run(&order, 'a') <= 3, "{order}");
        assert!((97..=103).contains(&count(&order, 'a')), "{order}");
    }
}

/// The same holds without an operator, for a tenant that was at its cap of 0 for an hour.
#[test]
fn a_tenant_capped_for_an_hour_goes_on_where_it_was() {
    let mut crowd = Crowd::new(Scene::new(2, &tenants("")).without_oracle());
    for letter in ['a', 'b', 'c'] {
        crowd.join(letter, &format!("tenant:{letter}"), 5, 100);
    }
    crowd.happen(|scene| {
        scene.cap("tenant:a", Some(0));
    });
    crowd.run(3600);
    crowd.happen(|scene| {
        scene.cap("tenant:a", None);
    });
    let order = crowd.run(300);
    assert!(longest_run(&order, 'a') <= 3, "{order}");
    assert!((98..=102).contains(&count(&order, 'a')), "{order}");
}

/// With fewer slots than groups, scores alone decide. No group is further from its share by weight, ahead or behind,
/// than its requests in flight, which are at most `capacity` requests of 100 tokens.
#[test]
fn fewer_slots_than_groups_starve_nobody() {
    let weights = [('a', 500), ('b', 50), ('c', 100), ('d', 100), ('e', 250)];
    let listed = weights.map(|(name, weight)| format!(r#""{name}":{weight}"#)).join(",");
    for capacity in [1, 2, 4] {
        let mut crowd = Crowd::new(Scene::new(capacity, &groups(&listed, true)));
        for (letter, _) in weights {
            crowd.join(letter, &format!("group:{letter}"), 5, 100);
        }
        let order = crowd.run(1000);
        for (letter, weight) in weights {
            // Of a hundred thousand tokens each gets a thousandth per weight.
            let (served, due) = (crowd.served(letter), weight * 100);
            let slack = 2 * capacity * 100;
            assert!(served.abs_diff(due) <= slack, "{capacity}: {letter} has {served} of {due}");
        }
        let gaps = order.split('b').map(str::len).max().unwrap();
        let most = 20 * (1 + usize::try_from(capacity).unwrap());
        assert!(gaps <= most, "capacity {capacity}: b waited for {gaps} grants");
    }
}

/// The number of slots changes around the number of groups. Every group is served at every number of slots. The first
/// group had all eight slots while it was alone, so the others have to catch up on eight requests each when scores
/// first decide.
#[test]
fn a_partitioned_pool_that_shrinks_below_its_groups_and_grows_again_serves_all() {
    let mut crowd = Crowd::new(Scene::new(8, &groups("", true)));
    for letter in ['a', 'b', 'c', 'd'] {
        crowd.join(letter, &format!("group:{letter}"), 10, 100);
    }
    for capacity in [8, 3, 4, 1, 8, 2] {
        crowd.happen(|scene| {
            scene.capacity(capacity);
        });
        let order = crowd.run(120);
        for letter in ['a', 'b', 'c', 'd'] {
            let due = count(&order, letter).abs_diff(order.len() / 4);
            assert!(due <= 8, "{capacity} slots: {letter} in {order}");
        }
    }
}

/// Creates a pool with one slot and a full queue of ten requests, all of one tenant.
fn flooded(policy: &str) -> Scene {
    let mut scene = Scene::with(1, policy, |config| config.max_queue = Some(10));
    scene.ask_many("l", 11, "tenant:loud class:loud agent:loud", 1);
    assert_eq!((scene.pool.in_flight(), scene.pool.waiting()), (1, 10));
    scene
}

#[test]
fn a_flood_of_one_tenant_does_not_lock_another_out_of_a_full_queue() {
    let ring = r#"{"drr":{"by":"class","classes":[{"name":"loud","quantum":9},{"name":"quiet","quantum":1}]}}"#;
    for policy in [&*tenants(""), ring, r#"{"load":{"by":"agent"}}"#] {
        let mut scene = flooded(policy);
        let quiet = "tenant:quiet class:quiet agent:quiet";
        assert_eq!(scene.ask("l12", "tenant:loud class:loud agent:loud", 1), "l12:queue_full");
        // The newest of the loud makes room, until both have five.
        for i in 1..=5 {
            let told = scene.ask(&format!("q{i}"), quiet, 1);
            assert_eq!(told, format!("l{}:pushed_out", 12 - i), "{policy}");
            let limit = scene.last_refusal().limit.as_ref().expect("a limit");
            assert_eq!((limit.current, limit.limit), (10, 10));
        }
        assert_eq!(scene.ask("q6", quiet, 1), "q6:queue_full");
        assert_eq!(scene.ask("l12", "tenant:loud class:loud agent:loud", 1), "l12:queue_full");
        assert_eq!(scene.pool.waiting(), 10);
    }
}

/// The group with the largest backlog makes room, and in it the tenant with the largest backlog.
/// The last arrival does not matter.
#[test]
fn in_a_tree_the_loudest_of_the_loudest_makes_room() {
    let policy = r#"{"share":{"by":"group","inside":{"share":{"by":"tenant"}}}}"#;
    let mut scene = Scene::with(0, policy, |config| config.max_queue = Some(10));
    scene.ask_many("a", 4, "group:one tenant:a", 1);
    scene.ask_many("b", 3, "group:two tenant:b", 1);
    scene.ask_many("c", 1, "group:two tenant:c", 1);
    scene.ask_many("d", 2, "group:two tenant:d", 1);
    // two has six, one has four, and b is two's loudest.
    assert_eq!(scene.ask("e1", "group:three tenant:e", 1), "b3:pushed_out");
    // two has five: b and d two each, and b is the first by name.
    assert_eq!(scene.ask("e2", "group:three tenant:e", 1), "b2:pushed_out");
    // one and two have four each, and one is the first by name.
    assert_eq!(scene.ask("e3", "group:three tenant:e", 1), "a4:pushed_out");
    // Counting the newcomer in, three would have four, as two does: a tie is for the newcomer's flow to
    // make room.
    assert_eq!(scene.ask("e4", "group:three tenant:e", 1), "e4:queue_full");
}

/// Priorities matter only within a tenant. They decide which request of the tenant with the largest backlog leaves, but
/// not whether another tenant's newcomer is accepted.
#[test]
fn a_high_priority_does_not_keep_a_place_from_a_quieter_tenant() {
    let mut scene = Scene::with(0, &tenants(""), |config| config.max_queue = Some(3));
    for (id, priority) in [("l1", 9), ("l2", 1), ("l3", 5)] {
        scene.submit(Submit { priority, ..request(id, "tenant:loud") });
    }
    assert_eq!(scene.ask("q1", "tenant:quiet", 1), "l2:pushed_out");
}
