//! The workers and one router in front of them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fairgate_sim::{CACHE_BLOCK_TOKENS, OutputLength, Sim, SimOptions};
use serde_json::Value;

use super::Options;
use super::classes::CLASSES;
use super::placement::Size;
use super::workload::Workload;
use crate::processes::{Program, admin, answers, free_addr, start};

/// Requests that a worker has at once. It reads one prompt at a time, as fast as it can, and writes for all.
pub(crate) const SLOTS: usize = 16;
/// The part of the time that reading would take if nothing were cached.
const PREFILL_LOAD: f64 = 0.7;
/// The part of all different prompts that fits into all caches together.
const CACHED_PART: u64 = 2;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What requests go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Router {
    /// nginx: one worker after the other.
    RoundRobin,
    Sglang,
    Vllm,
    Fairgate,
}

impl Router {
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

/// The routers that are here.
pub(crate) fn routers(options: &Options) -> impl Iterator<Item = Router> {
    Router::ALL.into_iter().filter(|router| match router {
        Router::Sglang => options.sglang_python.is_some(),
        Router::Vllm => options.vllm_router.is_some(),
        Router::RoundRobin | Router::Fairgate => true,
    })
}

/// Everything that runs.
pub(crate) struct Stage {
    folder: PathBuf,
    pub(crate) workers: Vec<Sim>,
    /// Where the router listens, and what it wants to be told.
    pub(crate) addr: SocketAddr,
    pub(crate) headers: Vec<(String, String)>,
    _router: Program,
    fairgate: PathBuf,
}

impl Stage {
    pub(crate) async fn build(
        options: &Options,
        workload: &Workload,
        workers: usize,
        router: Router,
        policy: &str,
    ) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("fairgate-router-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let size = size(workload, workers);
        let cache_tokens = size.cache_tokens;
        let started = (0..workers).map(|_| worker(&size));
        let sims = started.collect::<Result<Vec<Sim>>>()?;
        let urls: Vec<SocketAddr> = sims.iter().map(Sim::addr).collect();
        let addr = free_addr()?;
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        let program = match router {
            Router::RoundRobin => nginx(&folder, addr, &urls)?,
            Router::Sglang => peer(
                options.sglang_python.as_deref(),
                &["-m", "sglang_router.launch_router"],
                &folder,
                addr,
                &urls,
            )?,
            Router::Vllm => peer(options.vllm_router.as_deref(), &[], &folder, addr, &urls)?,
            Router::Fairgate => {
                let (program, key) =
                    fairgate(&options.fairgate, &folder, addr, &urls, cache_tokens, policy)?;
                headers.push(("authorization".to_owned(), format!("Bearer {key}")));
                program
            }
        };
        ready(addr).await?;
        let fairgate = options.fairgate.clone();
        Ok(Self { folder, workers: sims, addr, headers, _router: program, fairgate })
    }

    /// What an admin command says, where the router is Fairgate.
    pub(crate) fn admin(&self, args: &[&str]) -> Result<Value> {
        admin(&self.fairgate, self.addr, &self.folder.join("data"), args)
    }

    /// Ends everything and removes what was written.
    pub(crate) async fn end(self) -> Result<()> {
        drop(self._router);
        for worker in self.workers {
            worker.kill().await;
        }
        Ok(fs::remove_dir_all(&self.folder)?)
    }
}

/// Workers as fast as their part of the workload needs.
pub(crate) fn size(workload: &Workload, workers: usize) -> Size {
    let per_token = PREFILL_LOAD * workers as f64 / workload.tokens_per_second;
    Size {
        workers,
        cache_tokens: workload.distinct_tokens / CACHED_PART / workers as u64,
        per_token: Duration::from_secs_f64(per_token),
    }
}

fn worker(size: &Size) -> Result<Sim> {
    let options = SimOptions {
        models: vec!["bench".to_owned()],
        slots: SLOTS,
        prefill_base: Duration::ZERO,
        prefill_at_once: Some(1),
        prefill_per_token: size.per_token,
        decode_per_token: Duration::from_millis(4),
        output_tokens: OutputLength::exactly(20),
        prefix_cache_blocks: usize::try_from(size.cache_tokens / CACHE_BLOCK_TOKENS)?,
        ..SimOptions::default()
    };
    Ok(Sim::start(([127, 0, 0, 1], 0).into(), options)?)
}

/// Waits until a router answers; it may look at its workers first.
async fn ready(addr: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + READY_WITHIN;
    while !answers(addr, "/health") && !answers(addr, "/healthz") {
        if Instant::now() > deadline {
            bail!("nothing answered on {addr} within {READY_WITHIN:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// One process, since each has turns of its own.
fn nginx(folder: &Path, addr: SocketAddr, workers: &[SocketAddr]) -> Result<Program> {
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

/// sglang-router and vllm-router take the same arguments. Both choose by their own idea of the caches, with the limits that they
/// come with.
fn peer(
    program: Option<&Path>,
    first: &[&str],
    folder: &Path,
    addr: SocketAddr,
    workers: &[SocketAddr],
) -> Result<Program> {
    let mut command = Command::new(program.context("the router is here")?);
    command.args(first).args(["--policy", "cache_aware", "--host", "127.0.0.1"]);
    command.args(["--port", &addr.port().to_string()]);
    command.args(["--prometheus-port", &free_addr()?.port().to_string(), "--log-level", "error"]);
    command.arg("--worker-urls").args(workers.iter().map(|worker| format!("http://{worker}")));
    start("peer", &mut command, folder, addr)
}

/// A gateway with one pool that knows what its workers have cached, one tenant and one key.
fn fairgate(
    binary: &Path,
    folder: &Path,
    addr: SocketAddr,
    workers: &[SocketAddr],
    cache_tokens: u64,
    policy: &str,
) -> Result<(Program, String)> {
    let data = folder.join("data");
    let conf = folder.join("fairgate.yaml");
    let upstream = |(number, worker): (usize, &SocketAddr)| {
        format!("  - name: w{number:02}\n    url: http://{worker}\n    slots: {SLOTS}\n")
    };
    let upstreams: String = workers.iter().enumerate().map(upstream).collect();
    let names: Vec<String> = (0..workers.len()).map(|number| format!("w{number:02}")).collect();
    fs::write(
        &conf,
        format!(
            "listen: {addr}\ndata_dir: {}\nupstreams:\n{upstreams}pools:\n  - name: bench\n    models: [{{name: bench}}]\n\
             \x20   workers: [{}]\n    max_queue: 20000\n    queue_timeout: 120s\n    prefix_index: {{cache_tokens: {cache_tokens}}}\n{policy}",
            data.display(),
            names.join(", "),
        ),
    )?;
    let mut command = Command::new(binary);
    command.args(["serve", "--config"]).arg(&conf);
    let program = start("fairgate", &mut command, folder, addr)?;
    admin(binary, addr, &data, &["group", "add", "bench"])?;
    admin(binary, addr, &data, &["tenant", "add", "bench", "--group", "bench"])?;
    let classes = CLASSES.map(|(name, _)| name).join(",");
    let key = admin(binary, addr, &data, &["key", "create", "bench", "--classes", &classes])?;
    let secret = key.get("secret").and_then(Value::as_str).map(str::to_owned);
    Ok((program, secret.with_context(|| format!("no secret in {key}"))?))
}
