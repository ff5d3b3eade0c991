//! Budgets: nobody gets over, nothing is held for ever.

use fairgate_store::{
    AttemptOutcome, BudgetPeriod, BudgetScope, DirectoryChange, DirectoryLimits, TenantPatch,
    UnixMicros, UsageSource,
};

use crate::database::{Database, on_every_database};
use crate::rows::{
    DAY, HOUR, NOW, after, attempt, budgets, day, exhausted, key, of_key, reservation, retried,
    standing, tenant,
};

on_every_database!(
    without_a_budget_nothing_is_held,
    a_reservation_ends_with_its_row,
    an_exhausted_budget_refuses_and_changes_nothing,
    every_budget_must_have_room,
    a_retry_keeps_the_reservation,
    a_budget_counts_what_was_used_before_it,
    midnight_settles_where_it_was_reserved,
    months_end,
    reserving_again_replaces,
    who_leaves_before_the_answer_holds_nothing,
    many_at_once_never_get_over,
    what_a_dead_process_held_is_charged,
    what_was_reserved_after_the_last_row_is_not_lost,
    a_lost_row_gives_way_to_the_real_one,
    a_removed_tenant_can_still_settle,
    files_go_one_at_a_time_near_the_end,
);

async fn without_a_budget_nothing_is_held(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    store.reserve(reservation("r", "chat", "k", u64::MAX)).await.unwrap().unwrap();
    store.reserve(reservation("r2", "nobody", "k", 5)).await.unwrap().unwrap();
    assert!(store.budgets(of_key("chat", "k"), NOW).await.unwrap().is_empty());
    store.close().await.unwrap();
    let (_, resolved) = database.try_open().await.unwrap();
    assert_eq!(resolved.reservations, 0);
}

async fn a_reservation_ends_with_its_row(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    store.reserve(reservation("r", "chat", "k", 60)).await.unwrap().unwrap();
    assert_eq!(day(&store, "chat").await, (0, 60));
    store.record(attempt("r", "chat", "k", 25)).await.unwrap();
    assert_eq!(day(&store, "chat").await, (25, 0));
    // The same row again is the same row.
    store.record(attempt("r", "chat", "k", 25)).await.unwrap();
    assert_eq!(day(&store, "chat").await, (25, 0));
    // Answers may exceed what was reserved: that is charged in full.
    store.reserve(reservation("r2", "chat", "k", 75)).await.unwrap().unwrap();
    store.record(attempt("r2", "chat", "k", 500)).await.unwrap();
    assert_eq!(day(&store, "chat").await, (525, 0));
}

async fn an_exhausted_budget_refuses_and_changes_nothing(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), Some(1_000))).await;
    store.record(attempt("used", "chat", "k", 30)).await.unwrap();
    store.reserve(reservation("r", "chat", "k", 60)).await.unwrap().unwrap();
    let refused = exhausted(&store, reservation("r2", "chat", "k", 11)).await;
    assert_eq!((refused.scope, refused.period), (BudgetScope::Tenant, BudgetPeriod::Day));
    assert_eq!((refused.limit, refused.used + refused.reserved), (100, 90));
    assert_eq!(refused.resets_at, UnixMicros(1_794_787_200_000_000));
    assert_eq!(day(&store, "chat").await, (30, 60));
    store.reserve(reservation("r3", "chat", "k", 10)).await.unwrap().unwrap();
    // The refused request's own row ends nothing that is not its own.
    store.record(attempt("r2", "chat", "k", 0)).await.unwrap();
    assert_eq!(day(&store, "chat").await, (30, 70));
}

