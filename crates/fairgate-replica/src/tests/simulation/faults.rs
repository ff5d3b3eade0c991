//! The faults, and the way in which each is put into a cluster.

use super::nodes::NodeState;
use super::world::{SECOND, SimulatedCluster, WorldEvent};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    AppendLost,
    AppendDoubled,
    AppendLate,
    AnsweredTwice,
    RecordDamaged,
    LogStalled,
    StampJumped,
    StampWentBack,
    TailLost,
    LogEmptied,
    LogForked,
    ReaderLagged,
    ProcessCrashed,
    ProcessPaused,
    ProcessLeft,
    CutFromLog,
    SnapshotNotWritten,
    BitFlipped,
    LineStopsMachine,
    Reloaded,
    Upgraded,
    OldDirectory,
    WorkerDown,
}

impl FaultKind {
    pub(crate) const ALL: [Self; 23] = [
        Self::AppendLost,
        Self::AppendDoubled,
        Self::AppendLate,
        Self::AnsweredTwice,
        Self::RecordDamaged,
        Self::LogStalled,
        Self::StampJumped,
        Self::StampWentBack,
        Self::TailLost,
        Self::LogEmptied,
        Self::LogForked,
        Self::ReaderLagged,
        Self::ProcessCrashed,
        Self::ProcessPaused,
        Self::ProcessLeft,
        Self::CutFromLog,
        Self::SnapshotNotWritten,
        Self::BitFlipped,
        Self::LineStopsMachine,
        Self::Reloaded,
        Self::Upgraded,
        Self::OldDirectory,
        Self::WorkerDown,
    ];

    /// The faults that always have an effect.
    pub(super) const ALWAYS: [Self; 4] =
        [Self::StampWentBack, Self::TailLost, Self::ReaderLagged, Self::WorkerDown];
}

/// Fault that a node's next records meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AppendFault {
    Lost,
    Doubled,
    Late,
}

const HOUR: i64 = 3600 * 1_000_000;

impl SimulatedCluster {
    /// Puts a fault into the cluster. The fault is counted when it has an effect.
    pub(super) fn put_fault(&mut self, kind: FaultKind) {
        let node = self.rng.index(self.nodes.len());
        self.say(|| format!("fault {kind:?} (node {node})"));
        match kind {
            FaultKind::AppendLost => self.fail_appends(node, AppendFault::Lost),
            FaultKind::AppendDoubled => self.fail_appends(node, AppendFault::Doubled),
            FaultKind::AppendLate => self.fail_appends(node, AppendFault::Late),
            FaultKind::AnsweredTwice => self.nodes[node].reads_twice += 3,
            FaultKind::RecordDamaged => {
                self.nodes[node].damaged_reads = self.rng.range(1..=2);
            }
            FaultKind::LogStalled => {
                let span = self.rng.one_of(&[1, 6, 20, 60]) * SECOND;
                self.log_stalled_until = self.now + span;
                self.schedule(span + 1, WorldEvent::ReadAll);
                self.count(kind);
            }
            FaultKind::StampJumped => {
                if self.stamp_jumps < 3 {
                    self.stamp_jumps += 1;
                    self.stamp_offset += self.rng.one_of(&[HOUR, 24 * HOUR]);
                    self.count(kind);
                }
            }
            FaultKind::StampWentBack => {
                self.stamp_offset -= self.rng.one_of(&[HOUR / 1000, HOUR, 24 * HOUR]);
                self.count(kind);
            }
            FaultKind::TailLost => {
                let count = self.rng.count(1..=20);
                match self.rng.percent(50) {
                    true => self.lose_tail(count),
                    false => self.lose_tail_that_one_has_seen(node),
                }
                self.count(kind);
            }
            FaultKind::LogEmptied => {
                self.lose_tail(usize::MAX);
                self.count(kind);
            }
            FaultKind::LogForked => self.nodes[node].swaps_next = true,
            FaultKind::ReaderLagged => {
                self.nodes[node].lag = self.rng.range(200..=4000) * 1000;
                self.nodes[node].lag_until = self.now + 10 * SECOND;
                self.count(kind);
            }
            FaultKind::ProcessCrashed => {
                if self.nodes[node].is_up() {
                    self.crash(node);
                    let back = self.rng.one_of(&[1, 2, 8, 40]) * SECOND;
                    self.schedule(back, WorldEvent::Start(node));
                    self.count(kind);
                }
            }
            FaultKind::ProcessPaused => {
                if self.nodes[node].state == NodeState::Up {
                    let span = self.rng.one_of(&[2, 20, 60]) * SECOND;
                    self.nodes[node].state = NodeState::Paused { since: self.now };
                    let process = self.nodes[node].process;
                    self.schedule(span, WorldEvent::Resume(node, process));
                    self.count(kind);
                }
            }
            FaultKind::ProcessLeft => self.leave(node),
            FaultKind::CutFromLog => {
                self.nodes[node].cut_until = self.now + self.rng.one_of(&[3, 15, 45, 70]) * SECOND;
                let back = self.nodes[node].cut_until - self.now + 1;
                self.schedule(back, WorldEvent::ReadAll);
                self.count(kind);
            }
            FaultKind::SnapshotNotWritten => self.failing_snapshots = 1,
            FaultKind::BitFlipped => {
                if let Some(protocol) = self.nodes[node].protocol.as_mut() {
                    protocol.replica_mut().machine_mut().clock.now.0 += 1;
                    self.nodes[node].is_tampered = true;
                    self.count(kind);
                }
            }
            FaultKind::LineStopsMachine => self.send_stopper(node),
            FaultKind::Reloaded => self.reload(node),
            FaultKind::Upgraded => {
                self.newest_version = 2;
                self.restart_all_in_turn();
            }
            FaultKind::OldDirectory => self.publish_old_directory(node),
            FaultKind::WorkerDown => self.opine_on_worker(),
        }
    }

    /// Loses records that only one member has read, and disconnects that member, so that no other
    /// knows which requests it began.
    fn lose_tail_that_one_has_seen(&mut self, node: usize) {
        for (other, place) in self.nodes.iter_mut().enumerate() {
            if other != node {
                (place.lag, place.lag_until) = (2 * SECOND, self.now + SECOND);
            }
        }
        let (before, after) = (self.log.end().0, SECOND);
        self.schedule(after, WorldEvent::LoseTailAfter(before + 1, node));
    }

    fn fail_appends(&mut self, node: usize, fault: AppendFault) {
        self.nodes[node].append_faults = vec![fault; self.rng.count(1..=4)];
    }

    pub(super) fn leave(&mut self, node: usize) {
        if self.nodes[node].state != NodeState::Up {
            return;
        }
        if let Some(protocol) = self.nodes[node].protocol.as_mut()
            && protocol.epoch().is_some()
        {
            protocol.leave();
            self.count(FaultKind::ProcessLeft);
            // One that cannot leave is killed, as the systems that run it do.
            let process = self.nodes[node].process;
            self.schedule(30 * SECOND, WorldEvent::Kill(node, process));
            self.pump(node);
        }
    }

    fn restart_all_in_turn(&mut self) {
        for node in 0..self.nodes.len() {
            let at = (node as u64 * 3 + 1) * SECOND;
            self.schedule(at, WorldEvent::Leave(node));
        }
    }
}
