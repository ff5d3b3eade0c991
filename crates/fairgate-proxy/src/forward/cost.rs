//! Estimates of a request's usage, and their cost in charged tokens and in the unit of the pool.
//!
//! In a pool that counts money, the estimate of a request is the cost of its expected tokens on the
//! most expensive worker that it may go to, as if nothing were cached.

use std::sync::Arc;

use bytes::Bytes;
use fairgate_config::{FileCostConfig, ModelConfig};
use fairgate_dialect::estimate::{TokenEstimate, TokenWeights};
use fairgate_dialect::{Dialect, FileTokenRates, RequestFiles, TokenUsage};
use fairgate_money::TokenCounts;

use super::accept::ScheduledCost;
use super::budget;
use super::client_choices::ClientChoices;
use super::request_guard::{RequestArrival, RequestIn};
use super::stage::{AcceptedRequest, RoutedRequest};
use super::worker_filter::WorkerFilter;
use crate::pools::{LastWorker, PoolSetup, PoolWorker, RequestPrefix};
use crate::refusal::{self, Refusal};
use crate::worker_time::CostTerms;

/// Estimates the usage of a request. The input is counted with the pool's tokenizer, if there is one and it can count
/// this body.
pub(super) async fn expect(
    routed: &RequestIn<'_, RoutedRequest>,
    model: &ModelConfig,
    setup: &PoolSetup,
    body: &Bytes,
) -> TokenEstimate {
    let table = setup.tokens;
    let exact = match table {
        None => None,
        Some(table) => {
            let (route, body) = (routed.arrival().route, body.clone());
            let counting = tokio::task::spawn_blocking(move || table.count(route, &body));
            Box::pin(counting).await.ok().flatten()
        }
    };
    let (tenant, ask) = (&routed.arrival().caller.tenant, &routed.ask);
    let expected = routed.pool.estimator.estimate(tenant, &ask.model, ask, exact);
    // Only a reservation needs the tokens of files; the scheduler's estimate learns them from
    // earlier answers.
    if !ask.mentions_files || !budget::may_reserve(&routed.arrival().caller, setup) {
        return expected;
    }
    let (ask, body) = (ask.clone(), body.clone());
    let rates = file_rates(&setup.config.cost.files, model);
    // If the search fails, one unreadable file is assumed.
    let unknown =
        RequestFiles { count: 1, tokens: rates.unreadable_tokens, text_bytes: body.len() as u64 };
    let searching = tokio::task::spawn_blocking(move || ask.files(&body, &rates));
    expected.with_files(Box::pin(searching).await.unwrap_or(unknown))
}

/// Returns the rates that give an upper bound on the tokens of the files in a request for this
/// model.
fn file_rates(cost: &FileCostConfig, model: &ModelConfig) -> FileTokenRates {
    FileTokenRates {
        pdf_page_tokens: cost.pdf_page_tokens,
        pdf_bytes_per_token: cost.pdf_bytes_per_token,
        image_pixels_per_token: cost.image_pixels_per_token,
        image_tokens_min: cost.image_tokens_min,
        image_tokens_max: cost.image_tokens_max,
        audio_bytes_per_token: cost.audio_bytes_per_token,
        unreadable_tokens: model.context_tokens.unwrap_or(cost.unreadable_tokens),
    }
}

/// Looks up the workers that have the prompt cached. `None` if the pool has no prefix index, or the request has no
/// prompt.
pub(super) fn look_up_prefix(
    routed: &RequestIn<'_, RoutedRequest>,
    model: &ModelConfig,
    body: &Bytes,
    input_tokens: u64,
) -> Option<Box<RequestPrefix>> {
    let index = routed.pool.caches.index()?;
    let arrival = routed.arrival();
    let name = model.upstream_name.as_ref().unwrap_or(&model.name);
    index.look_up(&routed.ask, arrival.route, body, (&arrival.caller.tenant, name), input_tokens)
}

