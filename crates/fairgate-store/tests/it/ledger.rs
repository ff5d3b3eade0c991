//! The ledger: every attempt a row, and what rows sum up to.

use fairgate_store::{
    AttemptFilter, AttemptOutcome, AttemptRow, AttemptSearch, BudgetOwners, ChargeColumn,
    LedgerQuery, MicroUnits, SearchBound, Store, StoreError, UnixMicros, UsageGrouping, UsageQuery,
    UsageRow, UsageSource,
};

use crate::database::{Database, on_every_database};
use crate::rows::{DAY, HOUR, NOW, after, attempt, budgets, day, key, retried, tenant};

on_every_database!(
    rows_are_read_back,
    rows_that_come_together_are_written_and_charged_once,
    lists_are_filtered_and_newest_first,
    sums_by_everything,
    rows_that_hardly_fit,
    dropped_callers_lose_nothing,
    what_was_acknowledged_is_there_after_reopening,
    pruning_keeps_sums,
    a_closed_store_says_so,
    a_secret_is_made_once,
    searches_find_rows_by_anything,
    sums_are_split_and_have_quantiles,
    last_uses_of_keys_are_written_once_a_minute,
);

pub(crate) async fn of_request(store: &Store, request: &str) -> Vec<AttemptRow> {
    let query = LedgerQuery { request: Some(request.to_owned()), ..LedgerQuery::default() };
    store.attempts(query).await.unwrap()
}

async fn rows_are_read_back(database: Database) {
    let store = database.open().await;
    let plain = attempt("plain", "chat", "key-1", 12);
    let rare = AttemptRow {
        agent: Some("crawler".to_owned()),
        session: None,
        pool: None,
        worker: None,
        stream: false,
        usage: UsageSource::Counted,
        first_token_us: None,
        outcome: AttemptOutcome::ClientLeft,
        status: 499,
        code: Some("client_left".to_owned()),
        brownout: true,
        occupied: 22,
        attempt: 1,
        ..attempt("rare", "chät", "key-2", 0)
    };
    store.record(plain.clone()).await.unwrap();
    store.record(rare.clone()).await.unwrap();
    assert_eq!(of_request(&store, "plain").await, [plain]);
    assert_eq!(of_request(&store, "rare").await, [rare]);
    assert!(of_request(&store, "other").await.is_empty());
    for (place, outcome) in [
        AttemptOutcome::Completed,
        AttemptOutcome::Refused,
        AttemptOutcome::UpstreamError,
        AttemptOutcome::Timeout,
        AttemptOutcome::ClientLeft,
        AttemptOutcome::Retried,
        AttemptOutcome::Lost,
    ]
    .into_iter()
    .enumerate()
    {
        let row = AttemptRow { outcome, ..attempt(&format!("o{place}"), "chat", "k", 1) };
        store.record(row.clone()).await.unwrap();
        assert_eq!(of_request(&store, &row.request).await, [row]);
    }
}

/// Rows that come together are written in one transaction, also if some of them are there already.
async fn rows_that_come_together_are_written_and_charged_once(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
    let row = |number: u32| AttemptRow {
        started_at: after(number.into()),
        agent: number.is_multiple_of(3).then(|| format!("agent {number}")),
        code: number.is_multiple_of(4).then(|| format!("code {number}")),
        first_token_us: (!number.is_multiple_of(5)).then_some(u64::from(number)),
        last: !number.is_multiple_of(7),
        brownout: number.is_multiple_of(2),
        ..attempt(
            &format!("r{number:02}"),
            "chat",
            &format!("key-{}", number % 3),
            10 + u64::from(number),
        )
    };
    let mut expected = 0;
    for numbers in [0..27, 20..60, 0..60] {
        expected = expected.max(numbers.end);
        let record = |number| {
            let (store, row) = (store.clone(), row(number));
            tokio::spawn(async move { store.record(row).await })
        };
        for recorded in numbers.map(record).collect::<Vec<_>>() {
            recorded.await.unwrap().unwrap();
        }
        let rows = store.attempts(LedgerQuery { limit: 1_000, ..LedgerQuery::default() }).await;
        assert_eq!(rows.unwrap(), (0..expected).rev().map(row).collect::<Vec<_>>());
        let tokens: u64 = (0..expected).map(|number| 10 + u64::from(number)).sum();
        assert_eq!(day(&store, "chat").await, (tokens, 0));
    }
}

