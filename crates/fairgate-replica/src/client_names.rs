//! Limits the number of flows that a key can make of the agent and session names that clients
//! choose.
//!
//! The machine applies the limit when it applies the submit. If each member applied it separately,
//! a name could be its own flow at one member and part of `other` at another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use serde::{Deserialize, Serialize};

/// Name of the flow that all names beyond the bound share.
const OTHER: &str = "other";

/// Maximum number of names that a pool remembers, over all keys. The directory limits the number of
/// keys, so this maximum is rarely reached.
const NAMES_PER_POOL_MAX: usize = 65_536;

/// The attributes whose values clients choose.
const CHOSEN: [Attribute; 2] = [Attribute::Agent, Attribute::Session];

/// Names that a pool has seen. They are never forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoundedClientNames {
    /// Number of names over all keys.
    count: usize,
    keys: BTreeMap<Arc<str>, [BTreeSet<Box<str>>; CHOSEN.len()]>,
}

impl BoundedClientNames {
    /// Returns the attributes with limited names. A name that the client chose becomes `other` if
    /// it is new and the request's key already has `max` names of that kind, or the pool has
    /// [`NAMES_PER_POOL_MAX`]. A request without a key keeps its names.
    pub(crate) fn bound(&mut self, attributes: Attributes, max: u64) -> Attributes {
        let Some(key) = attributes.get(Attribute::Key) else { return attributes };
        let key: Arc<str> = key.into();
        let mut bounded = attributes;
        for (index, by) in CHOSEN.into_iter().enumerate() {
            let Some(name) = bounded.get(by) else { continue };
            if !self.is_flow(&key, index, name, max) {
                bounded.set(by, OTHER);
            }
        }
        bounded
    }

    fn is_flow(&mut self, key: &Arc<str>, index: usize, name: &str, max: u64) -> bool {
        if self.keys.get(key).is_some_and(|names| names[index].contains(name)) {
            return true;
        }
        let names = &mut self.keys.entry(key.clone()).or_default()[index];
        let has_room = u64::try_from(names.len()).is_ok_and(|len| len < max);
        if !has_room || self.count >= NAMES_PER_POOL_MAX {
            return false;
        }
        names.insert(name.into());
        self.count += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: &str, agent: &str) -> Attributes {
        Attributes::none().with(Attribute::Key, key).with(Attribute::Agent, agent)
    }

    #[test]
    fn the_first_names_have_flows_and_the_rest_share_one() {
        let mut names = BoundedClientNames::default();
        let mut agent = |key: &str, agent: &str| {
            let bounded = names.bound(request(key, agent), 2);
            bounded.get(Attribute::Agent).unwrap().to_owned()
        };
        assert_eq!(agent("k1", "a"), "a");
        assert_eq!(agent("k1", "b"), "b");
        assert_eq!(agent("k1", "c"), "other");
        assert_eq!(agent("k1", "a"), "a");
        assert_eq!(agent("k2", "c"), "c");
        let session = request("k1", "c").with(Attribute::Session, "c");
        let bounded = names.bound(session, 2);
        assert_eq!(bounded.get(Attribute::Session), Some("c"), "agents and sessions are apart");
        assert_eq!(bounded.get(Attribute::Agent), Some("other"));
    }

    #[test]
    fn a_request_without_a_key_keeps_its_names() {
        let anonymous = Attributes::none().with(Attribute::Agent, "a");
        assert_eq!(BoundedClientNames::default().bound(anonymous.clone(), 0), anonymous);
    }
}
