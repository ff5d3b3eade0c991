use super::*;
use crate::refusal::RefusalCode;

fn ended(pool: &str) -> RequestEndMetrics<'_> {
    RequestEndMetrics {
        pool,
        tenant: "chat",
        route: "/v1/chat/completions",
        status: 200,
        outcome: "completed",
        code: None,
        waited: Some(Duration::from_millis(20)),
        first_token: Some(Duration::from_millis(120)),
        total: Duration::from_millis(900),
        estimate: 400,
        charged: Some(300),
        class: None,
    }
}

fn series(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn what_is_counted_is_shown_with_its_unit() {
    let metrics = Metrics::default();
    metrics.count_request(ended("small"));
    metrics.count_request(RequestEndMetrics {
        outcome: "refused",
        code: Some(RefusalCode::QueueFull.into()),
        status: 503,
        ..ended("small")
    });
    metrics.count_request(RequestEndMetrics {
        outcome: "timeout",
        code: Some(RefusalCode::UpstreamTimeout.into()),
        status: 504,
        ..ended("small")
    });
    metrics.count_refusal(RefusalCode::InvalidApiKey);
    metrics.count_attempt("small", "gpu-1", "ok");
    metrics.add_connections(3);
    metrics.add_connections(-1);
    metrics.count_lost_row(false);
    metrics.count_lost_row(true);
    metrics.set_rows_waiting(7);
    metrics.set_rounds_not_journaled(3);
    metrics.count_admin_denied();
    let text = metrics.render(true);
    for line in [
        r#"fairgate_requests_total{pool="small",route="/v1/chat/completions",outcome="completed",status="200"} 1"#,
        r#"fairgate_refusals_total{pool="small",reason="queue_full"} 1"#,
        r#"fairgate_refusals_total{pool="-",reason="invalid_api_key"} 1"#,
        r#"fairgate_failures_total{pool="small",reason="upstream_timeout"} 1"#,
        r#"fairgate_wait_seconds_count{pool="small"} 3"#,
        r#"fairgate_wait_seconds_bucket{le="0.025",pool="small"} 3"#,
        r#"fairgate_first_token_seconds_count{pool="small"} 3"#,
        r#"fairgate_request_seconds_count{pool="small"} 3"#,
        r#"fairgate_charged_tokens_total{pool="small"} 900"#,
        r#"fairgate_estimated_tokens_total{pool="small"} 1200"#,
        r#"fairgate_estimate_error_ratio_bucket{le="0.75",pool="small"} 3"#,
        r#"fairgate_upstream_attempts_total{pool="small",worker="gpu-1",outcome="ok"} 1"#,
        "fairgate_connections 2",
        "fairgate_ledger_write_failures_total 2",
        "fairgate_answers_without_row_total 1",
        "fairgate_ledger_rows_waiting 7",
        "fairgate_fleet_rounds_not_journaled 3",
        "fairgate_admin_denied_total 1",
        concat!(r#"fairgate_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_request_that_never_ran_has_no_wait_and_no_tokens() {
    let metrics = Metrics::default();
    metrics.count_request(RequestEndMetrics {
        waited: None,
        first_token: None,
        charged: None,
        ..ended("small")
    });
    let text = metrics.render(true);
    assert!(!text.contains("fairgate_wait_seconds_count"));
    assert!(!text.contains("fairgate_estimate_error_ratio_count"));
    assert!(text.contains("fairgate_request_seconds_count"));
}

#[test]
fn junk_makes_no_series() {
    let metrics = Metrics::default();
    metrics.count_request(ended("small"));
    for status in 0..=u16::MAX {
        metrics.count_request(RequestEndMetrics { status, ..ended("small") });
    }
    let before = series(&metrics.render(true));
    assert!(before < 200, "{before}");
    let flood = |prefix: &str| {
        for junk in 0..20_000 {
            metrics.count_attempt("small", &format!("{prefix}-worker-{junk}"), "ok");
            metrics.count_request(ended(&format!("{prefix}-pool-{junk}")));
        }
    };
    flood("first");
    let flooded = series(&metrics.render(true));
    flood("second");
    assert_eq!(
        series(&metrics.render(true)),
        flooded,
        "what is beyond the bound shares one series"
    );
}

#[test]
fn tenants_are_counted_by_name_if_asked_for_and_seen_with_the_token_alone() {
    let refused = |tenant| RequestEndMetrics {
        tenant,
        outcome: "refused",
        code: Some(RefusalCode::QueueFull.into()),
        waited: None,
        charged: None,
        ..ended("small")
    };
    let metrics = Metrics::new(2);
    for tenant in ["chat", "batch", "late", "later"] {
        metrics.count_request(RequestEndMetrics { tenant, ..ended("small") });
        metrics.count_request(refused(tenant));
        metrics.count_tenant_money("small", tenant, MicroUnits(7));
        metrics.count_worker_time("small", tenant, 40);
    }
    let text = metrics.render(true);
    for line in [
        r#"fairgate_tenant_charged_tokens_total{pool="small",tenant="chat"} 300"#,
        r#"fairgate_tenant_charged_tokens_total{pool="small",tenant="other"} 600"#,
        r#"fairgate_tenant_wait_seconds_count{pool="small",tenant="batch"} 1"#,
        r#"fairgate_tenant_refusals_total{pool="small",tenant="batch",reason="queue_full"} 1"#,
        r#"fairgate_tenant_money_micro_units_total{pool="small",tenant="other"} 14"#,
        r#"fairgate_tenant_worker_time_microseconds_total{pool="small",tenant="other"} 80"#,
        r#"fairgate_worker_time_microseconds_total{pool="small"} 160"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("late"), "a third name shares the label `other`");
    assert!(!metrics.render(false).contains("fairgate_tenant_"));
    let uncounted = Metrics::default();
    uncounted.count_request(ended("small"));
    assert!(!uncounted.render(true).contains("fairgate_tenant_"));
}

#[test]
fn the_reference_of_counters_is_current() {
    let metrics = Metrics::new(1);
    let class = Some("batch");
    metrics.count_request(RequestEndMetrics { class, ..ended("small") });
    for (outcome, code) in
        [("refused", RefusalCode::QueueFull), ("timeout", RefusalCode::UpstreamTimeout)]
    {
        metrics.count_request(RequestEndMetrics {
            outcome,
            code: Some(code.into()),
            ..ended("small")
        });
    }
    metrics.count_attempt("small", "gpu-1", "ok");
    metrics.count_tier_use("small", 0, 1, MicroUnits(1));
    metrics.count_tenant_money("small", "chat", MicroUnits(1));
    metrics.count_worker_time("small", "chat", 1);
    metrics.count_project_use("web", 1);
    reference::check_table("counters", &[&metrics.registry, &metrics.by_owner]);
}
