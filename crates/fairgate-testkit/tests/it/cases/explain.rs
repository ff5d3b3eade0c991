//! Cases of the explanations of grants: the rule, the numbers that decided, and those of the runner-up. The numbers
//! were computed by hand.

use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::event::Event;
use fairgate_core::explain::{FlowChoice, FlowStanding, PickRule};
use fairgate_core::units::{Ticks, Tokens};
use fairgate_testkit::workload::{WorkloadShape, generate_answered};

use super::dynamo::queued;
use super::loco::load;
use super::obleth::{groups, tenants};
use super::scene::Scene;

/// Returns the choice of the root at a request's grant.
fn choice<'a>(scene: &'a Scene, id: &str) -> &'a FlowChoice {
    &scene.why(id).levels[0]
}

fn runner_up(choice: &FlowChoice) -> (&str, FlowStanding) {
    let (name, standing) = choice.runner_up.as_ref().expect("a runner-up");
    (name, standing.clone())
}

/// Returns the deficit, the quantum, the cost of the head and the rounds needed.
fn drr(standing: FlowStanding) -> (u128, u64, Option<u64>, Option<u64>) {
    match standing {
        FlowStanding::Drr { deficit, quantum, head_cost, rounds_needed, .. } => {
            (deficit, quantum.get(), head_cost.map(|cost| cost.0), rounds_needed)
        }
        other => panic!("not in a drr node: {other:?}"),
    }
}

/// Returns the score, the settled score, the weight and the pending tokens.
fn share(standing: FlowStanding) -> (String, String, u64, u128) {
    match standing {
        FlowStanding::Share { score, settled, weight, pending, .. } => {
            (score.to_string(), settled.to_string(), weight.get(), pending)
        }
        other => panic!("not in a share node: {other:?}"),
    }
}

fn shared(score: &str, settled: &str, weight: u64, pending: u128) -> (String, String, u64, u128) {
    (score.into(), settled.into(), weight, pending)
}

#[test]
fn in_a_ring_a_class_is_visited_stays_and_is_left() {
    let mut scene = queued(&[("A", 10), ("B", 10)], &[("A", 4, 3), ("B", 1, 3)]).explaining();
    scene.capacity(1);
    assert_eq!(scene.drain(), "AAABA");
    let first = choice(&scene, "A1");
    assert_eq!((first.by, &*first.flow, first.rule), (Attribute::Class, "A", PickRule::Visited));
    assert_eq!(drr(first.standing.clone()), (0, 10, Some(3), Some(1)));
    assert_eq!(scene.why("A1").cost, Tokens(3));
    let (name, standing) = runner_up(first);
    assert_eq!((name, drr(standing)), ("B", (0, 10, Some(3), Some(1))));

    let second = choice(&scene, "A2");
    assert_eq!(
        (second.rule, drr(second.standing.clone())),
        (PickRule::Stayed, (7, 10, Some(3), Some(0)))
    );
    let third = choice(&scene, "A3");
    assert_eq!(
        (third.rule, drr(third.standing.clone())),
        (PickRule::Stayed, (4, 10, Some(3), Some(0)))
    );

    let b = choice(&scene, "B1");
    assert_eq!(
        (&*b.flow, b.rule, drr(b.standing.clone())),
        ("B", PickRule::Visited, (0, 10, Some(3), Some(1)))
    );
    let (name, standing) = runner_up(b);
    assert_eq!((name, drr(standing)), ("A", (1, 10, Some(3), Some(1))));

    let last = choice(&scene, "A4");
    assert_eq!(
        (last.rule, drr(last.standing.clone())),
        (PickRule::Visited, (1, 10, Some(3), Some(1)))
    );
    assert!(last.runner_up.is_none(), "nobody else was ready");
}

