//! The options of the configuration, and the codes of errors.
//!
//! In the error about an unknown option, the program names all options that it knows there. So a
//! wrong option in every section finds all options. Their defaults are those of
//! docs/configuration.md; the tests of fairgate-config compare these with the program's.

use std::collections::BTreeMap;
use std::fs;

use super::super::running::Folder;
use super::{document, program};

/// An option that is in no section.
const UNKNOWN: &str = "no_such_option";

/// Returns one line for each option, with its default and whether a reload changes it.
pub(super) fn lines() -> Vec<String> {
    let documented = documented();
    let mut options = Vec::new();
    add_section("", &mut options);
    let line = |option: &String| match documented.get(option) {
        Some((default, change)) => format!("{option} = {default} ({change})"),
        None => option.clone(),
    };
    options.iter().map(line).collect()
}

/// Adds the options below a path such as `pools[].cost`, in the program's order.
fn add_section(path: &str, options: &mut Vec<String>) {
    for name in known(path) {
        let option = if path.is_empty() { name } else { format!("{path}.{name}") };
        options.push(option.clone());
        // Below a policy is no option, but a tree.
        if option.ends_with(".policy") {
            continue;
        }
        add_section(&option, options);
        add_section(&format!("{option}[]"), options);
    }
}

/// Returns the options that the program names in this place; none if it is no section.
fn known(path: &str) -> Vec<String> {
    // As JSON, which is YAML too: `pools[].cost` becomes `{"pools":[{"cost":{"no_such_option":1}}]}`.
    let mut text = format!("{{\"{UNKNOWN}\":1}}");
    for name in path.split('.').rev().filter(|name| !name.is_empty()) {
        let list = name.strip_suffix("[]");
        let value = if list.is_some() { format!("[{text}]") } else { text };
        text = format!("{{\"{}\":{value}}}", list.unwrap_or(name));
    }
    let folder = Folder::new();
    let file = folder.join("fairgate.yaml");
    fs::write(&file, text).expect("a file");
    let output = program(&["check"]).arg(&file).output().expect("the command runs");
    let told = String::from_utf8(output.stderr).expect("text");
    let place = format!("{}{UNKNOWN}: unknown", indexed(path));
    let line = told.lines().find(|line| line.contains(&place));
    let names =
        line.and_then(|line| line.split_once("known here: ")).map_or("", |(_, names)| names);
    names.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Returns a path as an error shows it: `pools[0].cost.`.
fn indexed(path: &str) -> String {
    if path.is_empty() { " ".to_owned() } else { format!(" {}.", path.replace("[]", "[0]")) }
}

/// Returns the default and the kind of change of each documented option.
fn documented() -> BTreeMap<String, (String, String)> {
    let mut found = BTreeMap::new();
    let (mut section, mut inside) = (String::new(), false);
    for line in document("configuration.md").lines() {
        if line.starts_with('#') {
            section = line.split('`').nth(1).map(|name| format!("{name}.")).unwrap_or_default();
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        match cells[..] {
            ["option", _, _, "default", "change"] => inside = true,
            [option, _, _, default, change] if inside => {
                let option = format!("{section}{}", option.trim_matches('`'));
                found.insert(option, (default.to_owned(), change.to_owned()));
            }
            _ => inside = false,
        }
    }
    found
}

/// Returns the statuses and codes in the tables of a document that begin with these columns.
pub(super) fn codes(name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in document(name).lines() {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let (status, codes) = (cells.next().unwrap_or(""), cells.next().unwrap_or(""));
        if !line.starts_with('|') {
            inside = false;
        } else if status == "status" && codes.starts_with("code") {
            inside = true;
        } else if inside && !status.starts_with("--") {
            let codes = without_parentheses(codes);
            let mut codes: Vec<&str> = codes.split('`').skip(1).step_by(2).collect();
            codes.sort_unstable();
            let status = status.replace('`', "");
            lines.extend(codes.iter().map(|code| format!("{name}: {status}: {code}")));
        }
    }
    lines
}

/// Removes everything in parentheses, which may contain others.
fn without_parentheses(text: &str) -> String {
    let mut depth = 0_u32;
    let mut kept = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}
