//! A fresh database for each test, on either kind.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use fairgate_store::{ResolvedReservations, Store, StoreError, StoreOptions};
use fairgate_testkit::postgres_server::shared_server;

/// Which database a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A database that is there for one test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    /// Its name on the server, or its file.
    pub(crate) name: String,
    /// Where everything is that the test leaves on this machine.
    pub(crate) folder: tempfile::TempDir,
}

impl Database {
    pub(crate) async fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        match kind {
            Kind::Sqlite => {
                let name = folder.path().join("store.db").display().to_string();
                Self { kind, url: format!("sqlite:{name}"), name, folder }
            }
            Kind::Postgres => {
                let name = shared_server().create_database().await.unwrap();
                Self { kind, url: shared_server().socket_url(&name), name, folder }
            }
        }
    }

    pub(crate) async fn open(&self) -> Store {
        self.try_open().await.unwrap().0
    }

    pub(crate) async fn try_open(&self) -> Result<(Store, ResolvedReservations), StoreError> {
        self.open_as(options()).await
    }

    /// Opens it as another gateway on this machine would: with the first spool that no open store has.
    pub(crate) async fn open_as(
        &self,
        options: StoreOptions,
    ) -> Result<(Store, ResolvedReservations), StoreError> {
        for number in 0.. {
            let spool = Some(self.spool(number));
            match Store::open(&self.url, StoreOptions { spool, ..options.clone() }).await {
                Err(StoreError::SpoolLocked { .. }) => {}
                opened => return opened,
            }
        }
        unreachable!("there is always another spool")
    }

    /// The folder of a gateway's rows on their way to PostgreSQL.
    pub(crate) fn spool(&self, number: u32) -> PathBuf {
        self.folder.path().join(format!("spool-{number}"))
    }

    /// Opens it with a lease that runs out soon.
    pub(crate) async fn open_with_lease(&self, lease: Duration) -> (Store, ResolvedReservations) {
        self.open_as(StoreOptions { lease, ..options() }).await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Someone will want to look at it.
            self.folder.disable_cleanup(true);
        }
    }
}

/// The usual options, with time for a machine that has much else to do.
pub(crate) fn options() -> StoreOptions {
    StoreOptions { patience: Duration::from_secs(5), ..StoreOptions::default() }
}

/// Opens a store that another process has just closed. While a third process is being started, a copy of the lock lives on in
/// it for a moment, so a lock that is taken is tried again.
pub(crate) async fn open_next(url: &str, options: StoreOptions) -> Store {
    let give_up = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        match Store::open(url, options.clone()).await {
            Err(StoreError::Locked { .. } | StoreError::SpoolLocked { .. })
                if std::time::Instant::now() < give_up =>
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            opened => return opened.unwrap().0,
        }
    }
}

/// Runs a case on a fresh database.
pub(crate) fn run<F: Future<Output = ()>>(kind: Kind, case: impl FnOnce(Database) -> F) {
    run_alone(async { case(Database::new(kind).await).await });
}

/// Runs a case that has its own database.
pub(crate) fn run_alone(case: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(case);
}

/// Makes each case a test on each kind of database.
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[test]
            fn $case() {
                $crate::database::run($crate::database::Kind::Sqlite, super::$case);
            })+
        }

        mod on_postgres {
            $(#[test]
            fn $case() {
                $crate::database::run($crate::database::Kind::Postgres, super::$case);
            })+
        }
    };
}
pub(crate) use on_every_database;

/// The number that a statement gave.
pub(crate) fn number(answer: &[tokio_postgres::SimpleQueryMessage]) -> Option<u32> {
    answer.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}
