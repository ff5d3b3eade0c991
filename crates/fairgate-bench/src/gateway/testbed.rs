//! The programs of a run (the upstream and the targets), and the targets' configuration.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result};
use fairgate_testkit::programs::{GatewayProgram, RunningProgram, admin, free_addr, start};
use serde_json::{Value, json};

use super::{GatewayBenchOptions, queued_memory};
use crate::http::{BenchRequest, CHAT_PATH};

/// The kind of target: the program between the load generator and the upstream, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BenchTargetKind {
    Direct,
    Nginx,
    Fairgate,
    LiteLlm,
    Portkey,
}

impl BenchTargetKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "nothing (the upstream itself)",
            Self::Nginx => "nginx",
            Self::Fairgate => "Fairgate",
            Self::LiteLlm => "LiteLLM",
            Self::Portkey => "Portkey",
        }
    }

    /// Returns whether it makes sense to measure the latency at `rate`: the greatest throughput
    /// `most` must be more than 1.5 times the rate. With a throughput closer to the rate, the
    /// latency only shows how long the target's queue is.
    pub(crate) fn can_carry(self, rate: f64, most: f64) -> bool {
        most > rate * 1.5
    }

    /// Returns whether this kind forwards each chunk of a stream as soon as it arrives. For other
    /// kinds the delay of the first chunk is not measured.
    pub(crate) fn streams_at_once(self) -> bool {
        matches!(self, Self::Direct | Self::Nginx | Self::Fairgate)
    }
}

/// One program under test, and the request that the load generator sends to it.
pub(crate) struct BenchTarget {
    pub(crate) kind: BenchTargetKind,
    pub(crate) program: Rc<RunningProgram>,
    pub(crate) plain_request: BenchRequest,
    pub(crate) stream: BenchRequest,
}

/// All programs of a run.
pub(crate) struct GatewayTestbed {
    folder: PathBuf,
    pub(crate) targets: Vec<BenchTarget>,
}

impl GatewayTestbed {
    pub(crate) async fn build(options: &GatewayBenchOptions) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("fairgate-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let upstream = free_addr()?;
        let mut sim = Command::new(&options.sim);
        sim.args(["--trivial", "--listen", &upstream.to_string()]);
        let direct = Rc::new(start("upstream", &mut sim, &folder, upstream)?);
        let mut targets = vec![target(BenchTargetKind::Direct, direct, upstream, &[])];
        targets.push(nginx(&folder, upstream)?);
        let GatewayProgram { program, addr, key, .. } =
            fairgate(options, &folder, "fairgate", upstream, 256, "60s")?;
        let key = format!("Bearer {key}");
        let headers = [("authorization", &*key)];
        targets.push(target(BenchTargetKind::Fairgate, Rc::new(program), addr, &headers));
        if let Some(litellm) = &options.litellm {
            targets.push(lite_llm(litellm, &folder, upstream)?);
        }
        if let Some(portkey) = &options.portkey {
            targets.push(self::portkey(portkey, &folder, upstream)?);
        }
        Ok(Self { folder, targets })
    }

    /// Returns the folder for the files that measurements write.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Starts another gateway and another simulated backend, and measures that gateway's memory
    /// with a thousand streams and ten thousand queued requests.
    pub(crate) async fn measure_queued_memory(
        &self,
        options: &GatewayBenchOptions,
        say: &impl Fn(&str),
    ) -> Result<queued_memory::QueuedMemory> {
        let upstream = free_addr()?;
        let slots = queued_memory::STREAMS.to_string();
        let mut sim = Command::new(&options.sim);
        sim.args(["--listen", &upstream.to_string(), "--models", "bench", "--slots", &slots]);
        sim.args(["--decode-us-per-token", "200000", "--prefill-base-ms", "20", "--steering"]);
        sim.args(["--output-tokens", "200"]);
        let _sim = start("model", &mut sim, &self.folder, upstream)?;
        let slots = queued_memory::STREAMS as u64;
        let GatewayProgram { program: gateway, addr, data, key } =
            fairgate(options, &self.folder, "hold", upstream, slots, "10m")?;
        let key = format!("Bearer {key}");
        let held_request = |max_tokens: u64, stream: bool, bytes: usize| {
            let content = "word ".repeat(bytes / 5);
            let body = json!({
                "model": "bench", "max_tokens": max_tokens, "stream": stream,
                "messages": [{"role": "user", "content": content}],
            });
            request(addr, &[("authorization", &key)], body)
        };
        let (stream, waiting) =
            (held_request(150, true, 100), held_request(1, false, queued_memory::BODY_BYTES - 120));
        let queued = async || {
            let live = admin(&options.fairgate, addr, &data, &["live"])?;
            let number = |name: &str| live.get(name).and_then(Value::as_u64);
            let (flying, waiting) = (number("global_in_flight"), number("global_queued"));
            let numbers = flying.zip(waiting).with_context(|| format!("live says {live}"))?;
            Ok((usize::try_from(numbers.0)?, usize::try_from(numbers.1)?))
        };
        queued_memory::measure(&gateway, &stream, &waiting, queued, say).await
    }

