//! Tests of the answers of each API, whole and streamed.

use bytes::Bytes;
use fairgate_sim::{OutputLength, SimOptions};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::client::{chat, events, get, post, quick, request, send, start, until, with};

fn joined(events: &[Value], path: &str) -> String {
    events.iter().filter_map(|event| event.pointer(path)?.as_str()).collect()
}

fn tools() -> Value {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    json!([{"type": "function", "function": {"name": "weather", "parameters": parameters}}])
}

#[tokio::test]
async fn chat_says_the_same_whole_and_streamed() {
    let sim = start(quick());
    let whole = post(&sim, "/v1/chat/completions", &chat("Hello")).await.json().await;
    let said = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(said.split_whitespace().count(), 10);
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    assert_eq!(
        whole["usage"],
        json!({"prompt_tokens": 2, "completion_tokens": 10, "total_tokens": 12})
    );

    let reply = post(&sim, "/v1/chat/completions", &with(chat("Hello"), "stream", true)).await;
    assert_eq!(reply.headers["content-type"], "text/event-stream; charset=utf-8");
    let stream = reply.text().await;
    assert!(stream.ends_with("data: [DONE]\n\n"));
    let events = events(&stream);
    assert_eq!(events.len(), 12, "a role, ten tokens, an end");
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(joined(&events, "/choices/0/delta/content"), said);
    assert_eq!(events[11]["choices"][0]["finish_reason"], "stop");
    assert!(events.iter().all(|event| event.get("usage").is_none()), "nobody asked for it");
    sim.stop().await;
}

#[tokio::test]
async fn usage_comes_with_the_last_chunk_where_it_was_asked_for() {
    let sim = start(quick());
    for path in ["/v1/chat/completions", "/v1/completions"] {
        let mut ask = with(chat("Hello"), "stream", true);
        ask["prompt"] = json!("Hello");
        ask["stream_options"] = json!({"include_usage": true});
        let events = events(&post(&sim, path, &ask).await.text().await);
        let (last, before) = events.split_last().unwrap();
        assert_eq!(last["choices"], json!([]));
        assert_eq!(last["usage"]["completion_tokens"], 10);
        assert!(
            before.iter().all(|event| event["usage"].is_null() && event.get("usage").is_some())
        );
    }
    sim.stop().await;
}

#[tokio::test]
async fn choices_are_counted_together_and_streamed_side_by_side() {
    let sim = start(quick());
    let ask = with(with(chat("Hello"), "n", 2), "max_tokens", 4);
    let whole = post(&sim, "/v1/chat/completions", &ask).await.json().await;
    assert_eq!(whole["usage"]["completion_tokens"], 8);
    assert_eq!(whole["choices"][1]["finish_reason"], "length");
    let stream = post(&sim, "/v1/chat/completions", &with(ask, "stream", true)).await.text().await;
    for index in 0..2 {
        let mine = |event: &&Value| event["choices"][0]["index"] == index;
        let events: Vec<_> = events(&stream).iter().filter(mine).cloned().collect();
        let said = &whole["choices"][index]["message"]["content"];
        assert_eq!(joined(&events, "/choices/0/delta/content"), said.as_str().unwrap());
    }
    sim.stop().await;
}

