//! Reads whole numbers from JSON. Accepts `5` and also `5.0`, because both are the same number.

use std::collections::BTreeMap;
use std::fmt;

use fairgate_time::UnixMicros;
use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// Largest magnitude up to which a float can represent every whole number, 2^53.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A whole number of 0 or more. `5.0` is accepted as well as `5`, because JSON does not distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(transparent)]
pub struct JsonWholeNumber(pub u64);

impl From<u64> for JsonWholeNumber {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl<'de> Deserialize<'de> for JsonWholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonWholeNumberVisitor;

        impl Visitor<'_> for JsonWholeNumberVisitor {
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
                match number.fract() == 0.0 && (0.0..=EXACT).contains(&number) {
                    true => Ok(number as u64),
                    false => Err(E::invalid_type(Unexpected::Float(number), &self)),
                }
            }
        }

        deserializer.deserialize_u64(JsonWholeNumberVisitor).map(Self)
    }
}

/// Whole number of any sign.
struct WholeNumber(i128);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumberVisitor;

        impl Visitor<'_> for WholeNumberVisitor {
            type Value = i128;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<i128, E> {
                Ok(number.into())
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<i128, E> {
                Ok(number.into())
            }

            #[allow(clippy::cast_possible_truncation, reason = "whole, and where floats are exact")]
            fn visit_f64<E: Error>(self, number: f64) -> Result<i128, E> {
                match number.fract() == 0.0 && number.abs() <= EXACT {
                    true => Ok(number as i128),
                    false => Err(E::invalid_type(Unexpected::Float(number), &self)),
                }
            }
        }

        deserializer.deserialize_any(WholeNumberVisitor).map(Self)
    }
}

impl WholeNumber {
    fn fit<T: TryFrom<i128>, E: Error>(self) -> Result<T, E> {
        let most = (size_of::<T>() * 8).to_string();
        let wrong = |_| E::custom(format!("{} does not fit into {most} bits", self.0));
        T::try_from(self.0).map_err(|problem| match self.0 < 0 {
            true => E::invalid_value(Unexpected::Other("a negative number"), &"0 or more"),
            false => wrong(problem),
        })
    }
}

/// Deserializes a whole number that may be absent or null; both give `None`.
pub(crate) fn optional<'de, T: TryFrom<i128>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::<WholeNumber>::deserialize(deserializer)?.map(WholeNumber::fit).transpose()
}

/// Deserializes a whole number or null in a field that is present. Null gives `Some(None)`.
pub(crate) fn given<'de, T: TryFrom<i128>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    optional(deserializer).map(Some)
}

/// Deserializes a whole number in a field that may be absent, but not null.
pub(crate) fn present<'de, T: TryFrom<i128>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    WholeNumber::deserialize(deserializer)?.fit().map(Some)
}

/// Deserializes a moment that may be absent or null.
pub(crate) fn moment<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<UnixMicros>, D::Error> {
    Ok(optional(deserializer)?.map(UnixMicros))
}

/// Deserializes a JSON object whose values are whole numbers.
pub(crate) fn map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, u32>, D::Error> {
    let numbers = BTreeMap::<String, WholeNumber>::deserialize(deserializer)?.into_iter();
    numbers.map(|(name, number)| Ok((name, number.fit()?))).collect()
}

/// Deserializes a JSON object whose values are whole numbers. The object may be absent or null.
pub(crate) fn optional_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, u32>>, D::Error> {
    struct WholeNumberMap(BTreeMap<String, u32>);

    impl<'de> Deserialize<'de> for WholeNumberMap {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            map(deserializer).map(Self)
        }
    }

    Ok(Option::<WholeNumberMap>::deserialize(deserializer)?.map(|map| map.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct One {
        #[serde(deserialize_with = "optional")]
        number: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    struct Signed {
        #[serde(deserialize_with = "optional")]
        number: Option<i64>,
    }

    #[test]
    fn whole_numbers_have_two_spellings() {
        let read = |text: &str| {
            let json = format!(r#"{{"number":{text}}}"#);
            serde_json::from_str::<One>(&json).map(|one| one.number).map_err(|e| e.to_string())
        };
        assert_eq!(read("5"), Ok(Some(5)));
        assert_eq!(read("5.0"), Ok(Some(5)));
        assert_eq!(read("4e2"), Ok(Some(400)));
        assert_eq!(read("null"), Ok(None));
        for (text, told) in [
            ("-1", "invalid value: a negative number, expected 0 or more"),
            ("4294967296", "4294967296 does not fit into 32 bits"),
            ("0.5", "expected a whole number"),
            ("1e300", "expected a whole number"),
            ("\"5\"", "expected a whole number"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        let signed = serde_json::from_str::<Signed>(r#"{"number":-7.0}"#).map(|one| one.number);
        assert_eq!(signed.ok(), Some(Some(-7)));
    }

    #[test]
    fn whole_numbers_of_zero_or_more() {
        let read =
            |text: &str| serde_json::from_str::<JsonWholeNumber>(text).ok().map(|whole| whole.0);
        assert_eq!(read("5"), Some(5));
        assert_eq!(read("5.0"), Some(5));
        assert_eq!(read("1e3"), Some(1000));
        assert_eq!(read("18446744073709551615"), Some(u64::MAX));
        for text in ["-1", "-1.0", "0.5", "1e300", "\"5\"", "null", "true", "18446744073709551616"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
