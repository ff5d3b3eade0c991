//! Configuration of the gateway, its tenants and the simulated models for a scenario.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fairgate_config::{
    BreakerConfig, Config, FleetCreditUnit, HealthConfig, JournalConfig, LeasesConfig, PolicyFile,
    PoolConfig, PrefixIndexConfig, PrefixScope, QuotaConfig,
};
use fairgate_journal::parse_policy;
use fairgate_sim::{AccountOptions, LimitHeaders, OutputLength, SimAccount, SimOptions};
use fairgate_store::{
    Budget, BudgetPeriod, DirectoryChange, DirectoryLimits, KeyRights, KeySecret, Store,
};
use fairgate_time::wall_clock;

use super::failed;
use crate::client::{LIMITED_MODEL, MODELS};
use crate::error::ProveError;
use crate::scenario::{
    Scenario, ScenarioLevel, ScenarioPolicy, ScenarioQuota, ScenarioTenant, StatedLimits,
};

/// Names of the pools; each serves the model of the same name.
pub(super) const POOLS: [&str; 2] = MODELS;

/// Queue timeout in scenarios with a provider's quota. It is long enough for a request to wait
/// until all clients of the smallest tenant have been granted a slot.
const QUOTA_QUEUE_TIMEOUT: Duration = Duration::from_secs(120);

/// Queue timeout in scenarios with a model whose limit is used up. It ends the requests that wait for that model. It is
/// several times as long as the other requests wait.
const HOSTED_QUEUE_TIMEOUT: Duration = Duration::from_secs(3);

/// Size at which the gateway starts a new journal file. It is small, so that the replay is compared
/// with many of the gateway's snapshots.
const JOURNAL_FILE_BYTES: u64 = 64 << 10;
const JOURNAL_FILES_MAX: usize = 100_000;

/// Token budget of each tenant. It is too large to be used up; the experiment only checks that
/// tokens are reserved, settled and given back.
const BUDGET_TOKENS: u64 = 1_000_000_000_000;

/// Requests per minute that the provider of a hosted scenario allows for each model, more than the slots ever need.
const HOSTED_PER_MINUTE: u64 = 600_000;

/// Time after which a lease ends unless its client renews it.
const LEASE_TTL: Duration = Duration::from_secs(15);

/// Quantum of a drr class of weight 1, in tokens.
const QUANTUM: u64 = 64;

/// Weight of a cached input token in a request's cost, in thousandths, if the pool has a prefix
/// index.
const CACHED_MILLI: u64 = 500;

/// Estimate of the tokens that a task of the fleet uses.
const TASK_TOKENS: u64 = 60;

/// Returns the folder of a pool's journal.
pub(super) fn journal_folder(folder: &Path, pool: &str) -> PathBuf {
    folder.join("journal").join(pool)
}

