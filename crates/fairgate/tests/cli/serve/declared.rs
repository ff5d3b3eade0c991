//! Tests of groups, tenants and keys in the configuration file: they work, only the file changes
//! them, and removed ones are refused.

use std::fs;

use fairgate_sim::{ApiKey, SimOptions};
use fairgate_testkit::postgres_server::shared_server;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::http::ask;
use super::running::{Folder, Gateway, Model, one_pool, until};
use crate::run::{Run, command, fairgate, fairgate_with_stdin, finished};

const CHAT_KEY: &str = "a-key-that-was-made-elsewhere";
const BATCH_KEY: &str = "another-key-that-was-made-elsewhere";

fn hash(key: &str) -> String {
    fairgate_with_stdin(&["key", "hash"], key).ok().trim().to_owned()
}

const CHAT: &str = "  - {name: chat, group: people, weight: 300}\n";
const BATCH: &str = "  - {name: batch, group: people}\n";

fn key(tenant: &str, secret: &str) -> String {
    format!("  - {{name: web, tenant: {tenant}, secret: {{hash: {}}}}}\n", hash(secret))
}

/// Returns a file that declares these tenants and keys.
fn declares(tenants: &[&str], keys: &[String]) -> String {
    let tenants =
        if tenants.is_empty() { " []\n".into() } else { format!("\n{}", tenants.concat()) };
    let keys = if keys.is_empty() { " []\n".into() } else { format!("\n{}", keys.concat()) };
    format!("groups:\n  - {{name: people}}\ntenants:{tenants}keys:{keys}")
}

/// A folder with a file that declares a model and two tenants with a key each.
struct World {
    folder: Folder,
    model: Model,
    store: String,
}

impl World {
    fn new() -> Self {
        Self::with_store("")
    }

    fn with_store(store: &str) -> Self {
        let (folder, model) = (Folder::new(), Model::start(SimOptions::instant()));
        let world = Self { folder, model, store: store.to_owned() };
        world.write(&declares(&[CHAT, BATCH], &[key("chat", CHAT_KEY), key("batch", BATCH_KEY)]));
        world
    }

    fn text(&self, declared: &str) -> String {
        one_pool(&self.model, &self.store) + declared
    }

    fn write(&self, declared: &str) {
        fs::write(self.folder.join("fairgate.yaml"), self.text(declared)).expect("a file");
    }
}

