//! Tests of budgets under concurrency, of the output caps that come from budgets, and of brownout.

use std::time::Duration;

use fairgate_config::BrownoutConfig;
use fairgate_store::{
    AttemptOutcome, Budget, BudgetOwners, BudgetPeriod, DirectoryLimits, UnixMicros,
};
use fairgate_time::wall_clock;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{get, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, config, house_in, house_with};

const CHAT: &str = "/v1/chat/completions";

fn budget(tokens: u64) -> DirectoryLimits {
    DirectoryLimits {
        budgets: vec![Budget::tokens(tokens, BudgetPeriod::Day)],
        ..DirectoryLimits::default()
    }
}

fn chat(max_tokens: Option<u64>) -> Value {
    let mut body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    if let Some(max_tokens) = max_tokens {
        body["max_tokens"] = max_tokens.into();
    }
    body
}

fn usage(input: u64, output: u64) -> String {
    json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}})
        .to_string()
}

#[tokio::test]
async fn a_reservation_that_does_not_fit_takes_no_slot_and_a_spent_budget_refuses_at_once() {
    let mut upstream = Scripted::start().await;
    let folder = Folder::new();
    let configuration = config(&folder, &upstream.url());
    let house = house_in(folder, configuration, budget(1000)).await;
    let addr = house.gateway.addr();
    let ask = |max_tokens| {
        let question = post(CHAT, &chat(Some(max_tokens))).key(&house.key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(600);
    let call = upstream.call().await;
    // 600 are reserved: another 600 do not fit, though nothing is used yet.
    let second = ask(600).await.unwrap();
    assert_eq!(
        (second.status, second.code().as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "budget_reserved")
    );
    // It is worth another try when the first has ended.
    assert_eq!(second.header("x-should-retry"), None);
    assert_eq!(second.header("retry-after"), Some("2"));
    assert!(!upstream.has_call());
    house.until(|live| live.in_flight == 1).await;
    call.answer(200, "application/json", usage(10, 990));
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    // All is used: refused before it is submitted.
    let third = ask(1).await.unwrap();
    assert_eq!(third.code(), "budget_exhausted");
    assert_eq!(third.header("x-should-retry"), Some("false"));
    assert!(third.header("retry-after").unwrap().parse::<u64>().unwrap() <= 86_400);
    let rows = house.rows().await;
    assert_eq!(
        rows.iter().map(|row| row.outcome).collect::<Vec<_>>(),
        [AttemptOutcome::Completed, AttemptOutcome::Refused, AttemptOutcome::Refused]
    );
    // The operators' list of spent budgets has it, and no budget that is not.
    house.tenant("frugal", budget(1000)).await;
    let spent = get("/api/v1/budgets").key("admin").ask(addr).await.json();
    let listed: Vec<_> = spent["items"].as_array().unwrap().iter().collect();
    assert_eq!(listed.len(), 1, "{spent}");
    let numbers = ["scope", "owner", "limit_tokens", "used_tokens", "left_tokens"]
        .map(|field| &listed[0][field]);
    assert_eq!(numbers, [&json!("tenant"), &json!("acme"), &json!(1000), &json!(1000), &json!(0)]);
    for (percent, status) in [("1", 200), ("100", 200), ("0", 400), ("101", 400)] {
        let path = format!("/api/v1/budgets?used_percent={percent}");
        assert_eq!(get(&path).key("admin").ask(addr).await.status.as_u16(), status, "{percent}");
    }
    assert_eq!(
        get("/api/v1/budgets").key(&house.key).ask(addr).await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(rows.iter().map(|row| row.charged).collect::<Vec<_>>(), [1000, 0, 0]);
    // Budgets are asked before anybody has a slot.
    let live = house.gateway.data_plane().pools.all()[0].gate.status().await.unwrap();
    assert_eq!((live.counts.granted, live.counts.given_back), (1, 0));
    house.close().await;
}

#[tokio::test]
async fn a_budgeted_request_without_a_cap_gets_one() {
    let mut upstream = Scripted::start().await;
    let folder = Folder::new();
    let mut configuration = config(&folder, &upstream.url());
    configuration.pools[0].cost.max_tokens_default = 77;
    let house = house_in(folder, configuration, budget(1_000_000)).await;
    let addr = house.gateway.addr();
    for (asked, sent) in [(None, 77), (Some(50), 50), (Some(5000), 5000)] {
        let question = post(CHAT, &chat(asked)).key(&house.key);
        let asking = tokio::spawn(async move { question.ask(addr).await });
        let call = upstream.call().await;
        let body: Value = serde_json::from_slice(call.request.body()).unwrap();
        let cap = body.get("max_tokens").or_else(|| body.get("max_completion_tokens"));
        assert_eq!(cap, Some(&json!(sent)), "{body}");
        call.answer(200, "application/json", usage(5, 5));
        assert_eq!(asking.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn who_waited_long_is_capped_and_told_so() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].capacity = 1;
        config.pools[0].brownout =
            Some(BrownoutConfig { wait: Duration::from_millis(50), max_tokens: 256 });
    })
    .await;
    let addr = house.gateway.addr();
    let ask = |max_tokens| {
        let question = post(CHAT, &chat(max_tokens)).key(&house.key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(Some(4000));
    let call = upstream.call().await;
    assert!(String::from_utf8_lossy(call.request.body()).contains("4000"));
    let long = ask(Some(4000));
    house.until(|live| live.waiting == 1).await;
    // The wait itself is what is tested.
    tokio::time::sleep(Duration::from_millis(60)).await;
    call.answer(200, "application/json", usage(1, 1));
    assert_eq!(first.await.unwrap().header("x-fairgate-brownout"), None);
    let call = upstream.call().await;
    let body: Value = serde_json::from_slice(call.request.body()).unwrap();
    assert_eq!(body["max_tokens"], 256);
    // One that asks for less than the cap keeps what it asks for, however long it waits.
    let modest = ask(Some(9));
    house.until(|live| live.waiting == 1).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    call.answer(200, "application/json", usage(1, 1));
    assert_eq!(long.await.unwrap().header("x-fairgate-brownout"), Some("256"));
    let call = upstream.call().await;
    assert!(String::from_utf8_lossy(call.request.body()).contains("\"max_tokens\":9"));
    call.answer(200, "application/json", usage(1, 1));
    assert_eq!(modest.await.unwrap().header("x-fairgate-brownout"), None);
    let brownouts: Vec<_> = house.rows().await.iter().map(|row| row.brownout).collect();
    assert_eq!(brownouts, [false, true, false]);
    house.close().await;
}

#[tokio::test]
async fn a_brownout_is_told_as_it_was_sent_and_only_where_it_lowers_something() {
    let mut upstream = Scripted::start().await;
    let folder = Folder::new();
    let mut configuration = config(&folder, &upstream.url());
    configuration.pools[0].capacity = 1;
    configuration.pools[0].brownout =
        Some(BrownoutConfig { wait: Duration::ZERO, max_tokens: 256 });
    configuration.pools[0].cost.max_tokens_default = 100;
    let house = house_in(folder, configuration, DirectoryLimits::default()).await;
    let budgeted = house.tenant("budgeted", budget(1_000_000)).await;
    let addr = house.gateway.addr();
    // Whose, what it states, what is sent, what it is told.
    let cases = [
        // What asks for more output than the cap is lowered with it: engines hold `min_tokens` higher.
        (&house.key, json!({"max_tokens": 4000, "min_tokens": 300}), 256, Some("256")),
        (&house.key, json!({"max_tokens": 300, "min_tokens": 300}), 256, Some("256")),
        (&house.key, json!({"max_tokens": 256}), 256, None),
        // A budget's own cap is lower already, or it is not.
        (&budgeted, json!({}), 100, None),
        (&budgeted, json!({"min_tokens": 300}), 100, None),
        (&budgeted, json!({"max_tokens": 4000}), 256, Some("256")),
    ];
    for (key, stated, sent, told) in cases {
        let blocker = post(CHAT, &chat(Some(1))).key(&house.key);
        let blocking = tokio::spawn(async move { blocker.ask(addr).await });
        let call = upstream.call().await;
        let mut body = chat(None);
        body.as_object_mut().unwrap().extend(stated.as_object().unwrap().clone());
        let question = post(CHAT, &body).key(key);
        let asking = tokio::spawn(async move { question.ask(addr).await });
        house.until(|live| live.waiting == 1).await;
        call.answer(200, "application/json", usage(1, 1));
        blocking.await.unwrap();
        let call = upstream.call().await;
        let body: Value = serde_json::from_slice(call.request.body()).unwrap();
        assert_eq!(body["max_tokens"], sent, "{stated}");
        assert!(body["min_tokens"].as_u64().is_none_or(|least| least <= sent), "{stated}: {body}");
        if key == &budgeted {
            let left = house.store.budgets(BudgetOwners::tenant("budgeted"), now()).await.unwrap();
            // The output that was asked for before it waited, and an input of some forty tokens.
            let asked = stated["max_tokens"].as_u64().unwrap_or(100);
            let input = left[0].reserved.checked_sub(asked);
            assert!(input.is_some_and(|input| input < 60), "{stated}: {left:?}");
        }
        call.answer(200, "application/json", usage(1, 1));
        assert_eq!(asking.await.unwrap().header("x-fairgate-brownout"), told, "{stated}");
        let row = house.rows().await.pop().unwrap();
        assert_eq!(row.brownout, told.is_some(), "{stated}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_reservation_holds_what_the_upstream_may_not_refuse() {
    let mut upstream = Scripted::start().await;
    let folder = Folder::new();
    let mut configuration = config(&folder, &upstream.url());
    configuration.pools[0].cost.max_tokens_default = 100;
    let house = house_in(folder, configuration, budget(1500)).await;
    let addr = house.gateway.addr();
    // Thinking takes at least 1024 tokens and one more, where the default cap is 100: two of these do not fit.
    let mut body = chat(None);
    body["thinking"] = json!({"type": "enabled", "budget_tokens": 5000});
    let question = post("/v1/messages", &body).key(&house.key);
    let asking = tokio::spawn({
        let question = question.clone();
        async move { question.ask(addr).await }
    });
    let call = upstream.call().await;
    assert_eq!(question.ask(addr).await.code(), "budget_reserved");
    let sent: Value = serde_json::from_slice(call.request.body()).unwrap();
    assert_eq!(
        (&sent["max_tokens"], &sent["thinking"]["budget_tokens"]),
        (&json!(1025), &json!(1024))
    );
    let used = json!({"content": [], "usage": {"input_tokens": 10, "output_tokens": 900}});
    call.answer(200, "application/json", used.to_string());
    assert_eq!(asking.await.unwrap().status, StatusCode::OK);
    house.close().await;
}

fn now() -> UnixMicros {
    let since = wall_clock::since_1970();
    UnixMicros(i64::try_from(since.as_micros()).unwrap())
}
