//! Money and hosted budgets: exact to the micro-unit, for groups, tenants, keys and the hosted tier at once.

use fairgate_store::{
    AttemptRow, AuditQuery, Budget, BudgetBalance, BudgetOwners, BudgetPeriod, BudgetScope,
    BudgetTier, BudgetUnit, Currency, DirectoryChange, DirectoryLimits, GroupPatch, HostedMaximum,
    HostedUse, MicroUnits, Price, Reservation, Store, StoreError, TenantPatch, UnixMicros,
    UsageGrouping, UsageQuery,
};

use crate::crash::all_rows;
use crate::database::{Database, on_every_database};
use crate::rows::{NOW, after, attempt, budgets, exhausted, key, reservation, retried, tenant};

on_every_database!(
    a_group_has_a_budget_over_all_its_tenants,
    hosted_budgets_leave_the_own_workers,
    a_model_has_a_budget_on_hosted_workers,
    a_row_of_an_own_worker_gives_the_hosted_part_back,
    money_is_refused_with_its_unit_and_owner,
    what_a_dead_process_held_counts_as_money_too,
    two_hundred_at_once_are_exact_in_every_sum,
    prices_are_kept_once_and_audited,
    another_currency_is_refused,
    hosted_use_is_kept,
);

const DAILY: [(BudgetUnit, BudgetTier); 4] = [
    (BudgetUnit::Tokens, BudgetTier::Any),
    (BudgetUnit::Money, BudgetTier::Any),
    (BudgetUnit::Tokens, BudgetTier::Hosted),
    (BudgetUnit::Money, BudgetTier::Hosted),
];

pub(crate) fn money(amount: u64, tier: BudgetTier) -> Budget {
    Budget { period: BudgetPeriod::Day, unit: BudgetUnit::Money, tier, amount }
}

/// A budget of every kind, so that every sum can be seen.
pub(crate) fn every_kind(amount: u64) -> Vec<Budget> {
    let periods = [BudgetPeriod::Day, BudgetPeriod::Month];
    let kinds = DAILY.iter().flat_map(|kind| periods.map(|period| (*kind, period)));
    kinds.map(|((unit, tier), period)| Budget { period, unit, tier, amount }).collect()
}

pub(crate) fn limits(budgets: Vec<Budget>) -> DirectoryLimits {
    DirectoryLimits { budgets, ..DirectoryLimits::default() }
}

pub(crate) async fn group_budgets(store: &Store, budgets: Vec<Budget>) {
    let patch = GroupPatch { budgets: Some(budgets), ..GroupPatch::default() };
    let change = DirectoryChange::PatchGroup { name: "staff".to_owned(), patch };
    let changed = store.change("test", NOW, change).await.unwrap();
    assert!(changed.group.is_some());
}

pub(crate) async fn hosted_budgets(store: &Store, budgets: Vec<Budget>) {
    store.change("test", NOW, DirectoryChange::SetHosted { budgets }).await.unwrap();
}

pub(crate) fn asks(
    request: &str,
    tenant: &str,
    tokens: u64,
    own: u64,
    hosted: Option<u64>,
) -> Reservation {
    Reservation {
        money: MicroUnits(own),
        hosted: hosted
            .map(|money| HostedMaximum { provider_tokens: tokens, money: MicroUnits(money) }),
        ..reservation(request, tenant, "k", tokens)
    }
}

pub(crate) fn costs(request: &str, tenant: &str, tokens: u64, money: u64, tier: u32) -> AttemptRow {
    AttemptRow { money: MicroUnits(money), tier, ..attempt(request, tenant, "k", tokens) }
}

pub(crate) fn everybody<'a>(tenant: &'a str, key: &'a str) -> BudgetOwners<'a> {
    let (group, tenant, key) = (Some("staff"), Some(tenant), Some(key));
    BudgetOwners { group, tenant, key, hosted: true, model: None }
}

