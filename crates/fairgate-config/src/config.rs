//! The checked configuration. Holders of a [`Config`] need not check it again.
//!
//! The `Serialize` form of [`Config`] is the list of settings. It has the names and values as the
//! file spells them, and states for each setting whether a reload can change it. A reload is
//! planned from this form, and the admin API shows it. `config/settings_form.rs` has the forms that
//! differ from serde's.

pub(crate) mod settings_form;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fairgate_core::policy::{Policy, PolicyNode};
use fairgate_core::units::OverlapCredit;
use fairgate_money::{MicroUnits, ModelPrices};
use fairgate_price::worker_time::WorkerPrices;
use serde::{Serialize, Serializer};

use crate::address_range::AddressRange;
use crate::classes::PolicyClasses;
use crate::declared::DeclaredDirectory;
use crate::field_rules::FieldRules;

use self::settings_form::HiddenText;

/// All settings of `fairgate serve`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Config {
    /// Address on which clients connect (default 127.0.0.1:8080).
    #[serde(serialize_with = "settings_form::fixed")]
    pub listen: SocketAddr,
    /// Certificate and key of the client address; plain HTTP if absent.
    #[serde(serialize_with = "settings_form::fixed_switch")]
    pub tls: Option<TlsConfig>,
    /// Folder of the SQLite database, the state files and the admin token (default `fairgate-data`).
    #[serde(serialize_with = "settings_form::fixed_path")]
    pub data_dir: PathBuf,
    /// Settings of the database, and of the spool of rows that wait for the database.
    #[serde(serialize_with = "settings_form::fixed")]
    pub store: StoreConfig,
    /// Treatment of a response whose ledger row can be stored nowhere (default: the end of the response is withheld).
    pub on_store_failure: OnStoreFailure,
    /// Token and address of the admin API.
    pub admin: AdminConfig,
    /// Journals of the pools; off if absent.
    #[serde(serialize_with = "settings_form::fixed_section")]
    pub journal: Option<JournalConfig>,
    /// Limits on connections, request sizes and memory.
    pub limits: LimitsConfig,
    /// Settings of the counters of `/metrics`.
    pub metrics: GatewayMetricsConfig,
    /// Settings of projects, tasks and agents.
    #[serde(serialize_with = "settings_form::fixed")]
    pub fleet: FleetConfig,
    /// The longest time that requests in flight may continue after SIGTERM (default 30 s).
    pub drain_grace: Duration,
    /// The upstreams; names are unique.
    #[serde(skip)]
    pub upstreams: Vec<UpstreamConfig>,
    /// The pools; names are unique, and no model is in two of them.
    #[serde(skip)]
    pub pools: Vec<PoolConfig>,
    /// Prices of models, all in one currency; empty if the file states none.
    #[serde(serialize_with = "settings_form::prices")]
    pub prices: ModelPrices,
    /// Groups, tenants and keys that the file declares; none if the file states none.
    #[serde(skip)]
    pub declared: DeclaredDirectory,
}

/// A certificate chain and its private key, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlsConfig {
    /// PEM file of the chain, leaf certificate first.
    #[serde(serialize_with = "settings_form::path")]
    pub cert: PathBuf,
    /// PEM file of the private key.
    #[serde(serialize_with = "settings_form::path")]
    pub key: PathBuf,
}

/// Settings of the counters of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GatewayMetricsConfig {
    /// Number of tenants whose waits, tokens, refusals and money are counted by name; 0 counts none (default 0).
    #[serde(rename = "tenants", serialize_with = "settings_form::fixed")]
    pub tenants_max: usize,
}

/// Settings of the database: its address, the time for which rows are kept, and the spool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreConfig {
    /// Address of the database: `sqlite:PATH` (default `data_dir/fairgate.db`) or `postgres://…`. It may contain a
    /// password, so `Debug` hides the address.
    pub url: Secret,
    /// Days after which rows are removed from the ledger; never removed if absent.
    #[serde(serialize_with = "settings_form::reloadable")]
    pub keep_days: Option<u32>,
    /// Folder of the rows that wait for PostgreSQL, used by this process alone (default `data_dir/spool`). With SQLite
    /// the spool is next to the database.
    #[serde(serialize_with = "settings_form::path")]
    pub spool: PathBuf,
    /// Largest total size of the rows that wait for the database, in bytes (default 1 GiB).
    #[serde(rename = "spool_size_max", serialize_with = "settings_form::size")]
    pub spool_bytes_max: u64,
    /// ClickHouse that gets a copy of the ledger; none if absent.
    #[serde(serialize_with = "settings_form::fixed_section")]
    pub clickhouse: Option<ClickHouseConfig>,
}

