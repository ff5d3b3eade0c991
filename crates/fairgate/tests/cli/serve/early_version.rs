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

/// Rows that that version wrote: a key with a budget, an ended request, a request in flight when
/// the process was killed, a project with a task, and an agent.
const ROWS: &str = "
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version (version) VALUES (1), (2), (3), (4), (5), (6);
INSERT INTO tenant_groups VALUES ('staff', 100, 5);
INSERT INTO tenants (name, group_name, weight, disabled, created_at) VALUES ('chat', 'staff', 300, 0, 5);
INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, classes, created_at)
    VALUES ('k1', 'chat', 'web', 'fg-a', x'HASH', 100, '[]', 5);
INSERT INTO budgets VALUES ('tenant', 'chat', 'month', 'tokens', 'any', 1000000);
INSERT INTO reservations (request, group_name, tenant, key_id, model, tokens, at, provider_tokens)
    VALUES ('in-flight', 'staff', 'chat', 'k1', 'sim', 30, 1794731400000000, 30);
INSERT INTO attempts (request, attempt, last_attempt, started_at, group_name, tenant, key_id, route, streamed, model, pool,
        worker, estimate, input_tokens, cached_tokens, output_tokens, charged, usage_source, waited_us, total_us, status,
        outcome, brownout, provider_tokens)
    VALUES ('ended', 1, 1, 1794731400000000, 'staff', 'chat', 'k1', '/v1/chat/completions', 0, 'sim', 'sim',
        'sim', 60, 10, 0, 20, 30, 'reported', 1, 2, 200, 'completed', 0, 30);
INSERT INTO audit (at, actor, action, subject) VALUES (5, 'admin:ada', 'tenant.create', 'chat');
INSERT INTO fleet_projects VALUES ('web', 'chat', 1, 'ACTIVE', 2500, 4, 0, '{}', NULL, 0, 0, 5, NULL, 0, 0, 0, 0, 5);
INSERT INTO fleet_tasks (id, project, made, state, priority, retries, retries_max, open_needs, affinity_wait, ready_at, epoch,
        ended_epoch, reserved, used, used_before, calls, created_at, title, prompt)
    VALUES ('docs', 'web', 1, 'READY', 100, 0, 2, 0, 0, 5, 0, 0, 0, 0, 0, 0, 5, 'Write the page', 'Write the page');
INSERT INTO fleet_agents VALUES ('ada', 'any', x'0102', 'fga-', 'ACTIVE', 0, NULL, 5);
";

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
