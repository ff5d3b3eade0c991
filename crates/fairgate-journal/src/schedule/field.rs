//! One field of a snapshot: its path, its text, and how to read it as what it should be.

use core::fmt;
use core::marker::PhantomData;
use std::borrow::Cow;
use std::collections::BTreeMap;

use fairgate_core::proportional::CreditWeight;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::ReadError;

/// Where a field is. Written out only when something is wrong with it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Element(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) if is_plain(key) => write!(f, "{key}"),
            Self::Key(parent, key) if is_plain(key) => write!(f, "{parent}.{key}"),
            Self::Key(parent, key) => write!(f, "{parent}[{key:?}]"),
            Self::Element(parent, position) => write!(f, "{parent}[{position}]"),
        }
    }
}

/// Whether a key can stand in a path without quotes.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// A field that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'a> {
    path: Path<'a>,
    raw: &'a RawValue,
}

/// A field that may be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    path: Path<'a>,
    raw: Option<&'a RawValue>,
}

impl<'a> Slot<'a> {
    /// The field, or an error where it is missing.
    pub(super) fn required(self) -> Result<Field<'a>, ReadError> {
        match self.raw {
            Some(raw) => Ok(Field { path: self.path, raw }),
            None => Err(error(self.path, "is missing")),
        }
    }

    /// What the field says, or the default where it is missing.
    pub(super) fn or<T>(
        self,
        default: T,
        read: impl FnOnce(&Field<'a>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        match self.raw {
            Some(raw) => read(&Field { path: self.path, raw }),
            None => Ok(default),
        }
    }

    /// What the field says, or nothing where it is missing.
    pub(super) fn or_default<T: Default>(
        self,
        read: impl FnOnce(&Field<'a>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.or(T::default(), read)
    }
}

impl<'a> Field<'a> {
    pub(super) fn new(path: Path<'a>, raw: &'a RawValue) -> Self {
        Self { path, raw }
    }

    /// An object with these keys and no others, each at most once.
    pub(super) fn record<const N: usize>(
        &'a self,
        keys: [&'static str; N],
    ) -> Result<[Slot<'a>; N], ReadError> {
        let mut slots = keys.map(|key| Slot { path: Path::Key(&self.path, key), raw: None });
        for (key, raw) in self.entries()? {
            let path = Path::Key(&self.path, &key);
            let Some(place) = keys.iter().position(|known| *known == key) else {
                return Err(error(path, format!("is not known; known are {}", keys.join(", "))));
            };
            if slots[place].raw.replace(raw).is_some() {
                return Err(error(path, "is given twice"));
            }
        }
        Ok(slots)
    }

    /// An object with any keys, each at most once.
    pub(super) fn map<T>(
        &self,
        read: impl Fn(&Field<'_>) -> Result<T, ReadError>,
    ) -> Result<BTreeMap<Box<str>, T>, ReadError> {
        let mut map = BTreeMap::new();
        for (key, raw) in self.entries()? {
            let path = Path::Key(&self.path, &key);
            let value = read(&Field { path, raw })?;
            if map.insert(key.as_ref().into(), value).is_some() {
                return Err(error(path, "is given twice"));
            }
        }
        Ok(map)
    }

    /// A list of anything.
    pub(super) fn list<T>(
        &self,
        read: impl Fn(&Field<'_>) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let elements: Vec<&RawValue> = self.parse('[', "a list")?;
        let read_one = |(i, raw)| read(&Field { path: Path::Element(&self.path, i), raw });
        elements.into_iter().enumerate().map(read_one).collect()
    }

    /// `None` for null.
    pub(super) fn nullable<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, ReadError>,
    ) -> Result<Option<T>, ReadError> {
        if self.raw.get() == "null" { Ok(None) } else { read(self).map(Some) }
    }

    pub(super) fn text(&self) -> Result<Box<str>, ReadError> {
        self.parse('"', "a text")
    }

    pub(super) fn boolean(&self) -> Result<bool, ReadError> {
        match self.raw.get() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.wrong("true or false")),
        }
    }

    /// One of these words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, ReadError> {
        let text = self.text()?;
        let known = words.iter().find(|(word, _)| **word == *text);
        known.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(format!("one of {}", allowed.join(", ")))
        })
    }

    /// An integer of 0 or more.
    pub(super) fn natural(&self) -> Result<u64, ReadError> {
        let allowed = "an integer from 0 to 18446744073709551615";
        self.whole().and_then(|n| n.try_into().ok()).ok_or_else(|| self.wrong(allowed))
    }

    /// An integer of either sign.
    pub(super) fn integer(&self) -> Result<i64, ReadError> {
        let allowed = "an integer from -9223372036854775808 to 9223372036854775807";
        self.whole().and_then(|n| n.try_into().ok()).ok_or_else(|| self.wrong(allowed))
    }

    /// A weight, exact to the thousandth.
    pub(super) fn credit_weight(&self) -> Result<CreditWeight, ReadError> {
        let allowed = "a number from 0.001 to 1000000000000000 with at most three decimals";
        let thousandths = thousandths(self.raw.get());
        let weight = thousandths.and_then(|t| CreditWeight::from_thousandths(t).ok());
        weight.ok_or_else(|| self.wrong(allowed))
    }

    /// The value where it is a number without a fraction or an exponent, and not absurdly long.
    fn whole(&self) -> Option<i128> {
        self.raw.get().parse().ok()
    }

    fn entries(&self) -> Result<Vec<(Cow<'a, str>, &'a RawValue)>, ReadError> {
        self.parse('{', "an object").map(|Entries(entries)| entries)
    }

    /// Parses what begins with this character; the text as a whole is known to be JSON.
    fn parse<T: Deserialize<'a>>(&self, first: char, allowed: &str) -> Result<T, ReadError> {
        if !self.raw.get().starts_with(first) {
            return Err(self.wrong(allowed));
        }
        serde_json::from_str(self.raw.get()).map_err(|cause| error(self.path, cause))
    }

    fn wrong(&self, allowed: impl fmt::Display) -> ReadError {
        error(self.path, format!("must be {allowed}, not {}", excerpt(self.raw.get())))
    }
}

fn error(path: Path<'_>, message: impl fmt::Display) -> ReadError {
    ReadError { field: path.to_string(), message: message.to_string() }
}

/// The beginning of a value, for an error message.
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A JSON number times 1000, where that is an integer of 0 or more below 10^19.
fn thousandths(number: &str) -> Option<u64> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let trailing_zeros = digits.len() - digits.trim_end_matches('0').len();
    let shift = i64::try_from(trailing_zeros).ok()? - i64::try_from(fraction.len()).ok()? + 3;
    let shift = exponent.parse::<i64>().ok()?.checked_add(shift)?;
    let scale = 10_u64.checked_pow(u32::try_from(shift).ok()?)?;
    significant.parse::<u64>().ok()?.checked_mul(scale)
}

/// The entries of an object in their order, keys that are given twice included.
struct Entries<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct EntriesVisitor<'a>(PhantomData<&'a ()>);

impl<'de: 'a, 'a> Visitor<'de> for EntriesVisitor<'a> {
    type Value = Entries<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((Key(key), raw)) = map.next_entry()? {
            entries.push((key, raw));
        }
        Ok(Entries(entries))
    }
}
