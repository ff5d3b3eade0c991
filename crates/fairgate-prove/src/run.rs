//! Runs one experiment, from its first request to its report.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::client::{ClientProgress, MODELS, ProveClient};
use crate::error::ProveError;
use crate::evidence::{ClientResult, ExperimentEvidence};
use crate::fleet;
use crate::folder::ExperimentFolder;
use crate::judge::{judge, judge_harm};
use crate::observe::{ExperimentObserver, ExperimentPhase, ProgressSample};
use crate::report::ProveReport;
use crate::scenario::{JoinTime, Scenario, ScenarioTenant};
use crate::servers::ExperimentServers;

/// Options of a run of one experiment.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Folder in which the gateway's data (database and journal) is kept, with a subfolder for each
    /// scenario. If `None`, the data is temporary and is removed afterwards.
    pub keep: Option<PathBuf>,
}

/// Interval at which the gateway's counters are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Longest time that clients may take to connect. After it, the clients that are connected begin.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest time that the first tenant may take to fill the pool.
const SATURATION_MAX: Duration = Duration::from_secs(60);
/// Longest time that the gateway may take to finish all requests after the last client has stopped.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Runs an experiment and judges its evidence. Blocks until the experiment is over.
pub fn run(
    scenario: &Scenario,
    options: &RunOptions,
    observer: &mut dyn ExperimentObserver,
) -> Result<ProveReport, ProveError> {
    if let Some(plan) = &scenario.fleet {
        let folder = ExperimentFolder::make(options.keep.as_deref(), scenario.name)?;
        let report = runtime()?.block_on(fleet::run(scenario, plan, &folder))?;
        observer.judged(&report);
        return Ok(report);
    }
    let report = match &scenario.harm {
        None => judge(scenario, &run_experiment(scenario, scenario.name, options, observer)?),
        Some(harm) => {
            let kept = format!("{}-honest", scenario.name);
            let honest = run_experiment(&harm.honest, &kept, options, observer)?;
            let attacked = run_experiment(scenario, scenario.name, options, observer)?;
            judge_harm(scenario, harm, &attacked, &honest)
        }
    };
    observer.judged(&report);
    Ok(report)
}

/// Number of threads of the runtime that clients, gateway and backends share.
const WORKER_THREADS: usize = 2;

fn run_experiment(
    scenario: &Scenario,
    kept: &str,
    options: &RunOptions,
    observer: &mut dyn ExperimentObserver,
) -> Result<ExperimentEvidence, ProveError> {
    let folder = ExperimentFolder::make(options.keep.as_deref(), kept)?;
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
    folder: &ExperimentFolder,
    observer: &mut dyn ExperimentObserver,
) -> Result<ExperimentEvidence, ProveError> {
    let world = ExperimentServers::start(scenario, folder.path()).await?;
    let (stop, stopped) = watch::channel(false);
    let tallies = scenario.tenants.iter().map(|_| Arc::default()).collect();
    let clients = Vec::new();
    let began = Instant::now();
    let mut show =
        RunningExperiment { scenario, world, tallies, clients, stopped, began, observer };
    show.start_clients(JoinTime::First).await;
    show.wait_until_saturated().await?;
    let at_join = show.world.provider();
    show.start_clients(JoinTime::AtSaturation).await;
    show.wait_for_overlap().await?;
    show.report_phase(ExperimentPhase::Finish, 1000).await?;
    let _ = stop.send(true);
    let sightings = show.collect_results().await?;
    show.wait_until_idle().await?;
    let pools = show.world.finish(at_join).await?;
    let seen = |(pool, sightings)| ExperimentEvidence { results: sightings, ..pool };
    // Nest from the last pool to the first: each is the second of the one before it.
    let all = pools.into_iter().zip(sightings).map(seen).rev();
    let nest =
        |second, first| Some(ExperimentEvidence { second: Option::map(second, Box::new), ..first });
    Ok(all.fold(None, nest).unwrap_or_default())
}

/// A running client: its tenant, its pool, and the async task that returns its results.
struct RunningClient {
    tenant: usize,
    pool: usize,
    task: JoinHandle<Vec<ClientResult>>,
}

/// Servers, clients and progress of a running experiment.
struct RunningExperiment<'a> {
    scenario: &'a Scenario,
    world: ExperimentServers,
    tallies: Vec<Arc<ClientProgress>>,
    clients: Vec<RunningClient>,
    stopped: watch::Receiver<bool>,
    began: Instant,
    observer: &'a mut dyn ExperimentObserver,
}

