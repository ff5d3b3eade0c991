//! Tests of pools that share the time of their workers: the cost that is counted, the numbers that
//! stay in tokens, and reloads.

use std::fs::File;
use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fairgate_config::{Config, CostUnit};
use fairgate_core::event::Event;
use fairgate_core::snapshot::Snapshot;
use fairgate_gateway::{Gateway, GatewayOptions};
use fairgate_journal::{JournalReader, JournalWriter};
use fairgate_price::worker_time::{RequestWork, WorkerPrices};
use fairgate_sim::{Sim, SimOptions};
use fairgate_store::{
    AttemptRow, Budget, BudgetOwners, BudgetPeriod, DirectoryLimits, KeyHash, Store, StoreOptions,
};
use fairgate_time::wall_clock;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{get, piece, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, House, SOON, config, house_in, house_with};

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// Prices as they were measured on an H200.
pub(crate) const PRICES: WorkerPrices = WorkerPrices {
    request: 2_490_000_000,
    input: 10_600_000,
    input_input: 1_200,
    cached: 800_000,
    output: 188_000_000,
    context_output: 26_000,
};

pub(crate) fn counts_worker_time(config: &mut Config) {
    config.pools[0].cost.unit = CostUnit::WorkerTime;
    config.pools[0].cost.prices = Some(PRICES);
}

pub(crate) fn work(row: &AttemptRow) -> RequestWork {
    let (input, cached, output) = (row.input_tokens, row.cached_tokens, row.output_tokens);
    RequestWork { input, cached, output, choices: 1 }
}

/// Returns the cost of all requests so far, summed over all flows, as a state file would state it.
/// Each flow is in one node only.
pub(crate) fn served(snapshot: &Snapshot) -> u64 {
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(snapshot).unwrap();
    let state: Value = serde_json::from_slice(&writer.into_inner()).unwrap();
    sum_of("got_tokens", &state["snapshot"]["root"])
}

/// Sums a field over the flows of the outermost node.
fn sum_of(name: &str, value: &Value) -> u64 {
    let Value::Object(fields) = value else { return 0 };
    fields
        .iter()
        .map(|(field, value)| match value {
            Value::String(number) if field == name => number.parse::<u64>().unwrap(),
            // The flows inside a flow got the same service once more.
            _ if field == "inside" => 0,
            value => sum_of(name, value),
        })
        .sum()
}

pub(crate) async fn snapshot(house: &House) -> Snapshot {
    house.gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap()
}

/// Sends a request that the upstream answers at once with this usage.
pub(super) async fn answered(
    upstream: &mut Scripted,
    house: &House,
    [input, cached, output]: [u64; 3],
) {
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    let (question, addr) = (post(CHAT, &body).key(&house.key), house.gateway.addr());
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let usage = json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    });
    let answer = json!({"choices": [], "usage": usage}).to_string();
    upstream.call().await.answer(200, "application/json", answer);
    assert_eq!(asking.await.unwrap().status, StatusCode::OK);
}

pub(super) async fn reload(house: &House, change: impl FnOnce(&mut Config)) {
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    change(&mut next);
    house.gateway.reload(next).await.unwrap();
}

#[tokio::test]
async fn the_scheduler_counts_microseconds_and_the_row_counts_tokens() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), counts_worker_time).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    assert_eq!(served(&snapshot(&house).await), 74_579);
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.charged, row.provider_tokens, row.occupied), (4160, 4160, 0));
    // Cached tokens have a price of their own.
    answered(&mut upstream, &house, [4096, 4000, 64]).await;
    house.quiet().await;
    let row = house.rows_soon(2).await.pop().unwrap();
    assert_eq!(served(&snapshot(&house).await), 74_579 + PRICES.cost(work(&row)));
    house.close().await;
}

/// Microseconds of worker time and tokens that two tenants got.
struct TwoTenants {
    time: [u64; 2],
    tokens: [u64; 2],
}

