//! Checks the budgets of a request: refuses the request if a budget has no room, reserves the most that the
//! request may use, and decides whether the request may go to hosted workers.
//!
//! A request for which a hosted budget has no room may go only to own workers, which the `allow` of its
//! submit lists. It is refused if no own worker can run it, or if the pool has `hosted_over_budget: refuse`.
//! Budgets of groups, tenants, keys and the whole hosted tier are in the store. Budgets of models are in the
//! configuration file and come with each reservation; the store keeps only their sums
//! (`BudgetScope::HostedModel`).
//!
//! Tokens are reserved before the request is queued, so that no slot is held while the store works.

use std::sync::Arc;

use fairgate_config::{HostedOverBudget, UpstreamConfig};
use fairgate_dialect::TokenUsage;
use fairgate_money::TokenCounts;
use fairgate_store::{
    BudgetBalance, BudgetExhausted, BudgetOwners, BudgetTier, BudgetUnit, HostedMaximum,
    Reservation, ReservationGrant, ReservationRefused, StoreError, UnixMicros, UsageTerms,
    UsageWindow,
};
use tokio::time::Instant;

use fairgate_time::wall_clock;

use super::request_guard::{RequestArrival, RequestIn};
use super::send::PoolRequest;
use super::stage::{AcceptedRequest, CountedRequest};
use super::worker_filter::WorkerFilter;
use crate::identity::Caller;
use crate::pools::{PoolSetup, PoolWorker};
use crate::refusal::{self, Refusal};

/// Refuses the request if a token budget is used up. Returns the output cap for a budgeted request that states no cap
/// itself.
pub(super) async fn check(
    accepted: &RequestIn<'_, AcceptedRequest>,
) -> Result<Option<u64>, Refusal> {
    let now = wall_clock::now();
    let arrival = accepted.arrival();
    let caller = &arrival.caller;
    let owners = BudgetOwners {
        group: Some(&caller.group),
        tenant: Some(&caller.tenant),
        key: Some(&caller.key),
        ..BudgetOwners::default()
    };
    let budgets = arrival.app.store.budgets(owners, now).await;
    let budgets =
        budgets.map_err(|error| unavailable(arrival, &error, "budgets cannot be read"))?;
    // Budgets of money and of the hosted tier are checked by the reservation, because they depend
    // on the worker.
    let is_spent = |budget: &BudgetBalance| {
        budget.tier == BudgetTier::Any
            && budget.unit == BudgetUnit::Tokens
            && budget.used >= budget.limit
    };
    if let Some(spent) = budgets.into_iter().find(is_spent) {
        let exhausted = BudgetExhausted {
            scope: spent.scope,
            owner: spent.owner,
            period: spent.period,
            unit: spent.unit,
            tier: spent.tier,
            limit: spent.limit,
            used: spent.used,
            reserved: spent.reserved,
            wanted: accepted.terms.estimate_uncached.max(1),
            waits_for_files: false,
            resets_at: spent.resets_at,
        };
        return Err(refused(arrival, &exhausted, now));
    }
    let default = accepted.pool.setup().config.cost.max_tokens_default;
    let states_none = arrival.route.generates() && accepted.ask.max_tokens.is_none();
    Ok(states_none.then(|| accepted.ask.capped(default)))
}

/// Returns true if the request needs a reservation, because the caller has a budget or the pool has hosted workers.
pub(super) fn needs_reservation(counted: &RequestIn<'_, CountedRequest>) -> bool {
    may_reserve(&counted.arrival().caller, &counted.pool.setup())
}

/// Returns true if requests of this caller in this pool may need a reservation.
pub(super) fn may_reserve(caller: &Caller, setup: &PoolSetup) -> bool {
    caller.budgeted || setup.has_hosted_tier
}

