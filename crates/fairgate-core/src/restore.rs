//! A pool made again from its snapshot, and the checks on the way.
//!
//! A snapshot may come from outside, so nothing in it is believed: whatever it holds, the result is a pool in a state
//! that a pool can be in, whose arithmetic stays in range, or an error that names the field.

use core::fmt;
use std::collections::BTreeSet;

use crate::event::{MAX_RANKS, WorkerState};
use crate::load::HISTORY;
use crate::policy::Node;
use crate::pool::{Limits, Pool, context};
use crate::requests::{Flight, Request, Requests, Seq};
use crate::share::{BoundState, FlowState};
use crate::snapshot::{
    FlowSnapshot, NodeCounters, NodeSnapshot, RequestSnapshot, ShareFlowSnapshot, Snapshot,
    WorkersSnapshot,
};
use crate::tree::{Child, Directives, Discipline, Tree};
use crate::units::{Micros, Ticks};
use crate::workers::{Place, Want, Worker, Workers};

/// A snapshot that describes no pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoreError {
    /// The field, from the snapshot's root.
    pub field: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl core::error::Error for RestoreError {}

/// Ticks stay below this, so that products of depth and age fit in 128 bits.
const MAX_TICKS: u64 = 1 << 44;
/// Scores stay below this; no pool that ever ran comes near it, nor near the others.
const MAX_SCORE: u128 = 1 << 120;
/// A share flow's tokens stay below this, so that what they add to its score is a score.
const MAX_TOKENS: u128 = 1 << 88;
/// Deficits stay between this and its negative, so that what a ring gives, summed up, fits in 128 bits.
const MAX_DEFICIT: u128 = 1 << 96;

fn ensure(holds: bool, field: &str, problem: &'static str) -> Result<(), RestoreError> {
    match holds {
        true => Ok(()),
        false => Err(RestoreError { field: field.into(), problem }),
    }
}

impl Pool {
    /// A pool that goes on where the snapshot was taken.
    pub fn restore(snapshot: Snapshot) -> Result<Self, RestoreError> {
        check_clock(&snapshot)?;
        let workers = restore_workers(snapshot.workers.as_ref())?;
        let mut directives = Directives::default();
        for (by, name) in snapshot.holds {
            directives.held[by as usize].insert(name);
        }
        for (by, name, weight) in snapshot.weights {
            directives.weights[by as usize].insert(name, weight);
        }
        for (by, name, cap) in snapshot.caps {
            directives.caps[by as usize].insert(name, cap);
        }
        let bounded = snapshot.max_queue.is_some();
        let tree = Tree::new(&snapshot.policy, snapshot.busy, directives, bounded);
        let mut pool = Self {
            limits: Limits {
                max_queue: snapshot.max_queue,
                queue_timeout: snapshot.queue_timeout,
                brownout_wait: snapshot.brownout_wait,
                busy: snapshot.busy,
            },
            capacity: snapshot.capacity,
            policy: snapshot.policy,
            now: snapshot.now,
            ticks: snapshot.ticks,
            next_seq: snapshot.next_seq,
            grants: snapshot.grants,
            requests: Requests::new(),
            workers,
            tree,
        };
        // The requests first, into a tree at rest, so that entering moves no counter that counts.
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
        let mut listed = vec![false; pool.tree.flows.len()];
        restore_node(&mut pool.tree, 0, snapshot.root, "root", &mut listed)?;
        check_listed(&pool.tree, &listed)?;
        check_pending(&pool)?;
        pool.tree.look(&mut pool.workers, context!(pool));
        Ok(pool)
    }

