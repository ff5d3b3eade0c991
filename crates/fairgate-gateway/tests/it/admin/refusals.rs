//! Tests of refusals of the admin API, and of their messages.

use axum::body::Body;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::{Value, json};

use super::{Fixture, TOKEN, request};

/// All paths, with their methods, that need the admin token.
const ADMIN_ONLY: [(&str, &str); 31] = [
    ("GET", "/api/v1/groups"),
    ("POST", "/api/v1/groups"),
    ("GET", "/api/v1/groups/a"),
    ("PATCH", "/api/v1/groups/a"),
    ("DELETE", "/api/v1/groups/a"),
    ("GET", "/api/v1/tenants"),
    ("POST", "/api/v1/tenants"),
    ("GET", "/api/v1/tenants/a"),
    ("PATCH", "/api/v1/tenants/a"),
    ("DELETE", "/api/v1/tenants/a"),
    ("GET", "/api/v1/tenants/a/budgets"),
    ("GET", "/api/v1/keys"),
    ("POST", "/api/v1/keys"),
    ("GET", "/api/v1/keys/a"),
    ("PATCH", "/api/v1/keys/a"),
    ("POST", "/api/v1/keys/a/rotate"),
    ("POST", "/api/v1/keys/a/revoke"),
    ("GET", "/api/v1/keys/a/budgets"),
    ("GET", "/api/v1/budgets"),
    ("GET", "/api/v1/usage"),
    ("GET", "/api/v1/attempts"),
    ("GET", "/api/v1/audit"),
    ("POST", "/api/v1/audit/1/undo"),
    ("GET", "/api/v1/config"),
    ("GET", "/api/v1/pools"),
    ("GET", "/api/v1/pools/sim"),
    ("GET", "/api/v1/pools/sim/policy"),
    ("POST", "/api/v1/pools/sim/hold"),
    ("POST", "/api/v1/pools/sim/resume"),
    ("POST", "/api/v1/config/reload"),
    ("GET", "/api/v1/fairshare/live"),
];

#[tokio::test]
async fn nothing_opens_without_the_token() {
    let it = Fixture::new().await;
    it.tenant("g", "t").await;
    let (_, secret) = it.key("t").await;
    for (method, path) in ADMIN_ONLY.into_iter().chain([("GET", "/api/v1/fairshare/live/stream")]) {
        let body = if method == "GET" { Value::Null } else { json!({}) };
        let without = it.send(request(None, method, path, body.clone())).await;
        assert_eq!(without.headers["www-authenticate"], "Bearer", "{method} {path}");
        assert_eq!(without.refused(401), "invalid_api_key", "{method} {path}");
        let wrong = it.as_key("wrong", method, path, body.clone()).await;
        assert_eq!(wrong.refused(401), "invalid_api_key", "{method} {path}");
        let tenant = it.as_key(&secret, method, path, body).await;
        assert_eq!(tenant.refused(403), "admin_only", "{method} {path}");
    }
    let denied = it.get("/metrics").await.text;
    let line = denied.lines().find(|line| line.starts_with("fairgate_admin_denied_total"));
    assert_eq!(line, Some("fairgate_admin_denied_total 96"));
}

