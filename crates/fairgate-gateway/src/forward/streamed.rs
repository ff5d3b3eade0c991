//! An answer that is given out piece by piece, and not for ever: a client that stops reading is asked nothing any more,
//! so somebody else must notice that its time is up, or it would keep its slot.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    answer: Arc<Mutex<Answer>>,
    warden: JoinHandle<()>,
}

impl Streamed {
    /// Gives an answer out, at most until then.
    pub(super) fn new(answer: Answer, until: Instant) -> Self {
        let answer = Arc::new(Mutex::new(answer));
        let watched = Arc::downgrade(&answer);
        let warden = tokio::spawn(async move {
            sleep_until(until + READERS_TURN).await;
            let recording = watched.upgrade().and_then(|answer| lock(&answer).give_up());
            if let Some(recording) = recording {
                recording.await;
            }
        });
        Self { answer, warden }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        lock(&self.answer).poll_frame(cx)
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.answer).has_ended()
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.warden.abort();
    }
}

fn lock(answer: &Mutex<Answer>) -> MutexGuard<'_, Answer> {
    // After a panic all that is left to do is to drop it, which settles it.
    answer.lock().unwrap_or_else(PoisonError::into_inner)
}
