//! Tests that fields with which a client could choose its turn, worker, slot or cache do not reach
//! the engine.

use fairgate_config::{FieldRule, FieldRules};
use http::StatusCode;
use serde_json::json;

use crate::support::client::raw;
use crate::support::scripted::Scripted;
use crate::support::{house, house_with};

const CHAT: &str = "/v1/chat/completions";
const ANSWER: &str = r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;

#[tokio::test]
async fn engine_controls_do_not_reach_the_engine() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let addr = house.gateway.addr();
    let cases = [
        (r#"{"model":"sim","messages":[],"priority":-9}"#, r#"{"model":"sim","messages":[]}"#),
        (
            r#"{ "priority": 1, "model":"sim", "kv_transfer_params":{"a":[1]},"messages":[] }"#,
            r#"{ "model":"sim","messages":[] }"#,
        ),
        // Escapes, upper case and copies make no difference; what is inside other members stays.
        (
            r#"{"model":"sim","pri\u006frity":1,"messages":[{"priority":1}],"Priority":2,"priority":3}"#,
            r#"{"model":"sim","messages":[{"priority":1}]}"#,
        ),
        (
            r#"{"service_tier":"priority","bootstrap_room":1,"model":"sim","temperature":0.5,"rid":"x"}"#,
            r#"{"model":"sim","temperature":0.5}"#,
        ),
    ];
    for (sent, arrived) in cases {
        let question = raw(CHAT, sent)
            .key(&house.key)
            .header("x-data-parallel-rank", "3")
            .header("x-request-id", "another-request")
            .header("x-team", "blue");
        let asking = tokio::spawn(async move { question.ask(addr).await });
        let call = upstream.call().await;
        assert_eq!(String::from_utf8_lossy(call.request.body()), arrived);
        let headers = call.request.headers();
        assert_eq!(headers.get("x-data-parallel-rank"), None);
        assert_eq!(headers.get("x-request-id"), None);
        assert_eq!(headers["x-team"], "blue");
        call.answer(200, "application/json", ANSWER);
        assert_eq!(asking.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn an_operators_rules_come_before_the_built_in_ones() {
    let mut upstream = Scripted::start().await;
    let rules = |list: &[(&str, FieldRule)]| FieldRules {
        named: list.iter().map(|(name, rule)| ((*name).to_owned(), *rule)).collect(),
    };
    let house = house_with(&upstream.url(), |config| {
        let upstream = &mut config.upstreams[0];
        upstream.fields = rules(&[
            ("priority", FieldRule::Allow),
            ("seed", FieldRule::Strip),
            ("log*", FieldRule::Refuse),
        ]);
        upstream.headers =
            rules(&[("x-request-id", FieldRule::Allow), ("x-debug", FieldRule::Refuse)]);
    })
    .await;
    let addr = house.gateway.addr();
    let body = r#"{"model":"sim","messages":[],"priority":1,"seed":7}"#;
    let question = raw(CHAT, body).key(&house.key).header("x-request-id", "mine");
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let call = upstream.call().await;
    assert_eq!(&call.request.body()[..], br#"{"model":"sim","messages":[],"priority":1}"#);
    assert_eq!(call.request.headers()["x-request-id"], "mine");
    call.answer(200, "application/json", ANSWER);
    asking.await.unwrap();
    for (field, named) in [("logprobs", "logprobs"), ("l\\u006fgit_bias", "logit_bias")] {
        let body = format!(r#"{{"model":"sim","messages":[],"{field}":1}}"#);
        let answer = raw(CHAT, body).key(&house.key).ask(addr).await;
        assert_eq!(answer.code(), "field_not_allowed");
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.text().contains(named), "{}", answer.text());
    }
    let answer = raw(CHAT, r#"{"model":"sim","messages":[],"n_predict":9000}"#);
    assert_eq!(answer.key(&house.key).ask(addr).await.code(), "field_not_allowed");
    let answer = raw(CHAT, json!({"model": "sim", "messages": []}).to_string());
    let answer = answer.key(&house.key).header("x-debug", "1").ask(addr).await;
    assert_eq!((answer.status.as_u16(), answer.code().as_str()), (400, "header_not_allowed"));
    assert!(!upstream.has_call());
    house.close().await;
}
