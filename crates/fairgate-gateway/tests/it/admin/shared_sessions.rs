//! Tests of sessions over real sockets: on two gateways of one database, over TLS, and after their
//! end.

use std::net::SocketAddr;
use std::time::Duration;

use fairgate_gateway::{Gateway, GatewayDrainReport, GatewayOptions};
use fairgate_store::KeyHash;
use fairgate_time::wall_clock;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{Answer, Question, get, post};
use crate::support::{Folder, House, config, house};

const SESSION: &str = "/api/v1/session";
/// Address of an upstream at which nothing listens.
const NOWHERE: &str = "http://127.0.0.1:9";
const HOUR_US: i64 = 3_600_000_000;

/// Returns a login request with this body.
fn login(body: &Value) -> Question {
    post(SESSION, body).header("content-type", "application/json")
}

/// Returns the name and value of the cookie that a response sets.
fn cookie_in(answer: &Answer) -> String {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let cookie = answer.header("set-cookie").expect("a cookie");
    cookie.split(';').next().expect("a pair").to_owned()
}

async fn cookie_of(addr: SocketAddr, token: &str) -> String {
    cookie_in(&login(&json!({"token": token, "name": "on-call"})).ask(addr).await)
}

async fn shown(addr: SocketAddr, cookie: &str) -> Answer {
    get(SESSION).header("cookie", cookie).ask(addr).await
}

async fn is_over(addr: SocketAddr, cookie: &str) -> bool {
    let answer = shown(addr, cookie).await;
    match answer.status {
        StatusCode::OK => false,
        status => {
            let code = answer.code();
            assert_eq!((status, &*code), (StatusCode::UNAUTHORIZED, "session_over"));
            true
        }
    }
}

async fn log_out(addr: SocketAddr, cookie: &str) {
    let question = Question { method: http::Method::DELETE, ..get(SESSION) }
        .header("cookie", cookie)
        .header("origin", &format!("http://{addr}"))
        .header("x-fairgate-session", "1");
    assert_eq!(question.ask(addr).await.status, StatusCode::NO_CONTENT);
}

/// Starts a second gateway on the database of the first.
async fn beside(house: &House, folder: &Folder) -> Gateway {
    let options = GatewayOptions {
        config: config(folder, NOWHERE),
        store: house.store.clone(),
        admin_token: KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    Gateway::start(options).await.expect("a second gateway")
}

#[tokio::test]
async fn a_session_is_good_at_every_gateway_of_the_database_until_somebody_logs_out_at_any() {
    let house = house(NOWHERE).await;
    let folder = Folder::new();
    let second = beside(&house, &folder).await;
    let (here, there) = (house.gateway.addr(), second.addr());
    let admin = cookie_of(here, "admin").await;
    let tenant = cookie_of(there, &house.key).await;
    for addr in [here, there] {
        let session = shown(addr, &admin).await.json();
        assert_eq!(
            (&session["kind"], &session["actor"]),
            (&json!("admin"), &json!("admin:on-call"))
        );
        let session = shown(addr, &tenant).await.json();
        assert_eq!((&session["kind"], &session["tenant"]), (&json!("tenant"), &json!("acme")));
        let list = get("/api/v1/tenants").header("cookie", &admin).ask(addr).await;
        assert_eq!(list.status, StatusCode::OK);
    }
    let unseen = cookie_of(here, "admin").await;
    log_out(here, &unseen).await;
    assert!(is_over(there, &unseen).await, "the second gateway asks the database at first");
    // The second gateway has seen this one a moment ago, and asks the database again after two seconds.
    log_out(here, &admin).await;
    assert!(is_over(here, &admin).await);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(2)).await;
    tokio::time::resume();
    assert!(is_over(there, &admin).await);
    log_out(there, &tenant).await;
    assert!(is_over(there, &tenant).await);
    let drained = second.drain(Duration::from_secs(5)).await;
    assert_eq!(drained, GatewayDrainReport::default());
    // The second gateway has closed the store of both.
    house.gateway.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn another_database_takes_no_session_of_this_one() {
    let (one, other) = (house(NOWHERE).await, house(NOWHERE).await);
    let cookie = cookie_of(one.gateway.addr(), "admin").await;
    assert!(!is_over(one.gateway.addr(), &cookie).await);
    assert!(is_over(other.gateway.addr(), &cookie).await, "though the admin token is the same");
    one.close().await;
    other.close().await;
}

/// Seals a session's value as the gateways of this database do, so that the test can choose the
/// session's end.
async fn sealed(house: &House, id: &str, expires_at: i64) -> String {
    let key = house.store.installation_secret("sessions").await.expect("a secret");
    let content = format!("1.a.{id}.{expires_at}.");
    let mut hasher = blake3::Hasher::new_keyed(key.expose());
    hasher.update(content.as_bytes());
    hasher.update(&[0]);
    hasher.update(&KeyHash::of(b"admin").0);
    format!("fairgate_admin={content}.{}", hasher.finalize().to_hex())
}

#[tokio::test]
async fn a_session_ends_after_twelve_hours() {
    let house = house(NOWHERE).await;
    let addr = house.gateway.addr();
    let now = wall_clock::now().0;
    let answer = login(&json!({"token": "admin"})).ask(addr).await;
    let value = cookie_in(&answer);
    let mut parts = value.split('.').skip(3);
    let ends: i64 = parts.next().expect("the end").parse().expect("microseconds");
    assert!((now + 12 * HOUR_US..now + 12 * HOUR_US + 60_000_000).contains(&ends), "{value}");
    assert!(answer.header("set-cookie").expect("a cookie").contains("; Max-Age=43200;"));
    // One that began eleven hours ago is good, one that began a moment more than twelve hours ago is not.
    let id = "0123456789abcdef0123456789abcdef";
    assert!(!is_over(addr, &sealed(&house, id, now + HOUR_US).await).await);
    let late = sealed(&house, id, now - 1).await;
    assert!(is_over(addr, &late).await);
    let change = post("/api/v1/groups", &json!({"name": "late"}))
        .header("content-type", "application/json")
        .header("cookie", &late)
        .header("origin", &format!("http://{addr}"))
        .header("x-fairgate-session", "1");
    assert_eq!(change.ask(addr).await.code(), "session_over");
    house.close().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_where_it_is_read() {
    let house = house(NOWHERE).await;
    let addr = house.gateway.addr();
    let padding = "x".repeat(4096);
    let large = login(&json!({"token": padding})).ask(addr).await;
    assert_eq!((large.status.as_u16(), &*large.code()), (413, "body_too_large"));
    let text = "x".repeat(1 << 20);
    let what_if = json!({"pool": "sim", "policy_file": text});
    let large = post("/api/v1/what-if", &what_if)
        .header("content-type", "application/json")
        .key("admin")
        .ask(addr)
        .await;
    assert_eq!((large.status.as_u16(), &*large.code()), (413, "body_too_large"));
    house.close().await;
}
