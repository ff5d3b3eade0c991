//! Counts the lines where the command line or an agent reads a field of a JSON value by its name. Both should use the
//! types of `fairgate-api` instead, so that code with a renamed field does not compile.

use super::Measure;
use super::source::{SourceFile, SourceTree};

/// Beginnings of the paths of clients' sources.
const CLIENTS: [&str; 2] = ["crates/fairgate/src/", "crates/fairgate-agent/src/"];

pub(super) fn measure(tree: &SourceTree) -> Measure {
    let is_client = |file: &&SourceFile| CLIENTS.iter().any(|path| file.path.starts_with(path));
    let offenders = tree.product.iter().filter(is_client).flat_map(offenders).collect();
    let about = "fields of JSON that clients read by their names";
    Measure::places("json_fields", about, 0, offenders)
}

/// Returns the lines of a file that read a field by its name. Comments and the tests at the file's end are skipped.
fn offenders(file: &SourceFile) -> Vec<String> {
    let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&file.text);
    let lines = code.lines().enumerate();
    let lines =
        lines.filter(|(_, line)| !line.trim_start().starts_with("//") && reads_by_name(line));
    lines.map(|(index, line)| format!("{}:{}: {}", file.path, index + 1, line.trim())).collect()
}

/// Returns whether a line has an index such as `value["name"]`. A list of texts, such as `&["a"]`, does not count,
/// because no value precedes its bracket.
fn reads_by_name(line: &str) -> bool {
    line.match_indices("[\"").any(|(at, bracket)| {
        let is_value = line[..at].ends_with(|c: char| c.is_alphanumeric() || "_)]?".contains(c));
        let name = &line[at + bracket.len()..];
        let is_name = |name: &str| !name.contains(['\\', '(', ' ']);
        is_value
            && name
                .split_once('"')
                .is_some_and(|(name, rest)| is_name(name) && rest.starts_with(']'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_by_name_is_found_and_a_list_is_not() {
        for line in [
            "let a = value[\"name\"].as_str();",
            "f(&worker[\"engine\"][\"kind\"])",
            "read(x)?[\"a\"]",
        ] {
            assert!(reads_by_name(line), "{line}");
        }
        for line in [
            "for name in [\"a\", \"b\"] {",
            "f(&[\"a\"])",
            "vec![\"a\"]",
            "text.strip_prefix(\"\\x1b[\")?;",
            "list[0]",
            "[\"own\", \"hosted\"].map(x)",
        ] {
            assert!(!reads_by_name(line), "{line}");
        }
    }

    #[test]
    fn only_clients_outside_of_their_tests_count() {
        let file = |path: &str| SourceFile {
            path: path.into(),
            text: "// v[\"a\"]\nlet x = v[\"a\"];\n#[cfg(test)]\nmod tests {\n    v[\"b\"];\n}\n"
                .into(),
        };
        let product =
            vec![file("crates/fairgate/src/a.rs"), file("crates/fairgate-control/src/a.rs")];
        let tree = SourceTree { product, ..SourceTree::default() };
        let measure = measure(&tree);
        assert_eq!(measure.offenders, ["crates/fairgate/src/a.rs:2: let x = v[\"a\"];"]);
    }
}
