//! One experiment from its first request to its report.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::{Client, MODELS, Tally};
use crate::error::ProveError;
use crate::evidence::{Evidence, Sighting};
use crate::fleet;
use crate::folder::Folder;
use crate::judge::{judge, judge_harm};
use crate::observe::{Observer, Phase, Sample};
use crate::report::Report;
use crate::scenario::{Joins, Scenario, Tenant};
use crate::world::World;

/// How experiments are run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Where the gateway's data (database, journal) is kept, in a folder for each scenario; where absent it is made among
    /// temporary files and removed.
    pub keep: Option<PathBuf>,
}

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long clients may take to connect before those that have begin.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long the first tenant may take to fill the pool.
const SATURATION_MAX: Duration = Duration::from_secs(60);
/// How long the gateway may take to come to rest when nobody asks any more.
const REST_MAX: Duration = Duration::from_secs(30);

/// Runs an experiment and judges it. Blocks until it is over.
pub fn run(
    scenario: &Scenario,
    options: &RunOptions,
    observer: &mut dyn Observer,
) -> Result<Report, ProveError> {
    if let Some(plan) = &scenario.fleet {
        let folder = Folder::make(options.keep.as_deref(), scenario.name)?;
        let report = runtime()?.block_on(fleet::run(scenario, plan, &folder))?;
        observer.judged(&report);
        return Ok(report);
    }
    let report = match &scenario.harm {
        None => judge(scenario, &carry_out(scenario, scenario.name, options, observer)?),
        Some(harm) => {
            let kept = format!("{}-honest", scenario.name);
            let honest = carry_out(&harm.honest, &kept, options, observer)?;
            let attacked = carry_out(scenario, scenario.name, options, observer)?;
            judge_harm(scenario, harm, &attacked, &honest)
        }
    };
    observer.judged(&report);
    Ok(report)
}

/// Clients, gateway and backends share them.
const WORKER_THREADS: usize = 2;

fn carry_out(
    scenario: &Scenario,
    kept: &str,
    options: &RunOptions,
    observer: &mut dyn Observer,
) -> Result<Evidence, ProveError> {
    let folder = Folder::make(options.keep.as_deref(), kept)?;
    runtime()?.block_on(experiment(scenario, &folder, observer))
}

fn runtime() -> Result<Runtime, ProveError> {
    Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(ProveError::Runtime)
}

async fn experiment(
    scenario: &Scenario,
    folder: &Folder,
    observer: &mut dyn Observer,
) -> Result<Evidence, ProveError> {
    let world = World::start(scenario, folder.path()).await?;
    let (stop, stopped) = watch::channel(false);
    let tallies = scenario.tenants.iter().map(|_| Arc::default()).collect();
    let clients = Vec::new();
    let began = Instant::now();
    let mut show = Show { scenario, world, tallies, clients, stopped, began, observer };
    show.come(Joins::First).await;
    show.alone().await?;
    let at_join = show.world.provider();
    show.come(Joins::AtSaturation).await;
    show.overlap().await?;
    show.tell(Phase::Finish, 1000).await?;
    let _ = stop.send(true);
    let sightings = show.gather().await?;
    show.rest().await?;
    let pools = show.world.finish(at_join).await?;
    let seen = |(pool, sightings)| Evidence { sightings, ..pool };
    // The last pool first: each is the second of the one before it.
    let all = pools.into_iter().zip(sightings).map(seen).rev();
    let nest = |second, first| Some(Evidence { second: Option::map(second, Box::new), ..first });
    Ok(all.fold(None, nest).unwrap_or_default())
}

/// A client while it asks.
struct Running {
    tenant: usize,
    pool: usize,
    task: JoinHandle<Vec<Sighting>>,
}

/// An experiment while it runs.
struct Show<'a> {
    scenario: &'a Scenario,
    world: World,
    tallies: Vec<Arc<Tally>>,
    clients: Vec<Running>,
    stopped: watch::Receiver<bool>,
    began: Instant,
    observer: &'a mut dyn Observer,
}

