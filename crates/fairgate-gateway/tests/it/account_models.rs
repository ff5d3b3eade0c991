//! Tests that a provider's limits are per model: a limit that one model reaches does not affect
//! other models of the account.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fairgate_config::QuotaConfig;
use fairgate_core::event::Event;
use fairgate_store::{DirectoryChange, DirectoryLimits, GroupPatch};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use crate::hosted::{CHAT, hosted};
use crate::support::client::{Answer, get, post};
use crate::support::scripted::{Call, Scripted};
use crate::support::{House, SOON, beside, house_with};
use crate::worker_time::{replayed, served, snapshot};

const GOOD: &str = r#"{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":2,"completion_tokens":1}}"#;

/// A provider that answers each model by a rule, until it is dropped.
struct Provider {
    url: String,
    answering: JoinHandle<()>,
}

impl Provider {
    async fn start(answer: impl Fn(&str, Call) + Send + 'static) -> Self {
        let mut scripted = Scripted::start().await;
        let url = scripted.url();
        let answering = tokio::spawn(async move {
            loop {
                let call = scripted.call_whenever().await;
                let body: Value = serde_json::from_slice(call.request.body()).unwrap();
                let model = body["model"].as_str().unwrap().to_owned();
                answer(&model, call);
            }
        });
        Self { url, answering }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

fn good(call: Call, requests_per_minute: u64) {
    let head = Response::builder()
        .header("content-type", "application/json")
        .header("x-ratelimit-limit-requests", requests_per_minute)
        .header("x-ratelimit-remaining-requests", requests_per_minute - 1);
    call.answer_with(head, GOOD);
}

/// Starts a gateway whose only upstream is this provider's account, for the models `fast` and
/// `slow`.
async fn two_models(url: &str, change: impl FnOnce(&mut fairgate_config::Config)) -> House {
    house_with(url, |config| {
        config.upstreams[0].quota = hosted();
        config.upstreams[0].slots = None;
        config.pools[0].capacity = 1000;
        config.pools[0].max_queue = 4000;
        let mut slow = config.pools[0].models[0].clone();
        config.pools[0].models[0].name = "fast".into();
        slow.name = "slow".into();
        config.pools[0].models.push(slow);
        change(config);
    })
    .await
}

fn asking(house: &House, key: &str, model: &str) -> JoinHandle<Answer> {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "rivers"}]});
    let (question, addr) = (post(CHAT, &body).key(key), house.gateway.addr());
    tokio::spawn(async move { question.ask(addr).await })
}

