//! Lists the settings of a configuration as texts. Each setting is marked if it is fixed while the gateway runs. The
//! structs are destructured field by field, so that a new field cannot be forgotten here.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use fairgate_journal::format_policy;
use fairgate_money::{ModelPrices, PerMillion, Price, PriceRates};
use fairgate_price::worker_time::WorkerPrices;

use crate::classes::{ClassBucket, ClassCell, PolicyClasses};
use crate::config::{
    AdminConfig, AutoSlots, BreakerConfig, BrownoutConfig, Config, CostConfig, DiscoverConfig,
    FileCostConfig, FleetConfig, GatewayMetricsConfig, HealthConfig, HostedBudget,
    HostedOverBudget, JournalConfig, LeasesConfig, LimitsConfig, MetricsConfig, ModelConfig,
    OnStoreFailure, OverloadConfig, PoolConfig, PrefixIndexConfig, PrefixScope, QuotaConfig,
    Secret, StoreConfig, TlsConfig, Tokenizer, UpstreamConfig, UpstreamCredential,
    UpstreamDialects, UpstreamTimeouts, WebhookConfig,
};
use crate::field_rules::{FieldRule, FieldRules};
use crate::values::{format_duration, format_size, format_thousandths};

/// Owner of a setting. Upstreams and pools are identified by name, so their order in the file does not matter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SettingOwner {
    Gateway,
    Upstream(String),
    Pool(String),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SettingKey {
    pub(super) owner: SettingOwner,
    /// Path of the field below its owner, such as `capacity`.
    pub(super) name: String,
}

pub(super) struct Setting {
    pub(super) value: SettingValue,
    /// Path of the field in the file, such as `pools[1].capacity`.
    pub(super) file_field: String,
    /// True if a change needs a restart.
    pub(super) fixed: bool,
}

#[derive(PartialEq, Eq)]
pub(super) enum SettingValue {
    None,
    Shown(String),
    Hidden(Secret),
}

/// Collects the settings of one owner.
struct SettingList<'a> {
    settings: &'a mut BTreeMap<SettingKey, Setting>,
    owner: SettingOwner,
    /// Path of the owner in the file, with a dot at its end; empty for the file itself.
    file_prefix: String,
}

impl SettingList<'_> {
    fn put(&mut self, name: &str, value: SettingValue, fixed: bool) {
        let key = SettingKey { owner: self.owner.clone(), name: name.to_owned() };
        let file_field = format!("{}{name}", self.file_prefix);
        self.settings.insert(key, Setting { value, file_field, fixed });
    }

    /// Adds a setting that can change while the gateway runs.
    fn live(&mut self, name: &str, value: impl Display) {
        self.put(name, SettingValue::Shown(value.to_string()), false);
    }

    /// Adds a setting that can change while the gateway runs, and may be absent.
    fn live_option(&mut self, name: &str, value: Option<impl Display>) {
        let value =
            value.map_or(SettingValue::None, |value| SettingValue::Shown(value.to_string()));
        self.put(name, value, false);
    }

    /// Adds a setting that is fixed while the gateway runs.
    fn fixed(&mut self, name: &str, value: impl Display) {
        self.put(name, SettingValue::Shown(value.to_string()), true);
    }

    /// Adds a setting that is fixed while the gateway runs, and may be absent.
    fn fixed_option(&mut self, name: &str, value: Option<impl Display>) {
        let value =
            value.map_or(SettingValue::None, |value| SettingValue::Shown(value.to_string()));
        self.put(name, value, true);
    }

    fn secret(&mut self, name: &str, secret: Option<&Secret>) {
        self.put(name, secret.cloned().map_or(SettingValue::None, SettingValue::Hidden), false);
    }
}

