//! Who holds slots and who waits for one: tasks and threads, to notice when nobody could ever give a slot back.
//!
//! A task or thread that waits cannot give back what it holds. `deadlock.rs` looks for circles of such waits, over all
//! schedulers of the process.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A task or thread, as a number that is its own while it waits or holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(pub(crate) u64);

/// The hash of an owner: its number, which is an address or a count, spread over all bits. Nobody from outside chooses it.
#[derive(Debug, Default)]
pub(crate) struct OwnerHasher(u64);

impl Hasher for OwnerHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // An odd constant with as many ones as zeros; tables use the upper bits and the lower ones.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Counts = HashMap<Owner, u64, BuildHasherDefault<OwnerHasher>>;

impl Owner {
    /// Nobody in particular: a callback outside of any task, or a slot that anybody may give back.
    pub(crate) const NOBODY: Self = Self(0);
}

/// All owners that hold slots of one scheduler or wait for one.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    held: Counts,
    /// Waits that only a grant can end. One with a timeout is not among them.
    waits: Counts,
}

impl Owners {
    /// How many slots this owner holds.
    pub(crate) fn held(&self, owner: Owner) -> u64 {
        self.held.get(&owner).copied().unwrap_or(0)
    }

    /// Whether this owner waits, and only a grant can end that.
    pub(crate) fn waits(&self, owner: Owner) -> bool {
        self.waits.contains_key(&owner)
    }

    /// How many slots are held by somebody in particular.
    pub(crate) fn owned(&self) -> u64 {
        self.held.values().sum()
    }

    /// Everybody who holds a slot.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Owner> {
        self.held.keys().copied()
    }

    pub(crate) fn starts_to_wait(&mut self, owner: Owner) {
        add(&mut self.waits, owner);
    }

    pub(crate) fn stops_waiting(&mut self, owner: Owner) {
        take(&mut self.waits, owner);
    }

    pub(crate) fn takes(&mut self, owner: Owner) {
        add(&mut self.held, owner);
    }

    pub(crate) fn gives_back(&mut self, owner: Owner) {
        take(&mut self.held, owner);
    }
}

fn add(counts: &mut Counts, owner: Owner) {
    if owner != Owner::NOBODY {
        *counts.entry(owner).or_default() += 1;
    }
}

fn take(counts: &mut Counts, owner: Owner) {
    if let Some(count) = counts.get_mut(&owner) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&owner);
        }
    }
}
