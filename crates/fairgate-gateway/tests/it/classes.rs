//! Tests of policy classes over sockets, with one worker of one slot. The order of requests is that
//! of Dynamo's router. Also tests a prompt that all clients send, with several workers.

use std::path::Path;
use std::time::Duration;

use fairgate_config::{Config, PolicyFile, PrefixIndexConfig, PrefixScope, Tokenizer};
use fairgate_sim::{OutputLength, Sim, SimOptions};
use fairgate_store::DirectoryLimits;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::client::post;
use crate::support::scripted::{Call, Scripted};
use crate::support::{Folder, House, beside, config, house_in, house_with};

const COMPLETIONS: &str = "/v1/completions";

/// Returns a policy with explicit classes A, B and so on with these quanta. Requests that name no
/// class are in `other`, which is the last in the round.
fn policy(quanta: &[u64]) -> String {
    let mut text = "default_policy_family: other\n\
                    uncached_isl_buckets: [{min_tokens: 0, bucket: any}]\n\
                    policy_classes:\n"
        .to_owned();
    for (name, quantum) in names().zip(quanta) {
        text += &format!("  - {{name: {name}, quantum: {quantum}}}\n");
    }
    text + "  - {name: other, policy_family: other, cache_bucket: any, quantum: 1}\n"
}

fn names() -> impl Iterator<Item = char> {
    'A'..='Z'
}

/// Returns the configuration of a pool with one slot and these classes. Requests cost their input
/// tokens, as the tokenizer counts them.
fn one_slot(folder: &Folder, url: &str, quanta: &[u64]) -> Config {
    let mut config = config(folder, url);
    let file = PolicyFile::parse(&policy(quanta), Path::new("policy.yaml")).unwrap();
    let pool = &mut config.pools[0];
    pool.capacity = 1;
    let classes = file.root.unwrap();
    pool.policy = classes.policy();
    pool.classes = Some(classes);
    pool.cost.tokenizer = Tokenizer::O200k;
    (pool.cost.cached_milli, pool.cost.output_milli) = (0, 0);
    config
}

/// Returns a request whose prompt has exactly this number of tokens.
fn prompt(class: &str, tokens: usize) -> Value {
    json!({"model": "sim", "prompt": vec![7; tokens], "max_tokens": 1, "user": class})
}

/// Answers a request, and returns its class.
fn answer(call: Call) -> String {
    let body: Value = serde_json::from_slice(call.request.body()).unwrap();
    let tokens = body["prompt"].as_array().unwrap().len();
    let usage = json!({"prompt_tokens": tokens, "completion_tokens": 1});
    call.answer(200, "application/json", json!({"usage": usage}).to_string());
    body["user"].as_str().unwrap().to_owned()
}

/// Queues this number of requests of each class with these costs behind another request. Returns
/// the order in which they are served.
async fn order(quanta: &[u64], costs: &[(usize, usize)]) -> String {
    let mut engine = Scripted::start().await;
    let folder = Folder::new();
    let config = one_slot(&folder, &engine.url(), quanta);
    let house = house_in(folder, config, DirectoryLimits::default()).await;
    let mut asked = JoinSet::new();
    let mut ask = |class: &str, tokens: usize| {
        let question = post(COMPLETIONS, &prompt(class, tokens)).key(&house.key);
        let question = question.header("x-fairgate-class", class);
        let addr = house.gateway.addr();
        asked.spawn(async move { question.ask(addr).await.status });
    };
    ask("other", 1);
    let first = engine.call().await;
    let mut queued = 0;
    for (name, (cost, count)) in names().zip(costs) {
        for _ in 0..*count {
            ask(&name.to_string(), *cost);
        }
        queued += *count;
        house.until(|live| live.waiting == queued as u64).await;
    }
    assert_eq!(answer(first), "other");
    let mut order = String::new();
    for _ in 0..queued {
        let call = engine.call().await;
        assert!(!engine.has_call(), "there is one slot");
        order += &answer(call);
    }
    while let Some(status) = asked.join_next().await {
        assert_eq!(status.unwrap(), StatusCode::OK);
    }
    let stated = |class: &str| {
        let at = names().position(|name| class == name.to_string());
        at.map_or(1, |at| costs[at].0 as u64)
    };
    for row in house.rows().await {
        assert_eq!(row.estimate, stated(row.class.as_deref().unwrap()), "a cost is the input");
    }
    house.close().await;
    order
}