impl RunningExperiment<'_> {
    /// Starts the clients of all tenants that join at this phase. The clients first connect and
    /// then begin to send together, so that all tenants join at the same moment.
    async fn start_clients(&mut self, joins: JoinTime) {
        let (start, started) = watch::channel(false);
        let coming = self.scenario.tenants.iter().enumerate().filter(|(_, t)| t.joins == joins);
        let coming: Vec<_> = coming.collect();
        let most = coming.iter().map(|(_, plan)| plan.clients).max().unwrap_or(0);
        for number in 0..most {
            for (tenant, plan) in coming.iter().filter(|(_, plan)| number < plan.clients) {
                // Of two neighbours one streams; both kinds go to each pool.
                let pool = number / 2 % self.scenario.pools();
                let client = ProveClient {
                    gateway: self.world.address(),
                    tenant: *tenant,
                    model: MODELS[pool],
                    number,
                    credential: self.world.credential(*tenant, number % plan.keys),
                    pattern: plan.pattern,
                    warms_up: joins == JoinTime::First
                        && plan.pattern.topics.is_some_and(|topics| (number as u64) < topics),
                    tally: self.tallies[*tenant].clone(),
                };
                let task = tokio::spawn(client.run(started.clone(), self.stopped.clone()));
                self.clients.push(RunningClient { tenant: *tenant, pool, task });
            }
        }
        let ready = |(tenant, plan): &(usize, &ScenarioTenant)| {
            let ready = self.tallies[*tenant].ready.load(Ordering::Relaxed);
            ready >= plan.clients as u64
        };
        let patience = Instant::now() + CONNECT_MAX;
        while !coming.iter().all(ready) && Instant::now() < patience {
            sleep(Duration::from_millis(1)).await;
        }
        let _ = start.send(true);
    }

    /// Waits until the pool is full and requests are queued.
    async fn wait_until_saturated(&mut self) -> Result<(), ProveError> {
        self.report_phase(ExperimentPhase::Alone, 0).await?;
        loop {
            let sample = self.sample(0).await?;
            self.observer.sampled(self.scenario, &sample);
            let ProgressSample { elapsed, in_flight, waiting, .. } = sample;
            let capacity = self.scenario.capacity;
            // With a provider's quota the pool's own capacity is never used up.
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
            sleep(SAMPLE_INTERVAL).await;
        }
    }

    /// Waits until the phase with all tenants has lasted long enough and each tenant has enough
    /// answers. Fails after the scenario's time limit.
    async fn wait_for_overlap(&mut self) -> Result<(), ProveError> {
        let before = self.ended();
        let joined = Instant::now();
        let length = self.scenario.length;
        // The first answers were granted before the join, and the last grants do not end in time;
        // hence the extra capacity.
        let in_one_pool = length.grants_min + 2 * self.scenario.capacity;
        let needed = in_one_pool * self.scenario.pools() as u64;
        self.report_phase(ExperimentPhase::Overlap, 0).await?;
        let mut outage = OutageStage::Ahead;
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
            outage = self.update_outage(outage, slowest).await?;
            if since >= length.overlap && slowest >= needed && outage == OutageStage::Over {
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
            sleep(SAMPLE_INTERVAL).await;
        }
    }

    /// Kills the worker of the planned outage, or starts it again, if the tenant with the fewest
    /// answers has reached the planned progress. Returns the new stage.
    async fn update_outage(
        &mut self,
        outage: OutageStage,
        slowest: u64,
    ) -> Result<OutageStage, ProveError> {
        let Some(plan) = self.scenario.outage else { return Ok(OutageStage::Over) };
        let reached = |percent| slowest * 100 >= percent * self.scenario.length.grants_min;
        match outage {
            OutageStage::Ahead if reached(plan.dies_percent) => {
                self.report_phase(ExperimentPhase::WorkerDied, 0).await?;
                self.world.kill(plan.worker).await;
                Ok(OutageStage::Down)
            }
            OutageStage::Down if reached(plan.back_percent) => {
                self.world.restart(plan.worker, self.scenario)?;
                self.report_phase(ExperimentPhase::WorkerBack, 0).await?;
                Ok(OutageStage::Over)
            }
            _ => Ok(outage),
        }
    }

    /// Waits until the last client has finished, and returns the results of all clients, pool by
    /// pool.
    async fn collect_results(&mut self) -> Result<Vec<Vec<ClientResult>>, ProveError> {
        let mut sightings = vec![Vec::new(); self.scenario.pools()];
        for RunningClient { tenant, pool, task } in self.clients.drain(..) {
            let tenant = self.scenario.tenants[tenant].name;
            let lost = |error: tokio::task::JoinError| ProveError::Client {
                tenant,
                message: error.to_string(),
            };
            sightings[pool].extend(task.await.map_err(lost)?);
        }
        Ok(sightings)
    }

    /// Waits until nothing is in flight or queued, or [`IDLE_WAIT_MAX`] has passed. If that time has passed, the judge
    /// reports the requests that are left.
    async fn wait_until_idle(&mut self) -> Result<(), ProveError> {
        let since = Instant::now();
        loop {
            let sample = self.sample(1000).await?;
            if (sample.in_flight, sample.waiting) == (0, 0) || since.elapsed() > IDLE_WAIT_MAX {
                return Ok(());
            }
            sleep(SAMPLE_INTERVAL).await;
        }
    }

    fn ended(&self) -> Vec<u64> {
        self.tallies.iter().map(|tally| tally.ended.load(Ordering::Relaxed)).collect()
    }

    async fn sample(&self, done_milli: u64) -> Result<ProgressSample, ProveError> {
        let (in_flight, waiting) = self.world.in_flight_and_queued().await?;
        let elapsed = self.began.elapsed();
        Ok(ProgressSample { elapsed, done_milli, in_flight, waiting, ended: self.ended() })
    }

    async fn report_phase(
        &mut self,
        phase: ExperimentPhase,
        done_milli: u64,
    ) -> Result<(), ProveError> {
        let sample = self.sample(done_milli).await?;
        self.observer.phase(self.scenario, phase, &sample);
        Ok(())
    }
}

/// Stage of the planned outage of a worker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutageStage {
    Ahead,
    Down,
    Over,
}

fn thousandths(part: u128, whole: u128) -> u64 {
    let thousandths = (part * 1000).checked_div(whole).unwrap_or(1000);
    u64::try_from(thousandths.min(1000)).unwrap_or(1000)
}
