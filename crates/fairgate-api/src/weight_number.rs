//! Weights of requests as JSON numbers with at most three decimals.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Greatest weight of a request, in thousandths.
const THOUSANDTHS_MAX: u32 = 1_000_000_000;

/// The weight of a request in the queue depth of a `load` node: 0.001 to 1 000 000, with at most three decimals. Stored
/// in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WeightNumber(u32);

impl WeightNumber {
    /// Creates a weight from thousandths; `None` if it is out of range.
    pub fn from_thousandths(thousandths: u64) -> Option<Self> {
        let thousandths = u32::try_from(thousandths).ok()?;
        (1..=THOUSANDTHS_MAX).contains(&thousandths).then_some(Self(thousandths))
    }

    /// Returns the weight in thousandths.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

/// Displays without trailing zeros: `2.5`.
impl fmt::Display for WeightNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl Serialize for WeightNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 1000 {
            0 => serializer.serialize_u32(self.0 / 1000),
            _ => serializer.serialize_f64(f64::from(self.0) / 1000.0),
        }
    }
}

impl<'de> Deserialize<'de> for WeightNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WeightVisitor;

        impl Visitor<'_> for WeightVisitor {
            type Value = WeightNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a weight from 0.001 to 1000000 with at most three decimals")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<WeightNumber, E> {
                let weight = number.checked_mul(1000).and_then(WeightNumber::from_thousandths);
                weight.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "rounded, and its range is checked before"
            )]
            fn visit_f64<E: Error>(self, number: f64) -> Result<WeightNumber, E> {
                let thousandths = (number * 1000.0).round();
                let fits = (1.0..=f64::from(THOUSANDTHS_MAX)).contains(&thousandths);
                let is_exact = (thousandths / 1000.0 - number).abs() <= 1e-9 * number.abs();
                match fits && is_exact {
                    true => Ok(WeightNumber(thousandths as u32)),
                    false => Err(E::invalid_value(Unexpected::Float(number), &self)),
                }
            }
        }

        deserializer.deserialize_any(WeightVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_has_at_most_three_decimals() {
        let read = |text: &str| serde_json::from_str::<WeightNumber>(text);
        for (text, thousandths, written) in [
            ("1", 1000, "1"),
            ("5.0", 5000, "5"),
            ("2.5", 2500, "2.5"),
            ("0.001", 1, "0.001"),
            ("1e3", 1_000_000, "1000"),
            ("1000000", 1_000_000_000, "1000000"),
        ] {
            let weight = read(text).unwrap();
            assert_eq!(weight.thousandths(), thousandths);
            assert_eq!(serde_json::to_string(&weight).unwrap(), written);
            assert_eq!(weight.to_string(), written);
        }
        for text in ["0", "0.0", "-1", "0.0001", "1.2345", "1000001", "1e300", "\"1\"", "null"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
