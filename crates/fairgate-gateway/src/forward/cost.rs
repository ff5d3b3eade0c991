//! What a request is expected to use, and what that comes to in charged tokens.

use bytes::Bytes;
use fairgate_config::ModelConfig;
use fairgate_dialect::estimate::{Expected, Table, Weights};
use fairgate_dialect::{Dialect, Usage};

use super::chosen::Chosen;
use super::passage::In;
use super::stage::{Accepted, Routed};
use crate::pools::{LastWorker, Prefix, Setup};

/// What the request is expected to use; its input as `table` counts it, where it can.
pub(super) async fn expect(
    routed: &In<'_, Routed>,
    body: &Bytes,
    table: Option<Table>,
) -> Expected {
    let exact = match table {
        None => None,
        Some(table) => {
            let (route, body) = (routed.arrival().route, body.clone());
            let counting = tokio::task::spawn_blocking(move || table.count(route, &body));
            Box::pin(counting).await.ok().flatten()
        }
    };
    let (tenant, ask) = (&routed.arrival().caller.tenant, &routed.ask);
    routed.pool.estimator.expect(tenant, &ask.model, ask, exact)
}

/// Where the prompt is cached. `None` where the pool has no index, or the request no prompt.
pub(super) fn look_up_prefix(
    routed: &In<'_, Routed>,
    model: &ModelConfig,
    body: &Bytes,
    input_tokens: u64,
) -> Option<Box<Prefix>> {
    let index = routed.pool.caches.index()?;
    let arrival = routed.arrival();
    let name = model.upstream_name.as_ref().unwrap_or(&model.name);
    index.look_up(&routed.ask, arrival.route, body, (&arrival.caller.tenant, name), input_tokens)
}

/// Where the last request of its session ran. `None` where it names no session, or the pool does not have them stick.
///
/// This is a guess about a prompt that nobody has looked at. It says where the request had best go; its cost, and with it
/// the class and what others get, does not follow from a name that the client chose.
pub(super) fn last_worker(routed: &In<'_, Routed>, input_tokens: u64) -> Option<Box<LastWorker>> {
    let session = routed.session.as_deref()?;
    let sessions = routed.pool.caches.sessions()?;
    sessions.last(&routed.arrival().caller.key, session, input_tokens).map(Box::new)
}

/// The most input tokens that are cached on a worker which may take the request.
pub(super) fn most_cached(
    setup: &Setup,
    chosen: &Chosen,
    dialect: Dialect,
    prefix: Option<&Prefix>,
) -> u64 {
    let may_take = |name: &str| {
        setup.worker(name).is_some_and(|worker| {
            let taints = &worker.upstream.config.taints;
            !worker.is_drained
                && worker.upstream.speaks(dialect)
                && chosen.pin.as_ref().is_none_or(|pin| *pin.worker == *name)
                && chosen.requires.iter().all(|taint| taints.iter().any(|it| **it == **taint))
        })
    };
    prefix.map_or(0, |prefix| prefix.most_cached(may_take))
}

/// What is expected, in charged tokens, of which so many input tokens are cached.
pub(super) fn estimate(weights: Weights, expected: Expected, cached: u64) -> u64 {
    let Expected { input, output, .. } = expected;
    weights.charge(Usage { input, cached: cached.min(input), output })
}

/// The most that a provider may count for it: its input, and all the output that it allows. Corrected when it has ended.
pub(super) fn quota(accepted: &Accepted, cap: Option<u64>) -> u64 {
    let Expected { input, output, .. } = accepted.terms.expected;
    let ask = &accepted.ask;
    let output = cap.or(ask.max_tokens).map_or(output, |each| each.saturating_mul(ask.choices));
    input.saturating_add(output)
}
