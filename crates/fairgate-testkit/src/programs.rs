//! Programs that a test or a benchmark starts, watches and ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Unit in which the kernel reports processor time: hundredths of a second.
const TICKS_PER_SECOND: u64 = 100;

/// A running program, which is killed when this value is dropped.
pub struct RunningProgram {
    name: String,
    child: Child,
}

impl RunningProgram {
    /// Starts the program and writes its output to the file `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| log.display().to_string())?;
        let err = out.try_clone()?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.into(), child })
    }

    /// Waits until the program accepts connections at `addr`. Fails after `patience`, or if the
    /// program ends.
    pub fn wait_for(&mut self, addr: SocketAddr, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while TcpStream::connect_timeout(&addr, Duration::from_millis(200)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended before it listened on {addr}: {status}", self.name);
            }
            if Instant::now() > deadline {
                bail!("{} did not listen on {addr} within {patience:?}", self.name);
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Returns the processor time that the program and its descendants have used so far.
    pub fn cpu(&self) -> Duration {
        let ticks: u64 = process_tree(self.child.id()).iter().map(|stat| stat.ticks).sum();
        Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
    }

    /// Returns the resident memory of the program and its descendants, in bytes.
    pub fn resident(&self) -> u64 {
        let of = |pid: u32| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            kib.unwrap_or(0) * 1024
        };
        process_tree(self.child.id()).iter().map(|stat| of(stat.pid)).sum()
    }

    /// Returns the id of the program's process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status of the program; `None` if it still runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Kills the program with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM to the program, waits for its end, and returns its exit status. If it has not
    /// ended after `patience`, kills it and fails.
    pub fn terminate(&mut self, patience: Duration) -> Result<ExitStatus> {
        let id = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &id]).status().context("cannot run kill")?;
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.kill();
                bail!("{} did not end within {patience:?} of SIGTERM", self.name);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Longest time that a program may take to start. LiteLLM alone takes ten seconds on an idle
/// machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// Starts a server program with its log in `folder`, and waits until the program accepts
/// connections.
pub fn start(
    name: &str,
    command: &mut Command,
    folder: &Path,
    addr: SocketAddr,
) -> Result<RunningProgram> {
    let log = folder.join(format!("{name}.log"));
    let mut program = RunningProgram::start(name, command, &log)?;
    program.wait_for(addr, PATIENCE).with_context(|| tail(&log))?;
    Ok(program)
}

