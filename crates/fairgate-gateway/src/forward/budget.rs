//! What a request's budgets say: whether anything is left, what it could use at most, and that this is reserved for it.

use fairgate_dialect::Usage;
use fairgate_store::{Exhausted, Reservation, StoreError};
use tokio::time::Instant;

use super::passage::{Arrival, In, unix_now};
use super::stage::{Accepted, Counted};
use crate::refusal::{self, Refusal};

/// Refuses where a budget is used up. Says the output cap of a request that states none.
pub(super) async fn look(accepted: &In<'_, Accepted>) -> Result<Option<u64>, Refusal> {
    let now = unix_now();
    let arrival = accepted.arrival();
    let caller = &arrival.caller;
    let budgets = arrival.app.store.budgets(&caller.tenant, Some(&caller.key), now).await;
    let budgets =
        budgets.map_err(|error| unavailable(arrival, &error, "budgets cannot be read"))?;
    if let Some(spent) = budgets.into_iter().find(|budget| budget.used >= budget.limit) {
        let exhausted = Exhausted {
            scope: spent.scope,
            period: spent.period,
            limit: spent.limit,
            used: spent.used,
            reserved: spent.reserved,
            wanted: accepted.estimate.max(1),
            resets_at: spent.resets_at,
        };
        return Err(refusal::budget_exhausted(&exhausted, now));
    }
    let default = accepted.pool.setup().config.cost.max_tokens_default;
    let states_none = arrival.route.generates() && accepted.ask.max_tokens.is_none();
    Ok(states_none.then(|| accepted.ask.capped(default)))
}

/// Reserves tokens for a request, where every budget of its tenant and key has room for them.
pub(super) async fn reserve(counted: &In<'_, Counted>, tokens: u64) -> Result<(), Refusal> {
    let arrival = counted.arrival();
    let caller = &arrival.caller;
    let now = unix_now();
    let reservation = Reservation {
        request: (&*arrival.id).into(),
        group: (&*caller.group).into(),
        tenant: (&*caller.tenant).into(),
        key: (&*caller.key).into(),
        model: counted.ask.model.clone(),
        tokens,
        at: now,
    };
    match arrival.app.store.reserve(reservation).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(exhausted)) => Err(refusal::budget_exhausted(&exhausted, now)),
        Err(error) => Err(unavailable(arrival, &error, "tokens cannot be reserved")),
    }
}

/// The database is away, and the request cannot go on without it.
fn unavailable(arrival: &Arrival, error: &StoreError, what: &'static str) -> Refusal {
    if let Some(left_out) = arrival.app.complaints.admit(what, Instant::now()) {
        tracing::error!(request = %arrival.id, %error, left_out, "{what}");
    }
    refusal::store_unavailable()
}

/// The most that a request may be charged, under this cap on each of its answers.
pub(super) fn most(accepted: &Accepted, cap: Option<u64>) -> u64 {
    let ask = &accepted.ask;
    let output = match cap.or(ask.max_tokens) {
        Some(each) => each.saturating_mul(ask.choices),
        None => accepted.expected.output,
    };
    let input = accepted.expected.input_max;
    accepted.pool.setup().weights.charge(Usage { input, cached: 0, output })
}
