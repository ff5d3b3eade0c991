//! An answer that is given out piece by piece, as its client reads it; but a client that does not read holds up nobody
//! else. Whoever reads in time drives the upstream's connection itself, which costs nothing beside it. Whoever does not is
//! noticed by a warden, which reads on in its place, as much as may be held for one client: so the upstream comes to its end,
//! and its slot is free, whatever the client does. On HTTP/2 a client may stop reading one answer without its connection
//! standing still.
//!
//! A client that leaves after the last text, but before the upstream has said what was used, would be charged for what it
//! saw. So its answer is read on for a moment.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::answer::Answer;
use crate::reply::BrokenOff;

/// How long after its time an answer is left to whoever reads it.
const READERS_TURN: Duration = Duration::from_secs(1);
/// How long what is there may wait for its client before somebody reads on.
const AHEAD_AFTER: Duration = Duration::from_millis(500);
/// How long an answer is read whose client has left after its last text.
const REST_WITHIN: Duration = Duration::from_secs(2);

/// The body of a response that is an answer under way.
pub(crate) struct Streamed {
    answer: Arc<Mutex<Watched>>,
    warden: JoinHandle<()>,
}

/// An answer, and since when there was something for a client that has not come for it.
struct Watched {
    answer: Answer,
    uncollected_since: Option<Instant>,
}

impl Streamed {
    /// Gives an answer out, at most until then, to a client that takes what there is within `patience`.
    pub(super) fn new(answer: Answer, until: Instant, patience: Duration) -> Self {
        let now = Some(Instant::now());
        let answer = Arc::new(Mutex::new(Watched { answer, uncollected_since: now }));
        let warden = tokio::spawn(watch(Arc::downgrade(&answer), until, patience));
        Self { answer, warden }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let mut watched = lock(&self.answer);
        let polled = watched.answer.poll_frame(cx);
        // Who is told to wait has taken everything; who gets a piece is expected back for the next.
        watched.uncollected_since = polled.is_ready().then(Instant::now);
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
async fn watch(watched: Weak<Mutex<Watched>>, until: Instant, patience: Duration) {
    loop {
        let look_again = Instant::now() + AHEAD_AFTER;
        let ahead = poll_fn(|cx| {
            let Some(watched) = watched.upgrade() else { return Poll::Ready(()) };
            let mut watched = lock(&watched);
            // Whoever waits for something to come is woken by that; it must not be taken from it.
            match watched.uncollected_since {
                Some(since) if since.elapsed() >= AHEAD_AFTER => watched.answer.poll_ahead(cx),
                _ => Poll::Pending,
            }
        });
        // Where enough is held, or all of it, there is nothing to do but to look again.
        if timeout_at(look_again, ahead).await.is_ok() {
            sleep_until(look_again).await;
        }
        let Some(answer) = watched.upgrade() else { return };
        let recording = {
            let mut watched = lock(&answer);
            let is_left =
                watched.uncollected_since.is_some_and(|since| since.elapsed() >= patience);
            match () {
                () if Instant::now() >= until + READERS_TURN => watched.answer.give_up(),
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
