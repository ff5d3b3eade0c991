//! Tests of prompts that wrongly count as cached. They would be in the class of short requests, and
//! cost almost nothing.

use fairgate_config::HealthConfig;

use super::*;
use crate::support::SOON;
use crate::support::client::raw;

/// Starts a gateway with the classes of `POLICY` and a scripted engine.
async fn with_classes(engine: &Scripted) -> House {
    let folder = Folder::new();
    let config = with_policy(&folder, &engine.url());
    house_in(folder, config, DirectoryLimits::default()).await
}

const USAGE: &str = r#"{"usage":{"prompt_tokens":2000,"completion_tokens":1}}"#;

/// Sends this body, has the engine answer, and returns the class of the request.
async fn class_of(house: &House, engine: &mut Scripted, body: String, status: u16) -> String {
    let question = raw(CHAT, body).key(&house.key);
    let addr = house.gateway.addr();
    let asked = tokio::spawn(async move { question.ask(addr).await });
    engine.call().await.answer(status, "application/json", USAGE);
    let answer = asked.await.unwrap();
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    house.rows().await.pop().unwrap().class.unwrap()
}

/// A prompt that the engine refused is in no cache, and its sender pays nothing.
#[tokio::test]
async fn what_an_engine_refused_is_not_believed_to_be_cached() {
    let mut engine = Scripted::start().await;
    let house = with_classes(&engine).await;
    let rivers = conversation("rivers", 0).to_string();
    for status in [400, 422] {
        assert_eq!(class_of(&house, &mut engine, rivers.clone(), status).await, "long", "{status}");
    }
    assert_eq!(class_of(&house, &mut engine, rivers.clone(), 200).await, "long");
    assert_eq!(class_of(&house, &mut engine, rivers.clone(), 200).await, "short");
    // What was there before stays, whatever becomes of a later request.
    assert_eq!(class_of(&house, &mut engine, rivers.clone(), 400).await, "short");
    assert_eq!(class_of(&house, &mut engine, rivers, 200).await, "short");
    house.close().await;
}

/// If a body has two prompts, the index and the engine might read different ones.
#[tokio::test]
async fn of_two_prompts_in_one_body_none_counts_as_cached() {
    let mut engine = Scripted::start().await;
    let house = with_classes(&engine).await;
    let rivers = conversation("rivers", 0);
    for _ in 0..2 {
        class_of(&house, &mut engine, rivers.to_string(), 200).await;
    }
    let (cached, new) = (&rivers["messages"], &conversation("lakes", 0)["messages"]);
    for (first, second) in [
        ("messages", "messages"),
        ("messages", r"m\u0065ssages"),
        (r"m\u0065ssages", "messages"),
        ("messages", "Messages"),
    ] {
        for (one, two) in [(cached, new), (new, cached)] {
            let body = format!(r#"{{"model":"sim","{first}":{one},"{second}":{two}}}"#);
            let class = class_of(&house, &mut engine, body, 200).await;
            assert_eq!(class, "long", "{first} and {second}");
        }
    }
    house.close().await;
}

/// vLLM computes a whole prompt again if its log probabilities are requested.
#[tokio::test]
async fn what_makes_an_engine_read_all_of_a_prompt_counts_as_uncached() {
    let mut engine = Scripted::start().await;
    let house = with_classes(&engine).await;
    let mut body = conversation("rivers", 0);
    for class in ["long", "short"] {
        assert_eq!(class_of(&house, &mut engine, body.to_string(), 200).await, class);
    }
    for (field, value, class) in [
        ("prompt_logprobs", json!(null), "short"),
        ("prompt_logprobs", json!(1), "long"),
        ("prompt_logprobs", json!(0), "long"),
    ] {
        body[field] = value.clone();
        let got = class_of(&house, &mut engine, body.to_string(), 200).await;
        assert_eq!(got, class, "{field}: {value}");
    }
    house.close().await;
}

/// A reload may move a worker's name to another machine.
#[tokio::test]
async fn a_worker_that_moves_leaves_its_cache_behind() {
    let (mut engine, mut other) = (Scripted::start().await, Scripted::start().await);
    let house = with_classes(&engine).await;
    let rivers = conversation("rivers", 0).to_string();
    for class in ["long", "short"] {
        assert_eq!(class_of(&house, &mut engine, rivers.clone(), 200).await, class);
    }
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.upstreams[0].slots = Some(9);
    house.gateway.reload(next.clone()).await.unwrap();
    assert_eq!(class_of(&house, &mut engine, rivers.clone(), 200).await, "short");
    next.upstreams[0].url = other.url().parse().unwrap();
    house.gateway.reload(next).await.unwrap();
    assert_eq!(class_of(&house, &mut other, rivers, 200).await, "long");
    house.close().await;
}

/// No request reached the worker while it was unreachable, and no metrics show a restart. Only its
/// health checks failed.
#[tokio::test]
async fn a_worker_that_was_unhealthy_has_an_empty_cache() {
    let engine = caching(([127, 0, 0, 1], 0).into());
    let folder = Folder::new();
    let mut config = with_policy(&folder, &engine.url());
    config.upstreams[0].health = Some(HealthConfig {
        path: "/health".into(),
        every: Duration::from_millis(20),
        timeout: SOON,
        unhealthy_after: 1,
        healthy_after: 1,
    });
    let house = house_in(folder, config, DirectoryLimits::default()).await;
    let class = async || {
        let answer = post(CHAT, &conversation("rivers", 0)).key(&house.key);
        assert_eq!(answer.ask(house.gateway.addr()).await.status, StatusCode::OK);
        house.rows().await.pop().unwrap().class.unwrap()
    };
    let is = async |state: &str| {
        let deadline = tokio::time::Instant::now() + SOON;
        while house.gateway.data_plane().pools.all()[0].workers()[0].state != state {
            assert!(tokio::time::Instant::now() < deadline, "it never is {state}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert_eq!(class().await, "long");
    assert_eq!(class().await, "short");
    let addr = engine.addr();
    engine.stop().await;
    is("unhealthy").await;
    let engine = caching(addr);
    is("up").await;
    assert_eq!(class().await, "long");
    house.close().await;
    engine.stop().await;
}
