//! Checks of rules that must hold under all faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::decision::{Decision, Grant};
use fairgate_core::fairness::{LagWithBound, NodeFairness};

use super::backends::WorkerName;
use super::clients::{LIMITED, RequestState};
use super::mutations::Mutation;
use super::nodes::NodeState;
use super::world::{SECOND, SimulatedCluster, is_of_all};
use crate::decision::{ClusterDecision, ClusterEffects};
use crate::limits::CallerKind;
use crate::machine::{ApplyError, ClusterMachine, LogEntry};
use crate::replica::Replica;
use crate::units::{ClusterMicros, EngineStamp, LogPosition, ShortHash};

/// Number of records between two checks of the fairness of all pools.
const FAIRNESS_EVERY: u64 = 32;

/// The reference: one machine that gets every record when the log accepts it.
pub(super) struct CheckedOrder {
    base: Vec<u8>,
    records: Vec<(EngineStamp, Vec<u8>)>,
    machine: Replica,
    /// True once the log is no longer the same order for all members. Later records are not
    /// applied.
    is_broken: bool,
    /// Hashes of the machine's snapshots at the marks.
    marks: BTreeMap<LogPosition, ShortHash>,
    /// Cluster times at which requests of [`LIMITED`] were counted, and at which workers with a
    /// rate began a request.
    counted: Vec<ClusterMicros>,
    begun: BTreeMap<WorkerName, Vec<ClusterMicros>>,
}

impl CheckedOrder {
    pub(super) fn new(base: Vec<u8>, mutation: Option<Mutation>) -> Self {
        let machine = restored(&base, mutation);
        Self {
            base,
            records: Vec::new(),
            machine,
            is_broken: false,
            marks: BTreeMap::new(),
            counted: Vec::new(),
            begun: BTreeMap::new(),
        }
    }

    pub(super) fn machine(&self) -> &ClusterMachine {
        self.machine.machine()
    }

    /// Returns true if the request has a slot at this worker.
    fn is_in_flight(&self, (pool, worker): &WorkerName, id: &str) -> bool {
        self.machine().flight_worker(pool, id) == Some(worker)
    }

    /// Returns the records of the present generation.
    pub(super) fn records(&self) -> &[(EngineStamp, Vec<u8>)] {
        &self.records
    }

    fn apply(&mut self, entry: &LogEntry<'_>) -> Vec<ClusterDecision> {
        let mut effects = ClusterEffects::default();
        if self.is_broken {
            return Vec::new();
        }
        match self.machine.apply(entry, &mut effects) {
            Ok(_) => self.records.push((entry.stamp, entry.record.to_vec())),
            Err(ApplyError::Fork { .. } | ApplyError::LostRecords { .. }) => self.is_broken = true,
            Err(error) => panic!("the log cannot be applied: {error}"),
        }
        effects.decisions
    }

    /// Goes back to an earlier position, because the log has lost its end.
    fn go_back_to(&mut self, end: LogPosition, mutation: Option<Mutation>) {
        if end >= self.machine().position() {
            return;
        }
        self.records.truncate(usize::try_from(end.0).unwrap());
        self.machine = restored(&self.base, mutation);
        self.is_broken = false;
        let mut effects = ClusterEffects::default();
        for (position, (stamp, record)) in (1..).zip(&self.records) {
            let entry = LogEntry { position: LogPosition(position), stamp: *stamp, record };
            self.machine.apply(&entry, &mut effects).expect("it was applied before");
        }
        self.marks.retain(|position, _| *position <= end);
        self.forget_after(self.machine().now());
    }

    pub(super) fn begin_generation(&mut self, base: Vec<u8>, mutation: Option<Mutation>) {
        self.machine = restored(&base, mutation);
        self.base = base;
        self.records.clear();
        self.is_broken = false;
        self.marks.clear();
        self.forget_after(self.machine().now());
    }

    fn forget_after(&mut self, now: ClusterMicros) {
        self.counted.retain(|at| *at <= now);
        self.begun.values_mut().for_each(|times| times.retain(|at| *at <= now));
    }

    pub(super) fn check_snapshot(&self, position: LogPosition, hash: ShortHash) {
        if let Some(own) = self.marks.get(&position) {
            assert_eq!(*own, hash, "the snapshots at {position:?} differ");
        }
    }

    /// Applies the same records to a machine that is restored from a snapshot in between, at the
    /// position `restored_at`.
    fn check_one_machine_alone(&self, restored_at: usize, mutation: Option<Mutation>) {
        let mut machine = restored(&self.base, mutation);
        let mut effects = ClusterEffects::default();
        for (index, (stamp, record)) in self.records.iter().enumerate() {
            if index == restored_at {
                machine = restored(&machine.machine().snapshot(), mutation);
            }
            let position = machine.machine().position().next();
            let entry = LogEntry { position, stamp: *stamp, record };
            machine.apply(&entry, &mut effects).expect("it was applied before");
        }
        assert_eq!(machine.machine().hash(), self.machine().hash(), "one machine decides alike");
        let same = machine.machine().snapshot() == self.machine().snapshot();
        assert!(same, "one machine that was restored has another state");
    }
}

