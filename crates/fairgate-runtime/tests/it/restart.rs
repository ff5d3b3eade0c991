//! Scores survive a restart, what the dead process had is resolved, and a bad state file is an error that says so.

use std::path::Path;
use std::time::Duration;

use fairgate_core::event::{PoolConfig, Submit, WorkerChange};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::{JournalReader, JournalStart, parse_policy};
use fairgate_runtime::{
    Gate, GateOptions, GateStartError, JournalOptions, StateFileOptions, start,
};
use tokio::time::sleep;

use crate::support::{config, files, folder, live, load, noting, replay, served, submit, waiting};

fn kept(folder: &Path) -> GateOptions {
    GateOptions {
        state: Some(StateFileOptions::new(folder.join("state.json"))),
        ..GateOptions::default()
    }
}

/// A tenant that used 70 tokens, drained.
async fn used_and_drained(folder: &Path) {
    let gate = start(config(2), kept(folder)).unwrap();
    sleep(Duration::from_secs(3)).await;
    gate.admit(submit("a", "t", 100)).await.unwrap().settle(Tokens(70));
    let drained = gate.drain(Duration::from_secs(1)).await.unwrap();
    assert_eq!((drained.state.saved, drained.state.error), (1, None));
}

#[tokio::test(start_paused = true)]
async fn scores_and_time_go_on() {
    let folder = folder("scores");
    used_and_drained(&folder).await;
    let gate = start(config(2), kept(&folder)).unwrap();
    assert_eq!(served(&gate, "t").await, 70);
    gate.admit(submit("b", "t", 100)).await.unwrap().settle(Tokens(30));
    assert_eq!(served(&gate, "t").await, 100);
    assert!(gate.snapshot().await.unwrap().now >= Micros(3_000_000));
    assert_eq!(files(&folder).len(), 1, "nothing is left beside the state file");
}

/// A gate that is gone without a drain, having written its state while something was in flight and something waited.
async fn killed(folder: &Path, workers: Vec<WorkerChange>) {
    let state = StateFileOptions { every: Duration::from_secs(5), ..kept(folder).state.unwrap() };
    let options = GateOptions { state: Some(state), ..GateOptions::default() };
    let gate = start(PoolConfig { workers, ..config(1) }, options).unwrap();
    let permit = gate.admit(submit("ran", "t", 100)).await.unwrap();
    let waits = waiting(&gate, submit("waited", "u", 100)).await;
    sleep(Duration::from_secs(6)).await;
    while live(&gate).await.state.saved == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    // The file as a kill would leave it.
    std::fs::copy(folder.join("state.json"), folder.join("killed.json")).unwrap();
    permit.settle(Tokens(1));
    waits.abort();
    gate.drain(Duration::from_secs(1)).await.unwrap();
    std::fs::rename(folder.join("killed.json"), folder.join("state.json")).unwrap();
}

fn journalled(folder: &Path) -> GateOptions {
    GateOptions { journal: Some(JournalOptions::new(folder.join("journal"))), ..kept(folder) }
}

