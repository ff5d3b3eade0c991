//! Flow names. Each has the settings that events gave to the name, the flows that have the name, and the number of
//! requests in flight in these flows.
//!
//! A name is known while a flow has it or a setting exists for it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::attribute::Attribute;
use crate::meter::CapMeter;
use crate::units::Weight;

/// All known names of flows. A name belongs to one attribute, so equal texts of two attributes are two names.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowNames {
    table: HashTable<u32>,
    pub(crate) list: Vec<FlowName>,
    free: Vec<u32>,
}

/// One flow name, with the flows that have the name and the settings for the name.
#[derive(Clone, Debug)]
pub(crate) struct FlowName {
    pub(crate) by: Attribute,
    pub(crate) text: Arc<str>,
    /// The flows that have this name, in all nodes of the tree.
    pub(crate) flows: Vec<u32>,
    /// Number of flows with this name in which a request waits.
    pub(crate) backlogged: u32,
    /// Number of requests in flight in flows with this name, each request counted once. Only kept if an event has set
    /// the cap of the name.
    pub(crate) in_flight: u64,
    pub(crate) directive: FlowDirective,
    /// Use of the cap that an event has set. Counts nothing if no event has set a cap.
    pub(crate) cap_meter: CapMeter,
}

/// The settings that events gave to a flow name; they exist even if no flow has the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowDirective {
    pub(crate) held: bool,
    pub(crate) weight: Option<Weight>,
    /// The cap that an event has set. `None` leaves the policy's cap, and `Some(None)` removes it.
    pub(crate) cap: Option<Option<u64>>,
}

impl FlowName {
    /// Returns true if the requests in flight have reached the cap that an event has set; `None` if no event has set
    /// the cap.
    pub(crate) fn at_cap(&self) -> Option<bool> {
        let cap = self.directive.cap?;
        Some(cap.is_some_and(|cap| self.in_flight >= cap))
    }
}

impl FlowNames {
    /// Returns the number of a name. A name that is not known yet gets a new number.
    pub(crate) fn intern(&mut self, by: Attribute, text: &str) -> u32 {
        if let Some(number) = self.find(by, text) {
            return number;
        }
        let name = FlowName {
            by,
            text: text.into(),
            flows: Vec::new(),
            backlogged: 0,
            in_flight: 0,
            directive: FlowDirective::default(),
            cap_meter: CapMeter::default(),
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.list[number as usize] = name;
                number
            }
            None => {
                self.list.push(name);
                u32::try_from(self.list.len() - 1).expect("fewer than 2^32 names")
            }
        };
        let list = &self.list;
        self.table.insert_unique(hash_of(by, text), number, |n| hash_name(&list[*n as usize]));
        number
    }

    /// Returns the number of a name; `None` if the name is not known.
    pub(crate) fn find(&self, by: Attribute, text: &str) -> Option<u32> {
        let is_it = |n: &u32| {
            let name = &self.list[*n as usize];
            name.by == by && *name.text == *text
        };
        self.table.find(hash_of(by, text), is_it).copied()
    }

    /// Forgets a name that no flow has and for which no setting exists.
    pub(crate) fn forget_if_unused(&mut self, number: u32) {
        let name = &self.list[number as usize];
        if !name.flows.is_empty() || name.directive != FlowDirective::default() {
            return;
        }
        if let Ok(entry) = self.table.find_entry(hash_name(name), |n| *n == number) {
            entry.remove();
            self.free.push(number);
        }
    }

    /// Returns the names that have settings, sorted by attribute and text.
    pub(crate) fn with_directives(&self) -> BTreeMap<(Attribute, Arc<str>), &FlowName> {
        // Freed names have no settings.
        let with_settings =
            self.list.iter().filter(|name| name.directive != FlowDirective::default());
        with_settings.map(|name| ((name.by, name.text.clone()), name)).collect()
    }
}

fn hash_name(name: &FlowName) -> u64 {
    hash_of(name.by, &name.text)
}

fn hash_of(by: Attribute, text: &str) -> u64 {
    hash_text(by as u64, text)
}

/// Returns the hash of a text within a `realm`, such as an attribute, so that equal texts of two realms hash
/// differently. Hash tables are only read by key, so their order cannot affect a decision.
pub(crate) fn hash_text(realm: u64, text: &str) -> u64 {
    let mut hasher = FixedState::with_seed(0x6661_6972_6761_7465).build_hasher();
    hasher.write_u64(realm);
    hasher.write(text.as_bytes());
    hasher.finish()
}
