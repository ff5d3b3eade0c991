//! Test of a data folder from an early version: its keys, budgets, ledger and fleet are taken over.

use std::fs;

use serde_json::json;

use super::running::{Folder, Gateway};
use crate::run::fairgate_with_stdin;

const KEY: &str = "fg-a-key-that-an-early-version-made";
const TOKEN: &str = "the-admin-token-that-an-early-version-made";

/// The first six steps of the schema, which are the schema of that version.
const STEPS: [&str; 6] = [
    include_str!("../../../../fairgate-store/src/migrations/1.sqlite.sql"),
    include_str!("../../../../fairgate-store/src/migrations/2.sqlite.sql"),
    include_str!("../../../../fairgate-store/src/migrations/3.sqlite.sql"),
    include_str!("../../../../fairgate-store/src/migrations/4.sqlite.sql"),
    include_str!("../../../../fairgate-store/src/migrations/5.sqlite.sql"),
    include_str!("../../../../fairgate-store/src/migrations/6.sqlite.sql"),
];

/// What that version had written: a key with a budget, a request that ended, one that was in flight when the process was
/// killed, a project with a task, and an agent.
const ROWS: &str = include_str!("early_version.sql");

#[test]
fn a_data_folder_of_an_early_version_is_taken_over() {
    let folder = Folder::new();
    fs::create_dir(folder.join("data")).expect("a folder");
    fs::write(folder.join("data/admin-token"), TOKEN).expect("a file");
    let hash = fairgate_with_stdin(&["key", "hash"], KEY).ok();
    let file = rusqlite::Connection::open(folder.join("data/fairgate.db")).expect("a database");
    let rows = ROWS.replace("HASH", hash.trim().trim_start_matches("blake3:"));
    file.execute_batch(&(STEPS.concat() + &rows)).expect("an early database");
    file.close().expect("closed");

    let gateway = Gateway::embedded(&folder);
    assert!(
        !gateway.greeting.contains("  key          fg-"),
        "no first start: {}",
        gateway.greeting
    );
    assert_eq!(fs::read_to_string(&gateway.token_file).expect("a token").trim(), TOKEN);
    let answer = gateway.chat(KEY, "Hello");
    assert_eq!(answer.status, 200, "{answer:?}");

    let tenant = &gateway.json(&["tenant", "list"])[0];
    assert_eq!((&tenant["name"], &tenant["weight"]), (&json!("chat"), &json!(300)));
    let log = gateway.json(&["log", "--limit", "10"]);
    let rows = log["items"].as_array().expect("rows");
    let of = |request: &str| rows.iter().find(|row| row["request"] == request);
    let row = |request: &str| of(request).unwrap_or_else(|| panic!("{request}: {log}"));
    assert_eq!(
        (&row("ended")["charged_tokens"], &row("ended")["class"]),
        (&json!(30), &json!(null))
    );
    // Nobody knows what it used, so it is charged what was set aside for it.
    assert_eq!(row("in-flight")["charged_tokens"], 30);
    assert_eq!(rows.len(), 3, "{log}");
    let project = &gateway.json(&["project", "list"])[0];
    assert_eq!(
        (&project["id"], &project["weight"], &project["ready"]),
        (&json!("web"), &json!(2.5), &json!(1))
    );
    let why = gateway.fairgate(&["task", "why", "docs"]).ok();
    assert!(why.contains("takes the first agent that comes"), "{why}");
    assert!(gateway.fairgate(&["audit"]).ok().contains("tenant.create"));
}
