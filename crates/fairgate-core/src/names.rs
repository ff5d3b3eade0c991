//! Flow names: what operators said of them, where flows of that name are, and how many of their requests are in flight.
//!
//! A name is known for as long as a flow has it or something was said of it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::attribute::Attribute;
use crate::meter::CapMeter;
use crate::units::Weight;

/// The names of flows, by the attribute that names them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    table: HashTable<u32>,
    pub(crate) list: Vec<Name>,
    free: Vec<u32>,
}

/// One name.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) by: Attribute,
    pub(crate) text: Arc<str>,
    /// The flows of this name.
    pub(crate) flows: Vec<u32>,
    /// In how many of them something waits.
    pub(crate) backlogged: u32,
    /// How many requests are in flight in flows of this name, each counted once; only where an event has set a cap.
    pub(crate) in_flight: u64,
    pub(crate) said: Directive,
    /// How its cap is used, where an event set one.
    pub(crate) cap_meter: CapMeter,
}

/// What operators said of the flows of a name, whether there are any or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Directive {
    pub(crate) held: bool,
    pub(crate) weight: Option<Weight>,
    /// `Some(None)` takes away the cap that the policy gives.
    pub(crate) cap: Option<Option<u64>>,
}

impl Name {
    /// Whether as many requests are in flight as an event's cap allows, or `None` where no event said anything.
    pub(crate) fn at_cap(&self) -> Option<bool> {
        let cap = self.said.cap?;
        Some(cap.is_some_and(|cap| self.in_flight >= cap))
    }
}

impl Names {
    /// The number of a name, which is made where it is not known.
    pub(crate) fn intern(&mut self, by: Attribute, text: &str) -> u32 {
        if let Some(number) = self.find(by, text) {
            return number;
        }
        let name = Name {
            by,
            text: text.into(),
            flows: Vec::new(),
            backlogged: 0,
            in_flight: 0,
            said: Directive::default(),
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

    /// The number of a name that is known.
    pub(crate) fn find(&self, by: Attribute, text: &str) -> Option<u32> {
        let is_it = |n: &u32| {
            let name = &self.list[*n as usize];
            name.by == by && *name.text == *text
        };
        self.table.find(hash_of(by, text), is_it).copied()
    }

    /// Forgets a name that no flow has and of which nothing was said.
    pub(crate) fn tidy(&mut self, number: u32) {
        let name = &self.list[number as usize];
        if !name.flows.is_empty() || name.said != Directive::default() {
            return;
        }
        if let Ok(entry) = self.table.find_entry(hash_name(name), |n| *n == number) {
            entry.remove();
            self.free.push(number);
        }
    }

    /// The names of which something was said, by attribute and text.
    pub(crate) fn said(&self) -> BTreeMap<(Attribute, Arc<str>), &Name> {
        // Nothing was said of names that are free.
        let said = self.list.iter().filter(|name| name.said != Directive::default());
        said.map(|name| ((name.by, name.text.clone()), name)).collect()
    }
}

fn hash_name(name: &Name) -> u64 {
    hash_of(name.by, &name.text)
}

fn hash_of(by: Attribute, text: &str) -> u64 {
    hash_text(by as u64, text)
}

/// The hash of a text within a realm. Tables are only ever asked by key, so their order can decide nothing.
pub(crate) fn hash_text(realm: u64, text: &str) -> u64 {
    let mut hasher = FixedState::with_seed(0x6661_6972_6761_7465).build_hasher();
    hasher.write_u64(realm);
    hasher.write(text.as_bytes());
    hasher.finish()
}
