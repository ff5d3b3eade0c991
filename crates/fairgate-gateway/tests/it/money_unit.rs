//! Tests of pools that share the money of their providers: the cost that is counted, the numbers
//! that stay in tokens, and reloads.

use std::time::{Duration, Instant};

use fairgate_config::{Config, CostUnit};
use fairgate_core::event::Event;
use fairgate_money::{Currency, MicroUnits, ModelPrices, PerMillion, Price, PriceRates};
use fairgate_store::{Budget, BudgetOwners, BudgetPeriod, DirectoryLimits};
use fairgate_time::{UtcDay, wall_clock};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::post;
use crate::support::scripted::Scripted;
use crate::support::{Folder, SOON, config, house_in, house_with};
use crate::worker_time::{
    abandoned, admin, answered, in_tokens, reload, replayed, restarted, served, snapshot,
};

const CHAT: &str = "/v1/chat/completions";

/// Cost of 4096 input and 64 output tokens in micro-units, without cached tokens and with 4000 of
/// them. The prices are 3, 0.30 and 15 per million.
const UNCACHED: u64 = 13_248;
const CACHED: u64 = 2_448;

fn prices(output: &str, from: Option<&str>) -> ModelPrices {
    let rates = PriceRates {
        input: PerMillion::parse("3").unwrap(),
        cached_input: PerMillion::parse("0.30").unwrap(),
        output: PerMillion::parse(output).unwrap(),
        ..PriceRates::default()
    };
    let currency = Currency::parse("USD").unwrap();
    let from = from.map(|day| UtcDay::parse(day).unwrap());
    ModelPrices::new(vec![Price::new("sim", None, currency, rates, from)])
}

fn counts_money(config: &mut Config) {
    config.pools[0].cost.unit = CostUnit::Money;
    config.prices = prices("15", None);
    // A hosted worker.
    config.upstreams[0].tier = 1;
}

#[tokio::test]
async fn the_scheduler_counts_the_money_of_the_bill_and_the_row_counts_tokens() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), counts_money).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    assert_eq!(served(&snapshot(&house).await), UNCACHED);
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.charged, row.provider_tokens, row.occupied), (4160, 4160, 0));
    assert_eq!(row.money, MicroUnits(UNCACHED));
    answered(&mut upstream, &house, [4096, 4000, 64]).await;
    house.quiet().await;
    assert_eq!(served(&snapshot(&house).await), UNCACHED + CACHED);
    // A price of tomorrow does not concern what was counted.
    reload(&house, |config| config.prices = prices("30", None)).await;
    answered(&mut upstream, &house, [4096, 4000, 64]).await;
    house.quiet().await;
    assert_eq!(served(&snapshot(&house).await), UNCACHED + CACHED + CACHED + 64 * 15);
    house.close().await;
}

#[tokio::test]
async fn budgets_and_rates_count_the_same_tokens_as_in_a_pool_of_tokens() {
    let mut seen = Vec::new();
    for is_money in [true, false] {
        let mut upstream = Scripted::start().await;
        let folder = Folder::new();
        let mut config = config(&folder, &upstream.url());
        counts_money(&mut config);
        if !is_money {
            config.pools[0].cost.unit = CostUnit::Tokens;
        }
        // Two requests of 4160 tokens. After the second one the bucket is empty.
        let limits = DirectoryLimits {
            budgets: vec![Budget::tokens(100_000, BudgetPeriod::Month)],
            tokens_per_minute: Some(8000),
            ..DirectoryLimits::default()
        };
        let house = house_in(folder, config, limits).await;
        for _ in 0..2 {
            answered(&mut upstream, &house, [4096, 96, 64]).await;
        }
        house.quiet().await;
        let refused = refused(&house).await;
        let rows: Vec<Value> = house.rows_soon(3).await.iter().map(in_tokens).collect();
        let owners = BudgetOwners::tenant("acme");
        let budget = house.store.budgets(owners, wall_clock::now()).await.unwrap().remove(0);
        assert_eq!(budget.used, 2 * 4160);
        seen.push((refused, budget.used, budget.reserved, rows));
        house.close().await;
    }
    assert_eq!(seen[0].0, (StatusCode::TOO_MANY_REQUESTS, "rate_limited_tokens".to_owned()));
    assert_eq!(seen[0], seen[1]);
}

/// Sends a request that is refused. Returns the status and the code.
async fn refused(house: &crate::support::House) -> (StatusCode, String) {
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    let answer = post(CHAT, &body).key(&house.key).ask(house.gateway.addr()).await;
    (answer.status, answer.code().to_owned())
}

