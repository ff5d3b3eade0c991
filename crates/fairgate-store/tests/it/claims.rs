//! Calls under task keys: only the claim in force may spend, no budget of the fleet is exceeded, and each row is charged once.

use std::time::Duration;

use fairgate_store::{
    AttemptOutcome, AttemptRow, DirectoryChange, DirectoryLimits, LeaseLost, LedgerQuery,
    Reservation, ReservationRefused, RowColumns, SqlValue, Store, StoreError, TaskClaim,
    TransactionDurability, UnixMicros, UsageGrouping, UsageQuery, UsageTerms, UsageWindow,
    WindowBudgetExhausted,
};

use crate::database::{Database, Kind, on_every_database, run};
use crate::ledger::of_request;
use crate::rows::{
    DAY, HOUR, NOW, after, attempt, budgets, day, exhausted, reservation, retried, tenant,
};

on_every_database!(
    only_the_claim_in_force_may_reserve,
    calls_draw_from_what_the_task_set_aside,
    what_other_tasks_set_aside_is_not_there,
    the_fleet_has_a_budget_of_its_own,
    the_tenants_budget_counts_too,
    calls_of_a_lost_claim_count_until_they_end,
    reserving_again_replaces,
    many_calls_at_once_never_get_over,
    rows_are_charged_once,
    late_rows_do_not_count_as_the_next_claims,
    refused_calls_change_nothing,
    what_a_dead_process_held_is_charged,
    a_lost_row_gives_way_to_the_real_one,
    room_comes_as_use_fades,
    the_ledger_is_asked_by_project,
    a_tenant_with_projects_stays,
);

const WINDOW: Duration = Duration::from_secs(24 * 3600);

fn claim(project: &str, task: &str, epoch: u64) -> TaskClaim {
    TaskClaim { project: project.to_owned(), task: task.to_owned(), epoch }
}

fn call(request: &str, claim: &TaskClaim, tokens: u64) -> Reservation {
    let key = format!("project:{}", claim.project);
    Reservation { claim: Some(claim.clone()), ..reservation(request, "chat", &key, tokens) }
}

fn used(request: &str, claim: &TaskClaim, tokens: u64) -> AttemptRow {
    let key = format!("project:{}", claim.project);
    AttemptRow { claim: Some(claim.clone()), ..attempt(request, "chat", &key, tokens) }
}

async fn change(store: &Store, statements: Vec<(String, Vec<SqlValue>)>) {
    let work = move |transaction: &mut dyn fairgate_store::Transaction| {
        for (sql, values) in &statements {
            assert_eq!(transaction.run(sql, values)?, 1, "{sql}");
        }
        Ok::<_, StoreError>(())
    };
    store.transact(TransactionDurability::ThroughKill, work).await.unwrap();
}

async fn project(store: &Store, id: &str, budget: Option<u64>) {
    let bucket = UsageWindow::new(WINDOW).bucket(NOW);
    let sql = "INSERT INTO fleet_projects (id, tenant, made, status, weight, concurrency, exclusive, agent_max, budget, busy, \
         baseline, baseline_at, window_bucket, window_tokens, window_oldest, window_completed, created_at) \
         VALUES ($1, 'chat', 1, 'ACTIVE', 1000, 9, FALSE, '{}', $2, TRUE, 0, 0, $3, 0, 0, 0, 0)";
    let budget = SqlValue::MaybeInt(budget.map(|budget| i64::try_from(budget).unwrap()));
    change(store, vec![(sql.to_owned(), vec![id.into(), budget, bucket.into()])]).await;
}

/// A task that an agent works on, for which so much is set aside.
async fn task(store: &Store, id: &str, project: &str, reserved: i64) -> TaskClaim {
    let sql = "INSERT INTO fleet_tasks (id, project, made, title, state, priority, retries, retries_max, open_needs, \
         affinity_wait, epoch, ended_epoch, agent, lease_until, reserved, used, used_before, calls, created_at) \
         VALUES ($1, $2, 1, '', 'IN_PROGRESS', 0, 0, 0, 0, 0, 1, 0, 'bot', $3, $4, 0, 0, 0, 0)";
    let until = NOW.0 + DAY * 100;
    let values = vec![id.into(), project.into(), until.into(), reserved.into()];
    change(store, vec![(sql.to_owned(), values)]).await;
    claim(project, id, 1)
}

