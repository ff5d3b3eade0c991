//! The seven attributes of a request by which a node of the policy tree may divide service.

use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Range;

/// An attribute of a request that a policy node can divide service by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Attribute {
    /// The policy class of the request, as the operator names it.
    Class,
    /// The tenant that the request is charged to.
    Tenant,
    /// The group of the tenant that the request is charged to.
    Group,
    /// The API key that the client used for the request.
    Key,
    /// The agent inside a client program that sent the request.
    Agent,
    /// The project of the fleet that the request belongs to.
    Project,
    /// The session or conversation that the request continues.
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

    /// Returns the name that journals and policies use for this attribute.
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

    /// Returns the attribute with this name; `None` if no attribute has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// The attributes of one request. A request without the attribute of a node belongs to the flow [`DEFAULT_FLOW`] there,
/// or to the default class if the node lists its classes.
///
/// All texts share one allocation, so a clone only counts a reference. A caller that submits many requests of one
/// origin should build the attributes once and clone them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes(Option<Arc<str>>);

/// Name of the flow of requests that lack a node's attribute, in a node that does not list its classes.
pub const DEFAULT_FLOW: &str = "default";

impl Attributes {
    /// Returns a set without any attribute.
    pub fn none() -> Self {
        Self::default()
    }

    /// Builds a set from the values of all attributes, in the order of [`Attribute::ALL`]; `None` leaves an attribute
    /// out.
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

    /// Returns these attributes with one of them set to a value.
    pub fn with(mut self, attribute: Attribute, value: &str) -> Self {
        self.set(attribute, value);
        self
    }

    /// Sets one attribute. Every call packs all attributes again, so [`Attributes::of`] is cheaper for several.
    pub fn set(&mut self, attribute: Attribute, value: &str) {
        let mut texts = Attribute::ALL.map(|a| self.get(a));
        texts[attribute as usize] = Some(value);
        *self = Self::of(texts);
    }

    /// Returns the value of one attribute; `None` if the request does not have the attribute.
    #[inline]
    pub fn get(&self, attribute: Attribute) -> Option<&str> {
        let all = self.0.as_deref()?;
        let present = *all.as_bytes().first()?;
        let bit = 1 << attribute as u8;
        if present & bit == 0 {
            return None;
        }
        let mut text = text_after(all, 1)?;
        // The texts of attributes with lower numbers come first.
        for _ in 0..(present & (bit - 1)).count_ones() {
            text = text_after(all, text.end)?;
        }
        all.get(text)
    }
}

/// Returns the number of bytes that a length takes in the packed form.
fn length_bytes(length: usize) -> usize {
    let bits = usize::BITS - length.leading_zeros();
    bits.max(1).div_ceil(6) as usize
}

/// Appends the length of a text, and then the text. The length is written in groups of six bits, lowest first, as
/// ASCII, so that the whole packing is valid UTF-8.
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

/// Returns the byte range of the text whose length is written at `from`; `None` if `from` is at the end.
#[inline]
fn text_after(all: &str, from: usize) -> Option<Range<usize>> {
    let low = *all.as_bytes().get(from)?;
    if low & 0x40 == 0 {
        return Some(from + 1..from + 1 + usize::from(low));
    }
    long_text_after(all, from)
}

/// Returns the byte range of a text of 64 bytes or more, whose length is written at `from` and takes several bytes.
#[cold]
fn long_text_after(all: &str, from: usize) -> Option<Range<usize>> {
    let (mut start, mut length, mut shift) = (from, 0, 0);
    loop {
        let byte = *all.as_bytes().get(start)?;
        length |= usize::from(byte & 0x3f) << shift;
        start += 1;
        if byte & 0x40 == 0 {
            return Some(start..start + length);
        }
        shift += 6;
    }
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