/// Returns whether the program at `addr` answers a GET of `path` with 200 within 200 ms. A program
/// that accepts connections may still be unable to answer.
pub fn answers(addr: SocketAddr, path: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let moment = Duration::from_millis(200);
        let mut stream = TcpStream::connect_timeout(&addr, moment)?;
        stream.set_read_timeout(Some(moment))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

/// Runs an admin command against the gateway at `addr`, whose data folder is `data`, and returns
/// the JSON that the command prints.
pub fn admin(fairgate: &Path, addr: SocketAddr, data: &Path, args: &[&str]) -> Result<Value> {
    let output = Command::new(fairgate)
        .args(args)
        .arg("--json")
        .env("FAIRGATE_URL", format!("http://{addr}"))
        .env("FAIRGATE_ADMIN_TOKEN_FILE", data.join("admin-token"))
        .output()?;
    if !output.status.success() {
        bail!("fairgate {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("fairgate {}", args.join(" ")))
}

/// A `fairgate serve` with a tenant `bench`, and a key of this tenant.
pub struct GatewayProgram {
    /// Process of the gateway.
    pub program: RunningProgram,
    /// Address for clients and for the admin API.
    pub addr: SocketAddr,
    /// Folder of the gateway's database.
    pub data: PathBuf,
    /// Secret of the key.
    pub key: String,
}

impl GatewayProgram {
    /// Starts a gateway. `config` is its configuration without `listen` and `data_dir`. The
    /// gateway's files are in `folder`, with names that begin with `name`. `key_args` are arguments
    /// of `fairgate key create`.
    pub fn start(
        fairgate: &Path,
        folder: &Path,
        name: &str,
        config: &str,
        key_args: &[&str],
    ) -> Result<Self> {
        let config = GatewayConfigFile::write(folder, name, config)?;
        let mut command = Command::new(fairgate);
        command.args(["serve", "--config"]).arg(&config.file);
        let program = start(name, &mut command, folder, config.addr)?;
        let key = config.add_key(fairgate, key_args)?;
        Ok(Self { program, addr: config.addr, data: config.data, key })
    }
}

/// The configuration of a gateway that is to be started.
pub struct GatewayConfigFile {
    /// Path of the file.
    pub file: PathBuf,
    /// Free address on which the gateway is to listen.
    pub addr: SocketAddr,
    /// Folder of the gateway's database.
    pub data: PathBuf,
}

impl GatewayConfigFile {
    /// Writes `config`, with `listen` and `data_dir`, to `NAME.yaml` in a folder.
    pub fn write(folder: &Path, name: &str, config: &str) -> Result<Self> {
        let (addr, data) = (free_addr()?, folder.join(format!("{name}-data")));
        let file = folder.join(format!("{name}.yaml"));
        fs::write(&file, format!("listen: {addr}\ndata_dir: {}\n{config}", data.display()))?;
        Ok(Self { file, addr, data })
    }

    /// Adds the tenant `bench` to the running gateway, and returns the secret of a key of this tenant.
    pub fn add_key(&self, fairgate: &Path, key_args: &[&str]) -> Result<String> {
        let admin = |args: &[&str]| admin(fairgate, self.addr, &self.data, args);
        admin(&["group", "add", "bench"])?;
        admin(&["tenant", "add", "bench", "--group", "bench"])?;
        let key = admin(&[&["key", "create", "bench"], key_args].concat())?;
        let secret = key.get("secret").and_then(Value::as_str).map(str::to_owned);
        secret.with_context(|| format!("no secret in {key}"))
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // The program may restart its children, so it is stopped before they are listed, and killed
        // first.
        signal("-STOP", self.child.id());
        for process in process_tree(self.child.id()) {
            signal("-KILL", process.pid);
        }
        let _ = self.child.wait();
    }
}

/// Sends a signal, such as `-STOP`, to a process. Does nothing if the process has already ended.
pub fn signal(name: &str, pid: u32) {
    let pid = pid.to_string();
    let _ = Command::new("kill").args([name, &pid]).stderr(Stdio::null()).status();
}

/// A process, as the kernel describes it in `/proc`.
pub struct ProcessStat {
    /// Id of the process.
    pub pid: u32,
    parent: u32,
    ticks: u64,
}

/// Lists a process and its descendants, parents first.
pub fn process_tree(root: u32) -> Vec<ProcessStat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut rest: Vec<ProcessStat> = pids.filter_map(stat).collect();
    let mut family: Vec<ProcessStat> = Vec::new();
    loop {
        let belongs = |stat: &ProcessStat| {
            stat.pid == root || family.iter().any(|member| member.pid == stat.parent)
        };
        let (found, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(belongs);
        if found.is_empty() {
            return family;
        }
        family.extend(found);
        rest = others;
    }
}

fn stat(pid: u32) -> Option<ProcessStat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain spaces.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let parent = u32::try_from(number(1)?).ok()?;
    Some(ProcessStat { pid, parent, ticks: number(11)? + number(12)? })
}

/// Returns a local address whose port was free a moment ago.
pub fn free_addr() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Returns a local address whose port stays free while the program that uses it is down, because
/// the port is below the kernel's range for outgoing connections. A client that keeps connecting to
/// a port within that range can end up connected to itself, and then occupies the port.
pub fn addr_below_ephemeral_ports() -> Result<SocketAddr> {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|port| port.parse::<u16>().ok());
    let first = first.unwrap_or(32_768).max(12_000);
    // Two programs that run at once begin at different ports.
    let begin = u16::try_from(std::process::id() % 20_000)?;
    for _ in 0..1000 {
        let tried = TRIED.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + begin.wrapping_add(tried) % (first - 10_000);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok(listener.local_addr()?);
        }
    }
    bail!("no port from 10000 to {first} is free")
}

/// Returns the last lines of a log, for an error message.
pub fn tail(log: &Path) -> String {
    let Ok(file) = File::open(log) else { return String::new() };
    let lines: Vec<String> = BufReader::new(file).lines().map_while(Result::ok).collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
