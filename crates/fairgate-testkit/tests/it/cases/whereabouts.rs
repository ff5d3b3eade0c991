//! Cases of the state of a waiting request: its flows, the requests before it, and its place. Reading the state changes
//! nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::event::{Event, Submit, WorkerChange};
use fairgate_core::explain::{FlowReadiness, RequestLocation};
use fairgate_core::units::Micros;
use fairgate_testkit::workload::{SeededRng, WorkloadShape, generate_answered};

use super::obleth::tenants;
use super::scene::{Scene, request};

#[test]
fn a_waiting_request_is_told_what_goes_before_it() {
    let mut scene = Scene::new(1, &tenants(""));
    scene.ask_many("a", 4, "tenant:a", 100);
    scene.at(5).ask_many("b", 2, "tenant:b", 30);
    let waiting = scene.waiting("a4");
    assert_eq!((waiting.submitted_at, waiting.cost.0), (Micros(0), 100));
    assert_eq!(waiting.ahead_in_queue, 2);
    // a stands at 100 when a1 ends: b1 and b2 go, then a2, a3 and a4.
    assert_eq!(waiting.place, Some(4));
    let ahead: Vec<_> = waiting.ahead.iter().map(|a| (&*a.path[0], a.requests, a.tokens)).collect();
    assert_eq!(ahead, [("a", 2, 200), ("b", 2, 60)]);
    let level = &waiting.levels[0];
    assert_eq!((level.by, &*level.flow), (Attribute::Tenant, "a"));
    assert_eq!((level.waiting, level.in_flight, level.readiness), (3, 1, FlowReadiness::Ready));
    assert_eq!(scene.waiting("b1").place, Some(0));
    assert_eq!(scene.waiting("b2").place, Some(1));
    scene.drain();
    assert_eq!(scene.order(), "abbaaa");
}

#[test]
fn a_request_in_flight_says_since_when_and_where_and_an_ended_one_is_nowhere() {
    let mut scene = Scene::with(1, &tenants(""), |config| {
        config.workers = vec![WorkerChange { name: "w".into(), ..WorkerChange::default() }];
    });
    scene.at(7).ask("r", "tenant:t", 1);
    let Some(RequestLocation::InFlight { granted_at, place }) = scene.pool.request_location("r")
    else {
        panic!("it is not in flight");
    };
    let place = place.expect("a place");
    assert_eq!((granted_at, &*place.worker, place.rank), (Micros(7), "w", 0));
    scene.release("r");
    assert_eq!(scene.pool.request_location("r"), None);
    assert_eq!(scene.pool.request_location("never"), None);
}

#[test]
fn a_request_that_cannot_go_is_told_why_at_each_level() {
    let policy =
        r#"{"share":{"by":"group","inside":{"share":{"by":"tenant","caps":{"capped":1}}}}}"#;
    let mut scene = Scene::new(4, policy);
    scene.ask("x", "group:g tenant:capped", 1);
    scene.ask("c", "group:g tenant:capped", 1);
    let readiness = |scene: &Scene, id: &str| {
        let levels = scene.waiting(id).levels;
        [levels[0].readiness, levels[1].readiness]
    };
    assert_eq!(readiness(&scene, "c"), [FlowReadiness::Blocked, FlowReadiness::AtCap]);
    assert_eq!(scene.waiting("c").place, Some(0), "when x ends");
    scene.hold("tenant:held");
    scene.ask("h", "group:g tenant:held", 1);
    assert_eq!(readiness(&scene, "h"), [FlowReadiness::Blocked, FlowReadiness::Held]);
    assert_eq!(scene.waiting("h").place, None, "not as things are");
    scene.hold("group:g");
    scene.ask("g", "group:g tenant:free", 1);
    assert_eq!(readiness(&scene, "g"), [FlowReadiness::Held, FlowReadiness::Ready]);
    assert_eq!(scene.waiting("g").place, None);
    assert_eq!(scene.resume("group:g"), "g");
}

#[test]
fn a_head_without_an_open_worker_is_told_that_it_is_blocked() {
    let mut scene = Scene::with(4, &tenants(""), |config| {
        config.workers =
            vec![WorkerChange { name: "w".into(), slots: Some(1), ..WorkerChange::default() }];
    });
    scene.ask("r1", "tenant:t", 1);
    scene.ask("r2", "tenant:t", 1);
    let waiting = scene.waiting("r2");
    assert_eq!((waiting.levels[0].readiness, waiting.place), (FlowReadiness::Blocked, Some(0)));
}

/// Returns the ids of the waiting requests, and those of the requests in flight in the order of the
/// grants.
fn ids(pool: &Pool) -> (Vec<Arc<str>>, VecDeque<Arc<str>>) {
    let requests = pool.snapshot().requests;
    let waiting = requests.iter().filter(|r| r.flight.is_none()).map(|r| r.id.clone()).collect();
    let mut in_flight: Vec<_> =
        requests.iter().filter_map(|r| Some((r.flight.as_ref()?.number, r.id.clone()))).collect();
    in_flight.sort_unstable();
    (waiting, in_flight.into_iter().map(|(_, id)| id).collect())
}

