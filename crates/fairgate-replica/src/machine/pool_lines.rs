//! Applies lines about pools, limits and the directory.

use std::sync::Arc;

use fairgate_core::event::Event;

use super::ClusterMachine;
use crate::decision::{ClusterDecision, ClusterEffects, SubmitRefusal};
use crate::limits::{CallerKind, CallerLimit};
use crate::line::PoolLine;
use crate::replicated_pool::{LineSender, PoolContext};
use crate::units::MemberNumber;
use crate::workers::WorkerOpinion;

impl ClusterMachine {
    pub(super) fn apply_pool_line(
        &mut self,
        line: PoolLine,
        sender: LineSender,
        effects: &mut ClusterEffects,
    ) {
        let PoolLine { pool, event, fields } = line;
        if fields.directory.is_some_and(|version| !self.note_directory(version, effects)) {
            return;
        }
        let mut context = pool_context!(self, effects);
        let Some(found) = self.pools.get_mut(&pool) else {
            if let Event::Submit(submit) = event {
                let (id, member, reason) = (submit.id, sender.member, SubmitRefusal::NoPool);
                effects.decided(ClusterDecision::SubmitRefused { pool, id, member, reason });
            }
            return;
        };
        match event {
            Event::Submit(submit) => {
                #[cfg(test)]
                crate::tests::simulation::stop_if_asked(&submit.id);
                found.submit(*submit, &fields, sender, &mut context);
            }
            Event::Release { .. } => found.release(event, fields.charged, sender, &mut context),
            Event::Cancel { .. } => found.cancel(event, sender, &mut context),
            Event::FirstToken { .. } => found.first_token(event, sender, &mut context),
            Event::Worker(change) => found.change_worker(change, fields.pause_for, &mut context),
            other => found.apply_other(other, &mut context),
        }
    }

    /// Records a version of the directory. Returns false if a member has already stated a newer
    /// one.
    pub(super) fn note_directory(&mut self, version: u64, effects: &mut ClusterEffects) -> bool {
        #[cfg(test)]
        if self.is_mutated(crate::tests::simulation::Mutation::OldDirectoryCounts) {
            return true;
        }
        if version > self.directory {
            self.directory = version;
            effects.decided(ClusterDecision::DirectoryChanged { version });
        }
        version >= self.directory
    }

    pub(super) fn set_limit(
        &mut self,
        version: u64,
        owner: CallerKind,
        name: &Arc<str>,
        limit: CallerLimit,
        effects: &mut ClusterEffects,
    ) {
        if self.note_directory(version, effects) {
            self.limits.set_limit(owner, name, limit, self.clock.now);
        }
    }

    pub(super) fn note_opinion(
        &mut self,
        member: MemberNumber,
        pool: &str,
        worker: &str,
        opinion: WorkerOpinion,
        effects: &mut ClusterEffects,
    ) {
        let live = self.members.live_count();
        let mut context = pool_context!(self, effects);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.note_opinion(member, worker, opinion);
            pool.update_workers(live, &mut context);
        }
    }
}