async fn lists_are_filtered_and_newest_first(database: Database) {
    let store = database.open().await;
    for number in 0..20 {
        let tenant = if number % 2 == 0 { "chat" } else { "batch" };
        let row = attempt(&format!("r{number:02}"), tenant, "k", 1);
        store.record(AttemptRow { started_at: after(number), ..row }).await.unwrap();
    }
    let list = async |query| {
        let rows = store.attempts(query).await.unwrap();
        rows.iter().map(|row| row.started_at.0 - NOW.0).collect::<Vec<_>>()
    };
    let all = LedgerQuery { limit: 1_000, ..LedgerQuery::default() };
    assert!(list(all.clone()).await.into_iter().eq((0..20).rev()));
    assert_eq!(list(LedgerQuery { limit: 2, ..all.clone() }).await, [19, 18]);
    let chat = LedgerQuery { tenant: Some("chat".to_owned()), ..all.clone() };
    assert!(list(chat.clone()).await.into_iter().eq((0..20).rev().filter(|n| n % 2 == 0)));
    let some = LedgerQuery { since: Some(after(4)), until: Some(after(8)), ..chat };
    assert_eq!(list(some).await, [6, 4]);
    assert_eq!(list(LedgerQuery { since: Some(after(19)), ..all }).await, [19]);
}

async fn sums(store: &Store, by: UsageGrouping) -> Vec<UsageRow> {
    let query = UsageQuery {
        by,
        since: UnixMicros(0),
        until: None,
        tenant: None,
        model: None,
        quantiles: true,
        ..UsageQuery::default()
    };
    store.usage(query).await.unwrap().rows
}

async fn names(store: &Store, by: UsageGrouping) -> Vec<(String, u64)> {
    sums(store, by).await.into_iter().map(|row| (row.name, row.charged)).collect()
}

async fn sums_by_everything(database: Database) {
    let store = database.open().await;
    let first = AttemptRow { agent: Some("crawler".to_owned()), ..retried("a", "chat", "k1", 1) };
    let second = AttemptRow {
        attempt: 2,
        worker: Some("gpu-2".to_owned()),
        waited_us: 2_501,
        first_token_us: Some(40_000),
        ..attempt("a", "chat", "k1", 20)
    };
    let refused = AttemptRow {
        started_at: after(-HOUR),
        pool: None,
        worker: None,
        outcome: AttemptOutcome::Refused,
        usage: UsageSource::None,
        first_token_us: None,
        input_tokens: 0,
        cached_tokens: 0,
        ..attempt("b", "chat", "k2", 0)
    };
    let other = AttemptRow {
        started_at: after(DAY),
        model: "qwen".to_owned(),
        group: "guests".to_owned(),
        ..attempt("c", "batch", "k3", 300)
    };
    for row in [first, second, refused, other] {
        store.record(row).await.unwrap();
    }
    let chat = &sums(&store, UsageGrouping::Tenant).await[1];
    let expected = UsageRow {
        name: "chat".to_owned(),
        split: None,
        requests: 2,
        failed: 1,
        input_tokens: 20,
        cached_tokens: 8,
        output_tokens: 10,
        charged: 21,
        provider_tokens: 21,
        worker_us: 90,
        money: MicroUnits::ZERO,
        waited_us_mean: 2_000,
        waited_us_p50: Some(1_500),
        waited_us_p95: Some(2_501),
        waited_us_max: 2_501,
        first_token_us_mean: Some(40_000),
    };
    assert_eq!(*chat, expected);
    let pairs = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
        pairs.iter().map(|(name, charged)| ((*name).to_owned(), *charged)).collect()
    };
    assert_eq!(names(&store, UsageGrouping::Group).await, pairs(&[("guests", 300), ("staff", 21)]));
    assert_eq!(
        names(&store, UsageGrouping::Key).await,
        pairs(&[("k3", 300), ("k1", 21), ("k2", 0)])
    );
    assert_eq!(names(&store, UsageGrouping::Model).await, pairs(&[("qwen", 300), ("llama", 21)]));
    assert_eq!(names(&store, UsageGrouping::Pool).await, pairs(&[("llama", 321), ("-", 0)]));
    let workers = pairs(&[("gpu-1", 301), ("gpu-2", 20), ("-", 0)]);
    assert_eq!(names(&store, UsageGrouping::Worker).await, workers);
    let outcomes = pairs(&[("completed", 320), ("retried", 1), ("refused", 0)]);
    assert_eq!(names(&store, UsageGrouping::Outcome).await, outcomes);
    assert_eq!(names(&store, UsageGrouping::Agent).await, pairs(&[("-", 320), ("crawler", 1)]));
    assert_eq!(
        names(&store, UsageGrouping::Day).await,
        pairs(&[("2026-11-15", 21), ("2026-11-16", 300)])
    );
    let hours = [("2026-11-15T07", 0), ("2026-11-15T08", 21), ("2026-11-16T08", 300)];
    assert_eq!(names(&store, UsageGrouping::Hour).await, pairs(&hours));
    assert_eq!(sums(&store, UsageGrouping::Outcome).await[2].first_token_us_mean, None);

    let query = UsageQuery {
        by: UsageGrouping::Tenant,
        since: NOW,
        until: Some(after(1)),
        tenant: Some("chat".to_owned()),
        model: Some("llama".to_owned()),
        ..UsageQuery::default()
    };
    let some = store.usage(query.clone()).await.unwrap().rows;
    assert_eq!((some.len(), some[0].requests, some[0].charged), (1, 1, 21));
    let none = UsageQuery { model: Some("qwen".to_owned()), ..query };
    assert!(store.usage(none).await.unwrap().rows.is_empty());
}

