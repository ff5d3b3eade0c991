//! Tests of the current state of flows, their last minute and their history, with the test's own
//! clock.

use fairgate_core::attribute::Attribute;
use fairgate_core::units::Tokens;
use fairgate_proxy::refusal::RefusalCode;
use fairgate_store::UnixMicros;
use serde_json::{Value, json};

use super::{Fixture, TOKEN};

const STEP_US: i64 = 5_000_000;
/// A time at which a step, a minute and an hour begin, later than any clock of a test machine.
const BEGIN: i64 = 4_000_003_200_000_000;

fn row<'a>(view: &'a Value, list: &str, name: &str) -> &'a Value {
    let rows = view[list].as_array().expect("a list");
    let name = rows.iter().find(|row| row["tenant"] == name || row["name"] == name);
    name.unwrap_or_else(|| panic!("no such row in {view}"))
}

/// Takes the sample of a step, counted from [`BEGIN`].
async fn sample(it: &Fixture, step: i64) {
    it.control_plane().sample_pools_at(UnixMicros(BEGIN + step * STEP_US)).await;
}

async fn contended(capacity: u64) -> Fixture {
    let it = Fixture::with(|config| config.pools[0].capacity = capacity).await;
    it.tenant("prod", "chat").await;
    it.tenant("prod", "batch").await;
    it.tenant("prod", "quiet").await;
    sample(&it, 0).await;
    it
}

