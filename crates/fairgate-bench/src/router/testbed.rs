//! The simulated workers of a run and one router in front of them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fairgate_sim::{CACHE_BLOCK_TOKENS, OutputLength, Sim, SimOptions};
use fairgate_testkit::programs::{
    GatewayProgram, RunningProgram, admin, answers, free_addr, start,
};
use serde_json::Value;

use super::RouterBenchOptions;
use super::classes::CLASSES;
use super::workload::{ANSWER_TOKENS, RouterWorkload};

/// The number, cache size and speed of the workers in a run.
pub(crate) struct WorkerSetup {
    pub(crate) workers: usize,
    /// Size of each worker's prefix cache, in tokens.
    pub(crate) cache_tokens: u64,
    /// Time that a worker takes to prefill one token.
    pub(crate) per_token: Duration,
}

/// Time that a worker takes for each token of an answer except the first.
pub(crate) const DECODE_PER_TOKEN: Duration = Duration::from_millis(4);
/// Number of slots of each worker. A worker prefills one prompt at a time, and decodes all its
/// requests at once.
pub(crate) const SLOTS: usize = 16;
/// Fraction of the time for which the workers would prefill if no tokens were cached.
const PREFILL_LOAD: f64 = 0.7;
/// Ratio of the number of tokens of all distinct prompts to the size of all caches together.
const CACHED_PART: u64 = 2;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The router between clients and workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouterKind {
    /// nginx, which uses the workers in turn.
    RoundRobin,
    Sglang,
    Vllm,
    Fairgate,
}

impl RouterKind {
    pub(crate) const ALL: [Self; 4] = [Self::RoundRobin, Self::Sglang, Self::Vllm, Self::Fairgate];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round robin (nginx)",
            Self::Sglang => "sglang-router",
            Self::Vllm => "vllm-router",
            Self::Fairgate => "Fairgate",
        }
    }
}

/// Iterates over the routers for which the options name a program. nginx and Fairgate are always
/// included.
pub(crate) fn routers(options: &RouterBenchOptions) -> impl Iterator<Item = RouterKind> {
    RouterKind::ALL.into_iter().filter(|router| match router {
        RouterKind::Sglang => options.sglang_python.is_some(),
        RouterKind::Vllm => options.vllm_router.is_some(),
        RouterKind::RoundRobin | RouterKind::Fairgate => true,
    })
}

/// All programs of a run with one router.
pub(crate) struct RouterTestbed {
    folder: PathBuf,
    pub(crate) workers: Vec<Sim>,
    /// Address of the router.
    pub(crate) addr: SocketAddr,
    /// Headers that requests to the router need.
    pub(crate) headers: Vec<(String, String)>,
    _router: RunningProgram,
    fairgate: PathBuf,
}

impl RouterTestbed {
    pub(crate) async fn build(
        options: &RouterBenchOptions,
        workload: &RouterWorkload,
        workers: usize,
        router: RouterKind,
        policy: &str,
    ) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("fairgate-router-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let size = worker_setup(workload, workers);
        let cache_tokens = size.cache_tokens;
        let started = (0..workers).map(|_| worker(&size));
        let sims = started.collect::<Result<Vec<Sim>>>()?;
        let urls: Vec<SocketAddr> = sims.iter().map(Sim::addr).collect();
        let mut addr = free_addr()?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let program = match router {
            RouterKind::RoundRobin => nginx(&folder, addr, &urls)?,
            RouterKind::Sglang => peer(
                options.sglang_python.as_deref(),
                &["-m", "sglang_router.launch_router"],
                &folder,
                addr,
                &urls,
            )?,
            RouterKind::Vllm => peer(options.vllm_router.as_deref(), &[], &folder, addr, &urls)?,
            RouterKind::Fairgate => {
                let gateway = fairgate(&options.fairgate, &folder, &urls, cache_tokens, policy)?;
                headers.push(("authorization".to_owned(), format!("Bearer {}", gateway.key)));
                addr = gateway.addr;
                gateway.program
            }
        };
        wait_ready(addr).await?;
        let fairgate = options.fairgate.clone();
        Ok(Self { folder, workers: sims, addr, headers, _router: program, fairgate })
    }

    /// Runs an admin command on the gateway. Fails if the router is not Fairgate.
    pub(crate) fn admin(&self, args: &[&str]) -> Result<Value> {
        admin(&self.fairgate, self.addr, &self.folder.join("fairgate-data"), args)
    }

    /// Ends all programs of the run and removes their files.
    pub(crate) async fn end(self) -> Result<()> {
        drop(self._router);
        for worker in self.workers {
            worker.kill().await;
        }
        Ok(fs::remove_dir_all(&self.folder)?)
    }
}

