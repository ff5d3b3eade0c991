//! One price of a model, and the cost of a request at that price.
//!
//! ```text
//! cost = ((input − cached − written) · p_input + cached · p_cached + written · p_write + output · p_output) ÷ 10⁶,
//!        rounded half up once, + the price of a request
//! ```
//!
//! Prices are micro-units per million tokens, so the sum is in millionths of a micro-unit: one division gives
//! micro-units.

use serde::{Deserialize, Serialize};

use crate::amount::{Currency, MicroUnits, PerMillion};
use fairgate_time::{UnixMicros, UtcDay};

const MILLION: u128 = 1_000_000;

/// Tokens of one response, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Input tokens that were cached. The part above `input` is ignored.
    pub cached: u64,
    /// Input tokens that the provider wrote to its cache, including those of `cache_written_1h`. No token is counted
    /// both here and in `cached`. The part above `input` − `cached` is ignored.
    pub cache_written: u64,
    /// Part of `cache_written` that the provider keeps for an hour.
    pub cache_written_1h: u64,
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
    /// Price of input tokens that are written to the provider's cache, in micro-units per million; the price of input
    /// if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<PerMillion>,
    /// Price of input tokens that are written to the provider's cache for an hour, in micro-units per million; the
    /// price of other cache writes if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<PerMillion>,
    /// Price of output tokens, in micro-units per million.
    pub output: PerMillion,
    /// Fixed price of each request, in micro-units.
    pub request: MicroUnits,
}

impl PriceRates {
    /// Returns two prices: first for input tokens that are written to the cache, then for those that are kept there for
    /// an hour.
    fn cache_writes(&self) -> (PerMillion, PerMillion) {
        let write = self.cache_write.unwrap_or(self.input);
        (write, self.cache_write_1h.unwrap_or(write))
    }
}