/// Builds the configuration of the gateway, which listens on a free port.
pub(super) fn config(
    scenario: &Scenario,
    folder: &Path,
    backends: &[SocketAddr],
) -> Result<Config, ProveError> {
    let wrong = |error: &dyn ToString| failed("cannot be configured", error.to_string());
    let url = |address: &SocketAddr| {
        format!("http://{address}").parse().map_err(|error: http::uri::InvalidUri| wrong(&error))
    };
    let first = backends.first().ok_or_else(|| failed("cannot be configured", "no backends"))?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = Config::embedded(folder.to_owned(), listen, url(first)?);
    config.journal = Some(JournalConfig {
        folder: folder.join("journal"),
        file_bytes_max: JOURNAL_FILE_BYTES,
        files_max: JOURNAL_FILES_MAX,
    });
    let Some(model) = config.upstreams.pop() else {
        return Err(failed("cannot be configured", "no upstream"));
    };
    for ((name, slots), address) in scenario.backend.workers.iter().zip(backends) {
        let mut upstream = model.clone();
        upstream.name = (*name).to_owned();
        upstream.url = url(address)?;
        upstream.slots = Some(*slots);
        if let Some(quota) = scenario.quota.filter(|quota| quota.concerns(name)) {
            upstream.tier = u32::from(quota.only.is_some());
            upstream.quota = QuotaConfig {
                account: Some("provider".to_owned()),
                requests_per_minute: None,
                tokens_per_minute: None,
                burst_seconds: quota.burst_seconds,
                probe: true,
                // The simulated provider limits its models together.
                shared_limits: true,
            };
        }
        if scenario.hosted {
            upstream.quota = QuotaConfig {
                account: Some("provider".to_owned()),
                requests_per_minute: Some(HOSTED_PER_MINUTE),
                tokens_per_minute: None,
                burst_seconds: 1,
                probe: true,
                shared_limits: false,
            };
        }
        if scenario.outage.is_some() {
            upstream.breaker = BreakerConfig { failures: 1, open_for: Duration::from_millis(250) };
            upstream.health = Some(HealthConfig {
                path: "/health".to_owned(),
                every: Duration::from_millis(100),
                timeout: Duration::from_secs(2),
                unhealthy_after: 1,
                healthy_after: 1,
            });
        }
        config.upstreams.push(upstream);
    }
    if let Some(plan) = &scenario.fleet {
        config.fleet.lease = plan.lease;
        config.fleet.backoff = plan.lease;
        config.fleet.default_estimate = TASK_TOKENS;
        // The scenario judges shares of tokens, whatever the time that the machine takes for a task.
        config.fleet.credit = FleetCreditUnit::Tokens;
    }
    let policy = policy(scenario);
    let Some(template) = config.pools.pop() else {
        return Err(failed("cannot be configured", "no pool"));
    };
    for (index, name) in POOLS.iter().enumerate().take(scenario.pools()) {
        let is_second = |worker: &str| scenario.second_pool == Some(worker);
        let workers = scenario.backend.workers.iter().map(|(worker, _)| *worker);
        let mut pool = template.clone();
        pool.name = (*name).to_owned();
        pool.models.iter_mut().for_each(|model| model.name = (*name).to_owned());
        pool.capacity = scenario.capacity;
        match scenario.policy {
            ScenarioPolicy::Classes { file, index } => by_file(&mut pool, file, index)?,
            _ => pool.policy = parse_policy(&policy).map_err(|error| wrong(&error))?,
        }
        pool.workers =
            workers.filter(|name| is_second(name) == (index == 1)).map(str::to_owned).collect();
        if scenario.leases {
            let quota = QuotaConfig {
                account: None,
                requests_per_minute: None,
                tokens_per_minute: None,
                burst_seconds: 1,
                probe: true,
                shared_limits: false,
            };
            pool.leases = Some(LeasesConfig { ttl: LEASE_TTL, quota });
            pool.models.clear();
            pool.workers.clear();
        }
        if scenario.quota.is_some() {
            pool.queue_timeout = QUOTA_QUEUE_TIMEOUT;
        }
        if scenario.hosted {
            pool.queue_timeout = HOSTED_QUEUE_TIMEOUT;
            let mut limited = pool.models.clone();
            limited.iter_mut().for_each(|model| model.name = LIMITED_MODEL.to_owned());
            pool.models.extend(limited);
        }
        config.pools.push(pool);
    }
    Ok(config)
}

/// Sets the pool's policy from the text of a policy file. If `index` is true, the pool gets a
/// prefix index, and cached input costs half.
fn by_file(pool: &mut PoolConfig, text: &str, index: bool) -> Result<(), ProveError> {
    let wrong = |error: &dyn ToString| failed("cannot be configured", error.to_string());
    let file = PolicyFile::parse(text, Path::new("policy.yaml")).map_err(|error| wrong(&error))?;
    let classes = file.root.ok_or_else(|| wrong(&"the policy file has no classes"))?;
    pool.policy = classes.policy();
    pool.classes = Some(classes);
    if index {
        pool.cost.cached_milli = CACHED_MILLI;
        pool.prefix_index = Some(PrefixIndexConfig {
            scope: PrefixScope::Pool,
            cache_tokens: 1_000_000,
            memory_bytes_max: 64 << 20,
        });
    }
    Ok(())
}

/// Builds the account of a simulated provider.
pub(super) fn account(quota: ScenarioQuota) -> Arc<SimAccount> {
    SimAccount::new(AccountOptions {
        requests_per_minute: Some(quota.requests_per_minute),
        tokens_per_minute: Some(quota.tokens_per_minute),
        burst: quota.burst,
        refill: quota.refill,
        statement: match quota.states {
            StatedLimits::OpenAi => LimitHeaders::OpenAi,
            StatedLimits::Nothing => LimitHeaders::Nothing,
        },
        ..AccountOptions::default()
    })
}