/// Ends requests in the order of their grants until no request is in flight. Returns the granted requests in order.
fn grants_to_come(mut pool: Pool) -> Vec<Arc<str>> {
    let (_, mut in_flight) = ids(&pool);
    let mut grants = Vec::new();
    while let Some(id) = in_flight.pop_front() {
        let mut decisions = Vec::new();
        let release = Event::Release { id, tokens: None, quota: None };
        pool.apply(pool.now(), release, &mut decisions).expect("time stands");
        for decision in decisions {
            let Decision::Grant(grant) = decision else { panic!("{decision:?}") };
            in_flight.push_back(grant.id.clone());
            grants.push(grant.id);
        }
    }
    grants
}

/// Returns the shapes of the random pools. No request expires in them, because a prediction would have to know the
/// times.
fn shapes() -> Vec<(&'static str, WorkloadShape)> {
    let lasting = |(name, shape)| (name, WorkloadShape { limits: false, timeouts: false, ..shape });
    WorkloadShape::quick().into_iter().map(lasting).collect()
}

#[test]
fn the_place_of_a_request_is_the_number_of_grants_before_it() {
    let (mut told, mut never) = (0, 0);
    for (name, shape) in shapes() {
        for seed in 0..25 {
            let (config, events) = generate_answered(&shape, seed);
            let mut pool = Pool::new(config);
            for (step, (at, event)) in events.into_iter().enumerate() {
                pool.apply(at, event, &mut Vec::new()).expect("time goes on");
                if step % 40 != 39 {
                    continue;
                }
                let grants = grants_to_come(pool.clone());
                let places: BTreeMap<_, _> = grants.iter().zip(0..).collect();
                let (waiting, _) = ids(&pool);
                let every = (waiting.len() / 5).max(1);
                for id in waiting.iter().step_by(every) {
                    let Some(RequestLocation::Waiting(waiting)) = pool.request_location(id) else {
                        panic!("{id} waits");
                    };
                    let context = format!("{name}, seed {seed}, step {step}, {id}");
                    assert_eq!(waiting.place, places.get(id).copied(), "{context}");
                    let ahead: u64 = waiting.ahead.iter().map(|ahead| ahead.requests).sum();
                    let before = waiting.place.unwrap_or(grants.len() as u64);
                    assert_eq!(ahead, before, "{context}");
                    told += usize::from(waiting.place.is_some());
                    never += usize::from(waiting.place.is_none());
                }
            }
        }
    }
    assert!(told > 1000 && never > 100, "{told} had a place, {never} had none");
}

/// A place is computed as if no request expired, because the time until each grant is not known. A request with a
/// timeout of 0 has a place too.
#[test]
fn a_place_is_told_as_if_nothing_expired() {
    let mut scene = Scene::new(1, r#"{"share":{"by":"tenant","queue":"edf"}}"#);
    scene.ask("r1", "tenant:t", 1);
    for (id, timeout) in [("r2", None), ("r3", Some(900)), ("r4", Some(0))] {
        let timeout = timeout.map(Micros);
        scene.submit(Submit { timeout, ..request(id, "tenant:t") });
    }
    let place = |id: &str| scene.waiting(id).place;
    assert_eq!((place("r4"), place("r3"), place("r2")), (Some(0), Some(1), Some(2)));
}

/// A sink that requests an explanation of every grant, and keeps the decisions without the
/// explanations.
struct Curious(Vec<Decision>);

impl DecisionSink for Curious {
    fn decided(&mut self, mut decision: Decision) {
        if let Decision::Grant(grant) = &mut decision {
            assert!(grant.why.take().is_some());
        }
        self.0.push(decision);
    }

    fn wants_why(&self, _id: &str) -> bool {
        true
    }
}

#[test]
fn asking_changes_nothing() {
    for (name, shape) in WorkloadShape::quick() {
        for seed in 0..8 {
            let context = format!("{name}, seed {seed}");
            let mut rng = SeededRng::new(seed);
            let (config, events) = generate_answered(&shape, seed);
            let mut left_alone = Pool::new(config.clone());
            let mut asked = Pool::new(config);
            for (at, event) in events {
                let mut decisions = Vec::new();
                let mut curious = Curious(Vec::new());
                left_alone.apply(at, event.clone(), &mut decisions).expect("time goes on");
                asked.apply(at, event, &mut curious).expect("time goes on");
                assert_eq!(curious.0, decisions, "{context}");

                let before = asked.snapshot();
                assert_eq!(before, left_alone.snapshot(), "{context}");
                if let Some(request) = before.requests.get(rng.index(before.requests.len().max(1)))
                {
                    assert!(asked.request_location(&request.id).is_some(), "{context}");
                }
                asked.request_location("nobody");
                asked.fairness();
                asked.next_change();
                assert_eq!(asked.snapshot(), before, "{context}");
            }
        }
    }
}
