//! Tests of leases: slots of a pool without upstreams, for programs that call a provider
//! themselves.

use std::time::{Duration, Instant};

use fairgate_config::QuotaConfig;
use fairgate_store::{
    AttemptOutcome, AttemptRow, Budget, BudgetPeriod, DirectoryLimits, KeyRights, UsageSource,
};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::client::{Answer, get, post, raw};
use crate::support::{Folder, House, LEASES, SOON, UNSTATED_QUOTA, config, house_in, lease_pool};

/// URL at which nothing listens and to which nothing is sent.
const NOWHERE: &str = "http://127.0.0.1:9";

async fn leasing_with(
    capacity: u64,
    ttl: Duration,
    quota: QuotaConfig,
    limits: DirectoryLimits,
) -> House {
    let folder = Folder::new();
    let mut config = config(&folder, NOWHERE);
    lease_pool(&mut config, capacity, ttl, quota);
    house_in(folder, config, limits).await
}

async fn leasing(capacity: u64, ttl: Duration) -> House {
    leasing_with(capacity, ttl, UNSTATED_QUOTA, DirectoryLimits::default()).await
}

/// A client with this key.
struct Client<'a> {
    house: &'a House,
    key: String,
}

impl House {
    fn client(&self) -> Client<'_> {
        Client { house: self, key: self.key.clone() }
    }
}

impl Client<'_> {
    async fn submit(&self, body: Value) -> Answer {
        post(LEASES, &body).key(&self.key).ask(self.house.gateway.addr()).await
    }

    /// Submits a lease, and returns its id.
    async fn lease(&self, mut body: Value, state: &str) -> String {
        body["wait_ms"] = json!(if state == "granted" { 5000 } else { 0 });
        let answer = self.submit(body).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        assert_eq!(answer.json()["state"], state, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    async fn look(&self, id: &str, wait_ms: u64) -> Answer {
        let path = format!("{LEASES}/{id}?wait_ms={wait_ms}");
        get(&path).key(&self.key).ask(self.house.gateway.addr()).await
    }

    async fn say(&self, id: &str, word: &str, body: Value) -> Answer {
        let path = format!("{LEASES}/{id}/{word}");
        post(&path, &body).key(&self.key).ask(self.house.gateway.addr()).await
    }

    async fn cancel(&self, id: &str) -> Answer {
        let mut question = get(&format!("{LEASES}/{id}")).key(&self.key);
        question.method = Method::DELETE;
        question.ask(self.house.gateway.addr()).await
    }

    /// Polls until the lease is granted, as a client does.
    async fn granted(&self, id: &str) -> Value {
        let waited = async {
            loop {
                let answer = self.look(id, 500).await;
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
                if answer.json()["state"] == "granted" {
                    return answer.json();
                }
            }
        };
        tokio::time::timeout(SOON, waited).await.expect("it is granted")
    }
}

const LONG: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_lease_is_queued_granted_and_settled_once() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let call =
        json!({"agent": "planner", "model": "gpt-5", "input_tokens": 100, "output_tokens": 50});
    let first = client.lease(call.clone(), "granted").await;
    let second = client.lease(call, "queued").await;
    let waiting = client.look(&second, 10).await.json();
    assert_eq!(waiting["state"], "queued");
    assert!(waiting["expected_wait_ms"].is_u64(), "one was granted lately: {waiting}");
    assert_eq!(client.say(&second, "settle", json!({})).await.code(), "lease_not_granted");

    let used = json!({"input_tokens": 80, "cached_tokens": 30, "output_tokens": 20});
    let settled = client.say(&first, "settle", used.clone()).await;
    assert_eq!(
        (&settled.json()["state"], &settled.json()["charged"]),
        (&json!("settled"), &json!(100))
    );
    // Said again, the same is answered, and another number changes nothing.
    let again = client.say(&first, "settle", json!({"tokens": 7})).await;
    assert_eq!(again.json(), settled.json());

    let grant = client.granted(&second).await;
    assert_eq!((&grant["attempt"], &grant["ttl_ms"]), (&json!(1), &json!(15_000)));
    // What it used is not known: it is charged its estimate.
    let settled = client.say(&second, "settle", json!({})).await.json();
    assert_eq!(settled["charged"], 150);
    let rows = house.rows_soon(2).await;
    assert_eq!(rows.len(), 2);
    let row = &rows[0];
    assert_eq!((row.route.as_str(), row.model.as_str()), (LEASES, "gpt-5"));
    assert_eq!((row.agent.as_deref(), row.worker.as_deref()), (Some("planner"), Some("gpt")));
    assert_eq!((row.input_tokens, row.cached_tokens, row.output_tokens), (80, 30, 20));
    assert_eq!((row.charged, row.provider_tokens, row.estimate), (100, 100, 150));
    assert_eq!((row.outcome, row.usage), (AttemptOutcome::Completed, UsageSource::Reported));
    assert_eq!((rows[1].charged, rows[1].usage), (150, UsageSource::Assumed));
    house.close().await;
}