async fn set(store: &Store, task: &str, what: &str) {
    let sql = format!("UPDATE fleet_tasks SET {what} WHERE id = $1");
    change(store, vec![(sql, vec![task.into()])]).await;
}

/// A tenant with a project and a task in it.
async fn one_task(store: &Store, budget: Option<u64>, reserved: i64) -> TaskClaim {
    tenant(store, "chat", DirectoryLimits::default()).await;
    project(store, "web", budget).await;
    task(store, "web-1", "web", reserved).await
}

async fn numbers<const N: usize>(store: &Store, sql: &'static str, of: &str) -> [i64; N] {
    let of = of.to_owned();
    let work = move |transaction: &mut dyn fairgate_store::Transaction| {
        let values: &[SqlValue] = if sql.contains("$1") { &[of.into()] } else { &[] };
        let read = |row: &dyn RowColumns| {
            let mut numbers = [0; N];
            for (column, number) in numbers.iter_mut().enumerate() {
                *number = row.int(column)?;
            }
            Ok(numbers)
        };
        Ok::<_, StoreError>(transaction.first(sql, values, read)?.unwrap())
    };
    store.inspect(work).await.unwrap()
}

/// What a task used with its present claim, with earlier ones, and in how many calls.
async fn task_use(store: &Store, task: &str) -> [i64; 3] {
    numbers(store, "SELECT used, used_before, calls FROM fleet_tasks WHERE id = $1", task).await
}

/// What a project's window has; the sum and its buckets agree.
async fn project_use(store: &Store, project: &str) -> i64 {
    let sql = "SELECT p.window_tokens, CAST(COALESCE((SELECT SUM(tokens) FROM fleet_usage u WHERE u.project = p.id \
         AND u.bucket > p.window_bucket - 86400000000), 0) AS BIGINT) FROM fleet_projects p WHERE p.id = $1";
    let [sum, buckets] = numbers(store, sql, project).await;
    assert_eq!(sum, buckets, "the sum of {project} is that of its buckets");
    sum
}

async fn held(store: &Store) -> i64 {
    let sql = "SELECT CAST(COALESCE(SUM(provider_tokens), 0) AS BIGINT) FROM reservations";
    let [held] = numbers(store, sql, "").await;
    held
}

async fn lost(store: &Store, reservation: Reservation) -> LeaseLost {
    match store.reserve(reservation).await.unwrap() {
        Err(ReservationRefused::LeaseLost(lost)) => lost,
        other => panic!("its lease was not lost: {other:?}"),
    }
}

async fn no_room(store: &Store, reservation: Reservation) -> WindowBudgetExhausted {
    match store.reserve(reservation).await.unwrap() {
        Err(ReservationRefused::Window(exhausted)) => exhausted,
        other => panic!("no budget of the fleet refused it: {other:?}"),
    }
}

async fn only_the_claim_in_force_may_reserve(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, None, 50).await;
    store.reserve(call("r", &mine, 10)).await.unwrap().unwrap();
    assert_eq!(held(&store).await, 10, "a task's call holds, also where no budget concerns it");
    store.record(used("r", &mine, 4)).await.unwrap();
    assert_eq!(held(&store).await, 0);

    let other = claim("web", "web-1", 2);
    assert!(lost(&store, call("r2", &other, 1)).await.why.contains("claim 1"));
    assert!(lost(&store, call("r2", &claim("web", "nothing", 1), 1)).await.why.contains("no such"));
    assert!(lost(&store, call("r2", &claim("app", "web-1", 1), 1)).await.why.contains("bot"));
    set(&store, "web-1", "epoch = 2, agent = 'other'").await;
    let why = lost(&store, call("r2", &mine, 1)).await.why;
    assert_eq!(why, "agent \"other\" has it now, with claim 2");
    store.reserve(call("r2", &other, 1)).await.unwrap().unwrap();
    for state in ["READY", "PAUSED", "WAITING_INPUT", "COMPLETED", "FAILED", "BLOCKED"] {
        set(&store, "web-1", &format!("state = '{state}'")).await;
        assert_eq!(lost(&store, call("r3", &other, 1)).await.why, format!("it is {state}"));
    }
    set(&store, "web-1", &format!("state = 'ASSIGNED', lease_until = {}", NOW.0)).await;
    assert!(lost(&store, call("r3", &other, 1)).await.why.contains("lease ran out"));
    set(&store, "web-1", &format!("lease_until = {}", NOW.0 + 1)).await;
    store.reserve(call("r3", &other, 1)).await.unwrap().unwrap();
    assert_eq!(held(&store).await, 2, "whoever was refused holds nothing");
}