/// Has 32 clients send this number of requests, and returns the time until all are answered.
async fn flood(house: &House, key: &str, model: &str, count: u64) -> Duration {
    let began = Instant::now();
    let left = Arc::new(AtomicU64::new(count));
    let mut clients = JoinSet::new();
    for _ in 0..32 {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "rivers"}]});
        let (question, addr, left) =
            (post(CHAT, &body).key(key), house.gateway.addr(), left.clone());
        clients.spawn(async move {
            let take = |left: u64| left.checked_sub(1);
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                assert_eq!(question.ask(addr).await.status, StatusCode::OK);
            }
        });
    }
    clients.join_all().await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_of_a_3_a_minute_model_does_not_slow_another_model() {
    let provider = Provider::start(|model, call| {
        good(call, if model == "slow" { 3 } else { 60_000 });
    })
    .await;
    let house = two_models(&provider.url, |_| {}).await;
    let key = house.key.clone();
    assert_eq!(asking(&house, &key, "fast").await.unwrap().status, StatusCode::OK);
    let before = flood(&house, &key, "fast", 800).await;
    assert_eq!(asking(&house, &key, "slow").await.unwrap().status, StatusCode::OK);
    let after = flood(&house, &key, "fast", 800).await;
    assert!(after <= Duration::from_secs(8).max(2 * before), "{before:?}, then {after:?}");
    let worker = house.gateway.data_plane().pools.all()[0].workers().pop().unwrap();
    let rates: BTreeMap<_, _> =
        worker.models.iter().map(|(model, quota)| (model.as_str(), quota.requests)).collect();
    assert_eq!(
        rates,
        BTreeMap::from([("fast", Some((60_000, "header"))), ("slow", Some((3, "header")))])
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daily_limit_of_one_model_does_not_stall_who_uses_another() {
    let provider = Provider::start(|model, call| match model {
        "slow" => {
            let head = Response::builder()
                .status(429)
                .header("content-type", "application/json")
                .header("retry-after", 40_000)
                .header("x-ratelimit-limit-requests-day", 50)
                .header("x-ratelimit-remaining-requests-day", 0);
            let told = json!({"error": {
                "message": "Rate limit reached for requests per day (RPD): Limit 50, Used 50.",
                "type": "requests", "code": "rate_limit_exceeded",
            }});
            call.answer_with(head, told.to_string());
        }
        _ => good(call, 60_000),
    })
    .await;
    let house = two_models(&provider.url, |config| {
        config.pools[0].queue_timeout = Duration::from_secs(3);
    })
    .await;
    let heavy = house.tenant("heavy", DirectoryLimits::default()).await;
    for (name, weight) in [("group-acme", 1), ("group-heavy", 1000)] {
        let patch = GroupPatch { weight: Some(weight), ..GroupPatch::default() };
        house.change(DirectoryChange::PatchGroup { name: name.into(), patch }).await;
    }
    assert_eq!(asking(&house, &heavy, "fast").await.unwrap().status, StatusCode::OK);
    for _ in 0..2 {
        let refused = asking(&house, &house.key, "slow");
        let took = flood(&house, &heavy, "fast", 100).await;
        assert!(took < Duration::from_secs(8), "{took:?}");
        // The second one waits in vain for the end of the pause.
        let code = refused.await.unwrap().code();
        assert!(["provider_limited", "queue_timeout"].contains(&code.as_str()), "{code}");
    }
    let worker = house.gateway.data_plane().pools.all()[0].workers().pop().unwrap();
    assert_eq!((worker.name.as_str(), worker.state), ("sim", "up"), "one model is paused");
    let paused: Vec<_> = worker.models.iter().filter(|(_, quota)| quota.paused.is_some()).collect();
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].0, "slow");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_quota_is_spent_closes_no_other_model() {
    let provider = Provider::start(|model, call| match model {
        "slow" => {
            let told = json!({"error": {"message": "spent", "code": "insufficient_quota"}});
            call.answer(429, "application/json", told.to_string());
        }
        _ => good(call, 60_000),
    })
    .await;
    let house = two_models(&provider.url, |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(60_000), ..hosted() };
    })
    .await;
    let refused = asking(&house, &house.key, "slow").await.unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let closed = async {
        while asking(&house, &house.key, "slow").await.unwrap().code() != "provider_out" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, closed).await.expect("the probe closes the model");
    assert_eq!(asking(&house, &house.key, "fast").await.unwrap().status, StatusCode::OK);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_limits_join_the_models() {
    let provider = Provider::start(|model, call| {
        good(call, if model == "slow" { 3 } else { 60_000 });
    })
    .await;
    let house = two_models(&provider.url, |config| {
        config.upstreams[0].quota = QuotaConfig { shared_limits: true, ..hosted() };
    })
    .await;
    assert_eq!(asking(&house, &house.key, "slow").await.unwrap().status, StatusCode::OK);
    let worker = house.gateway.data_plane().pools.all()[0].workers().pop().unwrap();
    assert_eq!(worker.quota.unwrap().requests, Some((3, "header")));
    assert!(worker.models.is_empty());
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_models_of_an_upstream_have_its_slots_together() {
    let held: Arc<Mutex<Vec<Call>>> = Arc::default();
    let (keep, most) = (held.clone(), Arc::new(AtomicU64::new(0)));
    let seen = most.clone();
    let provider = Provider::start(move |_, call| {
        let mut held = keep.lock().unwrap();
        held.push(call);
        seen.fetch_max(held.len() as u64, Ordering::Relaxed);
    })
    .await;
    let house = two_models(&provider.url, |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(60_000), ..hosted() };
        config.upstreams[0].slots = Some(3);
    })
    .await;
    let asked: Vec<_> = (0..24)
        .map(|number| asking(&house, &house.key, if number < 16 { "fast" } else { "slow" }))
        .collect();
    let answering = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let calls: Vec<Call> = held.lock().unwrap().drain(..).collect();
            calls.into_iter().for_each(|call| good(call, 60_000));
        }
    };
    let served = async {
        for answer in asked {
            assert_eq!(answer.await.unwrap().status, StatusCode::OK);
        }
    };
    tokio::select! {
        () = served => {}
        () = answering => {}
    }
    assert!(most.load(Ordering::Relaxed) <= 3, "{most:?} at once");
    house.close().await;
}

