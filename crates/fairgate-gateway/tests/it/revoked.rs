//! Tests of tenants and keys that are disabled or revoked while their requests wait.

use fairgate_store::{
    AttemptOutcome, Budget, BudgetPeriod, DirectoryChange, DirectoryLimits, KeyPatch, TenantPatch,
    UnixMicros,
};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::post;
use crate::support::scripted::Scripted;
use crate::support::{Folder, config, house_in};

const CHAT: &str = "/v1/chat/completions";

fn chat(content: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": content}], "max_tokens": 9})
}

/// Starts one request in flight and two waiting ones, changes the directory, and checks the results
/// of all three.
async fn refused_after(
    change: impl FnOnce(String) -> DirectoryChange,
    status: StatusCode,
    code: &str,
) {
    let mut upstream = Scripted::start().await;
    let folder = Folder::new();
    let mut configuration = config(&folder, &upstream.url());
    configuration.pools[0].capacity = 1;
    let budgets = vec![Budget::tokens(1000, BudgetPeriod::Day)];
    let house =
        house_in(folder, configuration, DirectoryLimits { budgets, ..DirectoryLimits::default() })
            .await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let addr = house.gateway.addr();
    let ask = |key: &str, content| {
        let question = post(CHAT, &chat(content)).key(key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let in_flight = ask(&house.key, "rivers");
    let call = upstream.call().await;
    let waiting = [ask(&house.key, "rivers"), ask(&house.key, "rivers")];
    house.until(|live| live.waiting == 2).await;
    let another = ask(&other, "others");
    house.until(|live| live.waiting == 3).await;
    let directory = house.store.directory().await.unwrap();
    let key = directory.keys.iter().find(|key| key.tenant == "acme").unwrap();
    house.change(change(key.id.clone())).await;
    // What is in flight goes on.
    call.answer(200, "application/json", "{}");
    assert_eq!(in_flight.await.unwrap().status, StatusCode::OK);
    // The only other request that comes is the one that may.
    let call = upstream.call().await;
    assert!(String::from_utf8_lossy(call.request.body()).contains("others"));
    call.answer(200, "application/json", "{}");
    for refused in waiting {
        let answer = refused.await.unwrap();
        assert_eq!((answer.status, answer.code().as_str()), (status, code));
        assert_eq!(answer.header("x-should-retry"), Some("false"));
    }
    assert_eq!(another.await.unwrap().status, StatusCode::OK);
    assert!(!upstream.has_call());
    let rows = house.rows().await;
    let refused: Vec<_> =
        rows.iter().filter(|row| row.outcome == AttemptOutcome::Refused).collect();
    assert_eq!((rows.len(), refused.len()), (4, 2));
    for row in refused {
        assert_eq!((row.status, row.code.as_deref()), (status.as_u16(), Some(code)));
        assert_eq!((row.charged, row.last, &*row.tenant), (0, true, "acme"));
        assert!(row.waited_us > 0);
    }
    let live = house.gateway.data_plane().pools.all()[0].gate.status().await.unwrap();
    assert_eq!((live.counts.granted, live.counts.given_back), (4, 2));
    house.close().await;
}

#[tokio::test]
async fn a_key_that_is_revoked_while_its_requests_wait_gets_none_of_them_served() {
    refused_after(|id| DirectoryChange::RevokeKey { id }, StatusCode::UNAUTHORIZED, "key_revoked")
        .await;
}

#[tokio::test]
async fn nor_does_one_that_expires() {
    let past = |id| {
        let patch = KeyPatch { expires_at: Some(Some(UnixMicros(1))), ..KeyPatch::default() };
        DirectoryChange::PatchKey { id, patch }
    };
    refused_after(past, StatusCode::UNAUTHORIZED, "key_expired").await;
}

#[tokio::test]
async fn nor_does_a_secret_that_is_replaced() {
    refused_after(
        |id| DirectoryChange::RotateKey { id },
        StatusCode::UNAUTHORIZED,
        "invalid_api_key",
    )
    .await;
}

#[tokio::test]
async fn nor_does_a_tenant_that_is_disabled() {
    let disabled = |_| {
        let patch = TenantPatch { disabled: Some(true), ..TenantPatch::default() };
        DirectoryChange::PatchTenant { name: "acme".into(), patch }
    };
    refused_after(disabled, StatusCode::FORBIDDEN, "tenant_disabled").await;
}
