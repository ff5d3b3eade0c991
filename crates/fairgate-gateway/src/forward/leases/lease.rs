//! One lease: what its client is told of it, and what its client says.
//!
//! The request itself belongs to the lease's own task (`drive`), behind the same guard as every other request. Handlers
//! only read the state, renew the lease, and leave a word for that task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::super::bill::Stated;
use super::super::passage::Charge;
use super::super::provider::Heard;
use crate::refusal::Refusal;

/// A lease, from its submission until it is forgotten.
pub(super) struct Lease {
    pub(super) id: Box<str>,
    /// What its client called it, so that a submission can be repeated.
    pub(super) own_id: Option<Box<str>>,
    pub(super) pool: Arc<str>,
    /// How long it lives without being renewed.
    pub(super) ttl: Duration,
    pub(super) mailbox: Arc<Mailbox>,
    state: watch::Sender<State>,
    /// The number of its last change in its mailbox.
    changed: AtomicU64,
    heard_at: Mutex<Instant>,
    words: mpsc::Sender<Word>,
}

/// Where a lease is.
#[derive(Clone)]
pub(super) enum State {
    /// Its budgets and limits are being asked.
    Opening,
    Queued,
    /// It holds a slot.
    Granted {
        attempt: u32,
        waited: Duration,
    },
    Over(Arc<Over>),
}

/// How a lease ended.
pub(super) enum Over {
    Settled(Charge),
    /// Its client has cancelled it.
    Cancelled(Charge),
    /// Its client has not renewed it in time, or the gateway stopped.
    Lost(Charge),
    Refused(Refusal),
}

/// What a client says of its lease.
pub(super) enum Word {
    Settle(Report),
    /// The provider has not taken the call on.
    Limited(Box<Heard>),
    Cancel,
}

/// The end of a call, as its client tells it.
pub(super) struct Report {
    /// What it used; its estimate where its client does not know.
    pub(super) stated: Option<Stated>,
    pub(super) succeeded: bool,
    /// What its provider's answer said about limits.
    pub(super) heard: Option<Box<Heard>>,
}

/// Where the changes of all leases of one client program are noticed.
#[derive(Default)]
pub(super) struct Mailbox {
    changes: Mutex<u64>,
    pub(super) news: Notify,
}

impl Mailbox {
    /// Numbers a change. Under a lock, so that whoever sees a number sees all lower ones.
    fn number(&self, changed: &AtomicU64) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        *changes += 1;
        changed.store(*changes, Ordering::Release);
    }

    /// The number of the last change.
    pub(super) fn latest(&self) -> u64 {
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// A lease, and what its task hears its client by.
    pub(super) fn new(
        id: Box<str>,
        own_id: Option<Box<str>>,
        pool: Arc<str>,
        ttl: Duration,
        mailbox: Arc<Mailbox>,
    ) -> (Arc<Self>, mpsc::Receiver<Word>) {
        let (words, heard) = mpsc::channel(1);
        let lease = Self {
            id,
            own_id,
            pool,
            ttl,
            mailbox,
            state: watch::Sender::new(State::Opening),
            changed: AtomicU64::new(0),
            heard_at: Mutex::new(Instant::now()),
            words,
        };
        (Arc::new(lease), heard)
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(&*self.state.borrow(), State::Over(_))
    }

    pub(super) fn changed(&self) -> u64 {
        self.changed.load(Ordering::Acquire)
    }

    /// Puts it in another state, and tells whoever waits for that. A lease that is over stays so.
    pub(super) fn enter(&self, next: State) {
        let granted = matches!(next, State::Granted { .. });
        if granted {
            // Its client may have asked a while ago: it has the whole time to hear of it.
            self.renew();
        }
        let is_news = self.state.send_if_modified(|state| {
            let open = !matches!(state, State::Over(_));
            if open {
                *state = next;
            }
            open
        });
        if is_news {
            self.mailbox.number(&self.changed);
            self.mailbox.news.notify_waiters();
        }
    }

    /// Its client lives.
    pub(super) fn renew(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Leaves a word for its task. One is enough: while it is being heard, a second one is dropped.
    pub(super) fn say(&self, word: Word) {
        let _ = self.words.try_send(word);
    }

    /// Waits until it is in such a state, and gives the state; whatever it is then, at the deadline.
    pub(super) async fn until(&self, due: Instant, is: impl Fn(&State) -> bool) -> State {
        let mut states = self.state.subscribe();
        let reached = async { states.wait_for(|state| is(state)).await.is_ok() };
        tokio::select! {
            biased;
            _ = reached => {}
            () = sleep_until(due) => {}
        }
        self.state()
    }

    /// Ready once its client has not been heard of for as long as it may be silent.
    pub(super) async fn silence(&self) {
        loop {
            let heard_at = *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner);
            let due = heard_at + self.ttl;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}
