//! A member's view of its own membership, and its reaction when it does not read its `alive` lines
//! back.
//!
//! The times are for a lease of 5 s and orphans of 30 s, and scale with them:
//!
//! ```text
//!  0 s   an `alive` is written that counts
//!  3 s   no later one was read back: no grant is used until one is         (3/5 of the lease)
//!  5 s   the cluster ends the epoch, if its time advances
//! 25 s   the other members are asked for their time                         (5/7 of lease + orphans)
//! 35 s   the cluster frees its slots
//! ```
//!
//! Slots are freed in cluster time. So the process aborts its requests in flight as soon as the
//! cluster time of its own replica, or of a member that answers, is 25 s past the last `alive` that
//! its replica has applied. If the log stops for all members, time does not advance, no slot is
//! freed, and all requests continue. If other members were asked and none answers, the process is
//! isolated and aborts its requests.

use super::{LocalMicros, MemberOutput, MemberProtocol};
use crate::units::ClusterMicros;

/// Time between two questions to the other members.
const ASK_AGAIN_AFTER: LocalMicros = LocalMicros(1_000_000);

impl MemberProtocol {
    /// Returns true if it is certain that the cluster has not ended this process's epoch yet.
    pub(super) fn is_sure(&self, now: LocalMicros) -> bool {
        let lease = self.replica.machine().config().timing.lease.0;
        #[cfg(test)]
        if self.is_mutated(crate::tests::simulation::Mutation::GrantsAreAlwaysUsed) {
            return true;
        }
        self.epoch().is_some() && now.since(self.confirmed_at).0 <= lease / 5 * 3
    }

    /// Returns the age of the last `alive` that was read back, counted from its writing. A shell
    /// should refuse new requests when it gets too high.
    pub fn silent_for(&self, now: LocalMicros) -> LocalMicros {
        now.since(self.confirmed_at)
    }

    /// Returns 5/7 of the time after which the slots of a silent member are freed.
    fn patience(&self) -> ClusterMicros {
        let timing = self.replica.machine().config().timing;
        ClusterMicros(timing.lease.after(timing.orphans).0 / 7 * 5)
    }

    /// Returns the time on this process's clock at which the other members should be asked.
    fn ask_at(&self) -> LocalMicros {
        self.confirmed_at.after(LocalMicros(self.patience().0))
    }

    /// Returns true if a machine with this cluster time may soon free the slots of this process.
    fn may_free_soon(&self, time: ClusterMicros) -> bool {
        let (name, process) = (&self.identity.name, &self.identity.process);
        let mut members = self.replica.machine().members();
        match members.find(|it| it.name == *name && it.process == *process) {
            Some(member) => time.since(member.last_alive) >= self.patience(),
            // The cluster no longer knows the process.
            None => true,
        }
    }

    /// Aborts the requests in flight, or asks the other members, if no `alive` of this process was
    /// read back for too long.
    pub(super) fn look_at_standing(&mut self, now: LocalMicros) {
        #[cfg(test)]
        if self.is_mutated(crate::tests::simulation::Mutation::NothingIsCut) {
            return;
        }
        if !self.requests.has_running() {
            return;
        }
        if self.may_free_soon(self.replica.machine().now()) {
            self.cut_all();
        } else if now >= self.next_question() {
            self.asked_peers_at = Some(now);
            self.outputs.push_back(MemberOutput::AskPeers);
        }
    }

    /// Aborts the requests in flight if a member that has answered may soon free their slots, or if
    /// no member has answered. `answers` are the members' cluster times. `asked` is the number of
    /// members that were asked. If it is 0, the process is the only member, and the requests
    /// continue.
    pub fn peers_answered(&mut self, answers: &[ClusterMicros], asked: usize) {
        let is_isolated = asked > 0 && answers.is_empty();
        if is_isolated || answers.iter().any(|time| self.may_free_soon(*time)) {
            self.cut_all();
        }
    }

    fn next_question(&self) -> LocalMicros {
        let again = self.asked_peers_at.map(|at| at.after(ASK_AGAIN_AFTER));
        self.ask_at().max(again.unwrap_or_default())
    }

    /// Returns the time of the next check; `None` if no request is running.
    pub(super) fn next_look_at_standing(&self) -> Option<LocalMicros> {
        self.requests.has_running().then(|| self.next_question())
    }
}
