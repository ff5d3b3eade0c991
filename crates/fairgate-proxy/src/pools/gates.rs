//! Starts the gates of pools, with the paths of their journals and state files.

use std::path::{Path, PathBuf};

use fairgate_config::{Config, JournalConfig, PoolConfig, UpstreamConfig};
use fairgate_core::event::{PoolConfig as CoreConfig, WorkerChange};
use fairgate_core::units::{Micros, Tokens};
use fairgate_runtime::private_files::private_folder;
use fairgate_runtime::{
    Gate, GateOptions, GateStartError, JournalOptions, StateFileError, StateFileOptions, start,
};

use super::prepare::PoolsError;
use super::{state_files, state_units};

/// Starts the gate of a pool, reads the pool's state file and begins the pool's journal.
pub(super) fn open(
    config: &Config,
    pool: &PoolConfig,
    workers: Vec<WorkerChange>,
) -> Result<Gate, PoolsError> {
    let folder = state_files::folder(&config.data_dir);
    private_folder(&folder)
        .map_err(|source| PoolsError::Folder { folder: folder.clone(), source })?;
    let file = state_file(&folder, &pool.name);
    state_units::open(&file, pool.cost.unit)
        .map_err(|source| PoolsError::Folder { folder: folder.clone(), source })?;
    let journal = config.journal.as_ref().map(|journal| JournalOptions {
        file_bytes_max: journal.file_bytes_max,
        files_max: journal.files_max,
        ..JournalOptions::new(journal_folder(journal, &pool.name))
    });
    let options = || GateOptions {
        journal: journal.clone(),
        state: Some(StateFileOptions::new(&file)),
        ..GateOptions::default()
    };
    let core = CoreConfig {
        max_queue: Some(pool.max_queue),
        // Each submit carries its own timeout, so that a reload can change it.
        queue_timeout: None,
        brownout_wait: pool.brownout.map(|brownout| micros(brownout.wait)),
        overlap_credit: pool.overlap_credit,
        workers,
        ..CoreConfig::new(pool.capacity, pool.policy.clone())
    };
    let name = || pool.name.clone();
    let refused = |error| match error {
        GateStartError::State(problem) => PoolsError::State { pool: name(), problem },
        source => PoolsError::Gate { pool: name(), source },
    };
    let started = match start(core.clone(), options()) {
        Err(GateStartError::State(problem)) => {
            set_state_aside(problem).map_err(|problem| refused(problem.into()))?;
            start(core, options())
        }
        started => started,
    };
    started.map_err(refused)
}

/// Returns the state file of a pool in this folder.
pub(super) fn state_file(folder: &Path, pool: &str) -> PathBuf {
    folder.join(format!("{}.json", file_name(pool)))
}

/// Returns the folder of a pool's journal.
pub fn journal_folder(journal: &JournalConfig, pool: &str) -> PathBuf {
    journal.folder.join(file_name(pool))
}

/// Renames a state file with unusable content, so that the pool can start without it.
fn set_state_aside(problem: StateFileError) -> Result<(), StateFileError> {
    let Some(file) = problem.damaged_file().map(Path::to_path_buf) else { return Err(problem) };
    let renamed = state_files::set_aside(&file, &problem, "the pool's scores start at 0");
    renamed.map_err(|source| StateFileError::Unreadable { file, source })
}

/// Returns the event that adds a worker of an upstream.
pub(super) fn new_worker(upstream: &UpstreamConfig, name: &str, slots: u64) -> WorkerChange {
    WorkerChange {
        name: name.into(),
        slots: Some(slots),
        // One rank and no taints are the defaults; they are left out of journals.
        ranks: (upstream.ranks > 1).then_some(upstream.ranks),
        taints: (!upstream.taints.is_empty()).then(|| taints(upstream)),
        batch_tokens: upstream.batch_tokens.map(Tokens),
        tier: Some(upstream.tier.into()),
        ..WorkerChange::default()
    }
}

/// Returns the event that changes a worker from its upstream's previous configuration to the new one.
pub(super) fn changed_worker(
    before: &UpstreamConfig,
    now: &UpstreamConfig,
    name: &str,
    slots: u64,
) -> WorkerChange {
    // The core has no event that removes a batch size. `u64::MAX` has the same effect, because no
    // prefill exceeds a fraction of it.
    let batch_tokens = Tokens(now.batch_tokens.unwrap_or(u64::MAX));
    WorkerChange {
        ranks: (before.ranks != now.ranks).then_some(now.ranks),
        taints: (before.taints != now.taints).then(|| taints(now)),
        batch_tokens: (before.batch_tokens != now.batch_tokens).then_some(batch_tokens),
        ..new_worker(now, name, slots)
    }
}

fn taints(upstream: &UpstreamConfig) -> Vec<Box<str>> {
    upstream.taints.iter().map(|taint| taint.as_str().into()).collect()
}

fn micros(time: std::time::Duration) -> Micros {
    Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Returns a pool's name as a file name. A dot at the start, and all bytes other than ASCII letters, digits, `-`, `_`
/// and `.`, are written as `%` and two hex digits.
fn file_name(pool: &str) -> String {
    let mut name = String::with_capacity(pool.len());
    for (place, byte) in pool.bytes().enumerate() {
        match byte {
            b'.' if place == 0 => name.push_str("%2e"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                name.push(char::from(byte))
            }
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_folder() {
        assert_eq!(file_name("llama-3.1_70b"), "llama-3.1_70b");
        assert_eq!(file_name("../x"), "%2e.%2fx");
        assert_eq!(file_name("."), "%2e");
        assert_eq!(file_name("ü"), "%c3%bc");
    }
}
