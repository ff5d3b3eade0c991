//! The servers of one experiment: the simulated backends, and a real gateway with its database and
//! its journal.

mod ledger;
mod setup;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairgate_gateway::{Gateway, GatewayOptions};
use fairgate_proxy::pools::PoolHandle;
use fairgate_runtime::GateClosedError;
use fairgate_sim::{AccountCounts, Sim, SimAccount, SimOptions};
use fairgate_store::{KeyHash, KeySecret, Store, StoreOptions};

use self::setup::{POOLS, journal_folder};
use crate::error::ProveError;
use crate::evidence::{
    ExperimentEvidence, FinalCounters, JournalFile, LedgerEvidence, ProviderCounts,
};
use crate::scenario::Scenario;

/// All servers of one experiment.
pub(crate) struct ExperimentServers {
    backends: Vec<RunningBackend>,
    account: Option<Arc<SimAccount>>,
    gateway: Gateway,
    admin_token: KeySecret,
    /// Number of pools that the scenario uses. They are the first pools of [`POOLS`].
    pools: usize,
    /// Keys of each tenant, in the order of the scenario's tenants.
    keys: Vec<Vec<KeySecret>>,
    tenants: Vec<&'static str>,
    folder: PathBuf,
    store_url: String,
}

/// A simulated backend, running or dead.
struct RunningBackend {
    name: &'static str,
    address: SocketAddr,
    sim: Option<Sim>,
}

/// Longest time that the gateway may take to shut down. No request is in flight when it begins to shut down.
const DRAIN: Duration = Duration::from_secs(10);

impl ExperimentServers {
    /// Starts all servers of the scenario, with their data in `folder`.
    pub(crate) async fn start(scenario: &Scenario, folder: &Path) -> Result<Self, ProveError> {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut backends = Vec::new();
        let account = scenario.quota.map(setup::account);
        for (name, _) in &scenario.backend.workers {
            let sim = start_sim(name, any_port, scenario, account.clone())?;
            backends.push(RunningBackend { name, address: sim.addr(), sim: Some(sim) });
        }
        let addresses: Vec<SocketAddr> = backends.iter().map(|backend| backend.address).collect();
        let config = setup::config(scenario, folder, &addresses)?;
        let store_url = config.store.url.expose().to_owned();
        let (store, _) = Store::open(&store_url, StoreOptions::default()).await?;
        let keys = setup::tenants(&store, scenario).await?;
        let token = KeySecret::generate().map_err(|error| failed("did not start", error))?;
        let admin_token = KeyHash::of(token.expose().as_bytes());
        let options = GatewayOptions { config, store, admin_token, may_disable_most: false };
        let gateway =
            Gateway::start(options).await.map_err(|error| failed("did not start", error))?;
        let tenants = scenario.tenants.iter().map(|tenant| tenant.name).collect();
        let folder = folder.to_owned();
        let pools = scenario.pools();
        let admin_token = token;
        Ok(Self {
            backends,
            account,
            gateway,
            admin_token,
            pools,
            keys,
            tenants,
            folder,
            store_url,
        })
    }

