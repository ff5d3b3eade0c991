//! Amounts of money, and their decimal text form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Micro-units in one unit of a currency.
const UNIT: u64 = 1_000_000;
/// The greatest number of decimal places in an amount.
const PLACES: usize = 6;

/// An amount of money, in millionths of the currency unit. 1 250 000 is 1.25 dollars if the currency is USD.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MicroUnits(pub u64);

impl MicroUnits {
    /// An amount of zero.
    pub const ZERO: Self = Self(0);

    /// Parses a decimal of at most six places, such as `50`, `2.50` or `0.000001`. Returns `None` for a sign, an
    /// exponent, more than six places, or an amount above `u64::MAX` micro-units; never rounds.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        if decimals.is_empty() || decimals.len() > PLACES {
            return None;
        }
        let padded = format!("{decimals:0<PLACES$}");
        digits(whole)?.checked_mul(UNIT)?.checked_add(digits(&padded)?).map(Self)
    }

    /// Returns the sum, or the largest amount on overflow.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// Prints two to six decimal places: `50.00`, `2.50`, `0.000001`.
impl fmt::Display for MicroUnits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / UNIT, self.0 % UNIT);
        let end = text.trim_end_matches('0').len().max(text.len() - 4);
        f.write_str(&text[..end])
    }
}

impl FromStr for MicroUnits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "must be an amount such as 50 or 0.25, with at most six places".to_owned();
        Self::parse(text).ok_or_else(wrong)
    }
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// A price of tokens, in micro-units per million tokens. 2 500 000 is 2.50 dollars per million tokens.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PerMillion(pub u64);

impl PerMillion {
    /// Parses a decimal of at most six places, in units of the currency. See [`MicroUnits::parse`] for the format.
    pub fn parse(text: &str) -> Option<Self> {
        MicroUnits::parse(text).map(|amount| Self(amount.0))
    }
}

/// Prints the price with two to six decimal places, as an amount of [`MicroUnits`] is printed.
impl fmt::Display for PerMillion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        MicroUnits(self.0).fmt(f)
    }
}

/// A currency by its code: three capital letters, as in ISO 4217.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// Parses a code such as `USD`. Does not check that ISO 4217 lists it.
    pub fn parse(text: &str) -> Option<Self> {
        let code: [u8; 3] = text.as_bytes().try_into().ok()?;
        code.iter().all(u8::is_ascii_uppercase).then_some(Self(code))
    }

    /// Returns the three-letter code, such as `USD`.
    pub fn code(&self) -> &str {
        // Always valid UTF-8: the bytes are ASCII capitals.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.code().to_owned()
    }
}

impl TryFrom<String> for Currency {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is no currency: use a code such as USD"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_and_write_exactly() {
        for (text, micro, shown) in [
            ("0", 0, "0.00"),
            ("50", 50_000_000, "50.00"),
            ("2.5", 2_500_000, "2.50"),
            ("2.50", 2_500_000, "2.50"),
            ("0.075", 75_000, "0.075"),
            ("0.000001", 1, "0.000001"),
            ("18446744073709.551615", u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(MicroUnits::parse(text), Some(MicroUnits(micro)), "{text}");
            assert_eq!(MicroUnits(micro).to_string(), shown);
            assert_eq!(MicroUnits::parse(shown), Some(MicroUnits(micro)), "{shown}");
        }
        let wrong = ["", ".", "1.", ".5", "-1", "+1", "1e3", "0.0000001", "1,5", "1_000", "1.-1"];
        for text in wrong.into_iter().chain(["18446744073709.551616", "99999999999999999999"]) {
            assert_eq!(MicroUnits::parse(text), None, "{text}");
        }
    }

    #[test]
    fn currencies_are_three_capitals() {
        let usd = Currency::parse("USD").unwrap();
        assert_eq!(usd.to_string(), "USD");
        assert_eq!(serde_json::to_string(&usd).unwrap(), "\"USD\"");
        assert_eq!(serde_json::from_str::<Currency>("\"USD\"").unwrap(), usd);
        for text in ["", "US", "usd", "USDT", "US1", "$", "ÄÖ"] {
            assert_eq!(Currency::parse(text), None, "{text}");
        }
        assert!(serde_json::from_str::<Currency>("\"usd\"").is_err());
    }
}
