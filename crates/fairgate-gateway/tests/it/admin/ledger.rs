//! Tests of usage, rows and budgets.

use fairgate_store::{AttemptOutcome, AttemptRow, MicroUnits, UnixMicros, UsageSource};
use serde_json::json;

use super::Fixture;

pub(super) const START: i64 = 1_700_000_000_000_000;

pub(super) fn row(request: &str, tenant: &str, charged: u64) -> AttemptRow {
    AttemptRow {
        request: request.into(),
        attempt: 1,
        last: true,
        started_at: UnixMicros(START),
        group: "a".into(),
        tenant: tenant.into(),
        key: "key-1".into(),
        agent: None,
        session: None,
        route: "/v1/chat/completions".into(),
        stream: false,
        model: "sim".into(),
        pool: Some("sim".into()),
        worker: Some("sim".into()),
        estimate: 10,
        input_tokens: 3,
        cached_tokens: 1,
        output_tokens: 4,
        charged,
        usage: UsageSource::Reported,
        waited_us: 5,
        first_token_us: Some(6),
        total_us: 7,
        status: 200,
        outcome: AttemptOutcome::Completed,
        code: None,
        brownout: false,
        occupied: 0,
        provider_tokens: 7,
        money: MicroUnits(7_250),
        price: Some("price-1".into()),
        tier: 1,
        class: Some("chat".into()),
        cache_written_tokens: 0,
        cache_written_1h_tokens: 0,
        estimate_uncached: 11,
        charged_uncached: charged + 2,
        worker_us: 25,
        price_set: Some("wt-1".into()),
        claim: None,
    }
}

#[tokio::test]
async fn usage_is_summed_as_json_and_csv() {
    let it = Fixture::new().await;
    it.app().store.record(row("r1", "chat", 7)).await.expect("recorded");
    it.app().store.record(row("r2", "a,b", 8)).await.expect("recorded");
    let usage = it.get("/api/v1/usage?since=2023-11-14T00:00:00Z&by=tenant").await.expect(200);
    assert_eq!(
        (&usage["by"], &usage["since"]),
        (&json!("tenant"), &json!("2023-11-14T00:00:00.000000Z"))
    );
    let names: Vec<_> =
        usage["rows"].as_array().expect("rows").iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["a,b", "chat"], "the most charged first");
    assert_eq!(usage["rows"][1]["charged_tokens"], 7);
    let csv = it.get("/api/v1/usage?since=1700000000&quantiles=true&format=csv").await;
    assert_eq!(csv.headers["content-type"], "text/csv; charset=utf-8");
    let lines: Vec<&str> = csv.text.split("\r\n").collect();
    assert_eq!(lines[1], "\"a,b\",1,0,3,1,4,8,5,5,6,7,0.00725,,,0.533333,5,5,25,0.5");
    assert_eq!(lines[2], "chat,1,0,3,1,4,7,5,5,6,7,0.00725,,,0.466666,5,5,25,0.5");
    let tiers = it.get("/api/v1/usage?since=1700000000&by=tier").await.expect(200);
    let hosted = json!({"name": "1", "requests": 2, "money": "0.0145", "provider_tokens": 14});
    for (field, value) in hosted.as_object().expect("fields") {
        assert_eq!(tiers["rows"][0][field], *value, "{field}");
    }
    let none = it.get("/api/v1/usage?since=1h").await.expect(200);
    assert_eq!(none["rows"], json!([]));
    let one =
        it.get("/api/v1/usage?since=1700000000&tenant=chat&model=sim&by=model").await.expect(200);
    assert_eq!(one["rows"][0]["name"], "sim");
    assert_eq!(one["rows"][0]["requests"], 1);
}

#[tokio::test]
async fn rows_are_listed_and_found_by_their_request() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    it.tenant("a", "batch").await;
    let ((_, chat), (_, batch)) = (it.key("chat").await, it.key("batch").await);
    it.app().store.record(row("r1", "chat", 7)).await.expect("recorded");
    it.app().store.record(row("r2", "batch", 8)).await.expect("recorded");
    let rows = it.get("/api/v1/attempts?tenant=chat&limit=5").await.expect(200);
    assert_eq!(rows["items"].as_array().map(Vec::len), Some(1));
    let expected = json!({
        "request": "r1", "attempt": 1, "last": true, "started_at": "2023-11-14T22:13:20.000000Z", "group": "a",
        "tenant": "chat", "key": "key-1", "agent": null, "session": null, "route": "/v1/chat/completions",
        "stream": false, "model": "sim", "pool": "sim", "worker": "sim", "estimate_tokens": 10, "estimate_uncached_tokens": 11, "input_tokens": 3,
        "cached_tokens": 1, "cache_written_tokens": 0, "cache_written_1h_tokens": 0, "output_tokens": 4, "charged_tokens": 7, "charged_uncached_tokens": 9, "provider_tokens": 7, "worker_us": 25, "price_set": "wt-1", "money": "0.00725", "price": "price-1", "tier": 1, "class": "chat", "project": null, "task": null, "epoch": null, "usage": "reported", "waited_us": 5,
        "first_token_us": 6, "total_us": 7, "status": 200, "outcome": "completed", "code": null, "brownout": false, "occupied": 0,
    });
    assert_eq!(rows["items"][0], expected);
    assert_eq!(it.get("/api/v1/attempts?since=24h").await.expect(200)["items"], json!([]));

    let ended = it.get("/api/v1/requests/r1").await.expect(200);
    assert_eq!((&ended["state"], &ended["attempts"]), (&json!("ended"), &json!([expected])));
    let own = it.as_key(&chat, "GET", "/api/v1/requests/r1", json!(null)).await.expect(200);
    let own = &own["attempts"][0];
    assert_eq!((&own["estimate_tokens"], &own["charged_tokens"]), (&json!(11), &json!(9)));
    assert_eq!((&own["worker_us"], &own["price_set"]), (&json!(null), &json!(null)));
    let not_own = it.as_key(&batch, "GET", "/api/v1/requests/r1", json!(null)).await;
    assert_eq!(not_own.refused(404), "not_found");
}

#[tokio::test]
async fn budgets_show_what_is_left() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    it.patch("/api/v1/tenants/chat", json!({"limits": {"tokens_per_day": 100}})).await.expect(200);
    let new = json!({"tenant": "chat", "limits": {"tokens_per_month": 500}});
    let made = it.post("/api/v1/keys", new).await.expect(201);
    let id = made["key"]["id"].as_str().expect("id");
    let tenant = it.get("/api/v1/tenants/chat/budgets").await.expect(200);
    let only = &tenant["items"][0];
    assert_eq!((&only["scope"], &only["period"]), (&json!("tenant"), &json!("day")));
    assert_eq!((&only["limit_tokens"], &only["left_tokens"]), (&json!(100), &json!(100)));
    let key = it.get(&format!("/api/v1/keys/{id}/budgets")).await.expect(200);
    assert_eq!(key["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(it.get("/api/v1/tenants/none/budgets").await.refused(404), "not_found");
    assert_eq!(it.get("/api/v1/keys/none/budgets").await.refused(404), "not_found");
}
