//! Secrets of keys, which are shown once and stored as a hash.

use std::fmt;

/// The blake3 hash of a secret. Secrets have 256 random bits, so they cannot be guessed, and a fast hash is enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// Hashes the secret that a client sent.
    pub fn of(secret: &[u8]) -> Self {
        Self(*blake3::hash(secret).as_bytes())
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// Secret of a new key. The secret is shown to its owner once and never logged, because `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySecret(String);

impl KeySecret {
    /// Generates a secret: `fg-` and 43 characters that carry 256 random bits.
    pub fn generate() -> Result<Self, getrandom::Error> {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut random = [0_u8; 43];
        getrandom::fill(&mut random)?;
        let mut text = String::from("fg-");
        text.extend(random.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])));
        Ok(Self(text))
    }

    /// Returns the text of the secret, to be shown to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the first 7 characters of the secret, which may be shown later so that people can tell keys apart.
    pub fn hint(&self) -> String {
        self.0.chars().take(7).collect()
    }

    /// Returns the hash of the secret, which is what the database stores.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn secrets_look_as_promised_and_differ() {
        let secrets: Vec<_> = (0..1_000).map(|_| KeySecret::generate().unwrap()).collect();
        let texts: BTreeSet<_> = secrets.iter().map(KeySecret::expose).collect();
        assert_eq!(texts.len(), 1_000);
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        for text in &texts {
            assert!(text.starts_with("fg-") && text.len() == 46 && text.chars().all(allowed));
        }
        // 43 000 draws from 64 characters: all appear, and none much oftener than the 672 times of chance.
        let mut drawn = [0_u32; 128];
        texts.iter().flat_map(|text| text[3..].bytes()).for_each(|c| drawn[usize::from(c)] += 1);
        let drawn: Vec<_> = drawn.into_iter().filter(|times| *times > 0).collect();
        assert_eq!(drawn.len(), 64);
        assert!(drawn.iter().all(|times| (400..1_000).contains(times)), "{drawn:?}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let secret = KeySecret::generate().unwrap();
        assert_eq!(format!("{secret:?} {:?}", secret.hash()), "Secret(…) KeyHash(…)");
        assert_eq!(secret.hint(), secret.expose()[..7]);
        assert_eq!(secret.hash(), KeyHash::of(secret.expose().as_bytes()));
    }
}
