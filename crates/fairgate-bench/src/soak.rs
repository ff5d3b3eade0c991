//! `cargo xtask soak`: ten minutes at load, with everything going wrong that does go wrong.
//!
//! Clients of three tenants ask in closed loops and leave at random, also while they wait; a worker is killed each minute
//! and comes back; in the middle the gateway is killed with SIGKILL and started anew. In the end nothing may fly or wait,
//! no tokens may be reserved, and the ledger must have exactly one final row for every answer that a client saw end.

mod clients;
mod ledger;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;

use crate::processes::{self, Program, free_addr, start};
use clients::{Clients, Seen};

const PATIENCE: Duration = Duration::from_secs(60);
const WORKERS: usize = 3;
/// How long a killed worker stays away.
const AWAY: Duration = Duration::from_secs(10);
/// The tenants with their weights; the last has a budget, so that its requests reserve tokens.
const TENANTS: [(&str, u64); 3] = [("gold", 500), ("silver", 100), ("bronze", 50)];

/// How long, with which programs.
#[derive(Args)]
pub(crate) struct Options {
    /// The gateway's binary, built with --release.
    #[arg(long)]
    fairgate: PathBuf,
    /// The simulated backend's binary, built with --release.
    #[arg(long)]
    sim: PathBuf,
    /// How long, in seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// How many clients each tenant has.
    #[arg(long, default_value_t = 24)]
    clients: usize,
    /// What the clients' choices come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs it, and fails where anything was lost or leaked.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let problems = runtime.block_on(soak(options))?;
    for problem in &problems {
        eprintln!("FAILS  {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn soak(options: &Options) -> Result<Vec<String>> {
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    say(&format!("seed {}, {} s", options.seed, options.seconds));
    let mut stage = Stage::build(options)?;
    let keys = stage.tenants()?;
    let clients = Clients::start(stage.addr, &keys, options.clients, options.seed);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let middle = Instant::now() + Duration::from_secs(options.seconds / 2);
    let every = Duration::from_secs(options.seconds.clamp(30, 600) / 10);
    let (mut next_kill, mut victim, mut killed) = (Instant::now() + every, 0, false);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if Instant::now() > next_kill {
            say(&format!("worker {victim} is killed; so far: {}", clients.so_far()));
            stage.workers[victim].kill();
            tokio::time::sleep(AWAY.min(every / 2)).await;
            stage.revive(victim)?;
            (next_kill, victim) = (next_kill + every, (victim + 1) % WORKERS);
        }
        if Instant::now() > middle && !killed {
            say("the gateway is killed with SIGKILL, and started anew");
            stage.gateway.kill();
            stage.gateway = stage.start_gateway("gateway-again")?;
            killed = true;
        }
    }
    say("the clients finish what they have begun");
    let seen = clients.finish().await?;
    say(&seen.told());
    let mut problems = stage.idle().await?;
    stage.gateway.terminate(PATIENCE)?;
    problems.extend(ledger::compare(&stage.folder.join("data/fairgate.db"), &seen)?);
    if problems.is_empty() {
        say("nothing is in flight, nothing leaked, and the ledger equals what the clients saw");
        fs::remove_dir_all(&stage.folder)?;
    } else {
        say(&format!("what is left is in {}", stage.folder.display()));
    }
    Ok(problems)
}

/// The programs of a run.
struct Stage<'a> {
    options: &'a Options,
    folder: PathBuf,
    addr: SocketAddr,
    addrs: Vec<SocketAddr>,
    workers: Vec<Program>,
    gateway: Program,
}

impl<'a> Stage<'a> {
    fn build(options: &'a Options) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("fairgate-soak-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let addrs: Vec<SocketAddr> = (0..WORKERS).map(|_| free_addr()).collect::<Result<_>>()?;
        let workers = addrs.iter().enumerate();
        let workers = workers.map(|(index, addr)| worker(options, &folder, index, *addr));
        let workers = workers.collect::<Result<_>>()?;
        let addr = free_addr()?;
        fs::write(folder.join("fairgate.yaml"), config(addr, &folder, &addrs))?;
        let gateway = gateway(options, &folder, addr, "gateway")?;
        Ok(Self { options, folder, addr, addrs, workers, gateway })
    }

    fn start_gateway(&self, name: &str) -> Result<Program> {
        gateway(self.options, &self.folder, self.addr, name)
    }

    fn revive(&mut self, index: usize) -> Result<()> {
        self.workers[index] = worker(self.options, &self.folder, index, self.addrs[index])?;
        Ok(())
    }

    /// Makes the tenants, and gives their keys.
    fn tenants(&self) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for (name, weight) in TENANTS {
            let weight = weight.to_string();
            self.admin(&["group", "add", name, "--weight", &weight])?;
            let mut args = vec!["tenant", "add", name, "--group", name];
            if name == "bronze" {
                args.extend(["--tokens-per-month", "1000000000000"]);
            }
            self.admin(&args)?;
            let key = self.admin(&["key", "create", name])?;
            let secret = key.get("secret").and_then(Value::as_str);
            keys.push(secret.context("a key without a secret")?.to_owned());
        }
        Ok(keys)
    }

    /// Waits until nothing flies or waits; says what still does after a while.
    async fn idle(&self) -> Result<Vec<String>> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let live = self.admin(&["live"])?;
            let number = |name: &str| live.get(name).and_then(Value::as_u64);
            match (number("global_in_flight"), number("global_queued")) {
                (Some(0), Some(0)) => return Ok(Vec::new()),
                (flying, waiting) if Instant::now() > deadline => {
                    return Ok(vec![format!(
                        "{flying:?} fly and {waiting:?} wait, and nobody asks"
                    )]);
                }
                _ => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    fn admin(&self, args: &[&str]) -> Result<Value> {
        processes::admin(&self.options.fairgate, self.addr, &self.folder.join("data"), args)
    }
}

fn worker(options: &Options, folder: &Path, index: usize, addr: SocketAddr) -> Result<Program> {
    let mut command = Command::new(&options.sim);
    command.args(["--listen", &addr.to_string(), "--slots", "12", "--output-tokens", "10-60"]);
    command.args(["--prefill-base-ms", "5", "--decode-us-per-token", "2000"]);
    start(&format!("worker-{index}"), &mut command, folder, addr)
}

fn gateway(options: &Options, folder: &Path, addr: SocketAddr, name: &str) -> Result<Program> {
    let mut command = Command::new(&options.fairgate);
    command.args(["serve", "--config"]).arg(folder.join("fairgate.yaml"));
    start(name, &mut command, folder, addr)
}

fn config(addr: SocketAddr, folder: &Path, workers: &[SocketAddr]) -> String {
    let upstream = |(index, addr): (usize, &SocketAddr)| {
        format!(
            "  - name: w{index}\n    url: http://{addr}\n    slots: 12\n    health: {{path: /health, every: 1s}}\n\
             \x20   breaker: {{failures: 3, open_for: 2s}}\n"
        )
    };
    let upstreams: String = workers.iter().enumerate().map(upstream).collect();
    let names: Vec<String> = (0..workers.len()).map(|index| format!("w{index}")).collect();
    let (data, names) = (folder.join("data"), names.join(", "));
    format!(
        "listen: {addr}\ndata_dir: {}\njournal: {{files_max: 1000}}\nupstreams:\n{upstreams}\
         pools:\n  - name: sim\n    models: [{{name: sim}}]\n    workers: [{names}]\n    retries: 2\n",
        data.display()
    )
}
