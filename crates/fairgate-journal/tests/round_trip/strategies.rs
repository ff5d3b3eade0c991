//! What proptest makes journals of.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, MAX_RANKS, Pin, PoolConfig, Submit, WorkerChange, WorkerState};
use fairgate_core::policy::{
    BusyThresholds, Class, ClassLimits, Drr, Inside, Load, Node, Order, Policy, Share,
};
use fairgate_core::units::{Alpha, Fraction, Micros, TaskWeight, Tokens, Weight};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) fn text() -> impl Strategy<Value = Box<str>> {
    let plain = "[a-z0-9_-]{0,8}".prop_map(String::into_boxed_str);
    prop_oneof![4 => plain, 1 => any::<String>().prop_map(String::into_boxed_str)]
}

pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..1000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

pub(crate) fn tokens() -> impl Strategy<Value = Tokens> {
    number().prop_map(Tokens)
}

pub(crate) fn weight() -> impl Strategy<Value = Weight> {
    number().prop_map(|n| Weight::new(n.max(1)).unwrap())
}

pub(crate) fn attribute() -> impl Strategy<Value = Attribute> {
    select(&Attribute::ALL[..])
}

pub(crate) fn alpha() -> impl Strategy<Value = Alpha> {
    (0..=1_000_000u64).prop_map(|m| Alpha::from_millionths(m).unwrap())
}

pub(crate) fn task_weight() -> impl Strategy<Value = TaskWeight> {
    let thousandths = prop_oneof![Just(1000u64), 1..10_000u64, 1..=1_000_000_000u64];
    thousandths.prop_map(|t| TaskWeight::from_thousandths(t).unwrap())
}

pub(crate) fn busy() -> impl Strategy<Value = BusyThresholds> {
    let fraction = (0..=1_000_000_000u64).prop_map(|t| Fraction::from_thousandths(t).unwrap());
    (option::of(tokens()), option::of(fraction))
        .prop_map(|(tokens, fraction)| BusyThresholds { tokens, fraction })
}

pub(crate) fn inside(node: Option<BoxedStrategy<Node>>) -> BoxedStrategy<Inside> {
    let queue = select(vec![Order::Fcfs, Order::Wspt]).prop_map(Inside::Queue);
    match node {
        None => queue.boxed(),
        Some(node) => {
            prop_oneof![queue, node.prop_map(|node| Inside::Node(Arc::new(node)))].boxed()
        }
    }
}

pub(crate) fn share(inside: BoxedStrategy<Inside>) -> impl Strategy<Value = Node> {
    let weights = btree_map(text(), weight(), 0..4);
    let caps = btree_map(text(), number(), 0..4);
    let default_weight = prop_oneof![Just(Weight::new(100).unwrap()), weight()];
    (attribute(), weights, default_weight, caps, option::of(number()), inside).prop_map(
        |(by, weights, default_weight, caps, default_cap, inside)| {
            let partition = false;
            Node::Share(Share { by, weights, default_weight, caps, default_cap, partition, inside })
        },
    )
}

pub(crate) fn load(inside: BoxedStrategy<Inside>) -> impl Strategy<Value = Node> {
    let alpha = prop_oneof![Just(Alpha::BALANCED), alpha()];
    (attribute(), alpha, any::<bool>(), option::of(number()), inside).prop_map(
        |(by, alpha, auto_tune, ticks, inside)| {
            let max_wait_ticks = ticks.filter(|_| matches!(inside, Inside::Queue(_)));
            Node::Load(Load { by, alpha, auto_tune, max_wait_ticks, inside })
        },
    )
}

pub(crate) fn drr(inside: BoxedStrategy<Inside>) -> impl Strategy<Value = Node> {
    let limits = (option::of(number()), option::of(tokens()), option::of(tokens())).prop_map(
        |(requests_per_worker, input_tokens_per_worker, cached_tokens_per_worker)| ClassLimits {
            requests_per_worker,
            input_tokens_per_worker,
            cached_tokens_per_worker,
        },
    );
    let classes = btree_map(text(), (weight(), inside, busy(), limits), 1..4);
    (attribute(), classes, option::of(any::<prop::sample::Index>()), any::<bool>()).prop_map(
        |(by, classes, default, settle)| {
            let class = |(name, (quantum, inside, busy, limits))| Class {
                name,
                quantum,
                inside,
                busy,
                limits,
            };
            let classes: Vec<Class> = classes.into_iter().map(class).collect();
            let default = default.map(|i| i.get(&classes).name.clone());
            Node::Drr(Drr { by, classes, default, settle })
        },
    )
}

