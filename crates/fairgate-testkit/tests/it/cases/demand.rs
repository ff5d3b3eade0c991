//! Cases from the wishes of users of LLM gateways and schedulers.

use super::crowd::Crowd;
use super::obleth::tenants;
use super::scene::{Scene, count, longest_run};

/// Creates a pool in which one batch user, within its rate limit, holds all sixteen slots and has
/// more requests waiting.
fn all_slots_taken(policy: &str) -> Scene {
    let mut scene = Scene::new(16, policy);
    scene.ask_many("b", 60, "tenant:batch", 100);
    scene
}

#[test]
fn a_share_brings_others_in_with_the_first_slots_that_are_freed() {
    let mut scene = all_slots_taken(&tenants(""));
    assert_eq!(scene.in_flight_of("tenant:batch"), 16);
    scene.ask_many("c", 4, "tenant:chat", 100);
    scene.ask_many("d", 4, "tenant:docs", 100);
    // batch stands at sixteen requests; the others take turns until they do.
    assert_eq!(scene.run(8), "cdcdcdcd");
    assert_eq!(scene.in_flight_of("tenant:batch"), 8);
    assert_eq!(scene.run(4), "bbbb", "and where nobody else waits, it goes on");
}

#[test]
fn a_cap_keeps_slots_free_for_others() {
    let mut scene = all_slots_taken(r#"{"share":{"by":"tenant","default_cap":12}}"#);
    assert_eq!(scene.in_flight_of("tenant:batch"), 12);
    assert_eq!(scene.ask("c1", "tenant:chat", 100), "c1", "at once");
    assert_eq!(scene.release("b1"), "b13", "a freed slot of its own is batch's again");
    assert_eq!(scene.in_flight_of("tenant:batch"), 12);
}

#[test]
fn a_cap_that_comes_late_calls_nothing_back_and_holds_from_then_on() {
    let mut scene = all_slots_taken(&tenants(""));
    assert_eq!(scene.cap("tenant:batch", Some(4)), "");
    assert_eq!(scene.in_flight_of("tenant:batch"), 16);
    assert_eq!(scene.run(12), "", "sixteen ends down to four");
    assert_eq!(scene.ask_many("c", 3, "tenant:chat", 100), "c1 c2 c3");
    assert_eq!(scene.run(1), "b", "at four, one for one");
    assert_eq!(scene.in_flight_of("tenant:batch"), 4);
    assert_eq!(scene.cap("tenant:batch", None).split(' ').count(), 9, "all that is free");
    assert_eq!(scene.pool.in_flight(), 16);
}

/// A heavy user is deprioritised and not refused. No user gets an error, and a light user waits for the end of one
/// request.
#[test]
fn a_heavy_user_is_deprioritised_and_not_refused() {
    let mut scene = Scene::new(4, &tenants(""));
    scene.ask_many("h", 300, "tenant:heavy", 100);
    for i in 0..20 {
        scene.ask(&format!("l{i}"), "tenant:light", 100);
        assert_eq!(scene.waiting(&format!("l{i}")).place, Some(0));
        assert_eq!(scene.run(5), "lhhhh");
    }
    scene.drain();
    assert_eq!(scene.granted().len(), 320);
}

/// A noisy tenant has 64 clients in closed loops, eight of them in flight. A quiet tenant has one request waiting at a
/// time. The quiet tenant always goes next, so it gets half of all grants. Only at the start does it wait for the
/// requests in flight.
#[test]
fn sixty_four_clients_do_not_drown_two() {
    let mut crowd = Crowd::new(Scene::new(8, &tenants("")));
    crowd.join('n', "tenant:noisy", 56, 100);
    crowd.join('q', "tenant:quiet", 1, 100);
    let order = crowd.run(500);
    assert!(longest_run(&order, 'n') <= 8, "{order}");
    assert!(count(&order, 'q') >= 245, "{order}");
}

/// Tokens are shared equally, and not grants.
#[test]
fn equal_tenants_get_equal_tokens_and_not_equal_turns() {
    let mut crowd = Crowd::new(Scene::new(4, &tenants("")));
    crowd.join('l', "tenant:long", 8, 4000);
    crowd.join('s', "tenant:short", 8, 100);
    crowd.run(820);
    let (long, short) = (crowd.served('l'), crowd.served('s'));
    // At most what each has in flight on its side.
    assert!(long.abs_diff(short) <= 2 * 4 * 4000, "{long} and {short} tokens");
    assert!(long + short > 140_000, "{long} and {short} tokens");
}

const GROUP_TENANT_KEY: &str = r#"{"share":{"by":"group","inside":{"share":{"by":"tenant","inside":{"share":{"by":"key"}}}}}}"#;

/// Returns the tokens of a tenant with fifty keys and of a tenant with one key, in one group, after 1020 requests of
/// 100 tokens.
fn split_into_fifty_keys(policy: &str) -> (u64, u64) {
    let mut crowd = Crowd::new(Scene::new(4, policy).without_oracle());
    crowd.join('o', "group:g tenant:one key:only", 2, 100);
    for key in 0..50 {
        crowd.join('m', &format!("group:g tenant:many key:k{key}"), 2, 100);
    }
    crowd.run(1020);
    (crowd.served('m'), crowd.served('o'))
}

#[test]
fn a_tenant_that_splits_into_fifty_keys_gains_nothing() {
    let (many, one) = split_into_fifty_keys(GROUP_TENANT_KEY);
    assert!(many.abs_diff(one) <= 2 * 4 * 100, "{many} and {one} tokens");
    // Where keys stand side by side it would have fifty shares of fifty-one.
    let (many, one) = split_into_fifty_keys(r#"{"share":{"by":"key"}}"#);
    assert!(many >= 48 * one, "{many} and {one} tokens");
}

/// A group that splits into tenants gains nothing either. The keys of one tenant share the tenant's part.
#[test]
fn every_level_shares_only_what_the_level_above_got() {
    let mut crowd = Crowd::new(Scene::new(1, GROUP_TENANT_KEY).without_oracle());
    crowd.join('a', "group:one tenant:a key:a", 2, 100);
    for tenant in ["b", "c"] {
        let letter = tenant.chars().next().unwrap();
        for key in ["x", "y", "z"] {
            crowd.join(letter, &format!("group:two tenant:{tenant} key:{tenant}{key}"), 2, 100);
        }
    }
    let order = crowd.run(1200);
    let turns = ['a', 'b', 'c'].map(|letter| count(&order, letter));
    assert!(turns[0].abs_diff(600) <= 1, "{turns:?}");
    assert!(turns[1].abs_diff(300) <= 1 && turns[2].abs_diff(300) <= 1, "{turns:?}");
    let of_key = |key: &str| {
        let granted = crowd.scene.granted().iter();
        granted.filter(|id| crowd.scene.who(id).ends_with(key)).count()
    };
    for key in ["key:bx", "key:by", "key:bz", "key:cx", "key:cy", "key:cz"] {
        assert!(of_key(key).abs_diff(100) <= 2, "{key}: {}", of_key(key));
    }
}

/// A request without cached tokens waits behind a stream of cheap requests if its class orders by cost. In a class of
/// its own it does not wait for them.
#[test]
fn a_cold_request_of_its_own_class_is_not_starved_by_the_cached() {
    let policy = r#"{"drr":{"by":"class","classes":[
        {"name":"cached","quantum":2048,"queue":"wspt"},{"name":"uncached","quantum":512}]}}"#;
    let mut crowd = Crowd::new(Scene::new(1, policy));
    crowd.join('c', "class:cached", 20, 64);
    crowd.happen(|scene| {
        scene.ask("u-cold", "class:uncached", 8192);
    });
    let order = crowd.run_until_granted("u-cold", 2000);
    // 8192 tokens are sixteen rounds of 512; a round of the cached is 2048/64 = 32 requests.
    assert!((15 * 32..=16 * 32).contains(&order), "after {order}");
}