#[tokio::test]
async fn a_lease_needs_a_right_of_its_key() {
    let house = leasing(1, LONG).await;
    let closed = house.key_with("acme", DirectoryLimits::default(), KeyRights::default()).await;
    let client = Client { house: &house, key: closed };
    let refused = client.submit(json!({"cost": 10})).await;
    assert_eq!((refused.status, &*refused.code()), (StatusCode::FORBIDDEN, "lease_not_allowed"));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert!(refused.text().contains("--may-lease true"), "{}", refused.text());
    // Not even a repeated submission of a lease that another key opened.
    let own = json!({"id": "mine", "cost": 10});
    let first = house.client().submit(own.clone()).await.json();
    assert_eq!(first["state"], "granted", "{first}");
    assert_eq!(client.submit(own).await.code(), "lease_not_allowed");
    let open = KeyRights { may_lease: true, ..KeyRights::default() };
    let open = house.key_with("acme", DirectoryLimits::default(), open).await;
    let client = Client { house: &house, key: open };
    let lease = client.lease(json!({"cost": 10}), "queued").await;
    client.cancel(&lease).await;
    house.client().cancel(first["id"].as_str().unwrap()).await;
    house.close().await;
}

#[tokio::test]
async fn a_lease_takes_a_slot_of_the_keys_workers_only() {
    let house = leasing(1, LONG).await;
    let open = |worker: &str| KeyRights {
        may_lease: true,
        workers: Some(vec![worker.into()]),
        ..KeyRights::default()
    };
    let other = house.key_with("acme", DirectoryLimits::default(), open("other")).await;
    let refused = Client { house: &house, key: other }.submit(json!({"cost": 10})).await;
    assert_eq!((refused.status, &*refused.code()), (StatusCode::FORBIDDEN, "worker_not_allowed"));
    assert!(refused.text().contains("other"), "{}", refused.text());
    let this = house.key_with("acme", DirectoryLimits::default(), open("gpt")).await;
    let client = Client { house: &house, key: this };
    let lease = client.lease(json!({"cost": 10}), "granted").await;
    client.cancel(&lease).await;
    house.close().await;
}

#[tokio::test]
async fn who_dies_loses_its_lease_and_pays_for_its_time_whatever_it_says_later() {
    let house = leasing(1, SHORT).await;
    let client = house.client();
    let lost = client.lease(json!({"cost": 10}), "granted").await;
    let next = client.lease(json!({"cost": 10}), "queued").await;
    client.granted(&next).await;
    let late = client.say(&lost, "settle", json!({"tokens": 1})).await;
    assert_eq!((late.status, late.code().as_str()), (StatusCode::CONFLICT, "lease_lost"));
    assert_eq!(client.say(&lost, "renew", json!({})).await.code(), "lease_lost");
    client.say(&next, "settle", json!({"tokens": 3})).await;
    let rows = house.rows_soon(2).await;
    assert_eq!(rows.len(), 2);
    let row = &rows[0];
    assert_eq!(
        (row.outcome, row.code.as_deref()),
        (AttemptOutcome::ClientLeft, Some("lease_lost"))
    );
    // 512 tokens in ten seconds are what a slot brings before anything is known, and it had its slot for one.
    assert!((51..=200).contains(&row.charged), "{}", row.charged);
    assert_eq!((row.usage, row.occupied), (UsageSource::Occupied, row.charged));
    house.close().await;
}