/// Address and credential of a ClickHouse database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClickHouseConfig {
    /// URL of its HTTP interface.
    #[serde(serialize_with = "settings_form::displayed")]
    pub url: http::Uri,
    /// Database that has the table (default `default`).
    pub database: String,
    /// User and password, as `USER:PASSWORD`; ClickHouse's user `default` without a password if absent.
    pub credential: Option<Secret>,
    /// PEM file of the certificate authorities to trust, instead of the built-in ones.
    #[serde(serialize_with = "settings_form::optional_path")]
    pub ca: Option<PathBuf>,
}

impl ClickHouseConfig {
    /// Returns the user and the password; `None` if there is no credential.
    pub fn user_and_password(&self) -> Option<(&str, &str)> {
        self.credential.as_ref().and_then(|credential| credential.expose().split_once(':'))
    }
}

/// Treatment of a response whose ledger row can be stored neither in a file nor in the database, because the disk is
/// full and the database rejects writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// Withholds the end of the response and refuses new requests. So every response that ended for a client has a row.
    Refuse,
    /// Sends the response without a row, and counts the missing row in a metric.
    Serve,
}

/// Token and address of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdminConfig {
    /// The admin token. If absent, one is created on the first start and kept in `data_dir/admin-token`, readable by
    /// its owner only.
    pub token: Option<Secret>,
    /// Separate address for `/api/v1` and `/metrics`. If absent, both paths are served on the client address.
    #[serde(serialize_with = "settings_form::fixed")]
    pub listen: Option<SocketAddr>,
    /// Token that opens all reads of the admin API and nothing else; `None` if there is none.
    pub viewer_token: Option<Secret>,
    /// True if the pages of the dashboard are served (default true).
    pub pages: bool,
}

/// Journals of all events and decisions of the pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalConfig {
    /// Parent folder; each pool gets a folder in it (default `data_dir/journal`).
    #[serde(serialize_with = "settings_form::path")]
    pub folder: PathBuf,
    /// Size in bytes at which a journal file is full and the next one begins (default 64 MiB).
    #[serde(rename = "file_size_max", serialize_with = "settings_form::size")]
    pub file_bytes_max: u64,
    /// The most files that are kept for each pool (default 16).
    pub files_max: usize,
}

/// Limits on connections, request sizes and memory of the whole gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitsConfig {
    /// The largest request body, in bytes (default 64 MiB).
    #[serde(rename = "body_size_max", serialize_with = "settings_form::size")]
    pub body_bytes_max: u64,
    /// The longest time in which a client may send a request's head (default 10 s).
    pub header_timeout: Duration,
    /// The longest time in which a client may send a request's body (default 60 s).
    pub body_timeout: Duration,
    /// The largest head of a request, in bytes (default 64 KiB).
    #[serde(rename = "header_size_max", serialize_with = "settings_form::size")]
    pub header_bytes_max: u32,
    /// The most client connections at once (default 20 000).
    pub connections_max: usize,
    /// Addresses of proxies (default none). A proxy may have any number of connections that have not sent a whole
    /// request head. Any other address may have at most a quarter of `connections_max` in this state.
    pub trusted_proxies: Vec<AddressRange>,
    /// The most bytes of request bodies in memory at once (default 1 GiB). Requests that would
    /// exceed this number are refused with 503.
    #[serde(rename = "held_size_max", serialize_with = "settings_form::size")]
    pub held_bytes_max: u64,
    /// The most different agent or session names that a key may use in a pool; further names share one flow (default
    /// 256).
    pub names_per_key_max: usize,
    /// The most response and conversation ids that are remembered for a tenant (default 10 000); the oldest are dropped
    /// first.
    pub response_ids_per_tenant_max: usize,
    /// Time for which the id of a response or conversation is remembered (default 720 h, which is how long OpenAI keeps
    /// responses).
    pub response_id_lifetime: Duration,
    /// True if requests may continue responses and conversations whose tenant is not known (default false).
    #[serde(serialize_with = "settings_form::allow_or_refuse")]
    pub foreign_response_ids: bool,
}