    fn restore_request(&mut self, from: RequestSnapshot, field: &str) -> Result<(), RestoreError> {
        check_request(&from, self, field)?;
        let want = Want { pin: from.pin, allow: from.allow, requires: from.requires };
        let mut request =
            Request::new(&from.id, &from.attributes, Seq(from.seq), from.at, from.tick);
        request.cost = from.cost;
        request.input = from.input;
        request.cached_best = from.cached_best;
        request.priority = from.priority;
        request.weight = from.weight;
        request.cached = (!from.cached.is_empty()).then(|| Box::new(from.cached));
        request.want = self.workers.intern(&want.sorted());
        let slot = self.requests.insert(request);
        let queue = match from.flight {
            None => {
                self.requests.start_waiting(slot);
                self.workers.starts_to_wait(self.requests.get(slot).want);
                self.tree.enter(slot, &from.attributes, context!(self))
            }
            Some(flight) => {
                let queue = self.tree.enter_flying(&from.attributes);
                let levels = self.tree.flows_around(queue).count();
                let fits = flight.generations.as_ref().is_none_or(|g| g.len() == levels);
                ensure(fits, &format!("{field}.flight.generations"), "one for each level")?;
                let place = flight.place.map(|(worker, rank)| Place { worker, rank });
                if let Some(place) = place {
                    self.workers.board_again(place, flight.prefill);
                }
                let flight = Flight {
                    granted_at: flight.granted_at,
                    number: flight.number,
                    generations: flight.generations,
                    place,
                    prefill: flight.prefill,
                };
                self.requests.start_flying(slot, flight);
                queue
            }
        };
        self.requests.get_mut(slot).queue = queue;
        Ok(())
    }
}

fn check_clock(snapshot: &Snapshot) -> Result<(), RestoreError> {
    ensure(snapshot.ticks.0 < MAX_TICKS, "ticks", "must be below 2^44")?;
    ensure(snapshot.next_seq < 1 << 63, "next_seq", "must be below 2^63")?;
    ensure(snapshot.grants < 1 << 63, "grants", "must be below 2^63")
}

fn check_request(request: &RequestSnapshot, pool: &Pool, field: &str) -> Result<(), RestoreError> {
    let ensure = |holds, name: &str, problem| ensure(holds, &format!("{field}.{name}"), problem);
    ensure(pool.requests.find(&request.id).is_none(), "id", "is there twice")?;
    ensure(request.seq < pool.next_seq, "seq", "must be below next_seq")?;
    ensure(request.at <= pool.now, "at", "is after the snapshot's time")?;
    ensure(request.tick <= pool.ticks, "tick", "is after the snapshot's ticks")?;
    ensure(request.cost.0 > 0, "cost", "must be 1 or more")?;
    ensure(request.cached_best <= request.input, "cached_best", "is more than the input")?;
    let sorted = request.cached.windows(2).all(|pair| pair[0].0 < pair[1].0);
    ensure(sorted, "cached", "must be sorted by worker, each once")?;
    if let Some(flight) = &request.flight {
        ensure(flight.number < pool.grants, "flight.number", "must be below grants")?;
        ensure(flight.granted_at <= pool.now, "flight.granted_at", "is after the snapshot's time")?;
        ensure(flight.prefill <= request.input, "flight.prefill", "is more than the input")?;
        let in_range = flight.place.is_none_or(|(_, rank)| rank < MAX_RANKS);
        ensure(in_range, "flight.place", "no worker has so many ranks")?;
        let next = pool.workers.next_number;
        let known = flight.place.is_none_or(|(worker, _)| worker < next);
        ensure(known, "flight.place", "its worker has not come yet")?;
    }
    Ok(())
}

fn restore_workers(snapshot: Option<&WorkersSnapshot>) -> Result<Workers, RestoreError> {
    let mut workers = Workers::new();
    let Some(snapshot) = snapshot else { return Ok(workers) };
    ensure(snapshot.next_number < 1 << 31, "workers.next_number", "must be below 2^31")?;
    workers.named = true;
    workers.next_number = snapshot.next_number;
    let mut names = BTreeSet::new();
    let mut last = None;
    for (i, (number, change)) in snapshot.list.iter().enumerate() {
        let field = format!("workers.list[{i}]");
        ensure(last < Some(*number), &field, "numbers must rise from worker to worker")?;
        ensure(*number < snapshot.next_number, &field, "its number must be below next_number")?;
        ensure(names.insert(&change.name), &field, "its name is there twice")?;
        ensure(change.ranks.unwrap_or(1) <= MAX_RANKS, &field, "it has too many ranks")?;
        ensure(change.state != Some(WorkerState::Gone), &field, "a gone worker is not listed")?;
        last = Some(*number);
        workers.add(*number, Worker::from_change(change));
    }
    Ok(workers)
}

