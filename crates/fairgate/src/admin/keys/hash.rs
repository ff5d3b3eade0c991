//! The command `fairgate key hash`, which prints the hash with which a configuration file declares
//! a key.

use std::io::{IsTerminal, Write, stdin};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use fairgate_config::DeclaredKeyHash;
use fairgate_store::KeySecret;
use serde_json::json;

use super::super::AdminOptions;
use crate::input::read_text;

/// Fewest characters of a key.
const CHARS_MIN: usize = 16;

#[derive(Debug, Args)]
pub(super) struct KeyHashArgs {
    /// File that holds the key. `-` reads standard input.
    #[arg(value_name = "FILE", default_value = "-", conflicts_with = "new")]
    file: PathBuf,
    /// Make a new key, and print it before its hash. It is shown this once.
    #[arg(long)]
    new: bool,
}

impl KeyHashArgs {
    /// Prints the hash of a key. Asks no gateway.
    pub(super) fn run(&self, common: &AdminOptions) -> Result<()> {
        if self.new {
            let made = KeySecret::generate();
            let made = made.map_err(|problem| anyhow!("no random bytes for a key: {problem}"))?;
            let secret = made.expose();
            let hash = DeclaredKeyHash::of(secret.as_bytes());
            let answer = json!({ "secret": secret, "hash": hash.to_string() });
            return common.print_line(&answer, &format!("{secret}\n{hash}"));
        }
        if self.file == Path::new("-") && stdin().is_terminal() {
            writeln!(std::io::stderr(), "Type the key, then Enter and Ctrl-D:")?;
        }
        let text = read_text(&self.file).with_context(|| self.file.display().to_string())?;
        let secret = text.trim();
        if secret.len() < CHARS_MIN || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!("a key has at least {CHARS_MIN} visible ASCII characters without spaces");
        }
        let hash = DeclaredKeyHash::of(secret.as_bytes()).to_string();
        common.print_line(&json!({ "hash": hash }), &hash)
    }
}
