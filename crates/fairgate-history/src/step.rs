//! Steps, by which histories count time.

/// Seconds of a step, which is a point of the finer ring.
pub const STEP_SECONDS: u64 = 5;
/// Steps of a minute, which is a point of the coarser ring.
pub(crate) const MINUTE_STEPS: u64 = 60 / STEP_SECONDS;
