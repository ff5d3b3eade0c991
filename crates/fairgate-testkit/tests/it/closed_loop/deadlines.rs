//! Tests of requests with deadlines in closed loops. Earliest deadline first keeps every deadline that can be kept, and
//! a tenant with short deadlines does not get the service of another tenant.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::seeds;
use crate::closed_loop::world::policy;

/// Time that each request runs, in microseconds.
const UNIT: u64 = 1000;

/// A request of a set in which every request can start before its deadline.
#[derive(Clone, Copy, Debug)]
struct Task {
    /// Time of arrival, in whole units.
    arrives: u64,
    /// Time from the arrival to the deadline, in microseconds.
    timeout: u64,
}

/// Draws a set of requests whose deadlines can all be kept. Each request has its own unit of time in which it could
/// start. The unit does not begin before the arrival, and the deadline is after its beginning.
fn feasible(rng: &mut SeededRng) -> Vec<Task> {
    let length = rng.range(5..=80);
    // Dense sets leave no unit free, sparse ones let the pool run empty.
    let density = rng.one_of(&[40, 80, 100]);
    let early = rng.one_of(&[0, 3, 20]);
    let slack = rng.one_of(&[0, 1, 4, 30]);
    let mut tasks = Vec::new();
    for start in 0..length {
        if !rng.percent(density) {
            continue;
        }
        let arrives = start.saturating_sub(rng.range(0..=early));
        // A deadline may lie within a unit: it is then kept only by a start at or before the unit's begin.
        let spare = rng.range(1..=UNIT) + UNIT * rng.range(0..=slack);
        tasks.push(Task { arrives, timeout: (start - arrives) * UNIT + spare });
    }
    for last in (1..tasks.len()).rev() {
        tasks.swap(last, rng.index(last + 1));
    }
    tasks.sort_by_key(|task| task.arrives);
    tasks
}

/// Returns the number of requests of a set that miss their deadlines in a queue of this order. All requests that arrive
/// at a unit are submitted before a request is chosen, because the flow is held until then.
fn missed(tasks: &[Task], order: &str) -> usize {
    let text = format!(r#"{{"share":{{"by":"tenant","queue":"{order}"}}}}"#);
    let mut pool = Pool::new(PoolConfig::new(1, policy(&text)));
    let (by, flow) = (Attribute::Tenant, "default");
    let (mut missed, mut running) = (0, None);
    let units = tasks.iter().map(|task| task.arrives).max().unwrap_or(0) + tasks.len() as u64 + 1;
    for unit in 0..=units {
        let mut events = vec![Event::Hold { by, flow: flow.into() }];
        events.extend(running.take().map(|id| Event::Release { id, tokens: None, quota: None }));
        for (number, task) in tasks.iter().enumerate().filter(|(_, task)| task.arrives == unit) {
            let mut submit = Submit::new(&format!("r{number}"));
            submit.timeout = Some(Micros(task.timeout));
            events.push(Event::Submit(Box::new(submit)));
        }
        events.push(Event::Resume { by, flow: flow.into() });
        for event in events {
            let mut decisions = Vec::new();
            pool.apply(Micros(unit * UNIT), event, &mut decisions).expect("time goes on");
            for decision in decisions {
                match decision {
                    Decision::Grant(grant) => running = Some(grant.id),
                    Decision::Expire { .. } => missed += 1,
                    Decision::Reject(reject) => panic!("nothing is refused: {reject:?}"),
                }
            }
        }
    }
    assert_eq!(pool.waiting(), 0, "every request was granted or has expired");
    missed
}

#[test]
fn earliest_deadline_first_keeps_every_deadline_that_can_be_kept() {
    let (by_arrival, requests) = (AtomicU64::new(0), AtomicU64::new(0));
    seeds("feasible deadlines", 2000, |seed| {
        let tasks = feasible(&mut SeededRng::new(seed));
        let missed_by_edf = missed(&tasks, "edf");
        assert_eq!(missed_by_edf, 0, "seed {seed}: edf misses {missed_by_edf} of {tasks:#?}");
        by_arrival.fetch_add(missed(&tasks, "fcfs") as u64, Ordering::Relaxed);
        requests.fetch_add(tasks.len() as u64, Ordering::Relaxed);
    });
    let (by_arrival, requests) = (by_arrival.into_inner(), requests.into_inner());
    announce(&format!("feasible deadlines: edf misses 0 of {requests}, fcfs {by_arrival}"));
    assert!(by_arrival * 50 > requests, "the sets are too easy: fcfs misses {by_arrival}");
}

/// The tokens of two tenants that keep the same number of requests waiting. The hasty tenant's requests expire after at
/// most a millisecond, and it then sends the next request at once.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    hasty: u64,
    calm: u64,
    expired: u64,
    /// Tokens of the largest request, times the number of slots.
    in_flight_most: u64,
    within_bound: bool,
}

const HASTY: &str = "hasty";
const CALM: &str = "calm";
const TIMEOUT: u64 = 1000;
const WAITING: u64 = 4;

struct Loop {
    rng: SeededRng,
    pool: Pool,
    now: u64,
    next_id: u64,
    size_most: u64,
    /// Planned submits of the hasty tenant and planned ends of requests, by time and number.
    plan: BTreeMap<(u64, u64), Planned>,
    used: BTreeMap<&'static str, u64>,
    expired: u64,
}

