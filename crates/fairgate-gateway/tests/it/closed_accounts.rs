//! Tests of refusals that name the account. Only the request's own client gets them, and only the
//! gateway's own probe closes the account for others.

use std::time::Duration;

use fairgate_config::{QuotaConfig, Secret, UpstreamCredential};
use fairgate_store::{AttemptOutcome, AttemptRow, DirectoryLimits};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::hosted::{CHAT, hosted};
use crate::support::client::{Answer, get, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{House, beside, house_with};

const GOOD: &str = r#"{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":2,"completion_tokens":1}}"#;

async fn provider_house(upstream: &Scripted, probe: bool) -> House {
    house_with(&upstream.url(), |config| {
        config.upstreams[0].quota =
            QuotaConfig { requests_per_minute: Some(6000), probe, ..hosted() };
    })
    .await
}

fn asking(house: &House, key: &str) -> JoinHandle<Answer> {
    let body = json!({
        "model": "sim", "max_tokens": 4000, "messages": [{"role": "user", "content": "rivers"}],
    });
    let (question, addr) = (post(CHAT, &body).key(key), house.gateway.addr());
    tokio::spawn(async move { question.ask(addr).await })
}

fn is_probe(call: &Call) -> bool {
    let body: Value = serde_json::from_slice(call.request.body()).unwrap();
    body["max_tokens"] == json!(1)
}

fn answer(call: Call, status: u16, body: &Value) {
    call.answer(status, "application/json", body.to_string());
}

fn worker_state(house: &House) -> &'static str {
    house.gateway.data_plane().pools.all()[0].workers()[0].state
}

