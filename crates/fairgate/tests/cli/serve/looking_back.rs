//! Tests of views on the past: `fairgate log`, the what-if of the API against that of `fairgate
//! replay`, and the history of an ended request.

use std::fs;
use std::io::{BufRead, BufReader};
use std::thread;

use fairgate_sim::SimOptions;
use serde_json::{Value, json};

use super::http::{Answer, ask};
use super::running::{Folder, Gateway, Model, one_pool, until};
use crate::run::file;

const POLICY: &str = r#"{"drr":{"by":"class","classes":[{"name":"all","quantum":1}]}}"#;

fn post(gateway: &Gateway, path: &str, body: &Value) -> Answer {
    let token = fs::read_to_string(&gateway.token_file).expect("a token");
    let base = gateway.admin_url.trim_end_matches("/api/v1");
    ask(base, "POST", path, token.trim(), &body.to_string()).expect("an answer")
}

/// Sends ten requests of each of two tenants, four at a time.
fn traffic(gateway: &Gateway) {
    gateway.fairgate(&["group", "add", "g"]).ok();
    let keys = ["chat", "batch"].map(|tenant| {
        gateway.fairgate(&["tenant", "add", tenant, "--group", "g"]).ok();
        gateway.key(tenant)
    });
    thread::scope(|scope| {
        for key in [&keys[0], &keys[0], &keys[1], &keys[1]] {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(gateway.chat(key, "Hello").status, 200);
                }
            });
        }
    });
}

fn code(answer: &Answer) -> (u16, String) {
    let code = answer.json()["error"]["code"].as_str().expect("a code").to_owned();
    (answer.status, code)
}

#[test]
fn what_if_equals_the_replay_to_the_byte() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    traffic(&gateway);
    let last = gateway.api("/api/v1/attempts?limit=1")["items"][0].clone();
    // A moment after the last request, so that what the gateway does meanwhile is in neither.
    let now = gateway.api("/api/v1/fairshare/live")["at"].as_str().expect("a time").to_owned();
    let ask = |body: Value| {
        let answer = post(&gateway, "/api/v1/what-if", &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.header("x-fairgate-journal-lines").is_some());
        answer.body
    };
    let policy: Value = serde_json::from_str(POLICY).expect("JSON");
    let asked = json!({"pool": "sim", "until": now, "by": "tenant", "policy": policy});
    // The journal is written beside the pool.
    let journal = folder.join("data/journal/sim");
    until("all requests are in the journal", || {
        let files = fs::read_dir(&journal)
            .ok()?
            .filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
        let ends: usize = files.map(|text| text.matches("\"event\":\"release\"").count()).sum();
        (ends == 20).then_some(())
    });
    let journal = journal.display().to_string();
    let told = ask(asked.clone());
    let all: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(all["all"]["recorded"]["granted"], 20);
    let (other, range) = (file(POLICY), ["replay", &journal, "--until", &now]);
    let diff = ["--policy", &other, "--diff", "--json", "--by", "tenant"];
    assert_eq!(gateway.fairgate(&[&range[..], &diff[..]].concat()).ok(), told);
    let text = json!({"pool": "sim", "until": now, "by": "tenant", "policy_file": POLICY});
    assert_eq!(ask(text), told);

    let weights = json!([{"by": "tenant", "flow": "batch", "weight": 1}]);
    let told = ask(json!({"pool": "sim", "until": now, "by": "tenant", "weights": weights}));
    let diff = ["--weight", "tenant:batch=1", "--diff", "--json", "--by", "tenant"];
    assert_eq!(gateway.fairgate(&[&range[..], &diff[..]].concat()).ok(), told);

    // A part of the time: the last requests, and those that were in flight beside them.
    let since = last["started_at"].as_str().expect("a time");
    let told =
        ask(json!({"pool": "sim", "since": since, "until": now, "by": "tenant", "policy": policy}));
    let diff = ["--since", since, "--policy", &other, "--diff", "--json", "--by", "tenant"];
    assert_eq!(gateway.fairgate(&[&range[..], &diff[..]].concat()).ok(), told);
    let part: Value = serde_json::from_str(&told).expect("JSON");
    let requests = part["all"]["requests"].as_u64().expect("a number");
    assert!((1..20).contains(&requests), "{part}");
}

#[test]
fn a_bad_what_if_says_where() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    traffic(&gateway);
    let ask = |body: Value| post(&gateway, "/api/v1/what-if", &body);
    let bad = ask(json!({"pool": "sim", "policy_file": "{\"share\":\n{\"by\":\"color\"}}"}));
    assert_eq!(code(&bad), (422, "invalid_policy".into()));
    let problem = &bad.json()["error"]["problems"][0];
    assert_eq!((&problem["line"], &problem["field"]), (&json!(2), &json!("share.by")));
    let bad = ask(json!({"pool": "sim", "policy_file": "default_profile: x\nprofiles: 5\n"}));
    assert_eq!(bad.status, 422, "{bad:?}");
    assert_eq!(code(&ask(json!({"pool": "sim"}))), (422, "invalid_value".into()));
    assert_eq!(code(&ask(json!({"pool": "sim", "weights": []}))), (422, "invalid_value".into()));
    let weights = json!([{"by": "tenant", "flow": "chat", "weight": 5}]);
    let none = ask(json!({"pool": "none", "weights": weights}));
    assert_eq!(code(&none), (404, "not_found".into()));
    let early = ask(json!({"pool": "sim", "since": "7d", "weights": weights}));
    assert_eq!(code(&early), (400, "not_kept".into()));
    let empty = json!({"pool": "sim", "since": "1s", "until": "5s", "weights": weights});
    assert_eq!(ask(empty).status, 400);
}

