//! Tests that every feature affects the decisions of many random journals. A feature that never affects a decision is
//! not tested by comparing schedulers.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::event::{Event, PoolConfig, WorkerChange};
use fairgate_core::policy::{
    BusyThresholds, ClassLimits, FlowInside, Policy, PolicyNode, QueueOrder, QueuePolicy,
};
use fairgate_core::units::{Micros, OverlapCredit};
use fairgate_testkit::naive::{ComparedDecision, NaivePool, RuleBranch};
use fairgate_testkit::workload::{Events, WorkloadShape, generate_answered};

/// Number of journals of each shape that are tried.
const JOURNALS: u64 = 40;

type Journal = (PoolConfig, Events);

/// Asserts that a change alters the decisions of at least `least_percent` of the journals of this shape.
fn decides(what: &str, shape: &WorkloadShape, least_percent: u64, change: impl Fn(&mut Journal)) {
    let otherwise = |seed: &u64| {
        let journal = generate_answered(shape, *seed);
        let mut changed = journal.clone();
        change(&mut changed);
        decisions(&journal) != decisions(&changed)
    };
    let count = (0..JOURNALS).filter(otherwise).count() as u64;
    let percent = count * 100 / JOURNALS;
    eprintln!("{what}: {percent} % of journals, at least {least_percent} %");
    assert!(percent >= least_percent, "{what} decides only {percent} % of journals");
}

fn decisions((config, events): &Journal) -> Vec<(Micros, ComparedDecision)> {
    let mut pool = NaivePool::new(config.clone());
    let decide = |(at, event): &(Micros, Event)| {
        let decided = pool.apply(*at, event);
        decided.into_iter().map(|d| (*at, d)).collect::<Vec<_>>()
    };
    events.iter().flat_map(decide).collect()
}

/// Changes every worker of the header and every worker event.
fn workers(change: impl Fn(&mut WorkerChange)) -> impl Fn(&mut Journal) {
    move |(config, events)| {
        config.workers.iter_mut().for_each(&change);
        for (_, event) in events {
            if let Event::Worker(worker) = event {
                change(worker);
            }
        }
    }
}

/// Changes every node of every policy.
fn nodes(change: impl Fn(&mut PolicyNode)) -> impl Fn(&mut Journal) {
    move |(config, events)| {
        config.policy = with_nodes(&config.policy, &change);
        for (_, event) in events {
            if let Event::Policy(policy) = event {
                *policy = with_nodes(policy, &change);
            }
        }
    }
}

fn with_nodes(policy: &Policy, change: &impl Fn(&mut PolicyNode)) -> Policy {
    let mut root = policy.root().as_ref().clone();
    change_nodes(&mut root, change);
    Policy::new(root).expect("still a policy")
}

fn change_nodes(node: &mut PolicyNode, change: &impl Fn(&mut PolicyNode)) {
    change(node);
    for inside in insides(node) {
        if let FlowInside::Node(node) = inside {
            change_nodes(Arc::make_mut(node), change);
        }
    }
}

/// Returns the insides of a node's flows, to be changed.
fn insides(node: &mut PolicyNode) -> Vec<&mut FlowInside> {
    match node {
        PolicyNode::Drr(drr) => {
            let classes = drr.classes.iter_mut().map(|class| &mut class.inside);
            classes.chain([&mut drr.inside]).collect()
        }
        PolicyNode::Bands(bands) => {
            let classes = bands.classes.iter_mut().map(|class| &mut class.inside);
            classes.chain([&mut bands.inside]).collect()
        }
        PolicyNode::Share(share) => {
            let classes = share.classes.iter_mut().map(|class| &mut class.inside);
            classes.chain([&mut share.inside]).collect()
        }
        PolicyNode::Load(load) => vec![&mut load.inside],
    }
}