/// Returns the code and message of an error of the admin API.
fn refused(gateway: &Gateway, method: &str, path: &str, body: &Value) -> (u16, String, String) {
    let token = fs::read_to_string(&gateway.token_file).expect("a token");
    let base = gateway.admin_url.trim_end_matches("/api/v1");
    let answer = ask(base, method, path, token.trim(), &body.to_string()).expect("an answer");
    let error = &answer.json()["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (answer.status, text("code"), text("message"))
}

fn failed(run: Run) -> String {
    assert_eq!(run.status, 1, "{run:?}");
    run.stderr
}

#[test]
fn declared_keys_serve_and_only_the_file_changes_them() {
    let world = World::new();
    let gateway = Gateway::configured(&world.folder);
    assert_eq!(gateway.chat(CHAT_KEY, "Hello").status, 200);
    assert_eq!(gateway.chat(BATCH_KEY, "Hello").status, 200);

    let tenants = gateway.json(&["tenant", "list"]);
    let declared = &tenants[1]["declared"];
    assert_eq!((&tenants[1]["name"], &tenants[1]["weight"]), (&json!("chat"), &json!(300)));
    let file = declared["file"].as_str().expect("a file");
    assert!(file.ends_with("fairgate.yaml"), "{declared}");
    let lines = world.text("").lines().count();
    assert_eq!(declared["line"], json!(lines + 4), "groups, people, tenants, chat");
    let keys = gateway.json(&["key", "list"]);
    let id = keys[0]["id"].as_str().expect("an id").to_owned();
    let changes = [
        ("PATCH", "/api/v1/groups/people".to_owned(), json!({"weight": 5})),
        ("DELETE", "/api/v1/groups/people".to_owned(), Value::Null),
        ("PATCH", "/api/v1/tenants/chat".to_owned(), json!({"weight": 5})),
        ("DELETE", "/api/v1/tenants/chat".to_owned(), Value::Null),
        ("PATCH", format!("/api/v1/keys/{id}"), json!({"weight": 5})),
        ("POST", format!("/api/v1/keys/{id}/rotate"), Value::Null),
        ("POST", format!("/api/v1/keys/{id}/revoke"), Value::Null),
    ];
    for (method, path, body) in changes {
        let (status, code, message) = refused(&gateway, method, &path, &body);
        assert_eq!((status, &*code), (409, "declared_in_file"), "{method} {path}: {message}");
        assert!(message.contains("fairgate.yaml, line "), "{message}");
    }
    // What the file never declared stays with the API, beside what is declared.
    gateway.fairgate(&["tenant", "add", "by-hand", "--group", "people"]).ok();
    let by_hand = gateway.key("by-hand");
    gateway.fairgate(&["reload"]).ok();
    assert_eq!(gateway.chat(&by_hand, "Hello").status, 200);
    let audited = gateway.json(&["audit", "--actor", "config"]);
    let actions: Vec<&str> = (audited.as_array().expect("a list").iter())
        .map(|entry| entry["action"].as_str().expect("a text"))
        .collect();
    assert_eq!(actions, ["key.create", "key.create", "tenant.add", "tenant.add", "group.add"]);
}

#[test]
fn what_is_taken_out_is_refused_and_comes_back() {
    let world = World::new();
    let gateway = Gateway::configured(&world.folder);
    assert_eq!(gateway.chat(BATCH_KEY, "Hello").status, 200);
    let chat_alone = declares(&[CHAT], &[key("chat", CHAT_KEY)]);
    let both = fs::read_to_string(world.folder.join("fairgate.yaml")).expect("a file");

    // Seen before: the gateway is asked, and nothing changes.
    let next = world.folder.join("next.yaml");
    fs::write(&next, world.text(&chat_alone)).expect("a file");
    let check = |text: &std::path::Path| {
        let mut command = command(&["check", "--against", &gateway.admin_url]);
        command.arg("--token-file").arg(&gateway.token_file).arg(text);
        finished(command.output().expect("it runs"))
    };
    let seen = check(&next).ok();
    assert!(seen.contains("tenant batch: disabled, no longer declared\n"), "{seen}");
    assert!(seen.contains("): revoked, no longer declared\n"), "{seen}");
    assert_eq!(gateway.chat(BATCH_KEY, "Hello").status, 200);

    world.write(&chat_alone);
    let told = gateway.fairgate(&["reload"]).ok();
    assert!(told.contains("tenant batch: disabled, no longer declared\n"), "{told}");
    let log = gateway.log();
    assert!(log.contains("to be disabled: the file no longer declares it"), "{log}");
    let lost = gateway.chat(BATCH_KEY, "Hello");
    assert_eq!((lost.status, &lost.json()["error"]["code"]), (401, &json!("key_revoked")));
    assert_eq!(gateway.chat(CHAT_KEY, "Hello").status, 200);
    let tenants = gateway.json(&["tenant", "list"]);
    assert_eq!((&tenants[0]["disabled"], &tenants[0]["declared"]), (&json!(true), &Value::Null));

    fs::write(world.folder.join("fairgate.yaml"), both).expect("a file");
    gateway.fairgate(&["reload"]).ok();
    assert_eq!(gateway.chat(BATCH_KEY, "Hello").status, 200);

    // More than half needs a yes: by command, by signal, and at a start.
    world.write("");
    fs::write(&next, world.text("")).expect("a file");
    let said = failed(check(&next));
    assert!(said.contains("would disable 4 of 4 declared tenants and keys"), "{said}");
    let said = failed(gateway.fairgate(&["reload"]));
    assert!(said.contains("no longer declares 4 of 4") && said.contains("--yes"), "{said}");
    gateway.signal("HUP");
    until("it is logged", || {
        let log = gateway.log();
        log.contains("the configuration is not reloaded").then_some(())
    });
    assert_eq!(gateway.chat(CHAT_KEY, "Hello").status, 200);
    drop(gateway);
    let file = world.folder.join("fairgate.yaml").display().to_string();
    let start = fairgate(&["serve", "--config", &file]);
    assert!(failed(start).contains("fairgate serve --yes"));
    world.write(&declares(&[CHAT, BATCH], &[key("chat", CHAT_KEY), key("batch", BATCH_KEY)]));
    let gateway = Gateway::configured(&world.folder);
    world.write(&declares(&[], &[]));
    let told = gateway.fairgate(&["reload", "--yes"]).ok();
    assert_eq!(told.matches("no longer declared").count(), 4, "{told}");
    assert_eq!(gateway.chat(CHAT_KEY, "Hello").status, 401);
}

#[test]
fn a_bad_declaration_changes_nothing_and_is_told_with_its_line() {
    let world = World::new();
    let gateway = Gateway::configured(&world.folder);
    gateway.fairgate(&["tenant", "add", "by-hand", "--group", "people"]).ok();
    let taken = gateway.key("by-hand");
    let text = declares(&[CHAT, BATCH], &[key("chat", CHAT_KEY), key("batch", &taken)]);
    world.write(&text.replace("weight: 300", "weight: 7"));
    let said = failed(gateway.fairgate(&["reload"]));
    let line = world.text(&text).lines().count();
    assert!(
        said.contains(&format!("fairgate.yaml:{line}:1: keys[1].secret: is the secret")),
        "{said}"
    );
    assert!(!said.contains(&hash(&taken)), "{said}");
    assert_eq!(gateway.json(&["tenant", "list"])[2]["weight"], 300);
    assert_eq!(gateway.chat(BATCH_KEY, "Hello").status, 200);
    world.write(&text.replace("group: people}", "group: peple}"));
    let said = failed(gateway.fairgate(&["reload"]));
    assert!(said.contains("this file declares no group \"peple\""), "{said}");
}

#[test]
fn models_may_be_patterns() {
    let world = World::new();
    let with = |models: &str| {
        let web = key("chat", CHAT_KEY).replace("}}", &format!("}}, models: [{models}]}}"));
        declares(&[CHAT, BATCH], &[web, key("batch", BATCH_KEY)])
    };
    world.write(&with("\"si*\""));
    let gateway = Gateway::configured(&world.folder);
    assert_eq!(gateway.chat(CHAT_KEY, "Hello").status, 200);
    let models = ask(&gateway.url, "GET", "/v1/models", CHAT_KEY, "").expect("an answer").json();
    assert_eq!(models["data"][0]["id"], "sim");
    world.write(&with("\"gpt-*\""));
    gateway.fairgate(&["reload"]).ok();
    assert_eq!(gateway.chat(CHAT_KEY, "Hello").status, 403);
    assert_eq!(gateway.chat(BATCH_KEY, "Hello").status, 200);
}

#[test]
fn a_hash_is_made_of_a_new_key_or_of_one_that_is_there() {
    let made = fairgate(&["key", "hash", "--new"]).ok();
    let (secret, printed) = made.trim().split_once('\n').expect("two lines");
    assert!(secret.starts_with("fg-"), "{made}");
    assert_eq!(hash(&format!("{secret}\n")), printed);
    let short = fairgate_with_stdin(&["key", "hash"], "short");
    assert!(failed(short).contains("at least 16"));
}

#[test]
fn every_upstream_is_asked() {
    let world = World::new();
    let file = world.folder.join("fairgate.yaml").display().to_string();
    let well = fairgate(&["check", "--probe", &file]).ok();
    assert!(well.contains("upstream     sim: ") && well.contains(" answers (200)\n"), "{well}");
    let text = fs::read_to_string(&file).expect("a file");
    // Port 9 is nobody's.
    fs::write(&file, text.replace(&world.model.url, "http://127.0.0.1:9")).expect("a file");
    let silent = fairgate(&["check", "--probe", &file]);
    assert!(silent.stdout.contains("does not answer: "), "{silent:?}");
    assert!(failed(silent).contains("not every upstream is well: sim"));
}

#[test]
fn an_upstream_that_refuses_the_credential_is_named_and_the_credential_is_not() {
    let options =
        SimOptions { api_key: Some(ApiKey::new("the-right-one")), ..SimOptions::instant() };
    let (folder, model) = (Folder::new(), Model::start(options));
    let text =
        one_pool(&model, "").replace("slots: 16", "slots: 16, credential: {file: credential}");
    let file = folder.join("fairgate.yaml");
    fs::write(&file, text).expect("a file");
    let probe = || fairgate(&["check", "--probe", &file.display().to_string()]);
    fs::write(folder.join("credential"), "the-wrong-one").expect("a file");
    let wrong = probe();
    assert!(
        wrong.stdout.contains("upstream     sim: ")
            && wrong.stdout.contains(" refuses the credential (401)\n"),
        "{wrong:?}"
    );
    assert!(!format!("{wrong:?}").contains("the-wrong-one"), "{wrong:?}");
    assert!(failed(wrong).contains("not every upstream is well: sim"));
    fs::write(folder.join("credential"), "the-right-one").expect("a file");
    let right = probe();
    assert!(right.ok().contains(" answers (200)\n"));
}

#[test]
fn of_two_gateways_on_one_database_the_later_reload_wins_and_both_say_so() {
    let runtime = Runtime::new().expect("a runtime");
    let database = runtime.block_on(shared_server().create_database()).expect("a database");
    let store = format!("store: {{ url: \"{}\" }}\n", shared_server().socket_url(&database));
    let (one, two) = (World::with_store(&store), World::with_store(&store));
    let first = Gateway::configured(&one.folder);
    let weight = |weight: u32| {
        declares(&[CHAT, BATCH], &[key("chat", CHAT_KEY), key("batch", BATCH_KEY)])
            .replace("weight: 300", &format!("weight: {weight}"))
    };
    // The same declarations are no conflict.
    let second = Gateway::configured(&two.folder);
    assert_eq!(second.chat(CHAT_KEY, "Hello").status, 200);
    assert!(!second.log().contains("the later reload wins"), "{}", second.log());

    two.write(&weight(7));
    second.fairgate(&["reload"]).ok();
    assert!(
        second.log().contains("this file replaces the groups, tenants and keys"),
        "{}",
        second.log()
    );
    until("the first gateway has noticed", || {
        first.log().contains("another gateway has declared other groups").then_some(())
    });
    let weights = |gateway: &Gateway| gateway.json(&["tenant", "list"])[1]["weight"].clone();
    assert_eq!((weights(&first), weights(&second)), (json!(7), json!(7)));
    // A change of a tenant that another gateway's file declares is refused here, too.
    let (status, code, _) = refused(&first, "PATCH", "/api/v1/tenants/chat", &json!({"weight": 5}));
    assert_eq!((status, &*code), (409, "declared_in_file"));

    first.fairgate(&["reload"]).ok();
    assert_eq!(weights(&first), json!(300));
    until("the second gateway has noticed", || {
        second.log().contains("another gateway has declared other groups").then_some(())
    });
}
