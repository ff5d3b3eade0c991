//! The ledger: every attempt a row, and what rows sum up to.

use fairgate_store::{
    AttemptOutcome, AttemptRow, BudgetOwners, LedgerQuery, MicroUnits, Store, StoreError,
    UnixMicros, UsageGrouping, UsageQuery, UsageRow, UsageSource,
};

use crate::database::{Database, on_every_database};
use crate::rows::{DAY, HOUR, NOW, after, attempt, budgets, day, retried, tenant};

on_every_database!(
    rows_are_read_back,
    lists_are_filtered_and_newest_first,
    sums_by_everything,
    rows_that_hardly_fit,
    dropped_callers_lose_nothing,
    what_was_acknowledged_is_there_after_reopening,
    pruning_keeps_sums,
    a_closed_store_says_so,
    a_secret_is_made_once,
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
    let query = UsageQuery { by, since: UnixMicros(0), until: None, tenant: None, model: None };
    store.usage(query).await.unwrap()
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
        requests: 2,
        failed: 1,
        input_tokens: 20,
        cached_tokens: 8,
        output_tokens: 10,
        charged: 21,
        provider_tokens: 21,
        money: MicroUnits::ZERO,
        waited_us_mean: 2_000,
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
    };
    let some = store.usage(query.clone()).await.unwrap();
    assert_eq!((some.len(), some[0].requests, some[0].charged), (1, 1, 21));
    let none = UsageQuery { model: Some("qwen".to_owned()), ..query };
    assert!(store.usage(none).await.unwrap().is_empty());
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
