//! Tests of one worker in several pools, of price sets with their ids, and of worker time beside
//! tokens in all views of usage.

use std::time::Duration;

use fairgate_config::{Config, CostUnit, PoolConfig, UpstreamConfig};
use fairgate_price::worker_time::WorkerPrices;
use fairgate_sim::{Sim, SimOptions};
use fairgate_store::{AttemptRow, AuditQuery};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{Question, get, post};
use crate::support::scripted::Scripted;
use crate::support::{House, LEASES, SOON, UNSTATED_QUOTA, beside, house_with, lease_pool};
use crate::worker_time::{CHAT, PRICES, counts_worker_time, restarted, work};

/// Adds a pool with this model, on a worker of this name.
fn add_pool(config: &mut Config, model: &str, worker: &str) {
    let mut models = config.pools[0].models.clone();
    models[0].name = model.to_owned();
    let workers = vec![worker.to_owned()];
    let name = format!("pool-{model}");
    config.pools.push(PoolConfig { name, models, workers, ..config.pools[0].clone() });
}

fn question(house: &House, model: &str, stream: bool, output: &str) -> Question {
    let messages = json!([{"role": "user", "content": "rivers"}]);
    let body = json!({"model": model, "stream": stream, "messages": messages});
    post(CHAT, &body).key(&house.key).header("x-sim-tokens", output)
}

async fn admin(house: &House, path: &str) -> Value {
    let answer = get(path).key("admin").ask(house.gateway.addr()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()
}

async fn worker_of(house: &House, pool: &str) -> Value {
    admin(house, &format!("/api/v1/pools/{pool}/calibration")).await["workers"][0].clone()
}

/// Sends requests for one model, four at a time, until the meter of the other pool's worker has
/// used a window.
async fn other_pool_learns(change: impl FnOnce(&mut Config)) {
    let options = SimOptions {
        slots: 4,
        prefill_at_once: Some(1),
        prefill_base: Duration::from_millis(2),
        decode_per_token: Duration::from_millis(4),
        steering: true,
        ..SimOptions::instant()
    };
    let sim = Sim::start(([127, 0, 0, 1], 0).into(), options).unwrap();
    let house = house_with(&sim.url(), change).await;
    let (addr, question) = (house.gateway.addr(), question(&house, "sim", true, "100"));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let question = question.clone();
            tokio::spawn(async move {
                loop {
                    assert_eq!(question.ask(addr).await.status, StatusCode::OK);
                }
            })
        })
        .collect();
    let learned = async {
        loop {
            let worker = worker_of(&house, "pool-other").await;
            if worker["windows"].as_u64().unwrap() > 0 {
                return worker;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let worker = tokio::time::timeout(SOON, learned).await.expect("it sees the other pool's load");
    assert_eq!(worker["slots"], 4, "of both pools together");
    assert_eq!(worker["requests"], json!([]), "the requests of the other pool are not shown");
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    for client in clients {
        let _ = client.await;
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn two_pools_on_one_upstream_share_its_meter() {
    other_pool_learns(|config| {
        (config.pools[0].capacity, config.upstreams[0].slots) = (2, None);
        let worker = config.upstreams[0].name.clone();
        add_pool(config, "other", &worker);
    })
    .await;
}

#[tokio::test]
async fn two_upstreams_at_one_address_share_its_meter() {
    other_pool_learns(|config| {
        config.pools[0].capacity = 2;
        config.upstreams[0].slots = Some(2);
        let second = UpstreamConfig { name: "second".into(), ..config.upstreams[0].clone() };
        config.upstreams.push(second);
        add_pool(config, "other", "second");
    })
    .await;
}

/// Stated prices of a pool apply in all pools of its workers. A pool that does not see the whole
/// load learns nothing.
#[tokio::test]
async fn prices_of_a_worker_hold_in_all_its_pools() {
    let upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        let worker = config.upstreams[0].name.clone();
        config.upstreams[0].slots = None;
        add_pool(config, "other", &worker);
        counts_worker_time(config);
    })
    .await;
    let worker = worker_of(&house, "pool-other").await;
    assert_eq!(
        (&worker["learning"], &worker["prices"]["output"]),
        (&json!("stated"), &PRICES.output.into())
    );
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.pools[0].cost.prices = None;
    next.pools[0].cost.unit = CostUnit::Tokens;
    next.pools[0].observe = false;
    house.gateway.reload(next).await.unwrap();
    assert_eq!(
        worker_of(&house, "pool-other").await,
        Value::Null,
        "the load of others is not seen"
    );
    house.close().await;
}

/// Sends a request to the first upstream, which answers it with this usage.
async fn answered(upstream: &mut Scripted, house: &House, [input, cached, output]: [u64; 3]) {
    let (question, addr) = (question(house, "sim", false, "1"), house.gateway.addr());
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let usage = json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": {"cached_tokens": cached},
    });
    let answer = json!({"choices": [], "usage": usage}).to_string();
    upstream.call().await.answer(200, "application/json", answer);
    assert_eq!(asking.await.unwrap().status, StatusCode::OK);
}