/// Sends requests for a model with many clients until the signal, and counts the answers.
fn keep_asking(
    house: &House,
    key: &str,
    model: &str,
    stop: &Arc<AtomicBool>,
) -> (Arc<AtomicU64>, JoinSet<()>) {
    let answers = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..32 {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "rivers"}]});
        let (question, addr) = (post(CHAT, &body).key(key), house.gateway.addr());
        let (answers, stop) = (answers.clone(), stop.clone());
        clients.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(question.ask(addr).await.status, StatusCode::OK);
                answers.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    (answers, clients)
}

/// The policy divides the slots among tenants, not models. A tenant that uses a model alone gets
/// its share by weight.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_of_ones_own_is_no_larger_share() {
    let provider = Provider::start(|_, call| {
        tokio::spawn(async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            good(call, 600_000);
        });
    })
    .await;
    let house = two_models(&provider.url, |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(600_000), ..hosted() };
        config.upstreams[0].slots = Some(10);
        config.pools[0].capacity = 10;
    })
    .await;
    let heavy = house.tenant("heavy", DirectoryLimits::default()).await;
    for (name, weight) in [("group-acme", 1), ("group-heavy", 9)] {
        let patch = GroupPatch { weight: Some(weight), ..GroupPatch::default() };
        house.change(DirectoryChange::PatchGroup { name: name.into(), patch }).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (large, large_clients) = keep_asking(&house, &heavy, "fast", &stop);
    let (small, small_clients) = keep_asking(&house, &house.key, "slow", &stop);
    let enough = async {
        while large.load(Ordering::Relaxed) < 600 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), enough).await.expect("answers");
    let (large, small) = (large.load(Ordering::Relaxed), small.load(Ordering::Relaxed));
    stop.store(true, Ordering::Relaxed);
    large_clients.join_all().await;
    small_clients.join_all().await;
    let percent = small * 100 / (small + large);
    assert!((7..=14).contains(&percent), "{small} of {}: {percent} %, due are 10 %", small + large);
    house.close().await;
}