/// `listed`: the flows that have requests, each with whether the snapshot has come to it.
fn restore_node(
    tree: &mut Tree,
    node: u32,
    from: NodeSnapshot,
    field: &str,
    listed: &mut [bool],
) -> Result<(), RestoreError> {
    let state = &mut tree.nodes[node as usize];
    match (&mut state.discipline, from.state) {
        (Discipline::Drr(drr), NodeCounters::Drr { cursor, stayed, deficits }) => {
            ensure((cursor as usize) < drr.classes.len(), field, "cursor: there is no such class")?;
            ensure(deficits.len() == drr.classes.len(), field, "deficits: one for each class")?;
            drr.cursor = cursor;
            drr.stayed = stayed;
            let settles = matches!(&*state.level.node, Node::Drr(policy) if policy.settle);
            let mut waits = vec![false; drr.classes.len()];
            for flow in state.flows.values().map(|flow| &tree.flows[*flow as usize]) {
                waits[flow.local as usize] = flow.waiting > 0;
            }
            for ((class, waits), (deficit, least, most)) in (0..).zip(waits).zip(deficits) {
                check_deficit(deficit, (least, most), (waits, settles), field)?;
                drr.restore(class, deficit, (least, most));
            }
        }
        (Discipline::Share(share), NodeCounters::Share { virtual_time, rises }) => {
            ensure(virtual_time < MAX_SCORE, field, "virtual_time: must be below 2^120")?;
            ensure(rises < 1 << 63, field, "rises: must be below 2^63")?;
            share.virtual_time = virtual_time;
            share.rises = rises;
        }
        (Discipline::Load(load), NodeCounters::Load { alpha, history }) => {
            ensure(history.len() <= HISTORY, field, "history: has too many totals")?;
            let sane = history.iter().all(|total| *total < 1 << 96);
            ensure(sane, field, "history: its totals must be below 2^96")?;
            load.alpha = alpha.millionths();
            load.history = history;
        }
        _ => return ensure(false, field, "its counters are of another kind than its policy"),
    }
    let is_drr = matches!(tree.nodes[node as usize].discipline, Discipline::Drr(_));
    let kind = tree.nodes[node as usize].level.node.kind();
    for flow in from.flows {
        let field = format!("{field}.{kind}.flows.{}", flow.name);
        let known = !is_drr || tree.nodes[node as usize].level.class(&flow.name).is_some();
        ensure(known, &field, "no class is called so")?;
        let index = tree.flow(node, &flow.name);
        restore_flow(tree, index, flow, &field, listed)?;
    }
    Ok(())
}

/// A deficit is within its bound; credit is only where something waits, debt only where debts exist.
fn check_deficit(
    deficit: i128,
    (least, most): (i128, i128),
    (waits, settles): (bool, bool),
    field: &str,
) -> Result<(), RestoreError> {
    let sane = [deficit, least, most].iter().all(|n| n.unsigned_abs() < MAX_DEFICIT);
    ensure(sane, field, "deficits: must be between -2^96 and 2^96")?;
    ensure(least <= 0, field, "deficits: least must be 0 or below")?;
    let bounded = least <= deficit && deficit <= most;
    ensure(bounded, field, "deficits: tokens must be from least to most")?;
    ensure(waits || deficit <= 0, field, "deficits: there is credit where nothing waits")?;
    let owes = deficit < 0 || least < 0;
    ensure(settles || !owes, field, "deficits: there is a debt without settle")
}

