//! Tests of the ends of commands, and of their effect on the tasks.

use std::process::Command;

use serde_json::json;

use super::fake::{Fake, TOKEN};
use super::started::{Agent, agent_run, is_alive, once, until};
use crate::run::{command, finished};
use crate::serve::Folder;

/// Runs a command that must fail with this error.
fn fails(mut run: Command, why: &str) {
    let ended = finished(run.output().expect("it runs"));
    assert_eq!(ended.status, 1, "{ended:?}");
    assert!(ended.stderr.contains(why), "{ended:?}");
}

#[test]
fn a_command_finds_its_task_and_completes_it() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.task(json!({
        "prompt": "write a poem\n", "question": "on what?", "answer": "tides", "workspace": "w-1",
        "workspace_path": folder.path(),
    }));
    let ended = once(
        &fake,
        "cat >prompt; env >env; pwd; echo done; printf 'a poem\\n' >$FAIRGATE_RESULT_FILE",
    );
    assert!(ended.status.success(), "{ended:?}");
    let done = fake.said("complete");
    assert_eq!(done, [json!({"epoch": 1, "result": "a poem"})]);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("it was written");
    assert_eq!(read("prompt"), "write a poem\n\nYou asked: on what?\nThe answer: tides\n");
    let env = read("env");
    let has = |line: &str| assert!(env.lines().any(|there| there == line), "{line} in {env}");
    has("FAIRGATE_TASK=t-1");
    has("FAIRGATE_PROJECT=p");
    has("FAIRGATE_EPOCH=1");
    has("FAIRGATE_TITLE=a title");
    has("FAIRGATE_ANSWER=tides");
    has("FAIRGATE_WORKSPACE=w-1");
    has(&format!("OPENAI_BASE_URL={}/v1", fake.url));
    has(&format!("ANTHROPIC_BASE_URL={}", fake.url));
    has("OPENAI_API_KEY=fgt-0123456789-the-tasks-key");
    has("ANTHROPIC_API_KEY=fgt-0123456789-the-tasks-key");
    assert!(!env.contains(TOKEN) && !env.contains("an-admin-token"), "{env}");
    let place = folder.path().canonicalize().expect("it is there");
    assert_eq!(fake.log(), format!("{}\ndone\n", place.display()));
    assert!(!fake.said("heartbeat").is_empty(), "the work was begun");
}

#[test]
fn the_last_lines_are_the_result_where_none_was_written() {
    let fake = Fake::start();
    fake.task(json!({}));
    let ended = once(&fake, "cat; echo to stderr >&2; seq 100");
    assert!(ended.status.success(), "{ended:?}");
    let result = fake.said("complete")[0]["result"].as_str().expect("a result").to_owned();
    assert!(result.starts_with("61\n") && result.ends_with("\n100"), "{result}");
    assert!(ended.stdout.starts_with("do it\n1\n"), "{ended:?}");
    assert!(ended.stderr.contains("to stderr\n"), "{ended:?}");
    assert!(fake.log().contains("to stderr\n"));
}

#[test]
fn other_exits_say_what_became_of_it() {
    let fake = Fake::start();
    for (place, script) in [
        "echo broken >&2; exit 3",
        "printf '90\\nthe quota is used up' >$FAIRGATE_RESULT_FILE; exit 75",
        "echo 'which colour?' >$FAIRGATE_RESULT_FILE; exit 77",
        "kill -9 $$",
    ]
    .into_iter()
    .enumerate()
    {
        fake.task(json!({"epoch": place + 1}));
        let ended = once(&fake, script);
        assert!(ended.status.success(), "{ended:?}");
    }
    let failed = fake.said("fail");
    let reason = |place: usize| failed[place]["reason"].as_str().unwrap_or_default().to_owned();
    assert_eq!(reason(0), "the command exited with status 3; it printed last:\nbroken");
    assert_eq!(failed[0].get("limited_until"), None);
    assert_eq!(reason(1), "the quota is used up");
    let until = failed[1]["limited_until"].as_u64().expect("a moment") / 1_000_000;
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    assert!((now + 80..now + 95).contains(&until), "{until} at {now}");
    assert_eq!(reason(2), "the command was killed by signal 9 and printed nothing");
    assert_eq!(fake.said("ask"), [json!({"epoch": 3, "question": "which colour?"})]);
}

#[test]
fn a_large_prompt_is_whole_on_standard_input_and_in_its_file() {
    let fake = Fake::start();
    fake.task(json!({"prompt": "x".repeat(1 << 20)}));
    let script = "cat | wc -c; wc -c <$FAIRGATE_PROMPT_FILE; echo ${FAIRGATE_PROMPT-none}";
    assert!(once(&fake, script).status.success());
    assert_eq!(fake.said("complete")[0]["result"], "1048576\n1048576\nnone");
}

