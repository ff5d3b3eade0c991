//! Tests that answers pass through unchanged, byte for byte and chunk by chunk.

use bytes::Bytes;
use fairgate_store::{AttemptOutcome, UsageSource};
use serde_json::json;

use crate::support::client::{piece, post, raw, silent, whole};
use crate::support::scripted::Scripted;
use crate::support::{house, house_with};

const CHAT: &str = "/v1/chat/completions";

fn event(text: &str) -> Bytes {
    let data = json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]});
    Bytes::from(format!("data: {data}\n\n"))
}

#[tokio::test]
async fn a_chunk_arrives_before_the_upstream_sends_the_next() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let question = post(CHAT, &json!({"model": "sim", "messages": [], "stream": true}));
    let question = question.key(&house.key);
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.begin(addr).await });
    let pieces = upstream.call().await.stream("text/event-stream");
    // The head is there before the first byte of the body.
    let mut body = asking.await.unwrap().into_body();
    assert!(silent(&mut body).await);
    for word in ["one", "two", "three"] {
        pieces.send(event(word)).unwrap();
        assert_eq!(piece(&mut body).await.unwrap(), event(word));
    }
    // Half an event goes through, too, where nothing has to be hidden; here usage has to be.
    let half = event("four");
    pieces.send(half.slice(..10)).unwrap();
    assert!(silent(&mut body).await);
    pieces.send(half.slice(10..)).unwrap();
    let mut got = Vec::new();
    while got.len() < half.len() {
        got.extend_from_slice(&piece(&mut body).await.unwrap());
    }
    assert_eq!(got, half);
    assert_eq!(house.rows().await.len(), 0);
    pieces.send(Bytes::from_static(b"data: [DONE]\n\n")).unwrap();
    // The row is there when the end is.
    assert_eq!(piece(&mut body).await.unwrap(), "data: [DONE]\n\n");
    let rows = house.rows().await;
    assert_eq!((rows.len(), rows[0].outcome), (1, AttemptOutcome::Completed));
    assert_eq!(rows[0].usage, UsageSource::Counted);
    drop(pieces);
    assert_eq!(piece(&mut body).await, None);
    house.close().await;
}

#[tokio::test]
async fn who_did_not_ask_for_usage_sees_nothing_of_it() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let addr = house.gateway.addr();
    let text = concat!(
        "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n",
        "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
        "data: [DONE]\n\n",
    );
    for asked in [false, true] {
        let mut body = json!({"model": "sim", "messages": [], "stream": true});
        if asked {
            body["stream_options"] = json!({"include_usage": true});
        }
        let question = post(CHAT, &body).key(&house.key);
        let asking = tokio::spawn(async move { question.ask(addr).await });
        upstream.call().await.answer(200, "text/event-stream", text);
        let seen = asking.await.unwrap().text();
        if asked {
            assert_eq!(seen, text);
        } else {
            let first = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
            assert_eq!(seen, format!("{first}data: [DONE]\n\n"));
        }
    }
    house.close().await;
}

#[tokio::test]
async fn a_body_that_nothing_must_change_is_the_same_to_the_byte() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    // Odd spaces, an unknown field, an escaped letter, a number that no float holds, a field twice.
    let odd = "{ \"model\" : \"sim\",\n\t\"messages\":[{\"role\":\"user\",\"content\":\"\\u0041ß\"}],  \
               \"x_unknown\": {\"n\": 12345678901234567890123}, \"tools\":[ {\"type\":\"function\"} ], \"x\":1 , \"x\" :2 }";
    let question = raw(&format!("{CHAT}?beta=true"), odd).key(&house.key);
    let question = question
        .header("openai-beta", "assistants=v2")
        .header("x-fairgate-agent", "mine")
        .header("cookie", "a=b");
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let call = upstream.call().await;
    assert_eq!(call.request.body(), odd);
    assert_eq!(call.request.uri().to_string(), format!("{CHAT}?beta=true"));
    let headers = call.request.headers();
    assert_eq!(headers["openai-beta"], "assistants=v2");
    assert_eq!(headers["host"], upstream.addr.to_string());
    assert_eq!(headers["accept-encoding"], "identity");
    for gone in ["authorization", "x-fairgate-agent", "cookie"] {
        assert!(!headers.contains_key(gone), "{gone}");
    }
    let answer = " {\"id\" : 1, \"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"t\"}]}}], \"z\": 1e400,\n\
                  \"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}} \n";
    call.answer(200, "application/json", answer);
    let got = asking.await.unwrap();
    assert_eq!(got.body, answer);
    assert_eq!(got.header("content-length"), Some(answer.len().to_string().as_str()));
    let row = &house.rows().await[0];
    assert_eq!((row.input_tokens, row.output_tokens, row.charged), (7, 3, 10));
    assert_eq!((row.usage, row.agent.as_deref()), (UsageSource::Reported, Some("mine")));
    house.close().await;
}

