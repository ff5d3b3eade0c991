//! The roster: workers that an operator added or DNS found, and operators' changes to workers, such
//! as drains. The configuration file has none of these.
//!
//! Every change of the roster makes a new configuration from the file and the roster. It is put in
//! force exactly like a reload. So the same code handles workers of the file and workers that are
//! added, found by DNS or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use fairgate_config::{Config, OverloadConfig, UpstreamConfig};
use serde::{Deserialize, Serialize};

/// Worker settings that are not in the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkerRoster {
    pub(super) changes: OperatorChanges,
    /// Addresses that DNS returned, by the upstream of the file.
    pub(super) found: BTreeMap<String, BTreeSet<IpAddr>>,
}

/// Operators' changes, which survive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperatorChanges {
    #[serde(default)]
    pub(super) added: Vec<AddedWorker>,
    /// Workers that get no new requests, as (pool, worker).
    #[serde(default)]
    pub(super) drained: BTreeSet<(String, String)>,
    /// Overload thresholds by worker; they replace those of the file.
    #[serde(default)]
    pub(super) overload: BTreeMap<String, OverloadThresholds>,
}

/// A worker that an operator added. Missing settings are taken from the upstream `like`. The value contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddedWorker {
    /// Name of the pool that gets the worker.
    pub pool: String,
    /// Name of the worker, which no upstream and no other worker has.
    pub name: String,
    /// Base URL of the worker.
    pub url: String,
    /// Name of the upstream of the file that serves as template.
    pub like: String,
    /// Maximum number of requests in flight on each rank.
    #[serde(default)]
    pub slots: Option<u64>,
    /// Tier: 0 for an own worker, higher for hosted ones.
    #[serde(default)]
    pub tier: Option<u32>,
    /// Number of data-parallel ranks.
    #[serde(default)]
    pub ranks: Option<u32>,
    /// Taints that requests may require.
    #[serde(default)]
    pub taints: Option<Vec<String>>,
    /// Maximum number of tokens in one batch.
    #[serde(default)]
    pub batch_tokens: Option<u64>,
}

/// Thresholds above which an engine counts as overloaded: see [`OverloadConfig`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverloadThresholds {
    /// Number of requests in the engine's own queue; `None` means that the queue never counts as overload.
    pub waiting: Option<u64>,
    /// Fraction of the engine's cache in use, in thousandths; `None` means that the cache never counts as overload.
    pub cache_milli: Option<u64>,
}

impl From<OverloadThresholds> for OverloadConfig {
    fn from(OverloadThresholds { waiting, cache_milli }: OverloadThresholds) -> Self {
        Self { waiting, cache_milli }
    }
}

/// Origin of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerSource {
    /// The worker is in the configuration file.
    File,
    /// The worker was added through the admin API while the gateway ran.
    Api,
    /// The worker was found as one address of a DNS name.
    Dns,
}

impl WorkerSource {
    /// Returns the word for the origin in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::Dns => "dns",
        }
    }

    pub(super) fn of(upstream: &UpstreamConfig) -> Self {
        match (&upstream.made_from, upstream.connect_to) {
            (None, _) => Self::File,
            (Some(_), None) => Self::Api,
            (Some(_), Some(_)) => Self::Dns,
        }
    }
}

impl AddedWorker {
    /// Returns the configuration of the upstream for this worker. `None` if the worker's URL is not
    /// valid any more, although it was valid when the worker was added.
    pub(super) fn upstream(&self, like: &UpstreamConfig) -> Option<UpstreamConfig> {
        Some(UpstreamConfig {
            name: self.name.clone(),
            url: fairgate_config::parse_base_url(&self.url).ok()?,
            slots: self.slots.or(like.slots),
            auto_slots: like.auto_slots.filter(|_| self.slots.is_none()),
            tier: self.tier.unwrap_or(like.tier),
            ranks: self.ranks.unwrap_or(like.ranks),
            taints: self.taints.clone().unwrap_or_else(|| like.taints.clone()),
            batch_tokens: self.batch_tokens.or(like.batch_tokens),
            discover: None,
            connect_to: None,
            made_from: Some(like.name.clone()),
            ..like.clone()
        })
    }
}