fn restored(snapshot: &[u8], mutation: Option<Mutation>) -> Replica {
    let mut replica = Replica::restore_knowing(snapshot.to_vec(), (1, 2)).expect("a snapshot");
    replica.machine_mut().mutation = mutation;
    replica
}

/// Checks a rate for the last of these times together with every earlier one. In any period, there
/// may be as many as the rate adds in it, those that were saved up, and one more.
fn check_rate(times: &[ClusterMicros], per_minute: u64, saved_up: u64, what: &str) {
    let Some(last) = times.last() else { return };
    for (begun, first) in (1u64..).zip(times.iter().rev()) {
        let filled = last.since(*first).0 * per_minute / (60 * SECOND);
        let most = filled + saved_up + 1;
        assert!(begun <= most, "{what}: {begun} in {:?}, at most {most}", last.since(*first));
    }
}

/// Checks that every flow's lag is within its bound, and so is the difference between what it got and was due.
pub(super) fn check_fairness(pool: &str, nodes: &[NodeFairness]) {
    for flow in nodes.iter().flat_map(|node| &node.flows) {
        let name = &flow.name;
        assert!(flow.is_within_bound(), "{pool}: flow {name} leaves its bound: {flow:?}");
        if let Some(LagWithBound { lag, bound: Some((least, most)) }) = flow.lag {
            assert!(least <= lag && lag <= most, "{pool}: flow {name} lags too far: {flow:?}");
        }
    }
}

impl SimulatedCluster {
    /// Applies a record that the log has just accepted, and checks the decisions.
    pub(super) fn check_append(&mut self, position: LogPosition) {
        let entry = self.log.get(position).expect("it was just taken");
        let decisions = self.order.apply(&entry);
        for decision in decisions {
            self.check_decision(position, decision);
        }
        if position.0.is_multiple_of(FAIRNESS_EVERY) {
            let machine = self.order.machine();
            for name in machine.pool_names() {
                check_fairness(name, &machine.pool(name).unwrap().fairness());
            }
        }
    }

    fn check_decision(&mut self, position: LogPosition, decision: ClusterDecision) {
        self.say(|| format!("{}: {decision:?}", position.0));
        match decision {
            ClusterDecision::Pool { pool, decision: Decision::Grant(grant), .. } => {
                self.check_grant(pool, &grant);
            }
            ClusterDecision::TakenUp { id, .. } => self.count_if_known(&id),
            ClusterDecision::EndedByCluster { id, was_in_flight: true, .. } => {
                self.check_freed_slot(&id);
            }
            ClusterDecision::SnapshotDue { .. } => {
                let hash = self.order.machine().state_hash();
                self.order.marks.insert(position, hash);
            }
            ClusterDecision::Upgraded { .. } => {
                self.count(super::FaultKind::Upgraded);
            }
            _ => {}
        }
    }

    fn check_grant(&mut self, pool: Arc<str>, grant: &Grant) {
        let now = self.order.machine().now();
        let request = &self.requests[&grant.id];
        if let RequestState::Running(_) = request.state {
            return self.count_if_known(&grant.id);
        }
        if request.tenant == LIMITED {
            self.order.counted.push(ClusterMicros(now.0 - grant.waited.0));
            self.order.counted.sort_unstable();
        }
        let worker = grant.place.as_ref().expect("pools have workers").worker.clone();
        if *worker == *"w1" {
            let times = self.order.begun.entry((pool, worker)).or_default();
            times.push(now);
            check_rate(times, 60, 10, "requests that a worker begins");
        }
    }

    /// Checks a slot that the cluster frees without a line of its member. The request must no
    /// longer run, unless its member was paused for longer than the cluster waits.
    fn check_freed_slot(&mut self, id: &Arc<str>) {
        let request = &self.requests[id];
        if !matches!(request.state, RequestState::Running(_)) || self.backends.is_excused(id) {
            return;
        }
        let node = &self.nodes[request.node];
        let stood_still = match node.state {
            NodeState::Paused { since } => self.now - since >= 25 * SECOND,
            NodeState::Up | NodeState::Down => false,
        };
        let may_be = stood_still || node.is_tampered;
        assert!(may_be, "the slot of {id} was freed while it runs at node {}", request.node);
        self.excuse(id);
    }

    /// Checks a request that has begun on a worker. The request must have a slot there, and the
    /// worker must not have more requests than slots.
    pub(super) fn check_flight(&mut self, node: usize, worker: &WorkerName, id: &Arc<str>) {
        if !self.order.is_in_flight(worker, id) {
            let place = &self.nodes[node];
            let own = place.protocol.as_ref().unwrap().replica().machine();
            let is_ahead = own.generation() != self.order.machine().generation()
                || own.position() > self.order.machine().position();
            assert!(is_ahead || place.is_tampered, "{id} runs without a slot at node {node}");
            self.excuse(id);
        }
        let (all, excused) = self.backends.on(worker);
        let slots = self.slots(&worker.0);
        assert!(all - excused <= slots, "{all} run on {worker:?}, {excused} of them excused");
    }

