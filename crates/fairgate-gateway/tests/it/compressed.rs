//! Tests of upstreams that compress their answers although they are asked not to. The content
//! inside is metered.

use std::io::Write;

use bytes::Bytes;
use fairgate_store::{AttemptOutcome, UsageSource};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::{Response, StatusCode};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;

use crate::support::client::{piece, post, whole};
use crate::support::scripted::Scripted;
use crate::support::{House, house};

const CHAT: &str = "/v1/chat/completions";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zlib(text: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::encode_all(text, 1).unwrap()
}

fn asked(
    house: &House,
    stream: bool,
) -> tokio::task::JoinHandle<http::Response<hyper::body::Incoming>> {
    let chat = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}], "stream": stream});
    let question = post(CHAT, &chat).key(&house.key);
    let addr = house.gateway.addr();
    tokio::spawn(async move { question.begin(addr).await })
}

#[tokio::test]
async fn a_compressed_document_is_metered_by_what_is_in_it() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let text = "river ".repeat(1500);
    let document = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1500},
    })
    .to_string();
    let cases = [
        ("gzip", gzip(document.as_bytes())),
        ("deflate", zlib(document.as_bytes())),
        ("zstd", zstd(document.as_bytes())),
        ("identity", document.clone().into_bytes()),
    ];
    for (coding, body) in cases {
        let asking = asked(&house, false);
        let call = upstream.call().await;
        assert_eq!(call.request.headers()["accept-encoding"], "identity");
        let head = Response::builder()
            .header("content-type", "application/json")
            .header("content-encoding", coding)
            .header("content-length", body.len());
        call.answer_with(head, body);
        let answer = whole(asking.await.unwrap()).await;
        assert_eq!((answer.status, answer.text()), (StatusCode::OK, document.clone()), "{coding}");
        assert_eq!(answer.header("content-encoding"), None, "{coding}");
        let row = house.rows().await.pop().unwrap();
        assert_eq!(
            (row.outcome, row.usage),
            (AttemptOutcome::Completed, UsageSource::Reported),
            "{coding}"
        );
        assert_eq!((row.input_tokens, row.output_tokens), (9, 1500), "{coding}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_compressed_stream_passes_event_by_event() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let asking = asked(&house, true);
    let head = Response::builder()
        .header("content-type", "text/event-stream")
        .header("content-encoding", "gzip");
    let pieces = upstream.call().await.stream_with(head);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let mut send = |pieces: &UnboundedSender<Bytes>, text: &str, last: bool| {
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.flush().unwrap();
        if last {
            encoder.try_finish().unwrap();
        }
        pieces.send(Bytes::from(std::mem::take(encoder.get_mut()))).unwrap();
    };
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    send(&pieces, &event("one"), false);
    let mut body = asking.await.unwrap().into_body();
    assert_eq!(piece(&mut body).await.unwrap(), event("one"));
    // What was metered by now is what a client that leaves would pay for.
    send(&pieces, &event("two"), false);
    assert_eq!(piece(&mut body).await.unwrap(), event("two"));
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":700}}\n\n";
    send(&pieces, &format!("{usage}data: [DONE]\n\n"), true);
    assert_eq!(piece(&mut body).await.unwrap(), "data: [DONE]\n\n");
    drop(pieces);
    assert_eq!(piece(&mut body).await, None);
    let row = house.rows_soon(1).await.pop().unwrap();
    assert_eq!((row.outcome, row.usage), (AttemptOutcome::Completed, UsageSource::Reported));
    assert_eq!((row.input_tokens, row.output_tokens), (5, 700));
    house.close().await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_given_out() {
    let mut upstream = Scripted::start().await;
    let house = house(&upstream.url()).await;
    let mut cut = gzip(&[b'x'; 50_000]);
    cut.truncate(cut.len() / 2);
    let cases = [
        ("compress", Bytes::from_static(b"?"), "upstream_encoding"),
        ("gzip, zstd", Bytes::from_static(b"?"), "upstream_encoding"),
        ("gzip", Bytes::from_static(b"{\"choices\":[]}"), "upstream_incomplete"),
        ("gzip", Bytes::from(cut), "upstream_incomplete"),
    ];
    for (coding, body, code) in cases {
        let asking = asked(&house, false);
        let head = Response::builder()
            .header("content-type", "application/json")
            .header("content-encoding", coding);
        upstream.call().await.answer_with(head, body);
        let answer = whole(asking.await.unwrap()).await;
        assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_GATEWAY, code));
        let row = house.rows().await.pop().unwrap();
        assert_eq!((row.outcome, row.code.as_deref()), (AttemptOutcome::UpstreamError, Some(code)));
    }
    house.close().await;
}
