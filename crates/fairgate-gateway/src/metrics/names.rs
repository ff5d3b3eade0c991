//! Names as label values: each is allocated once, and there cannot be more than a bounded number of them.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

/// More pools and workers, or more projects, than this share one label value. A configuration has fewer; this is what holds if a name
/// should ever come from elsewhere.
const MOST_NAMES: usize = 1024;

/// The label value of all further names.
const OTHER: &str = "other";

/// The names of pools and workers that were seen.
#[derive(Debug, Default)]
pub(super) struct Names(RwLock<HashSet<Arc<str>>>);

impl Names {
    /// The label value for a name.
    pub(super) fn label(&self, name: &str) -> Arc<str> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        known.unwrap_or_else(|| self.add(name))
    }

    fn add(&self, name: &str) -> Arc<str> {
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let name = if names.len() < MOST_NAMES { name } else { OTHER };
        if let Some(known) = names.get(name) {
            return known.clone();
        }
        let label: Arc<str> = name.into();
        names.insert(label.clone());
        label
    }
}
