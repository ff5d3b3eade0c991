mod model;

use std::time::{Duration, Instant};

use fairgate_core::attribute::Attributes;
use fairgate_store::{DirectoryLimits as Allowed, KeyHash, KeyRights};

use super::*;

fn caller(tenant_limits: Allowed, key_limits: Allowed) -> Caller {
    Caller {
        group: "g".into(),
        tenant: "chat".into(),
        key: "key-1".into(),
        secret: KeyHash::of(b"fg-1"),
        rights: KeyRights::default(),
        attributes: Attributes::none(),
        tenant_limits,
        key_limits,
        budgeted: false,
        hosted_budgeted: false,
        money_budgeted: false,
        hosted_money_budgeted: false,
        may_use_hosted: true,
        claim: None,
        task_agent: None,
    }
}

fn of_tenant(limits: Allowed) -> Caller {
    caller(limits, Allowed::default())
}

fn code(result: Result<QueuedCountGuard, Refusal>) -> Result<(), (&'static str, Duration)> {
    result.map(drop).map_err(|limited| (limited.code.as_str(), limited.retry_after.unwrap()))
}

#[test]
fn requests_a_minute_fill_continuously() {
    let (limits, start) = (CallerLimits::new(), Instant::now());
    let caller = of_tenant(Allowed { requests_per_minute: Some(60), ..Allowed::default() });
    for _ in 0..60 {
        assert_eq!(code(limits.count_in(&caller, 0, 0, start)), Ok(()));
    }
    let later = start + Duration::from_millis(400);
    let refused = ("rate_limited_requests", Duration::from_millis(600));
    assert_eq!(code(limits.count_in(&caller, 0, 0, later)), Err(refused));
    assert_eq!(code(limits.count_in(&caller, 0, 0, start + Duration::from_secs(1))), Ok(()));
    let long_after = start + Duration::from_secs(3600);
    assert_eq!(
        limits.left(LimitOwner::Tenant, "chat", &caller.tenant_limits, long_after).requests,
        Some(60)
    );
}

#[test]
fn a_request_larger_than_a_minute_is_late_not_refused_for_ever() {
    let (limits, start) = (CallerLimits::new(), Instant::now());
    let caller = of_tenant(Allowed { tokens_per_minute: Some(600), ..Allowed::default() });
    assert_eq!(code(limits.count_in(&caller, 0, 6_000, start)), Ok(()));
    // 5400 in debt, at 10 a second: more than nothing is in it just after 540 s.
    let (refused, wait) = code(limits.count_in(&caller, 0, 1, start)).expect_err("in debt");
    assert_eq!((refused, wait), ("rate_limited_tokens", Duration::from_nanos(540_000_000_001)));
    assert!(limits.count_in(&caller, 0, 1, start + Duration::from_secs(540)).is_err());
    assert_eq!(code(limits.count_in(&caller, 0, 6_000, start + wait)), Ok(()));
}

#[test]
fn settling_corrects_the_tokens_of_the_minute() {
    let (limits, now) = (CallerLimits::new(), Instant::now());
    let caller = of_tenant(Allowed { tokens_per_minute: Some(1_000), ..Allowed::default() });
    let left = || limits.left(LimitOwner::Tenant, "chat", &caller.tenant_limits, now).tokens;
    assert_eq!(code(limits.count_in(&caller, 0, 1_000, now)), Ok(()));
    assert_eq!(left(), Some(0));
    limits.settle(&caller, 1_000, 100, now);
    assert_eq!(left(), Some(900));
    limits.settle(&caller, 0, 5_000, now);
    assert_eq!(left(), Some(-4_100));
    limits.settle(&caller, u64::MAX, 0, now);
    assert_eq!(left(), Some(1_000), "never beyond full");
}

#[test]
fn what_waits_is_counted_until_the_guard_goes() {
    let (limits, now) = (CallerLimits::new(), Instant::now());
    let caller = of_tenant(Allowed {
        queued_requests: Some(2),
        queued_bytes: Some(100),
        ..Allowed::default()
    });
    let first = limits.count_in(&caller, 60, 0, now).expect("room");
    let too_large = limits.count_in(&caller, 41, 0, now).expect_err("101 of 100 bytes");
    assert_eq!(too_large.code.as_str(), "queue_bytes_exceeded");
    assert_eq!(
        too_large.problem.message,
        "tenant \"chat\" has 60 bytes of requests waiting, and 41 more would pass its limit of 100; try again in 1 s"
    );
    let second = limits.count_in(&caller, 40, 0, now).expect("room");
    assert_eq!(
        code(limits.count_in(&caller, 0, 0, now)),
        Err(("queue_requests_exceeded", Duration::from_secs(1)))
    );
    drop(first);
    let third = limits.count_in(&caller, 60, 0, now).expect("room again");
    drop((second, third));
    let left = limits.left(LimitOwner::Tenant, "chat", &caller.tenant_limits, now);
    assert_eq!((left.queued_requests, left.queued_bytes), (0, 0));
}

