//! Tests with no place for rows, neither in a file nor in the database. Each ended answer still has
//! a row, unless the operator has chosen otherwise.

use bytes::Bytes;
use fairgate_config::OnStoreFailure;
use fairgate_store::DirectoryLimits;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::support::client::{Answer, collect_or_error, get, piece, post};
use crate::support::log::Log;
use crate::support::scripted::{Call, Scripted};
use crate::support::{Folder, House, SOON, config, house_in};

const CHAT: &str = "/v1/chat/completions";
const END: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";

fn chat(model: &str, stream: bool) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "rivers"}], "stream": stream})
}

/// A gateway with a stream and a document in flight, when rows can no longer be stored.
struct Full {
    house: House,
    upstream: Scripted,
    /// Connection that locks the database.
    holder: rusqlite::Connection,
    stream: Option<Response<Incoming>>,
    stream_pieces: Option<UnboundedSender<Bytes>>,
    document: Option<(JoinHandle<Answer>, Call)>,
    /// A request whose worker can break the connection.
    broken: Option<(JoinHandle<Answer>, Call)>,
    /// Ids of the requests that were answered while rows could still be stored.
    answered: Vec<String>,
}

impl Full {
    async fn new(on_store_failure: OnStoreFailure) -> Self {
        let mut upstream = Scripted::start().await;
        let folder = Folder::new();
        let mut config = config(&folder, &upstream.url());
        // Room for some rows.
        config.store.spool_bytes_max = 10_000;
        config.on_store_failure = on_store_failure;
        let file = config.store.url.expose().strip_prefix("sqlite:").unwrap().to_owned();
        let house = house_in(folder, config, DirectoryLimits::default()).await;
        let addr = house.gateway.addr();
        let begin = post(CHAT, &chat("sim", true)).key(&house.key);
        let stream = tokio::spawn(async move { begin.begin(addr).await });
        let stream_pieces = upstream.call().await.stream("text/event-stream");
        let mut stream = stream.await.unwrap();
        stream_pieces.send("data: {\"choices\":[{\"delta\":{}}]}\n\n".into()).unwrap();
        assert!(piece(stream.body_mut()).await.is_some());
        let ask = post(CHAT, &chat("sim", false)).key(&house.key);
        let document = tokio::spawn(async move { ask.ask(addr).await });
        let document_call = upstream.call().await;
        let ask = post(CHAT, &chat("sim", false)).key(&house.key);
        let broken = tokio::spawn(async move { ask.ask(addr).await });
        let broken_call = upstream.call().await;
        let holder = rusqlite::Connection::open(file).unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        let answered = Vec::new();
        let mut full = Self {
            house,
            upstream,
            holder,
            stream: Some(stream),
            stream_pieces: Some(stream_pieces),
            document: Some((document, document_call)),
            broken: Some((broken, broken_call)),
            answered,
        };
        full.fill().await;
        full
    }

    /// Requests a model that does not exist, which makes a row each time, until rows can no longer
    /// be stored.
    async fn fill(&mut self) {
        let filled = async {
            while self.house.store.can_record() {
                let answer = self.ask_in_vain().await;
                if answer.code() == "model_not_found" {
                    self.answered.push(answer.header("x-fairgate-request-id").unwrap().to_owned());
                }
            }
        };
        tokio::time::timeout(SOON, filled).await.expect("the files are full at some time");
        assert!(self.answered.len() > 5, "{}", self.answered.len());
    }

    async fn ask_in_vain(&self) -> Answer {
        post(CHAT, &chat("none", false)).key(&self.house.key).ask(self.house.gateway.addr()).await
    }

    async fn live(&self) -> Value {
        let live = get("/api/v1/fairshare/live").header("authorization", "Bearer admin");
        live.ask(self.house.gateway.addr()).await.json()
    }

    /// Lets the database accept rows again, and checks that the stored rows arrive and that the
    /// gateway serves.
    async fn recover(mut self) {
        self.holder.execute_batch("ROLLBACK").unwrap();
        let back = async {
            while !self.house.store.can_record() || self.house.store.rows_waiting() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(SOON, back).await.expect("rows are kept again");
        let addr = self.house.gateway.addr();
        let again = post(CHAT, &chat("sim", false)).key(&self.house.key);
        let again = tokio::spawn(async move { again.ask(addr).await });
        self.upstream.call().await.answer(200, "application/json", "{\"choices\":[]}");
        let again = again.await.unwrap();
        assert_eq!(again.status, StatusCode::OK, "{}", again.text());
        self.answered.push(again.header("x-fairgate-request-id").unwrap().to_owned());
        let rows = self.house.rows().await;
        for request in &self.answered {
            assert_eq!(rows.iter().filter(|row| row.request == *request).count(), 1, "{request}");
        }
        self.house.close().await;
    }
}

#[tokio::test]
async fn no_answer_ends_without_a_row() {
    let log = Log::here();
    let mut full = Full::new(OnStoreFailure::Refuse).await;
    // What is under way gets everything but its end.
    full.stream_pieces.take().unwrap().send(Bytes::from_static(END)).unwrap();
    let stream = full.stream.take().unwrap();
    let text = String::from_utf8(collect_or_error(stream).await.unwrap().to_vec()).unwrap();
    assert!(!text.contains("[DONE]") && text.contains("store_unavailable"), "{text}");
    let (document, call) = full.document.take().unwrap();
    call.answer(200, "application/json", "{\"choices\":[]}");
    let answer = document.await.unwrap();
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.text());
    assert_eq!(answer.code(), "store_unavailable");
    // A failed request ends without its own error, because that end has no row either.
    let (broken, call) = full.broken.take().unwrap();
    call.break_off();
    let answer = broken.await.unwrap();
    assert_eq!(
        (answer.status, answer.code()),
        (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable".into())
    );
    // What comes new is refused before anything is sent.
    for _ in 0..5 {
        let refused = post(CHAT, &chat("sim", false)).key(&full.house.key);
        let refused = refused.ask(full.house.gateway.addr()).await;
        assert_eq!(refused.code(), "store_unavailable");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert!(!full.upstream.has_call());
    let said = log.lines("could not be kept");
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("is not given out"), "{said:#?}");
    assert_eq!(full.live().await["ledger"]["answers_without_row"], 0);
    full.recover().await;
}

#[tokio::test]
async fn where_the_operator_wants_it_answers_are_given_out_and_counted() {
    let log = Log::here();
    let mut full = Full::new(OnStoreFailure::Serve).await;
    full.stream_pieces.take().unwrap().send(Bytes::from_static(END)).unwrap();
    let stream = full.stream.take().unwrap();
    let text = String::from_utf8(collect_or_error(stream).await.unwrap().to_vec()).unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let (document, call) = full.document.take().unwrap();
    call.answer(200, "application/json", "{\"choices\":[]}");
    assert_eq!(document.await.unwrap().status, StatusCode::OK);
    let (broken, call) = full.broken.take().unwrap();
    call.break_off();
    assert_eq!(broken.await.unwrap().code(), "upstream_reset");
    assert_eq!(full.ask_in_vain().await.code(), "model_not_found");
    let live = full.live().await;
    assert!(live["ledger"]["answers_without_row"].as_u64() >= Some(4), "{}", live["ledger"]);
    assert!(live["ledger"]["rows_waiting"].as_u64() >= Some(5), "{}", live["ledger"]);
    let said = log.lines("could not be kept");
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(said[0].contains("given out without one"), "{said:#?}");
    full.recover().await;
}
