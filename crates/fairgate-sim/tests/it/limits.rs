//! Tests of a provider's limits over real sockets.

use std::sync::Arc;
use std::time::Duration;

use fairgate_sim::{
    AccountCounts, AccountOptions, LimitHeaderFault, LimitHeaders, LimitScope, Sim, SimAccount,
    SimOptions, SimOutcome,
};
use serde_json::{Value, json};

use crate::client::{Reply, chat, get, post, quick, request, send, start, with};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

fn account(change: impl FnOnce(&mut AccountOptions)) -> Arc<SimAccount> {
    let mut options = AccountOptions {
        requests_per_minute: Some(3),
        tokens_per_minute: Some(10_000),
        ..AccountOptions::default()
    };
    change(&mut options);
    SimAccount::new(options)
}

fn limited(account: &Arc<SimAccount>) -> Sim {
    start(SimOptions { account: Some(Arc::clone(account)), ..quick() })
}

/// Builds a chat with two input tokens.
fn hello(max_tokens: u64) -> Value {
    with(chat("Hello"), "max_tokens", max_tokens)
}

fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    reply.headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn requests_within_the_bucket_pass_and_the_next_does_not() {
    let account = account(|_| {});
    let sim = limited(&account);
    for left in ["2", "1", "0"] {
        let reply = post(&sim, CHAT, &hello(100)).await;
        assert_eq!(reply.status, 200);
        assert_eq!(header(&reply, "x-ratelimit-limit-requests"), Some("3"));
        assert_eq!(header(&reply, "x-ratelimit-remaining-requests"), Some(left));
        assert_eq!(header(&reply, "x-ratelimit-limit-tokens"), Some("10000"));
        assert!(header(&reply, "retry-after").is_none());
        reply.text().await;
    }
    let reply = post(&sim, CHAT, &hello(100)).await;
    assert_eq!(reply.status, 429);
    assert_eq!(header(&reply, "x-ratelimit-remaining-requests"), Some("0"));
    assert_eq!(header(&reply, "x-ratelimit-reset-requests"), Some("1m0s"));
    assert_eq!(header(&reply, "retry-after"), Some("20"));
    assert_eq!(header(&reply, "retry-after-ms"), Some("20000"));
    let error = &reply.json().await["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("requests"), &json!("rate_limit_exceeded"))
    );
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("(RPM): Limit 3, Used 3, Requested 1. Please try again in 20s."),
        "{message}"
    );
    assert_eq!(sim.stats().recent.last().unwrap().outcome, SimOutcome::Refused(429));
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!(post(&sim, CHAT, &hello(100)).await.status, 200);
    let counts = account.counts();
    assert_eq!((counts.accepted, counts.refused_by_requests, counts.tokens), (4, 1, 4 * 12));
    assert_eq!(get(&sim, "/sim/stats").await.json().await["account"]["accepted"], 4);
    sim.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_are_charged_on_arrival_and_corrected_at_the_end() {
    let account = account(|options| options.requests_per_minute = Some(1000));
    let sim = limited(&account);
    let remaining =
        |reply: &Reply| header(reply, "x-ratelimit-remaining-tokens").unwrap().to_owned();
    let first = post(&sim, CHAT, &hello(6000)).await;
    assert_eq!(remaining(&first), "3998", "10 000 - 2 - 6000");
    first.text().await;
    let second = post(&sim, CHAT, &chat("Hello")).await;
    assert_eq!(
        remaining(&second),
        (10_000 - 12 - 2 - 256).to_string(),
        "12 tokens were used before"
    );
    second.text().await;
    let choices = with(hello(5000), "n", 2);
    let reply = post(&sim, CHAT, &choices).await;
    assert_eq!((reply.status.as_u16(), header(&reply, "retry-after")), (429, None));
    let error = reply.json().await["error"]["message"].to_string();
    assert!(
        error.contains(
            "Request too large for sim on tokens per min (TPM): Limit 10000, Requested 10002."
        ),
        "{error}"
    );
    let reply = post(&sim, CHAT, &hello(9990)).await;
    assert_eq!((reply.status.as_u16(), header(&reply, "retry-after-ms")), (429, Some("96")));
    assert_eq!(reply.json().await["error"]["type"], "tokens");
    let counts = account.counts();
    assert_eq!((counts.accepted, counts.refused_by_tokens, counts.too_large), (2, 1, 1));
    assert_eq!(counts.tokens, 24);
    sim.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_is_charged_for_what_was_made() {
    let account = account(|_| {});
    let options =
        SimOptions { account: Some(Arc::clone(&account)), slots: 1, waiting_max: 0, ..quick() };
    let sim = start(options);
    sim.fault_next(fairgate_sim::SimFault::HangBefore, 1);
    let hanging = tokio::spawn(send(sim.addr(), request("POST", CHAT, hello(1000).to_string())));
    crate::client::until(&sim, |stats| stats.in_flight == 1).await;
    assert_eq!(post(&sim, CHAT, &hello(500)).await.status, 503, "no slot");
    assert_eq!(account.counts().tokens, 1002, "who got no slot is charged nothing");
    hanging.abort();
    crate::client::until(&sim, |stats| stats.abandoned == 1).await;
    assert_eq!(account.counts().tokens, 2);
    sim.kill().await;
}

#[tokio::test]
async fn anthropics_headers_and_errors() {
    let account = account(|options| options.requests_per_minute = Some(1));
    let sim = limited(&account);
    let reply = post(&sim, MESSAGES, &hello(100)).await;
    assert_eq!(header(&reply, "anthropic-ratelimit-requests-limit"), Some("1"));
    assert_eq!(header(&reply, "anthropic-ratelimit-tokens-remaining"), Some("10000"), "rounded");
    let reset = header(&reply, "anthropic-ratelimit-requests-reset").unwrap();
    assert!(reset.len() == 20 && reset.ends_with('Z'), "{reset}");
    assert!(header(&reply, "x-ratelimit-limit-requests").is_none());
    reply.text().await;
    let reply = post(&sim, MESSAGES, &hello(100)).await;
    assert_eq!(reply.status, 429);
    let wait: u64 = header(&reply, "retry-after").unwrap().parse().unwrap();
    assert!((30..=60).contains(&wait) && header(&reply, "retry-after-ms").is_none());
    let error = &reply.json().await["error"];
    assert_eq!(error["type"], "rate_limit_error");
    assert!(error["message"].as_str().unwrap().contains("rate limit of 1 requests per minute"));
    sim.stop().await;
}

#[tokio::test]
async fn one_that_states_nothing() {
    let account = account(|options| options.statement = LimitHeaders::Nothing);
    let sim = limited(&account);
    for expected in [200, 200, 200, 429] {
        let reply = post(&sim, CHAT, &hello(10)).await;
        assert_eq!(reply.status, expected);
        let names: Vec<_> = reply.headers.keys().map(|name| name.as_str().to_owned()).collect();
        assert!(
            !names.iter().any(|name| name.contains("limit") || name.contains("retry")),
            "{names:?}"
        );
        let told = reply.text().await;
        assert!(expected == 200 || !told.contains("Limit 3"), "{told}");
    }
    sim.stop().await;
}

#[tokio::test]
async fn backends_share_an_account_and_keys_need_not() {
    let shared = account(|_| {});
    let (one, other) = (limited(&shared), limited(&shared));
    for (sim, expected) in [(&one, 200), (&other, 200), (&one, 200), (&other, 429), (&one, 429)] {
        assert_eq!(post(sim, CHAT, &hello(10)).await.status, expected);
    }
    let counts = shared.counts();
    assert_eq!(
        counts,
        AccountCounts {
            accepted: 3,
            refused_by_requests: 2,
            tokens: counts.tokens,
            ..Default::default()
        }
    );
    one.stop().await;
    other.stop().await;

    let by_key = account(|options| {
        options.scope = LimitScope::Key;
        options.requests_per_minute = Some(1);
    });
    let sim = limited(&by_key);
    for (key, expected) in [("a", 200), ("a", 429), ("b", 200), ("b", 429)] {
        let mut asked = request("POST", CHAT, hello(10).to_string());
        asked.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        assert_eq!(send(sim.addr(), asked).await.unwrap().status, expected, "{key}");
    }
    sim.stop().await;
}

#[tokio::test]
async fn liars_lie_in_their_headers_only() {
    let lies = [
        (LimitHeaderFault::RemainingZero, "0", None),
        (LimitHeaderFault::ResetInAYear, "2", Some("31536000")),
        (LimitHeaderFault::Negative, "-1", Some("-1")),
        (LimitHeaderFault::Absurd, "1000000000000000002", Some("9999999999999999999")),
    ];
    for (lie, remaining, retry_after) in lies {
        let account = account(|options| options.lie = Some(lie));
        let sim = limited(&account);
        for turn in 0..3 {
            let reply = post(&sim, CHAT, &hello(10)).await;
            assert_eq!(reply.status, 200, "{lie:?}");
            if turn == 0 {
                assert_eq!(header(&reply, "x-ratelimit-remaining-requests"), Some(remaining));
            }
        }
        let reply = post(&sim, CHAT, &hello(10)).await;
        assert_eq!(reply.status, 429);
        if retry_after.is_some() {
            assert_eq!(header(&reply, "retry-after"), retry_after);
        }
        sim.stop().await;
    }
}