/// Invalid output of a command must not end the agent. Otherwise its task would go from agent to
/// agent and end them all.
#[test]
fn numbers_that_the_gateway_would_refuse_are_not_sent() {
    let fake = Fake::start();
    fake.task(json!({"key": null}));
    let script =
        "echo 18446744073709551615 | tee $FAIRGATE_TOKENS_FILE >$FAIRGATE_RESULT_FILE; exit 75";
    assert!(once(&fake, script).status.success());
    let failed = fake.said("fail");
    assert_eq!(failed[0]["tokens"], 1_000_000_000_000_u64);
    let until = failed[0]["limited_until"].as_u64().expect("a moment") / 1_000_000;
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    assert!((now + 86_400..now + 31 * 86_400).contains(&until), "{until} at {now}");
    // Where one is refused after all, the task fails.
    fake.task(json!({"epoch": 2, "key": null}));
    let refusal = json!({"error": {"code": "invalid", "message": "limited_until: is no moment"}});
    fake.state().refusals.push_back((422, refusal));
    let ended = once(&fake, "echo 5 >$FAIRGATE_RESULT_FILE; exit 75");
    assert!(ended.status.success(), "{ended:?}");
    let reason =
        "the gateway did not take the command's result: limited_until: is no moment (invalid)";
    assert_eq!(fake.said("fail")[1], json!({"epoch": 2, "reason": reason}));
}

#[test]
fn one_that_reports_its_tokens_is_heard() {
    let fake = Fake::start();
    fake.task(json!({"key": null}));
    let ended = once(&fake, "echo 1234 >$FAIRGATE_TOKENS_FILE; echo ${OPENAI_API_KEY-none}");
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(fake.said("complete"), [json!({"epoch": 1, "result": "none", "tokens": 1234})]);
}

#[test]
fn what_a_command_leaves_running_is_ended_with_it() {
    let fake = Fake::start();
    fake.task(json!({}));
    let start = std::time::Instant::now();
    assert!(once(&fake, "sleep 300 & echo $!").status.success());
    assert!(start.elapsed().as_secs() < 20, "nobody waited for it");
    let pid = fake.said("complete")[0]["result"].as_str().expect("a number").to_owned();
    assert!(!is_alive(&pid));
}

#[test]
fn a_command_that_is_not_there_harms_no_task() {
    let fake = Fake::start();
    fake.task(json!({}));
    let mut run = command(&["agent", "run", "--url", &fake.url, "--name", "a-1"]);
    run.args(["--", "./no-such-command"]).env("FAIRGATE_AGENT_TOKEN", TOKEN);
    fails(run, "./no-such-command cannot be started");
    assert_eq!(fake.said("release").len(), 1);
    assert!(fake.said("fail").is_empty());
}

/// `./work.sh` is looked up in the folder where the user ran the command, although the script runs
/// in the workspace.
#[test]
fn a_program_is_looked_for_where_agent_run_was_started() {
    let (fake, here, workspace) = (Fake::start(), Folder::new(), Folder::new());
    let write = |folder: &Folder, name: &str, word: &str| {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho {word}; pwd\n")).expect("it is written");
        let mut mode = std::fs::metadata(&path).expect("it is there").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        std::fs::set_permissions(&path, mode).expect("it is ours");
    };
    write(&here, "work.sh", "here");
    write(&workspace, "work.sh", "there");
    write(&workspace, "own.sh", "own");
    let place = workspace.path().canonicalize().expect("it is there");
    for (program, word) in [("./work.sh", "here"), ("./own.sh", "own")] {
        fake.task(json!({"workspace": "w-1", "workspace_path": workspace.path()}));
        let mut run = command(&["agent", "run", "--once", "--url", &fake.url, "--name", "a-1"]);
        run.args(["--", program]).env("FAIRGATE_AGENT_TOKEN", TOKEN).current_dir(here.path());
        let ended = finished(run.output().expect("it runs"));
        assert_eq!(ended.status, 0, "{ended:?}");
        assert_eq!(ended.stdout, format!("{word}\n{}\n", place.display()));
    }
}

#[test]
fn a_workspace_that_is_elsewhere_gives_the_task_back_unharmed() {
    let fake = Fake::start();
    fake.task(json!({"workspace": "w-1", "workspace_path": "/no/such/folder"}));
    let ended = once(&fake, "true");
    assert!(ended.status.success(), "{ended:?}");
    let reason = "the folder /no/such/folder of workspace w-1 is not on this machine";
    assert_eq!(fake.said("release"), [json!({"epoch": 1, "reason": reason, "unfit": true})]);
    assert!(fake.said("fail").is_empty() && fake.said("complete").is_empty());
    assert!(ended.stderr.contains(reason), "{ended:?}");
}

