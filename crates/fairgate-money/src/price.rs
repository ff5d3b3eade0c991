//! One price of a model, and the cost of a request at that price.
//!
//! ```text
//! cost = ((input − cached) · p_input + cached · p_cached + output · p_output) ÷ 10⁶, rounded half up once,
//!        + the price of a request
//! ```
//!
//! Prices are micro-units per million tokens, so the sum is in millionths of a micro-unit: one division gives
//! micro-units.

use serde::{Deserialize, Serialize};

use crate::amount::{Currency, MicroUnits, PerMillion};
use crate::day::{UnixMicros, UtcDay};

const MILLION: u128 = 1_000_000;

/// Tokens of one response, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Input tokens that were cached. The part above `input` is ignored.
    pub cached: u64,
    /// Output tokens of the response.
    pub output: u64,
}

/// Rates of one price: per token of each kind, and per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceRates {
    /// Price of uncached input tokens, in micro-units per million.
    pub input: PerMillion,
    /// Price of cached input tokens, in micro-units per million.
    pub cached_input: PerMillion,
    /// Price of output tokens, in micro-units per million.
    pub output: PerMillion,
    /// Fixed price of each request, in micro-units.
    pub request: MicroUnits,
}

/// A price of a model. A price is immutable, because its id depends on all other fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Id of the price: `price-` and 16 hexadecimal digits. The digits are a hash of all other fields, so every process
    /// gives the same price the same id.
    pub id: String,
    /// Name of the model, as clients send it.
    pub model: String,
    /// Name of the upstream that the price applies to; `None` applies to every upstream.
    pub upstream: Option<String>,
    /// The currency of all `rates`.
    pub currency: Currency,
    /// Rates per token and per request, in `currency`.
    #[serde(flatten)]
    pub rates: PriceRates,
    /// The first day (UTC) on which the price applies; `None` applies always.
    pub from: Option<UtcDay>,
}

impl Price {
    /// Creates a price and computes its id from the arguments.
    pub fn new(
        model: &str,
        upstream: Option<&str>,
        currency: Currency,
        rates: PriceRates,
        from: Option<UtcDay>,
    ) -> Self {
        let mut price = Self {
            id: String::new(),
            model: model.to_owned(),
            upstream: upstream.map(str::to_owned),
            currency,
            rates,
            from,
        };
        price.id = price.fingerprint();
        price
    }

    /// Returns the id of the price, which is a hash of a text that differs for different prices.
    fn fingerprint(&self) -> String {
        let PriceRates { input, cached_input, output, request } = self.rates;
        let numbers =
            [input.0, cached_input.0, output.0, request.0].map(|number| number.to_string());
        let from = self.from.map_or("always".to_owned(), |day| day.0.to_string());
        // Each text is prefixed with its length, so that no name can imitate the next field.
        let text = |text: &str| format!("{}:{text}", text.len());
        let upstream = self.upstream.as_deref().map_or("any".to_owned(), text);
        let whole =
            [text(&self.model), upstream, self.currency.to_string(), numbers.join(" "), from];
        let hash = blake3::hash(whole.join("\n").as_bytes()).to_hex();
        format!("price-{}", &hash[..16])
    }

    /// Returns true if the price applies at a moment, which is from the midnight (UTC) of `from` on, or always if
    /// `from` is absent.
    pub fn is_valid(&self, at: UnixMicros) -> bool {
        self.from.is_none_or(|from| from.midnight() <= at)
    }

    /// Returns the cost of a request with these tokens, saturated to the largest amount.
    pub fn cost(&self, tokens: TokenCounts) -> MicroUnits {
        let cached = tokens.cached.min(tokens.input);
        let PriceRates { input, cached_input, output, request } = self.rates;
        let tokens = product(tokens.input - cached, input)
            .saturating_add(product(cached, cached_input))
            .saturating_add(product(tokens.output, output));
        let rounded = tokens.saturating_add(MILLION / 2) / MILLION;
        let rounded = MicroUnits(u64::try_from(rounded).unwrap_or(u64::MAX));
        rounded.saturating_add(request)
    }

    /// Returns the highest possible cost of a request with these tokens, for any number of cached input tokens.
    pub fn max_cost(&self, tokens: TokenCounts) -> MicroUnits {
        let cached = |cached| self.cost(TokenCounts { cached, ..tokens });
        cached(0).max(cached(tokens.input))
    }
}