#[tokio::test]
async fn who_is_heard_keeps_its_lease_and_who_waits_in_silence_leaves_the_queue() {
    let house = leasing(1, SHORT).await;
    let client = house.client();
    let held = client.lease(json!({}), "granted").await;
    let silent = client.lease(json!({}), "queued").await;
    let began = Instant::now();
    while began.elapsed() < 2 * SHORT {
        assert_eq!(client.say(&held, "renew", json!({})).await.json()["state"], "granted");
        tokio::time::sleep(SHORT / 5).await;
    }
    assert_eq!(client.look(&silent, 0).await.code(), "lease_lost");
    // It has held its slot for two seconds, at 51.2 tokens a second.
    let charged =
        client.say(&held, "settle", json!({"tokens": 5})).await.json()["charged"].as_u64();
    assert!(charged >= Some(102), "{charged:?}");
    let rows = house.rows_soon(2).await;
    let gone = rows.iter().find(|row| row.code.as_deref() == Some("lease_lost")).unwrap();
    assert_eq!((gone.charged, gone.worker.as_deref()), (0, None));
    house.close().await;
}

#[tokio::test]
async fn a_call_that_met_a_429_waits_until_the_reset_and_goes_first() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let first = client.lease(json!({"agent": "a"}), "granted").await;
    let behind = client.lease(json!({"agent": "a"}), "queued").await;
    let answer = json!({"status": 429, "headers": {"Retry-After-Ms": "700"}, "body": ""});
    let began = Instant::now();
    let waits = client.say(&first, "limited", answer).await;
    assert_eq!(waits.json()["state"], "queued", "{}", waits.text());
    let grant = client.granted(&first).await;
    assert!(began.elapsed() >= Duration::from_millis(690), "{:?}", began.elapsed());
    assert_eq!(grant["attempt"], 2);
    assert_eq!(client.look(&behind, 0).await.json()["state"], "queued");
    client.say(&first, "settle", json!({"tokens": 9})).await;
    client.granted(&behind).await;
    client.say(&behind, "settle", json!({"tokens": 9})).await;
    let rows = house.rows_soon(3).await;
    let attempts: Vec<_> = rows.iter().filter(|row| row.request == first).collect();
    assert_eq!(attempts.len(), 2);
    // The refused attempt pays for its time alone, and nothing of what it was expected to use.
    assert_eq!(
        (attempts[0].outcome, attempts[0].usage),
        (AttemptOutcome::Retried, UsageSource::Occupied)
    );
    assert!((1..100).contains(&attempts[0].charged), "{}", attempts[0].charged);
    assert_eq!(attempts[0].code.as_deref(), Some("provider_limited"));
    assert!(attempts[1].last && attempts[1].charged >= 9);
    house.close().await;
}

#[tokio::test]
async fn what_a_provider_says_is_left_holds_the_pool_back() {
    let house = leasing(8, LONG).await;
    let client = house.client();
    let first = client.lease(json!({}), "granted").await;
    let headers = json!({
        "x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "30s",
    });
    client.say(&first, "settle", json!({"tokens": 5, "headers": headers})).await;
    // Once a second the pool is told; then one request a second is let through.
    let held = async {
        loop {
            let answer = client.submit(json!({})).await.json();
            let id = answer["id"].as_str().unwrap();
            if answer["state"] == "queued" {
                return client.cancel(id).await;
            }
            client.say(id, "settle", json!({"tokens": 5})).await;
        }
    };
    let cancelled = tokio::time::timeout(SOON, held).await.expect("it is held back");
    assert_eq!(cancelled.json()["state"], "cancelled");
    house.close().await;
}

#[tokio::test]
async fn rates_of_the_pool_hold_over_all_clients() {
    let quota = QuotaConfig { requests_per_minute: Some(600), ..UNSTATED_QUOTA };
    let house = leasing_with(50, LONG, quota, DirectoryLimits::default()).await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    // Ten a second, and ten that were saved up.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    let clients = [house.client(), Client { house: &house, key: other }];
    let calls = (0..24).map(async |number| {
        let client = &clients[number % 2];
        let answer = client.submit(json!({"wait_ms": 7000})).await.json();
        assert_eq!(answer["state"], "granted", "{answer}");
        let at = began.elapsed();
        client.say(answer["id"].as_str().unwrap(), "settle", json!({"tokens": 1})).await;
        at
    });
    let mut granted = futures_util::future::join_all(calls).await;
    granted.sort();
    for (number, at) in granted.iter().enumerate().skip(11) {
        let earliest = Duration::from_millis(100 * (u64::try_from(number).unwrap() - 11));
        assert!(*at >= earliest, "number {number} at {at:?}");
    }
    house.close().await;
}

