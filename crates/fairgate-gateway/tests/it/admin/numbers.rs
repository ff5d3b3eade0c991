//! Checks the table of numbers in the glossary: every name in it exists, and the numbers of a flow
//! have no other names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the rows of the table, without its head.
fn rows() -> Vec<Vec<String>> {
    let glossary = file("docs/glossary.md");
    let (_, numbers) = glossary.split_once("\n## Numbers\n").expect("the section");
    let lines = numbers.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|it| it.trim().to_owned()).collect();
    lines.map(cells).collect()
}

/// Returns the names in backticks in a cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Collects the properties of a schema and of the schemas that it includes.
fn properties(document: &Value, schema: &Value, to: &mut BTreeSet<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let found = document.pointer(reference.trim_start_matches('#')).expect("a schema");
        properties(document, found, to);
    }
    to.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.clone()));
    for part in schema["allOf"].as_array().into_iter().flatten() {
        properties(document, part, to);
    }
}

fn properties_of(schema: &str) -> BTreeSet<String> {
    let document = fairgate_control::admin::document();
    let mut found = BTreeSet::new();
    properties(document, &document["components"]["schemas"][schema], &mut found);
    found
}

/// Schemas of objects that have these numbers.
const SCHEMAS: [&str; 7] =
    ["PoolView", "TenantView", "GroupView", "Class", "MyPool", "RequestDetail", "ProjectView"];
/// Source files of the command line with the tables that show these numbers.
const TABLES: [&str; 4] =
    ["live/shares.rs", "fleet/overview.rs", "fleet/project.rs", "top/screen.rs"];
/// Headings of those tables that are not numbers of the glossary's table.
const OTHER_HEADINGS: [&str; 30] = [
    "agent",
    "agents",
    "budget",
    "class",
    "cost",
    "deficit",
    "estimate",
    "flight",
    "flow",
    "hosted tokens",
    "money",
    "of tokens",
    "of worker time",
    "order",
    "others",
    "own tokens",
    "project",
    "quantum",
    "reason",
    "request",
    "state",
    "status",
    "task",
    "tasks",
    "tier",
    "title",
    "waited",
    "weight",
    "why",
    "worker",
];

/// Returns the content of a source file of the command line.
fn source(name: &str) -> String {
    file(&format!("crates/fairgate/src/admin/{name}"))
}

/// Returns the headings in the source of a table: the texts of its lists, and of its columns with a
/// width.
fn headings(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]").next().expect("code");
    let mut found = BTreeSet::new();
    for (begin, end) in [
        ("headings = vec![", "];"),
        ("TextTable::new(vec![", "])"),
        ("Vec<ScreenColumn> = ", ";"),
        ("[ScreenColumn; ", "];"),
    ] {
        let lists = code.split(begin).skip(1).map(|rest| rest.split(end).next().expect("a list"));
        found.extend(lists.flat_map(texts).map(str::to_owned));
    }
    let more = ["headings.extend(", "columns.extend(", "columns.push("];
    let lines = code.lines().filter(|line| more.iter().any(|call| line.contains(call)));
    found.extend(lines.flat_map(texts).map(str::to_owned));
    found
}

/// Iterates over the string literals of a piece of code.
fn texts(code: &str) -> impl Iterator<Item = &str> {
    code.split('"').skip(1).step_by(2)
}

/// Folder of the dashboard's pages.
const PAGES: &str = "crates/fairgate-dashboard/ui";
/// Calls in the code of a column that write a unit beside its number.
const WRITES_UNIT: [&str; 10] = [
    "time(",
    "timeOfMs(",
    "share(",
    "duration",
    "OfUnit(",
    "unitName(",
    "usage.currency",
    "currency)",
    "} tokens`",
    "cell: hits",
];
/// Units that the title or the help of a column may name.
const UNIT_WORDS: [&str; 4] = ["tokens", "requests", "flows", "tasks"];
/// Titles of columns that count requests or tasks, as the glossary says, or that need no unit.
const COUNTS: [&str; 12] = [
    "in flight",
    "waiting",
    "refused",
    "granted",
    "failed",
    "cap",
    "ready",
    "running",
    "weight",
    "attempt",
    "money",
    "requests",
];

/// The sources of the pages, by their file names.
fn page_sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGES);
    let mut found = Vec::new();
    for folder in ["pages", "components", "changes", "core"] {
        for entry in fs::read_dir(root.join(folder)).expect("a folder of the pages") {
            let path = entry.expect("an entry").path();
            found.push((path.display().to_string(), fs::read_to_string(path).expect("a page")));
        }
    }
    found
}

/// The text after a name such as `title: '`, up to the end of the literal; empty if the value is no plain text.
fn literal<'a>(line: &'a str, name: &str) -> &'a str {
    let text = line.split_once(name).and_then(|(_, rest)| rest.split('\'').next());
    text.unwrap_or_default()
}

