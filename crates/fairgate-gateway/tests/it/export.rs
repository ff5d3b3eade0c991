//! Tests of the gateway while its ledger is exported to an unreachable ClickHouse, and without an
//! export.

use fairgate_config::ClickHouseConfig;
use http::StatusCode;
use serde_json::json;

use crate::support::client::{get, post};
use crate::support::{SOON, house, house_with, sim};

const CHECK: &str = "/api/v1/export/check";

#[tokio::test]
async fn without_clickhouse_requests_are_served_and_rows_wait() {
    let sim = sim();
    // A port on which nothing listens any more.
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    drop(taken);
    let house = house_with(&sim.url(), |config| {
        config.store.clickhouse = Some(ClickHouseConfig {
            url: url.parse().unwrap(),
            database: "default".into(),
            credential: None,
            ca: None,
        });
    })
    .await;
    let addr = house.gateway.addr();
    let chat = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    let answer = post("/v1/chat/completions", &chat).key(&house.key).ask(addr).await;
    assert_eq!(answer.status, StatusCode::OK);
    let told = async {
        loop {
            let ready = get("/readyz").ask(addr).await.json();
            assert_eq!(ready["ready"], true);
            let warning = ready["warnings"][0].as_str().unwrap_or_default().to_owned();
            let metrics = get("/metrics").ask(addr).await.text();
            let has = |line: &str| metrics.lines().any(|other| other == line);
            if !warning.is_empty() && has("fairgate_export_backlog_rows 1") {
                assert!(has("fairgate_export_active 1"), "{metrics}");
                assert!(has("fairgate_export_rows_dropped_total 0"), "{metrics}");
                return warning;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let warning = tokio::time::timeout(SOON, told).await.expect("the row waits");
    assert!(warning.contains("is not exported: ClickHouse does not answer"), "{warning}");
    assert!(!warning.contains(&url), "everybody may read it: {warning}");
    let check = get(CHECK).key("admin").ask(addr).await;
    assert_eq!(check.status, StatusCode::SERVICE_UNAVAILABLE);
    let error = check.json()["error"].clone();
    assert_eq!(error["code"], "export_unavailable");
    assert!(error["message"].as_str().unwrap_or_default().contains(&url), "{error}");
    let check = get(&format!("{CHECK}?days=400")).key("admin").ask(addr).await;
    assert_eq!(check.status, StatusCode::BAD_REQUEST);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_gateway_without_an_export_says_so() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let addr = house.gateway.addr();
    let check = get(CHECK).key("admin").ask(addr).await;
    assert_eq!(check.status, StatusCode::CONFLICT);
    assert_eq!(check.json()["error"]["code"], "no_export");
    assert!(!get("/metrics").ask(addr).await.text().contains("fairgate_export"));
    assert_eq!(get(CHECK).key(&house.key).ask(addr).await.status, StatusCode::FORBIDDEN);
    house.close().await;
    sim.stop().await;
}
