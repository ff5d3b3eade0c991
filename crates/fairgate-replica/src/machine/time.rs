//! Changes that only the passing of time causes: leases end, slots of ended members become free,
//! requests expire.

use super::ClusterMachine;
use crate::decision::{ClusterEffects, MemberEnd};
use crate::members::MemberState;
use crate::units::{ClusterMicros, EngineStamp};

impl ClusterMachine {
    /// Advances time for one record, and applies the changes that are now due: first the ends of
    /// members, in the order of their numbers, then for each pool its workers, its orphans and its
    /// timers.
    pub(super) fn pass_time(&mut self, stamp: EngineStamp, effects: &mut ClusterEffects) {
        let timing = self.config.config.timing;
        self.clock.advance(stamp, self.most_at_once());
        let now = self.clock.now;
        while let Some(lapsed) = self.members.first_lapsed(now, timing.lease) {
            self.end_member(lapsed, MemberEnd::Lapsed, effects);
        }
        let live = self.members.live_count();
        self.each_pool(effects, |pool, context| pool.pass_time(live, context));
        // By then, the requests of these members have ended and their slots are free.
        let is_over = |at: ClusterMicros| at.after(timing.orphans).after(timing.lease) < now;
        self.members.retain(|it| !matches!(it.state, MemberState::Ended(at) if is_over(at)));
    }

    fn most_at_once(&self) -> ClusterMicros {
        #[cfg(test)]
        if self.is_mutated(crate::tests::simulation::Mutation::TimeJumps)
            || self.is_mutated(crate::tests::simulation::Mutation::OneMemberDiffers)
        {
            return ClusterMicros(u64::MAX);
        }
        self.config.config.timing.most_at_once()
    }

    /// Returns the next time at which something changes without a line; `None` if there is none. A
    /// member should send a tick at that time.
    pub fn next_change(&self) -> Option<ClusterMicros> {
        let now = self.clock.now;
        let lapse = self.members.next_lapse(self.config.config.timing.lease);
        let pools = self.pools.values().filter_map(|pool| pool.next_change(now));
        pools.chain(lapse).min()
    }
}