async fn until_state(house: &House, state: &str) {
    let reached = async {
        while worker_state(house) != state {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(crate::support::SOON, reached).await.expect("the worker comes to it");
}

fn of_gateway(rows: &[AttemptRow]) -> Vec<(u16, AttemptOutcome, u64, u64)> {
    let probes = rows.iter().filter(|row| row.tenant == "fairgate");
    probes.map(|row| (row.status, row.outcome, row.provider_tokens, row.charged)).collect()
}

/// Returns refusals that concern one request or one model, as providers document them.
fn refusals() -> [(u16, Value); 4] {
    [
        (
            402,
            json!({"error": {"code": 402, "message": "This request requires more credits, or fewer max_tokens. You requested up to 4000 tokens, but can only afford 300."}}),
        ),
        (
            401,
            json!({"error": {"message": "The tool's token was not accepted", "code": "tool_auth"}}),
        ),
        (400, json!({"error": {"message": "not enabled", "status": "SERVICE_DISABLED"}})),
        (
            429,
            json!({"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        ),
    ]
}

#[tokio::test]
async fn a_refusal_of_one_request_reaches_its_client_and_stops_nobody() {
    for (status, refusal) in refusals() {
        let mut upstream = Scripted::start().await;
        let house = provider_house(&upstream, true).await;
        let other = house.tenant("other", DirectoryLimits::default()).await;
        let first = asking(&house, &house.key);
        answer(upstream.call().await, status, &refusal);
        let got = first.await.unwrap();
        assert_eq!((got.status.as_u16(), got.json()), (status, refusal), "as the provider said it");
        // The gateway asks by itself, and the provider takes that.
        let probe = upstream.call().await;
        assert!(is_probe(&probe), "{:?}", probe.request);
        assert_eq!(probe.request.uri().path(), CHAT);
        // Meanwhile others are served.
        let second = asking(&house, &other);
        upstream.call().await.answer(200, "application/json", GOOD);
        assert_eq!(second.await.unwrap().status, StatusCode::OK);
        probe.answer(200, "application/json", GOOD);
        let rows = house.rows_soon(3).await;
        assert_eq!(of_gateway(&rows), [(200, AttemptOutcome::Completed, 3, 0)]);
        let own = rows.iter().find(|row| row.status == status).unwrap();
        assert_eq!((&*own.tenant, own.charged), ("acme", 0), "{own:?}");
        assert_eq!(worker_state(&house), "up");
        // Further refusals cause no second probe within a minute.
        for _ in 0..2 {
            let again = asking(&house, &house.key);
            let call = upstream.call().await;
            assert!(!is_probe(&call));
            answer(call, status, &json!({"error": {"code": "insufficient_quota"}}));
            assert_eq!(again.await.unwrap().status.as_u16(), status);
        }
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert!(!upstream.has_call(), "one probe a minute");
        house.close().await;
    }
}

#[tokio::test]
async fn a_refused_probe_closes_the_account_and_the_next_one_opens_it() {
    let mut upstream = Scripted::start().await;
    let house = provider_house(&upstream, true).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let spent = json!({"error": {"message": "spent", "code": "insufficient_quota"}});
    let first = asking(&house, &house.key);
    answer(upstream.call().await, 429, &spent);
    assert_eq!(first.await.unwrap().status, StatusCode::TOO_MANY_REQUESTS);
    let probe = upstream.call().await;
    assert!(is_probe(&probe));
    answer(probe, 429, &spent);
    until_state(&house, "out").await;
    house.rows_soon(2).await;
    let refused = asking(&house, &other).await.unwrap();
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::SERVICE_UNAVAILABLE, "provider_out".into())
    );
    assert!(refused.text().contains("insufficient_quota"), "{}", refused.text());
    // A minute later the gateway asks again.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    let probe = upstream.call().await;
    assert!(is_probe(&probe));
    probe.answer(200, "application/json", GOOD);
    until_state(&house, "up").await;
    let served = asking(&house, &other);
    upstream.call().await.answer(200, "application/json", GOOD);
    assert_eq!(served.await.unwrap().status, StatusCode::OK);
    let rows = house.rows_soon(5).await;
    assert_eq!(
        of_gateway(&rows),
        [(429, AttemptOutcome::UpstreamError, 0, 0), (200, AttemptOutcome::Completed, 3, 0)]
    );
    house.close().await;
}

#[tokio::test]
async fn without_probes_two_tenants_close_the_account_and_one_does_not() {
    let mut upstream = Scripted::start().await;
    let house = provider_house(&upstream, false).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let spent = json!({"error": {"message": "spent", "code": "insufficient_quota"}});
    for _ in 0..3 {
        let asked = asking(&house, &house.key);
        answer(upstream.call().await, 429, &spent);
        assert_eq!(asked.await.unwrap().json(), spent);
        assert_eq!(worker_state(&house), "up");
    }
    let asked = asking(&house, &other);
    answer(upstream.call().await, 429, &spent);
    assert_eq!(asked.await.unwrap().json(), spent);
    assert_eq!(worker_state(&house), "out");
    let refused = asking(&house, &house.key).await.unwrap();
    assert_eq!(refused.code(), "provider_out");
    assert!(of_gateway(&house.rows().await).is_empty());
    house.close().await;
}

#[tokio::test]
async fn another_worker_is_tried_and_the_answer_is_kept_for_when_there_is_none() {
    let (mut paid, mut own) = (Scripted::start().await, Scripted::start().await);
    let house = house_with(&paid.url(), |config| {
        let mut second = beside(config, "second", &own.url());
        second.tier = 1;
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(6000), ..hosted() };
        config.upstreams.push(second);
        config.pools[0].workers.push("second".into());
    })
    .await;
    let spent = json!({"error": {"message": "fewer max_tokens", "code": 402}});
    let first = asking(&house, &house.key);
    answer(paid.call().await, 402, &spent);
    own.call().await.answer(200, "application/json", GOOD);
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    let rows = house.rows_soon(2).await;
    let retried = (rows[0].status, rows[0].code.as_deref(), rows[0].charged);
    assert_eq!(retried, (402, Some("provider_out"), 0));
    house.close().await;
}

#[tokio::test]
async fn a_refusal_that_shows_the_credential_is_hidden() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(6000), ..hosted() };
        config.upstreams[0].credential =
            Some(UpstreamCredential { secret: Secret::new("sk-operator-1234") });
    })
    .await;
    let asked = asking(&house, &house.key);
    let refusal = json!({"error": {"message": "no credit for sk-operator-1234", "code": 402}});
    answer(upstream.call().await, 402, &refusal);
    let got = asked.await.unwrap();
    assert_eq!((got.status, got.code()), (StatusCode::BAD_GATEWAY, "upstream_credentials".into()));
    assert!(!got.text().contains("sk-operator"), "{}", got.text());
    house.close().await;
}

#[tokio::test]
async fn a_probe_that_gets_no_answer_closes_nothing_and_does_not_hold_up_a_drain() {
    let mut upstream = Scripted::start().await;
    let house = provider_house(&upstream, true).await;
    let first = asking(&house, &house.key);
    answer(upstream.call().await, 402, &json!({"error": {"code": 402}}));
    first.await.unwrap();
    let probe = upstream.call().await;
    assert!(is_probe(&probe));
    assert_eq!(worker_state(&house), "up");
    let store = house.store.clone();
    let began = std::time::Instant::now();
    house.quiet().await;
    house.gateway.drain(Duration::from_secs(20)).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(probe);
    drop(store);
}

#[tokio::test]
async fn nobody_can_be_called_as_the_gateway_is_in_the_ledger() {
    let upstream = Scripted::start().await;
    let house = provider_house(&upstream, true).await;
    let admin = house.gateway.admin_addr();
    for (path, body) in [
        ("/api/v1/groups", json!({"name": "fairgate", "weight": 100})),
        ("/api/v1/tenants", json!({"name": "fairgate", "group": "group-acme", "weight": 100})),
    ] {
        let json = ("content-type", "application/json");
        let answer = post(path, &body).key("admin").header(json.0, json.1).ask(admin).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text());
        assert!(answer.text().contains("the gateway's own requests"), "{}", answer.text());
    }
    assert_eq!(get("/api/v1/tenants").key("admin").ask(admin).await.status, StatusCode::OK);
    house.close().await;
}
