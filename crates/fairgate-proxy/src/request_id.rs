//! Generates request ids, which are short, unique across restarts and cheap to make. They may be
//! guessable, because knowing an id gives nobody any right.

use std::sync::atomic::{AtomicU64, Ordering};

/// Generates request ids: `req-`, ten random characters of this process, and a counter.
pub(crate) struct RequestIdGenerator {
    prefix: [u8; PREFIX_LEN],
    next: AtomicU64,
}

const PREFIX_LEN: usize = 10;
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
        let mut id = String::with_capacity(32);
        id.push_str("req-");
        id.extend(self.prefix.iter().map(|byte| char::from(*byte)));
        id.push('-');
        // 13 characters hold 64 bits. Leading zeros beyond 6 characters are dropped. Ids of one
        // process sort by age until the counter needs a seventh character.
        let width = (64 - number.leading_zeros()).div_ceil(5).max(6);
        for place in (0..width).rev() {
            let digit = usize::try_from((number >> (place * 5)) & 31).unwrap_or(0);
            id.push(char::from(ALPHABET[digit]));
        }
        id.into_boxed_str()
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