/// Requests that wait for the end of a model's pause hold no slots back from the other model. The
/// test needs two upstreams, because a pool with one does not divide its slots.
#[tokio::test(flavor = "multi_thread")]
async fn a_paused_model_keeps_no_slots() {
    let held: Arc<Mutex<Vec<Call>>> = Arc::default();
    let keep = held.clone();
    let provider = Provider::start(move |model, call| match model {
        "slow" => {
            let head = Response::builder()
                .status(429)
                .header("content-type", "application/json")
                .header("retry-after", 40);
            let told = json!({"error": {"message": "Slow down.", "code": "rate_limit_exceeded"}});
            call.answer_with(head, told.to_string());
        }
        _ => keep.lock().unwrap().push(call),
    })
    .await;
    let house = two_models(&provider.url, |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(600_000), ..hosted() };
        config.upstreams[0].slots = Some(4);
        let mut second = beside(config, "second", &provider.url);
        second.quota.account = Some("another".into());
        config.upstreams.push(second);
        config.pools[0].workers = vec!["sim".into(), "second".into()];
    })
    .await;
    let other = house.tenant("other", DirectoryLimits::default()).await;
    let waiting: Vec<_> = (0..8).map(|_| asking(&house, &house.key, "slow")).collect();
    let pool = house.gateway.data_plane().pools.all()[0].clone();
    let paused = async {
        loop {
            let workers = pool.workers();
            let all = workers.iter().all(|worker| {
                worker.models.iter().any(|(model, quota)| model == "slow" && quota.paused.is_some())
            });
            if all && pool.gate.status().await.unwrap().waiting > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, paused).await.expect("both accounts pause the model");
    let flood: Vec<_> = (0..16).map(|_| asking(&house, &other, "fast")).collect();
    let at_once = async {
        while held.lock().unwrap().len() < 6 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let enough = tokio::time::timeout(SOON, at_once).await;
    assert!(enough.is_ok(), "{} of 8 slots are used", held.lock().unwrap().len());
    waiting.into_iter().chain(flood).for_each(|request| request.abort());
    drop(held.lock().unwrap().drain(..));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_turns_all_models_of_an_upstream_by_its_name() {
    let provider = Provider::start(|_, call| good(call, 60_000)).await;
    let house = two_models(&provider.url, |_| {}).await;
    let turn = async |verb: &str| {
        let path = format!("/api/v1/pools/sim/workers/sim/{verb}");
        post(&path, &json!({})).key("admin").ask(house.gateway.admin_addr()).await
    };
    let drained = turn("drain").await;
    assert_eq!((drained.status, &drained.json()["state"]), (StatusCode::OK, &json!("drained")));
    for model in ["fast", "slow"] {
        let refused = asking(&house, &house.key, model).await.unwrap();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    }
    assert_eq!(turn("undrain").await.status, StatusCode::OK);
    for model in ["fast", "slow"] {
        assert_eq!(asking(&house, &house.key, model).await.unwrap().status, StatusCode::OK);
    }
    let pools = get("/api/v1/pools").key("admin").ask(house.gateway.admin_addr()).await.json();
    let workers = pools["items"][0]["workers"].as_array().expect("a list of workers");
    assert_eq!(workers.len(), 1, "the upstream once: {workers:?}");
    let models: Vec<_> =
        workers[0]["models"].as_array().unwrap().iter().map(|one| one["model"].clone()).collect();
    assert_eq!(models, [json!("fast"), json!("slow")]);
    house.close().await;
}

/// Returns the names of the pool's workers in the scheduler, sorted.
async fn core_workers(house: &House) -> Vec<String> {
    let snapshot = house.gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
    let workers = snapshot.workers.expect("the pool has workers").list;
    let mut names: Vec<_> = workers.iter().map(|it| it.settings.name.to_string()).collect();
    names.sort();
    names
}

/// The journal names the workers of an account as the pool does, so a replay leads to the same state.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_with_a_worker_for_each_model_replays() {
    let provider = Provider::start(|_, call| good(call, 60_000)).await;
    let house = two_models(&provider.url, |_| {}).await;
    for model in ["fast", "slow", "fast"] {
        let answer = asking(&house, &house.key, model).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
    }
    house.quiet().await;
    assert_eq!(core_workers(&house).await, ["sim/fast", "sim/slow"]);
    let before = snapshot(&house).await;
    let folder = house.folder;
    house.gateway.drain(SOON).await;
    let (events, after) = replayed(&folder);
    let allowed = events.iter().filter_map(|event| match event {
        Event::Submit(submit) => submit.allow.as_deref().map(|names| names.join(" ")),
        _ => None,
    });
    assert_eq!(allowed.collect::<Vec<_>>(), ["sim/fast", "sim/slow", "sim/fast"]);
    assert_eq!(served(&after), served(&before));
    assert_eq!((after.ticks, after.grants), (before.ticks, before.grants));
    assert_eq!(after.requests.len(), 0);
}

/// With a second model the upstream becomes one worker for each; what runs on the one before finishes, and a reload
/// back gives one worker again.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_from_one_model_to_two_and_back_finishes_what_runs() {
    let held: Arc<Mutex<Vec<Call>>> = Arc::default();
    let keep = held.clone();
    let provider = Provider::start(move |_, call| keep.lock().unwrap().push(call)).await;
    let house = house_with(&provider.url, |config| {
        config.upstreams[0].quota = QuotaConfig { requests_per_minute: Some(60_000), ..hosted() };
        config.upstreams[0].slots = Some(4);
        config.pools[0].models[0].name = "fast".into();
    })
    .await;
    let take = async |count: usize| {
        let taken = async {
            while held.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            held.lock().unwrap().drain(..).collect::<Vec<Call>>()
        };
        tokio::time::timeout(SOON, taken).await.expect("the requests reach the provider")
    };
    let one = (*house.gateway.data_plane().config.load_full()).clone();
    let mut two = one.clone();
    let mut slow = two.pools[0].models[0].clone();
    slow.name = "slow".into();
    two.pools[0].models.push(slow);
    for (next, models, workers) in [
        (two.clone(), vec!["fast", "slow"], vec!["sim/fast", "sim/slow"]),
        (one, vec!["fast"], vec!["sim"]),
        (two, vec!["fast", "slow"], vec!["sim/fast", "sim/slow"]),
    ] {
        let running = asking(&house, &house.key, "fast");
        let running_calls = take(1).await;
        house.gateway.reload(next).await.unwrap();
        let asked: Vec<_> = models.iter().map(|model| asking(&house, &house.key, model)).collect();
        for call in take(models.len()).await.into_iter().chain(running_calls) {
            good(call, 60_000);
        }
        for answer in asked.into_iter().chain([running]) {
            let answer = answer.await.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
        }
        let settled = async {
            while core_workers(&house).await != workers {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, settled).await.expect("the old workers leave");
    }
    house.close().await;
}

/// If an upstream is removed, the workers of all its models are removed too.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_upstream_leaves_with_all_of_its_models() {
    let provider = Provider::start(|_, call| good(call, 60_000)).await;
    let house = two_models(&provider.url, |config| {
        let mut second = beside(config, "second", &provider.url);
        second.quota.account = Some("another".into());
        config.upstreams.push(second);
        config.pools[0].workers = vec!["sim".into(), "second".into()];
    })
    .await;
    let names = core_workers(&house).await;
    assert_eq!(names, ["second/fast", "second/slow", "sim/fast", "sim/slow"]);
    let mut next = (*house.gateway.data_plane().config.load_full()).clone();
    next.upstreams.remove(0);
    next.pools[0].workers = vec!["second".into()];
    house.gateway.reload(next).await.unwrap();
    for model in ["fast", "slow"] {
        assert_eq!(asking(&house, &house.key, model).await.unwrap().status, StatusCode::OK);
    }
    let names = core_workers(&house).await;
    assert_eq!(names, ["second/fast", "second/slow"]);
    house.close().await;
}

/// The gateway's own request is for the model that was refused, not for any model of the account.
#[tokio::test(flavor = "multi_thread")]
async fn the_probe_asks_for_the_model_that_was_refused() {
    let probed: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = probed.clone();
    let provider = Provider::start(move |model, call| {
        let body: Value = serde_json::from_slice(call.request.body()).unwrap();
        if body["max_tokens"] == 1 {
            seen.lock().unwrap().push(model.to_owned());
        }
        match model {
            "slow" => {
                let told = json!({"error": {"message": "spent", "code": "insufficient_quota"}});
                call.answer(429, "application/json", told.to_string());
            }
            _ => good(call, 60_000),
        }
    })
    .await;
    let house = two_models(&provider.url, |_| {}).await;
    assert_eq!(asking(&house, &house.key, "fast").await.unwrap().status, StatusCode::OK);
    let refused = asking(&house, &house.key, "slow").await.unwrap();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let probing = async {
        while probed.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(SOON, probing).await.expect("the gateway probes");
    assert_eq!(*probed.lock().unwrap(), ["slow"]);
    house.close().await;
}
