//! Tests of queues with a longest wait. No request overtakes the oldest late request that has an
//! open worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::PoolConfig;
use fairgate_testkit::seeds::announce;
use fairgate_testkit::workload::SeededRng;

use crate::closed_loop::seeds;
use crate::closed_loop::sizes;
use crate::closed_loop::world::{Source, World, policy, worker};

/// The state of the queues and workers, counted independently of the pool.
struct Watch {
    max_wait: u64,
    /// Waiting requests of each source, in the order of arrival.
    waiting: Vec<BTreeSet<usize>>,
    /// Number of slots of each worker.
    slots: BTreeMap<&'static str, u64>,
    in_flight: BTreeMap<String, u64>,
    /// Number of grants of the oldest late request of a source.
    late: u64,
    grants: u64,
}

impl Watch {
    fn has_open_place(&self, world: &World, number: usize) -> bool {
        let allowed = world.requests[number].allow.as_deref();
        let is_allowed = |name: &&str| allowed.is_none_or(|list| list.contains(name));
        let is_free =
            |name: &str| self.in_flight.get(name).copied().unwrap_or(0) < self.slots[name];
        self.slots.keys().filter(|name| is_allowed(name)).any(|name| is_free(name))
    }

    /// Returns the oldest late request of a source that has an open worker; `None` if there is
    /// none.
    fn oldest_late(&self, world: &World, source: usize, at: u64) -> Option<usize> {
        let is_late = |number: &usize| at - world.requests[*number].submitted_at >= self.max_wait;
        let late = self.waiting[source].iter().copied().take_while(is_late);
        late.into_iter().find(|number| self.has_open_place(world, *number))
    }

    fn granted(&mut self, world: &World, number: usize, at: u64) -> Result<(), String> {
        let request = &world.requests[number];
        if let Some(oldest) = self.oldest_late(world, request.source, at) {
            if oldest != number {
                return Err(format!("at {at} r{number} goes before r{oldest}, which is late"));
            }
            self.late += 1;
        }
        self.grants += 1;
        self.waiting[request.source].remove(&number);
        let worker = request.worker.as_ref().ok_or("granted without a worker")?;
        *self.in_flight.entry(worker.to_string()).or_default() += 1;
        Ok(())
    }
}

#[test]
fn nobody_overtakes_the_oldest_late_request_that_could_run() {
    let sum = Mutex::new((0, 0));
    seeds("late requests", 40, |seed| {
        let (late, grants) = play(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        let mut sum = sum.lock().expect("nobody failed");
        *sum = (sum.0 + late, sum.1 + grants);
    });
    let (late, grants) = sum.into_inner().expect("nobody failed");
    announce(&format!("late requests: {late} of {grants} grants were the oldest late one"));
    assert!(late * 10 > grants && late * 10 < grants * 9, "{late} of {grants} were late");
}

fn play(seed: u64) -> Result<(u64, u64), String> {
    let mut rng = SeededRng::new(seed);
    let workloads = sizes::all();
    let sizes = &workloads[rng.index(workloads.len())];
    let order = rng.one_of(&["fcfs", "wspt"]);
    let max_wait = rng.one_of(&[0, 500_000, 2_000_000, 10_000_000, 60_000_000]);
    let queue = format!(r#"{{"order":"{order}","max_wait_us":{max_wait}}}"#);
    let nodes = [
        format!(r#"{{"share":{{"by":"tenant","queue":{queue}}}}}"#),
        format!(r#"{{"load":{{"by":"tenant","queue":{queue}}}}}"#),
        format!(
            r#"{{"drr":{{"by":"tenant","classes":[{{"name":"t0","quantum":4000,"queue":{queue}}},{{"name":"t1","quantum":1000,"queue":{queue}}},{{"name":"t2","quantum":100,"queue":{queue}}}]}}}}"#
        ),
    ];
    let slots = [("w0", rng.range(1..=3)), ("w1", rng.range(1..=3))];
    let mut config = PoolConfig::new(rng.range(2..=6), policy(&nodes[rng.index(3)]));
    config.workers = slots.iter().map(|(name, slots)| worker(name, *slots)).collect();
    let lists = [None, Some(vec!["w0"]), Some(vec!["w1"]), Some(vec!["w0", "w1"])];
    let source = |i: usize| {
        let allow = lists[..rng.count(1..=4)].to_vec();
        let (waiting, priorities) = (rng.count(2..=12), rng.one_of(&[0, 2]));
        let source = Source::new(Attribute::Tenant, &format!("t{i}"), sizes);
        Source { waiting, priorities, allow, ..source }
    };
    let sources: Vec<Source> = (0..3).map(source).collect();
    let mut watch = Watch {
        max_wait,
        waiting: vec![BTreeSet::new(); sources.len()],
        slots: slots.into_iter().collect(),
        in_flight: BTreeMap::new(),
        late: 0,
        grants: 0,
    };
    let mut world = World::new(config, sources, seed).shuffled();
    while watch.grants < 1500 {
        let step = world.step();
        if let Some(number) = step.submitted {
            watch.waiting[world.requests[number].source].insert(number);
        }
        if let Some(number) = step.ended {
            let worker = world.requests[number].worker.as_ref().ok_or("ended without a worker")?;
            *watch.in_flight.get_mut(&**worker).ok_or("never granted there")? -= 1;
        }
        for number in step.granted {
            watch.granted(&world, number, step.at)?;
        }
    }
    Ok((watch.late, watch.grants))
}
