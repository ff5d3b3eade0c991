//! Tests of the router: prompts go to the worker that has their prefix cached, classes follow from
//! the uncached tokens, and the index of a worker ends with the worker's process.

mod oracle;
mod replayed;
mod uncached;

use std::path::Path;
use std::time::Duration;

use fairgate_config::{Config, MetricsConfig, OverloadConfig, PrefixIndexConfig, PrefixScope};
use fairgate_proxy::pools::{CacheSizeView, CacheView};
use fairgate_sim::{OutputLength, Sim, SimOptions};
use fairgate_store::{DirectoryLimits, KeyRights};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{get, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, House, beside, config, house_in, house_with};

const CHAT: &str = "/v1/chat/completions";

fn index(scope: PrefixScope) -> Option<PrefixIndexConfig> {
    Some(PrefixIndexConfig { scope, cache_tokens: 100_000, memory_bytes_max: 8 << 20 })
}

/// Starts a backend with a prefix cache.
fn caching(addr: std::net::SocketAddr) -> Sim {
    let options = SimOptions {
        slots: 64,
        prefix_cache_blocks: 100_000,
        output_tokens: OutputLength::exactly(8),
        ..SimOptions::instant()
    };
    Sim::start(addr, options).unwrap()
}

/// Returns a conversation about a topic: a long system prompt, and this number of turns.
fn conversation(topic: &str, turns: usize) -> Value {
    let mut messages = vec![json!({"role": "system", "content": format!("{topic} ").repeat(600)})];
    for turn in 0..turns {
        messages.push(json!({"role": "user", "content": format!("question {turn}")}));
        messages.push(json!({"role": "assistant", "content": format!("answer {turn}")}));
    }
    messages.push(json!({"role": "user", "content": "and now?"}));
    json!({"model": "sim", "messages": messages, "max_tokens": 8})
}

/// Sends a request, and returns the worker, the cached tokens and the class of its row.
async fn ask(house: &House, key: &str, body: &Value, pin: Option<&str>) -> (String, u64, String) {
    let mut question = post(CHAT, body).key(key);
    if let Some(worker) = pin {
        question = question.header("x-fairgate-worker", worker);
    }
    let answer = question.ask(house.gateway.addr()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let row = house.rows().await.pop().unwrap();
    (row.worker.unwrap(), row.cached_tokens, row.class.unwrap_or_default())
}

#[tokio::test]
async fn a_conversation_goes_on_where_its_prefix_is_until_that_process_ends() {
    let addr = ([127, 0, 0, 1], 0).into();
    let (first, second) = (caching(addr), caching(addr));
    let every = Duration::from_millis(50);
    let house = house_with(&first.url(), |config| {
        let other = beside(config, "b", &second.url());
        config.upstreams.push(other);
        for upstream in &mut config.upstreams {
            let overload = OverloadConfig::default();
            upstream.metrics = Some(MetricsConfig { path: "/metrics".into(), every, overload });
        }
        config.pools[0].workers.push("b".into());
        config.pools[0].prefix_index = index(PrefixScope::Pool);
    })
    .await;
    let rights = KeyRights { may_pin: true, ..KeyRights::default() };
    let key = house.key_with("acme", DirectoryLimits::default(), rights).await;
    let (worker, cached, _) = ask(&house, &key, &conversation("rivers", 0), Some("b")).await;
    assert_eq!((worker.as_str(), cached), ("b", 0));
    // Both workers are idle, and `b` came last: only its cache speaks for it.
    let (worker, cached, _) = ask(&house, &key, &conversation("rivers", 1), None).await;
    assert_eq!(worker, "b");
    assert!(cached > 500, "{cached}");
    assert_eq!(ask(&house, &key, &conversation("deserts", 0), None).await.0, "sim");

    // Another process at the same address has another cache.
    let addr = second.addr();
    second.stop().await;
    let second = caching(addr);
    let forgotten = async || {
        let (worker, cached, _) = ask(&house, &key, &conversation("rivers", 1), None).await;
        assert!(cached == 0 || worker == "sim", "{worker} has {cached} tokens of another process");
        worker == "sim"
    };
    let deadline = tokio::time::Instant::now() + crate::support::SOON;
    while !forgotten().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the index still believes in a cache that is gone"
        );
        tokio::time::sleep(every).await;
    }
    house.close().await;
    first.stop().await;
    second.stop().await;
}