#[tokio::test]
async fn a_row_says_what_its_flow_does_and_got_in_the_last_minute() {
    let it = contended(2).await;
    let held = it.submit("c1", "prod", "chat", 300).await.expect("granted");
    let _two = it.submit("b1", "prod", "batch", 100).await.expect("granted");
    let waiting = [it.submit("b2", "prod", "batch", 500), it.submit("b3", "prod", "batch", 100)];
    it.until(2, 2).await;
    sample(&it, 1).await;
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    assert_eq!(
        (&view["slots"], &view["in_flight"], &view["waiting"]),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!((&view["window_s"], &view["granted"]), (&json!(5), &json!(2)));
    let (chat, batch) = (row(&view, "tenants", "chat"), row(&view, "tenants", "batch"));
    assert_eq!((&chat["state"], &batch["state"]), (&json!("idle"), &json!("waiting")));
    assert_eq!((&chat["got_share"], &batch["got_share"]), (&json!(0.75), &json!(0.25)));
    assert_eq!((&batch["asked_tokens"], &batch["asked_share"]), (&json!(700), &json!(0.7)));
    assert_eq!((&batch["waiting"], &batch["queued"]), (&json!(2), &json!(2)), "and its alias");
    assert_eq!((&batch["promised"], &batch["group"]), (&json!(true), &json!("prod")));
    assert!(batch["wait_p95_ms"].is_u64(), "{batch}");
    // A flow that is held says so, before anything else.
    let flow = json!({"by": "tenant", "flow": "batch"});
    it.post("/api/v1/pools/sim/hold", flow.clone()).await.expect(200);
    it.patch("/api/v1/tenants/chat", json!({"limits": {"in_flight": 1}})).await.expect(200);
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    assert_eq!(row(&view, "tenants", "batch")["state"], "held");
    assert_eq!(row(&view, "tenants", "chat")["state"], "at_cap");
    assert_eq!(row(&view, "tenants", "chat")["cap"], 1);
    held.settle(Tokens(300));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn tenants_that_never_came_are_listed_if_asked_for() {
    let it = contended(1).await;
    it.patch("/api/v1/tenants/quiet", json!({"disabled": true})).await.expect(200);
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    assert_eq!(view["tenants"], json!([]));
    let view = it.get("/api/v1/fairshare/live?all=true").await.expect(200);
    assert_eq!(row(&view, "tenants", "chat")["state"], "never_seen");
    assert_eq!(row(&view, "tenants", "quiet")["state"], "disabled");
}

#[tokio::test]
async fn a_tenant_that_was_only_refused_is_over_its_budget_and_not_unseen() {
    let it = contended(1).await;
    let (_, key) = it.key("quiet").await;
    let owners = [(Attribute::Group, "prod"), (Attribute::Tenant, "quiet")];
    it.app().refusals.count("sim", RefusalCode::BudgetExhausted, owners.into_iter());
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    let quiet = row(&view, "tenants", "quiet");
    assert_eq!((&quiet["state"], &quiet["refused"]), (&json!("over_budget"), &json!(1)));
    assert_eq!(quiet["last_refusal"]["code"], "budget_exhausted");
    assert_eq!(view["tenants"].as_array().map(Vec::len), Some(1), "the others have sent nothing");
    let view = it.get("/api/v1/fairshare/live?all=true").await.expect(200);
    assert_eq!(row(&view, "tenants", "quiet")["state"], "over_budget");
    assert_eq!(row(&view, "tenants", "chat")["state"], "never_seen");
    assert_eq!(view["tenants"].as_array().map(Vec::len), Some(3), "each once");
    let me =
        it.send(super::request(Some(&key), "GET", "/api/v1/me", json!(null))).await.expect(200);
    assert_eq!(me["pools"][0]["state"], "over_budget");
    let summary = me["pools"][0]["summary"].as_str().expect("a sentence");
    assert!(summary.starts_with("A budget is used up"), "{summary}");
}

#[tokio::test]
async fn only_shares_of_tokens_are_promised() {
    for (policy, list, promised) in [
        (r#"{"share":{"by":"tenant"}}"#, "tenants", true),
        (r#"{"share":{"by":"tenant","partition":true}}"#, "tenants", false),
        (
            r#"{"drr":{"by":"class","classes":[{"name":"chat","quantum":9},{"name":"b","quantum":1}]}}"#,
            "classes",
            false,
        ),
    ] {
        let it = Fixture::with(|config| {
            config.pools[0].policy = fairgate_journal::parse_policy(policy).expect("a policy");
        })
        .await;
        it.tenant("prod", "chat").await;
        let _one = it.submit("c1", "prod", "chat", 10).await.expect("granted");
        let view = it.get("/api/v1/fairshare/live").await.expect(200);
        let rows = view[list].as_array().expect("a list");
        assert!(!rows.is_empty() && rows.iter().all(|row| row["promised"] == promised), "{view}");
        // The tenant is a row even where it is no flow, and its requests are counted.
        let chat = row(&view, "tenants", "chat");
        assert_eq!(chat["in_flight"], 1);
    }
}

#[tokio::test]
async fn waiting_requests_of_tenants_that_are_no_flows_are_counted() {
    let policy = r#"{"share":{"by":"class","classes":[{"name":"a","weight":1}]}}"#;
    let it = Fixture::with(|config| {
        config.pools[0].capacity = 1;
        config.pools[0].policy = fairgate_journal::parse_policy(policy).expect("a policy");
    })
    .await;
    it.tenant("prod", "chat").await;
    let first = it.submit("c1", "prod", "chat", 10).await.expect("granted");
    let second = it.submit("c2", "prod", "chat", 10);
    let third = it.submit("c3", "prod", "chat", 10);
    it.until(1, 2).await;
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    let chat = row(&view, "tenants", "chat");
    assert_eq!((&chat["in_flight"], &chat["waiting"]), (&json!(1), &json!(2)));
    assert_eq!(row(&view, "groups", "prod")["waiting"], 2);
    third.abort();
    first.settle(Tokens(10));
    let second = second.await.expect("granted");
    it.until(1, 0).await;
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    let view = it.get("/api/v1/fairshare/live").await.expect(200);
    assert_eq!(row(&view, "tenants", "chat")["waiting"], 0);
    second.settle(Tokens(10));
}

#[tokio::test]
async fn a_history_has_what_was_got_due_and_asked_for() {
    let it = contended(1).await;
    let one = it.submit("c1", "prod", "chat", 300).await.expect("granted");
    let two = it.submit("b1", "prod", "batch", 100);
    it.until(1, 1).await;
    sample(&it, 1).await;
    one.settle(Tokens(200));
    let two = two.await.expect("granted");
    sample(&it, 2).await;
    // Nothing for ten seconds, then a late sample.
    two.settle(Tokens(100));
    it.until(0, 0).await;
    sample(&it, 4).await;
    let since = (BEGIN / 1_000_000).to_string();
    let path = format!("/api/v1/pools/sim/history?since={since}");
    let history = it.get(&path).await.expect(200);
    assert_eq!(
        (&history["by"], &history["step_s"], &history["points"]),
        (&json!("tenant"), &json!(5), &json!(4)),
        "{history}"
    );
    assert!(history["start"].as_str().expect("a time").starts_with("2096-10-02T08:00:00"));
    let flows = history["flows"].as_array().expect("flows");
    let flow = |name: &str| flows.iter().find(|flow| flow["flow"] == name).expect("a flow");
    let (chat, batch) = (flow("chat"), flow("batch"));
    assert_eq!(chat["got_tokens"], json!([300, -100, 0, 0]), "with its refund");
    assert_eq!(chat["asked_tokens"], json!([300, 0, 0, 0]));
    assert_eq!(batch["got_tokens"], json!([0, 100, 0, 0]));
    assert_eq!(batch["asked_tokens"], json!([100, 0, 0, 0]));
    assert_eq!(batch["waiting"], json!([1, 0, 0, 0]));
    assert_eq!(batch["in_flight"], json!([0, 1, 0, 0]));
    assert_eq!(history["all"]["granted"], json!([1, 1, 0, 0]));
    assert_eq!((&batch["promised"], &history["others"]), (&json!(true), &json!(null)));
    for flow in flows {
        let points = flow["got_tokens"].as_array().expect("points").iter().zip(0..);
        for (got, at) in points.filter(|(got, at)| got.is_i64() && *at > 0) {
            let number = |field: &str, at: usize| flow[field][at].as_i64();
            let rise = number("difference_tokens", at).zip(number("difference_tokens", at - 1));
            if let Some((now, before)) = rise {
                let due = got.as_i64().expect("a number") - (now - before);
                assert_eq!(number("due_tokens", at), Some(due), "{flow}");
            }
        }
    }
    let one = it.get(&format!("{path}&flow=chat&by=tenant")).await.expect(200);
    assert_eq!(one["flows"].as_array().expect("a list").len(), 1);
    let groups = it.get(&format!("{path}&by=group")).await.expect(200);
    assert_eq!(groups["flows"][0]["got_tokens"], json!([300, 0, 0, 0]));
}

#[tokio::test]
async fn what_is_not_kept_or_not_divided_is_refused() {
    let it = contended(1).await;
    let refused = async |query: &str| {
        let answer = it.get(&format!("/api/v1/pools/sim/history?{query}")).await;
        (answer.status.as_u16(), answer.json())
    };
    let (status, body) = refused("since=2h&step=5").await;
    assert_eq!((status, &body["error"]["code"]), (400, &json!("not_kept")));
    assert_eq!(body["error"]["field"], "since");
    assert!(body["error"]["message"].as_str().expect("text").contains("2096-10-02T07:00:00"));
    assert_eq!(refused("since=2d").await.0, 400);
    assert_eq!(refused("step=7").await.0, 400);
    assert_eq!(refused("by=colour").await.0, 400);
    let (status, body) = refused("by=class").await;
    assert_eq!((status, &body["error"]["code"]), (422, &json!("invalid")));
    assert!(body["error"]["message"].as_str().expect("text").contains("tenant, group, key"));
    assert_eq!(it.get("/api/v1/pools/none/history").await.refused(404), "not_found");
}

#[tokio::test]
async fn a_tenant_sees_its_own_history_and_no_other() {
    let it = contended(2).await;
    let (_, key) = it.key("chat").await;
    let one = it.submit("c1", "prod", "chat", 300).await.expect("granted");
    let two = it.submit("b1", "prod", "batch", 100).await.expect("granted");
    sample(&it, 1).await;
    let since = (BEGIN / 1_000_000).to_string();
    let path = format!("/api/v1/me/history?since={since}");
    let mine = it.as_key(&key, "GET", &path, json!(null)).await;
    assert!(!mine.text.contains("batch"), "{}", mine.text);
    let mine = mine.expect(200);
    assert_eq!((&mine["tenant"], &mine["pools"][0]["got_tokens"]), (&json!("chat"), &json!([300])));
    let me = it.as_key(&key, "GET", "/api/v1/me", json!(null)).await;
    assert!(!me.text.contains("batch"), "{}", me.text);
    let pool = &me.expect(200)["pools"][0];
    assert_eq!((&pool["got_share"], &pool["state"]), (&json!(0.75), &json!("idle")));
    let summary = pool["summary"].as_str().expect("a sentence");
    let expected = "Nothing of yours waits in sim; 1 in flight; you were due 75";
    assert!(summary.starts_with(expected), "{summary}");
    let other = it.as_key(&key, "GET", "/api/v1/pools/sim/history", json!(null)).await;
    assert_eq!(other.refused(403), "admin_only");
    assert_eq!(it.as_key(TOKEN, "GET", &path, json!(null)).await.refused(403), "tenant_only");
    one.settle(Tokens(300));
    two.settle(Tokens(100));
}
