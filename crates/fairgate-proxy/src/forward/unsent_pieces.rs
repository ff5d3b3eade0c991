//! Pieces of an answer that wait for their client.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Size up to which small pieces are joined into one. Each piece costs the client's connection and
/// the memory a fixed amount, whatever its size.
const JOINED_BYTES: usize = 4 << 10;
/// Smallest size of a piece that is kept as it is. Smaller pieces are copied into a joined piece.
const LARGE_BYTES: usize = 1 << 10;

/// Pieces that may go to the client, in order. A small piece that waits behind others is joined with the small pieces
/// next to it. So even an upstream that sends tiny chunks cannot make the number of pieces large.
#[derive(Debug, Default)]
pub(super) struct UnsentPieces {
    pieces: VecDeque<Bytes>,
    /// The last small pieces, joined into one.
    tail: BytesMut,
    bytes: usize,
}

impl UnsentPieces {
    /// Returns true if there are no pieces.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Returns the number of bytes in all pieces.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a piece behind all others.
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len();
        if self.is_empty() {
            self.pieces.push_back(piece);
        } else if piece.len() >= LARGE_BYTES {
            self.close_tail();
            self.pieces.push_back(piece);
        } else {
            self.tail.extend_from_slice(&piece);
            if self.tail.len() >= JOINED_BYTES {
                self.close_tail();
            }
        }
    }

    /// Adds pieces behind all others.
    pub(super) fn extend(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        pieces.into_iter().for_each(|piece| self.push(piece));
    }

    /// Removes the first piece.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.close_tail();
        }
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        Some(piece)
    }

    /// Removes all pieces, and returns the number of their bytes.
    pub(super) fn clear(&mut self) -> usize {
        self.pieces.clear();
        self.tail.clear();
        std::mem::take(&mut self.bytes)
    }

    /// Removes all pieces, and returns them as one.
    pub(super) fn take_joined(&mut self) -> Bytes {
        self.close_tail();
        self.bytes = 0;
        match self.pieces.len() {
            0 | 1 => self.pieces.pop_front().unwrap_or_default(),
            _ => self.pieces.drain(..).flatten().collect(),
        }
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut unsent: UnsentPieces) -> (Vec<u8>, usize) {
        let (mut bytes, mut count) = (Vec::new(), 0);
        while let Some(piece) = unsent.pop() {
            bytes.extend_from_slice(&piece);
            count += 1;
        }
        assert_eq!((unsent.bytes(), unsent.is_empty()), (0, true));
        (bytes, count)
    }

    #[test]
    fn bytes_keep_their_order_and_small_pieces_are_joined() {
        let mut unsent = UnsentPieces::default();
        let mut expected = Vec::new();
        for number in 0..20_000_u32 {
            let size = if number % 5_000 == 4_999 { 3_000 } else { 1 };
            let piece = vec![number.to_le_bytes()[0]; size];
            expected.extend_from_slice(&piece);
            unsent.push(piece.into());
        }
        assert_eq!(unsent.bytes(), expected.len());
        let (bytes, count) = all(unsent);
        assert_eq!(bytes, expected);
        // One for every 4 KiB, and some around the large ones. It was one for each byte.
        assert!(count <= expected.len() / JOINED_BYTES + 12, "{count} pieces");
    }

    #[test]
    fn a_piece_that_need_not_wait_is_not_copied() {
        let mut unsent = UnsentPieces::default();
        let piece = Bytes::from_static(b"data: 1\n\n");
        unsent.extend([piece.clone(), Bytes::new()]);
        assert_eq!(unsent.pop().map(|sent| sent.as_ptr()), Some(piece.as_ptr()));
        assert_eq!(unsent.pop(), None);
    }

    #[test]
    fn all_of_them_can_be_taken_or_dropped() {
        let mut unsent = UnsentPieces::default();
        unsent.extend(["ab", "c", "d"].map(Bytes::from));
        assert_eq!(unsent.clear(), 4);
        assert!(unsent.is_empty());
        unsent.extend(["ab", "c", "d"].map(Bytes::from));
        assert_eq!(unsent.take_joined(), "abcd");
        assert_eq!((unsent.bytes(), unsent.take_joined()), (0, Bytes::new()));
    }
}