async fn calls_draw_from_what_the_task_set_aside(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, Some(100), 80).await;
    // Within what is set aside for it.
    store.reserve(call("r1", &mine, 50)).await.unwrap().unwrap();
    store.reserve(call("r2", &mine, 30)).await.unwrap().unwrap();
    // Beyond it, as far as the project has room.
    store.reserve(call("r3", &mine, 20)).await.unwrap().unwrap();
    let refused = no_room(&store, call("r4", &mine, 1)).await;
    assert_eq!(refused.project.as_deref(), Some("web"));
    assert_eq!((refused.limit, refused.used, refused.reserved, refused.wanted), (100, 0, 100, 1));
    assert_eq!(refused.room_at, None, "nothing was used that could fade");
    // A call that used less than it held leaves room.
    store.record(used("r1", &mine, 10)).await.unwrap();
    let refused = no_room(&store, call("r4", &mine, 41)).await;
    assert_eq!((refused.used, refused.reserved, refused.wanted), (10, 70, 21));
    store.reserve(call("r4", &mine, 40)).await.unwrap().unwrap();
    // What is set aside may be used even where the budget has become smaller.
    change(&store, vec![("UPDATE fleet_projects SET budget = 5".to_owned(), Vec::new())]).await;
    store.record(used("r4", &mine, 0)).await.unwrap();
    store.reserve(call("r5", &mine, 20)).await.unwrap().unwrap();
    assert_eq!(no_room(&store, call("r6", &mine, 1)).await.limit, 5);
}

async fn what_other_tasks_set_aside_is_not_there(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, Some(100), 10).await;
    let other = task(&store, "web-2", "web", 60).await;
    project(&store, "app", Some(1_000)).await;
    task(&store, "app-1", "app", 500).await;
    store.reserve(call("r1", &mine, 40)).await.unwrap().unwrap();
    let refused = no_room(&store, call("r2", &mine, 1)).await;
    assert_eq!((refused.reserved, refused.wanted), (100, 1));
    // The other one draws from its own.
    store.reserve(call("r3", &other, 60)).await.unwrap().unwrap();
    // Once that has ended, what it did not use is free.
    store.record(used("r3", &other, 15)).await.unwrap();
    set(&store, "web-2", "state = 'COMPLETED', reserved = 0").await;
    let refused = no_room(&store, call("r2", &mine, 46)).await;
    assert_eq!((refused.used, refused.reserved, refused.wanted), (15, 40, 46));
    store.reserve(call("r2", &mine, 45)).await.unwrap().unwrap();
}

async fn the_fleet_has_a_budget_of_its_own(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, Some(100), 0).await;
    project(&store, "app", None).await;
    let other = task(&store, "app-1", "app", 70).await;
    let terms = UsageTerms { window: UsageWindow::new(WINDOW), budget: Some(120) };
    let call = |request, claim, tokens| Reservation { terms, ..call(request, claim, tokens) };
    store.reserve(call("r1", &mine, 50)).await.unwrap().unwrap();
    let refused = no_room(&store, call("r2", &mine, 1)).await;
    assert_eq!((refused.project, refused.limit, refused.reserved), (None, 120, 120));
    let refused = no_room(&store, call("r2", &mine, 51)).await;
    assert_eq!(refused.project.as_deref(), Some("web"), "the project's own is looked at first");
    store.reserve(call("r3", &other, 70)).await.unwrap().unwrap();
    store.record(used("r3", &other, 60)).await.unwrap();
    // Ten of the seventy are still set aside.
    assert_eq!(no_room(&store, call("r4", &other, 11)).await.used, 60);
    store.reserve(call("r4", &other, 10)).await.unwrap().unwrap();
}