async fn every_budget_must_have_room(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), Some(150))).await;
    let small = key(&store, "chat", budgets(None, Some(20))).await;
    let large = key(&store, "chat", DirectoryLimits::default()).await;
    let refused = exhausted(&store, reservation("r", "chat", &small, 21)).await;
    assert_eq!(
        (refused.scope, refused.period, refused.limit),
        (BudgetScope::Key, BudgetPeriod::Month, 20)
    );
    assert_eq!(day(&store, "chat").await, (0, 0));
    store.reserve(reservation("r1", "chat", &small, 20)).await.unwrap().unwrap();
    store.reserve(reservation("r2", "chat", &large, 80)).await.unwrap().unwrap();
    let left = store.budgets(of_key("chat", &small), NOW).await.unwrap();
    let told: Vec<_> =
        left.iter().map(|it| (it.scope, it.period, it.limit, it.used, it.reserved)).collect();
    let expected = [
        (BudgetScope::Tenant, BudgetPeriod::Day, 100, 0, 100),
        (BudgetScope::Tenant, BudgetPeriod::Month, 150, 0, 100),
        (BudgetScope::Key, BudgetPeriod::Month, 20, 0, 20),
    ];
    assert_eq!(told, expected);
    // Of two that are exhausted, the one that stays so for longer is told.
    let refused = exhausted(&store, reservation("r3", "chat", &small, 1)).await;
    assert_eq!((refused.scope, refused.period), (BudgetScope::Key, BudgetPeriod::Month));
}

async fn a_retry_keeps_the_reservation(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    store.reserve(reservation("r", "chat", "k", 60)).await.unwrap().unwrap();
    store.record(retried("r", "chat", "k", 3)).await.unwrap();
    assert_eq!(day(&store, "chat").await, (3, 60));
    let last = fairgate_store::AttemptRow { attempt: 2, ..attempt("r", "chat", "k", 40) };
    store.record(last).await.unwrap();
    assert_eq!(day(&store, "chat").await, (43, 0));
}

async fn a_budget_counts_what_was_used_before_it(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", DirectoryLimits::default()).await;
    store.record(attempt("r", "chat", "k", 70)).await.unwrap();
    let patch = TenantPatch { limits: Some(budgets(Some(100), None)), ..TenantPatch::default() };
    let patch = DirectoryChange::PatchTenant { name: "chat".to_owned(), patch };
    store.change("test", NOW, patch).await.unwrap();
    assert_eq!(day(&store, "chat").await, (70, 0));
    let refused = exhausted(&store, reservation("r2", "chat", "k", 31)).await;
    assert_eq!((refused.used, refused.wanted), (70, 31));
}

async fn midnight_settles_where_it_was_reserved(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    let day_of = |at| standing(&store, "chat", BudgetScope::Tenant, BudgetPeriod::Day, at);
    let tomorrow = after(DAY);
    // It arrived today, waited past midnight, and tomorrow's budget let it in.
    let late =
        fairgate_store::Reservation { at: tomorrow, ..reservation("late", "chat", "k", 100) };
    store.reserve(late).await.unwrap().unwrap();
    assert_eq!((day_of(NOW).await, day_of(tomorrow).await), ((0, 0), (0, 100)));
    store.reserve(reservation("r", "chat", "k", 50)).await.unwrap().unwrap();
    store.record(retried("late", "chat", "k", 1)).await.unwrap();
    let last = fairgate_store::AttemptRow { attempt: 2, ..attempt("late", "chat", "k", 40) };
    store.record(last).await.unwrap();
    assert_eq!((day_of(NOW).await, day_of(tomorrow).await), ((0, 50), (41, 0)));
    // Without a reservation, it is the day of its arrival.
    store.record(attempt("free", "chat", "k", 5)).await.unwrap();
    assert_eq!(day_of(NOW).await, (5, 50));
}

async fn months_end(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(None, Some(100))).await;
    // 2026-11-30 23:59:59.999999, and the microsecond after it.
    let (last, first) = (UnixMicros(1_796_083_199_999_999), UnixMicros(1_796_083_200_000_000));
    let at = |request, tokens, at| fairgate_store::Reservation {
        at,
        ..reservation(request, "chat", "k", tokens)
    };
    store.reserve(reservation("start", "chat", "k", 60)).await.unwrap().unwrap();
    let refused = exhausted(&store, at("r", 41, last)).await;
    assert_eq!(refused.resets_at, first);
    store.reserve(at("r", 40, last)).await.unwrap().unwrap();
    store.reserve(at("next", 100, first)).await.unwrap().unwrap();
    let december = standing(&store, "chat", BudgetScope::Tenant, BudgetPeriod::Month, first).await;
    assert_eq!(december, (0, 100));
}

