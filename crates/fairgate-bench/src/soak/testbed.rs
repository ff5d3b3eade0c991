//! The programs of a run: the workers, PostgreSQL, and the gateway on its small disk.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fairgate_testkit::postgres_server::PostgresServer;
use fairgate_testkit::programs::{self, RunningProgram, addr_below_ephemeral_ports, start};
use serde_json::Value;

use super::SoakOptions;
use super::disasters::SoakDisaster;
use super::disk::SoakDisk;
use super::outages::{OutagePart, SoakOutages};
use super::real_servers::RealServer;
use super::tenants::{ClientHabit, FILE_BUDGET_TOKENS, HOSTED_MODELS, LEASE_POOL, MODEL};

pub(super) const WORKERS: usize = 3;
const SLOTS: usize = 8;
/// Index of the worker that announces keep-alive but closes each connection.
const CLOSES: usize = 1;
/// Time that the gateway may take to start, or to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(60);

/// Counter of the gateway's stops and starts. It is odd while the gateway is down.
#[derive(Debug, Default)]
pub(super) struct GatewayRestarts(AtomicU32);

impl GatewayRestarts {
    fn change(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    /// Returns the current count, to be passed to [`Self::was_away`] later.
    pub(super) fn so_far(&self) -> u32 {
        self.0.load(SeqCst)
    }

    /// Returns whether the gateway was down at any time since the call of [`Self::so_far`] that
    /// returned `so_far`.
    pub(super) fn was_away(&self, so_far: u32) -> bool {
        so_far % 2 == 1 || self.so_far() != so_far
    }
}

/// All programs of the run, and the log of their outages.
pub(super) struct SoakTestbed<'a> {
    options: &'a SoakOptions,
    pub(super) folder: PathBuf,
    pub(super) addr: SocketAddr,
    addrs: Vec<SocketAddr>,
    workers: Vec<RunningProgram>,
    /// The simulated provider of `--attackers`; `None` in other runs.
    _hosted: Option<RunningProgram>,
    pub(super) real_servers: Vec<RealServer>,
    pub(super) database: PostgresServer,
    disk: SoakDisk,
    gateway: RunningProgram,
    /// Number of gateway processes that were started before the current one.
    starts: u32,
    lives: Arc<GatewayRestarts>,
    /// Time at which the current gateway process was first seen to answer; `None` before that.
    up_since: Option<Instant>,
    /// Memory of the current gateway process after its warm-up, in bytes; `None` until the warm-up
    /// has ended.
    warm: Option<u64>,
    pub(super) outages: SoakOutages,
    /// Unexpected events during the run, with one sentence for each.
    pub(super) problems: Vec<String>,
    /// Folder of all files of the run. This is the last field because fields are dropped in order,
    /// and the programs must end before their files are removed.
    temporary: TemporaryFolder,
}

/// A folder that is removed on drop, unless it is marked to be kept.
struct TemporaryFolder {
    folder: PathBuf,
    is_kept: bool,
}

impl TemporaryFolder {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("fairgate-soak-{}", std::process::id()));
        fs::create_dir_all(folder.join("disk"))?;
        Ok(Self { folder, is_kept: false })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

