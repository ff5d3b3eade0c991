//! The command `fairgate completions`, which prints the completion script of a shell.

use std::io::Write;

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output::StdoutWriter;

/// Print the completions of a shell: subcommands, options and their values.
///
/// For bash, `fairgate completions bash > /etc/bash_completion.d/fairgate` installs them. For zsh, name the file
/// `_fairgate` in a folder of `$fpath`; for fish, `fairgate.fish` in `~/.config/fish/completions`. The Debian package
/// has them for these three shells.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Shell to print the completions for.
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints the completions of `command`, without its hidden subcommands.
pub(crate) fn run(args: &CompletionsArgs, command: &Command) -> Result<()> {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set());
    let mut offered = Command::new("fairgate")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments().cloned())
        .subcommands(visible.cloned());
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut offered, "fairgate", &mut script);
    let mut out = StdoutWriter::stdout();
    out.write_all(&script)?;
    Ok(out.flush()?)
}
