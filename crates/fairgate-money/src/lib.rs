//! Money without floats: amounts in micro-units of one currency, prices of models, and the cost of a request. Does no
//! I/O and reads no clock: callers pass moments as [`UnixMicros`](fairgate_time::UnixMicros).
//!
//! ```
//! use fairgate_money::{Currency, MicroUnits, PerMillion, Price, ModelPrices, PriceRates, TokenCounts};
//! use fairgate_time::UnixMicros;
//!
//! let usd = Currency::parse("USD").unwrap();
//! let rates = PriceRates {
//!     input: PerMillion::parse("2.50").unwrap(),
//!     cached_input: PerMillion::parse("1.25").unwrap(),
//!     output: PerMillion::parse("10").unwrap(),
//!     request: MicroUnits(0),
//!     ..PriceRates::default()
//! };
//! let prices = ModelPrices::new(vec![Price::new("gpt-4o", None, usd, rates, None)]);
//! let price = prices.price("gpt-4o", "openai", UnixMicros(0)).unwrap();
//! let cost = price.cost(TokenCounts { input: 1_000, cached: 200, output: 500, ..TokenCounts::default() });
//! assert_eq!(cost.to_string(), "0.00725");
//! ```

mod amount;
mod price;
mod prices;

pub use amount::{Currency, MicroUnits, PerMillion};
pub use price::{Price, PriceRates, TokenCounts};
pub use prices::ModelPrices;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