/// Two tenants of equal weight, one with long prompts and one with long answers, keep a worker with
/// two slots full until 240 requests have ended.
async fn two_tenants(change: impl FnOnce(&mut Config)) -> TwoTenants {
    let options =
        SimOptions { slots: 2, prefix_cache_blocks: 0, steering: true, ..SimOptions::instant() };
    let sim = Sim::start(([127, 0, 0, 1], 0).into(), options).unwrap();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].capacity = 2;
        config.upstreams[0].slots = Some(2);
        change(config);
    })
    .await;
    let writes = house.tenant("writes", DirectoryLimits::default()).await;
    let addr = house.gateway.addr();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for (key, words, output) in [(house.key.clone(), 3000, "16"), (writes, 40, "200")] {
        let text = "rivers ".repeat(words);
        let body = json!({"model": "sim", "messages": [{"role": "user", "content": text}]});
        let question = post(CHAT, &body).key(&key).header("x-sim-tokens", output);
        for _ in 0..6 {
            let (question, is_over) = (question.clone(), is_over.clone());
            clients.push(tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(question.ask(addr).await.status, StatusCode::OK);
                }
            }));
        }
    }
    house.rows_soon(240).await;
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let rows = house.rows().await;
    let sum = |tenant: &str, of: &dyn Fn(&AttemptRow) -> u64| -> u64 {
        rows.iter().filter(|row| row.tenant == *tenant).map(of).sum()
    };
    let of_both = |of: &dyn Fn(&AttemptRow) -> u64| [sum("acme", of), sum("writes", of)];
    let got = TwoTenants {
        time: of_both(&|row| PRICES.cost(work(row))),
        tokens: of_both(&|row| row.charged),
    };
    house.close().await;
    sim.stop().await;
    got
}

#[tokio::test]
async fn long_prompts_and_long_answers_get_equal_worker_time() {
    let TwoTenants { time, tokens } = two_tenants(counts_worker_time).await;
    // What was waiting at the end, five requests of each, went without the other one being there.
    assert!(time[0].abs_diff(time[1]) * 10 < time[0] + time[1], "{time:?} µs, {tokens:?} tokens");
    assert!(tokens[0] > 5 * tokens[1], "{time:?} µs, {tokens:?} tokens");
    let TwoTenants { time, tokens } = two_tenants(|_| {}).await;
    assert!(time[1] > 3 * time[0], "in tokens: {time:?} µs, {tokens:?} tokens");
}

/// Returns the columns of a row that count tokens.
pub(super) fn in_tokens(row: &AttemptRow) -> Value {
    json!({
        "estimate": row.estimate, "estimate_uncached": row.estimate_uncached, "charged": row.charged,
        "charged_uncached": row.charged_uncached, "provider_tokens": row.provider_tokens, "occupied": row.occupied,
        "input": row.input_tokens, "cached": row.cached_tokens, "output": row.output_tokens,
    })
}

#[tokio::test]
async fn budgets_and_rates_count_the_same_tokens_in_both_units() {
    let mut seen = Vec::new();
    for change in [counts_worker_time as fn(&mut Config), |_| {}] {
        let mut upstream = Scripted::start().await;
        let folder = Folder::new();
        let mut config = config(&folder, &upstream.url());
        change(&mut config);
        let budgets = vec![Budget::tokens(100_000, BudgetPeriod::Month)];
        // Two requests of 4160 tokens, which cost 149 158 µs. After the second one the bucket is empty.
        let limits = DirectoryLimits {
            budgets,
            tokens_per_minute: Some(8000),
            ..DirectoryLimits::default()
        };
        let house = house_in(folder, config, limits).await;
        for _ in 0..2 {
            answered(&mut upstream, &house, [4096, 96, 64]).await;
        }
        house.quiet().await;
        let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
        let refused = post(CHAT, &body).key(&house.key).ask(house.gateway.addr()).await;
        let rows: Vec<Value> = house.rows_soon(3).await.iter().map(in_tokens).collect();
        let owners = BudgetOwners::tenant("acme");
        let budget = house.store.budgets(owners, wall_clock::now()).await.unwrap().remove(0);
        assert_eq!(budget.used, 2 * 4160);
        seen.push((refused.code(), budget.used, budget.reserved, rows));
        house.close().await;
    }
    assert_eq!(seen[0].0, "rate_limited_tokens");
    assert_eq!(seen[0], seen[1]);
}

/// Sends a request, reads the first piece of its stream, and leaves after 200 ms.
pub(super) async fn abandoned(upstream: &mut Scripted, house: &House) {
    let body = json!({
        "model": "sim", "stream": true, "max_tokens": 50,
        "messages": [{"role": "user", "content": "rivers"}],
    });
    let (question, addr) = (post(CHAT, &body).key(&house.key), house.gateway.addr());
    let asking = tokio::spawn(async move { question.begin(addr).await });
    let pieces = upstream.call().await.stream("text/event-stream");
    let said = json!({"choices": [{"delta": {"content": "ok"}, "finish_reason": null}]});
    pieces.send(format!("data: {said}\n\n").into()).unwrap();
    let mut body = asking.await.unwrap().into_body();
    piece(&mut body).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    drop(body);
    house.rows_soon(1).await;
}

