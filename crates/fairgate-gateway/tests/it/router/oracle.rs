//! Tests whether a tenant can find out that another tenant has sent a prompt. It sends a copy of
//! the prompt, and reads everything that its key may read.

use std::collections::BTreeSet;

use fairgate_money::{Currency, ModelPrices, PerMillion, Price, PriceRates};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::*;
use crate::support::SOON;

/// Fields that differ between two runs of the same requests: times and random ids.
const RANDOM: [&str; 20] = [
    "id",
    "request",
    "at",
    "since",
    "until",
    "waited_mean_us",
    "waited_p50_us",
    "waited_p95_us",
    "waited_max_us",
    "first_token_mean_us",
    "key",
    "submitted_at",
    "started_at",
    "resets_at",
    "waited_us",
    "in_flight_us",
    "oldest_wait_us",
    "expected_wait_ms",
    "first_token_us",
    "total_us",
];

/// Limit of the curious tenant, in tokens per minute.
const PER_MINUTE: i64 = 3_000;

fn without_random_fields(view: &mut Value) {
    match view {
        Value::Object(fields) => {
            let is_scalar = |value: &Value| !value.is_object() && !value.is_array();
            fields.retain(|name, value| !(RANDOM.contains(&name.as_str()) && is_scalar(value)));
            fields.values_mut().for_each(without_random_fields);
        }
        Value::Array(items) => items.iter_mut().for_each(without_random_fields),
        Value::String(text) => {
            if let Some(start) = text.find("key-") {
                text.replace_range(start..start + "key-".len() + 16, "KEY");
            }
            // How long it waited and ran, and the wait that is expected, follow from the clock.
            while let Some((at, length)) = unit_of_time(text) {
                let start = text[..at].rfind(' ').map_or(0, |space| space + 1);
                text.replace_range(start..at + length, "TIME");
            }
        }
        _ => {}
    }
}

/// Returns the position and the length of the first unit of time after a number.
fn unit_of_time(text: &str) -> Option<(usize, usize)> {
    [" ms", " s"].into_iter().find_map(|unit| {
        let mut found = text.match_indices(unit).map(|(at, _)| (at, unit.len()));
        found.find(|(at, length)| {
            let is_number = text[..*at].ends_with(|digit: char| digit.is_ascii_digit());
            is_number && !text[at + length..].starts_with(char::is_alphanumeric)
        })
    })
}

/// Fields that the engine reports to the client, and fields that follow from these alone.
const REPORTED: [&str; 2] = ["cached_tokens", "money"];

/// Removes the reported fields from a view, and collects their values.
fn take_reported(view: &mut Value, name: &str, values: &mut BTreeSet<String>) {
    match view {
        Value::Object(fields) => {
            values.extend(fields.remove(name).map(|value| value.to_string()));
            fields.values_mut().for_each(|inside| take_reported(inside, name, values));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|inside| take_reported(inside, name, values));
        }
        _ => {}
    }
}

/// An open stream of events.
struct EventReader {
    body: Incoming,
    text: String,
}

