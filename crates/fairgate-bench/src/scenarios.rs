//! The pools that are measured: their configuration, the events that fill them, and the submits of
//! their flows.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, Pin, PoolConfig, Submit, WorkerChange};
use fairgate_core::policy::{
    BandClass, BandsPolicy, BusyThresholds, ClassLimits, DrrClassPolicy, DrrPolicy, FlowInside,
    LoadPolicy, Policy, PolicyNode, SharePolicy,
};
use fairgate_core::units::{Alpha, TaskWeight, Tokens, Weight};
use fairgate_testkit::workload::SeededRng;

use crate::steady::{PoolScenario, SubmitSource};

/// Slots of the pool in every scenario, except in those in which the workers' slots are the limit.
const CAPACITY: u64 = 16;
/// Credit of a drr class per round, in tokens. A request costs up to four times as much.
const QUANTUM: u64 = 500;
const COST_MOST: u64 = 2000;
/// Number of queued requests of a flow in scenarios in which this one flow keeps the pool busy.
const DEEP: usize = 512;
/// Number of queued requests of a flow in scenarios without submits during the measurement.
const LASTING: usize = 20_000;

/// Builds a drr node of many classes, of which only the middle one has requests.
pub(crate) fn drr_one_busy(classes: usize) -> PoolScenario {
    let config = PoolConfig::new(0, drr(classes));
    backlogged(config, Attribute::Class, &[classes / 2], DEEP)
}

/// Builds [`drr_one_busy`] with a longer queue and without submits during the measurement.
pub(crate) fn drr_one_draining(classes: usize) -> PoolScenario {
    let config = PoolConfig::new(0, drr(classes));
    let scenario = backlogged(config, Attribute::Class, &[classes / 2], LASTING);
    PoolScenario { resubmits: false, ..scenario }
}

/// Builds a drr node of many classes, all of which have requests.
pub(crate) fn drr_all_busy(classes: usize) -> PoolScenario {
    let config = PoolConfig::new(0, drr(classes));
    backlogged(config, Attribute::Class, &all(classes), 4)
}

/// Builds a drr node of `held` classes that have requests but are held, and two more classes that
/// are served.
pub(crate) fn drr_held(held: usize) -> PoolScenario {
    drr_two_running(held, DEEP)
}

/// Builds [`drr_held`] with longer queues and without submits during the measurement.
pub(crate) fn drr_held_draining(held: usize) -> PoolScenario {
    PoolScenario { resubmits: false, ..drr_two_running(held, LASTING) }
}

