//! Tests of providers that lie about their limits. They are paused for a bounded time, which is
//! shown, and other providers are not slowed down.

use std::sync::Arc;
use std::time::Duration;

use fairgate_config::QuotaConfig;
use fairgate_sim::{AccountOptions, LimitHeaderFault, LimitHeaders, Sim, SimAccount};
use http::StatusCode;
use serde_json::json;

use crate::admin::seen_by_admin;
use crate::hosted::{CHAT, account, all_served, asking, flood, hosted, limited, provider};
use crate::support::client::post;
use crate::support::log::Log;
use crate::support::scripted::Scripted;
use crate::support::{House, beside, house_with};

const LIES: [LimitHeaderFault; 5] = [
    LimitHeaderFault::RemainingZero,
    LimitHeaderFault::ResetInAYear,
    LimitHeaderFault::Negative,
    LimitHeaderFault::Absurd,
    LimitHeaderFault::Flapping,
];

/// Number of requests of 1000 tokens that are sent at once. An honest provider of 4 000 000 tokens
/// per minute with one second of accumulated quota takes 2 s for them.
const REQUESTS: usize = 200;

/// Returns the account of a provider that accepts one request at once, and then one per second.
fn stingy(lie: LimitHeaderFault) -> Arc<SimAccount> {
    SimAccount::new(AccountOptions {
        requests_per_minute: Some(60),
        tokens_per_minute: None,
        burst: Duration::from_secs(1),
        statement: LimitHeaders::OpenAi,
        lie: Some(lie),
        ..AccountOptions::default()
    })
}

/// Starts a pool with an honest provider whose limits are known, and perhaps a lying one beside it.
async fn pool(honest: &Sim, liar: Option<&Sim>) -> House {
    house_with(&honest.url(), |config| {
        config.upstreams[0].quota = hosted();
        config.upstreams[0].slots = None;
        config.pools[0].capacity = 1000;
        config.pools[0].max_queue = 2000;
        if let Some(liar) = liar {
            let mut liar = beside(config, "liar", &liar.url());
            liar.quota = QuotaConfig { account: Some("liar".into()), ..hosted() };
            config.upstreams.push(liar);
            config.pools[0].workers.push("liar".into());
        }
    })
    .await
}

/// Returns the time until all requests have ended.
async fn time(house: &House) -> Duration {
    let key = house.key.clone();
    let done = flood(house, CHAT, &[(&key, "sim", REQUESTS)]).await;
    all_served(&done);
    done[0].iter().map(|(_, at)| *at).max().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_liar_an_honest_provider_does_as_much_as_alone() {
    let honest_account = || account(LimitHeaders::OpenAi, None);
    let honest = provider("sim", &honest_account());
    let house = pool(&honest, None).await;
    let alone = time(&house).await;
    house.close().await;
    honest.stop().await;
    for lie in LIES {
        let (honest_account, liar_account) = (honest_account(), stingy(lie));
        let honest = provider("sim", &honest_account);
        let liar = provider("sim", &liar_account);
        let house = pool(&honest, Some(&liar)).await;
        let took = time(&house).await;
        let (here, there) = (honest_account.counts(), liar_account.counts());
        // The liar may take some of them. It must not hold up the others: what takes a moment longer is the machine.
        assert!(took <= alone.mul_f64(1.15), "{lie:?}: {took:?}, {alone:?} alone: {there:?}");
        assert_eq!(here.accepted + there.accepted, REQUESTS as u64, "{lie:?}");
        for worker in house.gateway.data_plane().pools.all()[0].workers() {
            let paused = worker.quota.unwrap().paused.unwrap_or_default();
            assert!(paused <= Duration::from_secs(60), "{lie:?}: {} for {paused:?}", worker.name);
        }
        house.close().await;
        honest.stop().await;
        liar.stop().await;
    }
}

/// A provider refuses a request with this text. Checks that its pause is shown, with the
/// milliseconds that it asked for.
async fn paused(says: &str, asked_ms: Option<u64>) {
    let log = Log::here();
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        let account = Some("liar".into());
        config.upstreams[0].quota =
            QuotaConfig { account, requests_per_minute: Some(6000), ..hosted() };
    })
    .await;
    let waits = asking(&house).await;
    let call = upstream.call().await;
    call.answer(429, "application/json", limited(says, "rate_limit_exceeded"));
    let is_paused = || house.gateway.data_plane().pools.all()[0].workers()[0].state == "paused";
    while !is_paused() {
        tokio::task::yield_now().await;
    }
    let live = seen_by_admin(&house, "/api/v1/fairshare/live").await;
    let list = seen_by_admin(&house, "/api/v1/pools").await;
    for worker in [&live["pools"][0]["workers"][0], &list["items"][0]["workers"][0]] {
        assert_eq!(worker["state"], "paused", "{worker}");
        let quota = &worker["quota"];
        assert!((1..=60_000).contains(&quota["paused_ms"].as_u64().unwrap()), "{quota}");
        assert_eq!(quota["asked_ms"].as_u64(), asked_ms, "{quota}");
        assert_eq!(quota["requests_from"], "file", "{quota}");
    }
    let said = log.lines("a provider's limit was met");
    assert!(said.iter().any(|line| line.contains("account=liar")), "{said:?}");
    waits.abort();
    house.close().await;
}

#[tokio::test]
async fn a_pause_is_bounded_and_told_whatever_was_asked_for() {
    paused("Rate limit reached for requests. Please try again in 20m0s.", Some(1_200_000)).await;
    // That is too absurd to be what it asks for.
    paused("Rate limit reached for requests. Please try again in 8760h0m0s.", None).await;
}

#[tokio::test]
async fn numbers_that_cannot_be_are_told_in_the_log_and_not_believed() {
    for lie in [LimitHeaderFault::Negative, LimitHeaderFault::Absurd] {
        let log = Log::here();
        let account = stingy(lie);
        let liar = provider("sim", &account);
        let house = house_with(&liar.url(), |config| {
            config.upstreams[0].quota = QuotaConfig { account: Some("liar".into()), ..hosted() };
        })
        .await;
        let body = json!({"model": "sim", "messages": [{"role": "user", "content": "rivers"}]});
        let answer = post(CHAT, &body).key(&house.key).ask(house.gateway.addr()).await;
        assert_eq!(answer.status, StatusCode::OK);
        let said = log.lines("a provider states limits that cannot be");
        assert!(said.iter().any(|line| line.contains("account=liar")), "{lie:?}: {said:?}");
        let quota = house.gateway.data_plane().pools.all()[0].workers()[0].quota.clone().unwrap();
        assert_eq!(quota.requests.unwrap().1, "learned", "{lie:?}");
        house.close().await;
        liar.stop().await;
    }
}
