//! Who holds slots: tasks and threads, to notice when all slots are held by those who wait for one.
//!
//! A task or thread that waits cannot give back what it holds. Where every slot that is out belongs to somebody
//! who waits for another, nobody will ever give one back. That state can only be entered by an owner of a slot that
//! starts to wait, so that is when it is looked for.

use std::collections::HashMap;

/// A task or thread, as a number that is its own while it waits or holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(pub(crate) u64);

impl Owner {
    /// Nobody in particular, such as a callback outside of any task.
    pub(crate) const NOBODY: Self = Self(0);
}

#[derive(Clone, Copy, Debug, Default)]
struct Belongings {
    held: u64,
    waits: u64,
}

/// All owners that hold or wait.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    belongings: HashMap<Owner, Belongings>,
    stuck: u64,
}

impl Owners {
    /// How many slots this owner holds.
    pub(crate) fn held(&self, owner: Owner) -> u64 {
        self.belongings.get(&owner).map_or(0, |its| its.held)
    }

    /// How many slots are held by owners who wait for another.
    pub(crate) fn stuck(&self) -> u64 {
        self.stuck
    }

    pub(crate) fn starts_to_wait(&mut self, owner: Owner) {
        self.change(owner, |its| its.waits += 1);
    }

    pub(crate) fn stops_waiting(&mut self, owner: Owner) {
        self.change(owner, |its| its.waits = its.waits.saturating_sub(1));
    }

    pub(crate) fn takes(&mut self, owner: Owner) {
        self.change(owner, |its| its.held += 1);
    }

    pub(crate) fn gives_back(&mut self, owner: Owner) {
        self.change(owner, |its| its.held = its.held.saturating_sub(1));
    }

    fn change(&mut self, owner: Owner, change: impl FnOnce(&mut Belongings)) {
        if owner == Owner::NOBODY {
            return;
        }
        let its = self.belongings.entry(owner).or_default();
        self.stuck -= its.stuck();
        change(its);
        self.stuck += its.stuck();
        if its.held == 0 && its.waits == 0 {
            self.belongings.remove(&owner);
        }
    }
}

impl Belongings {
    fn stuck(self) -> u64 {
        if self.waits > 0 { self.held } else { 0 }
    }
}
