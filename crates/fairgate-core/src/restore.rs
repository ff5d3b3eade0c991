//! Restores a pool from its snapshot, with all checks.
//!
//! A snapshot may come from outside, so every value in it is checked. The result is either an error that names the bad
//! field, or a pool in a state that events can produce, whose arithmetic stays in range.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::engine::{PoolEngine, PoolLimits, context};
use crate::event::{MAX_RANKS, WorkerState};
use crate::flow_names::FlowNames;
use crate::load::HISTORY;
use crate::meter::{CapMeter, FlowMeter, FlowMeterCounters, NodeMeter};
use crate::pool::{Pool, PoolRequestIds, RequestEntry};
use crate::rate::{TakenQuota, WorkerRate};
use crate::requests::{PoolRequestState, RequestHandle, RequestTable, SubmitSeq};
use crate::share::{LagBoundState, ShareFlowState};
use crate::snapshot::{
    CapUseSnapshot, DrrClassSnapshot, FlowMeterSnapshot, FlowSnapshot, NodeCounters,
    NodeMeterSnapshot, NodeSnapshot, RateLevelSnapshot, RequestSnapshot, ShareFlowSnapshot,
    Snapshot, WorkersSnapshot,
};
use crate::tree::{Discipline, FlowChild, PolicyTree};
use crate::units::{Micros, PerMinute, Ticks};
use crate::workers::{PoolWorkers, WorkerConstraints, WorkerRank, WorkerRecord};

/// Error for a snapshot that describes no valid pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreError {
    /// Path of the bad field from the snapshot's root, such as `requests[3]`.
    pub field: String,
    /// The rule that the field breaks.
    pub problem: &'static str,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl core::error::Error for RestoreError {}

/// Upper limit of ticks, exclusive, so that products of depth and age fit in 128 bits.
const MAX_TICKS: u64 = 1 << 44;
/// Upper limit of scores, exclusive. No real pool comes near this limit or the limits below.
const MAX_SCORE: u128 = 1 << 120;
/// Upper limit of a flow's tokens, exclusive. A flow with fewer tokens has a score below [`MAX_SCORE`] at any weight.
const MAX_TOKENS: u128 = 1 << 88;
/// Upper limit of deficits, exclusive, because a deficit is less than a cost plus a quantum.
const MAX_DEFICIT: u128 = 1 << 65;
/// Upper limit of handles, exclusive, so that it takes little time to collect the free handles.
const MAX_HANDLE: u32 = 1 << 26;
/// Upper limit of counters of events, exclusive, so that the counters never overflow 64 bits.
const MAX_COUNT: u64 = 1 << 63;

fn ensure(holds: bool, field: &str, problem: &'static str) -> Result<(), RestoreError> {
    match holds {
        true => Ok(()),
        false => Err(RestoreError { field: field.into(), problem }),
    }
}

impl Pool {
    /// Restores a pool that continues from the moment at which the snapshot was taken.
    pub fn restore(snapshot: Snapshot) -> Result<Self, RestoreError> {
        check_clock(&snapshot)?;
        let workers = restore_workers(snapshot.workers.as_ref(), snapshot.grants, snapshot.now)?;
        let names = restore_names(&snapshot)?;
        let bounded = snapshot.max_queue.is_some();
        let tree = PolicyTree::new(&snapshot.policy, snapshot.busy, names, bounded);
        let engine = PoolEngine {
            limits: PoolLimits {
                max_queue: snapshot.max_queue,
                queue_timeout: snapshot.queue_timeout,
                brownout_wait: snapshot.brownout_wait,
                busy: snapshot.busy,
                overlap_credit: snapshot.overlap_credit,
            },
            capacity: snapshot.capacity,
            policy: snapshot.policy,
            now: snapshot.now,
            ticks: snapshot.ticks,
            next_seq: snapshot.next_seq,
            grants: snapshot.grants,
            requests: RequestTable::new(),
            workers,
            tree,
        };
        let mut pool = Self { engine, request_ids: PoolRequestIds::default() };
        // Restores the requests first, while the tree has no counters yet, so that entering a request changes no
        // counter.
        let (mut last_seq, mut last_at, mut last_tick) = (None, Micros(0), Ticks(0));
        for (i, request) in snapshot.requests.into_iter().enumerate() {
            let field = format!("requests[{i}]");
            ensure(last_seq < Some(request.seq), &field, "seq must rise from request to request")?;
            ensure(last_at <= request.at, &field, "at must not fall from request to request")?;
            ensure(
                last_tick <= request.tick,
                &field,
                "tick must not fall from request to request",
            )?;
            (last_seq, last_at, last_tick) = (Some(request.seq), request.at, request.tick);
            pool.restore_request(request, &field)?;
        }
        let engine = &mut pool.engine;
        let mut listed = vec![false; engine.tree.flows.len()];
        restore_node(&mut engine.tree, 0, snapshot.root, "root", &mut listed, engine.now)?;
        check_listed(&engine.tree, &listed)?;
        check_pending(engine)?;
        engine.tree.look(&mut engine.workers, context!(engine));
        // Checks all flows, so that flows without requests are kept in order of their scores or forgotten.
        engine.tree.emptied = engine.tree.live_flows();
        engine.tree.forget(&mut engine.workers);
        Ok(pool)
    }

