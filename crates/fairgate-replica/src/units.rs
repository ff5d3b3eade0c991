//! Quantities of the log, as types.

use std::fmt;

use fairgate_core::units::Micros;
use serde::{Deserialize, Serialize};

/// A cluster time or a duration in cluster time, in microseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClusterMicros(pub u64);

impl ClusterMicros {
    /// Creates a duration of whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// Returns the time that is `span` later; the latest possible time on overflow.
    pub const fn after(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the duration from `earlier` to this time; 0 if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<ClusterMicros> for Micros {
    fn from(time: ClusterMicros) -> Self {
        Self(time.0)
    }
}

impl From<Micros> for ClusterMicros {
    fn from(time: Micros) -> Self {
        Self(time.0)
    }
}

/// Timestamp of a record: the engine's time when it accepted the record, in microseconds since an
/// arbitrary moment. It is only compared with the timestamps of other records.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EngineStamp(pub u64);

/// The position of a record in the log of a generation. The first record has position 1; 0 is
/// before all records.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct LogPosition(pub u64);

impl LogPosition {
    /// Returns the next position.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The number that the cluster gave to one process. No other process ever gets it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MemberNumber(pub u64);

/// One membership of a process, from a join to its end. The number is the position of the `join` in
/// the log; 0 means none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MemberEpoch(pub u64);

/// Number of bytes of a hash in records and messages.
const SHORT_BYTES: usize = 8;

/// The first bytes of a hash, as 16 hexadecimal digits in text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShortHash(pub [u8; SHORT_BYTES]);

impl ShortHash {
    /// Returns the short form of a whole hash.
    pub fn of(hash: &blake3::Hash) -> Self {
        let mut short = [0; SHORT_BYTES];
        short.copy_from_slice(&hash.as_bytes()[..SHORT_BYTES]);
        Self(short)
    }

    /// Parses 16 hexadecimal digits; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() != 2 * SHORT_BYTES || !text.bytes().all(is_hex) {
            return None;
        }
        u64::from_str_radix(text, 16).ok().map(|value| Self(value.to_be_bytes()))
    }
}

impl fmt::Display for ShortHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl Serialize for ShortHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ShortHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("must be 16 hexadecimal digits"))
    }
}

/// Returns true if the name of a cluster, a member or a process is valid: 1 to 128 bytes without control characters,
/// double quotes or backslashes.
pub fn is_valid_name(name: &str) -> bool {
    let is_bad = |c: char| c.is_control() || c == '"' || c == '\\';
    (1..=128).contains(&name.len()) && !name.contains(is_bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_hashes_are_sixteen_digits() {
        let hash = ShortHash([0, 1, 2, 3, 4, 5, 0xab, 0xff]);
        assert_eq!(hash.to_string(), "000102030405abff");
        assert_eq!(ShortHash::parse("000102030405abff"), Some(hash));
        for bad in ["", "000102030405abf", "000102030405ABFF", "+00102030405abff"] {
            assert_eq!(ShortHash::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_have_no_odd_characters() {
        assert!(is_valid_name("gateway-0") && is_valid_name("ä b"));
        for bad in ["", "a\nb", "a\"b", "a\\b", &"x".repeat(129)] {
            assert!(!is_valid_name(bad), "{bad:?}");
        }
    }
}
