//! Applies lines about members, configurations, snapshots and versions.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ApplyError, ClusterMachine};
use crate::cluster_config::ClusterConfig;
use crate::decision::{ClusterDecision, ClusterEffects, JoinRefusal, MemberEnd};
use crate::line::{ClusterLine, JoinLine};
use crate::members::MemberState;
use crate::replicated_pool::{EndedFlights, LineSender, PoolContext, ReplicatedPool};
use crate::units::{LogPosition, MemberEpoch, MemberNumber, ShortHash, is_valid_name};
use crate::workers::WorkerOpinion;

impl ClusterMachine {
    pub(super) fn apply_cluster_line(
        &mut self,
        line: ClusterLine,
        sender: LineSender,
        effects: &mut ClusterEffects,
    ) -> Result<(), ApplyError> {
        let member = sender.member;
        match line {
            ClusterLine::Join(_) | ClusterLine::Tick {} => {}
            ClusterLine::Ready {} => self.ready(sender, effects),
            ClusterLine::Alive { applied_at, directory } => {
                let (now, lease) = (self.clock.now, self.config.config.timing.lease);
                if let Some(member) = self.members.get_mut(member) {
                    (member.applied_at, member.directory) = (applied_at, directory);
                    // An `alive` does not renew the lease of a member that is more than a lease behind in applying the
                    // log.
                    if applied_at.after(lease) >= now {
                        member.last_alive = now;
                    }
                }
            }
            ClusterLine::Leave {} => self.end_member(member, MemberEnd::Left, effects),
            ClusterLine::Remove { name } => self.remove_named(&name, effects),
            ClusterLine::Directory { version } => {
                self.note_directory(version, effects);
            }
            ClusterLine::Limit { version, owner, name, limit } => {
                self.set_limit(version, owner, &name, limit, effects);
            }
            ClusterLine::Reload { config } => self.reload(member, &config, effects),
            ClusterLine::Opinion { pool, worker, up, wait } => {
                self.note_opinion(member, &pool, &worker, WorkerOpinion { up, wait }, effects);
            }
            ClusterLine::Publish { topic, body } => {
                effects.decided(ClusterDecision::Published { member, topic, body });
            }
            ClusterLine::Mark {} => self.mark(effects),
            ClusterLine::SnapshotStored { position, hash } => {
                self.note_snapshot(position, hash, effects);
            }
            ClusterLine::Upgrade { to } => return self.upgrade(to, effects),
        }
        Ok(())
    }

    pub(super) fn join(&mut self, join: &JoinLine, effects: &mut ClusterEffects) {
        let known = self.members.find_process(&join.name, &join.process);
        if known.is_some_and(|member| member.attempt >= join.attempt) {
            return;
        }
        if let Some(reason) = self.join_refusal(join) {
            let (name, process) = (join.name.clone(), join.process.clone());
            let attempt = join.attempt;
            effects.decided(ClusterDecision::JoinRefused { name, process, attempt, reason });
            return;
        }
        if join.spool_lock {
            self.end_earlier_processes(
                &join.name,
                Some(&join.process),
                effects,
                MemberEnd::Replaced,
            );
        }
        let epoch = MemberEpoch(self.position.0);
        let member = self.members.number_for(join);
        if let Some(found) = self.members.get_mut(member) {
            found.join(join, epoch, self.clock.now);
        }
        self.pools.values_mut().for_each(|pool| pool.begin_epoch(member));
        let (name, process, attempt) = (join.name.clone(), join.process.clone(), join.attempt);
        effects.decided(ClusterDecision::Joined { member, epoch, name, process, attempt });
        let digest = join.config.digest();
        self.member_configs.insert(digest, Arc::new(join.config.clone()));
        if self.config.note(digest) {
            self.set_config(digest, effects);
        }
        self.note_membership(effects);
    }

    fn join_refusal(&self, join: &JoinLine) -> Option<JoinRefusal> {
        let is_known = self.members.find_process(&join.name, &join.process).is_some();
        let mut others = self.members.all().filter(|it| it.process != join.process);
        let is_taken = others.any(|it| it.name == join.name && it.has_lease());
        let in_force = self.version;
        match () {
            () if ![&join.name, &join.process].into_iter().all(|name| is_valid_name(name)) => {
                Some(JoinRefusal::BadName)
            }
            () if join.address.len() > 1024 => Some(JoinRefusal::BadName),
            () if !(join.knows.0..=join.knows.1).contains(&in_force) => {
                Some(JoinRefusal::UnknownVersion { in_force })
            }
            () if is_taken && !join.spool_lock => Some(JoinRefusal::NameTaken),
            () if !is_known && self.members.is_full() => Some(JoinRefusal::TooManyMembers),
            () => None,
        }
    }

    /// Ends the processes with this name, except the process `except`, and frees their slots.
    fn end_earlier_processes(
        &mut self,
        name: &str,
        except: Option<&str>,
        effects: &mut ClusterEffects,
        reason: MemberEnd,
    ) {
        let earlier = self.members.all().filter(|it| *it.name == *name);
        let earlier = earlier.filter(|it| Some(&*it.process) != except).map(|it| it.number);
        for member in earlier.collect::<Vec<_>>() {
            self.end_member(member, reason, effects);
        }
    }

    fn remove_named(&mut self, name: &str, effects: &mut ClusterEffects) {
        self.end_earlier_processes(name, None, effects, MemberEnd::Removed);
    }