/// Lists all settings of a configuration.
pub(super) fn settings(config: &Config) -> BTreeMap<SettingKey, Setting> {
    let mut settings = BTreeMap::new();
    let Config {
        listen,
        tls,
        data_dir,
        store: StoreConfig { url, keep_days, spool, spool_bytes_max },
        on_store_failure,
        admin: AdminConfig { token, listen: admin_listen, viewer_token, pages },
        journal,
        limits,
        metrics: GatewayMetricsConfig { tenants_max },
        fleet,
        drain_grace,
        upstreams,
        pools,
        prices,
    } = config;
    let file_prefix = String::new();
    let mut list =
        SettingList { settings: &mut settings, owner: SettingOwner::Gateway, file_prefix };
    list.fixed("listen", listen);
    tls_settings(&mut list, tls.as_ref());
    list.fixed("data_dir", data_dir.display());
    list.live("drain_grace", format_duration(*drain_grace));
    list.put("store.url", SettingValue::Hidden(url.clone()), true);
    list.live_option("store.keep_days", *keep_days);
    list.fixed("store.spool", spool.display());
    list.fixed("store.spool_size_max", format_size(*spool_bytes_max));
    list.live("on_store_failure", failure_word(*on_store_failure));
    list.secret("admin.token", token.as_ref());
    list.secret("admin.viewer_token", viewer_token.as_ref());
    list.live("admin.pages", pages);
    list.fixed_option("admin.listen", *admin_listen);
    journal_settings(&mut list, journal.as_ref());
    limit_settings(&mut list, limits);
    list.fixed("metrics.tenants", tenants_max);
    fleet_settings(&mut list, fleet);
    price_settings(&mut list, prices);
    for (i, upstream) in upstreams.iter().enumerate() {
        let owner = SettingOwner::Upstream(upstream.name.clone());
        let file_prefix = format!("upstreams[{i}].");
        let list = SettingList { settings: &mut settings, owner, file_prefix };
        upstream_settings(list, upstream);
    }
    for (i, pool) in pools.iter().enumerate() {
        let owner = SettingOwner::Pool(pool.name.clone());
        let list =
            SettingList { settings: &mut settings, owner, file_prefix: format!("pools[{i}].") };
        pool_settings(list, pool);
    }
    settings
}

fn failure_word(on_store_failure: OnStoreFailure) -> &'static str {
    match on_store_failure {
        OnStoreFailure::Refuse => "refuse",
        OnStoreFailure::Serve => "serve",
    }
}

/// Lists the settings of TLS. Certificates can be renewed while the gateway runs. TLS cannot be switched on or off,
/// because that is decided when the socket is opened.
fn tls_settings(list: &mut SettingList<'_>, tls: Option<&TlsConfig>) {
    list.fixed("tls", if tls.is_some() { "on" } else { "off" });
    if let Some(TlsConfig { cert, key }) = tls {
        list.live("tls.cert", cert.display());
        list.live("tls.key", key.display());
    }
}

/// Lists the settings of the journals. All are fixed, because a pool opens its journal when the pool starts.
fn journal_settings(list: &mut SettingList<'_>, journal: Option<&JournalConfig>) {
    list.fixed("journal", if journal.is_some() { "on" } else { "off" });
    if let Some(JournalConfig { folder, file_bytes_max, files_max }) = journal {
        list.fixed("journal.folder", folder.display());
        list.fixed("journal.file_size_max", format_size(*file_bytes_max));
        list.fixed("journal.files_max", files_max);
    }
}

