//! A memory of bounded size that keeps what was used lately.

use std::collections::HashMap;

/// Two generations: what is used moves to the young one; when that is full, the old one is forgotten and the young one
/// becomes old. So what was among the last half of the names stays, at the cost of a hash table.
pub(super) struct Recent<T> {
    young: HashMap<u64, T>,
    old: HashMap<u64, T>,
    generation_max: usize,
}

impl<T: Copy> Recent<T> {
    /// Keeps at most `names_max`, and never fewer than two.
    pub(super) fn new(names_max: usize) -> Self {
        let generation_max = (names_max / 2).max(1);
        Self { young: HashMap::new(), old: HashMap::new(), generation_max }
    }

    pub(super) fn get(&mut self, name: u64) -> Option<T> {
        if let Some(&value) = self.young.get(&name) {
            return Some(value);
        }
        let value = *self.old.get(&name)?;
        Some(*self.entry(name, || value))
    }

    /// What is known under this name, or else the default, to be changed.
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
        let mut recent = Recent::new(10);
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
