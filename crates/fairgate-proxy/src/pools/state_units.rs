//! Keeps, for each pool's state file, the unit of its scores: tokens, worker time or money. When a
//! pool starts with another unit, its state file is set aside, because scores of different units
//! cannot be compared.
//!
//! The unit is in a file beside the state file, `POOL.unit`. Without that file it is `tokens`. When
//! the unit of a running pool changes, the scheduler's scores start again from 0, and then the unit
//! file is written. A state file that is older than its unit file therefore has scores of the
//! earlier unit, even if the process was killed in between.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fairgate_config::CostUnit;

use super::{gates, state_files};

/// Most bytes of a unit file that are read.
const UNIT_BYTES_MAX: u64 = 64;

/// Sets a pool's state file aside if it counts in another unit than `unit`, and keeps `unit` for the next start.
pub(super) fn open(state: &Path, unit: CostUnit) -> io::Result<()> {
    let path = unit_file(state);
    let kept = state_files::read(&path, UNIT_BYTES_MAX)?;
    let is_same = match &kept {
        None => unit == CostUnit::Tokens,
        Some(name) => name.trim_ascii_end() == unit.name().as_bytes(),
    };
    let is_older = changed_at(state)? < changed_at(&path)?;
    if state.exists() && (!is_same || is_older) {
        let problem = format!("{} counts in another unit than the pool now", state.display());
        state_files::set_aside(state, &problem, "the pool's scores start at 0")?;
    }
    if is_same { Ok(()) } else { write(&path, unit) }
}

/// Writes the changed unit of a running pool to its file, for the next start. A failure is logged.
pub(super) async fn keep(data_dir: &Path, pool: &str, unit: CostUnit) {
    let path = unit_file(&gates::state_file(&state_files::folder(data_dir), pool));
    let shown = path.display().to_string();
    let written = tokio::task::spawn_blocking(move || write(&path, unit)).await;
    if let Err(error) = written.unwrap_or_else(|error| Err(io::Error::other(error))) {
        tracing::error!(
            pool, file = shown, %error,
            "the unit of the pool could not be kept: remove the pool's state file before the next start"
        );
    }
}

fn write(path: &Path, unit: CostUnit) -> io::Result<()> {
    state_files::write(path, format!("{}\n", unit.name()).as_bytes())
}

fn unit_file(state: &Path) -> PathBuf {
    state.with_extension("unit")
}

/// Returns the time of the last write of a file; `None` if there is no such file.
fn changed_at(path: &Path) -> io::Result<Option<SystemTime>> {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.modified().map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    fn set_time(path: &Path, seconds: u64) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    }

    #[test]
    fn a_state_of_another_unit_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("llama.json");
        let write = || fs::write(&state, "{}").unwrap();
        write();
        open(&state, CostUnit::Tokens).unwrap();
        assert!(state.exists() && !unit_file(&state).exists());
        open(&state, CostUnit::WorkerTime).unwrap();
        assert!(!state.exists());
        write();
        open(&state, CostUnit::WorkerTime).unwrap();
        assert!(state.exists());
        open(&state, CostUnit::Tokens).unwrap();
        assert!(!state.exists());
    }

    #[tokio::test]
    async fn a_state_from_before_the_change_of_a_running_pool_is_set_aside() {
        let data_dir = tempfile::tempdir().unwrap();
        let folder = state_files::folder(data_dir.path());
        let state = gates::state_file(&folder, "llama");
        keep(data_dir.path(), "llama", CostUnit::WorkerTime).await;
        fs::write(&state, "{}").unwrap();
        set_time(&unit_file(&state), 1000);
        set_time(&state, 1001);
        open(&state, CostUnit::WorkerTime).unwrap();
        assert!(state.exists());
        set_time(&state, 999);
        open(&state, CostUnit::WorkerTime).unwrap();
        assert!(!state.exists());
    }
}
