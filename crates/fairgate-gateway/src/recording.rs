//! Rows on their way to the ledger. A row that has been handed in gets there, also where whoever waited for it leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fairgate_store::Attempt;
use tokio::runtime::Handle;

use crate::app::App;

/// A row being written; ready once it outlives a killed process. Dropped before that, a task of its own goes on with it.
#[must_use]
pub(crate) struct Recording {
    write: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    app: Arc<App>,
}

impl Recording {
    /// Writes a row.
    pub(crate) fn start(app: Arc<App>, row: Attempt) -> Self {
        let writer = app.clone();
        let write = async move {
            let request = row.request.clone();
            if let Err(error) = writer.store.record(row).await {
                writer.metrics.ledger_write_failed();
                tracing::error!(%request, %error, "a row is not in the ledger");
            }
        };
        Self { write: Some(Box::pin(write)), app }
    }
}

impl Future for Recording {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(write) = self.write.as_mut() else { return Poll::Ready(()) };
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
            write.await;
            drop(one);
        });
    }
}
