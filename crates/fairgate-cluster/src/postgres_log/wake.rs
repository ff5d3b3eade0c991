//! Wakes the reader when there is something new.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairgate_replica::LogPosition;
use tokio::sync::{Notify, watch};

use crate::cluster_log::LogCursor;

/// Time after which a reader looks even if nothing woke it, because a notification may be lost with its connection.
const LOOK_AT_LEAST: Duration = Duration::from_secs(1);

/// Pause between two looks of a reader that cannot be woken.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// Payload of the notification by which a session tests if it is woken.
pub(super) const PROBE: &str = "probe";

/// What notifications have said.
#[derive(Debug)]
pub(super) struct WakeSignal {
    /// The newest place that was announced.
    newest: watch::Sender<LogCursor>,
    /// The row of the cluster has changed.
    row: Notify,
    probe: Notify,
    polls: AtomicBool,
}

impl WakeSignal {
    pub(super) fn new() -> Self {
        let none = LogCursor { generation: 0, after: LogPosition(0) };
        Self {
            newest: watch::Sender::new(none),
            row: Notify::new(),
            probe: Notify::new(),
            polls: AtomicBool::new(false),
        }
    }

    /// Takes the payload of a notification: a generation and a place, or the name of something that happened.
    pub(super) fn take(&self, payload: &str) {
        if payload == PROBE {
            return self.probe.notify_one();
        }
        let place = payload.split_once(' ').and_then(|(generation, position)| {
            let position = LogPosition(position.parse().ok()?);
            Some(LogCursor { generation: generation.parse().ok()?, after: position })
        });
        match place {
            Some(place) => {
                self.newest.send_replace(place);
            }
            None => self.row.notify_one(),
        }
    }

    /// Waits for the notification that a session has sent to itself, and notes if none came.
    pub(super) async fn wait_for_probe(&self, patience: Duration) -> bool {
        let came = tokio::time::timeout(patience, self.probe.notified()).await.is_ok();
        self.polls.store(!came, Ordering::Relaxed);
        came
    }

    /// Reads at short intervals from now on, because notifications do not arrive.
    pub(super) fn poll(&self) {
        self.polls.store(true, Ordering::Relaxed);
    }

    /// Waits until there may be something new after the cursor.
    pub(super) async fn changed(&self, cursor: LogCursor) {
        if self.polls.load(Ordering::Relaxed) {
            return tokio::time::sleep(POLL_PAUSE).await;
        }
        let mut newest = self.newest.subscribe();
        let is_new = |at: &LogCursor| {
            at.generation > cursor.generation
                || (at.generation == cursor.generation && at.after > cursor.after)
        };
        tokio::select! {
            _ = newest.wait_for(is_new) => {}
            () = self.row.notified() => {}
            () = tokio::time::sleep(LOOK_AT_LEAST) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(generation: u64, after: u64) -> LogCursor {
        LogCursor { generation, after: LogPosition(after) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_woken_by_what_it_has_not_read() {
        let signal = WakeSignal::new();
        let start = tokio::time::Instant::now();
        signal.take("3 7");
        signal.changed(cursor(3, 6)).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        signal.changed(cursor(3, 7)).await;
        assert_eq!(start.elapsed(), LOOK_AT_LEAST, "place 7 is read already");
        signal.take("row");
        signal.changed(cursor(3, 7)).await;
        assert_eq!(start.elapsed(), LOOK_AT_LEAST);
    }

    #[tokio::test(start_paused = true)]
    async fn without_notifications_it_looks_every_few_milliseconds() {
        let signal = WakeSignal::new();
        assert!(!signal.wait_for_probe(Duration::from_millis(500)).await);
        let start = tokio::time::Instant::now();
        signal.changed(cursor(1, 0)).await;
        assert_eq!(start.elapsed(), POLL_PAUSE);
        signal.take(PROBE);
        assert!(signal.wait_for_probe(Duration::from_millis(500)).await);
        signal.changed(cursor(1, 0)).await;
        assert_eq!(start.elapsed(), POLL_PAUSE + LOOK_AT_LEAST);
    }
}
