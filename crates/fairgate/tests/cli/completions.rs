//! Tests of shell completions, and of the manual for packages.

use std::fs;

use super::serve::Folder;
use crate::run::fairgate;

#[test]
fn each_shell_gets_completions_and_an_unknown_one_is_told_the_known() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = fairgate(&["completions", shell]).ok();
        // fish names long options without their dashes.
        for word in ["serve", "health", "config", "rotate"] {
            assert!(script.contains(word), "{shell} completes {word}");
        }
        assert!(!script.contains("agent-guard"), "{shell} does not offer a hidden command");
    }
    let run = fairgate(&["completions", "tcsh"]);
    assert_eq!(run.status, 2);
    assert!(
        run.stderr.contains("[possible values: bash, elvish, fish, powershell, zsh]"),
        "{}",
        run.stderr
    );
}

#[test]
fn each_command_has_a_man_page_and_a_section() {
    let folder = Folder::new();
    let to = folder.path().display().to_string();
    fairgate(&["manual", "--date", "2026-11-18", &to]).ok();
    fairgate(&["manual", "--format", "markdown", &to]).ok();
    let page = fs::read_to_string(folder.join("commands.md")).expect("a page");
    let sections = page.lines().filter_map(|line| line.strip_prefix("## "));
    let pages: Vec<String> = sections.map(|name| name.replace(' ', "-") + ".1").collect();
    assert!(pages.len() > 60, "{pages:?}");
    for name in pages {
        let text = fs::read_to_string(folder.join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(text.contains("2026-11-18"), "{name}");
    }
    let run = fairgate(&["manual", "--date", "today", &to]);
    assert!(run.status == 2 && run.stderr.contains("2026-11-18"), "{}", run.stderr);
}