fn limit_settings(list: &mut SettingList<'_>, limits: &LimitsConfig) {
    let LimitsConfig {
        body_bytes_max,
        header_timeout,
        body_timeout,
        header_bytes_max,
        connections_max,
        trusted_proxies,
        held_bytes_max,
        names_per_key_max,
        response_ids_per_tenant_max,
        response_id_lifetime,
        foreign_response_ids,
    } = limits;
    list.live("limits.body_size_max", format_size(*body_bytes_max));
    list.live("limits.header_timeout", format_duration(*header_timeout));
    list.live("limits.body_timeout", format_duration(*body_timeout));
    list.live("limits.header_size_max", format_size((*header_bytes_max).into()));
    list.live("limits.connections_max", connections_max);
    let proxies: Vec<String> = trusted_proxies.iter().map(ToString::to_string).collect();
    list.live_option("limits.trusted_proxies", (!proxies.is_empty()).then(|| proxies.join(", ")));
    list.live("limits.held_size_max", format_size(*held_bytes_max));
    list.live("limits.names_per_key_max", names_per_key_max);
    list.live("limits.response_ids_per_tenant_max", response_ids_per_tenant_max);
    list.live("limits.response_id_lifetime", format_duration(*response_id_lifetime));
    let foreign = if *foreign_response_ids { "allow" } else { "refuse" };
    list.live("limits.foreign_response_ids", foreign);
}

/// Lists the settings of the fleet. All but webhooks are fixed, because the fleet reads them when it starts, and a
/// different window would change the sums of past usage.
fn fleet_settings(list: &mut SettingList<'_>, fleet: &FleetConfig) {
    let FleetConfig {
        window,
        budget,
        min_task_guarantee,
        default_estimate,
        share,
        credit,
        agent_second_tokens,
        lease,
        backoff,
        backoff_max,
        log_bytes_max,
        prompt_bytes_max,
        journal,
        webhooks,
    } = fleet;
    list.fixed("fleet.window", format_duration(*window));
    list.fixed_option("fleet.budget", *budget);
    list.fixed("fleet.min_task_guarantee", min_task_guarantee);
    list.fixed("fleet.default_estimate", default_estimate);
    list.fixed("fleet.share", share);
    list.fixed("fleet.credit", credit);
    list.fixed_option("fleet.agent_second_tokens", *agent_second_tokens);
    list.fixed("fleet.lease", format_duration(*lease));
    list.fixed("fleet.backoff", format_duration(*backoff));
    list.fixed("fleet.backoff_max", format_duration(*backoff_max));
    list.fixed("fleet.log_size_max", format_size(*log_bytes_max));
    list.fixed("fleet.prompt_size_max", format_size(*prompt_bytes_max));
    list.fixed("fleet.journal", journal.is_some());
    let names = webhooks.iter().map(|webhook| webhook.name.clone()).collect();
    list.live_option("fleet.webhooks", some_words(names));
    for (i, webhook) in webhooks.iter().enumerate() {
        webhook_settings(list, i, webhook);
    }
}

fn webhook_settings(list: &mut SettingList<'_>, place: usize, webhook: &WebhookConfig) {
    let WebhookConfig { name, url, secret, events, ca } = webhook;
    let field = |field: &str| format!("fleet.webhooks[{place}].{field}");
    list.live(&field("name"), name);
    list.secret(&field("url"), Some(url));
    list.secret(&field("secret"), Some(secret));
    let events = events.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    list.live(&field("events"), events);
    list.live_option(&field("ca"), ca.as_ref().map(|ca| ca.display()));
}

