//! The checked form. Whoever holds a [`Config`] need not check again.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fairgate_core::policy::Policy;
use fairgate_money::{MicroUnits, Prices};

use crate::classes::Classes;
use crate::defaults;
use crate::rules::Rules;

/// Everything that `fairgate serve` must know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where clients connect (default 127.0.0.1:8080).
    pub listen: SocketAddr,
    /// TLS for clients; none where absent.
    pub tls: Option<TlsConfig>,
    /// Where SQLite, state files and the admin token live (default `fairgate-data`).
    pub data_dir: PathBuf,
    /// The database.
    pub store: StoreConfig,
    /// What happens to an answer whose row cannot be kept anywhere (default: its end is refused).
    pub on_store_failure: OnStoreFailure,
    /// The admin API.
    pub admin: AdminConfig,
    /// The journals; off where absent.
    pub journal: Option<JournalConfig>,
    /// Bounds on what clients may do to the gateway.
    pub limits: LimitsConfig,
    /// Projects, tasks and agents.
    pub fleet: FleetConfig,
    /// How long what is in flight may go on after SIGTERM (default 30 s).
    pub drain_grace: Duration,
    /// The upstreams, names unique.
    pub upstreams: Vec<UpstreamConfig>,
    /// The pools, names unique; no model is in two of them.
    pub pools: Vec<PoolConfig>,
    /// What models cost, all in one currency; none where absent.
    pub prices: Prices,
}

/// A certificate chain and its key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// `sqlite:PATH` (default `data_dir/fairgate.db`) or `postgres://…`. May carry a password: `Debug` hides it.
    pub url: Secret,
    /// After how many days rows are removed from the ledger; never where absent.
    pub keep_days: Option<u32>,
    /// The folder of rows on their way to PostgreSQL, for this process alone (default `data_dir/spool`). On SQLite they lie
    /// beside the database.
    pub spool: PathBuf,
    /// How much room rows may take that are not in the database yet, in bytes (default 1 GiB).
    pub spool_bytes_max: u64,
}

/// What happens to an answer whose row can be kept neither in a file nor in the database: the disk is full, and the database
/// takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Its end is not given out, and new requests are refused: whoever saw an answer end has a row.
    Refuse,
    /// It is given out without a row, which is counted.
    Serve,
}

/// The admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminConfig {
    /// Its token. Absent: one is made on the first start and kept in `data_dir/admin-token`, readable by its owner only.
    pub token: Option<Secret>,
    /// An address of its own for `/api/v1` and `/metrics`; the same as for clients where absent.
    pub listen: Option<SocketAddr>,
}

/// Journals of everything that the pools decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// One folder per pool is made in here (default `data_dir/journal`).
    pub folder: PathBuf,
    /// When a file is full, in bytes (default 64 MiB).
    pub file_bytes_max: u64,
    /// How many files a pool keeps (default 16).
    pub files_max: usize,
}

/// Bounds on what clients may do to the gateway as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// The largest request body, in bytes (default 64 MiB).
    pub body_bytes_max: u64,
    /// How long a request's head may take (default 10 s).
    pub header_timeout: Duration,
    /// How long a request's body may take (default 60 s).
    pub body_timeout: Duration,
    /// The largest head of a request, in bytes (default 64 KiB).
    pub header_bytes_max: u32,
    /// Connections at once (default 20 000).
    pub connections_max: usize,
    /// Request bodies held in memory at once, in bytes (default 1 GiB); beyond that requests are refused with 503.
    pub held_bytes_max: u64,
    /// How many different agent or session names a key may use in a pool before the rest share one flow (default 256).
    pub names_per_key_max: usize,
    /// How many ids of responses and conversations are remembered for a tenant (default 10 000); the oldest go first.
    pub response_ids_per_tenant_max: usize,
    /// How long such an id is remembered (default 720 h, which is how long OpenAI keeps responses).
    pub response_id_lifetime: Duration,
    /// Whether requests may go on from responses and conversations whose tenant is not known (default false).
    pub foreign_response_ids: bool,
}

