//! The pools that are measured: how each starts and what its flows submit.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, Pin, PoolConfig, Submit, WorkerChange};
use fairgate_core::policy::{
    BusyThresholds, Class, ClassLimits, Drr, Inside, Load, Node, Policy, Share,
};
use fairgate_core::units::{Alpha, TaskWeight, Tokens, Weight};
use fairgate_testkit::workload::Rng;

use crate::steady::{Scenario, Source};

/// How many requests fly in every scenario but those that workers limit.
const CAPACITY: u64 = 16;
/// A drr class's credit per round; costs are up to four times as high.
const QUANTUM: u64 = 500;
const COST_MOST: u64 = 2000;
/// How many requests wait in a flow that is alone.
const DEEP: usize = 512;
/// How many wait where nothing is submitted any more.
const LASTING: usize = 20_000;

/// A ring of classes, of which the one in the middle has all the requests.
pub(crate) fn drr_one_busy(classes: usize) -> Scenario {
    let config = PoolConfig::new(0, drr(classes));
    backlogged(config, Attribute::Class, &[classes / 2], DEEP)
}

/// The same, but nothing is submitted any more.
pub(crate) fn drr_one_draining(classes: usize) -> Scenario {
    let config = PoolConfig::new(0, drr(classes));
    let scenario = backlogged(config, Attribute::Class, &[classes / 2], LASTING);
    Scenario { resubmits: false, ..scenario }
}

/// A ring of classes, all of which have requests.
pub(crate) fn drr_all_busy(classes: usize) -> Scenario {
    let config = PoolConfig::new(0, drr(classes));
    backlogged(config, Attribute::Class, &all(classes), 4)
}

/// A ring of held classes with requests, and two more in it that run.
pub(crate) fn drr_held(held: usize) -> Scenario {
    drr_two_running(held, DEEP)
}

/// The same, but nothing is submitted any more.
pub(crate) fn drr_held_draining(held: usize) -> Scenario {
    Scenario { resubmits: false, ..drr_two_running(held, LASTING) }
}

fn drr_two_running(held: usize, waiting: usize) -> Scenario {
    let classes = held + 2;
    let running = [0, classes / 2];
    let mut flows = all(classes);
    flows.extend(running.repeat(waiting));
    let config = PoolConfig::new(0, drr(classes));
    let mut scenario = backlogged(config, Attribute::Class, &flows, 1);
    scenario.busy = running.to_vec();
    let holds = (0..classes)
        .filter(|class| !running.contains(class))
        .map(|class| Event::Hold { by: Attribute::Class, flow: name(class).into() });
    scenario.opening.splice(0..0, holds);
    scenario
}

/// One queue and nothing to decide.
pub(crate) fn single_queue(waiting: usize) -> Scenario {
    backlogged(PoolConfig::new(0, drr(1)), Attribute::Class, &[0], waiting)
}

/// Tenants of four different weights, each with requests.
pub(crate) fn share_tenants(tenants: usize) -> Scenario {
    let policy = policy(Node::Share(share(Attribute::Tenant, tenants, queue())));
    backlogged(PoolConfig::new(0, policy), Attribute::Tenant, &all(tenants), 2)
}

/// The same with a bound on the queue that is never reached.
pub(crate) fn share_bounded(tenants: usize) -> Scenario {
    let mut scenario = share_tenants(tenants);
    scenario.config.max_queue = Some(u64::MAX);
    scenario
}

/// Groups of tenants, ten groups in all.
pub(crate) fn share_groups(tenants: usize) -> Scenario {
    const GROUPS: usize = 10;
    let inside = Inside::Node(Arc::new(Node::Share(share(Attribute::Tenant, tenants, queue()))));
    let policy = policy(Node::Share(share(Attribute::Group, GROUPS, inside)));
    let mut rng = Rng::new(1);
    let source = Source::new(move |flow, _| Submit {
        attributes: Attributes::none()
            .with(Attribute::Group, &name(flow % GROUPS))
            .with(Attribute::Tenant, &name(flow)),
        cost: Some(Tokens(rng.range(1..=COST_MOST))),
        ..Submit::new("")
    });
    filled(PoolConfig::new(0, policy), source, &all(tenants), 2)
}

/// Agents whose requests weigh 0.1 to 3.0.
pub(crate) fn load_agents(agents: usize) -> Scenario {
    load_of(balanced_load(), agents)
}

/// The same with everything that a load node can do.
pub(crate) fn load_tuned(agents: usize) -> Scenario {
    let max_wait_ticks = u64::try_from(3 * agents).ok();
    let load = Load { auto_tune: true, max_wait_ticks, ..load(Alpha::BALANCED) };
    load_of(policy(Node::Load(load)), agents)
}

/// Two requests per agent, come one by one in no order.
fn load_of(policy: Policy, agents: usize) -> Scenario {
    let mut rng = Rng::new(1);
    let mut arrivals = all(agents);
    arrivals.extend(all(agents));
    for last in (1..arrivals.len()).rev() {
        arrivals.swap(last, rng.index(last + 1));
    }
    let source = Source::new(move |flow, _| task(flow, rng.range(100..=3000)));
    Scenario { busy: all(agents), ..one_each_tick(policy, source, &arrivals) }
}