#[test]
fn without_a_journal_the_lines_to_add_are_told() {
    let folder = Folder::new();
    let model = Model::start(SimOptions::default());
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let gateway = Gateway::configured(&folder);
    let weights = json!([{"by": "tenant", "flow": "chat", "weight": 5}]);
    let none = post(&gateway, "/api/v1/what-if", &json!({"pool": "sim", "weights": weights}));
    assert_eq!(code(&none), (409, "no_journal".into()));
    assert!(none.body.contains("journal: {}"), "{none:?}");
}

#[test]
fn ended_requests_are_listed_and_explained() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    traffic(&gateway);
    assert_eq!(gateway.chat("fg-wrong", "Hello").status, 401);
    let all = gateway.json(&["log", "--limit", "100"]);
    assert_eq!(all["items"].as_array().map(Vec::len), Some(20));
    assert_eq!((&all["next"], &all["stopped"]), (&Value::Null, &Value::Null));
    let table = gateway.fairgate(&["log", "--tenant", "batch", "--status", "2xx"]).ok();
    assert_eq!(table.lines().count(), 11, "{table}");
    assert!(table.starts_with("at  ") && !table.contains("chat "), "{table}");
    assert_eq!(gateway.fairgate(&["log", "--code", "queue_full"]).ok().lines().count(), 1);
    let usage = gateway.fairgate(&["usage", "--by", "tenant", "--split", "model"]).ok();
    assert!(usage.starts_with("tenant  model") && usage.contains("50.0 %"), "{usage}");

    let id = all["items"][0]["request"].as_str().expect("an id").to_owned();
    let path = format!("/api/v1/requests/{id}/journal");
    let told = until("it is in the journal", || {
        let told = gateway.api(&path);
        told["history"].is_object().then_some(told)
    });
    let story: Vec<&str> =
        told["story"].as_array().expect("a story").iter().filter_map(Value::as_str).collect();
    assert_eq!(story[0], format!("request {id}"));
    assert!(story[1].starts_with("at 20") && story[1].contains("submitted"), "{story:?}");
    assert!(story.iter().any(|line| line.contains("granted")), "{story:?}");
    let journal = folder.join("data/journal/sim").display().to_string();
    let replayed = gateway.fairgate(&["replay", &journal, "--explain", &id]).ok();
    let replayed: Vec<&str> =
        replayed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let without_lines = |lines: &[&str]| -> Vec<String> {
        let cut = |line: &&str| line.split_once(", line").map_or(*line, |(at, _)| at).to_owned();
        lines.iter().map(cut).collect()
    };
    assert_eq!(without_lines(&story), without_lines(&replayed));
}

#[test]
fn ended_requests_are_followed() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    traffic(&gateway);
    let key = gateway.key("chat");
    let follow = ["log", "--follow", "--tenant", "chat", "--limit", "3", "--json"];
    let mut log = gateway.command(&follow).spawn().expect("it runs");
    let mut lines = BufReader::new(log.stdout.take().expect("its output")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    // The last three of before, the oldest first.
    let before: Vec<Value> = (0..3).map(|_| next()).collect();
    assert!(before.iter().all(|row| row["tenant"] == "chat"), "{before:?}");
    let at = |row: &Value| row["started_at"].as_str().expect("a time").to_owned();
    assert!(before.windows(2).all(|pair| at(&pair[0]) <= at(&pair[1])), "{before:?}");
    // Then each that ends, but none of another tenant, and each once.
    let other = gateway.key("batch");
    assert_eq!(gateway.chat(&other, "Hello").status, 200);
    for _ in 0..2 {
        assert_eq!(gateway.chat(&key, "Hello").status, 200);
        let row = next();
        assert_eq!((&row["tenant"], &row["status"]), (&json!("chat"), &json!(200)));
        assert!(before.iter().all(|known| known["request"] != row["request"]), "{row}");
    }
    log.kill().expect("it runs");
    log.wait().expect("it has ended");
    let refused = gateway.fairgate(&["log", "--follow", "--pool", "none"]);
    assert!(refused.status == 1 && refused.stderr.contains("none"), "{refused:?}");
    let both = gateway.fairgate(&["log", "--follow", "--until", "1h"]);
    assert!(both.status == 2 && both.stderr.contains("cannot be used with"), "{both:?}");
}

/// The models of an account are workers in the journal. The replay gives each request its recorded
/// worker.
#[test]
fn a_journal_with_the_models_of_an_account_is_replayed() {
    let folder = Folder::new();
    let models = vec!["fast".to_owned(), "slow".to_owned()];
    let model = Model::start(SimOptions { models, ..SimOptions::instant() });
    let config = one_pool(&model, "journal: {}\n")
        .replace("slots: 16 }", "slots: 16, account: acme }")
        .replace("models: [sim]", "models: [fast, slow]");
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    let mut gateway = Gateway::configured(&folder);
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "chat", "--group", "g"]).ok();
    let key = gateway.key("chat");
    let mut asked = Vec::new();
    for name in ["fast", "slow", "slow", "fast", "slow"] {
        let body = json!({"model": name, "messages": [{"role": "user", "content": "Hello"}]});
        let answer = ask(&gateway.url, "POST", "/v1/chat/completions", &key, &body.to_string());
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        asked.push((answer.id(), format!("sim/{name}")));
    }
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    let journal = folder.join("data/journal/sim").display().to_string();
    let replayed = crate::run::fairgate(&["replay", &journal]).ok();
    let decisions = replayed.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let grants = decisions.filter(|line: &Value| line["decision"] == "grant");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let granted: Vec<_> =
        grants.map(|grant| (text(&grant["id"]), text(&grant["worker"]))).collect();
    assert_eq!(granted, asked);
}
