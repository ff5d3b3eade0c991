//! The interfaces that people and programs rely on are those of the files in `tests/cli/surface`: paths, fields and
//! codes of the APIs, commands and flags, metrics, options of the configuration, and tables of both databases.
//! Sentences are left out, so a better sentence needs no new file.
//!
//! | variable | effect |
//! |---|---|
//! | `FAIRGATE_SURFACE_WRITE=1` | writes the files instead of comparing with them |
//! | `FAIRGATE_SURFACE_OF=FOLDER` | takes the program and the documents of another checkout, which has been built |
//!
//! Both together write the surface of another commit into this checkout, where `git diff` shows what has changed since.

mod commands;
mod configuration;
mod metrics;
mod openapi;
mod schema;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use super::running::{Folder, Gateway};
use crate::run::command;

/// Greatest number of differing lines that a failed comparison prints.
const LINES_SHOWN: usize = 40;

/// Returns the checkout whose surface is read.
fn checkout() -> PathBuf {
    let this = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    env::var_os("FAIRGATE_SURFACE_OF").map_or(this, PathBuf::from)
}

/// Returns the command of the checkout with these arguments, not yet run. Variables of the environment that would
/// change its help are removed.
fn program(args: &[&str]) -> Command {
    let mut command = match env::var_os("FAIRGATE_SURFACE_OF") {
        Some(of) => {
            let mut command = Command::new(Path::new(&of).join("target/debug/fairgate"));
            command.args(args);
            command
        }
        None => command(args),
    };
    for (name, _) in env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command
}

fn is_ours(name: &str) -> bool {
    name.starts_with("FAIRGATE_")
}

fn document(name: &str) -> String {
    let path = checkout().join("docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Starts the checkout's gateway with this configuration.
fn gateway(folder: &Folder, config: &str) -> Gateway {
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    let file = folder.join("fairgate.yaml").display().to_string();
    Gateway::start(folder, program(&["serve", "--config", &file]))
}

/// Compares a part of the surface with its file, or writes the file.
fn check(file: &str, lines: &[String]) {
    assert!(lines.len() > 10, "the whole part was found: {lines:?}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/surface").join(file);
    let text = lines.join("\n") + "\n";
    if env::var_os("FAIRGATE_SURFACE_WRITE").is_some() {
        fs::write(&path, text).expect("the file can be written");
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differences = differences(&committed, &text);
    assert!(
        differences.is_empty(),
        "the interface is not that of {file} (- is missing, + is new):\n{}\n\
         If users should get this change: run this test with FAIRGATE_SURFACE_WRITE=1, look at `git diff`, and tell \
         them in CHANGELOG.md.",
        differences.join("\n")
    );
}

/// Returns the lines that only one of the texts has, with their places in the order of the texts.
fn differences(before: &str, now: &str) -> Vec<String> {
    let only = |mark: char, text: &str, other: &str| {
        let other: std::collections::BTreeSet<&str> = other.lines().collect();
        let lines = text.lines().filter(|line| !other.contains(line));
        lines.map(|line| format!("  {mark} {line}")).collect::<Vec<_>>()
    };
    let mut all = only('-', before, now);
    all.extend(only('+', now, before));
    if all.is_empty() && before != now {
        all.push("  the same lines in another order, or a line more than once".to_owned());
    }
    let more = all.len().saturating_sub(LINES_SHOWN);
    all.truncate(LINES_SHOWN);
    if more > 0 {
        all.push(format!("  … and {more} more"));
    }
    all
}

#[test]
fn the_admin_api_is_as_committed() {
    let folder = Folder::new();
    let config = "listen: 127.0.0.1:0\ndata_dir: data\nupstreams: [{ name: a, url: \"http://127.0.0.1:1\" }]\n\
                  pools: [{ name: a, models: [a], workers: [a], capacity: 1 }]\n";
    let gateway = gateway(&folder, config);
    check("openapi.txt", &openapi::lines(&gateway.api("/api/v1/openapi.json")));
}

#[test]
fn the_commands_are_as_committed() {
    check("commands.txt", &commands::lines());
}

#[test]
fn the_metrics_are_as_committed() {
    check("metrics.txt", &metrics::lines());
}

#[test]
fn the_options_of_the_configuration_are_as_committed() {
    check("configuration.txt", &configuration::lines());
}

#[test]
fn the_codes_of_errors_are_as_committed() {
    let codes = ["gateway.md", "fleet.md"].iter().flat_map(|name| configuration::codes(name));
    check("codes.txt", &codes.collect::<Vec<_>>());
}

#[test]
fn the_tables_of_sqlite_are_as_committed() {
    check("sqlite.txt", &schema::of_sqlite());
}

#[test]
fn the_tables_of_postgresql_are_as_committed() {
    check("postgresql.txt", &schema::of_postgresql());
}

#[test]
fn a_difference_is_shown_as_what_is_missing_and_what_is_new() {
    assert_eq!(differences("a\nb\n", "a\nb\n"), [""; 0]);
    assert_eq!(differences("a\nb\n", "a\nc\n"), ["  - b", "  + c"]);
    assert_eq!(differences("a\nb\n", "b\na\n").len(), 1);
}