async fn the_tenants_budget_counts_too(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(30), None)).await;
    project(&store, "web", Some(100)).await;
    let mine = task(&store, "web-1", "web", 100).await;
    store.reserve(call("r1", &mine, 20)).await.unwrap().unwrap();
    assert_eq!(exhausted(&store, call("r2", &mine, 11)).await.limit, 30);
    assert_eq!((day(&store, "chat").await, held(&store).await), ((0, 20), 20));
    // The project's budget changes nothing either where it refuses.
    change(&store, vec![("UPDATE fleet_projects SET budget = 1".to_owned(), Vec::new())]).await;
    set(&store, "web-1", "reserved = 0").await;
    no_room(&store, call("r2", &mine, 5)).await;
    assert_eq!((day(&store, "chat").await, held(&store).await), ((0, 20), 20));
}

async fn calls_of_a_lost_claim_count_until_they_end(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, Some(100), 50).await;
    store.reserve(call("old", &mine, 60)).await.unwrap().unwrap();
    set(&store, "web-1", "epoch = 2").await;
    let next = claim("web", "web-1", 2);
    // 60 in flight, 50 set aside for the next claim.
    let refused = no_room(&store, call("r", &next, 51)).await;
    assert_eq!((refused.reserved, refused.wanted), (110, 1));
    store.reserve(call("r", &next, 50)).await.unwrap().unwrap();
    store.record(used("old", &mine, 20)).await.unwrap();
    store.reserve(call("r2", &next, 30)).await.unwrap().unwrap();
    assert_eq!(no_room(&store, call("r3", &next, 1)).await.used, 20);
    assert_eq!(task_use(&store, "web-1").await, [0, 20, 1]);
}

async fn reserving_again_replaces(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, Some(100), 0).await;
    store.reserve(call("r", &mine, 60)).await.unwrap().unwrap();
    store.reserve(call("r", &mine, 90)).await.unwrap().unwrap();
    assert_eq!(held(&store).await, 90);
    assert_eq!(no_room(&store, call("r", &mine, 101)).await.reserved, 0);
    assert_eq!(held(&store).await, 90, "what it held stays");
    set(&store, "web-1", "epoch = 2").await;
    lost(&store, call("r", &mine, 1)).await;
    assert_eq!(held(&store).await, 90);
    store.record(used("r", &mine, 1)).await.unwrap();
    assert_eq!(held(&store).await, 0);
}

/// Calls of several tasks in two projects at once, some of which end and use less than they held.
async fn race(stores: &[Store]) {
    let store = &stores[0];
    tenant(store, "chat", DirectoryLimits::default()).await;
    project(store, "web", Some(500)).await;
    project(store, "app", None).await;
    let mut claims = Vec::new();
    for number in 0..6 {
        let of = if number % 2 == 0 { "web" } else { "app" };
        claims.push(task(store, &format!("{of}-{number}"), of, 40).await);
    }
    let terms = UsageTerms { window: UsageWindow::new(WINDOW), budget: Some(800) };
    let mut asked = Vec::new();
    for number in 0..360_usize {
        let store = stores[number % stores.len()].clone();
        let claim = claims[number % claims.len()].clone();
        asked.push(tokio::spawn(async move {
            let request = format!("r{number}");
            let call = Reservation { terms, ..call(&request, &claim, 7) };
            let yes = store.reserve(call).await.unwrap().is_ok();
            let ends = yes && number % 3 == 0;
            if ends {
                store.record(used(&request, &claim, 2)).await.unwrap();
            }
            (claim.project == "web", yes, ends)
        }));
    }
    let (mut web, mut app) = (0, 0);
    for asked in asked {
        let (is_web, yes, ends) = asked.await.unwrap();
        let spent = if ends { 2 } else { 7 * i64::from(yes) };
        *(if is_web { &mut web } else { &mut app }) += spent;
    }
    for store in stores {
        // Brings in the rows of this one.
        held(store).await;
    }
    let project = |id| {
        let sql = "SELECT window_tokens + (SELECT CAST(COALESCE(SUM(provider_tokens), 0) AS BIGINT) FROM reservations \
             WHERE project = fleet_projects.id) FROM fleet_projects WHERE id = $1";
        async move { numbers::<1>(store, sql, id).await[0] }
    };
    assert_eq!((project("web").await, project("app").await), (web, app));
    assert!(web <= 500, "{web}");
    assert!(web + app <= 800, "{web} + {app}");
    // Once nothing more is set aside, all that fits gets in.
    for claim in &claims {
        set(store, &claim.task, "reserved = 0").await;
    }
    let mut more = 0;
    while more < 200 {
        let call = Reservation { terms, ..call(&format!("m{more}"), &claims[1], 7) };
        if store.reserve(call).await.unwrap().is_err() {
            break;
        }
        more += 1;
    }
    let total = web + app + 7 * more;
    assert!(total <= 800 && total > 800 - 7, "{web} + {app} + 7 × {more}");
}

