//! The last windows of a worker with their predicted lengths, as information for people.

use super::float_math::whole;

/// Number of windows that are kept.
const WINDOWS_KEPT: usize = 128;

/// A window from which prices were learned, with the length that was predicted for it before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PredictedWindow {
    /// Measured length of the window in microseconds.
    pub measured_us: u32,
    /// Predicted length of the window in microseconds, by the coefficients from earlier windows.
    pub predicted_us: u32,
}

/// The last windows of a worker.
#[derive(Clone, Debug)]
pub(super) struct RecentWindows {
    windows: [PredictedWindow; WINDOWS_KEPT],
    /// Number of windows that were ever added.
    count: usize,
}

impl RecentWindows {
    pub(super) fn new() -> Self {
        Self { windows: [PredictedWindow::default(); WINDOWS_KEPT], count: 0 }
    }

    /// Adds a window, which replaces the oldest one if all places are in use.
    pub(super) fn add(&mut self, measured_ms: f64, predicted_ms: f64) {
        let micros = |ms: f64| u32::try_from(whole(1000.0 * ms)).unwrap_or(u32::MAX);
        self.windows[self.count % WINDOWS_KEPT] = PredictedWindow {
            measured_us: micros(measured_ms),
            predicted_us: micros(predicted_ms),
        };
        self.count = self.count.wrapping_add(1);
    }

    /// Returns the windows, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = PredictedWindow> {
        let first = self.count.saturating_sub(WINDOWS_KEPT);
        (first..self.count).map(|number| self.windows[number % WINDOWS_KEPT])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_windows_are_kept_in_their_order() {
        let mut recent = RecentWindows::new();
        assert_eq!(recent.iter().count(), 0);
        for ms in 0..200 {
            recent.add(f64::from(ms), f64::from(ms) + 0.5);
        }
        assert_eq!(recent.iter().count(), WINDOWS_KEPT);
        let first = PredictedWindow { measured_us: 72_000, predicted_us: 72_500 };
        assert_eq!(recent.iter().next(), Some(first));
        recent.add(f64::INFINITY, f64::NAN);
        let last = PredictedWindow { measured_us: u32::MAX, predicted_us: 0 };
        assert_eq!(recent.iter().last(), Some(last));
    }
}