fn drr_two_running(held: usize, waiting: usize) -> PoolScenario {
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

/// Builds strict bands, all of which have requests. Each band's cap is a quarter of the slots, so
/// the first four bands share the slots and the others wait.
pub(crate) fn bands(bands: usize) -> PoolScenario {
    let class = |class| BandClass {
        name: name(class).into(),
        cap: Some(CAPACITY / 4),
        inside: queue(),
        busy: BusyThresholds::default(),
        limits: ClassLimits::default(),
    };
    let classes = (0..bands).map(class).collect();
    let root =
        BandsPolicy { by: Attribute::Class, classes, default: None, inside: FlowInside::FCFS };
    let config = PoolConfig::new(0, policy(PolicyNode::Bands(root)));
    backlogged(config, Attribute::Class, &all(bands), 8)
}

/// Builds a single queue, so that the policy has nothing to choose.
pub(crate) fn single_queue(waiting: usize) -> PoolScenario {
    backlogged(PoolConfig::new(0, drr(1)), Attribute::Class, &[0], waiting)
}

/// Builds a share node over tenants with four different weights. Each tenant has requests.
pub(crate) fn share_tenants(tenants: usize) -> PoolScenario {
    let policy = policy(PolicyNode::Share(share(Attribute::Tenant, tenants, queue())));
    backlogged(PoolConfig::new(0, policy), Attribute::Tenant, &all(tenants), 2)
}

/// Builds [`share_tenants`] with a limit on the queue that is never reached.
pub(crate) fn share_bounded(tenants: usize) -> PoolScenario {
    let mut scenario = share_tenants(tenants);
    scenario.config.max_queue = Some(u64::MAX);
    scenario
}

/// Builds a share node over ten groups, each with a share node over its tenants.
pub(crate) fn share_groups(tenants: usize) -> PoolScenario {
    const GROUPS: usize = 10;
    let inside =
        FlowInside::Node(Arc::new(PolicyNode::Share(share(Attribute::Tenant, tenants, queue()))));
    let policy = policy(PolicyNode::Share(share(Attribute::Group, GROUPS, inside)));
    let mut rng = SeededRng::new(1);
    let source = SubmitSource::new(move |flow, _| Submit {
        attributes: Attributes::none()
            .with(Attribute::Group, &name(flow % GROUPS))
            .with(Attribute::Tenant, &name(flow)),
        cost: Some(Tokens(rng.range(1..=COST_MOST))),
        ..Submit::new("")
    });
    filled(PoolConfig::new(0, policy), source, &all(tenants), 2)
}

/// Builds a load node over agents, whose requests have weights from 0.1 to 3.0.
pub(crate) fn load_agents(agents: usize) -> PoolScenario {
    load_of(balanced_load(), agents)
}

/// Builds [`load_agents`] with all options of a load node set.
pub(crate) fn load_tuned(agents: usize) -> PoolScenario {
    let max_wait_ticks = u64::try_from(3 * agents).ok();
    let load = LoadPolicy { auto_tune: true, max_wait_ticks, ..load(Alpha::BALANCED) };
    load_of(policy(PolicyNode::Load(load)), agents)
}

/// Builds a load scenario with two queued requests per agent, submitted one by one in random order.
fn load_of(policy: Policy, agents: usize) -> PoolScenario {
    let mut rng = SeededRng::new(1);
    let mut arrivals = all(agents);
    arrivals.extend(all(agents));
    for last in (1..arrivals.len()).rev() {
        arrivals.swap(last, rng.index(last + 1));
    }
    let source = SubmitSource::new(move |flow, _| task(flow, rng.range(100..=3000)));
    PoolScenario { busy: all(agents), ..one_each_tick(policy, source, &arrivals) }
}

/// Greatest number of submits in an adversarial load scenario. With more submits, the weights of
/// the requests would be out of range.
const HORIZON: u64 = 44_000;

/// Builds agents whose points (depth, age) are all corners of their convex hull, both at the
/// opening and during the measurement. To achieve this, the depth of the request that arrives at
/// tick x is a strictly concave function of x.
pub(crate) fn load_convex(agents: usize) -> PoolScenario {
    load_along(agents, Alpha::BALANCED, |x| (x * (2 * HORIZON - x)) / 2 + 1)
}

/// Builds agents whose points (depth, age) are all on one line.
pub(crate) fn load_collinear(agents: usize) -> PoolScenario {
    load_along(agents, Alpha::BALANCED, |x| 1000 + 3 * x)
}

/// Builds agents that all have the same load, because only depth counts and all have the same
/// depth.
pub(crate) fn load_tied(agents: usize) -> PoolScenario {
    let depth_only = Alpha::from_millionths(1_000_000).expect("at most 1");
    load_along(agents, depth_only, |_| 1000)
}

/// Builds a load scenario with one request per agent. The weight of each request, also during the
/// measurement, is a function of the number of requests submitted before it.
fn load_along(agents: usize, alpha: Alpha, weight: fn(u64) -> u64) -> PoolScenario {
    let source = SubmitSource::new(move |flow, made| {
        assert!(made < HORIZON, "an adversarial scenario is that long");
        task(flow, weight(made))
    });
    one_each_tick(policy(PolicyNode::Load(load(alpha))), source, &all(agents))
}

/// Builds a scenario in which the given agents submit one request at each tick. To make the ticks,
/// placeholder requests are granted slots first and then released one by one. The policy is set at
/// the end, because the opening is faster without it.
fn one_each_tick(policy: Policy, mut source: SubmitSource, arrivals: &[usize]) -> PoolScenario {
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
    PoolScenario { config, opening, source, resubmits: true, busy: Vec::new() }
}

/// Builds tenants whose first queued request is pinned to a busy worker, and one tenant whose
/// requests are pinned to a free worker.
pub(crate) fn blocked_heads(blocked: usize, busy_workers: usize) -> PoolScenario {
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

/// Builds tenants that share one worker. All slots of the worker are taken between two events.
pub(crate) fn full_worker(tenants: usize) -> PoolScenario {
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = vec![worker(0, Some(4))];
    let mut scenario = backlogged(config, Attribute::Tenant, &all(tenants), 2);
    scenario.opening.push(Event::Capacity { slots: 1000 });
    scenario
}

/// Builds two workers without a free slot. The requests of half of the tenants are pinned to each
/// of them.
pub(crate) fn two_full_workers(tenants: usize) -> PoolScenario {
    let mut scenario = pinned(two_workers(), &all(tenants), 2, |flow| flow % 2);
    scenario.opening.push(Event::Capacity { slots: 1000 });
    scenario
}

/// Builds two workers without a free slot, either of which may serve any tenant.
pub(crate) fn two_full_workers_unpinned(tenants: usize) -> PoolScenario {
    let mut scenario = backlogged(two_workers(), Attribute::Tenant, &all(tenants), 2);
    scenario.opening.push(Event::Capacity { slots: 1000 });
    scenario
}

fn two_workers() -> PoolConfig {
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = vec![worker(0, Some(4)), worker(1, Some(4))];
    config
}

/// Builds a hundred tenants and many workers, none of which is ever full.
pub(crate) fn many_workers(workers: usize) -> PoolScenario {
    const TENANTS: usize = 100;
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = (0..workers).map(|w| worker(w, None)).collect();
    backlogged(config, Attribute::Tenant, &all(TENANTS), 4)
}

/// Builds [`many_workers`] with a different number of each prompt's tokens cached on each worker.
pub(crate) fn cached_workers(workers: usize) -> PoolScenario {
    const TENANTS: usize = 100;
    let mut config = PoolConfig::new(0, tenants_of_equal_weight());
    config.workers = (0..workers).map(|w| worker(w, None)).collect();
    let names: Vec<Arc<str>> = config.workers.iter().map(|worker| (&*worker.name).into()).collect();
    let mut rng = SeededRng::new(1);
    let mut origin = origins(Attribute::Tenant);
    let source = SubmitSource::new(move |flow, _| Submit {
        attributes: origin(flow),
        input: Some(Tokens(COST_MOST)),
        cached: names.iter().map(|name| (name.clone(), Tokens(rng.range(0..=COST_MOST)))).collect(),
        ..Submit::new("")
    });
    filled(config, source, &all(TENANTS), 4)
}

/// Returns a function that returns a flow's attributes. They are built once per flow, as the
/// gateway builds them once per key.
fn origins(by: Attribute) -> impl FnMut(usize) -> Attributes {
    let mut made = HashMap::new();
    move |flow| {
        let make = || Attributes::none().with(by, &name(flow));
        made.entry(flow).or_insert_with(make).clone()
    }
}

/// Builds a scenario with `each` queued requests per entry of `flows`. `by` is the attribute that
/// names the flow.
fn backlogged(config: PoolConfig, by: Attribute, flows: &[usize], each: usize) -> PoolScenario {
    let mut rng = SeededRng::new(1);
    let mut origin = origins(by);
    let source = SubmitSource::new(move |flow, _| Submit {
        attributes: origin(flow),
        cost: Some(Tokens(rng.range(1..=COST_MOST))),
        ..Submit::new("")
    });
    filled(config, source, flows, each)
}

/// Builds a scenario with `each` queued requests per entry of `tenants`, pinned to the worker that
/// `worker_of` returns for the tenant.
fn pinned(
    config: PoolConfig,
    tenants: &[usize],
    each: usize,
    worker_of: impl Fn(usize) -> usize + 'static,
) -> PoolScenario {
    let mut rng = SeededRng::new(1);
    let mut origin = origins(Attribute::Tenant);
    let source = SubmitSource::new(move |flow, _| Submit {
        attributes: origin(flow),
        cost: Some(Tokens(rng.range(1..=COST_MOST))),
        pin: Some(Pin { worker: worker_name(worker_of(flow)).into(), rank: None }),
        ..Submit::new("")
    });
    filled(config, source, tenants, each)
}

/// Builds a scenario whose opening submits `each` requests per entry of `flows` before the pool
/// gets its slots.
fn filled(
    config: PoolConfig,
    mut source: SubmitSource,
    flows: &[usize],
    each: usize,
) -> PoolScenario {
    let mut opening = vec![Event::Capacity { slots: 0 }];
    opening.extend((0..each).flat_map(|_| flows).map(|flow| source.next(*flow)));
    opening.push(Event::Capacity { slots: CAPACITY });
    let mut busy = flows.to_vec();
    busy.sort_unstable();
    busy.dedup();
    PoolScenario { config, opening, source, resubmits: true, busy }
}

/// Builds a request of an agent with the given weight, in thousandths.
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

fn queue() -> FlowInside {
    FlowInside::FCFS
}

fn policy(root: PolicyNode) -> Policy {
    Policy::new(root).expect("a policy that can be")
}

/// Builds a drr node of that many classes, each with a queue.
pub(crate) fn drr(classes: usize) -> Policy {
    let class = |class| DrrClassPolicy {
        name: name(class).into(),
        quantum: weight(QUANTUM),
        inside: queue(),
        busy: BusyThresholds::default(),
        limits: ClassLimits::default(),
    };
    let classes = (0..classes).map(class).collect();
    policy(PolicyNode::Drr(DrrPolicy {
        by: Attribute::Class,
        classes,
        default: None,
        inside: FlowInside::FCFS,
    }))
}

fn share(by: Attribute, flows: usize, inside: FlowInside) -> SharePolicy {
    let weights = (0..flows).map(|flow| (name(flow).into(), weight([50, 100, 200, 500][flow % 4])));
    SharePolicy { weights: weights.collect(), ..equal_share(by, inside) }
}

fn equal_share(by: Attribute, inside: FlowInside) -> SharePolicy {
    SharePolicy { inside, ..SharePolicy::new(by) }
}

/// Builds a share node over sessions of equal weight.
pub(crate) fn sessions_of_equal_weight() -> Policy {
    policy(PolicyNode::Share(equal_share(Attribute::Session, queue())))
}

/// Builds a share node over tenants of equal weight.
pub(crate) fn tenants_of_equal_weight() -> Policy {
    policy(PolicyNode::Share(equal_share(Attribute::Tenant, queue())))
}

/// Builds a load node over agents with the default trade-off between depth and age.
pub(crate) fn balanced_load() -> Policy {
    policy(PolicyNode::Load(load(Alpha::BALANCED)))
}

fn load(alpha: Alpha) -> LoadPolicy {
    LoadPolicy {
        by: Attribute::Agent,
        alpha,
        auto_tune: false,
        max_wait_ticks: None,
        inside: queue(),
    }
}
