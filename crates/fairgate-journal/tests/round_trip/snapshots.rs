//! Snapshots, whether any pool ever had them or not.

use std::collections::BTreeMap;

use fairgate_core::attribute::Attribute;
use fairgate_core::snapshot::{
    FlightSnapshot, FlowSnapshot, NodeCounters, NodeSnapshot, RequestSnapshot, ShareFlowSnapshot,
    Snapshot, WorkersSnapshot,
};
use fairgate_core::units::{Micros, Ticks};
use fairgate_journal::{Reader, Start, Writer};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::strategies::{
    alpha, attribute, attributes, busy, number, places, policy, priority, task_weight, text,
    tokens, weight, worker,
};
use fairgate_core::event::{WorkerChange, WorkerState};

fn micros() -> impl Strategy<Value = Micros> {
    number().prop_map(Micros)
}

fn wide() -> impl Strategy<Value = u128> {
    prop_oneof![2 => 0..1000u128, 1 => any::<u128>(), 1 => Just(u128::MAX)]
}

fn signed_wide() -> impl Strategy<Value = i128> {
    prop_oneof![2 => -1000..1000i128, 1 => any::<i128>(), 1 => Just(i128::MIN)]
}

fn share_flow() -> impl Strategy<Value = ShareFlowSnapshot> {
    let bound = (wide(), number(), wide());
    (wide(), wide(), wide(), number(), option::of(wide()), bound).prop_map(
        |(base, served, pending, generation, stopped, bound)| ShareFlowSnapshot {
            base,
            served,
            pending,
            generation,
            stopped,
            bound,
        },
    )
}

fn counters() -> impl Strategy<Value = NodeCounters> {
    let deficits = vec((signed_wide(), signed_wide(), signed_wide()), 0..3);
    prop_oneof![
        (any::<u32>(), any::<bool>(), deficits).prop_map(|(cursor, stayed, deficits)| {
            NodeCounters::Drr { cursor, stayed, deficits }
        }),
        (wide(), number())
            .prop_map(|(virtual_time, rises)| NodeCounters::Share { virtual_time, rises }),
        (alpha(), vec(wide(), 0..4))
            .prop_map(|(alpha, history)| NodeCounters::Load { alpha, history }),
    ]
}

fn node(inside: BoxedStrategy<Option<Box<NodeSnapshot>>>) -> BoxedStrategy<NodeSnapshot> {
    let flows = btree_map(text(), (option::of(share_flow()), inside), 0..4);
    (counters(), flows)
        .prop_map(|(state, flows)| {
            let flow = |(name, (share, inside))| FlowSnapshot { name, share, inside };
            NodeSnapshot { state, flows: flows.into_iter().rev().map(flow).collect() }
        })
        .boxed()
}

fn root() -> impl Strategy<Value = NodeSnapshot> {
    let leaf = node(Just(None).boxed());
    leaf.prop_recursive(4, 24, 3, |inner| node(option::of(inner.prop_map(Box::new)).boxed()))
}

fn flight() -> impl Strategy<Value = FlightSnapshot> {
    let generations = option::of(vec(number(), 0..4));
    let place = option::of((any::<u32>(), any::<u32>()));
    (micros(), number(), generations, place, tokens()).prop_map(
        |(granted_at, number, generations, place, prefill)| FlightSnapshot {
            granted_at,
            number,
            generations,
            place,
            prefill,
        },
    )
}

fn request() -> impl Strategy<Value = RequestSnapshot> {
    let clock = (number(), micros(), number().prop_map(Ticks));
    let amounts = (tokens(), tokens(), tokens(), priority(), task_weight());
    (text(), attributes(), clock, amounts, places(), option::of(flight())).prop_map(
        |(id, attributes, (seq, at, tick), amounts, places, flight)| {
            let (cost, input, cached_best, priority, weight) = amounts;
            let (cached, pin, allow, requires) = places;
            RequestSnapshot {
                id,
                attributes,
                seq,
                at,
                tick,
                cost,
                input,
                cached_best,
                priority,
                weight,
                cached,
                pin,
                allow,
                requires,
                flight,
            }
        },
    )
}

fn workers() -> impl Strategy<Value = WorkersSnapshot> {
    let state = select(&WorkerState::ALL[..]).prop_map(Some).boxed();
    let stated = worker(state).prop_map(|worker| WorkerChange {
        ranks: Some(worker.ranks.unwrap_or(1)),
        taints: Some(worker.taints.unwrap_or_default()),
        ..worker
    });
    (any::<u32>(), vec((any::<u32>(), stated), 0..3))
        .prop_map(|(next_number, list)| WorkersSnapshot { next_number, list })
}

/// What is said about some flows, each named once.
fn by_flow<T: std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = BTreeMap<(Attribute, Box<str>), T>> {
    btree_map((attribute(), text()), value, 0..4)
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let clock = (micros(), number().prop_map(Ticks), number(), number(), number());
    let limits = (option::of(number()), option::of(micros()), option::of(micros()), busy());
    let flows = (by_flow(Just(())), by_flow(weight()), by_flow(option::of(number())));
    let rest = (option::of(workers()), vec(request(), 0..5), root());
    (clock, policy(), limits, flows, rest).prop_map(|(clock, policy, limits, flows, rest)| {
        let (now, ticks, next_seq, grants, capacity) = clock;
        let (max_queue, queue_timeout, brownout_wait, busy) = limits;
        let (holds, weights, caps) = flows;
        let (workers, requests, root) = rest;
        Snapshot {
            now,
            ticks,
            next_seq,
            grants,
            capacity,
            policy,
            max_queue,
            queue_timeout,
            brownout_wait,
            busy,
            holds: holds.into_keys().collect(),
            weights: weights.into_iter().map(|((by, flow), w)| (by, flow, w)).collect(),
            caps: caps.into_iter().map(|((by, flow), slots)| (by, flow, slots)).collect(),
            workers,
            requests,
            root,
        }
    })
}

fn written(snapshot: &Snapshot) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    writer.write_snapshot(snapshot).unwrap();
    writer.into_inner()
}

proptest! {
    #[test]
    fn snapshots_read_back_the_same(snapshot in snapshot()) {
        let line = written(&snapshot);
        prop_assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
        serde_json::from_slice::<serde_json::Value>(&line).unwrap();
        let (start, reader) = Reader::open(&line[..]).unwrap();
        prop_assert_eq!(start, Start::Snapshot(Box::new(snapshot)));
        prop_assert_eq!(reader.bytes_read(), line.len() as u64);
    }

    #[test]
    fn changed_snapshots_never_panic(
        snapshot in snapshot(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut line = written(&snapshot);
        for (at, byte) in changes {
            let at = at.index(line.len());
            line[at] = byte;
        }
        if let Ok((start, _)) = Reader::open(&line[..]) {
            let _ = start.into_pool();
        }
    }
}
