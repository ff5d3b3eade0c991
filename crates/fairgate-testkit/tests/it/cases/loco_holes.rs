//! Known weaknesses of LOCO's decisions. Each case shows that Fairgate does not have the weakness.

use fairgate_core::event::{Event, Submit};
use fairgate_core::explain::PickRule;
use fairgate_core::units::Micros;

use super::loco::load;
use super::scene::{Scene, request};

/// The wait of a quiet agent's task.
#[derive(Debug)]
struct Wait {
    /// Number of requests that waited when the task arrived.
    ahead: u64,
    /// Number of ticks that the task waited until its grant, or until the end of the run.
    ticks: u64,
    granted: bool,
}

/// The tasks that a loud agent sends after its first twenty tasks.
#[derive(Clone, Copy, Debug)]
enum Loud {
    /// One task for each of its granted tasks, so that twenty tasks always wait.
    Steady,
    /// This many tasks per tick, of which at most one is served.
    PerTick(u64),
}

/// Returns the waits of the quiet agents' tasks. A loud agent and `quiet` quiet agents share one slot. A quiet agent
/// sends one task, and the next after that task was granted.
fn waits_of_the_quiet(settings: &str, loud: Loud, quiet: usize, ticks: u64) -> Vec<Wait> {
    let mut scene = Scene::new(1, &load(settings)).without_oracle();
    scene.ask_many("loud-", 21, "agent:loud", 1);
    let mut since: Vec<Option<(u64, u64)>> = vec![None; quiet];
    let mut waits = Vec::new();
    for tick in 0..ticks {
        for (agent, since) in since.iter_mut().enumerate().filter(|(_, since)| since.is_none()) {
            *since = Some((tick, scene.pool.waiting()));
            scene.ask(&format!("{agent}-{tick}"), &format!("agent:quiet{agent}"), 1);
        }
        if let Loud::PerTick(tasks) = loud {
            scene.ask_many(&format!("loud{tick}-"), tasks, "agent:loud", 1);
        }
        let granted = scene.release_oldest();
        match granted.split_once('-').map(|(agent, _)| agent.parse::<usize>()) {
            Some(Ok(agent)) => {
                let (came, ahead) = since[agent].take().expect("it waited");
                waits.push(Wait { ahead, ticks: tick + 1 - came, granted: true });
            }
            _ if matches!(loud, Loud::Steady) => {
                scene.ask(&format!("loud{tick}-"), "agent:loud", 1);
            }
            _ => {}
        }
    }
    let left = since.into_iter().flatten();
    waits.extend(left.map(|(came, ahead)| Wait { ahead, ticks: ticks - came, granted: false }));
    waits
}

fn assert_starved(waits: &[Wait], ticks: u64) {
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert!(!waits[0].granted && waits[0].ticks == ticks, "{waits:?}");
}