#[test]
fn by_share_the_lowest_score_goes_and_says_by_how_much() {
    let mut scene = Scene::new(1, &tenants(r#""chat":500,"api":50"#)).explaining();
    scene.ask("a1", "tenant:api", 1000);
    scene.ask("a2", "tenant:api", 1000);
    scene.ask("c1", "tenant:chat", 250);
    scene.ask("c2", "tenant:chat", 250);
    assert!(choice(&scene, "a1").runner_up.is_none());
    scene.release_using("a1", 600);
    let c1 = choice(&scene, "c1");
    assert_eq!((c1.by, &*c1.flow, c1.rule), (Attribute::Tenant, "chat", PickRule::LowestScore));
    assert_eq!(share(c1.standing.clone()), shared("0.000", "0.000", 500, 0));
    let (name, standing) = runner_up(c1);
    assert_eq!((name, share(standing)), ("api", shared("12.000", "12.000", 50, 0)));

    scene.release_using("c1", 125);
    assert_eq!(share(choice(&scene, "c2").standing.clone()), shared("0.250", "0.250", 500, 0));
}

#[test]
fn in_a_partitioned_pool_slots_go_before_scores_and_lending_after() {
    let mut scene = Scene::new(4, &groups(r#""big":300,"small":100"#, true)).explaining();
    scene.ask_many("s", 5, "group:small", 100);
    // Alone it has all four slots; then big comes, and three are big's.
    assert_eq!(choice(&scene, "s4").rule, PickRule::BelowItsSlots);
    scene.ask_many("b", 5, "group:big", 100);
    let slots = |standing| match standing {
        FlowStanding::Share { slots, .. } => slots,
        other => panic!("not in a share node: {other:?}"),
    };
    assert_eq!(scene.release("s1"), "b1");
    let b1 = choice(&scene, "b1");
    assert_eq!((b1.rule, slots(b1.standing.clone())), (PickRule::BelowItsSlots, Some(3)));
    let (name, standing) = runner_up(b1);
    assert_eq!((name, slots(standing)), ("small", Some(1)));
    assert_eq!(scene.release("s2"), "b2");
    assert_eq!(scene.release("s3"), "b3");
    // Now big has its three and small its one; when b4 and b5 are gone, a slot is lent to small.
    scene.cancel("b4");
    scene.cancel("b5");
    assert_eq!(scene.release("b1"), "s5");
    assert_eq!(choice(&scene, "s5").rule, PickRule::LowestScore);
}

#[test]
fn by_load_the_largest_goes_and_the_late_before_it() {
    let mut scene = Scene::new(1, &load(r#""max_wait_ticks":2"#)).explaining();
    scene.ask("p", "agent:pace", 1);
    scene.ask("o1", "agent:one", 1);
    scene.ask_many("m", 4, "agent:many", 1);
    let of = |standing| match standing {
        FlowStanding::Load { depth_thousandths, age, load_millionths, .. } => {
            (depth_thousandths, age, load_millionths)
        }
        other => panic!("not in a load node: {other:?}"),
    };
    // Equally old: 0.25 · 4/4 + 0.75, against 0.25 · 1/4 + 0.75.
    assert_eq!(scene.release("p"), "m1");
    let m1 = choice(&scene, "m1");
    assert_eq!(
        (m1.rule, of(m1.standing.clone())),
        (PickRule::LargestLoad, (4000, Ticks(1), Some(1_000_000)))
    );
    let (name, standing) = runner_up(m1);
    assert_eq!((name, of(standing)), ("one", (1000, Ticks(1), Some(812_500))));
    // Two ticks old, both are late; o1 came before m2.
    assert_eq!(scene.release("m1"), "o1");
    let o1 = choice(&scene, "o1");
    assert_eq!(
        (o1.rule, of(o1.standing.clone())),
        (PickRule::Late, (1000, Ticks(2), Some(833_333)))
    );
    assert_eq!(runner_up(o1).0, "many");
}

#[test]
fn a_reason_has_one_choice_for_each_level() {
    let policy = r#"{"share":{"by":"group","inside":{"drr":{"by":"class","classes":[{"name":"x","quantum":5}],
        "default":"x"}}}}"#;
    let mut scene = Scene::new(0, policy).explaining();
    scene.ask("r1", "group:g", 7);
    scene.ask("r2", "group:h", 7);
    scene.capacity(1);
    let why = scene.why("r1");
    let levels: Vec<_> = why.levels.iter().map(|level| (level.by, &*level.flow)).collect();
    assert_eq!(levels, [(Attribute::Group, "g"), (Attribute::Class, "x")]);
    assert_eq!(why.levels[0].rule, PickRule::LowestScore);
    assert_eq!(why.levels[1].rule, PickRule::Bulk { rounds: 2 });
    assert_eq!(runner_up(&why.levels[0]).0, "h");
    assert!(why.levels[1].runner_up.is_none());
}

/// A sink that requests an explanation of every grant.
struct Asking(Vec<Decision>);

impl DecisionSink for Asking {
    fn decided(&mut self, decision: Decision) {
        self.0.push(decision);
    }

    fn wants_why(&self, _id: &str) -> bool {
        true
    }
}

/// Returns the request that a pool grants when it gets one more slot, with the root's choice.
fn next_grant(mut pool: Pool) -> Option<(Arc<str>, FlowChoice)> {
    let mut asking = Asking(Vec::new());
    let slots = pool.in_flight() + 1;
    pool.apply(pool.now(), Event::Capacity { slots }, &mut asking).expect("time stands");
    let [Decision::Grant(grant)] = &asking.0[..] else {
        assert!(asking.0.is_empty(), "{:?}", asking.0);
        return None;
    };
    let why = grant.why.as_ref().expect("a reason");
    Some((grant.id.clone(), why.levels[0].clone()))
}

/// The runner-up is the flow that would have been picked if the winner had not been ready. The test holds the winner to
/// check this.
#[test]
fn the_runner_up_goes_when_the_winner_is_held() {
    let mut compared = 0;
    for (kind, shape) in [
        ("drr", WorkloadShape::drr()),
        ("share", WorkloadShape::share()),
        ("load", WorkloadShape::load()),
    ] {
        for seed in 0..60 {
            let shape = WorkloadShape { limits: false, timeouts: false, ..shape.clone() };
            let (config, events) = generate_answered(&shape, seed);
            let mut pool = Pool::new(config);
            for (step, (at, event)) in events.into_iter().enumerate() {
                pool.apply(at, event, &mut Vec::new()).expect("time goes on");
                if step % 16 != 7 {
                    continue;
                }
                let mut full = pool.clone();
                full.apply(at, Event::Capacity { slots: 0 }, &mut Vec::new()).expect("time stands");
                let Some((_, winner)) = next_grant(full.clone()) else { continue };
                let hold = Event::Hold { by: winner.by, flow: (&*winner.flow).into() };
                full.apply(at, hold, &mut Vec::new()).expect("time stands");
                let second = next_grant(full).map(|(_, choice)| choice.flow);
                let told: Option<Arc<str>> = winner.runner_up.map(|(name, _)| name);
                assert_eq!(told, second, "{kind}, seed {seed}, step {step}");
                compared += usize::from(second.is_some());
            }
        }
    }
    assert!(compared > 300, "only {compared} had a runner-up");
}
