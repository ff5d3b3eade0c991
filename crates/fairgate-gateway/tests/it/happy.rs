//! Tests of every route, streamed and not, up to the row in the ledger.

use fairgate_dialect::Route;
use fairgate_store::{AttemptOutcome, UsageSource};
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{get, post};
use crate::support::scripted::Scripted;
use crate::support::{house, house_with, sim};

fn body(route: Route, stream: bool) -> Value {
    let mut body = match route {
        Route::ChatCompletions | Route::Messages | Route::CountTokens => {
            json!({"model": "sim", "messages": [{"role": "user", "content": "Tell me of rivers."}]})
        }
        Route::Completions => json!({"model": "sim", "prompt": "Tell me of rivers."}),
        Route::Embeddings | Route::Responses => {
            json!({"model": "sim", "input": "Tell me of rivers."})
        }
    };
    if route == Route::Messages {
        body["max_tokens"] = 100.into();
    }
    if stream {
        body["stream"] = true.into();
    }
    body
}

#[tokio::test]
async fn every_route_answers_and_has_its_row() {
    let sim = sim();
    let house = house(&sim.url()).await;
    for (at, route) in Route::ALL.into_iter().enumerate() {
        let answer =
            post(route.path(), &body(route, false)).key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK, "{route:?}: {}", answer.text());
        assert!(answer.json().is_object());
        let rows = house.rows().await;
        assert_eq!(rows.len(), at + 1);
        let row = &rows[at];
        assert_eq!(Some(row.request.as_str()), answer.header("x-fairgate-request-id"));
        assert_eq!((row.route.as_str(), row.status, row.stream), (route.path(), 200, false));
        assert_eq!((row.outcome, row.last, row.attempt), (AttemptOutcome::Completed, true, 1));
        assert_eq!(row.usage, UsageSource::Reported, "{route:?}");
        assert_eq!(row.charged, row.input_tokens + row.output_tokens);
        assert_eq!(row.output_tokens, if route.generates() { 8 } else { 0 }, "{route:?}");
        assert_eq!((row.tenant.as_str(), row.worker.as_deref()), ("acme", Some("sim")));
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn every_stream_comes_whole_and_its_usage_is_hidden_where_nobody_asked() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let streams = [Route::ChatCompletions, Route::Completions, Route::Responses, Route::Messages];
    for (at, route) in streams.into_iter().enumerate() {
        let answer =
            post(route.path(), &body(route, true)).key(&house.key).ask(house.gateway.addr()).await;
        assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
        let text = answer.text();
        let (end, usage_shown) = match route {
            Route::ChatCompletions | Route::Completions => ("data: [DONE]\n\n", false),
            Route::Responses => ("", true),
            _ => ("", true),
        };
        assert!(text.ends_with(end), "{text}");
        assert_eq!(text.contains("_tokens"), usage_shown, "{route:?}: {text}");
        let rows = house.rows().await;
        assert_eq!(rows.len(), at + 1);
        assert_eq!((rows[at].outcome, rows[at].stream), (AttemptOutcome::Completed, true));
        assert_eq!(rows[at].usage, UsageSource::Reported, "{route:?}");
        assert_eq!(rows[at].output_tokens, 8);
        assert!(rows[at].first_token_us.is_some());
    }
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn usage_that_was_asked_for_is_shown() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let mut asked = body(Route::ChatCompletions, true);
    asked["stream_options"] = json!({"include_usage": true});
    let answer =
        post("/v1/chat/completions", &asked).key(&house.key).ask(house.gateway.addr()).await;
    assert!(answer.text().contains("\"completion_tokens\":8"), "{}", answer.text());
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn http_2_is_served_by_prior_knowledge() {
    let sim = sim();
    let house = house(&sim.url()).await;
    for stream in [false, true] {
        let question = post("/v1/chat/completions", &body(Route::ChatCompletions, stream));
        let answer = question.key(&house.key).ask_h2(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert!(!answer.body.is_empty());
    }
    assert_eq!(house.rows().await.len(), 2);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn models_are_listed_in_both_dialects() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let addr = house.gateway.addr();
    let openai = get("/v1/models").key(&house.key).ask(addr).await.json();
    assert_eq!((&openai["object"], &openai["data"][0]["id"]), (&json!("list"), &json!("sim")));
    let anthropic = get("/v1/models").header("x-api-key", &house.key);
    let anthropic = anthropic.header("anthropic-version", "2023-06-01").ask(addr).await.json();
    assert_eq!(
        (&anthropic["data"][0]["type"], &anthropic["has_more"]),
        (&json!("model"), &json!(false))
    );
    let one = get("/v1/models/sim").key(&house.key).ask(addr).await.json();
    assert_eq!(one["id"], "sim");
    let none = get("/v1/models/none").key(&house.key).ask(addr).await;
    assert_eq!((none.status, none.code().as_str()), (StatusCode::NOT_FOUND, "model_not_found"));
    assert_eq!(get("/v1/models").ask(addr).await.status, StatusCode::UNAUTHORIZED);
    assert!(house.rows().await.is_empty());
    house.close().await;
    sim.stop().await;
}

/// A token count occupies a worker like any other request.
#[tokio::test]
async fn a_token_count_is_charged_its_input() {
    let sim = sim();
    let house = house(&sim.url()).await;
    let words = "rivers and their names ".repeat(100);
    let asked = json!({"model": "sim", "messages": [{"role": "user", "content": words}]});
    let question = post("/v1/messages/count_tokens", &asked).key(&house.key);
    let counted = question.ask(house.gateway.addr()).await.json()["input_tokens"].as_u64().unwrap();
    let row = house.rows().await.pop().unwrap();
    assert!(counted > 100, "{counted}");
    assert_eq!((row.input_tokens, row.output_tokens, row.charged), (counted, 0, counted));
    assert_eq!(row.usage, UsageSource::Reported);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn an_answer_says_how_long_it_waited() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| config.pools[0].capacity = 1).await;
    let addr = house.gateway.addr();
    let ask = |stream| {
        let body = body(Route::ChatCompletions, stream);
        let question = post(Route::ChatCompletions.path(), &body).key(&house.key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(false);
    let call = upstream.call().await;
    let second = ask(true);
    house.until(|live| live.waiting == 1).await;
    // Time that the header must show at least.
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    call.answer(200, "application/json", "{}");
    let first = first.await.unwrap();
    upstream.call().await.answer(200, "text/event-stream", "data: [DONE]\n\n");
    let second = second.await.unwrap();
    let rows = house.rows_soon(2).await;
    for (answer, least) in [(first, 0), (second, 20)] {
        let id = answer.header("x-fairgate-request-id").unwrap();
        let row = rows.iter().find(|row| row.request == id).unwrap();
        let waited: u64 = answer.header("x-fairgate-waited-ms").unwrap().parse().unwrap();
        assert_eq!(waited, row.waited_us / 1000, "the ledger has the same number");
        assert!(waited >= least, "{waited}");
    }
    // What is refused before it waits says nothing of a wait.
    let refused = get("/v1/models").ask(addr).await;
    assert_eq!(
        (refused.status, refused.header("x-fairgate-waited-ms")),
        (StatusCode::UNAUTHORIZED, None)
    );
    house.close().await;
}
