//! Reads the upstreams of a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use fairgate_core::event::MAX_RANKS;

use crate::config::{
    BreakerConfig, HealthConfig, QuotaConfig, UpstreamConfig, UpstreamDialects, UpstreamTimeouts,
};
use crate::defaults;
use crate::field::{ConfigField, ConfigSection};
use crate::field_rules::FieldRules;
use crate::read::engine::{self, UpstreamSlots};
use crate::read::rules;
use crate::read::secret::credential;
use crate::read::url::{base_url, health_path};
use crate::read::{TIMEOUT, model_name, name};

const UPSTREAM: &[&str] = &[
    "name",
    "url",
    "dialects",
    "credential",
    "aliases",
    "slots",
    "slots_max",
    "ranks",
    "taints",
    "batch_tokens",
    "tier",
    "timeouts",
    "health",
    "metrics",
    "discover",
    "breaker",
    "ca",
    "idle_connections_max",
    "fields",
    "headers",
    "account",
    "requests_per_minute",
    "tokens_per_minute",
    "burst_seconds",
    "probe",
    "shared_limits",
];

/// Range of the interval between health checks.
const EVERY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Error message for an option about a provider's account, at an upstream that has no such account.
const NOT_HOSTED: &str = "has no meaning without account, requests_per_minute or tokens_per_minute";

/// The highest rate per minute; more than any provider allows.
pub(super) const PER_MINUTE_MAX: u64 = 1_000_000_000_000;

/// Settings of an upstream that are known even if other settings of the upstream are invalid.
pub(super) struct UpstreamDraft<'a> {
    pub(super) name: Option<String>,
    /// Slots of the upstream; `None` if they are invalid and an error was recorded.
    pub(super) slots: Option<UpstreamSlots>,
    /// Number of ranks; `None` if it is invalid and an error was recorded.
    pub(super) ranks: Option<u32>,
    /// True if `batch_tokens` is stated, valid or not.
    pub(super) states_batch: bool,
    /// Tier of the upstream; `None` if it is invalid and an error was recorded.
    pub(super) tier: Option<u32>,
    /// Models with an alias, and the field of each alias.
    pub(super) aliases: Vec<(String, ConfigField<'a>)>,
    pub(super) config: Option<UpstreamConfig>,
}

