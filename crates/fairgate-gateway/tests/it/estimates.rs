//! Tests of the expected cost of a request.

use fairgate_config::Tokenizer;
use fairgate_dialect::estimate::TokenizerTable;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::post;
use crate::support::scripted::Scripted;
use crate::support::{House, house_with};

const CHAT: &str = "/v1/chat/completions";

/// Returns the expected cost of this request. The upstream reports no usage, so that nothing is
/// learned from it.
async fn estimate(house: &House, upstream: &mut Scripted, body: &Value) -> u64 {
    let addr = house.gateway.addr();
    let question = post(CHAT, body).key(&house.key);
    let asking = tokio::spawn(async move { question.ask(addr).await });
    upstream.call().await.answer(200, "application/json", "{}");
    assert_eq!(asking.await.unwrap().status, StatusCode::OK);
    house.rows().await.pop().unwrap().estimate
}

#[tokio::test]
async fn the_default_output_is_another_after_a_reload() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].cost.output_default = 1000;
    })
    .await;
    let body = json!({"model": "sim", "messages": []});
    let before = estimate(&house, &mut upstream, &body).await;
    assert!((1000..1020).contains(&before), "{before}");
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.pools[0].cost.output_default = 50;
    house.gateway.reload(next).await.unwrap();
    assert_eq!(estimate(&house, &mut upstream, &body).await, before - 950);
    house.close().await;
}

#[tokio::test]
async fn a_large_image_is_no_text_with_a_tokenizer_either() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].cost.tokenizer = Tokenizer::O200k;
    })
    .await;
    let body = |url: String| {
        json!({"model": "sim", "max_tokens": 1, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "hello world"},
            {"type": "image_url", "image_url": {"url": url}}]}]})
    };
    // A small one is counted: two tokens of text, the image, the message, the chat, the answer.
    let small = body("data:image/png;base64,AAAA".to_owned());
    assert_eq!(estimate(&house, &mut upstream, &small).await, 2 + 1024 + 4 + 3 + 1);
    // One that is too large to be counted is estimated as if there was no tokenizer, and not as 75 000 tokens of text.
    let large = body(format!("data:image/png;base64,{}", "iVBORw0KGgo".repeat(30_000)));
    let tokens = estimate(&house, &mut upstream, &large).await;
    assert!((1000..1200).contains(&tokens), "{tokens}");
    house.close().await;
}

#[tokio::test]
async fn a_pools_table_is_loaded_before_the_first_request() {
    let upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].cost.tokenizer = Tokenizer::Cl100k;
    })
    .await;
    assert!(TokenizerTable::Cl100k.is_loaded());
    house.close().await;
}
