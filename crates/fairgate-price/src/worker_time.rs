//! Worker time: the cost of a request in microseconds of a full worker, and how its prices are learned from what a
//! gateway observes.
//!
//! # Why not tokens
//! A tenant with long prompts and one with long answers that are charged the same number of tokens can get 10 % and 90
//! % of a GPU. The weight of an output token that would correct this depends on the engine, on the mix of requests and
//! on the batch, so nobody can configure it. Six prices of time are right for all mixes:
//!
//! ```text
//!     cost = request + input · U + input_input · (U²/2 + U·K) + cached · K + output · S + context_output · (S·I + S²/2C)
//!     I input tokens, K of them cached, U = I − K, O output tokens in C choices, S = O − C
//! ```
//!
//! [`WorkerPrices::cost`] computes this in integers. The first token of each choice comes with the prompt's pass, so it
//! is not in S.
//!
//! # What an engine does
//! An engine decodes in steps. Each step makes one token for each request that decodes, and takes a time that hardly
//! depends on their number (a), a little for each of them (b) and for each token of their context (c). Between steps, or
//! beside them, it reads prompts: r for each, p for each token, q for each token before that, k for a cached one. So in
//! any stretch of time in which the engine is never idle,
//!
//! ```text
//!     length = a·steps + b·output + c·Σcontext + r·prompts + p·ΣU + q·Σ(U²/2 + UK) + k·ΣK
//! ```
//!
//! A gateway observes the length and all sums except the steps. The coefficients do not follow from single requests,
//! because the duration of a request depends on the others in flight. They follow from stretches that begin and end
//! where the sums are known.
//!
//! # Steps
//! The step clock counts them. Each step produces a chunk of each request that streams, so each chunk adds (tokens of a
//! chunk) ÷ (requests that stream) steps. The tokens of a chunk are learned for each [`WorkSource`], because some
//! engines send several at once. So the fixed cost of a step and the cost of a token are separate coefficients, and the
//! price of an output token, a/n + b, follows any batch n without being learned again.
//!
//! # Windows
//! A window is such a stretch. Once it has 250 ms and 24 steps, or 4 s, it may close at a request's first token, when
//! one prompt has just been read and the next one not been begun, or while no prompt is being read. So each prompt lies
//! in one window, that of its first token. Nobody knows when the prompt of a request that does not stream is read;
//! while such a request is in flight, windows close at first tokens only. A step's chunks come in any order, and the
//! step clock is exact between them only, so a window closes with the last chunk of a burst: a pause of 0.5 ms must
//! follow.
//!
//! The output and the context of a request are spread evenly over its steps. A request that does not stream is taken to
//! have decoded in its last S/C steps.
//!
//! A window is dropped if it is longer than 10 s, if the worker was idle in it, if for 2 % of it requests were in flight
//! that do not stream and none that does, or if more requests were in flight than a meter follows. It is used when all
//! requests that were in flight at its close have ended, because only then their tokens are known. After 120 s it is used
//! with estimates for those that still run, or dropped if a prompt of one of them lies in it.
//!
//! # The fit
//! Least squares over the windows, without negative coefficients, on sums of 7 × 7. A window of y milliseconds has the
//! weight 1 ÷ ((3 ms)² + (1 % of y)²), times m ÷ e if its relative error e exceeds m, the larger of 4σ and 10 %; σ is the
//! typical error. A ridge λ · Σ (x ÷ x₀ − 1)² draws the coefficients x towards the multiple x₀ of the start ratios that
//! fits best. λ is Σwy² ÷ Σy times 1 ms, and after n > 20 windows times 20 ÷ n ms, but at least 0.05 ms: few windows need
//! the start ratios, and many should not keep their errors.
//!
//! There is one set of sums for each power of two of the batch, and it fades only with time spent at that batch: what
//! was learned under light load (which separates a from the rest) is not forgotten under full load. If 12 of the last
//! 16 windows are off in one direction by more than 6 % and 2.5σ, the engine has changed, and all is learned again from
//! these.
//!
//! # From coefficients to prices
//! Prices are those of a full worker, even while it is not full: only on a full worker does a request take time from
//! others. input = p, input_input = q, cached = k, context_output = c, request = r + h, output = a/n + b − ρh. The
//! batch n is slots × fill; fill and ρ, the prompts for each output token, are means over the last 30 s of full
//! windows, before which are 10 s with a fill of 0.95: a worker that fills up reads prompts in all its slots first. h
//! is half of what a prompt saves by being read in the pass of a step: an engine that reads prompts beside decoding
//! shows r < a/2.
//!
//! New prices are published every second until the first window is complete, from what is expected of the requests that
//! still run. From then on they are published every 5 s if a typical request of some source costs 1 % more or less, and
//! at once when the slots change. Each price is at most 64 times that of the start ratios, scaled to the worker.
//!
//! A request that was granted before the first window is complete is settled at the prices in force at its end. Those
//! at its grant were a guess ([`WorkerPriceSet::is_guess`]), and a charge is not corrected later. Start ratios four
//! times off at 64 slots would take one of two tenants' time for a minute otherwise.
//!
//! # Margins
//! [`WorkerTimeMeter::cost_margin`] tells how far the cost of a request may be from the truth. Margins are for requests and
//! not for prices, because single coefficients trade against each other. In the simulation of steady load, nine of ten
//! true costs are inside, and the others at most one percent of the cost outside.
//!
//! # What one tenant can do
//! Prices come from lengths of time and from counts that workers report, not from anything that a tenant states. A
//! tenant that reads slowly or leaves early makes windows less exact for all; windows that are off by more than 4σ lose
//! weight. A tenant decides for its own requests only how many tokens a chunk is taken to have.
//!
//! # Limits
//! - An engine that reads prompts and decodes in one pass has no single truth: prompts may pay what they add, or what
//!   they would cost alone. h takes the middle. In the simulation, with half of a mixed pass for each side as the truth,
//!   two tenants are within 6 % of it and six within 11 % if the engine reads 2048 tokens of a prompt in a pass. With 512
//!   tokens in a pass, which then is hardly longer than a step, they are up to 16 % off.
//! - Speculative decoding is priced at mean acceptance: a tenant whose tokens are accepted less often pays too little.
//! - Work that token counts do not show (images, grammars, adapters) is paid by all requests.
//! - If nothing streams, steps cannot be counted, and nothing is learned.
//! - The gateway must see all requests of the worker. Load from elsewhere looks like a slower engine.
//!
//! Floats are in this module only. What leaves it are [`WorkerPriceSet`]s in whole picoseconds. The floats use basic
//! operations only, so equal events give equal prices on every machine.

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
