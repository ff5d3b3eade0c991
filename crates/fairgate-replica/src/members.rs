//! The members of the cluster: whether each is live, its epoch, and their order.
//!
//! A process keeps its number until the cluster forgets it, and has one epoch for each of its
//! joins. Lines count only in the current epoch. So a process whose epoch was ended without its
//! knowledge changes nothing. This is the fencing, so backends need not check a fencing token.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::line::JoinLine;
use crate::units::{ClusterMicros, MemberEpoch, MemberNumber, ShortHash};

/// Maximum number of processes that the cluster knows at once, live or ended recently. The design
/// is made for about ten.
pub(crate) const MEMBERS_MAX: usize = 128;

/// One process that is in the cluster or ended recently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMember {
    /// Number of the process.
    pub number: MemberNumber,
    /// Name of the member.
    pub name: Arc<str>,
    /// Id of the process.
    pub process: Arc<str>,
    /// Address at which other members reach the process.
    pub address: Arc<str>,
    /// The oldest and the newest version of the rules that the process knows.
    pub knows: (u32, u32),
    /// Number of the process's last join.
    pub attempt: u64,
    /// State of the process.
    pub state: MemberState,
    /// Number of the last record that was applied in the current epoch.
    pub last_batch: u64,
    /// Cluster time of the last `alive` that counted.
    pub last_alive: ClusterMicros,
    /// Cluster time up to which the process has applied the log, according to its last `alive`.
    pub applied_at: ClusterMicros,
    /// Version of the directory that the process has read.
    pub directory: u64,
    /// Digest of the configuration in the process's file.
    pub digest: ShortHash,
}

/// State of a process in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// The process is live in this epoch and has named all of its requests.
    Live(MemberEpoch),
    /// The process is live in this epoch and has not yet named all of its requests.
    Joining(MemberEpoch),
    /// A new generation has begun, and the process has not joined it yet.
    Expected,
    /// The process's epoch ended at this time.
    Ended(ClusterMicros),
}

impl ClusterMember {
    pub(crate) fn new(number: MemberNumber, join: &JoinLine) -> Self {
        Self {
            number,
            name: join.name.clone(),
            process: join.process.clone(),
            address: join.address.clone(),
            knows: join.knows,
            attempt: 0,
            state: MemberState::Expected,
            last_batch: 0,
            last_alive: ClusterMicros(0),
            applied_at: ClusterMicros(0),
            directory: 0,
            digest: ShortHash([0; 8]),
        }
    }

    /// Begins an epoch of the process.
    pub(crate) fn join(&mut self, join: &JoinLine, epoch: MemberEpoch, now: ClusterMicros) {
        self.address = join.address.clone();
        self.knows = join.knows;
        self.attempt = join.attempt;
        self.state = MemberState::Joining(epoch);
        self.last_batch = 0;
        self.last_alive = now;
        self.applied_at = now;
        self.directory = join.directory;
        self.digest = join.config.digest();
    }

    /// Returns the epoch in which the process's lines count; `None` if its lines do not count.
    pub fn epoch(&self) -> Option<MemberEpoch> {
        match self.state {
            MemberState::Live(epoch) | MemberState::Joining(epoch) => Some(epoch),
            MemberState::Expected | MemberState::Ended(_) => None,
        }
    }

    /// Returns true if the process's lines count.
    pub fn is_live(&self) -> bool {
        self.epoch().is_some()
    }

    /// Returns true if the process has not ended. It may not have joined the current generation
    /// yet.
    pub(crate) fn has_lease(&self) -> bool {
        !matches!(self.state, MemberState::Ended(_))
    }

    /// Returns true if the process knows this version of the rules.
    pub(crate) fn knows_version(&self, version: u32) -> bool {
        (self.knows.0..=self.knows.1).contains(&version)
    }
}

/// All processes that are in the cluster or ended recently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberTable {
    by_number: BTreeMap<MemberNumber, ClusterMember>,
    /// The last number that was given to a process.
    last_number: u64,
}

impl MemberTable {
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = &ClusterMember> {
        self.by_number.values()
    }

    /// Returns the live members by rank, which is the order of their numbers.
    pub(crate) fn live(&self) -> impl Iterator<Item = &ClusterMember> {
        self.all().filter(|member| member.is_live())
    }

    pub(crate) fn live_count(&self) -> usize {
        self.live().count()
    }

    pub(crate) fn get(&self, number: MemberNumber) -> Option<&ClusterMember> {
        self.by_number.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: MemberNumber) -> Option<&mut ClusterMember> {
        self.by_number.get_mut(&number)
    }

    pub(crate) fn find_process(&self, name: &str, process: &str) -> Option<&ClusterMember> {
        self.all().find(|member| *member.name == *name && *member.process == *process)
    }

    /// Returns the number of the process. It is a new number if the process was not known.
    pub(crate) fn number_for(&mut self, join: &JoinLine) -> MemberNumber {
        if let Some(known) = self.find_process(&join.name, &join.process) {
            return known.number;
        }
        self.last_number += 1;
        let number = MemberNumber(self.last_number);
        self.by_number.insert(number, ClusterMember::new(number, join));
        number
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_number.len() >= MEMBERS_MAX
    }

    /// Returns the number of the first member whose lease has run out; `None` if there is none.
    pub(crate) fn first_lapsed(
        &self,
        now: ClusterMicros,
        lease: ClusterMicros,
    ) -> Option<MemberNumber> {
        let is_over = |it: &&ClusterMember| it.has_lease() && now.since(it.last_alive) > lease;
        self.all().find(is_over).map(|member| member.number)
    }

    /// Returns the time at which the next lease runs out; `None` if there are no leases.
    pub(crate) fn next_lapse(&self, lease: ClusterMicros) -> Option<ClusterMicros> {
        let leases = self.all().filter(|member| member.has_lease());
        leases.map(|it| it.last_alive.after(lease).after(ClusterMicros(1))).min()
    }

    /// Forgets the members for which `keep` returns false.
    pub(crate) fn retain(&mut self, keep: impl Fn(&ClusterMember) -> bool) {
        self.by_number.retain(|_, member| keep(member));
    }

    /// Requires every member that has not ended to join again within one lease.
    pub(crate) fn expect_all(&mut self, now: ClusterMicros) {
        for member in self.by_number.values_mut() {
            if member.has_lease() {
                member.state = MemberState::Expected;
                member.last_alive = now;
            }
        }
    }
}