/// Used and reserved of a day's budget.
pub(crate) fn stands(
    left: &[BudgetBalance],
    scope: BudgetScope,
    unit: BudgetUnit,
    tier: BudgetTier,
) -> (u64, u64) {
    let is_it = |left: &&BudgetBalance| {
        (left.scope, left.unit, left.tier, left.period) == (scope, unit, tier, BudgetPeriod::Day)
    };
    left.iter().find(is_it).map(|left| (left.used, left.reserved)).unwrap()
}

async fn a_group_has_a_budget_over_all_its_tenants(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    tenant(&store, "batch", DirectoryLimits::default()).await;
    group_budgets(&store, vec![Budget::tokens(100, BudgetPeriod::Day)]).await;
    store.reserve(reservation("r1", "chat", "k", 60)).await.unwrap().unwrap();
    let refused = exhausted(&store, reservation("r2", "batch", "k2", 41)).await;
    assert_eq!((refused.scope, refused.owner.as_str()), (BudgetScope::Group, "staff"));
    assert_eq!((refused.unit, refused.tier), (BudgetUnit::Tokens, BudgetTier::Any));
    store.record(attempt("r1", "chat", "k", 10)).await.unwrap();
    store.reserve(reservation("r2", "batch", "k2", 90)).await.unwrap().unwrap();
    let left =
        store.budgets(BudgetOwners { group: Some("staff"), ..BudgetOwners::default() }, NOW).await;
    assert_eq!(
        stands(&left.unwrap(), BudgetScope::Group, BudgetUnit::Tokens, BudgetTier::Any),
        (10, 90)
    );
    let group = &store.directory().await.unwrap().groups[0];
    assert_eq!(group.budgets, [Budget::tokens(100, BudgetPeriod::Day)]);
    group_budgets(&store, Vec::new()).await;
    store.reserve(reservation("r3", "batch", "k2", 1_000)).await.unwrap().unwrap();
}

async fn hosted_budgets_leave_the_own_workers(database: Database) {
    let store = database.open().await;
    let own = limits(vec![money(1_000, BudgetTier::Hosted)]);
    tenant(&store, "chat", own).await;
    tenant(&store, "free", DirectoryLimits::default()).await;
    hosted_budgets(&store, vec![money(1_500, BudgetTier::Hosted)]).await;
    let both = store.reserve(asks("r1", "chat", 10, 0, Some(900))).await.unwrap().unwrap();
    assert!(both.hosted && both.hosted_exhausted.is_none());
    let own_only = store.reserve(asks("r2", "chat", 10, 0, Some(101))).await.unwrap().unwrap();
    let why = own_only.hosted_exhausted.unwrap();
    assert!(!own_only.hosted);
    assert_eq!(
        (why.scope, why.owner.as_str(), why.tier),
        (BudgetScope::Tenant, "chat", BudgetTier::Hosted)
    );
    assert_eq!((why.limit, why.used, why.reserved, why.wanted), (1_000, 0, 900, 101));
    // The tier's own budget is for all tenants together.
    let other = store.reserve(asks("r3", "free", 10, 0, Some(601))).await.unwrap().unwrap();
    let why = other.hosted_exhausted.unwrap();
    assert_eq!((why.scope, why.owner.as_str(), why.reserved), (BudgetScope::Hosted, "*", 900));
    assert!(store.reserve(asks("r4", "free", 10, 0, Some(600))).await.unwrap().unwrap().hosted);
    // Whoever does not ask for it is not concerned.
    let home = store.reserve(asks("r5", "chat", 10, 50_000, None)).await.unwrap().unwrap();
    assert!(!home.hosted && home.hosted_exhausted.is_none());
}