/// Settings of projects, tasks and the agents that run tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetConfig {
    /// Length of the rolling window over which the usage of a project counts (default 24 h).
    pub window: Duration,
    /// Tokens that all projects together may use within the window; unlimited if absent.
    pub budget: Option<u64>,
    /// True if projects without a completed or failed task in the window get agents before all other projects (default
    /// true).
    pub min_task_guarantee: bool,
    /// Expected tokens of a task if neither the task nor the project's history gives an estimate (default 20 000).
    pub default_estimate: u64,
    /// Level at which agents are shared first: projects or tenants (default `project`).
    pub share: FleetShareLevel,
    /// Unit in which projects share agents (default `larger`).
    pub credit: FleetCreditUnit,
    /// Tokens that a second of an agent's time costs; learned if absent.
    pub agent_second_tokens: Option<u64>,
    /// The time after which an agent without a heartbeat loses its task (default 60 s).
    pub lease: Duration,
    /// Wait before the first retry of a failed task (default 60 s). The wait doubles after each further failure.
    pub backoff: Duration,
    /// Longest wait before a retry of a failed task (default 300 s).
    pub backoff_max: Duration,
    /// Largest number of bytes that are kept of a command's output, for each claim (default 1 MiB).
    #[serde(rename = "log_size_max", serialize_with = "settings_form::size")]
    pub log_bytes_max: u64,
    /// Largest total size, in bytes, of the prompts that tenants and agents may add to a project's
    /// open tasks (default 256 MiB).
    #[serde(rename = "prompt_size_max", serialize_with = "settings_form::size")]
    pub prompt_bytes_max: u64,
    /// Folder of the journal of rounds, `data_dir/fleet`; `None` if the journal is switched off.
    #[serde(serialize_with = "settings_form::is_set")]
    pub journal: Option<PathBuf>,
    /// Receivers of events, at most 16 (default none).
    #[serde(serialize_with = "settings_form::reloadable")]
    pub webhooks: Vec<WebhookConfig>,
}

/// Receiver of the fleet's events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WebhookConfig {
    /// Name of the webhook in the API, the log and metrics.
    pub name: String,
    /// URL to which events are sent: https, or http to a loopback address. It may hold a token.
    pub url: Secret,
    /// Secret with which events are signed; at least 16 characters.
    pub secret: Secret,
    /// Kinds of events that are sent, sorted (default all).
    pub events: Vec<FleetEventKind>,
    /// PEM file of certificate authorities to trust instead of the usual ones.
    #[serde(serialize_with = "settings_form::optional_path")]
    pub ca: Option<PathBuf>,
}

/// Kind of event that a webhook is notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetEventKind {
    /// A task waits for the answer of a person.
    Question,
    /// A task is blocked.
    Blocked,
    /// A budget of a project, a tenant or a group is used up to 80 % or 100 %.
    Budget,
    /// The lease of an agent ran out.
    AgentLost,
}

impl FleetEventKind {
    /// All kinds of events.
    pub const ALL: [Self; 4] = [Self::Question, Self::Blocked, Self::Budget, Self::AgentLost];
}

impl fmt::Display for FleetEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Question => "question",
            Self::Blocked => "blocked",
            Self::Budget => "budget",
            Self::AgentLost => "agent_lost",
        })
    }
}

/// Level at which the fleet's agents are shared first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetShareLevel {
    /// Projects share the agents by their weights.
    Project,
    /// Tenants share the agents by their weights, and then the projects of each tenant do.
    Tenant,
}

impl fmt::Display for FleetShareLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Project => "project",
            Self::Tenant => "tenant",
        })
    }
}

/// Unit in which the projects of the fleet share agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetCreditUnit {
    /// The larger of a task's tokens and the price of its agents' time.
    Larger,
    /// Only the tokens of a task.
    Tokens,
    /// Only the price of the time for which agents held the task.
    Time,
}

impl fmt::Display for FleetCreditUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Larger => "larger",
            Self::Tokens => "tokens",
            Self::Time => "time",
        })
    }
}