impl<'a> SoakTestbed<'a> {
    pub(super) fn build(options: &'a SoakOptions) -> Result<Self> {
        let temporary = TemporaryFolder::new()?;
        let folder = temporary.folder.clone();
        let disk = SoakDisk::new(&folder.join("disk"))?;
        let database = PostgresServer::start()?;
        let addrs: Vec<SocketAddr> =
            (0..WORKERS).map(|_| addr_below_ephemeral_ports()).collect::<Result<_>>()?;
        let workers = addrs.iter().enumerate();
        let workers = workers.map(|(index, addr)| worker(options, &folder, index, *addr));
        let workers = workers.collect::<Result<_>>()?;
        let real_servers = RealServer::start_all(options, &folder)?;
        let addr = addr_below_ephemeral_ports()?;
        let mut config = config(addr, disk.folder(), &database.url(), &addrs, &real_servers);
        let hosted = options.attackers.then(addr_below_ephemeral_ports).transpose()?;
        let hosted = hosted.map(|addr| hosted_worker(options, &folder, addr)).transpose()?;
        if let Some((upstream, _)) = &hosted {
            config = with_attacked_pools(&config, *upstream);
        }
        fs::write(folder.join("fairgate.yaml"), config)?;
        let gateway = gateway(options, &folder, &disk, 0)?;
        let outages = SoakOutages::new(Instant::now());
        let mut testbed = Self {
            options,
            folder,
            addr,
            addrs,
            workers,
            _hosted: hosted.map(|(_, program)| program),
            real_servers,
            database,
            disk,
            gateway,
            starts: 0,
            lives: Arc::default(),
            up_since: None,
            warm: None,
            outages,
            problems: Vec::new(),
            temporary,
        };
        testbed.gateway.wait_for(addr, GRACE).with_context(|| testbed.log())?;
        while !testbed.is_up() {
            testbed.supervise()?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(testbed)
    }

    /// Describes the programs, and the features of the machine that the run uses.
    pub(super) fn described(&self) -> String {
        let real: Vec<&str> = self.real_servers.iter().map(|server| server.model).collect();
        let real = match real.as_slice() {
            [] => "no real servers (they have a test of their own)".to_owned(),
            some => format!("real servers for the models {}", some.join(" and ")),
        };
        format!(
            "{WORKERS} simulated workers with {SLOTS} slots each, {real}; {}",
            self.disk.described()
        )
    }

    /// Creates the tenants in the gateway, and returns one key for each.
    pub(super) fn tenants(&self) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for tenant in self.options.tenants() {
            let (name, weight) = (tenant.name, tenant.weight.to_string());
            self.admin(&["group", "add", name, "--weight", &weight])?;
            let mut args = vec!["tenant", "add", name, "--group", name];
            let budget = match tenant.habit {
                ClientHabit::SendFiles => FILE_BUDGET_TOKENS.to_string(),
                _ => "1000000000000".to_owned(),
            };
            if tenant.budget {
                args.extend(["--tokens-per-month", &budget]);
            }
            self.admin(&args)?;
            let leases = tenant.habit.takes_leases().to_string();
            let key = self.admin(&["key", "create", name, "--may-lease", &leases])?;
            let secret = key.get("secret").and_then(Value::as_str);
            keys.push(secret.context("a key without a secret")?.to_owned());
        }
        Ok(keys)
    }

    /// Causes or repairs one disaster of the plan.
    pub(super) fn apply_disaster(&mut self, disaster: SoakDisaster) -> Result<()> {
        match disaster {
            SoakDisaster::WorkerKilled(index) => {
                self.outages.begin(OutagePart::Worker);
                self.workers[index].kill();
            }
            SoakDisaster::WorkerBack(index) => {
                let addr = self.addrs[index];
                self.workers[index] = worker(self.options, &self.folder, index, addr)?;
                self.outages.end(OutagePart::Worker);
            }
            SoakDisaster::DatabaseHangs => {
                self.outages.begin(OutagePart::Database);
                self.database.hang()?;
            }
            SoakDisaster::DatabaseGoesOn => {
                self.database.go_on()?;
                self.outages.end(OutagePart::Database);
            }
            SoakDisaster::DatabaseStopped => {
                self.outages.begin(OutagePart::Database);
                self.database.shut_down()?;
            }
            SoakDisaster::DatabaseStarted => {
                self.database.start_again()?;
                self.outages.end(OutagePart::Database);
            }
            SoakDisaster::GatewayKilled => {
                self.supervise()?;
                self.note_gateway_down();
                self.gateway.kill();
                self.start_gateway()?;
            }
            SoakDisaster::DiskFull => {
                self.outages.begin(OutagePart::Disk);
                self.disk.fill(self.gateway.id())?;
            }
            SoakDisaster::DiskFreed => {
                self.disk.free(self.gateway.id())?;
                self.outages.end(OutagePart::Disk);
            }
        }
        Ok(())
    }

