//! `cargo xtask soak`: ten minutes at load, with many failures at once.
//!
//! Honest tenants and attackers send requests to a real `fairgate serve` over real sockets. Behind
//! the gateway are simulated workers that are killed and restarted. One of them announces
//! keep-alive but closes its connections. With `--backends` and `--python`, there are also real
//! servers by other projects. The ledger is in a PostgreSQL that hangs for a while and is shut down
//! for a while. The gateway's disk becomes full, and the gateway is killed twice ([`disasters`]).
//!
//! At the end, each answer that a client read to its end must have exactly one final row with the same status, unless
//! the answer said that no row could be kept. No request may have two final rows. Nothing may be in flight, queued or
//! reserved, and the ledger's sums must equal its rows. The gateway's memory must not have grown by more than a bound
//! since the gateway's warm-up. No honest tenant may have gone long without an answer while it could be served.
//!
//! With `--attackers` there are no disasters. All tenants are honest in the first half, and the
//! attackers attack in the second, also through a hosted account and through leases. Each honest
//! tenant must get nearly as many answers in the second half as in the first ([`attackers`]).

mod attackers;
mod client_results;
mod clients;
mod disasters;
mod disk;
mod lease_clients;
mod ledger;
mod outages;
mod real_servers;
mod slow_readers;
mod tenants;
mod testbed;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use client_results::{EndedAnswer, SoakResults};
use clients::SoakClients;
use disasters::SoakDisaster;
use fairgate_testkit::postgres_server::connect;
use outages::{OutagePart, SoakOutages};
use real_servers::{RealServerClient, RealServerReport};
use tenants::{ATTACKED_TENANTS, SoakTenant, TENANTS};
use testbed::SoakTestbed;

/// Longest time for which the reservations of a killed gateway may remain: the duration of its
/// lease, plus the time until expired leases are collected.
const LEASE: Duration = Duration::from_secs(60);
/// Greatest number of bytes by which the resident memory of the last gateway process may exceed, at the end of the run,
/// the memory that the process had after its warm-up.
const MEMORY_MORE_BYTES: u64 = 64 << 20;
/// Longest time that an honest tenant may go without an answer while it could be served.
const GAP_MAX: Duration = Duration::from_secs(15);
/// Time after the end of a disaster in which errors still count as its effects. Broken connections
/// are opened again after at most 2 s.
const RECOVERY: Duration = Duration::from_secs(4);
/// Interval at which the testbed checks its programs.
const LOOK: Duration = Duration::from_millis(50);

/// Options of the soak.
#[derive(Args)]
pub(crate) struct SoakOptions {
    /// Path of the gateway's binary.
    #[arg(long)]
    fairgate: PathBuf,
    /// Path of the simulated backend's binary.
    #[arg(long)]
    sim: PathBuf,
    /// Duration of the load, in seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    seconds: u64,
    /// Seed of the clients' choices and the times of disasters.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder with the sources of the real servers, tests/backends; without this option there are
    /// no real servers.
    #[arg(long, requires = "python")]
    backends: Option<PathBuf>,
    /// Python with the packages that the real servers need.
    #[arg(long)]
    python: Option<PathBuf>,
    /// Number of streams from each real server.
    #[arg(long, default_value_t = 2000)]
    streams: u64,
    /// Measure what attackers take from honest tenants, without disasters.
    #[arg(long, conflicts_with_all = ["backends", "plan"])]
    attackers: bool,
    /// Print the plan of disasters without running it.
    #[arg(long)]
    plan: bool,
}

impl SoakOptions {
    fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn tenants(&self) -> &'static [SoakTenant] {
        if self.attackers { &ATTACKED_TENANTS } else { &TENANTS }
    }

    fn disasters(&self) -> Vec<(Duration, SoakDisaster)> {
        if self.attackers {
            return Vec::new();
        }
        disasters::plan(self.length(), testbed::WORKERS, self.seed)
    }
}

