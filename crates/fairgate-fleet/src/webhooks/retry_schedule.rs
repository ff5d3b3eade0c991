//! The times at which an event is tried again: ten tries within a day, with growing pauses.

use std::time::Duration;

/// Maximum number of tries for one event.
pub(crate) const TRIES_MAX: u32 = 10;

/// Pauses after each try but the last, in seconds. The first pause is longer than the maximum
/// duration of a try, so two servers never send an event at the same time.
const PAUSES_S: [u64; 9] = [30, 60, 120, 300, 900, 3_600, 3 * 3_600, 6 * 3_600, 12 * 3_600];
/// Time after the last try, in seconds, after which the event is given up if the server has not reported the result.
const LAST_S: u64 = 60;

/// Time after which a pending event is given up, whatever its number of tries. This happens if its
/// webhook is in no server's configuration, or if all servers were stopped.
pub(crate) const LIFETIME: Duration = Duration::from_secs(25 * 3_600);

/// Returns the pause after a try. The first try has the number 1.
pub(crate) fn pause_after(tries: u32) -> Duration {
    let place = usize::try_from(tries.saturating_sub(1)).unwrap_or(usize::MAX);
    Duration::from_secs(PAUSES_S.get(place).copied().unwrap_or(LAST_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_tries_are_within_a_day_and_their_pauses_grow() {
        let pauses: Vec<Duration> = (1..TRIES_MAX).map(pause_after).collect();
        assert_eq!(pauses.len(), 9);
        assert!(pauses.is_sorted_by(|one, next| one < next), "{pauses:?}");
        let all: Duration = pauses.iter().sum();
        assert!(all < Duration::from_secs(24 * 3_600) && all > Duration::from_secs(20 * 3_600));
        assert!(all + pause_after(TRIES_MAX) < LIFETIME);
    }
}