fn upstream_settings(mut list: SettingList<'_>, upstream: &UpstreamConfig) {
    let UpstreamConfig {
        name: _,
        url,
        dialects: UpstreamDialects { openai, anthropic },
        credential,
        aliases,
        slots,
        auto_slots,
        ranks,
        taints,
        batch_tokens,
        tier,
        timeouts: UpstreamTimeouts { connect, first_byte, idle, total },
        health,
        metrics,
        discover,
        connect_to: _,
        made_from: _,
        breaker: BreakerConfig { failures, open_for },
        ca,
        idle_connections_max,
        fields,
        headers,
        quota:
            QuotaConfig {
                account,
                requests_per_minute,
                tokens_per_minute,
                burst_seconds,
                probe,
                shared_limits,
            },
        is_leased: _,
    } = upstream;
    let spoken = [("openai", openai), ("anthropic", anthropic)];
    let spoken: Vec<&str> = spoken.iter().filter(|(_, speaks)| **speaks).map(|(d, _)| *d).collect();
    let aliases = aliases.iter().map(|(model, name)| format!("{model} as {name}"));
    list.live("url", url);
    list.live("dialects", spoken.join(", "));
    list.secret("credential", credential.as_ref().map(|UpstreamCredential { secret }| secret));
    list.live_option("aliases", some_words(aliases.collect()));
    match auto_slots {
        Some(AutoSlots { most }) => {
            list.live("slots", "auto");
            list.live("slots_max", most);
        }
        None => list.live_option("slots", *slots),
    }
    list.live("ranks", ranks);
    list.live_option("taints", some_words(taints.clone()));
    list.live_option("batch_tokens", *batch_tokens);
    list.live("tier", tier);
    list.live("timeouts.connect", format_duration(*connect));
    list.live("timeouts.first_byte", format_duration(*first_byte));
    list.live("timeouts.idle", format_duration(*idle));
    list.live("timeouts.total", format_duration(*total));
    list.live("health", if health.is_some() { "on" } else { "off" });
    if let Some(HealthConfig { path, every, timeout, unhealthy_after, healthy_after }) = health {
        list.live("health.path", path);
        list.live("health.every", format_duration(*every));
        list.live("health.timeout", format_duration(*timeout));
        list.live("health.unhealthy_after", unhealthy_after);
        list.live("health.healthy_after", healthy_after);
    }
    engine_settings(&mut list, metrics.as_ref(), discover.as_ref());
    list.live("breaker.failures", failures);
    list.live("breaker.open_for", format_duration(*open_for));
    list.live_option("ca", ca.as_ref().map(|path| path.display()));
    list.live("idle_connections_max", idle_connections_max);
    rule_settings(&mut list, "fields", fields);
    rule_settings(&mut list, "headers", headers);
    list.live_option("account", account.as_ref());
    list.live_option("requests_per_minute", *requests_per_minute);
    list.live_option("tokens_per_minute", *tokens_per_minute);
    list.live("burst_seconds", burst_seconds);
    list.live("probe", probe);
    list.live("shared_limits", shared_limits);
}

fn engine_settings(
    list: &mut SettingList<'_>,
    metrics: Option<&MetricsConfig>,
    discover: Option<&DiscoverConfig>,
) {
    list.live("metrics", if metrics.is_some() { "on" } else { "off" });
    if let Some(MetricsConfig { path, every, overload }) = metrics {
        let OverloadConfig { waiting, cache_milli } = overload;
        list.live("metrics.path", path);
        list.live("metrics.every", format_duration(*every));
        list.live_option("metrics.overload_waiting", *waiting);
        list.live_option("metrics.overload_cache", cache_milli.map(format_thousandths));
    }
    list.live("discover", if discover.is_some() { "on" } else { "off" });
    if let Some(DiscoverConfig { dns, port, every }) = discover {
        list.live("discover.dns", dns);
        list.live("discover.port", port);
        list.live("discover.every", format_duration(*every));
    }
}

fn rule_settings(list: &mut SettingList<'_>, name: &str, rules: &FieldRules) {
    let lists =
        [("allow", FieldRule::Allow), ("strip", FieldRule::Strip), ("refuse", FieldRule::Refuse)];
    for (word, rule) in lists {
        let named = rules.named.iter().filter(|(_, of)| *of == rule);
        let names = some_words(named.map(|(name, _)| name.clone()).collect());
        list.live_option(&format!("{name}.{word}"), names);
    }
}

