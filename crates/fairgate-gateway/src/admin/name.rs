//! What a body may say, beyond its shape.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// The weight of what states none.
pub(super) fn default_weight() -> Whole {
    Whole(fairgate_core::policy::DEFAULT_WEIGHT)
}

/// A field that may be absent, and is no null.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A JSON object. By itself serde also reads a list of values in the order of the fields, which nobody means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// A whole number of 0 or more, as JSON has it: `5`, and also `5.0`, which is the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
pub(super) struct Whole(pub(super) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = u64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number of 0 or more")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
                Ok(number)
            }

            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole, and in the range in which floats are exact"
            )]
            fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
                const EXACT: f64 = 9_007_199_254_740_992.0;
                match number.fract() == 0.0 && (0.0..=EXACT).contains(&number) {
                    true => Ok(number as u64),
                    false => Err(E::invalid_type(serde::de::Unexpected::Float(number), &self)),
                }
            }
        }

        deserializer.deserialize_u64(Number).map(Self)
    }
}

/// The name of a new group or tenant: 1 to 128 letters, digits and `. _ : @ + -`, beginning with a letter or digit. So
/// it looks the same in a URL, a header, a table and a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) String);

impl<'de> Deserialize<'de> for Name {
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

/// What the owner of a key calls it: up to 128 ASCII characters, or up to 32 of any kind; no control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Label(pub(super) String);

impl<'de> Deserialize<'de> for Label {
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

/// Visible ASCII characters, at most `MOST` of them: the name of a model or a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<const MOST: usize>(pub(super) String);

impl<'de, const MOST: usize> Deserialize<'de> for Word<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let fits = (1..=MOST).contains(&word.len());
        if fits && word.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(word));
        }
        let message = format!("must be 1 to {MOST} visible ASCII characters without spaces");
        Err(Error::custom(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads<T: for<'de> Deserialize<'de>>(text: &str) -> bool {
        serde_json::from_value::<T>(text.into()).is_ok()
    }

    #[test]
    fn whole_numbers() {
        let read = |text: &str| serde_json::from_str::<Whole>(text).ok().map(|whole| whole.0);
        assert_eq!(read("5"), Some(5));
        assert_eq!(read("5.0"), Some(5));
        assert_eq!(read("1e3"), Some(1000));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        for text in ["-1", "-1.0", "0.5", "1e300", "\"5\"", "null", "true", "18446744073709551616"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn objects_are_no_lists() {
        #[derive(Debug, Deserialize)]
        struct One {
            #[allow(dead_code, reason = "only whether it can be read matters")]
            a: u64,
        }
        assert!(serde_json::from_str::<Object<One>>(r#"{"a":1}"#).is_ok());
        assert!(serde_json::from_str::<One>("[1]").is_ok(), "as serde has it");
        assert!(serde_json::from_str::<Object<One>>("[1]").is_err());
    }

    #[test]
    fn names() {
        assert!(
            ["a", "chat-prod_2", "team:a@b.c+d", &"x".repeat(128)].iter().all(|n| reads::<Name>(n))
        );
        let bad = ["", "-a", ".", "a b", "ü", "a/b", "a\n", &"x".repeat(129)];
        assert!(bad.iter().all(|name| !reads::<Name>(name)));
    }

    #[test]
    fn labels() {
        assert!(
            ["", "my laptop", "Grüße", &"x".repeat(128), &"ü".repeat(32)].iter().all(|l| reads::<
                Label,
            >(
                l
            ))
        );
        assert!(
            ["\n", &"x".repeat(129), &"ü".repeat(33)].iter().all(|label| !reads::<Label>(label))
        );
    }

    #[test]
    fn words() {
        assert!(reads::<Word<8>>("gpt/4:o"));
        assert!(["", "a b", "123456789", "ü"].iter().all(|word| !reads::<Word<8>>(word)));
    }
}