impl Show<'_> {
    /// The clients of those who start now. All of them connect first and then begin in the same moment, those of each
    /// tenant in turn: a join is a moment, not a while in which one tenant is there and the other is not.
    async fn come(&mut self, joins: Joins) {
        let (start, started) = watch::channel(false);
        let coming = self.scenario.tenants.iter().enumerate().filter(|(_, t)| t.joins == joins);
        let coming: Vec<_> = coming.collect();
        let most = coming.iter().map(|(_, plan)| plan.clients).max().unwrap_or(0);
        for number in 0..most {
            for (tenant, plan) in coming.iter().filter(|(_, plan)| number < plan.clients) {
                // Of two neighbours one streams: both kinds go to each pool.
                let pool = number / 2 % self.scenario.pools();
                let client = Client {
                    gateway: self.world.address(),
                    tenant: *tenant,
                    model: MODELS[pool],
                    number,
                    credential: self.world.credential(*tenant, number % plan.keys),
                    ask: plan.ask,
                    warms_up: joins == Joins::First
                        && plan.ask.topics.is_some_and(|topics| (number as u64) < topics),
                    tally: self.tallies[*tenant].clone(),
                };
                let task = tokio::spawn(client.run(started.clone(), self.stopped.clone()));
                self.clients.push(Running { tenant: *tenant, pool, task });
            }
        }
        let ready = |(tenant, plan): &(usize, &Tenant)| {
            let ready = self.tallies[*tenant].ready.load(Ordering::Relaxed);
            ready >= plan.clients as u64
        };
        let patience = Instant::now() + CONNECT_MAX;
        while !coming.iter().all(ready) && Instant::now() < patience {
            sleep(Duration::from_millis(1)).await;
        }
        let _ = start.send(true);
    }

    /// Until the pool is full and requests wait.
    async fn alone(&mut self) -> Result<(), ProveError> {
        self.tell(Phase::Alone, 0).await?;
        loop {
            let sample = self.sample(0).await?;
            self.observer.sampled(self.scenario, &sample);
            let Sample { elapsed, in_flight, waiting, .. } = sample;
            let capacity = self.scenario.capacity;
            // Where a provider's quota decides, the pool's own capacity is never used up.
            let is_full = in_flight >= capacity || self.scenario.quota.is_some();
            let saturated = is_full && waiting > 0;
            if saturated && elapsed >= self.scenario.length.alone {
                return Ok(());
            }
            if elapsed > self.scenario.length.alone + SATURATION_MAX {
                let scenario = self.scenario.name;
                let after = elapsed;
                return Err(ProveError::NotSaturated {
                    scenario,
                    after,
                    in_flight,
                    waiting,
                    capacity,
                });
            }
            sleep(LOOK).await;
        }
    }

    /// Until everybody has had enough.
    async fn overlap(&mut self) -> Result<(), ProveError> {
        let before = self.ended();
        let joined = Instant::now();
        let length = self.scenario.length;
        // Some of what ends first was granted before the join, and some of what was granted does not end in time.
        let in_one_pool = length.grants_min + 2 * self.scenario.capacity;
        let needed = in_one_pool * self.scenario.pools() as u64;
        self.tell(Phase::Overlap, 0).await?;
        let mut outage = Outage::Ahead;
        loop {
            let since = joined.elapsed();
            let ended = self.ended().into_iter().zip(&before).map(|(now, then)| now - then);
            let (slowest, tenant) = ended
                .zip(&self.scenario.tenants)
                .min_by_key(|(n, _)| *n)
                .map_or((0, "nobody"), |(n, tenant)| (n, tenant.name));
            let by_time = thousandths(since.as_micros(), length.overlap.as_micros());
            let by_grants = thousandths(slowest.into(), needed.into());
            let sample = self.sample(by_time.min(by_grants)).await?;
            self.observer.sampled(self.scenario, &sample);
            outage = self.strike(outage, slowest).await?;
            if since >= length.overlap && slowest >= needed && outage == Outage::Over {
                return Ok(());
            }
            if since > length.overlap_max {
                let (scenario, after) = (self.scenario.name, since);
                return Err(ProveError::TooSlow {
                    scenario,
                    after,
                    tenant,
                    ended: slowest,
                    needed,
                });
            }
            sleep(LOOK).await;
        }
    }

    /// Lets the worker die and come back when it is time.
    async fn strike(&mut self, outage: Outage, slowest: u64) -> Result<Outage, ProveError> {
        let Some(plan) = self.scenario.outage else { return Ok(Outage::Over) };
        let reached = |percent| slowest * 100 >= percent * self.scenario.length.grants_min;
        match outage {
            Outage::Ahead if reached(plan.dies_percent) => {
                self.tell(Phase::WorkerDied, 0).await?;
                self.world.kill(plan.worker).await;
                Ok(Outage::Dark)
            }
            Outage::Dark if reached(plan.back_percent) => {
                self.world.revive(plan.worker, self.scenario)?;
                self.tell(Phase::WorkerBack, 0).await?;
                Ok(Outage::Over)
            }
            _ => Ok(outage),
        }
    }

    /// Everything that the clients saw, pool by pool, once the last of them has finished.
    async fn gather(&mut self) -> Result<Vec<Vec<Sighting>>, ProveError> {
        let mut sightings = vec![Vec::new(); self.scenario.pools()];
        for Running { tenant, pool, task } in self.clients.drain(..) {
            let tenant = self.scenario.tenants[tenant].name;
            let lost = |error: tokio::task::JoinError| ProveError::Client {
                tenant,
                message: error.to_string(),
            };
            sightings[pool].extend(task.await.map_err(lost)?);
        }
        Ok(sightings)
    }

    /// Until nothing is in flight or waits. Where something still does after all, that is for the judge.
    async fn rest(&mut self) -> Result<(), ProveError> {
        let since = Instant::now();
        loop {
            let sample = self.sample(1000).await?;
            if (sample.in_flight, sample.waiting) == (0, 0) || since.elapsed() > REST_MAX {
                return Ok(());
            }
            sleep(LOOK).await;
        }
    }

    fn ended(&self) -> Vec<u64> {
        self.tallies.iter().map(|tally| tally.ended.load(Ordering::Relaxed)).collect()
    }

    async fn sample(&self, done_milli: u64) -> Result<Sample, ProveError> {
        let (in_flight, waiting) = self.world.live().await?;
        let elapsed = self.began.elapsed();
        Ok(Sample { elapsed, done_milli, in_flight, waiting, ended: self.ended() })
    }

    async fn tell(&mut self, phase: Phase, done_milli: u64) -> Result<(), ProveError> {
        let sample = self.sample(done_milli).await?;
        self.observer.phase(self.scenario, phase, &sample);
        Ok(())
    }
}

/// How far the worker's death is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outage {
    Ahead,
    Dark,
    Over,
}

fn thousandths(part: u128, whole: u128) -> u64 {
    let thousandths = (part * 1000).checked_div(whole).unwrap_or(1000);
    u64::try_from(thousandths.min(1000)).unwrap_or(1000)
}