fn pool_settings(mut list: SettingList<'_>, pool: &PoolConfig) {
    let PoolConfig {
        name: _,
        capacity,
        follows_slots: _,
        policy,
        classes,
        prefix_index,
        sticky_sessions,
        overlap_credit,
        max_queue,
        queue_timeout,
        class_deadlines,
        brownout,
        models,
        workers,
        leases,
        retries,
        down_wait,
        overloaded_status,
        cost,
        observe,
        hosted_over_budget,
    } = pool;
    list.live("models", models.iter().map(model_words).collect::<Vec<_>>().join(", "));
    list.live("workers", workers.join(", "));
    list.fixed("leases", if leases.is_some() { "on" } else { "off" });
    if let Some(LeasesConfig { ttl, quota }) = leases {
        list.live("leases.ttl", format_duration(*ttl));
        list.live_option("leases.requests_per_minute", quota.requests_per_minute);
        list.live_option("leases.tokens_per_minute", quota.tokens_per_minute);
        list.live("leases.burst_seconds", quota.burst_seconds);
    }
    list.live("capacity", capacity);
    list.live("policy", format_policy(policy));
    list.live_option("policy_file", classes.as_ref().map(|classes| classes.file().display()));
    if let Some(classes) = classes {
        class_settings(&mut list, classes);
    }
    if let Some(prefix_index) = prefix_index {
        prefix_settings(&mut list, *prefix_index);
    }
    list.live("prefix_index", if prefix_index.is_some() { "on" } else { "off" });
    list.live("sticky_sessions", sticky_sessions);
    // Each submit carries the longest wait of its request.
    list.live("queue_timeout", format_duration(*queue_timeout));
    for (class, deadline) in class_deadlines {
        list.live(&format!("deadline.{class}"), format_duration(*deadline));
    }
    // The pool's state machine has no event for these: they are in the header of its journal, fixed from the first line
    // on.
    list.fixed("overlap_credit", format_thousandths(overlap_credit.thousandths().into()));
    list.fixed("max_queue", max_queue);
    let wait: Option<Duration> = brownout.map(|BrownoutConfig { wait, .. }| wait);
    list.fixed_option("brownout.wait", wait.map(format_duration));
    if let Some(BrownoutConfig { wait: _, max_tokens }) = brownout {
        list.live("brownout.max_tokens", max_tokens);
    }
    list.live("retries", retries);
    list.live("down_wait", format_duration(*down_wait));
    list.live("overloaded_status", overloaded_status);
    cost_settings(&mut list, cost);
    list.live("observe", observe);
    let over_budget = match hosted_over_budget {
        HostedOverBudget::Wait => "wait",
        HostedOverBudget::Refuse => "refuse",
    };
    list.live("hosted_over_budget", over_budget);
}

/// Lists the class settings that are not part of the policy: the assignment of requests to classes.
fn class_settings(list: &mut SettingList<'_>, classes: &PolicyClasses) {
    let buckets = classes.buckets().iter();
    let buckets =
        buckets.map(|ClassBucket { name, min_tokens }| format!("{name} from {min_tokens}"));
    list.live("policy_file.default_policy_family", classes.default_family());
    list.live("policy_file.uncached_isl_buckets", buckets.collect::<Vec<_>>().join(", "));
    for class in classes.all() {
        let serves = match &class.cell {
            Some(ClassCell { family, bucket }) => format!("{family} × {bucket}"),
            None => "explicit".to_owned(),
        };
        list.live(&format!("policy_file.policy_classes.{}", class.name), serves);
    }
}

fn prefix_settings(list: &mut SettingList<'_>, index: PrefixIndexConfig) {
    let PrefixIndexConfig { scope, cache_tokens, memory_bytes_max } = index;
    let scope = match scope {
        PrefixScope::Pool => "pool",
        PrefixScope::Tenant => "tenant",
    };
    list.live("prefix_index.scope", scope);
    list.live("prefix_index.cache_tokens", cache_tokens);
    list.live("prefix_index.memory_max", format_size(memory_bytes_max));
}