/// Returns the configuration of the worker at one address of a DNS name.
fn found_at(template: &UpstreamConfig, address: IpAddr, port: u16) -> UpstreamConfig {
    UpstreamConfig {
        name: found_name(&template.name, address),
        discover: None,
        connect_to: Some(SocketAddr::new(address, port)),
        made_from: Some(template.name.clone()),
        ..template.clone()
    }
}

/// Returns the name of the worker at an address. Colons are replaced by `-`, so that the name is also valid in a
/// configuration file.
pub(super) fn found_name(upstream: &str, address: IpAddr) -> String {
    format!("{upstream}-{}", address.to_string().replace(':', "-"))
}

impl WorkerRoster {
    /// Returns the configuration to serve: that of the file, with all workers of the roster.
    pub(super) fn applied_to(&self, file: &Config) -> Config {
        let mut next = Config { upstreams: Vec::new(), ..file.clone() };
        let mut taken: BTreeSet<String> =
            file.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        let mut members: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for upstream in &file.upstreams {
            let Some(discover) = &upstream.discover else {
                next.upstreams.push(upstream.clone());
                continue;
            };
            let members = members.entry(&upstream.name).or_default();
            for address in self.found.get(&upstream.name).into_iter().flatten() {
                let worker = found_at(upstream, *address, discover.port);
                if taken.insert(worker.name.clone()) {
                    members.push(worker.name.clone());
                    next.upstreams.push(worker);
                }
            }
        }
        for pool in &mut next.pools {
            let expanded = pool.workers.iter().flat_map(|name| match members.get(&**name) {
                Some(found) => found.clone(),
                None => vec![name.clone()],
            });
            pool.workers = expanded.collect();
        }
        for pool in &mut next.pools {
            if let Some(worker) = pool.leased_worker() {
                taken.insert(worker.name.clone());
                pool.workers = vec![worker.name.clone()];
                next.upstreams.push(worker);
            }
        }
        for added in &self.changes.added {
            let like = file.upstreams.iter().find(|upstream| upstream.name == added.like);
            let pool = next.pools.iter_mut().find(|pool| pool.name == added.pool);
            if let (Some(pool), Some(upstream)) = (pool, like.and_then(|like| added.upstream(like)))
                && taken.insert(added.name.clone())
            {
                pool.workers.push(added.name.clone());
                next.upstreams.push(upstream);
            }
        }
        for pool in next.pools.iter_mut().filter(|pool| pool.follows_slots) {
            let slots = |name: &String| {
                let upstream = next.upstreams.iter().find(|it| it.name == *name)?;
                Some(upstream.slots?.saturating_mul(upstream.ranks.into()))
            };
            let sum = pool.workers.iter().filter_map(slots).fold(0, u64::saturating_add);
            // With a capacity of 0 the pool could never grant anything, and would give no reason.
            pool.capacity = sum.max(1);
        }
        next
    }

    /// Describes each added worker that cannot exist with this configuration file, in one sentence.
    pub(super) fn lost_with(&self, file: &Config) -> Vec<String> {
        let lost = self.changes.added.iter().filter_map(|added| {
            let AddedWorker { pool, name, like, .. } = added;
            let is_named = |upstream: &&UpstreamConfig| upstream.name == *like;
            if !file.pools.iter().any(|known| known.name == *pool) {
                return Some(format!("worker {name:?} was added to pool {pool:?}, which is gone"));
            }
            if !file.upstreams.iter().any(|upstream| is_named(&upstream)) {
                return Some(format!("worker {name:?} is like upstream {like:?}, which is gone"));
            }
            let taken = file.upstreams.iter().any(|upstream| upstream.name == *name);
            taken.then(|| format!("worker {name:?} is now an upstream of the file"))
        });
        lost.collect()
    }

