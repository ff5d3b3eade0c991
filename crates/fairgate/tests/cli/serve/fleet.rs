//! Tests of the fleet's commands, each with its own gateway.

use std::fs;
use std::io::Read;

use serde_json::{Value, json};

use super::http::ask;
use super::running::{Folder, Gateway};
use crate::run::file;

/// An agent that calls the API itself.
struct Agent<'a> {
    gateway: &'a Gateway,
    name: String,
    token: String,
}

impl<'a> Agent<'a> {
    /// Adds an agent that reports its usage itself.
    fn made(gateway: &'a Gateway, name: &str) -> Self {
        let made = gateway.json(&["agent", "add", name, "--reports-tokens"]);
        let token = made["token"].as_str().expect("a token").to_owned();
        Self { gateway, name: name.to_owned(), token }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("/api/v1/agents/{}/{path}", self.name);
        let answer = ask(&self.gateway.url, "POST", &path, &self.token, &body.to_string());
        let answer = answer.expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Claims the next task. Returns its name and the epoch of the claim.
    fn claims(&self) -> (String, u64) {
        let claim = self.post("claim", &json!({"wait_s": 10}));
        (
            claim["task"].as_str().expect("a task").to_owned(),
            claim["epoch"].as_u64().expect("a claim"),
        )
    }
}

/// Starts a gateway with a project `web` of weight 3.
fn with_project(folder: &Folder) -> Gateway {
    let gateway = Gateway::embedded(folder);
    gateway.fairgate(&["project", "add", "web", "--tenant", "demo", "--weight", "3"]).ok();
    gateway
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn projects_are_made_shown_changed_and_paused() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    let ok = |args: &[&str]| gateway.fairgate(args).ok();
    let args = [
        "project",
        "add",
        "web",
        "--tenant",
        "demo",
        "--weight",
        "2.5",
        "--concurrency",
        "4",
        "--agent-max",
        "claude=2,codex=1",
        "--budget",
        "1_000_000",
    ];
    let told = ok(&args);
    let lines: Vec<String> = told.lines().map(words).collect();
    assert_eq!(
        lines[0],
        "project tenant status weight agents due got used budget running ready tasks"
    );
    assert_eq!(lines[1], "web demo ACTIVE 2.5 4 (claude 2, codex 1) 100.0 % - 0 1000000 0 0 0");
    ok(&["project", "set", "web", "--budget", "none", "--exclusive", "--agent-max", ""]);
    let shown = ok(&["project", "show", "web"]);
    assert!(shown.starts_with("project web of tenant demo, weight 2.5: ACTIVE\n"), "{shown}");
    assert!(shown.contains("0 used in the window, 0 set aside, no budget"), "{shown}");
    assert!(shown.contains("0 working of at most 1 (exclusive)"), "{shown}");
    assert_eq!(ok(&["project", "pause", "web"]), "project web is PAUSED\n");
    assert_eq!(ok(&["project", "resume", "web"]), "project web is ACTIVE\n");
    assert_eq!(ok(&["project", "archive", "web"]), "project web is ARCHIVED\n");
    assert_eq!(gateway.json(&["project", "list"])[0]["status"], "ARCHIVED");
    let wrong = gateway.fairgate(&["project", "add", "api", "--tenant", "demo", "--weight", "0"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("0 is no weight"), "{}", wrong.stderr);
    let wrong = gateway.fairgate(&["project", "add", "api", "--tenant", "nobody"]);
    assert!(wrong.stderr.contains("there is no tenant \"nobody\" (not_found)"), "{}", wrong.stderr);
    let nothing = gateway.fairgate(&["project", "set", "web"]);
    assert!(nothing.stderr.contains("nothing to change"), "{}", nothing.stderr);
}

/// Tasks that use nothing at the gateway are shown, because they may have bypassed it.
#[test]
fn tasks_that_are_completed_without_a_call_are_told() {
    let folder = Folder::new();
    let gateway = with_project(&folder);
    for task in ["one", "two", "three"] {
        gateway.fairgate(&["task", "add", "--project", "web", "--id", task, "Do it."]).ok();
    }
    let made = gateway.json(&["agent", "add", "ada"]);
    let token = made["token"].as_str().expect("a token").to_owned();
    let agent = Agent { gateway: &gateway, name: "ada".to_owned(), token };
    let ends = |calls: bool| {
        let claim = agent.post("claim", &json!({"wait_s": 10}));
        if calls {
            assert_eq!(gateway.chat(claim["key"].as_str().expect("a key"), "Hello").status, 200);
        }
        let task = claim["task"].as_str().expect("a task");
        agent.post(&format!("tasks/{task}/complete"), &json!({"epoch": claim["epoch"]}));
    };
    ends(true);
    let told = gateway.fairgate(&["fleet"]).ok();
    assert!(!told.contains("without a call"), "{told}");
    let sentence = |tasks: &str| {
        format!("\nweb: {tasks} completed without a call through the gateway within the window\n")
    };
    ends(false);
    let told = gateway.fairgate(&["fleet"]).ok();
    assert!(told.contains(&sentence("1 task")), "{told}");
    ends(false);
    let told = gateway.fairgate(&["fleet"]).ok();
    assert!(told.contains(&sentence("2 tasks")), "{told}");
}

#[test]
fn a_file_of_tasks_is_tried_added_and_added_again() {
    let folder = Folder::new();
    let gateway = with_project(&folder);
    let text = "project: web\ntasks:\n  - id: docs\n    prompt: Write the page\n    needs: [api, ui]\n  \
                - id: api\n    prompt: |\n      Build the API\n      with tests\n  \
                - {id: ui, prompt: Build the page, needs: [api], priority: 50}\n";
    let tasks = file(text);
    let told = gateway.fairgate(&["task", "add", "-f", &tasks, "--dry-run"]).ok();
    let lines: Vec<String> = told.lines().map(words).collect();
    assert_eq!(
        lines,
        [
            "3 tasks would be made",
            "step task project state estimate needs title",
            "1 api web READY 20000 - Build the API",
            "2 ui web DEFINED 20000 api Build the page",
            "3 docs web DEFINED 20000 api, ui Write the page",
        ]
    );
    assert_eq!(gateway.json(&["task", "list"]), json!([]));
    let told = gateway.fairgate(&["task", "add", "-f", &tasks]).ok();
    assert!(told.starts_with("3 tasks are made\n"), "{told}");
    let told = gateway.fairgate(&["task", "add", "-f", &tasks]).ok();
    assert!(told.starts_with("0 tasks are made; 3 were there already\n"), "{told}");
    let shown = gateway.fairgate(&["task", "show", "api"]).ok();
    assert!(shown.starts_with("task api of project web: READY\nBuild the API\n"), "{shown}");
    assert!(
        shown.contains("\nneeded by   docs, ui\n") || shown.contains("\nneeded by   ui, docs\n"),
        "{shown}"
    );
    assert!(shown.contains("\nprompt:\n    Build the API\n    with tests\n"), "{shown}");
    let why = gateway.fairgate(&["task", "why", "docs"]).ok();
    assert!(why.lines().next().is_some_and(|sentence| sentence.contains("api")), "{why}");

    // What is wrong is told with its line: what can be seen here, and what only the gateway knows.
    let wrong = file("project: web\ntasks:\n  - {prompt: a, neds: [b]}\n");
    let run = gateway.fairgate(&["task", "add", "-f", &wrong]);
    assert!(
        run.stderr
            .starts_with(&format!("fairgate: {wrong}:3:17: tasks[0].neds: unknown field `neds`")),
        "{}",
        run.stderr
    );
    let wrong = file("project: web\ntasks:\n  - prompt: a\n    needs: [nothing]\n");
    let run = gateway.fairgate(&["task", "add", "-f", &wrong]);
    assert!(
        run.stderr.starts_with(&format!(
            "fairgate: {wrong}:4:13: tasks[0].needs[0]: there is no task \"nothing\""
        )),
        "{}",
        run.stderr
    );
    let circle = file(
        "project: web\ntasks:\n  - {id: x, prompt: a, needs: [y]}\n  - {id: y, prompt: a, needs: [x]}\n",
    );
    let run = gateway.fairgate(&["task", "add", "-f", &circle]);
    assert_eq!(run.status, 1);
    assert!(
        run.stderr.contains("wait for each other") && run.stderr.contains("(cycle)"),
        "{}",
        run.stderr
    );
    assert_eq!(gateway.json(&["task", "list"]).as_array().map(Vec::len), Some(3));
}

#[test]
fn a_task_is_followed_from_its_making_to_its_end() {
    let folder = Folder::new();
    let gateway = with_project(&folder);
    let ok = |args: &[&str]| gateway.fairgate(args).ok();
    let prompt = file("Fix the login\nand test it\n");
    let args = [
        "task",
        "add",
        "--project",
        "web",
        "--id",
        "fix",
        "--prompt-file",
        &prompt,
        "--estimate",
        "900",
    ];
    assert!(ok(&args).starts_with("1 task is made\n"));
    ok(&["task", "add", "--project", "web", "--id", "after", "--needs", "fix", "Then this"]);
    let agent = Agent::made(&gateway, "ada");
    let (task, epoch) = agent.claims();
    assert_eq!((task.as_str(), epoch), ("fix", 1));
    agent.post("tasks/fix/heartbeat", &json!({"epoch": 1, "progress": "reading", "tokens": 100}));
    agent.post("tasks/fix/log?epoch=1&first_byte=0", &json!("first"));
    assert_eq!(ok(&["task", "log", "fix"]), "\"first\"");
    let fleet = ok(&["fleet"]);
    assert!(fleet.contains("100 tokens used within 24 h, "), "{fleet}");
    assert!(fleet.contains("running\ntask  project  agent"), "{fleet}");
    assert!(fleet.contains("1 agent: 1 working, 0 free"), "{fleet}");
    let agents = ok(&["agent", "list"]);
    assert!(agents.contains("ada    default  ACTIVE") && agents.contains("fix"), "{agents}");

    agent.post("tasks/fix/ask", &json!({"epoch": 1, "question": "which one?"}));
    let shown = ok(&["task", "show", "fix"]);
    assert!(
        shown.contains("WAITING_INPUT") && shown.contains("question:\n    which one?"),
        "{shown}"
    );
    assert!(ok(&["task", "answer", "fix", "the first"]).starts_with("task fix is READY"));
    let paused = ok(&["task", "pause", "fix", "--until", "2h", "--reason", "lunch"]);
    assert!(
        paused.starts_with("task fix is PAUSED (")
            && paused.contains("lunch")
            && paused.contains("not before 20"),
        "{paused}"
    );
    assert!(paused.ends_with("these cannot start before it: after\n"), "{paused}");
    ok(&["task", "resume", "fix"]);
    let set = ok(&["task", "set", "fix", "--priority", "-3", "--title", "Login"]);
    assert!(set.contains("  -3  ") && set.contains("Login"), "{set}");
    let (task, epoch) = agent.claims();
    assert_eq!((task.as_str(), epoch), ("fix", 2));
    let refused = gateway.fairgate(&["task", "skip", "fix"]);
    assert!(refused.stderr.contains("(illegal_transition)"), "{}", refused.stderr);
    agent.post("tasks/fix/log?epoch=2&first_byte=0", &json!("second"));

    // Who follows sees what comes until the end.
    let mut follow = gateway.command(&["task", "log", "fix", "-f"]).spawn().expect("it runs");
    agent.post("tasks/fix/complete", &json!({"epoch": 2, "result": "done", "tokens": 400}));
    let mut text = String::new();
    follow.stdout.take().expect("it is piped").read_to_string(&mut text).expect("text");
    assert!(follow.wait().expect("it ends").success());
    assert_eq!(text, "\"second\"");
    assert_eq!(ok(&["task", "log", "fix", "--epoch", "1"]), "\"first\"");
    let shown = ok(&["task", "show", "fix"]);
    assert!(shown.contains("result:\n    done") && shown.contains("500 used"), "{shown}");
    assert!(
        ok(&["task", "cancel", "after", "--reason", "no need"]).starts_with("task after is FAILED")
    );
    let listed = gateway.json(&["task", "list", "--state", "completed,FAILED", "--project", "web"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    assert!(ok(&["task", "restart", "after"]).starts_with("task after is READY"));
}

#[test]
fn agents_and_workspaces_come_and_go() {
    let folder = Folder::new();
    let gateway = with_project(&folder);
    let ok = |args: &[&str]| gateway.fairgate(args).ok();
    let made = ok(&["agent", "add", "ada", "--type", "claude"]);
    let token = made.lines().find(|line| line.starts_with("fga-")).expect("a token is shown");
    assert!(made.ends_with("This is its token. It is shown this once.\n"), "{made}");
    assert!(!ok(&["agent", "list"]).contains(token));
    let rotated = ok(&["agent", "rotate", "ada"]);
    assert!(rotated.contains("fga-") && !rotated.contains(token), "{rotated}");
    assert_eq!(ok(&["agent", "pause", "ada"]), "agent ada is PAUSED\n");
    assert_eq!(ok(&["agent", "resume", "ada"]), "agent ada is ACTIVE\n");
    assert_eq!(ok(&["agent", "retire", "ada"]), "agent ada is RETIRED\n");
    let back = gateway.fairgate(&["agent", "resume", "ada"]);
    assert!(back.stderr.contains("RETIRED for good"), "{}", back.stderr);

    let added = ok(&["workspace", "add", "w1", "--project", "web", "--path", "/src/web"]);
    assert_eq!(words(added.lines().nth(1).unwrap_or_default()), "w1 web /src/web any - -");
    assert_eq!(gateway.json(&["workspace", "list", "--project", "web"])[0]["id"], "w1");
    assert_eq!(ok(&["workspace", "remove", "w1"]), "workspace w1 is removed\n");
}

#[test]
fn the_fleet_goes_on_as_one_object_a_line() {
    let folder = Folder::new();
    let gateway = with_project(&folder);
    let mut fleet = gateway.command(&["fleet", "--every", "1", "--json"]).spawn().expect("it runs");
    let mut out = fleet.stdout.take().expect("it is piped");
    let mut text = String::new();
    while text.matches('\n').count() < 2 {
        let mut piece = [0; 4096];
        let read = out.read(&mut piece).expect("it can be read");
        assert!(read > 0, "it goes on");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    fleet.kill().expect("it runs");
    fleet.wait().expect("it ends");
    for line in text.lines().take(2) {
        let seen: Value = serde_json::from_str(line).expect("one object a line");
        assert_eq!(seen["projects"][0]["id"], "web");
    }
    let told = gateway.fairgate(&["fleet"]).ok();
    assert!(told.contains("no agent yet"), "{told}");
    assert!(fs::read_to_string(&gateway.token_file).is_ok());
}
