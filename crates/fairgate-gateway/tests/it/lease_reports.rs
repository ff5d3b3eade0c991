//! Tests of leases' reports about their provider, and of the requests that these reports affect.

use std::time::Duration;

use fairgate_config::QuotaConfig;
use fairgate_store::{DirectoryChange, DirectoryLimits, KeyRights};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::client::{Answer, get, post};
use crate::support::{House, LEASES, UNSTATED_QUOTA, house_with, lease_pool, open_rights};

/// Starts a gateway with a pool of leases, beside the pool `sim` that serves the model `sim`.
async fn leasing(requests_per_minute: Option<u64>) -> House {
    let quota = QuotaConfig { requests_per_minute, ..UNSTATED_QUOTA };
    house_with("http://127.0.0.1:9", |config| {
        lease_pool(config, 32, Duration::from_secs(15), quota);
    })
    .await
}

async fn submit(house: &House, key: &str, wait_ms: u64) -> Answer {
    let body = json!({"cost": 10, "wait_ms": wait_ms});
    post(LEASES, &body).key(key).ask(house.gateway.addr()).await
}

async fn granted(house: &House, key: &str) -> String {
    let answer = submit(house, key, 5000).await;
    assert_eq!(answer.json()["state"], "granted", "{}", answer.text());
    answer.json()["id"].as_str().unwrap().to_owned()
}

async fn say(house: &House, key: &str, id: &str, word: &str, body: Value) -> Answer {
    post(&format!("{LEASES}/{id}/{word}"), &body).key(key).ask(house.gateway.addr()).await
}

async fn cancel(house: &House, key: &str, id: &str) {
    let mut question = get(&format!("{LEASES}/{id}")).key(key);
    question.method = Method::DELETE;
    question.ask(house.gateway.addr()).await;
}

/// Submits a lease that its holder settles at once, with the provider's headers. Returns true if it
/// was granted at once.
async fn is_called(house: &House, key: &str, headers: Value) -> bool {
    let answer = submit(house, key, 0).await;
    let Some(id) = answer.json()["id"].as_str().map(str::to_owned) else { return false };
    if answer.json()["state"] != "granted" {
        cancel(house, key, &id).await;
        return false;
    }
    let used = json!({"tokens": 10, "status": 200, "headers": headers});
    say(house, key, &id, "settle", used).await.status == StatusCode::OK
}

fn refused_for(seconds: u64) -> Value {
    json!({"status": 429, "headers": {"retry-after": seconds.to_string()}})
}

/// Waits for longer than the second after which a pool gets remaining quotas.
async fn pool_knows() {
    tokio::time::sleep(Duration::from_millis(1200)).await;
}

#[tokio::test]
async fn a_reported_refusal_concerns_its_tenant_alone_until_a_second_tenant_says_the_same() {
    let house = leasing(None).await;
    let attacker = house.tenant("attacker", DirectoryLimits::default()).await;
    let held = granted(&house, &house.key).await;
    for word in ["limited", "settle"] {
        let lease = granted(&house, &attacker).await;
        let told = say(&house, &attacker, &lease, word, refused_for(2)).await;
        assert_eq!(told.status, StatusCode::OK, "{}", told.text());
        let refused = submit(&house, &attacker, 0).await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::TOO_MANY_REQUESTS, "provider_limited")
        );
        let retry_after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=2).contains(&retry_after), "{retry_after}");
        for _ in 0..20 {
            assert!(is_called(&house, &house.key, json!({})).await, "the other tenant is delayed");
        }
        // The attacker's own lease is back when its time is over; it was not granted in between.
        tokio::time::sleep(Duration::from_millis(2200)).await;
        cancel(&house, &attacker, &lease).await;
    }
    // The other one meets a limit too: now the pool pauses, for as long as both say, and leases wait in the queue.
    let lease = granted(&house, &attacker).await;
    say(&house, &attacker, &lease, "limited", refused_for(3)).await;
    say(&house, &house.key, &held, "limited", refused_for(2)).await;
    let third = house.tenant("third", DirectoryLimits::default()).await;
    let waiting = submit(&house, &third, 0).await;
    assert_eq!(waiting.json()["state"], "queued", "{}", waiting.text());
    let id = waiting.json()["id"].as_str().unwrap().to_owned();
    let path = format!("{LEASES}/{id}?wait_ms=5000");
    let answer = get(&path).key(&third).ask(house.gateway.addr()).await;
    assert_eq!(answer.json()["state"], "granted", "{}", answer.text());
    for (key, id) in [(&attacker, &lease), (&house.key, &held), (&third, &id)] {
        cancel(&house, key, id).await;
    }
    house.close().await;
}

