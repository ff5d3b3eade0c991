//! Many tasks on several threads, leaving and ending at random: in the end nothing is in flight and nothing waits.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use fairgate_core::event::PoolConfig;
use fairgate_core::units::{Micros, Tokens};
use fairgate_runtime::{Gate, GateOptions, JournalOptions, start};
use fairgate_testkit::workload::SeededRng;
use tokio::task::yield_now;

use crate::support::{below, config, files, folder, noting, replay, submit};

/// `FAIRGATE_SEEDS=100..200` where it is set, else a few.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("FAIRGATE_SEEDS") else { return 0..6 };
    let (first, end) = range.split_once("..").expect("FAIRGATE_SEEDS is like 100..200");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Polls a future a few times, then drops it unless it is ready.
async fn patience<T>(future: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        tokio::select! {
            biased;
            ready = &mut future => return Some(ready),
            () = yield_now() => {}
        }
    }
    None
}

async fn client(gate: Gate, seed: u64, number: u64) {
    let mut rng = SeededRng::new(seed * 1_000_003 + number);
    for i in 0..60 {
        // Some ids are used by several clients at once.
        let id = match below(&mut rng, 10) {
            0 => format!("shared{}", below(&mut rng, 5)),
            _ => format!("c{number}-{i}"),
        };
        let request = submit(&id, &format!("t{}", below(&mut rng, 6)), below(&mut rng, 1000));
        let polls = match below(&mut rng, 3) {
            0 => below(&mut rng, 4),
            _ => u64::MAX,
        };
        let Some(Ok(mut permit)) = patience(gate.admit(request), polls).await else { continue };
        for _ in 0..below(&mut rng, 6) {
            yield_now().await;
        }
        permit.first_token();
        match below(&mut rng, 5) {
            0 => permit.fail(Tokens(3)),
            1 => permit.give_back(),
            2 => drop(permit),
            3 => {
                let holder = tokio::spawn(async move {
                    permit.note_used(Tokens(1));
                    std::future::pending::<()>().await;
                });
                yield_now().await;
                holder.abort();
            }
            _ => permit.settle(Tokens(below(&mut rng, 2000))),
        }
    }
}

#[test]
fn nothing_leaks_whatever_the_clients_do() {
    for seed in seeds() {
        println!("seed {seed}");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(stress(seed));
    }
}

async fn stress(seed: u64) {
    let folder = folder(&format!("stress-{seed}"));
    let queue_timeout = (seed % 2 == 1).then_some(Micros(2_000));
    let config = PoolConfig { max_queue: Some(40), queue_timeout, ..config(5) };
    let journal = JournalOptions {
        file_bytes_max: 100_000,
        files_max: 1000,
        ..JournalOptions::new(folder.clone())
    };
    let options = GateOptions { turns: 16, journal: Some(journal), ..GateOptions::default() };
    let (options, noted) = noting(options);
    let gate = start(config, options).unwrap();
    let clients: Vec<_> =
        (0..100).map(|number| tokio::spawn(client(gate.clone(), seed, number))).collect();
    for client in clients {
        client.await.unwrap();
    }
    let mut live = gate.status().await.unwrap();
    // Aborted holders are dropped when their thread comes to it.
    while live.in_flight > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        live = gate.status().await.unwrap();
    }
    assert_eq!((live.in_flight, live.waiting), (0, 0), "seed {seed}");
    assert!(live.counts.granted > 300, "seed {seed}: {:?}", live.counts);
    let drained = gate.drain(Duration::ZERO).await.unwrap();
    assert_eq!((drained.still_in_flight, drained.journal.events_lost), (0, 0), "seed {seed}");
    let replayed: Vec<_> = files(&folder).iter().flat_map(|file| replay(file).0).collect();
    assert!(replayed == *noted.lock().unwrap(), "seed {seed}: the journal decides otherwise");
    let _ = std::fs::remove_dir_all(folder);
}
