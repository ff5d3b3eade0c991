//! The APIs of OpenAI and Anthropic. This crate reads requests and changes only the bytes that must change, reads usage
//! from an answer as it passes, writes errors in the format of either API, estimates the tokens of a request, and reads
//! a provider's rate limits. The crate does no I/O and reads no clock.

mod body_changes;
mod dialect_error;
pub mod estimate;
#[doc(hidden)]
pub mod fuzz;
mod hints;
mod json_nodes;
mod json_scanner;
mod meter;
mod model_weights;
mod models;
mod probe;
mod prompt;
pub mod quota;
pub mod rate_limit_headers;
mod request_fields;
mod request_files;
mod route;
mod stored_ids;

pub use body_changes::BodyChanges;
pub use dialect_error::{DialectError, ReachedLimit};
pub use hints::SchedulingHints;
pub use meter::{CacheWrites, MeasuredUsage, MeteredChunk, TokenUsage, UsageMeter};
pub use model_weights::{
    MODEL_WEIGHTS, ModelWeights, OTHER_MODEL_WEIGHT, model_name_words, model_weight,
};
pub use models::{model_body, models_body};
pub use probe::AccountProbe;
pub use prompt::PromptPiece;
pub use request_fields::{InvalidRequestCode, InvalidRequestError, RequestFields};
pub use request_files::{FileTokenRates, RequestFiles};
pub use route::{BodyFraming, Dialect, Route};
pub use stored_ids::{StoredIds, UnsearchableBodyError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
