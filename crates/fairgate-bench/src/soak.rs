//! `cargo xtask soak`: ten minutes at load, with everything going wrong at once that does go wrong.
//!
//! Honest tenants and attackers ask a real `fairgate serve` over real sockets. It stands in front of simulated workers that
//! are killed and come back, one of which closes connections that it said it would keep, and, in the long run, in front of
//! servers that others wrote. Its ledger is in a PostgreSQL that hangs for a while and is shut down for a while, its disk
//! gets full, and it is killed twice ([`disasters`]).
//!
//! In the end every answer whose end a client saw has exactly one final row with its status, or said that no row could be
//! kept; no request has two; nothing is in flight, queued or reserved; the sums equal the rows; the gateway's memory is
//! within a bound of what it was after its warm-up; and no honest tenant went without an answer for long while one could be
//! had.

mod clients;
mod disasters;
mod disk;
mod ledger;
mod outages;
mod postgres;
mod real_servers;
mod seen;
mod slow_readers;
mod stage;
mod tenants;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use clients::Clients;
use disasters::Disaster;
use outages::{Outages, Part};
pub(crate) use postgres::Postgres;
use real_servers::{Asker, Report};
use seen::{Ended, Seen};
use stage::Stage;
use tenants::{Habit, TENANTS, Tenant};

/// How long what a killed gateway had reserved may stay so: its lease, and until somebody looks.
const LEASE: Duration = Duration::from_secs(60);
/// How much more memory than after its warm-up the gateway may have in the end.
const MEMORY_MORE_BYTES: u64 = 64 << 20;
/// How long an honest tenant may be without an answer while it could have had one.
const GAP_MAX: Duration = Duration::from_secs(15);
/// How long after a disaster it may still be felt: connections are made again after at most 2 s.
const RECOVERY: Duration = Duration::from_secs(4);
/// How often the stage is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// How long, with which programs.
#[derive(Args)]
pub(crate) struct Options {
    /// The gateway's binary.
    #[arg(long)]
    fairgate: PathBuf,
    /// The simulated backend's binary.
    #[arg(long)]
    sim: PathBuf,
    /// How long, in seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..))]
    seconds: u64,
    /// What the clients' choices and the times of disasters come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder of the real servers' sources, tests/backends; without it there are none.
    #[arg(long, requires = "python")]
    backends: Option<PathBuf>,
    /// A Python that has what the real servers need.
    #[arg(long)]
    python: Option<PathBuf>,
    /// How many streams each real server gives.
    #[arg(long, default_value_t = 2000)]
    streams: u64,
    /// Print what would happen when, and end.
    #[arg(long)]
    plan: bool,
}

