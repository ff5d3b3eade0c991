//! The errors of the windows in which each source was served, as information for people.

use alloc::vec::Vec;

use super::work_sources::WorkSource;

/// Greatest number of sources that are followed. A window has one bit for each.
const SOURCES_MAX: usize = 64;
/// Least weight of the latest window in a moving average: the mean moves by at least this part towards its error.
const GAIN_MIN: f64 = 0.02;
/// Least number of windows of a source for its mean error to count.
const WINDOWS_MIN: u32 = 16;
/// A source is named if the mean error of its windows is at least this many times that of all windows.
const WORSE_THAN_ALL: f64 = 1.2;
/// Greatest relative error of a window. A greater error counts as this one.
const ERROR_MAX: f64 = 10.0;

/// The sources that were served in a window, with one bit for each.
pub(super) type SourceBits = u64;

/// Mean relative error of windows.
#[derive(Clone, Copy, Debug, Default)]
struct WindowError {
    mean: f64,
    windows: u32,
}

impl WindowError {
    fn add(&mut self, error: f64) {
        self.windows = self.windows.saturating_add(1);
        let gain = GAIN_MIN.max(1.0 / f64::from(self.windows));
        self.mean += gain * (error - self.mean);
    }
}

/// Mean errors of the windows in which each source was served.
#[derive(Clone, Debug, Default)]
pub(super) struct SourceDeviations {
    sources: Vec<(WorkSource, WindowError)>,
    all: WindowError,
}

impl SourceDeviations {
    /// Returns the bit of a source; 0 if the greatest number of sources is followed already.
    pub(super) fn bit(&mut self, source: WorkSource) -> SourceBits {
        let known = self.sources.iter().position(|(known, _)| *known == source);
        let place = match known {
            Some(place) => place,
            None if self.sources.len() < SOURCES_MAX => {
                self.sources.push((source, WindowError::default()));
                self.sources.len() - 1
            }
            None => return 0,
        };
        1 << place
    }

    /// Adds the relative error of a window in which these sources were served.
    pub(super) fn add(&mut self, present: SourceBits, error: f64) {
        let error = error.abs().min(ERROR_MAX);
        self.all.add(error);
        for (place, (_, of_source)) in self.sources.iter_mut().enumerate() {
            if present & (1 << place) != 0 {
                of_source.add(error);
            }
        }
    }

    /// Returns the source whose windows are furthest from their predicted lengths; `None` if they are not clearly
    /// further than all windows are.
    pub(super) fn worst(&self) -> Option<WorkSource> {
        let known = self.sources.iter().filter(|(_, error)| error.windows >= WINDOWS_MIN);
        let worst = known.max_by(|(_, one), (_, other)| one.mean.total_cmp(&other.mean))?;
        (worst.1.mean >= WORSE_THAN_ALL * self.all.mean).then_some(worst.0)
    }

    /// Returns the number of bytes that the sources take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sources.capacity() * size_of::<(WorkSource, WindowError)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_source_is_named_if_it_is_clearly_worse() {
        let mut deviations = SourceDeviations::default();
        let [chat, images] = [1, 2].map(|source| deviations.bit(WorkSource(source)));
        assert_eq!((chat, images, deviations.bit(WorkSource(1))), (1, 2, 1));
        for _ in 0..15 {
            deviations.add(chat, 0.02);
            deviations.add(chat | images, -0.2);
        }
        assert_eq!(deviations.worst(), None, "15 windows of it are too few");
        deviations.add(chat | images, 0.2);
        assert_eq!(deviations.worst(), Some(WorkSource(2)));
        let mut alike = SourceDeviations::default();
        let both = alike.bit(WorkSource(1)) | alike.bit(WorkSource(2));
        (0..50).for_each(|_| alike.add(both, 0.3));
        assert_eq!(alike.worst(), None);
    }

    #[test]
    fn sources_beyond_the_bound_have_no_bit() {
        let mut deviations = SourceDeviations::default();
        let bits: Vec<_> = (0..70).map(|source| deviations.bit(WorkSource(source))).collect();
        assert_eq!((bits[63], bits[64], deviations.sources.len()), (1 << 63, 0, 64));
        deviations.add(u64::MAX, f64::MAX);
        assert_eq!(deviations.worst(), None);
    }
}
