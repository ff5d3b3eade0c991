//! Keeps learned rates across restarts, in `data_dir/state/learned-rates.json`. The file holds requests per minute by
//! account.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use tokio::time::Instant;

use crate::app::App;
use crate::phase::GatewayPhase;

/// Name of the file in `data_dir/state`.
const FILE: &str = "learned-rates.json";
/// Greatest size of the file that is read, in bytes; far more than any real number of accounts needs.
const FILE_BYTES_MAX: u64 = 1 << 20;
const UNWRITTEN: &str = "learned rates cannot be written";
/// Interval at which changed rates are written.
const EVERY: Duration = Duration::from_secs(10);

/// Writes learned rates at intervals, and a last time when the gateway drains.
pub(crate) async fn keep(app: Arc<App>) {
    let mut phase = app.phase.watch();
    loop {
        let draining = phase.wait_for(|stage| *stage != GatewayPhase::Serving);
        let is_last = tokio::time::timeout(EVERY, draining).await.is_ok();
        let data_dir = app.config.load().data_dir.clone();
        let before = read(&data_dir);
        let mut learned = before.clone();
        learned.extend(app.pools.learned());
        if learned != before
            && let Err(error) = write(&data_dir, &learned)
            && let Some(left_out) = app.log_throttle.admit(UNWRITTEN, Instant::now())
        {
            tracing::error!(%error, left_out, "{UNWRITTEN}");
        }
        if is_last {
            return;
        }
    }
}

/// Reads the learned rates. An unreadable file counts as empty, because the rates can be learned again.
pub(super) fn read(data_dir: &Path) -> BTreeMap<String, u64> {
    let path = path(data_dir);
    let read = || -> Result<BTreeMap<String, u64>, String> {
        let size = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error.to_string()),
            Ok(metadata) => metadata.len(),
        };
        if size > FILE_BYTES_MAX {
            return Err(format!("has {size} bytes; at most {FILE_BYTES_MAX} are read"));
        }
        let text = fs::read(&path).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    };
    read().unwrap_or_else(|error| {
        tracing::warn!(file = %path.display(), error, "learned rates cannot be read, and are learned anew");
        BTreeMap::new()
    })
}

/// Writes the learned rates. The file is replaced as a whole.
fn write(data_dir: &Path, learned: &BTreeMap<String, u64>) -> io::Result<()> {
    let path = path(data_dir);
    let new = path.with_extension("json.new");
    fs::write(&new, serde_json::to_vec_pretty(learned)?)?;
    fs::rename(&new, &path)
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("state").join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_broken_is_learned_anew() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        assert!(read(folder.path()).is_empty());
        let learned = BTreeMap::from([("openai-main".to_owned(), 480)]);
        write(folder.path(), &learned).unwrap();
        assert_eq!(read(folder.path()), learned);
        fs::write(path(folder.path()), "{").unwrap();
        assert!(read(folder.path()).is_empty());
    }
}