/// How many requests an adversarial load scenario can submit: with more, weights would be out of range.
const HORIZON: u64 = 44_000;

/// Agents whose points (depth, age) all are corners of their convex hull, now and later: the depth of the
/// request that comes at tick x is a strictly concave function of x.
pub(crate) fn load_convex(agents: usize) -> Scenario {
    load_along(agents, Alpha::BALANCED, |x| (x * (2 * HORIZON - x)) / 2 + 1)
}

/// Agents whose points all lie on one line.
pub(crate) fn load_collinear(agents: usize) -> Scenario {
    load_along(agents, Alpha::BALANCED, |x| 1000 + 3 * x)
}

/// Agents whose values all are equal: only depth counts, and all are as deep.
pub(crate) fn load_tied(agents: usize) -> Scenario {
    let depth_only = Alpha::from_millionths(1_000_000).expect("at most 1");
    load_along(agents, depth_only, |_| 1000)
}

/// Agents with one request each, whose weights follow a curve, now and later.
fn load_along(agents: usize, alpha: Alpha, weight: fn(u64) -> u64) -> Scenario {
    let source = Source::new(move |flow, made| {
        assert!(made < HORIZON, "an adversarial scenario is that long");
        task(flow, weight(made))
    });
    one_each_tick(policy(Node::Load(load(alpha))), source, &all(agents))
}

/// These agents submit, one at each tick. Scenery that was granted slots before gives them back one by one,
/// which is what makes the ticks. The policy comes last, for the opening is quicker without.
fn one_each_tick(policy: Policy, mut source: Source, arrivals: &[usize]) -> Scenario {
    let scenery = |number: usize| format!("scenery {number}");
    let slots = u64::try_from(arrivals.len()).expect("fits");
    let submits = (0..arrivals.len()).map(|number| Submit::new(&scenery(number)));
    let mut opening: Vec<_> = submits.map(|submit| Event::Submit(Box::new(submit))).collect();
    opening.push(Event::Capacity { slots: 0 });
    for (number, agent) in arrivals.iter().enumerate() {
        opening.push(source.next(*agent));
        opening.push(Event::Release { id: scenery(number).into(), tokens: None, quota: None });
    }
    opening.push(Event::Policy(policy));
    opening.push(Event::Capacity { slots: CAPACITY });
    let config = PoolConfig::new(slots, drr(1));
    Scenario { config, opening, source, resubmits: true, busy: Vec::new() }
}

/// Tenants whose heads are pinned to busy workers, and one whose requests go to a free one.
pub(crate) fn blocked_heads(blocked: usize, busy_workers: usize) -> Scenario {
    let mut config = PoolConfig::new(u64::MAX, tenants_of_equal_weight());
    config.workers = (0..busy_workers).map(|w| worker(w, Some(1))).collect();
    config.workers.push(worker(busy_workers, None));
    let mut flows = all(blocked);
    flows.extend([blocked].repeat(DEEP));
    let mut scenario =
        pinned(
            config,
            &flows,
            2,
            move |flow| {
                if flow == blocked { busy_workers } else { flow % busy_workers }
            },
        );
    let fill = (0..busy_workers).map(|w| {
        let pin = Some(Pin { worker: worker_name(w).into(), rank: None });
        let submit = Submit { pin, ..Submit::new(&format!("scenery {w}")) };
        Event::Submit(Box::new(submit))
    });
    scenario.opening.splice(0..0, fill);
    let scenery = u64::try_from(busy_workers).expect("fits");
    scenario.opening.push(Event::Capacity { slots: scenery + CAPACITY });
    scenario
}

/// Tenants that share one worker, which is full whenever it is not asked.
pub(crate) fn full_worker(tenants: usize) -> Scenario {
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = vec![worker(0, Some(4))];
    let mut scenario = backlogged(config, Attribute::Tenant, &all(tenants), 2);
    scenario.opening.push(Event::Capacity { slots: 1000 });
    scenario
}

/// Two such workers, each for half of the tenants.
pub(crate) fn two_full_workers(tenants: usize) -> Scenario {
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = vec![worker(0, Some(4)), worker(1, Some(4))];
    let mut scenario = pinned(config, &all(tenants), 2, |flow| flow % 2);
    scenario.opening.push(Event::Capacity { slots: 1000 });
    scenario
}

/// A hundred tenants and many workers, none of which is ever full.
pub(crate) fn many_workers(workers: usize) -> Scenario {
    const TENANTS: usize = 100;
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = (0..workers).map(|w| worker(w, None)).collect();
    backlogged(config, Attribute::Tenant, &all(TENANTS), 4)
}

