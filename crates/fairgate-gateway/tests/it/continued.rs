//! Tests that a tenant can continue only its own responses.

use fairgate_config::Secret;
use fairgate_gateway::{Gateway, GatewayOptions};
use fairgate_store::{DirectoryLimits, KeyHash, KeyRights, Store, StoreOptions, UsageSource};
use fairgate_testkit::postgres_server::PostgresServer;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{Answer, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, House, config, house, house_in, house_with, open_rights};

const RESPONSES: &str = "/v1/responses";

/// Sends a request, and has the upstream answer with this body.
async fn answered(
    house: &House,
    key: &str,
    body: &Value,
    upstream: &mut Scripted,
    answer: &str,
) -> Answer {
    let (question, addr) = (post(RESPONSES, body).key(key), house.gateway.addr());
    let mut asking = tokio::spawn(async move { question.ask(addr).await });
    let framing = if body["stream"] == true { "text/event-stream" } else { "application/json" };
    tokio::select! {
        call = upstream.call() => call.answer(200, framing, answer.to_owned()),
        refused = &mut asking => panic!("it did not reach the upstream: {}", refused.unwrap().text()),
    }
    asking.await.unwrap()
}

#[tokio::test]
async fn a_response_is_unknown_to_every_other_tenant() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let addr = house.gateway.addr();
    let first = json!({"model": "sim", "input": "x"});
    let document =
        r#"{"id":"resp_1","output":[],"usage":{"input_tokens":900,"output_tokens":300}}"#;
    answered(&house, &house.key, &first, &mut upstream, document).await;
    let streamed = json!({"model": "sim", "input": "x", "stream": true});
    let events = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_2\"}}\n\n\
                  data: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_2\",\
                  \"usage\":{\"input_tokens\":5,\"output_tokens\":5}}}\n\n";
    answered(&house, &house.key, &streamed, &mut upstream, events).await;
    for id in ["resp_1", "resp_2"] {
        // An id that is another's is refused in the words of one that does not exist.
        let told = |id: &str| {
            let body = json!({"model": "sim", "input": "x", "previous_response_id": id});
            post(RESPONSES, &body).key(&other)
        };
        let (theirs, none) = (told(id).ask(addr).await, told("resp_none").ask(addr).await);
        assert_eq!(
            (theirs.status, theirs.code().as_str()),
            (StatusCode::BAD_REQUEST, "previous_response_not_found")
        );
        assert_eq!(theirs.text().replace(id, "resp_none"), none.text());
    }
    assert!(!upstream.has_call());
    // Its own tenant goes on, and what is behind it counts where the upstream does not say.
    let next = json!({"model": "sim", "input": "x", "previous_response_id": "resp_1"});
    let silent = r#"{"id":"resp_3","output":[]}"#;
    let answer = answered(&house, &house.key, &next, &mut upstream, silent).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let row = house.rows().await.pop().unwrap();
    assert_eq!(row.usage, UsageSource::Counted);
    assert!(row.estimate >= 1200 && row.input_tokens >= 1200 && row.charged >= 1200, "{row:?}");
    // A conversation is nobody's that came from elsewhere.
    let conversation = json!({"model": "sim", "input": "x", "conversation": {"id": "conv_1"}});
    let refused = post(RESPONSES, &conversation).key(&house.key).ask(addr).await;
    assert_eq!(refused.code(), "conversation_not_found");
    house.close().await;
}

#[tokio::test]
async fn what_nobody_knows_is_let_through_where_that_is_allowed() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.limits.foreign_response_ids = true;
    })
    .await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let addr = house.gateway.addr();
    let next = json!({"model": "sim", "input": "x", "conversation": "conv_1"});
    let document = r#"{"id":"resp_1","output":[],"usage":{"input_tokens":9,"output_tokens":3}}"#;
    let answer = answered(&house, &house.key, &next, &mut upstream, document).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    // From then on it is that tenant's.
    let refused = post(RESPONSES, &next).key(&other).ask(addr).await;
    assert_eq!(refused.code(), "conversation_not_found");
    house.close().await;
}