#[tokio::test]
async fn work_that_does_not_complete_pays_its_part_of_the_worker() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        counts_worker_time(config);
        // So that its tokens cost next to nothing.
        config.pools[0].cost.prices = Some(WorkerPrices { request: 1, ..WorkerPrices::default() });
        config.upstreams[0].slots = Some(4);
    })
    .await;
    abandoned(&mut upstream, &house).await;
    house.quiet().await;
    let cost = served(&snapshot(&house).await);
    // 200 ms in one of four slots, and however long the machine took beside.
    assert!((50_000..2_000_000).contains(&cost), "{cost}");
    house.close().await;
}

/// Reads the journal of the pool, and returns its events and the state after the last event.
pub(crate) fn replayed(folder: &Folder) -> (Vec<Event>, Snapshot) {
    let journal = folder.0.join("journal").join("sim");
    let mut files: Vec<_> =
        std::fs::read_dir(journal).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let file = File::open(files.last().unwrap()).unwrap();
    let (start, mut reader) = JournalReader::open(BufReader::new(file)).unwrap();
    let mut pool = start.into_pool().unwrap();
    let (mut events, mut decisions) = (Vec::new(), Vec::new());
    while let Some((at, event)) = reader.next_event().unwrap() {
        pool.apply(at, event.clone(), &mut decisions).unwrap();
        events.push(event);
    }
    (events, pool.snapshot())
}

#[tokio::test]
async fn the_journal_states_tokens_beside_the_cost_and_replays_across_prices() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), counts_worker_time).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let doubled = WorkerPrices { output: 2 * PRICES.output, ..PRICES };
    reload(&house, |config| config.pools[0].cost.prices = Some(doubled)).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let cost = doubled.cost(RequestWork { input: 4096, cached: 0, output: 64, choices: 1 });
    let before = snapshot(&house).await;
    assert_eq!(served(&before), 74_579 + cost);
    let folder = house.folder;
    house.gateway.drain(SOON).await;
    let (events, after) = replayed(&folder);
    assert_eq!(served(&after), served(&before));
    assert_eq!((after.ticks, after.requests.len()), (before.ticks, 0));
    let mut ends = 0;
    for event in events {
        match event {
            Event::Submit(submit) => {
                let quota = submit.quota.expect("tokens").0;
                let input = submit.input.expect("tokens").0;
                assert!(input < quota && quota < 5000, "{submit:?}");
            }
            Event::Release { tokens, quota, .. } => {
                assert!(tokens.expect("a cost").0 > 50_000);
                assert_eq!(quota.expect("tokens").0, 4160);
                ends += 1;
            }
            _ => {}
        }
    }
    assert_eq!(ends, 2);
}

#[tokio::test]
async fn another_unit_begins_the_books_anew_also_across_a_restart() {
    let mut upstream = Scripted::start().await;
    let folder = Folder::new();
    let first = config(&folder, &upstream.url());
    let house = house_in(folder, first, DirectoryLimits::default()).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let in_tokens = snapshot(&house).await;
    assert_eq!(served(&in_tokens), 4160);
    reload(&house, counts_worker_time).await;
    let begun = snapshot(&house).await;
    assert_eq!(served(&begun), 0);
    // What the directory says still holds.
    house.gateway.data_plane().directory_sync.refresh().await.unwrap();
    let after = snapshot(&house).await;
    assert_eq!((after.weights, after.caps), (in_tokens.weights, in_tokens.caps));
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    assert_eq!(served(&snapshot(&house).await), 74_579);
    let (mut house, configuration) =
        restarted(house, |config| assert_eq!(config.pools[0].cost.unit, CostUnit::WorkerTime))
            .await;
    assert_eq!(served(&snapshot(&house).await), 74_579);
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    drop(configuration);
    (house, _) = restarted(house, |config| {
        config.pools[0].cost.unit = CostUnit::Tokens;
        config.pools[0].cost.prices = None;
    })
    .await;
    assert_eq!(served(&snapshot(&house).await), 0);
    house.close().await;
}