    /// Ends a member's epoch and decides about its requests. Also called for a member that has
    /// already ended, to free its slots at once.
    pub(super) fn end_member(
        &mut self,
        number: MemberNumber,
        reason: MemberEnd,
        effects: &mut ClusterEffects,
    ) {
        let now = self.clock.now;
        let Some(member) = self.members.get_mut(number) else { return };
        if member.has_lease() {
            member.state = MemberState::Ended(now);
            effects.decided(ClusterDecision::MemberEnded { member: number, reason });
        }
        let flights = match reason {
            MemberEnd::Lapsed | MemberEnd::Left => {
                EndedFlights::KeepUntil(now.after(self.orphans_of_this_version()))
            }
            MemberEnd::Replaced | MemberEnd::Removed => EndedFlights::Free,
        };
        self.each_pool(effects, |pool, context| {
            pool.forget_opinions(number);
            pool.end_member(number, flights, context);
        });
        self.note_membership(effects);
    }

    fn orphans_of_this_version(&self) -> crate::units::ClusterMicros {
        #[cfg(test)]
        if self.is_mutated(crate::tests::simulation::Mutation::OrphansAreFreedAtOnce) {
            return crate::units::ClusterMicros(0);
        }
        self.config.config.timing.orphans
    }

    /// Makes a member live, and ends its requests that it has not named in this epoch.
    fn ready(&mut self, sender: LineSender, effects: &mut ClusterEffects) {
        let Some(member) = self.members.get_mut(sender.member) else { return };
        if member.state == MemberState::Joining(sender.epoch) {
            member.state = MemberState::Live(sender.epoch);
            self.each_pool(effects, |pool, context| pool.end_unnamed(sender, context));
        }
    }

    /// Updates the state that depends on the live members: workers, the configuration in force and
    /// the known versions.
    fn note_membership(&mut self, effects: &mut ClusterEffects) {
        let live = self.members.live_count();
        self.each_pool(effects, |pool, context| pool.update_workers(live, context));
        self.follow_common_config(effects);
        self.note_versions();
    }

    /// If all live members have the same configuration, puts it in force.
    fn follow_common_config(&mut self, effects: &mut ClusterEffects) {
        let members = &self.members;
        self.member_configs
            .retain(|digest, _| members.all().any(|it| it.has_lease() && it.digest == *digest));
        let live: BTreeSet<ShortHash> = self.members.live().map(|member| member.digest).collect();
        if let (Some(common), 1) = (live.first(), live.len()) {
            self.set_config(*common, effects);
        }
    }

    fn reload(
        &mut self,
        member: MemberNumber,
        config: &ClusterConfig,
        effects: &mut ClusterEffects,
    ) {
        let digest = config.digest();
        if let Some(member) = self.members.get_mut(member) {
            member.digest = digest;
        }
        self.config.note(digest);
        self.member_configs.insert(digest, Arc::new(config.clone()));
        self.set_config(digest, effects);
    }

    /// Puts a configuration in force that a live member has.
    fn set_config(&mut self, digest: ShortHash, effects: &mut ClusterEffects) {
        if self.config.digest == Some(digest) {
            return;
        }
        let Some(config) = self.member_configs.get(&digest).cloned() else { return };
        self.config.digest = Some(digest);
        self.config.config = config.clone();
        effects.decided(ClusterDecision::ConfigInForce { digest });
        let mut context = pool_context!(self, effects);
        for (name, pool) in &mut self.pools {
            match config.pools.get(name) {
                Some(stated) => {
                    if pool.set_config(stated, &mut context) {
                        let pool = name.clone();
                        context.effects.decided(ClusterDecision::PoolRestarted { pool });
                    }
                }
                None => pool.close(&mut context),
            }
        }
        for (name, stated) in &config.pools {
            if !self.pools.contains_key(name) {
                let pool = ReplicatedPool::new(name, stated, &mut context);
                self.pools.insert(name.clone(), pool);
            }
        }
    }

    fn mark(&mut self, effects: &mut ClusterEffects) {
        let live = self.members.live_count() as u64;
        let turn = self.marks.checked_rem(live).unwrap_or(0);
        self.marks += 1;
        let taker = (0u64..).zip(self.members.live()).find(|(rank, _)| *rank == turn);
        if let Some((_, taker)) = taker {
            effects.decided(ClusterDecision::SnapshotDue { taker: taker.number });
        }
    }

    fn note_snapshot(
        &mut self,
        position: LogPosition,
        hash: ShortHash,
        effects: &mut ClusterEffects,
    ) {
        if position > self.snapshot && position <= self.position {
            let prune_up_to = std::mem::replace(&mut self.snapshot, position);
            effects.decided(ClusterDecision::SnapshotStored { position, hash, prune_up_to });
        }
    }

    /// Updates the time since which all live members know the next version.
    fn note_versions(&mut self) {
        let next = self.version + 1;
        let mut live = self.members.live().peekable();
        let all_know = live.peek().is_some() && live.all(|member| member.knows_version(next));
        self.next_known_since = match all_know {
            true => self.next_known_since.or(Some(self.clock.now)),
            false => None,
        };
    }

    fn upgrade(&mut self, to: u32, effects: &mut ClusterEffects) -> Result<(), ApplyError> {
        if self.allowed_upgrade() != Some(to) {
            return Ok(());
        }
        if to > self.knows.1 {
            return Err(ApplyError::UnknownVersion { needed: to, knows: self.knows });
        }
        self.version = to;
        self.next_known_since = None;
        self.note_versions();
        effects.decided(ClusterDecision::Upgraded { to });
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn is_mutated(&self, mutation: crate::tests::simulation::Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}