#[tokio::test]
async fn budgets_count_leases() {
    let budgets = vec![Budget::tokens(1000, BudgetPeriod::Day)];
    let limits = DirectoryLimits { budgets, ..DirectoryLimits::default() };
    let house = leasing_with(4, LONG, UNSTATED_QUOTA, limits).await;
    let client = house.client();
    let first = client.lease(json!({"cost": 600}), "granted").await;
    let second = client.submit(json!({"cost": 600, "wait_ms": 1000})).await;
    assert_eq!(
        (second.status, second.code().as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "budget_reserved")
    );
    client.say(&first, "settle", json!({"tokens": 1000})).await;
    let third = client.submit(json!({"cost": 1, "wait_ms": 1000})).await;
    assert_eq!(third.code(), "budget_exhausted");
    house.close().await;
}

#[tokio::test]
async fn a_submission_that_is_repeated_is_the_same_lease_and_belongs_to_its_key() {
    let house = leasing(4, LONG).await;
    let client = house.client();
    let call = json!({"id": "call-1", "client": "worker-1"});
    let first = client.lease(call.clone(), "granted").await;
    assert_eq!(client.lease(call.clone(), "granted").await, first);
    let other =
        Client { house: &house, key: house.tenant("other", DirectoryLimits::default()).await };
    for (word, body) in [("settle", json!({})), ("renew", json!({}))] {
        let answer = other.say(&first, word, body).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::NOT_FOUND, "lease_not_found")
        );
    }
    let theirs = other.lease(call, "granted").await;
    assert_ne!(theirs, first);
    client.cancel(&first).await;
    assert_eq!(client.say(&first, "settle", json!({})).await.code(), "lease_cancelled");
    other.say(&theirs, "settle", json!({"tokens": 1})).await;
    assert_eq!(house.rows_soon(2).await.len(), 2);
    house.close().await;
}

/// Path with which a client program listens for changes. Its queued leases end with the connection.
const LISTENING: &str = "/v1/leases?client=w-1&after=1000&wait_ms=5000&ends_with_connection=true";

impl Client<'_> {
    /// Opens a connection on which the program listens.
    async fn listen(&self, path: &str) -> TcpStream {
        let stream = get(path).key(&self.key).begin_stalled(self.house.gateway.addr()).await;
        // Nothing tells that the gateway has read it; a second is what it gets after the close.
        tokio::time::sleep(Duration::from_millis(200)).await;
        stream
    }
}

/// Submits three leases of the client program `w-1`: one is granted, and two wait.
async fn one_granted_two_queued(client: &Client<'_>) -> [String; 3] {
    [
        client.lease(json!({"client": "w-1"}), "granted").await,
        client.lease(json!({"client": "w-1"}), "queued").await,
        client.lease(json!({"client": "w-1"}), "queued").await,
    ]
}

#[tokio::test]
async fn queued_leases_end_with_the_connection_on_which_their_program_listens() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let [held, ..] = one_granted_two_queued(&client).await;
    let listening = client.listen(LISTENING).await;
    let began = Instant::now();
    let other = client.lease(json!({}), "queued").await;
    drop(listening);
    // The slot becomes free while the program may still come back, and goes to a lease that the program never hears of.
    client.say(&held, "settle", json!({"tokens": 2})).await;
    client.granted(&other).await;
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    let rows = house.rows_soon(3).await;
    let code = |row: &AttemptRow| row.code.clone().unwrap_or_default();
    let mut codes: Vec<String> = rows.iter().map(code).collect();
    codes.sort();
    assert_eq!(codes, ["", "lease_cancelled", "lease_cancelled"]);
    client.cancel(&other).await;
    house.close().await;
}

#[tokio::test]
async fn a_program_that_listens_on_another_connection_keeps_its_queued_leases() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let [held, second, third] = one_granted_two_queued(&client).await;
    let first_connection = client.listen(LISTENING).await;
    let second_connection = client.listen(LISTENING).await;
    drop(first_connection);
    // A proxy may close a connection, and the program comes back on another one.
    drop(second_connection);
    let _third_connection = client.listen(LISTENING).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    for id in [&second, &third] {
        assert_eq!(client.look(id, 0).await.json()["state"], "queued");
    }
    client.say(&held, "settle", json!({"tokens": 2})).await;
    client.granted(&second).await;
    for id in [&second, &third] {
        client.cancel(id).await;
    }
    house.close().await;
}

