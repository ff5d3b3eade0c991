//! Tests of sessions of the pages.

use axum::body::Body;
use fairgate_config::Secret;
use http::Request;
use http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN, SET_COOKIE};
use serde_json::{Value, json};

use super::{Answer, Fixture, TOKEN, request};

const HERE: &str = "http://gw.example:8080";
const VIEWER: &str = "the-token-of-a-viewer";

/// Returns a request of a page, with this cookie.
fn of_page(cookie: &str, method: &str, path: &str, body: Value) -> Request<Body> {
    let mut request = request(None, method, path, body);
    let headers = request.headers_mut();
    headers.insert(COOKIE, cookie.parse().expect("a cookie"));
    headers.insert(HOST, "gw.example:8080".parse().expect("a host"));
    headers.insert(ORIGIN, HERE.parse().expect("an origin"));
    headers.insert("x-fairgate-session", "1".parse().expect("a value"));
    request
}

async fn log_in(it: &Fixture, body: Value) -> Answer {
    it.send(request(None, "POST", "/api/v1/session", body)).await
}

/// Returns the cookie of a new session, as a browser sends it.
async fn cookie_of(it: &Fixture, token: &str) -> String {
    let answer = log_in(it, json!({"token": token, "name": "on-call"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let cookie = answer.headers[SET_COOKIE].to_str().expect("text");
    assert!(cookie.contains("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(cookie.contains("; Path=/api/v1; Max-Age=43200"), "{cookie}");
    assert!(!cookie.contains("Secure"), "this test has no TLS: {cookie}");
    assert!(!cookie.contains(token) && !answer.text.contains(token));
    cookie.split(';').next().expect("a pair").to_owned()
}

async fn with_viewer() -> Fixture {
    Fixture::with(|config| config.admin.viewer_token = Some(Secret::new(VIEWER))).await
}

#[tokio::test]
async fn a_session_stands_for_the_token_until_somebody_logs_out() {
    let it = Fixture::new().await;
    let none = it.send(request(None, "GET", "/api/v1/session", json!(null))).await;
    assert_eq!(none.refused(401), "no_session");
    let cookie = cookie_of(&it, TOKEN).await;
    assert!(cookie.starts_with("fairgate_admin="), "{cookie}");
    let get = async |path: &str| it.send(of_page(&cookie, "GET", path, json!(null))).await;
    let session = get("/api/v1/session").await.expect(200);
    assert_eq!((&session["kind"], &session["actor"]), (&json!("admin"), &json!("admin:on-call")));
    assert!(session["expires_at"].is_string() && session["may_write"] == true, "{session}");
    get("/api/v1/tenants").await.expect(200);
    let group = json!({"name": "made-on-a-page"});
    it.send(of_page(&cookie, "POST", "/api/v1/groups", group)).await.expect(201);
    assert_eq!(it.audit().await[0].0, "admin:on-call");
    let out = it.send(of_page(&cookie, "DELETE", "/api/v1/session", json!(null))).await;
    assert_eq!(out.status, 204);
    assert!(out.headers[SET_COOKIE].to_str().expect("text").starts_with("fairgate_admin=; "));
    assert_eq!(get("/api/v1/tenants").await.refused(401), "session_over", "a copy is no use");
}

#[tokio::test]
async fn a_change_must_come_from_a_page_of_ours() {
    let it = Fixture::new().await;
    let cookie = cookie_of(&it, TOKEN).await;
    let group = json!({"name": "g"});
    let whole = || of_page(&cookie, "POST", "/api/v1/groups", group.clone());
    for foreign in ["http://evil.example", "http://gw.example", "https://gw.example:8081", "null"] {
        let mut request = whole();
        request.headers_mut().insert(ORIGIN, foreign.parse().expect("an origin"));
        assert_eq!(it.send(request).await.refused(403), "cross_site", "{foreign}");
    }
    for missing in ["origin", "x-fairgate-session"] {
        let mut request = whole();
        request.headers_mut().remove(missing);
        assert_eq!(it.send(request).await.refused(403), "cross_site", "{missing}");
    }
    // A read from elsewhere is refused as well, and a plain one is not.
    let mut read = of_page(&cookie, "GET", "/api/v1/tenants", json!(null));
    read.headers_mut().insert(ORIGIN, "http://evil.example".parse().expect("an origin"));
    assert_eq!(it.send(read).await.refused(403), "cross_site");
    let mut read = of_page(&cookie, "GET", "/api/v1/tenants", json!(null));
    read.headers_mut().remove(ORIGIN);
    read.headers_mut().remove("x-fairgate-session");
    it.send(read).await.expect(200);
    let mut login = request(None, "POST", "/api/v1/session", json!({"token": TOKEN}));
    login.headers_mut().insert(ORIGIN, "http://evil.example".parse().expect("an origin"));
    assert_eq!(it.send(login).await.refused(403), "cross_site");
    it.send(whole()).await.expect(201);
}

#[tokio::test]
async fn a_session_ends_with_its_token_or_key() {
    let it = with_viewer().await;
    it.tenant("prod", "chat").await;
    let (id, key) = it.key("chat").await;
    let tenant = cookie_of(&it, &key).await;
    assert!(tenant.starts_with("fairgate_tenant="), "{tenant}");
    let viewer = cookie_of(&it, VIEWER).await;
    let show =
        async |cookie: &str| it.send(of_page(cookie, "GET", "/api/v1/session", json!(null))).await;
    let session = show(&tenant).await.expect(200);
    assert_eq!((&session["kind"], &session["tenant"]), (&json!("tenant"), &json!("chat")));
    assert_eq!(session["key"], id);
    it.post(&format!("/api/v1/keys/{id}/rotate"), json!(null)).await.expect(200);
    assert_eq!(show(&tenant).await.refused(401), "session_over");
    show(&viewer).await.expect(200);
    let config = it.app().config.clone();
    let mut changed = (**config.load()).clone();
    changed.admin.viewer_token = Some(Secret::new("another-token-of-a-viewer"));
    config.store(std::sync::Arc::new(changed));
    assert_eq!(show(&viewer).await.refused(401), "session_over");
}

#[tokio::test]
async fn a_viewer_reads_everything_and_changes_nothing() {
    let it = with_viewer().await;
    let cookie = cookie_of(&it, VIEWER).await;
    it.send(of_page(&cookie, "GET", "/api/v1/tenants", json!(null))).await.expect(200);
    it.as_key(VIEWER, "GET", "/api/v1/audit", json!(null)).await.expect(200);
    let session = it.as_key(VIEWER, "GET", "/api/v1/session", json!(null)).await.expect(200);
    assert_eq!((&session["kind"], &session["may_write"]), (&json!("viewer"), &json!(false)));
    let document = fairgate_control::admin::document();
    let mut refused = 0;
    for (path, item) in document["paths"].as_object().expect("paths") {
        let path = path.replace("{name}", "x").replace("{id}", "x").replace("{pool}", "sim");
        let path = path.replace("{worker}", "x").replace("{task}", "x");
        for method in item.as_object().expect("operations").keys() {
            let is_other = path.starts_with("/v1/leases") || path.starts_with("/api/v1/session");
            if is_other || method == "get" || path.contains("/agents/x/") {
                continue;
            }
            let method = method.to_uppercase();
            let with_cookie = it.send(of_page(&cookie, &method, &path, json!({}))).await;
            assert_eq!(with_cookie.refused(403), "read_only", "{method} {path}");
            let with_token = it.as_key(VIEWER, &method, &path, json!({})).await;
            assert_eq!(with_token.refused(403), "read_only", "{method} {path}");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused}");
}

#[tokio::test]
async fn ten_wrong_tokens_a_minute_and_then_none() {
    let it = Fixture::new().await;
    for _ in 0..10 {
        let answer = log_in(&it, json!({"token": "wrong"})).await;
        assert_eq!(answer.refused(401), "invalid_token");
    }
    let answer = log_in(&it, json!({"token": TOKEN})).await;
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(answer.refused(429), "too_many_tries", "even the right one");
}

#[tokio::test]
async fn wrong_logins_are_refused_with_a_reason() {
    let it = Fixture::new().await;
    let refused = async |body: Value| {
        let answer = log_in(&it, body).await;
        let code = answer.json()["error"]["code"].as_str().expect("a code").to_owned();
        (answer.status.as_u16(), code)
    };
    assert_eq!(refused(json!({"token": ""})).await, (401, "invalid_token".into()));
    assert_eq!(refused(json!({"token": "x".repeat(300)})).await.0, 401);
    assert_eq!(refused(json!({"token": TOKEN, "name": "two words"})).await.0, 400);
    assert_eq!(refused(json!({"token": TOKEN, "nme": "x"})).await.0, 422);
    let mut no_json = request(None, "POST", "/api/v1/session", json!({"token": TOKEN}));
    no_json.headers_mut().remove(CONTENT_TYPE);
    assert_eq!(it.send(no_json).await.status, 415, "a form of a foreign page is no JSON");
}

#[tokio::test]
async fn one_cookie_is_not_taken_for_the_other() {
    let it = Fixture::new().await;
    it.tenant("prod", "chat").await;
    let (_, key) = it.key("chat").await;
    let (admin, tenant) = (cookie_of(&it, TOKEN).await, cookie_of(&it, &key).await);
    let both = format!("{admin}; {tenant}");
    let kind = async |cookie: &str, word: &str| {
        let mut request = of_page(cookie, "GET", "/api/v1/session", json!(null));
        request.headers_mut().insert("x-fairgate-session", word.parse().expect("a value"));
        let answer = it.send(request).await;
        match answer.status.as_u16() {
            200 => answer.json()["kind"].as_str().expect("a kind").to_owned(),
            status => answer.refused(status),
        }
    };
    assert_eq!(kind(&both, "admin").await, "admin");
    assert_eq!(kind(&both, "me").await, "tenant");
    assert_eq!(kind(&both, "1").await, "admin");
    assert_eq!(kind(&admin, "me").await, "no_session");
    assert_eq!(kind(&tenant, "admin").await, "no_session");
    let swapped = tenant.replace("fairgate_tenant", "fairgate_admin");
    assert_eq!(kind(&swapped, "1").await, "session_over");
    // The clients' address takes no session of an admin.
    let mut request = of_page(&both, "GET", "/api/v1/session", json!(null));
    request.headers_mut().insert("x-fairgate-session", "admin".parse().expect("a value"));
    request.extensions_mut().insert(fairgate_proxy::server::AtClientAddress);
    assert_eq!(it.send(request).await.refused(401), "no_session");
    let mut request = of_page(&both, "GET", "/api/v1/session", json!(null));
    request.extensions_mut().insert(fairgate_proxy::server::AtClientAddress);
    assert_eq!(it.send(request).await.expect(200)["kind"], "tenant");
    let mut login = super::request(None, "POST", "/api/v1/session", json!({"token": TOKEN}));
    login.extensions_mut().insert(fairgate_proxy::server::AtClientAddress);
    assert_eq!(it.send(login).await.refused(401), "invalid_token");
}

#[tokio::test]
async fn an_address_of_the_admin_api_alone_takes_no_session_of_a_tenant() {
    let it = Fixture::new().await;
    it.tenant("prod", "chat").await;
    let (_, key) = it.key("chat").await;
    let (admin, tenant) = (cookie_of(&it, TOKEN).await, cookie_of(&it, &key).await);
    let at_admin = async |cookie: &str, path: &str| {
        let mut request = of_page(cookie, "GET", path, json!(null));
        request.extensions_mut().insert(fairgate_proxy::server::AtAdminAddress);
        it.send(request).await
    };
    for path in ["/api/v1/session", "/api/v1/me", "/api/v1/requests"] {
        assert_eq!(at_admin(&tenant, path).await.status, 401, "{path}");
    }
    at_admin(&format!("{tenant}; {admin}"), "/api/v1/tenants").await.expect(200);
    let mut login = request(None, "POST", "/api/v1/session", json!({"token": key}));
    login.extensions_mut().insert(fairgate_proxy::server::AtAdminAddress);
    assert_eq!(it.send(login).await.refused(401), "invalid_token");
}

#[tokio::test]
async fn a_tenants_session_gives_nothing_of_others_on_any_route() {
    let it = Fixture::new().await;
    it.tenant("others-group", "others-tenant").await;
    let (others_id, others_key) = it.key("others-tenant").await;
    it.tenant("prod", "chat").await;
    let (_, key) = it.key("chat").await;
    let _theirs = it.submit("others-request", "others-group", "others-tenant", 10).await;
    let cookie = cookie_of(&it, &key).await;
    let document = fairgate_control::admin::document();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("operations").keys() {
            for name in ["others-tenant", "others-group", "others-request", &others_id, "sim"] {
                let path = ["{name}", "{id}", "{pool}", "{worker}", "{task}"]
                    .iter()
                    .fold(path.clone(), |path, part| path.replace(part, name));
                if path.starts_with("/v1/leases") || path == "/api/v1/events" {
                    continue;
                }
                if method == "delete" && path == "/api/v1/session" {
                    continue;
                }
                let method = method.to_uppercase();
                let body = if method == "GET" { json!(null) } else { json!({}) };
                let answer = it.send(of_page(&cookie, &method, &path, body)).await;
                let is_document = path == "/api/v1/openapi.json";
                let told = answer.text.replace(&format!("{name:?}").replace('"', "\\\""), "");
                for secret in ["others-tenant", "others-group", "others-request", &*others_key] {
                    assert!(is_document || !told.contains(secret), "{method} {path}: {told}");
                }
                let is_open = answer.status.is_success();
                let is_own = [
                    "/me",
                    "/requests",
                    "/session",
                    "/projects",
                    "/tasks",
                    "/workspaces",
                    "healthz",
                ]
                .iter()
                .any(|own| path.contains(own))
                    || ["readyz", "/metrics", "openapi"].iter().any(|open| path.contains(open));
                assert!(!is_open || is_own, "{method} {path}: {}", answer.text);
            }
        }
    }
}
