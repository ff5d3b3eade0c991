//! Clients in closed loops, each with the habit of its tenant, who keep their own books.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use fairgate_testkit::workload::Rng;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::seen::{Ended, Seen, Sight, error_code};
use super::slow_readers;
use super::tenants::{Habit, TENANTS, body};
use crate::http::{self, Answer, Ask};

/// How long an answer may take in all: longer than a request may wait and be answered.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// All clients at work.
pub(super) struct Clients {
    stop: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
    tasks: JoinSet<Seen>,
}

impl Clients {
    /// Starts the clients of all tenants, whose keys come in their order.
    pub(super) fn start(addr: SocketAddr, keys: &[String], seed: u64) -> Self {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        let mut number = 0;
        for (tenant, key) in keys.iter().enumerate() {
            for _ in 0..TENANTS[tenant].clients {
                number += 1;
                let client = Client {
                    addr,
                    tenant,
                    habit: TENANTS[tenant].habit,
                    headers: headers(key),
                    rng: Rng::new(seed.wrapping_mul(1_000_003).wrapping_add(number)),
                    seen: Seen::default(),
                };
                tasks.spawn(client.run(stop.clone(), ended.clone()));
            }
        }
        Self { stop, ended, tasks }
    }

    /// How many answers have ended.
    pub(super) fn so_far(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    /// Lets each end its request, and gives what all saw.
    pub(super) async fn finish(mut self) -> Result<Seen> {
        self.stop.store(true, Relaxed);
        let mut all = Seen::default();
        while let Some(seen) = self.tasks.join_next().await {
            all.add(seen?);
        }
        Ok(all)
    }
}

/// The headers of a request with a key.
pub(super) fn headers(key: &str) -> Vec<(String, String)> {
    let headers =
        [("authorization", format!("Bearer {key}")), ("content-type", "application/json".into())];
    headers.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

struct Client {
    addr: SocketAddr,
    tenant: usize,
    habit: Habit,
    headers: Vec<(String, String)>,
    rng: Rng,
    seen: Seen,
}

/// How a request is meant to end.
#[derive(Clone, Copy)]
enum Plan {
    ReadAll,
    /// Leave after so many bytes.
    LeaveAfterBytes(usize),
    /// Leave after so long, whether anything has come or not.
    LeaveAfter(Duration),
    /// Leave when the model has stopped.
    LeaveAtFinish,
}

impl Client {
    async fn run(mut self, stop: Arc<AtomicBool>, ended: Arc<AtomicU64>) -> Seen {
        while !stop.load(Relaxed) {
            let sight = self.one().await;
            let pause = match &sight {
                // Who is refused comes back a moment later, as the answer says it should.
                Sight::End(_, ended) if ended.status == 429 || ended.status == 503 => 100,
                Sight::End(..) => 0,
                // The gateway may be away: who hammers it learns nothing.
                _ => self.rng.range(0..=50),
            };
            if matches!(sight, Sight::End(..)) {
                ended.fetch_add(1, Relaxed);
            }
            self.seen.note(sight);
            sleep(Duration::from_millis(pause)).await;
        }
        self.seen
    }

    async fn one(&mut self) -> Sight {
        let body = body(self.habit, &mut self.rng);
        let ask = Ask { addr: self.addr, headers: self.headers.clone(), body };
        match self.habit {
            Habit::ReadSlowly => slow_readers::http1(&ask, self.tenant, &mut self.rng).await,
            Habit::ReadByteByByte => slow_readers::http2(&ask, self.tenant, &mut self.rng).await,
            _ => self.read(&ask).await,
        }
    }

    fn plan(&mut self) -> Plan {
        let left = self.rng.range(0..=99);
        match self.habit {
            Habit::LeaveAtFinish => Plan::LeaveAtFinish,
            Habit::Leave if left < 60 => {
                Plan::LeaveAfter(Duration::from_millis(self.rng.range(0..=400)))
            }
            Habit::Leave if left < 90 => Plan::LeaveAfterBytes(self.rng.count(0..=4000)),
            Habit::Honest if left < 4 => Plan::LeaveAfterBytes(self.rng.count(0..=4000)),
            Habit::Honest if left < 6 => {
                Plan::LeaveAfter(Duration::from_millis(self.rng.range(0..=60)))
            }
            _ => Plan::ReadAll,
        }
    }

    /// Reads as fast as the answer comes, for as long as the client stays.
    async fn read(&mut self, ask: &Ask) -> Sight {
        let plan = self.plan();
        let mut id = None;
        let asked = http::ask(ask, PATIENCE, |answer: &Answer, _| {
            id = answer.header("x-fairgate-request-id").map(str::to_owned);
            let leaves = match plan {
                Plan::LeaveAfterBytes(bytes) => answer.body().len() > bytes,
                Plan::LeaveAtFinish => has_stopped(answer.body()),
                Plan::ReadAll | Plan::LeaveAfter(_) => false,
            };
            if leaves { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let answer = match plan {
            Plan::LeaveAfter(time) => timeout(time, asked).await.ok(),
            _ => Some(asked.await),
        };
        sight(answer, id, self.tenant)
    }
}

/// Whether the model has said that it has stopped.
fn has_stopped(body: &[u8]) -> bool {
    let end = &body[body.len().saturating_sub(8192)..];
    let end = String::from_utf8_lossy(end);
    ["stop", "length"].iter().any(|reason| end.contains(&format!("\"finish_reason\":\"{reason}\"")))
}

/// What a request came to, where there is an answer or a part of one.
pub(super) fn sight(
    answer: Option<io::Result<Answer>>,
    id: Option<String>,
    tenant: usize,
) -> Sight {
    let answer = match answer {
        Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Sight::Nobody;
        }
        answer => answer.and_then(io::Result::ok).filter(Answer::is_whole),
    };
    let status = answer.as_ref().and_then(Answer::status);
    match (answer, status, id) {
        (Some(answer), Some(status), Some(id)) => {
            let code = error_code(answer.body());
            Sight::End(id, Ended { tenant, status, code, at: Instant::now() })
        }
        (Some(_), Some(_), None) => Sight::Nameless,
        (_, _, Some(id)) => Sight::Cut(id),
        (_, _, None) => Sight::Unknown,
    }
}