#[tokio::test]
async fn drr_gives_the_orders_of_the_published_router() {
    let equal = order(&[10, 10], &[(3, 8), (3, 8)]).await;
    assert_eq!(equal, "AAABBBAAABBBAABB");
    assert_eq!(order(&[1000, 2000], &[(7000, 2), (9000, 2)]).await, "BABA");
    assert_eq!(order(&[512, 128], &[(512, 10), (512, 4)]).await, "AAAABAAAABAABB");
    let three = order(&[100, 50, 25], &[(80, 6), (60, 4), (200, 2)]).await;
    assert_eq!(three, "AABABAABABCC");
    assert_eq!(order(&[4, 4], &[(101, 1), (1, 12)]).await, "BBBBBBBBBBBBA");
    assert_eq!(order(&[1, 3], &[(1, 6), (1, 18)]).await, "ABBB".repeat(6));
}

#[tokio::test]
async fn drr_gives_four_to_one_over_many_requests() {
    let order = order(&[512, 128], &[(64, 320), (64, 320)]).await;
    let first = order[..320].matches('A').count();
    assert!((254..=257).contains(&first), "{first} to {}", 320 - first);
}

/// Starts a worker with a cache that takes 100 µs for each uncached token.
fn caching() -> Sim {
    let options = SimOptions {
        slots: 1024,
        prefix_cache_blocks: 100_000,
        prefill_per_token: Duration::from_micros(100),
        decode_per_token: Duration::from_millis(1),
        output_tokens: OutputLength::exactly(8),
        ..SimOptions::instant()
    };
    Sim::start(([127, 0, 0, 1], 0).into(), options).unwrap()
}

/// Returns a prompt of 2000 tokens that all clients send, and about 200 tokens of its own.
fn hot(number: usize) -> Value {
    let own = format!("{number} ").repeat(800 / (number.to_string().len() + 1));
    json!({
        "model": "sim",
        "messages": [
            {"role": "system", "content": "the same for everybody. ".repeat(8000 / 24)},
            {"role": "user", "content": own},
        ],
        "max_tokens": 8, "stream": true,
    })
}

async fn ask_all(house: &House, clients: usize, each: usize) {
    let mut asking = JoinSet::new();
    for client in 0..clients {
        let (key, addr) = (house.key.clone(), house.gateway.addr());
        asking.spawn(async move {
            for request in 0..each {
                let body = hot(client * each + request);
                let answer = post("/v1/chat/completions", &body).key(&key).ask(addr).await;
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            }
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.unwrap();
    }
}

#[tokio::test]
async fn a_hot_prefix_is_spread_over_all_workers_under_load() {
    let sims = [caching(), caching(), caching(), caching()];
    let house = house_with(&sims[0].url(), |config| {
        config.upstreams[0].slots = None;
        for (number, sim) in sims.iter().enumerate().skip(1) {
            let other = beside(config, &format!("w{number}"), &sim.url());
            config.pools[0].workers.push(other.name.clone());
            config.upstreams.push(other);
        }
        // No slots bind: only the placement spreads the load.
        config.pools[0].capacity = 1000;
        config.pools[0].prefix_index = Some(PrefixIndexConfig {
            scope: PrefixScope::Pool,
            cache_tokens: 1_000_000,
            memory_bytes_max: 64 << 20,
        });
    })
    .await;
    // One client alone stays where its prompt is: another worker would have 2 000 tokens more to work on.
    ask_all(&house, 1, 8).await;
    let rows = house.rows().await;
    assert!(rows.iter().all(|row| row.worker.as_deref() == Some("sim")), "{rows:?}");
    ask_all(&house, 64, 8).await;
    let rows = house.rows().await;
    let mut requests = [0; 4];
    for row in &rows[8..] {
        let worker = row.worker.as_deref().unwrap();
        requests[worker.strip_prefix('w').map_or(0, |number| number.parse().unwrap())] += 1;
    }
    let (input, cached) = rows.iter().fold((0, 0), |(input, cached), row| {
        (input + row.input_tokens, cached + row.cached_tokens)
    });
    eprintln!("requests by worker: {requests:?}; {cached} of {input} input tokens were cached");
    let least = requests.iter().min().unwrap();
    assert!(*least * 8 >= 64 * 8, "an eighth of all, at least: {requests:?}");
    assert!(cached * 10 > input * 7, "{cached} of {input}");
    house.close().await;
    for sim in sims {
        sim.stop().await;
    }
}
