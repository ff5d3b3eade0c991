//! Keeps learned rates across restarts, in `data_dir/state/learned-rates.json`. The file holds
//! requests per minute by `ACCOUNT/MODEL`, or by account if all of its models share their limits.
//! Earlier versions stored rates of whole accounts only. Such a rate applies to each model of the
//! account until a rate is learned for the model itself.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fairgate_config::Config;
use fairgate_store::LogThrottle;
use tokio::time::Instant;

use super::Pools;
use super::account_models::AccountModelKey;
use super::state_files;
use crate::phase::{GatewayLifecycle, GatewayPhase};

/// Name of the file in `data_dir/state`.
const FILE: &str = "learned-rates.json";
/// Greatest size of the file that is read, in bytes; far more than any real number of accounts needs.
const FILE_BYTES_MAX: u64 = 1 << 20;
const UNWRITTEN: &str = "learned rates cannot be written";
/// Interval at which changed rates are written.
const EVERY: Duration = Duration::from_secs(10);

/// Writes learned rates at intervals, and a last time when the gateway drains.
pub(crate) async fn keep(
    pools: Arc<Pools>,
    config: Arc<ArcSwap<Config>>,
    lifecycle: Arc<GatewayLifecycle>,
    log_throttle: Arc<LogThrottle<&'static str>>,
) {
    let mut phase = lifecycle.watch();
    loop {
        let draining = phase.wait_for(|stage| *stage != GatewayPhase::Serving);
        let is_last = tokio::time::timeout(EVERY, draining).await.is_ok();
        let data_dir = config.load().data_dir.clone();
        let before = read(&data_dir);
        let learned = updated(&before, &pools.learned());
        if learned != before
            && let Err(error) = write(&data_dir, &learned)
            && let Some(left_out) = log_throttle.admit(UNWRITTEN, Instant::now())
        {
            tracing::error!(%error, left_out, "{UNWRITTEN}");
        }
        if is_last {
            return;
        }
    }
}

/// Returns the rates to keep: those of the served accounts and models, and old ones that may be
/// needed again. An old rate of one model is kept only while its account is not served. Otherwise
/// the file would grow with every model that was ever configured. An old rate of a whole account is
/// always kept.
fn updated(
    before: &BTreeMap<String, u64>,
    served: &BTreeMap<String, Option<u64>>,
) -> BTreeMap<String, u64> {
    let account = |key: &str| key.split('/').next().unwrap_or(key).to_owned();
    let is_served = |key: &str| served.keys().any(|it| account(it) == account(key));
    let mut learned = before.clone();
    learned.retain(|key, _| served.contains_key(key) || !key.contains('/') || !is_served(key));
    learned.extend(served.iter().filter_map(|(key, rate)| Some((key.clone(), (*rate)?))));
    learned
}

/// Returns the rate that was learned for a model of an account, or else for the whole account.
pub(super) fn of(learned: &BTreeMap<String, u64>, key: &AccountModelKey) -> Option<u64> {
    learned.get(&key.file_key()).or_else(|| learned.get(&*key.account)).copied()
}

/// Reads the learned rates. An unreadable file counts as empty, because the rates can be learned again.
pub(super) fn read(data_dir: &Path) -> BTreeMap<String, u64> {
    let path = path(data_dir);
    let read = || -> Result<BTreeMap<String, u64>, io::Error> {
        match state_files::read(&path, FILE_BYTES_MAX)? {
            Some(content) => Ok(serde_json::from_slice(&content)?),
            None => Ok(BTreeMap::new()),
        }
    };
    read().unwrap_or_else(|error| {
        tracing::warn!(file = %path.display(), %error, "learned rates cannot be read, and are learned anew");
        BTreeMap::new()
    })
}

/// Writes the learned rates. The file is replaced as a whole.
fn write(data_dir: &Path, learned: &BTreeMap<String, u64>) -> io::Result<()> {
    state_files::write(&path(data_dir), &serde_json::to_vec_pretty(learned)?)
}

fn path(data_dir: &Path) -> PathBuf {
    state_files::path(data_dir, FILE)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_learned_anew() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_empty());
        let learned = BTreeMap::from([("openai-main".to_owned(), 480)]);
        write(folder.path(), &learned).unwrap();
        assert_eq!(read(folder.path()), learned);
        fs::write(path(folder.path()), "{").unwrap();
        assert!(read(folder.path()).is_empty());
    }

    #[test]
    fn a_rate_of_an_earlier_version_counts_for_each_model_and_removed_models_are_forgotten() {
        let key = |model: Option<&str>| AccountModelKey {
            account: "main".into(),
            model: model.map(Into::into),
        };
        let before = BTreeMap::from([("main".to_owned(), 480), ("main/old".to_owned(), 5)]);
        assert_eq!(of(&before, &key(Some("new"))), Some(480));
        assert_eq!(of(&before, &key(Some("old"))), Some(5));
        let served =
            BTreeMap::from([("main/new".to_owned(), Some(90)), ("main/x".to_owned(), None)]);
        let kept = updated(&before, &served);
        assert_eq!(kept, BTreeMap::from([("main".to_owned(), 480), ("main/new".to_owned(), 90)]));
        assert_eq!(updated(&before, &BTreeMap::new()), before);
    }
}