/// Two workspaces may be one folder through a link, which the fleet cannot see.
#[test]
fn two_commands_never_work_in_one_folder() {
    let (one, other, folder) = (Fake::start(), Fake::start(), Folder::new());
    let real = folder.join("real");
    std::fs::create_dir(&real).expect("a folder");
    std::os::unix::fs::symlink(&real, folder.join("link")).expect("a link");
    one.task(json!({"workspace": "w-1", "workspace_path": real}));
    other.task(json!({"workspace": "w-2", "workspace_path": folder.join("link")}));
    let script = "echo begun; touch here; while ! test -e over; do sleep 0.05; done";
    let first = Agent::start(&one, &["--once"], script);
    until("it runs", || real.join("here").exists().then_some(()));
    let ended = once(&other, "touch both");
    assert!(ended.status.success(), "{ended:?}");
    let put_off = other.said("fail");
    let reason = put_off[0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("of workspace w-2 is in use on this machine"), "{reason}");
    assert!(put_off[0]["limited_until"].is_u64(), "no failure is counted: {put_off:?}");
    assert!(!real.join("both").exists());
    std::fs::write(real.join("over"), "").expect("it is written");
    assert!(first.ended().status.success());
    // The folder is free again.
    other.task(json!({"workspace": "w-2", "workspace_path": folder.join("link"), "epoch": 2}));
    assert!(once(&other, "touch both").status.success());
    assert!(real.join("both").exists());
}

/// The fleet may give the workspace to another agent as soon as it knows of the end. That agent
/// must find the folder unlocked.
#[test]
fn a_folder_is_free_when_the_end_of_its_task_is_reported() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.state().free_at_end = Some(folder.path().to_owned());
    let task = json!({"workspace": "w-1", "workspace_path": folder.path()});
    for script in ["true", "exit 1", "echo why; exit 77", "sleep 100 & true", "sleep 100"] {
        fake.task(task.clone());
        let ended = Agent::start(&fake, &["--once", "--timeout", "1"], script).ended();
        assert!(ended.status.success(), "{script}: {ended:?}");
    }
    assert_eq!((fake.said("complete").len(), fake.said("fail").len()), (2, 2));
    fake.task(task);
    let agent = Agent::start(&fake, &["--once"], "touch begun; sleep 100");
    until("it runs", || folder.join("begun").exists().then_some(()));
    agent.signal("TERM");
    assert!(agent.ended().status.success());
    assert_eq!(fake.said("release").len(), 1);
}

#[test]
fn a_token_that_is_wrong_is_said_once_and_ends_it() {
    let fake = Fake::start();
    for (token, why) in [
        ("wrong", "does not take the token for agent \"a-1\""),
        (" ", "no token: set FAIRGATE_AGENT_TOKEN"),
    ] {
        let mut run = agent_run(&fake, &[], "true");
        run.env("FAIRGATE_AGENT_TOKEN", token);
        fails(run, why);
    }
}

#[test]
fn a_result_that_is_refused_fails_the_task() {
    let fake = Fake::start();
    fake.task(json!({}));
    let refusal = json!({"error": {"code": "invalid", "message": "result: no"}});
    fake.state().refusals.push_back((422, refusal));
    assert!(once(&fake, "echo x").status.success());
    assert_eq!(fake.said("refused complete").len(), 1);
    let reason = fake.said("fail")[0]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("did not take the command's result: result: no"), "{reason}");
}

#[test]
fn as_many_tasks_are_run_as_were_asked_for() {
    let fake = Fake::start();
    for task in ["t-1", "t-2", "t-3"] {
        fake.task(json!({"task": task}));
    }
    let ended = Agent::start(&fake, &["--max-tasks", "2"], "echo $FAIRGATE_TASK").ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stdout, "t-1\nt-2\n");
    assert_eq!(fake.state().tasks.len(), 1);
}

/// Returns the reason of the one failure that was reported.
fn one_failure(fake: &Fake) -> String {
    let failed = fake.said("fail");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].get("limited_until"), None, "it counts");
    failed[0]["reason"].as_str().expect("a reason").to_owned()
}

#[test]
fn a_command_that_hangs_is_ended() {
    let (fake, folder) = (Fake::start(), Folder::new());
    fake.task(json!({"workspace": "w-1", "workspace_path": folder.path()}));
    // The process in the background must not outlive the command, and the shell ignores SIGTERM.
    let script = "trap '' TERM; echo begun; sleep 1000 & echo $! >pid; wait; wait";
    let ended = Agent::start(&fake, &["--once", "--timeout", "1", "--grace", "1"], script).ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(
        one_failure(&fake),
        "the command did not end within 1 s, the --timeout of agent run; it printed last:\nbegun"
    );
    assert_eq!(fake.log(), "begun\n");
    let pid = std::fs::read_to_string(folder.join("pid")).expect("it was written");
    assert!(!is_alive(pid.trim()), "it was ended with its group");
}

#[test]
fn a_task_may_have_a_timeout_of_its_own() {
    let fake = Fake::start();
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    let at =
        u64::try_from((now + std::time::Duration::from_secs(2)).as_micros()).expect("a moment");
    fake.task(json!({"timeout_s": 5, "timeout_at": at}));
    let ended = Agent::start(&fake, &["--once", "--timeout", "600"], "sleep 1000").ended();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(
        one_failure(&fake),
        "the command did not end within 5 s, the task's timeout and printed nothing"
    );
}
