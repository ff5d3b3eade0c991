//! Generators of snapshots, including those that no pool ever has.

use std::collections::BTreeMap;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{WorkerChange, WorkerState};
use fairgate_core::snapshot::{
    BandSnapshot, CapSnapshot, CapUseSnapshot, DrrClassSnapshot, FlowMeterSnapshot, FlowSnapshot,
    InFlightSnapshot, NodeCounters, NodeMeterSnapshot, NodeSnapshot, RateLevelSnapshot,
    RequestSnapshot, ShareFlowSnapshot, Snapshot, WorkerSnapshot, WorkersSnapshot,
};
use fairgate_core::units::{BurstSeconds, Micros, Ticks};
use fairgate_journal::{JournalClock, JournalReader, JournalStart};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::round_trip::strategies::{
    self, alpha, attribute, attributes, busy, clock, id, micros, number, overlap_credit, places,
    policy, priority, task_weight, text, tokens, weight, worker,
};

fn wide() -> impl Strategy<Value = u128> {
    prop_oneof![2 => 0..1000u128, 1 => any::<u128>(), 1 => Just(u128::MAX)]
}

fn signed_wide() -> impl Strategy<Value = i128> {
    prop_oneof![2 => -1000..1000i128, 1 => any::<i128>(), 1 => Just(i128::MIN)]
}

fn node_meter() -> impl Strategy<Value = NodeMeterSnapshot> {
    (signed_wide(), signed_wide(), wide()).prop_map(|(volume, carried, widest)| NodeMeterSnapshot {
        volume,
        carried,
        widest,
    })
}

fn flow_meter() -> impl Strategy<Value = FlowMeterSnapshot> {
    (signed_wide(), signed_wide(), signed_wide(), wide(), wide(), wide()).prop_map(
        |(due, floor, got, rise, fall, worst)| FlowMeterSnapshot {
            due,
            floor,
            got,
            rise,
            fall,
            worst,
        },
    )
}

fn cap_use() -> impl Strategy<Value = CapUseSnapshot> {
    (wide(), wide()).prop_map(|(used, allowed)| CapUseSnapshot { used, allowed })
}

// Strategies used inside `node` are boxed: each keeps its value tree in its caller's stack frame, and four nested nodes
// of unboxed trees overflow the 2 MiB stack of a test thread.
fn share_flow() -> BoxedStrategy<ShareFlowSnapshot> {
    let heights = (wide(), wide(), wide(), number(), option::of(wide()));
    let bound = (wide(), number(), wide());
    (heights, number(), any::<bool>(), bound, flow_meter(), cap_use())
        .prop_map(
            |((base, served, pending, generation, stopped), moment, new, bound, meter, cap_use)| {
                ShareFlowSnapshot {
                    base,
                    served,
                    pending,
                    generation,
                    moment,
                    new,
                    stopped,
                    bound,
                    meter,
                    cap_use,
                }
            },
        )
        .boxed()
}

fn counters() -> BoxedStrategy<NodeCounters> {
    let class = (wide(), wide(), flow_meter())
        .prop_map(|(deficit, reached, meter)| DrrClassSnapshot { deficit, reached, meter });
    prop_oneof![
        (any::<u32>(), any::<bool>(), vec(class, 0..3), node_meter()).prop_map(
            |(cursor, stayed, classes, meter)| NodeCounters::Drr { cursor, stayed, classes, meter }
        ),
        (wide(), number(), number(), node_meter()).prop_map(
            |(virtual_time, rises, moments, meter)| NodeCounters::Share {
                virtual_time,
                rises,
                moments,
                meter
            }
        ),
        (alpha(), vec(wide(), 0..4))
            .prop_map(|(alpha, history)| NodeCounters::Load { alpha, history }),
        Just(NodeCounters::Bands),
    ]
    .boxed()
}

fn node(inside: BoxedStrategy<Option<Box<NodeSnapshot>>>) -> BoxedStrategy<NodeSnapshot> {
    let band =
        (signed_wide(), cap_use()).prop_map(|(got, cap_use)| BandSnapshot { got, cap_use }).boxed();
    let counters = (option::of(share_flow()), option::of(signed_wide()), option::of(band));
    let flow = (counters, inside).boxed();
    let flows = btree_map(text(), flow, 0..4);
    (self::counters(), flows)
        .prop_map(|(state, flows)| {
            let flow = |(name, ((share, load_got, band), inside))| FlowSnapshot {
                name,
                share,
                load_got,
                band,
                inside,
            };
            NodeSnapshot { state, flows: flows.into_iter().rev().map(flow).collect() }
        })
        .boxed()
}

fn root() -> impl Strategy<Value = NodeSnapshot> {
    let leaf = node(Just(None).boxed());
    leaf.prop_recursive(4, 24, 3, |inner| node(option::of(inner.prop_map(Box::new)).boxed()))
}

fn flight() -> impl Strategy<Value = InFlightSnapshot> {
    let generations = option::of(vec(number(), 0..4));
    let place = option::of((any::<u32>(), any::<u32>()));
    let taken = option::of((number(), signed_wide()));
    (micros(), number(), generations, place, tokens(), taken).prop_map(
        |(granted_at, number, generations, place, prefill, taken)| InFlightSnapshot {
            granted_at,
            number,
            generations,
            place,
            prefill,
            taken,
        },
    )
}

