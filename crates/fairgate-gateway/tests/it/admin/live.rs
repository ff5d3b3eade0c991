//! Tests of the live view, once and as a stream, and of the metrics.

use std::time::Duration;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::Submit;
use fairgate_core::units::Tokens;
use serde_json::{Value, json};

use super::{Fixture, TOKEN, request};

fn find<'a>(list: &'a Value, field: &str, name: &str) -> &'a Value {
    let found = list.as_array().expect("a list").iter().find(|each| each[field] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

/// Starts a pool of two slots with two tenants of weights 500 and 50. The small tenant has both
/// slots, and requests of both wait.
async fn contended() -> Fixture {
    let it = Fixture::with(|config| config.pools[0].capacity = 2).await;
    it.tenant("big", "chat").await;
    it.tenant("small", "batch").await;
    it.patch("/api/v1/groups/big", json!({"weight": 500})).await.expect(200);
    it.patch("/api/v1/groups/small", json!({"weight": 50})).await.expect(200);
    it
}

#[tokio::test]
async fn the_live_view_shows_who_has_what_and_is_due_what() {
    let it = contended().await;
    let first = it.submit("b1", "small", "batch", 1000).await.expect("granted");
    first.settle(Tokens(1400));
    let _second = it.submit("b2", "small", "batch", 1000).await.expect("granted");
    let _third = it.submit("b3", "small", "batch", 1000).await.expect("granted");
    let waiting = [it.submit("b4", "small", "batch", 1000), it.submit("c1", "big", "chat", 30_000)];
    it.until(2, 2).await;

    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    assert_eq!(view["algorithm"], "share by group, share by tenant, share by key");
    assert_eq!((&view["max_in_flight"], &view["global_in_flight"]), (&json!(2), &json!(2)));
    assert_eq!(view["global_queued"], 2);
    let (small, big) =
        (find(&view["groups"], "name", "small"), find(&view["groups"], "name", "big"));
    assert_eq!(
        (&small["weight"], &small["in_flight"], &small["queued"]),
        (&json!(50), &json!(2), &json!(1))
    );
    // As on obleth's page: served tokens ÷ weight. What is in flight is beside it, and counts for the order.
    assert_eq!((&small["served_tokens"], &small["share_score"]), (&json!(1400), &json!(28.0)));
    assert_eq!((&small["in_flight_tokens"], &small["order_score"]), (&json!(2000), &json!(68.0)));
    assert_eq!(
        (&big["weight"], &big["in_flight"], &big["queued"]),
        (&json!(500), &json!(0), &json!(1))
    );
    assert_eq!(
        (&small["weight_share"], &big["weight_share"]),
        (&json!(0.090909), &json!(0.909091))
    );
    assert_eq!(small["slot_cap"], json!(null));
    for flow in [small, big] {
        let number = |field: &str| flow[field].as_i64().expect("a number");
        assert!(number("lag_floor_tokens") <= number("lag_tokens"), "{flow}");
        assert!(number("lag_tokens") <= number("lag_bound_tokens"), "{flow}");
        let difference = number("difference_tokens");
        assert_eq!(difference, number("got_tokens") - number("due_tokens"), "{flow}");
        assert!(difference.abs() <= number("bound_tokens"), "{flow}");
        assert_eq!((&flow["within_bound"], &flow["cap_use"]), (&json!(true), &json!(null)));
    }
    // b1 used 400 more than its cost; nobody else was ready when the next was granted, so that was its due too.
    assert_eq!((&small["got_tokens"], &small["due_tokens"]), (&json!(3400), &json!(3400)));
    assert_eq!((&big["got_tokens"], &big["due_tokens"]), (&json!(0), &json!(0)));
    let batch = find(&view["tenants"], "tenant_id", "batch");
    assert_eq!((&batch["fairshare_group"], &batch["weight"]), (&json!("small"), &json!(100)));
    assert_eq!(batch["weight_share"], small["weight_share"], "it is alone in its group");
    assert_eq!(view["pools"][0]["groups"], view["groups"], "the one pool is also at the top");
    assert_eq!(it.get("/api/v1/fairshare/live?pool=sim").await.expect(200)["pool"], "sim");
    assert_eq!(it.get("/api/v1/fairshare/live?pool=none").await.refused(404), "not_found");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_divided_pool_shows_its_slots() {
    let partitioned =
        r#"{"share":{"by":"group","partition":true,"inside":{"share":{"by":"tenant"}}}}"#;
    let it = Fixture::with(|config| {
        config.pools[0].policy = fairgate_journal::parse_policy(partitioned).expect("a policy");
    })
    .await;
    it.tenant("big", "chat").await;
    it.tenant("small", "batch").await;
    it.patch("/api/v1/groups/big", json!({"weight": 500})).await.expect(200);
    it.patch("/api/v1/groups/small", json!({"weight": 50})).await.expect(200);
    let _one = it.submit("b1", "small", "batch", 10).await.expect("granted");
    let _two = it.submit("c1", "big", "chat", 10).await.expect("granted");
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    assert_eq!(view["algorithm"], "share by group in slots, share by tenant");
    assert_eq!(find(&view["groups"], "name", "big")["slot_cap"], 7);
    assert_eq!(find(&view["groups"], "name", "small")["slot_cap"], 1);
}

/// Returns the live view's classes and the metrics of a pool with one slot. One request of a class
/// has ended, another runs, and one of the other class waits.
async fn classes(policy: &str) -> (Value, String) {
    let it = Fixture::with(|config| {
        config.pools[0].capacity = 1;
        config.pools[0].policy = fairgate_journal::parse_policy(policy).expect("a policy");
    })
    .await;
    let submit = |id: &str, class: &str| {
        let attributes = Attributes::none().with(Attribute::Class, class);
        let submit = Submit { attributes, cost: Some(Tokens(100)), ..Submit::new(id) };
        let gate = it.app().pools.all()[0].gate.clone();
        tokio::spawn(async move { gate.admit(submit).await.expect("a permit") })
    };
    submit("c1", "chat").await.expect("granted").settle(Tokens(150));
    let _flies = submit("c2", "chat").await.expect("granted");
    let waits = submit("b1", "batch");
    it.until(1, 1).await;
    let view = it.get("/api/v1/fairshare/live").await.expect(200)["classes"].clone();
    let metrics = it.get("/metrics").await.text;
    waits.abort();
    (view, metrics)
}

#[tokio::test]
async fn classes_have_rows_of_their_own() {
    let (view, metrics) = classes(
        r#"{"share":{"by":"class","classes":[
            {"name":"chat","weight":4,"inside":{"share":{"by":"tenant"}}},{"name":"batch","weight":1}]}}"#,
    )
    .await;
    let (chat, batch) = (find(&view, "name", "chat"), find(&view, "name", "batch"));
    assert_eq!((&chat["weight"], &batch["weight"]), (&json!(4), &json!(1)));
    assert_eq!((&chat["in_flight"], &chat["queued"]), (&json!(1), &json!(0)));
    assert_eq!((&batch["in_flight"], &batch["queued"]), (&json!(0), &json!(1)));
    assert_eq!((&chat["weight_share"], &batch["weight_share"]), (&json!(0.8), &json!(0.2)));
    assert_eq!((&chat["got_tokens"], &batch["got_tokens"]), (&json!(250), &json!(0)));
    assert_eq!(chat["oldest_wait_us"], json!(null));
    assert!(batch["oldest_wait_us"].is_u64(), "{batch}");
    assert_eq!(chat["deficit_tokens"], json!(null), "there is no deficit in share");
    for line in [
        r#"fairgate_class_in_flight_requests{pool="sim",class="chat"} 1"#,
        r#"fairgate_class_got_tokens{pool="sim",class="chat"} 250"#,
    ] {
        assert!(metrics.contains(line), "no {line}");
    }
}

