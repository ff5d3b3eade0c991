//! Sends events to their readers, and counts the readers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fairgate_api::admin::PoolView;
use fairgate_store::AttemptRow;
use tokio::sync::broadcast;

/// Maximum number of events that a slow reader may be behind. A reader that is further behind
/// misses events.
const BEHIND_MAX: usize = 512;

/// One event for all readers.
#[derive(Clone, Debug)]
pub(crate) enum HubEvent {
    /// The pools were read. The text has their changes, for the admin; `None` if nothing changed.
    Live(Option<Arc<str>>),
    /// An attempt has ended with this row.
    Ended(Arc<AttemptRow>),
    /// The hub itself missed this number of ended attempts, because too many ended at once.
    EndedMissed(u64),
    /// The fleet has changed. The text has the changes, for the admin.
    Fleet(Arc<str>),
    /// A change was audited, for the admin.
    Audit(Arc<str>),
}

/// Sender of events, with the number of its readers.
#[derive(Debug)]
pub(crate) struct EventHub {
    events: broadcast::Sender<HubEvent>,
    readers: AtomicUsize,
    /// True while a task looks for events.
    is_looking: Mutex<bool>,
    /// The views of the last look, which a new reader gets first.
    last: Mutex<HashMap<Arc<str>, Arc<PoolView>>>,
}

/// A reader of events, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct HubReader {
    pub(crate) events: broadcast::Receiver<HubEvent>,
    hub: Arc<EventHub>,
}

impl Default for EventHub {
    fn default() -> Self {
        Self {
            events: broadcast::channel(BEHIND_MAX).0,
            readers: AtomicUsize::new(0),
            is_looking: Mutex::new(false),
            last: Mutex::default(),
        }
    }
}

impl EventHub {
    /// Returns true if there is no reader. The task that looks for events then counts as stopped.
    pub(crate) fn stop_unread(&self) -> bool {
        let mut is_looking = self.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unread = self.readers.load(Ordering::Acquire) == 0;
        *is_looking = !is_unread;
        is_unread
    }

    /// Sends an event to all readers.
    pub(crate) fn send(&self, event: HubEvent) {
        // Fails if the last reader has just left.
        let _ = self.events.send(event);
    }

    /// Replaces the view of a pool, and returns the former view.
    pub(crate) fn put_view(&self, pool: &Arc<str>, view: &Arc<PoolView>) -> Option<Arc<PoolView>> {
        self.last().insert(pool.clone(), view.clone())
    }

    /// Keeps the views of pools with these names only.
    pub(crate) fn keep_views(&self, is_kept: impl Fn(&str) -> bool) {
        self.last().retain(|name, _| is_kept(name));
    }

    /// Returns the views of the last look, sorted by name.
    pub(crate) fn last_views(&self) -> Vec<Arc<PoolView>> {
        let mut views: Vec<Arc<PoolView>> = self.last().values().cloned().collect();
        views.sort_unstable_by(|a, b| a.pool.cmp(&b.pool));
        views
    }

    fn last(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<PoolView>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HubReader {
    /// Adds a reader. The second value is true if no task looks for events, so that one must be started.
    pub(crate) fn of(hub: &Arc<EventHub>) -> (Self, bool) {
        let reader = Self { events: hub.events.subscribe(), hub: hub.clone() };
        hub.readers.fetch_add(1, Ordering::AcqRel);
        let mut is_looking = hub.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        (reader, !std::mem::replace(&mut *is_looking, true))
    }
}

impl Drop for HubReader {
    fn drop(&mut self) {
        self.hub.readers.fetch_sub(1, Ordering::AcqRel);
    }
}