    fn restore_request(&mut self, from: RequestSnapshot, field: &str) -> Result<(), RestoreError> {
        check_request(&from, self, field)?;
        let engine = &mut self.engine;
        let want = WorkerConstraints { pin: from.pin, allow: from.allow, requires: from.requires };
        let mut request = PoolRequestState::new(SubmitSeq(from.seq), from.at, from.tick);
        request.cost = from.cost;
        request.input = from.input;
        request.cached_best = from.cached_best;
        request.quota = from.quota;
        request.priority = from.priority;
        // A snapshot of the second edition of the rules states no timeouts. The pool's timeout then applies.
        let timeout = from.timeout.into_iter().chain(engine.limits.queue_timeout).min();
        request.timeout = timeout;
        request.weight = from.weight;
        request.cached = (!from.cached.is_empty()).then(|| Box::new(from.cached));
        request.want = engine.workers.intern(&want.sorted());
        request.queue = engine.tree.queue_for(&from.attributes);
        let (want, queue) = (request.want, request.queue);
        let handle = RequestHandle(from.handle);
        let free = engine.requests.insert_at(handle, request);
        ensure(free, &format!("{field}.handle"), "is there twice")?;
        self.request_ids.insert(handle, RequestEntry { id: from.id, attributes: from.attributes });
        let Some(flight) = from.flight else {
            engine.requests.start_waiting(handle);
            if timeout != engine.limits.queue_timeout {
                engine.requests.note_deadline(handle);
            }
            engine.workers.starts_to_wait(want);
            engine.tree.enter(handle, queue, &mut engine.requests, engine.now);
            return Ok(());
        };
        engine.tree.enter_in_flight(queue, engine.now);
        let levels = engine.tree.flows_around(queue).count();
        let fits = flight.generations.as_ref().is_none_or(|g| g.len() == levels);
        ensure(fits, &format!("{field}.flight.generations"), "one for each level")?;
        let place = flight.place.map(|(worker, rank)| WorkerRank { worker, rank });
        if let Some(place) = place {
            engine.workers.restore_request(place, flight.prefill);
        }
        let (_, restored) = engine.requests.put_in_flight(handle);
        restored.granted_at = flight.granted_at;
        restored.number = flight.number;
        restored.charged = flight.generations.is_some();
        restored.generations = flight.generations.unwrap_or_default();
        restored.place = place;
        restored.prefill = flight.prefill;
        restored.taken = flight.taken.map(|(epoch, units)| TakenQuota { epoch, units });
        Ok(())
    }
}

fn check_clock(snapshot: &Snapshot) -> Result<(), RestoreError> {
    ensure(snapshot.ticks.0 < MAX_TICKS, "ticks", "must be below 2^44")?;
    ensure(snapshot.next_seq < MAX_COUNT, "next_seq", "must be below 2^63")?;
    ensure(snapshot.grants < MAX_COUNT, "grants", "must be below 2^63")
}