/// At α = 0.6 the loud agent starves the others even without growth. With twenty tasks waiting, the loud agent's load
/// is at least 0.6. The quiet agent's load is at most 0.4 + 0.6/20 = 0.43, however long it waits.
#[test]
fn above_one_half_a_steady_backlog_starves_the_others_without_the_bound() {
    assert_starved(&waits_of_the_quiet(r#""alpha":0.6"#, Loud::Steady, 1, 10_000), 10_000);
}

/// The loud agent's own tasks wait for some twenty ticks and are never late. The tasks of the ten quiet agents are late
/// after a hundred ticks, and then wait for the nine that became late before.
#[test]
fn above_one_half_a_head_waits_for_the_bound_and_the_flows_that_were_late_before_it() {
    for alpha in ["0.6", "1"] {
        let settings = format!(r#""alpha":{alpha},"max_wait_ticks":100"#);
        let waits = waits_of_the_quiet(&settings, Loud::Steady, 10, 10_000);
        assert!(waits.len() >= 10 * 90, "alpha {alpha}: {}", waits.len());
        assert!(waits.iter().all(|wait| wait.ticks <= 100 + 9), "alpha {alpha}: {waits:?}");
    }
}

/// At the default α, the depth of the loud agent must grow faster than the age of the quiet agent. With four tasks per
/// tick, three more than are served, its oldest task at tick t arrived at t/4. Its load is 0.25 + 0.75 · 3/4 = 0.8125,
/// which always exceeds the quiet agent's load of little more than 0.75.
#[test]
fn at_the_default_an_overload_of_three_tasks_a_tick_starves_the_others_without_the_bound() {
    assert_starved(&waits_of_the_quiet("", Loud::PerTick(4), 1, 5_000), 5_000);
}

/// An overload of one task per tick does not suffice. The loud agent's oldest task arrived at t/2, so its load is
/// 0.25 + 0.75/2 = 0.625.
#[test]
fn at_the_default_an_overload_of_one_task_a_tick_does_not_starve() {
    let waits = waits_of_the_quiet("", Loud::PerTick(2), 1, 2_000);
    assert!(waits.iter().filter(|wait| wait.granted).count() >= 3, "{waits:?}");
}

/// Under a lasting overload, the loud agent's own tasks are late too, and late tasks go oldest first. No task waits for
/// longer than the bound plus the time of the tasks that arrived before it, and no later task goes before it.
#[test]
fn at_the_default_nobody_waits_longer_than_the_bound_and_those_before_it() {
    for per_tick in [2, 4, 12] {
        let waits =
            waits_of_the_quiet(r#""max_wait_ticks":100"#, Loud::PerTick(per_tick), 1, 3_000);
        assert!(waits.iter().filter(|wait| wait.granted).count() >= 2, "{per_tick}: {waits:?}");
        let within = |wait: &Wait| wait.ticks <= wait.ahead.max(100) + 1;
        assert!(waits.iter().all(within), "{per_tick} a tick: {waits:?}");
    }
}

/// `auto_tune` makes starvation more likely as the backlog grows. The bound still holds.
#[test]
fn under_auto_tune_nobody_waits_longer_either() {
    for alpha in ["0.25", "0.5", "1"] {
        let settings = format!(r#""alpha":{alpha},"auto_tune":true,"max_wait_ticks":60"#);
        let waits = waits_of_the_quiet(&settings, Loud::PerTick(4), 1, 2_000);
        assert!(waits.iter().filter(|wait| wait.granted).count() >= 3, "{alpha}: {waits:?}");
        let within = |wait: &Wait| wait.ticks <= wait.ahead.max(60) + 1;
        assert!(waits.iter().all(within), "alpha {alpha}: {waits:?}");
    }
}

/// The same with few tasks, computed by hand. With a bound of one tick, all six tasks are late from the first end on,
/// in the order of arrival.
#[test]
fn the_late_go_in_the_order_in_which_they_came() {
    let mut scene = Scene::new(1, &load(r#""max_wait_ticks":1"#));
    scene.ask_many("l", 5, "agent:loud", 1);
    scene.ask("q", "agent:quiet", 1);
    scene.ask_many("m", 5, "agent:more", 1);
    assert_eq!(scene.drain(), "lllllqmmmmm");
}

/// A late flow's oldest request goes first whatever its priority, and many late flows go in the order of
/// their ages.
#[test]
fn late_requests_go_oldest_first_whatever_their_priority() {
    let mut scene = Scene::new(1, &load(r#""max_wait_ticks":5"#)).explaining();
    let with = |id: &str, agent: &str, priority| Submit {
        priority,
        ..request(id, &format!("agent:{agent}"))
    };
    scene.ask("p0", "agent:p", 1);
    for agent in ["x", "y", "z"] {
        scene.hold(&format!("agent:{agent}"));
    }
    scene.submit(with("y-low", "y", -9));
    scene.ask_many("p", 6, "agent:p", 1);
    scene.submit(with("x-low", "x", -9));
    scene.run(1);
    scene.submit(with("x-high", "x", 9));
    scene.submit(with("y-high", "y", 9));
    scene.submit(with("z-only", "z", 0));
    scene.run(4);
    scene.capacity(0);
    scene.run(1);
    for agent in ["z", "x", "y"] {
        scene.resume(&format!("agent:{agent}"));
    }
    // After six ticks y-low, p6 and x-low are six old and came in that order; what came a tick later is
    // five old.
    scene.capacity(1);
    scene.drain();
    let order: Vec<&str> = scene.granted()[6..].iter().map(|id| &**id).collect();
    assert_eq!(order, ["y-low", "p6", "x-low", "x-high", "y-high", "z-only"]);
    assert_eq!(scene.why("y-low").levels[0].rule, PickRule::Late);
}

#[test]
fn a_holder_that_ends_in_any_way_grants_the_next() {
    let mut scene = Scene::new(1, &load(""));
    scene.ask_many("a", 3, "agent:a", 1);
    scene.ask("b1", "agent:b", 1);
    assert_eq!(scene.cancel("a1"), "a2", "cancelled");
    assert_eq!(scene.release("a2"), "a3", "released");
    assert_eq!(scene.release_using("a3", 0), "b1", "failed before its first token");
    assert_eq!(scene.release_using("b1", u64::MAX), "", "ran away");
    assert_eq!((scene.pool.waiting(), scene.pool.in_flight()), (0, 0));
}

/// A cancel and a release of one request may race, and either may come before, at or after the grant.
#[test]
fn a_cancel_that_races_a_grant_or_a_release_leaks_no_slot() {
    let full = || {
        let mut scene = Scene::new(2, &load(""));
        scene.ask_many("a", 5, "agent:a", 1);
        assert_eq!(scene.in_flight(), ["a1", "a2"]);
        scene
    };
    // The cancel comes just before the grant would: the slot goes to the next.
    let mut scene = full();
    assert_eq!(scene.cancel("a3"), "");
    assert_eq!(scene.release("a1"), "a4");
    assert_eq!(scene.in_flight(), ["a2", "a4"]);
    // Just after: the slot is given back, and goes to the next.
    let mut scene = full();
    assert_eq!(scene.release("a1"), "a3");
    assert_eq!(scene.cancel("a3"), "a4");
    assert_eq!(scene.in_flight(), ["a2", "a4"]);
    // Both for one holder, in both orders: one slot, once.
    let mut scene = full();
    assert_eq!([scene.cancel("a1"), scene.release("a1")], ["a3", ""]);
    assert_eq!(scene.in_flight(), ["a2", "a3"]);
    let mut scene = full();
    assert_eq!([scene.release("a1"), scene.cancel("a1")], ["a3", ""]);
    assert_eq!(scene.in_flight(), ["a2", "a3"]);
    // And a late word about a request does not touch the next one of its name.
    assert_eq!(scene.ask("a1", "agent:a", 1), "");
    assert_eq!(scene.release("a1"), "", "it waits: there is nothing to release");
    assert_eq!(scene.pool.waiting(), 3);
    scene.drain();
    assert_eq!((scene.pool.waiting(), scene.pool.in_flight()), (0, 0));
}

#[test]
fn a_timeout_wakes_nobody_else() {
    let mut scene = Scene::with(1, &load(""), |config| config.queue_timeout = Some(Micros(1000)));
    scene.ask("a1", "agent:a", 1);
    scene.at(10).ask("a2", "agent:a", 1);
    scene.at(20).ask("b1", "agent:b", 1);
    scene.at(30).ask("c1", "agent:c", 1);
    assert_eq!(scene.at(1010).apply(Event::Tick), "a2:expired");
    assert_eq!(scene.at(1020).apply(Event::Tick), "b1:expired");
    assert_eq!((scene.in_flight(), scene.pool.waiting()), (vec!["a1"], 1));
    // What has expired is gone: the slot goes to who still waits.
    assert_eq!(scene.at(1029).release("a1"), "c1");
}

#[test]
fn a_pool_that_shuts_down_runs_nobody_without_a_slot() {
    let mut scene = Scene::new(2, &load(""));
    scene.ask_many("a", 5, "agent:a", 1);
    assert_eq!(scene.capacity(0), "");
    assert_eq!(scene.run(2), "");
    for id in ["a3", "a4", "a5"] {
        assert_eq!(scene.cancel(id), "");
    }
    assert_eq!((scene.pool.waiting(), scene.pool.in_flight()), (0, 0));
}

#[test]
fn an_unknown_agent_simply_exists_and_an_unknown_request_is_nobody() {
    let mut scene = Scene::new(2, &load(""));
    assert_eq!(scene.release("never-asked"), "");
    assert_eq!(scene.cancel("never-asked"), "");
    assert_eq!(scene.ask("n1", "agent:never-heard-of", 1), "n1");
    assert_eq!(scene.ask("n2", "", 1), "n2", "not even a name: the flow named default");
    assert_eq!(scene.ask("n3", "agent:another", 1), "");
    assert_eq!(scene.resume("agent:nobody"), "");
    assert_eq!(scene.drain(), "nnn");
    assert_eq!((scene.pool.waiting(), scene.pool.in_flight()), (0, 0));
}

/// LOCO's multi-tenant class hangs under contention. Here agents inside tenants are one tree, and all requests end.
#[test]
fn agents_inside_tenants_do_not_hang_under_contention() {
    let policy =
        r#"{"share":{"by":"tenant","inside":{"load":{"by":"agent","max_wait_ticks":20}}}}"#;
    let mut scene = Scene::new(3, policy);
    for i in 0..120 {
        let who = format!("tenant:t{} agent:a{}", i % 4, i % 7);
        scene.ask(&format!("r{i}"), &who, 1 + i % 5);
    }
    while scene.pool.in_flight() > 0 {
        assert_eq!(scene.pool.in_flight(), scene.pool.in_flight().min(3));
        let free = scene.pool.capacity() - scene.pool.in_flight();
        assert!(free == 0 || scene.pool.waiting() == 0, "a waiter beside a free slot");
        scene.release_oldest();
    }
    assert_eq!((scene.granted().len(), scene.pool.waiting()), (120, 0));
}

#[test]
fn too_many_waiters_are_refused_and_cost_no_slot() {
    let mut scene = Scene::with(1, &load(""), |config| config.max_queue = Some(100));
    scene.ask_many("a", 101, "agent:a", 1);
    assert_eq!(scene.ask("a102", "agent:a", 1), "a102:queue_full");
    assert_eq!(scene.drain().len(), 101);
}
