//! Two backlogged classes in one pool with a prefix index. Measures whether the tokens of the
//! classes keep the ratio of their weights while the index affects the choice of workers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clients::{ClientMeasurements, send_and_measure};
use super::testbed::{RouterTestbed, SLOTS};
use super::workload::AgentSession;

/// Names and weights of the two classes.
pub(crate) const CLASSES: [(&str, u64); 2] = [("premium", 4), ("batch", 1)];

/// Number of clients of each class per slot of all workers together. With 2, requests of both
/// classes are always queued.
const CLIENTS_PER_SLOT: usize = 2;

/// Returns the policy of the pool, as lines of the configuration file.
pub(crate) fn policy() -> String {
    let class = |(name, weight): (&str, u64)| format!("{{name: {name}, weight: {weight}}}");
    format!("    policy: {{share: {{by: class, classes: [{}]}}}}\n", CLASSES.map(class).join(", "))
}

/// Runs clients of both classes for `time` and returns the tokens charged to each class. The first
/// quarter of the time does not count, because caches and queues fill up in that time.
pub(crate) async fn run(
    testbed: &RouterTestbed,
    workers: usize,
    time: Duration,
) -> Result<[u64; 2]> {
    let mut clients = JoinSet::new();
    for number in 0..workers * SLOTS * CLIENTS_PER_SLOT {
        for (place, (class, _)) in CLASSES.into_iter().enumerate() {
            let seed = (number * CLASSES.len() + place) as u64;
            let mut headers = testbed.headers.clone();
            headers.push(("x-fairgate-class".to_owned(), class.to_owned()));
            clients.spawn(client(testbed.addr, headers, seed));
        }
    }
    sleep(time / 4).await;
    let before = charged(testbed)?;
    sleep(time * 3 / 4).await;
    let after = charged(testbed)?;
    clients.shutdown().await;
    Ok([after[0] - before[0], after[1] - before[1]])
}

/// Runs one session after another, without a pause between requests.
async fn client(addr: SocketAddr, headers: Vec<(String, String)>, seed: u64) {
    let measurements = Arc::new(ClientMeasurements::default());
    for number in 0.. {
        let mut session = AgentSession::new(1 << 62 | seed << 24 | number);
        while let Some(body) = session.turn() {
            send_and_measure(addr, headers.clone(), body, Arc::clone(&measurements)).await;
        }
    }
}

/// Returns the tokens that the ledger has charged to each class so far.
fn charged(testbed: &RouterTestbed) -> Result<[u64; 2]> {
    let usage = testbed.admin(&["usage", "--by", "class"])?;
    let rows = usage["rows"].as_array().with_context(|| format!("usage says {usage}"))?;
    let of = |name: &str| rows.iter().find(|row| row["name"] == name);
    let number = |name| of(name).and_then(|row| row["charged_tokens"].as_u64()).unwrap_or(0);
    Ok(CLASSES.map(|(name, _)| number(name)))
}