/// Two upstreams at one address are one worker, and its time is counted once.
#[tokio::test]
async fn a_worker_with_two_names_in_a_pool_is_shown_once() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        counts_worker_time(config);
        let second = UpstreamConfig { name: "second".into(), ..config.upstreams[0].clone() };
        config.upstreams.push(second);
        config.pools[0].workers.push("second".into());
    })
    .await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let seen = admin(&house, "/api/v1/pools/sim/calibration").await;
    assert_eq!(seen["workers"].as_array().map(Vec::len), Some(1), "{seen}");
    let tenant = &seen["tenants"][0];
    assert_eq!(
        (&seen["workers"][0]["worker"], &tenant["worker_us"]),
        (&json!("sim, second"), &json!(74_579))
    );
    house.close().await;
}

async fn price_sets(house: &House) -> Vec<(String, Value)> {
    let query = AuditQuery { action: Some("worker_prices.set".into()), ..AuditQuery::default() };
    let entries = house.store.audit(query).await.unwrap();
    entries.into_iter().map(|entry| (entry.actor, entry.after.unwrap())).collect()
}

#[tokio::test]
async fn a_row_names_its_price_set_and_the_audit_trail_has_it_once() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), counts_worker_time).await;
    let before = house.store.directory().await.unwrap().version;
    for _ in 0..2 {
        answered(&mut upstream, &house, [4096, 0, 64]).await;
    }
    let rows = house.rows_soon(2).await;
    let id = rows[0].price_set.clone().expect("the row names its prices");
    assert!(id.starts_with("wt-"), "{id}");
    assert!(rows.iter().all(|row| row.worker_us == 74_579 && row.price_set.as_ref() == Some(&id)));
    house.gateway.data_plane().write_price_sets().await.unwrap();
    let sets = price_sets(&house).await;
    let [(actor, set)] = &sets[..] else { panic!("one set: {sets:?}") };
    assert_eq!((&**actor, &set["id"], &set["source"]), ("gateway", &json!(id), &json!("stated")));
    assert_eq!((&set["output_ps"], &set["input_input_ps"]), (&json!(PRICES.output), &json!(1200)));
    assert_eq!(
        house.store.directory().await.unwrap().version,
        before,
        "gateways need not read anew"
    );
    // The same prices have the same id after a restart, and are no news.
    let (house, _) = restarted(house, |_| {}).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    assert_eq!(
        house.rows_soon(3).await.iter().filter(|row| row.price_set.as_ref() == Some(&id)).count(),
        3
    );
    house.gateway.data_plane().write_price_sets().await.unwrap();
    assert_eq!(price_sets(&house).await.len(), 1);
    // Other prices are.
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.pools[0].cost.prices = Some(WorkerPrices { output: 5, ..PRICES });
    house.gateway.reload(next).await.unwrap();
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.rows_soon(4).await;
    // A stop writes what is left.
    let (house, _) = restarted(house, |_| {}).await;
    let sets = price_sets(&house).await;
    assert_eq!((sets.len(), &sets[0].1["output_ps"]), (2, &json!(5)));
    house.close().await;
}

#[tokio::test]
async fn worker_time_is_shown_beside_tokens_whatever_the_pool_counts() {
    for change in [counts_worker_time as fn(&mut Config), |_| {}] {
        let mut upstream = Scripted::start().await;
        let house = house_with(&upstream.url(), |config| {
            config.metrics.tenants_max = 2;
            change(config);
        })
        .await;
        answered(&mut upstream, &house, [4096, 0, 64]).await;
        house.quiet().await;
        let row = house.rows_soon(1).await.pop().unwrap();
        let counts_time =
            house.gateway.data_plane().pools.all()[0].setup().unit() == CostUnit::WorkerTime;
        assert!(row.worker_us > 0 && row.price_set.is_some() == counts_time, "{row:?}");
        let live = admin(&house, "/api/v1/fairshare/live").await;
        let tenant = &live["pools"][0]["tenants"][0];
        let shares = [&tenant["share_of_tokens"], &tenant["share_of_worker_time"]];
        assert_eq!(
            (shares, &tenant["worker_us"]),
            ([&json!(1.0); 2], &json!(row.worker_us)),
            "{tenant}"
        );
        let usage = admin(&house, "/api/v1/usage?by=tenant").await;
        let sum = &usage["rows"][0];
        assert_eq!(
            (&sum["worker_us"], &sum["share_of_worker_time"]),
            (&json!(row.worker_us), &json!(1.0))
        );
        let shown = admin(&house, "/api/v1/attempts").await;
        assert_eq!(shown["items"][0]["worker_us"], row.worker_us);
        // A tenant would see in its worker time what others have sent.
        let own = get("/api/v1/me/attempts").key(&house.key).ask(house.gateway.addr()).await.json();
        assert_eq!(
            (&own["items"][0]["worker_us"], &own["items"][0]["price_set"]),
            (&Value::Null, &Value::Null)
        );
        let own = get("/api/v1/me/usage").key(&house.key).ask(house.gateway.addr()).await.json();
        assert_eq!(own["rows"][0]["worker_us"], Value::Null);
        metrics_have(&house, &row, counts_time).await;
        house.close().await;
    }
}

