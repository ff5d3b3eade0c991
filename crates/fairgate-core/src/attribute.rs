//! Who a request belongs to: the seven attributes by which a node of the policy tree may share.

use alloc::string::String;
use alloc::sync::Arc;

/// An attribute of a request that a policy node can share by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Attribute {
    /// The policy class.
    Class,
    /// The tenant.
    Tenant,
    /// The tenant's group.
    Group,
    /// The API key.
    Key,
    /// The agent inside a program.
    Agent,
    /// The project.
    Project,
    /// The session or conversation.
    Session,
}

impl Attribute {
    /// All attributes, in the order in which they are numbered.
    pub const ALL: [Self; 7] = [
        Self::Class,
        Self::Tenant,
        Self::Group,
        Self::Key,
        Self::Agent,
        Self::Project,
        Self::Session,
    ];

    /// The name by which journals and policies call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Tenant => "tenant",
            Self::Group => "group",
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Project => "project",
            Self::Session => "session",
        }
    }

    /// The attribute of that name, or `None` where no attribute is called so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// The attributes of one request. What is absent falls into the flow named [`DEFAULT_FLOW`].
///
/// All texts lie in one shared allocation: a clone costs a reference count, so whoever submits many requests of one
/// origin makes this once and clones it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(Option<Arc<str>>);

/// The flow of requests that lack the attribute a node shares by.
pub const DEFAULT_FLOW: &str = "default";

impl Attributes {
    /// No attributes at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// The attributes that are given, by their numbers.
    pub fn of(texts: [Option<&str>; 7]) -> Self {
        if texts.iter().all(Option::is_none) {
            return Self(None);
        }
        let packed = |text: &str| text.len() + length_bytes(text.len());
        let length = 1 + texts.iter().flatten().map(|text| packed(text)).sum::<usize>();
        let mut all = String::with_capacity(length);
        let present = (0..7).filter(|i| texts[*i].is_some()).fold(0u8, |mask, i| mask | 1 << i);
        all.push(char::from(present));
        texts.iter().flatten().for_each(|text| push_text(&mut all, text));
        Self(Some(all.into()))
    }

    /// These attributes with one more set.
    pub fn with(mut self, attribute: Attribute, value: &str) -> Self {
        self.set(attribute, value);
        self
    }

    /// Sets one attribute. It packs all of them anew: to set several, [`Attributes::of`] is cheaper.
    pub fn set(&mut self, attribute: Attribute, value: &str) {
        let mut texts = Attribute::ALL.map(|a| self.get(a));
        texts[attribute as usize] = Some(value);
        *self = Self::of(texts);
    }

    /// The value of one attribute, where it was given.
    pub fn get(&self, attribute: Attribute) -> Option<&str> {
        let all = self.0.as_deref()?;
        let (present, mut rest) = (all.as_bytes().first()?, all.get(1..)?);
        let bit = 1 << attribute as u8;
        if present & bit == 0 {
            return None;
        }
        // Those of lower numbers stand before it.
        for _ in 0..(present & (bit - 1)).count_ones() {
            rest = read_text(rest)?.1;
        }
        Some(read_text(rest)?.0)
    }
}

/// How many bytes a length takes.
fn length_bytes(length: usize) -> usize {
    let bits = usize::BITS - length.leading_zeros();
    bits.max(1).div_ceil(6) as usize
}

/// Each text stands behind its length, which is written in groups of six bits, lowest first, as ASCII: all of it is
/// one text.
fn push_text(all: &mut String, text: &str) {
    let mut length = text.len();
    loop {
        let low = length.to_le_bytes()[0] & 0x3f;
        length >>= 6;
        if length == 0 {
            all.push(char::from(low));
            break;
        }
        all.push(char::from(low | 0x40));
    }
    all.push_str(text);
}

fn read_text(all: &str) -> Option<(&str, &str)> {
    let mut length = 0usize;
    let mut used = 0;
    for byte in all.bytes() {
        length |= usize::from(byte & 0x3f) << (6 * used);
        used += 1;
        if byte & 0x40 == 0 {
            break;
        }
    }
    all.get(used..)?.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were_packed_and_take_no_more_than_they_need() {
        for length in [0, 1, 63, 64, 4095, 4096, 70_000] {
            let long = "ä".repeat(length);
            let attributes = Attributes::none()
                .with(Attribute::Session, "")
                .with(Attribute::Class, &long)
                .with(Attribute::Key, "k");
            assert_eq!(attributes.get(Attribute::Class), Some(&*long));
            assert_eq!(attributes.get(Attribute::Session), Some(""));
            assert_eq!(attributes.get(Attribute::Key), Some("k"));
            assert_eq!(attributes.get(Attribute::Tenant), None);
            let bytes = |text: &str| text.len() + length_bytes(text.len());
            let packed = attributes.0.as_ref().map_or(0, |bytes| bytes.len());
            assert_eq!(packed, 1 + bytes(&long) + bytes("") + bytes("k"));
        }
    }
}
