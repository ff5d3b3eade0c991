//! The upstream of benchmarks: prebuilt bytes, no JSON read, as little work as possible.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use memchr::memmem;

use crate::backend::Backend;
use crate::body::{Body, Outbox};
use crate::dialect::{Dialect, Refusal};
use crate::options::TrivialOptions;

const WHOLE_BYTES: usize = 1024;

/// Answers a chat completion of 1 KB, or a stream whose chunks tell when they were sent.
pub(crate) async fn respond(
    backend: &Arc<Backend>,
    options: TrivialOptions,
    request: Request<Incoming>,
) -> Response<Body> {
    let Ok(asked) = asked(request.into_body(), backend.options.body_bytes_max).await else {
        let refusal = Refusal::new(StatusCode::BAD_REQUEST, "The body is too large or not whole.");
        return refusal.into_response(Dialect::OpenAi);
    };
    backend.tally().answered_at_once();
    if asked.stream {
        let body = Body::written(|outbox| speak(outbox, options, asked.usage));
        return response("text/event-stream", body);
    }
    static WHOLE: OnceLock<Bytes> = OnceLock::new();
    response("application/json", Body::whole(WHOLE.get_or_init(whole).clone()))
}

fn response(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    stream: bool,
    usage: bool,
}

async fn asked(mut body: Incoming, bytes_max: usize) -> Result<Asked, ()> {
    let mut asked = Asked::default();
    let mut read = 0_usize;
    // A small body is one frame, which is looked at where it lies.
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(drop)?.into_data() else { continue };
        read = read.saturating_add(data.len());
        if read > bytes_max {
            return Err(());
        }
        asked.stream |= says_true(&data, b"\"stream\"");
        asked.usage |= says_true(&data, b"\"include_usage\"");
    }
    Ok(asked)
}

/// Whether the field is there and true. A field that is split over two frames is not seen.
fn says_true(json: &[u8], field: &[u8]) -> bool {
    memmem::find_iter(json, field).any(|at| {
        let rest = json[at + field.len()..].trim_ascii_start();
        rest.strip_prefix(b":").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"true"))
    })
}

fn whole() -> Bytes {
    let (before, after) = (
        r#"{"id":"chatcmpl-trivial","object":"chat.completion","created":1700000000,"model":"sim","choices":[{"index":0,"message":{"role":"assistant","content":""#,
        r#""},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":32,"completion_tokens":128,"total_tokens":160}}"#,
    );
    let content = "fair ".repeat(WHOLE_BYTES);
    let room = WHOLE_BYTES - before.len() - after.len();
    Bytes::from([before, &content[..room], after].concat())
}

async fn speak(mut outbox: Outbox, options: TrivialOptions, usage: bool) {
    for number in 0..options.stream_chunks {
        if number > 0 {
            // From the chunk before, however late that was: two at once would spoil the time of one of them.
            outbox.flushed().await;
            tokio::time::sleep(options.chunk_interval).await;
        }
        outbox.send(chunk()).await;
    }
    if usage {
        outbox.send(usage_chunk(options.stream_chunks)).await;
    }
    outbox.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
}

/// A chunk with the time at which it was made, in microseconds since 1970 by the system's clock.
fn chunk() -> Bytes {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Bytes::from(format!(
        r#"data: {{"id":"chatcmpl-trivial","object":"chat.completion.chunk","created":1700000000,"model":"sim","sent_unix_us":{now},"choices":[{{"index":0,"delta":{{"content":"fair "}},"finish_reason":null}}]}}

"#
    ))
}

fn usage_chunk(tokens: u32) -> Bytes {
    let total = u64::from(tokens) + 32;
    Bytes::from(format!(
        r#"data: {{"id":"chatcmpl-trivial","object":"chat.completion.chunk","created":1700000000,"model":"sim","choices":[],"usage":{{"prompt_tokens":32,"completion_tokens":{tokens},"total_tokens":{total}}}}}

"#
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_whole_answer_is_one_kilobyte_of_json() {
        assert_eq!(whole().len(), 1024);
        let value: Value = serde_json::from_slice(&whole()).unwrap();
        assert_eq!(value["usage"]["total_tokens"], 160);
    }

    #[test]
    fn a_field_is_seen_without_reading_json() {
        assert!(says_true(br#"{"stream":true}"#, b"\"stream\""));
        assert!(says_true(b"{\"stream\" : \n true}", b"\"stream\""));
        assert!(!says_true(
            br#"{"stream":false,"stream_options":{"include_usage":true}}"#,
            b"\"stream\""
        ));
    }

    #[test]
    fn chunks_are_json_and_tell_their_time() {
        let parse = |chunk: Bytes| {
            let text = String::from_utf8(chunk.to_vec()).unwrap();
            let data = text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap();
            serde_json::from_str::<Value>(data).unwrap()
        };
        assert!(parse(chunk())["sent_unix_us"].as_u64() > Some(1_600_000_000_000_000));
        assert_eq!(parse(usage_chunk(16))["usage"]["total_tokens"], 48);
    }
}