fn cost_settings(list: &mut SettingList<'_>, cost: &CostConfig) {
    let CostConfig {
        unit,
        prices,
        input_milli,
        cached_milli,
        output_milli,
        output_default,
        max_tokens_default,
        tokenizer,
        weights_by_model,
        files,
    } = cost;
    let tokenizer = match tokenizer {
        Tokenizer::Learned => "learned",
        Tokenizer::O200k => "o200k",
        Tokenizer::Cl100k => "cl100k",
    };
    list.live("cost.unit", unit.name());
    if let Some(prices) = prices {
        let WorkerPrices { request, input, input_input, cached, output, context_output } = prices;
        list.live("cost.prices.request", request);
        list.live("cost.prices.input", input);
        list.live("cost.prices.input_input", input_input);
        list.live("cost.prices.cached", cached);
        list.live("cost.prices.output", output);
        list.live("cost.prices.context_output", context_output);
    }
    list.live("cost.input", format_thousandths(*input_milli));
    list.live("cost.cached_input", format_thousandths(*cached_milli));
    list.live("cost.output", format_thousandths(*output_milli));
    list.live("cost.output_default", output_default);
    list.live("cost.max_tokens_default", max_tokens_default);
    list.live("cost.tokenizer", tokenizer);
    list.live("cost.weights_by_model", weights_by_model);
    let FileCostConfig {
        pdf_page_tokens,
        pdf_bytes_per_token,
        image_pixels_per_token,
        image_tokens_min,
        image_tokens_max,
        audio_bytes_per_token,
        unreadable_tokens,
    } = files;
    list.live("cost.files.pdf_page_tokens", pdf_page_tokens);
    list.live("cost.files.pdf_bytes_per_token", pdf_bytes_per_token);
    list.live("cost.files.image_pixels_per_token", image_pixels_per_token);
    list.live("cost.files.image_tokens_min", image_tokens_min);
    list.live("cost.files.image_tokens_max", image_tokens_max);
    list.live("cost.files.audio_bytes_per_token", audio_bytes_per_token);
    list.live("cost.files.unreadable_tokens", unreadable_tokens);
}

fn model_words(model: &ModelConfig) -> String {
    let ModelConfig { name, upstream_name, hosted, hosted_budget, context_tokens } = model;
    let never = if *hosted { "" } else { " never hosted" };
    let budget = budget_words(hosted_budget);
    let context =
        context_tokens.map(|tokens| format!(" reads {tokens} tokens")).unwrap_or_default();
    match upstream_name {
        Some(upstream_name) => format!("{name} as {upstream_name}{never}{budget}{context}"),
        None => format!("{name}{never}{budget}{context}"),
    }
}

fn budget_words(budget: &HostedBudget) -> String {
    let HostedBudget { tokens_per_day, tokens_per_month, money_per_day, money_per_month } = budget;
    let words = [
        tokens_per_day.map(|tokens| format!("{tokens} tokens a day")),
        tokens_per_month.map(|tokens| format!("{tokens} tokens a month")),
        money_per_day.map(|money| format!("{money} a day")),
        money_per_month.map(|money| format!("{money} a month")),
    ];
    let words: Vec<String> = words.into_iter().flatten().collect();
    if words.is_empty() { String::new() } else { format!(" hosted up to {}", words.join(", ")) }
}

/// Lists each price as a setting of its own, by model, upstream and day.
fn price_settings(list: &mut SettingList<'_>, prices: &ModelPrices) {
    list.live_option("prices.currency", prices.currency());
    for Price { id: _, model, upstream, currency: _, rates, from } in prices.all() {
        let on = upstream.as_ref().map(|upstream| format!(" on {upstream}")).unwrap_or_default();
        let from = from.map(|day| format!(" from {}", day.name())).unwrap_or_default();
        let PriceRates { input, cached_input, cache_write, cache_write_1h, output, request } =
            rates;
        let part = |rate: &Option<PerMillion>, what| {
            rate.map_or_else(String::new, |rate| format!(", {rate} {what}"))
        };
        let words = format!(
            "{input} input, {cached_input} cached input{}{}, {output} output a million tokens, {request} a request",
            part(cache_write, "cache writes"),
            part(cache_write_1h, "cache writes for an hour"),
        );
        list.live(&format!("prices.models.{model}{on}{from}"), words);
    }
}

fn some_words(words: Vec<String>) -> Option<String> {
    (!words.is_empty()).then(|| words.join(", "))
}
