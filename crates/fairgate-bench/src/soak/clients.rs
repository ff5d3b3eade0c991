//! Clients in closed loops, who leave as clients do, and keep their own books.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use fairgate_testkit::workload::Rng;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::http::{self, Answer, Ask};

/// What the clients saw, all together.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The status of every answer that ended, by request id.
    pub(crate) ended: HashMap<String, u16>,
    /// Requests of which the client knows the id and not the end: it left, or the connection broke.
    pub(crate) cut: Vec<String>,
    /// Requests of which the client knows nothing: it left, or the connection broke, before the head of the answer.
    pub(crate) unknown: u64,
    /// Answers that ended without a request id: none should.
    pub(crate) nameless: u64,
}

impl Seen {
    /// The numbers in words.
    pub(crate) fn told(&self) -> String {
        let mut by_status: Vec<(u16, usize)> = Vec::new();
        for status in self.ended.values() {
            match by_status.iter_mut().find(|(s, _)| s == status) {
                Some((_, count)) => *count += 1,
                None => by_status.push((*status, 1)),
            }
        }
        by_status.sort_unstable();
        let by_status: Vec<String> =
            by_status.iter().map(|(status, count)| format!("{count} with {status}")).collect();
        format!(
            "{} answers ended ({}), {} were cut off in the middle, {} before they began",
            self.ended.len(),
            by_status.join(", "),
            self.cut.len(),
            self.unknown
        )
    }

    fn add(&mut self, other: Self) {
        self.ended.extend(other.ended);
        self.cut.extend(other.cut);
        self.unknown += other.unknown;
        self.nameless += other.nameless;
    }
}

/// All clients at work.
pub(crate) struct Clients {
    stop: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
    tasks: JoinSet<Seen>,
}

impl Clients {
    /// Starts `each` clients for every key.
    pub(crate) fn start(addr: SocketAddr, keys: &[String], each: usize, seed: u64) -> Self {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for (tenant, key) in keys.iter().enumerate() {
            for client in 0..each {
                let number = (tenant * each + client) as u64;
                let client = Client {
                    addr,
                    key: format!("Bearer {key}"),
                    rng: Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number)),
                    seen: Seen::default(),
                };
                tasks.spawn(client.run(stop.clone(), ended.clone()));
            }
        }
        Self { stop, ended, tasks }
    }

    /// How far they are, in words.
    pub(crate) fn so_far(&self) -> String {
        format!("{} answers ended", self.ended.load(Relaxed))
    }

    /// Lets each end its request, and gives what all saw.
    pub(crate) async fn finish(mut self) -> Result<Seen> {
        self.stop.store(true, Relaxed);
        let mut all = Seen::default();
        while let Some(seen) = self.tasks.join_next().await {
            all.add(seen?);
        }
        Ok(all)
    }
}

struct Client {
    addr: SocketAddr,
    key: String,
    rng: Rng,
    seen: Seen,
}

/// How a request is meant to end.
enum Plan {
    ReadAll,
    /// Leave after so many bytes.
    LeaveAfterBytes(usize),
    /// Leave after so long, whether anything has come or not.
    LeaveAfter(Duration),
}

impl Client {
    async fn run(mut self, stop: Arc<AtomicBool>, ended: Arc<AtomicU64>) -> Seen {
        while !stop.load(Relaxed) {
            if self.one().await {
                ended.fetch_add(1, Relaxed);
            } else if self.rng.percent(50) {
                // The gateway may be away: who hammers it learns nothing.
                sleep(Duration::from_millis(20)).await;
            }
        }
        self.seen
    }

    /// One request; whether its answer ended.
    async fn one(&mut self) -> bool {
        let plan = match self.rng.range(0..=19) {
            0..3 => Plan::LeaveAfterBytes(self.rng.count(0..=4000)),
            3 => Plan::LeaveAfter(Duration::from_millis(self.rng.range(0..=60))),
            _ => Plan::ReadAll,
        };
        let ask = self.ask();
        let mut last = None;
        let asked = http::ask(&ask, Duration::from_secs(120), |answer: &Answer, _| {
            last = answer.header("x-fairgate-request-id").map(str::to_owned);
            match plan {
                Plan::LeaveAfterBytes(bytes) if answer.body().len() > bytes => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        });
        let answer = match plan {
            Plan::LeaveAfter(time) => timeout(time, asked).await.ok(),
            _ => Some(asked.await),
        };
        let whole = answer.and_then(|answer| answer.ok()).filter(Answer::is_whole);
        match (whole.and_then(|answer| answer.status()), last) {
            (Some(status), Some(id)) => {
                self.seen.ended.insert(id, status);
                return true;
            }
            (Some(_), None) => self.seen.nameless += 1,
            (None, Some(id)) => self.seen.cut.push(id),
            (None, None) => self.seen.unknown += 1,
        }
        false
    }

    fn ask(&mut self) -> Ask {
        let words = self.rng.count(1..=200);
        let body = json!({
            "model": "sim",
            "stream": self.rng.percent(60),
            "max_tokens": self.rng.range(1..=80),
            "messages": [{"role": "user", "content": "word ".repeat(words)}],
        });
        let headers = [("authorization", self.key.as_str()), ("content-type", "application/json")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Ask { addr: self.addr, headers, body: body.to_string() }
    }
}