pub(super) fn upstreams(field: ConfigField<'_>) -> Option<Vec<UpstreamDraft<'_>>> {
    let mut seen = BTreeMap::new();
    let mut accounts = BTreeMap::new();
    let mut all = Vec::new();
    for field in field.list()? {
        let upstream = upstream(field.clone());
        if let Some(name) = &upstream.name
            && let Some(first) = seen.insert(name.clone(), field.node.place.line)
        {
            field.wrong::<()>(format!("another upstream is called {name:?}, on line {first}"));
        }
        if let Some(config) = &upstream.config {
            check_account(&field, &config.quota, &mut accounts);
        }
        all.push(upstream);
    }
    Some(all)
}

/// Records an error if two upstreams of one account state different rates, because they share the rates of the account.
fn check_account(
    field: &ConfigField<'_>,
    quota: &QuotaConfig,
    accounts: &mut BTreeMap<String, (QuotaConfig, usize)>,
) {
    let Some(account) = &quota.account else { return };
    let line = field.node.place.line;
    let (first, first_line) = accounts.entry(account.clone()).or_insert((quota.clone(), line));
    if first != quota {
        field.wrong::<()>(format!(
            "draws on the account {account:?} like the upstream on line {first_line}, and states other rates or options of it: state the \
             same requests_per_minute, tokens_per_minute, burst_seconds, probe and shared_limits in both, or use another account"
        ));
    }
}

fn upstream(field: ConfigField<'_>) -> UpstreamDraft<'_> {
    let nothing = UpstreamDraft {
        name: None,
        slots: None,
        ranks: None,
        states_batch: true,
        tier: None,
        aliases: Vec::new(),
        config: None,
    };
    let Some(section) = field.section(UPSTREAM) else { return nothing };
    let name = section.required("name", "what pools call it", name);
    let slots = engine::slots(&section);
    let ranks = section.or("ranks", defaults::RANKS, |field| field.integer(1..=MAX_RANKS));
    let states_batch = section.has("batch_tokens");
    let tier = section.or("tier", defaults::TIER, |field| tier(field, slots));
    let mut aliases = Vec::new();
    let pairs = section.or("aliases", BTreeMap::new(), |field| {
        let (pairs, fields) = read_aliases(field)?;
        aliases = fields;
        Some(pairs)
    });
    let config = config(&section, name.clone(), slots, ranks, tier, pairs);
    UpstreamDraft { name, slots, ranks, states_batch, tier, aliases, config }
}

/// Reads the tier. A hosted upstream (tier above 0) without slots is an error.
fn tier(field: ConfigField<'_>, slots: Option<UpstreamSlots>) -> Option<u32> {
    match field.clone().integer(0..=100)? {
        tier if tier > 0 && slots.is_some_and(|slots| slots.first.is_none()) => field.wrong(
            "a hosted upstream must state its slots: without them it always has a free place, and nothing says when those of \
             a lower tier are full",
        ),
        tier => Some(tier),
    }
}

fn config(
    section: &ConfigSection<'_>,
    name: Option<String>,
    slots: Option<UpstreamSlots>,
    ranks: Option<u32>,
    tier: Option<u32>,
    aliases: Option<BTreeMap<String, String>>,
) -> Option<UpstreamConfig> {
    let url = section.required("url", "its base, such as http://10.0.0.5:8000", base_url);
    let dialects = section.or("dialects", defaults::DIALECTS, dialects);
    let credential = section.optional("credential", credential);
    let timeouts = section.or("timeouts", defaults::TIMEOUTS, timeouts);
    let health = section.optional("health", health);
    let metrics = engine::metrics(section, slots);
    let discover = engine::discover(section, url.as_ref());
    let breaker = section.or("breaker", defaults::BREAKER, breaker);
    let plain = url.as_ref().is_some_and(|url| url.scheme_str() == Some("http"));
    let ca = section.optional("ca", |field| match plain {
        true => {
            field.wrong("has no meaning where url starts with http://: remove it, or use https://")
        }
        false => field.file(),
    });
    let idle_connections_max =
        section.or("idle_connections_max", defaults::IDLE_CONNECTIONS_MAX, |field| {
            field.integer(0..=10_000)
        });
    let fields = section.or("fields", FieldRules::default(), rules::fields);
    let headers = section.or("headers", FieldRules::default(), rules::headers);
    let quota = quota(section);
    let taints = section.or("taints", Vec::new(), taints);
    let batch_tokens = section.optional("batch_tokens", |field| field.integer(1..=1_000_000_000));
    Some(UpstreamConfig {
        name: name?,
        url: url?,
        dialects: dialects?,
        credential: credential?,
        aliases: aliases?,
        slots: slots?.first,
        auto_slots: slots?.auto,
        ranks: ranks?,
        taints: taints?,
        batch_tokens: batch_tokens?,
        tier: tier?,
        timeouts: timeouts?,
        health: health?,
        metrics: metrics?,
        discover: discover?,
        connect_to: None,
        made_from: None,
        breaker: breaker?,
        ca: ca?,
        idle_connections_max: idle_connections_max?,
        fields: fields?,
        headers: headers?,
        quota: quota?,
        is_leased: false,
    })
}

/// Reads the list of taints. A repeated taint is an error.
fn taints(field: ConfigField<'_>) -> Option<Vec<String>> {
    let mut seen = BTreeSet::new();
    let read = |field: ConfigField<'_>| match name(field.clone())? {
        taint if seen.insert(taint.clone()) => Some(taint),
        taint => field.wrong(format!("the taint {taint:?} is listed twice")),
    };
    let all: Vec<_> = field.list()?.into_iter().map(read).collect();
    all.into_iter().collect()
}

fn quota(section: &ConfigSection<'_>) -> Option<QuotaConfig> {
    let rate = |name| section.optional(name, |field| field.integer(1..=PER_MINUTE_MAX));
    let account = section.optional("account", name);
    let requests_per_minute = rate("requests_per_minute");
    let tokens_per_minute = rate("tokens_per_minute");
    let is_hosted = ["account", "requests_per_minute", "tokens_per_minute"]
        .iter()
        .any(|name| section.has(name));
    let burst_seconds = section.optional("burst_seconds", |field| match is_hosted {
        true => field.integer(1..=60),
        false => field.wrong(NOT_HOSTED),
    });
    let choice = |name| {
        section.optional(name, |field| match is_hosted {
            true => field.boolean(),
            false => field.wrong(NOT_HOSTED),
        })
    };
    let probe = choice("probe");
    let shared_limits = choice("shared_limits");
    Some(QuotaConfig {
        account: account?,
        requests_per_minute: requests_per_minute?,
        tokens_per_minute: tokens_per_minute?,
        burst_seconds: burst_seconds?.unwrap_or(defaults::QUOTA.burst_seconds),
        probe: probe?.unwrap_or(defaults::QUOTA.probe),
        shared_limits: shared_limits?.unwrap_or(defaults::QUOTA.shared_limits),
    })
}

type Aliases<'a> = (BTreeMap<String, String>, Vec<(String, ConfigField<'a>)>);