async fn a_model_has_a_budget_on_hosted_workers(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    tenant(&store, "batch", DirectoryLimits::default()).await;
    let budgets = vec![money(1_000, BudgetTier::Hosted)];
    let asks = |request, tenant, model: &str, most| Reservation {
        model: model.to_owned(),
        model_budgets: budgets.clone(),
        ..asks(request, tenant, 10, 0, Some(most))
    };
    assert!(store.reserve(asks("r1", "chat", "large", 900)).await.unwrap().unwrap().hosted);
    // It is for all tenants together, and for this model alone.
    let refused = store.reserve(asks("r2", "batch", "large", 101)).await.unwrap().unwrap();
    let why = refused.hosted_exhausted.unwrap();
    assert_eq!((why.scope, why.owner.as_str()), (BudgetScope::HostedModel, "large"));
    assert_eq!((why.limit, why.used, why.reserved, why.wanted), (1_000, 0, 900, 101));
    assert!(store.reserve(asks("r3", "batch", "small", 101)).await.unwrap().unwrap().hosted);
    for (request, model, tier) in [("r1", "large", 1), ("r2", "large", 0), ("r3", "small", 1)] {
        let row = AttemptRow { model: model.to_owned(), ..costs(request, "chat", 80, 15, tier) };
        store.record(row).await.unwrap();
    }
    let left = |model, budgets| {
        let owners = BudgetOwners { model: Some((model, budgets)), ..BudgetOwners::default() };
        store.budgets(owners, NOW)
    };
    for model in ["large", "small"] {
        let left = left(model, &budgets).await.unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(
            stands(&left, BudgetScope::HostedModel, BudgetUnit::Money, BudgetTier::Hosted),
            (15, 0)
        );
    }
    // What was used before it had a budget counts too.
    let tokens = Budget { tier: BudgetTier::Hosted, ..Budget::tokens(100, BudgetPeriod::Month) };
    assert_eq!(left("large", &[tokens]).await.unwrap()[0].used, 80);
}

async fn a_row_of_an_own_worker_gives_the_hosted_part_back(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", limits(every_kind(1_000_000))).await;
    hosted_budgets(&store, vec![money(1_000_000, BudgetTier::Hosted)]).await;
    for (request, tier) in [("own", 0), ("away", 2)] {
        store.reserve(asks(request, "chat", 100, 20, Some(700))).await.unwrap().unwrap();
        let left = store.budgets(everybody("chat", "k"), NOW).await.unwrap();
        assert_eq!(
            stands(&left, BudgetScope::Hosted, BudgetUnit::Money, BudgetTier::Hosted).1,
            700
        );
        assert_eq!(stands(&left, BudgetScope::Tenant, BudgetUnit::Money, BudgetTier::Any).1, 700);
        assert_eq!(
            stands(&left, BudgetScope::Tenant, BudgetUnit::Money, BudgetTier::Hosted).1,
            700
        );
        // The first attempt went elsewhere than the last.
        let first =
            AttemptRow { tier: 1, money: MicroUnits(5), ..retried(request, "chat", "k", 1) };
        store.record(first).await.unwrap();
        let last = AttemptRow { attempt: 2, ..costs(request, "chat", 80, 15, tier) };
        store.record(last).await.unwrap();
    }
    let left = store.budgets(everybody("chat", "k"), NOW).await.unwrap();
    let stands = |scope, unit, tier| stands(&left, scope, unit, tier);
    assert_eq!(stands(BudgetScope::Tenant, BudgetUnit::Money, BudgetTier::Any), (40, 0));
    assert_eq!(stands(BudgetScope::Tenant, BudgetUnit::Money, BudgetTier::Hosted), (25, 0));
    assert_eq!(stands(BudgetScope::Hosted, BudgetUnit::Money, BudgetTier::Hosted), (25, 0));
    assert_eq!(stands(BudgetScope::Tenant, BudgetUnit::Tokens, BudgetTier::Any), (162, 0));
    assert_eq!(stands(BudgetScope::Tenant, BudgetUnit::Tokens, BudgetTier::Hosted), (82, 0));
}

