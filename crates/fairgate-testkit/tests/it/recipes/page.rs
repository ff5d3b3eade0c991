//! Reads the policies of `docs/policy.md`, and the page's promises about each.
//!
//! A promise names flows that all have requests waiting, what they get, and how exactly. Each flow's part of the whole
//! is within so many percent of what the ratio says. Below a policy it is a row of a table:
//!
//! ```text
//!     | while all of these wait | promise | within |
//!     |---|---|---|
//!     | class `chat` : class `batch` | tokens 4 : 1 | 1 % |
//!     | in class `batch`, tenant `a` : tenant `b` | tokens 1 : 1 | 1 % |
//! ```
//!
//! or the same row in a comment: `<!-- promise: class `chat` : class `batch` | tokens 4 : 1 | 1 % -->`. Instead of
//! tokens it may say `slots`, or `longest wait 100 ticks` with no percent.

use std::fs;
use std::path::{Path, PathBuf};

use fairgate_core::attribute::{Attribute, Attributes};

const POLICY: &str = "json policy";
const JOURNAL: &str = "jsonl journal";
const PROMISES: &str = "| while all of these wait | promise | within |";

/// A flow, given by the attributes of its requests.
pub(crate) type Flow = Vec<(Attribute, String)>;

/// A policy or a journal's first line, with the promises about it.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    /// Number of the line of the page on which the recipe begins.
    pub(crate) line: usize,
    pub(crate) is_header: bool,
    pub(crate) text: String,
    pub(crate) promises: Vec<Promise>,
}

#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) text: String,
    pub(crate) flows: Vec<Flow>,
    pub(crate) kept: Kept,
}

/// The content of a promise.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// The flows' tokens are in this ratio. Each flow's part of all tokens deviates by at most this
    /// percentage.
    Tokens { ratio: Vec<f64>, within_percent: f64 },
    /// The slots that the flows hold, on average over time, are in this ratio with this tolerance.
    Slots { ratio: Vec<f64>, within_percent: f64 },
    /// No request waits for more than this number of ended requests.
    LongestWait { ticks: u64 },
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

pub(crate) fn text() -> String {
    fs::read_to_string(folder().join("policy.md")).expect("the page is there")
}

pub(crate) fn readme() -> String {
    fs::read_to_string(folder().join("../README.md")).expect("the README is there")
}

/// Returns all policies and journals of the page.
pub(crate) fn recipes(page: &str) -> Vec<Recipe> {
    let mut recipes: Vec<Recipe> = Vec::new();
    // The mark of the block that is open.
    let mut block: Option<&str> = None;
    let mut in_table = false;
    for (i, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), block) {
            (Some(_), Some(_)) => block = None,
            (Some(mark), None) => {
                block = Some(mark);
                if let JOURNAL | POLICY = mark {
                    let is_header = mark == JOURNAL;
                    let (text, promises) = (String::new(), Vec::new());
                    recipes.push(Recipe { line: i + 1, is_header, text, promises });
                }
            }
            (None, Some(JOURNAL | POLICY)) => {
                let recipe = recipes.last_mut().expect("its block was opened");
                recipe.text.push_str(line);
                recipe.text.push('\n');
            }
            (None, Some(_)) => {}
            (None, None) => {
                in_table = line == PROMISES || in_table && line.starts_with('|');
                let Some(row) = row(line, in_table) else { continue };
                let recipe = recipes.last_mut().expect("a policy before its promise");
                let read = promise(row).unwrap_or_else(|| panic!("line {}: {row}", i + 1));
                recipe.promises.push(read);
            }
        }
    }
    recipes
}

/// Returns the cells of a promise in a line of a table or of a comment; `None` for other lines.
fn row(line: &str, in_table: bool) -> Option<&str> {
    let comment = line.strip_prefix("<!-- promise: ").and_then(|line| line.strip_suffix(" -->"));
    let is_row = in_table && line != PROMISES && !line.starts_with("|--");
    comment.or(is_row.then(|| line.trim_matches('|').trim()))
}

fn promise(row: &str) -> Option<Promise> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let [flows, kept, within] = cells[..] else { return None };
    let flows = self::flows(flows)?;
    let within = within.strip_suffix('%').and_then(|w| w.trim().parse().ok());
    let (what, value) =
        kept.rsplit_once(if kept.starts_with("longest") { "wait " } else { "s " })?;
    let ratio = || value.split(" : ").map(|part| part.parse().ok()).collect::<Option<Vec<f64>>>();
    let kept = match (what.trim(), within) {
        ("token", Some(within_percent)) => Kept::Tokens { ratio: ratio()?, within_percent },
        ("slot", Some(within_percent)) => Kept::Slots { ratio: ratio()?, within_percent },
        ("longest", None) => {
            Kept::LongestWait { ticks: value.strip_suffix(" ticks")?.parse().ok()? }
        }
        _ => return None,
    };
    Some(Promise { text: row.into(), flows, kept })
}

/// `in class `batch`, tenant `a` : tenant `b``
fn flows(text: &str) -> Option<Vec<Flow>> {
    let mut around = Flow::new();
    let mut parts = text.split(", ").peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() {
            around.push(named(part.strip_prefix("in ")?)?);
            continue;
        }
        let flow = |name| Some(around.iter().cloned().chain([named(name)?]).collect());
        return part.split(" : ").map(flow).collect();
    }
    None
}

/// `class `batch``
fn named(text: &str) -> Option<(Attribute, String)> {
    let (attribute, name) = text.split_once(' ')?;
    let name = name.strip_prefix('`')?.strip_suffix('`')?;
    Some((Attribute::from_name(attribute)?, name.into()))
}

pub(crate) fn attributes(flow: &Flow) -> Attributes {
    flow.iter().fold(Attributes::none(), |all, (attribute, name)| all.with(*attribute, name))
}

/// Returns true if every attribute of the flow `around` is also in the flow `inner`.
pub(crate) fn holds(around: &Flow, inner: &Flow) -> bool {
    around.iter().all(|named| inner.contains(named))
}

/// Returns the table whose first line is `heading`.
pub(crate) fn table(page: &str, heading: &str) -> String {
    let lines = page.lines().skip_while(|line| *line != heading);
    lines.take_while(|line| line.starts_with('|')).map(|line| format!("{line}\n")).collect()
}