async fn reserving_again_replaces(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    store.reserve(reservation("r", "chat", "k", 60)).await.unwrap().unwrap();
    store.reserve(reservation("r", "chat", "k", 90)).await.unwrap().unwrap();
    assert_eq!(day(&store, "chat").await, (0, 90));
    let refused = exhausted(&store, reservation("r", "chat", "k", 101)).await;
    assert_eq!((refused.used, refused.reserved), (0, 0));
    assert_eq!(day(&store, "chat").await, (0, 90));
    store.record(attempt("r", "chat", "k", 1)).await.unwrap();
    assert_eq!(day(&store, "chat").await, (1, 0));
}

async fn who_leaves_before_the_answer_holds_nothing(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    for round in 0..50 {
        let request = format!("r{round}");
        let asked = store.reserve(reservation(&request, "chat", "k", 100));
        // One poll hands it over; then its caller is gone.
        let left = tokio::select! {
            biased;
            answer = asked => answer.unwrap().is_ok(),
            () = std::future::ready(()) => false,
        };
        if left {
            store.record(attempt(&request, "chat", "k", 0)).await.unwrap();
        }
        // Whatever it was, a round trip later it is over.
        let mut rounds = 0;
        while day(&store, "chat").await != (0, 0) {
            store.record(attempt(&format!("{round}-{rounds}"), "chat", "k", 0)).await.unwrap();
            rounds += 1;
            assert!(rounds < 1_000, "a reservation was leaked");
        }
    }
}

async fn many_at_once_never_get_over(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(1_000), None)).await;
    let keys = [
        key(&store, "chat", budgets(Some(600), None)).await,
        key(&store, "chat", DirectoryLimits::default()).await,
    ];
    let mut asked = Vec::new();
    for number in 0..400_usize {
        let (store, key) = (store.clone(), keys[number % 2].clone());
        asked.push(tokio::spawn(async move {
            let held = reservation(&format!("r{number}"), "chat", &key, 7);
            (number % 2, store.reserve(held).await.unwrap().is_ok())
        }));
    }
    let mut held = [0_u64; 2];
    for asked in asked {
        let (key, yes) = asked.await.unwrap();
        held[key] += if yes { 7 } else { 0 };
    }
    let left = store.budgets(of_key("chat", &keys[0]), NOW).await.unwrap();
    assert_eq!(left[0].reserved, held[0] + held[1]);
    assert_eq!(left[1].reserved, held[0]);
    // All that fits is in: 7 more would not.
    assert!(left[0].reserved <= 1_000 && left[0].reserved > 1_000 - 7);
    assert!(left[1].reserved <= 600);
}

async fn what_a_dead_process_held_is_charged(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    store.reserve(reservation("ended", "chat", "k", 10)).await.unwrap().unwrap();
    store.record(attempt("ended", "chat", "k", 5)).await.unwrap();
    store.reserve(reservation("first", "chat", "k", 20)).await.unwrap().unwrap();
    store.reserve(reservation("second", "chat", "k", 30)).await.unwrap().unwrap();
    store.record(retried("second", "chat", "k", 0)).await.unwrap();
    store.close().await.unwrap();

    let (store, resolved) = database.try_open().await.unwrap();
    assert_eq!((resolved.reservations, resolved.tokens), (2, 50));
    assert_eq!(day(&store, "chat").await, (55, 0));
    let rows = crate::ledger::of_request(&store, "second").await;
    let told: Vec<_> = rows.iter().map(|row| (row.attempt, row.last, row.outcome)).collect();
    assert_eq!(told, [(2, true, AttemptOutcome::Lost), (1, false, AttemptOutcome::Retried)]);
    let lost = &rows[0];
    assert_eq!((lost.charged, lost.estimate, lost.usage), (30, 30, UsageSource::Assumed));
    assert_eq!(
        (lost.tenant.as_str(), lost.key.as_str(), lost.model.as_str()),
        ("chat", "k", "llama")
    );
    assert_eq!((lost.started_at, lost.status, lost.code.as_deref()), (NOW, 499, Some("lost")));
    store.close().await.unwrap();
    let (_, resolved) = database.try_open().await.unwrap();
    assert_eq!(resolved.reservations, 0);
}

