//! The environment of the members: time, the log, the rows outside of the log, the network, and the
//! actions of a member's shell.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use fairgate_core::event::{Event, PoolConfig, WorkerChange};
use fairgate_core::units::PerMinute;
use fairgate_journal::parse_policy;
use fairgate_random::SeededRng;

use super::backends::Backends;
use super::checks::CheckedOrder;
use super::clients::{LIMITED, RequestState, SimulatedRequest, TENANTS, draw_submit};
use super::faults::{AppendFault, FaultKind};
use super::memory_log::MemoryLog;
use super::mutations::Mutation;
use super::nodes::{NodeState, SimulatedNode};
use crate::cluster_config::{ClusterConfig, ClusterTiming};
use crate::generation::{GenerationReport, choose_base};
use crate::limits::{CallerKind, CallerLimit};
use crate::line::{ClusterLine, LogLine, PoolLine};
use crate::machine::{ClusterMachine, LogEntry};
use crate::member_protocol::{LocalMicros, MemberIdentity, MemberOutput, MemberProtocol};
use crate::replica::Replica;
use crate::snapshot::snapshot_hash;
use crate::units::{ClusterMicros, EngineStamp, LogPosition};

pub(super) const SECOND: u64 = 1_000_000;

/// Time during which clients send requests and faults happen.
const BUSY: u64 = 60 * SECOND;

/// Number of requests in each run.
const REQUESTS: u64 = 510;

/// Minimum number of faults in each run.
pub(super) const LEAST_FAULTS: u64 = 5;

/// The timestamp that the engine's clock shows at the start.
const FIRST_STAMP: i64 = 1_700_000_000_000_000;

/// An event of the simulation, which happens at a certain time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldEvent {
    /// A record reaches the engine of a generation.
    Append(u64, Vec<u8>),
    Read(usize, u64),
    ReadAll,
    Wake(usize, u64),
    Client,
    FlightEnds(Arc<str>, u64),
    Abandon(Arc<str>),
    Fault(FaultKind),
    Start(usize),
    Resume(usize, u64),
    Leave(usize),
    Kill(usize, u64),
    /// The processes read the row of the cluster.
    LookAtRow(usize),
    DecideGeneration,
    AnswerPeers(usize, u64),
    OpinionEnds(Arc<str>, Arc<str>),
    /// The log loses the records after this position, and this node is disconnected.
    LoseTailAfter(u64, usize),
    /// Adds faults to replace those that had no effect.
    FillUp,
    /// Removes faults that have had no effect yet.
    Calm,
}

/// A snapshot outside of the log.
#[derive(Clone)]
struct StoredSnapshot {
    position: LogPosition,
    bytes: Vec<u8>,
    /// True if a fault had changed the state of its taker only.
    is_tampered: bool,
}

impl StoredSnapshot {
    fn first(bytes: Vec<u8>) -> Self {
        Self { position: LogPosition(0), bytes, is_tampered: false }
    }
}

/// The results of one run.
#[derive(Debug, Default)]
pub(super) struct SimulationReport {
    pub(super) requests: u64,
    pub(super) served: u64,
    pub(super) records: u64,
    pub(super) generations: u64,
    /// Number of requests that ran without being counted and that were counted again.
    pub(super) excused: u64,
    pub(super) counted_again: u64,
    pub(super) faults: BTreeMap<FaultKind, u64>,
    pub(super) ends: BTreeMap<&'static str, u64>,
}

/// A cluster with its environment.
pub(super) struct SimulatedCluster {
    pub(super) is_loud: bool,
    pub(super) rng: SeededRng,
    pub(super) now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, WorldEvent)>>,
    scheduled: u64,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) log: MemoryLog,
    pub(super) log_stalled_until: u64,
    pub(super) stamp_offset: i64,
    pub(super) stamp_jumps: u64,
    /// Generation in the cluster's row. The row also has the last two snapshots and the members'
    /// reports.
    generation: u64,
    snapshots: Vec<StoredSnapshot>,
    reports: Vec<(usize, GenerationReport)>,
    generation_is_due: bool,
    pub(super) failing_snapshots: u64,
    pub(super) requests: BTreeMap<Arc<str>, SimulatedRequest>,
    sent: u64,
    pub(super) backends: Backends,
    pub(super) order: CheckedOrder,
    pub(super) newest_version: u32,
    pub(super) newest_file: u64,
    /// Version of the directory, with the limit of requests per minute of [`LIMITED`].
    pub(super) directory: u64,
    pub(super) mutation: Option<Mutation>,
    /// Percentage of long answers.
    pub(super) long_answers: u64,
    pub(super) report: SimulationReport,
}

