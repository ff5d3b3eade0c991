//! Worker time of the last minute.

/// Length of a step of [`RecentTime`] in microseconds.
const STEP_US: u64 = 5_000_000;

/// Number of steps in a minute.
const STEPS_KEPT: usize = 12;
const STEPS: u64 = STEPS_KEPT as u64;

/// Worker time in steps of five seconds, for the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecentTime {
    /// Number of the step in which time was last added.
    last: u64,
    /// Worker time of each of the last steps, in microseconds. The index of a step is its number modulo [`STEPS_KEPT`].
    steps: [u32; STEPS_KEPT],
}

impl RecentTime {
    /// Adds worker time at the time `now_us`.
    pub(super) fn add(&mut self, now_us: u64, time_us: u64) {
        let step = (now_us / STEP_US).max(self.last);
        for old in (self.last + 1..=step).take(self.steps.len()) {
            self.steps[place(old)] = 0;
        }
        self.last = step;
        let sum = &mut self.steps[place(step)];
        *sum = sum.saturating_add(u32::try_from(time_us).unwrap_or(u32::MAX));
    }

    /// Returns the worker time of the minute before `now_us`, in microseconds. The minute is
    /// rounded to whole steps of five seconds.
    pub(super) fn sum(&self, now_us: u64) -> u64 {
        let step = now_us / STEP_US;
        let kept = |number: &u64| number + STEPS > step;
        let numbers = (self.last + 1).saturating_sub(STEPS)..=self.last;
        numbers.filter(kept).map(|number| u64::from(self.steps[place(number)])).sum()
    }
}

fn place(step: u64) -> usize {
    usize::try_from(step % STEPS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let mut recent = RecentTime::default();
        let second = 1_000_000;
        for time in 0..200 {
            recent.add(time * second, 10);
        }
        // The steps from 140 s on; that of 195 s has ended at 199 s.
        assert_eq!(recent.sum(199 * second), 600);
        // The steps from 175 s on.
        assert_eq!(recent.sum(230 * second), 250);
        assert_eq!(recent.sum(259 * second), 0);
        recent.add(1000 * second, 7);
        assert_eq!(recent.sum(1000 * second), 7);
        // A clock that goes back adds to the last step.
        recent.add(5 * second, u64::MAX);
        assert_eq!(recent.sum(1000 * second), u64::from(u32::MAX));
    }
}
