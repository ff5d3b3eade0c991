//! The journal that a gate writes: each file replays by itself to what the gate decided.

use std::path::Path;
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::PoolConfig;
use fairgate_core::units::{Micros, Tokens};
use fairgate_runtime::{Gate, GateOptions, GateStartError, JournalOptions, JournalStatus, start};
use fairgate_testkit::workload::SeededRng;
use tokio::time::sleep;

use crate::support::{below, config, files, folder, live, noting, replay, submit};

fn journalled(folder: &Path, file_bytes_max: u64, files_max: usize) -> GateOptions {
    let journal =
        JournalOptions { file_bytes_max, files_max, ..JournalOptions::new(folder.join("journal")) };
    GateOptions { journal: Some(journal), ..GateOptions::default() }
}

/// Requests that come, wait, leave, expire, run and end, at random times.
async fn traffic(gate: &Gate, seed: u64, requests: u64) {
    println!("seed {seed}");
    let mut rng = SeededRng::new(seed);
    let mut clients = Vec::new();
    for i in 0..requests {
        let (asking, tenant, cost) = (gate.clone(), below(&mut rng, 5), below(&mut rng, 500) + 1);
        let patience = Duration::from_millis(below(&mut rng, 900) + 1);
        let (runs, ending) = (Duration::from_millis(below(&mut rng, 60) + 1), below(&mut rng, 4));
        clients.push(tokio::spawn(async move {
            let request = submit(&format!("r{i}"), &format!("t{tenant}"), cost);
            let Ok(Ok(mut permit)) = tokio::time::timeout(patience, asking.admit(request)).await
            else {
                return;
            };
            permit.first_token();
            sleep(runs).await;
            match ending {
                0 => permit.settle(Tokens(cost / 2)),
                1 => permit.fail(Tokens(cost / 3)),
                2 => permit.give_back(),
                _ => drop(permit),
            }
        }));
        sleep(Duration::from_millis(below(&mut rng, 12))).await;
        if i % 50 == 7 {
            gate.hold(Attribute::Tenant, "t1").await.unwrap();
        } else if i % 50 == 20 {
            gate.resume(Attribute::Tenant, "t1").await.unwrap();
        }
    }
    for client in clients {
        client.await.unwrap();
    }
}

fn busy_config() -> PoolConfig {
    PoolConfig { max_queue: Some(20), queue_timeout: Some(Micros(400_000)), ..config(4) }
}

#[tokio::test(start_paused = true)]
async fn every_file_replays_to_what_was_decided() {
    for seed in 0..4 {
        let folder = folder(&format!("rotation-{seed}"));
        let (options, noted) = noting(journalled(&folder, 4000, 1000));
        let gate = start(busy_config(), options).unwrap();
        traffic(&gate, seed, 2000).await;
        let last = gate.snapshot().await.unwrap();
        let drained = gate.drain(Duration::ZERO).await.unwrap();
        assert_eq!(drained.journal.status, JournalStatus::Writing);
        assert_eq!((drained.journal.gaps, drained.journal.events_lost), (0, 0));
        let files = files(&folder.join("journal"));
        // How many depends on how fast the disk is against a clock that does not wait for it.
        assert!(files.len() > 2, "{} files", files.len());
        assert!(files[0].ends_with("00000000-start.jsonl"));
        assert!(files[1].ends_with("00000001-next.jsonl"));
        let mut replayed = Vec::new();
        let mut before: Option<fairgate_core::snapshot::Snapshot> = None;
        for file in &files {
            let text = std::fs::read(file).unwrap();
            let first =
                fairgate_journal::JournalReader::open(&text[..]).unwrap().0.into_pool().unwrap();
            assert!(before.is_none_or(|before| before == first.snapshot()), "{}", file.display());
            let (decisions, pool) = replay(file);
            replayed.extend(decisions);
            before = Some(pool.snapshot());
        }
        let noted = noted.lock().unwrap();
        assert!(noted.len() > 1000);
        assert_eq!(replayed, *noted);
        assert_eq!(before.unwrap().root, last.root);
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_newest_files_are_kept() {
    let folder = folder("kept");
    for seed in 0..5 {
        let gate = start(busy_config(), journalled(&folder, 2000, 3)).unwrap();
        traffic(&gate, seed, 100).await;
        gate.drain(Duration::ZERO).await.unwrap();
    }
    let files = files(&folder.join("journal"));
    assert_eq!(files.len(), 3);
    assert!(!files[0].ends_with("00000000-start.jsonl"));
    files.iter().for_each(|file| drop(replay(file)));
}

#[tokio::test(start_paused = true)]
async fn time_goes_on_over_a_restart_without_a_state_file() {
    let folder = folder("clock");
    let mut latest = Micros(0);
    for round in 0..3 {
        let gate = start(busy_config(), journalled(&folder, 1 << 20, 10)).unwrap();
        sleep(Duration::from_secs(5)).await;
        gate.admit(submit("a", "t", 1)).await.unwrap().settle(Tokens(1));
        let now = gate.snapshot().await.unwrap().now;
        assert!(now.0 >= latest.0 + 5_000_000, "round {round}: {now:?} after {latest:?}");
        latest = now;
        gate.drain(Duration::from_secs(1)).await.unwrap();
    }
    let files = files(&folder.join("journal"));
    assert!(files[2].ends_with("00000002-start.jsonl"));
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_cannot_be_is_an_error_at_the_start() {
    let folder = folder("no-folder");
    std::fs::write(folder.join("journal"), "a file").unwrap();
    let refused = start(config(1), journalled(&folder, 1000, 3)).unwrap_err();
    assert!(matches!(refused, GateStartError::Journal { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_gate_whose_last_handle_goes_ends_its_journal() {
    let folder = folder("last-handle");
    let (options, noted) = noting(journalled(&folder, 1 << 20, 3));
    let gate = start(busy_config(), options).unwrap();
    gate.admit(submit("a", "t", 1)).await.unwrap().settle(Tokens(1));
    assert_eq!(live(&gate).await.journal.status, JournalStatus::Writing);
    drop(gate);
    // The task holds the notes as long as it lives.
    while std::sync::Arc::strong_count(&noted) > 1 {
        sleep(Duration::from_millis(1)).await;
    }
    let file = folder.join("journal/00000000-start.jsonl");
    assert_eq!(replay(&file).0, *noted.lock().unwrap());
}
