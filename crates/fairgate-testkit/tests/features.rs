//! Random journals not only contain everything, it also decides: without one feature, many of them are decided
//! otherwise. A feature that never decides is not tested by any comparison.

use std::sync::Arc;

use fairgate_core::event::{Event, PoolConfig, WorkerChange};
use fairgate_core::policy::{BusyThresholds, ClassLimits, Inside, Node, Policy, Queue};
use fairgate_core::units::Micros;
use fairgate_testkit::naive::{Decided, NaivePool};
use fairgate_testkit::workload::{Events, Shape, generate_answered};

/// How many journals of each shape are tried.
const JOURNALS: u64 = 40;

type Journal = (PoolConfig, Events);

/// Asserts that at least so many in a hundred journals of this shape are decided otherwise after the change.
fn decides(what: &str, shape: &Shape, least_percent: u64, change: impl Fn(&mut Journal)) {
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

fn decisions((config, events): &Journal) -> Vec<(Micros, Decided)> {
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
fn nodes(change: impl Fn(&mut Node)) -> impl Fn(&mut Journal) {
    move |(config, events)| {
        config.policy = with_nodes(&config.policy, &change);
        for (_, event) in events {
            if let Event::Policy(policy) = event {
                *policy = with_nodes(policy, &change);
            }
        }
    }
}

fn with_nodes(policy: &Policy, change: &impl Fn(&mut Node)) -> Policy {
    let mut root = policy.root().as_ref().clone();
    change_nodes(&mut root, change);
    Policy::new(root).expect("still a policy")
}

fn change_nodes(node: &mut Node, change: &impl Fn(&mut Node)) {
    change(node);
    for inside in insides(node) {
        if let Inside::Node(node) = inside {
            change_nodes(Arc::make_mut(node), change);
        }
    }
}

/// What is inside the flows of a node.
fn insides(node: &mut Node) -> Vec<&mut Inside> {
    match node {
        Node::Drr(drr) => drr.classes.iter_mut().map(|class| &mut class.inside).collect(),
        Node::Share(share) => {
            let classes = share.classes.iter_mut().map(|class| &mut class.inside);
            classes.chain([&mut share.inside]).collect()
        }
        Node::Load(load) => vec![&mut load.inside],
    }
}

/// Changes every queue of every policy.
fn queues(change: impl Fn(&mut Queue)) -> impl Fn(&mut Journal) {
    nodes(move |node| {
        for inside in insides(node) {
            if let Inside::Queue(queue) = inside {
                change(queue);
            }
        }
    })
}

/// Changes what every class, of drr or share, says about workers.
fn classes(change: impl Fn(&mut BusyThresholds, &mut ClassLimits)) -> impl Fn(&mut Journal) {
    nodes(move |node| match node {
        Node::Drr(drr) => drr.classes.iter_mut().for_each(|c| change(&mut c.busy, &mut c.limits)),
        Node::Share(share) => {
            share.classes.iter_mut().for_each(|c| change(&mut c.busy, &mut c.limits));
        }
        Node::Load(_) => {}
    })
}

/// Puts a tick in the place of some events.
fn without(which: impl Fn(&Event) -> bool) -> impl Fn(&mut Journal) {
    move |(_, events)| {
        for (_, event) in events.iter_mut().filter(|(_, event)| which(event)) {
            *event = Event::Tick;
        }
    }
}

#[test]
fn rates_bind() {
    for (name, shape, least) in [("rates", Shape::rates(), 60), ("wild", Shape::wild(), 50)] {
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
    for (name, shape) in [("rates", Shape::rates()), ("wild", Shape::wild())] {
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
        ("rates", Shape::rates(), 15),
        ("paused", Shape::paused(), 80),
        ("wild", Shape::wild(), 15),
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
    let shapes =
        [("workers", Shape::workers()), ("jammed", Shape::jammed()), ("wild", Shape::wild())];
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
        ("small", Shape::small(), 5),
        ("drr", Shape::drr(), 8),
        ("restless", Shape::restless(), 15),
        ("jammed", Shape::jammed(), 15),
        ("wild", Shape::wild(), 15),
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
            if let Node::Share(share) = node {
                share.classes.iter_mut().for_each(|class| class.cap = None);
            }
        })
    };
    for (name, shape) in [("share", Shape::share()), ("copies", Shape::copies())] {
        decides(&format!("class caps in {name}"), &shape, 8, class_caps());
    }
    let no_default = nodes(|node| match node {
        Node::Share(share) if !share.classes.is_empty() => share.default_cap = None,
        _ => {}
    });
    decides("default caps of classes in copies", &Shape::copies(), 5, no_default);
    for (name, shape) in [("workers", Shape::workers()), ("wild", Shape::wild())] {
        let no_limits = classes(|_, limits| *limits = ClassLimits::default());
        decides(&format!("class limits in {name}"), &shape, 5, no_limits);
        let no_thresholds = classes(|busy, _| *busy = BusyThresholds::default());
        decides(&format!("class thresholds in {name}"), &shape, 10, no_thresholds);
    }
    let only_share = nodes(|node| {
        if let Node::Share(share) = node {
            for class in &mut share.classes {
                (class.busy, class.limits) = <(BusyThresholds, ClassLimits)>::default();
            }
        }
    });
    decides("thresholds and limits of share classes in jammed", &Shape::jammed(), 10, only_share);
}

#[test]
fn caps_and_other_controls_decide() {
    let cap = |event: &Event| matches!(event, Event::Cap { .. });
    let hold = |event: &Event| matches!(event, Event::Hold { .. });
    let weight = |event: &Event| matches!(event, Event::Weight { .. });
    let capacity = |event: &Event| matches!(event, Event::Capacity { .. });
    let policy = |event: &Event| matches!(event, Event::Policy(_));
    decides("cap events in copies", &Shape::copies(), 60, without(cap));
    decides("cap events in hierarchical", &Shape::hierarchical(), 30, without(cap));
    decides("holds in small", &Shape::small(), 40, without(hold));
    decides("weights in hierarchical", &Shape::hierarchical(), 15, without(weight));
    decides("capacities in small", &Shape::small(), 50, without(capacity));
    decides("policies in tree", &Shape::tree(), 40, without(policy));
    let undivided = nodes(|node| {
        if let Node::Share(share) = node {
            share.partition = false;
        }
    });
    decides("partition in share", &Shape::share(), 10, undivided);
    let unbounded = |(config, _): &mut Journal| config.max_queue = None;
    decides("max_queue in small", &Shape::small(), 20, unbounded);
    let patient = |(config, _): &mut Journal| config.queue_timeout = None;
    decides("timeouts in small", &Shape::small(), 10, patient);
}
