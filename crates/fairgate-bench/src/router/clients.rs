//! The clients of a run, and the results that clients and workers measured.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::testbed::RouterTestbed;
use super::workload::{AgentSession, RouterWorkload, SESSIONS_PER_WORKER, WorkloadKind};
use crate::http::{self, BenchRequest, CHAT_PATH};

/// Longest time to wait for one answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Results of one run through one router.
pub(crate) struct RouterMeasurements {
    /// Time to the first token of each completed answer, sorted.
    first_tokens: Vec<Duration>,
    pub(crate) errors: u64,
    /// Input tokens of each worker, and how many of them were cached there.
    workers: Vec<(u64, u64)>,
}

impl RouterMeasurements {
    pub(crate) fn requests(&self) -> usize {
        self.first_tokens.len()
    }

    /// Returns the fraction (0 to 1) of all input tokens that the workers had cached.
    pub(crate) fn saved(&self) -> f64 {
        let sum = |number: fn(&(u64, u64)) -> u64| self.workers.iter().map(number).sum::<u64>();
        sum(|worker| worker.1) as f64 / sum(|worker| worker.0).max(1) as f64
    }

    /// Returns the prefill tokens of the worker that has the most, divided by the mean over all
    /// workers.
    pub(crate) fn imbalance(&self) -> f64 {
        let read = || self.workers.iter().map(|(input, cached)| input - cached);
        let mean = read().sum::<u64>() as f64 / self.workers.len() as f64;
        read().max().unwrap_or_default() as f64 / mean.max(1.0)
    }

    pub(crate) fn first_token_ms(&self, part: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (self.first_tokens.len() as f64 * part) as usize;
        self.first_tokens.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// Measurements that all clients share, and to which they add while they run.
#[derive(Default)]
pub(crate) struct ClientMeasurements {
    first_tokens: Mutex<Vec<Duration>>,
    errors: AtomicU64,
}

/// Sends a workload through the testbed's router, and waits for all answers.
pub(crate) async fn run(
    testbed: &RouterTestbed,
    workload: &RouterWorkload,
    workers: usize,
) -> RouterMeasurements {
    let measurements = Arc::new(ClientMeasurements::default());
    let begin = Instant::now();
    let mut clients = JoinSet::new();
    match &workload.kind {
        WorkloadKind::Conversations(requests) => {
            for request in requests {
                sleep_until(begin + request.at).await;
                clients.spawn(send_and_measure(
                    testbed.addr,
                    testbed.headers.clone(),
                    request.body(),
                    Arc::clone(&measurements),
                ));
            }
        }
        WorkloadKind::Agents => {
            let end = begin + workload.time;
            for number in 0..workers * SESSIONS_PER_WORKER {
                let (addr, headers, measurements) =
                    (testbed.addr, testbed.headers.clone(), Arc::clone(&measurements));
                clients.spawn(agent(addr, headers, number as u64, end, measurements));
            }
        }
    }
    while clients.join_next().await.is_some() {}
    let mut first_tokens = std::mem::take(
        &mut *measurements.first_tokens.lock().unwrap_or_else(PoisonError::into_inner),
    );
    first_tokens.sort_unstable();
    let workers = testbed.workers.iter().map(|worker| worker.stats());
    let workers = workers.map(|stats| (stats.input_tokens, stats.cached_tokens)).collect();
    RouterMeasurements { first_tokens, errors: measurements.errors.load(Relaxed), workers }
}

/// Runs one agent until the time of the run has passed. The agent starts a new session when the
/// last one is over.
async fn agent(
    addr: SocketAddr,
    headers: Vec<(String, String)>,
    number: u64,
    end: Instant,
    measurements: Arc<ClientMeasurements>,
) {
    for session in 0.. {
        let mut session = AgentSession::new(number << 32 | session);
        while let Some(body) = session.turn() {
            send_and_measure(addr, headers.clone(), body, Arc::clone(&measurements)).await;
            if Instant::now() >= end {
                return;
            }
            sleep(session.pause()).await;
        }
    }
}

pub(crate) async fn send_and_measure(
    addr: SocketAddr,
    headers: Vec<(String, String)>,
    body: String,
    measurements: Arc<ClientMeasurements>,
) {
    let asked = Instant::now();
    let mut first = None;
    let asking = BenchRequest { addr, path: CHAT_PATH.into(), headers, body };
    let answer = http::send(&asking, PATIENCE, |answer, _| {
        if first.is_none() && answer.body().windows(5).any(|part| part == b"data:") {
            first = Some(asked.elapsed());
        }
        match answer.body().ends_with(b"0\r\n\r\n") {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    match (answer.await, first) {
        (Ok(answer), Some(first)) if answer.status() == Some(200) => {
            measurements.first_tokens.lock().unwrap_or_else(PoisonError::into_inner).push(first);
        }
        _ => _ = measurements.errors.fetch_add(1, Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_and_who_had_most() {
        let workers = vec![(1000, 200), (500, 100), (300, 100)];
        let seen =
            RouterMeasurements { first_tokens: vec![Duration::from_millis(5)], errors: 0, workers };
        assert!((seen.saved() - 400.0 / 1800.0).abs() < 1e-9);
        assert!((seen.imbalance() - 800.0 / (1400.0 / 3.0)).abs() < 1e-9);
        assert!((seen.first_token_ms(0.5) - 5.0).abs() < 1e-9);
    }
}