async fn money_is_refused_with_its_unit_and_owner(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", limits(vec![money(1_000_000, BudgetTier::Any)])).await;
    store.record(costs("r0", "chat", 5, 400_000, 0)).await.unwrap();
    let refused = exhausted(&store, asks("r1", "chat", 5, 600_001, None)).await;
    assert_eq!((refused.unit, refused.owner.as_str()), (BudgetUnit::Money, "chat"));
    assert_eq!((refused.limit, refused.used, refused.wanted), (1_000_000, 400_000, 600_001));
    assert_eq!(refused.resets_at, UnixMicros(1_794_787_200_000_000));
    store.reserve(asks("r1", "chat", 5, 600_000, None)).await.unwrap().unwrap();
    // What costs nothing needs no room.
    store.reserve(asks("r2", "chat", 5_000, 0, None)).await.unwrap().unwrap();
}

async fn what_a_dead_process_held_counts_as_money_too(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", limits(every_kind(1_000_000))).await;
    store.reserve(asks("hosted", "chat", 50, 0, Some(700))).await.unwrap().unwrap();
    store.reserve(asks("own", "chat", 30, 40, None)).await.unwrap().unwrap();
    store.close().await.unwrap();
    let (store, resolved) = database.try_open().await.unwrap();
    assert_eq!((resolved.reservations, resolved.tokens), (2, 80));
    let left = store.budgets(everybody("chat", "k"), NOW).await.unwrap();
    let stands = |unit, tier| stands(&left, BudgetScope::Tenant, unit, tier);
    assert_eq!(stands(BudgetUnit::Money, BudgetTier::Any), (740, 0));
    assert_eq!(stands(BudgetUnit::Money, BudgetTier::Hosted), (700, 0));
    assert_eq!(stands(BudgetUnit::Tokens, BudgetTier::Hosted), (50, 0));
    // It had only been paused, and comes back.
    store.record(costs("hosted", "chat", 7, 3, 0)).await.unwrap();
    let left = store.budgets(everybody("chat", "k"), NOW).await.unwrap();
    let stands = |unit, tier| self::stands(&left, BudgetScope::Tenant, unit, tier);
    assert_eq!(stands(BudgetUnit::Money, BudgetTier::Any), (43, 0));
    assert_eq!(stands(BudgetUnit::Money, BudgetTier::Hosted), (0, 0));
}

/// Every sum there is, compared with the rows.
pub(crate) async fn sums_equal_rows(store: &Store, tenants: &[(&str, &str)]) {
    let rows = all_rows(store).await;
    let total = |rows: &mut dyn Iterator<Item = &AttemptRow>| {
        rows.fold((0, 0), |(tokens, money), row| {
            (tokens + row.provider_tokens, money + row.money.0)
        })
    };
    let all = total(&mut rows.iter());
    let hosted = total(&mut rows.iter().filter(|row| row.tier > 0));
    for by in [
        UsageGrouping::Group,
        UsageGrouping::Tenant,
        UsageGrouping::Key,
        UsageGrouping::Model,
        UsageGrouping::Tier,
        UsageGrouping::Day,
        UsageGrouping::Worker,
    ] {
        let query = UsageQuery {
            by,
            since: UnixMicros(0),
            until: None,
            tenant: None,
            model: None,
            ..UsageQuery::default()
        };
        let sums = store.usage(query).await.unwrap().rows;
        let sum = sums.iter().fold((0, 0), |(tokens, money), sum| {
            (tokens + sum.provider_tokens, money + sum.money.0)
        });
        assert_eq!(sum, all, "by {by:?}");
        if by == UsageGrouping::Tier {
            let away = sums.iter().filter(|sum| sum.name != "0");
            let away = away.fold((0, 0), |(tokens, money), sum| {
                (tokens + sum.provider_tokens, money + sum.money.0)
            });
            assert_eq!(away, hosted);
        }
    }
    for (tenant, key) in tenants {
        for left in store.budgets(everybody(tenant, key), NOW).await.unwrap() {
            let of_owner = |row: &&AttemptRow| match left.scope {
                BudgetScope::Tenant => row.tenant == *tenant,
                BudgetScope::Key => row.key == *key,
                BudgetScope::Hosted | BudgetScope::HostedModel => true,
                BudgetScope::Group => row.group == "staff",
            };
            let on_tier = |row: &&AttemptRow| left.tier == BudgetTier::Any || row.tier > 0;
            let (tokens, money) = total(&mut rows.iter().filter(of_owner).filter(on_tier));
            let used = if left.unit == BudgetUnit::Tokens { tokens } else { money };
            assert_eq!((left.used, left.reserved), (used, 0), "{left:?}");
        }
    }
}