    /// Acts as the gateway's supervisor. Notices when the gateway begins to answer, and restarts a
    /// gateway that has ended. A gateway that finds no database may end while it starts. An end
    /// after the first answer is recorded as a problem.
    pub(super) fn supervise(&mut self) -> Result<()> {
        if let Some(status) = self.gateway.ended()? {
            if self.up_since.is_some() {
                let log = self.log();
                self.problems.push(format!("The gateway ended by itself ({status}): {log}"));
                self.note_gateway_down();
            }
            return self.start_gateway();
        }
        if self.up_since.is_none() {
            if programs::answers(self.addr, "/healthz") {
                self.up_since = Some(Instant::now());
                self.outages.end(OutagePart::Gateway);
                if self.starts > 0 {
                    self.lives.change();
                }
            }
        } else if self.warm.is_none() && self.is_warm() {
            self.warm = Some(self.gateway.resident());
        }
        Ok(())
    }

    /// Returns the counter of the gateway's stops and starts, to be shared with clients.
    pub(super) fn restarts(&self) -> Arc<GatewayRestarts> {
        self.lives.clone()
    }

    /// Returns whether the current gateway process has begun to answer.
    pub(super) fn is_up(&self) -> bool {
        self.up_since.is_some()
    }

    /// Returns the gateway's current memory and its memory after the warm-up, in bytes.
    pub(super) fn memory(&self) -> (u64, Option<u64>) {
        (self.gateway.resident(), self.warm)
    }

