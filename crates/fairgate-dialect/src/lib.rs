//! What OpenAI's and Anthropic's APIs say: how to read a request without changing a byte that need not change, how to
//! read usage out of an answer as it passes, how an error looks to each, what a request will cost, and what a
//! provider says about its limits. Pure: no I/O, no clock.

mod ask;
pub mod estimate;
#[doc(hidden)]
pub mod fuzz;
mod hints;
pub mod limits;
mod meter;
mod models;
mod problem;
mod prompt;
pub mod quota;
mod rewrite;
mod route;
mod scan;

pub use ask::{Ask, BadAsk};
pub use hints::Hints;
pub use meter::{Measured, Meter, Passed, Usage};
pub use models::{model_body, models_body};
pub use problem::{Problem, Reached};
pub use prompt::Piece;
pub use rewrite::Changes;
pub use route::{Dialect, Framing, Route};
