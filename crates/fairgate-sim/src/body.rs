//! Response bodies. A body is sent as a whole, or an async function writes it piece by piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Frame, SizeHint};

/// Body of every response of the backend, whole or written piece by piece.
pub(crate) enum SimBody {
    Whole(Full<Bytes>),
    Written(WrittenBody),
}

impl SimBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Full::new(bytes.into()))
    }

    /// Creates a body that the function `write` fills through a [`BodyWriter`]. The future of `write` runs only as fast
    /// as the connection takes the pieces. When the client is gone, the future is dropped with everything that it
    /// holds.
    pub(crate) fn written<F>(write: impl FnOnce(BodyWriter) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let outbox = BodyWriter { slot: Arc::default(), byte_pause: None };
        let slot = Arc::clone(&outbox.slot);
        Self::Written(WrittenBody { slot, writer: Some(Box::pin(write(outbox))) })
    }
}

impl hyper::body::Body for SimBody {
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

type PieceSlot = Arc<Mutex<Option<Bytes>>>;

fn locked(slot: &PieceSlot) -> MutexGuard<'_, Option<Bytes>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that is being written. The body itself polls the writing future, so no task and no channel is needed. The
/// body holds at most one piece, so that nothing is generated before the connection can take it.
pub(crate) struct WrittenBody {
    slot: PieceSlot,
    writer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl WrittenBody {
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

/// The writer of a [`WrittenBody`], through which the writing future sends pieces.
pub(crate) struct BodyWriter {
    slot: PieceSlot,
    /// Pause before each byte; `None` except for [`SimFault::SlowBytes`](crate::SimFault::SlowBytes).
    pub(crate) byte_pause: Option<Duration>,
}

impl BodyWriter {
    /// Waits until the connection has taken the previous piece, then makes `piece` available to the connection.
    pub(crate) async fn send(&mut self, piece: Bytes) {
        let Some(pause) = self.byte_pause else { return self.put(piece).await };
        for at in 0..piece.len() {
            tokio::time::sleep(pause).await;
            self.put(piece.slice(at..=at)).await;
        }
    }

    async fn put(&mut self, piece: Bytes) {
        self.wait_taken().await;
        if !piece.is_empty() {
            *locked(&self.slot) = Some(piece);
        }
    }

    /// Waits until the connection has taken all pieces sent.
    pub(crate) async fn wait_taken(&mut self) {
        // No waker is needed, because the body polls its writer again after each piece that the connection takes.
        std::future::poll_fn(|_| match &*locked(&self.slot) {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        })
        .await;
    }

    /// Waits until the connection has taken all pieces sent, and has had a chance to write them to the socket.
    pub(crate) async fn wait_flushed(&mut self) {
        self.wait_taken().await;
        // The connection flushes when its body is pending.
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pieces_come_one_by_one_and_in_order() {
        let mut body = SimBody::written(|mut outbox| async move {
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
        let body = SimBody::written(|mut outbox| async move {
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
        let mut body = SimBody::written(|mut outbox| async move {
            let _holder = holder;
            outbox.send(Bytes::from_static(b"x")).await;
            std::future::pending::<()>().await;
        });
        assert!(body.frame().await.is_some());
        drop(body);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
