//! Names that clients give themselves. How many flows of its own a key may have is bounded.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use fairgate_core::attribute::Attribute;

/// The flow of all names that came too late.
const OTHER: &str = "other";

/// The names seen in a pool, by key and attribute. Keys come from the directory, so there are not many.
#[derive(Default)]
pub(crate) struct Names {
    seen: Mutex<HashMap<Of, HashSet<Box<str>>>>,
}

/// A key, and what it names.
type Of = (Arc<str>, Attribute);

impl Names {
    /// The flow that a name has: its own, or the shared one where its key has used as many as it may.
    pub(crate) fn flow<'a>(
        &self,
        key: &Arc<str>,
        by: Attribute,
        name: &'a str,
        max: usize,
    ) -> &'a str {
        // A set is whole after every step.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let names = seen.entry((key.clone(), by)).or_default();
        if names.contains(name) {
            return name;
        }
        if names.len() >= max {
            return OTHER;
        }
        names.insert(name.into());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_names_have_flows_and_the_rest_share_one() {
        let names = Names::default();
        let (key, another): (Arc<str>, Arc<str>) = ("k1".into(), "k2".into());
        assert_eq!(names.flow(&key, Attribute::Agent, "a", 2), "a");
        assert_eq!(names.flow(&key, Attribute::Agent, "b", 2), "b");
        assert_eq!(names.flow(&key, Attribute::Agent, "c", 2), "other");
        assert_eq!(names.flow(&key, Attribute::Agent, "a", 2), "a");
        assert_eq!(names.flow(&key, Attribute::Session, "c", 2), "c");
        assert_eq!(names.flow(&another, Attribute::Agent, "c", 2), "c");
    }
}