#[tokio::test]
async fn granted_leases_and_those_of_programs_that_do_not_say_so_outlive_the_connection() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let [held, second, third] = one_granted_two_queued(&client).await;
    let plain = LISTENING.replace("&ends_with_connection=true", "");
    drop(client.listen(&plain).await);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for id in [&second, &third] {
        assert_eq!(client.look(id, 0).await.json()["state"], "queued");
    }
    drop(client.listen(LISTENING).await);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(client.look(&held, 0).await.json()["state"], "granted");
    assert_eq!(client.look(&second, 0).await.json()["state"], "cancelled");
    let bad = LISTENING.replace("=true", "=maybe");
    let refused = get(&bad).key(&house.key).ask(house.gateway.addr()).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("ends_with_connection"), "{}", refused.text());
    client.say(&held, "settle", json!({"tokens": 2})).await;
    house.close().await;
}

#[tokio::test]
async fn a_client_program_hears_of_all_its_leases_at_once() {
    let house = leasing(1, SHORT).await;
    let client = house.client();
    let addr = house.gateway.addr();
    let news = async |after: u64| {
        let path = format!("{LEASES}?client=w-1&after={after}&wait_ms=5000");
        let answer = get(&path).key(&house.key).ask(addr).await.json();
        let leases = answer["leases"].as_array().unwrap().clone();
        (leases, answer["latest"].as_u64().unwrap())
    };
    let first = client.lease(json!({"client": "w-1"}), "granted").await;
    let second = client.lease(json!({"client": "w-1"}), "queued").await;
    let (seen, latest) = news(0).await;
    assert_eq!(seen.len(), 2);
    let ending = client.say(&first, "settle", json!({"tokens": 2}));
    let ((seen, mut latest), _) = tokio::join!(news(latest), ending);
    let mut states: Vec<Value> = seen.iter().map(|lease| lease["state"].clone()).collect();
    while !states.contains(&json!("granted")) {
        let (seen, next) = news(latest).await;
        states.extend(seen.iter().map(|lease| lease["state"].clone()));
        latest = next;
    }
    // Asking for news renews what is held.
    let began = Instant::now();
    while began.elapsed() < 2 * SHORT {
        let (seen, next) = news(latest).await;
        assert!(seen.iter().all(|lease| lease["state"] != "lost"), "{seen:?}");
        latest = next;
    }
    client.say(&second, "settle", json!({"tokens": 2})).await;
    house.close().await;
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let addr = house.gateway.addr();
    let code = async |body: Value| client.submit(body).await.code();
    assert_eq!(code(json!({"pool": "sim"})).await, "lease_pool_not_found");
    assert_eq!(code(json!({"costs": 5})).await, "invalid_lease");
    assert_eq!(code(json!({"agent": ""})).await, "invalid_lease");
    assert_eq!(code(json!({"class": "x"})).await, "class_not_allowed");
    assert_eq!(code(json!({"priority": 1_i64 << 40})).await, "invalid_priority");
    assert_eq!(raw(LEASES, "{").key(&house.key).ask(addr).await.code(), "invalid_lease");
    assert_eq!(post(LEASES, &json!({})).ask(addr).await.code(), "invalid_api_key");
    assert_eq!(client.say("req-x", "settle", json!({})).await.code(), "lease_not_found");
    assert_eq!(client.say("req-x", "dance", json!({})).await.code(), "not_found");
    let wrong = get(&format!("{LEASES}/x/settle")).key(&house.key).ask(addr).await;
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (StatusCode::METHOD_NOT_ALLOWED, Some("POST"))
    );
    assert_eq!(get(LEASES).key(&house.key).ask(addr).await.code(), "invalid_lease");
    let held = client.lease(json!({}), "granted").await;
    let said = client.say(&held, "limited", json!({"status": 404})).await;
    assert_eq!((said.status, said.code().as_str()), (StatusCode::BAD_REQUEST, "not_a_limit"));
    assert_eq!(
        client.say(&held, "settle", json!({"outcome": "failed", "tokens": 3})).await.status,
        200
    );
    house.close().await;
}

#[tokio::test]
async fn the_end_of_the_gateway_ends_its_leases_with_a_row_each() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    client.lease(json!({}), "granted").await;
    client.lease(json!({}), "queued").await;
    let folder = &house.folder.0;
    let drained = house.gateway.drain(Duration::from_secs(5)).await;
    assert_eq!((drained.still_in_flight, drained.problems), (0, Vec::new()));
    let url = format!("sqlite:{}", folder.join("fairgate.db").display());
    let (store, _) = fairgate_store::Store::open(&url, Default::default()).await.unwrap();
    let mut codes: Vec<_> =
        crate::support::rows(&store).await.into_iter().map(|row| row.code).collect();
    codes.sort();
    assert_eq!(codes, [Some("drained".into()), Some("draining".into())]);
}

