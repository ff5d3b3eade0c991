//! Wakes the reader when there is something new.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
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

/// The newest content of the notifications.
#[derive(Debug)]
pub(super) struct WakeSignal {
    /// The newest place that was announced.
    newest: watch::Sender<LogCursor>,
    /// The row of the cluster has changed.
    row: Notify,
    probe: Notify,
    polls: AtomicBool,
    /// Id of the server process behind the connection that appends; 0 if there is none. Its records come back as
    /// answers, so they wake nobody.
    appender: AtomicI32,
}

impl WakeSignal {
    pub(super) fn new() -> Self {
        let none = LogCursor { generation: 0, after: LogPosition(0) };
        Self {
            newest: watch::Sender::new(none),
            row: Notify::new(),
            probe: Notify::new(),
            polls: AtomicBool::new(false),
            appender: AtomicI32::new(0),
        }
    }

    /// Sets the id of the server process that appends this member's records.
    pub(super) fn set_appender(&self, process: i32) {
        self.appender.store(process, Ordering::Relaxed);
    }

    /// Takes the payload of a notification: a generation, a place and the server process that appended, or the name of
    /// something that happened.
    pub(super) fn take(&self, payload: &str) {
        if payload == PROBE {
            return self.probe.notify_one();
        }
        let Some((place, appender)) = read_place(payload) else {
            return self.row.notify_one();
        };
        if appender != self.appender.load(Ordering::Relaxed) {
            self.newest.send_replace(place);
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

fn read_place(payload: &str) -> Option<(LogCursor, i32)> {
    let mut words = payload.split(' ');
    let generation = words.next()?.parse().ok()?;
    let after = LogPosition(words.next()?.parse().ok()?);
    Some((LogCursor { generation, after }, words.next()?.parse().ok()?))
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
        signal.set_appender(12);
        signal.take("3 7 13");
        signal.changed(cursor(3, 6)).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        signal.changed(cursor(3, 7)).await;
        assert_eq!(start.elapsed(), LOOK_AT_LEAST, "place 7 is read already");
        signal.take("3 8 12");
        signal.changed(cursor(3, 7)).await;
        assert_eq!(start.elapsed(), 2 * LOOK_AT_LEAST, "place 8 is the member's own record");
        signal.take("row");
        signal.changed(cursor(3, 7)).await;
        assert_eq!(start.elapsed(), 2 * LOOK_AT_LEAST);
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
