//! docs/gateway.md tells the truth.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fairgate_core::decision::RejectionReason;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All Rust files below a folder, and the file of the same name.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = vec![repository(&format!("{folder}.rs"))];
    let mut folders = vec![repository(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs")
            {
                found.push(path);
            }
        }
    }
    found
}

/// The strings of a source that look like codes: lower case, with an underscore. Tests are no part of it.
fn codes_in(source: &str) -> impl Iterator<Item = &str> {
    let product = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    let strings = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
    let is_code = |text: &&str| {
        text.contains('_') && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase())
    };
    // In `connections_full`'s answer, which is text, quotes are escaped.
    strings.map(|text| text.trim_end_matches('\\')).filter(is_code)
}

#[test]
fn every_code_is_in_the_table_of_errors_and_every_one_there_exists() {
    let gateway = "crates/fairgate-gateway/src";
    let mut exist = BTreeSet::new();
    for part in ["refusal", "server", "identity", "limits", "forward"] {
        for file in sources(&format!("{gateway}/{part}")) {
            exist.extend(codes_in(&read(&file)).map(str::to_owned));
        }
    }
    // An outcome in the ledger, an error's type, and parameters: no codes.
    for other in ["upstream_error", "server_error", "previous_response_id", "cache_salt"] {
        assert!(exist.remove(other), "{other}");
    }
    // What a client says of a lease, in JSON and in its query.
    for field in ["cached_tokens", "input_tokens", "output_tokens", "wait_ms", "deadline_ms"] {
        assert!(exist.remove(field), "{field}");
    }
    let fields = read(&repository("crates/fairgate-dialect/src/request_fields.rs"));
    let product = fields.split("#[cfg(test)]").next().unwrap();
    let made = product.split("InvalidRequestError::new(").skip(1);
    let errors = made.chain(product.split("InvalidRequestError { code: ").skip(1));
    let codes = errors.map(|rest| rest.split('"').nth(1).expect("a code"));
    exist.extend(codes.filter(|code| code.contains('_')).map(str::to_owned));
    exist.extend(RejectionReason::ALL.map(|reason| reason.code().to_owned()));
    // Of the gate, and words without an underscore.
    let others = ["queue_timeout", "invalid", "draining", "gone", "drained", "lost"];
    exist.extend(others.map(str::to_owned));

    let document = read(&repository("docs/gateway.md"));
    let table = document.split("| status | codes |").nth(1).unwrap();
    let rows = table.trim_start().lines().take_while(|line| line.starts_with('|')).skip(1);
    let mut documented = BTreeSet::new();
    for row in rows {
        let words = row.split('|').nth(2).unwrap().split('`').skip(1).step_by(2);
        documented.extend(words.filter(|word| *word != "drain_grace").map(str::to_owned));
    }
    let missing: Vec<_> = exist.difference(&documented).collect();
    let unknown: Vec<_> = documented.difference(&exist).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
}