async fn many_calls_at_once_never_get_over(database: Database) {
    race(&[database.open().await]).await;
}

#[test]
fn gateways_that_share_a_fleet_never_get_over() {
    run(Kind::Postgres, |database| async move {
        race(&[database.open().await, database.open().await, database.open().await]).await;
    });
}

async fn rows_are_charged_once(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, None, 50).await;
    let version = "SELECT version FROM fleet";
    let [before] = numbers(&store, version, "").await;
    store.reserve(call("r", &mine, 30)).await.unwrap().unwrap();
    let first = AttemptRow { claim: Some(mine.clone()), ..retried("r", "chat", "project:web", 3) };
    let last = AttemptRow { attempt: 2, ..used("r", &mine, 20) };
    for _ in 0..3 {
        store.record(first.clone()).await.unwrap();
        store.record(last.clone()).await.unwrap();
    }
    assert_eq!(task_use(&store, "web-1").await, [23, 0, 1], "two attempts are one call");
    assert_eq!((project_use(&store, "web").await, held(&store).await), (23, 0));
    assert_eq!(of_request(&store, "r").await, [last.clone(), first]);
    // After a restart, too.
    store.close().await.unwrap();
    let store = database.open().await;
    store.record(last).await.unwrap();
    assert_eq!(task_use(&store, "web-1").await, [23, 0, 1]);
    assert_eq!(project_use(&store, "web").await, 23);
    let [after] = numbers(&store, version, "").await;
    assert!(after > before, "what tasks used is a change of the fleet");
}

async fn late_rows_do_not_count_as_the_next_claims(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, None, 50).await;
    let next = claim("web", "web-1", 2);
    store.reserve(call("old", &mine, 30)).await.unwrap().unwrap();
    set(&store, "web-1", "epoch = 2").await;
    store.reserve(call("new", &next, 30)).await.unwrap().unwrap();
    store.record(used("old", &mine, 11)).await.unwrap();
    store.record(used("new", &next, 12)).await.unwrap();
    assert_eq!(task_use(&store, "web-1").await, [12, 11, 2]);
    assert_eq!(project_use(&store, "web").await, 23);
    // A task that is gone leaves its row, and nothing else.
    store.record(used("gone", &claim("web", "web-9", 1), 5)).await.unwrap();
    assert_eq!((project_use(&store, "web").await, of_request(&store, "gone").await.len()), (28, 1));
}

async fn refused_calls_change_nothing(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, None, 50).await;
    let version = "SELECT version FROM fleet";
    let before: [i64; 1] = numbers(&store, version, "").await;
    let refused =
        AttemptRow { outcome: AttemptOutcome::Refused, status: 429, ..used("r", &mine, 0) };
    store.record(refused).await.unwrap();
    assert_eq!(task_use(&store, "web-1").await, [0, 0, 0]);
    assert_eq!(numbers(&store, version, "").await, before);
    assert_eq!(of_request(&store, "r").await[0].claim, Some(mine));
}

async fn what_a_dead_process_held_is_charged(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, Some(100), 50).await;
    store.reserve(call("first", &mine, 20)).await.unwrap().unwrap();
    store.reserve(call("second", &mine, 30)).await.unwrap().unwrap();
    let tried = AttemptRow { claim: Some(mine.clone()), ..retried("second", "chat", "k", 4) };
    store.record(tried).await.unwrap();
    store.close().await.unwrap();

    let (store, resolved) = database.try_open().await.unwrap();
    assert_eq!(resolved.reservations, 2);
    assert_eq!(task_use(&store, "web-1").await, [54, 0, 2]);
    assert_eq!((project_use(&store, "web").await, held(&store).await), (54, 0));
    let lost = of_request(&store, "first").await;
    assert_eq!((lost[0].outcome, &lost[0].claim), (AttemptOutcome::Lost, &Some(mine.clone())));
    let refused = no_room(&store, call("third", &mine, 47)).await;
    assert_eq!((refused.used, refused.reserved), (54, 0));
}

