//! Generators of events and policies for property tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, MAX_RANKS, Pin, PoolConfig, Submit, WorkerChange, WorkerState};
use fairgate_core::policy::{
    BandClass, BandsPolicy, BusyThresholds, ClassLimits, DrrClassPolicy, DrrPolicy, FlowInside,
    LoadPolicy, Policy, PolicyNode, QueueOrder, QueuePolicy, ShareClass, SharePolicy,
};
use fairgate_core::units::{
    Alpha, BatchFraction, BurstSeconds, Micros, OverlapCredit, PerMinute, TaskWeight, Tokens,
    Weight,
};
use fairgate_journal::{JournalClock, JournalWriter};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

pub(crate) fn text() -> impl Strategy<Value = Box<str>> {
    let plain = "[a-z0-9_-]{0,8}".prop_map(String::into_boxed_str);
    prop_oneof![4 => plain, 1 => any::<String>().prop_map(String::into_boxed_str)]
}

pub(crate) fn id() -> impl Strategy<Value = Arc<str>> {
    text().prop_map(Arc::from)
}

pub(crate) fn number() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..1000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

pub(crate) fn tokens() -> impl Strategy<Value = Tokens> {
    number().prop_map(Tokens)
}

pub(crate) fn micros() -> impl Strategy<Value = Micros> {
    number().prop_map(Micros)
}

pub(crate) fn clock() -> impl Strategy<Value = JournalClock> {
    (micros(), number()).prop_map(|(at, unix_us)| JournalClock { at, unix_us })
}

/// Returns a writer to memory of a journal that may state its clock.
pub(crate) fn writer(clock: Option<JournalClock>) -> JournalWriter<Vec<u8>> {
    let writer = JournalWriter::new(Vec::new());
    match clock {
        Some(clock) => writer.with_clock(clock),
        None => writer,
    }
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
    let fraction = (0..=1_000_000_000u64).prop_map(|t| BatchFraction::from_thousandths(t).unwrap());
    (option::of(tokens()), option::of(fraction))
        .prop_map(|(tokens, fraction)| BusyThresholds { tokens, fraction })
}

pub(crate) fn overlap_credit() -> impl Strategy<Value = OverlapCredit> {
    let thousandths = prop_oneof![Just(2000u64), Just(0), Just(1_000_000), 0..=1_000_000u64];
    thousandths.prop_map(|t| OverlapCredit::from_thousandths(t).unwrap())
}

pub(crate) fn inside(node: Option<BoxedStrategy<PolicyNode>>) -> BoxedStrategy<FlowInside> {
    let order = select(&QueueOrder::ALL[..]);
    let queue = (order, option::of(micros()))
        .prop_map(|(order, max_wait)| FlowInside::Queue(QueuePolicy { order, max_wait }));
    match node {
        None => queue.boxed(),
        Some(node) => {
            prop_oneof![queue, node.prop_map(|node| FlowInside::Node(Arc::new(node)))].boxed()
        }
    }
}

pub(crate) fn limits() -> impl Strategy<Value = ClassLimits> {
    let limit = || option::of(number().prop_map(|n| n.max(1)));
    (limit(), limit(), limit()).prop_map(|(requests, input, cached)| ClassLimits {
        requests_per_worker: requests,
        input_tokens_per_worker: input.map(Tokens),
        cached_tokens_per_worker: cached.map(Tokens),
    })
}

/// Generates share nodes with classes, some with the node's own inside.
pub(crate) fn share_with_classes(
    inside: BoxedStrategy<FlowInside>,
) -> impl Strategy<Value = PolicyNode> {
    let class = (weight(), option::of(number()), option::of(inside.clone()), busy(), limits());
    let classes = btree_map(text(), class, 1..4);
    let default = option::of(any::<prop::sample::Index>());
    (attribute(), classes, default, option::of(number()), inside).prop_map(
        |(by, classes, default, default_cap, inside)| {
            let class = |(name, (weight, cap, own, busy, limits))| ShareClass {
                name,
                weight,
                cap,
                inside: Option::unwrap_or(own, inside.clone()),
                busy,
                limits,
            };
            let classes: Vec<ShareClass> = classes.into_iter().rev().map(class).collect();
            let default = default.map(|i| i.get(&classes).name.clone());
            PolicyNode::Share(SharePolicy {
                classes,
                default,
                default_cap,
                inside,
                ..SharePolicy::new(by)
            })
        },
    )
}

