//! The command `fairgate live`, which shows the flows of each pool, once or repeatedly.

mod shares;

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use fairgate_api::admin::LiveView;

use self::shares::format_pools;
use super::audit::to_the_second;
use super::{AdminOptions, escaped, understood};
use crate::output::StdoutWriter;

/// Show for each flow of each pool the service that it got, the service that it was due, and whether the difference
/// between the two is within its bound.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Show only this pool. Default: all pools.
    #[arg(long)]
    pool: Option<String>,
    /// Repeat every SECONDS until interrupted. A terminal is redrawn in place, and --json prints one object per line.
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
            return if self.common.json {
                self.common.print_line(&live, "")
            } else {
                print_now(&format_pools(&understood(&live)?)?)
            };
        };
        let on_terminal = io::stdout().is_terminal();
        loop {
            let live = client.get(&path)?;
            print_now(&if self.common.json {
                format!("{live}\n")
            } else {
                let live: LiveView = understood(&live)?;
                let pools = format_pools(&live)?;
                match on_terminal {
                    false => pools,
                    true => {
                        let at = to_the_second(&live.at);
                        redrawn(&format!("{at}, every {seconds} s\n\n{pools}"))
                    }
                }
            })?;
            thread::sleep(Duration::from_secs(seconds));
        }
    }
}

pub(super) fn print_now(text: &str) -> Result<()> {
    let mut out = StdoutWriter::stdout();
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

/// Returns the text with control sequences that overwrite a terminal's content from the top. They
/// clear the rest of each line, and everything below the text.
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
