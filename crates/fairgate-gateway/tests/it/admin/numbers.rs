//! The table of numbers in the glossary: every name in it exists, and the numbers of a flow have no other names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the table, without its head.
fn rows() -> Vec<Vec<String>> {
    let glossary = file("docs/glossary.md");
    let (_, numbers) = glossary.split_once("\n## Numbers\n").expect("the section");
    let lines = numbers.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|it| it.trim().to_owned()).collect();
    lines.map(cells).collect()
}

/// The names in backticks of a cell.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The properties of a schema, with those of the schemas that it is made of.
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

#[test]
fn every_name_of_a_number_exists() {
    let mut fields = BTreeSet::new();
    for schema in ["PoolView", "TenantView", "GroupView", "Class", "MyPool", "RequestDetail"] {
        fields.extend(properties_of(schema));
    }
    let metrics = file("crates/fairgate/tests/cli/surface/metrics.txt");
    let shown = file("crates/fairgate/src/admin/live/shares.rs");
    let requests = file("crates/fairgate/src/admin/request.rs");
    let rows = rows();
    assert!(rows.len() > 15, "{rows:?}");
    let mut words = BTreeSet::new();
    for row in &rows {
        let [number, json, cli, metric, word] = &row[..] else { panic!("five cells: {row:?}") };
        for name in names(json) {
            assert!(fields.contains(name), "{number}: no field {name}");
        }
        for name in names(cli) {
            let is_shown = shown.contains(name) || requests.contains(name);
            assert!(is_shown, "{number}: the command line does not show {name:?}");
        }
        for name in names(metric) {
            let family = name.trim_end_matches("_total");
            assert!(metrics.contains(family), "{number}: no metric {name}");
        }
        assert!(words.insert(word.clone()), "{word:?} stands for two numbers");
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
            for schema in ["PoolView", "TenantView", "GroupView", "Class", "MyPool"] {
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