fn check_request(request: &RequestSnapshot, pool: &Pool, field: &str) -> Result<(), RestoreError> {
    let ensure = |holds, name: &str, problem| ensure(holds, &format!("{field}.{name}"), problem);
    let engine = &pool.engine;
    ensure(pool.request_ids.find(&request.id).is_none(), "id", "is there twice")?;
    ensure(request.handle < MAX_HANDLE, "handle", "must be below 2^26")?;
    ensure(request.seq < engine.next_seq, "seq", "must be below next_seq")?;
    ensure(request.at <= engine.now, "at", "is after the snapshot's time")?;
    ensure(request.tick <= engine.ticks, "tick", "is after the snapshot's ticks")?;
    ensure(request.cost.0 > 0, "cost", "must be 1 or more")?;
    ensure(request.cached_best <= request.input, "cached_best", "is more than the input")?;
    let sorted = request.cached.windows(2).all(|pair| pair[0].0 < pair[1].0);
    ensure(sorted, "cached", "must be sorted by worker, each once")?;
    if let Some(flight) = &request.flight {
        ensure(flight.number < engine.grants, "flight.number", "must be below grants")?;
        let in_time = flight.granted_at <= engine.now;
        ensure(in_time, "flight.granted_at", "is after the snapshot's time")?;
        ensure(flight.prefill <= request.input, "flight.prefill", "is more than the input")?;
        let in_range = flight.place.is_none_or(|(_, rank)| rank < MAX_RANKS);
        ensure(in_range, "flight.place", "no worker has so many ranks")?;
        let next = engine.workers.next_number;
        let known = flight.place.is_none_or(|(worker, _)| worker < next);
        ensure(known, "flight.place", "its worker has not come yet")?;
        let sane = flight.taken.is_none_or(|(_, units)| units.unsigned_abs() < MAX_SCORE);
        ensure(sane, "flight.taken", "must be between -2^120 and 2^120")?;
    }
    Ok(())
}

fn restore_names(snapshot: &Snapshot) -> Result<FlowNames, RestoreError> {
    let mut names = FlowNames::default();
    for (by, name) in &snapshot.holds {
        let number = names.intern(*by, name);
        names.list[number as usize].directive.held = true;
    }
    for (by, name, weight) in &snapshot.weights {
        let number = names.intern(*by, name);
        names.list[number as usize].directive.weight = Some(*weight);
    }
    for (i, cap) in snapshot.caps.iter().enumerate() {
        let number = names.intern(cap.by, &cap.flow);
        let name = &mut names.list[number as usize];
        name.directive.cap = Some(cap.slots);
        name.cap_meter = cap_meter(cap.cap_use, snapshot.now, &format!("caps[{i}]"))?;
    }
    Ok(names)
}

