//! Quantities as types, so that tokens are never added to microseconds.
//!
//! Every type states its range. Values outside of the range cannot be created, and no arithmetic of this crate wraps
//! with values inside of it. Sums of tokens are kept in 128 bits, and products that need more in 256 bits.
//!
//! In some places 64 bits nearly always suffice. The code there uses 64 bits, tests for larger values, and takes a
//! slower path for those: rounds in `rounds.rs`, keys in `ranking.rs`, divisions in `share.rs` and `meter.rs`,
//! orientation tests in `convex_hull.rs`. Scores saturate from 2⁹⁶ tokens per weight on, which takes 2³² requests of
//! 2⁶⁴ tokens. `restore.rs` checks the range of each restored number.

use core::fmt;
use core::num::NonZeroU64;

/// A point in time or a span of time on the journal's clock, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

/// A number of tokens, such as an estimate, a cost or a real usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens(pub u64);

/// A count of ended requests. A `load` node measures the age of a flow in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

/// The weight of a flow relative to its siblings: its weight in a share node, or the quantum of its class in a drr
/// node. An integer from 1 to `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(NonZeroU64);

/// A rate in requests or tokens per minute, from 1 to `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerMinute(NonZeroU64);

/// The burst of a worker's rates, as the number of seconds of the rate that may be saved up; from 1 to 60.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BurstSeconds(u8);

/// The weight of one waiting request in the queue depth of a `load` node, from 0.001 to 1 000 000; stored in
/// thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskWeight(u32);

/// The load function's trade-off between depth and age, from 0 to 1; stored in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Alpha(u32);

/// A multiple of a worker's batch, from 0 to 1 000 000, for the busy threshold `busy_fraction`; stored in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchFraction(u32);

/// The number of waiting tokens that one cached token counts for when a worker is chosen, from 0 to 1000; stored in
/// thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OverlapCredit(u32);

/// Tokens per weight, in which flows of different weights can be compared; stored in units of 2⁻³². Displays as a
/// decimal with three places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PerWeight(pub i128);

impl PerWeight {
    /// Returns the tokens divided by this weight, rounded down.
    pub fn of(tokens: i128, weight: Weight) -> Self {
        let weight = i128::from(weight.get());
        let whole = tokens.div_euclid(weight).saturating_mul(1 << 32);
        Self(whole.saturating_add((tokens.rem_euclid(weight) << 32) / weight))
    }

    /// Converts a score in 2⁻³² tokens per weight, which is never below 0.
    pub(crate) fn from_score(score: u128) -> Self {
        Self(i128::try_from(score).unwrap_or(i128::MAX))
    }
}

impl fmt::Display for PerWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        // Rounds to the nearest thousandth. 1000 thousandths carry into the whole part.
        let thousandths = ((magnitude & 0xffff_ffff) * 1000 + (1 << 31)) >> 32;
        let (whole, rest) = ((magnitude >> 32) + thousandths / 1000, thousandths % 1000);
        let sign = if self.0 < 0 && (whole, rest) != (0, 0) { "-" } else { "" };
        write!(f, "{sign}{whole}.{rest:03}")
    }
}

/// Error for a value outside the range of its unit. The message names the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRangeError {
    /// The range as text, for the error message.
    pub allowed: &'static str,
}

impl fmt::Display for OutOfRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {}", self.allowed)
    }
}

impl core::error::Error for OutOfRangeError {}

impl Weight {
    /// The weight of a share flow that the policy does not name, which is 100.
    pub const DEFAULT: Self = Self(NonZeroU64::new(100).unwrap());

    /// Creates a weight; fails if the value is 0.
    pub fn new(weight: u64) -> Result<Self, OutOfRangeError> {
        let allowed = OutOfRangeError { allowed: "an integer of 1 or more" };
        NonZeroU64::new(weight).map(Self).ok_or(allowed)
    }

    /// Returns the weight as an integer of 1 or more.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl PerMinute {
    /// Creates a rate; fails if the value is 0.
    pub fn new(per_minute: u64) -> Result<Self, OutOfRangeError> {
        let allowed = OutOfRangeError { allowed: "an integer of 1 or more" };
        NonZeroU64::new(per_minute).map(Self).ok_or(allowed)
    }

    /// Returns the rate as an integer of 1 or more, per minute.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl BurstSeconds {
    /// The burst of a worker that states none, which is 10 seconds.
    pub const DEFAULT: Self = Self(10);

    /// Creates a burst; fails if the number of seconds is not from 1 to 60.
    pub fn new(seconds: u64) -> Result<Self, OutOfRangeError> {
        match u8::try_from(seconds) {
            Ok(s) if (1..=60).contains(&s) => Ok(Self(s)),
            _ => Err(OutOfRangeError { allowed: "1 to 60 seconds" }),
        }
    }

    /// Returns the burst in seconds.
    pub fn get(self) -> u64 {
        u64::from(self.0)
    }
}

impl TaskWeight {
    /// The weight of a request that states none, which is 1.0.
    pub const ONE: Self = Self(1000);
    /// The greatest weight, which is 1 000 000.
    pub const MAX: Self = Self(1_000_000_000);

