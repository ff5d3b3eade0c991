//! A simulated model backend: it speaks the OpenAI and Anthropic APIs over real sockets, answers the same prompt with
//! the same text, takes the time a model would take, and misbehaves on request.
//!
//! ```
//! # use fairgate_sim::{Sim, SimOptions};
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let sim = Sim::start(([127, 0, 0, 1], 0).into(), SimOptions { slots: 4, ..SimOptions::default() })?;
//! println!("{}/v1/chat/completions", sim.url());
//! assert_eq!(sim.stats().requests, 0);
//! sim.stop().await;
//! # Ok::<(), std::io::Error>(())
//! # })?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # The model
//! - **Routes**: `POST /v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/responses` (OpenAI),
//!   `/v1/messages`, `/v1/messages/count_tokens` (Anthropic); `GET /v1/models`, `/health`, `/metrics` (in the shape of vLLM's: requests
//!   running and waiting, the cache's size, the process's start). HTTP/1.1, or HTTP/2 by prior knowledge.
//! - **Output**: words chosen by the prompt's hash; one word is one token, and each is one event of a stream. A tool call's
//!   arguments are one token for every four characters. An answer has [`SimOptions::output_tokens`] tokens unless the
//!   request's own limit is lower.
//! - **Input tokens**: the bytes of all strings in the prompt's fields — `messages`, `system`, `prompt`, `input`,
//!   `instructions`, `tools`; not keys, and not the values of `role` and `type` — divided by
//!   [`SimOptions::bytes_per_token`] and rounded up once per prompt; one for each token id;
//!   [`SimOptions::image_tokens`] for each image.
//! - **Time**: a slot, then [`prefill_base`](SimOptions::prefill_base) +
//!   [`prefill_per_token`](SimOptions::prefill_per_token) × uncached input tokens to the first token, then
//!   [`decode_per_token`](SimOptions::decode_per_token) to each next one. [`prefill_at_once`](SimOptions::prefill_at_once) prompts are read at
//!   the same time. Headers come with the first token. All of it runs on tokio's
//!   clock, which tests can pause.
//! - **Slots**: [`SimOptions::slots`] requests at once; the others wait, first come, first served. A client that leaves
//!   frees its slot or its place at once.
//! - **Tool calls**: where `tool_choice` asks for one (`required`, `any`, or a name), or the last message holds the word
//!   `call_tool` (or `call_tool:name`) and there are `tools`.
//! - **Prefix cache**, where [`SimOptions::prefix_cache_blocks`] is not 0: whole blocks of [`CACHE_BLOCK_TOKENS`] that an
//!   earlier prompt for the model began with count as cached, and the usage says so.
//!
//! # A provider's limits
//! With an [`Account`] it behaves like a hosted API: token buckets for requests and tokens per minute
//! ([`AccountOptions`]), headers that state them in the words of OpenAI or Anthropic, and 429 with when to come back.
//! Several backends with one `Arc<Account>` draw on it together. [`Account::counts`] tells who was accepted and refused, and
//! [`Lie`] makes the headers wrong. `count_tokens` is not limited.
//!
//! # Steering
//! Where [`SimOptions::steering`] is on, a request can choose its own fault and length, from another process and through
//! a proxy: by the headers `x-sim-fault: reset-mid` and `x-sim-tokens: 150`, or by markers anywhere in the prompt's
//! text, `[sim:fault=reset-mid]` and `[sim:tokens=150]` (at most a million tokens). A header goes before a marker, both before
//! [`Sim::set_fault`]. `PUT /sim/fault` with a [`Fault`]'s text or `none` sets the fault for all;
//! `GET /sim/stats` tells [`Stats`] as JSON, and [`AccountCounts`] as `account` where there is one.
//!
//! # Bounds
//! Bodies ([`SimOptions::body_bytes_max`]), waiting requests ([`SimOptions::waiting_max`]; their bodies are dropped
//! before they wait), remembered requests ([`SimOptions::log_len`]), cached blocks. Streams are made as fast as
//! their clients read, never ahead. How many connections there can be is the system's limit of open files.
//!
//! # Benchmarks
//! With [`Mode::Trivial`] nothing is read or decided: each request gets the same 1 KB chat completion, or, where its body
//! says `"stream": true`, a stream whose chunks hold `sent_unix_us`, the microseconds since 1970 at which each was sent.

mod account;
mod answer;
mod ask;
mod backend;
mod body;
mod bucket;
mod connection;
mod dialect;
mod fault;
mod flight;
mod metrics;
mod options;
mod prefix_cache;
mod prompt;
mod respond;
mod server;
mod service;
mod statement;
mod stats;
mod telling;
mod text;
mod tool;
mod trivial;
mod wire;

pub use account::{Account, AccountCounts, AccountOptions, Scope};
pub use fault::{Fault, OVERSIZED_EVENT_BYTES_MAX, UnknownFault, UsageFault};
pub use options::{ApiKey, BytesPerToken, Mode, OutputLength, SimOptions, TrivialOptions};
pub use prompt::CACHE_BLOCK_TOKENS;
pub use server::Sim;
pub use statement::{Lie, Statement};
pub use stats::{Outcome, RequestRecord, Stats};