/// One backend: a server of your own or a hosted provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamConfig {
    /// Name of the upstream; also the worker's name in the core, the ledger and the metrics.
    #[serde(skip)]
    pub name: String,
    /// Base URL without `/v1` and the rest of the path, such as `https://api.openai.com`. See
    /// [`UpstreamConfig::path_prefix`] for the prefix of a request's path.
    #[serde(serialize_with = "settings_form::displayed")]
    pub url: http::Uri,
    /// The API dialects that the upstream serves.
    #[serde(serialize_with = "settings_form::dialects")]
    pub dialects: UpstreamDialects,
    /// Secret that is sent with each request; none if absent.
    pub credential: Option<UpstreamCredential>,
    /// The upstream's names of models, keyed by the names that clients use. See [`UpstreamConfig::model_name`].
    #[serde(serialize_with = "settings_form::aliases")]
    pub aliases: BTreeMap<String, String>,
    /// Number of slots of each rank; unlimited if absent. With `auto_slots` this is the initial number. An upstream
    /// that states its slots can be in one pool only.
    pub slots: Option<u64>,
    /// Limits for the automatic adjustment of the slots to the engine's load. If absent, the number of slots is fixed.
    #[serde(flatten)]
    pub auto_slots: Option<AutoSlots>,
    /// Number of data-parallel ranks (default 1); `slots` applies to each of them.
    pub ranks: u32,
    /// Taints of the upstream's workers, which a request may require, such as a zone.
    pub taints: Vec<String>,
    /// Tokens of one batch of the engine (vLLM's `--max-num-batched-tokens`); unknown if absent. Busy thresholds that
    /// are fractions refer to this number.
    pub batch_tokens: Option<u64>,
    /// Tier of the upstream's workers. Tier 0 is for own workers (default). Tiers from 1 on are for hosted workers.
    /// Hosted workers are used only if no slot of a lower tier is free, and must state their slots.
    pub tier: u32,
    /// Time limits for connections and responses.
    pub timeouts: UpstreamTimeouts,
    /// Settings of the health check; no check if absent.
    #[serde(serialize_with = "settings_form::switch")]
    pub health: Option<HealthConfig>,
    /// Settings for reading the engine's metrics; not read if absent.
    #[serde(serialize_with = "settings_form::switch")]
    pub metrics: Option<MetricsConfig>,
    /// Settings of DNS discovery, by which every address of a name becomes a worker of its own. If absent, the upstream
    /// is one worker.
    #[serde(serialize_with = "settings_form::switch")]
    pub discover: Option<DiscoverConfig>,
    /// Address to connect to instead of the host of `url`. Not a configuration option: discovery sets it for each
    /// address.
    #[serde(skip)]
    pub connect_to: Option<SocketAddr>,
    /// Name of the configured upstream from which discovery or the admin API made this one; `None` if this upstream is
    /// in the file itself. Not a configuration option.
    #[serde(skip)]
    pub made_from: Option<String>,
    /// Failures after which the upstream is paused.
    pub breaker: BreakerConfig,
    /// PEM file of certificate authorities to trust instead of the usual ones.
    #[serde(serialize_with = "settings_form::optional_path")]
    pub ca: Option<PathBuf>,
    /// The most idle connections that are kept open (default 64).
    pub idle_connections_max: usize,
    /// Rules for the body fields that clients may send to the upstream (default: no fields that control the engine).
    #[serde(serialize_with = "settings_form::rules")]
    pub fields: FieldRules,
    /// Rules for the headers that clients may send to the upstream (default: no headers that control the engine).
    #[serde(serialize_with = "settings_form::rules")]
    pub headers: FieldRules,
    /// Rates that the provider allows.
    #[serde(flatten)]
    pub quota: QuotaConfig,
    /// True for the worker of a pool of leases, which [`PoolConfig::leased_worker`] creates. Not a configuration
    /// option.
    #[serde(skip)]
    pub is_leased: bool,
}