#[tokio::test]
async fn a_chats_tool_call_streams_its_arguments() {
    let sim = start(quick());
    let ask = with(with(chat("Hello"), "tools", tools()), "tool_choice", "required");
    let whole = post(&sim, "/v1/chat/completions", &ask).await.json().await;
    let call = &whole["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "weather");
    let arguments = call["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(arguments).unwrap()["city"].is_string());
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");

    let stream = post(&sim, "/v1/chat/completions", &with(ask, "stream", true)).await.text().await;
    let events = events(&stream);
    let name = "/choices/0/delta/tool_calls/0/function/name";
    assert_eq!(events[0].pointer(name), Some(&json!("weather")));
    let streamed = joined(&events, "/choices/0/delta/tool_calls/0/function/arguments");
    assert_eq!(streamed, arguments);
    sim.stop().await;
}

#[tokio::test]
async fn messages_say_the_same_whole_and_streamed() {
    let sim = start(quick());
    let ask = with(chat("Hello"), "max_tokens", 6);
    let whole = post(&sim, "/v1/messages", &ask).await.json().await;
    assert_eq!(whole["stop_reason"], "max_tokens");
    assert_eq!(whole["usage"], json!({"input_tokens": 2, "output_tokens": 6}));

    let events = events(&post(&sim, "/v1/messages", &with(ask, "stream", true)).await.text().await);
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["message_start", "content_block_start", "ping"]);
    assert_eq!(kinds[9..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(events[0]["message"]["usage"]["input_tokens"], 2);
    assert_eq!(events[10]["usage"]["output_tokens"], 6);
    assert_eq!(joined(&events, "/delta/text"), whole["content"][0]["text"].as_str().unwrap());
    sim.stop().await;
}

#[tokio::test]
async fn a_messages_tool_call_streams_its_input() {
    let sim = start(quick());
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let mut ask = with(chat("please call_tool"), "max_tokens", 100);
    ask["tools"] = json!([{"name": "weather", "input_schema": schema}]);
    let whole = post(&sim, "/v1/messages", &ask).await.json().await;
    assert_eq!(whole["stop_reason"], "tool_use");
    let stream = post(&sim, "/v1/messages", &with(ask, "stream", true)).await.text().await;
    let streamed: Value =
        serde_json::from_str(&joined(&events(&stream), "/delta/partial_json")).unwrap();
    assert_eq!(streamed, whole["content"][0]["input"]);
    sim.stop().await;
}

#[tokio::test]
async fn responses_say_the_same_whole_and_streamed() {
    let sim = start(quick());
    let ask = json!({"model": "sim", "input": "Hello", "instructions": "Be brief"});
    let whole = post(&sim, "/v1/responses", &ask).await.json().await;
    assert_eq!((&whole["status"], &whole["object"]), (&json!("completed"), &json!("response")));
    assert_eq!(whole["usage"]["total_tokens"], 14);

    let stream = post(&sim, "/v1/responses", &with(ask, "stream", true)).await.text().await;
    let events = events(&stream);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
        assert!(stream.contains(&format!("event: {}\n", event["type"].as_str().unwrap())));
    }
    let said = whole["output"][0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(joined(&events, "/delta"), said);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    assert_eq!(last["response"]["usage"], whole["usage"]);
    assert_eq!(last["response"]["output"][0]["content"], whole["output"][0]["content"]);
    sim.stop().await;
}

#[tokio::test]
async fn a_response_that_is_cut_short_is_incomplete() {
    let sim = start(quick());
    let ask = json!({"model": "sim", "input": "Hello", "max_output_tokens": 3, "stream": true});
    let events = events(&post(&sim, "/v1/responses", &ask).await.text().await);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(last["response"]["usage"]["output_tokens"], 3);
    sim.stop().await;
}

#[tokio::test]
async fn a_responses_function_call_streams_its_arguments() {
    let sim = start(quick());
    let tool = json!({"type": "function", "name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}});
    let ask = json!({
        "model": "sim", "input": "Hello", "tools": [tool], "tool_choice": {"type": "function", "name": "weather"},
    });
    let whole = post(&sim, "/v1/responses", &ask).await.json().await;
    assert_eq!(whole["output"][0]["type"], "function_call");
    let stream = post(&sim, "/v1/responses", &with(ask, "stream", true)).await.text().await;
    let arguments = whole["output"][0]["arguments"].as_str().unwrap();
    assert_eq!(joined(&events(&stream), "/delta"), arguments);
    assert!(stream.contains("event: response.function_call_arguments.done\n"));
    sim.stop().await;
}

#[tokio::test]
async fn completions_take_several_prompts() {
    let sim = start(quick());
    let ask = json!({"model": "sim", "prompt": ["one", "two"], "max_tokens": 3});
    let whole = post(&sim, "/v1/completions", &ask).await.json().await;
    assert_eq!(whole["choices"].as_array().unwrap().len(), 2);
    assert_eq!(whole["usage"]["completion_tokens"], 6);
    let stream = post(&sim, "/v1/completions", &with(ask, "stream", true)).await.text().await;
    let mine = |event: &&Value| event["choices"][0]["index"] == 1;
    let events: Vec<_> = events(&stream).iter().filter(mine).cloned().collect();
    assert_eq!(joined(&events, "/choices/0/text"), whole["choices"][1]["text"].as_str().unwrap());
    sim.stop().await;
}

#[tokio::test]
async fn what_does_not_generate_is_answered_too() {
    let sim = start(SimOptions { models: vec!["a".into(), "b".into()], ..quick() });
    let models = get(&sim, "/v1/models").await.json().await;
    assert_eq!(models["data"][1]["id"], "b");
    assert_eq!(get(&sim, "/health").await.status, 200);
    let ask = json!({"model": "a", "input": ["x", "y"], "dimensions": 3});
    let embeddings = post(&sim, "/v1/embeddings", &ask).await.json().await;
    assert_eq!(embeddings["data"][1]["embedding"].as_array().unwrap().len(), 3);
    assert_eq!(embeddings["usage"], json!({"prompt_tokens": 2, "total_tokens": 2}));
    let ask = with(chat("Hello"), "model", "a");
    let count = post(&sim, "/v1/messages/count_tokens", &ask).await.json().await;
    assert_eq!(count, json!({"input_tokens": 2}));
    sim.stop().await;
}

#[tokio::test]
async fn a_known_prefix_is_reported_as_cached() {
    let sim = start(SimOptions { prefix_cache_blocks: 100, ..quick() });
    let ask = chat(&"x".repeat(400));
    let cached = |usage: &Value| usage["prompt_tokens_details"]["cached_tokens"].clone();
    let first = post(&sim, "/v1/chat/completions", &ask).await.json().await;
    let second = post(&sim, "/v1/chat/completions", &ask).await.json().await;
    assert_eq!((cached(&first["usage"]), cached(&second["usage"])), (json!(0), json!(96)));
    assert_eq!(second["usage"]["prompt_tokens"], 100);
    let third = post(&sim, "/v1/messages", &with(ask, "max_tokens", 5)).await.json().await;
    let usage = &third["usage"];
    assert_eq!(
        (&usage["cache_read_input_tokens"], &usage["input_tokens"]),
        (&json!(96), &json!(4))
    );
    assert_eq!(sim.stats().recent[2].cached_tokens, 96);
    sim.stop().await;
}

#[tokio::test]
async fn http_2_by_prior_knowledge_is_spoken() {
    let sim = start(SimOptions { output_tokens: OutputLength::exactly(200), ..quick() });
    let stream = TcpStream::connect(sim.addr()).await.unwrap();
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let ask = |number: u64| {
        let body = with(chat(&number.to_string()), "stream", true).to_string();
        let request = Request::post(format!("{}/v1/chat/completions", sim.url()));
        let mut sender = sender.clone();
        async move {
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let body = sender.send_request(request).await.unwrap().into_body();
            String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
        }
    };
    let (one, two) = tokio::join!(ask(1), ask(2));
    assert_eq!((events(&one).len(), events(&two).len()), (202, 202));
    drop(sender);
    connection.await.unwrap().unwrap();
    sim.stop().await;
}

#[tokio::test]
async fn metrics_are_those_of_vllm() {
    let options = SimOptions {
        slots: 4,
        prefix_cache_blocks: 573,
        decode_per_token: std::time::Duration::from_secs(1),
        ..SimOptions::default()
    };
    let sim = start(options);
    let read = async || get(&sim, "/metrics").await.text().await;
    let idle = read().await;
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"sim\"} 0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"sim\"} 0",
        "num_gpu_blocks=\"573\"} 1.0",
        "block_size=\"16\"",
        "\nprocess_start_time_seconds 1",
    ] {
        assert!(idle.contains(line), "{line} in {idle}");
    }
    for _ in 0..6 {
        let asked = request("POST", "/v1/chat/completions", chat("Hi").to_string());
        tokio::spawn(send(sim.addr(), asked));
    }
    until(&sim, |stats| (stats.in_flight, stats.waiting) == (4, 2)).await;
    let busy = read().await;
    assert!(busy.contains("running{engine=\"0\",model_name=\"sim\"} 4"), "{busy}");
    assert!(busy.contains("waiting{engine=\"0\",model_name=\"sim\"} 2"), "{busy}");
    assert!(busy.contains("kv_cache_usage_perc{engine=\"0\",model_name=\"sim\"} 1.000"), "{busy}");
}
