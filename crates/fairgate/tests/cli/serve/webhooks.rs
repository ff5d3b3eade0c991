//! Tests of the command `fairgate webhook`, and of the documented receiver, which is run as it is
//! printed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use super::http::ask;
use super::running::{Folder, Gateway, Model, one_pool, until};
use crate::run::{command, example};

const SECRET: &str = "a-secret-of-the-webhook";

/// The documented receiver, which ends with the test.
struct Receiver {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    port: String,
}

impl Receiver {
    fn start() -> Self {
        let mut process = Command::new("python3")
            .arg(example("fleet/webhook_receiver.py"))
            .arg("0")
            .env("FAIRGATE_WEBHOOK_SECRET", SECRET)
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs the receiver");
        let mut output = BufReader::new(process.stdout.take().expect("its output"));
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        let port = line.trim().rsplit(' ').next().expect("a port").to_owned();
        Self { process, output, port }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start(folder: &Folder, model: &Model, port: &str, secret: &str) -> Gateway {
    let webhooks = format!(
        "fleet:\n  webhooks:\n    - {{ name: ops, url: \"http://127.0.0.1:{port}/\", secret: {{ env: WEBHOOK_SECRET }} }}\n"
    );
    fs::write(folder.join("fairgate.yaml"), one_pool(model, &webhooks)).expect("a file");
    let file = folder.join("fairgate.yaml").display().to_string();
    let mut serve = command(&["serve", "--config", &file]);
    serve.env("WEBHOOK_SECRET", secret);
    Gateway::start(folder, serve)
}

#[test]
fn the_receiver_of_the_documentation_is_told_of_a_question() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fleet.md");
    let page = fs::read_to_string(page).expect("the page");
    let shown = fs::read_to_string(example("fleet/webhook_receiver.py")).expect("the example");
    assert!(page.contains(&format!("```python\n{shown}```")), "the page has the example as it is");
    let (mut receiver, model, folder) =
        (Receiver::start(), Model::start(Default::default()), Folder::new());
    let gateway = start(&folder, &model, &receiver.port, SECRET);
    let told = gateway.fairgate(&["webhook", "test", "ops"]).ok();
    assert!(
        told.starts_with("webhook ops took evt-") && told.contains("and answered 204"),
        "{told}"
    );
    assert_eq!(receiver.line(), "test");
    for args in [
        &["group", "add", "people"][..],
        &["tenant", "add", "demo", "--group", "people", "--requires", "docker"],
        &["project", "add", "web", "--tenant", "demo"],
        &["task", "add", "--project", "web", "--id", "one", "do it"],
    ] {
        gateway.fairgate(args).ok();
    }
    let made = gateway.json(&["agent", "add", "ada", "--labels", "docker"]);
    let token = made["token"].as_str().expect("a token");
    let post = |path: &str, body: serde_json::Value| {
        let path = format!("/api/v1/agents/ada/{path}");
        ask(&gateway.url, "POST", &path, token, &body.to_string()).expect("an answer").json()
    };
    let epoch = post("claim", json!({"wait_s": 10}))["epoch"].clone();
    post("tasks/one/ask", json!({"epoch": epoch, "question": "Which?"}));
    assert_eq!(receiver.line(), "question one");
    let list = until("it is counted", || {
        let list = gateway.json(&["webhook", "list"]);
        (list[0]["delivered"] == 1).then_some(list)
    });
    assert_eq!((&list[0]["name"], &list[0]["pending"]), (&json!("ops"), &json!(0)));
    assert!(gateway.fairgate(&["webhook", "events", "ops"]).ok().starts_with("event"));
}

#[test]
fn a_receiver_with_another_secret_refuses_and_that_is_said() {
    let (receiver, model, folder) =
        (Receiver::start(), Model::start(Default::default()), Folder::new());
    let gateway = start(&folder, &model, &receiver.port, "not-the-secret-of-the-webhook");
    let error = gateway.fairgate(&["webhook", "test", "ops"]).stderr;
    assert!(error.contains("did not take evt-") && error.contains("401 Unauthorized"), "{error}");
    let unknown = gateway.fairgate(&["webhook", "events", "none"]).stderr;
    assert!(unknown.contains("there is no webhook \"none\""), "{unknown}");
}
