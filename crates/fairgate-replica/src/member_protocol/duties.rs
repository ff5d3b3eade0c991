//! The lines that a member sends without a request from its shell: `join`, `alive`, `tick` and
//! `leave`. `mark` and `upgrade` are sent only by the live member with the lowest number.

use super::batch_sender::NextBatch;
use super::{LocalMicros, MemberPhase, MemberProtocol, RESEND_AFTER};
use crate::cluster_config::MOST_ALIVES;
use crate::line::{ClusterLine, JoinLine, LogLine};
use crate::record::{LOG_VERSION, RecordHeader, encode_record};
use crate::units::{ClusterMicros, MemberEpoch, MemberNumber};

/// Delay of a tick for each rank.
const TICK_STEP: LocalMicros = LocalMicros(20_000);
const TICK_LEAST: LocalMicros = LocalMicros(2_000);

/// Cluster time after which a snapshot is due.
const MARK_AFTER: ClusterMicros = ClusterMicros::seconds(30);
const MARK_RECORDS: u64 = 20_000;

impl MemberProtocol {
    /// Returns the next record to append; `None` if there is none now. Call this after every other
    /// call, and at [`next_wake`](Self::next_wake).
    pub fn poll_record(&mut self, now: LocalMicros) -> Option<Vec<u8>> {
        self.look_at_standing(now);
        match &mut self.phase {
            MemberPhase::Gone | MemberPhase::Suspended => None,
            MemberPhase::Out { join_at, was_ended } => {
                let was_ended = *was_ended;
                if *join_at > now || self.replica.machine().position() < self.log_end {
                    return None;
                }
                let record = self.join_record();
                let (again, sent_at) = (record.clone(), now);
                self.phase = MemberPhase::Joining { record: again, sent_at, was_ended };
                Some(record)
            }
            MemberPhase::Joining { record, sent_at, .. } => {
                if now.since(*sent_at) < RESEND_AFTER {
                    return None;
                }
                *sent_at = now;
                Some(record.clone())
            }
            MemberPhase::In { number, epoch } => {
                let (number, epoch) = (*number, *epoch);
                self.next_record(number, epoch, now)
            }
        }
    }

    fn next_record(
        &mut self,
        number: MemberNumber,
        epoch: MemberEpoch,
        now: LocalMicros,
    ) -> Option<Vec<u8>> {
        self.say_uncounted(now);
        self.say_duties(number, now);
        if let Some(again) = self.sender.next_again(now) {
            return Some(again);
        }
        let batch = self.sender.next_batch()?;
        let bytes = encode_record(
            &self.header(number, epoch, &batch),
            batch.lines.iter().map(String::as_str),
        );
        let has_alive = batch.lines.iter().any(|line| line.starts_with(r#"{"event":"alive""#));
        self.sender.sent(batch, bytes.clone(), now, has_alive);
        Some(bytes)
    }

    fn header(&self, member: MemberNumber, epoch: MemberEpoch, batch: &NextBatch) -> RecordHeader {
        let machine = self.replica.machine();
        RecordHeader {
            fairgate_log: LOG_VERSION,
            cluster: machine.cluster().clone(),
            generation: machine.generation(),
            machine: machine.version(),
            member,
            epoch,
            batch: batch.number,
            built_on: (machine.position(), machine.hash()),
            lines: batch.lines.len(),
        }
    }

    fn join_record(&mut self) -> Vec<u8> {
        self.attempts += 1;
        let identity = &self.identity;
        let join = JoinLine {
            name: identity.name.clone(),
            process: identity.process.clone(),
            attempt: self.attempts,
            knows: identity.knows,
            address: identity.address.clone(),
            directory: self.directory,
            spool_lock: identity.spool_lock,
            config: self.config.clone(),
        };
        let mut text = String::new();
        LogLine::Cluster(ClusterLine::Join(Box::new(join))).write(&mut text);
        let machine = self.replica.machine();
        let header = RecordHeader {
            fairgate_log: LOG_VERSION,
            cluster: machine.cluster().clone(),
            generation: machine.generation(),
            machine: machine.version(),
            member: MemberNumber(0),
            epoch: MemberEpoch(0),
            batch: 0,
            built_on: (machine.position(), machine.hash()),
            lines: 1,
        };
        encode_record(&header, [&*text])
    }

    pub(super) fn say_alive(&mut self, now: LocalMicros) {
        self.alive_at = now;
        let (applied_at, directory) = (self.replica.machine().now(), self.directory);
        self.say(ClusterLine::Alive { applied_at, directory });
    }

    fn say_duties(&mut self, number: MemberNumber, now: LocalMicros) {
        if now >= self.next_alive() {
            self.say_alive(now);
        }
        if self.next_tick(number).is_some_and(|at| now >= at) && self.sender.is_idle() {
            self.tick_at = now;
            self.say(ClusterLine::Tick {});
        }
        if self.leaving && self.requests.is_empty() && self.sender.is_idle() {
            self.say(ClusterLine::Leave {});
        }
        if self.replica.machine().rank(number) == Some(0) {
            self.say_sole_duties();
        }
    }

    /// Sends the lines that only one member should send.
    fn say_sole_duties(&mut self) {
        let machine = self.replica.machine();
        let (position, time) = self.last_mark;
        let is_due = machine.now().since(time) >= MARK_AFTER
            || machine.position().0.saturating_sub(position.0) >= MARK_RECORDS;
        let upgrade = machine.allowed_upgrade().filter(|_| self.identity.may_upgrade);
        if is_due && !self.mark_is_sent {
            self.mark_is_sent = true;
            self.say(ClusterLine::Mark {});
        }
        if let Some(to) = upgrade.filter(|_| self.sender.is_idle()) {
            self.say(ClusterLine::Upgrade { to });
        }
    }

    fn next_alive(&self) -> LocalMicros {
        let lease = self.replica.machine().config().timing.lease.0;
        self.alive_at.after(LocalMicros(lease / MOST_ALIVES))
    }

    /// Returns the time on this process's clock at which this member must send a tick, because a
    /// change in the machine is due; `None` if no change is due.
    fn next_tick(&self, number: MemberNumber) -> Option<LocalMicros> {
        let machine = self.replica.machine();
        let left = machine.next_change()?.since(machine.now());
        let rank = u64::try_from(machine.rank(number)?).ok()?;
        let due = self.applied_at.after(LocalMicros(left.0));
        Some(due.after(LocalMicros(TICK_STEP.0 * rank)).max(self.tick_at.after(TICK_LEAST)))
    }

    /// Returns the time at which [`poll_record`](Self::poll_record) should be called again even if
    /// nothing happens. It is at most 1 s after `now`.
    pub fn next_wake(&self, now: LocalMicros) -> LocalMicros {
        let standing = self.next_look_at_standing();
        let next = match &self.phase {
            MemberPhase::Gone | MemberPhase::Suspended => None,
            MemberPhase::Out { join_at, .. } => Some(*join_at),
            MemberPhase::Joining { sent_at, .. } => Some(sent_at.after(RESEND_AFTER)),
            MemberPhase::In { number, .. } => {
                let tick = self.next_tick(*number).filter(|_| self.sender.is_idle());
                let sender = self.sender.next_wake(now);
                [Some(self.next_alive()), tick, sender].into_iter().flatten().min()
            }
        };
        let far = now.after(LocalMicros(1_000_000));
        next.into_iter().chain(standing).min().unwrap_or(far).clamp(now, far)
    }
}
