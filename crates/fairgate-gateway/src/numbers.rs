//! Whole numbers as ones to calculate with, and back.

#[expect(clippy::cast_precision_loss, reason = "rates and prices need no more than 53 bits")]
pub(crate) fn precise(number: u64) -> f64 {
    number as f64
}

/// Rounds down; what is below 0 is 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates at both ends"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}
