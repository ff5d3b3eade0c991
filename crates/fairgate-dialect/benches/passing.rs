//! How long a request takes to read, with serde_json's skipping for comparison, and an answer to meter:
//! `cargo bench -p fairgate-dialect`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fairgate_dialect::estimate::TokenizerTable;
use fairgate_dialect::{BodyChanges, BodyFraming, RequestFields, Route, UsageMeter};
use serde::Deserialize;
use serde_json::value::RawValue;

const ROUNDS: u32 = 7;

/// The same fields by serde_json: borrowed, all else skipped; nothing is known of files in the body.
#[derive(Deserialize)]
struct BySerde<'a> {
    #[serde(borrow)]
    model: std::borrow::Cow<'a, str>,
    stream: Option<bool>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    n: Option<u64>,
    best_of: Option<u64>,
    #[serde(borrow)]
    stream_options: Option<&'a RawValue>,
}

fn chat(words: usize) -> Bytes {
    let sentence = "The quick brown fox jumps over the lazy dog; \\\"nobody\\\" minds.\\n";
    let message = |i| {
        let role = if i % 2 == 0 { "user" } else { "assistant" };
        format!(r#"{{"role":"{role}","content":"{}"}}"#, sentence.repeat(6))
    };
    let messages: Vec<_> = (0..words).map(message).collect();
    let body = format!(
        r#"{{"model":"llama-3.1-70b","messages":[{}],"temperature":0.7,"top_p":0.95,"max_tokens":512,"stream":true,"tools":[{{"type":"function","function":{{"name":"find","parameters":{{"type":"object","properties":{{"q":{{"type":"string"}}}}}}}}}}]}}"#,
        messages.join(",")
    );
    Bytes::from(body)
}

/// The shortest of a few rounds, for one call.
fn timed<T>(name: &str, bytes: usize, mut call: impl FnMut() -> T) {
    let calls = u32::try_from((20_000_000 / bytes.max(200)).max(20)).unwrap();
    let round = |call: &mut dyn FnMut() -> T| {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(call());
        }
        start.elapsed()
    };
    let best = (0..ROUNDS).map(|_| round(&mut call)).min().unwrap_or(Duration::MAX);
    let nanos = best.as_nanos() as f64 / f64::from(calls);
    println!("{name:<44} {bytes:>9} bytes {nanos:>11.0} ns {:>8.2} GB/s", bytes as f64 / nanos);
}

fn requests() {
    for messages in [2, 250] {
        let body = chat(messages);
        let size = body.len();
        timed("request: Ask::read", size, || {
            RequestFields::read(Route::ChatCompletions, &body).unwrap()
        });
        timed("request: serde_json, fields borrowed", size, || {
            let text = std::str::from_utf8(&body).unwrap();
            let ask: BySerde<'_> = serde_json::from_str(text).unwrap();
            (
                ask.model.len(),
                ask.stream,
                ask.max_tokens,
                ask.max_completion_tokens,
                ask.n,
                ask.best_of,
                ask.stream_options.is_some(),
            )
        });
        timed("request: serde_json, a tree of values", size, || {
            serde_json::from_slice::<serde_json::Value>(&body).unwrap()
        });
        let ask = RequestFields::read(Route::ChatCompletions, &body).unwrap();
        let changes = BodyChanges {
            model: Some("upstream"),
            max_tokens: Some(100),
            ask_usage: true,
            ..BodyChanges::default()
        };
        timed("request: three changes", size, || {
            ask.changed(Route::ChatCompletions, body.clone(), changes)
        });
    }
    let image = "iVBORw0KGgoAAAANSUhEUg".repeat(100_000);
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{image}"}}}}]}}]}}"#
    );
    timed("request with an image: Ask::read", body.len(), || {
        RequestFields::read(Route::ChatCompletions, body.as_bytes()).unwrap()
    });
}

fn answers() {
    let event = |i: usize| {
        format!(
            "data: {{\"id\":\"chatcmpl-123\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word{i}\"}},\"logprobs\":null,\"finish_reason\":null}}],\"usage\":null}}\n\n"
        )
    };
    let events: Vec<Bytes> = (0..1000).map(|i| Bytes::from(event(i))).collect();
    let size = events.iter().map(Bytes::len).sum();
    for hide in [false, true] {
        timed(&format!("stream of 1000 events, hide usage: {hide}"), size, || {
            let mut meter = UsageMeter::new(Route::ChatCompletions, BodyFraming::Sse, hide, 10);
            events.iter().map(|event| meter.pass(event.clone()).forward.len()).sum::<usize>()
        });
    }
    let text = "The quick brown fox jumps over the lazy dog.\\n".repeat(20);
    let answer = Bytes::from(format!(
        r#"{{"id":"c","object":"chat.completion","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":200,"total_tokens":209}}}}"#
    ));
    timed("answer: chat", answer.len(), || {
        let mut meter = UsageMeter::new(Route::ChatCompletions, BodyFraming::Json, false, 10);
        meter.pass(answer.clone()).terminal
    });
    let numbers = vec!["-0.012345678"; 1536].join(",");
    let list = vec![format!(r#"{{"object":"embedding","index":0,"embedding":[{numbers}]}}"#); 50]
        .join(",");
    let answer = Bytes::from(format!(
        r#"{{"object":"list","data":[{list}],"usage":{{"prompt_tokens":9,"total_tokens":9}}}}"#
    ));
    timed("answer: embeddings", answer.len(), || {
        let mut meter = UsageMeter::new(Route::Embeddings, BodyFraming::Json, false, 10);
        meter.pass(answer.clone()).terminal
    });
}

fn tokens() {
    for table in [TokenizerTable::O200k, TokenizerTable::Cl100k] {
        let start = Instant::now();
        table.load();
        println!("{table:?} loaded in {} ms", start.elapsed().as_millis());
        for messages in [2, 600] {
            let body = chat(messages);
            let name = format!(
                "tokens: {table:?}, {} of them",
                table.count(Route::ChatCompletions, &body).unwrap_or_default()
            );
            timed(&name, body.len(), || table.count(Route::ChatCompletions, &body));
        }
    }
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // Built and started as one of the tests: there is nothing to test.
    }
    requests();
    answers();
    tokens();
}
