//! All default values of the configuration, each defined once.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use crate::config::{
    BreakerConfig, CostConfig, CostUnit, FileCostConfig, GatewayMetricsConfig, LimitsConfig,
    OnStoreFailure, PrefixIndexConfig, PrefixScope, QuotaConfig, Tokenizer, UpstreamConfig,
    UpstreamDialects, UpstreamTimeouts,
};
use crate::field_rules::FieldRules;

pub(crate) const LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));
pub(crate) const DATA_DIR: &str = "fairgate-data";
pub(crate) const DRAIN_GRACE: Duration = Duration::from_secs(30);

/// Name of the SQLite file in `data_dir`.
pub(crate) const SQLITE_FILE: &str = "fairgate.db";

/// Name of the spool's folder in `data_dir`.
pub(crate) const SPOOL_FOLDER: &str = "spool";
pub(crate) const SPOOL_BYTES_MAX: u64 = 1 << 30;
/// Database of ClickHouse that gets the copy of the ledger.
pub(crate) const CLICKHOUSE_DATABASE: &str = "default";
pub(crate) const ON_STORE_FAILURE: OnStoreFailure = OnStoreFailure::Refuse;

/// Name of the journals' folder in `data_dir`.
pub(crate) const JOURNAL_FOLDER: &str = "journal";
pub(crate) const JOURNAL_FILE_BYTES_MAX: u64 = 64 << 20;
pub(crate) const JOURNAL_FILES_MAX: usize = 16;

pub(crate) const LIMITS: LimitsConfig = LimitsConfig {
    body_bytes_max: 64 << 20,
    header_timeout: Duration::from_secs(10),
    body_timeout: Duration::from_secs(60),
    header_bytes_max: 64 << 10,
    connections_max: 20_000,
    trusted_proxies: Vec::new(),
    held_bytes_max: 1 << 30,
    names_per_key_max: 256,
    response_ids_per_tenant_max: 10_000,
    response_id_lifetime: Duration::from_secs(720 * 60 * 60),
    foreign_response_ids: false,
};

pub(crate) const METRICS: GatewayMetricsConfig = GatewayMetricsConfig { tenants_max: 0 };

pub(crate) const FLEET_WINDOW: Duration = Duration::from_secs(24 * 60 * 60);
pub(crate) const FLEET_ESTIMATE: u64 = 20_000;
pub(crate) const FLEET_LEASE: Duration = Duration::from_secs(60);
/// Wait of a task after its first failure, and its longest wait.
pub(crate) const FLEET_BACKOFF: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(300));
pub(crate) const FLEET_LOG_BYTES_MAX: u64 = 1 << 20;
pub(crate) const FLEET_PROMPT_BYTES_MAX: u64 = 256 << 20;
/// Name of the fleet journal's folder in `data_dir`.
pub(crate) const FLEET_FOLDER: &str = "fleet";

pub(crate) const DIALECTS: UpstreamDialects = UpstreamDialects { openai: true, anthropic: false };
pub(crate) const TIMEOUTS: UpstreamTimeouts = UpstreamTimeouts {
    connect: Duration::from_secs(5),
    first_byte: Duration::from_secs(120),
    idle: Duration::from_secs(120),
    total: Duration::from_secs(60 * 60),
};
pub(crate) const HEALTH_PATH: &str = "/health";
pub(crate) const HEALTH_EVERY: Duration = Duration::from_secs(5);
pub(crate) const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);
pub(crate) const UNHEALTHY_AFTER: u32 = 3;
pub(crate) const HEALTHY_AFTER: u32 = 1;
pub(crate) const AUTO_SLOTS_FIRST: u64 = 8;
pub(crate) const AUTO_SLOTS_MOST: u64 = 256;
pub(crate) const METRICS_PATH: &str = "/metrics";
pub(crate) const METRICS_EVERY: Duration = Duration::from_secs(1);
pub(crate) const DISCOVER_EVERY: Duration = Duration::from_secs(5);
pub(crate) const BREAKER: BreakerConfig =
    BreakerConfig { failures: 5, open_for: Duration::from_secs(10) };
pub(crate) const IDLE_CONNECTIONS_MAX: usize = 64;
pub(crate) const QUOTA: QuotaConfig = QuotaConfig {
    account: None,
    requests_per_minute: None,
    tokens_per_minute: None,
    burst_seconds: 10,
    probe: true,
    shared_limits: false,
};
/// Time after which a lease that is not renewed ends. It is long enough for a client in a garbage-collection pause, and
/// short enough that others do not wait long for a dead client's slot.
pub(crate) const LEASE_TTL: Duration = Duration::from_secs(15);
pub(crate) const TIER: u32 = 0;
pub(crate) const RANKS: u32 = 1;

/// Weight of a declared group, tenant or key.
pub(crate) const DIRECTORY_WEIGHT: u64 = fairgate_core::policy::DEFAULT_WEIGHT;

pub(crate) const MAX_QUEUE: u64 = 10_000;
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const RETRIES: u32 = 1;
pub(crate) const DOWN_WAIT: Duration = Duration::from_secs(30);
/// HTTP status with which Anthropic reports overload. The SDKs of Anthropic and OpenAI retry after it, as after any 5xx
/// status.
pub(crate) const OVERLOADED_STATUS: u16 = 529;
pub(crate) const BROWNOUT_WAIT: Duration = Duration::from_millis(750);
pub(crate) const BROWNOUT_MAX_TOKENS: u64 = 256;

pub(crate) const PREFIX_INDEX: PrefixIndexConfig = PrefixIndexConfig {
    scope: PrefixScope::Pool,
    cache_tokens: 1_000_000,
    memory_bytes_max: 256 << 20,
};

/// Cost weights of Dynamo's router, which counts uncached input tokens and nothing else.
pub(crate) const DYNAMO_COST: CostConfig = CostConfig { cached_milli: 0, output_milli: 0, ..COST };

pub(crate) const COST: CostConfig = CostConfig {
    unit: CostUnit::Tokens,
    prices: None,
    input_milli: 1000,
    cached_milli: 1000,
    output_milli: 1000,
    output_default: 512,
    max_tokens_default: 4096,
    tokenizer: Tokenizer::Learned,
    weights_by_model: false,
    files: FILE_COST,
};

pub(crate) const FILE_COST: FileCostConfig = FileCostConfig {
    pdf_page_tokens: 3000,
    pdf_bytes_per_token: 40,
    image_pixels_per_token: 400,
    image_tokens_min: 1200,
    image_tokens_max: 15_000,
    audio_bytes_per_token: 100,
    unreadable_tokens: 200_000,
};

impl UpstreamConfig {
    /// Creates an upstream with this name and URL, and with defaults for all other settings.
    pub(crate) fn new(name: String, url: http::Uri) -> Self {
        Self {
            name,
            url,
            dialects: DIALECTS,
            credential: None,
            aliases: BTreeMap::new(),
            slots: None,
            auto_slots: None,
            ranks: RANKS,
            taints: Vec::new(),
            batch_tokens: None,
            tier: TIER,
            timeouts: TIMEOUTS,
            health: None,
            metrics: None,
            discover: None,
            connect_to: None,
            made_from: None,
            breaker: BREAKER,
            ca: None,
            idle_connections_max: IDLE_CONNECTIONS_MAX,
            fields: FieldRules::default(),
            headers: FieldRules::default(),
            quota: QUOTA,
            is_leased: false,
        }
    }
}