/// Reserves the most that a request may use. Returns true if the request may go to hosted workers, and false
/// if it may go only to own workers. Refuses the request if a budget that it needs has no room.
pub(super) async fn reserve(
    counted: &RequestIn<'_, CountedRequest>,
    pool_request: &PoolRequest,
) -> Result<bool, Refusal> {
    let arrival = counted.arrival();
    let caller = &arrival.caller;
    let setup = counted.pool.setup();
    let candidates = candidates(&setup, &pool_request.chosen.worker);
    let has_hosted = candidates.iter().any(|worker| worker.is_hosted_tier());
    let may_use_hosted = has_hosted && caller.may_use_hosted && pool_request.model.config.hosted;
    let dialect = arrival.route.dialect();
    let is_own = |worker: &&Arc<PoolWorker>| !worker.is_hosted_tier();
    let has_own =
        candidates.iter().copied().filter(is_own).any(|worker| worker.upstream.speaks(dialect));
    if !may_use_hosted && !has_own {
        return Err(refusal::hosted_not_allowed(&counted.ask.model));
    }
    let model_budgets = pool_request.model.hosted_budgets();
    let is_hosted_budgeted = caller.hosted_budgeted || !model_budgets.is_empty();
    let is_budgeted = caller.budgeted || (may_use_hosted && is_hosted_budgeted);
    if !is_budgeted {
        return Ok(may_use_hosted);
    }
    let counts_hosted_money = caller.hosted_money_budgeted
        || model_budgets.iter().any(|budget| budget.unit == BudgetUnit::Money);
    if caller.money_budgeted || (may_use_hosted && counts_hosted_money) {
        check_price(counted, &candidates, may_use_hosted)?;
    }
    let over_budget = setup.config.hosted_over_budget;
    let reservation = Reservation {
        model_budgets,
        ..reservation(counted, pool_request, &candidates, may_use_hosted, has_own)
    };
    drop(candidates);
    drop(setup);
    let now = reservation.at;
    match arrival.app.store.reserve(reservation).await {
        Ok(Ok(ReservationGrant { hosted: false, hosted_exhausted: Some(why) }))
            if may_use_hosted && (!has_own || over_budget == HostedOverBudget::Refuse) =>
        {
            Err(refused(arrival, &why, now))
        }
        Ok(Ok(granted)) => {
            if let Some(why) = &granted.hosted_exhausted {
                arrival.app.fleet.note_budget_refusal(why);
            }
            Ok(may_use_hosted && granted.hosted)
        }
        Ok(Err(ReservationRefused::Budget(exhausted))) => Err(refused(arrival, &exhausted, now)),
        Ok(Err(ReservationRefused::LeaseLost(lost))) => Err(refusal::task_lost(&lost)),
        Ok(Err(ReservationRefused::TaskCap(reached))) => {
            let currency = arrival.app.config.load().prices.currency();
            Err(refusal::task_cap_reached(&reached, currency))
        }
        Ok(Err(ReservationRefused::Window(exhausted))) => {
            Err(refusal::project_budget_exhausted(&exhausted, now))
        }
        Err(error) => Err(unavailable(arrival, &error, "what it may use cannot be reserved")),
    }
}

/// Returns the refusal of a request for which a budget has no room, and notes it for the fleet's webhooks.
fn refused(arrival: &RequestArrival, exhausted: &BudgetExhausted, now: UnixMicros) -> Refusal {
    arrival.app.fleet.note_budget_refusal(exhausted);
    let currency = arrival.app.config.load().prices.currency();
    refusal::budget_exhausted(exhausted, currency, now)
}

/// Returns the workers that the request may go to. Returns all of the pool's workers if the request may go to none,
/// because the pool refuses such a request later.
fn candidates<'a>(setup: &'a PoolSetup, choice: &WorkerFilter) -> Vec<&'a Arc<PoolWorker>> {
    let allowed: Vec<_> =
        setup.workers.iter().filter(|worker| choice.allows(&worker.upstream.config)).collect();
    if allowed.is_empty() { setup.workers.iter().collect() } else { allowed }
}