    /// Creates a weight from thousandths; fails if the value is not from 1 to 1 000 000 000.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, OutOfRangeError> {
        match u32::try_from(thousandths) {
            Ok(t) if (1..=Self::MAX.0).contains(&t) => Ok(Self(t)),
            _ => Err(OutOfRangeError { allowed: "0.001 to 1000000" }),
        }
    }

    /// Returns the weight in thousandths.
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
    /// Trade-off for latency: the flow that has waited longest goes first.
    pub const LATENCY: Self = Self(0);
    /// The trade-off of a load node that states none, which is 0.25.
    pub const BALANCED: Self = Self(250_000);
    /// Trade-off for throughput: 0.5, which favours the flow with the deepest backlog. Auto-tune never raises alpha
    /// above this value.
    pub const THROUGHPUT: Self = Self(500_000);
    /// Number of millionths in an alpha of 1.
    pub const SCALE: u32 = 1_000_000;

    /// Creates an alpha from millionths; fails if the value is above 1 000 000.
    pub fn from_millionths(millionths: u64) -> Result<Self, OutOfRangeError> {
        match u32::try_from(millionths) {
            Ok(m) if m <= Self::SCALE => Ok(Self(m)),
            _ => Err(OutOfRangeError { allowed: "0 to 1" }),
        }
    }

    /// Returns the alpha in millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }
}

impl BatchFraction {
    /// Creates a fraction from thousandths; fails if the value is above 1 000 000 000.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, OutOfRangeError> {
        match u32::try_from(thousandths) {
            Ok(t) if t <= 1_000_000_000 => Ok(Self(t)),
            _ => Err(OutOfRangeError { allowed: "0 to 1000000" }),
        }
    }

    /// Returns the fraction in thousandths.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

impl OverlapCredit {
    /// The overlap credit of a pool that states none, which is 2.
    pub const DEFAULT: Self = Self(2000);

    /// Creates a credit from thousandths; fails if the value is above 1 000 000.
    pub fn from_thousandths(thousandths: u64) -> Result<Self, OutOfRangeError> {
        match u32::try_from(thousandths) {
            Ok(t) if t <= 1_000_000 => Ok(Self(t)),
            _ => Err(OutOfRangeError { allowed: "0 to 1000" }),
        }
    }

    /// Returns the credit in thousandths.
    pub fn thousandths(self) -> u32 {
        self.0
    }
}

impl Default for OverlapCredit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A part of a whole, displayed as a percentage with one decimal, rounded half up: `66.7 %`. A percentage below 0.1 %
/// has four decimals. All percentages for people are written by this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentage {
    part: u128,
    whole: u128,
}

impl Percentage {
    /// Creates the percentage of `part` in `whole`. If `whole` is 0, the percentage is 0 %.
    pub fn of(part: impl Into<u128>, whole: impl Into<u128>) -> Self {
        Self { part: part.into(), whole: whole.into() }
    }

    /// Creates a percentage from millionths.
    pub fn from_ppm(ppm: u64) -> Self {
        Self::of(ppm, 1_000_000_u64)
    }

    /// Creates a percentage from thousandths.
    pub fn from_thousandths(thousandths: u64) -> Self {
        Self::of(thousandths, 1000_u64)
    }

    /// Returns `part` × `scale` ÷ `whole`, rounded half up. `scale` is at most 1 000 000.
    fn scaled(self, scale: u128) -> u128 {
        // 21 bits stay free: 20 for the scale and one for the doubling.
        let bits = 128 - (self.part | self.whole).leading_zeros();
        let shift = bits.saturating_sub(107);
        let (part, whole) = (self.part >> shift, (self.whole >> shift).max(self.whole.min(1)));
        (part * scale * 2 + whole).checked_div(whole * 2).unwrap_or(0)
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scaled(1_000_000) {
            ppm @ 1..1000 => write!(f, "0.{ppm:04} %"),
            _ => {
                let tenths = self.scaled(1000);
                write!(f, "{}.{} %", tenths / 10, tenths % 10)
            }
        }
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
    fn a_percentage_is_rounded_half_up() {
        let shown = |part: u128, whole: u128| Percentage::of(part, whole).to_string();
        assert_eq!([shown(2, 3), shown(1, 3), shown(1, 1)], ["66.7 %", "33.3 %", "100.0 %"]);
        assert_eq!([shown(0, 7), shown(5, 0), shown(3, 2)], ["0.0 %", "0.0 %", "150.0 %"]);
        assert_eq!([shown(9_994, 10_000), shown(9_995, 10_000)], ["99.9 %", "100.0 %"]);
        assert_eq!([shown(1_499, 1_000_000), shown(1_500, 1_000_000)], ["0.1 %", "0.2 %"]);
        assert_eq!([shown(999, 1_000_000), shown(1, 1_000_000)], ["0.0999 %", "0.0001 %"]);
        assert_eq!(shown(1, 3_000_000), "0.0 %");
        assert_eq!(shown(u128::MAX / 3 * 2, u128::MAX), "66.7 %");
        assert_eq!(shown(u128::MAX, u128::MAX), "100.0 %");
        assert_eq!(Percentage::from_ppm(748_950).to_string(), "74.9 %");
        assert_eq!(Percentage::from_thousandths(942).to_string(), "94.2 %");
    }

    #[test]
    fn units_refuse_what_is_out_of_range() {
        assert!(Weight::new(0).is_err());
        assert!(TaskWeight::from_thousandths(0).is_err());
        assert!(TaskWeight::from_thousandths(1_000_000_001).is_err());
        assert_eq!(TaskWeight::from_thousandths(1_000_000_000), Ok(TaskWeight::MAX));
        assert!(Alpha::from_millionths(1_000_001).is_err());
        assert!(BatchFraction::from_thousandths(1_000_000_001).is_err());
        assert!(OverlapCredit::from_thousandths(1_000_001).is_err());
    }
}
