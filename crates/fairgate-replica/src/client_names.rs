//! Names of agents and sessions that clients choose, and the bound on how many flows a key can make of them.
//!
//! The bound is decided where the submit is applied. Decided at each member, one name could be a flow of its own at one
//! member and part of `other` at another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use serde::{Deserialize, Serialize};

/// Name of the flow that all names beyond the bound share.
const OTHER: &str = "other";

/// Greatest number of names that a pool remembers, over all keys. Keys come from the directory, so this is far away.
const NAMES_PER_POOL_MAX: usize = 65_536;

/// The attributes whose values clients choose.
const CHOSEN: [Attribute; 2] = [Attribute::Agent, Attribute::Session];

/// Names that were seen in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoundedClientNames {
    /// Number of names over all keys.
    count: usize,
    keys: BTreeMap<Arc<str>, [BTreeSet<Box<str>>; CHOSEN.len()]>,
}

impl BoundedClientNames {
    /// Returns the attributes with each name that the client chose, or `other` in its place if the key already has
    /// `max` other names, or the pool too many.
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