#[test]
fn every_number_in_a_table_of_a_page_has_a_unit() {
    let is_column = |line: &&str| line.contains("title:") && line.contains("isNumber: true");
    let mut checked = 0;
    for (page, source) in page_sources() {
        for line in source.lines().filter(is_column) {
            let (title, help) = (literal(line, "title: '"), literal(line, "help: '"));
            let names_unit = UNIT_WORDS.iter().any(|it| title.contains(it) || help.contains(it));
            let writes_unit = WRITES_UNIT.iter().any(|it| line.contains(it));
            let is_known = names_unit || writes_unit || COUNTS.contains(&title);
            assert!(is_known, "{page}: no unit in {}", line.trim());
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn pages_read_no_former_name() {
    let rows = rows();
    let former = rows.iter().filter_map(|row| Some(row[1].split_once("formerly")?.1));
    let former: BTreeSet<&str> = former.flat_map(names).filter(|it| it.contains('_')).collect();
    // Bodies of other schemas have these names for something else.
    let is_read = |source: &str, name: &str| {
        source.match_indices(name).any(|(at, _)| {
            let after = source[at + name.len()..].chars().next();
            let before = source[..at].chars().next_back();
            before == Some('.') && !after.is_some_and(|it| it.is_alphanumeric() || it == '_')
        })
    };
    for (page, source) in page_sources() {
        let read: Vec<_> = former.iter().filter(|name| is_read(&source, name)).collect();
        assert!(read.is_empty(), "{page} reads {read:?}");
    }
}

#[test]
fn every_name_of_a_number_exists() {
    let fields: BTreeSet<String> = SCHEMAS.into_iter().flat_map(properties_of).collect();
    let metrics = file("docs/metrics.md");
    let shown = TABLES.map(source).concat() + &source("request.rs");
    let rows = rows();
    assert!(rows.len() > 20, "{rows:?}");
    let mut words = BTreeSet::new();
    for row in &rows {
        let [number, json, cli, metric, word] = &row[..] else { panic!("five cells: {row:?}") };
        for name in names(json) {
            assert!(fields.contains(name), "{number}: no field {name}");
        }
        for name in names(cli) {
            let is_shown = texts(&shown).any(|text| text.contains(name));
            assert!(is_shown, "{number}: the command line does not show {name:?}");
        }
        for name in names(metric) {
            let family = name.trim_end_matches("_total");
            assert!(metrics.contains(&format!("`{family}`")), "{number}: no metric {name}");
        }
        assert!(words.insert(word.clone()), "{word:?} stands for two numbers");
    }
}

#[test]
fn the_tables_of_the_command_line_have_no_other_names() {
    let rows = rows();
    let known: BTreeSet<&str> = rows.iter().flat_map(|row| names(&row[2])).collect();
    let mut checked = 0;
    for table in TABLES {
        let found = headings(&source(table));
        assert!(found.len() > 5, "{table}: {found:?}");
        for heading in &found {
            // A heading of two words beside a bar, such as `got ▇ due │`.
            let words = heading.split(['▇', '█', '│']).map(str::trim).filter(|it| !it.is_empty());
            for word in words {
                let is_known = known.contains(word) || OTHER_HEADINGS.contains(&word);
                assert!(is_known, "{table}: the glossary does not have {word:?}");
                checked += usize::from(known.contains(word));
            }
        }
    }
    assert!(checked > 25, "{checked}");
}

/// The help of a metric names its number with the word of the glossary.
#[test]
fn the_help_of_a_metric_has_the_word_of_its_number() {
    let reference = file("docs/metrics.md");
    for row in rows() {
        let [_, _, _, metric, word] = &row[..] else { panic!("five cells: {row:?}") };
        let stem = word.split(" p").next().expect("a word").trim_end_matches(" %");
        let stem = ["ing", "ed"].iter().find_map(|end| stem.strip_suffix(end)).unwrap_or(stem);
        for name in names(metric) {
            let begin = format!("| `{}` |", name.trim_end_matches("_total"));
            let line = reference.lines().find(|line| line.starts_with(&begin));
            let line = line.unwrap_or_else(|| panic!("docs/metrics.md has no {name}"));
            let help = line.trim_end_matches('|').rsplit('|').next().expect("a meaning");
            let has_word =
                help.to_lowercase().contains(stem) || (stem == "runn" && help.contains("hold"));
            assert!(has_word, "{name}: {help:?} does not say {word:?}");
        }
    }
}

/// No page of the documentation uses a former name, except where it says that the name is a former
/// one.
#[test]
fn the_documentation_uses_no_former_name() {
    let former: Vec<String> = rows()
        .iter()
        .filter_map(|row| Some(row[1].split_once("formerly")?.1.to_owned()))
        .flat_map(|cell| names(&cell).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .filter(|name| name.contains('_'))
        .collect();
    assert!(former.len() > 5, "{former:?}");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut pages = vec!["README.md".to_owned()];
    for entry in fs::read_dir(docs).expect("a folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        // The last two are other programs' words: of a planner's snapshot, and of other schedulers.
        let is_other = ["glossary.md", "schedule.md", "policy.md"].contains(&&*name);
        if name.ends_with(".md") && !is_other {
            pages.push(format!("docs/{name}"));
        }
    }
    assert!(pages.len() > 20, "{pages:?}");
    for page in pages {
        for line in file(&page).lines().filter(|line| !line.to_lowercase().contains("former")) {
            let used = former.iter().find(|name| line.contains(name.as_str()));
            assert!(used.is_none(), "{page} has {used:?}: {line}");
        }
    }
}

#[test]
fn former_names_are_marked_and_have_new_ones() {
    let document = fairgate_control::admin::document();
    let schemas = &document["components"]["schemas"];
    for row in rows() {
        let Some((new, former)) = row[1].split_once("formerly") else { continue };
        for name in names(former) {
            let mut found = 0;
            for schema in SCHEMAS {
                let parts = schemas[schema]["allOf"].as_array().cloned().unwrap_or_default();
                let all = parts.iter().chain([&schemas[schema]]);
                for field in all.filter_map(|part| part["properties"].get(name)) {
                    found += 1;
                    assert_eq!(field["deprecated"], true, "{schema}.{name}");
                    let known = properties_of(schema);
                    assert!(names(new).iter().all(|name| known.contains(*name)), "{schema}: {new}");
                }
            }
            assert!(found > 0, "nothing has the former name {name}");
        }
    }
}