    /// Returns true if an operator drains the worker, so that it gets no new requests.
    pub(super) fn is_drained(&self, pool: &str, worker: &str) -> bool {
        self.changes.drained.contains(&(pool.to_owned(), worker.to_owned()))
    }

    /// Returns the overload thresholds that an operator set for a worker, or those of the file if no operator set any.
    pub(super) fn overload(&self, upstream: &UpstreamConfig) -> OverloadConfig {
        let stated = upstream.metrics.as_ref().map(|metrics| metrics.overload);
        match self.changes.overload.get(&upstream.name) {
            Some(changed) => (*changed).into(),
            None => stated.unwrap_or_default(),
        }
    }

    /// Removes the addresses of upstreams that the file no longer finds by DNS.
    pub(super) fn retain_discovered(&mut self, file: &Config) {
        let looked_up = |name: &String| {
            file.upstreams.iter().any(|it| it.name == *name && it.discover.is_some())
        };
        self.found.retain(|name, _| looked_up(name));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairgate_config::DiscoverConfig;

    use super::*;

    fn file() -> Config {
        let url = "http://vllm.internal:8000".parse().unwrap();
        let mut config = Config::embedded("d".into(), ([127, 0, 0, 1], 0).into(), url);
        let discover = DiscoverConfig {
            dns: "vllm.internal".into(),
            port: 9000,
            every: Duration::from_secs(5),
        };
        let many = UpstreamConfig {
            name: "many".into(),
            discover: Some(discover),
            ..config.upstreams[0].clone()
        };
        config.upstreams.push(many);
        config.pools[0].workers.push("many".into());
        config
    }

    fn added(name: &str) -> AddedWorker {
        AddedWorker {
            pool: "sim".into(),
            name: name.into(),
            url: "http://10.0.0.9:8000/v1".into(),
            like: "sim".into(),
            slots: Some(3),
            tier: None,
            ranks: Some(2),
            taints: Some(vec!["zone-a".into()]),
            batch_tokens: None,
        }
    }

    #[test]
    fn addresses_and_added_workers_are_workers_like_those_of_the_file() {
        let file = file();
        assert_eq!(WorkerRoster::default().applied_to(&file).pools[0].workers, ["sim"]);
        let addresses = ["10.0.0.2", "fd00::1"].map(|text| text.parse().unwrap());
        let roster = WorkerRoster {
            found: BTreeMap::from([("many".to_owned(), BTreeSet::from(addresses))]),
            changes: OperatorChanges {
                added: vec![added("new"), added("sim")],
                ..OperatorChanges::default()
            },
        };
        let next = roster.applied_to(&file);
        // One that the file has by now is the file's.
        assert_eq!(next.pools[0].workers, ["sim", "many-10.0.0.2", "many-fd00--1", "new"]);
        let named = |name: &str| next.upstreams.iter().find(|it| it.name == name).unwrap();
        let found = named("many-10.0.0.2");
        assert_eq!(found.connect_to, Some("10.0.0.2:9000".parse().unwrap()));
        assert_eq!((found.slots, found.name_in_file()), (Some(8), "many"));
        assert_eq!(WorkerSource::of(found), WorkerSource::Dns);
        let new = named("new");
        assert_eq!((new.slots, new.url.to_string()), (Some(3), "http://10.0.0.9:8000/".into()));
        assert_eq!((new.ranks, &*new.taints[0]), (2, "zone-a"));
        assert_eq!(WorkerSource::of(new), WorkerSource::Api);
        assert_eq!(WorkerSource::of(named("sim")), WorkerSource::File);
        assert_eq!(roster.lost_with(&file), [r#"worker "sim" is now an upstream of the file"#]);
        for upstream in &next.upstreams {
            assert_eq!(fairgate_config::check_name(&upstream.name), Ok(()));
        }
    }
}