/// Builds the pool's policy as JSON, as in a configuration file.
fn policy(scenario: &Scenario) -> String {
    let classes = |weight: &str| {
        let class = |tenant: &ScenarioTenant| {
            let (name, of) = (tenant.name, tenant.weight * QUANTUM);
            format!(r#"{{"name":"{name}","{weight}":{of}}}"#)
        };
        scenario.tenants.iter().map(class).collect::<Vec<_>>().join(",")
    };
    match scenario.policy {
        ScenarioPolicy::Share { partition } => format!(
            r#"{{"share":{{"by":"group","partition":{partition},"inside":
               {{"share":{{"by":"tenant","inside":{{"share":{{"by":"key"}}}}}}}}}}}}"#
        ),
        ScenarioPolicy::ShareClasses => {
            let classes = classes("weight");
            format!(r#"{{"share":{{"by":"class","classes":[{classes}]}}}}"#)
        }
        ScenarioPolicy::Load { ticks_max } => {
            format!(r#"{{"load":{{"by":"tenant","max_wait_ticks":{ticks_max}}}}}"#)
        }
        ScenarioPolicy::Drr => {
            let classes = classes("quantum");
            format!(r#"{{"drr":{{"by":"class","classes":[{classes}]}}}}"#)
        }
        ScenarioPolicy::Bands { caps } => {
            let class = |(i, tenant): (usize, &ScenarioTenant)| match caps.get(i) {
                Some(cap) => format!(r#"{{"name":"{}","cap":{cap}}}"#, tenant.name),
                None => format!(r#"{{"name":"{}"}}"#, tenant.name),
            };
            let classes: Vec<String> = scenario.tenants.iter().enumerate().map(class).collect();
            let default = scenario.tenants.last().map_or("", |tenant| tenant.name);
            format!(
                r#"{{"bands":{{"by":"class","classes":[{}],"default":"{default}","inside":{{"share":{{"by":"tenant"}}}}}}}}"#,
                classes.join(",")
            )
        }
        ScenarioPolicy::Edf => r#"{"share":{"by":"group","queue":"edf"}}"#.to_owned(),
        // This policy is a file and not a tree.
        ScenarioPolicy::Classes { .. } => String::new(),
    }
}

/// Builds the options of the simulated model of a worker.
pub(super) fn model(scenario: &Scenario, worker: &str) -> SimOptions {
    let backend = &scenario.backend;
    let slots = backend.workers.iter().find(|(name, _)| *name == worker);
    let mut models = vec![MODELS[usize::from(scenario.second_pool == Some(worker))].to_owned()];
    models.extend(scenario.hosted.then(|| LIMITED_MODEL.to_owned()));
    SimOptions {
        models,
        slots: slots.map_or(1, |(_, slots)| usize::try_from(*slots).unwrap_or(usize::MAX)),
        prefill_base: backend.prefill_base,
        prefill_per_token: backend.prefill_per_token,
        decode_per_token: backend.decode_per_token,
        prefix_cache_blocks: backend.prefix_cache_blocks,
        // Each prompt states the length of its answer.
        steering: true,
        output_tokens: OutputLength::exactly(1),
        ..SimOptions::default()
    }
}

/// Creates the scenario's groups, tenants and keys in the store, and returns the keys of each
/// tenant.
pub(super) async fn tenants(
    store: &Store,
    scenario: &Scenario,
) -> Result<Vec<Vec<KeySecret>>, ProveError> {
    let change = |change| store.change("prove", wall_clock::now(), change);
    let mut groups: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for tenant in &scenario.tenants {
        let (group_weight, weight) = match scenario.level {
            ScenarioLevel::Groups => (tenant.weight, 1),
            ScenarioLevel::Tenants => (1, tenant.weight),
        };
        if !groups.contains(&tenant.group) {
            groups.push(tenant.group);
            let name = tenant.group.to_owned();
            change(DirectoryChange::AddGroup { name, weight: group_weight, budgets: Vec::new() })
                .await?;
        }
        let budget = Budget::tokens(BUDGET_TOKENS, BudgetPeriod::Month);
        let budgets = scenario.budgets.then_some(budget).into_iter().collect();
        change(DirectoryChange::AddTenant {
            requires: Vec::new(),
            name: tenant.name.to_owned(),
            group: tenant.group.to_owned(),
            weight,
            limits: DirectoryLimits { budgets, ..DirectoryLimits::default() },
        })
        .await?;
        let class = match scenario.policy {
            ScenarioPolicy::ShareClasses | ScenarioPolicy::Drr | ScenarioPolicy::Bands { .. } => {
                Some(tenant.name)
            }
            ScenarioPolicy::Classes { .. } => Some(tenant.group),
            ScenarioPolicy::Share { .. } | ScenarioPolicy::Load { .. } | ScenarioPolicy::Edf => {
                None
            }
        };
        let classes: Vec<String> = class.into_iter().map(str::to_owned).collect();
        let deadline_min_ms =
            (0..tenant.clients).filter_map(|client| tenant.pattern.deadline_ms(client)).min();
        let rights = KeyRights {
            classes: Some(classes),
            deadline_min_ms,
            may_lease: scenario.leases,
            ..KeyRights::default()
        };
        let mut keys = Vec::new();
        for number in 0..tenant.keys {
            let changed = change(DirectoryChange::CreateKey {
                tenant: tenant.name.to_owned(),
                name: format!("{}-{number}", tenant.name),
                weight: 1,
                limits: DirectoryLimits::default(),
                rights: rights.clone(),
                expires_at: None,
            });
            keys.extend(changed.await?.secret);
        }
        all.push(keys);
    }
    Ok(all)
}
