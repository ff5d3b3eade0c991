use super::*;

fn limits(limit: CallerLimit) -> ClusterLimits {
    let mut limits = ClusterLimits::default();
    limits.set_limit(CallerKind::Tenant, &"chat".into(), limit, ClusterMicros(0));
    limits
}

fn of_chat(bytes: u64, estimate: u64) -> LimitedRequest<'static> {
    LimitedRequest { tenant: Some("chat"), key: Some("k"), bytes, estimate }
}

/// Counts a request, as the machine does. If it is refused, returns the code of the refusal and the
/// time to wait.
fn count_in(
    limits: &mut ClusterLimits,
    request: LimitedRequest<'_>,
    now: ClusterMicros,
) -> Result<Option<CountedSubmit>, (&'static str, u64)> {
    let refused = |refusal: LimitRefusal| match refusal.reached {
        reached @ (ClusterLimitReached::RequestsPerMinute { retry_after, .. }
        | ClusterLimitReached::TokensPerMinute { retry_after, .. }) => {
            (reached.code(), retry_after.0)
        }
        reached => (reached.code(), 0),
    };
    limits.check(&request, now).map_err(refused)?;
    Ok(limits.count_in(&request, now))
}

#[test]
fn requests_a_minute_fill_continuously() {
    let mut limits =
        limits(CallerLimit { requests_per_minute: Some(60), ..CallerLimit::default() });
    for _ in 0..60 {
        assert!(count_in(&mut limits, of_chat(0, 0), ClusterMicros(0)).is_ok());
    }
    let refused = count_in(&mut limits, of_chat(0, 0), ClusterMicros(400_000));
    assert_eq!(refused, Err(("rate_limited_requests", 600_000)));
    assert!(count_in(&mut limits, of_chat(0, 0), ClusterMicros(1_000_000)).is_ok());
    let account = limits.account(CallerKind::Tenant, "chat").unwrap();
    assert_eq!(account.requests.wholes(60, ClusterMicros::seconds(3600)), 60);
}

#[test]
fn a_request_larger_than_a_minute_is_late_not_refused_for_ever() {
    let mut limits = limits(CallerLimit { tokens_per_minute: Some(600), ..CallerLimit::default() });
    let counted = count_in(&mut limits, of_chat(0, 6_000), ClusterMicros(0)).unwrap().unwrap();
    // 5400 in debt, at 10 a second: more than nothing is in it just after 540 s.
    let refused = count_in(&mut limits, of_chat(0, 1), ClusterMicros(0)).unwrap_err();
    assert_eq!(refused, ("rate_limited_tokens", 540_000_001));
    limits.settle(&counted, 100, ClusterMicros(0));
    let account = limits.account(CallerKind::Tenant, "chat").unwrap();
    assert_eq!(account.tokens.wholes(600, ClusterMicros(0)), 500);
}

#[test]
fn queues_are_counted_until_a_request_leaves() {
    let mut limits = limits(CallerLimit {
        queued_requests: Some(2),
        queued_bytes: Some(100),
        ..CallerLimit::default()
    });
    let first = count_in(&mut limits, of_chat(60, 0), ClusterMicros(0)).unwrap().unwrap();
    let large = count_in(&mut limits, of_chat(41, 0), ClusterMicros(0));
    assert_eq!(large, Err(("queue_bytes_exceeded", 0)));
    let _second = count_in(&mut limits, of_chat(40, 0), ClusterMicros(0)).unwrap();
    let third = count_in(&mut limits, of_chat(0, 0), ClusterMicros(0));
    assert_eq!(third, Err(("queue_requests_exceeded", 0)));
    limits.leave_queue(&first);
    assert!(count_in(&mut limits, of_chat(60, 0), ClusterMicros(0)).is_ok());
}

#[test]
fn the_key_counts_beside_its_tenant_and_others_are_not_counted() {
    let mut limits = limits(CallerLimit { requests_per_minute: Some(5), ..CallerLimit::default() });
    let none = CallerLimit { requests_per_minute: Some(0), ..CallerLimit::default() };
    limits.set_limit(CallerKind::Key, &"k".into(), none, ClusterMicros(0));
    let refused = count_in(&mut limits, of_chat(0, 0), ClusterMicros(0));
    assert_eq!(refused, Err(("rate_limited_requests", 86_400_000_000)), "a rate of 0 never fills");
    let left = |limits: &ClusterLimits| {
        let account = limits.account(CallerKind::Tenant, "chat").unwrap();
        account.requests.wholes(5, ClusterMicros(0))
    };
    assert_eq!(left(&limits), 5, "who is refused by the key is not counted for the tenant");
    let stranger = LimitedRequest { tenant: Some("cha"), key: None, bytes: 1, estimate: 1 };
    assert_eq!(count_in(&mut limits, stranger, ClusterMicros(0)), Ok(None));
    assert_eq!(left(&limits), 5);
}

#[test]
fn another_limit_keeps_what_was_taken() {
    let limit = |rate| CallerLimit { requests_per_minute: rate, ..CallerLimit::default() };
    let mut limits = limits(limit(Some(10)));
    for _ in 0..8 {
        count_in(&mut limits, of_chat(0, 0), ClusterMicros(0)).unwrap();
    }
    let name: Arc<str> = "chat".into();
    let left = |limits: &ClusterLimits, rate| {
        let account = limits.account(CallerKind::Tenant, "chat").unwrap();
        account.requests.wholes(rate, ClusterMicros(0))
    };
    limits.set_limit(CallerKind::Tenant, &name, limit(Some(4)), ClusterMicros(0));
    assert_eq!(left(&limits, 4), -4);
    limits.set_limit(CallerKind::Tenant, &name, limit(Some(20)), ClusterMicros(0));
    assert_eq!(left(&limits, 20), 12);
    limits.set_limit(CallerKind::Tenant, &name, CallerLimit::default(), ClusterMicros(0));
    assert!(limits.account(CallerKind::Tenant, "chat").is_none());
}

#[test]
fn the_largest_rates_and_costs_do_not_wrap() {
    let mut limits = limits(CallerLimit {
        requests_per_minute: Some(u64::MAX),
        tokens_per_minute: Some(u64::MAX),
        ..CallerLimit::default()
    });
    for now in [ClusterMicros(0), ClusterMicros(u64::MAX)] {
        let counted = count_in(&mut limits, of_chat(u64::MAX, u64::MAX), now).unwrap().unwrap();
        limits.settle(&counted, 0, now);
        limits.leave_queue(&counted);
    }
}
