//! The list of all model prices of an installation.

use std::collections::BTreeMap;

use crate::amount::{Currency, MicroUnits};
use crate::price::{Price, TokenCounts};
use fairgate_time::UnixMicros;

/// The prices of all models. A model without a price costs nothing, and its ledger rows name no price.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelPrices {
    /// Prices of each model. Prices for one upstream come before prices for every upstream; within each of the two, the
    /// latest `from` comes first.
    by_model: BTreeMap<String, Vec<Price>>,
}

impl ModelPrices {
    /// Builds the list. The caller ensures that all prices have one currency, and that no two have the same model,
    /// upstream and day.
    pub fn new(prices: Vec<Price>) -> Self {
        let mut by_model: BTreeMap<String, Vec<Price>> = BTreeMap::new();
        for price in prices {
            by_model.entry(price.model.clone()).or_default().push(price);
        }
        for prices in by_model.values_mut() {
            prices.sort_by(|one, other| {
                let specific = other.upstream.is_some().cmp(&one.upstream.is_some());
                specific.then(other.from.cmp(&one.from))
            });
        }
        Self { by_model }
    }

    /// Returns the price of a model on an upstream at a moment. A price for this upstream wins over a price for every
    /// upstream; among several, the latest `from` that is not after `at` wins.
    pub fn price(&self, model: &str, upstream: &str, at: UnixMicros) -> Option<&Price> {
        let is_for = |price: &&Price| price.upstream.as_deref().is_none_or(|name| name == upstream);
        self.by_model.get(model)?.iter().filter(is_for).find(|price| price.is_valid(at))
    }

    /// Returns the highest possible cost of a request on any of these upstreams. `tokens` is the greatest number of
    /// tokens that the request may use. Returns zero if no upstream has a price.
    pub fn max_cost<'a>(
        &self,
        model: &str,
        upstreams: impl IntoIterator<Item = &'a str>,
        at: UnixMicros,
        tokens: TokenCounts,
    ) -> MicroUnits {
        let prices = upstreams.into_iter().filter_map(|name| self.price(model, name, at));
        prices.map(|price| price.max_cost(tokens)).max().unwrap_or_default()
    }

    /// Iterates over all prices, ordered by model.
    pub fn all(&self) -> impl Iterator<Item = &Price> {
        self.by_model.values().flatten()
    }

    /// Returns the currency of all prices; `None` if there are no prices.
    pub fn currency(&self) -> Option<Currency> {
        self.all().next().map(|price| price.currency)
    }

    /// Returns true if no model has a price.
    pub fn is_empty(&self) -> bool {
        self.by_model.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::PerMillion;
    use crate::price::PriceRates;
    use fairgate_time::UtcDay;

    fn price(upstream: Option<&str>, from: Option<&str>, request: u64) -> Price {
        let rates = PriceRates { request: MicroUnits(request), ..PriceRates::default() };
        let from = from.map(|day| UtcDay::parse(day).unwrap());
        Price::new("m", upstream, Currency::parse("USD").unwrap(), rates, from)
    }

    fn on(day: &str) -> UnixMicros {
        UtcDay::parse(day).unwrap().midnight()
    }

    #[test]
    fn the_most_specific_then_the_latest_price_applies() {
        let prices = ModelPrices::new(vec![
            price(None, None, 1),
            price(None, Some("2026-11-01"), 2),
            price(Some("openai"), Some("2026-12-01"), 3),
            price(Some("azure"), None, 4),
        ]);
        let at = |upstream: &str, day: &str| {
            prices.price("m", upstream, on(day)).map(|price| price.rates.request.0)
        };
        assert_eq!(at("openai", "2026-10-31"), Some(1));
        assert_eq!(at("openai", "2026-11-01"), Some(2));
        assert_eq!(at("openai", "2026-12-01"), Some(3));
        assert_eq!(at("azure", "2026-12-01"), Some(4));
        assert_eq!(at("other", "2030-01-01"), Some(2));
        // To the microsecond.
        let before = UnixMicros(on("2026-11-01").0 - 1);
        assert_eq!(prices.price("m", "x", before).map(|price| price.rates.request.0), Some(1));
        assert_eq!(prices.price("other", "openai", on("2026-12-01")), None);
    }

    #[test]
    fn a_price_that_is_not_valid_yet_does_not_apply() {
        let prices = ModelPrices::new(vec![price(None, Some("2026-11-01"), 2)]);
        assert_eq!(prices.price("m", "x", on("2026-10-31")), None);
        assert_eq!(prices.currency(), Currency::parse("USD"));
    }

    #[test]
    fn the_most_is_that_of_the_dearest_upstream() {
        let rates =
            PriceRates { output: PerMillion::parse("10").unwrap(), ..PriceRates::default() };
        let usd = Currency::parse("USD").unwrap();
        let prices = ModelPrices::new(vec![
            Price::new("m", Some("cheap"), usd, PriceRates::default(), None),
            Price::new("m", Some("dear"), usd, rates, None),
        ]);
        let tokens = TokenCounts { output: 500, ..TokenCounts::default() };
        let most = |upstreams: &[&str]| {
            prices.max_cost("m", upstreams.iter().copied(), UnixMicros(0), tokens)
        };
        assert_eq!(most(&["cheap", "dear", "unpriced"]), MicroUnits(5_000));
        assert_eq!(most(&["cheap", "unpriced"]), MicroUnits::ZERO);
        assert_eq!(most(&[]), MicroUnits::ZERO);
    }
}