#[tokio::test]
async fn the_journal_states_tokens_beside_the_money_and_replays() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), counts_money).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let before = snapshot(&house).await;
    let folder = house.folder;
    house.gateway.drain(SOON).await;
    let (events, after) = replayed(&folder);
    assert_eq!((served(&before), served(&after)), (UNCACHED, UNCACHED));
    let mut ends = 0;
    for event in events {
        match event {
            Event::Submit(submit) => {
                let (input, quota) =
                    (submit.input.expect("tokens").0, submit.quota.expect("tokens").0);
                assert!(input < quota && quota < 5000, "{submit:?}");
                // The dearest kind of input is that which is not cached.
                assert_eq!(submit.cost.expect("money").0, 3 * input + 15 * (quota - input));
            }
            Event::Release { tokens, quota, .. } => {
                assert_eq!((tokens.expect("money").0, quota.expect("tokens").0), (UNCACHED, 4160));
                ends += 1;
            }
            _ => {}
        }
    }
    assert_eq!(ends, 1);
}

#[tokio::test]
async fn money_begins_the_books_anew_and_goes_on_after_a_restart() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |_| {}).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    assert_eq!(served(&snapshot(&house).await), 4160);
    reload(&house, counts_money).await;
    assert_eq!(served(&snapshot(&house).await), 0);
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let (house, _) = restarted(house, |_| {}).await;
    assert_eq!(served(&snapshot(&house).await), UNCACHED);
    house.close().await;
}

#[tokio::test]
async fn a_view_names_the_unit_and_calls_no_money_tokens() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), counts_money).await;
    answered(&mut upstream, &house, [4096, 0, 64]).await;
    house.quiet().await;
    let live = admin(&house, "/api/v1/fairshare/live").await;
    let (pool, tenant) = (&live["pools"][0], &live["pools"][0]["tenants"][0]);
    assert_eq!(pool["unit"], "money");
    assert_eq!(
        (&tenant["got"], &tenant["got_tokens"]),
        (&json!(UNCACHED), &Value::Null),
        "{tenant}"
    );
    assert_eq!((&tenant["served"], &tenant["served_tokens"]), (&json!(UNCACHED), &Value::Null));
    let calibration = admin(&house, "/api/v1/pools/sim/calibration").await;
    assert_eq!(calibration["unit"], "money");
    assert_eq!((&calibration["prices"], &calibration["switch"]), (&Value::Null, &Value::Null));
    assert_eq!(admin(&house, "/api/v1/pools/sim/policy").await["unit"], "money");
    // The journal is written beside the pool.
    let row = &admin(&house, "/api/v1/attempts").await["items"][0];
    let address = format!("/api/v1/requests/{}/journal", row["request"].as_str().expect("an id"));
    let mut journal = admin(&house, &address).await;
    let asked = Instant::now();
    while journal["history"].is_null() && asked.elapsed() < SOON {
        tokio::time::sleep(Duration::from_millis(5)).await;
        journal = admin(&house, &address).await;
    }
    assert_eq!(
        (&journal["unit"], &journal["history"]["unit"]),
        (&json!("money"), &json!("money")),
        "{journal}"
    );
    let weights = json!([{"by": "tenant", "flow": "acme", "weight": 7}]);
    let asked = json!({"pool": "sim", "weights": weights});
    let what_if =
        post("/api/v1/what-if", &asked).header("content-type", "application/json").key("admin");
    let what_if = what_if.ask(house.gateway.addr()).await;
    assert_eq!(what_if.json()["unit"], "money", "{}", what_if.text());
    house.close().await;
}

#[tokio::test]
async fn work_that_does_not_complete_pays_for_its_time_in_money() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        counts_money(config);
        config.prices = prices("1000", None);
    })
    .await;
    abandoned(&mut upstream, &house).await;
    house.quiet().await;
    let cost = served(&snapshot(&house).await);
    let row = house.rows().await.pop().unwrap();
    // Its few tokens cost less than 200 ms in a slot.
    assert!(row.money.0 > 0 && cost > row.money.0, "{cost} µ, row {} µ", row.money.0);
    house.close().await;
}

#[tokio::test]
async fn a_model_without_a_price_today_is_refused() {
    let upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        counts_money(config);
        config.prices = prices("15", Some("2900-01-01"));
    })
    .await;
    let told = (StatusCode::FORBIDDEN, "model_has_no_price".to_owned());
    assert_eq!(refused(&house).await, told);
    house.close().await;
}
