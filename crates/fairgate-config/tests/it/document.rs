//! Checks docs/configuration.md and the configurations in docs/dynamo.md against the program.

use crate::support::{Folder, repository};

/// A row of a table of options in the document.
pub(crate) struct Row {
    /// Path of the option from the top, such as `pools[].cost.input`.
    pub(crate) option: String,
    /// Default of the option, in backticks if it can be written into a file.
    pub(crate) default: String,
    /// `live` if a reload changes the option, else `restart`.
    pub(crate) change: String,
}

/// Returns the rows of all tables of options. The heading above a table names its section in
/// backticks.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut section = String::new();
    let mut inside = false;
    for line in repository("docs/configuration.md").lines() {
        if line.starts_with('#') {
            section = line.split('`').nth(1).map(|name| format!("{name}.")).unwrap_or_default();
        }
        match line {
            "| option | meaning | values | default | change |" => inside = true,
            _ if !line.starts_with('|') => inside = false,
            _ if inside && !line.starts_with("|--") => {
                let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
                let [option, _, _, default, change] = cells[..] else { panic!("five: {line}") };
                rows.push(Row {
                    option: format!("{section}{}", option.trim_matches('`')),
                    default: default.to_owned(),
                    change: change.to_owned(),
                });
            }
            _ => {}
        }
    }
    rows
}

/// Returns the contents of the blocks with this mark.
fn blocks(mark: &str) -> Vec<String> {
    let opening = format!("```{mark}\n");
    let mut blocks: Vec<String> = Vec::new();
    for document in [
        "docs/clickhouse.md",
        "docs/configuration.md",
        "docs/declared.md",
        "docs/dynamo.md",
        "docs/start-operator.md",
    ] {
        let document = repository(document);
        let parts = document.split(&opening).skip(1);
        blocks.extend(parts.map(|part| part.split("```").next().expect("an end").to_owned()));
    }
    assert!(!blocks.is_empty(), "some block is marked {mark:?}");
    blocks
}

#[test]
fn configurations_are_read() {
    let folder = Folder::new();
    for block in blocks("yaml config") {
        folder.parse(&block).unwrap_or_else(|errors| panic!("{block}\n{errors}"));
    }
}

#[test]
fn wrong_configurations_fail_as_shown() {
    let folder = Folder::new();
    let (wrong, shown) = (blocks("yaml config-fails"), blocks("text config-errors"));
    assert_eq!(wrong.len(), shown.len());
    for (wrong, shown) in wrong.iter().zip(shown) {
        let errors = folder.parse(wrong).expect_err("it is wrong");
        assert_eq!(folder.shown(&errors), shown.trim_end());
    }
}
