//! Label values for names. Each name is allocated once, and the number of names is bounded.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

/// Maximum number of different names; all further names share the label value `other`. A configuration has fewer pools
/// and workers; the bound protects against names from another source.
const MOST_NAMES: usize = 1024;

/// Label value of all names beyond the maximum.
const OTHER: &str = "other";

/// The names that have a label value so far.
#[derive(Debug, Default)]
pub(super) struct LabelNames(RwLock<HashSet<Arc<str>>>);

impl LabelNames {
    /// Returns the label value of a name: the name itself, or `other` beyond the maximum.
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
