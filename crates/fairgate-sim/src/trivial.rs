//! The upstream of benchmarks. It answers with prebuilt bytes, without parsing JSON, to use as little CPU time as
//! possible.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fairgate_time::wall_clock;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use memchr::memmem;

use crate::backend::BackendState;
use crate::body::{BodyWriter, SimBody};
use crate::error_response::{ApiDialect, SimErrorResponse};
use crate::options::TrivialOptions;

const WHOLE_BYTES: usize = 1024;

/// Answers with a chat completion of 1 KB or, if the body contains `"stream": true`, with a stream whose chunks contain
/// the time of sending.
pub(crate) async fn respond(
    backend: &Arc<BackendState>,
    options: TrivialOptions,
    request: Request<Incoming>,
) -> Response<SimBody> {
    let Ok(asked) = read_request(request.into_body(), backend.options.body_bytes_max).await else {
        let refusal =
            SimErrorResponse::new(StatusCode::BAD_REQUEST, "The body is too large or not whole.");
        return refusal.into_response(ApiDialect::OpenAi);
    };
    backend.tally().answered_at_once();
    if asked.stream {
        let body = SimBody::written(|outbox| write_stream(outbox, options, asked.usage));
        return response("text/event-stream", body);
    }
    static WHOLE: OnceLock<Bytes> = OnceLock::new();
    response("application/json", SimBody::whole(WHOLE.get_or_init(whole).clone()))
}

fn response(kind: &'static str, body: SimBody) -> Response<SimBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TrivialRequest {
    stream: bool,
    usage: bool,
}

async fn read_request(mut body: Incoming, bytes_max: usize) -> Result<TrivialRequest, ()> {
    let mut asked = TrivialRequest::default();
    let mut read = 0_usize;
    // A small body is one frame, which is searched without a copy.
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

/// Returns true if this part of a body contains the field with the value true. A field that is split over two frames of
/// the body is not found.
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

async fn write_stream(mut outbox: BodyWriter, options: TrivialOptions, usage: bool) {
    for number in 0..options.stream_chunks {
        if number > 0 {
            // Waits from the time at which the previous chunk was sent, even if that was late, because two chunks at
            // once would spoil the measured time of one of them.
            outbox.wait_flushed().await;
            tokio::time::sleep(options.chunk_interval).await;
        }
        outbox.send(chunk()).await;
    }
    if usage {
        outbox.send(usage_chunk(options.stream_chunks)).await;
    }
    outbox.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
}

/// Builds a chunk with the current time, in microseconds since 1970 by the system's clock.
fn chunk() -> Bytes {
    let now = wall_clock::now().0;
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
