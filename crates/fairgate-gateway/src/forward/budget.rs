//! What a request's budgets say: whether anything is left, what it could use at most, and that this is reserved for it.

use fairgate_dialect::Usage;
use fairgate_store::{BudgetTier, Exhausted, MicroUnits, Owners, Reservation, StoreError};
use tokio::time::Instant;

use super::passage::{Passage, unix_now};
use crate::refusal::{self, Refusal};

/// Refuses where a budget is used up. Says the output cap of a request that states none.
pub(super) async fn look(passage: &Passage) -> Result<Option<u64>, Refusal> {
    let (Some(pool), Some(ask)) = (&passage.pool, &passage.ask) else { return Ok(None) };
    let now = unix_now();
    let caller = &passage.caller;
    let owners = Owners {
        group: Some(&caller.group),
        tenant: Some(&caller.tenant),
        key: Some(&caller.key),
        hosted: false,
    };
    let budgets = passage.app.store.budgets(owners, now).await;
    let budgets =
        budgets.map_err(|error| unavailable(passage, &error, "budgets cannot be read"))?;
    let currency = passage.app.config.load().prices.currency();
    let is_spent = |budget: &fairgate_store::BudgetLeft| {
        budget.tier == BudgetTier::Any
            && budget.unit == fairgate_store::Unit::Tokens
            && budget.used >= budget.limit
    };
    if let Some(spent) = budgets.into_iter().find(is_spent) {
        let exhausted = Exhausted {
            scope: spent.scope,
            owner: spent.owner,
            period: spent.period,
            unit: spent.unit,
            tier: spent.tier,
            limit: spent.limit,
            used: spent.used,
            reserved: spent.reserved,
            wanted: passage.estimate.max(1),
            resets_at: spent.resets_at,
        };
        return Err(refusal::budget_exhausted(&exhausted, currency, now));
    }
    let default = pool.setup().config.cost.max_tokens_default;
    let states_none = passage.route.generates() && ask.max_tokens.is_none();
    Ok(states_none.then(|| ask.capped(default)))
}

/// Reserves tokens for a request, where every budget of its tenant and key has room for them.
pub(super) async fn reserve(passage: &Passage, tokens: u64) -> Result<(), Refusal> {
    let caller = &passage.caller;
    let now = unix_now();
    let reservation = Reservation {
        request: (&*passage.id).into(),
        group: (&*caller.group).into(),
        tenant: (&*caller.tenant).into(),
        key: (&*caller.key).into(),
        model: passage.ask.as_ref().map(|ask| ask.model.clone()).unwrap_or_default(),
        tokens,
        // Until provider tokens and prices are worked out here: as it was.
        provider_tokens: tokens,
        money: MicroUnits::ZERO,
        hosted: None,
        at: now,
    };
    let currency = passage.app.config.load().prices.currency();
    match passage.app.store.reserve(reservation).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(exhausted)) => Err(refusal::budget_exhausted(&exhausted, currency, now)),
        Err(error) => Err(unavailable(passage, &error, "tokens cannot be reserved")),
    }
}

/// The database is away, and the request cannot go on without it.
fn unavailable(passage: &Passage, error: &StoreError, what: &'static str) -> Refusal {
    if let Some(left_out) = passage.app.complaints.admit(what, Instant::now()) {
        tracing::error!(request = %passage.id, %error, left_out, "{what}");
    }
    refusal::store_unavailable()
}

/// The most that a request may be charged, under this cap on each of its answers.
pub(super) fn most(passage: &Passage, cap: Option<u64>) -> u64 {
    let (Some(pool), Some(ask), Some(expected)) = (&passage.pool, &passage.ask, passage.expected)
    else {
        return passage.estimate;
    };
    let output = match cap.or(ask.max_tokens) {
        Some(each) => each.saturating_mul(ask.choices),
        None => expected.output,
    };
    pool.setup().weights.charge(Usage { input: expected.input_max, cached: 0, output })
}
