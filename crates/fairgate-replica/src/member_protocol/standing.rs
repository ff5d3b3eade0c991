//! What a member knows of its own standing, and what it does when it hears nothing of itself.
//!
//! Spans are for a lease of 5 s and orphans of 30 s, and scale with them:
//!
//! ```text
//!  0 s   an `alive` is written that counts
//!  3 s   no later one has come by: grants are not used until one does      (3/5 of the lease)
//!  5 s   the cluster ends the epoch, if it moves on
//! 25 s   what runs is cut off, if the cluster moves on                     (5/7 of lease + orphans)
//! 35 s   the cluster frees its slots
//! ```
//!
//! The process counts from the moment at which it *wrote* the `alive`, which is before the cluster applied it, so it is
//! always early.

use super::{LocalMicros, MemberPhase, MemberProtocol, PeerPosition};

/// Time between two questions to the other members.
const ASK_AGAIN_AFTER: LocalMicros = LocalMicros(1_000_000);

impl MemberProtocol {
    /// Returns true if the cluster cannot have ended this process's epoch yet without this process knowing it.
    pub(super) fn is_sure(&self, now: LocalMicros) -> bool {
        let lease = self.replica.machine().config().timing.lease.0;
        self.epoch().is_some() && now.since(self.confirmed_at).0 <= lease / 5 * 3
    }

    /// Returns for how long nothing of this process was seen in the log. A shell that has had this for the patience of
    /// its configuration refuses new requests.
    pub fn silent_for(&self, now: LocalMicros) -> LocalMicros {
        now.since(self.confirmed_at)
    }

    /// Returns the time at which this process must cut what runs, unless the log stands still for all.
    fn cut_at(&self) -> LocalMicros {
        let timing = self.replica.machine().config().timing;
        let span = timing.lease.after(timing.orphans).0 / 7 * 5;
        self.confirmed_at.after(LocalMicros(span))
    }

    /// Cuts what runs, or asks the other members, if nothing of this process was seen in the log for long.
    pub(super) fn look_at_standing(&mut self, now: LocalMicros) {
        #[cfg(test)]
        if self.replica.machine().mutation == Some(crate::simulation::Mutation::NothingIsCut) {
            return;
        }
        if now < self.cut_at() || !self.requests.has_running() {
            return;
        }
        let saw_its_end = matches!(
            self.phase,
            MemberPhase::Out { was_ended: true, .. } | MemberPhase::Joining { was_ended: true, .. }
        );
        if saw_its_end {
            self.cut_all();
        } else if self.asked_peers_at.is_none_or(|at| now.since(at) >= ASK_AGAIN_AFTER) {
            self.asked_peers_at = Some(now);
            self.outputs.push_back(super::MemberOutput::AskPeers);
        }
    }

    /// Decides what becomes of what runs, by where the other members are. `answers` are those that have answered;
    /// `asked` is the number of members that were asked.
    pub fn peers_answered(&mut self, answers: &[PeerPosition], asked: usize, now: LocalMicros) {
        if now < self.cut_at() {
            return;
        }
        let machine = self.replica.machine();
        let (generation, position) = (machine.generation(), machine.position());
        let own = PeerPosition { generation, position };
        let moved_on = answers.iter().any(|peer| *peer > own);
        let is_alone = asked > 0 && answers.is_empty();
        if moved_on || is_alone {
            self.cut_all();
        }
    }

    pub(super) fn next_look_at_standing(&self) -> Option<LocalMicros> {
        let asked = self.asked_peers_at.map(|at| at.after(ASK_AGAIN_AFTER));
        let at = self.cut_at().max(asked.unwrap_or_default());
        self.requests.has_running().then_some(at)
    }
}
