//! An answer that is given out piece by piece, and not for ever: a client that stops reading is asked nothing any more,
//! so somebody else must notice that its time is up, or it would keep its slot. On HTTP/2 a client may stop reading one
//! answer without its connection standing still.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::answer::Answer;
use crate::reply::BrokenOff;

/// How long after its time an answer is left to whoever reads it.
const READERS_TURN: Duration = Duration::from_secs(1);

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
    }
}

/// Ends an answer whose time is up, or for which nobody comes.
async fn watch(watched: Weak<Mutex<Watched>>, until: Instant, patience: Duration) {
    loop {
        let look_again = (until + READERS_TURN).min(Instant::now() + patience);
        sleep_until(look_again).await;
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

fn lock(answer: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    // After a panic all that is left to do is to drop it, which settles it.
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}