    /// Ends all programs of the run and removes their files.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.targets.clear();
        Ok(fs::remove_dir_all(&self.folder)?)
    }
}

fn target(
    kind: BenchTargetKind,
    program: Rc<RunningProgram>,
    addr: SocketAddr,
    headers: &[(&str, &str)],
) -> BenchTarget {
    let body = |stream: bool| {
        json!({
            "model": "bench", "max_tokens": 64, "stream": stream,
            "messages": [
                {"role": "system", "content": "You answer in one sentence."},
                {"role": "user", "content": "What is a fair share of a scarce thing?"},
            ],
        })
    };
    let plain_request = request(addr, headers, body(false));
    BenchTarget { kind, program, plain_request, stream: request(addr, headers, body(true)) }
}

fn request(addr: SocketAddr, headers: &[(&str, &str)], body: Value) -> BenchRequest {
    let json = ("content-type", "application/json");
    let headers = headers.iter().chain([&json]);
    let headers = headers.map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    BenchRequest { addr, path: CHAT_PATH.into(), headers, body: body.to_string() }
}

fn nginx(folder: &Path, upstream: SocketAddr) -> Result<BenchTarget> {
    let addr = free_addr()?;
    let root = folder.display();
    let conf = folder.join("nginx.conf");
    fs::write(
        &conf,
        format!(
            "daemon off;\npid {root}/nginx.pid;\nerror_log {root}/nginx-error.log;\nworker_processes auto;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n  access_log off;\n  client_body_temp_path {root}/nginx-body;\n  proxy_temp_path {root}/nginx-proxy;\n\
               fastcgi_temp_path {root}/nginx-f;\n  uwsgi_temp_path {root}/nginx-u;\n  scgi_temp_path {root}/nginx-s;\n\
               keepalive_requests 10000000;\n  client_body_buffer_size 64k;\n\
               upstream model {{ server {upstream}; keepalive 64; keepalive_requests 10000000; }}\n\
               server {{\n    listen {addr};\n    location / {{\n      proxy_pass http://model;\n      proxy_http_version 1.1;\n\
                 proxy_set_header Connection \"\";\n      proxy_buffering off;\n    }}\n  }}\n}}\n"
        ),
    )?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(&conf);
    Ok(target(
        BenchTargetKind::Nginx,
        Rc::new(start("nginx", &mut command, folder, addr)?),
        addr,
        &[],
    ))
}

/// Starts a gateway with one pool, one tenant and one key.
fn fairgate(
    options: &GatewayBenchOptions,
    folder: &Path,
    name: &str,
    upstream: SocketAddr,
    slots: u64,
    queue_timeout: &str,
) -> Result<GatewayProgram> {
    let config = format!(
        "upstreams:\n  - {{ name: upstream, url: \"http://{upstream}\", slots: {slots} }}\n\
         pools:\n  - name: bench\n    models: [{{name: bench}}]\n    workers: [upstream]\n\
         \x20   max_queue: 20000\n    queue_timeout: {queue_timeout}\n"
    );
    GatewayProgram::start(&options.fairgate, folder, name, &config, &[])
}

fn lite_llm(program: &Path, folder: &Path, upstream: SocketAddr) -> Result<BenchTarget> {
    let addr = free_addr()?;
    let conf = folder.join("litellm.yaml");
    fs::write(
        &conf,
        format!(
            "model_list:\n  - model_name: bench\n    litellm_params: {{model: openai/bench, \
             api_base: \"http://{upstream}/v1\", api_key: none}}\ngeneral_settings: {{master_key: sk-bench}}\n"
        ),
    )?;
    let mut command = Command::new(program);
    command.arg("--config").arg(&conf).args(["--host", "127.0.0.1", "--num_workers", "1"]);
    command.args(["--port", &addr.port().to_string()]).env("LITELLM_MODE", "PRODUCTION");
    let started = Rc::new(start("litellm", &mut command, folder, addr)?);
    Ok(target(BenchTargetKind::LiteLlm, started, addr, &[("authorization", "Bearer sk-bench")]))
}

fn portkey(script: &Path, folder: &Path, upstream: SocketAddr) -> Result<BenchTarget> {
    let addr = free_addr()?;
    let mut command = Command::new("node");
    command.arg(script).arg(format!("--port={}", addr.port())).arg("--headless");
    let started = Rc::new(start("portkey", &mut command, folder, addr)?);
    let host = format!("http://{upstream}/v1");
    let headers = [
        ("authorization", "Bearer none"),
        ("x-portkey-provider", "openai"),
        ("x-portkey-custom-host", &host),
    ];
    Ok(target(BenchTargetKind::Portkey, started, addr, &headers))
}
