//! Tests of an account's rates, pauses and blocks, which follow from its provider's answers.

mod refusals;
mod unstated;
mod virtual_pool;

use fairgate_dialect::quota::{LOWER_HOLDS, PAUSE_FIRST, PAUSE_MAX};
use fairgate_dialect::rate_limit_headers::{EpochMicros, read_rate_limits};

use super::*;

fn account(requests: Option<u64>, tokens: Option<u64>) -> ProviderAccount {
    let quota = QuotaConfig {
        account: Some("test".into()),
        requests_per_minute: requests,
        tokens_per_minute: tokens,
        burst_seconds: 10,
        probe: true,
        shared_limits: false,
    };
    ProviderAccount::new("test".into(), None, quota, None)
}

fn headers(pairs: &[(&str, &str)]) -> RateLimitHeaders {
    read_rate_limits(pairs.iter().map(|(name, value)| (*name, value.as_bytes())), EpochMicros(0))
}

fn rate(per_minute: u64, from: RateSource) -> Option<SourcedRate> {
    Some(SourcedRate { per_minute, from })
}

#[tokio::test(start_paused = true)]
async fn the_lower_of_what_is_stated_counts_and_nothing_is_learned_beside_it() {
    let unknown = account(None, None);
    assert_eq!(unknown.rates(), (rate(60, RateSource::Learned), None));
    let ticket = unknown.sent("p", "w", 100);
    let openai = [("x-ratelimit-limit-requests", "500"), ("x-ratelimit-limit-tokens", "30000")];
    unknown.accepted(ticket, &headers(&openai));
    assert_eq!(unknown.rates(), (rate(500, RateSource::Header), rate(30_000, RateSource::Header)));
    let stated = account(Some(200), Some(90_000));
    stated.accepted(stated.sent("p", "w", 100), &headers(&openai));
    assert_eq!(stated.rates(), (rate(200, RateSource::File), rate(30_000, RateSource::Header)));
    // A provider that states tokens alone limits no requests.
    let azure = account(None, None);
    azure.accepted(azure.sent("p", "w", 1), &headers(&[("x-ratelimit-limit-tokens", "30000")]));
    assert_eq!(azure.rates(), (None, rate(30_000, RateSource::Header)));
}

#[tokio::test(start_paused = true)]
async fn of_limits_that_flap_the_lowest_holds_for_half_a_minute() {
    let account = account(None, None);
    let say = |limit: &str| {
        account.accepted(
            account.sent("p", "w", 1),
            &headers(&[("x-ratelimit-limit-requests", limit)]),
        );
        account.rates().0.map(|rate| rate.per_minute)
    };
    assert_eq!(say("1000"), Some(1000));
    assert_eq!(say("10"), Some(10));
    assert_eq!(say("1000"), Some(10));
    tokio::time::advance(LOWER_HOLDS + Duration::from_secs(1)).await;
    assert_eq!(say("1000"), Some(1000));
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_as_long_as_was_asked_for_and_never_longer_than_a_minute() {
    let account = account(Some(600), None);
    let refuse = |asked| {
        let ticket = account.sent("p", "w", 1);
        account.refused(ticket, &RateLimitHeaders::default(), None, asked).until - Instant::now()
    };
    assert_eq!(refuse(Some(Duration::from_millis(300))), Duration::from_millis(300));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(refuse(Some(Duration::from_secs(365 * 86_400))), PAUSE_MAX);
    tokio::time::advance(PAUSE_MAX).await;
    assert_eq!(account.pause(), None);
    // Not said how long: doubled each time, until one is accepted.
    assert_eq!(refuse(None), 4 * PAUSE_FIRST);
    // Others that were sent before the pause do not make it longer.
    assert_eq!(refuse(None), 4 * PAUSE_FIRST);
    tokio::time::advance(Duration::from_secs(10)).await;
    account.accepted(account.sent("p", "w", 1), &RateLimitHeaders::default());
    assert_eq!(refuse(None), PAUSE_FIRST);
}

#[tokio::test(start_paused = true)]
async fn an_account_that_a_probe_found_spent_is_closed_until_a_probe_is_served() {
    let account = account(None, None);
    let target = ProbeTarget {
        pool: "p".into(),
        upstream: "w".into(),
        model: "m".into(),
        route: fairgate_dialect::Route::ChatCompletions,
    };
    for tenant in ["one", "two"] {
        let closes =
            account.record_account_refusal(&tenant.into(), "insufficient_quota", target.clone());
        assert!(!closes);
    }
    assert_eq!(account.block_reason(), None);
    assert_eq!(account.take_probe(), Some(target.clone()));
    assert!(account.record_probe(ProbeOutcome::Refused("insufficient_quota".into())));
    assert_eq!(account.block_reason().as_deref(), Some("insufficient_quota"));
    tokio::time::advance(Duration::from_secs(59)).await;
    account.update(&[], Instant::now());
    assert_eq!(account.take_probe(), None);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(account.take_probe(), Some(target));
    assert!(account.record_probe(ProbeOutcome::Usable));
    assert_eq!(account.block_reason(), None);
}