#[test]
fn when_to_come_back_follows_how_fast_the_queue_empties() {
    let (limits, start) = (CallerLimits::new(), Instant::now());
    let caller = of_tenant(Allowed { queued_requests: Some(1), ..Allowed::default() });
    for _ in 0..5 {
        drop(limits.count_in(&caller, 0, 0, start));
    }
    let waiting = limits.count_in(&caller, 0, 0, start).expect("room");
    let at = |seconds| code(limits.count_in(&caller, 0, 0, start + Duration::from_secs(seconds)));
    // Five have left in twenty seconds: one each four.
    assert_eq!(at(20), Err(("queue_requests_exceeded", Duration::from_secs(4))));
    assert_eq!(at(40), Err(("queue_requests_exceeded", Duration::from_secs(8))));
    // None has left in the last minute, to five seconds: all that is known is for how long.
    assert_eq!(at(60), Err(("queue_requests_exceeded", Duration::from_secs(55))));
    drop(waiting);
}

#[test]
fn who_is_refused_by_the_key_is_not_counted_for_the_tenant() {
    let (limits, now) = (CallerLimits::new(), Instant::now());
    let tenant = Allowed {
        requests_per_minute: Some(10),
        tokens_per_minute: Some(10),
        queued_requests: Some(10),
        ..Allowed::default()
    };
    let caller = caller(tenant, Allowed { queued_requests: Some(0), ..Allowed::default() });
    let refused = limits.count_in(&caller, 5, 5, now).expect_err("no room for the key");
    assert!(refused.problem.message.starts_with("key \"key-1\" has 0 requests waiting"));
    let left = limits.left(LimitOwner::Tenant, "chat", &caller.tenant_limits, now);
    let nothing =
        LimitsLeft { queued_requests: 0, queued_bytes: 0, requests: Some(10), tokens: Some(10) };
    assert_eq!(left, nothing);
}

#[test]
fn a_rate_of_zero_lets_nobody_in() {
    let (limits, now) = (CallerLimits::new(), Instant::now());
    let day = Duration::from_secs(86_400);
    let none = of_tenant(Allowed { requests_per_minute: Some(0), ..Allowed::default() });
    assert_eq!(code(limits.count_in(&none, 0, 0, now)), Err(("rate_limited_requests", day)));
    let none = of_tenant(Allowed { tokens_per_minute: Some(0), ..Allowed::default() });
    assert_eq!(code(limits.count_in(&none, 0, 0, now)), Err(("rate_limited_tokens", day)));
}

#[test]
fn the_largest_rates_and_costs_do_not_wrap() {
    let (limits, start) = (CallerLimits::new(), Instant::now());
    let caller = of_tenant(Allowed {
        requests_per_minute: Some(u64::MAX),
        tokens_per_minute: Some(u64::MAX),
        ..Allowed::default()
    });
    let years = start + Duration::from_secs(100 * 365 * 86_400);
    for now in [start, years] {
        assert_eq!(code(limits.count_in(&caller, u64::MAX, u64::MAX, now)), Ok(()));
        limits.settle(&caller, u64::MAX, 0, now);
    }
}

#[test]
fn accounts_go_with_their_owners() {
    let (limits, now) = (CallerLimits::new(), Instant::now());
    let one = Allowed { requests_per_minute: Some(1), ..Allowed::default() };
    let caller = caller(one.clone(), one);
    let waiting = limits.count_in(&caller, 0, 0, now).expect("room");
    limits.keep_only(&Directory::default());
    assert_eq!(limits.tenants.0.read().expect("not poisoned").len(), 0);
    assert_eq!(limits.keys.0.read().expect("not poisoned").len(), 0);
    drop(waiting);
    limits.settle(&caller, 1, 2, now);
    assert_eq!(code(limits.count_in(&caller, 0, 0, now)), Ok(()), "it starts anew");
}

#[test]
fn who_has_no_limits_costs_nothing() {
    let limits = CallerLimits::new();
    let caller = of_tenant(Allowed { in_flight: Some(1), ..Allowed::default() });
    drop(limits.count_in(&caller, 1, 1, Instant::now()));
    assert_eq!(limits.tenants.0.read().expect("not poisoned").len(), 0);
}