/// A price of a model. A price is immutable, because its id depends on all other fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Id of the price: `price-` and 16 hexadecimal digits. The digits are a hash of all other fields, so every process
    /// gives the same price the same id.
    pub id: String,
    /// Name of the model, as clients send it.
    pub model: String,
    /// Name of the upstream that the price applies to; `None` if it applies to every upstream.
    pub upstream: Option<String>,
    /// The currency of all `rates`.
    pub currency: Currency,
    /// Rates per token and per request, in `currency`.
    #[serde(flatten)]
    pub rates: PriceRates,
    /// The first day (UTC) on which the price applies; `None` if it always applies.
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

    /// Returns the id of the price, which is a hash of a text with all its other fields.
    fn fingerprint(&self) -> String {
        let PriceRates { input, cached_input, cache_write, cache_write_1h, output, request } =
            self.rates;
        let mut numbers = [input.0, cached_input.0, output.0, request.0]
            .map(|number| number.to_string())
            .to_vec();
        // Prices without these rates keep the ids that they had before there were such rates.
        let named = [("w", cache_write), ("h", cache_write_1h)];
        let named = named.into_iter().filter_map(|(name, rate)| Some((name, rate?)));
        numbers.extend(named.map(|(name, rate)| format!("{name}{}", rate.0)));
        let from = self.from.map_or("always".to_owned(), |day| day.0.to_string());
        // Each text is prefixed with its length, so that no name can imitate the next field.
        let text = |text: &str| format!("{}:{text}", text.len());
        let upstream = self.upstream.as_deref().map_or("any".to_owned(), text);
        let whole =
            [text(&self.model), upstream, self.currency.to_string(), numbers.join(" "), from];
        let hash = blake3::hash(whole.join("\n").as_bytes()).to_hex();
        format!("price-{}", &hash[..16])
    }

    /// Returns true if the price applies at a moment. It applies from 00:00 UTC of the day `from` on, or always if
    /// `from` is absent.
    pub fn is_valid(&self, at: UnixMicros) -> bool {
        self.from.is_none_or(|from| from.midnight() <= at)
    }

    /// Returns the cost of a request with these tokens, saturated to the largest amount.
    pub fn cost(&self, tokens: TokenCounts) -> MicroUnits {
        let cached = tokens.cached.min(tokens.input);
        let written = tokens.cache_written.min(tokens.input - cached);
        let written_1h = tokens.cache_written_1h.min(written);
        let PriceRates { input, cached_input, output, request, .. } = self.rates;
        let (write, write_1h) = self.rates.cache_writes();
        let parts = [
            product(tokens.input - cached - written, input),
            product(cached, cached_input),
            product(written - written_1h, write),
            product(written_1h, write_1h),
            product(tokens.output, output),
        ];
        let tokens = parts.into_iter().fold(0, u128::saturating_add);
        let rounded = tokens.saturating_add(MILLION / 2) / MILLION;
        let rounded = MicroUnits(u64::try_from(rounded).unwrap_or(u64::MAX));
        rounded.saturating_add(request)
    }

    /// Returns the highest possible cost of a request with these input and output tokens, whatever part of the input is
    /// cached already or is written to a cache.
    pub fn max_cost(&self, tokens: TokenCounts) -> MicroUnits {
        let TokenCounts { input, output, .. } = tokens;
        let plain = TokenCounts { input, output, ..TokenCounts::default() };
        let all_of_one_kind = [
            plain,
            TokenCounts { cached: input, ..plain },
            TokenCounts { cache_written: input, ..plain },
            TokenCounts { cache_written: input, cache_written_1h: input, ..plain },
        ];
        all_of_one_kind.map(|tokens| self.cost(tokens)).into_iter().max().unwrap_or_default()
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
            ..PriceRates::default()
        };
        Price::new("m", None, Currency::parse("USD").unwrap(), rates, None)
    }

    fn cost(price: &Price, input: u64, cached: u64, output: u64) -> String {
        price.cost(TokenCounts { input, cached, output, ..TokenCounts::default() }).to_string()
    }

    /// Published prices for a million tokens, and costs that were computed by hand.
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
        let all = TokenCounts { input: u64::MAX, output: u64::MAX, ..TokenCounts::default() };
        let dear = price("1000000", "1000000", "1000000", "1000000");
        assert_eq!(dear.cost(all), MicroUnits(u64::MAX));
    }

    #[test]
    fn the_most_is_never_less_than_the_cost() {
        for price in [price("2.50", "1.25", "10", "0.001"), price("1", "3", "0", "0")] {
            for input in [0, 1, 7, 1_000_003] {
                let asked = TokenCounts { input, output: 11, ..TokenCounts::default() };
                let costs = (0..=input.min(50))
                    .chain([input])
                    .map(|cached| price.cost(TokenCounts { cached, ..asked }));
                assert!(costs.max() <= Some(price.max_cost(asked)));
            }
        }
    }

    fn with_writes(write: Option<&str>, write_1h: Option<&str>) -> Price {
        let rate = |text: Option<&str>| text.map(|text| PerMillion::parse(text).unwrap());
        let rates = PriceRates {
            cache_write: rate(write),
            cache_write_1h: rate(write_1h),
            ..price("3", "0.30", "15", "0").rates
        };
        Price::new("m", None, Currency::parse("USD").unwrap(), rates, None)
    }

    /// Claude Sonnet: 3 for input, 0.30 for cache reads, 3.75 for cache writes, and 6 for cache
    /// writes of an hour.
    #[test]
    fn cache_writes_have_prices_of_their_own() {
        let used = TokenCounts {
            input: 100_000,
            cached: 50_000,
            cache_written: 40_000,
            cache_written_1h: 10_000,
            output: 1_000,
        };
        let cost = |price: &Price| price.cost(used).to_string();
        // 10 000 · 3 + 50 000 · 0.30 + 30 000 · 3.75 + 10 000 · 6 + 1 000 · 15, in millionths.
        assert_eq!(cost(&with_writes(Some("3.75"), Some("6"))), "0.2325");
        assert_eq!(cost(&with_writes(Some("3.75"), None)), "0.21");
        assert_eq!(cost(&with_writes(None, None)), "0.18");
        let all = TokenCounts { cached: 0, cache_written: 0, cache_written_1h: 0, ..used };
        assert_eq!(with_writes(Some("3.75"), Some("6")).max_cost(all).to_string(), "0.615");
        // No part of the input is paid twice, whatever a provider reports.
        let absurd = TokenCounts {
            cached: 90_000,
            cache_written: 90_000,
            cache_written_1h: 1 << 40,
            ..used
        };
        assert_eq!(with_writes(Some("3.75"), Some("6")).cost(absurd).to_string(), "0.102");
    }

    /// Rows name the ids of prices, so the id of a price without cache writes must not change.
    #[test]
    fn ids_of_prices_without_cache_writes_are_those_of_before() {
        let plain = with_writes(None, None);
        assert_eq!(plain.id, "price-378f17629cd62922");
        let ids = [with_writes(Some("3.75"), None).id, with_writes(None, Some("3.75")).id];
        assert!(ids[0] != ids[1] && !ids.contains(&plain.id));
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