#[tokio::test]
async fn limits_in_reported_headers_need_two_tenants_and_never_raise_stated_rates() {
    let house = leasing(Some(6000)).await;
    let attacker = house.tenant("attacker", DirectoryLimits::default()).await;
    assert!(is_called(&house, &house.key, json!({})).await);
    let low = json!({"x-ratelimit-limit-requests": "1", "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "60s"});
    assert!(is_called(&house, &attacker, low).await);
    pool_knows().await;
    for _ in 0..20 {
        assert!(is_called(&house, &house.key, json!({})).await, "the other tenant is delayed");
    }
    let rate = || {
        let app = house.gateway.data_plane();
        let pool = app.pools.all().into_iter().find(|pool| &*pool.name == "gpt").unwrap();
        pool.workers()[0].quota.as_ref().unwrap().requests.unwrap().0
    };
    assert_eq!(rate(), 6000);
    let high = json!({"x-ratelimit-limit-requests": "100000"});
    for key in [&attacker, &house.key, &attacker] {
        assert!(is_called(&house, key, high.clone()).await);
    }
    assert_eq!(rate(), 6000, "the rate of the file is not raised");
    let lower = json!({"x-ratelimit-limit-requests": "1200"});
    for key in [&attacker, &house.key] {
        assert!(is_called(&house, key, lower.clone()).await);
    }
    assert_eq!(rate(), 1200, "two tenants say so");
    house.close().await;
}

#[tokio::test]
async fn what_the_only_tenant_reported_is_forgotten_when_a_second_one_comes() {
    let house = leasing(None).await;
    let first = granted(&house, &house.key).await;
    let low = json!({"x-ratelimit-limit-requests": "1", "retry-after": "30"});
    let told = json!({"status": 429, "headers": low});
    say(&house, &house.key, &first, "limited", told).await;
    let waiting = submit(&house, &house.key, 0).await;
    assert_eq!(waiting.json()["state"], "queued", "its own leases wait: {}", waiting.text());
    let victim = house.tenant("victim", DirectoryLimits::default()).await;
    let lease = granted(&house, &victim).await;
    cancel(&house, &victim, &lease).await;
    for _ in 0..20 {
        let lease = granted(&house, &victim).await;
        cancel(&house, &victim, &lease).await;
    }
    assert_eq!(submit(&house, &house.key, 0).await.status, StatusCode::TOO_MANY_REQUESTS);
    let queued = waiting.json()["id"].as_str().unwrap().to_owned();
    for id in [&first, &queued] {
        cancel(&house, &house.key, id).await;
    }
    house.close().await;
}

#[tokio::test]
async fn a_key_for_another_pools_model_opens_no_leases_by_naming_it() {
    let house = leasing(None).await;
    let key = async |models: &[&str]| {
        let key = DirectoryChange::CreateKey {
            tenant: "acme".into(),
            name: models.join("-"),
            weight: 100,
            limits: DirectoryLimits::default(),
            rights: KeyRights {
                models: Some(models.iter().map(|&model| model.into()).collect()),
                ..open_rights()
            },
            expires_at: None,
        };
        house.change(key).await.secret.unwrap().expose().to_owned()
    };
    let ask = async |key: &str, model: &str| {
        let body = json!({"model": model, "wait_ms": 5000});
        post(LEASES, &body).key(key).ask(house.gateway.addr()).await
    };
    let restricted = key(&["sim"]).await;
    for model in ["sim", "gpt-5", ""] {
        let refused = ask(&restricted, model).await;
        assert!(refused.status.is_client_error(), "{model}: {}", refused.text());
    }
    let refused = ask(&restricted, "sim").await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::FORBIDDEN, "model_not_allowed")
    );
    // A key for a model of the leased calls opens leases; so does one without a list, whatever it names.
    let leases = key(&["gpt-5"]).await;
    for (key, model) in [(&leases, "gpt-5"), (&house.key, "sim")] {
        let answer = ask(key, model).await;
        assert_eq!(answer.json()["state"], "granted", "{model}: {}", answer.text());
        cancel(&house, key, answer.json()["id"].as_str().unwrap()).await;
    }
    house.close().await;
}
