//! Request bodies in memory, all together: bounded, so that many large bodies cannot fill it, and one tenant's cannot keep
//! the others' out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many bytes of request bodies are held.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes {
    held: Arc<Mutex<Sums>>,
}

#[derive(Debug, Default)]
struct Sums {
    all: u64,
    /// Only of those that hold some.
    by_tenant: HashMap<Arc<str>, u64>,
}

/// A part of what is held; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    all: HeldBytes,
    tenant: Arc<str>,
    bytes: u64,
}

/// There is no room for that many bytes more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl HeldBytes {
    /// A tenant's part, of nothing yet.
    pub(crate) fn part(&self, tenant: &Arc<str>) -> Held {
        Held { all: self.clone(), tenant: tenant.clone(), bytes: 0 }
    }

    /// How many bytes are held.
    #[cfg(test)]
    pub(crate) fn now(&self) -> u64 {
        self.sums().all
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Takes room for so many bytes more, of at most `max` in all and half of that for its tenant, unless it is the only one
    /// of its tenant.
    pub(crate) fn grow(&mut self, bytes: u64, max: u64) -> Result<(), NoRoom> {
        let mut sums = self.all.sums();
        let all = sums.all.saturating_add(bytes);
        let before = sums.by_tenant.get(&self.tenant).copied().unwrap_or(0);
        let own = before.saturating_add(bytes);
        if all > max || (own > max / 2 && before > self.bytes) {
            return Err(NoRoom);
        }
        sums.all = all;
        sums.by_tenant.insert(self.tenant.clone(), own);
        drop(sums);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut sums = self.all.sums();
        sums.all = sums.all.saturating_sub(self.bytes);
        if let Some(own) = sums.by_tenant.get_mut(&self.tenant) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                sums.by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let all = HeldBytes::default();
        let mut one = all.part(&"one".into());
        let mut two = all.part(&"two".into());
        assert_eq!(one.grow(51, 100), Ok(()), "the only one");
        assert_eq!(all.part(&"one".into()).grow(1, 100), Err(NoRoom), "half is for others");
        assert_eq!(two.grow(40, 100), Ok(()));
        let mut three = all.part(&"three".into());
        assert_eq!(three.grow(10, 100), Err(NoRoom));
        assert_eq!(three.grow(9, 100), Ok(()));
        assert_eq!(all.now(), 100);
        drop(one);
        assert_eq!(all.now(), 49);
        drop((two, three));
        assert_eq!(all.now(), 0);
        assert!(all.sums().by_tenant.is_empty());
    }
}
