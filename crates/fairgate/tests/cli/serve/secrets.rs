//! Tests that secrets are only in their documented places.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use fairgate_sim::{ApiKey, SimOptions};

use super::http::{CHAT, ask, chat};
use super::running::{Folder, Gateway, Model, one_pool, until};
use crate::run::command;

const PROMPT: &str = "PROMPT-MARK-58213";
const UPSTREAM_KEY: &str = "sk-UPSTREAM-MARK-90417";
const WRONG_KEY: &str = "fg-WRONG-KEY-MARK-33071";

#[test]
fn no_secret_is_logged_or_kept() {
    let folder = Folder::new();
    let model = Model::start(SimOptions {
        api_key: Some(ApiKey::new(UPSTREAM_KEY)),
        steering: true,
        ..SimOptions::instant()
    });
    let text = one_pool(&model, "journal: { file_size_max: 1MiB, files_max: 4 }\n");
    let credential = "slots: 16, credential: { env: TEST_UPSTREAM_KEY }";
    let text =
        text.replace("slots: 16", credential).replace("capacity", "retries: 0\n    capacity");
    let file = folder.join("fairgate.yaml");
    fs::write(&file, text).expect("a file");
    let file = file.display().to_string();
    let serve = |key: &str| {
        let mut serve = command(&["serve", "--config", &file, "--log", "trace"]);
        serve.env("TEST_UPSTREAM_KEY", key);
        Gateway::start(&folder, serve)
    };
    let mut gateway = serve(UPSTREAM_KEY);
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "t", "--group", "g", "--tokens-per-day", "1000000"]).ok();
    let key = gateway.key("t");
    let ask = |gateway: &Gateway, key: &str, body: &str| {
        ask(&gateway.url, "POST", CHAT, key, body).expect("an answer")
    };
    let with_fault = |fault: &str| format!("[sim:fault={fault}] {PROMPT}");

    assert_eq!(ask(&gateway, &key, &chat("sim", PROMPT, false)).status, 200);
    assert_eq!(ask(&gateway, &key, &chat("sim", PROMPT, true)).status, 200);
    assert_eq!(ask(&gateway, &key, &format!("{{\"model\":\"sim\",\"{PROMPT}\"")).status, 400);
    assert_eq!(ask(&gateway, &key, &chat("no-such", PROMPT, false)).status, 404);
    assert_eq!(ask(&gateway, WRONG_KEY, &chat("sim", PROMPT, false)).status, 401);
    assert_eq!(ask(&gateway, &key, &chat("sim", &with_fault("status=500"), false)).status, 500);
    assert_eq!(ask(&gateway, &key, &chat("sim", &with_fault("reset-before"), false)).status, 502);
    assert_eq!(ask(&gateway, &key, &chat("sim", &with_fault("garbage"), false)).status, 502);
    let broken = ask(&gateway, &key, &chat("sim", &with_fault("reset-mid"), true));
    assert_eq!(broken.status, 200, "{broken:?}");
    gateway
        .fairgate(&[
            "key",
            "rotate",
            gateway.json(&["key", "list"])[0]["id"].as_str().expect("an id"),
        ])
        .ok();
    assert_eq!(ask(&gateway, &key, &chat("sim", PROMPT, false)).status, 401);
    let wrong = gateway.command(&["group", "list"]).env("FAIRGATE_ADMIN_TOKEN", WRONG_KEY).output();
    assert!(!wrong.expect("it runs").status.success());

    // While it runs, after a kill, and after a start whose upstream refuses its credential.
    let token = fs::read_to_string(&gateway.token_file).expect("a token");
    let token_file = gateway.token_file.canonicalize().expect("it is there");
    let assert_clean = |when: &str| {
        let files = files_in(folder.path());
        let named = |part: &str| files.iter().any(|path| path.to_string_lossy().contains(part));
        for part in ["stderr", "/journal/", "fairgate.db", "/admin-token"] {
            assert!(named(part), "{when}: there is a {part} to look into: {files:?}");
        }
        for path in &files {
            let bytes = fs::read(path).unwrap_or_default();
            for mark in [PROMPT, UPSTREAM_KEY, WRONG_KEY, &key, token.trim()] {
                let documented = mark == token.trim() && *path == token_file;
                let found = bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
                assert_eq!(found, documented, "{when}: {mark} in {}", path.display());
            }
        }
    };
    until("each request is logged", || gateway.log().contains(" DEBUG ").then_some(()));
    assert_clean("while it runs");
    gateway.signal("KILL");
    gateway.ended();
    assert_clean("after a kill");
    let mut gateway = serve("sk-REFUSED-MARK-11882");
    let key = gateway.key("t");
    let refused = ask(&gateway, &key, &chat("sim", PROMPT, false));
    assert_eq!(refused.status, 502, "{refused:?}");
    assert!(!refused.body.contains("MARK"), "{refused:?}");
    gateway.signal("TERM");
    gateway.ended();
    assert_clean("after a clean end");
    for path in files_in(folder.path()) {
        let bytes = fs::read(&path).unwrap_or_default();
        for mark in ["REFUSED-MARK-11882", &key] {
            let found = bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
            assert!(!found, "{mark} in {}", path.display());
        }
    }
    let mode = fs::metadata(&token_file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its owner reads the token");
}

/// Returns all files in a folder and its subfolders.
fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files_in(&path)),
            false => found.extend(path.canonicalize()),
        }
    }
    found
}
