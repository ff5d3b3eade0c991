//! Limits the memory that request bodies may use: all bodies together, and the bodies of each
//! tenant.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fast_map::FastMap;

/// Counts the bytes of request bodies in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct BodyMemory {
    held: Arc<Mutex<BodyMemorySums>>,
}

#[derive(Debug, Default)]
struct BodyMemorySums {
    all: u64,
    /// Bytes by tenant; holds only tenants with at least one byte in memory.
    by_tenant: FastMap<Arc<str>, u64>,
}

/// The counted bytes of one body. Dropping the guard takes them off the count.
#[derive(Debug)]
pub(crate) struct BodyMemoryGuard {
    all: BodyMemory,
    tenant: Arc<str>,
    bytes: u64,
}

/// Error for bytes of a body that do not fit into the memory limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BodyMemoryFullError;

impl BodyMemory {
    /// Returns a guard that counts the bytes of one new body of `tenant`, starting at 0.
    pub(crate) fn start_body(&self, tenant: &Arc<str>) -> BodyMemoryGuard {
        BodyMemoryGuard { all: self.clone(), tenant: tenant.clone(), bytes: 0 }
    }

    /// Returns the bytes in memory.
    #[cfg(test)]
    pub(crate) fn now(&self) -> u64 {
        self.sums().all
    }

    fn sums(&self) -> MutexGuard<'_, BodyMemorySums> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyMemoryGuard {
    /// Adds `bytes` to this body's count. Fails if all bodies together would exceed `max`, or if the bodies of this
    /// tenant would exceed half of `max`. The second limit does not apply to a tenant's only body.
    pub(crate) fn grow(&mut self, bytes: u64, max: u64) -> Result<(), BodyMemoryFullError> {
        let mut sums = self.all.sums();
        let all = sums.all.saturating_add(bytes);
        let before = sums.by_tenant.get(&self.tenant).copied().unwrap_or(0);
        let own = before.saturating_add(bytes);
        if all > max || (own > max / 2 && before > self.bytes) {
            return Err(BodyMemoryFullError);
        }
        sums.all = all;
        sums.by_tenant.insert(self.tenant.clone(), own);
        drop(sums);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for BodyMemoryGuard {
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
        let all = BodyMemory::default();
        let mut one = all.start_body(&"one".into());
        let mut two = all.start_body(&"two".into());
        assert_eq!(one.grow(51, 100), Ok(()), "the only one");
        assert_eq!(
            all.start_body(&"one".into()).grow(1, 100),
            Err(BodyMemoryFullError),
            "half is for others"
        );
        assert_eq!(two.grow(40, 100), Ok(()));
        let mut three = all.start_body(&"three".into());
        assert_eq!(three.grow(10, 100), Err(BodyMemoryFullError));
        assert_eq!(three.grow(9, 100), Ok(()));
        assert_eq!(all.now(), 100);
        drop(one);
        assert_eq!(all.now(), 49);
        drop((two, three));
        assert_eq!(all.now(), 0);
        assert!(all.sums().by_tenant.is_empty());
    }
}
