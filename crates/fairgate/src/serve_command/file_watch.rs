//! Notices that the configuration file or a certificate has changed, for `fairgate serve --watch`.
//!
//! The files are checked at intervals. A change counts when two checks in a row see the same state.
//! A file that is still being written may already be readable, with another meaning than its author
//! intends.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fairgate_config::Config;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Identity and age of a file's content: device, inode, length, and the time of its last change in seconds and
/// nanoseconds. `None` if the file cannot be found.
type FileStamp = Option<(u64, u64, u64, i64, i64)>;

/// The files that are watched, and their last known state.
#[derive(Debug)]
pub(super) struct FileWatch {
    config: PathBuf,
    looks: Interval,
    seen: SeenFiles,
}

impl FileWatch {
    /// Starts to watch a configuration file and the certificates that it names.
    pub(super) fn new(file: &Path, config: &Config, every: Duration) -> Self {
        let mut looks = interval(every);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let seen = SeenFiles::new(stamps(&watched(file, config)));
        Self { config: file.to_owned(), looks, seen }
    }

    /// Waits for the next check. Returns true if the files have changed since this last returned
    /// true.
    pub(super) async fn look(&mut self, config: &Config) -> bool {
        self.looks.tick().await;
        let files = watched(&self.config, config);
        // The files may be on a disk that hangs.
        let stamps = tokio::task::spawn_blocking(move || stamps(&files)).await;
        stamps.is_ok_and(|stamps| self.seen.have_changed(stamps))
    }
}

/// Returns the paths of the configuration file and of the certificates in use.
fn watched(file: &Path, config: &Config) -> Vec<PathBuf> {
    let tls = config.tls.iter().flat_map(|tls| [tls.cert.clone(), tls.key.clone()]);
    [file.to_owned()].into_iter().chain(tls).collect()
}

fn stamps(files: &[PathBuf]) -> Vec<(PathBuf, FileStamp)> {
    let stamp = |file: &PathBuf| {
        let of = fs::metadata(file).ok();
        let of = of.map(|it| (it.dev(), it.ino(), it.len(), it.mtime(), it.mtime_nsec()));
        (file.clone(), of)
    };
    files.iter().map(stamp).collect()
}

/// The stamps of the last change, and those of the last look.
#[derive(Debug)]
struct SeenFiles {
    in_force: Vec<(PathBuf, FileStamp)>,
    last: Vec<(PathBuf, FileStamp)>,
}

impl SeenFiles {
    fn new(now: Vec<(PathBuf, FileStamp)>) -> Self {
        Self { in_force: now.clone(), last: now }
    }

    /// Returns true if the files are not those of the last change, and are the same as at the last look.
    fn have_changed(&mut self, now: Vec<(PathBuf, FileStamp)>) -> bool {
        let is_steady = now == self.last;
        let has_changed = is_steady && now != self.in_force;
        if has_changed {
            self.in_force.clone_from(&now);
        }
        self.last = now;
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Vec<(PathBuf, FileStamp)> {
        vec![("fairgate.yaml".into(), Some((1, 2, 3, seconds, 0)))]
    }

    #[test]
    fn a_change_counts_once_when_it_is_steady() {
        let mut seen = SeenFiles::new(at(0));
        let looks =
            [(0, false), (1, false), (2, false), (2, true), (2, false), (0, false), (0, true)];
        for (number, (seconds, changed)) in looks.into_iter().enumerate() {
            assert_eq!(seen.have_changed(at(seconds)), changed, "look {number}");
        }
    }

    #[test]
    fn a_file_that_is_away_and_back_is_no_change() {
        let mut seen = SeenFiles::new(at(0));
        let away = || vec![(PathBuf::from("fairgate.yaml"), None)];
        assert!(!seen.have_changed(away()));
        assert!(!seen.have_changed(at(0)));
        assert!(!seen.have_changed(at(0)));
    }
}
