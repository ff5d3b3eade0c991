//! Decides the state and the pause of a task after a failure.

use std::time::Duration;

use fairgate_time::UnixMicros;

use fairgate_api::fleet::TaskState;

/// The state and the pause of a task after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AfterFailure {
    /// PAUSED until `resume_after`, or BLOCKED if no retry is left.
    pub(crate) state: TaskState,
    pub(crate) retries: u32,
    pub(crate) resume_after: Option<UnixMicros>,
}

/// Returns the state of a task after a failure. After n retries, the task is paused for 2^n times
/// the first pause, up to the maximum pause. A task without retries left is blocked.
pub(crate) fn after_failure(
    retries: u32,
    retries_max: u32,
    backoff: (Duration, Duration),
    now: UnixMicros,
) -> AfterFailure {
    if retries >= retries_max {
        return AfterFailure { state: TaskState::Blocked, retries, resume_after: None };
    }
    let pause = later(now, pause(retries, backoff));
    AfterFailure { state: TaskState::Paused, retries: retries + 1, resume_after: Some(pause) }
}

fn pause(retries: u32, (first, longest): (Duration, Duration)) -> Duration {
    let factor = 1_u32.checked_shl(retries.min(31)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

/// Returns the time that is `by` after `now`; the latest possible time on overflow.
pub(crate) fn later(now: UnixMicros, by: Duration) -> UnixMicros {
    UnixMicros(now.0.saturating_add(i64::try_from(by.as_micros()).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(300));

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = [0, 1, 2, 3, 40, u32::MAX].map(|retries| pause(retries, BACKOFF).as_secs());
        assert_eq!(pauses, [60, 120, 240, 300, 300, 300]);
    }

    #[test]
    fn the_last_failure_blocks() {
        let now = UnixMicros(1_000_000);
        let again = after_failure(2, 3, BACKOFF, now);
        assert_eq!(again.state, TaskState::Paused);
        assert_eq!((again.retries, again.resume_after), (3, Some(UnixMicros(241_000_000))));
        let blocked = after_failure(3, 3, BACKOFF, now);
        assert_eq!((blocked.state, blocked.retries), (TaskState::Blocked, 3));
        assert_eq!(after_failure(0, 0, BACKOFF, now).state, TaskState::Blocked);
    }
}
