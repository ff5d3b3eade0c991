//! Real servers by other projects: llama.cpp's own server, with a small model of random weights,
//! and an application on uvicorn. Their sources are in `tests/backends`. Bursts of streams keep all
//! slots of the servers occupied and further requests queued. Between bursts are idle times in
//! which uvicorn closes its connections. A stream may fail only because of its server or a
//! disaster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use fairgate_testkit::programs::{RunningProgram, addr_below_ephemeral_ports, start};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::SoakOptions;
use super::client_results::{SoakRequestResult, SoakResults};
use super::clients::{ANSWER_TIMEOUT, classify_result, headers};
use super::tenants::{ClientHabit, TENANTS, with_image};
use super::testbed::GatewayRestarts;
use crate::http::{self, BenchRequest, BenchResponse, CHAT_PATH};

const SLOTS: usize = 4;
/// Number of parallel streams per server during a burst. It is eight times the number of the
/// server's slots.
const AT_ONCE: usize = 32;
const BURSTS: u32 = 20;
/// Number of malformed requests in a burst, in addition to the streams.
const POISON: usize = 5;
/// Time that the streams may take beyond the planned length of the run.
const OVERTIME: Duration = Duration::from_secs(120);

/// A real server, and the name of the model with which clients request it from the gateway.
pub(super) struct RealServer {
    pub(super) model: &'static str,
    addr: SocketAddr,
    _program: RunningProgram,
}

impl RealServer {
    /// Starts both real servers. If the options name no Python or no folder of sources, starts none and returns an
    /// empty list.
    pub(super) fn start_all(options: &SoakOptions, folder: &Path) -> Result<Vec<Self>> {
        let (Some(python), Some(sources)) = (&options.python, &options.backends) else {
            return Ok(Vec::new());
        };
        let command = || {
            let mut command = Command::new(python);
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        let addr = addr_below_ephemeral_ports()?;
        let mut llama = command();
        llama.arg(sources.join("llama_server.py")).arg(folder.join("tiny.gguf"));
        llama.args([addr.port().to_string(), SLOTS.to_string()]);
        let program = start("llama", &mut llama, folder, addr)?;
        let llama = Self { model: "tiny-llama", addr, _program: program };
        let addr = addr_below_ephemeral_ports()?;
        let mut uvicorn = command();
        uvicorn.args(["-m", "uvicorn", "chat_app:app", "--app-dir"]).arg(sources);
        uvicorn.args(["--port", &addr.port().to_string(), "--timeout-keep-alive", "1"]);
        let program = start("uvicorn", &mut uvicorn, folder, addr)?;
        Ok(vec![llama, Self { model: "tiny-uvicorn", addr, _program: program }])
    }

    /// Returns the server's entry in the gateway's configuration of upstreams.
    pub(super) fn upstream(&self) -> String {
        let (model, addr) = (self.model, self.addr);
        format!("  - name: {model}\n    url: http://{addr}\n    slots: {SLOTS}\n")
    }

    /// Returns the server's entry in the gateway's configuration of pools.
    pub(super) fn pool(&self) -> String {
        let model = self.model;
        format!(
            "  - name: {model}\n    models: [{{name: {model}, upstream_name: tiny}}]\n    workers: [{model}]\n"
        )
    }
}

/// The results of all streams from the real servers.
#[derive(Debug, Default)]
pub(super) struct RealServerReport {
    pub(super) seen: SoakResults,
    /// Number of complete streams, by model.
    whole: BTreeMap<&'static str, u64>,
    /// Number of streams that broke because the gateway was killed.
    killed: u64,
    /// Number of streams that were refused because no row could be kept.
    refused: u64,
    /// Descriptions of the streams that failed for any other reason, each with the end of its
    /// answer.
    failed: Vec<String>,
}

impl RealServerReport {
    fn add(&mut self, other: Self) {
        self.seen.add(other.seen);
        other.whole.into_iter().for_each(|(model, n)| *self.whole.entry(model).or_default() += n);
        self.killed += other.killed;
        self.refused += other.refused;
        self.failed.extend(other.failed);
    }

    /// Summarises the numbers in words.
    pub(super) fn describe(&self) -> String {
        let whole: Vec<String> =
            self.whole.iter().map(|(model, count)| format!("{count} of {model}")).collect();
        format!(
            "real servers: whole streams: {}; {} broke off with a killed gateway, {} were refused while no row \
             could be kept, {} failed",
            whole.join(", "),
            self.killed,
            self.refused,
            self.failed.len()
        )
    }

    /// Lists unexpected results, one sentence each. `streams` is the number of streams that each
    /// model should have completed.
    pub(super) fn problems(&self, models: &[&str], streams: u64) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(first) = self.failed.first() {
            let count = self.failed.len();
            problems.push(format!(
                "{count} streams of real servers failed, and neither the server nor a disaster made them; the first: {first}"
            ));
        }
        for model in models {
            let whole = self.whole.get(model).copied().unwrap_or_default();
            if whole < streams {
                problems.push(format!(
                    "Only {whole} of {streams} streams of {model} came to their end."
                ));
            }
        }
        problems
    }
}

