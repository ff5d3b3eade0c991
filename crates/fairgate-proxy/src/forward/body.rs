//! Reads a request's body: bounded in size, in time, and in the memory that all bodies together may use.
//!
//! A request is parsed in one pass over its bytes. A waiting request keeps only one copy of its body in memory.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use fairgate_config::LimitsConfig;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::time::timeout;

use crate::body_memory::BodyMemoryGuard;
use crate::refusal::{self, Refusal};
use crate::reply::content_length;

/// The largest buffer that is allocated up front for an announced length, in bytes. Beyond it the buffer grows as data
/// arrives.
const FIRST_ROOM_MAX: u64 = 64 << 10;

/// A body in memory, counted in the memory limit until it is dropped.
pub(super) struct BufferedBody {
    pub(super) bytes: Bytes,
    _held: BodyMemoryGuard,
}

/// Returns the announced length of a body in bytes, if its client sent a `Content-Length`.
pub(super) fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

/// Reads a whole body, and counts its bytes in `held`.
pub(super) async fn read<B>(
    headers: &HeaderMap,
    body: B,
    limits: &LimitsConfig,
    held: BodyMemoryGuard,
) -> Result<BufferedBody, Refusal>
where
    B: Body<Data = Bytes>,
{
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(refusal::encoded_body());
    }
    let max = limits.body_bytes_max;
    let announced = announced_length(headers);
    if announced.is_some_and(|announced| announced > max) {
        return Err(refusal::body_too_large(max));
    }
    match timeout(limits.body_timeout, gather(body, announced.unwrap_or(0), limits, held)).await {
        Ok(read) => read,
        Err(_) => Err(refusal::body_timeout(limits.body_timeout)),
    }
}

async fn gather<B>(
    body: B,
    announced: u64,
    limits: &LimitsConfig,
    mut held: BodyMemoryGuard,
) -> Result<BufferedBody, Refusal>
where
    B: Body<Data = Bytes>,
{
    let mut body = pin!(body);
    let room = usize::try_from(announced.min(FIRST_ROOM_MAX)).unwrap_or(0);
    // Copied: the frames are slices of the connection's read buffer, which is larger and would be kept alive with them.
    let mut bytes = BytesMut::with_capacity(room);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| refusal::body_broken())?;
        let Ok(piece) = frame.into_data() else { continue };
        if content_length(bytes.len()).saturating_add(content_length(piece.len()))
            > limits.body_bytes_max
        {
            return Err(refusal::body_too_large(limits.body_bytes_max));
        }
        held.grow(content_length(piece.len()), limits.held_bytes_max)
            .map_err(|_| refusal::memory_full())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(BufferedBody { bytes: bytes.freeze(), _held: held })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use http_body::Frame;

    use super::*;
    use crate::body_memory::BodyMemory;

    /// A body that returns its pieces. After them, it ends if the flag is true; else it never ends.
    struct Pieces(VecDeque<&'static [u8]>, bool);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            match self.0.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece))))),
                None if self.1 => Poll::Ready(None),
                None => Poll::Pending,
            }
        }
    }

    fn limits() -> LimitsConfig {
        LimitsConfig {
            body_bytes_max: 10,
            header_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(5),
            header_bytes_max: 1 << 16,
            connections_max: 1,
            trusted_proxies: Vec::new(),
            held_bytes_max: 30,
            names_per_key_max: 1,
            response_ids_per_tenant_max: 1,
            response_id_lifetime: Duration::from_secs(1),
            foreign_response_ids: false,
        }
    }

    async fn outcome(
        pieces: &[&'static [u8]],
        ends: bool,
        headers: &HeaderMap,
        all: &BodyMemory,
    ) -> Result<BufferedBody, &'static str> {
        let body = Pieces(pieces.iter().copied().collect(), ends);
        read(headers, body, &limits(), all.start_body(&"t".into()))
            .await
            .map_err(|refusal| refusal.code.as_str())
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_are_bounded_in_every_way() {
        let all = BodyMemory::default();
        let none = HeaderMap::new();
        let whole = outcome(&[b"12345", b"67890"], true, &none, &all).await.ok().unwrap();
        assert_eq!(&whole.bytes[..], b"1234567890");
        assert_eq!(all.now(), 10);
        assert_eq!(outcome(&[b"123456"], true, &none, &all).await.err(), Some("memory_full"));
        drop(whole);
        assert_eq!(all.now(), 0);
        assert_eq!(
            outcome(&[b"12345678901"], true, &none, &all).await.err(),
            Some("body_too_large")
        );
        assert_eq!(outcome(&[b"1"], false, &none, &all).await.err(), Some("body_timeout"));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, 11.into());
        assert_eq!(outcome(&[], false, &headers, &all).await.err(), Some("body_too_large"));
        headers.clear();
        headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static("gzip"));
        let refused = outcome(&[], false, &headers, &all).await.err();
        assert_eq!(refused, Some("unsupported_content_encoding"));
        assert_eq!(all.now(), 0);
    }
}
