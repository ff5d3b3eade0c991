//! Tests of the limits of tenants and keys, and of the policies inside a tenant's share.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairgate_journal::parse_policy;
use fairgate_store::{AttemptOutcome, DirectoryLimits};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata};

use crate::support::client::{Answer, Question, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{Folder, House, config, house_in, house_with, sim};

const CHAT: &str = "/v1/chat/completions";

fn chat(content: &str) -> Value {
    json!({"model": "sim", "messages": [{"role": "user", "content": content}], "max_tokens": 10})
}

/// Starts a gateway whose tenant has these limits and whose pool has this number of slots.
async fn limited(url: &str, capacity: u64, limits: DirectoryLimits) -> House {
    let folder = Folder::new();
    let mut configuration = config(&folder, url);
    configuration.pools[0].capacity = capacity;
    configuration.upstreams[0].slots = None;
    house_in(folder, configuration, limits).await
}

fn asking(house: &House, question: Question) -> JoinHandle<Answer> {
    let addr = house.gateway.addr();
    tokio::spawn(async move { question.ask(addr).await })
}

fn ask(house: &House, key: &str) -> JoinHandle<Answer> {
    asking(house, post(CHAT, &chat("rivers")).key(key))
}

fn finish(call: Call) {
    let usage = json!({"usage": {"prompt_tokens": 20, "completion_tokens": 10}});
    call.answer(200, "application/json", usage.to_string());
}

/// Checks that an answer is a 429 with this code, and returns the stated seconds until the retry.
fn told(answer: &Answer, code: &str) -> u64 {
    let found = (answer.status, answer.code());
    assert_eq!(found, (StatusCode::TOO_MANY_REQUESTS, code.to_owned()), "{}", answer.text());
    assert_eq!(answer.header("x-should-retry"), None, "it is worth trying again");
    answer.header("retry-after").unwrap().parse().unwrap()
}

#[tokio::test]
async fn so_many_requests_a_minute() {
    let sim = sim();
    let limits = DirectoryLimits { requests_per_minute: Some(3), ..DirectoryLimits::default() };
    let house = limited(&sim.url(), 8, limits).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    for _ in 0..3 {
        assert_eq!(ask(&house, &house.key).await.unwrap().status, StatusCode::OK);
    }
    // A third of a minute for the next one, less what has passed.
    let wait = told(&ask(&house, &house.key).await.unwrap(), "rate_limited_requests");
    assert!((1..=20).contains(&wait), "{wait} s");
    // A second key of the same tenant gains nothing; another tenant is not concerned.
    let second = house.key("acme", DirectoryLimits::default(), &[]).await;
    told(&ask(&house, &second).await.unwrap(), "rate_limited_requests");
    assert_eq!(ask(&house, &other).await.unwrap().status, StatusCode::OK);
    let rows = house.rows().await;
    let refused = rows.iter().filter(|row| row.outcome == AttemptOutcome::Refused);
    assert_eq!(refused.map(|row| row.charged).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(sim.stats().requests, 4);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn so_many_tokens_a_minute_as_they_were_used() {
    let mut upstream = Scripted::start().await;
    let limits = DirectoryLimits { tokens_per_minute: Some(1000), ..DirectoryLimits::default() };
    let house = limited(&upstream.url(), 8, limits).await;
    // It was expected to use some forty, and used a minute and a half's worth.
    let first = ask(&house, &house.key);
    let usage = json!({"usage": {"prompt_tokens": 20, "completion_tokens": 1480}});
    upstream.call().await.answer(200, "application/json", usage.to_string());
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    let wait = told(&ask(&house, &house.key).await.unwrap(), "rate_limited_tokens");
    assert!((10..=31).contains(&wait), "{wait} s for half of a minute's worth");
    assert!(!upstream.has_call());
    house.close().await;
}

#[tokio::test]
async fn so_many_requests_and_bytes_may_wait() {
    let bytes = u64::try_from(chat("rivers").to_string().len()).unwrap();
    let cases = [
        (
            DirectoryLimits { queued_requests: Some(2), ..DirectoryLimits::default() },
            "queue_requests_exceeded",
        ),
        // Two and a half of them.
        (
            DirectoryLimits { queued_bytes: Some(bytes * 5 / 2), ..DirectoryLimits::default() },
            "queue_bytes_exceeded",
        ),
    ];
    for (limits, code) in cases {
        let mut upstream = Scripted::start().await;
        let house = limited(&upstream.url(), 1, limits).await;
        let other = house.tenant("other", DirectoryLimits::default()).await;
        let mut answers = vec![ask(&house, &house.key)];
        let call = upstream.call().await;
        answers.extend([ask(&house, &house.key), ask(&house, &house.key)]);
        house.until(|live| live.waiting == 2).await;
        // What is in flight does not wait, so two wait beside it and the next is refused.
        let wait = told(&ask(&house, &house.key).await.unwrap(), code);
        assert!((1..=60).contains(&wait), "{wait} s");
        answers.push(asking(&house, post(CHAT, &chat("others")).key(&other)));
        house.until(|live| live.waiting == 3).await;
        finish(call);
        // The first of its own that leaves the queue makes room in it.
        let mut left = 4;
        loop {
            let call = upstream.call().await;
            left -= 1;
            let own = String::from_utf8_lossy(call.request.body()).contains("rivers");
            if own {
                answers.push(ask(&house, &house.key));
            }
            finish(call);
            if own {
                break;
            }
        }
        for _ in 0..left {
            finish(upstream.call().await);
        }
        for answer in answers {
            assert_eq!(answer.await.unwrap().status, StatusCode::OK);
        }
        house.close().await;
    }
}

/// Serves this number of requests, each when the pool is idle, and returns the greatest number in
/// flight at once.
async fn most_at_once(house: &House, upstream: &mut Scripted, all: u64, mark: &str) -> usize {
    let mut held: Vec<Call> = Vec::new();
    let mut most = 0;
    for served in 0..all {
        let came = |held: &Vec<Call>| served + u64::try_from(held.len()).unwrap();
        // Whatever was granted is there before one of them is answered.
        loop {
            let live = house.gateway.data_plane().pools.all()[0].gate.status().await.unwrap();
            let known = live.counts.granted + live.waiting == all;
            if known
                && came(&held) == live.counts.granted
                && live.in_flight == live.counts.granted - served
            {
                break;
            }
            if came(&held) < live.counts.granted {
                held.push(upstream.call().await);
            } else {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let of_it = |call: &&Call| String::from_utf8_lossy(call.request.body()).contains(mark);
        most = most.max(held.iter().filter(of_it).count());
        finish(held.remove(0));
        house.rows_soon(usize::try_from(served).unwrap() + 1).await;
    }
    most
}

#[tokio::test]
async fn so_many_of_a_tenant_run_at_once_whatever_its_keys() {
    let mut upstream = Scripted::start().await;
    let limits = DirectoryLimits { in_flight: Some(2), ..DirectoryLimits::default() };
    let house = limited(&upstream.url(), 8, limits).await;
    let second = house.key("acme", DirectoryLimits::default(), &[]).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let question = |mark, key: &str| asking(&house, post(CHAT, &chat(mark)).key(key));
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(question("capped", &house.key));
        answers.push(question("capped", &second));
        answers.push(question("others", &other));
    }
    assert_eq!(most_at_once(&house, &mut upstream, 12, "capped").await, 2);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn so_many_of_a_key_run_at_once_and_its_sisters_have_the_rest() {
    let mut upstream = Scripted::start().await;
    let house = limited(&upstream.url(), 8, DirectoryLimits::default()).await;
    let one = DirectoryLimits { in_flight: Some(1), ..DirectoryLimits::default() };
    let capped = house.key("acme", one, &[]).await;
    let question = |mark, key: &str| asking(&house, post(CHAT, &chat(mark)).key(key));
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(question("capped", &capped));
        answers.push(question("sister", &house.key));
    }
    assert_eq!(most_at_once(&house, &mut upstream, 10, "capped").await, 1);
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

/// One part of a tenant floods and another does not, and there is another tenant. Returns the order
/// of service.
async fn served_in_order(policy: &str, header: &str) -> Vec<String> {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].capacity = 1;
        config.pools[0].policy = parse_policy(policy).unwrap();
    })
    .await;
    let key = house.key("acme", DirectoryLimits::default(), &["flood", "quiet"]).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let blocker = house.tenant("blocker", DirectoryLimits::default()).await;
    let mut answers = vec![ask(&house, &blocker)];
    let call = upstream.call().await;
    // All are there before the first is granted, and the flood was there first.
    for (count, part) in [(12, "flood"), (4, "quiet")] {
        for _ in 0..count {
            let question = post(CHAT, &chat(part)).key(&key).header(header, part);
            answers.push(asking(&house, question));
        }
        let waiting = answers.len() as u64 - 1;
        house.until(|live| live.waiting == waiting).await;
    }
    for _ in 0..8 {
        answers.push(asking(&house, post(CHAT, &chat("other")).key(&other)));
    }
    house.until(|live| live.waiting == 24).await;
    finish(call);
    let mut order = Vec::new();
    for _ in 0..24 {
        let call = upstream.call().await;
        let body: Value = serde_json::from_slice(call.request.body()).unwrap();
        order.push(body["messages"][0]["content"].as_str().unwrap().to_owned());
        finish(call);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
    order
}

#[tokio::test]
async fn what_clients_name_splits_their_own_part_and_nobody_elses() {
    let share =
        |by| format!(r#"{{"share":{{"by":"tenant","inside":{{"share":{{"by":"{by}"}}}}}}}}"#);
    let classes = r#"{"share":{"by":"tenant","inside":{"drr":{"by":"class","classes":[
        {"name":"flood","quantum":1},{"name":"quiet","quantum":1}]}}}}"#;
    let cases = [
        (share("agent"), "x-fairgate-agent"),
        (share("session"), "x-fairgate-session"),
        (classes.to_owned(), "x-fairgate-class"),
    ];
    for (policy, header) in cases {
        let order = served_in_order(&policy, header).await;
        let count =
            |upto: usize, part: &str| order[..upto].iter().filter(|one| *one == part).count();
        // While both tenants wait, each has every other grant, however many names one of them uses.
        for upto in 1..=16 {
            let others = count(upto, "other");
            assert!(others.abs_diff(upto - others) <= 1, "{header} {upto}: {order:?}");
        }
        // And while both parts of one wait, these have every other of its own.
        let own: Vec<_> = order.iter().filter(|part| *part != "other").collect();
        for pair in own[..8].windows(2) {
            assert_ne!(pair[0], pair[1], "{header}: {order:?}");
        }
    }
}