pub(crate) fn share(inside: BoxedStrategy<FlowInside>) -> impl Strategy<Value = PolicyNode> {
    let weights = btree_map(text(), weight(), 0..4);
    let caps = btree_map(text(), number(), 0..4);
    let default_weight = prop_oneof![Just(Weight::new(100).unwrap()), weight()];
    (attribute(), weights, default_weight, caps, option::of(number()), inside).prop_map(
        |(by, weights, default_weight, caps, default_cap, inside)| {
            let named =
                SharePolicy { weights, default_weight, caps, default_cap, ..SharePolicy::new(by) };
            PolicyNode::Share(SharePolicy { inside, ..named })
        },
    )
}

pub(crate) fn load(inside: BoxedStrategy<FlowInside>) -> impl Strategy<Value = PolicyNode> {
    let alpha = prop_oneof![Just(Alpha::BALANCED), alpha()];
    (attribute(), alpha, any::<bool>(), option::of(number()), inside).prop_map(
        |(by, alpha, auto_tune, ticks, inside)| {
            let max_wait_ticks = ticks.filter(|_| matches!(inside, FlowInside::Queue(_)));
            PolicyNode::Load(LoadPolicy { by, alpha, auto_tune, max_wait_ticks, inside })
        },
    )
}

/// Generates drr nodes with classes, some with the node's own inside.
pub(crate) fn drr(inside: BoxedStrategy<FlowInside>) -> impl Strategy<Value = PolicyNode> {
    let class = (weight(), option::of(inside.clone()), busy(), limits());
    let classes = btree_map(text(), class, 1..4);
    let default = option::of(any::<prop::sample::Index>());
    (attribute(), classes, default, inside).prop_map(|(by, classes, default, inside)| {
        let class = |(name, (quantum, own, busy, limits))| DrrClassPolicy {
            name,
            quantum,
            inside: Option::unwrap_or(own, inside.clone()),
            busy,
            limits,
        };
        let classes: Vec<DrrClassPolicy> = classes.into_iter().map(class).collect();
        let default = default.map(|i| i.get(&classes).name.clone());
        PolicyNode::Drr(DrrPolicy { by, classes, default, inside })
    })
}

/// Generates bands nodes with classes, some with the node's own inside.
pub(crate) fn bands(inside: BoxedStrategy<FlowInside>) -> impl Strategy<Value = PolicyNode> {
    let class = (option::of(number()), option::of(inside.clone()), busy(), limits());
    let classes = btree_map(text(), class, 1..4);
    let default = option::of(any::<prop::sample::Index>());
    (attribute(), classes, default, inside).prop_map(|(by, classes, default, inside)| {
        let class = |(name, (cap, own, busy, limits))| BandClass {
            name,
            cap,
            inside: Option::unwrap_or(own, inside.clone()),
            busy,
            limits,
        };
        let classes: Vec<BandClass> = classes.into_iter().rev().map(class).collect();
        let default = default.map(|i| i.get(&classes).name.clone());
        PolicyNode::Bands(BandsPolicy { by, classes, default, inside })
    })
}