#[tokio::test]
async fn nothing_that_says_who_the_client_is_or_who_pays_reaches_an_upstream() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let addr = house.gateway.addr();
    let own = [
        "api-key",
        "x-goog-api-key",
        "openai-organization",
        "openai-project",
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-anything",
        "x-real-ip",
    ];
    let path = format!("{CHAT}?key=AIza&api-version=2024-10-21&beta=true&%6Bey=x&beta=2;key=y&z");
    let body = json!({"model": "sim", "messages": []});
    let question = own.iter().fold(post(&path, &body).key(&house.key), |question, name| {
        question.header(name, "the client's")
    });
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let call = upstream.call().await;
    for name in own {
        assert!(!call.request.headers().contains_key(name), "{name}");
    }
    assert_eq!(call.request.uri().query(), Some("api-version=2024-10-21&beta=true"));
    call.answer(200, "application/json", "{}");
    asking.await.unwrap();
    // Where nothing of it is left, there is no query at all.
    let question = post(&format!("{CHAT}?key=AIza"), &body).key(&house.key);
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let call = upstream.call().await;
    assert_eq!(call.request.uri().to_string(), CHAT);
    call.answer(200, "application/json", "{}");
    asking.await.unwrap();
    house.close().await;
}

#[tokio::test]
async fn a_model_has_the_name_that_its_upstream_knows_and_nothing_else_changes() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].models[0].upstream_name = Some("their-model".into());
        config.upstreams[0].credential = Some(fairgate_config::UpstreamCredential {
            secret: fairgate_config::Secret::new("sk-up"),
        });
        config.upstreams[0].url = format!("{}base/", config.upstreams[0].url).parse().unwrap();
    })
    .await;
    let question = raw(CHAT, r#"{"messages":[], "model":"sim" , "seed":1}"#).key(&house.key);
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let call = upstream.call().await;
    assert_eq!(call.request.body(), r#"{"messages":[], "model":"their-model" , "seed":1}"#);
    assert_eq!(call.request.headers()["authorization"], "Bearer sk-up");
    assert_eq!(call.request.uri().path(), "/base/v1/chat/completions");
    call.answer(200, "application/json", "{}");
    asking.await.unwrap();
    // Anthropic's way of saying who we are.
    let question = post("/v1/messages", &json!({"model": "sim", "max_tokens": 5, "messages": []}));
    let question =
        question.header("x-api-key", &house.key).header("anthropic-version", "2023-06-01");
    let asking = tokio::spawn(async move { question.ask(addr).await });
    let call = upstream.call().await;
    let headers = call.request.headers();
    assert_eq!(
        (&headers["x-api-key"], &headers["anthropic-version"]),
        (&"sk-up".parse().unwrap(), &"2023-06-01".parse().unwrap())
    );
    assert!(!headers.contains_key("authorization"));
    call.answer(200, "application/json", "{}");
    let answer = asking.await.unwrap();
    assert_eq!(answer.header("request-id"), answer.header("x-fairgate-request-id"));
    house.close().await;
}

#[tokio::test]
async fn a_large_answer_passes_as_it_comes() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let question = post("/v1/embeddings", &json!({"model": "sim", "input": "x"})).key(&house.key);
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.begin(addr).await });
    let pieces = upstream.call().await.stream("application/json");
    pieces.send(Bytes::from_static(b"{\"data\":[0")).unwrap();
    for _ in 0..10 {
        pieces.send(Bytes::from(",1.25".repeat(2000))).unwrap();
    }
    // The head comes once there is much of it, and that long before the last.
    let response = asking.await.unwrap();
    for _ in 0..190 {
        pieces.send(Bytes::from(",1.25".repeat(2000))).unwrap();
    }
    let end = Bytes::from_static(b"],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5}}");
    pieces.send(end.clone()).unwrap();
    drop(pieces);
    let answer = whole(response).await;
    assert_eq!(answer.body.len(), 10 + 200 * 10_000 + end.len());
    let row = &house.rows().await[0];
    assert_eq!((row.outcome, row.input_tokens), (AttemptOutcome::Completed, 5));
    house.close().await;
}