async fn rows_that_hardly_fit(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(10), None)).await;
    let huge = AttemptRow {
        model: "\0".repeat(400),
        agent: Some("\u{1f600}".repeat(100)),
        estimate: u64::MAX,
        input_tokens: u64::MAX,
        output_tokens: u64::MAX,
        waited_us: u64::MAX,
        total_us: u64::MAX,
        attempt: u32::MAX,
        status: u16::MAX,
        ..attempt("huge", "chat", "k", u64::MAX)
    };
    store.record(huge).await.unwrap();
    let row = of_request(&store, "huge").await.remove(0);
    assert_eq!((row.charged, row.attempt, row.status), (1_000_000_000_000, u32::MAX, u16::MAX));
    assert!(row.model.len() <= 256 && row.agent.unwrap().len() <= 256);
    assert_eq!(day(&store, "chat").await, (1_000_000_000_000, 0));
    assert_eq!(sums(&store, UsageGrouping::Tenant).await[0].charged, 1_000_000_000_000);
    for request in ["", "a\0b"] {
        let refused = store.record(attempt(request, "chat", "k", 1)).await;
        assert!(matches!(refused, Err(StoreError::Invalid { field: "request", .. })));
    }
}

async fn dropped_callers_lose_nothing(database: Database) {
    let store = database.open().await;
    for number in 0..500 {
        let row = attempt(&format!("r{number}"), "chat", "k", 1);
        tokio::select! {
            biased;
            written = store.record(row) => written.unwrap(),
            () = std::future::ready(()) => {}
        }
    }
    store.close().await.unwrap();
    let store = database.open().await;
    let sum = &sums(&store, UsageGrouping::Tenant).await[0];
    assert_eq!((sum.requests, sum.charged), (500, 500));
}

