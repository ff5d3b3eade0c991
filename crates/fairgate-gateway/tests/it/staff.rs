//! Tests of workers that are added, drained and removed by an operator, found through DNS, or
//! killed while requests run.

mod engines;
mod names;
mod paid;

use std::time::Duration;

use fairgate_gateway::{Gateway, GatewayOptions};
use fairgate_proxy::pools::WorkerView;
use fairgate_store::{KeyHash, Store, StoreOptions};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::client::{Answer, Question, get, post};
use crate::support::scripted::Scripted;
use crate::support::{House, SOON, config, house, house_with, sim};

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
    gateway.data_plane().pools.all()[0].workers()
}

fn names(gateway: &Gateway) -> Vec<String> {
    views(gateway).into_iter().map(|worker| worker.name).collect()
}

/// Returns the names of the scheduler's workers.
async fn in_core(gateway: &Gateway) -> Vec<String> {
    let snapshot = gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
    let workers = snapshot.workers.map(|workers| workers.list).unwrap_or_default();
    workers.into_iter().map(|worker| worker.settings.name.into()).collect()
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
    assert_eq!((unread.status.as_u16(), unread.code().as_str()), (409, "no_effect"));
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
    let options = GatewayOptions {
        config,
        store,
        admin_token: KeyHash::of(b"admin"),
        may_disable_most: false,
    };
    let gateway = Gateway::start(options).await.unwrap();
    let now = views(&gateway);
    let states: Vec<_> = now.iter().map(|it| (it.name.as_str(), it.state, it.slots)).collect();
    assert_eq!(states, [("sim", "drained", Some(8)), ("b", "up", Some(4))]);
    until("the scheduler knows", async || {
        let snapshot = gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
        let workers = snapshot.workers.unwrap().list;
        workers[0].settings.state.is_some_and(|state| state.name() == "drain")
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

async fn capacity(house: &House) -> u64 {
    house.gateway.data_plane().pools.all()[0].gate.status().await.unwrap().capacity
}