/// Stops the gateway, and starts it again with a changed configuration.
pub(crate) async fn restarted(house: House, change: impl FnOnce(&mut Config)) -> (House, Config) {
    let mut config = (*house.gateway.data_plane().config.load_full()).clone();
    let House { gateway, key, folder, .. } = house;
    gateway.drain(SOON).await;
    change(&mut config);
    let (store, _) = Store::open(config.store.url.expose(), StoreOptions::default()).await.unwrap();
    let options = GatewayOptions {
        config: config.clone(),
        store: store.clone(),
        admin_token: KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    let gateway = Gateway::start(options).await.unwrap();
    (House { gateway, store, key, folder }, config)
}

#[tokio::test]
async fn a_pool_view_names_its_unit_and_calls_nothing_else_tokens() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), counts_worker_time).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let live = admin(&house, "/api/v1/fairshare/live").await;
    let (pool, tenant) = (&live["pools"][0], &live["pools"][0]["tenants"][0]);
    assert_eq!(pool["unit"], "worker_time");
    assert_eq!((&tenant["got"], &tenant["got_tokens"]), (&json!(74_579), &Value::Null), "{tenant}");
    assert_eq!((&tenant["served"], &tenant["served_tokens"]), (&json!(74_579), &Value::Null));
    assert_eq!(admin(&house, "/api/v1/pools/sim").await["unit"], "worker_time");
    let calibration = admin(&house, "/api/v1/pools/sim/calibration").await;
    let (worker, tenant) = (&calibration["workers"][0], &calibration["tenants"][0]);
    assert_eq!(
        (&calibration["unit"], &worker["learning"]),
        (&json!("worker_time"), &json!("stated"))
    );
    assert_eq!(calibration["prices"]["output"], PRICES.output);
    assert_eq!(worker["requests"][0]["cost_us"], 74_579);
    assert_eq!((&tenant["tenant"], &tenant["worker_us"]), (&json!("acme"), &json!(74_579)));
    reload(&house, |config| {
        config.pools[0].cost.unit = CostUnit::Tokens;
        config.pools[0].cost.prices = None;
    })
    .await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let live = admin(&house, "/api/v1/fairshare/live").await;
    let (pool, tenant) = (&live["pools"][0], &live["pools"][0]["tenants"][0]);
    assert_eq!(pool["unit"], "tokens");
    assert_eq!((&tenant["got"], &tenant["got_tokens"]), (&json!(4160), &json!(4160)), "{tenant}");
    house.close().await;
}

/// A pool that counts tokens also learns prices, so that an operator can see what a change of the
/// unit would bring.
#[tokio::test]
async fn a_pool_that_counts_tokens_learns_the_prices_of_its_worker() {
    let options = SimOptions {
        slots: 4,
        prefill_at_once: Some(1),
        prefill_base: Duration::from_millis(2),
        decode_per_token: Duration::from_millis(4),
        steering: true,
        ..SimOptions::instant()
    };
    let sim = Sim::start(([127, 0, 0, 1], 0).into(), options).unwrap();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].capacity = 4;
        config.upstreams[0].slots = Some(4);
    })
    .await;
    let addr = house.gateway.addr();
    let messages = json!([{"role": "user", "content": "rivers"}]);
    let body = json!({"model": "sim", "stream": true, "messages": messages});
    let question = post(CHAT, &body).key(&house.key).header("x-sim-tokens", "100");
    let is_over = Arc::new(AtomicBool::new(false));
    // Each client asks again at once, so the worker is never idle.
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (question, is_over) = (question.clone(), is_over.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(question.ask(addr).await.status, StatusCode::OK);
                }
            })
        })
        .collect();
    let learned = async {
        loop {
            let calibration = admin(&house, "/api/v1/pools/sim/calibration").await;
            if calibration["workers"][0]["windows"].as_u64().unwrap() > 0 {
                return calibration;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let calibration = tokio::time::timeout(SOON, learned).await.expect("it learns");
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(calibration["unit"], "tokens");
    assert_eq!(calibration["workers"][0]["learning"], "learning");
    assert!(calibration["prices"]["output"].as_u64().unwrap() > 0, "{calibration}");
    assert_eq!(calibration["tenants"][0]["share_of_worker_time"], 1.0);
    house.close().await;
    sim.stop().await;
}

pub(super) async fn admin(house: &House, path: &str) -> Value {
    let answer = get(path).key("admin").ask(house.gateway.addr()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}