async fn check_resolved(gate: &Gate) {
    assert_eq!(load(gate).await, (0, 0));
    assert_eq!(served(gate, "t").await, 100, "nobody knows what it used: its cost");
    assert_eq!(served(gate, "u").await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_dead_process_had_is_resolved_in_the_new_journal() {
    let folder = folder("killed");
    killed(&folder, Vec::new()).await;
    // More slots than before: what waited must not be granted on the way.
    let (options, noted) = noting(journalled(&folder));
    let gate = start(config(5), options).unwrap();
    check_resolved(&gate).await;
    assert!(noted.lock().unwrap().is_empty());
    gate.admit(submit("ran", "t", 100)).await.unwrap().settle(Tokens(1));
    gate.drain(Duration::from_secs(1)).await.unwrap();
    let (decisions, pool) = replay(&folder.join("journal/00000000-start.jsonl"));
    assert_eq!(decisions, *noted.lock().unwrap());
    assert_eq!((pool.in_flight(), pool.waiting(), pool.capacity()), (0, 0, 5));
}

#[tokio::test(start_paused = true)]
async fn workers_are_those_that_are_there_now() {
    let folder = folder("workers");
    let worker = |name: &str| WorkerChange { name: name.into(), ..WorkerChange::default() };
    killed(&folder, vec![worker("old")]).await;
    let (options, noted) = noting(journalled(&folder));
    let gate = start(PoolConfig { workers: vec![worker("new")], ..config(1) }, options).unwrap();
    check_resolved(&gate).await;
    let permit = gate.admit(submit("a", "t", 1)).await.unwrap();
    assert_eq!(&*permit.place().unwrap().worker, "new");
    drop(permit);
    gate.drain(Duration::from_secs(1)).await.unwrap();
    let (decisions, _) = replay(&folder.join("journal/00000000-start.jsonl"));
    assert_eq!(decisions, *noted.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn another_policy_begins_anew_and_the_journal_says_so() {
    let folder = folder("policy");
    used_and_drained(&folder).await;
    let policy = parse_policy(r#"{"share":{"by":"group"}}"#).unwrap();
    let gate = start(PoolConfig { policy, ..config(2) }, journalled(&folder)).unwrap();
    gate.admit(submit("b", "t", 100)).await.unwrap().settle(Tokens(30));
    assert_eq!(served(&gate, "default").await, 30);
    gate.drain(Duration::from_secs(1)).await.unwrap();
    let (_, pool) = replay(&folder.join("journal/00000000-start.jsonl"));
    assert_eq!(pool.snapshot().root.flows.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_gate_writes_no_state() {
    let folder = folder("idle");
    let gate = start(config(1), kept(&folder)).unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert!(files(&folder).is_empty());
    gate.drain(Duration::ZERO).await.unwrap();
    assert_eq!(files(&folder).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_bad_state_file_is_named_with_the_field_and_left_alone() {
    let folder = folder("corrupt");
    used_and_drained(&folder).await;
    let file = folder.join("state.json");
    let good = std::fs::read_to_string(&file).unwrap();
    let cases = [
        (good.replace("\"ticks\":1", "\"ticks\":-1"), "ticks"),
        (good.replace("\"virtual_time\":\"", "\"virtual_time\":\"x"), "virtual_time"),
        (good.replace("\"capacity\":2", "\"capacities\":2"), "capacities"),
        (good[..good.len() / 2].into(), "line 1"),
        (String::new(), "first line is missing"),
        (format!("{good}{{\"at\":99000000,\"event\":\"tick\"}}\n"), "events follow"),
        (
            r#"{"fairgate_journal":1,"pool":{"capacity":0,"policy":{"load":{"by":"agent"}}}}"#
                .into(),
            "no snapshot",
        ),
    ];
    for (text, named) in cases {
        assert_ne!(text, good, "{named}");
        std::fs::write(&file, &text).unwrap();
        let refused = start(config(2), kept(&folder)).unwrap_err();
        assert!(matches!(refused, GateStartError::State(_)));
        let message = refused.to_string();
        assert!(message.contains("state.json") && message.contains(named), "{message}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
    // Whoever decides to start without it moves it away.
    std::fs::remove_file(&file).unwrap();
    assert!(start(config(2), kept(&folder)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_state_file_that_cannot_be_written_shows_and_stops_nothing() {
    let folder = folder("unwritable");
    let state = StateFileOptions::new(folder.join("missing").join("state.json"));
    let gate =
        start(config(1), GateOptions { state: Some(state), ..GateOptions::default() }).unwrap();
    gate.admit(submit("a", "t", 1)).await.unwrap().settle(Tokens(1));
    sleep(Duration::from_secs(31)).await;
    while live(&gate).await.state.error.is_none() {
        sleep(Duration::from_millis(1)).await;
    }
    let drained = gate.drain(Duration::ZERO).await.unwrap();
    assert!(drained.state.error.is_some());
}

/// What a process of the second edition left when it was killed: written at commit 6dedc6a by a pool with these classes and
/// workers, two requests in flight and two waiting.
const SECOND_EDITION: &str = include_str!("fixtures/second-edition-state.json");
const SECOND_EDITION_POLICY: &str = r#"{"drr":{"by":"class","classes":[
    {"name":"chat","quantum":512,"inside":{"share":{"by":"tenant"}}},{"name":"batch","quantum":128}]}}"#;

#[tokio::test(start_paused = true)]
async fn a_state_file_of_the_second_edition_is_taken_over() {
    let (start_line, _) = JournalReader::open(SECOND_EDITION.as_bytes()).unwrap();
    let JournalStart::Snapshot(saved) = start_line else { panic!("it is a snapshot") };
    assert_eq!(saved.requests.len(), 4);
    assert!(saved.requests.iter().all(|request| request.timeout.is_none()), "no deadlines");
    let workers = &saved.workers.as_ref().unwrap().list;
    assert!(workers.iter().all(|worker| worker.last_grants.is_empty()), "never granted");
    assert_eq!(saved.queue_timeout, Some(Micros(60_000_000)));

    let folder = folder("second-edition");
    std::fs::write(folder.join("state.json"), SECOND_EDITION).unwrap();
    let worker =
        |name: &str| WorkerChange { name: name.into(), slots: Some(1), ..WorkerChange::default() };
    let policy = parse_policy(SECOND_EDITION_POLICY).unwrap();
    let config = PoolConfig { policy, workers: vec![worker("a"), worker("b")], ..config(2) };
    let (options, noted) = noting(journalled(&folder));
    let gate = start(config, options).unwrap();
    assert_eq!(load(&gate).await, (0, 0), "what it had is resolved");
    let now = gate.snapshot().await.unwrap();
    assert!(now.now >= Micros(900_000) && now.next_seq == 7, "time and numbers go on");
    assert_eq!(now.queue_timeout, None, "each submit says how long it may wait");
    let chat = now.root.flows.iter().find(|flow| *flow.name == *"chat").unwrap();
    let tenants = &chat.inside.as_ref().unwrap().flows;
    let t = tenants.iter().find(|flow| *flow.name == *"t").unwrap();
    assert_eq!(
        t.share.as_ref().unwrap().served,
        3 * 70 + 100,
        "nobody knows what the last one used"
    );

    let of = |id: &str, timeout| Submit { timeout: Some(Micros(timeout)), ..submit(id, "t", 1) };
    let first = gate.admit(of("new-1", 1_000_000)).await.unwrap();
    let second = gate.admit(of("new-2", 1_000_000)).await.unwrap();
    let mut places = [&first, &second].map(|permit| permit.place().unwrap().worker.to_string());
    places.sort();
    assert_eq!(places, ["a", "b"]);
    assert_eq!(gate.admit(of("new-3", 5000)).await.unwrap_err().code(), "queue_timeout");
    drop((first, second));
    gate.drain(Duration::from_secs(1)).await.unwrap();
    let journal = folder.join("journal/00000000-start.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(text.lines().next().unwrap().contains(r#""machine":3"#), "{text}");
    let (decisions, _) = replay(&journal);
    assert_eq!(decisions, *noted.lock().unwrap());
}