/// Runs the soak, and fails if a request was lost or memory leaked.
pub(crate) fn run(options: &SoakOptions) -> Result<ExitCode> {
    if options.plan {
        for (when, what) in options.disasters() {
            println!("{:6.1} s  {what}", when.as_secs_f64());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let problems = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            problems = soak(options) => problems,
            // The programs that were started end when their handles are dropped.
            _ = terminate.recv() => bail!("ended by SIGTERM"),
            _ = interrupt.recv() => bail!("ended by SIGINT"),
        }
    })?;
    for problem in &problems {
        eprintln!("FAILS  {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints messages with the time since the beginning of the run.
struct SoakLog(Instant);

impl SoakLog {
    fn say(&self, what: &str) {
        eprintln!("{:6.1} s  {what}", self.0.elapsed().as_secs_f64());
    }
}

async fn soak(options: &SoakOptions) -> Result<Vec<String>> {
    let log = SoakLog(Instant::now());
    log.say(&format!("seed {}, {} s of load", options.seed, options.seconds));
    let mut testbed = SoakTestbed::build(options)?;
    log.say(&testbed.described());
    let keys = Arc::new(testbed.tenants()?);
    let begin = Instant::now();
    testbed.outages = SoakOutages::new(begin);
    let real = start_streams(options, &testbed, &keys);
    let clients = SoakClients::start(testbed.addr, options.tenants(), &keys, options.seed);
    if !options.attackers {
        clients.begin_attack();
    }
    let load = run_disasters(options, &mut testbed, &clients, &log).await;
    if load.is_err() {
        testbed.keep()?;
    }
    load.with_context(|| format!("logs are in {}", testbed.folder.display()))?;
    let end = Instant::now();
    log.say("the load ends: clients finish what they have begun");
    let mut seen = clients.finish().await?;
    let mut problems = check_honest_tenants(options.tenants(), &seen, &testbed.outages, end, &log);
    if options.attackers {
        let comparison = attackers::compare(options, &seen, begin);
        comparison.lines.iter().for_each(|line| log.say(line));
        problems.extend(comparison.problems);
    }
    if let Some(real) = real {
        let report = real.await??;
        log.say(&report.describe());
        let models: Vec<&str> = testbed.real_servers.iter().map(|server| server.model).collect();
        problems.extend(report.problems(&models, options.streams));
        seen.add(report.seen);
    }
    log.say(&seen.describe());
    problems.extend(judge(options, &mut testbed, &seen, &log).await?);
    if problems.is_empty() {
        log.say("every end that a client saw has its row; nothing is left in flight, queued or reserved");
    } else {
        testbed.keep()?;
        log.say(&format!("what is left is in {}", testbed.folder.display()));
    }
    Ok(problems)
}

fn start_streams(
    options: &SoakOptions,
    testbed: &SoakTestbed<'_>,
    keys: &Arc<Vec<String>>,
) -> Option<JoinHandle<Result<RealServerReport>>> {
    let models: Vec<&'static str> =
        testbed.real_servers.iter().map(|server| server.model).collect();
    let asker =
        RealServerClient { addr: testbed.addr, keys: keys.clone(), lives: testbed.restarts() };
    let streams = real_servers::streams(asker, models.clone(), options.streams, options.length());
    (!models.is_empty()).then(|| tokio::spawn(streams))
}

/// Runs the planned disasters one after the other while the clients send requests.
async fn run_disasters(
    options: &SoakOptions,
    testbed: &mut SoakTestbed<'_>,
    clients: &SoakClients,
    log: &SoakLog,
) -> Result<()> {
    let begin = Instant::now();
    let mut disasters = options.disasters().into_iter().peekable();
    let progress_every = options.length() / 20;
    let mut next_progress = progress_every;
    let (mut was_up, mut attacked) = (true, !options.attackers);
    while begin.elapsed() < options.length() {
        if !attacked && begin.elapsed() >= options.length() / 2 {
            attacked = true;
            log.say("the attack begins");
            clients.begin_attack();
        }
        while let Some((_, disaster)) = disasters.next_if(|(when, _)| *when <= begin.elapsed()) {
            log.say(&disaster.to_string());
            testbed.apply_disaster(disaster)?;
        }
        testbed.supervise()?;
        if testbed.is_up() && !was_up {
            log.say("the gateway answers again");
        }
        was_up = testbed.is_up();
        if begin.elapsed() > next_progress {
            next_progress += progress_every;
            let (ended, memory) = (clients.so_far(), mib(testbed.memory().0));
            log.say(&format!("{ended} answers have ended; the gateway has {memory} MiB"));
        }
        tokio::time::sleep(LOOK).await;
    }
    // A gateway that was killed late may still be starting.
    let deadline = Instant::now() + LEASE;
    while !testbed.is_up() {
        if Instant::now() > deadline {
            bail!("the gateway did not start again within {LEASE:?}");
        }
        testbed.supervise()?;
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Prints the results of the honest tenants, and returns the problems found.
fn check_honest_tenants(
    tenants: &[SoakTenant],
    seen: &SoakResults,
    outages: &SoakOutages,
    end: Instant,
    log: &SoakLog,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let of_tenant = || seen.ended.values().filter(|ended| ended.tenant == index);
        let statuses = client_results::statuses_of(of_tenant());
        if !tenant.habit.is_honest() {
            log.say(&format!("{}: {statuses}", tenant.name));
            continue;
        }
        let good = seen.good_answers(index);
        let (gap, until) = outages.longest_gap(good, end, tenant.budget);
        let (name, seconds) = (tenant.name, gap.as_secs_f64());
        let until = until.saturating_duration_since(log.0).as_secs_f64();
        let is_early = |ended: &&EndedAnswer| {
            let unserved = outages.was_unserved(tenant.budget, ended.at, RECOVERY);
            ended.is_store_unavailable() && !unserved
        };
        let early = of_tenant().filter(is_early).count();
        log.say(&format!(
            "{name}: {statuses} ({early} times store_unavailable outside of outages); the longest time without an \
             answer, while there could be one, is {seconds:.1} s (until {until:.1} s)"
        ));
        problems.extend(errors_without_excuse(tenant, of_tenant(), outages));
        if gap > GAP_MAX {
            problems.push(format!(
                "The honest tenant {name} was without an answer for {seconds:.1} s, more than {GAP_MAX:?}."
            ));
        }
    }
    problems
}

/// Returns the errors of an honest tenant that no disaster explains: `store_unavailable` while rows
/// could be kept, or a worker's failure while no worker was killed. Failures of workers that
/// attackers cause must not reach honest tenants. A tenant with a budget is also refused if
/// PostgreSQL does not answer for 200 ms, which happens on an overloaded machine. Such refusals are
/// only reported, and fail the run only if they last longer than [`GAP_MAX`].
fn errors_without_excuse<'a>(
    tenant: &SoakTenant,
    ended: impl Iterator<Item = &'a EndedAnswer>,
    outages: &SoakOutages,
) -> Option<String> {
    let is_excused = |ended: &&EndedAnswer| {
        if ended.is_store_unavailable() {
            tenant.budget || outages.was_unserved(false, ended.at, RECOVERY)
        } else {
            ended.is_good() || outages.was_away(OutagePart::Worker, ended.at, RECOVERY)
        }
    };
    let unexcused: Vec<&EndedAnswer> = ended.filter(|ended| !is_excused(ended)).collect();
    (!unexcused.is_empty()).then(|| {
        let (name, statuses) =
            (tenant.name, client_results::statuses_of(unexcused.iter().copied()));
        format!("The honest tenant {name} got errors that no disaster excuses: {statuses}.")
    })
}

/// Checks the gateway and the ledger after all clients have ended, and returns the problems found.
async fn judge(
    options: &SoakOptions,
    testbed: &mut SoakTestbed<'_>,
    seen: &SoakResults,
    log: &SoakLog,
) -> Result<Vec<String>> {
    testbed.wait_until_idle().await?;
    let database = connect(&testbed.database.url()).await?;
    log.say("nobody asks any more; waiting for what killed gateways had reserved");
    ledger::wait_nothing_reserved(&database, LEASE).await?;
    let (memory, warm) = testbed.memory();
    let warm = warm.context("the last gateway ran for too short a time to be warm")?;
    log.say(&format!(
        "the gateway's memory: {} MiB after warm-up, {} MiB in the end; at most {} MiB more is allowed",
        mib(warm),
        mib(memory),
        mib(MEMORY_MORE_BYTES)
    ));
    let mut problems = Vec::new();
    if memory > warm + MEMORY_MORE_BYTES {
        let (warm, memory) = (mib(warm), mib(memory));
        problems.push(format!("The gateway's memory grew from {warm} MiB to {memory} MiB."));
    }
    testbed.end_gateway()?;
    let comparison = ledger::compare(&database, seen).await?;
    log.say(&comparison.summary);
    problems.extend(comparison.problems);
    if options.attackers {
        problems.extend(ledger::file_budget_problem(&database).await?);
    }
    problems.append(&mut testbed.problems);
    Ok(problems)
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}
