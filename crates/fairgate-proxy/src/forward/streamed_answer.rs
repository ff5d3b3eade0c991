//! Sends an answer piece by piece as its client reads it, without letting a slow client hold a
//! slot. A client that reads in time polls the upstream's connection itself, at no extra cost. If a
//! client falls behind, a task of the answer, the watcher, reads ahead instead of the client, up to
//! the buffer limit of one client. So the upstream's answer ends and its slot is released whatever
//! the client does. With HTTP/2 a client may stop reading one answer while its connection
//! continues.
//!
//! A client may leave after the last text, but before the upstream has reported the usage. It would
//! then be charged only for the forwarded text. So the gateway reads the rest of the answer for a
//! short time, to find the usage.
//!
//! A client is behind if it has had an unread piece at every moment of the last 25 ms. It stays
//! behind until it has read everything. The time is short because a completed answer pays only for
//! its tokens, and not for the time for which a slow client holds the slot. A client that reads
//! nothing for `limits.body_timeout` is treated as gone. With HTTP/2 this is decided for each
//! stream, not for the connection.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::answer::UpstreamAnswer;
use crate::reply::{BrokenReplyError, StreamedBody};

/// Time that the watcher waits after the total timeout before it ends the answer itself. Within this time, a client
/// that still reads ends the answer by its own poll.
const READERS_TURN: Duration = Duration::from_secs(1);
/// Time that a client may be behind before the watcher reads ahead. It is short compared with most
/// answers, because a client that is behind holds a slot without paying for the time. It is longer
/// than a client that keeps up takes to read a piece.
const AHEAD_AFTER: Duration = Duration::from_millis(25);
/// Maximum time for which the gateway reads on to find the usage of an answer, if its client left
/// after the last text.
const REST_WITHIN: Duration = Duration::from_secs(2);

/// Body of a response that forwards an upstream's answer while it arrives.
pub(crate) struct StreamedAnswer {
    answer: Arc<Mutex<WatchedAnswer>>,
    /// Notified when the client falls behind.
    behind: Arc<Notify>,
    watcher: JoinHandle<()>,
}

/// An answer, and the reading progress of its client.
struct WatchedAnswer {
    answer: UpstreamAnswer,
    /// Time since which there has always been an unread piece; `None` if the client has read
    /// everything. It makes no difference whether the client reads a little now and then, or
    /// nothing.
    behind_since: Option<Instant>,
    /// The last time at which the client polled for a piece.
    came: Instant,
}

impl StreamedAnswer {
    /// Creates the body and its watcher. The watcher ends the answer soon after `until`, or earlier if the client
    /// leaves a piece unread for longer than `patience`.
    pub(super) fn new(answer: UpstreamAnswer, until: Instant, patience: Duration) -> Self {
        let now = Instant::now();
        let watched = WatchedAnswer { answer, behind_since: Some(now), came: now };
        let (answer, behind) = (Arc::new(Mutex::new(watched)), Arc::new(Notify::new()));
        let watcher = watch(Arc::downgrade(&answer), behind.clone(), until, patience);
        Self { answer, behind, watcher: tokio::spawn(watcher) }
    }
}

impl StreamedBody for StreamedAnswer {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenReplyError>>> {
        let mut watched = lock(&self.answer);
        let polled = watched.answer.poll_frame(cx);
        watched.came = Instant::now();
        // A client that gets `Pending` has read everything. A client that gets a piece is expected
        // to poll again.
        if polled.is_pending() {
            watched.behind_since = None;
        } else if watched.behind_since.is_none() {
            watched.behind_since = Some(watched.came);
            self.behind.notify_one();
        }
        polled
    }

    fn has_ended(&self) -> bool {
        lock(&self.answer).answer.has_ended()
    }
}

impl Drop for StreamedAnswer {
    fn drop(&mut self) {
        self.watcher.abort();
        let lacks_usage = lock(&self.answer).answer.is_missing_usage_only();
        // Without a runtime the process is ending.
        if lacks_usage && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(read_rest(self.answer.clone()));
        }
    }
}

/// Reads ahead for a slow client. Ends an answer that has reached its total timeout or whose client
/// no longer reads.
async fn watch(
    watched: Weak<Mutex<WatchedAnswer>>,
    behind: Arc<Notify>,
    until: Instant,
    patience: Duration,
) {
    let mut time_is_up = pin!(sleep_until(until + READERS_TURN));
    loop {
        let behind_since = match watched.upgrade() {
            Some(watched) => lock(&watched).behind_since,
            None => return,
        };
        match behind_since.map(|since| since + AHEAD_AFTER) {
            // A client that keeps up needs no help.
            None => tokio::select! {
                () = behind.notified() => continue,
                () = &mut time_is_up => {}
            },
            Some(ahead_at) if ahead_at > Instant::now() => {
                sleep_until(ahead_at.min(time_is_up.deadline())).await;
            }
            Some(_) => {
                let look_again = Instant::now() + AHEAD_AFTER;
                // Enough is buffered, or everything: check again later.
                if timeout_at(look_again, poll_fn(|cx| read_on(&watched, cx))).await.is_ok() {
                    sleep_until(look_again).await;
                }
            }
        }
        let Some(answer) = watched.upgrade() else { return };
        let recording = {
            let mut watched = lock(&answer);
            let is_left = watched.behind_since.is_some() && watched.came.elapsed() >= patience;
            match () {
                () if time_is_up.deadline() <= Instant::now() => watched.answer.end_as_timed_out(),
                () if is_left => watched.answer.end_as_client_left(),
                () => continue,
            }
        };
        drop(answer);
        if let Some(recording) = recording {
            // The client is gone, so the result does not matter.
            let _ = recording.await;
        }
        return;
    }
}

/// Reads ahead for a client that is behind. Ready when the buffer is full, the body has ended, or
/// the client has caught up.
fn read_on(watched: &Weak<Mutex<WatchedAnswer>>, cx: &mut Context<'_>) -> Poll<()> {
    let Some(watched) = watched.upgrade() else { return Poll::Ready(()) };
    let mut watched = lock(&watched);
    // A client that waits for the next piece must remain the task that is woken.
    match watched.behind_since {
        Some(_) => watched.answer.poll_ahead(cx),
        None => Poll::Ready(()),
    }
}

/// Reads the usage at the end of an answer, for a client that has left.
async fn read_rest(answer: Arc<Mutex<WatchedAnswer>>) {
    let rest = poll_fn(|cx| lock(&answer).answer.poll_rest(cx));
    let _ = timeout_at(Instant::now() + REST_WITHIN, rest).await;
    let recording = lock(&answer).answer.end_without_usage();
    if let Some(recording) = recording {
        // The client is gone, so it cannot learn of a failed write; the failure is counted.
        let _ = recording.await;
    }
}

fn lock(answer: &Mutex<WatchedAnswer>) -> MutexGuard<'_, WatchedAnswer> {
    // After a panic the answer can only be dropped, which settles it.
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}