/// Ids of items belong to their tenant, whether the upstream sent them in a document or in a
/// stream.
#[tokio::test]
async fn an_item_is_unknown_to_every_other_tenant() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let addr = house.gateway.addr();
    let first = json!({"model": "sim", "input": "x"});
    let document = r#"{"id":"resp_1","output":[{"type":"reasoning","id":"rs_1","summary":[]},
        {"type":"message","id":"msg_1","content":[{"type":"output_text","text":"hi","id":"inner"}]}],
        "usage":{"input_tokens":9,"output_tokens":3}}"#;
    answered(&house, &house.key, &first, &mut upstream, document).await;
    let streamed = json!({"model": "sim", "input": "x", "stream": true});
    let events = "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_2\",\"output\":[]}}\n\n\
                  data: {\"type\":\"response.output_item.added\",\"item\":{\"id\":\"msg_2\",\"type\":\"message\"}}\n\n\
                  data: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_2\",\
                  \"output\":[{\"id\":\"msg_2\"},{\"id\":\"msg_3\"}],\
                  \"usage\":{\"input_tokens\":5,\"output_tokens\":5}}}\n\n";
    answered(&house, &house.key, &streamed, &mut upstream, events).await;
    let ask =
        |item: Value| json!({"model": "sim", "input": [{"role": "user", "content": "x"}, item]});
    for id in ["rs_1", "msg_1", "msg_2", "msg_3"] {
        for item in [
            json!({"type": "item_reference", "id": id}),
            json!({"id": id}),
            json!({"type": "message", "role": "assistant", "content": "hi", "id": id}),
        ] {
            let refused = post(RESPONSES, &ask(item)).key(&other).ask(addr).await;
            assert_eq!(
                (refused.status, &*refused.code()),
                (StatusCode::BAD_REQUEST, "item_not_found"),
                "{}",
                refused.text()
            );
            assert_eq!(refused.header("x-should-retry"), Some("false"));
        }
        let own = ask(json!({"type": "item_reference", "id": id}));
        let answer = answered(&house, &house.key, &own, &mut upstream, r#"{"id":"resp_x"}"#).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    // An id that nobody got is refused in the same words, also to the tenant with the other ids.
    for id in ["inner", "msg_none"] {
        let refused = post(RESPONSES, &ask(json!({"id": id}))).key(&house.key).ask(addr).await;
        assert_eq!(refused.code(), "item_not_found");
    }
    assert!(!upstream.has_call());
    house.close().await;
}

/// Files and other objects of the account need a right, in the body of any API.
#[tokio::test]
async fn things_of_the_account_need_a_right() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let closed = KeyRights { may_use_foreign_ids: false, ..open_rights() };
    let closed = house.key_with("acme", DirectoryLimits::default(), closed).await;
    let addr = house.gateway.addr();
    let chat = "/v1/chat/completions";
    for (path, name, more) in [
        (
            RESPONSES,
            "file_id",
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
        ),
        (
            RESPONSES,
            "vector_store_ids",
            json!({"input": "x", "tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}),
        ),
        (
            RESPONSES,
            "container",
            json!({"input": "x", "tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
        ),
        (RESPONSES, "prompt.id", json!({"prompt": {"id": "pmpt_1"}})),
        (
            chat,
            "file_id",
            json!({"messages": [{"role": "user", "content": [{"type": "file", "file": {"File_ID": "f"}}]}]}),
        ),
    ] {
        let mut body = json!({"model": "sim"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let refused = post(path, &body).key(&closed).ask(addr).await;
        assert_eq!(
            (refused.status, &*refused.code()),
            (StatusCode::FORBIDDEN, "foreign_id_not_allowed"),
            "{name}: {}",
            refused.text()
        );
        assert!(refused.text().contains(&format!("`{name}`")), "{}", refused.text());
        assert!(!upstream.has_call(), "{name}");
        let (question, key) = (post(path, &body), house.key.clone());
        let asking = tokio::spawn(async move { question.key(&key).ask(addr).await });
        upstream.call().await.answer(200, "application/json", "{}".to_owned());
        assert_eq!(asking.await.unwrap().status, StatusCode::OK, "{name}");
    }
    house.close().await;
}

/// A gateway that is restarted on the same data still knows which tenant owns which id.
#[tokio::test]
async fn ids_survive_a_restart() {
    ids_survive(None).await;
}

#[tokio::test]
async fn ids_survive_a_restart_on_postgresql() {
    let server = PostgresServer::start_for_tests().expect("PostgreSQL");
    let database = server.create_database().await.expect("a database");
    ids_survive(Some(&server.socket_url(&database))).await;
}

async fn ids_survive(database: Option<&str>) {
    let mut upstream = Scripted::start().await;
    let folder = Folder::new();
    let mut config = config(&folder, &upstream.url());
    if let Some(url) = database {
        config.store.url = Secret::new(url);
    }
    let house = house_in(folder, config.clone(), DirectoryLimits::default()).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let first = json!({"model": "sim", "input": "x"});
    let document = r#"{"id":"resp_1","output":[{"id":"msg_1"}],"usage":{"input_tokens":900,"output_tokens":300}}"#;
    answered(&house, &house.key, &first, &mut upstream, document).await;
    let House { gateway, store, key, folder } = house;
    gateway.drain(std::time::Duration::from_secs(5)).await;
    drop((gateway, store));
    let options = StoreOptions {
        spool: Some(config.store.spool.clone()),
        spool_bytes_max: config.store.spool_bytes_max,
        ..StoreOptions::default()
    };
    let (store, _) = Store::open(config.store.url.expose(), options).await.unwrap();
    let admin_token = KeyHash::of(b"admin");
    let options =
        GatewayOptions { config, store: store.clone(), admin_token, may_disable_most: false };
    let gateway = Gateway::start(options).await.unwrap();
    let house = House { gateway, store, key, folder };
    let next =
        json!({"model": "sim", "input": [{"id": "msg_1"}], "previous_response_id": "resp_1"});
    let refused = post(RESPONSES, &next).key(&other).ask(house.gateway.addr()).await;
    assert_eq!(refused.code(), "previous_response_not_found");
    let answer = answered(&house, &house.key, &next, &mut upstream, r#"{"id":"resp_2"}"#).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let row = house.rows().await.pop().unwrap();
    assert!(row.estimate >= 1200, "the tokens behind it are known too: {row:?}");
    house.close().await;
}
