//! Writes rows to the ledger. A write that has begun is finished even if nobody waits for it any more.
//!
//! If neither the spool nor the database accepts a row, the write resolves to [`RowWriteError`] and the end of the
//! answer is withheld, unless `on_store_failure` says otherwise. With `on_store_failure: refuse`, requests are refused
//! before they are submitted while rows cannot be written.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fairgate_config::OnStoreFailure;
use fairgate_store::{AttemptRow, StoreError};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::data_plane::DataPlane;

/// Error for an answer whose row could not be written, although the configuration wants no answer without a row. The
/// end of that answer must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowWriteError;

type RowWriteResult = Result<(), RowWriteError>;

/// Future of the write of a row. Ready once the row is stored so that it survives a killed process, or once it is clear
/// that it cannot be written. If the future is dropped before that, a separate task finishes the write.
#[must_use]
pub(crate) struct RowWrite {
    write: Option<Pin<Box<dyn Future<Output = RowWriteResult> + Send>>>,
    app: Arc<DataPlane>,
}

impl RowWrite {
    /// Starts the write of a row.
    pub(crate) fn start(app: Arc<DataPlane>, row: impl Into<Box<AttemptRow>>) -> Self {
        let row = row.into();
        app.ended.tell(&row);
        let writer = app.clone();
        let write = async move {
            let request = row.request.clone();
            match writer.store.record(row).await {
                Ok(()) => Ok(()),
                Err(error) => unrecorded(&writer, &request, &error),
            }
        };
        Self { write: Some(Box::pin(write)), app }
    }
}

/// Decides if an answer whose row could not be written may be sent, counts the lost row, and logs the error.
fn unrecorded(app: &DataPlane, request: &str, error: &StoreError) -> RowWriteResult {
    let is_served = app.config.load().on_store_failure == OnStoreFailure::Serve;
    app.metrics.count_lost_row(is_served);
    if let Some(left_out) = app.log_throttle.admit("row", Instant::now()) {
        let consequence = match is_served {
            true => "a request's row could not be kept; its answer is given out without one",
            false => "a request's row could not be kept; the end of its answer is not given out",
        };
        tracing::error!(request, %error, left_out, "{consequence}");
    }
    if is_served { Ok(()) } else { Err(RowWriteError) }
}

impl Future for RowWrite {
    type Output = RowWriteResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<RowWriteResult> {
        let Some(write) = self.write.as_mut() else { return Poll::Ready(Ok(())) };
        let done = write.as_mut().poll(cx);
        if done.is_ready() {
            self.write = None;
        }
        done
    }
}

impl Drop for RowWrite {
    fn drop(&mut self) {
        let Some(mut write) = self.write.take() else { return };
        // Usually one poll is enough, with or without a runtime.
        if write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        // Without a runtime the process is ending, and nothing can write any more.
        let Ok(runtime) = Handle::try_current() else { return };
        let one = self.app.detached_rows.count_one();
        runtime.spawn(async move {
            // The client that could be refused has left.
            let _ = write.await;
            drop(one);
        });
    }
}