const POLICY: &str = "default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: cached}, {min_tokens: 300, bucket: uncached}]
policy_classes:
  - {name: short, policy_family: standard, cache_bucket: cached, quantum: 2048, queue_policy: wspt}
  - {name: long, policy_family: standard, cache_bucket: uncached, quantum: 512}
  - {name: urgent, quantum: 4096}
";

/// Returns the embedded configuration with the classes of that policy.
fn with_policy(folder: &Folder, url: &str) -> Config {
    std::fs::write(folder.0.join("policy.yaml"), POLICY).unwrap();
    let text = format!(
        "upstreams: [{{name: sim, url: \"{url}\", slots: 8}}]\n\
         pools: [{{name: sim, models: [{{name: sim}}], workers: [sim], policy_file: policy.yaml, prefix_index: {{}}}}]\n"
    );
    let path = folder.0.join("fairgate.yaml");
    std::fs::write(&path, text).unwrap();
    let read = Config::from_file(Path::new(&path), &fairgate_config::ProcessEnvironment).unwrap();
    Config { upstreams: read.upstreams, pools: read.pools, ..config(folder, url) }
}

#[tokio::test]
async fn the_class_follows_from_what_is_not_cached_and_from_what_the_request_names() {
    let sim = caching(([127, 0, 0, 1], 0).into());
    let folder = Folder::new();
    let config = with_policy(&folder, &sim.url());
    let house = house_in(folder, config, DirectoryLimits::default()).await;
    let key = house.key.clone();
    let class = async |body: &Value, named: Option<&str>| {
        let mut question = post(CHAT, body).key(&key);
        if let Some(name) = named {
            question = question.header("x-fairgate-class", name);
        }
        let answer = question.ask(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        let row = house.rows().await.pop().unwrap();
        (row.class.unwrap(), row.estimate)
    };
    let (long, cost) = class(&conversation("rivers", 0), None).await;
    assert_eq!(long, "long");
    assert!(cost > 300, "the cost of a Dynamo file is its uncached input: {cost}");
    // The next turn has nearly all of its prompt cached.
    let (short, cost) = class(&conversation("rivers", 1), None).await;
    assert_eq!(short, "short");
    assert!(cost < 300, "{cost}");
    assert_eq!(class(&conversation("lakes", 0), Some("urgent")).await.0, "urgent");
    // As in Dynamo, what the file does not have is the default family; the name of a cell's class is no name to use.
    assert_eq!(class(&conversation("seas", 0), Some("elsewhere")).await.0, "long");
    assert_eq!(class(&conversation("hills", 0), Some("short")).await.0, "long");
    // Who may use a family sees it as one row: its classes differ by what is cached, also by other tenants.
    let family = house.key("acme", DirectoryLimits::default(), &["standard"]).await;
    let me = get("/api/v1/me").key(&family).ask(house.gateway.addr()).await.json();
    let mine = me["pools"][0]["classes"].as_array().unwrap();
    let mine: Vec<&str> = mine.iter().map(|class| class["name"].as_str().unwrap()).collect();
    assert_eq!(mine, ["standard"]);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn tenants_that_do_not_share_caches_have_salts_of_their_own() {
    let mut engine = Scripted::start().await;
    let house = house_with(&engine.url(), |config| {
        config.pools[0].prefix_index = index(PrefixScope::Tenant);
    })
    .await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let mut salt = async |key: &str, own: Option<&str>| {
        let mut body = conversation("rivers", 0);
        if let Some(own) = own {
            body["cache_salt"] = own.into();
        }
        let (question, addr) = (post(CHAT, &body).key(key), house.gateway.addr());
        let asked = tokio::spawn(async move { question.ask(addr).await });
        let call = engine.call().await;
        let sent: Value = serde_json::from_slice(call.request.body()).unwrap();
        let text = String::from_utf8(call.request.body().to_vec()).unwrap();
        assert_eq!(text.matches("cache_salt").count(), 1);
        call.answer(
            200,
            "application/json",
            r#"{"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
        );
        assert_eq!(asked.await.unwrap().status, StatusCode::OK);
        sent["cache_salt"].as_str().unwrap().to_owned()
    };
    let mine = salt(&house.key, None).await;
    assert_eq!(mine.len(), 32);
    assert_eq!(salt(&house.key, None).await, mine);
    assert_ne!(salt(&other, None).await, mine);
    // A client's own salt goes on keeping apart what it kept apart.
    assert!(![mine.as_str(), "x"].contains(&salt(&house.key, Some("x")).await.as_str()));
    // A provider knows no salts, and some refuse a field that they do not know.
    let mut hosted = (*house.gateway.data_plane().config.load_full()).clone();
    (hosted.upstreams[0].tier, hosted.upstreams[0].slots) = (1, Some(8));
    house.gateway.reload(hosted).await.unwrap();
    let (question, addr) =
        (post(CHAT, &conversation("rivers", 0)).key(&house.key), house.gateway.addr());
    let asked = tokio::spawn(async move { question.ask(addr).await });
    let call = engine.call().await;
    assert!(!String::from_utf8_lossy(call.request.body()).contains("cache_salt"));
    call.answer(200, "application/json", "{}");
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    house.close().await;
}

/// Returns the assumed cache hits of the workers: input, cached and expected tokens by worker.
fn hits(house: &House) -> Vec<(String, Option<CacheView>)> {
    house.gateway.data_plane().pools.all()[0]
        .workers()
        .into_iter()
        .map(|worker| (worker.name, worker.cache))
        .collect()
}

#[tokio::test]
async fn hit_rates_show_whether_the_index_is_right() {
    let addr = ([127, 0, 0, 1], 0).into();
    let sim = caching(addr);
    let house = house_with(&sim.url(), |config| {
        config.pools[0].prefix_index = index(PrefixScope::Pool);
    })
    .await;
    assert_eq!(hits(&house), [("sim".to_owned(), None)]);
    let key = house.key.clone();
    let (_, cached, _) = ask(&house, &key, &conversation("rivers", 0), None).await;
    assert_eq!(cached, 0);
    let (_, cached, _) = ask(&house, &key, &conversation("rivers", 1), None).await;
    let view = hits(&house)[0].1.unwrap();
    let input: u64 = house.rows().await.iter().map(|row| row.input_tokens).sum();
    assert_eq!((view.input, view.cached), (input, cached));
    let expected = view.expected.unwrap();
    assert!(cached > 500 && expected.abs_diff(cached) * 20 < cached, "{expected} of {cached}");
    let app = house.gateway.data_plane();
    let text =
        fairgate_control::metrics::render(&app.metrics, &app.pools.all(), &[], &[], None, false)
            .await;
    let labels = r#"{pool="sim",worker="sim"}"#;
    for line in [
        format!("fairgate_worker_input_tokens_total{labels} {input}"),
        format!("fairgate_worker_cached_tokens_total{labels} {cached}"),
        format!("fairgate_worker_cached_expected_tokens_total{labels} {expected}"),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_cache_that_is_smaller_than_believed_is_learned_and_shown() {
    // Room for one of the conversations.
    let options = SimOptions {
        slots: 64,
        prefix_cache_blocks: 60,
        output_tokens: OutputLength::exactly(8),
        ..SimOptions::instant()
    };
    let sim = Sim::start(([127, 0, 0, 1], 0).into(), options).unwrap();
    let believed = 10_000;
    let house = house_with(&sim.url(), |config| {
        config.pools[0].prefix_index = index(PrefixScope::Pool)
            .map(|index| PrefixIndexConfig { cache_tokens: believed, ..index });
    })
    .await;
    let size = |house: &House| {
        let workers = house.gateway.data_plane().pools.all()[0].workers();
        workers[0].cache_size.unwrap()
    };
    assert_eq!(size(&house), CacheSizeView { believed, learned: None });
    let key = house.key.clone();
    for _ in 0..3 {
        for topic in ["rivers", "deserts", "lakes", "hills"] {
            assert_eq!(ask(&house, &key, &conversation(topic, 0), None).await.1, 0, "{topic}");
        }
    }
    let learned = size(&house).learned.expect("what was sent four prompts ago is never cached");
    assert!((300..5000).contains(&learned), "{learned}");

    let app = house.gateway.data_plane();
    let text =
        fairgate_control::metrics::render(&app.metrics, &app.pools.all(), &[], &[], None, false)
            .await;
    let labels = r#"{pool="sim",worker="sim"}"#;
    for line in [
        format!("fairgate_worker_cache_believed_tokens{labels} {believed}"),
        format!("fairgate_worker_cache_learned_tokens{labels} {learned}"),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    house.close().await;
    sim.stop().await;
}

/// Sends a request of a session, and returns the worker.
async fn ask_in(house: &House, session: &str, body: &Value) -> String {
    let question = post(CHAT, body).key(&house.key).header("x-fairgate-session", session);
    let answer = question.ask(house.gateway.addr()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    house.rows().await.pop().unwrap().worker.unwrap()
}

#[tokio::test]
async fn a_session_stays_on_its_worker_as_long_as_that_one_is_reached_and_not_loaded() {
    let mut first = Scripted::start().await;
    let second = caching(([127, 0, 0, 1], 0).into());
    let house = house_with(&first.url(), |config| {
        let other = beside(config, "b", &second.url());
        config.upstreams.push(other);
        config.pools[0].workers.push("b".into());
        config.pools[0].sticky_sessions = true;
        config.pools[0].retries = 0;
    })
    .await;
    let addr = house.gateway.addr();
    // While the first worker has something to do, a session begins on the second.
    let long = post(CHAT, &conversation("seas", 0)).key(&house.key);
    let busy = tokio::spawn(async move { long.ask(addr).await });
    let held = first.call().await;
    assert_eq!(ask_in(&house, "chat", &conversation("rivers", 0)).await, "b");
    let usage = r#"{"usage":{"prompt_tokens":9,"completion_tokens":1}}"#;
    held.answer(200, "application/json", usage);
    assert_eq!(busy.await.unwrap().status, StatusCode::OK);
    // Both are idle, and the first one came first: only the session speaks for the second.
    assert_eq!(ask_in(&house, "chat", &conversation("rivers", 1)).await, "b");
    let estimates: Vec<u64> = house.rows().await.iter().map(|row| row.estimate).collect();
    assert!(estimates[2] > 300, "a session is no discount: {estimates:?}");
    // What no session, or another one, asks for goes to the first.
    let other = post(CHAT, &conversation("rivers", 1)).key(&house.key);
    let other = other.header("x-fairgate-session", "another");
    let asked = tokio::spawn(async move { other.ask(addr).await });
    first.call().await.answer(200, "application/json", usage);
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);

    // A worker that cannot be reached has lost what it held: nothing else says so, as nobody reads its metrics.
    let there = second.addr();
    second.stop().await;
    let question = post(CHAT, &conversation("rivers", 2)).key(&house.key);
    let answer = question.header("x-fairgate-session", "chat").ask(addr).await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.text());
    let second = caching(there);
    let question = post(CHAT, &conversation("rivers", 2)).key(&house.key);
    let question = question.header("x-fairgate-session", "chat");
    let asked = tokio::spawn(async move { question.ask(addr).await });
    first.call().await.answer(200, "application/json", usage);
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    house.close().await;
    second.stop().await;
}

#[tokio::test]
async fn the_index_forgets_a_worker_that_cannot_be_reached() {
    let addr = ([127, 0, 0, 1], 0).into();
    let (first, second) = (caching(addr), caching(addr));
    let house = house_with(&first.url(), |config| {
        let other = beside(config, "b", &second.url());
        config.upstreams.push(other);
        config.pools[0].workers.push("b".into());
        config.pools[0].prefix_index = index(PrefixScope::Pool);
        config.pools[0].retries = 0;
    })
    .await;
    let rights = KeyRights { may_pin: true, ..KeyRights::default() };
    let key = house.key_with("acme", DirectoryLimits::default(), rights).await;
    assert_eq!(ask(&house, &key, &conversation("rivers", 0), Some("b")).await.0, "b");
    assert_eq!(ask(&house, &key, &conversation("rivers", 1), None).await.0, "b");
    let there = second.addr();
    second.stop().await;
    let question = post(CHAT, &conversation("rivers", 1)).key(&key);
    assert_eq!(question.ask(house.gateway.addr()).await.status, StatusCode::BAD_GATEWAY);
    let second = caching(there);
    assert_eq!(ask(&house, &key, &conversation("rivers", 1), None).await.0, "sim");
    house.close().await;
    first.stop().await;
    second.stop().await;
}
