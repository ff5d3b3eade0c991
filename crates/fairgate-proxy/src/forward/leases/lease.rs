//! One lease, with its state as the client sees it and the messages that the client sends.
//!
//! The request itself belongs to the lease's own task (`run_lease`), behind the guard that every request has. Handlers
//! only read the state, renew the lease, and send messages to that task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fairgate_core::units::TaskWeight;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::super::attempt_charge::StatedUsage;
use super::super::provider::LeaseProviderResponse;
use super::super::request_guard::RequestCharge;
use crate::refusal::Refusal;

/// A lease, from its submission until it is forgotten.
pub(super) struct LeaseHandle {
    pub(super) id: Box<str>,
    /// The client's own id for the lease, so that a submission can be repeated safely.
    pub(super) own_id: Option<Box<str>>,
    pub(super) pool: Arc<str>,
    /// Time without a renewal after which the lease is lost.
    pub(super) ttl: Duration,
    pub(super) mailbox: Arc<LeaseChanges>,
    state: watch::Sender<LeaseStatus>,
    /// Sequence number of the lease's last change; all leases of one client program share one sequence.
    changed: AtomicU64,
    renewed_at: Mutex<Instant>,
    /// Time of the last grant; `None` before the first.
    granted_at: Mutex<Option<Instant>>,
    /// Weight of the lease for a `load` node, or `None` if weights have no effect; empty while the lease is checked.
    weight: OnceLock<Option<TaskWeight>>,
    messages: mpsc::Sender<LeaseMessage>,
}

/// The state of a lease.
#[derive(Clone)]
pub(super) enum LeaseStatus {
    /// Budgets and limits are being checked.
    Opening,
    Queued,
    /// The lease holds a slot.
    Granted {
        attempt: u32,
        waited: Duration,
    },
    Over(Arc<LeaseResult>),
}

/// The result of a lease that has ended.
pub(super) enum LeaseResult {
    Settled(RequestCharge),
    /// The client cancelled the lease.
    Cancelled(RequestCharge),
    /// The lease was not renewed in time, or the gateway stopped.
    Lost(RequestCharge),
    Refused(Refusal),
}

/// A message from a client about its lease.
pub(super) enum LeaseMessage {
    Settle(LeaseReport),
    /// The provider has refused the call.
    Limited(Box<LeaseProviderResponse>),
    Cancel,
}

/// The end of a call, as its client reports it.
pub(super) struct LeaseReport {
    /// Usage of the call; the estimate is charged if the client does not state it.
    pub(super) stated: Option<StatedUsage>,
    pub(super) succeeded: bool,
    /// Provider's response with its rate limits, if the client passed the response on.
    pub(super) provider_response: Option<Box<LeaseProviderResponse>>,
}

/// Numbers the changes of all leases of one client program, and wakes the program's waiting
/// requests.
#[derive(Default)]
pub(super) struct LeaseChanges {
    changes: Mutex<u64>,
    pub(super) changed_notify: Notify,
    /// Sequence number of the listener (`connection_leases.rs`) through which the program listened last. 0 if the
    /// program has not stated that its leases end with its connection.
    listener: AtomicU64,
}

impl LeaseChanges {
    /// Stores the next sequence number in `changed`. Holds a lock, so that a reader that sees a
    /// number also sees all changes with lower numbers.
    fn number(&self, changed: &AtomicU64) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        *changes += 1;
        changed.store(*changes, Ordering::Release);
    }

    pub(super) fn set_listener(&self, number: u64) {
        self.listener.store(number, Ordering::Release);
    }

    pub(super) fn listener(&self) -> u64 {
        self.listener.load(Ordering::Acquire)
    }

    /// Returns the number of the client program's last change; 0 before the first.
    pub(super) fn latest(&self) -> u64 {
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseHandle {
    /// Creates a lease, and the receiver of its client's messages for its task.
    pub(super) fn new(
        id: Box<str>,
        own_id: Option<Box<str>>,
        pool: Arc<str>,
        ttl: Duration,
        mailbox: Arc<LeaseChanges>,
    ) -> (Arc<Self>, mpsc::Receiver<LeaseMessage>) {
        let (words, heard) = mpsc::channel(1);
        let lease = Self {
            id,
            own_id,
            pool,
            ttl,
            mailbox,
            state: watch::Sender::new(LeaseStatus::Opening),
            changed: AtomicU64::new(0),
            renewed_at: Mutex::new(Instant::now()),
            granted_at: Mutex::new(None),
            weight: OnceLock::new(),
            messages: words,
        };
        (Arc::new(lease), heard)
    }

    /// Sets the weight of the lease, once; `None` if weights have no effect.
    pub(super) fn set_weight(&self, weight: Option<TaskWeight>) {
        // A second call would state the same weight.
        let _ = self.weight.set(weight);
    }

    /// Returns the weight of the lease, or `Some(None)` if weights have no effect; `None` while it is checked.
    pub(super) fn weight(&self) -> Option<Option<TaskWeight>> {
        self.weight.get().copied()
    }

    pub(super) fn state(&self) -> LeaseStatus {
        self.state.borrow().clone()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.state.borrow(), LeaseStatus::Over(_))
    }

    /// Returns true if the lease waits for a slot, or got one after the time `at`.
    pub(super) fn was_waiting(&self, at: Instant) -> bool {
        match &*self.state.borrow() {
            LeaseStatus::Opening | LeaseStatus::Queued => true,
            LeaseStatus::Granted { .. } => self
                .granted_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some_and(|granted| granted > at),
            LeaseStatus::Over(_) => false,
        }
    }

    pub(super) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Acquire)
    }

    /// Moves the lease to another state, and wakes all waiters. A lease that has ended stays ended.
    pub(super) fn enter(&self, next: LeaseStatus) {
        let granted = matches!(next, LeaseStatus::Granted { .. });
        if granted {
            // The client may have polled some time ago, so it gets the whole TTL to learn of the
            // grant.
            self.renew();
            *self.granted_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let is_news = self.state.send_if_modified(|state| {
            let open = !matches!(state, LeaseStatus::Over(_));
            if open {
                *state = next;
            }
            open
        });
        if is_news {
            self.mailbox.number(&self.changed);
            self.mailbox.changed_notify.notify_waiters();
        }
    }

    /// Restarts the lease's TTL, because the client has shown that it is alive.
    pub(super) fn renew(&self) {
        *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Sends a message to the lease's task. The message is dropped if the previous one still waits for the task,
    /// because the task needs only one message to end or to return the lease.
    pub(super) fn send_message(&self, word: LeaseMessage) {
        let _ = self.messages.try_send(word);
    }

    /// Waits until the state satisfies `is`, or until `due`. Returns the state at that time.
    pub(super) async fn wait_until(
        &self,
        due: Instant,
        is: impl Fn(&LeaseStatus) -> bool,
    ) -> LeaseStatus {
        let mut states = self.state.subscribe();
        let reached = async { states.wait_for(|state| is(state)).await.is_ok() };
        tokio::select! {
            biased;
            _ = reached => {}
            () = sleep_until(due) => {}
        }
        self.state()
    }

    /// Waits until the lease has not been renewed for its TTL.
    pub(super) async fn wait_expired(&self) {
        loop {
            let heard_at = *self.renewed_at.lock().unwrap_or_else(PoisonError::into_inner);
            let due = heard_at + self.ttl;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}
