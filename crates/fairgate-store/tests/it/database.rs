//! A fresh database for each test, on either kind.

use std::future::Future;

use fairgate_store::{Resolved, Store, StoreError, StoreOptions};

/// Which database a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
}

/// A database that is there for one test.
pub(crate) struct Database {
    pub(crate) kind: Kind,
    pub(crate) url: String,
    _folder: Option<tempfile::TempDir>,
}

impl Database {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite:{}", folder.path().join("store.db").display());
                Self { kind, url, _folder: Some(folder) }
            }
        }
    }

    pub(crate) async fn open(&self) -> Store {
        self.try_open().await.unwrap().0
    }

    pub(crate) async fn try_open(&self) -> Result<(Store, Resolved), StoreError> {
        Store::open(&self.url, StoreOptions::default()).await
    }
}

/// Runs a case on a fresh database.
pub(crate) fn run<F: Future<Output = ()>>(kind: Kind, case: impl FnOnce(Database) -> F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(case(Database::new(kind)));
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
    };
}
pub(crate) use on_every_database;