fn read_aliases(field: ConfigField<'_>) -> Option<Aliases<'_>> {
    let Some(entries) = field.entries() else {
        return field
            .wrong("must be a mapping from models, as clients name them, to its names for them");
    };
    let fields = entries.iter().map(|(entry, field)| (entry.name.clone(), field.clone())).collect();
    let pairs: Vec<_> = entries
        .into_iter()
        .map(|(entry, field)| Some((entry.name.clone(), model_name(field)?)))
        .collect();
    Some((pairs.into_iter().collect::<Option<_>>()?, fields))
}

fn dialects(field: ConfigField<'_>) -> Option<UpstreamDialects> {
    let words = [("openai", true), ("anthropic", false)];
    let spoken: Vec<_> = field.list()?.into_iter().map(|field| field.one_of(&words)).collect();
    let spoken: Vec<bool> = spoken.into_iter().collect::<Option<_>>()?;
    Some(UpstreamDialects { openai: spoken.contains(&true), anthropic: spoken.contains(&false) })
}

fn timeouts(field: ConfigField<'_>) -> Option<UpstreamTimeouts> {
    let section = field.section(&["connect", "first_byte", "idle", "total"])?;
    let default = defaults::TIMEOUTS;
    let read = |name, default| section.or(name, default, |field| field.duration(TIMEOUT));
    let connect = read("connect", default.connect);
    let first_byte = read("first_byte", default.first_byte);
    let idle = read("idle", default.idle);
    let total = read("total", default.total);
    Some(UpstreamTimeouts {
        connect: connect?,
        first_byte: first_byte?,
        idle: idle?,
        total: total?,
    })
}

fn health(field: ConfigField<'_>) -> Option<HealthConfig> {
    let known = &["path", "every", "timeout", "unhealthy_after", "healthy_after"];
    let section = field.section(known)?;
    let path = section.or("path", defaults::HEALTH_PATH.to_owned(), health_path);
    let every = section.or("every", defaults::HEALTH_EVERY, |field| field.duration(EVERY));
    let timeout = section.or("timeout", defaults::HEALTH_TIMEOUT, |field| field.duration(TIMEOUT));
    let count = |name, default| section.or(name, default, |field| field.integer(1..=1000));
    let unhealthy_after = count("unhealthy_after", defaults::UNHEALTHY_AFTER);
    let healthy_after = count("healthy_after", defaults::HEALTHY_AFTER);
    Some(HealthConfig {
        path: path?,
        every: every?,
        timeout: timeout?,
        unhealthy_after: unhealthy_after?,
        healthy_after: healthy_after?,
    })
}

fn breaker(field: ConfigField<'_>) -> Option<BreakerConfig> {
    let section = field.section(&["failures", "open_for"])?;
    let default = defaults::BREAKER;
    let failures = section.or("failures", default.failures, |field| field.integer(1..=1000));
    let open_for = section.or("open_for", default.open_for, |field| field.duration(TIMEOUT));
    Some(BreakerConfig { failures: failures?, open_for: open_for? })
}
