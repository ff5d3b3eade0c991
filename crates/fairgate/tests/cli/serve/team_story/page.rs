//! The page docs/team.md: its commands, and the output of an earlier run for comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::{Story, repository};

/// The page, and the output of this run for it.
pub(super) struct StoryPage {
    text: String,
    outputs: BTreeMap<&'static str, String>,
}

fn path() -> PathBuf {
    repository().join("docs/team.md")
}

/// Returns the contents of the page's blocks that begin with this line.
fn blocks(text: &str, begin: &str) -> Vec<String> {
    let begin = format!("{begin}\n");
    let rests = text.split(&begin).skip(1);
    rests.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

impl StoryPage {
    pub(super) fn read() -> Self {
        let text = fs::read_to_string(path()).expect("there is a page");
        Self { text, outputs: BTreeMap::new() }
    }

    /// Returns the configuration of the server.
    pub(super) fn configuration(&self) -> String {
        blocks(&self.text, "```yaml config").pop().expect("the page has a configuration")
    }

    fn shells(&self) -> Vec<String> {
        let shells = blocks(&self.text, "```sh");
        assert_eq!(shells.len(), 5, "repositories, machines, tenants, and agents twice");
        shells
    }

    /// Returns the scripts that set up everything except the agents.
    pub(super) fn set_up(&self) -> Vec<String> {
        self.shells()[..3].to_vec()
    }

    /// Returns the scripts that start the agents: for the machine without a folder, and for the
    /// other machines.
    pub(super) fn start_agents(&self) -> [String; 2] {
        let shells = self.shells();
        [shells[3].clone(), shells[4].clone()]
    }

    /// Runs commands, and records them with their output.
    pub(super) fn record(&mut self, story: &Story, name: &'static str, commands: &[&str]) {
        let mut text = String::new();
        for command in commands {
            text.push_str(&format!("$ {command}\n{}", story.shell(command)));
        }
        self.record_text(name, &text);
    }

    /// Records and prints a result of the run.
    pub(super) fn record_text(&mut self, name: &'static str, text: &str) {
        eprintln!("{text}");
        // A line without text at its end is fine in a shell, and a fault in a page.
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        self.outputs.insert(name, format!("{}\n", lines.join("\n")));
    }

    /// Fails if the page shows other commands, or output of another form.
    pub(super) fn compare(&self) {
        for (name, printed) in &self.outputs {
            let shown = self.shown(name);
            assert_eq!(
                shape(&shown),
                shape(printed),
                "docs/team.md, output {name}: the page has\n{shown}\nand this run printed\n{printed}\n\
                 `FAIRGATE_UPDATE_DOCS=1 cargo xtask test agents` writes the page"
            );
        }
        let marks = self.text.matches("<!-- output: ").count();
        assert_eq!(marks, self.outputs.len(), "each output of the page is printed by the run");
    }

    /// Writes the output into the page if `FAIRGATE_UPDATE_DOCS` is set. Otherwise compares both.
    pub(super) fn compare_or_write(&self) {
        if std::env::var_os("FAIRGATE_UPDATE_DOCS").is_none() {
            return self.compare();
        }
        let mut text = self.text.clone();
        for (name, printed) in &self.outputs {
            let begin = mark(name);
            let (before, rest) = text.split_once(&begin).expect("the page has a mark");
            let (_, after) = rest.split_once("```").expect("the block has an end");
            text = format!("{before}{begin}{printed}```{after}");
        }
        fs::write(path(), text).expect("the page can be written");
    }

    fn shown(&self, name: &str) -> String {
        let (_, rest) = self.text.split_once(&mark(name)).expect("the page has a mark");
        rest.split("```").next().unwrap_or_default().to_owned()
    }
}

fn mark(name: &str) -> String {
    format!("<!-- output: {name} -->\n```text\n")
}

/// Number of words of a line of output that are compared. Later words may be cut off, or depend on
/// the time.
const WORDS_COMPARED: usize = 5;

/// Returns the form of an output: its different lines, without numbers, and without the names of
/// the tasks of `shop`, because any of them may meet the end of the budget.
fn shape(text: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let most = if line.starts_with("$ ") { usize::MAX } else { WORDS_COMPARED };
        line.split_whitespace().take(most).map(word).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect()
}

fn word(word: &str) -> String {
    if word.starts_with("shop-") {
        return "shop-TASK".to_owned();
    }
    let mut short = String::new();
    for c in word.chars() {
        match c {
            '0'..='9' if short.ends_with('0') => {}
            '0'..='9' => short.push('0'),
            _ => short.push(c),
        }
    }
    short
}

#[test]
fn a_shape_knows_lines_and_no_numbers() {
    let one = "web  12.5 %  m1-3\nweb  1.25 %  m4-11\n";
    assert_eq!(shape(one), shape("web 7.0 % m2-2\n"));
    assert_ne!(shape(one), shape("web 7.0 m2-2\n"));
    assert_eq!(shape("task shop-basket is READY"), shape("task shop-stock is READY"));
}
