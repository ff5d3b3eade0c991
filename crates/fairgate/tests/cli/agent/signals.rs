//! Tests of stopping and killing `agent run`.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::fake::Fake;
use super::started::{Agent, is_alive, until};
use crate::serve::Folder;

/// Starts a command that waits, and returns its process id.
fn staying(fake: &Fake, folder: &Folder, options: &[&str], before: &str) -> (Agent, String) {
    fake.task(json!({}));
    let pid = folder.join("pid");
    let script = format!(
        "{before} echo $$ >{0}.new && mv {0}.new {0}; while :; do sleep 0.1; done",
        pid.display()
    );
    let agent = Agent::start(fake, options, &script);
    let pid = until("it started", || fs::read_to_string(&pid).ok());
    (agent, pid.trim().to_owned())
}

#[test]
fn told_to_stop_it_ends_the_command_and_gives_the_task_back() {
    for signal in ["TERM", "INT", "HUP"] {
        let (fake, folder) = (Fake::start(), Folder::new());
        let (agent, pid) = staying(&fake, &folder, &[], "");
        agent.signal(signal);
        let ended = agent.ended();
        assert!(ended.status.success(), "{ended:?}");
        assert!(!is_alive(&pid));
        let given_back = json!({"epoch": 1, "reason": "agent run was told to stop"});
        assert_eq!(fake.said("release"), [given_back]);
    }
}

#[test]
fn told_twice_it_kills_at_once() {
    let (fake, folder) = (Fake::start(), Folder::new());
    let (agent, pid) = staying(&fake, &folder, &["--grace", "600"], "trap '' TERM;");
    let start = Instant::now();
    agent.signal("TERM");
    until("it listens", || {
        agent.signal("TERM");
        (!is_alive(&pid)).then_some(())
    });
    assert!(agent.ended().status.success());
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(fake.said("release").len(), 1);
}

#[test]
fn told_while_it_waits_for_a_task_it_ends_at_once() {
    let fake = Fake::start();
    let agent = Agent::start(&fake, &[], "true");
    std::thread::sleep(Duration::from_millis(500));
    agent.signal("TERM");
    assert!(agent.ended().status.success());
}

#[test]
fn killed_it_takes_its_command_with_it() {
    let (fake, folder) = (Fake::start(), Folder::new());
    let (agent, pid) = staying(&fake, &folder, &["--grace", "1"], "trap '' TERM;");
    until("it was begun", || (!fake.said("heartbeat").is_empty()).then_some(()));
    agent.signal("KILL");
    until("the guard ends the command", || (!is_alive(&pid)).then_some(()));
}