#[tokio::test]
async fn a_class_that_a_key_does_not_allow_is_refused() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        let policy = r#"{"drr":{"by":"class","classes":[{"name":"batch","quantum":1},{"name":"urgent","quantum":9}]}}"#;
        config.pools[0].policy = parse_policy(policy).unwrap();
    })
    .await;
    let batch = house.key("acme", DirectoryLimits::default(), &["batch"]).await;
    let question = |key: &str, class| {
        asking(&house, post(CHAT, &chat("rivers")).key(key).header("x-fairgate-class", class))
    };
    assert_eq!(question(&batch, "batch").await.unwrap().status, StatusCode::OK);
    assert_eq!(ask(&house, &batch).await.unwrap().status, StatusCode::OK);
    let classes = house.rows().await.into_iter().map(|row| row.class);
    assert!(classes.eq([Some("batch".to_owned()), Some("batch".to_owned())]));
    let none = house.key("acme", DirectoryLimits::default(), &[]).await;
    for key in [&batch, &none] {
        let refused = question(key, "urgent").await.unwrap();
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (StatusCode::FORBIDDEN, "class_not_allowed")
        );
        let row = house.rows().await.pop().unwrap();
        assert_eq!((row.outcome, row.charged), (AttemptOutcome::Refused, 0));
        assert_eq!(row.code.as_deref(), Some("class_not_allowed"));
    }
    assert_eq!(sim.stats().requests, 2);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_cap_that_a_pools_policy_cannot_hold_is_warned_of_once() {
    let sim = sim();
    let warnings = Warnings::default();
    // This test's runtime has this thread only.
    let _listening = tracing::subscriber::set_default(warnings.clone());
    let house = house_with(&sim.url(), |config| {
        let policy = r#"{"drr":{"by":"class","classes":[
            {"name":"a","quantum":1,"inside":{"share":{"by":"tenant","inside":{"share":{"by":"key"}}}}},
            {"name":"b","quantum":1}]}}"#;
        config.pools[0].policy = parse_policy(policy).unwrap();
    })
    .await;
    assert_eq!(warnings.about("in_flight"), [""; 0]);
    let one = || DirectoryLimits { in_flight: Some(1), ..DirectoryLimits::default() };
    house.tenant("first", one()).await;
    house.tenant("second", one()).await;
    let said = warnings.about("in_flight");
    assert!(said.len() == 1 && said[0].contains("name=\"first\""), "{said:?}");
    // A key's is another limit.
    house.key("first", one(), &[]).await;
    house.key("second", one(), &[]).await;
    assert_eq!(warnings.about("in_flight").len(), 2);
    house.close().await;
    sim.stop().await;
}

/// Warnings that were logged, as text.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn about(&self, what: &str) -> Vec<String> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|warning| warning.contains(what)).cloned().collect()
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            write!(text, "{field}={value:?} ").unwrap();
        });
        self.0.lock().unwrap().push(text);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