/// If a budget of money applies to the request, refuses the request unless its cost can be known.
/// At least one worker that the request may go to must have a price for the model, and so must
/// every hosted worker that it may go to. Own workers without a price cost nothing.
fn check_price(
    counted: &RequestIn<'_, CountedRequest>,
    candidates: &[&Arc<PoolWorker>],
    may_use_hosted: bool,
) -> Result<(), Refusal> {
    let model = &counted.ask.model;
    let config = counted.arrival().app.config.load();
    let at = counted.arrival().started_at;
    let has_price = |upstream: &UpstreamConfig| {
        config.prices.price(model, upstream.name_in_file(), at).is_some()
    };
    let workers = || candidates.iter().map(|worker| &worker.upstream.config);
    let is_priced = workers().any(&has_price)
        && (!may_use_hosted || workers().filter(|upstream| upstream.tier > 0).all(&has_price));
    if is_priced { Ok(()) } else { Err(refusal::model_has_no_price(model)) }
}

fn reservation(
    counted: &RequestIn<'_, CountedRequest>,
    pool_request: &PoolRequest,
    candidates: &[&Arc<PoolWorker>],
    may_use_hosted: bool,
    has_own: bool,
) -> Reservation {
    let arrival = counted.arrival();
    let caller = &arrival.caller;
    let at = wall_clock::now();
    let most = most(counted, pool_request.cap);
    let provider_tokens = most.input.saturating_add(most.output);
    let config = arrival.app.config.load();
    let money = |hosted: bool| {
        let workers = candidates.iter().map(|worker| &worker.upstream.config);
        let upstreams: Vec<&str> = workers
            .filter(|upstream| (upstream.tier > 0) == hosted)
            .map(UpstreamConfig::name_in_file)
            .collect();
        let counts =
            TokenCounts { input: most.input, output: most.output, ..TokenCounts::default() };
        config.prices.max_cost(&counted.ask.model, upstreams, at, counts)
    };
    let hosted = may_use_hosted.then(|| HostedMaximum { provider_tokens, money: money(true) });
    let own = if has_own { Some(money(false)) } else { hosted.map(|hosted| hosted.money) };
    Reservation {
        request: (&*arrival.id).into(),
        group: (&*caller.group).into(),
        tenant: (&*caller.tenant).into(),
        key: (&*caller.key).into(),
        model: counted.ask.model.clone(),
        tokens: counted.pool.setup().weights.charge(most),
        provider_tokens,
        money: own.unwrap_or_default(),
        hosted,
        model_budgets: Vec::new(),
        claim: caller.claim.clone(),
        has_files: counted.terms.expected.has_files,
        terms: UsageTerms {
            window: UsageWindow::new(config.fleet.window),
            budget: config.fleet.budget,
        },
        at,
    }
}

/// Logs a failed database call, and returns the refusal of the request that cannot go on without the call's result.
/// `what` is the log message.
fn unavailable(arrival: &RequestArrival, error: &StoreError, what: &'static str) -> Refusal {
    if let Some(left_out) = arrival.app.log_throttle.admit(what, Instant::now()) {
        tracing::error!(request = %arrival.id, %error, left_out, "{what}");
    }
    refusal::store_unavailable()
}

/// Returns the most provider tokens that a request may use, which is what its token budgets reserve.
pub(super) fn most_provider_tokens(accepted: &AcceptedRequest) -> u64 {
    let most = most(accepted, accepted.terms.output_cap);
    most.input.saturating_add(most.output)
}

/// Returns the most tokens that a request may use, with `cap` as the cap on each of its answers.
fn most(accepted: &AcceptedRequest, cap: Option<u64>) -> TokenUsage {
    let ask = &accepted.ask;
    let output = match cap.or(ask.max_tokens) {
        Some(each) => each.saturating_mul(ask.choices),
        None => accepted.terms.expected.output,
    };
    TokenUsage { input: accepted.terms.expected.input_max, cached: 0, output }
}