/// Rates that a provider allows. If an upstream names an account or a rate, the gateway follows the limits in the
/// provider's responses, and learns the request rate if neither the file nor the responses state it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuotaConfig {
    /// Name of the provider account. Upstreams that name the same account share its quotas. If absent, the upstream has
    /// an account of its own.
    pub account: Option<String>,
    /// Requests per minute. If absent, taken from the provider's responses, else learned.
    pub requests_per_minute: Option<u64>,
    /// Tokens per minute, as the provider counts them. If absent, taken from the provider's responses, else unlimited.
    pub tokens_per_minute: Option<u64>,
    /// Seconds for which unused rate accumulates, so that a later burst can use it (default 10).
    pub burst_seconds: u64,
    /// True if the gateway sends requests of its own to the provider, to find out whether the
    /// account is spent or blocked (default true).
    pub probe: bool,
    /// True if all models of the account share its limits (default false: each model has limits of its own).
    pub shared_limits: bool,
}

impl QuotaConfig {
    /// Returns true if an account or a rate is set, which means that the upstream has a provider with limits.
    pub fn is_hosted(&self) -> bool {
        self.account.is_some()
            || self.requests_per_minute.is_some()
            || self.tokens_per_minute.is_some()
    }
}

impl UpstreamConfig {
    /// Returns the name that this upstream uses for a model. This is the upstream's alias, else the model's
    /// `upstream_name`, else the name that clients use.
    pub fn model_name<'a>(&'a self, model: &'a ModelConfig) -> &'a str {
        let own = self.aliases.get(&model.name);
        own.or(model.upstream_name.as_ref()).unwrap_or(&model.name)
    }

    /// Returns the name that the file has for this upstream. For an upstream that discovery or the
    /// admin API made, this is `made_from`.
    pub fn name_in_file(&self) -> &str {
        self.made_from.as_ref().unwrap_or(&self.name)
    }

    /// Returns the path of `url` without a trailing slash. This path, which is often empty, precedes the path of each
    /// request.
    pub fn path_prefix(&self) -> &str {
        self.url.path().trim_end_matches('/')
    }
}

/// API dialects that an upstream serves. At least one is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamDialects {
    /// True if the upstream serves OpenAI's API.
    pub openai: bool,
    /// True if the upstream serves Anthropic's API.
    pub anthropic: bool,
}

/// Credential that is sent to an upstream: `Authorization: Bearer` in OpenAI's dialect, `x-api-key` in Anthropic's.
/// Taken from the environment or a file when the configuration is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct UpstreamCredential {
    /// The secret value, without a `Bearer` prefix.
    pub secret: Secret,
}

/// Text that logs and `Debug` output must not show. Secrets with the same text are equal, wherever they came from.
#[derive(Clone)]
pub struct Secret {
    text: String,
    /// Source of the text, such as `environment variable OPENAI_API_KEY`; `None` if it is not
    /// known.
    source: Option<Box<str>>,
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Secret {}

impl Secret {
    /// Wraps a text so that `Debug` hides it.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
    }

    /// Returns the secret with this source.
    pub(crate) fn with_source(self, source: Option<&str>) -> Self {
        Self { source: source.map(Box::from), ..self }
    }

    /// Returns the hidden text.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Returns the source of the secret, such as `environment variable OPENAI_API_KEY`; `None` if
    /// it is not known. The source may be shown.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }
}

/// Writes the source of the secret, and a hash for comparison with other secrets. The hash has a
/// random key that never leaves the process, so nobody can guess the text from it.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        HiddenText::new(&self.text, self.source()).serialize(serializer)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Time limits of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamTimeouts {
    /// The longest time to connect (default 5 s).
    pub connect: Duration,
    /// The longest time to the first byte of the response's head (default 120 s).
    pub first_byte: Duration,
    /// The longest time between two chunks of a response body (default 120 s).
    pub idle: Duration,
    /// The longest time from the grant to the end of the response (default 1 h).
    pub total: Duration,
}

/// Settings of an upstream's health check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthConfig {
    /// Path of the check, appended to the path of the upstream's `url` (default `/health`). A 2xx status means healthy.
    pub path: String,
    /// Interval between checks (default 5 s).
    pub every: Duration,
    /// The longest time that a check may take (default 2 s).
    pub timeout: Duration,
    /// Consecutive failed checks after which the upstream gets no requests (default 3).
    pub unhealthy_after: u32,
    /// Consecutive successful checks after which the upstream gets requests again (default 1).
    pub healthy_after: u32,
}