/// Projects, tasks and the agents that work on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// For how long what a project used counts (default 24 h).
    pub window: Duration,
    /// What all projects together may use in the window, in tokens; any number where absent.
    pub budget: Option<u64>,
    /// Whether a project none of whose tasks ended well in the window goes before those that had one (default false).
    pub min_task_guarantee: bool,
    /// What a task is expected to use where neither it nor its project's past says, in tokens (default 20 000).
    pub default_estimate: u64,
    /// How long an agent holds a task without a sign of life (default 60 s).
    pub lease: Duration,
    /// How long a task waits after its first failure (default 60 s); twice as long after each further one.
    pub backoff: Duration,
    /// The longest such wait (default 300 s).
    pub backoff_max: Duration,
    /// How much is kept of what the command of one claim prints, in bytes (default 1 MiB).
    pub log_bytes_max: u64,
    /// The folder of the journal of rounds, `data_dir/fleet`; none where it is switched off.
    pub journal: Option<PathBuf>,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Its name: the worker's name in the core, the ledger and the metrics.
    pub name: String,
    /// Its base, without the `/v1` and what follows, such as `https://api.openai.com`. See
    /// [`UpstreamConfig::path_prefix`] for what goes before a request's path.
    pub url: http::Uri,
    /// What it speaks.
    pub dialects: Dialects,
    /// How it knows us.
    pub credential: Option<Credential>,
    /// What it calls models, by the names that clients use: see [`UpstreamConfig::model_name`].
    pub aliases: BTreeMap<String, String>,
    /// How many requests it takes at once, each of its ranks; any number where absent. Stated, it works for one pool only. With `auto_slots`
    /// this is where it begins.
    pub slots: Option<u64>,
    /// How its slots follow its engine; they are fixed where absent.
    pub auto_slots: Option<AutoSlots>,
    /// How many data-parallel ranks it has (default 1); `slots` is for each of them.
    pub ranks: u32,
    /// What requests may require of their worker, such as a zone.
    pub taints: Vec<String>,
    /// The tokens of one batch (vLLM's `--max-num-batched-tokens`), of which busy thresholds may be a fraction; not known
    /// where absent.
    pub batch_tokens: Option<u64>,
    /// 0 is an own worker (default); from 1 on a hosted one, which is used only when no place of a lower tier is open. A
    /// hosted one states its slots.
    pub tier: u32,
    /// How long things may take.
    pub timeouts: UpstreamTimeouts,
    /// How its health is asked; not at all where absent.
    pub health: Option<HealthConfig>,
    /// How its engine's metrics are read; not at all where absent.
    pub metrics: Option<MetricsConfig>,
    /// Its name stands for many addresses, each a worker of its own; it is one worker where absent.
    pub discover: Option<DiscoverConfig>,
    /// Where it is connected to instead of the host of `url`. No option: each discovered address has one.
    pub connect_to: Option<SocketAddr>,
    /// The upstream of the file that it was made from, where it was discovered or added while the gateway runs. No option.
    pub made_from: Option<String>,
    /// When it is left alone for a while.
    pub breaker: BreakerConfig,
    /// A PEM file of certificate authorities to trust instead of the usual ones.
    pub ca: Option<PathBuf>,
    /// Idle connections kept (default 64).
    pub idle_connections_max: usize,
    /// Which fields of a body clients may send to it (default: no engine controls).
    pub fields: Rules,
    /// Which headers clients may send to it (default: no engine controls).
    pub headers: Rules,
    /// What its provider lets through.
    pub quota: QuotaConfig,
    /// Whether it is the worker of a pool of leases: see [`PoolConfig::leased_worker`]. No option.
    pub is_leased: bool,
}

/// What a provider lets through. An upstream that names an account or a rate is taken to be hosted: what its provider says
/// about limits is followed, and a rate of requests that nobody states is learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaConfig {
    /// The provider's account that it draws on together with all upstreams that name the same one; one of its own where
    /// absent.
    pub account: Option<String>,
    /// Requests a minute; as its provider says, else learned, where absent.
    pub requests_per_minute: Option<u64>,
    /// Tokens a minute, as its provider counts them; as its provider says, else no limit, where absent.
    pub tokens_per_minute: Option<u64>,
    /// For how many seconds of these rates may be saved up (default 10).
    pub burst_seconds: u64,
}

impl QuotaConfig {
    /// Whether there is a provider with limits behind it.
    pub fn is_hosted(&self) -> bool {
        self.account.is_some()
            || self.requests_per_minute.is_some()
            || self.tokens_per_minute.is_some()
    }
}

impl UpstreamConfig {
    /// A backend of which nothing else is stated.
    pub(crate) fn new(name: String, url: http::Uri) -> Self {
        Self {
            name,
            url,
            dialects: defaults::DIALECTS,
            credential: None,
            aliases: BTreeMap::new(),
            slots: None,
            auto_slots: None,
            ranks: defaults::RANKS,
            taints: Vec::new(),
            batch_tokens: None,
            tier: defaults::TIER,
            timeouts: defaults::TIMEOUTS,
            health: None,
            metrics: None,
            discover: None,
            connect_to: None,
            made_from: None,
            breaker: defaults::BREAKER,
            ca: None,
            idle_connections_max: defaults::IDLE_CONNECTIONS_MAX,
            fields: Rules::default(),
            headers: Rules::default(),
            quota: defaults::QUOTA,
            is_leased: false,
        }
    }

