//! Test of a worker whose prices are learned while two tenants keep it full, over real sockets.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairgate_config::CostUnit;
use fairgate_store::{AuditQuery, DirectoryLimits};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use crate::support::client::{Question, get, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{House, SOON, house_with};
use crate::worker_time::{CHAT, replayed, served, snapshot};

/// Slots of the engine.
const SLOTS: u64 = 16;
/// Length of a run, and of its last part, in which shares are measured.
struct RunLength {
    all: Duration,
    measured: Duration,
}

/// The length that the whole suite has time for. Virtual time has the long runs: `fairgate-price` simulates five minutes
/// of each kind of load.
const SHORT: RunLength =
    RunLength { all: Duration::from_secs(26), measured: Duration::from_secs(12) };
/// The length for which the shares are promised: a minute, of which the second half counts.
const MINUTE: RunLength =
    RunLength { all: Duration::from_secs(60), measured: Duration::from_secs(30) };
/// Milliseconds that the engine takes for a step, a prompt, a token of it, and a token of context in a step.
const STEP_MS: f64 = 10.0;
const PROMPT_MS: f64 = 6.0;
const INPUT_MS: f64 = 0.02;
const CONTEXT_MS: f64 = 0.0001;

/// Tenants with the input and output tokens of their requests. The first tenant has long prompts,
/// the second long answers.
const TENANTS: [(&str, u64, u64); 2] = [("acme", 2000, 8), ("writes", 100, 128)];

/// A request that the engine decodes.
struct Decoding {
    tenant: usize,
    input: u64,
    left: u64,
    output: u64,
    pieces: UnboundedSender<Bytes>,
}

/// Time of the engine in milliseconds, by tenant.
type SpentTime = Arc<Mutex<[f64; 2]>>;

/// An engine that decodes all its requests in steps, and reads one prompt between two steps.
async fn engine(mut upstream: Scripted, spent: SpentTime) {
    let (mut prompts, mut decoding) = (Vec::new(), Vec::<Decoding>::new());
    loop {
        while upstream.has_call() || (prompts.is_empty() && decoding.is_empty()) {
            prompts.push(upstream.call_whenever().await);
        }
        let began = Instant::now();
        let read = (!prompts.is_empty()).then(|| arrived(prompts.remove(0)));
        let read_ms = read.as_ref().map_or(0.0, |it| PROMPT_MS + INPUT_MS * it.input as f64);
        let context: u64 = decoding.iter().map(|it| it.input + it.output - it.left).sum();
        let step_ms = match decoding.is_empty() {
            true => 0.0,
            false => STEP_MS + CONTEXT_MS * context as f64,
        };
        tokio::time::sleep(Duration::from_secs_f64((read_ms + step_ms) / 1e3)).await;
        // A machine with other work wakes it late; that is its time too.
        let late = began.elapsed().as_secs_f64() * 1e3 / (read_ms + step_ms);
        {
            let mut spent = spent.lock().unwrap();
            if let Some(read) = &read {
                spent[read.tenant] += read_ms * late;
            }
            for one in &decoding {
                spent[one.tenant] += step_ms * late / decoding.len() as f64;
            }
        }
        decoding.extend(read);
        decoding.retain_mut(write_token);
    }
}

/// Takes over a request. Its text names its tenant.
fn arrived(call: Call) -> Decoding {
    let body: Value = serde_json::from_slice(call.request.body()).unwrap();
    let text = body["messages"][0]["content"].as_str().unwrap();
    let tenant = TENANTS.iter().position(|(name, ..)| text.starts_with(name)).unwrap();
    let (_, input, output) = TENANTS[tenant];
    let pieces = call.stream("text/event-stream");
    Decoding { tenant, input, left: output, output, pieces }
}

/// Writes one token. Returns false after the last one.
fn write_token(one: &mut Decoding) -> bool {
    one.left -= 1;
    let choice = json!({"index": 0, "delta": {"content": "so "}, "finish_reason": null});
    let _ = one.pieces.send(format!("data: {}\n\n", json!({"choices": [choice]})).into());
    if one.left > 0 {
        return true;
    }
    let usage = json!({
        "prompt_tokens": one.input, "completion_tokens": one.output,
        "total_tokens": one.input + one.output, "prompt_tokens_details": {"cached_tokens": 0},
    });
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let usage = json!({"choices": [], "usage": usage});
    let _ = one.pieces.send(format!("data: {end}\n\ndata: {usage}\n\ndata: [DONE]\n\n").into());
    false
}

/// Returns a request of a tenant, with a text of about as many tokens as the engine will count.
fn question(tenant: usize, key: &str) -> Question {
    let (name, input, _) = TENANTS[tenant];
    let text = format!("{name} {}", "rivers ".repeat(usize::try_from(input).unwrap() * 4 / 7));
    let messages = json!([{"role": "user", "content": text}]);
    let body = json!({"model": "sim", "stream": true, "messages": messages, "max_tokens": 200});
    post(CHAT, &body).key(key)
}

async fn calibration(house: &House) -> Value {
    let path = "/api/v1/pools/sim/calibration";
    get(path).key("admin").ask(house.gateway.addr()).await.json()
}

/// Learned prices give both tenants the same part of the engine's time. The prices change several
/// times during the run. The journal leads to the same state, rows name their prices, and the audit
/// trail has these prices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn learned_prices_give_equal_parts_of_the_engine() {
    equal_parts(SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute: cargo xtask test long"]
async fn learned_prices_give_equal_parts_of_the_engine_for_a_minute() {
    equal_parts(MINUTE).await;
}

async fn equal_parts(run: RunLength) {
    let upstream = Scripted::start().await;
    let (url, spent) = (upstream.url(), SpentTime::default());
    let running = tokio::spawn(engine(upstream, spent.clone()));
    let house = house_with(&url, |config| {
        config.pools[0].cost.unit = CostUnit::WorkerTime;
        config.pools[0].capacity = SLOTS;
        config.upstreams[0].slots = Some(SLOTS);
    })
    .await;
    let writes = house.tenant("writes", DirectoryLimits::default()).await;
    let (addr, is_over) = (house.gateway.addr(), Arc::new(AtomicBool::new(false)));
    let mut clients = Vec::new();
    for (tenant, key) in [house.key.clone(), writes].iter().enumerate() {
        for _ in 0..SLOTS + 4 {
            let (question, is_over) = (question(tenant, key), is_over.clone());
            clients.push(tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(question.ask(addr).await.status, StatusCode::OK);
                }
            }));
        }
    }
    tokio::time::sleep(run.all - run.measured).await;
    let before = *spent.lock().unwrap();
    tokio::time::sleep(run.measured).await;
    let after = *spent.lock().unwrap();
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    house.quiet().await;
    let [first, second] = [0, 1].map(|tenant| after[tenant] - before[tenant]);
    let calibration = calibration(&house).await;
    let part = 100.0 * first / (first + second);
    assert!((47.5..=52.5).contains(&part), "{part:.2} % of the engine\n{calibration:#}");
    assert_eq!(calibration["workers"][0]["learning"], "learning", "{calibration:#}");
    prices_are_named(&house).await;
    let state = snapshot(&house).await;
    let folder = house.folder;
    house.gateway.drain(SOON).await;
    let (_, replayed) = replayed(&folder);
    assert_eq!(served(&replayed), served(&state));
    assert_eq!((replayed.ticks, replayed.requests.len()), (state.ticks, 0));
    running.abort();
}

/// Checks that there was more than one price set, that each row names one, and that the audit trail
/// has each.
async fn prices_are_named(house: &House) {
    house.gateway.data_plane().write_price_sets().await.unwrap();
    let query = AuditQuery { action: Some("worker_prices.set".into()), ..AuditQuery::default() };
    let sets = house.store.audit(query).await.unwrap();
    let known: BTreeSet<String> = sets
        .iter()
        .map(|entry| entry.after.as_ref().unwrap()["id"].as_str().unwrap().to_owned())
        .collect();
    let rows = house.rows().await;
    let named: BTreeSet<String> =
        rows.iter().map(|row| row.price_set.clone().expect("each row names its prices")).collect();
    assert!(named.len() >= 2, "prices changed: {named:?}");
    assert!(named.is_subset(&known), "{named:?} are not all in {known:?}");
    assert!(rows.iter().all(|row| row.worker_us > 0));
}
