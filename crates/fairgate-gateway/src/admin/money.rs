//! Amounts of money in the API. They are decimal texts, exact to six places, in the installation's currency.

use fairgate_money::{Currency, MicroUnits};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::api_error::ApiError;
use crate::control_plane::ControlPlane;

/// Largest amount of a budget: just below 10⁹ units of the currency.
const LARGEST: MicroUnits = MicroUnits(999_999_999_999_999);

/// An amount of money, such as `"50"` or `"0.25"`. The amount is a text because many JSON readers turn numbers into
/// floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MoneyText(pub(super) MicroUnits);

impl Serialize for MoneyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MoneyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let amount = MicroUnits::parse(&text).filter(|amount| *amount <= LARGEST);
        amount.map(Self).ok_or_else(|| {
            D::Error::custom(
                "must be an amount of money as a text, such as \"50\" or \"0.25\": below 1000000000, with at most six places",
            )
        })
    }
}

/// Returns the currency of the current prices, or that of earlier prices if there are no current ones. `None` if there
/// never was a price.
pub(super) async fn currency(app: &ControlPlane) -> Result<Option<Currency>, ApiError> {
    match app.data.config.load().prices.currency() {
        Some(currency) => Ok(Some(currency)),
        None => Ok(app.data.store.currency().await?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_texts() {
        let read = |text: &str| serde_json::from_str::<MoneyText>(text).ok().map(|money| money.0.0);
        assert_eq!(read("\"50\""), Some(50_000_000));
        assert_eq!(read("\"999999999.999999\""), Some(LARGEST.0));
        for wrong in ["50", "0.5", "\"1000000000\"", "\"-1\"", "\"0.0000001\"", "null", "\"\""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let shown = serde_json::to_string(&MoneyText(MicroUnits(2_500_000)));
        assert_eq!(shown.expect("a text"), "\"2.50\"");
    }
}