async fn what_was_acknowledged_is_there_after_reopening(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
    let mut writers = Vec::new();
    for writer in 0..8 {
        let store = store.clone();
        writers.push(tokio::spawn(async move {
            for number in 0..100 {
                let request = format!("w{writer}-{number}");
                store.record(attempt(&request, "chat", &format!("k{writer}"), 3)).await.unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    drop(store.close().await);
    let store = database.open().await;
    assert_eq!(sums(&store, UsageGrouping::Tenant).await[0].requests, 800);
    assert_eq!(sums(&store, UsageGrouping::Key).await.len(), 8);
    assert_eq!(day(&store, "chat").await, (2_400, 0));
}

async fn pruning_keeps_sums(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(Some(1_000_000), None)).await;
    let mut rows = Vec::new();
    for number in 0..2_500 {
        let store = store.clone();
        let row = attempt(&format!("r{number}"), "chat", "k", 1);
        let row = AttemptRow { started_at: after(number), ..row };
        rows.push(tokio::spawn(async move { store.record(row).await.unwrap() }));
    }
    for row in rows {
        row.await.unwrap();
    }
    assert_eq!(store.prune(after(2_100)).await.unwrap(), 2_100);
    assert_eq!(store.prune(after(2_100)).await.unwrap(), 0);
    let left = sums(&store, UsageGrouping::Tenant).await;
    assert_eq!(left[0].requests, 400);
    assert_eq!(day(&store, "chat").await, (2_500, 0));
}

async fn a_closed_store_says_so(database: Database) {
    let store = database.open().await;
    let other = store.clone();
    let pending: Vec<_> = (0..50)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                store.record(attempt(&format!("r{number}"), "chat", "k", 1)).await
            })
        })
        .collect();
    store.close().await.unwrap();
    let mut written = 0;
    for row in pending {
        match row.await.unwrap() {
            Ok(()) => written += 1,
            Err(problem) => assert!(matches!(problem, StoreError::Closed), "{problem}"),
        }
    }
    let closed = |it: Result<(), StoreError>| assert!(matches!(it, Err(StoreError::Closed)));
    closed(other.record(attempt("late", "chat", "k", 1)).await);
    closed(other.ping().await);
    closed(other.directory().await.map(drop));
    closed(other.directory_version().await.map(drop));
    closed(other.prune(NOW).await.map(drop));
    closed(other.budgets(BudgetOwners::tenant("chat"), NOW).await.map(drop));
    closed(other.reserve(crate::rows::reservation("r", "chat", "k", 1)).await.map(drop));
    let add = fairgate_store::DirectoryChange::AddGroup {
        name: "g".to_owned(),
        weight: 1,
        budgets: Vec::new(),
    };
    closed(other.change("test", NOW, add).await.map(drop));
    closed(other.close().await);
    let store = database.open().await;
    let sum = sums(&store, UsageGrouping::Tenant).await;
    assert_eq!(sum.first().map_or(0, |sum| sum.requests), written);
}

async fn a_secret_is_made_once(database: Database) {
    let store = database.open().await;
    let (salts, other) =
        tokio::join!(store.installation_secret("salts"), store.installation_secret("other"));
    let salts = salts.unwrap();
    assert_ne!(salts, other.unwrap());
    assert_ne!(salts.expose(), &[0; 32]);
    assert_eq!(store.installation_secret("salts").await.unwrap(), salts);
    assert_eq!(format!("{salts:?}"), "InstallationSecret(…)");
    store.close().await.unwrap();
    // After a restart it is the same.
    let store = database.open().await;
    assert_eq!(store.installation_secret("salts").await.unwrap(), salts);
    store.close().await.unwrap();
}