impl EventReader {
    async fn open(house: &House, key: &str, kinds: &str) -> Self {
        let path = format!("/api/v1/events?kinds={kinds}");
        let answer = get(&path).key(key).begin(house.gateway.addr()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        Self { body: answer.into_body(), text: String::new() }
    }

    /// Returns the data of the next event.
    async fn next(&mut self) -> Value {
        let reading = async {
            loop {
                if let Some((event, rest)) = self.text.split_once("\n\n") {
                    let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                    let data = data.map(|data| serde_json::from_str(data).unwrap());
                    self.text = rest.to_owned();
                    if let Some(data) = data {
                        return data;
                    }
                    continue;
                }
                let frame = self.body.frame().await.expect("more").unwrap();
                self.text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
            }
        };
        tokio::time::timeout(SOON, reading).await.expect("an event comes")
    }
}

/// Checks that a tenant's history has no service, which depends on what is cached. The other points
/// only show times.
fn check_history(history: &Value) {
    for pool in history["pools"].as_array().unwrap() {
        for name in ["got", "due", "difference", "bound", "asked"] {
            assert_eq!(pool[name], Value::Null, "{name}: {history}");
            assert_eq!(pool[format!("{name}_tokens")], Value::Null, "{name}: {history}");
        }
    }
}

/// Reads everything that this key may read about its requests and its pools.
async fn views(house: &House, key: &str) -> Value {
    let read = async |path: &str| get(path).key(key).ask(house.gateway.addr()).await;
    let mut list = read("/api/v1/requests").await.json();
    let mut me = read("/api/v1/me").await.json();
    // The rate refills while the test runs. What was taken of it for a request is its cost without the cache.
    let left = me["tenant_limits"]["tokens_left"].take().as_i64().unwrap();
    if list["items"].as_array().is_some_and(|items| !items.is_empty()) {
        assert!(left < PER_MINUTE - 500, "{left}");
    }
    let rows = house.rows().await;
    let ids = list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap());
    let ended = rows.iter().filter(|row| row.tenant == "curious").map(|row| row.request.as_str());
    let mut ids: Vec<String> = ids.chain(ended).map(str::to_owned).collect();
    ids.sort();
    let mut details = Vec::new();
    for id in ids {
        details.push(read(&format!("/api/v1/requests/{id}")).await.json());
    }
    check_history(&read("/api/v1/me/history?since=10m").await.json());
    let attempts = read("/api/v1/me/attempts").await.json();
    let usage = read("/api/v1/me/usage?by=model&split=agent&quantiles=true").await.json();
    let mut all = json!({
        "list": list.take(), "me": me.take(), "details": details, "attempts": attempts, "usage": usage,
    });
    without_random_fields(&mut all);
    all
}

/// Way in which the pool orders requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolKind {
    /// The pool shares by tenant, on two workers at one address.
    Shares,
    /// The pool has classes that follow from what is cached, on one worker.
    Classes,
}

impl PoolKind {
    /// Returns a pool with one slot, in which a request with cached tokens costs less, also in
    /// money.
    fn config(self, folder: &Folder, url: &str) -> Config {
        let mut config = match self {
            Self::Classes => with_policy(folder, url),
            Self::Shares => config(folder, url),
        };
        config.upstreams[0].slots = Some(1);
        if self == Self::Shares {
            config.upstreams.push(beside(&config, "b", url));
            config.pools[0].workers.push("b".into());
        }
        let pool = &mut config.pools[0];
        pool.capacity = 1;
        pool.prefix_index = index(PrefixScope::Pool);
        pool.cost.cached_milli = 0;
        let rates = PriceRates {
            input: PerMillion::parse("1000").unwrap(),
            cached_input: PerMillion::parse("100").unwrap(),
            ..PriceRates::default()
        };
        let currency = Currency::parse("EUR").unwrap();
        config.prices = ModelPrices::new(vec![Price::new("sim", None, currency, rates, None)]);
        config
    }
}

/// Returns the answer of an engine that has this number of the prompt's tokens cached.
fn usage_with(cached: u64) -> String {
    let details = json!({"cached_tokens": cached});
    json!({"usage": {"prompt_tokens": 900, "completion_tokens": 1, "prompt_tokens_details": details}})
        .to_string()
}

/// The views of a tenant and of the admin on a request, after another tenant has sent a prompt
/// about a topic.
struct SeenOfCopy {
    /// The tenant's views while the request waits, is in flight and has ended, without the fields
    /// that the engine reports.
    states: [Value; 3],
    /// Values of each of the [`REPORTED`] fields.
    reported: [BTreeSet<String>; 2],
    /// Costs that the admin sees while the request waits: the real cost, and the cost without the
    /// cache.
    costs: (u64, u64),
    /// Workers of the first prompt and of the copy, as the admin sees them.
    workers: [Option<String>; 2],
}