    /// Waits until no request is in flight or queued and all rows are in the database. If that
    /// takes more than 30 s, records a problem.
    pub(super) async fn wait_until_idle(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let live = self.admin(&["live"])?;
            let pools = live.get("pools").and_then(Value::as_array).context("no pools")?;
            let sum = |name: &str| -> Option<u64> {
                pools.iter().map(|pool| pool.get(name)?.as_u64()).sum()
            };
            let (in_flight, queued) = (sum("global_in_flight"), sum("global_queued"));
            let rows = live.pointer("/ledger/rows_waiting").and_then(Value::as_u64);
            if (in_flight, queued, rows) == (Some(0), Some(0), Some(0)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                self.problems.push(format!(
                    "30 s after the last client, {in_flight:?} requests are in flight, {queued:?} are queued and \
                     {rows:?} rows are not in the database."
                ));
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Ends the gateway with SIGTERM, as an operator would. Records a problem if the gateway's
    /// spool is not empty afterwards.
    pub(super) fn end_gateway(&mut self) -> Result<()> {
        let status = self.gateway.terminate(GRACE)?;
        if !status.success() {
            self.problems.push(format!("The gateway ended with {status} after SIGTERM."));
        }
        let spool = self.disk.folder().join("data/spool");
        for entry in fs::read_dir(&spool).with_context(|| spool.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A damaged line, which the full disk cut short, is kept in a file for inspection and
            // does not count.
            if name.starts_with("rows-") && !name.contains("damaged") {
                let bytes = entry.metadata()?.len();
                self.problems.push(format!("The spool still has {name} ({bytes} bytes)."));
            }
        }
        Ok(())
    }

    /// Keeps the folder after the run, with a copy of the disk's contents in it.
    pub(super) fn keep(&mut self) -> Result<()> {
        self.temporary.is_kept = true;
        let copy = self.folder.join("kept");
        let status = Command::new("cp").arg("-r").arg(self.disk.folder()).arg(&copy).status()?;
        if !status.success() {
            bail!("cannot copy {}: {status}", self.disk.folder().display());
        }
        Ok(())
    }

    fn note_gateway_down(&mut self) {
        // For a gateway that is killed while it starts, the outage has already begun.
        if self.up_since.take().is_some() {
            self.lives.change();
            self.outages.begin(OutagePart::Gateway);
        }
    }

    fn is_warm(&self) -> bool {
        let warm_up = Duration::from_secs((self.options.seconds / 20).clamp(3, 30));
        self.up_since.is_some_and(|since| since.elapsed() > warm_up)
    }

    fn start_gateway(&mut self) -> Result<()> {
        self.starts += 1;
        (self.up_since, self.warm) = (None, None);
        self.gateway = gateway(self.options, &self.folder, &self.disk, self.starts)?;
        Ok(())
    }

    fn log(&self) -> String {
        programs::tail(&self.disk.folder().join(log_name(self.starts)))
    }

    fn admin(&self, args: &[&str]) -> Result<Value> {
        let data = self.disk.folder().join("data");
        programs::admin(&self.options.fairgate, self.addr, &data, args)
    }
}

fn worker(
    options: &SoakOptions,
    folder: &Path,
    index: usize,
    addr: SocketAddr,
) -> Result<RunningProgram> {
    let mut command = Command::new(&options.sim);
    command.args(["--listen", &addr.to_string(), "--slots", &SLOTS.to_string(), "--steering"]);
    command.args(["--output-tokens", "10-60", "--prefill-base-ms", "5"]);
    command.args(["--decode-us-per-token", "5000"]);
    if index == CLOSES {
        command.args(["--fault", "close-after"]);
    }
    start(&format!("worker-{index}"), &mut command, folder, addr)
}

/// Starts the simulated provider of `--attackers`. Its answers take as long as those of the other
/// workers.
fn hosted_worker(
    options: &SoakOptions,
    folder: &Path,
    addr: SocketAddr,
) -> Result<(SocketAddr, RunningProgram)> {
    let mut command = Command::new(&options.sim);
    command.args(["--listen", &addr.to_string(), "--slots", "64", "--steering"]);
    command.args(["--models", &HOSTED_MODELS.join(",")]);
    command.args(["--output-tokens", "10-60", "--prefill-base-ms", "5"]);
    command.args(["--decode-us-per-token", "5000"]);
    Ok((addr, start("hosted", &mut command, folder, addr)?))
}

/// Adds the hosted pool and the pool of leases to a configuration.
fn with_attacked_pools(config: &str, hosted: SocketAddr) -> String {
    let upstream = format!(
        "  - name: hosted\n    url: http://{hosted}\n    slots: {SLOTS}\n    account: hosted\n    \
         requests_per_minute: 6000\npools:\n"
    );
    let models = HOSTED_MODELS.map(|model| format!("{{name: {model}}}")).join(", ");
    let pools = format!(
        "  - name: hosted\n    models: [{models}]\n    workers: [hosted]\n  \
         - name: {LEASE_POOL}\n    capacity: {SLOTS}\n    leases: {{requests_per_minute: 60000}}\n"
    );
    config.replacen("pools:\n", &upstream, 1) + &pools
}

fn log_name(life: u32) -> String {
    format!("gateway-{life}.log")
}

fn gateway(
    options: &SoakOptions,
    folder: &Path,
    disk: &SoakDisk,
    life: u32,
) -> Result<RunningProgram> {
    let mut command = disk.command(&options.fairgate);
    command.args(["serve", "--config"]).arg(folder.join("fairgate.yaml"));
    RunningProgram::start("gateway", &mut command, &disk.folder().join(log_name(life)))
}

fn config(
    addr: SocketAddr,
    disk: &Path,
    database: &str,
    workers: &[SocketAddr],
    real_servers: &[RealServer],
) -> String {
    let data = disk.join("data");
    let mut text = format!(
        "listen: {addr}\ndata_dir: {}\nstore: {{url: \"{database}\"}}\n\
         journal: {{file_size_max: 2MiB, files_max: 8}}\nlimits: {{body_timeout: 5s}}\nupstreams:\n",
        data.display()
    );
    for (index, addr) in workers.iter().enumerate() {
        let _ = writeln!(
            text,
            "  - name: w{index}\n    url: http://{addr}\n    slots: {SLOTS}\n    \
             health: {{path: /health, every: 1s}}\n    breaker: {{failures: 3, open_for: 2s}}"
        );
    }
    real_servers.iter().for_each(|server| text.push_str(&server.upstream()));
    let names: Vec<String> = (0..workers.len()).map(|index| format!("w{index}")).collect();
    let names = names.join(", ");
    let _ = writeln!(
        text,
        "pools:\n  - name: {MODEL}\n    models: [{{name: {MODEL}}}]\n    workers: [{names}]\n    retries: 2"
    );
    real_servers.iter().for_each(|server| text.push_str(&server.pool()));
    text
}