/// Changes every queue of every policy.
fn queues(change: impl Fn(&mut QueuePolicy)) -> impl Fn(&mut Journal) {
    nodes(move |node| {
        for inside in insides(node) {
            if let FlowInside::Queue(queue) = inside {
                change(queue);
            }
        }
    })
}

/// Changes the busy thresholds and the limits of every class of drr, share and bands nodes.
fn classes(change: impl Fn(&mut BusyThresholds, &mut ClassLimits)) -> impl Fn(&mut Journal) {
    nodes(move |node| match node {
        PolicyNode::Drr(drr) => {
            drr.classes.iter_mut().for_each(|c| change(&mut c.busy, &mut c.limits))
        }
        PolicyNode::Share(share) => {
            share.classes.iter_mut().for_each(|c| change(&mut c.busy, &mut c.limits));
        }
        PolicyNode::Bands(bands) => {
            bands.classes.iter_mut().for_each(|c| change(&mut c.busy, &mut c.limits));
        }
        PolicyNode::Load(_) => {}
    })
}

/// Replaces some events by ticks.
fn without(which: impl Fn(&Event) -> bool) -> impl Fn(&mut Journal) {
    move |(_, events)| {
        for (_, event) in events.iter_mut().filter(|(_, event)| which(event)) {
            *event = Event::Tick;
        }
    }
}

#[test]
fn rates_bind() {
    for (name, shape, least) in
        [("rates", WorkloadShape::rates(), 60), ("wild", WorkloadShape::wild(), 50)]
    {
        decides(
            &format!("rates in {name}"),
            &shape,
            least,
            workers(|worker| {
                worker.requests_per_minute = None;
                worker.tokens_per_minute = None;
            }),
        );
        let no_requests = workers(|worker| worker.requests_per_minute = None);
        decides(&format!("request rates in {name}"), &shape, 30, no_requests);
        let no_tokens = workers(|worker| worker.tokens_per_minute = None);
        decides(&format!("token rates in {name}"), &shape, 30, no_tokens);
        let never_away = workers(|worker| {
            worker.requests_per_minute = worker.requests_per_minute.filter(Option::is_some);
            worker.tokens_per_minute = worker.tokens_per_minute.filter(Option::is_some);
        });
        decides(&format!("rates taken away in {name}"), &shape, 4, never_away);
        let no_burst = workers(|worker| worker.burst_seconds = None);
        decides(&format!("bursts in {name}"), &shape, 10, no_burst);
        let no_remaining = workers(|worker| {
            worker.requests_remaining = None;
            worker.tokens_remaining = None;
        });
        decides(&format!("remaining in {name}"), &shape, 30, no_remaining);
    }
}

#[test]
fn quotas_count() {
    for (name, shape) in [("rates", WorkloadShape::rates()), ("wild", WorkloadShape::wild())] {
        decides(&format!("quotas of submits in {name}"), &shape, 15, |(_, events)| {
            for (_, event) in events {
                if let Event::Submit(submit) = event {
                    submit.quota = None;
                }
            }
        });
        decides(&format!("quotas of releases in {name}"), &shape, 5, |(_, events)| {
            for (_, event) in events {
                if let Event::Release { quota, .. } = event {
                    *quota = None;
                }
            }
        });
    }
}

#[test]
fn pauses_hold_and_end() {
    let shapes = [
        ("rates", WorkloadShape::rates(), 15),
        ("paused", WorkloadShape::paused(), 80),
        ("wild", WorkloadShape::wild(), 15),
    ];
    for (name, shape, least) in shapes {
        let never = workers(|worker| worker.pause_until = None);
        decides(&format!("pauses in {name}"), &shape, least, never);
        // What ends a pause is decided otherwise where it lasts for ever.
        let for_ever = workers(|worker| {
            worker.pause_until = worker.pause_until.map(|_| Micros(u64::MAX));
        });
        decides(&format!("ends of pauses in {name}"), &shape, least, for_ever);
        let no_ticks = |(_, events): &mut Journal| {
            events.retain(|(_, event)| !matches!(event, Event::Tick));
        };
        decides(&format!("ticks in {name}"), &shape, 30, no_ticks);
    }
}

