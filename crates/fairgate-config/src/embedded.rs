//! The configuration of `fairgate serve` when no file is given.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use fairgate_core::units::OverlapCredit;
use http::Uri;

use crate::config::{
    AdminConfig, Config, HostedBudget, HostedOverBudget, JournalConfig, ModelConfig, PoolConfig,
    UpstreamConfig, UpstreamDialects,
};
use crate::defaults;
use crate::read::{default_fleet, default_policy, default_store};

/// Name of the simulated upstream, of its pool, and of the model that clients request.
const SIM: &str = "sim";

/// Number of requests that the simulated upstream takes at once.
const SIM_SLOTS: u64 = 8;

impl Config {
    /// Builds a configuration with one pool `sim` of 8 slots and one model `sim`, on one upstream `sim` at `sim_url`.
    /// SQLite and the journals are in `data_dir`.
    pub fn embedded(data_dir: PathBuf, listen: SocketAddr, sim_url: Uri) -> Self {
        let journal = JournalConfig {
            folder: data_dir.join(defaults::JOURNAL_FOLDER),
            file_bytes_max: defaults::JOURNAL_FILE_BYTES_MAX,
            files_max: defaults::JOURNAL_FILES_MAX,
        };
        Self {
            listen,
            tls: None,
            store: default_store(&data_dir),
            fleet: default_fleet(&data_dir),
            on_store_failure: defaults::ON_STORE_FAILURE,
            data_dir,
            admin: AdminConfig { token: None, listen: None, viewer_token: None, pages: true },
            journal: Some(journal),
            metrics: defaults::METRICS,
            limits: defaults::LIMITS,
            drain_grace: defaults::DRAIN_GRACE,
            upstreams: vec![UpstreamConfig {
                dialects: UpstreamDialects { openai: true, anthropic: true },
                slots: Some(SIM_SLOTS),
                ..UpstreamConfig::new(SIM.to_owned(), sim_url)
            }],
            pools: vec![PoolConfig {
                name: SIM.to_owned(),
                capacity: SIM_SLOTS,
                follows_slots: false,
                policy: default_policy(false),
                classes: None,
                prefix_index: None,
                sticky_sessions: false,
                overlap_credit: OverlapCredit::DEFAULT,
                max_queue: defaults::MAX_QUEUE,
                queue_timeout: defaults::QUEUE_TIMEOUT,
                class_deadlines: BTreeMap::new(),
                brownout: None,
                models: vec![ModelConfig {
                    name: SIM.to_owned(),
                    upstream_name: None,
                    hosted: true,
                    hosted_budget: HostedBudget::default(),
                    context_tokens: None,
                }],
                workers: vec![SIM.to_owned()],
                leases: None,
                retries: defaults::RETRIES,
                down_wait: defaults::DOWN_WAIT,
                overloaded_status: defaults::OVERLOADED_STATUS,
                cost: defaults::COST,
                observe: true,
                hosted_over_budget: HostedOverBudget::Wait,
            }],
            prices: Default::default(),
            declared: Default::default(),
        }
    }
}