/// A client leaves while its reservation is on its way, so its last row is there first. The process dies before it
/// releases what nobody wants any more.
async fn what_was_reserved_after_the_last_row_is_not_lost(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    let left = fairgate_store::AttemptRow {
        status: 499,
        outcome: AttemptOutcome::ClientLeft,
        ..attempt("left", "chat", "k", 5)
    };
    store.record(left.clone()).await.unwrap();
    assert_eq!(day(&store, "chat").await, (5, 0), "the row is in the database");
    store.reserve(reservation("left", "chat", "k", 40)).await.unwrap().unwrap();
    store.reserve(reservation("lost", "chat", "k", 30)).await.unwrap().unwrap();
    store.close().await.unwrap();

    let (store, resolved) = database.try_open().await.unwrap();
    assert_eq!((resolved.reservations, resolved.tokens), (1, 30));
    assert_eq!(crate::ledger::of_request(&store, "left").await, [left]);
    assert_eq!(day(&store, "chat").await, (35, 0));
}

async fn a_lost_row_gives_way_to_the_real_one(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    store.reserve(reservation("r", "chat", "k", 40)).await.unwrap().unwrap();
    store.close().await.unwrap();
    let (store, resolved) = database.try_open().await.unwrap();
    assert_eq!((resolved.reservations, day(&store, "chat").await), (1, (40, 0)));
    // The process had only been paused: it settles what was really used, and once.
    let real =
        fairgate_store::AttemptRow { started_at: after(-HOUR), ..attempt("r", "chat", "k", 15) };
    store.record(real.clone()).await.unwrap();
    store.record(real.clone()).await.unwrap();
    assert_eq!(day(&store, "chat").await, (15, 0));
    assert_eq!(crate::ledger::of_request(&store, "r").await, [real]);
}

async fn a_removed_tenant_can_still_settle(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    store.reserve(reservation("r", "chat", "k", 40)).await.unwrap().unwrap();
    let remove = DirectoryChange::RemoveTenant { name: "chat".to_owned() };
    store.change("test", NOW, remove).await.unwrap();
    store.record(attempt("r", "chat", "k", 15)).await.unwrap();
    tenant(&store, "chat", budgets(Some(100), None)).await;
    assert_eq!(day(&store, "chat").await, (15, 0));
}

async fn files_go_one_at_a_time_near_the_end(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(100), None)).await;
    let file = |request, tokens| fairgate_store::Reservation {
        has_files: true,
        ..reservation(request, "chat", "k", tokens)
    };
    store.reserve(file("f1", 30)).await.unwrap().unwrap();
    // 70 are left: 35 would fit twice.
    store.reserve(file("f2", 35)).await.unwrap().unwrap();
    let refused = exhausted(&store, file("f3", 30)).await;
    assert_eq!((refused.wanted, refused.reserved, refused.waits_for_files), (30, 65, true));
    // Text is not concerned, and what is asked for again does not wait for itself.
    store.reserve(reservation("t", "chat", "k", 5)).await.unwrap().unwrap();
    store.record(attempt("f2", "chat", "k", 10)).await.unwrap();
    store.reserve(file("f1", 60)).await.unwrap().unwrap();
    assert!(exhausted(&store, file("f3", 20)).await.waits_for_files);
    store.record(attempt("f1", "chat", "k", 10)).await.unwrap();
    store.reserve(file("f3", 60)).await.unwrap().unwrap();
    assert_eq!(day(&store, "chat").await, (20, 65));
    store.close().await.unwrap();
}
