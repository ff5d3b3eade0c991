//! Quantities as types, so that tokens are never added to microseconds.
//!
//! Every type states its range. Values outside it cannot be built, and inside it no arithmetic of this
//! crate wraps: sums of tokens are kept in 128 bits, and where a product needs more, in 256.

use core::fmt;
use core::num::NonZeroU64;

/// A moment or a span on the journal's clock, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// A number of tokens: what a request is expected to use, or what it really used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub u64);

/// A count of ended requests: the pool's own clock, by which `load` measures how long a flow has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

/// How large a flow's share is against its siblings': a share node's weight or a drr class's quantum,
/// an integer from 1 to `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(NonZeroU64);

/// How many requests or tokens a minute, 1 to `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerMinute(NonZeroU64);

/// How many seconds of its rate a worker may have saved up, 1 to 60.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BurstSeconds(u8);

/// How heavy one waiting request counts in `load`'s queue depth: 0.001 to 1 000 000, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskWeight(u32);

/// The load function's trade-off between depth and age: 0 to 1, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alpha(u32);

/// A part of a worker's batch, in thousandths: the busy threshold `busy_fraction`, 0 to 1 000 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fraction(u32);

/// Tokens per weight, the height at which flows of different weights compare: in units of 2⁻³². It prints as a
/// decimal with three places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerWeight(pub i128);

impl PerWeight {
    /// That many tokens at this weight, rounded down.
    pub fn of(tokens: i128, weight: Weight) -> Self {
        let weight = i128::from(weight.get());
        let whole = tokens.div_euclid(weight).saturating_mul(1 << 32);
        Self(whole.saturating_add((tokens.rem_euclid(weight) << 32) / weight))
    }

    /// A height that is never below 0.
    pub(crate) fn from_score(score: u128) -> Self {
        Self(i128::try_from(score).unwrap_or(i128::MAX))
    }
}

impl fmt::Display for PerWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        // Rounded to the nearest thousandth; what rounds to 1000 of them carries.
        let thousandths = ((magnitude & 0xffff_ffff) * 1000 + (1 << 31)) >> 32;
        let (whole, rest) = ((magnitude >> 32) + thousandths / 1000, thousandths % 1000);
        let sign = if self.0 < 0 && (whole, rest) != (0, 0) { "-" } else { "" };
        write!(f, "{sign}{whole}.{rest:03}")
    }
}

/// A value was outside the range of its unit. The message names the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The range as text, for the error message.
    pub allowed: &'static str,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {}", self.allowed)
    }
}

impl core::error::Error for OutOfRange {}

impl Weight {
    /// The weight of a share flow that no policy names: 100.
    pub const DEFAULT: Self = Self(NonZeroU64::new(100).unwrap());

    /// A weight of 1 or more.
    pub fn new(weight: u64) -> Result<Self, OutOfRange> {
        let allowed = OutOfRange { allowed: "an integer of 1 or more" };
        NonZeroU64::new(weight).map(Self).ok_or(allowed)
    }

    /// The weight as a plain number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl PerMinute {
    /// A rate of 1 or more a minute.
    pub fn new(per_minute: u64) -> Result<Self, OutOfRange> {
        let allowed = OutOfRange { allowed: "an integer of 1 or more" };
        NonZeroU64::new(per_minute).map(Self).ok_or(allowed)
    }

    /// The rate as a plain number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl BurstSeconds {
    /// The burst of a worker that states none: 10 seconds.
    pub const DEFAULT: Self = Self(10);

    /// A burst of 1 to 60 seconds.
    pub fn new(seconds: u64) -> Result<Self, OutOfRange> {
        match u8::try_from(seconds) {
            Ok(s) if (1..=60).contains(&s) => Ok(Self(s)),
            _ => Err(OutOfRange { allowed: "1 to 60 seconds" }),
        }
    }

    /// The burst in seconds.
    pub fn get(self) -> u64 {
        u64::from(self.0)
    }
}

impl TaskWeight {
    /// The weight of a request that states none: 1.0.
    pub const ONE: Self = Self(1000);
    /// The heaviest weight: 1 000 000.
    pub const MAX: Self = Self(1_000_000_000);

    /// A weight given in thousandths, 1 to 1 000 000 000 of them.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, OutOfRange> {
        match u32::try_from(thousandths) {
            Ok(t) if (1..=Self::MAX.0).contains(&t) => Ok(Self(t)),
            _ => Err(OutOfRange { allowed: "0.001 to 1000000" }),
        }
    }

    /// The weight in thousandths.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

impl Default for TaskWeight {
    fn default() -> Self {
        Self::ONE
    }
}

impl Alpha {
    /// Latency first: the longest-waiting flow.
    pub const LATENCY: Self = Self(0);
    /// The default.
    pub const BALANCED: Self = Self(250_000);
    /// Throughput first: the deepest backlog; also where auto-tune stops raising.
    pub const THROUGHPUT: Self = Self(500_000);
    /// One, in millionths.
    pub const SCALE: u32 = 1_000_000;

    /// An alpha in millionths, 0 to 1 000 000.
    pub fn from_millionths(millionths: u64) -> Result<Self, OutOfRange> {
        match u32::try_from(millionths) {
            Ok(m) if m <= Self::SCALE => Ok(Self(m)),
            _ => Err(OutOfRange { allowed: "0 to 1" }),
        }
    }

    /// The alpha in millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }
}

impl Fraction {
    /// A fraction in thousandths, 0 to 1 000 000 000 of them.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, OutOfRange> {
        match u32::try_from(thousandths) {
            Ok(t) if t <= 1_000_000_000 => Ok(Self(t)),
            _ => Err(OutOfRange { allowed: "0 to 1000000" }),
        }
    }

    /// The fraction in thousandths.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn per_weight_prints_the_nearest_thousandth() {
        let shown = |tokens, weight| {
            PerWeight::of(tokens, Weight::new(weight).expect("a weight")).to_string()
        };
        assert_eq!(shown(1000, 500), "2.000");
        assert_eq!(shown(20, 100), "0.200");
        assert_eq!(shown(-5, 4), "-1.250");
        assert_eq!(shown(2, 3), "0.667");
        assert_eq!(PerWeight((1 << 32) - 1).to_string(), "1.000");
        assert_eq!(PerWeight(-1).to_string(), "0.000");
    }

    #[test]
    fn units_refuse_what_is_out_of_range() {
        assert!(Weight::new(0).is_err());
        assert!(TaskWeight::from_thousandths(0).is_err());
        assert!(TaskWeight::from_thousandths(1_000_000_001).is_err());
        assert_eq!(TaskWeight::from_thousandths(1_000_000_000), Ok(TaskWeight::MAX));
        assert!(Alpha::from_millionths(1_000_001).is_err());
        assert!(Fraction::from_thousandths(1_000_000_001).is_err());
    }
}