fn restore_workers(
    snapshot: Option<&WorkersSnapshot>,
    grants: u64,
    now: Micros,
) -> Result<PoolWorkers, RestoreError> {
    let mut workers = PoolWorkers::new();
    let Some(snapshot) = snapshot else { return Ok(workers) };
    ensure(snapshot.next_number < 1 << 31, "workers.next_number", "must be below 2^31")?;
    workers.has_workers = true;
    workers.next_number = snapshot.next_number;
    let mut names = BTreeSet::new();
    let mut last = None;
    for (i, from) in snapshot.list.iter().enumerate() {
        let field = format!("workers.list[{i}]");
        let settings = &from.settings;
        ensure(last < Some(from.number), &field, "numbers must rise from worker to worker")?;
        ensure(from.number < snapshot.next_number, &field, "its number must be below next_number")?;
        ensure(names.insert(&settings.name), &field, "its name is there twice")?;
        ensure(settings.ranks.unwrap_or(1) <= MAX_RANKS, &field, "it has too many ranks")?;
        ensure(settings.state != Some(WorkerState::Gone), &field, "a gone worker is not listed")?;
        ensure(from.epochs < MAX_COUNT, &field, "epochs: must be below 2^63")?;
        ensure(
            from.last_grants.len() <= MAX_RANKS as usize,
            &field,
            "last_grants: too many ranks",
        )?;
        let known = from.last_grants.iter().all(|number| *number <= grants);
        ensure(known, &field, "last_grants: must not be above grants")?;
        let trimmed = from.last_grants.last() != Some(&0);
        ensure(trimmed, &field, "last_grants: must end with a rank that had one")?;
        last = Some(from.number);
        let mut worker = WorkerRecord::from_change(settings, now);
        worker.epochs = from.epochs;
        worker.set_last_grants(&from.last_grants);
        let burst = worker.burst;
        let restore = |per_minute: Option<Option<PerMinute>>, level: Option<RateLevelSnapshot>| {
            let (per_minute, level) = match (per_minute.flatten(), level) {
                (Some(per_minute), Some(level)) => (per_minute, level),
                (None, None) => return Ok(None),
                _ => return ensure(false, &field, "a rate has a level").map(|()| None),
            };
            ensure(level.epoch <= from.epochs, &field, "a level's epoch is one of its worker's")?;
            let mut rate = WorkerRate::new(per_minute, burst, now, level.epoch);
            rate.level = level.level;
            rate.clamp_level(burst);
            ensure(rate.level == level.level, &field, "a level is out of its bounds")?;
            Ok(Some(rate))
        };
        worker.requests = restore(settings.requests_per_minute, from.requests)?;
        worker.tokens = restore(settings.tokens_per_minute, from.tokens)?;
        workers.add(from.number, worker);
        workers.update_limit(from.number, now);
    }
    Ok(workers)
}

fn node_meter(from: NodeMeterSnapshot, field: &str) -> Result<NodeMeter, RestoreError> {
    let sane = from.volume.unsigned_abs() < MAX_SCORE
        && from.carried.unsigned_abs() < MAX_SCORE
        && from.widest < MAX_SCORE;
    ensure(sane, field, "meter: must be within 2^120")?;
    Ok(NodeMeter::restored(from.volume, from.carried, from.widest))
}

fn flow_meter(
    from: FlowMeterSnapshot,
    waits: bool,
    field: &str,
) -> Result<FlowMeter, RestoreError> {
    let FlowMeterSnapshot { due, floor, got, rise, fall, worst } = from;
    let sane =
        due.unsigned_abs().max(floor.unsigned_abs()) < MAX_SCORE && got.unsigned_abs() < MAX_TOKENS;
    ensure(sane, field, "meter: must be within 2^120")?;
    let [rise, fall, worst] = [rise, fall, worst].map(u64::try_from);
    let (Ok(rise), Ok(fall), Ok(worst)) = (rise, fall, worst) else {
        let problem = "meter: rise, fall and worst must be below 2^64";
        return Err(RestoreError { field: field.into(), problem });
    };
    Ok(FlowMeter::restored(FlowMeterCounters { due, floor, got, rise, fall, worst }, waits))
}

fn cap_meter(from: CapUseSnapshot, now: Micros, field: &str) -> Result<CapMeter, RestoreError> {
    ensure(from.used.max(from.allowed) < 1 << 127, field, "cap_use: must be below 2^127")?;
    Ok(CapMeter::restored(from.used, from.allowed, now))
}