async fn searches_find_rows_by_anything(database: Database) {
    let store = database.open().await;
    for number in 0..30 {
        let row = attempt(&format!("r{number:02}"), "chat", "k", 1);
        let row = AttemptRow {
            started_at: after(number / 10),
            status: if number % 2 == 0 { 200 } else { 429 },
            code: (number % 2 == 1).then(|| "queue_full".to_owned()),
            ..row
        };
        store.record(row).await.unwrap();
    }
    store
        .record(AttemptRow {
            started_at: after(-2 * DAY),
            status: 429,
            ..attempt("old", "chat", "k", 1)
        })
        .await
        .unwrap();
    let filter = AttemptFilter {
        tenant: Some("chat".to_owned()),
        status: Some(400..=499),
        last_only: true,
        ..AttemptFilter::default()
    };
    let mut search = AttemptSearch { filter, limit: 4, ..AttemptSearch::default() };
    let (mut found, mut stops) = (Vec::new(), Vec::new());
    loop {
        let page = store.search_attempts(search.clone()).await.unwrap();
        found.extend(page.rows.into_iter().map(|row| row.request));
        stops.extend(page.stopped);
        let Some(next) = page.next else { break };
        search.cursor = Some(next);
    }
    let odd = (0..30).rev().filter(|number| number % 2 == 1).map(|number| format!("r{number:02}"));
    assert_eq!(found, odd.chain(["old".to_owned()]).collect::<Vec<_>>());
    let stopped: Vec<_> = stops.iter().map(|stop| stop.because).collect();
    assert_eq!(stopped, [SearchBound::Day]);
    let nul = AttemptFilter { model: Some("a\0b".to_owned()), ..AttemptFilter::default() };
    let search = AttemptSearch { filter: nul, ..AttemptSearch::default() };
    assert_eq!(store.search_attempts(search).await.unwrap().rows, []);
}

async fn sums_are_split_and_have_quantiles(database: Database) {
    let store = database.open().await;
    for number in 0..40_u64 {
        let (name, tenant) = (format!("r{number}"), if number < 20 { "chat" } else { "batch" });
        let row = AttemptRow {
            started_at: after(if number % 2 == 0 { 0 } else { DAY }),
            waited_us: number,
            last: number != 39,
            ..attempt(&name, tenant, "k", number + 10)
        };
        store.record(row).await.unwrap();
    }
    let query = UsageQuery {
        by: UsageGrouping::Day,
        split: Some(UsageGrouping::Tenant),
        quantiles: true,
        ..UsageQuery::default()
    };
    let report = store.usage(query.clone()).await.unwrap();
    assert_eq!((report.omitted, report.charged), (0, (10..50).sum()));
    let rows: Vec<_> = report
        .rows
        .iter()
        .map(|row| {
            (&*row.name, row.split.as_deref(), row.requests, row.waited_us_p50, row.waited_us_p95)
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("2026-11-15", Some("batch"), 10, Some(28), Some(38)),
            ("2026-11-15", Some("chat"), 10, Some(8), Some(18)),
            ("2026-11-16", Some("batch"), 9, Some(29), Some(37)),
            ("2026-11-16", Some("chat"), 10, Some(9), Some(19)),
        ]
    );
    let plain = store.usage(UsageQuery { quantiles: false, ..query.clone() }).await.unwrap();
    let without = report.rows.iter().map(|row| UsageRow {
        waited_us_p50: None,
        waited_us_p95: None,
        ..row.clone()
    });
    assert_eq!(plain.rows, without.collect::<Vec<_>>());
    let uncached = UsageQuery { charge: ChargeColumn::Uncached, ..query };
    let more = store.usage(uncached).await.unwrap().charged;
    assert_eq!(more, report.charged + 3 * 40, "see charged_uncached of `attempt`");
}

async fn last_uses_of_keys_are_written_once_a_minute(database: Database) {
    let store = database.open().await;
    tenant(&store, "chat", budgets(None, None)).await;
    let key = key(&store, "chat", budgets(None, None)).await;
    let uses = async || {
        let keys = vec![key.clone(), "nobody".to_owned()];
        store.key_uses(keys).await.unwrap().get(&key).map(|at| at.0 - NOW.0)
    };
    assert_eq!(uses().await, None);
    let minute = 60_000_000;
    for (number, (at, known)) in
        [(0, 0), (minute - 1, 0), (minute, minute), (5, minute), (3 * minute, 3 * minute)]
            .into_iter()
            .enumerate()
    {
        let row =
            AttemptRow { started_at: after(at), ..attempt(&format!("r{number}"), "chat", &key, 1) };
        store.record(row).await.unwrap();
        // A row of nobody's key does not stop the others.
        store.record(attempt(&format!("n{number}"), "chat", "nobody", 1)).await.unwrap();
        assert_eq!(uses().await, Some(known), "{at}");
    }
    let reopened = store.key_uses(Vec::new()).await.unwrap();
    assert!(reopened.is_empty());
}