fn restore_flow(
    tree: &mut Tree,
    index: u32,
    from: FlowSnapshot,
    field: &str,
    listed: &mut [bool],
) -> Result<(), RestoreError> {
    if let Some(listed) = listed.get_mut(index as usize) {
        *listed = true;
    }
    let (node, local, child) = {
        let flow = &tree.flows[index as usize];
        (flow.node, flow.local, flow.child)
    };
    match (&mut tree.nodes[node as usize].discipline, from.share) {
        (Discipline::Share(share), Some(from)) => {
            let ShareFlowSnapshot { base, served, pending, generation, stopped, bound } = from;
            let scores = [base, bound.0, bound.2];
            let sane = scores.iter().all(|n| *n < MAX_SCORE);
            ensure(sane, field, "base and bound: must be below 2^120")?;
            let sane = served < MAX_TOKENS && pending < MAX_TOKENS;
            ensure(sane, field, "served and pending: must be below 2^88")?;
            let stopped_before = stopped.is_none_or(|at| at <= share.virtual_time);
            ensure(stopped_before, field, "stopped: is after virtual time")?;
            ensure(generation < 1 << 63, field, "generation: must be below 2^63")?;
            let state = &mut share.flows[local as usize];
            (state.base, state.served, state.pending) = (base, served, pending);
            (state.generation, state.stopped) = (generation, stopped);
            state.bound = BoundState { fallen: bound.0, rise: bound.1, ended: bound.2 };
        }
        (Discipline::Share(_), None) => return ensure(false, field, "a share flow has counters"),
        (_, Some(_)) => return ensure(false, field, "only a share flow has such counters"),
        (_, None) => {}
    }
    match (child, from.inside) {
        (Child::Node(inside), Some(from)) => {
            restore_node(tree, inside, *from, &format!("{field}.inside"), listed)?;
        }
        (Child::Queue(_), None) => {}
        _ => return ensure(false, field, "what is inside it is not what its policy says"),
    }
    // The counters are in place; the next look shows them to the node.
    tree.mark_flow(index);
    Ok(())
}

/// A flow with requests has counters, which 0 would not stand for.
fn check_listed(tree: &Tree, listed: &[bool]) -> Result<(), RestoreError> {
    match (0..).zip(listed).find(|(_, listed)| !**listed) {
        None => Ok(()),
        Some((flow, _)) => ensure(false, &flow_field(tree, flow), "is missing, but has requests"),
    }
}

/// What a share flow has pending is what flies of its present generation.
fn check_pending(pool: &Pool) -> Result<(), RestoreError> {
    let tree = &pool.tree;
    let mut flying = vec![0; tree.flows.len()];
    for slot in pool.requests.flying_slots() {
        let request = pool.requests.get(slot);
        let Some(generations) = request.flight.as_ref().and_then(|f| f.generations.as_ref()) else {
            continue;
        };
        for (flow, generation) in tree.flows_around(request.queue).zip(generations) {
            let Some(state) = share_state(tree, flow) else { continue };
            if *generation > state.generation {
                let problem = "generation: one of its flights has a later one";
                return ensure(false, &flow_field(tree, flow), problem);
            }
            if *generation == state.generation {
                flying[flow as usize] += u128::from(request.cost.0);
            }
        }
    }
    for (flow, flying) in (0..).zip(flying) {
        if share_state(tree, flow).is_some_and(|state| state.pending != flying) {
            let problem = "pending: must be the costs of its flights of this generation";
            return ensure(false, &flow_field(tree, flow), problem);
        }
    }
    Ok(())
}

fn share_state(tree: &Tree, flow: u32) -> Option<&FlowState> {
    let flow = &tree.flows[flow as usize];
    match &tree.nodes[flow.node as usize].discipline {
        Discipline::Share(share) => Some(&share.flows[flow.local as usize]),
        _ => None,
    }
}

/// Where a snapshot lists a flow.
fn flow_field(tree: &Tree, flow: u32) -> String {
    let flow = &tree.flows[flow as usize];
    let node = &tree.nodes[flow.node as usize];
    let around = match node.parent {
        None => "root".into(),
        Some(parent) => format!("{}.inside", flow_field(tree, parent)),
    };
    format!("{around}.{}.flows.{}", node.level.node.kind(), flow.name)
}
