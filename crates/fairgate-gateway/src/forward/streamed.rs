//! An answer that is given out piece by piece, as its client reads it; but a client that does not read holds up nobody
//! else. Whoever reads in time drives the upstream's connection itself, which costs nothing beside it. Whoever does not is
//! noticed by a warden, which reads on in its place, as much as may be held for one client: so the upstream comes to its end,
//! and its slot is free, whatever the client does. On HTTP/2 a client may stop reading one answer without its connection
//! standing still.
//!
//! A client that leaves after the last text, but before the upstream has said what was used, would be charged for what it
//! saw. So its answer is read on for a moment.

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

use super::answer::Answer;
use crate::reply::BrokenOff;

/// How long after its time an answer is left to whoever reads it.
const READERS_TURN: Duration = Duration::from_secs(1);
/// How long a client may be behind before somebody reads on. Short against most answers, since meanwhile it holds a slot
/// that it does not pay for; long against the time in which a client that reads takes what there is.
const AHEAD_AFTER: Duration = Duration::from_millis(25);
/// How long an answer is read whose client has left after its last text.
const REST_WITHIN: Duration = Duration::from_secs(2);

/// The body of a response that is an answer under way.
pub(crate) struct Streamed {
    answer: Arc<Mutex<Watched>>,
    /// Rung when the client falls behind.
    behind: Arc<Notify>,
    warden: JoinHandle<()>,
}

/// An answer, and how far its client is with it.
struct Watched {
    answer: Answer,
    /// Since when there has been something for the client to take at all times. Who takes a little now and then is as far
    /// behind as who takes nothing.
    behind_since: Option<Instant>,
    /// When the client last came for something.
    came: Instant,
}

impl Streamed {
    /// Gives an answer out, at most until then, to a client that takes what there is within `patience`.
    pub(super) fn new(answer: Answer, until: Instant, patience: Duration) -> Self {
        let now = Instant::now();
        let watched = Watched { answer, behind_since: Some(now), came: now };
        let (answer, behind) = (Arc::new(Mutex::new(watched)), Arc::new(Notify::new()));
        let warden = watch(Arc::downgrade(&answer), behind.clone(), until, patience);
        Self { answer, behind, warden: tokio::spawn(warden) }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let mut watched = lock(&self.answer);
        let polled = watched.answer.poll_frame(cx);
        watched.came = Instant::now();
        // Who is told to wait has taken everything; who gets a piece is expected back for the next.
        if polled.is_pending() {
            watched.behind_since = None;
        } else if watched.behind_since.is_none() {
            watched.behind_since = Some(watched.came);
            self.behind.notify_one();
        }
        polled
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.answer).answer.has_ended()
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.warden.abort();
        let lacks_usage = lock(&self.answer).answer.lacks_usage_only();
        // Without a runtime the process is coming to its end.
        if lacks_usage && let Ok(runtime) = Handle::try_current() {
            runtime.spawn(read_rest(self.answer.clone()));
        }
    }
}

/// Ends an answer whose time is up or for which nobody comes, and reads it on before that.
async fn watch(
    watched: Weak<Mutex<Watched>>,
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
            // A client that keeps up needs nobody.
            None => tokio::select! {
                () = behind.notified() => continue,
                () = &mut time_is_up => {}
            },
            Some(ahead_at) if ahead_at > Instant::now() => {
                sleep_until(ahead_at.min(time_is_up.deadline())).await;
            }
            Some(_) => {
                let look_again = Instant::now() + AHEAD_AFTER;
                // Where enough is held, or all of it, there is nothing to do but to look again.
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
                () if time_is_up.deadline() <= Instant::now() => watched.answer.give_up(),
                () if is_left => watched.answer.leave(),
                () => continue,
            }
        };
        drop(answer);
        if let Some(recording) = recording {
            // Nobody is left to be given or refused an end.
            let _ = recording.await;
        }
        return;
    }
}

/// Reads on in the place of a client that is behind: ready when enough is held, or when it is not behind any more.
fn read_on(watched: &Weak<Mutex<Watched>>, cx: &mut Context<'_>) -> Poll<()> {
    let Some(watched) = watched.upgrade() else { return Poll::Ready(()) };
    let mut watched = lock(&watched);
    // Whoever waits for something to come is woken by that; it must not be taken from it.
    match watched.behind_since {
        Some(_) => watched.answer.poll_ahead(cx),
        None => Poll::Ready(()),
    }
}

/// Reads what an upstream says it used, for a client that has left.
async fn read_rest(answer: Arc<Mutex<Watched>>) {
    let rest = poll_fn(|cx| lock(&answer).answer.poll_rest(cx));
    let _ = timeout_at(Instant::now() + REST_WITHIN, rest).await;
    let recording = lock(&answer).answer.left_at_the_end();
    if let Some(recording) = recording {
        // Nobody is left to be told that it is not safe; it is counted.
        let _ = recording.await;
    }
}

fn lock(answer: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    // After a panic all that is left to do is to drop it, which settles it.
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}
