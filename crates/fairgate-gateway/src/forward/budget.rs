//! What a request's budgets say: whether anything is left, what it could use at most, that this is reserved for it, and whether
//! there is room for it on hosted workers.

use fairgate_config::{HostedOverBudget, UpstreamConfig};
use fairgate_dialect::Usage;
use fairgate_money::TokenCounts;
use fairgate_store::{
    BudgetLeft, BudgetTier, Exhausted, FleetTerms, Granted, HostedMost, Owners, Refused,
    Reservation, StoreError, Unit, Window,
};
use tokio::time::Instant;

use super::passage::{Arrival, In, unix_now};
use super::send::Wish;
use super::stage::{Accepted, Counted};
use crate::pools::Setup;
use crate::refusal::{self, Refusal};

/// Refuses where a budget of tokens is used up. Says the output cap of a request that states none.
pub(super) async fn look(accepted: &In<'_, Accepted>) -> Result<Option<u64>, Refusal> {
    let now = unix_now();
    let arrival = accepted.arrival();
    let caller = &arrival.caller;
    let owners = Owners {
        group: Some(&caller.group),
        tenant: Some(&caller.tenant),
        key: Some(&caller.key),
        ..Owners::default()
    };
    let budgets = arrival.app.store.budgets(owners, now).await;
    let budgets =
        budgets.map_err(|error| unavailable(arrival, &error, "budgets cannot be read"))?;
    // Money depends on where it goes, and what is over a hosted budget may go elsewhere: both are looked at when it is
    // reserved.
    let is_spent = |budget: &BudgetLeft| {
        budget.tier == BudgetTier::Any && budget.unit == Unit::Tokens && budget.used >= budget.limit
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
            wanted: accepted.terms.estimate.max(1),
            resets_at: spent.resets_at,
        };
        let currency = arrival.app.config.load().prices.currency();
        return Err(refusal::budget_exhausted(&exhausted, currency, now));
    }
    let default = accepted.pool.setup().config.cost.max_tokens_default;
    let states_none = arrival.route.generates() && accepted.ask.max_tokens.is_none();
    Ok(states_none.then(|| accepted.ask.capped(default)))
}

/// Whether there is anything to say: a budget of the caller's, or workers that not everybody may use.
pub(super) fn is_concerned(counted: &In<'_, Counted>) -> bool {
    counted.arrival().caller.budgeted || counted.pool.setup().has_hosted_tier
}

/// Reserves what a request may use, where its budgets have room for it. Says whether it may go to hosted workers.
pub(super) async fn reserve(counted: &In<'_, Counted>, wish: &Wish) -> Result<bool, Refusal> {
    let arrival = counted.arrival();
    let caller = &arrival.caller;
    let setup = counted.pool.setup();
    let may_use_hosted = setup.has_hosted_tier && caller.may_use_hosted && wish.model.config.hosted;
    let has_own = setup.has_own(arrival.route.dialect());
    if !may_use_hosted && !has_own {
        return Err(refusal::hosted_not_allowed(&counted.ask.model));
    }
    let model_budgets = wish.model.hosted_budgets();
    let is_hosted_budgeted = caller.hosted_budgeted || !model_budgets.is_empty();
    let is_budgeted = caller.budgeted || (may_use_hosted && is_hosted_budgeted);
    if !is_budgeted {
        return Ok(may_use_hosted);
    }
    let over_budget = setup.config.hosted_over_budget;
    let reservation = Reservation {
        model_budgets,
        ..reservation(counted, wish, &setup, may_use_hosted, has_own)
    };
    drop(setup);
    let now = reservation.at;
    let refused = |exhausted: &Exhausted| {
        let currency = arrival.app.config.load().prices.currency();
        refusal::budget_exhausted(exhausted, currency, now)
    };
    match arrival.app.store.reserve(reservation).await {
        Ok(Ok(Granted { hosted: false, why: Some(why) }))
            if may_use_hosted && (!has_own || over_budget == HostedOverBudget::Refuse) =>
        {
            Err(refused(&why))
        }
        Ok(Ok(granted)) => Ok(may_use_hosted && granted.hosted),
        Ok(Err(Refused::Budget(exhausted))) => Err(refused(&exhausted)),
        Ok(Err(Refused::LeaseLost(lost))) => Err(refusal::task_lost(&lost)),
        Ok(Err(Refused::Fleet(exhausted))) => {
            Err(refusal::project_budget_exhausted(&exhausted, now))
        }
        Err(error) => Err(unavailable(arrival, &error, "what it may use cannot be reserved")),
    }
}

fn reservation(
    counted: &In<'_, Counted>,
    wish: &Wish,
    setup: &Setup,
    may_use_hosted: bool,
    has_own: bool,
) -> Reservation {
    let arrival = counted.arrival();
    let caller = &arrival.caller;
    let at = unix_now();
    let most = most(counted, wish.cap);
    let provider_tokens = most.input.saturating_add(most.output);
    let config = arrival.app.config.load();
    let money = |hosted: bool| {
        let workers = setup.workers.iter().map(|worker| &worker.upstream.config);
        let upstreams: Vec<&str> = workers
            .filter(|upstream| (upstream.tier > 0) == hosted)
            .map(UpstreamConfig::name_in_file)
            .collect();
        let counts = TokenCounts { input: most.input, cached: 0, output: most.output };
        config.prices.most(&counted.ask.model, upstreams, at, counts)
    };
    let hosted = may_use_hosted.then(|| HostedMost { provider_tokens, money: money(true) });
    let own = if has_own { Some(money(false)) } else { hosted.map(|hosted| hosted.money) };
    Reservation {
        request: (&*arrival.id).into(),
        group: (&*caller.group).into(),
        tenant: (&*caller.tenant).into(),
        key: (&*caller.key).into(),
        model: counted.ask.model.clone(),
        tokens: setup.weights.charge(most),
        provider_tokens,
        money: own.unwrap_or_default(),
        hosted,
        model_budgets: Vec::new(),
        claim: caller.claim.clone(),
        fleet: FleetTerms { window: Window::new(config.fleet.window), budget: config.fleet.budget },
        at,
    }
}

/// The database is away, and the request cannot go on without it.
fn unavailable(arrival: &Arrival, error: &StoreError, what: &'static str) -> Refusal {
    if let Some(left_out) = arrival.app.complaints.admit(what, Instant::now()) {
        tracing::error!(request = %arrival.id, %error, left_out, "{what}");
    }
    refusal::store_unavailable()
}

/// The most that a request may use, under this cap on each of its answers.
fn most(accepted: &Accepted, cap: Option<u64>) -> Usage {
    let ask = &accepted.ask;
    let output = match cap.or(ask.max_tokens) {
        Some(each) => each.saturating_mul(ask.choices),
        None => accepted.terms.expected.output,
    };
    Usage { input: accepted.terms.expected.input_max, cached: 0, output }
}
