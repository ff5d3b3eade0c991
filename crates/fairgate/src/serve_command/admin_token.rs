//! The admin token, which is configured, or generated on the first start and stored in a file that only the file's
//! owner can read.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use fairgate_config::{Config, Secret};

/// Name of the token's file in the data folder.
const FILE: &str = "admin-token";

/// Returns the path of the token's file, which is used unless the configuration has a token.
pub(super) fn file(config: &Config) -> PathBuf {
    config.data_dir.join(FILE)
}

/// Returns the configured token, else the token in the data folder. If there is none either, generates a token and
/// stores it there.
pub(super) fn find_or_make(config: &Config) -> Result<Secret> {
    if let Some(token) = &config.admin.token {
        return Ok(token.clone());
    }
    fs::create_dir_all(&config.data_dir)
        .with_context(|| format!("cannot make {}", config.data_dir.display()))?;
    let file = file(config);
    match fs::read_to_string(&file) {
        Ok(text) if text.trim().is_empty() => {
            bail!("{} is empty: remove it, and a new token is made", file.display())
        }
        Ok(text) => Ok(Secret::new(text.trim())),
        Err(error) if error.kind() == ErrorKind::NotFound => make(&file),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
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
