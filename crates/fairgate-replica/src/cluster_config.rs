//! The part of a member's configuration file that the machine needs, and the rule that selects the
//! configuration in force.
//!
//! A configuration takes effect in three cases: a member **reloads** it, a member **joins** with
//! one that the cluster has never had, or **all live members** have it. The latest of these events
//! counts. So a new file is in force once the first member has it, and an old member that restarts
//! does not bring the old file back. To go back to an old file, reload it, which takes effect at
//! once, or restart every live member with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fairgate_core::event::PoolConfig;
use fairgate_journal::{format_pool_config, parse_pool_config};
use serde::{Deserialize, Serialize};

use crate::units::{ClusterMicros, ShortHash};

/// The cluster's settings and pools, from one member's file. It contains no addresses and no
/// credentials of workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "ClusterConfigBody", into = "ClusterConfigBody")]
pub struct ClusterConfig {
    /// Durations of the protocol.
    pub timing: ClusterTiming,
    /// The pools by name.
    pub pools: BTreeMap<Arc<str>, PoolConfig>,
}

/// Durations of the protocol, in cluster time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterTiming {
    /// Time after the last counted `alive` at which a member's epoch ends; at least 5 µs.
    pub lease: ClusterMicros,
    /// Time for which requests in flight keep their slots after their member's epoch has ended;
    /// more than 0.
    pub orphans: ClusterMicros,
    /// Time for which all live members must know the next version of the rules before an upgrade to it is allowed.
    pub upgrade_after: ClusterMicros,
}

impl Default for ClusterTiming {
    fn default() -> Self {
        Self {
            lease: ClusterMicros::seconds(5),
            orphans: ClusterMicros::seconds(30),
            upgrade_after: ClusterMicros::seconds(60),
        }
    }
}

impl ClusterTiming {
    /// Returns the maximum time by which one record advances the clock: 2/5 of the lease.
    pub(crate) fn most_at_once(&self) -> ClusterMicros {
        ClusterMicros((self.lease.0 / 5).saturating_mul(2).max(1))
    }
}

/// Text form of a configuration. Each pool is written in the form of a journal's first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterConfigBody {
    timing: ClusterTiming,
    pools: BTreeMap<Arc<str>, Box<str>>,
}

impl From<ClusterConfig> for ClusterConfigBody {
    fn from(config: ClusterConfig) -> Self {
        let pools = config.pools.into_iter();
        let pools = pools.map(|(name, pool)| (name, format_pool_config(&pool).into())).collect();
        Self { timing: config.timing, pools }
    }
}

impl TryFrom<ClusterConfigBody> for ClusterConfig {
    type Error = String;

    fn try_from(body: ClusterConfigBody) -> Result<Self, String> {
        let mut pools = BTreeMap::new();
        for (name, text) in body.pools {
            let pool =
                parse_pool_config(&text).map_err(|error| format!("pool {name:?}: {error}"))?;
            pools.insert(name, pool);
        }
        if body.timing.lease.0 < MOST_ALIVES || body.timing.orphans.0 == 0 {
            return Err("lease and orphans must be longer than nothing".into());
        }
        Ok(Self { timing: body.timing, pools })
    }
}

/// Number of `alive` lines in each lease.
pub(crate) const MOST_ALIVES: u64 = 5;

impl ClusterConfig {
    /// Returns the digest of the configuration. Equal configurations have equal digests.
    pub fn digest(&self) -> ShortHash {
        let text = serde_json::to_vec(self).unwrap_or_default();
        ShortHash::of(&blake3::hash(&text))
    }
}

/// Maximum number of digests that the cluster remembers.
const HAD_MAX: usize = 64;

/// The configuration in force, and the digests that the cluster has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigInForce {
    pub(crate) config: Arc<ClusterConfig>,
    /// Digest of `config`; `None` before the first join.
    pub(crate) digest: Option<ShortHash>,
    /// Digests that joins or reloads have stated, with the least recently stated one first.
    had: VecDeque<ShortHash>,
}

impl ConfigInForce {
    /// Records a digest that a join or a reload states. Returns true if it is not among the last
    /// [`HAD_MAX`] digests that the cluster has seen.
    pub(crate) fn note(&mut self, digest: ShortHash) -> bool {
        let known = self.had.iter().position(|had| *had == digest);
        if let Some(place) = known {
            self.had.remove(place);
        }
        self.had.push_back(digest);
        if self.had.len() > HAD_MAX {
            self.had.pop_front();
        }
        known.is_none()
    }
}

#[cfg(test)]
mod tests {
    use fairgate_journal::parse_policy;

    use super::*;

    #[test]
    fn a_configuration_comes_back_with_its_digest() {
        let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
        let mut config = ClusterConfig::default();
        config.pools.insert("llama".into(), PoolConfig::new(4, policy));
        let text = serde_json::to_string(&config).unwrap();
        let back: ClusterConfig = serde_json::from_str(&text).unwrap();
        assert_eq!((back.digest(), &back), (config.digest(), &config));
        config.timing.lease = ClusterMicros(7);
        assert_ne!(back.digest(), config.digest());
    }

    #[test]
    fn errors_name_the_pool() {
        let text = r#"{"timing":{"lease":5,"orphans":1,"upgrade_after":0},"pools":{"p":"{}"}}"#;
        let error = serde_json::from_str::<ClusterConfig>(text).unwrap_err().to_string();
        assert!(error.contains(r#"pool "p": line 1: field "capacity": is missing"#), "{error}");
        let text = r#"{"timing":{"lease":0,"orphans":1,"upgrade_after":0},"pools":{}}"#;
        assert!(serde_json::from_str::<ClusterConfig>(text).is_err());
    }

    #[test]
    fn digests_that_were_seen_lately_are_remembered() {
        let mut in_force = ConfigInForce::default();
        let digest = |i: u8| ShortHash([i; 8]);
        assert!(in_force.note(digest(0)) && !in_force.note(digest(0)));
        (1..=64).for_each(|i| assert!(in_force.note(digest(i))));
        assert_eq!(in_force.had.len(), HAD_MAX);
        assert!(in_force.note(digest(0)), "the oldest is forgotten");
    }
}