/// Automatic adjustment of an upstream's slots to its engine. The number rises while all slots are busy and the
/// engine's own queue is empty, and falls while that queue is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "slots", rename = "auto")]
pub struct AutoSlots {
    /// Largest number of slots (default 256). The smallest number is 1.
    #[serde(rename = "slots_max")]
    pub most: u64,
}

/// Settings for reading an engine's metrics. The metric names tell vLLM, SGLang and llama.cpp apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MetricsConfig {
    /// Path of the metrics, appended to the path of the upstream's `url` (default `/metrics`).
    pub path: String,
    /// Interval between readings (default 1 s). One reading may take as long as the interval, and at most 5 s.
    pub every: Duration,
    /// Thresholds above which the engine counts as overloaded.
    #[serde(flatten)]
    pub overload: OverloadConfig,
}

/// Thresholds above which an engine counts as overloaded. An overloaded engine gets no new requests
/// until it no longer exceeds any threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OverloadConfig {
    /// The engine is overloaded if more requests than this number wait in its own queue; not
    /// checked if absent.
    #[serde(rename = "overload_waiting")]
    pub waiting: Option<u64>,
    /// Overloaded if more than this part of the engine's cache is in use, in thousandths; not checked if absent.
    #[serde(rename = "overload_cache", serialize_with = "settings_form::thousandths")]
    pub cache_milli: Option<u64>,
}

/// Discovery of workers through a DNS name whose addresses may change, such as that of a headless service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiscoverConfig {
    /// The DNS name to resolve (default: the host of `url`).
    pub dns: String,
    /// The port on each address (default: that of `url`).
    pub port: u16,
    /// Interval between lookups (default 5 s).
    pub every: Duration,
}

/// Circuit breaker: pauses an upstream on which requests fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BreakerConfig {
    /// Consecutive failures after which the upstream is paused (default 5).
    pub failures: u32,
    /// Length of the pause (default 10 s). After the pause, one request tries the upstream again.
    pub open_for: Duration,
}

/// Models that share one capacity, and the policy that divides this capacity between their requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolConfig {
    /// Name of the pool; unique in the configuration.
    #[serde(skip)]
    pub name: String,
    /// Largest number of requests in flight at once (default: the sum of the workers' slots, if all workers state
    /// theirs).
    pub capacity: u64,
    /// True if `capacity` is the sum of the workers' slots. The capacity then changes with the workers and their slots.
    #[serde(skip)]
    pub follows_slots: bool,
    /// Tree that orders the requests. Default: share by group, then tenant, then key. A node may share by agent or
    /// session only below a node that shares by tenant or key, because clients choose the names of agents and sessions
    /// themselves.
    #[serde(serialize_with = "settings_form::policy")]
    pub policy: Policy,
    /// Classes of the pool's policy file, from which `policy` is built; `None` if the pool names no policy file.
    #[serde(rename = "policy_file", serialize_with = "settings_form::classes")]
    pub classes: Option<PolicyClasses>,
    /// Index of the prefixes in the workers' caches; `None` if the pool has no index.
    #[serde(serialize_with = "settings_form::switch")]
    pub prefix_index: Option<PrefixIndexConfig>,
    /// True if a session prefers the worker of its last request (default false). Never with a `prefix_index`.
    pub sticky_sessions: bool,
    /// Waiting tokens that one cached token outweighs when a worker is chosen (default 2).
    #[serde(serialize_with = "settings_form::overlap_credit")]
    pub overlap_credit: OverlapCredit,
    /// The most requests that may be queued (default 10 000).
    #[serde(serialize_with = "settings_form::fixed")]
    pub max_queue: u64,
    /// The longest time that a request may be queued (default 60 s).
    pub queue_timeout: Duration,
    /// Deadlines by class name, for requests that state no deadline and whose key states none. Values above
    /// `queue_timeout` have no effect.
    #[serde(rename = "deadline")]
    pub class_deadlines: BTreeMap<String, Duration>,
    /// Caps the output of requests that were queued for long; off if absent.
    #[serde(serialize_with = "settings_form::brownout")]
    pub brownout: Option<BrownoutConfig>,
    /// The models that the pool serves; at least one, but none in a pool of leases.
    #[serde(serialize_with = "settings_form::models")]
    pub models: Vec<ModelConfig>,
    /// Names of the pool's upstreams; at least one, but none in a pool of leases.
    #[serde(serialize_with = "settings_form::joined")]
    pub workers: Vec<String>,
    /// Leases the pool's slots to programs that call a provider themselves; absent if the pool serves models.
    #[serde(serialize_with = "settings_form::fixed_switch")]
    pub leases: Option<LeasesConfig>,
    /// Largest number of further attempts at other workers if an attempt fails before its first byte (default 1).
    pub retries: u32,
    /// Longest time that a request waits while all workers that it may use are down (default 30 s). After that the
    /// request is refused.
    pub down_wait: Duration,
    /// HTTP status of requests that are refused because all workers are overloaded: 529, 503 or 429.
    pub overloaded_status: u16,
    /// Weights and estimates for the cost of a request.
    pub cost: CostConfig,
    /// True if this process reports the state of its workers to the pool (default true): whether they are up, the
    /// limits that providers state, and learned rates.
    pub observe: bool,
    /// Treatment of a request that has no room in a budget for hosted workers. Never `Wait` if all workers are hosted.
    pub hosted_over_budget: HostedOverBudget,
}