impl Options {
    fn length(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn disasters(&self) -> Vec<(Duration, Disaster)> {
        disasters::plan(self.length(), stage::WORKERS, self.seed)
    }
}

/// Runs it, and fails where anything was lost or leaked.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
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
            // What was started ends with what holds it.
            _ = terminate.recv() => bail!("ended by SIGTERM"),
            _ = interrupt.recv() => bail!("ended by SIGINT"),
        }
    })?;
    for problem in &problems {
        eprintln!("FAILS  {problem}");
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says things with the time since it began.
struct Narrator(Instant);

impl Narrator {
    fn say(&self, what: &str) {
        eprintln!("{:6.1} s  {what}", self.0.elapsed().as_secs_f64());
    }
}

async fn soak(options: &Options) -> Result<Vec<String>> {
    let narrator = Narrator(Instant::now());
    narrator.say(&format!("seed {}, {} s of load", options.seed, options.seconds));
    let mut stage = Stage::build(options)?;
    narrator.say(&stage.described());
    let keys = Arc::new(stage.tenants()?);
    let begin = Instant::now();
    stage.outages = Outages::new(begin);
    let real = start_streams(options, &stage, &keys);
    let clients = Clients::start(stage.addr, &keys, options.seed);
    let load = go_through(options, &mut stage, &clients, &narrator).await;
    if load.is_err() {
        stage.keep()?;
    }
    load.with_context(|| format!("logs are in {}", stage.folder.display()))?;
    let end = Instant::now();
    narrator.say("the load ends: clients finish what they have begun");
    let mut seen = clients.finish().await?;
    let mut problems = honest_tenants(&seen, &stage.outages, end, &narrator);
    if let Some(real) = real {
        let report = real.await??;
        narrator.say(&report.told());
        let models: Vec<&str> = stage.real_servers.iter().map(|server| server.model).collect();
        problems.extend(report.problems(&models, options.streams));
        seen.add(report.seen);
    }
    narrator.say(&seen.told());
    problems.extend(judge(&mut stage, &seen, &narrator).await?);
    if problems.is_empty() {
        narrator.say("every end that a client saw has its row; nothing is left in flight, queued or reserved");
    } else {
        stage.keep()?;
        narrator.say(&format!("what is left is in {}", stage.folder.display()));
    }
    Ok(problems)
}

fn start_streams(
    options: &Options,
    stage: &Stage<'_>,
    keys: &Arc<Vec<String>>,
) -> Option<JoinHandle<Result<Report>>> {
    let models: Vec<&'static str> = stage.real_servers.iter().map(|server| server.model).collect();
    let asker = Asker { addr: stage.addr, keys: keys.clone(), lives: stage.lives() };
    let streams = real_servers::streams(asker, models.clone(), options.streams, options.length());
    (!models.is_empty()).then(|| tokio::spawn(streams))
}

/// The time of load: one disaster after the other.
async fn go_through(
    options: &Options,
    stage: &mut Stage<'_>,
    clients: &Clients,
    narrator: &Narrator,
) -> Result<()> {
    let begin = Instant::now();
    let mut disasters = options.disasters().into_iter().peekable();
    let progress_every = options.length() / 20;
    let mut next_progress = progress_every;
    let mut was_up = true;
    while begin.elapsed() < options.length() {
        while let Some((_, disaster)) = disasters.next_if(|(when, _)| *when <= begin.elapsed()) {
            narrator.say(&disaster.to_string());
            stage.suffer(disaster)?;
        }
        stage.supervise()?;
        if stage.is_up() && !was_up {
            narrator.say("the gateway answers again");
        }
        was_up = stage.is_up();
        if begin.elapsed() > next_progress {
            next_progress += progress_every;
            let (ended, memory) = (clients.so_far(), mib(stage.memory().0));
            narrator.say(&format!("{ended} answers have ended; the gateway has {memory} MiB"));
        }
        tokio::time::sleep(LOOK).await;
    }
    // A gateway that was killed late may still be on its way.
    let deadline = Instant::now() + LEASE;
    while !stage.is_up() {
        if Instant::now() > deadline {
            bail!("the gateway did not start again within {LEASE:?}");
        }
        stage.supervise()?;
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// How the honest tenants fared, and what was wrong with it.
fn honest_tenants(
    seen: &Seen,
    outages: &Outages,
    end: Instant,
    narrator: &Narrator,
) -> Vec<String> {
    let mut problems = Vec::new();
    for (index, tenant) in TENANTS.iter().enumerate() {
        let of_tenant = || seen.ended.values().filter(|ended| ended.tenant == index);
        let statuses = seen::told(of_tenant());
        if tenant.habit != Habit::Honest {
            narrator.say(&format!("{}: {statuses}", tenant.name));
            continue;
        }
        let good = of_tenant().filter(|ended| Ended::is_good(ended)).map(|ended| ended.at);
        let (gap, until) = outages.longest_gap(good, end, tenant.budget);
        let (name, seconds) = (tenant.name, gap.as_secs_f64());
        let until = until.saturating_duration_since(narrator.0).as_secs_f64();
        let is_early = |ended: &&Ended| {
            let unserved = outages.was_unserved(tenant.budget, ended.at, RECOVERY);
            ended.is_store_unavailable() && !unserved
        };
        let early = of_tenant().filter(is_early).count();
        narrator.say(&format!(
            "{name}: {statuses} ({early} times store_unavailable outside of outages); the longest time without an \
             answer, while there could be one, is {seconds:.1} s (until {until:.1} s)"
        ));
        problems.extend(unexcused(tenant, of_tenant(), outages));
        if gap > GAP_MAX {
            problems.push(format!(
                "The honest tenant {name} was without an answer for {seconds:.1} s, more than {GAP_MAX:?}."
            ));
        }
    }
    problems
}

/// What an honest tenant was told that no disaster excuses: that no row can be kept while one could, or that a worker
/// failed while none was killed. What the attackers make of the workers must not reach it. Who has a budget is also refused
/// when PostgreSQL is silent for 200 ms, which it is now and then on a machine with too much to do: that is told, and fails
/// only where it takes too long ([`GAP_MAX`]).
fn unexcused<'a>(
    tenant: &Tenant,
    ended: impl Iterator<Item = &'a Ended>,
    outages: &Outages,
) -> Option<String> {
    let is_excused = |ended: &&Ended| {
        if ended.is_store_unavailable() {
            tenant.budget || outages.was_unserved(false, ended.at, RECOVERY)
        } else {
            ended.is_good() || outages.was_away(Part::Worker, ended.at, RECOVERY)
        }
    };
    let unexcused: Vec<&Ended> = ended.filter(|ended| !is_excused(ended)).collect();
    (!unexcused.is_empty()).then(|| {
        let (name, told) = (tenant.name, seen::told(unexcused.iter().copied()));
        format!("The honest tenant {name} got errors that no disaster excuses: {told}.")
    })
}

/// What is wrong when all clients have gone.
async fn judge(stage: &mut Stage<'_>, seen: &Seen, narrator: &Narrator) -> Result<Vec<String>> {
    stage.idle().await?;
    let database = stage.database.connect().await?;
    narrator.say("nobody asks any more; waiting for what killed gateways had reserved");
    ledger::nothing_reserved(&database, LEASE).await?;
    let (memory, warm) = stage.memory();
    let warm = warm.context("the last gateway ran for too short a time to be warm")?;
    narrator.say(&format!(
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
    stage.end_gateway()?;
    let comparison = ledger::compare(&database, seen).await?;
    narrator.say(&comparison.told);
    problems.extend(comparison.problems);
    problems.append(&mut stage.problems);
    Ok(problems)
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}