/// Restores the counters of a node and of the nodes inside it. `listed` has one entry per flow with requests; the entry
/// is set to true once the snapshot has named the flow.
fn restore_node(
    tree: &mut PolicyTree,
    node: u32,
    from: NodeSnapshot,
    field: &str,
    listed: &mut [bool],
    now: Micros,
) -> Result<(), RestoreError> {
    let state = &mut tree.nodes[node as usize];
    match (&mut state.discipline, from.state) {
        (Discipline::Drr(drr), NodeCounters::Drr { cursor, stayed, classes, meter }) => {
            ensure((cursor as usize) < drr.classes.len(), field, "cursor: there is no such class")?;
            ensure(classes.len() == drr.classes.len(), field, "classes: one for each class")?;
            drr.cursor = cursor;
            drr.stayed = stayed;
            drr.meter = node_meter(meter, field)?;
            let mut waits = vec![false; drr.classes.len()];
            for flow in state.flows.values().map(|flow| &tree.flows[*flow as usize]) {
                waits[flow.local as usize] = flow.waiting > 0;
            }
            for ((class, waits), from) in (0..).zip(waits).zip(classes) {
                let DrrClassSnapshot { deficit, reached, meter } = from;
                let sane = deficit < MAX_DEFICIT && reached < MAX_DEFICIT;
                ensure(sane, field, "classes: credit must be below 2^65")?;
                ensure(deficit <= reached, field, "classes: deficit is more than reached")?;
                let fits = waits || deficit == 0;
                ensure(fits, field, "classes: there is credit where nothing waits")?;
                drr.restore(class, deficit, reached);
                let state = &mut drr.classes[class as usize];
                state.meter = flow_meter(meter, waits, field)?;
                drr.meter.restore(class, &mut state.meter, state.quantum);
            }
        }
        (Discipline::Share(share), NodeCounters::Share { virtual_time, rises, moments, meter }) => {
            ensure(virtual_time < MAX_SCORE, field, "virtual_time: must be below 2^120")?;
            ensure(rises < MAX_COUNT, field, "rises: must be below 2^63")?;
            ensure(moments < MAX_COUNT, field, "moments: must be below 2^63")?;
            share.virtual_time = virtual_time;
            share.rises = rises;
            share.moments = moments;
            share.meter = node_meter(meter, field)?;
        }
        (Discipline::Load(load), NodeCounters::Load { alpha, history }) => {
            ensure(history.len() <= HISTORY, field, "history: has too many totals")?;
            let sane = history.iter().all(|total| *total < 1 << 96);
            ensure(sane, field, "history: its totals must be below 2^96")?;
            load.alpha = alpha.millionths();
            load.history = history;
            load.mark_begun();
        }
        (Discipline::Bands(_), NodeCounters::Bands) => {}
        _ => return ensure(false, field, "its counters are of another kind than its policy"),
    }
    let level = tree.nodes[node as usize].level.clone();
    let kind = level.node.kind();
    for flow in from.flows {
        let field = format!("{field}.{kind}.flows.{}", flow.name);
        let known = level.classes.is_empty() || level.class(&flow.name).is_some();
        ensure(known, &field, "no class is called so")?;
        let index = tree.flow(node, &flow.name);
        restore_flow(tree, index, flow, &field, listed, now)?;
    }
    Ok(())
}

fn restore_flow(
    tree: &mut PolicyTree,
    index: u32,
    from: FlowSnapshot,
    field: &str,
    listed: &mut [bool],
    now: Micros,
) -> Result<(), RestoreError> {
    if let Some(listed) = listed.get_mut(index as usize) {
        *listed = true;
    }
    let (node, local, child, waits) = {
        let flow = &tree.flows[index as usize];
        (flow.node, flow.local, flow.child, flow.waiting > 0)
    };
    let discipline = &mut tree.nodes[node as usize].discipline;
    match (discipline, from.share, from.load_got, from.band) {
        (Discipline::Share(share), Some(from), None, None) => {
            check_share_flow(&from, share.virtual_time, share.moments, field)?;
            let state = &mut share.flows[local as usize];
            (state.base, state.served, state.pending) = (from.base, from.served, from.pending);
            (state.generation, state.stopped) = (from.generation, from.stopped);
            (state.moment, state.new, state.waits) = (from.moment, from.new, waits);
            let (fallen, rise, ended) = from.bound;
            state.bound = LagBoundState { fallen, rise, ended };
            state.meter = flow_meter(from.meter, waits, field)?;
            share.meter.restore(local, &mut state.meter, state.weight);
            state.cap_meter = cap_meter(from.cap_use, now, field)?;
            state.refresh();
        }
        (Discipline::Load(load), None, Some(got), None) => {
            ensure(got.unsigned_abs() < MAX_SCORE, field, "got: must be within 2^120")?;
            load.flows[local as usize].got = got;
        }
        (Discipline::Bands(bands), None, None, Some(from)) => {
            ensure(from.got.unsigned_abs() < MAX_SCORE, field, "got: must be within 2^120")?;
            let state = &mut bands.classes[local as usize];
            state.got = from.got;
            state.cap_meter = cap_meter(from.cap_use, now, field)?;
        }
        (Discipline::Drr(_), None, None, None) => {}
        _ => return ensure(false, field, "its counters are of another kind than its node"),
    }
    match (child, from.inside) {
        (FlowChild::Node(inside), Some(from)) => {
            restore_node(tree, inside, *from, &format!("{field}.inside"), listed, now)?;
        }
        (FlowChild::Queue(_), None) => {}
        _ => return ensure(false, field, "what is inside it is not what its policy says"),
    }
    // The counters are restored. The next look reports them to the node.
    tree.mark_flow(index);
    Ok(())
}