    /// What this upstream calls a model: its own alias, else the pool's, else what clients say.
    pub fn model_name<'a>(&'a self, model: &'a ModelConfig) -> &'a str {
        let own = self.aliases.get(&model.name);
        own.or(model.upstream_name.as_ref()).unwrap_or(&model.name)
    }

    /// Its name in the file: its own, or that of the upstream that it was made from.
    pub fn name_in_file(&self) -> &str {
        self.made_from.as_ref().unwrap_or(&self.name)
    }

    /// What goes before a request's path: the path of `url` without a slash at its end, so often nothing.
    pub fn path_prefix(&self) -> &str {
        self.url.path().trim_end_matches('/')
    }
}

/// Which API dialects an upstream speaks. At least one is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialects {
    /// OpenAI's.
    pub openai: bool,
    /// Anthropic's.
    pub anthropic: bool,
}

/// What is sent to an upstream as proof of who we are: `Authorization: Bearer` for OpenAI's dialect, `x-api-key` for
/// Anthropic's. Read from the environment or a file when the configuration is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The secret.
    pub secret: Secret,
}

/// Text that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How long an upstream may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// To connect (default 5 s).
    pub connect: Duration,
    /// To the first byte of the answer's head (default 120 s).
    pub first_byte: Duration,
    /// Between two chunks of a body (default 120 s).
    pub idle: Duration,
    /// From the grant to the end (default 1 h).
    pub total: Duration,
}

/// How an upstream's health is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// The path, after that of the upstream's url (default `/health`); 2xx is well.
    pub path: String,
    /// How often (default 5 s).
    pub every: Duration,
    /// How long an answer may take (default 2 s).
    pub timeout: Duration,
    /// After how many bad answers in a row it is left alone (default 3).
    pub unhealthy_after: u32,
    /// After how many good ones it is back (default 1).
    pub healthy_after: u32,
}

/// How an upstream's slots follow its engine: up while all are busy and the engine's own queue is empty, down while that queue
/// is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AutoSlots {
    /// The most slots (default 256); the least is 1.
    pub most: u64,
}

/// How an engine's metrics are read: vLLM, SGLang and llama.cpp are told apart by the names of their metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// The path, after that of the upstream's url (default `/metrics`).
    pub path: String,
    /// How often (default 1 s). A reading may take as long, and at most 5 s.
    pub every: Duration,
    /// When the engine counts as overloaded.
    pub overload: OverloadConfig,
}

/// When an engine counts as overloaded: it takes nothing new until it is below again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverloadConfig {
    /// Where more than this many requests wait in the engine's own queue; never where absent.
    pub waiting: Option<u64>,
    /// Where more than this part of its cache is in use, in thousandths; never where absent.
    pub cache_milli: Option<u64>,
}

/// A name of many addresses, such as a headless service: addresses come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoverConfig {
    /// The name that is looked up (default: the host of `url`).
    pub dns: String,
    /// The port at each address (default: that of `url`).
    pub port: u16,
    /// How often it is looked up (default 5 s).
    pub every: Duration,
}

/// When an upstream is left alone for a while because requests fail on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// After how many failures in a row (default 5).
    pub failures: u32,
    /// For how long, before one request tries it again (default 10 s).
    pub open_for: Duration,
}

/// Models that share one capacity, and how it is shared.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolConfig {
    /// Its name.
    pub name: String,
    /// How many requests may be in flight at once (default: the sum of the workers' slots, where all state theirs).
    pub capacity: u64,
    /// Whether `capacity` is the sum of the workers' slots, and follows it when workers or their slots change.
    pub follows_slots: bool,
    /// Who goes next. Default: share by group, then tenant, then key. Agents and sessions, which clients name
    /// themselves, share only below a tenant or a key.
    pub policy: Policy,
    /// The classes of its policy file, which `policy` is made of; none where it names no such file.
    pub classes: Option<Classes>,
    /// The index of the prefixes that its workers hold; none where absent.
    pub prefix_index: Option<PrefixIndexConfig>,
    /// Whether a session prefers the worker of its last request (default false). Never with a `prefix_index`.
    pub sticky_sessions: bool,
    /// How many requests may wait (default 10 000).
    pub max_queue: u64,
    /// How long a request may wait (default 60 s).
    pub queue_timeout: Duration,
    /// Shorter answers for those who waited long; off where absent.
    pub brownout: Option<BrownoutConfig>,
    /// The models it serves; at least one, but none in a pool of leases.
    pub models: Vec<ModelConfig>,
    /// The names of its upstreams; at least one, but none in a pool of leases.
    pub workers: Vec<String>,
    /// Its slots are leased to programs that call a provider themselves; absent where it serves models.
    pub leases: Option<LeasesConfig>,
    /// How often a request is tried on another worker before its first byte (default 1).
    pub retries: u32,
    /// How long what needs a worker may wait while all of them are down (default 30 s); then it is refused.
    pub down_wait: Duration,
    /// The HTTP status of what is refused because all workers are overloaded: 529, 503 or 429.
    pub overloaded_status: u16,
    /// What a request costs.
    pub cost: CostConfig,
    /// Whether this process tells the pool what it sees of its workers (default true): whether they are up, what their
    /// providers say about limits, rates that are learned.
    pub observe: bool,
    /// What becomes of a request that has no room in a budget for hosted workers. Never `Wait` where all workers are hosted.
    pub hosted_over_budget: HostedOverBudget,
}

