//! Counts the slots that each task or thread holds and its waits for slots, so that waits that can never end are
//! detected.
//!
//! A task or thread that waits cannot give back the slots that it holds. `deadlock.rs` searches for cycles of such
//! waits over all schedulers of the process.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A task or thread, as a number that is unique while it waits or holds a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SlotOwner(pub(crate) u64);

/// A hasher that spreads an owner's number over all bits. A simple hash is safe, because the number is an address or a
/// counter, which no attacker can choose.
#[derive(Debug, Default)]
pub(crate) struct SlotOwnerHasher(u64);

impl Hasher for SlotOwnerHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The constant is odd and has about as many ones as zeros, because hash tables use both the upper and the lower
        // bits.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type OwnerCounts = HashMap<SlotOwner, u64, BuildHasherDefault<SlotOwnerHasher>>;

impl SlotOwner {
    /// The number 0, which stands for no particular owner. It is used for a callback outside of any task, and for a
    /// slot that anyone may give back.
    pub(crate) const NOBODY: Self = Self(0);
}

/// All tasks and threads that hold a slot of one scheduler or wait for one.
#[derive(Debug, Default)]
pub(crate) struct SlotOwners {
    held: OwnerCounts,
    /// Number of waits of each owner that only a grant can end. Waits with a timeout are left out.
    waits: OwnerCounts,
}

impl SlotOwners {
    /// Returns the number of slots that this owner holds.
    pub(crate) fn held(&self, owner: SlotOwner) -> u64 {
        self.held.get(&owner).copied().unwrap_or(0)
    }

    /// Returns true if this owner waits and only a grant can end the wait.
    pub(crate) fn is_waiting(&self, owner: SlotOwner) -> bool {
        self.waits.contains_key(&owner)
    }

    /// Returns the number of slots that have a known owner.
    pub(crate) fn owned(&self) -> u64 {
        self.held.values().sum()
    }

    /// Iterates over all owners that hold a slot.
    pub(crate) fn holders(&self) -> impl Iterator<Item = SlotOwner> {
        self.held.keys().copied()
    }

    pub(crate) fn add_wait(&mut self, owner: SlotOwner) {
        add(&mut self.waits, owner);
    }

    pub(crate) fn remove_wait(&mut self, owner: SlotOwner) {
        take(&mut self.waits, owner);
    }

    pub(crate) fn add_held(&mut self, owner: SlotOwner) {
        add(&mut self.held, owner);
    }

    pub(crate) fn remove_held(&mut self, owner: SlotOwner) {
        take(&mut self.held, owner);
    }
}

fn add(counts: &mut OwnerCounts, owner: SlotOwner) {
    if owner != SlotOwner::NOBODY {
        *counts.entry(owner).or_default() += 1;
    }
}

fn take(counts: &mut OwnerCounts, owner: SlotOwner) {
    if let Some(count) = counts.get_mut(&owner) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&owner);
        }
    }
}
