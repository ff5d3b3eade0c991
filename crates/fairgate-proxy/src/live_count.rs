//! Counts things that exist now, such as connections, tasks, or the requests of a pool on one of its workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// A counter of things that exist now, with a way to wait until the count is 0.
#[derive(Clone, Default)]
pub(crate) struct LiveCount {
    inner: Arc<LiveCountState>,
}

#[derive(Default)]
struct LiveCountState {
    count: AtomicU64,
    empty: Notify,
}

/// Guard of one counted thing. Dropping the guard takes 1 off the count.
pub(crate) struct LiveCountGuard {
    inner: Arc<LiveCountState>,
}

impl LiveCount {
    /// Adds 1 to the count until the returned guard is dropped.
    pub(crate) fn count_one(&self) -> LiveCountGuard {
        self.inner.count.fetch_add(1, Ordering::Relaxed);
        LiveCountGuard { inner: self.inner.clone() }
    }

    pub(crate) fn now(&self) -> u64 {
        self.inner.count.load(Ordering::Acquire)
    }

    /// Waits until the count is 0.
    pub(crate) async fn wait_none(&self) {
        loop {
            let empty = self.inner.empty.notified();
            if self.now() == 0 {
                return;
            }
            empty.await;
        }
    }
}

impl Drop for LiveCountGuard {
    fn drop(&mut self) {
        if self.inner.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.inner.empty.notify_waiters();
        }
    }
}
