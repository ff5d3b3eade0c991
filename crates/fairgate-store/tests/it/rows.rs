//! Rows and reservations to write, as plain as possible, and ways to look at what became of them.

use fairgate_store::{
    AttemptOutcome, AttemptRow, Budget, BudgetExhausted, BudgetOwners, BudgetPeriod, BudgetScope,
    DirectoryChange, DirectoryLimits, KeyRights, MicroUnits, Reservation, ReservationRefused,
    Store, UnixMicros, UsageSource, UsageTerms,
};

/// 2026-11-15 08:30 UTC, a Sunday in the middle of a month.
pub(crate) const NOW: UnixMicros = UnixMicros(1_794_731_400_000_000);
pub(crate) const HOUR: i64 = 3_600_000_000;
pub(crate) const DAY: i64 = 24 * HOUR;

pub(crate) fn after(micros: i64) -> UnixMicros {
    UnixMicros(NOW.0 + micros)
}

pub(crate) fn attempt(request: &str, tenant: &str, key: &str, charged: u64) -> AttemptRow {
    AttemptRow {
        request: request.to_owned(),
        attempt: 1,
        last: true,
        started_at: NOW,
        group: "staff".to_owned(),
        tenant: tenant.to_owned(),
        key: key.to_owned(),
        agent: None,
        session: Some("s-1".to_owned()),
        route: "/v1/chat/completions".to_owned(),
        stream: true,
        model: "llama".to_owned(),
        pool: Some("llama".to_owned()),
        worker: Some("gpu-1".to_owned()),
        estimate: 100,
        input_tokens: 10,
        cached_tokens: 4,
        output_tokens: charged.saturating_sub(10),
        charged,
        usage: UsageSource::Reported,
        waited_us: 1_500,
        first_token_us: Some(20_000),
        total_us: 90_000,
        status: 200,
        outcome: AttemptOutcome::Completed,
        code: None,
        brownout: false,
        occupied: 0,
        provider_tokens: charged,
        money: MicroUnits::ZERO,
        price: None,
        tier: 0,
        class: None,
        cache_written_tokens: 3,
        cache_written_1h_tokens: 1,
        estimate_uncached: 130,
        charged_uncached: charged.saturating_add(3),
        worker_us: 30,
        price_set: Some("wt-1".to_owned()),
        claim: None,
    }
}

/// An attempt that failed before its first byte, so that another worker was tried.
pub(crate) fn retried(request: &str, tenant: &str, key: &str, charged: u64) -> AttemptRow {
    AttemptRow {
        last: false,
        first_token_us: None,
        status: 502,
        outcome: AttemptOutcome::Retried,
        code: Some("upstream_unreachable".to_owned()),
        ..attempt(request, tenant, key, charged)
    }
}

pub(crate) fn reservation(request: &str, tenant: &str, key: &str, tokens: u64) -> Reservation {
    Reservation {
        request: request.to_owned(),
        group: "staff".to_owned(),
        tenant: tenant.to_owned(),
        key: key.to_owned(),
        model: "llama".to_owned(),
        tokens,
        provider_tokens: tokens,
        money: MicroUnits::ZERO,
        hosted: None,
        model_budgets: Vec::new(),
        claim: None,
        has_files: false,
        terms: UsageTerms::default(),
        at: NOW,
    }
}

/// The budget that refused a reservation.
pub(crate) async fn exhausted(store: &Store, reservation: Reservation) -> BudgetExhausted {
    match store.reserve(reservation).await.unwrap() {
        Err(ReservationRefused::Budget(exhausted)) => exhausted,
        other => panic!("no budget refused it: {other:?}"),
    }
}

pub(crate) fn budgets(day: Option<u64>, month: Option<u64>) -> DirectoryLimits {
    let day = day.map(|tokens| Budget::tokens(tokens, BudgetPeriod::Day));
    let month = month.map(|tokens| Budget::tokens(tokens, BudgetPeriod::Month));
    DirectoryLimits {
        budgets: day.into_iter().chain(month).collect(),
        ..DirectoryLimits::default()
    }
}

/// A tenant and one of its keys.
pub(crate) fn of_key<'a>(tenant: &'a str, key: &'a str) -> BudgetOwners<'a> {
    BudgetOwners { key: Some(key), ..BudgetOwners::tenant(tenant) }
}

/// A group, and a tenant in it with these limits.
pub(crate) async fn tenant(store: &Store, name: &str, limits: DirectoryLimits) {
    let group =
        DirectoryChange::AddGroup { name: "staff".to_owned(), weight: 1, budgets: Vec::new() };
    match store.change("test", NOW, group).await {
        Ok(_) | Err(fairgate_store::StoreError::Exists { .. }) => {}
        Err(problem) => panic!("{problem}"),
    }
    let (name, group) = (name.to_owned(), "staff".to_owned());
    let add = DirectoryChange::AddTenant { name, group, weight: 1, limits, requires: Vec::new() };
    store.change("test", NOW, add).await.unwrap();
}

/// A key with these limits; its id.
pub(crate) async fn key(store: &Store, tenant: &str, limits: DirectoryLimits) -> String {
    let create = DirectoryChange::CreateKey {
        tenant: tenant.to_owned(),
        name: "laptop".to_owned(),
        weight: 1,
        limits,
        rights: KeyRights::default(),
        expires_at: None,
    };
    store.change("test", NOW, create).await.unwrap().key.unwrap().id
}

/// Used and reserved tokens of a tenant's day, which needs a budget to be seen.
pub(crate) async fn day(store: &Store, tenant: &str) -> (u64, u64) {
    standing(store, tenant, BudgetScope::Tenant, BudgetPeriod::Day, NOW).await
}

pub(crate) async fn standing(
    store: &Store,
    tenant: &str,
    scope: BudgetScope,
    period: BudgetPeriod,
    at: UnixMicros,
) -> (u64, u64) {
    let left = store.budgets(BudgetOwners::tenant(tenant), at).await.unwrap();
    let left = left.iter().find(|left| (left.scope, left.period) == (scope, period)).unwrap();
    (left.used, left.reserved)
}