#[tokio::test]
async fn a_report_of_nothing_pays_for_its_time_whether_it_completed_or_failed() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let held = Duration::from_millis(300);
    let call = || json!({"model": "gpt-5", "cost": 400});
    let failed = client.lease(call(), "granted").await;
    tokio::time::sleep(held).await;
    let body = json!({"tokens": 0, "outcome": "failed"});
    let settled = client.say(&failed, "settle", body).await.json();
    assert!(settled["charged"].as_u64() > Some(0), "{settled}");
    let completed = client.lease(call(), "granted").await;
    tokio::time::sleep(held).await;
    let settled = client.say(&completed, "settle", json!({"tokens": 0})).await.json();
    // 51.2 tokens a second for 300 ms.
    assert!(settled["charged"].as_u64() >= Some(15), "{settled}");
    assert!(settled["provider_tokens"].as_u64() >= Some(15), "{settled}");
    let rows = house.rows_soon(2).await;
    assert_eq!(
        (rows[0].outcome, rows[0].usage),
        (AttemptOutcome::UpstreamError, UsageSource::Occupied)
    );
    assert_eq!(
        (rows[1].outcome, rows[1].usage),
        (AttemptOutcome::Completed, UsageSource::Occupied)
    );
    assert_eq!(rows[1].occupied, 0, "it has completed");
    house.close().await;
}

/// Returns the OpenAPI schema of a response.
fn described<'a>(document: &'a Value, method: &str, path: &str, status: u16) -> &'a Value {
    let operation = &document["paths"][path][method];
    let response = &operation["responses"][status.to_string()];
    assert!(response.is_object(), "{method} {path} does not describe {status}");
    let reference = response["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
    document.pointer(reference.trim_start_matches('#')).unwrap()
}

/// Checks that every field of a response is described, and that all required fields are present.
fn fits(answer: &Value, schema: &Value) {
    let properties = schema["properties"].as_object().unwrap();
    for field in answer.as_object().unwrap().keys() {
        assert!(properties.contains_key(field), "{field} of {answer} is not described");
    }
    for field in schema["required"].as_array().into_iter().flatten() {
        assert!(!answer[field.as_str().unwrap()].is_null(), "{answer} has no {field}");
    }
}

#[tokio::test]
async fn every_route_of_leases_is_described() {
    let house = leasing(1, LONG).await;
    let client = house.client();
    let document = fairgate_control::admin::document();
    let check = |method: &str, path: &str, answer: &Answer| {
        let path = format!("{LEASES}{path}");
        fits(&answer.json(), described(document, method, &path, answer.status.as_u16()));
    };
    let call =
        || json!({"model": "gpt-5", "cost": 10, "client": "c", "id": "own", "wait_ms": 5000});
    let submitted = client.submit(call()).await;
    check("post", "", &submitted);
    let id = submitted.json()["id"].as_str().unwrap().to_owned();
    check("get", "/{id}", &client.look(&id, 0).await);
    check("post", "/{id}/renew", &client.say(&id, "renew", json!({})).await);
    let refused = json!({"status": 429, "headers": {"retry-after": "0"}});
    check("post", "/{id}/limited", &client.say(&id, "limited", refused).await);
    client.granted(&id).await;
    let news = get(&format!("{LEASES}?client=c")).key(&client.key).ask(house.gateway.addr()).await;
    check("get", "", &news);
    fits(&news.json()["leases"][0], &document["components"]["schemas"]["Lease"]);
    check("post", "/{id}/settle", &client.say(&id, "settle", json!({"tokens": 3})).await);
    let second = client.lease(json!({"model": "gpt-5", "cost": 10}), "granted").await;
    check("delete", "/{id}", &client.cancel(&second).await);
    check("get", "/{id}", &client.look("none", 0).await);
    check("post", "", &client.submit(json!({"pool": "none"})).await);
    check("post", "", &client.submit(json!({"cost": "much"})).await);
    let operations = document["paths"].as_object().unwrap().iter();
    let of_leases = operations.filter(|(path, _)| path.starts_with(LEASES));
    assert_eq!(of_leases.map(|(_, item)| item.as_object().unwrap().len()).sum::<usize>(), 7);
    house.close().await;
}
