//! How the gateway, its tenants and the models behind it are set up for a scenario.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairgate_config::{
    BreakerConfig, Config, HealthConfig, JournalConfig, PolicyFile, PoolConfig, PrefixIndexConfig,
    PrefixScope, QuotaConfig,
};
use fairgate_journal::parse_policy;
use fairgate_sim::{Account, AccountOptions, OutputLength, SimOptions, Statement};
use fairgate_store::{Budget, Change, Limits, Period, Rights, Secret, Store, UnixMicros};

use super::failed;
use crate::client::MODELS;
use crate::error::ProveError;
use crate::scenario::{Level, Policy, Quota, Scenario, States, Tenant};

/// The pools, each with the model of its name.
pub(super) const POOLS: [&str; 2] = MODELS;

/// With a provider's quota everybody waits until the smallest tenant's clients have all had their turn.
const QUOTA_QUEUE_TIMEOUT: Duration = Duration::from_secs(120);

/// Journals are cut often here, so that a replay meets many snapshots of production's own state.
const JOURNAL_FILE_BYTES: u64 = 64 << 10;
const JOURNAL_FILES_MAX: usize = 100_000;

/// More than anybody will use: what is proven is that it is reserved, settled and given back.
const BUDGET_TOKENS: u64 = 1_000_000_000_000;

/// What a class of weight 1 gets in one round of drr, in tokens.
const QUANTUM: u64 = 64;

/// What a cached input token costs where there is an index, in thousandths.
const CACHED_MILLI: u64 = 500;

/// About what a fleet's task uses, in tokens.
const TASK_TOKENS: u64 = 60;

/// Where a pool's journal is.
pub(super) fn journal_folder(folder: &Path, pool: &str) -> PathBuf {
    folder.join("journal").join(pool)
}

/// The configuration, with port 0.
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
            Policy::Classes { file, index } => by_file(&mut pool, file, index)?,
            _ => pool.policy = parse_policy(&policy).map_err(|error| wrong(&error))?,
        }
        pool.workers =
            workers.filter(|name| is_second(name) == (index == 1)).map(str::to_owned).collect();
        if scenario.quota.is_some() {
            pool.queue_timeout = QUOTA_QUEUE_TIMEOUT;
        }
        config.pools.push(pool);
    }
    Ok(config)
}

/// The pool as a policy file has it. With an index of prefixes cached input costs half.
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

/// A provider's account.
pub(super) fn account(quota: Quota) -> Arc<Account> {
    Account::new(AccountOptions {
        requests_per_minute: Some(quota.requests_per_minute),
        tokens_per_minute: Some(quota.tokens_per_minute),
        burst: quota.burst,
        statement: match quota.states {
            States::OpenAi => Statement::OpenAi,
            States::Nothing => Statement::Nothing,
        },
        ..AccountOptions::default()
    })
}

/// The pool's policy, as in a file.
fn policy(scenario: &Scenario) -> String {
    let classes = |weight: &str| {
        let class = |tenant: &Tenant| {
            let (name, of) = (tenant.name, tenant.weight * QUANTUM);
            format!(r#"{{"name":"{name}","{weight}":{of}}}"#)
        };
        scenario.tenants.iter().map(class).collect::<Vec<_>>().join(",")
    };
    match scenario.policy {
        Policy::Share { partition } => format!(
            r#"{{"share":{{"by":"group","partition":{partition},"inside":
               {{"share":{{"by":"tenant","inside":{{"share":{{"by":"key"}}}}}}}}}}}}"#
        ),
        Policy::ShareClasses => {
            let classes = classes("weight");
            format!(r#"{{"share":{{"by":"class","classes":[{classes}]}}}}"#)
        }
        Policy::Load { ticks_max } => {
            format!(r#"{{"load":{{"by":"tenant","max_wait_ticks":{ticks_max}}}}}"#)
        }
        Policy::Drr => {
            let classes = classes("quantum");
            format!(r#"{{"drr":{{"by":"class","classes":[{classes}]}}}}"#)
        }
        // It is no tree, but a file.
        Policy::Classes { .. } => String::new(),
    }
}

/// A simulated model.
pub(super) fn model(scenario: &Scenario, worker: &str) -> SimOptions {
    let backend = &scenario.backend;
    let slots = backend.workers.iter().find(|(name, _)| *name == worker);
    SimOptions {
        models: vec![MODELS[usize::from(scenario.second_pool == Some(worker))].to_owned()],
        slots: slots.map_or(1, |(_, slots)| usize::try_from(*slots).unwrap_or(usize::MAX)),
        prefill_base: backend.prefill_base,
        prefill_per_token: backend.prefill_per_token,
        decode_per_token: backend.decode_per_token,
        prefix_cache_blocks: backend.prefix_cache_blocks,
        // Each prompt says how long its answer is.
        steering: true,
        output_tokens: OutputLength::exactly(1),
        ..SimOptions::default()
    }
}

/// Groups, tenants and keys; returns the keys of each tenant.
pub(super) async fn tenants(
    store: &Store,
    scenario: &Scenario,
) -> Result<Vec<Vec<Secret>>, ProveError> {
    let change = |change| store.change("prove", now(), change);
    let mut groups: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for tenant in &scenario.tenants {
        let (group_weight, weight) = match scenario.level {
            Level::Groups => (tenant.weight, 1),
            Level::Tenants => (1, tenant.weight),
        };
        if !groups.contains(&tenant.group) {
            groups.push(tenant.group);
            let name = tenant.group.to_owned();
            change(Change::AddGroup { name, weight: group_weight, budgets: Vec::new() }).await?;
        }
        let budget = Budget::tokens(BUDGET_TOKENS, Period::Month);
        let budgets = scenario.budgets.then_some(budget).into_iter().collect();
        change(Change::AddTenant {
            name: tenant.name.to_owned(),
            group: tenant.group.to_owned(),
            weight,
            limits: Limits { budgets, ..Limits::default() },
        })
        .await?;
        let class = match scenario.policy {
            Policy::ShareClasses | Policy::Drr => Some(tenant.name),
            Policy::Classes { .. } => Some(tenant.group),
            Policy::Share { .. } | Policy::Load { .. } => None,
        };
        let classes: Vec<String> = class.into_iter().map(str::to_owned).collect();
        let rights = Rights { classes: Some(classes), ..Rights::default() };
        let mut keys = Vec::new();
        for number in 0..tenant.keys {
            let changed = change(Change::CreateKey {
                tenant: tenant.name.to_owned(),
                name: format!("{}-{number}", tenant.name),
                weight: 1,
                limits: Limits::default(),
                models: None,
                rights: rights.clone(),
                expires_at: None,
            });
            keys.extend(changed.await?.secret);
        }
        all.push(keys);
    }
    Ok(all)
}

/// The time of day.
pub(super) fn now() -> UnixMicros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