impl SimulatedCluster {
    pub(super) fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let mut rng = SeededRng::new(seed);
        let nodes = rng.weighted(&[(6, 2), (7, 3), (1, 4), (1, 5), (1, 7)]);
        let mut machine = ClusterMachine::new("simulated", 1);
        machine.mutation = mutation;
        let base = machine.snapshot();
        let mut cluster = Self {
            is_loud: false,
            rng,
            now: 0,
            queue: BinaryHeap::new(),
            scheduled: 0,
            nodes: (0..nodes).map(SimulatedNode::new).collect(),
            log: MemoryLog::default(),
            log_stalled_until: 0,
            stamp_offset: FIRST_STAMP,
            stamp_jumps: 0,
            generation: 1,
            snapshots: vec![StoredSnapshot::first(base.clone())],
            reports: Vec::new(),
            generation_is_due: false,
            failing_snapshots: 0,
            requests: BTreeMap::new(),
            sent: 0,
            backends: Backends::default(),
            order: CheckedOrder::new(base, mutation.filter(is_of_all)),
            newest_version: 1,
            newest_file: 0,
            directory: 1,
            mutation,
            long_answers: 1,
            report: SimulationReport::default(),
        };
        for node in 0..nodes {
            cluster.schedule(node as u64 * 50_000, WorldEvent::Start(node));
            cluster.schedule(2 * SECOND + node as u64 * 100_000, WorldEvent::LookAtRow(node));
        }
        cluster.plan();
        cluster
    }

    /// Draws the times of clients' requests and of faults.
    fn plan(&mut self) {
        for _ in 0..REQUESTS {
            // Half of them come in the first third, so that queues are long.
            let busy = if self.rng.percent(50) { BUSY / 3 } else { BUSY };
            let at = SECOND + self.rng.below(busy);
            self.schedule(at, WorldEvent::Client);
        }
        self.schedule(BUSY - 4 * SECOND, WorldEvent::FillUp);
        self.schedule(BUSY + SECOND, WorldEvent::Calm);
        for _ in 0..self.rng.range(7..=12) {
            let kind = self.rng.one_of(&FaultKind::ALL);
            let at = 2 * SECOND + self.rng.below(BUSY - 5 * SECOND);
            self.schedule(at, WorldEvent::Fault(kind));
        }
    }

    /// Returns the configuration in the file with this number.
    pub(super) fn config(&self, file: u64) -> ClusterConfig {
        let mut pools = BTreeMap::new();
        for (index, slots) in [(0u64, 3u64), (1, 2)] {
            let weight = 400 + 10 * file;
            let policy = format!(
                r#"{{"share":{{"by":"tenant","weights":{{"a":{weight},"b":100,"c":100}}}}}}"#
            );
            let mut config = PoolConfig::new(2 * slots, parse_policy(&policy).unwrap());
            config.max_queue = Some(200 + file);
            config.queue_timeout = Some(ClusterMicros::seconds(40).into());
            for worker in 0..2u64 {
                let rate = (worker == 1).then(|| PerMinute::new(60).unwrap());
                config.workers.push(WorkerChange {
                    name: format!("w{worker}").into(),
                    slots: Some(slots),
                    requests_per_minute: Some(rate),
                    ..WorkerChange::default()
                });
            }
            pools.insert(Arc::from(format!("pool-{index}")), config);
        }
        let timing =
            ClusterTiming { upgrade_after: ClusterMicros::seconds(8), ..ClusterTiming::default() };
        ClusterConfig { timing, pools }
    }

    pub(super) fn slots(&self, pool: &str) -> u64 {
        if pool == "pool-0" { 3 } else { 2 }
    }

    pub(super) fn schedule(&mut self, after: u64, event: WorldEvent) {
        self.scheduled += 1;
        self.queue.push(Reverse((self.now + after, self.scheduled, event)));
    }

    pub(super) fn say(&self, text: impl FnOnce() -> String) {
        if self.is_loud {
            super::announce(&format!("{:>12.6} {}", Seconds(self.now), text()));
        }
    }

    pub(super) fn count(&mut self, kind: FaultKind) {
        *self.report.faults.entry(kind).or_default() += 1;
    }

    /// Runs until nothing happens any more, and checks that no request is left.
    pub(super) fn run(mut self) -> SimulationReport {
        self.run_until_quiet();
        // The slots of ended members and their leases run out.
        let end = self.now + 45 * SECOND;
        while self.now < end {
            self.step();
        }
        self.check_nothing_is_left();
        self.report.requests = self.sent;
        self.report.served = self.report.ends.get("completed").copied().unwrap_or(0);
        self.report.generations = self.generation;
        self.report
    }

    pub(super) fn run_until_quiet(&mut self) {
        while self.now < BUSY + 8 * SECOND || !self.is_quiet() {
            assert!(self.now < 600 * SECOND, "never quiet: {:?}", self.unquiet());
            self.step();
        }
    }

    fn step(&mut self) {
        let Some(Reverse((at, _, event))) = self.queue.pop() else {
            self.now += SECOND;
            return;
        };
        self.now = self.now.max(at);
        match event {
            WorldEvent::Append(generation, record) => self.append(generation, record),
            WorldEvent::Read(node, process) => self.read(node, process),
            WorldEvent::ReadAll => (0..self.nodes.len()).for_each(|node| self.schedule_read(node)),
            WorldEvent::Wake(node, process) => {
                if self.nodes[node].process == process && self.nodes[node].wake_at <= self.now {
                    self.nodes[node].wake_at = u64::MAX;
                    self.pump(node);
                }
            }
            WorldEvent::Client => self.client_comes(),
            WorldEvent::FlightEnds(id, process) => self.flight_ends(&id, process),
            WorldEvent::Abandon(id) => self.client_leaves(&id),
            WorldEvent::Fault(kind) => self.put_fault(kind),
            WorldEvent::Start(node) => self.start(node),
            WorldEvent::Resume(node, process) => self.resume(node, process),
            WorldEvent::Leave(node) => self.leave(node),
            WorldEvent::Kill(node, process) => {
                if self.nodes[node].process == process && self.nodes[node].is_up() {
                    self.crash(node);
                    self.schedule(SECOND, WorldEvent::Start(node));
                }
            }
            WorldEvent::LookAtRow(node) => self.look_at_row(node),
            WorldEvent::DecideGeneration => self.decide_generation(),
            WorldEvent::AnswerPeers(node, process) => self.answer_peers(node, process),
            WorldEvent::LoseTailAfter(place, node) => {
                self.nodes[node].cut_until = self.now + 9 * SECOND;
                self.schedule(9 * SECOND + 1, WorldEvent::ReadAll);
                let count = self.log.end().0.saturating_sub(place);
                self.lose_tail(usize::try_from(count).unwrap());
            }
            WorldEvent::FillUp => {
                let happened: u64 = self.report.faults.values().sum();
                for _ in happened..LEAST_FAULTS {
                    let kind = self.rng.one_of(&FaultKind::ALWAYS);
                    self.put_fault(kind);
                }
            }
            WorldEvent::Calm => {
                for place in &mut self.nodes {
                    place.swaps_next = false;
                    (place.damaged_reads, place.reads_twice) = (0, 0);
                    place.append_faults.clear();
                }
            }
            WorldEvent::OpinionEnds(pool, worker) => {
                for node in 0..self.nodes.len() {
                    if let Some(protocol) = self.nodes[node].protocol.as_mut() {
                        protocol.set_opinion(&pool, &worker, true, ClusterMicros(0));
                    }
                }
            }
        }
    }

    fn unquiet(&self) -> Vec<String> {
        let requests = self.requests.iter();
        let open = requests.filter(|(_, it)| !matches!(it.state, RequestState::Ended(_)));
        let mut all: Vec<String> = open.map(|(id, it)| format!("{id}: {it:?}")).take(5).collect();
        for node in &self.nodes {
            let number = node.protocol.as_ref().map(|protocol| protocol.epoch());
            all.push(format!("{}: {:?} {number:?}", node.name, node.state));
        }
        all
    }

    fn is_quiet(&self) -> bool {
        let ended = |it: &SimulatedRequest| matches!(it.state, RequestState::Ended(_));
        self.sent == REQUESTS
            && self.requests.values().all(ended)
            && self.log_stalled_until < self.now
            && self.nodes.iter().all(|node| {
                node.is_connected(self.now)
                    && node.protocol.as_ref().is_some_and(|protocol| protocol.epoch().is_some())
            })
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].is_up() {
            return;
        }
        let StoredSnapshot { bytes: snapshot, is_tampered, .. } = self.last_snapshot();
        let knows = (1, self.newest_version);
        let Ok(mut replica) = Replica::restore_knowing(snapshot, knows) else {
            // An older binary than the version in force: the newer one is deployed instead.
            self.newest_version = 2;
            return self.schedule(SECOND, WorldEvent::Start(node));
        };
        replica.machine_mut().mutation = self.mutation_of(node);
        let spool_lock = self.nodes[node].process > 0 && self.rng.percent(60);
        let place = &mut self.nodes[node];
        place.process += 1;
        place.state = NodeState::Up;
        place.is_tampered = is_tampered;
        place.wake_at = u64::MAX;
        place.swaps_next = false;
        let identity = MemberIdentity {
            name: place.name.clone(),
            process: format!("{}-{}", place.name, place.process).into(),
            address: format!("https://{}:8443", place.name).into(),
            spool_lock,
            knows,
            may_upgrade: true,
        };
        let file = place.file;
        let now = LocalMicros(self.now);
        let config = self.config(file);
        let protocol = MemberProtocol::new(identity, config, self.directory, replica, now);
        let mut protocol = protocol.unwrap();
        protocol.set_lines_max(self.rng.one_of(&[3, 256, 256, 256]));
        self.nodes[node].protocol = Some(protocol);
        self.say(|| format!("node {node} starts"));
        self.schedule_read(node);
    }

    fn mutation_of(&self, node: usize) -> Option<Mutation> {
        self.mutation.filter(|it| *it != Mutation::OneMemberDiffers || node == 1)
    }

    /// Kills a process. Its sockets close, so its backends stop at once.
    pub(super) fn crash(&mut self, node: usize) {
        self.say(|| format!("node {node} is killed"));
        self.nodes[node].state = NodeState::Down;
        self.nodes[node].protocol = None;
        let process = self.nodes[node].process;
        let of_it = |it: &SimulatedRequest| it.node == node && it.process == process;
        let ids = self.requests.iter().filter(|(_, it)| of_it(it)).map(|(id, _)| id.clone());
        for id in ids.collect::<Vec<_>>() {
            self.end_request(&id, "lost");
        }
    }

    fn resume(&mut self, node: usize, process: u64) {
        if self.nodes[node].process != process || !self.nodes[node].is_up() {
            return;
        }
        self.nodes[node].state = NodeState::Up;
        self.say(|| format!("node {node} resumes"));
        // It is random whether the process sees its clock or the log first.
        match self.rng.percent(50) {
            true => self.pump(node),
            false => self.read(node, process),
        }
        self.schedule_read(node);
        self.schedule(1, WorldEvent::Wake(node, process));
        self.nodes[node].wake_at = self.now;
    }

    pub(super) fn schedule_read(&mut self, node: usize) {
        if !self.nodes[node].is_up() {
            return;
        }
        let place = &self.nodes[node];
        let (process, lag) =
            (place.process, if place.lag_until > self.now { place.lag } else { 0 });
        let after = self.rng.range(100..=500) + lag;
        self.schedule(after, WorldEvent::Read(node, process));
    }

    /// Appends a record to the log, if the engine is running.
    fn append(&mut self, generation: u64, record: Vec<u8>) {
        if self.log_stalled_until > self.now || generation != self.generation {
            return;
        }
        let stamp = i64::try_from(self.now).unwrap() + self.stamp_offset;
        let stamp = EngineStamp(u64::try_from(stamp.max(0)).unwrap());
        let position = self.log.push(stamp, record);
        self.report.records += 1;
        self.check_append(position);
        (0..self.nodes.len()).for_each(|node| self.schedule_read(node));
    }

    fn read(&mut self, node: usize, process: u64) {
        let is_there = self.nodes[node].process == process
            && self.nodes[node].is_connected(self.now)
            && self.log_stalled_until <= self.now;
        if !is_there {
            return;
        }
        let Some(protocol) = self.nodes[node].protocol.as_ref() else { return };
        let machine = protocol.replica().machine();
        if machine.generation() != self.generation {
            return;
        }
        let (end, first) = (self.log.end(), machine.position().0 + 1);
        let Some(entries) = self.log.after(machine.position()) else {
            return self.begin_again(node);
        };
        let mut counted = Vec::new();
        let mut records: Vec<(EngineStamp, Vec<u8>)> =
            entries.iter().map(|entry| (entry.stamp, entry.record.to_vec())).collect();
        let place = &mut self.nodes[node];
        if place.swaps_next && records.len() >= 2 && records[0].1 != records[1].1 {
            place.swaps_next = false;
            place.is_tampered = true;
            let (one, other) = records.split_at_mut(1);
            std::mem::swap(&mut one[0].1, &mut other[0].1);
            counted.push(FaultKind::LogForked);
        }
        if place.damaged_reads > 0 && !records.is_empty() {
            place.damaged_reads -= 1;
            let middle = records[0].1.len() / 2;
            records[0].1[middle] ^= 1;
            counted.push(FaultKind::RecordDamaged);
        }
        let entries = || {
            (first..).zip(&records).map(|(position, (stamp, record))| LogEntry {
                position: LogPosition(position),
                stamp: *stamp,
                record,
            })
        };
        let now = LocalMicros(self.now);
        protocol_read(place, entries(), end, now);
        if place.reads_twice > 0 && !records.is_empty() {
            place.reads_twice -= 1;
            protocol_read(place, entries(), end, now);
            counted.push(FaultKind::AnsweredTwice);
        }
        counted.into_iter().for_each(|kind| self.count(kind));
        self.check_member(node);
        self.pump(node);
    }

    /// Does the work of a member's shell after each call.
    pub(super) fn pump(&mut self, node: usize) {
        if self.nodes[node].state != NodeState::Up {
            return;
        }
        let now = LocalMicros(self.now);
        for _ in 0..1000 {
            let Some(protocol) = self.nodes[node].protocol.as_mut() else { return };
            let record = protocol.poll_record(now);
            let output = protocol.poll_output();
            let generation = protocol.replica().machine().generation();
            if record.is_none() && output.is_none() {
                break;
            }
            if let Some(record) = record {
                self.send(node, generation, record);
            }
            if let Some(output) = output {
                self.take_output(node, output);
            }
        }
        let Some(protocol) = self.nodes[node].protocol.as_ref() else { return };
        let wake_at = protocol.next_wake(now).0.max(self.now + 500);
        if wake_at < self.nodes[node].wake_at {
            self.nodes[node].wake_at = wake_at;
            let process = self.nodes[node].process;
            self.schedule(wake_at - self.now, WorldEvent::Wake(node, process));
        }
    }

    fn send(&mut self, node: usize, generation: u64, record: Vec<u8>) {
        if self.nodes[node].cut_until > self.now {
            return;
        }
        let after = self.rng.range(100..=600);
        let append = WorldEvent::Append(generation, record);
        match self.nodes[node].append_faults.pop() {
            None => self.schedule(after, append),
            Some(AppendFault::Lost) => self.count(FaultKind::AppendLost),
            Some(AppendFault::Doubled) => {
                self.count(FaultKind::AppendDoubled);
                let again = self.rng.range(100..=5_000_000);
                self.schedule(after, append.clone());
                self.schedule(after + again, append);
            }
            Some(AppendFault::Late) => {
                self.count(FaultKind::AppendLate);
                let late = self.rng.range(300_000..=9_000_000);
                self.schedule(late, append);
            }
        }
    }

    fn take_output(&mut self, node: usize, output: MemberOutput) {
        match output {
            MemberOutput::Granted { pool, grant } => self.granted(node, &pool, &grant),
            MemberOutput::Refused { id, reason, .. } => {
                self.say(|| format!("{id} is refused: {reason:?}"));
                self.end_waiting(&id, "refused");
            }
            MemberOutput::CutFlight { id, .. } => {
                self.say(|| format!("{id} is cut"));
                let is_running = matches!(self.requests[&id].state, RequestState::Running(_));
                assert!(is_running, "{id} is cut and does not run");
                self.end_request(&id, "cut");
            }
            MemberOutput::StoreSnapshot { position, bytes } => {
                self.store_snapshot(node, position, bytes);
            }
            MemberOutput::Prune { up_to } => {
                let oldest = self.snapshots.first().map_or(LogPosition(0), |it| it.position);
                self.log.prune(up_to.min(oldest));
            }
            MemberOutput::ReadAgain { .. } => self.schedule_read(node),
            MemberOutput::RestartFromSnapshot => self.begin_again(node),
            MemberOutput::GenerationNeeded { report, reason } => {
                self.say(|| format!("node {node} needs a generation: {reason}"));
                self.report_for_generation(node, report);
            }
            MemberOutput::AskPeers => {
                let process = self.nodes[node].process;
                self.schedule(1000, WorldEvent::AnswerPeers(node, process));
            }
            MemberOutput::Left => {
                self.nodes[node].state = NodeState::Down;
                self.nodes[node].protocol = None;
                let back = self.rng.one_of(&[1, 5]) * SECOND;
                self.schedule(back, WorldEvent::Start(node));
            }
            MemberOutput::UnknownVersion { .. } => self.replace_binary(node),
            MemberOutput::Joined { .. } => self.publish_directory(node),
            MemberOutput::JoinRefused(reason) => {
                self.say(|| format!("node {node} may not join: {reason:?}"));
            }
            MemberOutput::EpochEnded => self.say(|| format!("node {node} was ended")),
            MemberOutput::Decided(_) => {}
        }
    }

    /// Replaces a process whose program does not know the version in force by a newer program.
    fn replace_binary(&mut self, node: usize) {
        self.crash(node);
        self.newest_version = 2;
        self.schedule(SECOND, WorldEvent::Start(node));
    }

    fn last_snapshot(&self) -> StoredSnapshot {
        self.snapshots.last().expect("the first is always there").clone()
    }

    /// Restarts a process from the last snapshot.
    fn begin_again(&mut self, node: usize) {
        let StoredSnapshot { bytes, is_tampered, .. } = self.last_snapshot();
        let mutation = self.mutation_of(node);
        self.nodes[node].is_tampered = is_tampered;
        let Some(protocol) = self.nodes[node].protocol.as_mut() else { return };
        if protocol.restart(bytes).is_err() {
            return self.replace_binary(node);
        }
        protocol.replica_mut().machine_mut().mutation = mutation;
        self.schedule_read(node);
    }

    fn store_snapshot(&mut self, node: usize, position: LogPosition, bytes: Vec<u8>) {
        let machine = self.nodes[node].protocol.as_ref().map(|it| it.replica().machine());
        if machine.map(ClusterMachine::generation) != Some(self.generation) {
            return;
        }
        if self.failing_snapshots > 0 {
            self.failing_snapshots -= 1;
            return self.count(FaultKind::SnapshotNotWritten);
        }
        let hash = snapshot_hash(&bytes);
        if !self.nodes[node].is_tampered {
            self.order.check_snapshot(position, hash);
        }
        let is_tampered = self.nodes[node].is_tampered;
        self.snapshots.push(StoredSnapshot { position, bytes, is_tampered });
        if self.snapshots.len() > 2 {
            self.snapshots.remove(0);
        }
        if let Some(protocol) = self.nodes[node].protocol.as_mut() {
            protocol.snapshot_stored(position, hash);
        }
    }

    fn report_for_generation(&mut self, node: usize, report: GenerationReport) {
        if report.generation != self.generation {
            return;
        }
        self.reports.push((node, report));
        if !self.generation_is_due {
            self.generation_is_due = true;
            self.schedule(2 * SECOND, WorldEvent::DecideGeneration);
        }
    }

    /// Lets a process read the row. There may be a new generation, or a member may need one.
    fn look_at_row(&mut self, node: usize) {
        self.schedule(2 * SECOND, WorldEvent::LookAtRow(node));
        if !self.nodes[node].is_connected(self.now) {
            return;
        }
        let (generation, is_due) = (self.generation, self.generation_is_due);
        let Some(protocol) = self.nodes[node].protocol.as_mut() else { return };
        if protocol.replica().machine().generation() < generation {
            self.begin_generation(node);
        } else if is_due {
            protocol.suspend("another member needs a generation".into());
        }
        self.pump(node);
    }

    fn decide_generation(&mut self) {
        let waiting = self.nodes.iter().any(|node| {
            node.is_connected(self.now) && {
                let generation =
                    node.protocol.as_ref().map(|it| it.replica().machine().generation());
                generation == Some(self.generation)
            }
        });
        let reports: Vec<(usize, GenerationReport)> = self
            .reports
            .iter()
            .filter(|(node, report)| {
                let place = &self.nodes[*node];
                let machine = place.protocol.as_ref().map(|it| it.replica().machine());
                place.is_connected(self.now)
                    && machine.is_some_and(|it| {
                        it.position() == report.position && it.hash() == report.hash
                    })
            })
            .copied()
            .collect();
        let states: Vec<GenerationReport> = reports.iter().map(|(_, report)| *report).collect();
        let Some(base) = choose_base(self.generation, &states) else {
            assert!(waiting || self.now < 590 * SECOND, "nobody can begin a generation");
            return self.schedule(2 * SECOND, WorldEvent::DecideGeneration);
        };
        let node = reports.iter().find(|(_, report)| report.member == base).unwrap().0;
        let protocol = self.nodes[node].protocol.as_ref().unwrap();
        let bytes = protocol.base_for(self.generation + 1);
        self.generation += 1;
        self.say(|| format!("generation begins from node {node}"));
        self.reports.clear();
        self.generation_is_due = false;
        self.log = MemoryLog::default();
        self.snapshots = vec![StoredSnapshot::first(bytes.clone())];
        self.order.begin_generation(bytes, self.mutation.filter(is_of_all));
        self.excuse_unknown_flights();
        for node in 0..self.nodes.len() {
            let after = self.rng.range(1..=50) * 1000;
            self.schedule(after, WorldEvent::LookAtRow(node));
        }
    }

    fn begin_generation(&mut self, node: usize) {
        let StoredSnapshot { bytes: base, is_tampered, .. } = self.last_snapshot();
        let now = LocalMicros(self.now);
        let mutation = self.mutation_of(node);
        let place = &mut self.nodes[node];
        let Some(protocol) = place.protocol.as_mut() else { return };
        place.is_tampered = is_tampered;
        place.swaps_next = false;
        if protocol.begin_generation(base, now).is_err() {
            return self.replace_binary(node);
        }
        protocol.replica_mut().machine_mut().mutation = mutation;
        self.schedule_read(node);
    }

    fn answer_peers(&mut self, node: usize, process: u64) {
        if self.nodes[node].process != process || self.nodes[node].state != NodeState::Up {
            return;
        }
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != node);
        let others: Vec<_> = others.map(|(_, place)| place).collect();
        let answering = others.iter().filter(|place| place.state == NodeState::Up);
        let answers: Vec<ClusterMicros> = answering
            .filter_map(|place| Some(place.protocol.as_ref()?.replica().machine().now()))
            .collect();
        let asked = others.len();
        if let Some(protocol) = self.nodes[node].protocol.as_mut() {
            protocol.peers_answered(&answers, asked);
        }
        self.pump(node);
    }

    fn client_comes(&mut self) {
        self.sent += 1;
        // Most requests of the first tenant come in at one node.
        let tenant = self.rng.weighted(&TENANTS);
        let skewed = tenant == "a" && self.rng.percent(80);
        let node = if skewed { 0 } else { self.rng.index(self.nodes.len()) };
        let id: Arc<str> = format!("r{}", self.sent).into();
        self.submit(node, id, tenant);
    }

    pub(super) fn submit(&mut self, node: usize, id: Arc<str>, tenant: &'static str) {
        let (submit, fields, duration, end) =
            draw_submit(&mut self.rng, &id, tenant, self.long_answers);
        let pool: Arc<str> = if self.rng.percent(60) { "pool-0" } else { "pool-1" }.into();
        let process = self.nodes[node].process;
        let state = RequestState::Waiting;
        let request =
            SimulatedRequest { pool: pool.clone(), tenant, node, process, duration, end, state };
        self.requests.insert(id.clone(), request);
        if self.nodes[node].state != NodeState::Up {
            return self.end_request(&id, "not reached");
        }
        let now = LocalMicros(self.now);
        let protocol = self.nodes[node].protocol.as_mut();
        let submitted = protocol.map(|it| it.submit(&pool, submit, fields, now));
        match submitted {
            Some(Ok(())) => {
                if self.rng.percent(3) {
                    let after = self.rng.below(10 * SECOND);
                    self.schedule(after, WorldEvent::Abandon(id));
                }
                self.pump(node);
            }
            Some(Err(error)) => {
                self.say(|| format!("{id} is refused at node {node}: {error}"));
                self.end_request(&id, "refused at once");
            }
            None => self.end_request(&id, "not reached"),
        }
    }

    fn client_leaves(&mut self, id: &Arc<str>) {
        let request = &self.requests[id];
        let node = request.node;
        if request.state != RequestState::Waiting
            || self.nodes[node].state != NodeState::Up
            || self.nodes[node].process != request.process
        {
            return;
        }
        let pool = request.pool.clone();
        self.end_request(id, "abandoned");
        if let Some(protocol) = self.nodes[node].protocol.as_mut() {
            protocol.abandon(&pool, id);
        }
        self.pump(node);
    }

    fn granted(&mut self, node: usize, pool: &Arc<str>, grant: &fairgate_core::decision::Grant) {
        let id = &grant.id;
        let worker = grant.place.as_ref().expect("pools have workers").worker.clone();
        let request = self.requests.get_mut(id).expect("it was submitted");
        assert_eq!(request.state, RequestState::Waiting, "{id} is granted twice, or too late");
        assert_eq!((request.node, request.process), (node, self.nodes[node].process), "{id}");
        let worker = (pool.clone(), worker);
        request.state = RequestState::Running(worker.clone());
        let (duration, process) = (request.duration, request.process);
        self.backends.begin(worker.clone(), id);
        self.say(|| format!("{id} runs on {} for node {node}", worker.1));
        self.check_flight(node, &worker, id);
        self.schedule(duration, WorldEvent::FlightEnds(id.clone(), process));
    }

    fn flight_ends(&mut self, id: &Arc<str>, process: u64) {
        let request = &self.requests[id];
        let node = request.node;
        let is_running = matches!(request.state, RequestState::Running(_));
        if !is_running || self.nodes[node].process != process {
            return;
        }
        if let NodeState::Paused { .. } = self.nodes[node].state {
            // The engine goes on generating into the buffers of a process that stands still.
            return self.schedule(SECOND, WorldEvent::FlightEnds(id.clone(), process));
        }
        let (pool, end) = (request.pool.clone(), request.end);
        self.end_request(id, "completed");
        if let Some(protocol) = self.nodes[node].protocol.as_mut() {
            protocol.release(&pool, id, end);
        }
        self.pump(node);
    }

    fn end_waiting(&mut self, id: &Arc<str>, how: &'static str) {
        assert_eq!(self.requests[id].state, RequestState::Waiting, "{id} is {how}");
        self.end_request(id, how);
    }

    /// Writes the one row of a request.
    fn end_request(&mut self, id: &Arc<str>, how: &'static str) {
        let request = self.requests.get_mut(id).expect("it was submitted");
        match std::mem::replace(&mut request.state, RequestState::Ended(how)) {
            RequestState::Ended(before) if how == "lost" => {
                request.state = RequestState::Ended(before);
                return;
            }
            RequestState::Ended(before) => panic!("{id} ends twice: {before} and {how}"),
            RequestState::Running(worker) => self.backends.end(&worker, id),
            RequestState::Waiting => {}
        }
        *self.report.ends.entry(how).or_default() += 1;
    }

    pub(super) fn send_stopper(&mut self, node: usize) {
        let id: Arc<str> = format!("stops-{}", self.scheduled).into();
        let is_in = |place: &SimulatedNode| {
            place.state == NodeState::Up
                && place.protocol.as_ref().is_some_and(|protocol| protocol.epoch().is_some())
        };
        if is_in(&self.nodes[node]) {
            self.count(FaultKind::LineStopsMachine);
            self.submit(node, id, "b");
        }
    }

    pub(super) fn reload(&mut self, node: usize) {
        self.newest_file += 1;
        let file = self.newest_file;
        let config = self.config(file);
        if self.nodes[node].state != NodeState::Up {
            return;
        }
        if let Some(protocol) = self.nodes[node].protocol.as_mut() {
            protocol.reload(config).unwrap();
            self.nodes[node].file = file;
            self.count(FaultKind::Reloaded);
        }
        if self.rng.percent(50) {
            // The others get the new file when they start next.
            self.nodes.iter_mut().for_each(|place| place.file = file);
        }
        self.pump(node);
    }

    /// Returns the limit of requests per minute that a version of the directory gives to
    /// [`LIMITED`].
    pub(super) fn limit_of(version: u64) -> u64 {
        20 + version % 5
    }

    fn publish_directory(&mut self, node: usize) {
        let version = self.directory;
        self.publish_limit(node, version);
    }

    fn publish_limit(&mut self, node: usize, version: u64) {
        let Some(protocol) = self.nodes[node].protocol.as_mut() else { return };
        let rate = Some(Self::limit_of(version));
        let limit = CallerLimit { requests_per_minute: rate, ..CallerLimit::default() };
        let (owner, name) = (CallerKind::Tenant, LIMITED.into());
        let line = ClusterLine::Limit { version, owner, name, limit };
        protocol.publish(&LogLine::Cluster(line)).unwrap();
    }

    /// Changes the directory. One node reads the change, and another one publishes what it had read
    /// before.
    pub(super) fn publish_old_directory(&mut self, node: usize) {
        let old = self.directory;
        self.directory += 1;
        let reader = (node + 1) % self.nodes.len();
        let both = [node, reader].map(|it| self.nodes[it].is_connected(self.now));
        if both == [true, true] {
            self.count(FaultKind::OldDirectory);
        }
        self.publish_limit(reader, self.directory);
        self.pump(reader);
        self.publish_limit(node, old);
        self.pump(node);
    }

    /// Makes some nodes lose contact with a worker.
    pub(super) fn opine_on_worker(&mut self) {
        let (pool, worker): (Arc<str>, Arc<str>) = ("pool-0".into(), "w0".into());
        let wait = ClusterMicros::seconds(self.rng.range(1..=5));
        for node in 0..self.nodes.len() {
            if self.rng.percent(70)
                && let Some(protocol) = self.nodes[node].protocol.as_mut()
            {
                protocol.set_opinion(&pool, &worker, false, wait);
                self.pump(node);
            }
        }
        self.count(FaultKind::WorkerDown);
        let pause = WorkerChange { name: "w1".into(), ..WorkerChange::default() };
        let mut line = PoolLine::new(&pool, Event::Worker(pause));
        line.fields.pause_for = Some(ClusterMicros::seconds(3));
        if let Some(protocol) = self.nodes[0].protocol.as_mut() {
            protocol.publish(&LogLine::Pool(line)).unwrap();
        }
        self.schedule(10 * SECOND, WorldEvent::OpinionEnds(pool, worker));
    }
}

/// Returns true if a mutation applies to all machines.
pub(super) fn is_of_all(mutation: &Mutation) -> bool {
    *mutation != Mutation::OneMemberDiffers
}

fn protocol_read<'a>(
    place: &mut SimulatedNode,
    entries: impl Iterator<Item = LogEntry<'a>>,
    end: LogPosition,
    now: LocalMicros,
) {
    if let Some(protocol) = place.protocol.as_mut() {
        protocol.read(entries, end, now);
    }
}

/// Microseconds that are printed as seconds.
struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>5}.{:06}", self.0 / SECOND, self.0 % SECOND)
    }
}
