//! Response bodies: a whole one, or one that an async function writes piece by piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Frame, SizeHint};

/// What every response carries.
pub(crate) enum Body {
    Whole(Full<Bytes>),
    Written(Written),
}

impl Body {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Full::new(bytes.into()))
    }

    /// A body that `write` fills through its outbox. It runs only as fast as the connection takes what it sends, and it
    /// is dropped with everything it holds as soon as the client is gone.
    pub(crate) fn written<F>(write: impl FnOnce(Outbox) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let outbox = Outbox { slot: Arc::default(), byte_pause: None };
        let slot = Arc::clone(&outbox.slot);
        Self::Written(Written { slot, writer: Some(Box::pin(write(outbox))) })
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(full) => Pin::new(full).poll_frame(context),
            Self::Written(written) => {
                written.poll(context).map(|next| next.map(|b| Ok(Frame::data(b))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(full) => full.is_end_stream(),
            Self::Written(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(full) => full.size_hint(),
            Self::Written(_) => SizeHint::default(),
        }
    }
}

type Slot = Arc<Mutex<Option<Bytes>>>;

fn locked(slot: &Slot) -> MutexGuard<'_, Option<Bytes>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that is being written. The writer is polled by the body itself, so there is no task and no channel: one slot
/// for one piece, and nothing is made ahead of what the connection takes.
pub(crate) struct Written {
    slot: Slot,
    writer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Written {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(writer) = &mut self.writer
            && writer.as_mut().poll(context).is_ready()
        {
            self.writer = None;
        }
        match locked(&self.slot).take() {
            Some(piece) => Poll::Ready(Some(piece)),
            None if self.writer.is_none() => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// Where the writer of a body puts its pieces.
pub(crate) struct Outbox {
    slot: Slot,
    /// The pause before each byte, for bodies that are slow on purpose.
    pub(crate) byte_pause: Option<Duration>,
}

impl Outbox {
    /// Waits until the piece before this one was taken, and leaves this one.
    pub(crate) async fn send(&mut self, piece: Bytes) {
        let Some(pause) = self.byte_pause else { return self.put(piece).await };
        for at in 0..piece.len() {
            tokio::time::sleep(pause).await;
            self.put(piece.slice(at..=at)).await;
        }
    }

    async fn put(&mut self, piece: Bytes) {
        self.taken().await;
        if !piece.is_empty() {
            *locked(&self.slot) = Some(piece);
        }
    }

    /// Waits until everything sent was taken by the connection.
    pub(crate) async fn taken(&mut self) {
        // No waker is kept: the body polls its writer again after each piece that it gives away.
        std::future::poll_fn(|_| match &*locked(&self.slot) {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        })
        .await;
    }

    /// Waits until the connection has had its chance to write everything sent to the socket.
    pub(crate) async fn flushed(&mut self) {
        self.taken().await;
        // The connection flushes when its body has nothing for it.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pieces_come_one_by_one_and_in_order() {
        let mut body = Body::written(|mut outbox| async move {
            outbox.send(Bytes::from_static(b"one")).await;
            outbox.send(Bytes::new()).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            outbox.send(Bytes::from_static(b"two")).await;
        });
        let mut pieces = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            pieces.push(frame.into_data().unwrap());
        }
        assert_eq!(pieces, ["one", "two"]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bytes_pause_before_each() {
        let started = tokio::time::Instant::now();
        let body = Body::written(|mut outbox| async move {
            outbox.byte_pause = Some(Duration::from_millis(10));
            outbox.send(Bytes::from_static(b"abcde")).await;
        });
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abcde");
        assert_eq!(started.elapsed(), Duration::from_millis(50));
    }

    #[tokio::test]
    async fn a_dropped_body_drops_what_its_writer_holds() {
        let held = Arc::new(());
        let holder = Arc::clone(&held);
        let mut body = Body::written(|mut outbox| async move {
            let _holder = holder;
            outbox.send(Bytes::from_static(b"x")).await;
            std::future::pending::<()>().await;
        });
        assert!(body.frame().await.is_some());
        drop(body);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