/// A client that requests streams from the real servers through the gateway.
#[derive(Clone)]
pub(super) struct RealServerClient {
    pub(super) addr: SocketAddr,
    /// Keys of all tenants, in the order of the tenants.
    pub(super) keys: Arc<Vec<String>>,
    pub(super) lives: Arc<GatewayRestarts>,
}

/// Requests `streams` streams of each model, in bursts that are spread evenly over `length`.
pub(super) async fn streams(
    asker: RealServerClient,
    models: Vec<&'static str>,
    streams: u64,
    length: Duration,
) -> Result<RealServerReport> {
    let begin = Instant::now();
    let mut report = RealServerReport::default();
    let each = i64::try_from(streams.div_ceil(u64::from(BURSTS)))?;
    for burst in 0..BURSTS {
        sleep_until(begin + length * burst / BURSTS).await;
        let mut tasks = JoinSet::new();
        for &model in &models {
            let left = Arc::new(AtomicI64::new(each));
            for client in 0..AT_ONCE {
                let deadline = begin + length + OVERTIME;
                tasks.spawn(asker.clone().ask_until_none_is_left(
                    model,
                    client,
                    left.clone(),
                    deadline,
                ));
            }
        }
        if models.contains(&"tiny-llama") {
            tasks.spawn(asker.clone().poison("tiny-llama"));
        }
        while let Some(done) = tasks.join_next().await {
            report.add(done?);
        }
    }
    Ok(report)
}

impl RealServerClient {
    /// Runs one client of a burst. The client requests streams until `left` reaches 0 or the
    /// deadline passes.
    async fn ask_until_none_is_left(
        self,
        model: &'static str,
        client: usize,
        left: Arc<AtomicI64>,
        deadline: Instant,
    ) -> RealServerReport {
        let mut report = RealServerReport::default();
        // Only the two honest tenants without a budget are used.
        let tenant = client % 2;
        while Instant::now() < deadline && left.fetch_sub(1, SeqCst) > 0 {
            while Instant::now() < deadline && !self.one(model, tenant, &mut report).await {
                sleep(Duration::from_millis(100)).await;
            }
        }
        report
    }

    /// Requests one stream. Returns true if the stream was complete or failed. Returns false if the
    /// gateway was unavailable, was killed during the stream, or could keep no row. The caller must
    /// then try again.
    async fn one(&self, model: &'static str, tenant: usize, report: &mut RealServerReport) -> bool {
        let body = json!({
            "model": model,
            "stream": true,
            "max_tokens": 16,
            "messages": [{"role": "user", "content": "say something"}],
        });
        let lives = self.lives.so_far();
        let (answer, result) = self.ask(tenant, &body.to_string()).await;
        let was_away = self.lives.was_away(lives);
        let counted = match &result {
            SoakRequestResult::ConnectionRefused => false,
            SoakRequestResult::End(_, ended) if ended.is_store_unavailable() => {
                report.refused += 1;
                false
            }
            SoakRequestResult::End(_, ended) if ended.is_good() && is_finished(&answer) => {
                *report.whole.entry(model).or_default() += 1;
                true
            }
            SoakRequestResult::CutAfterId(_) | SoakRequestResult::CutBeforeId if was_away => {
                report.killed += 1;
                false
            }
            other => {
                let end = &answer[answer.len().saturating_sub(300)..];
                let end = String::from_utf8_lossy(end);
                report.failed.push(format!("{model}: {other:?}, which said …{end:?}"));
                true
            }
        };
        report.seen.note(result);
        counted
    }

    /// Sends requests with an image that cannot be decoded, so that the server answers with its own
    /// error.
    async fn poison(self, model: &'static str) -> RealServerReport {
        let mut report = RealServerReport::default();
        let tenant = TENANTS.iter().position(|tenant| tenant.habit == ClientHabit::Poison);
        let body = json!({
            "model": model,
            "max_tokens": 4,
            "messages": [{"role": "user", "content": with_image("")}],
        });
        for _ in 0..POISON {
            let (_, result) = self.ask(tenant.unwrap_or_default(), &body.to_string()).await;
            report.seen.note(result);
        }
        report
    }

    async fn ask(&self, tenant: usize, body: &str) -> (Vec<u8>, SoakRequestResult) {
        let headers = headers(&self.keys[tenant]);
        let ask = BenchRequest {
            addr: self.addr,
            path: CHAT_PATH.into(),
            headers,
            body: body.to_owned(),
        };
        let (mut id, mut bytes) = (None, Vec::new());
        let answer = http::send(&ask, ANSWER_TIMEOUT, |answer: &BenchResponse, piece| {
            id = answer.header("x-fairgate-request-id").map(str::to_owned);
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        let answer = answer.await;
        (bytes, classify_result(Some(answer), id, tenant))
    }
}

/// Returns whether a stream has ended with its last event and contains no error.
fn is_finished(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    text.contains("data: [DONE]") && !text.contains("\"error\"")
}
