//! Who holds slots and who waits for one: tasks and threads, to notice when nobody could ever give a slot back.
//!
//! A task or thread that waits cannot give back what it holds. `deadlock.rs` looks for circles of such waits, over all
//! schedulers of the process.

use std::collections::HashMap;

/// A task or thread, as a number that is its own while it waits or holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(pub(crate) u64);

impl Owner {
    /// Nobody in particular: a callback outside of any task, or a slot that anybody may give back.
    pub(crate) const NOBODY: Self = Self(0);
}

/// All owners that hold slots of one scheduler or wait for one.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    held: HashMap<Owner, u64>,
    /// Waits that only a grant can end. One with a timeout is not among them.
    waits: HashMap<Owner, u64>,
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

fn add(counts: &mut HashMap<Owner, u64>, owner: Owner) {
    if owner != Owner::NOBODY {
        *counts.entry(owner).or_default() += 1;
    }
}

fn take(counts: &mut HashMap<Owner, u64>, owner: Owner) {
    if let Some(count) = counts.get_mut(&owner) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&owner);
        }
    }
}