#[tokio::test]
async fn classes_of_deficit_round_robin_show_their_deficit() {
    let (view, _) = classes(
        r#"{"drr":{"by":"class","classes":[{"name":"chat","quantum":1000},{"name":"batch","quantum":250}]}}"#,
    )
    .await;
    let (chat, batch) = (find(&view, "name", "chat"), find(&view, "name", "batch"));
    // Each time its queue became empty, its credit was lost.
    assert_eq!((&chat["weight"], &chat["deficit_tokens"]), (&json!(1000), &json!(0)));
    assert_eq!((&batch["weight"], &batch["deficit_tokens"]), (&json!(250), &json!(0)));
    assert_eq!(batch["queued"], 1);
}

#[tokio::test]
async fn the_stream_has_one_view_per_event_and_ends() {
    let it = Fixture::new().await;
    let answer = it.get("/api/v1/fairshare/live/stream?every_ms=200&events=2").await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let data: Vec<Value> = answer
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    assert_eq!(data.len(), 2);
    assert!(data.iter().all(|view| view["pool"] == "sim"), "{data:?}");
    assert_eq!(answer.text.matches("event: live\n").count(), 2);
    assert_eq!(it.get("/api/v1/fairshare/live/stream?pool=none").await.refused(404), "not_found");
}