/// The same, where each worker has another part of every prompt in its cache.
pub(crate) fn cached_workers(workers: usize) -> Scenario {
    const TENANTS: usize = 100;
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = (0..workers).map(|w| worker(w, None)).collect();
    let names: Vec<Arc<str>> = config.workers.iter().map(|worker| (&*worker.name).into()).collect();
    let mut rng = Rng::new(1);
    let mut origin = origins(Attribute::Tenant);
    let source = Source::new(move |flow, _| Submit {
        attributes: origin(flow),
        input: Some(Tokens(COST_MOST)),
        cached: names.iter().map(|name| (name.clone(), Tokens(rng.range(0..=COST_MOST)))).collect(),
        ..Submit::new("")
    });
    filled(config, source, &all(TENANTS), 4)
}

/// The attributes of flows, made once for each, as a gateway makes them once for a key.
fn origins(by: Attribute) -> impl FnMut(usize) -> Attributes {
    let mut made = HashMap::new();
    move |flow| {
        let make = || Attributes::none().with(by, &name(flow));
        made.entry(flow).or_insert_with(make).clone()
    }
}

/// The same backlog in each of these flows, which are busy for as long as it lasts.
fn backlogged(config: PoolConfig, by: Attribute, flows: &[usize], each: usize) -> Scenario {
    let mut rng = Rng::new(1);
    let mut origin = origins(by);
    let source = Source::new(move |flow, _| Submit {
        attributes: origin(flow),
        cost: Some(Tokens(rng.range(1..=COST_MOST))),
        ..Submit::new("")
    });
    filled(config, source, flows, each)
}

/// The same backlog in each of these tenants; `worker_of` says where each runs.
fn pinned(
    config: PoolConfig,
    tenants: &[usize],
    each: usize,
    worker_of: impl Fn(usize) -> usize + 'static,
) -> Scenario {
    let mut rng = Rng::new(1);
    let mut origin = origins(Attribute::Tenant);
    let source = Source::new(move |flow, _| Submit {
        attributes: origin(flow),
        cost: Some(Tokens(rng.range(1..=COST_MOST))),
        pin: Some(Pin { worker: worker_name(worker_of(flow)).into(), rank: None }),
        ..Submit::new("")
    });
    filled(config, source, tenants, each)
}

/// The backlog comes before the slots do.
fn filled(config: PoolConfig, mut source: Source, flows: &[usize], each: usize) -> Scenario {
    let mut opening = vec![Event::Capacity { slots: 0 }];
    opening.extend((0..each).flat_map(|_| flows).map(|flow| source.next(*flow)));
    opening.push(Event::Capacity { slots: CAPACITY });
    let mut busy = flows.to_vec();
    busy.sort_unstable();
    busy.dedup();
    Scenario { config, opening, source, resubmits: true, busy }
}

/// The agents' requests, each of its own weight.
fn task(flow: usize, weight_thousandths: u64) -> Submit {
    Submit {
        attributes: Attributes::none().with(Attribute::Agent, &name(flow)),
        weight: TaskWeight::from_thousandths(weight_thousandths).expect("in range"),
        ..Submit::new("")
    }
}

fn all(flows: usize) -> Vec<usize> {
    (0..flows).collect()
}

fn name(flow: usize) -> String {
    format!("flow-{flow:06}")
}

fn worker_name(worker: usize) -> String {
    format!("worker-{worker:04}")
}

fn worker(worker: usize, slots: Option<u64>) -> WorkerChange {
    WorkerChange { name: worker_name(worker).into(), slots, ..WorkerChange::default() }
}

fn weight(weight: u64) -> Weight {
    Weight::new(weight).expect("1 or more")
}

fn queue() -> Inside {
    Inside::FCFS
}

fn policy(root: Node) -> Policy {
    Policy::new(root).expect("a policy that can be")
}

/// A ring of classes, each with a queue.
pub(crate) fn drr(classes: usize) -> Policy {
    let class = |class| Class {
        name: name(class).into(),
        quantum: weight(QUANTUM),
        inside: queue(),
        busy: BusyThresholds::default(),
        limits: ClassLimits::default(),
    };
    let classes = (0..classes).map(class).collect();
    policy(Node::Drr(Drr { by: Attribute::Class, classes, default: None }))
}

fn share(by: Attribute, flows: usize, inside: Inside) -> Share {
    let weights = (0..flows).map(|flow| (name(flow).into(), weight([50, 100, 200, 500][flow % 4])));
    Share { weights: weights.collect(), ..equal_share(by, inside) }
}

fn equal_share(by: Attribute, inside: Inside) -> Share {
    Share { inside, ..Share::new(by) }
}

/// A share of sessions that all weigh the same.
pub(crate) fn sessions_of_equal_weight() -> Policy {
    policy(Node::Share(equal_share(Attribute::Session, queue())))
}

/// A share of tenants that all weigh the same.
pub(crate) fn tenants_of_equal_weight() -> Policy {
    policy(Node::Share(equal_share(Attribute::Tenant, queue())))
}

/// A load of agents with the default trade-off.
pub(crate) fn balanced_load() -> Policy {
    policy(Node::Load(load(Alpha::BALANCED)))
}

fn load(alpha: Alpha) -> Load {
    Load { by: Attribute::Agent, alpha, auto_tune: false, max_wait_ticks: None, inside: queue() }
}