async fn two_hundred_at_once_are_exact_in_every_sum(database: Database) {
    const LIMIT: u64 = 60_000;
    let store = database.open().await;
    let mut who = Vec::new();
    for name in ["chat", "batch"] {
        tenant(&store, name, limits(every_kind(1_000_000_000))).await;
        who.push((name, key(&store, name, limits(every_kind(1_000_000_000))).await));
    }
    let mut of_group = every_kind(1_000_000_000);
    of_group[2].amount = LIMIT;
    assert_eq!((of_group[2].unit, of_group[2].tier), (BudgetUnit::Money, BudgetTier::Any));
    group_budgets(&store, of_group).await;
    let hosted_only = |budget: &Budget| budget.tier == BudgetTier::Hosted;
    let hosted = every_kind(1_000_000_000).into_iter().filter(hosted_only).collect();
    hosted_budgets(&store, hosted).await;
    let tasks: Vec<_> = (0..200_u32)
        .map(|number| {
            let (store, (name, key)) = (store.clone(), who[usize::from(number % 2 == 1)].clone());
            tokio::spawn(async move {
                let request = format!("r{number}");
                let mut asked = asks(&request, name, 100, 300, Some(1_000 + u64::from(number)));
                (asked.key, asked.at) = (key.clone(), after(number.into()));
                let granted = store.reserve(asked).await.unwrap();
                let (tokens, money, tier) = match &granted {
                    Ok(granted) if granted.hosted => (90, 991 + u64::from(number), 1),
                    Ok(_) => (80, 299, 0),
                    Err(_) => (0, 0, 0),
                };
                let row = AttemptRow {
                    key,
                    started_at: after(number.into()),
                    model: format!("m{}", number % 3),
                    ..costs(&request, name, tokens, money, tier)
                };
                store.record(row).await.unwrap();
                u64::from(granted.is_ok())
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    // The group's money was not enough for all, and was not exceeded.
    assert!((50..200).contains(&granted), "{granted}");
    let keys: Vec<_> = who.iter().map(|(name, key)| (*name, key.as_str())).collect();
    sums_equal_rows(&store, &keys).await;
    let left = store.budgets(everybody("chat", keys[0].1), NOW).await.unwrap();
    let (used, _) = stands(&left, BudgetScope::Group, BudgetUnit::Money, BudgetTier::Any);
    assert!(used <= LIMIT, "{used}");
}

pub(crate) fn price(model: &str, currency: &str, request: u64) -> Price {
    let rates = fairgate_money::PriceRates {
        request: MicroUnits(request),
        ..fairgate_money::PriceRates::default()
    };
    Price::new(model, None, Currency::parse(currency).unwrap(), rates, None)
}

async fn prices_are_kept_once_and_audited(database: Database) {
    let store = database.open().await;
    assert_eq!(store.currency().await.unwrap(), None);
    let keep = |prices: Vec<Price>| DirectoryChange::KeepPrices { prices };
    let first = vec![price("a", "USD", 1), price("b", "USD", 2)];
    store.change("config", NOW, keep(first.clone())).await.unwrap();
    let version = store.directory_version().await.unwrap();
    // Several processes that start at once, or one that starts again.
    for _ in 0..3 {
        store.change("config", after(1), keep(first.clone())).await.unwrap();
    }
    assert_eq!(store.directory_version().await.unwrap(), version);
    let dearer = price("a", "USD", 5);
    store.change("config", after(2), keep(vec![dearer.clone()])).await.unwrap();
    let kept = store.prices().await.unwrap();
    let told: Vec<_> = kept.iter().map(|it| (it.price.clone(), it.first_seen)).collect();
    let expected = [(first[0].clone(), NOW), (first[1].clone(), NOW), (dearer.clone(), after(2))];
    assert_eq!(told, expected);
    let audit = store.audit(AuditQuery::default()).await.unwrap();
    let of_prices: Vec<_> = audit.iter().filter(|it| it.action == "price.add").collect();
    assert_eq!(of_prices.len(), 3);
    assert_eq!((of_prices[0].actor.as_str(), of_prices[0].subject.as_str()), ("config", "a"));
    assert_eq!(of_prices[0].before.as_ref().unwrap()["per_request"], "0.000001");
    assert_eq!(of_prices[0].after.as_ref().unwrap()["id"], dearer.id);
    assert_eq!(of_prices[1].before, None);
    assert_eq!(store.currency().await.unwrap(), Currency::parse("USD"));
    // Processes that start together, where several can.
    let others = [store.clone(), store.clone()].map(|store| {
        let keep = keep(vec![price("c", "USD", 9)]);
        tokio::spawn(async move { store.change("config", NOW, keep).await.unwrap() })
    });
    for other in others {
        other.await.unwrap();
    }
    let audit = store.audit(AuditQuery::default()).await.unwrap();
    assert_eq!(audit.iter().filter(|it| it.subject == "c").count(), 1);
}

async fn another_currency_is_refused(database: Database) {
    let store = database.open().await;
    let keep = |price| DirectoryChange::KeepPrices { prices: vec![price] };
    store.change("config", NOW, keep(price("a", "USD", 1))).await.unwrap();
    let refused = store.change("config", NOW, keep(price("a", "EUR", 1))).await;
    let Err(StoreError::Invalid { field, problem }) = refused else { panic!("{refused:?}") };
    assert_eq!(field, "prices.currency");
    assert!(problem.contains("EUR") && problem.contains("go back to USD"), "{problem}");
    assert_eq!(store.prices().await.unwrap().len(), 1);
}

async fn hosted_use_is_kept(database: Database) {
    let store = database.open().await;
    let never = DirectoryLimits { hosted: HostedUse::Never, ..budgets(Some(5), None) };
    tenant(&store, "chat", never.clone()).await;
    let id = key(&store, "chat", never.clone()).await;
    let directory = store.directory().await.unwrap();
    assert_eq!((&directory.tenants[0].limits, &directory.keys[0].limits), (&never, &never));
    assert_eq!(directory.keys[0].id, id);
    let patch = TenantPatch { limits: Some(DirectoryLimits::default()), ..TenantPatch::default() };
    let patch = DirectoryChange::PatchTenant { name: "chat".to_owned(), patch };
    store.change("test", NOW, patch).await.unwrap();
    let directory = store.directory().await.unwrap();
    assert_eq!(directory.tenants[0].limits.hosted, HostedUse::Allowed);
    let any = vec![Budget::tokens(5, BudgetPeriod::Day)];
    let refused = store.change("test", NOW, DirectoryChange::SetHosted { budgets: any }).await;
    assert!(matches!(refused, Err(StoreError::Invalid { field: "budgets", .. })), "{refused:?}");
    let hosted = vec![money(7, BudgetTier::Hosted)];
    hosted_budgets(&store, hosted.clone()).await;
    assert_eq!(store.directory().await.unwrap().hosted, hosted);
}
