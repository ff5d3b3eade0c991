//! Sums of tokens and time in which older amounts count less.

use core::time::Duration;

use crate::token_rate::{MICRO, TokenRate};

/// Fade factors: entry i is 2³² × e^(−2ⁱ ms ÷ 600 s), for bit i of an age in milliseconds.
const FADES: [u128; 24] = [
    4_294_960_138,
    4_294_952_979,
    4_294_938_663,
    4_294_910_030,
    4_294_852_765,
    4_294_738_237,
    4_294_509_191,
    4_294_051_134,
    4_293_135_168,
    4_291_303_821,
    4_287_643_470,
    4_280_332_133,
    4_265_746_839,
    4_236_725_180,
    4_179_272_859,
    4_066_694_908,
    3_850_554_925,
    3_452_127_155,
    2_774_685_131,
    1_792_534_621,
    748_126_853,
    130_313_865,
    3_953_861,
    3_640,
];

/// Greatest number of tokens that one attempt adds. No request uses more, so a higher number is a mistake or a lie.
const TOKENS_MAX: u64 = 1_000_000_000_000;
/// The shortest and the longest time that one attempt adds. The shortest is above 0, so that a rate stays finite.
const TIME_RANGE: (Duration, Duration) =
    (Duration::from_micros(1), Duration::from_secs(365 * 86_400));
/// The highest sum of micro-tokens. The product of such a sum and a factor of [`FADES`] stays below 2¹²⁸.
const MICRO_TOKENS_MAX: u128 = 1 << 95;
/// The highest sum of nanoseconds, which is 292 years of slot time.
const NANOS_MAX: u128 = 1 << 63;

/// Sums of tokens and slot time over attempts. An amount is divided by e for every ten minutes of its age.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FadingSums {
    micro_tokens: u128,
    nanos: u128,
}

impl FadingSums {
    /// Adds an attempt. Tokens above [`TOKENS_MAX`] are ignored, and the time is limited to [`TIME_RANGE`].
    pub(crate) fn add(&mut self, tokens: u64, time: Duration) {
        let tokens = u128::from(tokens.min(TOKENS_MAX)) * MICRO;
        let nanos = time.clamp(TIME_RANGE.0, TIME_RANGE.1).as_nanos();
        self.micro_tokens = (self.micro_tokens + tokens).min(MICRO_TOKENS_MAX);
        self.nanos = (self.nanos + nanos).min(NANOS_MAX);
    }

    /// Returns the sums as they are after a further `age_ms` milliseconds.
    pub(crate) fn faded(self, age_ms: u64) -> Self {
        let fade = |sum: u128| match age_ms >> FADES.len() {
            0 => {
                let bits = FADES.iter().enumerate().filter(|(bit, _)| age_ms >> bit & 1 == 1);
                bits.fold(sum, |sum, (_, factor)| (sum * factor) >> 32)
            }
            // After more than four hours, less than 10⁻¹² of a sum is left.
            _ => 0,
        };
        Self { micro_tokens: fade(self.micro_tokens), nanos: fade(self.nanos) }
    }

    pub(crate) fn nanos(self) -> u128 {
        self.nanos
    }

    /// Returns the tokens per second of slot time; `None` if the sum of the slot time is 0.
    pub(crate) fn rate(self) -> Option<TokenRate> {
        (self.nanos > 0).then(|| TokenRate::of_sums(self.micro_tokens, self.nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_minutes_leave_one_part_in_e_whatever_the_steps() {
        let mut sums = FadingSums::default();
        sums.add(1_000_000, Duration::from_secs(1000));
        let at_once = sums.faded(600_000);
        assert_eq!(at_once.nanos / 1_000_000, 367_879);
        let in_steps = (0..600).fold(sums, |sums, _| sums.faded(1000));
        let difference = in_steps.nanos.abs_diff(at_once.nanos);
        assert!(difference < at_once.nanos / 1_000_000, "{difference}");
        assert_eq!(sums.faded(1 << 24).nanos, 0);
        assert_eq!(sums.faded(u64::MAX).nanos, 0);
    }

    #[test]
    fn the_rate_does_not_change_with_age_and_sums_do_not_wrap() {
        let mut sums = FadingSums::default();
        for _ in 0..1000 {
            sums.add(u64::MAX, Duration::ZERO);
        }
        assert!(sums.rate() > Some(TokenRate::new(TOKENS_MAX, Duration::from_millis(1))));
        let mut sums = FadingSums::default();
        sums.add(500, Duration::from_secs(5));
        for age_ms in [1, 999, 60_000, 3_000_000] {
            let rate = sums.faded(age_ms).rate().unwrap();
            let tokens = rate.cost(Duration::from_secs(1_000_000));
            assert!(tokens.abs_diff(100_000_000) < 100, "{tokens} after {age_ms} ms");
        }
    }
}