enum Planned {
    Submit(&'static str),
    End { id: std::sync::Arc<str>, tenant: &'static str, tokens: u64 },
}

impl Loop {
    fn submit(&mut self, tenant: &'static str) {
        self.next_id += 1;
        let cost = self.rng.range(1..=self.size_most);
        let mut submit = Submit::new(&format!("{tenant}-{cost}-{}", self.next_id));
        submit.attributes = Attributes::none().with(Attribute::Tenant, tenant);
        submit.cost = Some(Tokens(cost));
        submit.timeout = (tenant == HASTY).then_some(Micros(TIMEOUT));
        self.apply(Event::Submit(Box::new(submit)));
    }

    fn plan(&mut self, at: u64, planned: Planned) {
        self.next_id += 1;
        self.plan.insert((at, self.next_id), planned);
    }

    fn apply(&mut self, event: Event) {
        let mut decisions = Vec::new();
        self.pool.apply(Micros(self.now), event, &mut decisions).expect("time goes on");
        for decision in decisions {
            match decision {
                Decision::Grant(grant) => {
                    let tenant = if grant.id.starts_with(HASTY) { HASTY } else { CALM };
                    let tokens = grant.cost.0;
                    let service = 2000 + tokens * self.rng.range(8..=12);
                    let at = self.now + service;
                    self.plan(at, Planned::End { id: grant.id, tenant, tokens });
                    self.plan(self.now, Planned::Submit(tenant));
                }
                Decision::Expire { .. } => {
                    self.expired += 1;
                    self.plan(self.now, Planned::Submit(HASTY));
                }
                Decision::Reject(reject) => panic!("nothing is refused: {reject:?}"),
            }
        }
    }

    fn step(&mut self) {
        let planned = self.plan.first_key_value().map(|((at, _), _)| *at);
        let change = self.pool.next_change().map(|at| at.0.max(self.now));
        if let Some(change) = change.filter(|at| planned.is_none_or(|planned| *at < planned)) {
            self.now = change;
            return self.apply(Event::Tick);
        }
        let ((at, _), planned) = self.plan.pop_first().expect("something is to come");
        self.now = at;
        match planned {
            Planned::Submit(tenant) => self.submit(tenant),
            Planned::End { id, tenant, tokens } => {
                *self.used.entry(tenant).or_default() += tokens;
                self.apply(Event::Release { id, tokens: Some(Tokens(tokens)), quota: None });
            }
        }
    }
}

/// Runs until both tenants have used the tokens of thousands of requests. If `spread`, the hasty tenant's requests
/// arrive one after the other, so that one of them always waits. Otherwise they arrive at once, so that all expire
/// together.
fn beside_the_hasty(text: &str, spread: bool, seed: u64) -> Outcome {
    let mut rng = SeededRng::new(seed);
    let slots = rng.range(1..=6);
    let size_most = rng.one_of(&[1, 50, 1000]);
    let mut world = Loop {
        rng,
        pool: Pool::new(PoolConfig::new(slots, policy(text))),
        now: 0,
        next_id: 0,
        size_most,
        plan: BTreeMap::new(),
        used: BTreeMap::new(),
        expired: 0,
    };
    for i in 0..slots + WAITING {
        let at = if spread { i * (TIMEOUT / (WAITING + slots)) } else { 0 };
        world.plan(at, Planned::Submit(HASTY));
        world.plan(0, Planned::Submit(CALM));
    }
    for _ in 0..40_000 {
        world.step();
    }
    let nodes = world.pool.fairness();
    let used = |tenant| world.used.get(tenant).copied().unwrap_or(0);
    Outcome {
        hasty: used(HASTY),
        calm: used(CALM),
        expired: world.expired,
        in_flight_most: size_most * slots,
        within_bound: nodes[0].flows.iter().all(|flow| flow.is_within_bound()),
    }
}

const SHARED: [&str; 2] =
    [r#"{"share":{"by":"tenant"}}"#, r#"{"share":{"by":"tenant","queue":"edf"}}"#];

#[test]
fn a_tenant_that_asks_for_a_millisecond_gets_its_share_and_no_more() {
    for text in SHARED {
        seeds(text, 20, |seed| {
            let outcome = beside_the_hasty(text, true, seed);
            let Outcome { hasty, calm, expired, in_flight_most, within_bound } = outcome;
            assert!(expired > 1000, "seed {seed}: {outcome:?}");
            assert!(within_bound, "seed {seed}: {outcome:?}");
            // Each may be ahead by what it has in flight and one request.
            assert!(hasty.abs_diff(calm) <= 2 * in_flight_most + 1, "seed {seed}: {outcome:?}");
            assert!(calm > 20 * in_flight_most, "too short, seed {seed}: {outcome:?}");
        });
    }
}

/// A tenant that has no waiting requests for a moment, because all have expired, loses the service that was due in that
/// time.
#[test]
fn a_tenant_whose_requests_all_expire_at_once_gains_nothing() {
    for text in SHARED {
        seeds(text, 20, |seed| {
            let outcome = beside_the_hasty(text, false, seed);
            let Outcome { hasty, calm, in_flight_most, .. } = outcome;
            assert!(hasty <= calm + 2 * in_flight_most + 1, "seed {seed}: {outcome:?}");
            assert!(outcome.expired > 1000, "seed {seed}: {outcome:?}");
        });
    }
}

/// Without a share node, in one `edf` queue, the tenant with the short deadlines gets everything.
#[test]
fn in_one_queue_the_hasty_takes_all() {
    let text = r#"{"share":{"by":"class","queue":"edf"}}"#;
    seeds("one queue", 5, |seed| {
        let outcome = beside_the_hasty(text, true, seed);
        assert!(outcome.hasty > 9 * outcome.calm, "seed {seed}: {outcome:?}");
    });
}
