//! A fresh database for each test, on either kind.

use std::future::Future;
use std::time::Duration;

use fairgate_store::{Resolved, Store, StoreError, StoreOptions};

use crate::server::server;

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
    folder: Option<tempfile::TempDir>,
}

impl Database {
    pub(crate) async fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let name = folder.path().join("store.db").display().to_string();
                Self { kind, url: format!("sqlite:{name}"), name, folder: Some(folder) }
            }
            Kind::Postgres => {
                let name = server().database().await;
                Self { kind, url: server().url(&name), name, folder: None }
            }
        }
    }

    pub(crate) async fn open(&self) -> Store {
        self.try_open().await.unwrap().0
    }

    pub(crate) async fn try_open(&self) -> Result<(Store, Resolved), StoreError> {
        Store::open(&self.url, StoreOptions::default()).await
    }

    /// Opens it with a lease that runs out soon.
    pub(crate) async fn open_with_lease(&self, lease: Duration) -> (Store, Resolved) {
        Store::open(&self.url, StoreOptions { lease, ..StoreOptions::default() }).await.unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = &mut self.folder
        {
            // Someone will want to look at it.
            folder.disable_cleanup(true);
        }
    }
}

/// Runs a case on a fresh database.
pub(crate) fn run<F: Future<Output = ()>>(kind: Kind, case: impl FnOnce(Database) -> F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async { case(Database::new(kind).await).await });
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