/// Settings of a pool whose slots are leased.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeasesConfig {
    /// Time after which a lease ends if its client does not renew it (default 15 s).
    pub ttl: Duration,
    /// Rates of the provider that the clients call. The quota of a pool of leases names no account.
    #[serde(flatten, serialize_with = "settings_form::rates")]
    pub quota: QuotaConfig,
}

impl PoolConfig {
    /// Returns true if the policy has a `load` node, so that weights of requests have an effect.
    pub fn has_load_node(&self) -> bool {
        has_load_node(&self.policy)
    }

    /// Returns the single worker of a pool of leases, which has the pool's name; `None` if the pool has upstreams. The
    /// worker represents the provider that clients call themselves, and nothing is ever sent to the worker's URL.
    pub fn leased_worker(&self) -> Option<UpstreamConfig> {
        let quota = self.leases.as_ref()?.quota.clone();
        let url = http::Uri::from_static("http://leases.invalid");
        let dialects = UpstreamDialects { openai: true, anthropic: true };
        let base = UpstreamConfig::new(self.name.clone(), url);
        Some(UpstreamConfig { dialects, quota, is_leased: true, ..base })
    }
}

/// Returns true if a policy has a `load` node.
pub(crate) fn has_load_node(policy: &Policy) -> bool {
    fn has(node: &PolicyNode) -> bool {
        matches!(node, PolicyNode::Load(_)) || node.nodes_inside().any(has)
    }
    has(policy.root())
}

/// Settings of the prefix index, with which the gateway estimates the prefixes that each worker holds in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PrefixIndexConfig {
    /// Set of requests within which prefixes are shared (default: all requests of the pool, as in the cache of an
    /// engine).
    pub scope: PrefixScope,
    /// Tokens that the cache of one worker holds, for each rank (default 1 000 000).
    pub cache_tokens: u64,
    /// The most memory of the index, in bytes (default 256 MiB).
    #[serde(rename = "memory_max", serialize_with = "settings_form::size")]
    pub memory_bytes_max: u64,
}

/// Set of requests within which prefixes are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PrefixScope {
    /// All requests of the pool.
    Pool,
    /// Requests of one tenant. Each request to the upstream carries a cache salt, so that the engine's cache separates
    /// tenants as well.
    Tenant,
}

/// Treatment of a request that has no room in a budget for hosted workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedOverBudget {
    /// The request waits for the pool's own workers (default).
    Wait,
    /// The request is refused (default if the pool has no own worker).
    Refuse,
}

/// Brownout: caps the output of requests that were queued for longer than `wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrownoutConfig {
    /// The queue wait above which the cap applies (default 750 ms).
    pub wait: Duration,
    /// Largest number of output tokens of a request that waited longer than `wait` (default 256).
    pub max_tokens: u64,
}

/// A model of a pool, with its hosted budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelConfig {
    /// Name of the model, as clients send it.
    pub name: String,
    /// Name of the model at the upstream; the same as `name` if absent.
    pub upstream_name: Option<String>,
    /// True if requests for the model may go to hosted workers (default true).
    pub hosted: bool,
    /// Budget of all requests for this model on hosted workers (default unlimited).
    pub hosted_budget: HostedBudget,
    /// Largest number of tokens that the model can read. Budgets reserve this number for a file that the gateway cannot
    /// read (default: `cost.files.unreadable_tokens`).
    pub context_tokens: Option<u64>,
}

