//! Worker time: the cost of a request in microseconds of a full worker, and how its prices are learned from what a
//! gateway observes.
//!
//! # Why not tokens
//! Suppose that two tenants are charged the same number of tokens, one for long prompts and one for long answers. They
//! can then get 10 % and 90 % of a GPU. A weight of output tokens could correct this, but the right weight depends on
//! the engine, on the mix of requests and on the batch, so nobody can configure it. Six prices of time are right for
//! all mixes:
//!
//! ```text
//!     cost = request + input · U + input_input · (U²/2 + U·K) + cached · K + output · S + context_output · (S·I + S²/2C)
//!     I input tokens, K of them cached, U = I − K, O output tokens in C choices, S = O − C
//! ```
//!
//! [`WorkerPrices::cost`] computes this in integers. The pass that reads a prompt also makes the first token of each
//! choice, so S does not count these tokens.
//!
//! # What an engine does
//! An engine decodes in steps. A step makes one token for each request that decodes. Its duration is mostly a constant
//! (a), plus a little for each of these requests (b) and for each token of their context (c). Between steps, or at the
//! same time, the engine reads prompts. Reading takes r for each prompt, p for each token, q for each earlier token
//! that a token attends to, and k for each cached token. So in any stretch of time in which the engine is never idle,
//!
//! ```text
//!     length = a·steps + b·output + c·Σcontext + r·prompts + p·ΣU + q·Σ(U²/2 + UK) + k·ΣK
//! ```
//!
//! A gateway observes the length and all sums except the number of steps. Single requests do not give the coefficients,
//! because the duration of a request depends on the others in flight. Stretches of time do, if they begin and end at
//! moments at which the sums are known.
//!
//! # Steps
//! The step clock counts the steps. In a step, each request that streams gets one token for each of its choices. So a
//! chunk adds (tokens of the chunk) ÷ (choices of all requests that stream) steps. The tokens per chunk are learned for
//! each [`WorkSource`], because some engines send several tokens at once. As steps are counted, the fixed cost of a
//! step and the cost of a token are separate coefficients. So the price of an output token, a/n + b, is known for any
//! batch n without being learned again.
//!
//! # Windows
//! A window is a stretch of time that begins and ends at moments at which the sums are known. It may close once it has
//! lasted 250 ms and has 24 steps, or once it has lasted 4 s. It closes at a request's first token, when one prompt has
//! just been read and the next one has not been begun, or while no prompt is being read. So each prompt belongs to
//! exactly one window, that of its first token. Nobody knows when the prompt of a request that does not stream is read.
//! While such a request is in flight, windows close at first tokens only. The chunks of one step come in any order, and
//! the step clock is exact only between steps. So a window closes with the last chunk of a burst, after which no chunk
//! comes for 0.5 ms.
//!
//! The output and the context of a request are spread evenly over its steps. A request that does not stream counts as
//! if it had decoded in its last S/C steps.
//!
//! A window is dropped in four cases: it is longer than 10 s; the worker was idle in it; for more than 2 % of it,
//! nothing streamed while requests that do not stream were in flight; or more requests were in flight than a meter
//! follows. A window is used when all requests that were in flight at its close have ended, because only then are their
//! tokens known. A window that has waited for 120 s is used with estimates for the requests that still run, or dropped
//! if the prompt of one of them lies in it.
//!
//! # The fit
//! The fit is by least squares over the windows, without negative coefficients, on sums of 7 × 7. A window of y
//! milliseconds has the weight 1 ÷ ((3 ms)² + (1 % of y)²). If its relative error e exceeds m, the larger of 4σ and 10
//! %, the weight is multiplied by m ÷ e; σ is the typical relative error of windows. A ridge λ · Σ (x ÷ x₀ − 1)² draws
//! the coefficients x towards x₀, the multiple of the start ratios that fits best. λ is Σwy² ÷ Σy times 1 ms. After n >
//! 20 windows the factor is 20 ÷ n ms, but at least 0.05 ms: a fit of few windows needs the start ratios, and a fit of
//! many should not keep their errors.
//!
//! There is one set of sums for each power of two of the batch. A set fades only with time spent at its batch. So what
//! was learned under light load, which separates a from the other coefficients, is not forgotten under full load. If 12
//! of the last 16 windows are off in one direction by more than 6 % and 2.5σ, the engine has changed. The coefficients
//! are then learned again, from those of the last 16 windows that are off in that direction.
//!
//! # From coefficients to prices
//! Prices are those of a full worker, even while the worker is not full, because only on a full worker does a request
//! take time from others. The prices are input = p, input_input = q, cached = k, context_output = c, request = r + h
//! and output = a/n + b − ρh. The batch n is slots × fill, where the fill is the part of the slots that decode, and ρ
//! is the number of prompts per output token. Fill and ρ are means over about the last 30 s of full windows. The fill
//! starts as if 10 s with a fill of 0.95 had come before, because a worker that fills up first reads prompts in all its
//! slots. h is half of what a prompt saves by being read in the same pass as a step. A fit with r < a/2 shows an engine
//! that reads prompts in that way.
//!
//! Until the first window is complete, new prices are published about every second, from what is expected of the
//! requests that still run. Later, new prices are published every 5 s if the cost of a typical request of some source
//! changes by at least 1 %. They are published at once when the slots change. Each price is at most 64 times that of
//! the start ratios, scaled to the worker.
//!
//! A request that was granted before the first window is complete is settled at the prices that apply at its end. The
//! prices at its grant were a guess ([`WorkerPriceSet::is_guess`]), and a charge is not corrected later. With 64 slots,
//! two tenants would otherwise have wrong shares for a minute if the start ratios are wrong by a factor of four.
//!
//! # Margins
//! [`WorkerTimeMeter::cost_margin`] returns how far the cost of a request may be from the truth. A margin belongs to a
//! request and not to a price, because the errors of single coefficients offset each other. In the simulation of steady
//! load, nine of ten true costs are within the margin, and the others exceed it by at most one percent of the cost.
//!
//! # What one tenant can do
//! Prices come from lengths of time and from counts that workers report. No tenant can state a number that changes
//! them. A tenant that reads slowly or leaves early makes windows less exact for all; windows that are off by more than
//! 4σ lose weight. The number of tokens per chunk is learned for each tenant and model, so a tenant affects only its
//! own.
//!
//! # Limits
//! - An engine that reads prompts and decodes in one pass has no single true cost: a prompt may pay what it adds to the
//!   pass, or what it would cost alone. h takes the middle. The simulation takes half of a mixed pass for each side as
//!   the truth. If the engine reads 2048 tokens of a prompt in a pass, two tenants are then within 6 % of it and six
//!   within 11 %. With 512 tokens, a pass is hardly longer than a step, and tenants are up to 16 % off.
//! - Speculative decoding is priced at mean acceptance: a tenant whose tokens are accepted less often pays too little.
//! - Work that token counts do not show (images, grammars, adapters) is paid by all requests.
//! - If nothing streams, steps cannot be counted, and nothing is learned.
//! - The gateway must see all requests of the worker. Load from elsewhere looks like a slower engine.
//!
//! This module is the only one with floats. Prices leave it as [`WorkerPriceSet`]s in whole picoseconds. The floats use
//! basic operations only, so equal events give equal prices on every machine.

mod cost;
mod float_math;
mod full_windows;
mod least_squares;
mod meter;
mod recent_windows;
mod running_requests;
mod source_deviations;
mod token_weights;
mod window_log;
mod window_model;
mod work_sources;

#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a simulation of an engine, in floats"
)]
mod simulation;

pub use cost::{FullBatch, RequestWork, WorkerPrices};
pub use meter::{GrantedRequest, LearningState, MeterStatus, WorkerPriceSet, WorkerTimeMeter};
pub use recent_windows::PredictedWindow;
pub use running_requests::MeteredRequest;
pub use token_weights::NearestTokenWeights;
pub use work_sources::WorkSource;
