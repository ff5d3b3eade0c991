//! Rows on their way to the ledger. A row that has been handed in gets there, also where whoever waited for it leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fairgate_config::OnStoreFailure;
use fairgate_store::{Attempt, StoreError};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::app::App;

/// The row of an answer could be kept nowhere, and the configuration wants no answer without a row: its end must not be given
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unrecorded;

type Recorded = Result<(), Unrecorded>;

/// A row being written; ready once it outlives a killed process, or cannot be kept. Dropped before that, a task of its own
/// goes on with it.
#[must_use]
pub(crate) struct Recording {
    write: Option<Pin<Box<dyn Future<Output = Recorded> + Send>>>,
    app: Arc<App>,
}

impl Recording {
    /// Writes a row.
    pub(crate) fn start(app: Arc<App>, row: Attempt) -> Self {
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

/// What becomes of an answer whose row could not be kept.
fn unrecorded(app: &App, request: &str, error: &StoreError) -> Recorded {
    let is_served = app.config.load().on_store_failure == OnStoreFailure::Serve;
    app.metrics.row_not_kept(is_served);
    if let Some(left_out) = app.complaints.admit("row", Instant::now()) {
        let consequence = match is_served {
            true => "a request's row could not be kept; its answer is given out without one",
            false => "a request's row could not be kept; the end of its answer is not given out",
        };
        tracing::error!(request, %error, left_out, "{consequence}");
    }
    if is_served { Ok(()) } else { Err(Unrecorded) }
}

impl Future for Recording {
    type Output = Recorded;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Recorded> {
        let Some(write) = self.write.as_mut() else { return Poll::Ready(Ok(())) };
        let done = write.as_mut().poll(cx);
        if done.is_ready() {
            self.write = None;
        }
        done
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let Some(mut write) = self.write.take() else { return };
        // Mostly it takes no more than this, with or without a runtime.
        if write.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        // Without a runtime the process is coming to its end, and nobody is left to write.
        let Ok(runtime) = Handle::try_current() else { return };
        let one = self.app.rows_adrift.one();
        runtime.spawn(async move {
            // Whoever could be refused has left.
            let _ = write.await;
            drop(one);
        });
    }
}