fn product(tokens: u64, price: PerMillion) -> u128 {
    u128::from(tokens) * u128::from(price.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: &str, cached: &str, output: &str, request: &str) -> Price {
        let rates = PriceRates {
            input: PerMillion::parse(input).unwrap(),
            cached_input: PerMillion::parse(cached).unwrap(),
            output: PerMillion::parse(output).unwrap(),
            request: MicroUnits::parse(request).unwrap(),
        };
        Price::new("m", None, Currency::parse("USD").unwrap(), rates, None)
    }

    fn cost(price: &Price, input: u64, cached: u64, output: u64) -> String {
        price.cost(TokenCounts { input, cached, output }).to_string()
    }

    /// Published prices for a million tokens, and bills worked out by hand.
    #[test]
    fn real_price_lists() {
        let gpt_4o = price("2.50", "1.25", "10", "0");
        assert_eq!(cost(&gpt_4o, 1_000_000, 0, 1_000_000), "12.50");
        assert_eq!(cost(&gpt_4o, 1_000, 200, 500), "0.00725");
        // 3 · 2.5 + 1 · 1.25 + 1 · 10 = 18.75 micro-units.
        assert_eq!(cost(&gpt_4o, 4, 1, 1), "0.000019");
        let gpt_4o_mini = price("0.15", "0.075", "0.60", "0");
        assert_eq!(cost(&gpt_4o_mini, 10_000, 8_000, 300), "0.00108");
        let sonnet = price("3", "0.30", "15", "0");
        assert_eq!(cost(&sonnet, 200_000, 150_000, 4_096), "0.25644");
        let haiku = price("0.80", "0.08", "4", "0");
        assert_eq!(cost(&haiku, 1_234, 0, 567), "0.003255");
        // Perplexity: 1 and 1 for a million, 5 for a thousand requests.
        let sonar = price("1", "1", "1", "0.005");
        assert_eq!(cost(&sonar, 20, 0, 180), "0.0052");
    }

    #[test]
    fn the_sum_is_rounded_once_and_half_up() {
        // 0.5, 1.5 and 0.49 micro-units.
        assert_eq!(cost(&price("0.5", "0", "0", "0"), 1, 0, 0), "0.000001");
        assert_eq!(cost(&price("0.5", "0", "0", "0"), 3, 0, 0), "0.000002");
        assert_eq!(cost(&price("0.49", "0", "0", "0"), 1, 0, 0), "0.00");
        // Three parts of a third each come to one, though each alone would be rounded away.
        assert_eq!(cost(&price("0.34", "0.33", "0.33", "0"), 2, 1, 1), "0.000001");
    }

    #[test]
    fn more_cached_than_input_and_absurd_numbers() {
        let gpt_4o = price("2.50", "1.25", "10", "0");
        assert_eq!(cost(&gpt_4o, 1_000, 9_000, 0), cost(&gpt_4o, 1_000, 1_000, 0));
        let all = TokenCounts { input: u64::MAX, cached: 0, output: u64::MAX };
        let dear = price("1000000", "1000000", "1000000", "1000000");
        assert_eq!(dear.cost(all), MicroUnits(u64::MAX));
    }

    #[test]
    fn the_most_is_never_less_than_the_cost() {
        for price in [price("2.50", "1.25", "10", "0.001"), price("1", "3", "0", "0")] {
            for input in [0, 1, 7, 1_000_003] {
                let asked = TokenCounts { input, cached: 0, output: 11 };
                let costs = (0..=input.min(50))
                    .chain([input])
                    .map(|cached| price.cost(TokenCounts { cached, ..asked }));
                assert!(costs.max() <= Some(price.max_cost(asked)));
            }
        }
    }

    #[test]
    fn ids_follow_from_everything_in_a_price() {
        let usd = Currency::parse("USD").unwrap();
        let eur = Currency::parse("EUR").unwrap();
        let (some, other) = (PriceRates::default(), price("1", "1", "1", "0").rates);
        let all = [
            Price::new("a", None, usd, some, None),
            Price::new("b", None, usd, some, None),
            Price::new("a", Some("any"), usd, some, None),
            Price::new("a", None, eur, some, None),
            Price::new("a", None, usd, other, None),
            Price::new("a", None, usd, some, Some(UtcDay(0))),
        ];
        let ids: std::collections::BTreeSet<_> = all.iter().map(|price| price.id.clone()).collect();
        assert_eq!(ids.len(), all.len());
        assert_eq!(Price::new("a", None, usd, some, None).id, all[0].id);
        // Rows name it for years: it must stay what it is.
        assert_eq!(all[0].id.len(), "price-".len() + 16);
    }
}
