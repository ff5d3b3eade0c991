//! The admin token, which is configured, or generated on the first start and stored in a file that only the file's
//! owner can read.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use fairgate_config::{Config, Secret};
use tracing::warn;

use super::data_folder;

/// Name of the token's file in the data folder.
const FILE: &str = "admin-token";

/// Returns the path of the token's file, which is used unless the configuration has a token.
pub(super) fn file(config: &Config) -> PathBuf {
    config.data_dir.join(FILE)
}

/// Returns the configured token, else the token in the data folder. If neither exists, generates a token and stores it
/// in the data folder.
pub(super) fn find_or_make(config: &Config) -> Result<Secret> {
    if let Some(token) = &config.admin.token {
        return Ok(token.clone());
    }
    data_folder::make(&config.data_dir)?;
    let file = file(config);
    match fs::read_to_string(&file) {
        Ok(text) if text.trim().is_empty() => {
            bail!("{} is empty: remove it, and a new token is made", file.display())
        }
        Ok(text) => {
            warn_if_others_can_read(&file);
            Ok(Secret::new(text.trim()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => make(&file),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

/// Logs a warning if users other than the file's owner can read the token.
fn warn_if_others_can_read(file: &Path) {
    let mode = fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode() & 0o777);
    if mode & 0o044 != 0 {
        let advice = format!("chmod 600 {}", file.display());
        warn!(
            file = %file.display(),
            mode = format!("{mode:o}"),
            advice,
            "other users of this machine can read the admin token, and so change everything"
        );
    }
}

fn make(file: &Path) -> Result<Secret> {
    let token = fairgate_store::KeySecret::generate()
        .map_err(|error| anyhow!("the system gives no random numbers: {error}"))?;
    let text = token.expose().replacen("fg-", "fga-", 1);
    let named = || file.display().to_string();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut open = options.open(file).with_context(named)?;
    writeln!(open, "{text}").with_context(named)?;
    open.sync_all().with_context(named)?;
    Ok(Secret::new(text))
}