#[test]
fn tiers_and_slots_place() {
    let shapes = [
        ("workers", WorkloadShape::workers()),
        ("jammed", WorkloadShape::jammed()),
        ("wild", WorkloadShape::wild()),
    ];
    for (name, shape) in shapes {
        let one_tier = workers(|worker| worker.tier = None);
        decides(&format!("tiers in {name}"), &shape, 40, one_tier);
        let any_number = workers(|worker| worker.slots = None);
        decides(&format!("slots in {name}"), &shape, 40, any_number);
    }
}

#[test]
fn queues_have_overdue_heads() {
    let shapes = [
        ("small", WorkloadShape::small(), 5),
        ("drr", WorkloadShape::drr(), 8),
        ("restless", WorkloadShape::restless(), 15),
        ("jammed", WorkloadShape::jammed(), 15),
        ("wild", WorkloadShape::wild(), 15),
    ];
    for (name, shape, least) in shapes {
        let for_ever = queues(|queue| queue.max_wait = None);
        decides(&format!("max_wait in {name}"), &shape, least, for_ever);
    }
}

#[test]
fn classes_of_share_and_drr_have_rules_of_their_own() {
    let class_caps = || {
        nodes(|node| {
            if let PolicyNode::Share(share) = node {
                share.classes.iter_mut().for_each(|class| class.cap = None);
            }
        })
    };
    for (name, shape) in [("share", WorkloadShape::share()), ("copies", WorkloadShape::copies())] {
        decides(&format!("class caps in {name}"), &shape, 8, class_caps());
    }
    let no_default = nodes(|node| match node {
        PolicyNode::Share(share) if !share.classes.is_empty() => share.default_cap = None,
        _ => {}
    });
    decides("default caps of classes in copies", &WorkloadShape::copies(), 5, no_default);
    for (name, shape) in [("workers", WorkloadShape::workers()), ("wild", WorkloadShape::wild())] {
        let no_limits = classes(|_, limits| *limits = ClassLimits::default());
        decides(&format!("class limits in {name}"), &shape, 5, no_limits);
        let no_thresholds = classes(|busy, _| *busy = BusyThresholds::default());
        decides(&format!("class thresholds in {name}"), &shape, 10, no_thresholds);
    }
    let only_share = nodes(|node| {
        if let PolicyNode::Share(share) = node {
            for class in &mut share.classes {
                (class.busy, class.limits) = <(BusyThresholds, ClassLimits)>::default();
            }
        }
    });
    decides(
        "thresholds and limits of share classes in jammed",
        &WorkloadShape::jammed(),
        10,
        only_share,
    );
}

#[test]
fn caps_and_other_controls_decide() {
    let cap = |event: &Event| matches!(event, Event::Cap { .. });
    let hold = |event: &Event| matches!(event, Event::Hold { .. });
    let weight = |event: &Event| matches!(event, Event::Weight { .. });
    let capacity = |event: &Event| matches!(event, Event::Capacity { .. });
    let policy = |event: &Event| matches!(event, Event::Policy(_));
    decides("cap events in copies", &WorkloadShape::copies(), 60, without(cap));
    decides("cap events in hierarchical", &WorkloadShape::hierarchical(), 30, without(cap));
    decides("holds in small", &WorkloadShape::small(), 40, without(hold));
    decides("weights in hierarchical", &WorkloadShape::hierarchical(), 15, without(weight));
    decides("capacities in small", &WorkloadShape::small(), 50, without(capacity));
    decides("policies in tree", &WorkloadShape::tree(), 40, without(policy));
    let undivided = nodes(|node| {
        if let PolicyNode::Share(share) = node {
            share.partition = false;
        }
    });
    decides("partition in share", &WorkloadShape::share(), 10, undivided);
    let unbounded = |(config, _): &mut Journal| config.max_queue = None;
    decides("max_queue in small", &WorkloadShape::small(), 20, unbounded);
    let patient = |(config, _): &mut Journal| config.queue_timeout = None;
    decides("timeouts in small", &WorkloadShape::small(), 10, patient);
}