pub(crate) fn node(of: BoxedStrategy<FlowInside>) -> BoxedStrategy<PolicyNode> {
    prop_oneof![
        share(of.clone()),
        share_with_classes(of.clone()),
        load(of.clone()),
        drr(of.clone()),
        bands(of),
    ]
    .boxed()
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let tree = node(inside(None)).prop_recursive(5, 24, 3, |inner| node(inside(Some(inner))));
    (tree, any::<bool>()).prop_map(|(mut root, partitioned)| {
        if let PolicyNode::Share(share) = &mut root {
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
    let size = (ranks, option::of(number()), option::of(tokens()), option::of(number()));
    (text(), state, size, taints, rates()).prop_map(
        |(name, state, (ranks, slots, batch_tokens, tier), taints, rates)| WorkerChange {
            name,
            state,
            ranks,
            slots,
            taints,
            batch_tokens,
            tier,
            ..rates
        },
    )
}

/// Generates changes of a worker that state rates only.
fn rates() -> impl Strategy<Value = WorkerChange> {
    let rate = || number().prop_map(|n| PerMinute::new(n.max(1)).unwrap());
    let burst = (1..=60u64).prop_map(|s| BurstSeconds::new(s).unwrap());
    let said = (option::of(option::of(rate())), option::of(option::of(rate())), option::of(burst));
    (said, option::of(number()), option::of(number()), option::of(micros())).prop_map(
        |(
            (requests_per_minute, tokens_per_minute, burst_seconds),
            requests_remaining,
            tokens_remaining,
            pause_until,
        )| WorkerChange {
            requests_per_minute,
            tokens_per_minute,
            burst_seconds,
            requests_remaining,
            tokens_remaining,
            pause_until,
            ..WorkerChange::default()
        },
    )
}

pub(crate) fn config() -> impl Strategy<Value = PoolConfig> {
    let workers = vec(worker(Just(None).boxed()), 0..4).prop_map(|workers| {
        let unique: BTreeMap<_, _> = workers.into_iter().map(|w| (w.name.clone(), w)).collect();
        unique.into_values().rev().collect()
    });
    let span = || option::of(micros());
    let limits = (option::of(number()), span(), span());
    (number(), policy(), limits, workers, busy(), overlap_credit()).prop_map(
        |(capacity, policy, limits, workers, busy, overlap_credit)| {
            let (max_queue, queue_timeout, brownout_wait) = limits;
            PoolConfig {
                capacity,
                policy,
                max_queue,
                queue_timeout,
                brownout_wait,
                workers,
                busy,
                overlap_credit,
            }
        },
    )
}

pub(crate) fn attributes() -> impl Strategy<Value = Attributes> {
    proptest::array::uniform7(option::of(text()))
        .prop_map(|texts| Attributes::of(texts.each_ref().map(Option::as_deref)))
}

pub(crate) fn priority() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), -3..3i64, any::<i64>(), Just(i64::MIN)]
}

type Cached = Vec<(std::sync::Arc<str>, Tokens)>;
type Places = (Cached, Option<Pin>, Option<Vec<Box<str>>>, Vec<Box<str>>);

/// Generates cached tokens, a pin, an allow-list and required taints.
pub(crate) fn places() -> impl Strategy<Value = Places> {
    let cached = btree_map(text(), tokens(), 0..4)
        .prop_map(|m| m.into_iter().rev().map(|(name, tokens)| (name.into(), tokens)).collect());
    let rank = option::of(prop_oneof![0..4u32, any::<u32>()]);
    let pin = option::of((text(), rank).prop_map(|(worker, rank)| Pin { worker, rank }));
    (cached, pin, option::of(vec(text(), 0..3)), vec(text(), 0..3))
}

pub(crate) fn submit() -> impl Strategy<Value = Event> {
    let numbers = (option::of(tokens()), priority(), task_weight(), option::of(tokens()));
    (id(), attributes(), numbers, places(), option::of(tokens()), option::of(micros())).prop_map(
        |(id, attributes, (cost, priority, weight, input), places, quota, timeout)| {
            let (cached, pin, allow, requires) = places;
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
                quota,
                timeout,
            }))
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let state = option::of(select(&WorkerState::ALL[..])).boxed();
    let flow = || (attribute(), text());
    prop_oneof![
        4 => submit(),
        1 => (id(), option::of(tokens()), option::of(tokens()))
            .prop_map(|(id, tokens, quota)| Event::Release { id, tokens, quota }),
        1 => id().prop_map(|id| Event::Cancel { id }),
        1 => id().prop_map(|id| Event::FirstToken { id }),
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
