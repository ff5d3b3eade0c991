//! Tests with damaged files: reading never panics, every error has a position in the file, and a
//! file that is still valid reads the same again.

use std::path::Path;

use fairgate_config::{ConfigErrors, PolicyFile};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{TestCaseResult, TestRunner};

use crate::support::{Folder, SECRET, repository};

#[derive(Clone, Debug)]
enum Damage {
    DropLine(Index),
    RepeatLine(Index),
    SwapLines(Index, Index),
    Indent(Index),
    Uncomment(Index),
    ChangeChar(Index, char),
    InsertText(Index, &'static str),
    Cut(Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let pieces = prop::sample::select(vec![
        "[",
        "]",
        "{",
        "}",
        ":",
        "- ",
        "&a ",
        "*a",
        "!t ",
        "|\n",
        ">\n",
        "\"",
        "'",
        "%",
        "\t",
        "---\n",
        "...\n",
        "? ",
        "<<: ",
        "~",
        "0",
        "-1",
        "1e9",
        "999999999999999999999",
        "ms",
        "null",
        "\u{0}",
        "\u{feff}",
        "é",
    ]);
    let index = any::<Index>;
    prop_oneof![
        index().prop_map(Damage::DropLine),
        index().prop_map(Damage::RepeatLine),
        (index(), index()).prop_map(|(a, b)| Damage::SwapLines(a, b)),
        index().prop_map(Damage::Indent),
        index().prop_map(Damage::Uncomment),
        (index(), any::<char>()).prop_map(|(at, c)| Damage::ChangeChar(at, c)),
        (index(), pieces).prop_map(|(at, piece)| Damage::InsertText(at, piece)),
        index().prop_map(Damage::Cut),
    ]
}

fn damaged(text: &str, damages: &[Damage]) -> String {
    damages.iter().fold(text.to_owned(), |text, damage| apply(&text, damage))
}

fn apply(text: &str, damage: &Damage) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut chars: Vec<char> = text.chars().collect();
    if lines.is_empty() || chars.is_empty() {
        return text.to_owned();
    }
    match damage {
        Damage::DropLine(at) => drop(lines.remove(at.index(lines.len()))),
        Damage::RepeatLine(at) => {
            let at = at.index(lines.len());
            lines.insert(at, lines[at].clone());
        }
        Damage::SwapLines(a, b) => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
        }
        Damage::Indent(at) => {
            let at = at.index(lines.len());
            lines[at].insert_str(0, "  ");
        }
        Damage::Uncomment(at) => {
            let at = at.index(lines.len());
            lines[at] = lines[at].replacen('#', "", 1);
        }
        Damage::ChangeChar(at, c) => {
            let at = at.index(chars.len());
            chars[at] = *c;
            return chars.into_iter().collect();
        }
        Damage::InsertText(at, piece) => {
            let at = at.index(chars.len());
            chars.splice(at..at, piece.chars());
            return chars.into_iter().collect();
        }
        Damage::Cut(at) => {
            chars.truncate(at.index(chars.len()));
            return chars.into_iter().collect();
        }
    }
    lines.join("\n") + "\n"
}

/// Runs a property on this number of random inputs. A failure prints the smallest input that fails.
fn over<S: Strategy>(cases: u32, inputs: S, property: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if let Err(failure) = TestRunner::new(config).run(&inputs, property) {
        panic!("{failure}");
    }
}

#[test]
fn damaged_files_are_refused_with_places() {
    let folder = Folder::new();
    let example = repository("examples/fairgate.yaml");
    over(10_000, prop::collection::vec(damage(), 1..6), |damages| {
        let text = damaged(&example, &damages);
        match folder.parse(&text) {
            Ok(config) => prop_assert_eq!(folder.parse(&text), Ok(config)),
            Err(errors) => check_places(&errors, line_count(&text))?,
        }
        Ok(())
    });
}

#[test]
fn damaged_policy_files_are_refused_with_places() {
    let example = repository("examples/router-policy.yaml");
    over(5_000, prop::collection::vec(damage(), 1..6), |damages| {
        let text = damaged(&example, &damages);
        match PolicyFile::parse(&text, Path::new("router-policy.yaml")) {
            Ok(file) => {
                let classes = file.root.iter().chain(file.models.values());
                for classes in classes {
                    prop_assert_eq!(classes.policy(), classes.policy_under(classes.arbiter()));
                    let class = classes.resolve(None, u64::MAX).class;
                    prop_assert!(classes.all().iter().any(|known| known.name == *class));
                }
            }
            Err(errors) => check_places(&errors, line_count(&text))?,
        }
        Ok(())
    });
}

/// Returns the number of lines that YAML counts. A carriage return alone ends a line too.
fn line_count(text: &str) -> usize {
    text.replace("\r\n", "\n").replace('\r', "\n").lines().count()
}

fn check_places(errors: &ConfigErrors, lines: usize) -> TestCaseResult {
    let damaged = errors.iter().next().and_then(|error| error.file.clone());
    let mut last = None;
    for error in errors.iter() {
        let place = error.place.expect("every error has a place");
        // A damaged configuration can make the policy file that it names wrong too. Those errors come last.
        if error.file != damaged {
            last = error.place;
            continue;
        }
        // What is missing at the end of a text is missing from the line after it.
        prop_assert!((1..=lines + 1).contains(&place.line), "{error} of {lines}");
        prop_assert!(place.column >= 1);
        prop_assert!(!error.message.is_empty());
        prop_assert!(last <= error.place, "in order: {errors}");
        prop_assert!(!error.to_string().contains(SECRET));
        last = error.place;
    }
    prop_assert!(last.is_some());
    Ok(())
}

#[test]
fn any_text_at_all_is_read_without_a_panic() {
    let folder = Folder::new();
    over(10_000, "(?s).{0,200}", |text| {
        if let Err(errors) = folder.parse(&text) {
            check_places(&errors, line_count(&text))?;
        }
        Ok(())
    });
}
