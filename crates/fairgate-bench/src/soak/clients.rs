//! The soak's clients. Each client sends its next request when its last request has ended, behaves
//! according to its tenant's habit, and records its own results.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use fairgate_testkit::workload::SeededRng;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client_results::{EndedAnswer, SoakRequestResult, SoakResults, error_code};
use super::tenants::{ClientHabit, SoakTenant, body};
use super::{lease_clients, slow_readers};
use crate::http::{self, BenchRequest, BenchResponse};

/// Longest time that a client waits for an answer. It exceeds the longest wait in the queue plus
/// the longest answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// All clients of a running soak.
pub(super) struct SoakClients {
    stop: Arc<AtomicBool>,
    /// True once attackers behave according to their habit. Before that, they behave as honest
    /// clients.
    attack: Arc<AtomicBool>,
    ended: Arc<AtomicU64>,
    tasks: JoinSet<SoakResults>,
}

impl SoakClients {
    /// Starts the clients of all tenants. `keys` has one key per tenant, in the order of the
    /// tenants.
    pub(super) fn start(
        addr: SocketAddr,
        tenants: &'static [SoakTenant],
        keys: &[String],
        seed: u64,
    ) -> Self {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let attack = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let mut number = 0;
        for (tenant, key) in keys.iter().enumerate() {
            for _ in 0..tenants[tenant].clients {
                number += 1;
                let client = SoakClient {
                    addr,
                    tenant,
                    habit: tenants[tenant].habit,
                    attack: attack.clone(),
                    headers: headers(key),
                    rng: SeededRng::new(seed.wrapping_mul(1_000_003).wrapping_add(number)),
                    seen: SoakResults::default(),
                };
                tasks.spawn(client.run(stop.clone(), ended.clone()));
            }
        }
        Self { stop, attack, ended, tasks }
    }

    /// Makes the attackers attack from their next request on.
    pub(super) fn begin_attack(&self) {
        self.attack.store(true, Relaxed);
    }

    /// Returns the number of answers that have ended so far.
    pub(super) fn so_far(&self) -> u64 {
        self.ended.load(Relaxed)
    }

    /// Lets each client finish its current request, and returns the results of all clients.
    pub(super) async fn finish(mut self) -> Result<SoakResults> {
        self.stop.store(true, Relaxed);
        let mut all = SoakResults::default();
        while let Some(seen) = self.tasks.join_next().await {
            all.add(seen?);
        }
        Ok(all)
    }
}