    /// Returns the gateway's address, to which clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addr()
    }

    /// Returns the gateway's token for the admin API.
    pub(crate) fn admin_token(&self) -> &str {
        self.admin_token.expose()
    }

    /// Returns the value of the `Authorization` header for one of a tenant's keys.
    pub(crate) fn credential(&self, tenant: usize, key: usize) -> String {
        format!("Bearer {}", self.keys[tenant][key].expose())
    }

    fn names(&self) -> &'static [&'static str] {
        &POOLS[..self.pools]
    }

    fn pool(&self, name: &'static str) -> Result<Arc<PoolHandle>, ProveError> {
        let pool = self.gateway.data_plane().pools.named(name);
        pool.ok_or_else(|| failed("has no pool", name))
    }

    /// Returns the number of requests in flight and the number of queued requests, each over all
    /// pools.
    pub(crate) async fn in_flight_and_queued(&self) -> Result<(u64, u64), ProveError> {
        let (mut in_flight, mut waiting) = (0, 0);
        for name in self.names() {
            let live = self.pool(name)?.gate.status().await.map_err(gone)?;
            in_flight += live.in_flight;
            waiting += live.waiting;
        }
        Ok((in_flight, waiting))
    }

    /// Returns the counters of the simulated provider so far; `None` if the scenario has no
    /// provider.
    pub(crate) fn provider(&self) -> Option<AccountCounts> {
        self.account.as_ref().map(|account| account.counts())
    }

    /// Ends a worker abruptly, as a crash would.
    pub(crate) async fn kill(&mut self, worker: &str) {
        let backend = self.backends.iter_mut().find(|backend| backend.name == worker);
        if let Some(sim) = backend.and_then(|backend| backend.sim.take()) {
            sim.kill().await;
        }
    }

    /// Starts a worker again at its former address.
    pub(crate) fn restart(&mut self, worker: &str, scenario: &Scenario) -> Result<(), ProveError> {
        let backend = self.backends.iter_mut().find(|backend| backend.name == worker);
        if let Some(backend) = backend {
            let account = self.account.clone();
            backend.sim = Some(start_sim(backend.name, backend.address, scenario, account)?);
        }
        Ok(())
    }

    /// Stops all servers and reads the ledger of all tenants.
    pub(crate) async fn finish_fleet(self) -> Result<LedgerEvidence, ProveError> {
        let (url, tenants) = (self.store_url.clone(), self.tenants.clone());
        let drained = self.gateway.drain(DRAIN).await;
        for sim in self.backends.into_iter().filter_map(|backend| backend.sim) {
            sim.kill().await;
        }
        if let Some(problem) = drained.problems.into_iter().next() {
            return Err(failed("did not end well", problem));
        }
        let mut ledgers = ledger::read(&url, &tenants, &[None]).await?;
        Ok(ledgers.pop().unwrap_or_default())
    }

    /// Stops all servers and collects the evidence of each pool, except for the clients' results.
    pub(crate) async fn finish(
        self,
        at_join: Option<AccountCounts>,
    ) -> Result<Vec<ExperimentEvidence>, ProveError> {
        let names = self.names();
        let mut lasts = Vec::new();
        for name in names {
            let gate = &self.pool(name)?.gate;
            let live = gate.status().await.map_err(gone)?;
            lasts.push((live, gate.snapshot().await.map_err(gone)?));
        }
        let in_all = self.provider();
        let provider =
            at_join.zip(in_all).map(|(at_join, in_all)| ProviderCounts { at_join, in_all });
        let drained = self.gateway.drain(DRAIN).await;
        for backend in self.backends {
            if let Some(sim) = backend.sim {
                sim.kill().await;
            }
        }
        if let Some(problem) = drained.problems.into_iter().next() {
            return Err(failed("did not end well", problem));
        }
        let models: Vec<Option<&str>> =
            names.iter().map(|name| (names.len() > 1).then_some(*name)).collect();
        let ledgers = ledger::read(&self.store_url, &self.tenants, &models).await?;
        let mut all = Vec::new();
        for ((name, (live, last)), ledger) in names.iter().zip(lasts).zip(ledgers) {
            all.push(ExperimentEvidence {
                journal: journal(&journal_folder(&self.folder, name))?,
                last_snapshot: Some(last),
                ledger,
                results: Vec::new(),
                provider,
                final_counters: FinalCounters {
                    in_flight: live.in_flight,
                    waiting: live.waiting,
                    still_in_flight: drained.still_in_flight,
                    events_lost: live.journal.events_lost,
                },
                second: None,
            });
        }
        Ok(all)
    }
}

fn start_sim(
    worker: &'static str,
    address: SocketAddr,
    scenario: &Scenario,
    account: Option<Arc<SimAccount>>,
) -> Result<Sim, ProveError> {
    let is_hosted = scenario.quota.is_some_and(|quota| quota.concerns(worker));
    let account = account.filter(|_| is_hosted);
    let options = SimOptions { account, ..setup::model(scenario, worker) };
    let sim =
        Sim::start(address, options).map_err(|source| ProveError::Backend { worker, source })?;
    sim.set_fault(scenario.backend.fault);
    Ok(sim)
}

/// Reads the files of a journal from a folder, oldest first.
fn journal(folder: &Path) -> Result<Vec<JournalFile>, ProveError> {
    let bad = |path: &Path| {
        let path = path.to_owned();
        move |source| ProveError::File { path, source }
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(bad(folder))? {
        let entry = entry.map_err(bad(folder))?;
        let bytes = fs::read(entry.path()).map_err(bad(&entry.path()))?;
        files.push(JournalFile { name: entry.file_name().to_string_lossy().into_owned(), bytes });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

fn failed(doing: &'static str, message: impl ToString) -> ProveError {
    ProveError::Gateway { doing, message: message.to_string() }
}

fn gone(closed: GateClosedError) -> ProveError {
    failed("has closed a pool", closed)
}
