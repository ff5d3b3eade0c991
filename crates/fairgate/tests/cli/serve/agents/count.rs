//! Tests of `fairgate agent run --count`: several agents in one process, each with its own name,
//! task and lease.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, ExitStatus, Stdio};

use super::{Fleet, Runner};
use crate::run::{command, finished};
use crate::serve::running::{Folder, Gateway, until};

/// Three agents that were added together.
struct Team {
    fleet: Fleet,
    tokens: String,
}

impl Team {
    fn new(folder: &Folder) -> Self {
        let fleet = Fleet::new(Gateway::embedded(folder));
        let set = ["project", "set", "web", "--concurrency", "8"];
        fleet.gateway.fairgate(&set).ok();
        let told = fleet.gateway.fairgate(&["agent", "add", "ada", "--count", "3"]).ok();
        let tokens: Vec<&str> = told.lines().filter(|line| line.starts_with("fga-")).collect();
        assert_eq!(tokens.len(), 3, "{told}");
        assert!(told.ends_with("in this order. They are shown this once.\n"), "{told}");
        Self { tokens: tokens.join("\n"), fleet }
    }

    fn command(&self, folder: &Folder, options: &[&str], script: &str) -> Command {
        let url = &self.fleet.gateway.url;
        let mut run = command(&["agent", "run", "--url", url, "--name", "ada", "--grace", "2"]);
        run.args(options)
            .args(["--", "bash", "-c", script])
            .env("FAIRGATE_AGENT_TOKEN", &self.tokens)
            .current_dir(folder.path())
            .stdin(Stdio::null());
        run
    }

    fn run(&self, folder: &Folder, script: &str) -> Runner {
        let file = |name: &str| fs::File::create(folder.join(name)).expect("a file");
        let mut run = self.command(folder, &["--count", "3"], script);
        Runner(run.stdout(file("out")).stderr(file("err")).spawn().expect("it starts"))
    }

    /// Waits until this number of commands run. Each command has written a file.
    fn until_begun(folder: &Folder, count: usize) {
        until("all commands run", || {
            let files = fs::read_dir(folder.path()).expect("a folder").flatten();
            let begun = files.filter(|file| file.file_name().to_string_lossy().starts_with("b-"));
            (begun.count() == count).then_some(())
        });
    }
}

fn read(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.join(name)).expect("it was written")
}

fn ended(mut runner: Runner) -> ExitStatus {
    until("it ends", || runner.0.try_wait().expect("it is ours"))
}

/// Script that writes a file, prints its agent and task, and waits until the file `go` exists.
const WAITS: &str = "touch b-$FAIRGATE_TASK; echo $FAIRGATE_AGENT has $FAIRGATE_TASK; \
    echo to stderr >&2; until [ -e go ]; do sleep 0.05; done; printf 'no line end'";

#[test]
fn several_agents_in_one_process_work_at_once_and_each_line_names_its_agent() {
    let (folder, work) = (Folder::new(), Folder::new());
    let team = Team::new(&folder);
    let tasks = ["t-1", "t-2", "t-3"];
    tasks.iter().for_each(|id| team.fleet.add(id));
    let runner = team.run(&work, WAITS);
    Team::until_begun(&work, 3);
    fs::write(work.join("go"), "").expect("a file");
    let mut agents = BTreeSet::new();
    let mut lines = BTreeSet::new();
    for id in tasks {
        let done = team.fleet.until(id, "COMPLETED");
        let agent = done["agent"].as_str().expect("an agent").to_owned();
        assert_eq!(done["result"], format!("{agent} has {id}\nno line end"), "{done}");
        let log = team.fleet.gateway.fairgate(&["task", "log", id]).ok();
        assert!(!log.contains('['), "the log has no prefix: {log}");
        lines.extend([format!("[{agent}] {agent} has {id}"), format!("[{agent}] no line end")]);
        agents.insert(agent);
    }
    assert_eq!(agents, ["ada-1", "ada-2", "ada-3"].map(str::to_owned).into());
    runner.signal("TERM");
    assert!(ended(runner).success());
    let out = read(&work, "out");
    assert_eq!(out.lines().map(str::to_owned).collect::<BTreeSet<_>>(), lines, "{out}");
    let err = read(&work, "err");
    for agent in agents {
        assert!(err.contains(&format!("[{agent}] to stderr\n")), "{err}");
        assert!(err.contains(&format!("fairgate: [{agent}] task t-")), "{err}");
    }
}

