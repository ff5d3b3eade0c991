//! How many of something are there at the moment: a pool's requests on one of its workers, connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A count that somebody may wait on.
#[derive(Clone, Default)]
pub(crate) struct InFlight {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    count: AtomicU64,
    empty: Notify,
}

/// One of them, until it is dropped.
pub(crate) struct OneInFlight {
    inner: Arc<Inner>,
}

impl InFlight {
    /// Counts one more.
    pub(crate) fn one(&self) -> OneInFlight {
        self.inner.count.fetch_add(1, Ordering::Relaxed);
        OneInFlight { inner: self.inner.clone() }
    }

    pub(crate) fn now(&self) -> u64 {
        self.inner.count.load(Ordering::Acquire)
    }

    /// Waits until none is left.
    pub(crate) async fn none(&self) {
        loop {
            let empty = self.inner.empty.notified();
            if self.now() == 0 {
                return;
            }
            empty.await;
        }
    }
}

impl Drop for OneInFlight {
    fn drop(&mut self) {
        if self.inner.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.empty.notify_waiters();
        }
    }
}