/// Every branch of bands, deadlines, placement and flows that stop together is taken at least this often by the random
/// journals that [`properties`](../properties.rs) begins with.
const LEAST_TAKEN: u64 = 100;

/// Number of journals of each shape in which branches are counted. It is a seventh of the journals
/// that are compared in a run.
const COUNTED: u64 = 150;

#[test]
fn every_new_branch_is_taken_a_hundred_times() {
    let mut taken: BTreeMap<RuleBranch, u64> = BTreeMap::new();
    for (_, shape) in WorkloadShape::quick() {
        for seed in 1..=COUNTED {
            let (config, events) = generate_answered(&shape, seed);
            let mut pool = NaivePool::new(config);
            for (at, event) in &events {
                pool.apply(*at, event);
            }
            for (branch, count) in pool.branches() {
                *taken.entry(branch).or_default() += count;
            }
        }
    }
    let count = |branch: &RuleBranch| taken.get(branch).copied().unwrap_or(0);
    for branch in RuleBranch::ALL {
        eprintln!("{branch:?}: {}", count(&branch));
    }
    let rare: Vec<_> = RuleBranch::ALL.iter().filter(|b| count(b) < LEAST_TAKEN).collect();
    assert!(rare.is_empty(), "taken fewer than {LEAST_TAKEN} times: {rare:?}");
}

#[test]
fn bands_have_caps_that_bind() {
    let uncapped = || {
        nodes(|node| {
            if let PolicyNode::Bands(bands) = node {
                bands.classes.iter_mut().for_each(|class| class.cap = None);
            }
        })
    };
    decides("caps of bands in bands", &WorkloadShape::bands(), 15, uncapped());
    decides("caps of bands in tree", &WorkloadShape::tree(), 10, uncapped());
    let turned = nodes(|node| {
        if let PolicyNode::Bands(bands) = node {
            bands.default = bands.default_class().map(Into::into);
            bands.classes.reverse();
        }
    });
    decides("the order of bands in bands", &WorkloadShape::bands(), 40, turned);
    let cap = |event: &Event| matches!(event, Event::Cap { .. });
    decides("cap events in bands", &WorkloadShape::bands(), 30, without(cap));
}

#[test]
fn deadlines_decide() {
    let patient = |(_, events): &mut Journal| {
        for (_, event) in events {
            if let Event::Submit(submit) = event {
                submit.timeout = None;
            }
        }
    };
    decides("timeouts of requests in deadlines", &WorkloadShape::deadlines(), 80, patient);
    decides("timeouts of requests in small", &WorkloadShape::small(), 20, patient);
    let patient_pool = |(config, _): &mut Journal| config.queue_timeout = None;
    decides("the pool's timeout in deadlines", &WorkloadShape::deadlines(), 10, patient_pool);
    let in_order = || {
        queues(|queue| {
            if queue.order == QueueOrder::Edf {
                queue.order = QueueOrder::Fcfs;
            }
        })
    };
    decides("edf in deadlines", &WorkloadShape::deadlines(), 30, in_order());
    decides("edf in bands", &WorkloadShape::bands(), 10, in_order());
}

#[test]
fn credits_place() {
    let credit = |thousandths| {
        let credit = OverlapCredit::from_thousandths(thousandths).expect("in range");
        move |(config, _): &mut Journal| config.overlap_credit = credit
    };
    for (name, shape) in [("ties", WorkloadShape::ties()), ("workers", WorkloadShape::workers())] {
        decides(&format!("credits over 0 in {name}"), &shape, 20, credit(0));
    }
    decides("credits below the largest in ties", &WorkloadShape::ties(), 20, credit(1_000_000));
}
