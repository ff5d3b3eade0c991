//! Tests of engines' metrics and settings: slots, overload, ranks and first tokens.

use fairgate_config::{
    AutoSlots, Config, MetricsConfig, OverloadConfig, PrefixIndexConfig, PrefixScope,
};
use fairgate_sim::{OutputLength, Sim, SimOptions};

use super::*;
use crate::support::beside;
use crate::support::client::piece;

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
    let snapshot = house.gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
    let added = &snapshot.workers.unwrap().list[1].settings;
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

/// Returns the remaining prefill tokens of all requests in flight.
async fn prefill(house: &House) -> u64 {
    let snapshot = house.gateway.data_plane().pools.all()[0].gate.snapshot().await.unwrap();
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
