//! What a request is expected to use, and what that comes to in charged tokens.

use bytes::Bytes;
use fairgate_dialect::Usage;
use fairgate_dialect::estimate::{Expected, Table, Weights};

use super::passage::In;
use super::stage::Routed;

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

/// What is expected, in charged tokens.
pub(super) fn estimate(weights: Weights, expected: Expected) -> u64 {
    weights.charge(Usage { input: expected.input, cached: 0, output: expected.output })
}
