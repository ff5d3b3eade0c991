//! Tests of lost leases, and of a gateway that is unreachable.

use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::json;

use super::fake::Fake;
use super::started::{Agent, is_alive, until};
use crate::serve::Folder;

/// Returns a script that writes its own process id and that of a child, and then waits.
fn stays(folder: &Folder, before: &str) -> String {
    let path = folder.join("pids");
    format!("{before} sleep 300 & echo $$ $! >{0}.new && mv {0}.new {0}; wait", path.display())
}

fn pids(folder: &Folder) -> Vec<String> {
    let text = until("it started", || fs::read_to_string(folder.join("pids")).ok());
    text.split_whitespace().map(str::to_owned).collect()
}

fn all_gone(pids: &[String]) {
    until("the whole group is ended", || pids.iter().all(|pid| !is_alive(pid)).then_some(()));
}

#[test]
fn a_lost_lease_ends_the_whole_group_and_the_next_task_is_claimed() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.task(json!({}));
    let script =
        format!("if [ $FAIRGATE_TASK = t-2 ]; then echo two; else {}; fi", stays(&folder, ""));
    let agent = Agent::start(&fake, &["--max-tasks", "2"], &script);
    let pids = pids(&folder);
    assert_eq!(pids.len(), 2);
    fake.task(json!({"task": "t-2", "epoch": 7}));
    fake.state().lost = true;
    let ended = agent.ended();
    assert!(ended.status.success(), "{ended:?}");
    all_gone(&pids);
    assert!(ended.stderr.contains("task t-1 is abandoned"), "{ended:?}");
    assert!(ended.stderr.contains("it was cancelled"), "{ended:?}");
    assert_eq!(fake.said("complete"), [json!({"epoch": 7, "result": "two"})]);
    assert!(fake.said("fail").is_empty() && fake.said("release").is_empty());
}

#[test]
fn one_that_ignores_sigterm_is_killed_when_the_grace_is_over() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.task(json!({}));
    let script = stays(&folder, "trap '' TERM;");
    let agent = Agent::start(&fake, &["--once", "--grace", "1"], &script);
    let pids = pids(&folder);
    fake.state().lost = true;
    assert!(agent.ended().status.success());
    all_gone(&pids);
}

#[test]
fn a_gateway_that_is_away_for_less_than_a_lease_does_no_harm() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.state().lease = Duration::from_secs(20);
    fake.task(json!({}));
    let script = format!(
        "echo before; while [ ! -e {0}/back ]; do echo during; sleep 0.1; done; echo after",
        folder.path().display()
    );
    let agent = Agent::start(&fake, &["--once"], &script);
    until("the log begins", || fake.log().contains("before").then_some(()));
    fake.state().away = true;
    thread::sleep(Duration::from_millis(1500));
    fs::write(folder.join("back"), "").expect("a file");
    thread::sleep(Duration::from_millis(1500));
    assert!(fake.said("complete").is_empty());
    fake.state().away = false;
    let ended = agent.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fake.said("complete").len(), 1);
    assert_eq!(fake.log(), ended.stdout, "no byte is missing, none came twice");
    assert!(ended.stderr.contains("trying again"), "{ended:?}");
}

#[test]
fn a_command_ends_when_its_lease_runs_out_unanswered() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.state().lease = Duration::from_secs(2);
    fake.task(json!({}));
    let agent = Agent::start(&fake, &["--once"], &stays(&folder, ""));
    let pids = pids(&folder);
    until("it was begun", || (!fake.said("heartbeat").is_empty()).then_some(()));
    let start = Instant::now();
    fake.state().away = true;
    let ended = agent.ended();
    assert!(start.elapsed() < Duration::from_secs(10), "a lease is 2 s");
    assert!(ended.status.success(), "{ended:?}");
    all_gone(&pids);
    assert!(ended.stderr.contains("the lease ran out while the gateway was away"), "{ended:?}");
}

#[test]
fn a_database_that_is_away_for_longer_than_a_lease_does_no_harm() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.state().lease = Duration::from_secs(2);
    fake.task(json!({}));
    let script =
        format!("until [ -e {0}/back ]; do sleep 0.05; done; echo done", folder.path().display());
    let agent = Agent::start(&fake, &["--once"], &script);
    until("it was begun", || (!fake.said("heartbeat").is_empty()).then_some(()));
    fake.state().store_away = true;
    thread::sleep(Duration::from_secs(4));
    fake.state().store_away = false;
    fs::write(folder.join("back"), "").expect("a file");
    let ended = agent.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fake.said("complete"), [json!({"epoch": 1, "result": "done"})]);
    assert!(!ended.stderr.contains("abandoned"), "{ended:?}");
}

#[test]
fn a_gateway_whose_clock_is_wrong_is_understood() {
    let fake = Fake::start();
    fake.state().behind_s = 1_000_000;
    fake.task(json!({}));
    // Longer than a lease.
    let ended = Agent::start(&fake, &["--once"], "sleep 5; echo done").ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fake.said("complete").len(), 1, "{ended:?}");
}

#[test]
fn the_end_is_reported_when_the_gateway_is_back_and_only_once() {
    let fake = Fake::start();
    fake.task(json!({}));
    for _ in 0..2 {
        let busy = json!({"error": {"code": "store_unavailable", "message": "not now"}});
        fake.state().refusals.push_back((503, busy));
    }
    let ended = Agent::start(&fake, &["--once"], "echo x").ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!((fake.said("refused complete").len(), fake.said("complete").len()), (2, 1));
    assert!(ended.stderr.contains("cannot be reported now (not now); trying again"), "{ended:?}");
}

#[test]
fn an_end_that_comes_too_late_is_said_and_forgotten() {
    let fake = Fake::start();
    fake.task(json!({"heartbeat_s": 60}));
    fake.state().lease = Duration::from_secs(600);
    let lost = json!({"error": {"code": "lease_lost", "message": "agent \"b\" holds it"}});
    fake.state().refusals.push_back((409, lost));
    let ended = Agent::start(&fake, &["--once"], "echo x").ended();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("came too late: agent \"b\" holds it"), "{ended:?}");
}