#[tokio::test]
async fn the_stream_ends_when_the_gateway_drains() {
    let it = Fixture::new().await;
    let router = fairgate_control::admin::router(it.control_plane().clone());
    let request =
        request(Some(TOKEN), "GET", "/api/v1/fairshare/live/stream?every_ms=60000", json!(null));
    let response = tower::ServiceExt::oneshot(router, request).await.expect("an answer");
    let mut body = response.into_body();
    use http_body_util::BodyExt as _;
    let first = body.frame().await.expect("an event").expect("an event");
    assert!(first.into_data().expect("data").starts_with(b"event: live\n"));
    let gateway = it.gateway;
    let drained = tokio::spawn(async move { gateway.drain(Duration::from_secs(1)).await });
    assert!(body.frame().await.is_none(), "it is over");
    drained.await.expect("drained");
}

#[tokio::test]
async fn only_so_many_may_watch() {
    let it = Fixture::new().await;
    let router = fairgate_control::admin::router(it.control_plane().clone());
    let mut watching = Vec::new();
    for _ in 0..64 {
        let request = request(Some(TOKEN), "GET", "/api/v1/fairshare/live/stream", json!(null));
        let response =
            tower::ServiceExt::oneshot(router.clone(), request).await.expect("an answer");
        assert_eq!(response.status().as_u16(), 200);
        watching.push(response);
    }
    let one_more = it.get("/api/v1/fairshare/live/stream?events=1").await;
    assert_eq!(one_more.headers["retry-after"], "1");
    assert_eq!(one_more.refused(503), "too_many_watchers");
    watching.clear();
    assert_eq!(it.get("/api/v1/fairshare/live/stream?events=1").await.status.as_u16(), 200);
}

#[tokio::test]
async fn metrics_show_the_pools_and_name_tenants_to_the_admin_only() {
    let it = contended().await;
    let _in_flight =
        [it.submit("b1", "small", "batch", 10).await, it.submit("b2", "small", "batch", 10).await];
    let waiting = [it.submit("c1", "big", "chat", 30), it.submit("b3", "small", "batch", 10)];
    it.until(2, 2).await;
    let text = it.get("/metrics").await.text;
    for line in [
        r#"fairgate_pool_capacity_slots{pool="sim"} 2"#,
        r#"fairgate_pool_in_flight_requests{pool="sim"} 2"#,
        r#"fairgate_pool_queued_requests{pool="sim"} 2"#,
        r#"fairgate_pool_answers{pool="sim"} 1"#,
        r#"fairgate_journal_events_lost_total{pool="sim"} 0"#,
        r#"fairgate_journal_writing{pool="sim"} 1"#,
        r#"fairgate_worker_up{pool="sim",worker="sim"} 1"#,
        r#"fairgate_worker_slots{pool="sim",worker="sim"} 8"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(text.contains(r#"fairgate_tenant_lag_tokens{pool="sim",tenant="chat"}"#), "{text}");
    assert!(text.contains(r#"fairgate_pool_lag_bound_used_ratio{pool="sim"}"#));
    assert!(text.contains("fairgate_resident_memory_bytes "));
    for line in [
        r#"fairgate_pool_outside_bound_flows{pool="sim"} 0"#,
        r#"fairgate_tenant_got_tokens{pool="sim",tenant="batch"} 20"#,
        r#"fairgate_tenant_got_tokens{pool="sim",tenant="chat"} 0"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    for series in [
        r#"fairgate_pool_difference_tokens{pool="sim"}"#,
        r#"fairgate_tenant_due_tokens{pool="sim",tenant="batch"}"#,
        r#"fairgate_tenant_difference_bound_tokens{pool="sim",tenant="batch"}"#,
    ] {
        assert!(text.contains(series), "{series} is not in\n{text}");
    }
    let open = it.send(request(None, "GET", "/metrics", json!(null))).await;
    assert_eq!(open.status.as_u16(), 200);
    assert!(!open.text.contains("chat") && !open.text.contains("batch"));
    assert!(open.text.contains("fairgate_pool_lag_tokens"));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn junk_makes_no_series() {
    let it = Fixture::new().await;
    let series = async || {
        it.get("/metrics").await.text.lines().filter(|line| !line.starts_with('#')).count()
    };
    // The first refusal of each kind has its series; no name that somebody made up has one.
    let flood = async |kind: &str| {
        for junk in 0..50 {
            it.get(&format!("/api/v1/{kind}{junk}")).await;
            it.get(&format!("/api/v1/pools/{kind}{junk}")).await;
            it.get(&format!("/api/v1/requests/{kind}{junk}")).await;
            it.as_key(&format!("{kind}{junk}"), "GET", "/api/v1/me", json!(null)).await;
            it.post(
                "/api/v1/pools/sim/hold",
                json!({"by": "tenant", "flow": format!("{kind}{junk}")}),
            )
            .await;
        }
    };
    flood("first").await;
    let before = series().await;
    flood("second").await;
    assert_eq!(series().await, before);
}