/// Checks that the gauges of service have the unit as a label, and that gauges that are named after
/// tokens count tokens.
async fn metrics_have(house: &House, row: &AttemptRow, counts_time: bool) {
    let text = get("/metrics").key("admin").ask(house.gateway.addr()).await.text();
    let (unit, got) = match counts_time {
        true => ("worker_time", row.worker_us),
        false => ("tokens", row.charged),
    };
    let time = row.worker_us;
    for line in [
        format!("fairgate_tenant_got{{pool=\"sim\",unit=\"{unit}\",tenant=\"acme\"}} {got}"),
        format!("fairgate_worker_time_microseconds_total{{pool=\"sim\"}} {time}"),
        format!(
            "fairgate_tenant_worker_time_microseconds_total{{pool=\"sim\",tenant=\"acme\"}} {time}"
        ),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let due = format!("fairgate_tenant_due{{pool=\"sim\",unit=\"{unit}\",tenant=\"acme\"}} ");
    assert!(text.contains(&due), "{due} is not in\n{text}");
    assert_eq!(text.contains("fairgate_tenant_got_tokens{"), !counts_time);
}

/// A hosted worker has no time of its own. Its requests cost the mean of the own workers' prices,
/// and take none of their time.
#[tokio::test]
async fn a_hosted_worker_in_a_mixed_pool_is_charged_the_mean_prices() {
    let (own, mut hosted) = (Scripted::start().await, Scripted::start().await);
    let house = house_with(&own.url(), |config| {
        counts_worker_time(config);
        config.upstreams[0].slots = Some(1);
        let second = beside(config, "hosted", &hosted.url());
        config.upstreams.push(UpstreamConfig { tier: 1, slots: Some(4), ..second });
        config.pools[0].workers.push("hosted".into());
        config.pools[0].capacity = 5;
    })
    .await;
    // The own worker's only slot is taken by a request that is never answered.
    let (first, addr) = (question(&house, "sim", false, "1"), house.gateway.addr());
    let held = tokio::spawn(async move { first.ask(addr).await });
    house.until(|live| live.in_flight == 1).await;
    answered(&mut hosted, &house, [4096, 0, 64]).await;
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.worker.as_deref(), row.tier, row.provider_tokens), (Some("hosted"), 1, 4160));
    assert_eq!((row.worker_us, row.price_set), (0, None));
    let got = admin(&house, "/api/v1/fairshare/live").await["pools"][0]["tenants"][0].clone();
    assert_eq!(got["served"], 74_579, "{got}");
    held.abort();
    house.close().await;
}

/// A lease costs its worker time, but at least its time in the slot. Budgets count its tokens.
#[tokio::test]
async fn a_lease_costs_its_work_or_its_time() {
    let house = house_with("http://127.0.0.1:9", |config| {
        let pool = lease_pool(config, 2, Duration::from_secs(15), UNSTATED_QUOTA);
        pool.cost.unit = CostUnit::WorkerTime;
        pool.cost.prices = Some(PRICES);
    })
    .await;
    let addr = house.gateway.addr();
    let call =
        json!({"model": "gpt-5", "input_tokens": 4096, "output_tokens": 64, "wait_ms": 5000});
    for (number, (used, held)) in [([4096, 64], 0), ([1, 1], 300)].into_iter().enumerate() {
        let lease = post(LEASES, &call).key(&house.key).ask(addr).await.json();
        assert_eq!(lease["state"], "granted", "{lease}");
        tokio::time::sleep(Duration::from_millis(held)).await;
        let path = format!("{LEASES}/{}/settle", lease["id"].as_str().unwrap());
        let used = json!({"input_tokens": used[0], "cached_tokens": 0, "output_tokens": used[1]});
        let settled = post(&path, &used).key(&house.key).ask(addr).await;
        assert_eq!(settled.status, StatusCode::OK, "{}", settled.text());
        house.rows_soon(number + 1).await;
    }
    let mut rows = house.rows().await;
    rows.sort_by_key(|row| row.input_tokens);
    let work_of = |row: &AttemptRow| PRICES.cost(work(row));
    assert_eq!((rows[1].worker_us, work_of(&rows[1])), (74_579, 74_579));
    // 300 ms in one of two slots, and however long the machine took beside.
    assert!((150_000..2_000_000).contains(&rows[0].worker_us), "{:?}", rows[0]);
    assert!(work_of(&rows[0]) < 10_000 && rows[0].price_set.is_some());
    let live = admin(&house, "/api/v1/fairshare/live").await;
    let pools = live["pools"].as_array().unwrap();
    let pool = pools.iter().find(|pool| pool["pool"] == "gpt").unwrap();
    let served = rows.iter().map(|row| row.worker_us).sum::<u64>();
    assert_eq!(pool["tenants"][0]["served"], served, "{pool}");
    house.close().await;
}
