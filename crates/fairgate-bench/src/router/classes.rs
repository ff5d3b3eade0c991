//! Two classes in front of the workers, both backlogged: whether what they get keeps the ratio of their weights while the index chooses
//! the workers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::drive::{Told, ask};
use super::stage::{SLOTS, Stage};
use super::workload::Session;

/// Class and weight.
pub(crate) const CLASSES: [(&str, u64); 2] = [("premium", 4), ("batch", 1)];

/// How many requests of a class are asked for at once, for each slot of all workers: some always wait.
const CLIENTS_PER_SLOT: usize = 2;

/// The policy of the pool, as lines of its configuration.
pub(crate) fn policy() -> String {
    let class = |(name, weight): (&str, u64)| format!("{{name: {name}, weight: {weight}}}");
    format!("    policy: {{share: {{by: class, classes: [{}]}}}}\n", CLASSES.map(class).join(", "))
}

/// What each class was charged, after a quarter of the time has passed in which caches fill and queues grow.
pub(crate) async fn run(stage: &Stage, workers: usize, time: Duration) -> Result<[u64; 2]> {
    let mut clients = JoinSet::new();
    for number in 0..workers * SLOTS * CLIENTS_PER_SLOT {
        for (place, (class, _)) in CLASSES.into_iter().enumerate() {
            let seed = (number * CLASSES.len() + place) as u64;
            let mut headers = stage.headers.clone();
            headers.push(("x-fairgate-class".to_owned(), class.to_owned()));
            clients.spawn(client(stage.addr, headers, seed));
        }
    }
    sleep(time / 4).await;
    let before = charged(stage)?;
    sleep(time * 3 / 4).await;
    let after = charged(stage)?;
    clients.shutdown().await;
    Ok([after[0] - before[0], after[1] - before[1]])
}

/// One session after another, without a pause.
async fn client(addr: SocketAddr, headers: Vec<(String, String)>, seed: u64) {
    let told = Arc::new(Told::default());
    for number in 0.. {
        let mut session = Session::new(1 << 62 | seed << 24 | number);
        while let Some(body) = session.turn() {
            ask(addr, headers.clone(), body, Arc::clone(&told)).await;
        }
    }
}

/// What the ledger says of each class so far.
fn charged(stage: &Stage) -> Result<[u64; 2]> {
    let usage = stage.admin(&["usage", "--by", "class"])?;
    let rows = usage["rows"].as_array().with_context(|| format!("usage says {usage}"))?;
    let of = |name: &str| rows.iter().find(|row| row["name"] == name);
    let number = |name| of(name).and_then(|row| row["charged_tokens"].as_u64()).unwrap_or(0);
    Ok(CLASSES.map(|(name, _)| number(name)))
}
