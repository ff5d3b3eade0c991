//! A ledger for each test, on either database, and exports of this ledger.

use std::sync::Arc;
use std::time::Duration;

use fairgate_export::{
    ClickHouseTarget, ExportError, ExportOptions, ExportStep, ExportTask, LedgerExport,
};
use fairgate_store::{
    AttemptOutcome, AttemptRow, MicroUnits, Reservation, Store, StoreError, StoreOptions,
    UnixMicros, UsageSource, UsageTerms,
};
use fairgate_testkit::postgres_server::shared_server;

use crate::fake_clickhouse::FakeClickHouse;

/// The time 2026-11-15 08:30 UTC.
pub(crate) const NOW: UnixMicros = UnixMicros(1_794_731_400_000_000);
pub(crate) const DAY: i64 = 86_400_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A database that exists for one test.
pub(crate) struct Ledger {
    url: String,
    /// Name of the database on the server.
    pub(crate) name: String,
    folder: tempfile::TempDir,
}

impl Ledger {
    pub(crate) async fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (url, name) = match kind {
            Kind::Sqlite => {
                (format!("sqlite:{}", folder.path().join("store.db").display()), String::new())
            }
            Kind::Postgres => {
                let name = shared_server().create_database().await.unwrap();
                (shared_server().socket_url(&name), name)
            }
        };
        Self { url, name, folder }
    }

    /// Opens the database as another gateway would, with a spool of its own.
    pub(crate) async fn open(&self) -> Store {
        self.open_with_lease(Duration::from_secs(30)).await
    }

    pub(crate) async fn open_with_lease(&self, lease: Duration) -> Store {
        for number in 0.. {
            let spool = Some(self.folder.path().join(format!("spool-{number}")));
            let patience = Duration::from_secs(5);
            let options = StoreOptions { spool, patience, lease, ..StoreOptions::default() };
            match Store::open(&self.url, options).await {
                Err(StoreError::SpoolLocked { .. }) => {}
                opened => return opened.unwrap().0,
            }
        }
        unreachable!("there is always another spool")
    }
}

pub(crate) fn options() -> ExportOptions {
    ExportOptions {
        batch_rows: 3,
        timeout: Duration::from_secs(5),
        reread_after: Duration::ZERO,
        ..ExportOptions::default()
    }
}

pub(crate) fn target(clickhouse: &FakeClickHouse) -> ClickHouseTarget {
    ClickHouseTarget {
        url: clickhouse.url.parse().unwrap(),
        database: "usage".to_owned(),
        credential: None,
        ca: None,
    }
}

pub(crate) fn export_with(
    store: &Store,
    clickhouse: &FakeClickHouse,
    options: ExportOptions,
) -> Arc<LedgerExport> {
    LedgerExport::new(store.clone(), &target(clickhouse), options)
}

pub(crate) fn export(store: &Store, clickhouse: &FakeClickHouse) -> Arc<LedgerExport> {
    export_with(store, clickhouse, options())
}

/// Runs steps until nothing is left to send.
pub(crate) async fn finish(task: &mut ExportTask) -> Result<(), ExportError> {
    while task.step().await? == ExportStep::More {}
    Ok(())
}

/// Returns a row whose numbers all differ, so that no sum is right by accident.
pub(crate) fn row(request: &str, number: u64) -> AttemptRow {
    AttemptRow {
        request: request.to_owned(),
        attempt: 1,
        last: true,
        started_at: UnixMicros(NOW.0 + i64::try_from(number).unwrap()),
        group: "staff".to_owned(),
        tenant: "chat".to_owned(),
        key: "k".to_owned(),
        agent: None,
        session: Some("a \"name\"\n\u{1f600}".to_owned()),
        route: "/v1/chat/completions".to_owned(),
        stream: true,
        model: "llama".to_owned(),
        pool: Some("llama".to_owned()),
        worker: None,
        estimate: 100,
        input_tokens: 1_000 + number,
        cached_tokens: 10 + number,
        output_tokens: 200 + number,
        charged: 1_300 + number,
        usage: UsageSource::Reported,
        waited_us: 1_500,
        first_token_us: None,
        total_us: 90_000,
        status: 200,
        outcome: AttemptOutcome::Completed,
        code: None,
        brownout: false,
        occupied: 0,
        worker_us: 30,
        price_set: Some("wt-1".to_owned()),
        provider_tokens: 1_200 + number,
        money: MicroUnits(7 + number),
        price: None,
        tier: 0,
        class: None,
        cache_written_tokens: 3,
        cache_written_1h_tokens: 1,
        estimate_uncached: 130,
        charged_uncached: 1_400 + number,
        claim: None,
    }
}

/// Records this number of rows, with the requests `r00`, `r01` and so on from `first`.
pub(crate) async fn record(store: &Store, first: u64, rows: u64) {
    for number in first..first + rows {
        store.record(row(&format!("r{number:02}"), number)).await.unwrap();
    }
}

/// Returns the reservation of the request whose row [`row`] returns.
pub(crate) fn reservation(request: &str, at: UnixMicros) -> Reservation {
    Reservation {
        request: request.to_owned(),
        group: "staff".to_owned(),
        tenant: "chat".to_owned(),
        key: "k".to_owned(),
        model: "llama".to_owned(),
        tokens: 5_000,
        provider_tokens: 5_000,
        money: MicroUnits(900),
        hosted: None,
        model_budgets: Vec::new(),
        claim: None,
        has_files: false,
        terms: UsageTerms::default(),
        at,
    }
}

/// Makes each case a test on each kind of database.
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case($crate::ledger::Ledger::new($crate::ledger::Kind::Sqlite).await).await;
            })+
        }

        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::$case($crate::ledger::Ledger::new($crate::ledger::Kind::Postgres).await).await;
            })+
        }
    };
}
pub(crate) use on_every_database;
