//! Removes secrets from output, even if a secret is split over several chunks.

use std::sync::Arc;

/// Text that replaces a secret.
const MASK: &[u8] = b"[masked]";
/// Length of the shortest secret that is masked, in bytes. Shorter texts are not masked, because they may occur in
/// output by chance.
const SECRET_BYTES_MIN: usize = 8;

/// The texts to mask, the longest first.
#[derive(Clone)]
pub(super) struct SecretTexts(Arc<[Vec<u8>]>);

impl SecretTexts {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut secrets: Vec<Vec<u8>> = secrets
            .into_iter()
            .filter(|secret| secret.len() >= SECRET_BYTES_MIN)
            .map(|secret| secret.as_bytes().to_vec())
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets.into())
    }

    /// Returns a whole text with the secrets masked.
    pub(super) fn masked(&self, text: &str) -> String {
        let mut mask = SecretMask::new(self.clone());
        let mut out = Vec::new();
        mask.push(text.as_bytes(), &mut out);
        mask.finish(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// Masks secrets in a stream. Bytes that may be the beginning of a secret are held back until more bytes decide it.
pub(super) struct SecretMask {
    secrets: SecretTexts,
    held: Vec<u8>,
}

impl SecretMask {
    pub(super) fn new(secrets: SecretTexts) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// Reads the stream's next bytes and appends those that may be passed on.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.held.extend_from_slice(bytes);
        let mut place = 0;
        loop {
            let rest = &self.held[place..];
            let secrets = &self.secrets.0;
            let begins = |byte: &u8| secrets.iter().any(|secret| secret.first() == Some(byte));
            let plain = rest.iter().position(begins).unwrap_or(rest.len());
            out.extend_from_slice(&rest[..plain]);
            place += plain;
            let rest = &rest[plain..];
            let Some(first) = rest.first() else { break };
            // A longer secret that may still be completed takes precedence over a shorter one that matches.
            let found = secrets.iter().find(|secret| {
                rest.starts_with(secret) || (rest.len() < secret.len() && secret.starts_with(rest))
            });
            match found {
                Some(secret) if rest.len() < secret.len() => break,
                Some(secret) => {
                    out.extend_from_slice(MASK);
                    place += secret.len();
                }
                None => {
                    out.push(*first);
                    place += 1;
                }
            }
        }
        self.held.drain(..place);
    }

    /// Ends the stream and appends the held bytes.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        // A shorter secret may be at the beginning of bytes that could have become a longer one.
        let secrets = &self.secrets.0;
        let mut rest = self.held.as_slice();
        while let Some(first) = rest.first() {
            if let Some(secret) = secrets.iter().find(|secret| rest.starts_with(secret)) {
                out.extend_from_slice(MASK);
                rest = &rest[secret.len()..];
            } else {
                out.push(*first);
                rest = &rest[1..];
            }
        }
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "fgt-abcdefgh";
    const TOKEN: &str = "fga-0123456789";

    fn in_pieces(text: &str, size: usize) -> String {
        let mut mask =
            SecretMask::new(SecretTexts::new([KEY, TOKEN, "", "short", "fgt-abcdefgh-and-more"]));
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            mask.push(piece, &mut out);
        }
        mask.finish(&mut out);
        String::from_utf8(out).expect("it was text")
    }

    #[test]
    fn secrets_are_masked_however_the_stream_is_cut() {
        let text =
            format!("key {KEY}, ffgt-{KEY}{TOKEN}\nfgt-abc fgt-abcdefgh-and-more short {KEY}");
        let masked = "key [masked], ffgt-[masked][masked]\nfgt-abc [masked] short [masked]";
        for size in 1..=text.len() {
            assert_eq!(in_pieces(&text, size), masked, "pieces of {size}");
        }
    }

    #[test]
    fn only_what_may_become_a_secret_is_held_back() {
        let mut mask = SecretMask::new(SecretTexts::new([KEY]));
        let mut out = Vec::new();
        mask.push(b"so far so good fgt-ab", &mut out);
        assert_eq!(out, b"so far so good ");
        mask.push(b"out\n", &mut out);
        assert_eq!(out, b"so far so good fgt-about\n");
    }
}