    fn excuse(&mut self, id: &Arc<str>) {
        self.report.excused += u64::from(self.backends.excuse(id));
    }

    /// Counts a request again if it has a slot on the worker on which it runs.
    fn count_if_known(&mut self, id: &Arc<str>) {
        let RequestState::Running(worker) = &self.requests[id].state else { return };
        if !self.order.is_in_flight(worker, id) {
            return;
        }
        self.report.counted_again += u64::from(self.backends.count_again(id));
    }

    /// Excuses the running requests that are not in the changed order, because they were granted in
    /// an end of the log that was lost.
    pub(super) fn excuse_unknown_flights(&mut self) {
        for (worker, id) in self.backends.all() {
            match self.order.is_in_flight(&worker, &id) {
                true => self.count_if_known(&id),
                false => self.excuse(&id),
            }
        }
    }

    pub(super) fn lose_tail(&mut self, count: usize) {
        self.log.lose_tail(count);
        let end = self.log.end();
        let generation = self.order.machine().generation();
        for place in &mut self.nodes {
            let machine = place.protocol.as_ref().map(|protocol| protocol.replica().machine());
            // Other records may fill these places before the node reads again. Then its state differs from that of all
            // others.
            place.is_tampered |=
                machine.is_some_and(|it| it.position() > end && it.generation() == generation);
        }
        self.order.go_back_to(self.log.end(), self.mutation.filter(is_of_all));
        self.excuse_unknown_flights();
        (0..self.nodes.len()).for_each(|node| self.schedule_read(node));
    }

    /// Compares a member with the reference at the member's position.
    pub(super) fn check_member(&self, node: usize) {
        let place = &self.nodes[node];
        let Some(protocol) = place.protocol.as_ref() else { return };
        let (own, order) = (protocol.replica().machine(), self.order.machine());
        if own.generation() != order.generation() || place.is_tampered || own.is_stopped {
            return;
        }
        if let Some(hash) = order.recent.get(own.position()) {
            assert_eq!(own.hash(), hash, "node {node} decides otherwise at {:?}", own.position());
        }
    }

    /// Checks at the end of a run that no request is queued or in flight anywhere.
    pub(super) fn check_nothing_is_left(&mut self) {
        assert_eq!(self.backends.all().len(), 0, "something runs");
        if self.order.is_broken {
            // The only connected member differed from the reference order. No other member could detect this, and the
            // others took over its state later.
            let first = self.nodes[0].protocol.as_ref().expect("it runs").replica().machine();
            let state = first.snapshot();
            self.order.begin_generation(state, self.mutation.filter(is_of_all));
        }
        let order = self.order.machine();
        for name in order.pool_names() {
            let pool = order.pool(name).unwrap();
            assert_eq!((pool.waiting(), pool.in_flight()), (0, 0), "{name}: waiting, in flight");
            assert!(order.worker_flights(name).all(|(_, count)| count == 0), "{name}: flights");
        }
        for (_, name, account) in order.limits().all() {
            assert_eq!((account.queued_requests, account.queued_bytes), (0, 0), "{name}: queued");
        }
        let account = order.limits().account(CallerKind::Tenant, LIMITED).expect("it is limited");
        let rate = account.limit.requests_per_minute;
        assert_eq!(rate, Some(Self::limit_of(order.directory())), "an old directory counts");
        let live = order.members().filter(|member| member.is_live()).count();
        assert_eq!((live, order.members().count()), (self.nodes.len(), live), "members");
        self.check_limit();
        for node in 0..self.nodes.len() {
            self.check_node_is_idle(node);
        }
        // This check takes as long as a member, so only some runs do it.
        if self.rng.percent(25) || self.mutation.is_some() {
            let middle = self.rng.index(self.order.records.len().max(1));
            self.order.check_one_machine_alone(middle, self.mutation.filter(is_of_all));
        }
    }

    /// Checks that the limit of requests per minute holds for the whole cluster in every period.
    fn check_limit(&self) {
        let counted = &self.order.counted;
        let most = 24;
        for end in 1..=counted.len() {
            check_rate(&counted[..end], most, most, "requests of the limited tenant");
        }
    }

    fn check_node_is_idle(&mut self, node: usize) {
        let order = self.order.machine();
        let place = &mut self.nodes[node];
        let protocol = place.protocol.as_mut().expect("it runs");
        assert!(protocol.is_idle(), "node {node} has requests");
        assert_eq!(protocol.replica().machine().generation(), order.generation(), "node {node}");
        let entries = self.log.after(protocol.replica().machine().position()).unwrap();
        protocol.read(entries, self.log.end(), crate::member_protocol::LocalMicros(self.now));
        let own = protocol.replica().machine();
        assert_eq!(own.position(), order.position(), "node {node} lags behind");
        assert_eq!(own.hash(), order.hash(), "node {node} has another hash");
        let same = own.snapshot() == order.snapshot();
        assert!(same || place.is_tampered, "node {node} has another state");
    }
}
