//! The lock that allows only one gateway at a time to export the ledger.

use std::pin::Pin;

use crate::error::StoreError;
use crate::postgres::AdvisoryLock;

/// Boxed future, for the same reason as [`StoreFuture`](crate::StoreFuture).
type ExportLockFuture<'a> = Pin<Box<dyn Future<Output = Result<bool, StoreError>> + Send + 'a>>;

/// A lock that only one process of all on a database can hold at a time. It is released when the
/// process ends, or when this value is dropped.
///
/// If the connection to PostgreSQL breaks, another process may get the lock before this one
/// notices. So work that is done under the lock must do no harm if it is done twice.
#[derive(Debug)]
pub struct ExportLock(Option<AdvisoryLock>);

impl ExportLock {
    pub(crate) fn always_held() -> Self {
        Self(None)
    }

    pub(crate) fn on_server(lock: AdvisoryLock) -> Self {
        Self(Some(lock))
    }

    /// Takes the lock if it is free. Returns true if this process holds the lock now. Does not wait
    /// for another process.
    pub fn try_hold(&mut self) -> ExportLockFuture<'_> {
        Box::pin(async move {
            match &mut self.0 {
                None => Ok(true),
                Some(lock) => lock.try_hold().await,
            }
        })
    }
}