/// Sends a prompt about `topic`, and then, as another tenant, a prompt about rivers. The engine has
/// the second prompt cached if both are the same.
async fn seen_after(topic: &str, kind: PoolKind) -> SeenOfCopy {
    let mut engine = Scripted::start().await;
    let folder = Folder::new();
    let config = kind.config(&folder, &engine.url());
    let house = house_in(folder, config, DirectoryLimits::default()).await;
    let limits = DirectoryLimits {
        tokens_per_minute: Some(PER_MINUTE.unsigned_abs()),
        ..DirectoryLimits::default()
    };
    let curious = house.tenant("curious", limits).await;
    let addr = house.gateway.addr();
    let ask = |key: &str, topic: &str| {
        let question = post(CHAT, &conversation(topic, 0)).key(key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(&house.key, topic);
    engine.call().await.answer(200, "application/json", usage_with(0));
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    // The only slot is taken, so that the copy waits.
    let holding = ask(&house.key, "meadow");
    let held = engine.call().await;
    let mut ended = EventReader::open(&house, &curious, "ended").await;
    let copy = ask(&curious, "rivers");
    house.until(|status| status.waiting == 1).await;
    // The live view is at most 200 ms old.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let waiting = views(&house, &curious).await;
    let admin = get("/api/v1/requests?state=waiting").key("admin").ask(addr).await.json();
    let item = &admin["items"][0];
    let costs = (item["cost"].as_u64().unwrap(), item["cost_uncached"].as_u64().unwrap());
    held.answer(200, "application/json", usage_with(0));
    assert_eq!(holding.await.unwrap().status, StatusCode::OK);
    let call = engine.call().await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let in_flight = views(&house, &curious).await;
    let cached = if topic == "rivers" { 800 } else { 0 };
    call.answer(200, "application/json", usage_with(cached));
    let answer = copy.await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"], cached);
    let rows = house.rows_soon(3).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let mut at_last = views(&house, &curious).await;
    at_last["event"] = ended.next().await;
    without_random_fields(&mut at_last["event"]);
    drop(ended);
    house.close().await;
    let mut states = [waiting, in_flight, at_last];
    let reported = REPORTED.map(|name| {
        let mut values = BTreeSet::new();
        states.iter_mut().for_each(|state| take_reported(state, name, &mut values));
        values
    });
    let workers = [rows[0].worker.clone(), rows[2].worker.clone()];
    SeenOfCopy { states, reported, costs, workers }
}

/// Apart from `expected_wait_ms` and times, a copy looks like a prompt that nobody has sent. Only
/// the fields that the engine itself reports differ, and the money that follows from them.
#[tokio::test]
async fn a_copy_of_anothers_prompt_looks_like_a_prompt_that_nobody_has_sent() {
    let kinds = [PoolKind::Shares, PoolKind::Classes];
    let seen = kinds.map(|kind| async move {
        let (copied, unknown) =
            tokio::join!(seen_after("rivers", kind), seen_after("oceans", kind));
        (kind, copied, unknown)
    });
    for (kind, copied, unknown) in futures_util::future::join_all(seen).await {
        let (cost, uncached) = copied.costs;
        assert!(cost * 2 < uncached, "the index did not know the prompt: {cost} of {uncached}");
        assert_eq!(copied.workers[0], copied.workers[1], "it went where it is cached");
        assert_eq!(unknown.costs, (uncached, uncached), "the admin sees both costs");
        let states = ["waiting", "in flight", "ended"].iter();
        for (state, (copied, unknown)) in states.zip(copied.states.iter().zip(&unknown.states)) {
            assert_eq!(copied, unknown, "{state}, {kind:?}");
        }
        for (place, (of_copy, of_new)) in
            [("800", "0"), ("\"0.18\"", "\"0.90\"")].iter().enumerate()
        {
            let has = |seen: &SeenOfCopy, value: &str| seen.reported[place].contains(value);
            assert!(has(&copied, of_copy), "{:?}", copied.reported);
            assert!(has(&unknown, of_new) && !has(&unknown, of_copy), "{:?}", unknown.reported);
        }
        let item = &copied.states[0]["list"]["items"][0];
        assert_eq!(item["cost"], uncached);
        assert_eq!(copied.states[1]["list"]["items"][0]["worker"], Value::Null);
        for row in ["/details/0/attempts/0", "/attempts/items/0", "/event"] {
            let row = copied.states[2].pointer(row).expect(row);
            assert_eq!(row["worker"], Value::Null, "{row}");
            assert!(row["charged_tokens"].as_u64() >= Some(900), "{row}");
        }
    }
}

/// Without a prefix index that all tenants share, nothing has to be hidden.
#[tokio::test]
async fn tenants_that_share_no_prompts_see_what_they_got() {
    let engine = Scripted::start().await;
    let house = house_with(&engine.url(), |config| {
        config.pools[0].prefix_index = index(PrefixScope::Tenant);
    })
    .await;
    let me = get("/api/v1/me").key(&house.key).ask(house.gateway.addr()).await.json();
    assert_eq!(me["pools"][0]["lag_tokens"], 0);
    house.close().await;
}

/// Returns the salt that the engine gets for a body with this salt of the client.
async fn salt_at(house: &House, engine: &mut Scripted, model: &str, own: Option<&str>) -> Value {
    let mut body = conversation("rivers", 0);
    body["model"] = model.into();
    if let Some(own) = own {
        body["cache_salt"] = own.into();
    }
    let (question, addr) = (post(CHAT, &body).key(&house.key), house.gateway.addr());
    let asked = tokio::spawn(async move { question.ask(addr).await });
    let call = engine.call().await;
    let mut sent: Value = serde_json::from_slice(call.request.body()).unwrap();
    let text = String::from_utf8(call.request.body().to_vec()).unwrap();
    assert!(text.matches("cache_salt").count() <= 1, "{text}");
    call.answer(200, "application/json", r#"{"usage":{"prompt_tokens":9,"completion_tokens":1}}"#);
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    sent["cache_salt"].take()
}

/// Two pools use one engine: one pool separates tenants, the other does not. A client of the second
/// pool that knows the salt of a tenant of the first pool must not be able to use it.
#[tokio::test]
async fn a_clients_own_salt_does_not_reach_an_engine_that_another_pool_shares() {
    let mut engine = Scripted::start().await;
    let house = house_with(&engine.url(), |config| {
        config.pools[0].prefix_index = index(PrefixScope::Tenant);
        let mut open = config.pools[0].clone();
        open.name = "open".into();
        open.models[0].name = "open".into();
        open.prefix_index = None;
        config.pools.push(open);
    })
    .await;
    let mine = salt_at(&house, &mut engine, "sim", None).await;
    let mine = mine.as_str().unwrap();
    let named = salt_at(&house, &mut engine, "open", Some(mine)).await;
    assert_eq!(named.as_str().unwrap().len(), 32);
    assert_ne!(named, mine);
    // It still separates what it separated, and who sends none gets none.
    assert_eq!(salt_at(&house, &mut engine, "open", Some(mine)).await, named);
    assert_ne!(salt_at(&house, &mut engine, "open", Some("x")).await, named);
    assert_eq!(salt_at(&house, &mut engine, "open", None).await, Value::Null);
    house.close().await;
}

/// A tenant's salt cannot be computed from the tenant's name. After a restart, the engines' caches
/// are still used.
#[tokio::test]
async fn salts_are_keyed_by_a_secret_of_the_store() {
    let mut engine = Scripted::start().await;
    let by_tenant = |config: &mut Config| {
        config.pools[0].prefix_index = index(PrefixScope::Tenant);
    };
    let house = house_with(&engine.url(), by_tenant).await;
    let other = house_with(&engine.url(), by_tenant).await;
    let (here, there) = (
        salt_at(&house, &mut engine, "sim", None).await,
        salt_at(&other, &mut engine, "sim", None).await,
    );
    assert_ne!(here, there, "tenants of one name in two installations have one salt");
    // A second gateway on the same database sends the same salts.
    let mut config = (*house.gateway.data_plane().config.load_full()).clone();
    let folder = Folder::new();
    config.data_dir.clone_from(&folder.0);
    config.journal = None;
    let options = fairgate_gateway::GatewayOptions {
        config,
        store: house.store.clone(),
        admin_token: fairgate_store::KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    let second = fairgate_gateway::Gateway::start(options).await.unwrap();
    let question = post(CHAT, &conversation("rivers", 0)).key(&house.key);
    let addr = second.addr();
    let asked = tokio::spawn(async move { question.ask(addr).await });
    let call = engine.call().await;
    let sent: Value = serde_json::from_slice(call.request.body()).unwrap();
    assert_eq!(sent["cache_salt"], here);
    call.answer(200, "application/json", "{}");
    assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    drop(second);
    house.close().await;
    other.close().await;
}
