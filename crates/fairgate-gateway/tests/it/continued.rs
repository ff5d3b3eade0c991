//! Responses that a tenant goes on from are its own.

use fairgate_store::{DirectoryLimits, UsageSource};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{Answer, post};
use crate::support::scripted::Scripted;
use crate::support::{House, house, house_with};

const RESPONSES: &str = "/v1/responses";

/// Asks, and has the upstream answer with this.
async fn answered(
    house: &House,
    key: &str,
    body: &Value,
    upstream: &mut Scripted,
    answer: &str,
) -> Answer {
    let (question, addr) = (post(RESPONSES, body).key(key), house.gateway.addr());
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let framing = if body["stream"] == true { "text/event-stream" } else { "application/json" };
    upstream.call().await.answer(200, framing, answer.to_owned());
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