/// Largest usage of hosted workers in a calendar day and month (UTC). Absent values set no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostedBudget {
    /// Provider tokens per day.
    pub tokens_per_day: Option<u64>,
    /// Provider tokens per month.
    pub tokens_per_month: Option<u64>,
    /// Money per day, in micro-units of the prices' currency.
    pub money_per_day: Option<MicroUnits>,
    /// Money per month, in micro-units of the prices' currency.
    pub money_per_month: Option<MicroUnits>,
}

/// Unit in which the scheduler of a pool counts the cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostUnit {
    /// Tokens, weighted by the pool's weights (default).
    Tokens,
    /// Microseconds of a full worker.
    WorkerTime,
    /// Micro-units of the currency of the configured prices.
    Money,
}

impl CostUnit {
    /// Returns the unit's name in the file and in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::WorkerTime => "worker_time",
            Self::Money => "money",
        }
    }
}

/// Unit, weights and estimates for the cost of a request. A weight of 1000 means that a token is charged as one token. With a
/// policy file whose arbiter is drr, the default weights are those of Dynamo, which charges only uncached input (1000,
/// 0, 0). Otherwise the defaults are those named at the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CostConfig {
    /// Unit in which the scheduler counts. Budgets of tokens, rates and rows count tokens, whatever the unit is.
    pub unit: CostUnit,
    /// Prices of the workers' time in picoseconds; learned if absent. Only with [`CostUnit::WorkerTime`].
    #[serde(serialize_with = "settings_form::worker_prices")]
    pub prices: Option<WorkerPrices>,
    /// Weight of an uncached input token, in thousandths (default 1000).
    #[serde(rename = "input", serialize_with = "settings_form::thousandths")]
    pub input_milli: u64,
    /// Weight of an input token that the upstream had cached, in thousandths (default 1000).
    #[serde(rename = "cached_input", serialize_with = "settings_form::thousandths")]
    pub cached_milli: u64,
    /// Weight of an output token, in thousandths (default 1000).
    #[serde(rename = "output", serialize_with = "settings_form::thousandths")]
    pub output_milli: u64,
    /// Expected output tokens of a request before any response was seen (default 512).
    pub output_default: u64,
    /// Output limit in tokens that the gateway sets on a request that has a budget and states no limit of its own
    /// (default 4096).
    pub max_tokens_default: u64,
    /// Method by which input tokens are counted.
    pub tokenizer: Tokenizer,
    /// True if a request that states no weight has the weight of its model in the queue depth of a `load` node (default
    /// true if the policy has such a node). Otherwise its weight is 1.
    pub weights_by_model: bool,
    /// Tokens that budgets reserve for files.
    pub files: FileCostConfig,
}

/// Tokens that budgets reserve for the files of a request. The real usage is settled at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FileCostConfig {
    /// Tokens for each page of a PDF (default 3000).
    pub pdf_page_tokens: u64,
    /// Number of bytes of a PDF, after its streams are inflated, that count as one token (default 40). The larger of
    /// the two counts, by bytes and by pages, is used.
    pub pdf_bytes_per_token: u64,
    /// Pixels of an image that count as one token (default 400).
    pub image_pixels_per_token: u64,
    /// Fewest tokens of an image (default 1200).
    pub image_tokens_min: u64,
    /// Most tokens of an image (default 15 000). An image whose size cannot be read, or that is given by id or URL,
    /// counts as this many. At least `image_tokens_min`.
    pub image_tokens_max: u64,
    /// Bytes of a sound that count as one token (default 100).
    pub audio_bytes_per_token: u64,
    /// Tokens of a file other than an image that cannot be read, or that is given by id or URL, for models that state
    /// no `context_tokens` (default 200 000).
    pub unreadable_tokens: u64,
}

/// Method by which input tokens are counted before the upstream reports usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tokenizer {
    /// Estimates tokens from the number of bytes of the body, at a rate that is learned for each model from reported
    /// usage.
    Learned,
    /// Counts tokens exactly, with OpenAI's o200k table.
    O200k,
    /// Counts tokens exactly, with OpenAI's cl100k table.
    Cl100k,
}
