//! Worked examples of the LOCO page on its load function, and further cases of LOCO.

use fairgate_core::event::{Event, Submit};
use fairgate_core::explain::FlowStanding;
use fairgate_core::units::{Alpha, TaskWeight, Ticks};
use fairgate_journal::parse_policy;

use super::scene::{Scene, request};

/// Returns a load policy by agent with these settings, such as `"alpha":0.25`.
pub(crate) fn load(settings: &str) -> String {
    let comma = if settings.is_empty() { "" } else { "," };
    format!(r#"{{"load":{{"by":"agent"{comma}{settings}}}}}"#)
}

/// Returns a flow's load in millionths (`None` if the flow is not ready) and the node's alpha in
/// millionths.
pub(crate) fn load_of(scene: &Scene, id: &str) -> (Option<u64>, u32) {
    match scene.standing(id) {
        FlowStanding::Load { load_millionths, alpha, .. } => (load_millionths, alpha.millionths()),
        other => panic!("not in a load node: {other:?}"),
    }
}

/// Creates a pool without a free slot. Each agent, given as (name, number, age), has this number of tasks of weight 1
/// waiting, of this age in ticks. Ids are the agent's name and a number from 1 on.
fn aged(settings: &str, agents: &[(&str, u64, u64)]) -> Scene {
    let mut scene = Scene::new(1, &load(settings));
    let oldest = agents.iter().map(|(_, _, age)| *age).max().unwrap_or(0);
    for (agent, _, _) in agents {
        scene.hold(&format!("agent:{agent}"));
    }
    for tick in 0..=oldest {
        for (agent, depth, _) in agents.iter().filter(|(_, _, age)| oldest - age == tick) {
            scene.ask_many(agent, *depth, &format!("agent:{agent}"), 1);
        }
        if tick < oldest {
            scene.ask("pace", "agent:pace", 1);
            scene.release("pace");
        }
    }
    scene.capacity(0);
    for (agent, depth, age) in agents {
        scene.resume(&format!("agent:{agent}"));
        let FlowStanding::Load { depth_thousandths, age: ticks, .. } =
            scene.standing(&format!("{agent}1"))
        else {
            panic!("not in a load node");
        };
        assert_eq!((depth_thousandths, ticks), (depth * 1000, Ticks(*age)), "{agent}");
    }
    scene
}

/// At α = 0.25 the load of (Q = 4, D = 10) is 0.25 · 4/4 + 0.75 · 10/20 = 0.625, and that of (Q =
/// 2, D = 20) is 0.25 · 2/4 + 0.75 · 20/20 = 0.875.
#[test]
fn at_a_quarter_the_older_of_two_agents_beats_the_deeper() {
    let mut scene = aged(r#""alpha":0.25"#, &[("deep", 4, 10), ("old", 2, 20)]);
    assert_eq!(load_of(&scene, "deep1"), (Some(625_000), 250_000));
    assert_eq!(load_of(&scene, "old1"), (Some(875_000), 250_000));
    assert_eq!(scene.capacity(1), "old1");
}

#[test]
fn at_zero_only_age_counts() {
    let mut scene = aged(r#""alpha":0"#, &[("deep", 50, 2), ("old", 1, 20)]);
    assert_eq!(load_of(&scene, "deep1").0, Some(100_000));
    assert_eq!(load_of(&scene, "old1").0, Some(1_000_000));
    assert_eq!(scene.capacity(1), "old1");
}

#[test]
fn at_one_only_depth_counts() {
    let mut scene = aged(r#""alpha":1"#, &[("old", 1, 100), ("deep", 9, 1)]);
    assert_eq!(load_of(&scene, "old1").0, Some(111_111));
    assert_eq!(load_of(&scene, "deep1").0, Some(1_000_000));
    assert_eq!(scene.capacity(1), "deep1");
}

/// The load is relative: a depth of 10 among depths of 10 has the same load as 1 among 1.
#[test]
fn only_relative_depth_counts() {
    let tens = aged("", &[("a", 10, 3), ("b", 10, 6)]);
    let ones = aged("", &[("a", 1, 3), ("b", 1, 6)]);
    for id in ["a1", "b1"] {
        assert_eq!(load_of(&tens, id), load_of(&ones, id));
    }
    assert_eq!(load_of(&ones, "a1").0, Some(625_000));
}

/// Returns the order of the agents' numbers, for eight agents with 1 to 8 tasks of weight 1 and one
/// slot.
fn eight_agents(settings: &str) -> String {
    let mut scene = Scene::new(0, &load(settings));
    for agent in 0..8 {
        scene.ask_many(&format!("{agent}-"), agent + 1, &format!("agent:{agent}"), 1);
    }
    scene.capacity(1);
    scene.drain()
}

#[test]
fn eight_agents_at_zero_are_served_as_they_came() {
    assert_eq!(eight_agents(r#""alpha":0"#), "011222333344444555555666666677777777");
    assert_eq!(eight_agents(r#""optimize_for":"latency""#), "011222333344444555555666666677777777");
}

#[test]
fn eight_agents_at_a_quarter_and_at_a_half_are_served_the_deepest_first() {
    let deepest_first = "767567456734567234567123456701234567";
    assert_eq!(eight_agents(r#""alpha":0.25"#), deepest_first);
    assert_eq!(eight_agents(r#""alpha":0.5"#), deepest_first);
    assert_eq!(eight_agents(""), deepest_first);
}

#[test]
fn the_three_words_are_three_alphas() {
    for (word, alpha) in [("latency", "0.0"), ("balanced", "0.25"), ("throughput", "0.5")] {
        let by_word = load(&format!(r#""optimize_for":"{word}""#));
        let by_number = load(&format!(r#""alpha":{alpha}"#));
        assert_eq!(parse_policy(&by_word).unwrap(), parse_policy(&by_number).unwrap(), "{word}");
    }
    let balanced = load(r#""optimize_for":"balanced""#);
    assert_eq!(parse_policy(&load("")).unwrap(), parse_policy(&balanced).unwrap());
    let constants = [Alpha::LATENCY, Alpha::BALANCED, Alpha::THROUGHPUT];
    assert_eq!(constants.map(Alpha::millionths), [0, 250_000, 500_000]);
}

/// A tick is one ended request, and not wall clock time.
#[test]
fn ends_age_what_waits_and_time_does_not() {
    let mut scene = aged("", &[("a", 3, 0)]);
    let age = |scene: &Scene, id: &str| match scene.standing(id) {
        FlowStanding::Load { age, .. } => age,
        other => panic!("{other:?}"),
    };
    scene.capacity(1);
    assert_eq!(age(&scene, "a3"), Ticks(0));
    scene.at(3_600_000_000).apply(Event::Tick);
    assert_eq!(age(&scene, "a3"), Ticks(0), "an hour is no tick");
    scene.release("unheard-of");
    scene.release("a3");
    assert_eq!(age(&scene, "a3"), Ticks(0), "nothing ended");
    assert_eq!(scene.release("a1"), "a2");
    assert_eq!(age(&scene, "a3"), Ticks(1));
    assert_eq!(scene.cancel("a2"), "a3", "a cancelled holder's end is one too");
    assert_eq!(scene.pool.ticks(), Ticks(2));
}

/// A weight of 5.0 counts in the depth as five tasks of weight 1.
#[test]
fn a_heavy_task_is_a_deep_queue() {
    let mut scene = Scene::new(0, &load(""));
    let weigh = |thousandths| TaskWeight::from_thousandths(thousandths).unwrap();
    scene.ask_many("haiku", 4, "agent:haiku", 1);
    scene.submit(Submit { weight: weigh(5000), ..request("opus", "agent:opus") });
    scene.submit(Submit { weight: weigh(2500), ..request("sonnet", "agent:sonnet") });
    assert_eq!(load_of(&scene, "haiku1").0, Some(200_000));
    assert_eq!(load_of(&scene, "opus").0, Some(250_000));
    assert_eq!(load_of(&scene, "sonnet").0, Some(125_000));
    assert_eq!(scene.capacity(1), "opus");
    assert_eq!(scene.release("opus"), "haiku1");
    // Depth 3 and 2.5: one task of the three fewer, and sonnet is the deeper.
    assert_eq!(scene.release("haiku1"), "haiku2");
    assert_eq!(scene.release("haiku2"), "sonnet");
}

/// Loads are computed when a slot becomes free, not when a request is submitted. An agent that has waited ten ticks
/// goes before a newcomer with a deeper queue.
#[test]
fn a_newcomer_with_a_deeper_queue_does_not_overtake_a_long_wait() {
    let mut scene = aged("", &[("waiter", 1, 10), ("newcomer", 5, 0)]);
    // .25 · 1/5 + .75, against .25 · 5/5.
    assert_eq!(load_of(&scene, "waiter1").0, Some(800_000));
    assert_eq!(load_of(&scene, "newcomer1").0, Some(250_000));
    assert_eq!(scene.capacity(1), "waiter1");
}

/// Returns alpha in thousandths after each tick, in a pool whose depth doubles from tick to tick. There is only one
/// agent, so the ages do not differ.
fn alphas_as_depth_doubles(alpha: &str, ticks: u32) -> Vec<u32> {
    let settings = format!(r#""auto_tune":true,"alpha":{alpha}"#);
    let mut scene = Scene::new(1, &load(&settings));
    scene.ask("first", "agent:a", 1);
    let tick = |i: u32| {
        let weight = TaskWeight::from_thousandths(1 << i).expect("a weight");
        scene.submit(Submit { weight, ..request(&format!("a{i}"), "agent:a") });
        scene.release_oldest();
        scene.alpha().millionths() / 1000
    };
    (0..ticks).map(tick).collect()
}

/// Growing depth raises alpha by 0.01 per tick, up to one half.
#[test]
fn auto_tune_rises_with_a_growing_queue_up_to_one_half() {
    // One total alone has nothing to be compared with.
    let expected: Vec<u32> = (0..30).map(|tick| (250 + 10 * tick).min(500)).collect();
    assert_eq!(alphas_as_depth_doubles("0.25", 30), expected);
    assert_eq!(alphas_as_depth_doubles("0.485", 5), [485, 495, 500, 500, 500]);
    assert_eq!(alphas_as_depth_doubles("0.7", 5), [700; 5], "what is above is not pushed further");
}

/// Ages that differ much between agents lower alpha by 0.01 per tick, down to 0. One agent's task is k ticks old and
/// the other's always one: their coefficient of variation, (k − 1)/(k + 1), is over one half from k = 4 on.
#[test]
fn auto_tune_falls_where_ages_differ_down_to_zero() {
    let mut scene = Scene::new(1, &load(r#""auto_tune":true,"alpha":0.03"#));
    scene.ask("pace", "agent:pace", 1);
    scene.hold("agent:old");
    scene.ask("old", "agent:old", 1);
    let alphas: Vec<u32> = (1..=8)
        .map(|k| {
            scene.ask(&format!("pace{k}"), "agent:pace", 1);
            assert_eq!(scene.release_oldest(), format!("pace{k}"));
            scene.alpha().millionths() / 1000
        })
        .collect();
    assert_eq!(alphas, [30, 30, 30, 20, 10, 0, 0, 0]);
}
