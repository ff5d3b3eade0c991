//! Checked field types for JSON bodies: names and labels.

use std::fmt;
use std::marker::PhantomData;

use fairgate_api::JsonWholeNumber;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Returns the weight of a group, tenant or key for which no weight is given.
pub(super) fn default_weight() -> JsonWholeNumber {
    JsonWholeNumber(fairgate_core::policy::DEFAULT_WEIGHT)
}

/// Deserializes a field that may be absent but not null.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A JSON object. A plain serde struct also accepts an array with the values of its fields in order; this type refuses
/// arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JsonObject<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for JsonObjectVisitor<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(JsonObjectVisitor(PhantomData)).map(Self)
    }
}

/// Name of a new group or tenant: 1 to 128 letters, digits and `. _ : @ + -`, beginning with a letter or digit. Such a
/// name looks the same in a URL, a header, a table and a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NewOwnerName(pub(super) String);

impl<'de> Deserialize<'de> for NewOwnerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte);
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && name.len() <= 128 && name.bytes().all(rest) {
            return Ok(Self(name));
        }
        Err(Error::custom(
            "a name is 1 to 128 letters, digits and . _ : @ + - and begins with a letter or digit",
        ))
    }
}

/// Name that the owner gives a key: up to 128 ASCII characters, or up to 32 characters of any kind; no control
/// characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KeyLabel(pub(super) String);

impl<'de> Deserialize<'de> for KeyLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let label = String::deserialize(deserializer)?;
        let longest = if label.is_ascii() { 128 } else { 32 };
        if label.chars().count() <= longest && !label.contains(char::is_control) {
            return Ok(Self(label));
        }
        Err(Error::custom(
            "a key's name is up to 128 ASCII characters, or up to 32 of any kind, without control characters",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads<T: for<'de> Deserialize<'de>>(text: &str) -> bool {
        serde_json::from_value::<T>(text.into()).is_ok()
    }

    #[test]
    fn objects_are_no_lists() {
        #[derive(Debug, Deserialize)]
        struct One {
            #[allow(dead_code, reason = "only whether it can be read matters")]
            a: u64,
        }
        assert!(serde_json::from_str::<JsonObject<One>>(r#"{"a":1}"#).is_ok());
        assert!(serde_json::from_str::<One>("[1]").is_ok(), "as serde has it");
        assert!(serde_json::from_str::<JsonObject<One>>("[1]").is_err());
    }

    #[test]
    fn names() {
        assert!(
            ["a", "chat-prod_2", "team:a@b.c+d", &"x".repeat(128)]
                .iter()
                .all(|n| reads::<NewOwnerName>(n))
        );
        let bad = ["", "-a", ".", "a b", "ü", "a/b", "a\n", &"x".repeat(129)];
        assert!(bad.iter().all(|name| !reads::<NewOwnerName>(name)));
    }

    #[test]
    fn labels() {
        assert!(
            ["", "my laptop", "Grüße", &"x".repeat(128), &"ü".repeat(32)].iter().all(|l| reads::<
                KeyLabel,
            >(
                l
            ))
        );
        assert!(
            ["\n", &"x".repeat(129), &"ü".repeat(33)].iter().all(|label| !reads::<KeyLabel>(label))
        );
    }
}
