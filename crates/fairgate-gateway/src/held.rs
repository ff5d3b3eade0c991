//! Request bodies in memory, all together: bounded, so that many large bodies cannot fill it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes of request bodies are held.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldBytes {
    held: Arc<AtomicU64>,
}

/// A part of what is held; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    all: HeldBytes,
    bytes: u64,
}

/// There is no room for that many bytes more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

impl HeldBytes {
    /// A part of nothing yet.
    pub(crate) fn part(&self) -> Held {
        Held { all: self.clone(), bytes: 0 }
    }

    /// How many bytes are held.
    #[cfg(test)]
    pub(crate) fn now(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }
}

impl Held {
    /// Takes room for so many bytes more, of at most `max` in all.
    pub(crate) fn grow(&mut self, bytes: u64, max: u64) -> Result<(), NoRoom> {
        let before = self.all.held.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > max {
            self.all.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(NoRoom);
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.all.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back() {
        let all = HeldBytes::default();
        let mut one = all.part();
        let mut two = all.part();
        assert_eq!(one.grow(60, 100), Ok(()));
        assert_eq!(two.grow(41, 100), Err(NoRoom));
        assert_eq!(two.grow(40, 100), Ok(()));
        assert_eq!(all.now(), 100);
        drop(one);
        assert_eq!(all.now(), 40);
        drop(two);
        assert_eq!(all.now(), 0);
    }
}
