//! Conversions between `u64` and `f64`, each with its rounding.

/// Converts to `f64`, rounded to 53 bits.
#[expect(clippy::cast_precision_loss, reason = "rates and prices need no more than 53 bits")]
pub(crate) fn to_f64(number: u64) -> f64 {
    number as f64
}

/// Converts to `u64`, rounded down. Numbers below 0 become 0, and those above `u64::MAX` become `u64::MAX`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates at both ends"
)]
pub fn floor_to_u64(number: f64) -> u64 {
    number as u64
}