fn request() -> impl Strategy<Value = RequestSnapshot> {
    let clock = (number(), micros(), number().prop_map(Ticks));
    let amounts = (tokens(), tokens(), tokens(), tokens(), priority(), task_weight());
    let names = (any::<u32>(), id(), attributes());
    (names, clock, amounts, places(), option::of(micros()), option::of(flight())).prop_map(
        |((handle, id, attributes), (seq, at, tick), amounts, places, timeout, flight)| {
            let (cost, input, cached_best, quota, priority, weight) = amounts;
            let (cached, pin, allow, requires) = places;
            RequestSnapshot {
                handle,
                id,
                attributes,
                seq,
                at,
                tick,
                cost,
                input,
                cached_best,
                quota,
                priority,
                timeout,
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

/// Last grants by rank. The list does not end with 0, because ranks after the last grant are left
/// out.
fn last_grants() -> impl Strategy<Value = Vec<u64>> {
    vec(number(), 0..4).prop_map(|mut grants| {
        if let Some(last) = grants.last_mut() {
            *last = (*last).max(1);
        }
        grants
    })
}

fn workers() -> impl Strategy<Value = WorkersSnapshot> {
    let state = select(&WorkerState::ALL[..]).prop_map(Some).boxed();
    let stated = worker(state).prop_map(|worker| WorkerChange {
        name: worker.name,
        state: worker.state,
        ranks: Some(worker.ranks.unwrap_or(1)),
        slots: worker.slots,
        taints: Some(worker.taints.unwrap_or_default()),
        batch_tokens: worker.batch_tokens,
        tier: Some(worker.tier.unwrap_or(0)),
        requests_per_minute: Some(worker.requests_per_minute.flatten()),
        tokens_per_minute: Some(worker.tokens_per_minute.flatten()),
        burst_seconds: Some(worker.burst_seconds.unwrap_or(BurstSeconds::DEFAULT)),
        requests_remaining: None,
        tokens_remaining: None,
        pause_until: Some(worker.pause_until.unwrap_or(Micros(0))),
    });
    let level = || {
        let level = (signed_wide(), number());
        option::of(level.prop_map(|(level, epoch)| RateLevelSnapshot { level, epoch }))
    };
    let worker = (any::<u32>(), stated, level(), level(), number(), last_grants()).prop_map(
        |(number, said, requests, tokens, epochs, last_grants)| WorkerSnapshot {
            number,
            settings: said,
            requests,
            tokens,
            epochs,
            last_grants,
        },
    );
    (any::<u32>(), vec(worker, 0..3))
        .prop_map(|(next_number, list)| WorkersSnapshot { next_number, list })
}

/// Generates values for some flows, each flow at most once.
fn by_flow<T: std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = BTreeMap<(Attribute, Box<str>), T>> {
    btree_map((attribute(), text()), value, 0..4)
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let clock = (micros(), number().prop_map(Ticks), number(), number(), number());
    let waits = (option::of(number()), option::of(micros()), option::of(micros()));
    let limits = (waits, busy(), overlap_credit());
    let flows = (by_flow(Just(())), by_flow(weight()), by_flow((option::of(number()), cap_use())));
    let rest = (option::of(workers()), vec(request(), 0..5), root());
    (clock, policy(), limits, flows, rest).prop_map(|(clock, policy, limits, flows, rest)| {
        let (now, ticks, next_seq, grants, capacity) = clock;
        let ((max_queue, queue_timeout, brownout_wait), busy, overlap_credit) = limits;
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
            overlap_credit,
            holds: holds.into_keys().collect(),
            weights: weights.into_iter().map(|((by, flow), w)| (by, flow, w)).collect(),
            caps: caps
                .into_iter()
                .map(|((by, flow), (slots, cap_use))| CapSnapshot { by, flow, slots, cap_use })
                .collect(),
            workers,
            requests,
            root,
        }
    })
}

fn written(snapshot: &Snapshot, clock: Option<JournalClock>) -> Vec<u8> {
    let mut writer = strategies::writer(clock);
    writer.write_snapshot(snapshot).unwrap();
    writer.into_inner()
}

proptest! {
    #[test]
    fn snapshots_read_back_the_same(snapshot in snapshot(), clock in option::of(clock())) {
        let line = written(&snapshot, clock);
        prop_assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
        serde_json::from_slice::<serde_json::Value>(&line).unwrap();
        let (start, reader) = JournalReader::open(&line[..]).unwrap();
        prop_assert_eq!(start, JournalStart::Snapshot(Box::new(snapshot)));
        prop_assert_eq!(reader.clock(), clock);
        prop_assert_eq!(reader.bytes_read(), line.len() as u64);
    }

    #[test]
    fn changed_snapshots_never_panic(
        snapshot in snapshot(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut line = written(&snapshot, None);
        for (at, byte) in changes {
            let at = at.index(line.len());
            line[at] = byte;
        }
        if let Ok((start, _)) = JournalReader::open(&line[..]) {
            let _ = start.into_pool();
        }
    }
}
