//! Workers that come and go while requests run: added, drained and removed by an operator, found by name, killed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairgate_config::{
    AutoSlots, Config, DiscoverConfig, MetricsConfig, OverloadConfig, PrefixIndexConfig,
    PrefixScope,
};
use fairgate_gateway::pools::{Answer as Addresses, Resolve, WorkerView};
use fairgate_gateway::{Gateway, GatewayOptions};
use fairgate_sim::{OutputLength, Sim, SimOptions};
use fairgate_store::{KeyHash, Store, StoreOptions};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::client::{Answer, Question, get, piece, post};
use crate::support::scripted::Scripted;
use crate::support::{House, SOON, beside, config, house, house_with, sim};

const CHAT: &str = "/v1/chat/completions";
const WORKERS: &str = "/api/v1/pools/sim/workers";

fn chat(house: &House) -> Question {
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
    post(CHAT, &body).key(&house.key)
}

async fn admin(gateway: &Gateway, method: Method, path: &str, body: Value) -> Answer {
    let mut question = match body {
        Value::Null => get(path),
        body => post(path, &body).header("content-type", "application/json"),
    };
    question.method = method;
    question.key("admin").ask(gateway.addr()).await
}

async fn add(house: &House, name: &str, url: &str) -> Answer {
    let body = json!({"name": name, "url": url, "like": "sim", "slots": 4});
    admin(&house.gateway, Method::POST, WORKERS, body).await
}

async fn turn(house: &House, worker: &str, how: &str) -> Answer {
    admin(&house.gateway, Method::POST, &format!("{WORKERS}/{worker}/{how}"), Value::Null).await
}

async fn remove(house: &House, worker: &str, query: &str) -> Answer {
    let path = format!("{WORKERS}/{worker}{query}");
    admin(&house.gateway, Method::DELETE, &path, Value::Null).await
}

fn views(gateway: &Gateway) -> Vec<WorkerView> {
    gateway.app().pools.all()[0].workers()
}

fn names(gateway: &Gateway) -> Vec<String> {
    views(gateway).into_iter().map(|worker| worker.name).collect()
}

/// The workers that the scheduler knows.
async fn in_core(gateway: &Gateway) -> Vec<String> {
    let snapshot = gateway.app().pools.all()[0].gate.snapshot().await.unwrap();
    let workers = snapshot.workers.map(|workers| workers.list).unwrap_or_default();
    workers.into_iter().map(|worker| worker.said.name.into()).collect()
}