fn check_share_flow(
    from: &ShareFlowSnapshot,
    virtual_time: u128,
    moments: u64,
    field: &str,
) -> Result<(), RestoreError> {
    let sane = [from.base, from.bound.0, from.bound.2].iter().all(|n| *n < MAX_SCORE);
    ensure(sane, field, "base and bound: must be below 2^120")?;
    let sane = from.served < MAX_TOKENS && from.pending < MAX_TOKENS;
    ensure(sane, field, "served and pending: must be below 2^88")?;
    let stopped_before = from.stopped.is_none_or(|at| at <= virtual_time);
    ensure(stopped_before, field, "stopped: is after virtual time")?;
    ensure(from.generation < MAX_COUNT, field, "generation: must be below 2^63")?;
    ensure(from.moment <= moments, field, "moment: is after the node's")
}

/// Checks that the snapshot lists every flow with requests. A flow that is not listed would wrongly get counters of 0.
fn check_listed(tree: &PolicyTree, listed: &[bool]) -> Result<(), RestoreError> {
    match (0..).zip(listed).find(|(_, listed)| !**listed) {
        None => Ok(()),
        Some((flow, _)) => ensure(false, &flow_field(tree, flow), "is missing, but has requests"),
    }
}

/// Checks that the pending tokens of each share flow are the summed costs of its requests in flight in the present
/// generation.
fn check_pending(engine: &PoolEngine) -> Result<(), RestoreError> {
    let tree = &engine.tree;
    let mut pending: Vec<u128> = vec![0; tree.flows.len()];
    for handle in engine.requests.handles_in_flight() {
        let request = engine.requests.get(handle);
        let Some(flight) = engine.requests.flight(handle).filter(|flight| flight.charged) else {
            continue;
        };
        for (flow, generation) in tree.flows_around(request.queue).zip(&flight.generations) {
            let Some(state) = share_state(tree, flow) else { continue };
            if *generation > state.generation {
                let problem = "generation: a request of it in flight is of a later one";
                return ensure(false, &flow_field(tree, flow), problem);
            }
            if *generation == state.generation {
                pending[flow as usize] += u128::from(request.cost.0);
            }
        }
    }
    for (flow, pending) in (0..).zip(pending) {
        if share_state(tree, flow).is_some_and(|state| state.pending != pending) {
            let problem = "pending: must be the costs of its requests in flight of this generation";
            return ensure(false, &flow_field(tree, flow), problem);
        }
    }
    Ok(())
}

fn share_state(tree: &PolicyTree, flow: u32) -> Option<&ShareFlowState> {
    let flow = &tree.flows[flow as usize];
    match &tree.nodes[flow.node as usize].discipline {
        Discipline::Share(share) => Some(&share.flows[flow.local as usize]),
        _ => None,
    }
}

/// Returns the path of the field under which a snapshot lists a flow.
fn flow_field(tree: &PolicyTree, flow: u32) -> String {
    let flow = &tree.flows[flow as usize];
    let node = &tree.nodes[flow.node as usize];
    let around = match node.parent {
        None => "root".into(),
        Some(parent) => format!("{}.inside", flow_field(tree, parent)),
    };
    format!("{around}.{}.flows.{}", node.level.node.kind(), flow.name)
}
