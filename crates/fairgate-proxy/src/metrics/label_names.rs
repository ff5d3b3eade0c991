//! Label values for names. Each name is allocated once, and the number of names is bounded.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum number of different names; all further names share the label value `other`. A configuration has fewer pools
/// and workers; the bound protects against names from another source.
pub(super) const MOST_NAMES: usize = 1024;

/// Label value of all names beyond the maximum.
pub(super) const OTHER: &str = "other";

/// The names that have a label value so far.
#[derive(Debug)]
pub(super) struct LabelNames {
    names: RwLock<HashSet<Arc<str>>>,
    names_max: usize,
}

impl Default for LabelNames {
    fn default() -> Self {
        Self::of_at_most(MOST_NAMES)
    }
}

impl LabelNames {
    /// Creates an empty set of at most `names_max` names. All further names share the label value
    /// `other`.
    pub(super) fn of_at_most(names_max: usize) -> Self {
        Self { names: RwLock::default(), names_max }
    }

    /// Returns the label value of a name: the name itself, or `other` beyond the maximum.
    pub(super) fn label(&self, name: &str) -> Arc<str> {
        let known = self.names.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        known.unwrap_or_else(|| self.add(name))
    }

    fn add(&self, name: &str) -> Arc<str> {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let name = if names.len() < self.names_max { name } else { OTHER };
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let label: Arc<str> = name.into();
        names.insert(label.clone());
        label
    }
}