pub(crate) fn node(of: BoxedStrategy<Inside>) -> BoxedStrategy<Node> {
    prop_oneof![share(of.clone()), load(of.clone()), drr(of)].boxed()
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let tree = node(inside(None)).prop_recursive(5, 24, 3, |inner| node(inside(Some(inner))));
    (tree, any::<bool>()).prop_map(|(mut root, partitioned)| {
        if let Node::Share(share) = &mut root {
            share.partition = partitioned;
        }
        Policy::new(root).unwrap()
    })
}

pub(crate) fn worker(
    state: BoxedStrategy<Option<WorkerState>>,
) -> impl Strategy<Value = WorkerChange> {
    let ranks = option::of(0..=MAX_RANKS);
    let taints = option::of(vec(text(), 0..3));
    (text(), state, ranks, option::of(number()), taints, option::of(tokens())).prop_map(
        |(name, state, ranks, slots, taints, batch_tokens)| WorkerChange {
            name,
            state,
            ranks,
            slots,
            taints,
            batch_tokens,
        },
    )
}

pub(crate) fn config() -> impl Strategy<Value = PoolConfig> {
    let workers = vec(worker(Just(None).boxed()), 0..4).prop_map(|workers| {
        let unique: BTreeMap<_, _> = workers.into_iter().map(|w| (w.name.clone(), w)).collect();
        unique.into_values().rev().collect()
    });
    let micros = || option::of(number().prop_map(Micros));
    (number(), policy(), option::of(number()), micros(), micros(), workers, busy()).prop_map(
        |(capacity, policy, max_queue, queue_timeout, brownout_wait, workers, busy)| PoolConfig {
            capacity,
            policy,
            max_queue,
            queue_timeout,
            brownout_wait,
            workers,
            busy,
        },
    )
}

pub(crate) fn attributes() -> impl Strategy<Value = Attributes> {
    vec((attribute(), text()), 0..5).prop_map(|pairs| {
        pairs.iter().fold(Attributes::none(), |all, (by, value)| all.with(*by, value))
    })
}

pub(crate) fn priority() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), -3..3i64, any::<i64>(), Just(i64::MIN)]
}

type Cached = Vec<(Box<str>, Tokens)>;
type Places = (Cached, Option<Pin>, Option<Vec<Box<str>>>, Vec<Box<str>>);

/// What is cached, the pin, the workers allowed and the taints required.
pub(crate) fn places() -> impl Strategy<Value = Places> {
    let cached = btree_map(text(), tokens(), 0..4).prop_map(|m| m.into_iter().rev().collect());
    let rank = option::of(prop_oneof![0..4u32, any::<u32>()]);
    let pin = option::of((text(), rank).prop_map(|(worker, rank)| Pin { worker, rank }));
    (cached, pin, option::of(vec(text(), 0..3)), vec(text(), 0..3))
}

pub(crate) fn submit() -> impl Strategy<Value = Event> {
    let numbers = (option::of(tokens()), priority(), task_weight(), option::of(tokens()));
    (text(), attributes(), numbers, places()).prop_map(
        |(id, attributes, (cost, priority, weight, input), (cached, pin, allow, requires))| {
            Event::Submit(Box::new(Submit {
                id,
                attributes,
                cost,
                priority,
                weight,
                input,
                cached,
                pin,
                allow,
                requires,
            }))
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let state = option::of(select(&WorkerState::ALL[..])).boxed();
    let flow = || (attribute(), text());
    prop_oneof![
        4 => submit(),
        1 => (text(), option::of(tokens())).prop_map(|(id, tokens)| Event::Release { id, tokens }),
        1 => text().prop_map(|id| Event::Cancel { id }),
        1 => text().prop_map(|id| Event::FirstToken { id }),
        1 => flow().prop_map(|(by, flow)| Event::Hold { by, flow }),
        1 => flow().prop_map(|(by, flow)| Event::Resume { by, flow }),
        1 => number().prop_map(|slots| Event::Capacity { slots }),
        1 => Just(Event::Tick),
        1 => (flow(), weight())
            .prop_map(|((by, flow), weight)| Event::Weight { by, flow, weight }),
        1 => (flow(), option::of(number()))
            .prop_map(|((by, flow), slots)| Event::Cap { by, flow, slots }),
        1 => policy().prop_map(Event::Policy),
        2 => worker(state).prop_map(Event::Worker),
    ]
}
