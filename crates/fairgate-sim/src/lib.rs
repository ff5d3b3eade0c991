//! A simulated model backend. It serves the OpenAI and Anthropic APIs over real sockets, answers
//! the same prompt with the same text, takes the time a model would take, and misbehaves on
//! request.
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
//! - **Routes**: `POST /v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/responses`
//!   (OpenAI), `/v1/messages`, `/v1/messages/count_tokens` (Anthropic); `GET /v1/models`,
//!   `/health`, `/metrics` (in vLLM's format: requests running and waiting, the cache's size, the
//!   process's start). HTTP/1.1, or HTTP/2 by prior knowledge.
//! - **Output**: words chosen by the prompt's hash. One word is one token, and each token is one
//!   event of a stream. Of a tool call's arguments, every four characters are one token. An answer
//!   has [`SimOptions::output_tokens`] tokens unless the request's own limit is lower.
//! - **Input tokens**: the bytes of all strings in the prompt's fields — `messages`, `system`, `prompt`, `input`,
//!   `instructions`, `tools`; not keys, and not the values of `role` and `type` — divided by
//!   [`SimOptions::bytes_per_token`] and rounded up once per prompt; one for each token id;
//!   [`SimOptions::image_tokens`] for each image.
//! - **Time**: the wait for a slot, then [`prefill_base`](SimOptions::prefill_base) +
//!   [`prefill_per_token`](SimOptions::prefill_per_token) × uncached input tokens to the first
//!   token, then [`decode_per_token`](SimOptions::decode_per_token) to each next token.
//!   [`prefill_at_once`](SimOptions::prefill_at_once) prompts are prefilled at the same time.
//!   Headers are sent with the first token. All waiting uses tokio's clock, which tests can pause.
//! - **Slots**: [`SimOptions::slots`] requests at once; further requests wait, first come, first
//!   served. A client that leaves frees its slot or its place in the queue at once.
//! - **Tool calls**: if `tool_choice` asks for one (`required`, `any`, or a name), or if there are
//!   `tools` and the last message contains the word `call_tool` (or `call_tool:name`).
//! - **Prefix cache**, if [`SimOptions::prefix_cache_blocks`] is not 0: whole blocks of
//!   [`CACHE_BLOCK_TOKENS`] with which an earlier prompt for the model began count as cached, and
//!   the usage reports them.
//!
//! # A provider's limits
//! With a [`SimAccount`] the backend behaves like a hosted API. It limits requests and tokens per minute with token
//! buckets ([`AccountOptions`]), states the limits in headers in the format of OpenAI or Anthropic, and answers 429
//! with the time to wait. Several backends with one `Arc<SimAccount>` share the account's limits.
//! [`SimAccount::counts`] returns the number of accepted and refused requests, and [`LimitHeaderFault`] makes the
//! headers wrong. `count_tokens` is not limited.
//!
//! # Steering
//! If [`SimOptions::steering`] is on, a request can choose its own fault and the length of its
//! answer, also from another process and through a proxy. It does so with the headers `x-sim-fault:
//! reset-mid` and `x-sim-tokens: 150`, or with the markers `[sim:fault=reset-mid]` and
//! `[sim:tokens=150]` anywhere in the prompt's text. The longest length is a million tokens. A
//! header takes precedence over a marker, and both take precedence over [`Sim::set_fault`]. `PUT
//! /sim/fault` with the text form of a [`SimFault`] or `none` sets the fault for all requests. `GET
//! /sim/stats` returns [`SimStats`] as JSON; if the backend has an account, the field `account` has
//! its [`AccountCounts`].
//!
//! # Bounds
//! Memory is bounded by limits on the size of bodies ([`SimOptions::body_bytes_max`]), on waiting requests
//! ([`SimOptions::waiting_max`]), on the list of ended requests ([`SimOptions::log_len`]) and on cached blocks. The
//! body of a request is dropped before the request waits. Streams are generated only as fast as their clients read. The
//! number of connections is limited only by the system's limit of open files.
//!
//! # Benchmarks
//! With [`SimMode::Trivial`] nothing is parsed or decided: each request gets the same chat
//! completion of 1 KB. If its body contains `"stream": true`, the request gets a stream whose
//! chunks contain `sent_unix_us`, the time of sending in microseconds since 1970.

mod account;
mod answer;
mod answer_sender;
mod backend;
mod body;
mod bucket;
mod connection;
mod error_response;
mod fault;
mod in_flight;
mod limit_headers;
mod limit_statement;
mod metrics;
mod options;
mod prefix_cache;
mod prompt;
mod request;
mod respond;
mod route;
mod server;
mod service;
mod sliding_window;
mod stats;
mod text;
mod tool;
mod trivial;
mod wire;

pub use account::{AccountCounts, AccountOptions, LimitScope, QuotaRefill, SimAccount};
pub use fault::{OVERSIZED_EVENT_BYTES_MAX, SimFault, UnknownFaultError, UsageFault};
pub use limit_statement::{LimitHeaderFault, LimitHeaders};
pub use options::{ApiKey, BytesPerToken, OutputLength, SimMode, SimOptions, TrivialOptions};
pub use prompt::CACHE_BLOCK_TOKENS;
pub use server::Sim;
pub use stats::{RequestRecord, SimOutcome, SimStats};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
