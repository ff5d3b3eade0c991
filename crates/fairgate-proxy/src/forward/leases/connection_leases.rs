//! Ends the queued leases of a client program whose connection has closed.
//!
//! A program that waits for slots listens for changes of its leases. If the program is killed, its
//! connection closes at once. Without this module, its queued leases would stay queued for their
//! TTL, and each slot granted to one of them would be unused for as long. A program may therefore
//! state, when it listens, that its queued leases end with the connection.
//!
//! A connection may also close while its program still runs: a proxy closes idle connections, or
//! opens one for each request. Such a program soon listens again, on another connection. So the
//! leases end [`LISTENS_WITHIN`] after the close, unless the program listens by then. Leases that
//! are granted in the meantime end as well, because the program does not know of their grants.
//! Leases that were granted before the close keep their TTL: their calls may still run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::lease::{LeaseChanges, LeaseMessage};
use crate::forward::DataPlane;

/// Time after the close of a connection within which a client program that still runs must listen
/// again.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);

/// Sequence number of the next listener; all connections share one sequence.
static NEXT_LISTENER: AtomicU64 = AtomicU64::new(1);

/// The client program that listened last on a connection, if it has stated that its queued leases end with the
/// connection. Dropped when the connection closes.
#[derive(Default)]
pub(crate) struct ConnectionLeases(Mutex<Option<LeaseListener>>);

struct LeaseListener {
    app: Arc<DataPlane>,
    key: Arc<str>,
    /// Weak, so that an idle connection does not keep this value in memory after the program's last lease is forgotten.
    changes: Weak<LeaseChanges>,
    number: u64,
}

impl ConnectionLeases {
    /// Records that a client program listens on this connection. If the program listened on another
    /// connection before, the close of that connection no longer ends its leases.
    pub(super) fn set_listener(
        &self,
        app: &Arc<DataPlane>,
        key: &Arc<str>,
        changes: &Arc<LeaseChanges>,
    ) {
        let number = NEXT_LISTENER.fetch_add(1, Ordering::Relaxed);
        changes.set_listener(number);
        let (app, key, changes) = (app.clone(), key.clone(), Arc::downgrade(changes));
        let listener = LeaseListener { app, key, changes, number };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }
}

impl Drop for ConnectionLeases {
    fn drop(&mut self) {
        let listener = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A gateway that drains closes connections itself.
        let Some(listener) = listener.filter(|listener| listener.app.phase.is_serving()) else {
            return;
        };
        let changes = listener.changes.upgrade().filter(|it| it.listener() == listener.number);
        if let (Some(changes), Ok(runtime)) = (changes, Handle::try_current()) {
            runtime.spawn(listener.end_unless_heard(changes));
        }
    }
}

impl LeaseListener {
    /// Waits for [`LISTENS_WITHIN`], and then ends the program's queued leases unless it has
    /// listened again.
    async fn end_unless_heard(self, changes: Arc<LeaseChanges>) {
        let closed_at = Instant::now();
        sleep(LISTENS_WITHIN).await;
        if changes.listener() != self.number {
            return;
        }
        for lease in self.app.leases.of_client(&self.key, &changes) {
            if lease.was_waiting(closed_at) {
                lease.send_message(LeaseMessage::Cancel);
            }
        }
    }
}
