//! `fairgate live`: who has what of each pool, once or again and again.

mod shares;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use self::shares::told;
use super::audit::to_the_second;
use super::{Common, escaped, text};
use crate::output::Output;

/// Show who has what of each pool: what each got beside what it was due, and whether the difference is within its bound.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    #[command(flatten)]
    common: Common,
    /// This pool only.
    #[arg(long)]
    pool: Option<String>,
    /// Show it again every so many seconds, until interrupted: in place on a terminal, and with --json as one object a
    /// line.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
}

impl LiveArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let of = self.pool.as_ref().map(|pool| format!("?pool={}", escaped(pool)));
        let path = format!("/api/v1/fairshare/live{}", of.unwrap_or_default());
        let Some(seconds) = self.every else {
            let live = client.get(&path)?;
            return if self.common.json { self.common.say(&live, "") } else { put(&told(&live)?) };
        };
        let on_terminal = io::stdout().is_terminal();
        loop {
            let live = client.get(&path)?;
            put(&match (self.common.json, on_terminal) {
                (true, _) => format!("{live}\n"),
                (false, false) => told(&live)?,
                (false, true) => {
                    let at = to_the_second(&text(&live, "at"));
                    redrawn(&format!("{at}, every {seconds} s\n\n{}", told(&live)?))
                }
            })?;
            thread::sleep(Duration::from_secs(seconds));
        }
    }
}

pub(super) fn put(text: &str) -> Result<()> {
    let mut out = Output::stdout();
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

/// A text over what a terminal shows: from its top, each line to its end, and nothing below.
pub(super) fn redrawn(text: &str) -> String {
    format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_redrawn_leaves_nothing_of_what_was() {
        assert_eq!(redrawn("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
