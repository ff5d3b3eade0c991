//! Servers that others wrote: llama.cpp's own with a small model of random weights, and an application on uvicorn. They come
//! from `tests/backends`. Bursts of streams keep all of their slots taken and others waiting, with quiet times between them
//! in which uvicorn closes its idle connections. A stream fails only if its server or a disaster made it fail.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::Options;
use super::clients::{PATIENCE, headers, sight};
use super::seen::{Seen, Sight};
use super::stage::Lives;
use super::tenants::{Habit, TENANTS, with_image};
use crate::http::{self, Answer, Ask};
use crate::processes::{Program, lasting_addr, start};

const SLOTS: usize = 4;
/// How many streams of a server are asked for at once in a burst: eight times what it has slots for.
const AT_ONCE: usize = 32;
const BURSTS: u32 = 20;
/// Requests of a burst that the server cannot read, beside the streams.
const POISON: usize = 5;
/// How long the streams may take beyond the time that they are spread over.
const OVERTIME: Duration = Duration::from_secs(120);

/// A server, and the model that it serves to the gateway's clients.
pub(super) struct RealServer {
    pub(super) model: &'static str,
    addr: SocketAddr,
    _program: Program,
}

impl RealServer {
    /// Starts both, if there is a Python that has what they need.
    pub(super) fn start_all(options: &Options, folder: &Path) -> Result<Vec<Self>> {
        let (Some(python), Some(sources)) = (&options.python, &options.backends) else {
            return Ok(Vec::new());
        };
        let command = || {
            let mut command = Command::new(python);
            command.env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        let addr = lasting_addr()?;
        let mut llama = command();
        llama.arg(sources.join("llama_server.py")).arg(folder.join("tiny.gguf"));
        llama.args([addr.port().to_string(), SLOTS.to_string()]);
        let program = start("llama", &mut llama, folder, addr)?;
        let llama = Self { model: "tiny-llama", addr, _program: program };
        let addr = lasting_addr()?;
        let mut uvicorn = command();
        uvicorn.args(["-m", "uvicorn", "chat_app:app", "--app-dir"]).arg(sources);
        uvicorn.args(["--port", &addr.port().to_string(), "--timeout-keep-alive", "1"]);
        let program = start("uvicorn", &mut uvicorn, folder, addr)?;
        Ok(vec![llama, Self { model: "tiny-uvicorn", addr, _program: program }])
    }

    /// Its part of the gateway's upstreams.
    pub(super) fn upstream(&self) -> String {
        let (model, addr) = (self.model, self.addr);
        format!("  - name: {model}\n    url: http://{addr}\n    slots: {SLOTS}\n")
    }

    /// Its part of the gateway's pools.
    pub(super) fn pool(&self) -> String {
        let model = self.model;
        format!(
            "  - name: {model}\n    models: [{{name: {model}, upstream_name: tiny}}]\n    workers: [{model}]\n"
        )
    }
}

/// What became of the streams.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) seen: Seen,
    /// Streams that came to their end, by model.
    whole: BTreeMap<&'static str, u64>,
    /// Streams that broke off when the gateway was killed.
    killed: u64,
    /// Streams that were refused because no row could be kept.
    refused: u64,
    /// Everything else, with what it said.
    failed: Vec<String>,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.seen.add(other.seen);
        other.whole.into_iter().for_each(|(model, n)| *self.whole.entry(model).or_default() += n);
        self.killed += other.killed;
        self.refused += other.refused;
        self.failed.extend(other.failed);
    }

    /// The numbers in words.
    pub(super) fn told(&self) -> String {
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

    /// What should not have been, a sentence each.
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

/// Who asks for streams.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) addr: SocketAddr,
    /// The keys of all tenants.
    pub(super) keys: Arc<Vec<String>>,
    pub(super) lives: Arc<Lives>,
}

/// Asks for so many streams of each model, in bursts over so long.
pub(super) async fn streams(
    asker: Asker,
    models: Vec<&'static str>,
    streams: u64,
    length: Duration,
) -> Result<Report> {
    let begin = Instant::now();
    let mut report = Report::default();
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

impl Asker {
    /// One client of a burst.
    async fn ask_until_none_is_left(
        self,
        model: &'static str,
        client: usize,
        left: Arc<AtomicI64>,
        deadline: Instant,
    ) -> Report {
        let mut report = Report::default();
        // The two honest tenants without a budget.
        let tenant = client % 2;
        while Instant::now() < deadline && left.fetch_sub(1, SeqCst) > 0 {
            while Instant::now() < deadline && !self.one(model, tenant, &mut report).await {
                sleep(Duration::from_millis(100)).await;
            }
        }
        report
    }

    /// One stream; whether it was counted, well or badly. Who found no gateway, or one that was killed or could keep no
    /// row, comes again.
    async fn one(&self, model: &'static str, tenant: usize, report: &mut Report) -> bool {
        let body = json!({
            "model": model,
            "stream": true,
            "max_tokens": 16,
            "messages": [{"role": "user", "content": "say something"}],
        });
        let lives = self.lives.so_far();
        let (answer, sight) = self.ask(tenant, &body.to_string()).await;
        let was_away = self.lives.was_away(lives);
        let counted = match &sight {
            Sight::Nobody => false,
            Sight::End(_, ended) if ended.is_store_unavailable() => {
                report.refused += 1;
                false
            }
            Sight::End(_, ended) if ended.is_good() && is_finished(&answer) => {
                *report.whole.entry(model).or_default() += 1;
                true
            }
            Sight::Cut(_) | Sight::Unknown if was_away => {
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
        report.seen.note(sight);
        counted
    }

    /// Requests that the server answers with an error of its own.
    async fn poison(self, model: &'static str) -> Report {
        let mut report = Report::default();
        let tenant = TENANTS.iter().position(|tenant| tenant.habit == Habit::Poison);
        let body = json!({
            "model": model,
            "max_tokens": 4,
            "messages": [{"role": "user", "content": with_image("")}],
        });
        for _ in 0..POISON {
            let (_, sight) = self.ask(tenant.unwrap_or_default(), &body.to_string()).await;
            report.seen.note(sight);
        }
        report
    }

    async fn ask(&self, tenant: usize, body: &str) -> (Vec<u8>, Sight) {
        let headers = headers(&self.keys[tenant]);
        let ask = Ask { addr: self.addr, headers, body: body.to_owned() };
        let (mut id, mut bytes) = (None, Vec::new());
        let answer = http::ask(&ask, PATIENCE, |answer: &Answer, piece| {
            id = answer.header("x-fairgate-request-id").map(str::to_owned);
            bytes.extend_from_slice(piece);
            ControlFlow::Continue(())
        });
        let answer = answer.await;
        (bytes, sight(Some(answer), id, tenant))
    }
}

/// Whether a stream has its last event, and no error in it.
fn is_finished(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    text.contains("data: [DONE]") && !text.contains("\"error\"")
}
