//! A map of bounded size that keeps the recently used entries.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table whose keys are hashes under a secret key already, and are not hashed again.
type NameTable<T> = HashMap<u64, T, BuildHasherDefault<NameHash>>;

/// The hash of a key that is a hash.
#[derive(Default)]
struct NameHash(u64);

impl Hasher for NameHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// A map with a young and an old generation. An entry that is used moves to the young generation. When the young
/// generation is full, the old one is dropped and the young one becomes the old one. An entry that was among the last
/// `names_max` ÷ 2 names used is therefore still in the map, and each access costs no more than that of a hash table.
pub(super) struct RecentMap<T> {
    young: NameTable<T>,
    old: NameTable<T>,
    generation_max: usize,
}

impl<T: Copy> RecentMap<T> {
    /// Creates a map of at most `names_max` entries, and never fewer than two.
    pub(super) fn new(names_max: usize) -> Self {
        let generation_max = (names_max / 2).max(1);
        Self { young: NameTable::default(), old: NameTable::default(), generation_max }
    }

    pub(super) fn get(&mut self, name: u64) -> Option<T> {
        if let Some(&value) = self.young.get(&name) {
            return Some(value);
        }
        let value = *self.old.get(&name)?;
        Some(*self.entry(name, || value))
    }

    /// Returns the entry under this name, to be changed. Inserts the default if there is no entry.
    pub(super) fn entry(&mut self, name: u64, default: impl FnOnce() -> T) -> &mut T {
        let grown = self.old.remove(&name);
        if self.young.len() >= self.generation_max && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(name).or_insert_with(|| grown.unwrap_or_else(default))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_what_is_used_and_stays_within_its_bound() {
        let mut recent = RecentMap::new(10);
        *recent.entry(0, || 0) = 7;
        for name in 1..1000 {
            recent.entry(name, || 1);
            assert_eq!(recent.get(0), Some(7), "after {name}");
            assert!(recent.len() <= 10, "{} names", recent.len());
        }
        assert_eq!(recent.get(1), None);
        assert_eq!(recent.get(998), Some(1));
    }
}