async fn a_lost_row_gives_way_to_the_real_one(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, None, 50).await;
    store.reserve(call("r", &mine, 40)).await.unwrap().unwrap();
    store.close().await.unwrap();
    let store = database.open().await;
    assert_eq!(task_use(&store, "web-1").await, [40, 0, 1]);
    // The process had only been paused: it settles what was really used, and once.
    for _ in 0..2 {
        store.record(used("r", &mine, 15)).await.unwrap();
    }
    assert_eq!(task_use(&store, "web-1").await, [15, 0, 1]);
    assert_eq!(project_use(&store, "web").await, 15);
}

async fn room_comes_as_use_fades(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, Some(100), 0).await;
    store.reserve(call("r", &mine, 90)).await.unwrap().unwrap();
    store.record(used("r", &mine, 90)).await.unwrap();
    let at = |at: i64, tokens| Reservation { at: UnixMicros(at), ..call("r2", &mine, tokens) };
    let bucket = UsageWindow::new(WINDOW).bucket(NOW);
    // A day later the bucket of that use begins to fade: 20 of 90 are gone after 20/90 of an hour.
    let refused = no_room(&store, at(bucket + DAY, 30)).await;
    assert_eq!((refused.used, refused.wanted), (90, 30));
    assert_eq!(refused.room_at, Some(UnixMicros(bucket + DAY + HOUR * 20 / 90)));
    let half = no_room(&store, at(bucket + DAY + HOUR / 2, 56)).await;
    assert_eq!(half.used, 45);
    store.reserve(at(bucket + DAY + HOUR / 2, 55)).await.unwrap().unwrap();
    // And after that hour it counts no more.
    store.reserve(at(bucket + DAY + HOUR, 100)).await.unwrap().unwrap();
    assert_eq!(no_room(&store, at(bucket + DAY + HOUR, 101)).await.used, 0);
    let sql =
        "SELECT window_bucket, window_tokens, window_oldest FROM fleet_projects WHERE id = $1";
    assert_eq!(numbers(&store, sql, "web").await, [bucket + DAY + HOUR, 0, 0]);
    // What never fits is not promised.
    assert_eq!(no_room(&store, at(bucket + DAY + HOUR, 101)).await.room_at, None);
    let roll = |transaction: &mut dyn fairgate_store::Transaction| {
        fairgate_usage::sql::roll(transaction, UsageWindow::new(WINDOW), after(0))
    };
    let rolled: Result<u64, StoreError> =
        store.transact(TransactionDurability::ThroughKill, roll).await;
    assert_eq!(rolled.unwrap(), 1, "a clock that was set back");
}

async fn the_ledger_is_asked_by_project(database: Database) {
    let store = database.open().await;
    let mine = one_task(&store, None, 50).await;
    let other = task(&store, "web-2", "web", 0).await;
    store.record(used("a", &mine, 10)).await.unwrap();
    store.record(used("b", &other, 5)).await.unwrap();
    store.record(attempt("c", "chat", "k", 7)).await.unwrap();
    let requests = |query| async {
        let rows = store.attempts(query).await.unwrap();
        rows.into_iter().map(|row| row.request).collect::<Vec<_>>()
    };
    let project = LedgerQuery { project: Some("web".to_owned()), ..LedgerQuery::default() };
    assert_eq!(requests(project).await, ["b", "a"]);
    let task = LedgerQuery { task: Some("web-2".to_owned()), ..LedgerQuery::default() };
    assert_eq!(requests(task).await, ["b"]);
    let query = UsageQuery {
        by: UsageGrouping::Project,
        since: NOW,
        until: None,
        tenant: None,
        model: None,
        ..UsageQuery::default()
    };
    let rows = store.usage(query).await.unwrap().rows;
    let sums: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.provider_tokens)).collect();
    assert_eq!(sums, [("web", 15), ("-", 7)]);
}

async fn a_tenant_with_projects_stays(database: Database) {
    let store = database.open().await;
    one_task(&store, None, 0).await;
    let remove = DirectoryChange::RemoveTenant { name: "chat".to_owned() };
    let refused = store.change("test", NOW, remove).await.unwrap_err();
    let by = "it has 1 projects, such as \"web\"; archive them, and disable it instead";
    assert_eq!(refused.to_string(), format!("tenant \"chat\" is in use: {by}"));
}