/// Engines send an event with a role and no text as soon as they get a request. That event is not
/// the first token.
#[tokio::test]
async fn the_first_token_is_the_first_that_says_something() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let addr = house.gateway.addr();
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    let deltas = [
        None,
        Some("\"content\":\"x\""),
        Some("\"reasoning_content\":\"x\""),
        Some("\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]"),
    ];
    for delta in deltas {
        let chat = json!({"model": "sim", "messages": [], "stream": true});
        let question = post("/v1/chat/completions", &chat).key(&house.key);
        let asking = tokio::spawn(async move { question.begin(addr).await });
        let pieces = upstream.call().await.stream("text/event-stream");
        let called = std::time::Instant::now();
        pieces.send(role.into()).unwrap();
        let mut body = asking.await.unwrap().into_body();
        assert_eq!(piece(&mut body).await.unwrap(), role);
        let silent = called.elapsed();
        if let Some(delta) = delta {
            let event = format!("data: {{\"choices\":[{{\"delta\":{{{delta}}}}}]}}\n\n");
            pieces.send(event.into()).unwrap();
        }
        pieces.send("data: [DONE]\n\n".into()).unwrap();
        drop(pieces);
        while piece(&mut body).await.is_some() {}
        let row = house.rows().await.pop().unwrap();
        assert_eq!(row.first_token_us.is_some(), delta.is_some(), "{delta:?}");
        let first = row.first_token_us.unwrap_or(u64::MAX);
        assert!(u128::from(first) >= silent.as_micros(), "{first} µs, silent for {silent:?}");
    }
    house.close().await;
}

/// Each piece causes a fixed amount of work in the meter, the client's connection and the system.
/// So an upstream that sends single bytes must not cause one piece for each byte. The test counts
/// the pieces that the client gets, not the time.
#[tokio::test]
async fn single_bytes_that_are_there_already_go_on_as_few_pieces() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let ask = json!({"model": "sim", "messages": [], "stream": true, "stream_options": {"include_usage": true}});
    let question = post(CHAT, &ask).key(&house.key);
    let addr = house.gateway.addr();
    let asking = tokio::spawn(async move { question.begin(addr).await });
    let pieces = upstream.call().await.stream("text/event-stream");
    let mut body = asking.await.unwrap().into_body();
    let text: Vec<u8> = (0..200).flat_map(|_| event("word")).chain(*b"data: [DONE]\n\n").collect();
    for byte in &text {
        pieces.send(Bytes::copy_from_slice(&[*byte])).unwrap();
    }
    drop(pieces);
    let (mut got, mut count) = (Vec::new(), 0);
    while let Some(bytes) = piece(&mut body).await {
        got.extend_from_slice(&bytes);
        count += 1;
    }
    assert_eq!(got, text);
    assert!(count * 20 < text.len(), "{count} pieces for {} bytes", text.len());
    house.close().await;
}