async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let reached = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(SOON, reached).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_worker_is_added_drained_and_removed_and_all_of_it_is_audited() {
    let (a, b) = (sim(), sim());
    let house = house(&a.url()).await;
    assert_eq!(add(&house, "b", &b.url()).await.status, StatusCode::CREATED);
    assert_eq!(add(&house, "b", &b.url()).await.status, StatusCode::OK, "once more is no change");
    assert_eq!(names(&house.gateway), ["sim", "b"]);
    assert_eq!(views(&house.gateway)[1].source.name(), "api");
    let drained = turn(&house, "sim", "drain").await;
    assert_eq!((drained.status, &drained.json()["state"]), (StatusCode::OK, &json!("drained")));
    turn(&house, "sim", "drain").await;
    for _ in 0..3 {
        assert_eq!(chat(&house).ask(house.gateway.addr()).await.status, StatusCode::OK);
    }
    assert_eq!((a.stats().requests, b.stats().requests), (0, 3));
    assert_eq!(turn(&house, "sim", "undrain").await.json()["state"], "up");
    assert_eq!(remove(&house, "b", "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(chat(&house).ask(house.gateway.addr()).await.status, StatusCode::OK);
    assert_eq!((a.stats().requests, b.stats().requests), (1, 3));
    until("it is forgotten", async || in_core(&house.gateway).await == ["sim"]).await;
    let trail =
        admin(&house.gateway, Method::GET, "/api/v1/audit?limit=10", Value::Null).await.json();
    let items = trail["items"].as_array().unwrap();
    let actions: Vec<_> = items.iter().map(|it| it["action"].as_str().unwrap()).collect();
    let expected = ["worker.remove", "worker.undrain", "worker.drain", "worker.add"];
    assert_eq!(actions[..4], expected);
    assert_eq!(items[3]["after"]["url"], b.url());
    house.close().await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_says_what_to_do() {
    let a = sim();
    let house = house(&a.url()).await;
    let try_add = async |body: Value| {
        let answer = admin(&house.gateway, Method::POST, WORKERS, body).await;
        (answer.status.as_u16(), answer.code(), answer.text())
    };
    for (body, status, code, words) in [
        (
            json!({"name": "b b", "url": "http://h", "like": "sim"}),
            422,
            "invalid_value",
            "name must",
        ),
        (
            json!({"name": "b", "url": "h", "like": "sim"}),
            422,
            "invalid_value",
            "url must be a URL",
        ),
        (
            json!({"name": "b", "url": "http://h", "like": "x"}),
            404,
            "not_found",
            "there is no upstream",
        ),
        (json!({"name": "sim", "url": "http://h", "like": "sim"}), 409, "exists", "taken"),
        (
            json!({"name": "b", "url": "http://h", "like": "sim", "slots": 0}),
            422,
            "invalid_value",
            "slots",
        ),
        (json!({"name": "b", "url": "http://h"}), 422, "invalid_value", "like"),
    ] {
        let (got, got_code, text) = try_add(body).await;
        assert_eq!((got, got_code.as_str()), (status, code), "{text}");
        assert!(text.contains(words), "{text}");
    }
    let from_file = remove(&house, "sim", "").await;
    assert_eq!((from_file.status.as_u16(), from_file.code().as_str()), (409, "not_added_here"));
    assert!(from_file.text().contains("remove it there and reload"), "{}", from_file.text());
    assert_eq!(remove(&house, "nobody", "").await.code(), "not_found");
    assert_eq!(turn(&house, "nobody", "drain").await.code(), "not_found");
    let path = format!("{WORKERS}/sim");
    let overload = json!({"overload": {"waiting": 3}});
    let unread = admin(&house.gateway, Method::PATCH, &path, overload).await;
    assert_eq!((unread.status.as_u16(), unread.code().as_str()), (422, "invalid_value"));
    assert_eq!(names(&house.gateway), ["sim"]);
    house.close().await;
    a.stop().await;
}

#[tokio::test]
async fn what_was_said_of_workers_is_still_true_after_a_restart() {
    let (a, b) = (sim(), sim());
    let house = house(&a.url()).await;
    add(&house, "b", &b.url()).await;
    turn(&house, "sim", "drain").await;
    let House { gateway, folder, .. } = house;
    gateway.drain(SOON).await;
    let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await.unwrap();
    let config = config(&folder, &a.url());
    let options = GatewayOptions { config, store, admin_token: KeyHash::of(b"admin") };
    let gateway = Gateway::start(options).await.unwrap();
    let now = views(&gateway);
    let states: Vec<_> = now.iter().map(|it| (it.name.as_str(), it.state, it.slots)).collect();
    assert_eq!(states, [("sim", "drained", Some(8)), ("b", "up", Some(4))]);
    until("the scheduler knows", async || {
        let snapshot = gateway.app().pools.all()[0].gate.snapshot().await.unwrap();
        let workers = snapshot.workers.unwrap().list;
        workers[0].said.state.is_some_and(|state| state.name() == "drain")
    })
    .await;
    gateway.drain(SOON).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn what_waits_goes_elsewhere_when_its_worker_is_removed_and_what_is_in_flight_goes_on() {
    for query in ["", "?now=true"] {
        let (a, mut b) = (Scripted::start().await, Scripted::start().await);
        let mut a = a;
        let house = house_with(&a.url(), |config| {
            config.upstreams[0].slots = Some(1);
            config.pools[0].capacity = 100;
        })
        .await;
        let addr = house.gateway.addr();
        let body = json!({"name": "b", "url": b.url(), "like": "sim", "slots": 1});
        admin(&house.gateway, Method::POST, WORKERS, body).await;
        let asking = || {
            let question = chat(&house);
            tokio::spawn(async move { question.ask(addr).await })
        };
        let mut asked = vec![asking(), asking()];
        let (on_a, on_b) = (a.call().await, b.call().await);
        asked.extend([asking(), asking()]);
        house.until(|live| live.waiting == 2).await;
        assert_eq!(remove(&house, "b", query).await.status, StatusCode::NO_CONTENT);
        assert_eq!(names(&house.gateway), ["sim"]);
        if query == "?now=true" {
            assert_eq!(in_core(&house.gateway).await, ["sim"]);
        }
        on_a.answer(200, "application/json", "{}");
        for _ in 0..2 {
            a.call().await.answer(200, "application/json", "{}");
        }
        assert!(!b.has_call(), "nothing new");
        on_b.answer(200, "application/json", "{}");
        for asked in asked {
            assert_eq!(asked.await.unwrap().status, StatusCode::OK, "{query}");
        }
        until("it is forgotten", async || in_core(&house.gateway).await == ["sim"]).await;
        house.close().await;
    }
}

#[tokio::test]
async fn nobody_waits_for_the_only_worker_when_it_is_drained() {
    let mut a = Scripted::start().await;
    let house = house_with(&a.url(), |config| config.upstreams[0].slots = Some(1)).await;
    let addr = house.gateway.addr();
    let asking = || {
        let question = chat(&house);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = asking();
    let call = a.call().await;
    let second = asking();
    house.until(|live| live.waiting == 1).await;
    turn(&house, "sim", "drain").await;
    for refused in [second.await.unwrap(), chat(&house).ask(addr).await] {
        let told = (refused.status, refused.code());
        assert_eq!(told, (StatusCode::SERVICE_UNAVAILABLE, "no_worker".to_owned()));
    }
    call.answer(200, "application/json", "{}");
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    turn(&house, "sim", "undrain").await;
    let third = asking();
    a.call().await.answer(200, "application/json", "{}");
    assert_eq!(third.await.unwrap().status, StatusCode::OK);
    house.close().await;
}

/// Knows what it is told to know.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Option<BTreeSet<IpAddr>>>>);

impl Names {
    fn are(&self, hosts: &[u8]) {
        let addresses = hosts.iter().map(|host| IpAddr::from([127, 0, 0, *host])).collect();
        *self.0.lock().unwrap() = Some(addresses);
    }

    fn fail(&self) {
        *self.0.lock().unwrap() = None;
    }
}

impl Resolve for Names {
    fn addresses<'a>(&'a self, name: &'a str) -> Addresses<'a> {
        assert_eq!(name, "workers.invalid");
        let known = self.0.lock().unwrap().clone();
        Box::pin(async move { known.ok_or_else(|| std::io::Error::other("no answer")) })
    }
}

fn sim_at(host: u8, port: u16) -> Sim {
    let options = SimOptions {
        output_tokens: OutputLength::exactly(8),
        decode_per_token: Duration::from_millis(2),
        slots: 4,
        ..SimOptions::instant()
    };
    Sim::start(([127, 0, 0, host], port).into(), options).unwrap()
}

fn discovers(config: &mut Config, port: u16) {
    config.upstreams[0].slots = Some(4);
    config.upstreams[0].discover = Some(DiscoverConfig {
        dns: "workers.invalid".into(),
        port,
        every: Duration::from_millis(20),
    });
    config.pools[0].follows_slots = true;
}

async fn capacity(house: &House) -> u64 {
    house.gateway.app().pools.all()[0].gate.live().await.unwrap().capacity
}

#[tokio::test]
async fn workers_follow_the_addresses_of_a_name() {
    let two = sim_at(2, 0);
    let port = two.addr().port();
    let three = sim_at(3, port);
    let house = house_with("http://workers.invalid", |config| discovers(config, port)).await;
    let names_of_workers = Names::default();
    house.gateway.app().pools.resolve_with(names_of_workers.clone());
    let none = chat(&house).ask(house.gateway.addr()).await;
    assert_eq!((none.status.as_u16(), none.code().as_str()), (503, "no_worker"), "{}", none.text());
    names_of_workers.are(&[2]);
    until("one is found", async || names(&house.gateway) == ["sim-127.0.0.2"]).await;
    assert_eq!(chat(&house).ask(house.gateway.addr()).await.status, StatusCode::OK);
    assert_eq!(capacity(&house).await, 4);
    names_of_workers.are(&[2, 3]);
    until("another is found", async || names(&house.gateway).len() == 2).await;
    assert_eq!(capacity(&house).await, 8, "it follows the slots");
    assert_eq!(views(&house.gateway)[1].source.name(), "dns");
    // What cannot be looked up stays as it was.
    names_of_workers.fail();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(names(&house.gateway).len(), 2);
    names_of_workers.are(&[3]);
    until("one is gone", async || in_core(&house.gateway).await == ["sim-127.0.0.3"]).await;
    until("its slots too", async || capacity(&house).await == 4).await;
    let before = three.stats().requests;
    assert_eq!(chat(&house).ask(house.gateway.addr()).await.status, StatusCode::OK);
    assert_eq!(three.stats().requests, before + 1);
    house.close().await;
    two.stop().await;
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_workers_are_found_drained_and_killed_and_nothing_is_lost_that_had_not_started()
{
    let two = sim_at(2, 0);
    let port = two.addr().port();
    let three = sim_at(3, port);
    let house = house_with("http://workers.invalid", |config| {
        discovers(config, port);
        config.upstreams[0].breaker.failures = 1;
        config.pools[0].retries = 2;
    })
    .await;
    let known = Names::default();
    known.are(&[2, 3]);
    house.gateway.app().pools.resolve_with(known.clone());
    until("both are found", async || names(&house.gateway).len() == 2).await;
    let addr = house.gateway.addr();
    let mut asked = Vec::new();
    for _ in 0..400 {
        let question = chat(&house);
        asked.push(tokio::spawn(async move { question.ask(addr).await }));
    }
    until("some are done", async || two.stats().finished > 20).await;
    let four = sim_at(4, port);
    known.are(&[2, 3, 4]);
    until("a third is found", async || four.stats().finished > 5).await;
    assert_eq!(turn(&house, "sim-127.0.0.3", "drain").await.status, StatusCode::OK);
    // A crash: it is gone from DNS only later.
    two.kill().await;
    known.are(&[3, 4]);
    let mut ended: Vec<(u16, String)> = Vec::new();
    for asked in asked {
        let answer =
            tokio::time::timeout(SOON, asked).await.expect("nobody waits for ever").unwrap();
        let code = if answer.status == StatusCode::OK { String::new() } else { answer.code() };
        ended.push((answer.status.as_u16(), code));
    }
    let failed: Vec<_> = ended.iter().filter(|(status, _)| *status != 200).collect();
    // Whatever had begun on the killed one was at most its slots, and says what became of it.
    assert!(failed.len() <= 4, "{failed:?}");
    assert!(failed.iter().all(|(_, code)| code == "upstream_reset"), "{failed:?}");
    until("it is forgotten", async || {
        in_core(&house.gateway).await == ["sim-127.0.0.3", "sim-127.0.0.4"]
    })
    .await;
    house.close().await;
    three.stop().await;
    four.stop().await;
}

fn reads_metrics(config: &mut Config, slots: u64) {
    config.upstreams[0].slots = Some(slots);
    config.upstreams[0].auto_slots = Some(AutoSlots { most: 64 });
    config.upstreams[0].metrics = Some(MetricsConfig {
        path: "/metrics".into(),
        every: Duration::from_millis(20),
        overload: OverloadConfig::default(),
    });
    config.pools[0].follows_slots = true;
    config.limits.body_timeout = SOON;
}

fn slow(slots: usize) -> SimOptions {
    SimOptions {
        slots,
        output_tokens: OutputLength::exactly(20),
        decode_per_token: Duration::from_millis(5),
        prefix_cache_blocks: 100,
        ..SimOptions::instant()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_follow_what_the_engine_works_on_at_once_and_are_found_anew_after_a_restart() {
    let engine = Sim::start(([127, 0, 0, 1], 0).into(), slow(12)).unwrap();
    let at = engine.addr();
    let house = house_with(&engine.url(), |config| reads_metrics(config, 8)).await;
    let addr = house.gateway.addr();
    let load = tokio::spawn({
        let question = chat(&house);
        async move {
            let client = || async {
                loop {
                    question.clone().ask(addr).await;
                }
            };
            let clients: Vec<_> = (0..40).map(|_| client()).collect();
            futures_util::future::join_all(clients).await;
        }
    });
    let slots = || views(&house.gateway)[0].slots.unwrap();
    until("it goes up to what the engine does at once", async || slots() >= 12).await;
    until("and comes back to it", async || (11..=13).contains(&slots())).await;
    until("capacity follows", async || (11..=14).contains(&capacity(&house).await)).await;
    let view = views(&house.gateway).remove(0);
    assert!(view.slots_reason.is_some(), "{view:?}");
    let seen = view.engine.unwrap();
    assert_eq!((seen.kind, seen.cache_tokens), ("vllm", Some(1600)));
    assert!(seen.running > 0, "{seen:?}");
    load.abort();
    let _ = load.await;
    engine.kill().await;
    let engine = Sim::start(at, slow(12)).unwrap();
    let restarted = async || {
        let reason = views(&house.gateway).remove(0).slots_reason.unwrap_or_default();
        reason.ends_with("8: the engine was restarted")
    };
    until("it begins anew", restarted).await;
    house.close().await;
    engine.stop().await;
}

#[tokio::test]
async fn an_engine_with_too_much_to_do_takes_nothing_new_by_thresholds_that_can_be_changed() {
    let engine = Sim::start(([127, 0, 0, 1], 0).into(), slow(1)).unwrap();
    let house = house_with(&engine.url(), |config| {
        reads_metrics(config, 8);
        config.upstreams[0].auto_slots = None;
    })
    .await;
    let state = || views(&house.gateway).remove(0).state;
    // Somebody else keeps the engine busy.
    let others: Vec<_> = (0..3)
        .map(|_| {
            let body = json!({"model": "sim", "max_tokens": 100_000, "stream": true,
                "messages": [{"role": "user", "content": "rivers"}]});
            let (question, at) = (post(CHAT, &body), engine.addr());
            tokio::spawn(async move { question.begin(at).await })
        })
        .collect();
    until("it is read", async || {
        views(&house.gateway).remove(0).engine.is_some_and(|engine| engine.waiting == 2)
    })
    .await;
    assert_eq!(state(), "up");
    let path = format!("{WORKERS}/sim");
    let judge = async |overload: Value| {
        let body = json!({"overload": overload});
        admin(&house.gateway, Method::PATCH, &path, body).await.json()
    };
    let worker = judge(json!({"waiting": 1})).await;
    assert_eq!(worker["reason"], "2 wait in the engine, more than 1");
    until("the scheduler knows", async || {
        let answer = chat(&house).ask(house.gateway.addr()).await;
        answer.status != StatusCode::OK && answer.code() == "overloaded"
    })
    .await;
    assert_eq!(state(), "overloaded");
    assert_eq!(judge(Value::Null).await["state"], "up");
    others.iter().for_each(|other| other.abort());
    until("it takes requests again", async || {
        chat(&house).ask(house.gateway.addr()).await.status == StatusCode::OK
    })
    .await;
    house.close().await;
    engine.kill().await;
}

#[tokio::test]
async fn a_request_reaches_the_rank_that_it_was_granted_whatever_its_client_says() {
    let mut engine = Scripted::start().await;
    let house = house_with(&engine.url(), |config| {
        config.upstreams[0].slots = Some(1);
        config.upstreams[0].ranks = 2;
        config.upstreams[0].taints = vec!["zone-a".into()];
        config.pools[0].follows_slots = true;
    })
    .await;
    assert_eq!(capacity(&house).await, 2, "a slot for each rank");
    let addr = house.gateway.addr();
    let asking = || {
        let question = chat(&house).header("x-data-parallel-rank", "7");
        tokio::spawn(async move { question.ask(addr).await })
    };
    let asked = [asking(), asking()];
    let calls = [engine.call().await, engine.call().await];
    let rank = |header: Option<&http::HeaderValue>| header.unwrap().to_str().unwrap().to_owned();
    let header = "x-data-parallel-rank";
    let mut ranks: Vec<_> =
        calls.iter().map(|call| rank(call.request.headers().get(header))).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, ["0", "1"]);
    // One that is added has ranks, taints and slots of its own, or those of the one that it is like.
    let body = json!({"name": "b", "url": engine.url(), "like": "sim", "slots": 3, "ranks": 4});
    admin(&house.gateway, Method::POST, WORKERS, body).await;
    assert_eq!(capacity(&house).await, 14);
    let snapshot = house.gateway.app().pools.all()[0].gate.snapshot().await.unwrap();
    let added = &snapshot.workers.unwrap().list[1].said;
    assert_eq!((added.ranks, added.slots), (Some(4), Some(3)));
    assert_eq!(added.taints.as_deref(), Some(&["zone-a".into()][..]));
    for call in calls {
        call.answer(200, "application/json", "{}");
    }
    for asked in asked {
        assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

/// What is left of the prefill of all that is in flight.
async fn prefill(house: &House) -> u64 {
    let snapshot = house.gateway.app().pools.all()[0].gate.snapshot().await.unwrap();
    let flights = snapshot.requests.iter().filter_map(|request| request.flight.as_ref());
    flights.map(|flight| flight.prefill.0).sum()
}

#[tokio::test]
async fn first_tokens_end_the_prefill_where_several_workers_are_chosen_by_their_caches() {
    for (workers, indexed) in [(2, true), (1, true), (2, false)] {
        let mut engine = Scripted::start().await;
        let house = house_with(&engine.url(), |config| {
            if workers == 2 {
                let second = beside(config, "b", &engine.url());
                config.upstreams.push(second);
                config.pools[0].workers.push("b".into());
            }
            config.pools[0].prefix_index = indexed.then_some(PrefixIndexConfig {
                scope: PrefixScope::Pool,
                cache_tokens: 100_000,
                memory_bytes_max: 1 << 20,
            });
        })
        .await;
        let body = json!({"model": "sim", "stream": true,
            "messages": [{"role": "user", "content": "rivers"}]});
        let (question, addr) = (post(CHAT, &body).key(&house.key), house.gateway.addr());
        let asked = tokio::spawn(async move { question.begin(addr).await });
        let pieces = engine.call().await.stream("text/event-stream");
        assert!(prefill(&house).await > 0);
        let hi = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n";
        pieces.send(hi.into()).unwrap();
        let mut body = asked.await.unwrap().into_body();
        // What a client has seen, the scheduler has been told.
        piece(&mut body).await.unwrap();
        assert_eq!(prefill(&house).await == 0, (workers, indexed) == (2, true));
        pieces.send("data: [DONE]\n\n".into()).unwrap();
        drop(pieces);
        while piece(&mut body).await.is_some() {}
        house.close().await;
    }
}
