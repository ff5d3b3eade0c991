//! Tests of the paths at the clients' address, and at the admin API's address if it has one of its
//! own.

use http::StatusCode;
use serde_json::json;

use crate::support::client::{get, post};
use crate::support::{house, house_with, sim};

#[tokio::test]
async fn tenants_see_what_is_theirs_where_clients_connect() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.admin.listen = Some(([127, 0, 0, 1], 0).into());
    })
    .await;
    let addr = house.gateway.addr();
    let chat = json!({"model": "sim", "messages": [{"role": "user", "content": "x"}]});
    let asked = post("/v1/chat/completions", &chat).key(&house.key).ask(addr).await;
    let id = asked.header("x-fairgate-request-id").unwrap();
    for port in [addr, house.gateway.admin_addr()] {
        let me = get("/api/v1/me").key(&house.key).ask(port).await;
        assert_eq!((me.status, &me.json()["tenant"]), (StatusCode::OK, &json!("acme")));
        let list = get("/api/v1/requests").key(&house.key).ask(port).await;
        assert_eq!(list.status, StatusCode::OK);
        let one = get(&format!("/api/v1/requests/{id}")).key(&house.key).ask(port).await;
        assert_eq!((one.status, &one.json()["state"]), (StatusCode::OK, &json!("ended")));
    }
    // The admin token is for the other port.
    for path in ["/api/v1/me", "/api/v1/requests"] {
        let admin = get(path).key("admin").ask(addr).await;
        assert_eq!(
            (admin.status, admin.code().as_str()),
            (StatusCode::UNAUTHORIZED, "invalid_api_key")
        );
    }
    let admin = get("/api/v1/requests").key("admin").ask(house.gateway.admin_addr()).await;
    assert_eq!(admin.status, StatusCode::OK);
    for path in ["/api/v1/tenants", "/api/v1/mean", "/api/v1", "/metrics"] {
        let hidden = get(path).key("admin").ask(addr).await;
        assert_eq!((hidden.status, hidden.code().as_str()), (StatusCode::NOT_FOUND, "not_found"));
        let says = hidden.text().contains("address of its own");
        assert_eq!(says, path != "/metrics", "{}", hidden.text());
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_path_that_is_not_there_is_named() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let addr = house.gateway.addr();
    let twice = get("/v1/v1/chat/completions").ask(addr).await;
    assert_eq!((twice.status, twice.code().as_str()), (StatusCode::NOT_FOUND, "not_found"));
    assert!(twice.text().contains("/v1/v1/chat/completions"), "{}", twice.text());
    assert!(twice.text().contains("ends in /v1 already"), "{}", twice.text());
    let other = get("/v1/audio").ask(addr).await;
    assert!(other.text().contains("/v1/audio") && other.text().contains("under /v1"));
    house.close().await;
    sim.stop().await;
}
