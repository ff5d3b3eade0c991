//! Rows on their way to the ledger. A row that has been handed in gets there, also where whoever waited for it leaves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fairgate_store::Attempt;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::app::App;

/// Keeps count of the rows that nobody waits for.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// One permit is away for each row that is being written in a task of its own.
    adrift: Arc<Semaphore>,
}

/// More rows than there can be at once.
const MANY: u32 = 1 << 28;

impl Rows {
    pub(crate) fn new() -> Self {
        let many = usize::try_from(MANY).unwrap_or(Semaphore::MAX_PERMITS);
        Self { adrift: Arc::new(Semaphore::new(many.min(Semaphore::MAX_PERMITS))) }
    }

    /// Waits until no row is on its way that nobody waits for, or the time is over. Says whether none is.
    pub(crate) async fn settled(&self, patience: Duration) -> bool {
        tokio::time::timeout(patience, self.adrift.acquire_many(MANY)).await.is_ok()
    }
}

/// A row being written; ready once it is committed.
#[must_use]
pub(crate) struct Recording {
    write: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    app: Arc<App>,
}

impl Recording {
    /// Writes a row. Where this is dropped before it is done, a task of its own goes on with it.
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
        let Some(write) = self.write.take() else { return };
        // Without a runtime the process is coming to its end, and nobody is left to write.
        let Ok(runtime) = Handle::try_current() else { return };
        let adrift = self.app.rows.adrift.clone().try_acquire_owned();
        runtime.spawn(async move {
            write.await;
            drop(adrift);
        });
    }
}