/// A pool whose slots are leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasesConfig {
    /// How long a lease lives that its client does not renew (default 15 s).
    pub ttl: Duration,
    /// What the provider lets through that the clients call. It names no account.
    pub quota: QuotaConfig,
}

impl PoolConfig {
    /// The one worker of a pool of leases, called as the pool. It stands for the provider that clients call themselves:
    /// nothing is ever sent to its url. `None` where the pool has upstreams.
    pub fn leased_worker(&self) -> Option<UpstreamConfig> {
        let quota = self.leases.as_ref()?.quota.clone();
        let url = http::Uri::from_static("http://leases.invalid");
        let dialects = Dialects { openai: true, anthropic: true };
        let base = UpstreamConfig::new(self.name.clone(), url);
        Some(UpstreamConfig { dialects, quota, is_leased: true, ..base })
    }
}

/// Which worker holds which prefix, as far as the gateway can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixIndexConfig {
    /// Who shares prefixes (default: the whole pool, as engines do).
    pub scope: PrefixScope,
    /// How many tokens the cache of one worker holds, each of its ranks (default 1 000 000).
    pub cache_tokens: u64,
    /// The most memory that the index takes, in bytes (default 256 MiB).
    pub memory_bytes_max: u64,
}

/// Who shares prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixScope {
    /// All requests of the pool.
    Pool,
    /// Requests of one tenant; the upstream request carries a cache salt, so that the engine separates them too.
    Tenant,
}

/// What becomes of a request that has no room in a budget for hosted workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostedOverBudget {
    /// It waits for the pool's own workers (default).
    Wait,
    /// It is refused (default where the pool has no own worker).
    Refuse,
}

/// Brownout: who waited longer than `wait` has its output capped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrownoutConfig {
    /// How long (default 750 ms).
    pub wait: Duration,
    /// At most this many output tokens then (default 256).
    pub max_tokens: u64,
}

/// A model as clients name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// What clients ask for.
    pub name: String,
    /// What the upstream calls it; the same where absent.
    pub upstream_name: Option<String>,
    /// Whether requests for it may go to hosted workers (default true).
    pub hosted: bool,
    /// What all requests for it together may use there (default without limit).
    pub hosted_budget: HostedBudget,
}

/// What may be used on hosted workers in a calendar period, in UTC. What is absent is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostedBudget {
    /// Provider tokens a day.
    pub tokens_per_day: Option<u64>,
    /// Provider tokens a month.
    pub tokens_per_month: Option<u64>,
    /// Money a day, in micro-units of the currency of the prices.
    pub money_per_day: Option<MicroUnits>,
    /// Money a month, in micro-units of the currency of the prices.
    pub money_per_month: Option<MicroUnits>,
}

/// How a request's cost is worked out. Weights are thousandths of a token charged for each token. Defaults are Dynamo's
/// (uncached input alone: 1000, 0, 0) where a policy file's arbiter is drr, else those below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostConfig {
    /// For an input token (default 1000).
    pub input_milli: u64,
    /// For an input token that the upstream had cached (default 1000).
    pub cached_milli: u64,
    /// For an output token (default 1000).
    pub output_milli: u64,
    /// The output expected where nothing is known yet, in tokens (default 512).
    pub output_default: u64,
    /// The output that is asked for where a budgeted request states none, in tokens (default 4096).
    pub max_tokens_default: u64,
    /// How input tokens are counted.
    pub tokenizer: Tokenizer,
}

/// How input tokens are counted before the upstream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokenizer {
    /// From bytes, at a rate learned for each model from what comes back.
    Learned,
    /// Exactly, with OpenAI's o200k table.
    O200k,
    /// Exactly, with OpenAI's cl100k table.
    Cl100k,
}
