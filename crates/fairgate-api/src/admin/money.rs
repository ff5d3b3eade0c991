//! Amounts of money. They are decimal texts, exact to six places, in the installation's currency, because many JSON
//! readers turn numbers into floats.

use std::fmt;

use fairgate_money::MicroUnits;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Largest amount of a budget: just below 10⁹ units of the currency.
const LIMIT_MAX: MicroUnits = MicroUnits(999_999_999_999_999);

/// An amount of money that was spent or reserved, or a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoneyText(pub MicroUnits);

/// An amount of money that a limit allows: below 10⁹ units of the currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoneyLimitText(pub MicroUnits);

impl fmt::Display for MoneyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for MoneyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MoneyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let amount = MicroUnits::parse(&text);
        amount.map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is no amount of money")))
    }
}

impl Serialize for MoneyLimitText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MoneyLimitText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let amount = MicroUnits::parse(&text).filter(|amount| *amount <= LIMIT_MAX);
        amount.map(Self).ok_or_else(|| {
            D::Error::custom(
                "must be an amount of money as a text, such as \"50\" or \"0.25\": below 1000000000, with at most six places",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_texts_and_bounded() {
        let read =
            |text: &str| serde_json::from_str::<MoneyLimitText>(text).ok().map(|money| money.0.0);
        assert_eq!(read("\"50\""), Some(50_000_000));
        assert_eq!(read("\"999999999.999999\""), Some(LIMIT_MAX.0));
        for wrong in ["50", "0.5", "\"1000000000\"", "\"-1\"", "\"0.0000001\"", "null", "\"\""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let shown = serde_json::to_string(&MoneyLimitText(MicroUnits(2_500_000)));
        assert_eq!(shown.expect("a text"), "\"2.50\"");
    }

    #[test]
    fn a_sum_may_be_larger_than_a_limit() {
        let sum = MoneyText(MicroUnits(1_234_567_890_000_000));
        let text = serde_json::to_string(&sum).expect("a text");
        assert_eq!(serde_json::from_str::<MoneyText>(&text).ok(), Some(sum));
    }
}
