//! The hidden command `fairgate manual`, which writes the help of all commands as man pages for
//! packages, or as one page of Markdown for the site.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Command, ValueEnum};
use clap_mangen::Man;

/// Width of the help in the Markdown page, in characters.
const HELP_WIDTH: usize = 100;

/// Write the manual of all commands into a folder: a man page for each, or one page of Markdown.
#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// Form of the manual.
    #[arg(long, value_enum, default_value_t = ManualFormat::Man)]
    format: ManualFormat,
    /// Date in the man pages, such as 2026-11-18.
    #[arg(long, value_name = "DATE", default_value = "1970-01-01", value_parser = parse_date)]
    date: String,
    /// Folder to write to; it is created if it is missing.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Form of the manual.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ManualFormat {
    /// One man page for each command, such as `fairgate-key-create.1`.
    Man,
    /// One page of Markdown with the help of each command.
    Markdown,
}

fn parse_date(text: &str) -> Result<String> {
    let is_date = text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !is_date {
        bail!("must be a date such as 2026-11-18");
    }
    Ok(text.to_owned())
}

/// Writes the manual of `command` and of all its subcommands that are not hidden.
pub(crate) fn run(args: &ManualArgs, command: Command) -> Result<()> {
    let folder = &args.folder;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // The subcommand `help` of each command would have a page of its own.
    let mut command = command.disable_help_subcommand(true).term_width(HELP_WIDTH);
    command.build();
    match args.format {
        ManualFormat::Man => write_man_pages(&command, &args.date, folder),
        ManualFormat::Markdown => {
            let mut page =
                "# Commands\n\nThe help of each command, as `--help` prints it.\n".to_owned();
            add_markdown(command, &mut page);
            write(&folder.join("commands.md"), page.as_bytes())
        }
    }
}

fn write_man_pages(command: &Command, date: &str, folder: &Path) -> Result<()> {
    let man = Man::new(command.clone()).date(date).manual("Fairgate");
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = without_idle_breaks(&String::from_utf8(page)?);
    write(&folder.join(man.get_filename()), page.as_bytes())?;
    visible(command).try_for_each(|command| write_man_pages(command, date, folder))
}

/// Removes line breaks next to vertical space from a man page. They have no effect there, and
/// formatters warn about them.
fn without_idle_breaks(page: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let is_space = |at: Option<usize>| at.and_then(|at| lines.get(at)) == Some(&".sp");
    let is_idle =
        |at: usize| lines[at] == ".br" && (is_space(at.checked_sub(1)) || is_space(Some(at + 1)));
    let kept = (0..lines.len()).filter(|at| !is_idle(*at)).map(|at| lines[at]);
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Adds a section with the help of this command, then one for each of its subcommands.
fn add_markdown(command: Command, page: &mut String) {
    let subcommands: Vec<Command> = visible(&command).cloned().collect();
    let name = full_name(&command).replace('-', " ");
    let mut command = command.mut_args(|arg| arg.hide_env_values(true));
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(page, "\n## {name}\n\n```text\n{}\n```", help.join("\n").trim_end());
    subcommands.into_iter().for_each(|command| add_markdown(command, page));
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

/// Returns the name of a command with those of its parents, joined by hyphens.
fn full_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn write(file: &Path, text: &[u8]) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let create = Command::new("create").about("Create a key.");
        let hidden = Command::new("guard").hide(true);
        let key = Command::new("key").about("Keys.").subcommand(create).subcommand(hidden);
        Command::new("fairgate").version("1.2.3").about("Shares.").subcommand(key)
    }

    fn manual(format: ManualFormat) -> (tempfile::TempDir, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let args =
            ManualArgs { format, date: "2026-11-18".into(), folder: folder.path().join("manual") };
        run(&args, command()).unwrap();
        let entries = fs::read_dir(&args.folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        (folder, names)
    }

    #[test]
    fn each_command_has_a_page_with_its_date_and_hidden_ones_have_none() {
        let (folder, names) = manual(ManualFormat::Man);
        assert_eq!(names, ["fairgate-key-create.1", "fairgate-key.1", "fairgate.1"]);
        let page = fs::read_to_string(folder.path().join("manual/fairgate.1")).unwrap();
        let title = page.lines().find(|line| line.starts_with(".TH")).unwrap();
        assert!(title.contains("2026-11-18") && title.contains("1.2.3"), "{title}");
    }

    #[test]
    fn breaks_beside_space_are_left_out_and_others_are_kept() {
        let page = ".br\n.sp\n.br\na\n.br\nb\n";
        assert_eq!(without_idle_breaks(page), ".sp\na\n.br\nb\n");
    }

    #[test]
    fn the_page_of_markdown_has_a_section_for_each_command() {
        let (folder, names) = manual(ManualFormat::Markdown);
        assert_eq!(names, ["commands.md"]);
        let page = fs::read_to_string(folder.path().join("manual/commands.md")).unwrap();
        let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(headings, ["## fairgate", "## fairgate key", "## fairgate key create"]);
        assert!(page.contains("Usage: fairgate key create"), "{page}");
    }

    #[test]
    fn a_date_has_digits_and_hyphens() {
        assert_eq!(parse_date("2026-11-18").ok().as_deref(), Some("2026-11-18"));
        for bad in ["", "2026-11-1", "2026/11/18", "2026-11-18 ", "a\n.so x.."] {
            assert!(parse_date(bad).is_err(), "{bad}");
        }
    }
}
