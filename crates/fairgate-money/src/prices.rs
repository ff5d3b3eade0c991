//! All prices of an installation.

use std::collections::BTreeMap;

use crate::amount::{Currency, MicroUnits};
use crate::day::UnixMicros;
use crate::price::{Price, TokenCounts};

/// The prices of all models. A model without one costs nothing and has no price in its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// By model; those for one upstream first, then the latest `from` first.
    by_model: BTreeMap<String, Vec<Price>>,
}

impl Prices {
    /// These prices. They must be in one currency, and no two for the same model, upstream and day.
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

    /// The price of a model on an upstream at a moment: one for this upstream before one for every upstream; of several, the
    /// one with the latest `from` that is not after `at`.
    pub fn price(&self, model: &str, upstream: &str, at: UnixMicros) -> Option<&Price> {
        let is_for = |price: &&Price| price.upstream.as_deref().is_none_or(|name| name == upstream);
        self.by_model.get(model)?.iter().filter(is_for).find(|price| price.is_valid(at))
    }

    /// The most that a request can cost on whichever of these upstreams it gets to. For `tokens` give the most that it may use;
    /// nothing where no upstream has a price.
    pub fn most<'a>(
        &self,
        model: &str,
        upstreams: impl IntoIterator<Item = &'a str>,
        at: UnixMicros,
        tokens: TokenCounts,
    ) -> MicroUnits {
        let prices = upstreams.into_iter().filter_map(|name| self.price(model, name, at));
        prices.map(|price| price.most(tokens)).max().unwrap_or_default()
    }

    /// All of them, by model.
    pub fn all(&self) -> impl Iterator<Item = &Price> {
        self.by_model.values().flatten()
    }

    /// Their currency; none where there is no price.
    pub fn currency(&self) -> Option<Currency> {
        self.all().next().map(|price| price.currency)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_model.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::PerMillion;
    use crate::day::Day;
    use crate::price::Rates;

    fn price(upstream: Option<&str>, from: Option<&str>, request: u64) -> Price {
        let rates = Rates { request: MicroUnits(request), ..Rates::default() };
        let from = from.map(|day| Day::parse(day).unwrap());
        Price::new("m", upstream, Currency::parse("USD").unwrap(), rates, from)
    }

    fn on(day: &str) -> UnixMicros {
        Day::parse(day).unwrap().midnight()
    }

    #[test]
    fn the_most_specific_then_the_latest_price_applies() {
        let prices = Prices::new(vec![
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
        let prices = Prices::new(vec![price(None, Some("2026-11-01"), 2)]);
        assert_eq!(prices.price("m", "x", on("2026-10-31")), None);
        assert_eq!(prices.currency(), Currency::parse("USD"));
    }

    #[test]
    fn the_most_is_that_of_the_dearest_upstream() {
        let rates = Rates { output: PerMillion::parse("10").unwrap(), ..Rates::default() };
        let usd = Currency::parse("USD").unwrap();
        let prices = Prices::new(vec![
            Price::new("m", Some("cheap"), usd, Rates::default(), None),
            Price::new("m", Some("dear"), usd, rates, None),
        ]);
        let tokens = TokenCounts { output: 500, ..TokenCounts::default() };
        let most =
            |upstreams: &[&str]| prices.most("m", upstreams.iter().copied(), UnixMicros(0), tokens);
        assert_eq!(most(&["cheap", "dear", "unpriced"]), MicroUnits(5_000));
        assert_eq!(most(&["cheap", "unpriced"]), MicroUnits::ZERO);
        assert_eq!(most(&[]), MicroUnits::ZERO);
    }
}
