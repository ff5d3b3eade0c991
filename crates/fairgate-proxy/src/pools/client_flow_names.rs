//! Limits the number of flows that one key can create by naming agents and sessions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use fairgate_core::attribute::Attribute;

/// Name of the flow that all names beyond the limit share.
const OTHER: &str = "other";

/// Names seen in a pool, by key and attribute. Keys come from the directory, so their number is bounded.
#[derive(Default)]
pub(crate) struct ClientFlowNames {
    seen: Mutex<HashMap<KeyAttribute, HashSet<Box<str>>>>,
}

/// Id of a key, and the attribute (agent or session) that the key's clients name.
type KeyAttribute = (Arc<str>, Attribute);

impl ClientFlowNames {
    /// Returns the name of the flow for `name`. This is `name` itself, or `other` if the key already has `max` other
    /// names.
    pub(crate) fn flow<'a>(
        &self,
        key: &Arc<str>,
        by: Attribute,
        name: &'a str,
        max: usize,
    ) -> &'a str {
        // A set is consistent after every step, so poison is harmless.
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
        let names = ClientFlowNames::default();
        let (key, another): (Arc<str>, Arc<str>) = ("k1".into(), "k2".into());
        assert_eq!(names.flow(&key, Attribute::Agent, "a", 2), "a");
        assert_eq!(names.flow(&key, Attribute::Agent, "b", 2), "b");
        assert_eq!(names.flow(&key, Attribute::Agent, "c", 2), "other");
        assert_eq!(names.flow(&key, Attribute::Agent, "a", 2), "a");
        assert_eq!(names.flow(&key, Attribute::Session, "c", 2), "c");
        assert_eq!(names.flow(&another, Attribute::Agent, "c", 2), "c");
    }
}