#[tokio::test]
async fn tenants_paths_need_some_key() {
    let it = Fixture::new().await;
    let own = ["/api/v1/me", "/api/v1/me/attempts", "/api/v1/me/usage"];
    for path in own.into_iter().chain(["/api/v1/requests", "/api/v1/requests/r"]) {
        assert_eq!(
            it.send(request(None, "GET", path, json!(null))).await.refused(401),
            "invalid_api_key"
        );
    }
    for path in own {
        assert_eq!(it.get(path).await.refused(403), "tenant_only");
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_named() {
    let it = Fixture::new().await;
    assert_eq!(it.get("/api/v1/nothing").await.refused(404), "unknown_path");
    assert_eq!(it.get("/api/v1/groups/").await.refused(404), "unknown_path");
    let wrong = it.delete("/api/v1/groups").await;
    assert_eq!(wrong.headers["allow"], "GET,HEAD,POST");
    assert_eq!(wrong.refused(405), "method_not_allowed");
    assert_eq!(it.get("/api/v1/config/reload").await.headers["allow"], "POST");
}

#[tokio::test]
async fn bodies_are_read_strictly() {
    let it = Fixture::new().await;
    let send = async |content_type: Option<&str>, body: &str| {
        let mut request =
            Request::post("/api/v1/groups").header(AUTHORIZATION, format!("Bearer {TOKEN}"));
        if let Some(content_type) = content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        it.send(request.body(Body::from(body.to_owned())).expect("a request")).await
    };
    let json = Some("application/json");
    assert_eq!(send(None, "{}").await.refused(415), "unsupported_media_type");
    assert_eq!(send(Some("text/plain"), "{}").await.refused(415), "unsupported_media_type");
    assert_eq!(send(json, "{").await.refused(400), "invalid_json");
    assert_eq!(send(json, "").await.refused(400), "invalid_json");
    assert_eq!(send(json, "[]").await.refused(422), "invalid_value");
    assert_eq!(send(json, "{}").await.refused(422), "invalid_value");
    assert_eq!(send(json, r#"{"name":"a","wieght":1}"#).await.refused(422), "invalid_value");
    let field = async |body: &str| send(json, body).await.expect(422)["error"]["field"].clone();
    assert_eq!(field(r#"{"name":"a","weight":0}"#).await, "weight");
    assert_eq!(field(r#"{"name":"a","weight":1000001}"#).await, "weight");
    assert_eq!(field(r#"{"name":"a","weight":null}"#).await, "weight");
    assert_eq!(field(r#"{"name":"a","weight":"5"}"#).await, "weight");
    assert_eq!(field(r#"{"name":"a b"}"#).await, "name");
    assert_eq!(field(r#"{"name":""}"#).await, "name");
    let huge = format!(r#"{{"name":"{}"}}"#, "x".repeat(1024 * 1024));
    assert_eq!(send(json, &huge).await.refused(413), "body_too_large");
    assert_eq!(it.audit().await, [], "nothing was changed");
}

#[tokio::test]
async fn fields_have_bounds() {
    let it = Fixture::new().await;
    it.tenant("g", "t").await;
    let (id, _) = it.key("t").await;
    let too_many: Vec<String> = (0..257).map(|n| format!("m{n}")).collect();
    for (path, body, field) in [
        ("/api/v1/tenants/t", json!({"limits": {"in_flight": 0}}), "in_flight"),
        (
            "/api/v1/tenants/t",
            json!({"limits": {"tokens_per_day": 1_000_000_000_000_001_u64}}),
            "budgets",
        ),
        ("/api/v1/tenants/t", json!({"limits": {"budget": 1}}), "limits.budget"),
        ("/api/v1/tenants/t", json!({"limits": null}), "limits"),
        ("/api/v1/tenants/t", json!({"disabled": null}), "disabled"),
        ("/api/v1/tenants/t", json!({"name": "u"}), "name"),
        (&format!("/api/v1/keys/{id}"), json!({"models": too_many}), "models"),
        (&format!("/api/v1/keys/{id}"), json!({"models": [""]}), "models[0]"),
        (&format!("/api/v1/keys/{id}"), json!({"classes": [" "]}), "classes[0]"),
        (&format!("/api/v1/keys/{id}"), json!({"taints": too_many}), "taints"),
        (&format!("/api/v1/keys/{id}"), json!({"taints": ["a b"]}), "taints[0]"),
        (&format!("/api/v1/keys/{id}"), json!({"priority_max": -1}), "priority_max"),
        (&format!("/api/v1/keys/{id}"), json!({"priority_max": 2_147_483_648_u64}), "priority_max"),
        (&format!("/api/v1/keys/{id}"), json!({"deadline_ms": 0}), "deadline_ms"),
        (&format!("/api/v1/keys/{id}"), json!({"deadline_min_ms": 86_400_001}), "deadline_min_ms"),
        (&format!("/api/v1/keys/{id}"), json!({"may_pin": null}), "may_pin"),
        (&format!("/api/v1/keys/{id}"), json!({"expires_at": "tomorrow"}), "expires_at"),
        (&format!("/api/v1/keys/{id}"), json!({"name": "a\nb"}), "name"),
    ] {
        assert_eq!(
            it.patch(path, body.clone()).await.expect(422)["error"]["field"],
            field,
            "{body}"
        );
    }
}

#[tokio::test]
async fn query_strings_and_headers_are_read_strictly() {
    let it = Fixture::new().await;
    for path in [
        "/api/v1/groups?limit=0",
        "/api/v1/groups?limit=1001",
        "/api/v1/groups?limit=x",
        "/api/v1/groups?limt=5",
        "/api/v1/groups?limit=5&limit=6",
        "/api/v1/usage?since=yesterday",
        "/api/v1/usage?by=color",
        "/api/v1/usage?format=xml",
        "/api/v1/usage?by=tenant&split=tenant",
        "/api/v1/usage?split=color",
        "/api/v1/attempts?status=2",
        "/api/v1/attempts?outcome=fine",
        "/api/v1/attempts?cursor=5",
        "/api/v1/attempts?waited_min_ms=-1",
        "/api/v1/audit?since=yesterday",
        "/api/v1/audit?before=-1",
        "/api/v1/requests?state=lost",
        "/api/v1/fairshare/live/stream?every_ms=199",
        "/api/v1/fairshare/live/stream?events=0",
    ] {
        assert_eq!(it.get(path).await.refused(400), "invalid_query", "{path}");
    }
    assert_eq!(it.get("/api/v1/groups/%ff").await.refused(400), "invalid_path");
    for actor in ["", "two words", &"x".repeat(65)] {
        let mut named = request(Some(TOKEN), "POST", "/api/v1/groups", json!({"name": "a"}));
        named.headers_mut().insert("x-fairgate-actor", actor.parse().expect("a header"));
        assert_eq!(it.send(named).await.refused(400), "invalid_header", "{actor:?}");
    }
}

#[tokio::test]
async fn a_store_that_is_gone_is_a_503() {
    let it = Fixture::new().await;
    it.app().store.close().await.expect("closed");
    assert_eq!(
        it.post("/api/v1/groups", json!({"name": "a"})).await.refused(503),
        "store_unavailable"
    );
    let not_ready = it.get("/readyz").await.expect(503);
    assert_eq!(not_ready["ready"], false);
    assert!(not_ready["reasons"][0].as_str().expect("a reason").contains("database"));
}
