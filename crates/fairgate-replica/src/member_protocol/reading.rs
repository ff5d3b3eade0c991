//! Applies records that were read from the log, and acts on the decisions about this member's
//! requests.

use std::sync::Arc;

use fairgate_core::decision::Decision;

use super::{
    JOIN_AGAIN_AFTER, LocalMicros, MemberOutput, MemberPhase, MemberProtocol, RequestRefusal,
};
use crate::decision::{ClusterDecision, SubmitRefusal};
use crate::generation::GenerationReport;
use crate::line::ClusterLine;
use crate::machine::{ApplyError, LogEntry, RecordOutcome, RecordReceipt};
use crate::units::{LogPosition, MemberEpoch, MemberNumber};

impl MemberProtocol {
    /// Applies records that were read. `end` is the position of the log's last record. Records that
    /// were applied before are ignored, so the same entries may be passed twice.
    pub fn read<'a>(
        &mut self,
        entries: impl IntoIterator<Item = LogEntry<'a>>,
        end: LogPosition,
        now: LocalMicros,
    ) {
        if matches!(self.phase, MemberPhase::Suspended) {
            return;
        }
        self.log_end = end;
        for entry in entries {
            let next = self.replica.machine().position().next();
            if entry.position < next {
                continue;
            }
            if entry.position > next || !self.apply(&entry, now) {
                return;
            }
        }
        if end < self.replica.machine().position() {
            let own = self.replica.machine().position();
            let reason =
                format!("the log ends at record {}, and record {} was applied", end.0, own.0);
            self.suspend(reason);
        }
    }

    /// Applies one record. Returns false if no further record may be applied now.
    fn apply(&mut self, entry: &LogEntry<'_>, now: LocalMicros) -> bool {
        let mut effects = std::mem::take(&mut self.effects);
        let applied = self.replica.apply(entry, &mut effects);
        let decisions = std::mem::take(&mut effects.decisions);
        self.effects = effects;
        let receipt = match applied {
            Ok(receipt) => receipt,
            Err(error) => {
                self.cannot_apply(&error);
                return false;
            }
        };
        self.damaged = self.damaged.filter(|(position, _)| *position > entry.position);
        self.applied_at = now;
        if entry.position <= self.replay_until {
            return true;
        }
        let is_own = self.epoch() == Some((receipt.member, receipt.epoch));
        for decision in decisions {
            self.take_decision(decision, now);
        }
        if is_own && self.epoch().is_some() {
            self.take_receipt(&receipt);
        }
        true
    }

    fn take_receipt(&mut self, receipt: &RecordReceipt) {
        match receipt.outcome {
            RecordOutcome::Applied | RecordOutcome::Duplicate => {
                let confirmed = self.sender.confirm(receipt.batch);
                for key in confirmed.keys {
                    self.requests.ends.remove(&key);
                }
                if let Some(written_at) = confirmed.alive_written_at {
                    self.confirmed_at = self.confirmed_at.max(written_at);
                    self.asked_peers_at = None;
                    self.use_postponed_grants(written_at);
                }
            }
            RecordOutcome::Missing => self.sender.go_back(),
            RecordOutcome::NotCounted => {}
        }
    }

    fn cannot_apply(&mut self, error: &ApplyError) {
        match *error {
            ApplyError::NotNext { .. } => {}
            ApplyError::Unreadable { position, .. } => match self.damaged {
                Some((at, true)) if at == position => self.suspend(error.to_string()),
                Some((at, false)) if at == position => {
                    self.outputs.push_back(MemberOutput::RestartFromSnapshot);
                }
                _ => {
                    self.damaged = Some((position, false));
                    self.outputs.push_back(MemberOutput::ReadAgain { position });
                }
            },
            ApplyError::UnknownVersion { needed, .. } => {
                self.phase = MemberPhase::Gone;
                self.outputs.push_back(MemberOutput::UnknownVersion { needed });
            }
            ApplyError::LostRecords { .. }
            | ApplyError::Fork { .. }
            | ApplyError::Stopped { .. } => self.suspend(error.to_string()),
        }
    }

    /// Stops granting until the next generation. The shell calls this when it learns, for example,
    /// that the log no longer exists or that another member asks for a new generation.
    pub fn suspend(&mut self, reason: String) {
        if matches!(self.phase, MemberPhase::Suspended | MemberPhase::Gone) {
            return;
        }
        let machine = self.replica.machine();
        let (name, process) = (&self.identity.name, &self.identity.process);
        let known = machine.members().find(|it| it.name == *name && it.process == *process);
        let report = GenerationReport {
            member: known.map_or(MemberNumber(0), |member| member.number),
            generation: machine.generation(),
            position: machine.position(),
            hash: machine.hash(),
        };
        self.phase = MemberPhase::Suspended;
        self.outputs.push_back(MemberOutput::GenerationNeeded { report, reason });
    }

    fn take_decision(&mut self, decision: ClusterDecision, now: LocalMicros) {
        let own = self.epoch().map(|(number, _)| number);
        match decision {
            ClusterDecision::Pool { pool, member, decision } => {
                if self.is_own_number(member) {
                    self.take_pool_decision(&pool, decision, now);
                }
            }
            ClusterDecision::LimitReached { pool, id, member, refusal } => {
                if Some(member) == own {
                    self.take_refusal(&pool, &id, RequestRefusal::Limit(refusal), now);
                }
            }
            ClusterDecision::SubmitRefused { pool, id, member, reason } => {
                let reason = match reason {
                    SubmitRefusal::NoPool => RequestRefusal::NoPool,
                    SubmitRefusal::InternalError => RequestRefusal::InternalError,
                };
                if Some(member) == own {
                    self.take_refusal(&pool, &id, reason, now);
                }
            }
            ClusterDecision::EndedByCluster { pool, id, member, was_in_flight } => {
                if was_in_flight && self.is_own_number(member) {
                    self.cut_if_running(&pool, &id);
                }
            }
            ClusterDecision::TakenUp { .. } => {}
            ClusterDecision::Joined { member, epoch, ref name, ref process, attempt } => {
                if self.is_own_process(name, process) && attempt == self.attempts {
                    self.begin_epoch(member, epoch, now);
                }
                self.outputs.push_back(MemberOutput::Decided(decision));
            }
            ClusterDecision::JoinRefused { ref name, ref process, attempt, reason } => {
                if self.is_own_process(name, process) && attempt == self.attempts {
                    self.join_refused(reason, now);
                }
            }
            ClusterDecision::MemberEnded { member, reason } => {
                if Some(member) == own {
                    self.end_epoch(reason, now);
                }
                self.outputs.push_back(MemberOutput::Decided(decision));
            }
            ClusterDecision::SnapshotDue { taker } => self.take_mark(Some(taker) == own),
            ClusterDecision::SnapshotStored { prune_up_to, .. } => {
                self.outputs.push_back(MemberOutput::Prune { up_to: prune_up_to });
            }
            other => self.outputs.push_back(MemberOutput::Decided(other)),
        }
    }

    fn is_own_process(&self, name: &Arc<str>, process: &Arc<str>) -> bool {
        *name == self.identity.name && *process == self.identity.process
    }

    /// Returns true if this is the number of this process, even if its epoch has ended.
    fn is_own_number(&self, number: MemberNumber) -> bool {
        let member = self.replica.machine().member(number);
        member.is_some_and(|it| self.is_own_process(&it.name, &it.process))
    }

    fn take_pool_decision(&mut self, pool: &Arc<str>, decision: Decision, now: LocalMicros) {
        match decision {
            Decision::Grant(grant) => {
                if self.epoch().is_some() {
                    self.take_grant(pool, grant, now);
                }
            }
            Decision::Reject(reject) => {
                let id = reject.id.clone();
                self.take_refusal(pool, &id, RequestRefusal::Rejected(reject), now);
            }
            Decision::Expire { id, .. } => {
                self.take_refusal(pool, &id, RequestRefusal::Expired, now);
            }
        }
    }

    fn begin_epoch(&mut self, number: MemberNumber, epoch: MemberEpoch, now: LocalMicros) {
        self.phase = MemberPhase::In { number, epoch };
        self.sender.clear();
        self.mark_is_sent = false;
        self.outputs.push_back(MemberOutput::Joined { epoch });
        self.say_alive(now);
        self.say_all_requests(now);
        self.say(ClusterLine::Ready {});
        for ((pool, worker), (up, wait)) in self.opinions.clone() {
            self.say(ClusterLine::Opinion { pool, worker, up, wait });
        }
    }

    fn join_refused(&mut self, reason: crate::decision::JoinRefusal, now: LocalMicros) {
        let join_at = now.after(JOIN_AGAIN_AFTER);
        self.phase = MemberPhase::Out { join_at, was_ended: true };
        self.outputs.push_back(MemberOutput::JoinRefused(reason));
    }

    fn end_epoch(&mut self, reason: crate::decision::MemberEnd, now: LocalMicros) {
        self.sender.clear();
        self.requests.forget_epoch();
        if reason == crate::decision::MemberEnd::Left {
            self.phase = MemberPhase::Gone;
            self.outputs.push_back(MemberOutput::Left);
            return;
        }
        self.phase = MemberPhase::Out { join_at: now, was_ended: true };
        self.outputs.push_back(MemberOutput::EpochEnded);
    }

    fn take_mark(&mut self, is_taker: bool) {
        let machine = self.replica.machine();
        let position = machine.position();
        self.last_mark = (position, machine.now());
        self.mark_is_sent = false;
        if is_taker {
            let bytes = self.replica.take_checkpoint().to_vec();
            self.outputs.push_back(MemberOutput::StoreSnapshot { position, bytes });
        }
    }
}