/// Returns the headers of a request that uses the given key.
pub(super) fn headers(key: &str) -> Vec<(String, String)> {
    let headers =
        [("authorization", format!("Bearer {key}")), ("content-type", "application/json".into())];
    headers.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

struct SoakClient {
    addr: SocketAddr,
    tenant: usize,
    habit: ClientHabit,
    attack: Arc<AtomicBool>,
    headers: Vec<(String, String)>,
    rng: SeededRng,
    seen: SoakResults,
}

/// The moment at which a client plans to end its request.
#[derive(Clone, Copy)]
enum PlannedEnd {
    ReadAll,
    /// The client leaves after this number of bytes of the answer.
    LeaveAfterBytes(usize),
    /// The client leaves after this time, even if no byte of the answer has arrived.
    LeaveAfter(Duration),
    /// The client leaves when the model has reported the end of its text, before the usage arrives.
    LeaveAtFinish,
}

impl SoakClient {
    async fn run(mut self, stop: Arc<AtomicBool>, ended: Arc<AtomicU64>) -> SoakResults {
        while !stop.load(Relaxed) {
            let result = self.one().await;
            let pause = match &result {
                // A refused client waits 100 ms before it tries again.
                SoakRequestResult::End(_, ended) if ended.status == 429 || ended.status == 503 => {
                    100
                }
                SoakRequestResult::End(..) => 0,
                // The gateway may be unavailable, so the client waits up to 50 ms.
                _ => self.rng.range(0..=50),
            };
            if matches!(result, SoakRequestResult::End(..)) {
                ended.fetch_add(1, Relaxed);
            }
            self.seen.note(result);
            sleep(Duration::from_millis(pause)).await;
        }
        self.seen
    }

    async fn one(&mut self) -> SoakRequestResult {
        let habit = self.habit();
        let body = body(habit, &mut self.rng);
        let headers = self.headers.clone();
        let request = BenchRequest { addr: self.addr, path: habit.path().into(), headers, body };
        match habit {
            _ if habit.takes_leases() => {
                lease_clients::one(request, habit, self.tenant, &mut self.rng).await
            }
            ClientHabit::ReadSlowly => {
                slow_readers::http1(&request, self.tenant, &mut self.rng).await
            }
            ClientHabit::ReadByteByByte => {
                slow_readers::http2(&request, self.tenant, &mut self.rng).await
            }
            _ => self.read(&request).await,
        }
    }

    fn habit(&self) -> ClientHabit {
        if self.attack.load(Relaxed) { self.habit } else { self.habit.before_attack() }
    }

    fn plan(&mut self) -> PlannedEnd {
        let left = self.rng.range(0..=99);
        match self.habit() {
            ClientHabit::LeaveAtFinish => PlannedEnd::LeaveAtFinish,
            ClientHabit::Leave if left < 60 => {
                PlannedEnd::LeaveAfter(Duration::from_millis(self.rng.range(0..=400)))
            }
            ClientHabit::Leave if left < 90 => {
                PlannedEnd::LeaveAfterBytes(self.rng.count(0..=4000))
            }
            ClientHabit::Honest if left < 4 => {
                PlannedEnd::LeaveAfterBytes(self.rng.count(0..=4000))
            }
            ClientHabit::Honest if left < 6 => {
                PlannedEnd::LeaveAfter(Duration::from_millis(self.rng.range(0..=60)))
            }
            _ => PlannedEnd::ReadAll,
        }
    }

    /// Sends the request and reads the answer at full speed, until its end or until the client
    /// leaves as planned.
    async fn read(&mut self, request: &BenchRequest) -> SoakRequestResult {
        let plan = self.plan();
        let mut id = None;
        let asked = http::send(request, ANSWER_TIMEOUT, |answer: &BenchResponse, _| {
            id = answer.header("x-fairgate-request-id").map(str::to_owned);
            let leaves = match plan {
                PlannedEnd::LeaveAfterBytes(bytes) => answer.body().len() > bytes,
                PlannedEnd::LeaveAtFinish => has_stopped(answer.body()),
                PlannedEnd::ReadAll | PlannedEnd::LeaveAfter(_) => false,
            };
            if leaves { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let answer = match plan {
            PlannedEnd::LeaveAfter(time) => timeout(time, asked).await.ok(),
            _ => Some(asked.await),
        };
        classify_result(answer, id, self.tenant)
    }
}

/// Returns whether the model has reported the end of its text.
fn has_stopped(body: &[u8]) -> bool {
    let end = &body[body.len().saturating_sub(8192)..];
    let end = String::from_utf8_lossy(end);
    ["stop", "length"].iter().any(|reason| end.contains(&format!("\"finish_reason\":\"{reason}\"")))
}

/// Classifies the result of a request by its answer, or by the part of the answer that arrived.
pub(super) fn classify_result(
    answer: Option<io::Result<BenchResponse>>,
    id: Option<String>,
    tenant: usize,
) -> SoakRequestResult {
    let answer = match answer {
        Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return SoakRequestResult::ConnectionRefused;
        }
        answer => answer.and_then(io::Result::ok).filter(BenchResponse::is_whole),
    };
    let status = answer.as_ref().and_then(BenchResponse::status);
    match (answer, status, id) {
        (Some(answer), Some(status), Some(id)) => {
            let code = error_code(answer.body());
            SoakRequestResult::End(id, EndedAnswer { tenant, status, code, at: Instant::now() })
        }
        (Some(_), Some(_), None) => SoakRequestResult::WithoutId,
        (_, _, Some(id)) => SoakRequestResult::CutAfterId(id),
        (_, _, None) => SoakRequestResult::CutBeforeId,
    }
}