/// Returns the setup of the workers for a workload. Their speed is such that prefill without any
/// cached tokens would take the fraction [`PREFILL_LOAD`] of their time.
pub(crate) fn worker_setup(workload: &RouterWorkload, workers: usize) -> WorkerSetup {
    let per_token = PREFILL_LOAD * workers as f64 / workload.tokens_per_second;
    WorkerSetup {
        workers,
        cache_tokens: workload.distinct_tokens / CACHED_PART / workers as u64,
        per_token: Duration::from_secs_f64(per_token),
    }
}

fn worker(size: &WorkerSetup) -> Result<Sim> {
    let options = SimOptions {
        models: vec!["bench".to_owned()],
        slots: SLOTS,
        prefill_base: Duration::ZERO,
        prefill_at_once: Some(1),
        prefill_per_token: size.per_token,
        decode_per_token: DECODE_PER_TOKEN,
        output_tokens: OutputLength::exactly(ANSWER_TOKENS),
        prefix_cache_blocks: usize::try_from(size.cache_tokens / CACHE_BLOCK_TOKENS)?,
        ..SimOptions::default()
    };
    Ok(Sim::start(([127, 0, 0, 1], 0).into(), options)?)
}

/// Waits until a router answers requests. Some routers check their workers before they answer.
async fn wait_ready(addr: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    while !answers(addr, "/health") && !answers(addr, "/healthz") {
        if Instant::now() > deadline {
            bail!("nothing answered on {addr} within {READY_WITHIN:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Starts nginx with a single worker process, because each nginx process does its own round robin.
fn nginx(folder: &Path, addr: SocketAddr, workers: &[SocketAddr]) -> Result<RunningProgram> {
    let root = folder.display();
    let conf = folder.join("nginx.conf");
    let servers: String = workers.iter().map(|worker| format!("server {worker};")).collect();
    fs::write(
        &conf,
        format!(
            "daemon off;\npid {root}/nginx.pid;\nerror_log {root}/nginx-error.log;\nworker_processes 1;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n  access_log off;\n  client_body_temp_path {root}/nginx-body;\n  proxy_temp_path {root}/nginx-proxy;\n\
               fastcgi_temp_path {root}/nginx-f;\n  uwsgi_temp_path {root}/nginx-u;\n  scgi_temp_path {root}/nginx-s;\n\
               client_max_body_size 64m;\n  client_body_buffer_size 1m;\n  upstream models {{ {servers} }}\n\
               server {{\n    listen {addr};\n    location / {{\n      proxy_pass http://models;\n      proxy_http_version 1.1;\n\
                 proxy_read_timeout 300s;\n      proxy_buffering off;\n    }}\n  }}\n}}\n"
        ),
    )?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(&conf);
    start("nginx", &mut command, folder, addr)
}

/// Starts sglang-router or vllm-router, which take the same arguments. Each tracks the workers'
/// caches by itself, with its default limits.
fn peer(
    program: Option<&Path>,
    first: &[&str],
    folder: &Path,
    addr: SocketAddr,
    workers: &[SocketAddr],
) -> Result<RunningProgram> {
    let mut command = Command::new(program.context("the router is here")?);
    command.args(first).args(["--policy", "cache_aware", "--host", "127.0.0.1"]);
    command.args(["--port", &addr.port().to_string()]);
    command.args(["--prometheus-port", &free_addr()?.port().to_string(), "--log-level", "error"]);
    command.arg("--worker-urls").args(workers.iter().map(|worker| format!("http://{worker}")));
    start("peer", &mut command, folder, addr)
}

/// Starts a gateway with one pool that has a prefix index, one tenant and one key.
fn fairgate(
    binary: &Path,
    folder: &Path,
    workers: &[SocketAddr],
    cache_tokens: u64,
    policy: &str,
) -> Result<GatewayProgram> {
    let upstream = |(number, worker): (usize, &SocketAddr)| {
        format!("  - name: w{number:02}\n    url: http://{worker}\n    slots: {SLOTS}\n")
    };
    let upstreams: String = workers.iter().enumerate().map(upstream).collect();
    let names: Vec<String> = (0..workers.len()).map(|number| format!("w{number:02}")).collect();
    let config = format!(
        "upstreams:\n{upstreams}pools:\n  - name: bench\n    models: [{{name: bench}}]\n    workers: [{}]\n\
         \x20   max_queue: 20000\n    queue_timeout: 120s\n    prefix_index: {{cache_tokens: {cache_tokens}}}\n{policy}",
        names.join(", "),
    );
    let classes = CLASSES.map(|(name, _)| name).join(",");
    GatewayProgram::start(binary, folder, "fairgate", &config, &["--classes", &classes])
}
