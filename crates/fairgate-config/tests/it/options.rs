//! Tests of every option: the reader knows it, it has an effect, and its default is the documented
//! one.

use std::collections::BTreeSet;

use fairgate_config::Config;
use serde_json::{Value, json};

use crate::document::{Row, rows};
use crate::support::Folder;

/// Paths of all options, each with a value that is not the default.
const OPTIONS: &[(&str, &str)] = &[
    ("listen", "0.0.0.0:9090"),
    ("tls", r#"{"cert": "tls/fullchain.pem", "key": "tls/privkey.pem"}"#),
    ("tls.cert", "tls/other.pem"),
    ("tls.key", "tls/other.pem"),
    ("data_dir", "elsewhere"),
    ("drain_grace", "5s"),
    ("store", r#"{"keep_days": 7}"#),
    ("store.url", "sqlite:other.db"),
    ("store.keep_days", "7"),
    ("store.spool", "elsewhere"),
    ("store.spool_size_max", "64MiB"),
    ("store.clickhouse", r#"{"url": "http://clickhouse:8123"}"#),
    ("store.clickhouse.url", "https://other:8443"),
    ("store.clickhouse.database", "usage"),
    ("store.clickhouse.credential", r#"{"env": "CLICKHOUSE_CREDENTIAL"}"#),
    ("store.clickhouse.ca", "tls/other.pem"),
    ("on_store_failure", "serve"),
    ("admin", r#"{"token": {"env": "FAIRGATE_ADMIN_TOKEN"}}"#),
    ("admin.token", r#"{"env": "FAIRGATE_ADMIN_TOKEN"}"#),
    ("admin.listen", "127.0.0.1:8081"),
    ("admin.viewer_token", r#"{"env": "FAIRGATE_VIEWER_TOKEN"}"#),
    ("admin.pages", "false"),
    ("journal", "{}"),
    ("journal.folder", "elsewhere"),
    ("journal.file_size_max", "1MiB"),
    ("journal.files_max", "4"),
    ("limits", r#"{"connections_max": 7}"#),
    ("limits.body_size_max", "1MB"),
    ("limits.header_timeout", "1s"),
    ("limits.body_timeout", "1s"),
    ("limits.header_size_max", "16KiB"),
    ("limits.connections_max", "7"),
    ("limits.trusted_proxies", r#"["10.0.0.0/8", "::1"]"#),
    ("limits.held_size_max", "2GiB"),
    ("limits.names_per_key_max", "7"),
    ("limits.response_ids_per_tenant_max", "7"),
    ("limits.response_id_lifetime", "2h"),
    ("limits.foreign_response_ids", "allow"),
    ("metrics", r#"{"tenants": 7}"#),
    ("metrics.tenants", "7"),
    ("fleet", r#"{"lease": "30s"}"#),
    ("fleet.window", "1h"),
    ("fleet.budget", "1000000"),
    ("fleet.min_task_guarantee", "false"),
    ("fleet.default_estimate", "7"),
    ("fleet.share", "tenant"),
    ("fleet.credit", "tokens"),
    ("fleet.agent_second_tokens", "40"),
    ("fleet.lease", "30s"),
    ("fleet.backoff", "1s"),
    ("fleet.backoff_max", "10m"),
    ("fleet.log_size_max", "64KiB"),
    ("fleet.prompt_size_max", "2MiB"),
    ("fleet.journal", "false"),
    (
        "fleet.webhooks",
        r#"[{"name": "ops", "url": "https://hooks.internal", "secret": {"env": "FAIRGATE_ADMIN_TOKEN"}}]"#,
    ),
    ("fleet.webhooks[].name", "other"),
    ("fleet.webhooks[].url", "https://elsewhere.internal"),
    ("fleet.webhooks[].secret", r#"{"file": "secrets/openai-key"}"#),
    ("fleet.webhooks[].events", r#"["blocked", "question"]"#),
    ("fleet.webhooks[].ca", "tls/company-ca.pem"),
    ("upstreams", r#"[{"name": "vllm", "url": "http://10.0.0.99"}]"#),
    ("upstreams[].name", "other"),
    ("upstreams[].url", "https://10.0.0.99"),
    ("upstreams[].dialects", r#"["anthropic"]"#),
    ("upstreams[].credential", r#"{"env": "OPENAI_API_KEY"}"#),
    ("upstreams[].aliases", r#"{"llama": "llama-fp8"}"#),
    ("upstreams[].slots", "7"),
    ("upstreams[].slots_max", "7"),
    ("upstreams[].ranks", "2"),
    ("upstreams[].taints", r#"["zone-a"]"#),
    ("upstreams[].batch_tokens", "8192"),
    ("upstreams[].tier", "1"),
    ("upstreams[].timeouts", r#"{"connect": "1s"}"#),
    ("upstreams[].timeouts.connect", "1s"),
    ("upstreams[].timeouts.first_byte", "1s"),
    ("upstreams[].timeouts.idle", "1s"),
    ("upstreams[].timeouts.total", "1s"),
    ("upstreams[].health", "{}"),
    ("upstreams[].health.path", "/ping"),
    ("upstreams[].health.every", "1s"),
    ("upstreams[].health.timeout", "1s"),
    ("upstreams[].health.unhealthy_after", "7"),
    ("upstreams[].health.healthy_after", "7"),
    ("upstreams[].metrics", "{}"),
    ("upstreams[].metrics.path", "/engine-metrics"),
    ("upstreams[].metrics.every", "2s"),
    ("upstreams[].metrics.overload_waiting", "7"),
    ("upstreams[].metrics.overload_cache", "0.95"),
    ("upstreams[].discover", "{}"),
    ("upstreams[].discover.dns", "vllm.internal"),
    ("upstreams[].discover.port", "7"),
    ("upstreams[].discover.every", "1s"),
    ("upstreams[].breaker", r#"{"failures": 7}"#),
    ("upstreams[].breaker.failures", "7"),
    ("upstreams[].breaker.open_for", "1s"),
    ("upstreams[].ca", "tls/company-ca.pem"),
    ("upstreams[].idle_connections_max", "7"),
    ("upstreams[].fields", r#"{"strip": ["seed"]}"#),
    ("upstreams[].fields.allow", r#"["priority"]"#),
    ("upstreams[].fields.strip", r#"["seed"]"#),
    ("upstreams[].fields.refuse", r#"["logprobs", "x_*"]"#),
    ("upstreams[].headers", r#"{"strip": ["x-team"]}"#),
    ("upstreams[].headers.allow", r#"["x-request-id"]"#),
    ("upstreams[].headers.strip", r#"["x-team"]"#),
    ("upstreams[].headers.refuse", r#"["x-gateway-*"]"#),
    ("upstreams[].account", "openai-main"),
    ("upstreams[].requests_per_minute", "500"),
    ("upstreams[].tokens_per_minute", "200000"),
    ("upstreams[].burst_seconds", "7"),
    ("upstreams[].probe", "false"),
    ("upstreams[].shared_limits", "true"),
    ("pools", r#"[{"name": "llama", "models": ["x"], "workers": ["vllm"], "capacity": 4}]"#),
    ("pools[].name", "other"),
    ("pools[].models", r#"["x"]"#),
    ("pools[].models[].name", "x"),
    ("pools[].models[].upstream_name", "x"),
    ("pools[].models[].hosted", "never"),
    ("pools[].models[].context_tokens", "131072"),
    ("pools[].models[].hosted_budget", r#"{"tokens_per_day": 7}"#),
    ("pools[].models[].hosted_budget.tokens_per_day", "7"),
    ("pools[].models[].hosted_budget.tokens_per_month", "7"),
    ("pools[].models[].hosted_budget.money_per_day", "7.50"),
    ("pools[].models[].hosted_budget.money_per_month", "7"),
    ("pools[].workers", r#"["vllm", "spare"]"#),
    ("pools[].leases", r#"{"ttl": "30s"}"#),
    ("pools[].leases.ttl", "30s"),
    ("pools[].leases.requests_per_minute", "7"),
    ("pools[].leases.tokens_per_minute", "7"),
    ("pools[].leases.burst_seconds", "7"),
    ("pools[].capacity", "7"),
    ("pools[].policy", r#"{"share": {"by": "tenant"}}"#),
    ("pools[].policy_file", "router-policy.yaml"),
    ("pools[].partition", "true"),
    ("pools[].max_queue", "7"),
    ("pools[].queue_timeout", "1s"),
    ("pools[].brownout", "{}"),
    ("pools[].brownout.wait", "1s"),
    ("pools[].brownout.max_tokens", "7"),
    ("pools[].retries", "7"),
    ("pools[].down_wait", "7s"),
    ("pools[].overloaded_status", "503"),
    ("pools[].cost", r#"{"input": 0.5}"#),
    ("pools[].cost.unit", "worker_time"),
    (
        "pools[].cost.prices",
        r#"{"request": 1, "input": 2, "input_input": 3, "cached": 4, "output": 5, "context_output": 6}"#,
    ),
    ("pools[].cost.prices.request", "7"),
    ("pools[].cost.prices.input", "7"),
    ("pools[].cost.prices.input_input", "7"),
    ("pools[].cost.prices.cached", "7"),
    ("pools[].cost.prices.output", "7"),
    ("pools[].cost.prices.context_output", "7"),
    ("pools[].cost.input", "0.5"),
    ("pools[].cost.cached_input", "0.5"),
    ("pools[].cost.output", "0.5"),
    ("pools[].cost.output_default", "7"),
    ("pools[].cost.max_tokens_default", "7"),
    ("pools[].cost.tokenizer", "o200k"),
    ("pools[].cost.weights_by_model", "false"),
    ("pools[].cost.files", r#"{"pdf_page_tokens": 7}"#),
    ("pools[].cost.files.pdf_page_tokens", "7"),
    ("pools[].cost.files.pdf_bytes_per_token", "7"),
    ("pools[].cost.files.image_pixels_per_token", "7"),
    ("pools[].cost.files.image_tokens_min", "7"),
    ("pools[].cost.files.image_tokens_max", "7777"),
    ("pools[].cost.files.audio_bytes_per_token", "7"),
    ("pools[].cost.files.unreadable_tokens", "7"),
    ("pools[].prefix_index", "{}"),
    ("pools[].prefix_index.scope", "tenant"),
    ("pools[].prefix_index.cache_tokens", "500000"),
    ("pools[].prefix_index.memory_max", "64MiB"),
    ("pools[].sticky_sessions", "true"),
    ("pools[].overlap_credit", "0.125"),
    ("pools[].observe", "false"),
    ("pools[].hosted_over_budget", "refuse"),
    ("prices", r#"{"currency": "EUR", "models": [{"model": "llama", "input": 7, "output": 7}]}"#),
    ("prices.currency", "EUR"),
    ("prices.models", r#"[{"model": "llama", "input": 7, "output": 7}]"#),
    ("prices.models[].model", "other"),
    ("prices.models[].upstream", "vllm"),
    ("prices.models[].input", "7"),
    ("prices.models[].cached_input", "0.075"),
    ("prices.models[].cache_write", "8.75"),
    ("prices.models[].cache_write_1h", "14"),
    ("prices.models[].output", "7"),
    ("prices.models[].request", "0.001"),
    ("prices.models[].from", "2026-11-01"),
    ("groups", r#"[{"name": "people"}]"#),
    ("groups[].name", "other"),
    ("groups[].weight", "7"),
    ("groups[].limits", r#"{"tokens_per_day": 7}"#),
    ("groups[].limits.tokens_per_day", "7"),
    ("groups[].limits.tokens_per_month", "7"),
    ("groups[].limits.money_per_day", "7"),
    ("groups[].limits.money_per_month", "7"),
    ("groups[].limits.hosted_tokens_per_day", "7"),
    ("groups[].limits.hosted_tokens_per_month", "7"),
    ("groups[].limits.hosted_money_per_day", "7"),
    ("groups[].limits.hosted_money_per_month", "7"),
    ("tenants", r#"[{"name": "chat", "group": "people"}]"#),
    ("tenants[].name", "other"),
    ("tenants[].group", "others"),
    ("tenants[].weight", "7"),
    ("tenants[].disabled", "true"),
    ("tenants[].limits", r#"{"in_flight": 7}"#),
    ("tenants[].limits.in_flight", "7"),
    ("tenants[].limits.queued_requests", "7"),
    ("tenants[].limits.queued_bytes", "7"),
    ("tenants[].limits.requests_per_minute", "7"),
    ("tenants[].limits.tokens_per_minute", "7"),
    ("tenants[].limits.tokens_per_day", "7"),
    ("tenants[].limits.tokens_per_month", "7"),
    ("tenants[].limits.money_per_day", "7"),
    ("tenants[].limits.money_per_month", "7"),
    ("tenants[].limits.hosted_tokens_per_day", "7"),
    ("tenants[].limits.hosted_tokens_per_month", "7"),
    ("tenants[].limits.hosted_money_per_day", "7"),
    ("tenants[].limits.hosted_money_per_month", "7"),
    ("tenants[].limits.hosted", "never"),
    ("tenants[].requires", r#"["docker", "machine:m1"]"#),
    ("keys", r#"[{"name": "prod", "tenant": "chat", "secret": {"env": "OPENAI_API_KEY"}}]"#),
    ("keys[].name", "other"),
    ("keys[].tenant", "batch"),
    (
        "keys[].secret",
        r#"{"hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0bbf8ea1b7dbb0a0c0ffee"}"#,
    ),
    ("keys[].weight", "7"),
    ("keys[].models", r#"["gpt-*", "llama"]"#),
    ("keys[].classes", r#"["chat"]"#),
    ("keys[].priority_max", "7"),
    ("keys[].weight_max", "2.5"),
    ("keys[].workers", r#"["vllm"]"#),
    ("keys[].may_pin", "true"),
    ("keys[].may_lease", "true"),
    ("keys[].may_use_foreign_ids", "true"),
    ("keys[].taints", r#"["zone-a"]"#),
    ("keys[].deadline", "5s"),
    ("keys[].deadline_min", "1s"),
    ("keys[].expires_at", "2099-01-01T00:00:00Z"),
    ("keys[].limits", r#"{"in_flight": 7}"#),
    ("keys[].limits.in_flight", "7"),
    ("keys[].limits.queued_requests", "7"),
    ("keys[].limits.queued_bytes", "7"),
    ("keys[].limits.requests_per_minute", "7"),
    ("keys[].limits.tokens_per_minute", "7"),
    ("keys[].limits.tokens_per_day", "7"),
    ("keys[].limits.tokens_per_month", "7"),
    ("keys[].limits.money_per_day", "7"),
    ("keys[].limits.money_per_month", "7"),
    ("keys[].limits.hosted_tokens_per_day", "7"),
    ("keys[].limits.hosted_tokens_per_month", "7"),
    ("keys[].limits.hosted_money_per_day", "7"),
    ("keys[].limits.hosted_money_per_month", "7"),
    ("keys[].limits.hosted", "never"),
];

/// Returns a configuration in which the option can be set: the shortest one, with the sections
/// around the option.
fn base(option: &str) -> Value {
    let mut base = json!({
        "upstreams": [
            {"name": "vllm", "url": "https://10.0.0.11:8000"},
            {"name": "spare", "url": "https://10.0.0.12:8000"},
        ],
        "pools": [{"name": "llama", "models": [{"name": "llama"}], "workers": ["vllm"], "capacity": 4}],
    });
    if option.starts_with("pools[].leases") {
        base["pools"] = json!([{"name": "leased", "capacity": 4, "leases": {}}]);
    }
    if option.starts_with("tls.") {
        base["tls"] = json!({"cert": "tls/fullchain.pem", "key": "tls/privkey.pem"});
    }
    let of_account =
        ["upstreams[].burst_seconds", "upstreams[].probe", "upstreams[].shared_limits"];
    if of_account.contains(&option) {
        base["upstreams"][0]["account"] = json!("openai-main");
    }
    if option == "upstreams[].name" {
        base["pools"][0]["workers"] = json!(["spare"]);
    }
    if option == "upstreams[].slots_max" {
        base["upstreams"][0]["slots"] = json!("auto");
    }
    if option == "pools[].cost.weights_by_model" {
        base["pools"][0]["policy"] = json!({"load": {"by": "tenant"}});
    }
    if option.starts_with("pools[].cost.prices") {
        base["pools"][0]["cost"] = json!({"unit": "worker_time"});
    }
    if option.starts_with("pools[].cost.prices.") {
        let prices = json!({
            "request": 1, "input": 2, "input_input": 3, "cached": 4, "output": 5, "context_output": 6,
        });
        base["pools"][0]["cost"]["prices"] = prices;
    }
    if option == "pools[].policy_file" {
        // The file's classes need these two.
        base["upstreams"][0]["batch_tokens"] = json!(8192);
        base["pools"][0]["prefix_index"] = json!({});
    }
    if option.starts_with("store.clickhouse.") {
        base["store"] = json!({"clickhouse": {"url": "https://clickhouse.internal:8443"}});
    }
    if option.starts_with("fleet.webhooks[]") {
        let secret = json!({"env": "FAIRGATE_ADMIN_TOKEN"});
        let webhook = json!({"name": "ops", "url": "https://hooks.internal", "secret": secret});
        base["fleet"] = json!({"webhooks": [webhook]});
    }
    // What is declared refers to what is declared before it.
    if ["groups[]", "tenants", "keys"].iter().any(|section| option.starts_with(section)) {
        base["groups"] = json!([{"name": "people"}]);
    }
    if option.starts_with("tenants[]") || option.starts_with("keys") {
        base["groups"] = json!([{"name": "people"}, {"name": "others"}]);
        base["tenants"] = json!([{"name": "chat", "group": "people"}]);
    }
    if option.starts_with("keys[]") {
        base["tenants"] =
            json!([{"name": "chat", "group": "people"}, {"name": "batch", "group": "people"}]);
        let secret = json!({"env": "OPENAI_API_KEY"});
        base["keys"] = json!([{"name": "prod", "tenant": "chat", "secret": secret}]);
    }
    if option == "upstreams[].tier" {
        base["upstreams"][0]["slots"] = json!(4);
    }
    if option.starts_with("prices.") || option.contains("money_per_") {
        base["pools"][0]["models"] = json!([{"name": "llama"}, {"name": "other"}]);
        let price = json!({"model": "llama", "input": 2.5, "output": 10});
        base["prices"] = json!({"currency": "USD", "models": [price]});
    }
    if option.contains(".limits.") && option.contains("money_per_") {
        let price = |model: &str| json!({"model": model, "input": 2.5, "output": 10});
        base["prices"]["models"] = json!([price("llama"), price("other")]);
    }
    if let Some((section, _)) = option.rsplit_once('.') {
        let section = at(&mut base, section);
        if section.is_null() {
            *section = json!({});
        }
    }
    base
}

/// Returns the value at a path. In a list, it follows the first element.
fn at<'a>(value: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(value, |value, step| match step.strip_suffix("[]") {
        Some(list) => &mut value[list][0],
        None => &mut value[step],
    })
}

/// Parses a text as JSON, or returns it as a string.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn with(option: &str, text: &str) -> Value {
    let mut changed = base(option);
    *at(&mut changed, option) = value(text);
    changed
}

fn read(folder: &Folder, text: &Value) -> Config {
    folder.parse(&text.to_string()).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

/// Returns the field names that the error for an unknown field lists.
fn known_at(folder: &Folder, section: &str) -> Vec<String> {
    let unknown = if section.is_empty() { "?".to_owned() } else { format!("{section}.?") };
    let mut text = base(&unknown);
    *at(&mut text, &unknown) = json!(0);
    let errors = folder.parse(&text.to_string()).expect_err("it has an unknown field");
    let list = errors.iter().find_map(|error| error.message.strip_prefix("unknown; known here: "));
    list.expect("it lists them").split(", ").map(str::to_owned).collect()
}

fn listed() -> BTreeSet<String> {
    OPTIONS.iter().map(|(option, _)| (*option).to_owned()).collect()
}

#[test]
fn every_option_that_is_known_is_listed() {
    let folder = Folder::new();
    let holders = OPTIONS.iter().filter_map(|(option, _)| Some(option.rsplit_once('.')?.0));
    let sections: BTreeSet<&str> = holders.chain([""]).collect();
    let mut known = BTreeSet::new();
    for section in sections {
        let dot = if section.is_empty() { "" } else { "." };
        known.extend(known_at(&folder, section).iter().map(|name| format!("{section}{dot}{name}")));
    }
    assert_eq!(known, listed());
}

#[test]
fn every_option_does_something() {
    let folder = Folder::new();
    for (option, sample) in OPTIONS {
        let before = read(&folder, &base(option));
        let after = read(&folder, &with(option, sample));
        assert_ne!(before, after, "{option}: {sample}");
    }
}

#[test]
fn every_option_is_documented() {
    let documented: Vec<String> = rows().into_iter().map(|row| row.option).collect();
    let once: BTreeSet<String> = documented.iter().cloned().collect();
    assert_eq!(once.len(), documented.len(), "none is documented twice");
    assert_eq!(once, listed());
}

/// Returns true for an option of a declared group, tenant or key.
fn is_declared(option: &str) -> bool {
    ["groups", "tenants", "keys"].iter().any(|section| option.starts_with(section))
}

#[test]
fn defaults_are_as_documented() {
    let folder = Folder::new();
    let mut compared = 0;
    for Row { option, default, .. } in rows() {
        let base = base(&option);
        let sample = OPTIONS.iter().find(|(name, _)| **name == option).expect("listed").1;
        match default.strip_prefix('`').and_then(|default| default.strip_suffix('`')) {
            Some("[openai]") => {
                assert_eq!(read(&folder, &with(&option, r#"["openai"]"#)), read(&folder, &base));
            }
            Some(default) => {
                let stated = read(&folder, &with(&option, default));
                assert_eq!(stated, read(&folder, &base), "{option}: {default}");
                compared += 1;
            }
            None if default.starts_with("required") => {
                let mut without = base;
                let (holder, name) = option.rsplit_once('.').unwrap_or(("", &option));
                let holder =
                    if holder.is_empty() { &mut without } else { at(&mut without, holder) };
                holder.as_object_mut().expect("a mapping").remove(name).expect("it was there");
                let errors = folder.parse(&without.to_string()).expect_err("it is required");
                assert!(errors.to_string().contains("is missing: "), "{option}: {errors}");
            }
            // What is none or off by default is so before it is set.
            None if default == "none" || default == "off" => {
                let before = read(&folder, &base);
                let words = match folder.reload(&before, &with(&option, sample).to_string()) {
                    Ok(plan) => plan.changes.iter().map(ToString::to_string).collect(),
                    Err(errors) => errors.to_string(),
                };
                let found = match &*option {
                    "pools[].models[].upstream_name" => words.contains("llama → llama as x"),
                    "pools[].models[].context_tokens" => {
                        words.contains("llama → llama reads 131072 tokens")
                    }
                    "pools[].brownout" => words.contains("none → 750ms"),
                    // A declared object is one setting.
                    declared if declared.contains("s[].") && is_declared(declared) => {
                        words.contains("weight 100 → weight 100, ")
                            || words.contains("weight 100 → group people, weight 100, ")
                            || words.contains(", weight 100 → group people, weight 100, ")
                    }
                    budget if budget.contains(".hosted_budget.") => {
                        words.contains(" → llama hosted up to 7")
                    }
                    _ => words.contains(&format!("{default} → ")),
                };
                assert!(found, "{option}: {words}");
            }
            None => {
                let others = [
                    "upstreams[].discover.dns",
                    "upstreams[].discover.port",
                    "pools[].leases",
                    "pools[].capacity",
                    "pools[].policy",
                    "prices.models[].cached_input",
                    "prices.models[].cache_write",
                    "prices.models[].cache_write_1h",
                ];
                assert!(others.contains(&&*option), "{option}");
            }
        }
    }
    assert!(compared > 35, "defaults were found: {compared}");
}

#[test]
fn what_needs_a_restart_is_as_documented() {
    let folder = Folder::new();
    for Row { option, change, .. } in rows() {
        let before = read(&folder, &base(&option));
        let sample = OPTIONS.iter().find(|(name, _)| **name == option).expect("listed").1;
        match folder.reload(&before, &with(&option, sample).to_string()) {
            Ok(plan) => {
                assert_eq!(change, "live", "{option}");
                assert!(!plan.is_empty(), "{option}: the plan says nothing");
            }
            Err(errors) => assert_eq!(change, "restart", "{option}: {errors}"),
        }
    }
}

#[test]
fn capacity_is_the_sum_of_slots_unless_it_is_stated() {
    let folder = Folder::new();
    let mut text = base("");
    text["upstreams"][0]["slots"] = json!(16);
    text["upstreams"][1]["slots"] = json!(8);
    text["pools"][0]["workers"] = json!(["vllm", "spare"]);
    assert_eq!(read(&folder, &text).pools[0].capacity, 4);
    text["pools"][0].as_object_mut().expect("a pool").remove("capacity");
    let pool = &read(&folder, &text).pools[0];
    assert_eq!((pool.capacity, pool.follows_slots), (24, true));
    text["upstreams"][1]["slots"] = json!("auto");
    assert_eq!(read(&folder, &text).pools[0].capacity, 24, "it begins with 8");
}

#[test]
fn slots_that_follow_the_engine_bring_its_metrics_with_them() {
    let folder = Folder::new();
    let mut text = base("");
    text["upstreams"][0]["slots"] = json!("auto");
    let vllm = read(&folder, &text).upstreams[0].clone();
    assert_eq!((vllm.slots, vllm.auto_slots.map(|auto| auto.most)), (Some(8), Some(256)));
    assert_eq!(vllm.metrics.map(|metrics| metrics.path).as_deref(), Some("/metrics"));
    text["upstreams"][0]["slots_max"] = json!(4);
    assert_eq!(read(&folder, &text).upstreams[0].slots, Some(4));
}

#[test]
fn what_is_looked_up_is_the_host_of_the_url_unless_it_is_stated() {
    let folder = Folder::new();
    let mut text = base("");
    text["upstreams"][0]["url"] = json!("http://vllm.internal:8000");
    text["upstreams"][0]["discover"] = json!({});
    let discover = read(&folder, &text).upstreams[0].discover.clone().expect("it is on");
    assert_eq!((discover.dns.as_str(), discover.port), ("vllm.internal", 8000));
}
