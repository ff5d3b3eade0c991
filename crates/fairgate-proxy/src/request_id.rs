//! Generates request ids, which are short, unique across restarts and cheap to make. Guessing the next id is of no use
//! to anybody.

use std::sync::atomic::{AtomicU64, Ordering};

/// Generates request ids: `req-`, ten random characters of this process, and a counter.
pub(crate) struct RequestIdGenerator {
    prefix: [u8; PREFIX_LEN],
    next: AtomicU64,
}

const HEAD: &[u8] = b"req-";
const PREFIX_LEN: usize = 10;
/// Place of the counter in an id, after the prefix and a hyphen.
const NUMBER_AT: usize = HEAD.len() + PREFIX_LEN + 1;
/// Most characters of the counter.
const NUMBER_LEN_MAX: usize = 13;
/// Characters of a request id, five bits each, without letters that look like digits.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

impl RequestIdGenerator {
    /// Creates the generator of a new process, whose 50 random bits distinguish it from every other process.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut prefix = [0_u8; PREFIX_LEN];
        getrandom::fill(&mut prefix)?;
        for byte in &mut prefix {
            *byte = ALPHABET[usize::from(*byte & 31)];
        }
        Ok(Self { prefix, next: AtomicU64::new(1) })
    }

    /// Returns a new request id, which no other request has.
    pub(crate) fn next(&self) -> Box<str> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut id = [b'-'; NUMBER_AT + NUMBER_LEN_MAX];
        id[..HEAD.len()].copy_from_slice(HEAD);
        id[HEAD.len()..NUMBER_AT - 1].copy_from_slice(&self.prefix);
        // 13 characters hold 64 bits. Leading zeros are dropped beyond a width of 6, which keeps ids sortable for a
        // long time.
        let width = (64 - number.leading_zeros()).div_ceil(5).max(6) as usize;
        let mut left = number;
        for character in id[NUMBER_AT..NUMBER_AT + width].iter_mut().rev() {
            *character = ALPHABET[(left & 31) as usize];
            left >>= 5;
        }
        // It is ASCII, so nothing is replaced.
        String::from_utf8_lossy(&id[..NUMBER_AT + width]).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_sort_in_order() {
        let ids = RequestIdGenerator::new().unwrap();
        let made: Vec<_> = (0..2000).map(|_| ids.next()).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]), "{made:?}");
        assert_eq!(made[0].len(), 4 + 10 + 1 + 6);
        ids.next.store(u64::MAX, Ordering::Relaxed);
        assert!(ids.next().ends_with("-fzzzzzzzzzzzz"));
    }

    #[test]
    fn two_processes_share_no_prefix() {
        assert_ne!(
            RequestIdGenerator::new().unwrap().prefix,
            RequestIdGenerator::new().unwrap().prefix
        );
    }
}
