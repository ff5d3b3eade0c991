//! Lock by which one gateway at a time exports the ledger.

use std::pin::Pin;

use crate::error::StoreError;
use crate::postgres::AdvisoryLock;

/// Boxed future, for the same reason as [`StoreFuture`](crate::StoreFuture).
type ExportLockFuture<'a> = Pin<Box<dyn Future<Output = Result<bool, StoreError>> + Send + 'a>>;

/// Lock that one process at a time holds, over all processes of a database. It is free again when the process ends, or
/// when this value is dropped.
///
/// If the connection to PostgreSQL breaks, another process may get the lock before this one notices. So the work under the
/// lock must be such that doing it twice does no harm.
#[derive(Debug)]
pub struct ExportLock(Option<AdvisoryLock>);

impl ExportLock {
    pub(crate) fn always_held() -> Self {
        Self(None)
    }

    pub(crate) fn on_server(lock: AdvisoryLock) -> Self {
        Self(Some(lock))
    }

    /// Returns whether this process holds the lock, after trying to take it if it is free. Does not wait for another
    /// process.
    pub fn try_hold(&mut self) -> ExportLockFuture<'_> {
        Box::pin(async move {
            match &mut self.0 {
                None => Ok(true),
                Some(lock) => lock.try_hold().await,
            }
        })
    }
}
