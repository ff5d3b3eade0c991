//! Buffers a command's output until the gateway has acknowledged it.
//!
//! Each byte of the log has a number, counted from the claim's first byte. A piece may have arrived although its
//! response was lost, so its bytes keep their numbers until they are acknowledged. If the command prints more than the
//! gateway accepts, the oldest unsent bytes are dropped, and a line in the log says how many.

use std::collections::VecDeque;

/// Largest size of one piece in bytes, including the line about dropped bytes.
const PIECE_BYTES_MAX: usize = 128 << 10;
/// Greatest number of unsent bytes that are kept.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// The unsent bytes, and the piece that is being sent.
#[derive(Debug, Default)]
pub(super) struct LogBuffer {
    /// Number of the piece's first byte.
    first_byte: u64,
    /// Bytes that were sent at least once and are not acknowledged.
    piece: Vec<u8>,
    waiting: VecDeque<u8>,
    /// Number of bytes that were dropped right before the unsent bytes.
    left_out: u64,
}

impl LogBuffer {
    /// Adds output of the command.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        let excess = self.waiting.len().saturating_sub(WAITING_BYTES_MAX);
        self.waiting.drain(..excess);
        self.left_out += u64::try_from(excess).unwrap_or(u64::MAX);
    }

    /// Returns true if everything was acknowledged.
    pub(super) fn is_empty(&self) -> bool {
        self.piece.is_empty() && self.waiting.is_empty()
    }

    /// Starts numbering at this byte, because the gateway already has earlier bytes from an earlier process with the
    /// same claim.
    pub(super) fn begin_at(&mut self, first_byte: u64) {
        self.first_byte = first_byte;
    }

    /// Returns the piece to send, with the number of its first byte; `None` if there is nothing to send. Returns the
    /// same piece until it is acknowledged.
    pub(super) fn piece(&mut self) -> Option<(u64, Vec<u8>)> {
        if self.piece.is_empty() {
            if self.left_out > 0 {
                let mark = format!("\n[fairgate: {} bytes of output left out]\n", self.left_out);
                self.piece.extend(mark.into_bytes());
                self.left_out = 0;
            }
            let room = PIECE_BYTES_MAX - self.piece.len();
            self.piece.extend(self.waiting.drain(..self.waiting.len().min(room)));
        }
        (!self.piece.is_empty()).then(|| (self.first_byte, self.piece.clone()))
    }

    /// Records that the piece arrived. `next_byte` is the number of the byte that the gateway expects next. If it is
    /// greater than the number after the piece's last byte, the numbers continue from `next_byte`. A smaller
    /// `next_byte` is ignored, because acknowledged bytes are no longer kept.
    pub(super) fn acknowledged(&mut self, next_byte: u64) {
        let sent = self.first_byte + u64::try_from(self.piece.len()).unwrap_or(u64::MAX);
        self.piece.clear();
        self.first_byte = sent.max(next_byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_stays_the_same_until_it_is_acknowledged() {
        let mut log = LogBuffer::default();
        assert_eq!(log.piece(), None);
        log.begin_at(100);
        log.push(b"one ");
        assert_eq!(log.piece(), Some((100, b"one ".to_vec())));
        log.push(b"two");
        assert_eq!(log.piece(), Some((100, b"one ".to_vec())));
        log.acknowledged(104);
        assert_eq!(log.piece(), Some((104, b"two".to_vec())));
        assert!(!log.is_empty());
        log.acknowledged(107);
        assert!(log.is_empty());
    }

    #[test]
    fn a_flood_is_bounded_and_says_what_is_missing() {
        let mut log = LogBuffer::default();
        log.push(b"first");
        let (_, first) = log.piece().expect("a piece");
        let flood = vec![b'x'; WAITING_BYTES_MAX];
        log.push(b"left out");
        log.push(&flood);
        assert_eq!(log.piece(), Some((0, first)), "what was sent stays");
        log.acknowledged(5);
        let (first_byte, piece) = log.piece().expect("a piece");
        assert_eq!(first_byte, 5);
        assert!(piece.len() <= PIECE_BYTES_MAX);
        assert!(
            piece.starts_with(b"\n[fairgate: 8 bytes of output left out]\nxxx"),
            "{first_byte}"
        );
        assert!(log.waiting.len() <= WAITING_BYTES_MAX);
    }
}
