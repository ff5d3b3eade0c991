//! Tests of the shell script of docs/agents.md, as it is printed there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use fairgate_sim::SimOptions;
use serde_json::Value;

use super::{Fleet, Runner, with_tenant};
use crate::run::command;
use crate::serve::running::{Folder, Gateway, Model, one_pool};

/// Returns the script of the page.
fn script_of_page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
    let page = fs::read_to_string(page).expect("there is a page");
    let section = page.split("\n### ").find(|part| part.starts_with("A shell script"));
    let script = section.expect("the section").split("```sh\n").nth(1).expect("a script");
    script.split("```").next().unwrap_or_default().to_owned()
}

/// Returns the script that docs/fleet.md names.
fn script_of_fleet() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet/work.sh");
    fs::read_to_string(script).expect("there is a script")
}

fn write_script(folder: &Folder, script: &str) {
    assert!(script.starts_with("#!/bin/sh\n"), "{script}");
    let file = folder.join("work.sh");
    fs::write(&file, script).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

fn run(fleet: &Fleet, folder: &Folder) -> Runner {
    let mut run = command(&["agent", "run", "--url", &fleet.gateway.url, "--name", "a-1"]);
    run.args(["--", "./work.sh"])
        .env("FAIRGATE_AGENT_TOKEN", &fleet.token)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Runner(run.spawn().expect("it starts"))
}

/// Starts a fleet with a simulated model, and a script in its folder. The gateway serves one model
/// with the name `served`.
fn fleet(folder: &Folder, script: &str, served: &str, model: &Model) -> Fleet {
    write_script(folder, script);
    let config = one_pool(model, "").replace("models: [sim]", &format!("models: [{served}]"));
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    with_tenant(Gateway::configured(folder))
}

#[test]
fn the_script_of_the_page_completes_its_task() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::instant()));
    let fleet = fleet(&folder, &script_of_page(), "sim", &model);
    fleet.add("one");
    let _agent = run(&fleet, &folder);
    let done = fleet.until("one", "COMPLETED");
    assert_eq!((&done["calls"], &done["retries"]), (&1.into(), &0.into()), "{done}");
    let result = done["result"].as_str().expect("a result");
    assert!(result.split_whitespace().count() > 5, "it is the model's answer: {result}");
}

/// A pipe has the status of its last command. So the page's script once completed tasks with the
/// result `null`.
#[test]
fn a_script_of_the_pages_fails_its_task_if_the_gateway_answers_404() {
    let model = Model::start(SimOptions::instant());
    for script in [script_of_page(), script_of_fleet()] {
        let folder = Folder::new();
        let fleet = fleet(&folder, &script, "another", &model);
        fleet.add("one");
        let _agent = run(&fleet, &folder);
        let failed = fleet.until("one", "PAUSED");
        assert_eq!((&failed["retries"], &failed["result"]), (&1.into(), &Value::Null), "{failed}");
        let log = fleet.gateway.fairgate(&["task", "log", "one"]).ok();
        assert!(log.contains("404"), "{log}");
    }
}