/// Returns the worker that ran the last request of the session. `None` if the request names no session, or the pool has
/// no sticky sessions.
///
/// This is a guess, because the prompts are not compared. It only influences the placement. The cost of the request,
/// which also affects its class and the shares of others, must not depend on a name that the client chose.
pub(super) fn last_worker(
    routed: &RequestIn<'_, RoutedRequest>,
    input_tokens: u64,
) -> Option<Box<LastWorker>> {
    let session = routed.session.as_deref()?;
    let sessions = routed.pool.caches.sessions()?;
    sessions.last(&routed.arrival().caller.key, session, input_tokens).map(Box::new)
}

/// Returns the most input tokens that are cached on any one worker that may take the request.
pub(super) fn most_cached(
    setup: &PoolSetup,
    chosen: &ClientChoices,
    dialect: Dialect,
    prefix: Option<&RequestPrefix>,
) -> u64 {
    let may_take = |name: &str| {
        setup.worker(name).is_some_and(|worker| {
            !worker.is_drained
                && worker.upstream.speaks(dialect)
                && chosen.worker.allows(&worker.upstream.config)
        })
    };
    prefix.map_or(0, |prefix| prefix.most_cached(may_take))
}

/// Converts expected usage to charged tokens, with `cached` of the input tokens read from a cache.
pub(super) fn estimate(weights: TokenWeights, expected: TokenEstimate, cached: u64) -> u64 {
    let TokenEstimate { input, output, .. } = expected;
    weights.charge(TokenUsage { input, cached: cached.min(input), output })
}

/// Returns the expected cost in the unit of the pool; `None` if the pool counts tokens. `cached` is
/// the number of cached input tokens, if known; otherwise the cached part of the tenant's recent
/// requests for the model is assumed. Refuses the request if the pool counts money and no worker
/// that it may go to has a price now.
pub(super) fn scheduled(
    routed: &RequestIn<'_, RoutedRequest>,
    setup: &PoolSetup,
    choice: &WorkerFilter,
    expected: TokenEstimate,
    cached: Option<u64>,
) -> Result<Option<ScheduledCost>, Refusal> {
    let (ask, tenant) = (&routed.ask, &routed.arrival().caller.tenant);
    match setup.expected_terms() {
        CostTerms::Tokens => Ok(None),
        CostTerms::WorkerTime(terms) => {
            let TokenEstimate { input, output, .. } = expected;
            let cached = cached.unwrap_or_else(|| setup.usually_cached(tenant, &ask.model, input));
            let cost = |cached| terms.cost(TokenUsage { input, cached, output }, ask.choices);
            Ok(Some(ScheduledCost { cost: cost(cached.min(input)), uncached: cost(0) }))
        }
        CostTerms::Money => money_estimate(routed, setup, choice, expected).map(Some),
    }
}

/// Returns the highest cost of expected usage on any worker that the request may go to, in micro-units.
fn money_estimate(
    routed: &RequestIn<'_, RoutedRequest>,
    setup: &PoolSetup,
    choice: &WorkerFilter,
    TokenEstimate { input, output, .. }: TokenEstimate,
) -> Result<ScheduledCost, Refusal> {
    let RequestArrival { app, started_at, .. } = routed.arrival();
    let (config, model) = (app.config.load(), &routed.ask.model);
    let tokens = TokenCounts { input, output, ..TokenCounts::default() };
    let serves =
        |worker: &&Arc<PoolWorker>| worker.serves(model) && choice.allows(&worker.upstream.config);
    let prices = setup.workers.iter().filter(serves).filter_map(|worker| {
        config.prices.price(model, worker.upstream.config.name_in_file(), *started_at)
    });
    let most = prices.map(|price| price.max_cost(tokens)).max();
    let cost = most.ok_or_else(|| refusal::model_has_no_price_in_pool(model))?.0;
    Ok(ScheduledCost { cost, uncached: cost })
}

/// Returns the tokens that a provider may count for the request: the expected input plus the output. The output is the
/// cap on all its answers together, or the expected output if there is no cap. The count is corrected when the request
/// has ended.
pub(super) fn quota(accepted: &AcceptedRequest, cap: Option<u64>) -> u64 {
    let TokenEstimate { input, output, .. } = accepted.terms.expected;
    let ask = &accepted.ask;
    let output = cap.or(ask.max_tokens).map_or(output, |each| each.saturating_mul(ask.choices));
    input.saturating_add(output)
}
