//! The value of a session's cookie: the holder, the time of its end, and a keyed hash over both.
//!
//! The keyed hash also covers the hash of the token or key that was presented at the login. That
//! hash is not part of the value, so the cookie reveals nothing about the token. When the token or
//! key changes, the session ends.

use fairgate_store::{KeyHash, UnixMicros};

/// Version of the format. A value of another version is no session.
const VERSION: &str = "1";
/// Maximum length of a value that is read, in bytes.
const LONGEST: usize = 512;
/// Number of random bytes in an id.
const ID_BYTES: usize = 16;

/// Kind of the holder of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionKind {
    /// The holder of the admin token.
    Admin,
    /// The holder of the viewer token, who may only read.
    Viewer,
    /// A tenant, with one of its keys.
    Tenant,
}

/// Content of a session's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedSession {
    pub(super) kind: SessionKind,
    /// Random id, by which the session can be revoked.
    pub(super) id: String,
    /// Time at which the session ends.
    pub(super) expires_at: UnixMicros,
    /// For the admin, the name given at the login, for the audit trail. For a tenant, the id of the
    /// key.
    pub(super) name: String,
}

impl SessionKind {
    fn letter(self) -> &'static str {
        match self {
            Self::Admin => "a",
            Self::Viewer => "v",
            Self::Tenant => "t",
        }
    }

    fn of_letter(letter: &str) -> Option<Self> {
        [Self::Admin, Self::Viewer, Self::Tenant].into_iter().find(|kind| kind.letter() == letter)
    }

    /// Returns the name of the cookie. Addresses of one host share their cookies whatever their ports, so the admin's
    /// and a tenant's session have different names.
    pub(super) fn cookie(self) -> &'static str {
        match self {
            Self::Admin | Self::Viewer => "fairgate_admin",
            Self::Tenant => "fairgate_tenant",
        }
    }
}

impl SignedSession {
    /// Returns a new session with a random id.
    pub(super) fn new(
        kind: SessionKind,
        name: String,
        expires_at: UnixMicros,
    ) -> Result<Self, getrandom::Error> {
        let mut id = [0_u8; ID_BYTES];
        getrandom::fill(&mut id)?;
        Ok(Self { kind, id: hex(&id), expires_at, name })
    }

    /// Returns the cookie's value. `secret` is the hash of the token or key that was presented.
    pub(super) fn signed(&self, key: &[u8; 32], secret: KeyHash) -> String {
        let content = self.content();
        let seal = seal(key, &content, secret);
        format!("{content}.{}", seal.to_hex())
    }

    /// Reads a value without checking its seal, because the seal's key must be looked up first.
    /// Returns `None` if the text is no value of this version.
    pub(super) fn read(value: &str) -> Option<(Self, SessionSeal)> {
        if value.len() > LONGEST {
            return None;
        }
        let (content, seal) = value.rsplit_once('.')?;
        let mut parts = content.split('.');
        let mut next = || parts.next();
        if next()? != VERSION {
            return None;
        }
        let session = Self {
            kind: SessionKind::of_letter(next()?)?,
            id: next()?.to_owned(),
            expires_at: UnixMicros(next()?.parse().ok()?),
            name: String::from_utf8(unhex(next()?)?).ok()?,
        };
        let is_whole = parts.next().is_none() && session.content() == content;
        let seal = SessionSeal(blake3::Hash::from_hex(seal).ok()?);
        is_whole.then_some((session, seal))
    }

    fn content(&self) -> String {
        let Self { kind, id, expires_at, name } = self;
        format!("{VERSION}.{}.{id}.{}.{}", kind.letter(), expires_at.0, hex(name.as_bytes()))
    }
}

/// The keyed hash of a value that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionSeal(blake3::Hash);

impl SessionSeal {
    /// Returns true if this installation made the value for a caller with this secret. The
    /// comparison takes the same time wherever the hashes differ.
    pub(super) fn is_of(self, session: &SignedSession, key: &[u8; 32], secret: KeyHash) -> bool {
        // `blake3::Hash` compares in constant time.
        seal(key, &session.content(), secret) == self.0
    }
}

fn seal(key: &[u8; 32], content: &str, secret: KeyHash) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(content.as_bytes());
    hasher.update(&[0]);
    hasher.update(&secret.0);
    hasher.finalize()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8; 32] = &[7; 32];

    fn session() -> SignedSession {
        let until = UnixMicros(1_800_000_000_000_000);
        SignedSession::new(SessionKind::Admin, "on.call".to_owned(), until).unwrap()
    }

    #[test]
    fn a_value_says_what_was_signed() {
        let (made, secret) = (session(), KeyHash::of(b"token"));
        let value = made.signed(KEY, secret);
        let (read, seal) = SignedSession::read(&value).unwrap();
        assert_eq!(read, made);
        assert!(seal.is_of(&read, KEY, secret));
        assert!(!seal.is_of(&read, KEY, KeyHash::of(b"another")), "the token has changed");
        assert!(!seal.is_of(&read, &[8; 32], secret));
        assert!(!value.contains("token"));
    }

    #[test]
    fn nothing_in_a_value_can_be_changed() {
        let (made, secret) = (session(), KeyHash::of(b"token"));
        let value = made.signed(KEY, secret);
        for place in 0..value.len() {
            for digit in ["0", "1", "a", "f", ".", "v", "F"] {
                let mut forged = value.clone();
                forged.replace_range(place..=place, digit);
                if forged == value {
                    continue;
                }
                let accepted = SignedSession::read(&forged)
                    .is_some_and(|(session, seal)| seal.is_of(&session, KEY, secret));
                // A hash reads the same in capitals.
                let same_seal = forged.eq_ignore_ascii_case(&value) && place > value.len() - 65;
                assert!(!accepted || same_seal, "{forged}");
            }
        }
        for broken in ["", ".", "1.a", "2.a.b.3.c.d", &"x".repeat(600)] {
            assert!(SignedSession::read(broken).is_none(), "{broken}");
        }
    }
}