#[test]
fn a_signal_ends_all_agents_and_every_task_is_given_back() {
    let (folder, work) = (Folder::new(), Folder::new());
    let team = Team::new(&folder);
    let tasks = ["t-1", "t-2", "t-3"];
    tasks.iter().for_each(|id| team.fleet.add(id));
    let runner = team.run(&work, "echo $$ >b-$FAIRGATE_TASK; while :; do sleep 0.1; done");
    Team::until_begun(&work, 3);
    runner.signal("TERM");
    assert!(ended(runner).success(), "{}", read(&work, "err"));
    for id in tasks {
        let task = team.fleet.task(id);
        assert_eq!((&task["state"], &task["retries"]), (&"READY".into(), &0.into()), "{task}");
        let gone = format!("/proc/{}", read(&work, &format!("b-{id}")).trim());
        assert!(!fs::exists(gone).unwrap_or(true), "its command has ended");
    }
}

#[test]
fn one_agent_that_cannot_continue_is_reported_and_the_others_go_on() {
    let (folder, work) = (Folder::new(), Folder::new());
    let team = Team::new(&folder);
    team.fleet.gateway.fairgate(&["agent", "rotate", "ada-2"]).ok();
    let runner = team.run(&work, WAITS);
    fs::write(work.join("go"), "").expect("a file");
    until("it is said", || {
        let err = fs::read_to_string(work.join("err")).ok()?;
        err.contains("; 2 other agents go on\n").then_some(())
    });
    let err = read(&work, "err");
    let said = "fairgate: [ada-2] this agent ends: the gateway at";
    assert!(err.contains(said), "{err}");
    assert!(team.tokens.lines().all(|token| !err.contains(token)), "{err}");
    for id in ["t-1", "t-2", "t-3"] {
        team.fleet.add(id);
        assert_ne!(team.fleet.until(id, "COMPLETED")["agent"], "ada-2");
    }
    runner.signal("TERM");
    assert_eq!(ended(runner).code(), Some(1), "it is no success");
    let err = read(&work, "err");
    assert!(err.ends_with("fairgate: 1 of 3 agents could not continue: ada-2\n"), "{err}");
}

#[test]
fn a_lost_task_of_one_agent_does_not_disturb_the_others() {
    let (folder, work) = (Folder::new(), Folder::new());
    let team = Team::new(&folder);
    team.fleet.add("t-1");
    team.fleet.add("t-2");
    let _runner = team.run(&work, WAITS);
    Team::until_begun(&work, 2);
    team.fleet.gateway.fairgate(&["task", "cancel", "t-1", "--reason", "not needed"]).ok();
    team.fleet.add("t-3");
    Team::until_begun(&work, 3);
    fs::write(work.join("go"), "").expect("a file");
    for id in ["t-2", "t-3"] {
        let done = team.fleet.until(id, "COMPLETED");
        assert_eq!((&done["epoch"], &done["retries"]), (&1.into(), &0.into()), "{done}");
    }
    assert_eq!(team.fleet.task("t-1")["state"], "FAILED");
}

#[test]
fn each_agent_ends_after_its_number_of_tasks() {
    let (folder, work) = (Folder::new(), Folder::new());
    let team = Team::new(&folder);
    let tasks = ["t-1", "t-2", "t-3", "t-4"];
    tasks.iter().for_each(|id| team.fleet.add(id));
    let run = team.command(&work, &["--count", "3", "--once"], "true").output();
    let run = finished(run.expect("it runs"));
    assert_eq!(run.status, 0, "{}", run.stderr);
    let left = team.fleet.gateway.json(&["task", "list", "--state", "READY"]);
    assert_eq!(left.as_array().map(Vec::len), Some(1), "{left}");
}

#[test]
fn a_wrong_number_of_tokens_is_refused_before_a_task_is_claimed() {
    let (folder, work) = (Folder::new(), Folder::new());
    let team = Team::new(&folder);
    team.fleet.add("t-1");
    let run = team.command(&work, &["--count", "2"], "true").output().expect("it runs");
    let run = finished(run);
    assert_eq!(run.status, 1);
    let said = "--count 2 needs 2 tokens in FAIRGATE_AGENT_TOKEN, not 3: `fairgate agent add ada --count 2` prints them";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    assert_eq!(team.fleet.task("t-1")["epoch"], 0);
}

#[test]
fn tokens_of_agents_that_were_added_are_shown_although_a_later_one_cannot_be() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    gateway.fairgate(&["agent", "add", "bob-2"]).ok();
    let run = gateway.fairgate(&["agent", "add", "bob", "--count", "3"]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("bob-2"), "{}", run.stderr);
    let tokens = run.stdout.lines().filter(|line| line.starts_with("fga-"));
    assert_eq!(tokens.count(), 1, "{}", run.stdout);
    let made = gateway.json(&["agent", "add", "cleo", "--count", "2", "--type", "codex"]);
    let ids: Vec<&str> = made
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|it| it["agent"]["id"].as_str())
        .collect();
    assert_eq!(ids, ["cleo-1", "cleo-2"]);
    assert_eq!(made[1]["agent"]["type"], "codex");
}
