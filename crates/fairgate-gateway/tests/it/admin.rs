//! Tests of the admin API through its router.

mod directory;
mod document;
mod events;
mod history;
mod ledger;
mod live;
mod money;
mod numbers;
mod observing;
mod operation;
mod pages;
mod refusals;
mod requests;
mod sessions;
mod shared_sessions;
mod what_if;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use fairgate_config::Config;
use fairgate_control::control_plane::ControlPlane;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::Submit;
use fairgate_core::units::Tokens;
use fairgate_gateway::{Gateway, GatewayOptions};
use fairgate_proxy::forward::DataPlane;
use fairgate_runtime::Permit;
use fairgate_store::{KeyHash, Store, StoreOptions};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::House;

pub(crate) const TOKEN: &str = "the-admin-token";

/// A gateway whose upstream is never called, and its admin API.
pub(crate) struct Fixture {
    pub(crate) gateway: Gateway,
    router: Router,
    _folder: tempfile::TempDir,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// Returns the JSON of a response that must have this status.
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() { Value::Null } else { self.json() }
    }

    /// Returns the error code of a response that must have this status.
    pub(crate) fn refused(self, status: u16) -> String {
        let body = self.expect(status);
        let message = body["error"]["message"].as_str().expect("a message");
        assert!(!message.is_empty());
        body["error"]["code"].as_str().expect("a code").to_owned()
    }
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let nowhere = "http://127.0.0.1:9".parse().expect("an address");
        let mut config = Config::embedded(folder.path().to_owned(), listen, nowhere);
        change(&mut config);
        let (store, _) =
            Store::open("sqlite::memory:", StoreOptions::default()).await.expect("a store");
        let admin_token = KeyHash::of(TOKEN.as_bytes());
        let options = GatewayOptions { config, store, admin_token, may_disable_most: false };
        let gateway = Gateway::start(options).await.expect("a gateway");
        let router = fairgate_control::admin::router(gateway.control_plane().clone());
        Self { gateway, router, _folder: folder }
    }

    pub(crate) fn app(&self) -> &Arc<DataPlane> {
        self.gateway.data_plane()
    }

    pub(crate) fn control_plane(&self) -> &Arc<ControlPlane> {
        self.gateway.control_plane()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.expect("routers answer");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        Answer { status: parts.status, headers: parts.headers, text }
    }

    /// Sends a request with this key. The body is JSON, or empty for null.
    pub(crate) async fn as_key(&self, key: &str, method: &str, path: &str, body: Value) -> Answer {
        self.send(request(Some(key), method, path, body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.as_key(TOKEN, "GET", path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.as_key(TOKEN, "POST", path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.as_key(TOKEN, "PATCH", path, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.as_key(TOKEN, "DELETE", path, Value::Null).await
    }

    /// Adds a group and a tenant in it.
    pub(crate) async fn tenant(&self, group: &str, tenant: &str) {
        // The group may be there already.
        let _ = self.post("/api/v1/groups", json!({"name": group})).await;
        self.post("/api/v1/tenants", json!({"name": tenant, "group": group})).await.expect(201);
    }

    /// Creates a key of a tenant, and returns its id and its secret.
    pub(crate) async fn key(&self, tenant: &str) -> (String, String) {
        let made = self.post("/api/v1/keys", json!({"tenant": tenant})).await.expect(201);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        (text(&made["key"]["id"]), text(&made["secret"]))
    }

    /// Returns the entries of the audit trail, newest first: actor, action, subject.
    pub(crate) async fn audit(&self) -> Vec<(String, String, String)> {
        let page = self.get("/api/v1/audit?limit=1000").await.expect(200);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let entries = page["items"].as_array().expect("a list").iter();
        entries.map(|e| (text(&e["actor"]), text(&e["action"]), text(&e["subject"]))).collect()
    }

    /// Submits a request of this tenant to the pool.
    pub(crate) fn submit(&self, id: &str, group: &str, tenant: &str, cost: u64) -> Asking {
        let attributes = Attributes::none()
            .with(Attribute::Group, group)
            .with(Attribute::Tenant, tenant)
            .with(Attribute::Key, &format!("key-of-{tenant}"));
        let submit = Submit { attributes, cost: Some(Tokens(cost)), ..Submit::new(id) };
        let gate = self.app().pools.all()[0].gate.clone();
        tokio::spawn(async move { gate.admit(submit).await.expect("a permit") })
    }

    /// Waits until the pool has these numbers of requests in flight and waiting.
    pub(crate) async fn until(&self, in_flight: u64, waiting: u64) {
        let gate = &self.app().pools.all()[0].gate;
        loop {
            let live = gate.status().await.expect("a pool");
            if (live.in_flight, live.waiting) == (in_flight, waiting) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A request that waits for its slot.
pub(crate) type Asking = tokio::task::JoinHandle<Permit>;

pub(crate) fn request(key: Option<&str>, method: &str, path: &str, body: Value) -> Request<Body> {
    let method: Method = method.parse().expect("a method");
    let mut request = Request::builder().method(method).uri(path);
    if let Some(key) = key {
        request = request.header(AUTHORIZATION, format!("Bearer {key}"));
    }
    match body {
        Value::Null => request.body(Body::empty()),
        body => request.header(CONTENT_TYPE, "application/json").body(Body::from(body.to_string())),
    }
    .expect("a request")
}

/// Returns the admin API's response to the admin token, from a gateway that serves.
pub(crate) async fn seen_by_admin(house: &House, path: &str) -> Value {
    seen_by(house, "admin", path).await
}

/// Returns the admin API's response to this key.
pub(crate) async fn seen_by(house: &House, key: &str, path: &str) -> Value {
    let router = fairgate_control::admin::router(house.gateway.control_plane().clone());
    let answer = router.oneshot(request(Some(key), "GET", path, Value::Null)).await;
    let answer = answer.expect("routers answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let body = answer.into_body().collect().await.expect("a body");
    serde_json::from_slice(&body.to_bytes()).expect("JSON")
}
