//! Tests of the locations of requests, for the admin and for tenants.

use std::time::Duration;

use serde_json::json;

use super::Fixture;

/// Starts a pool with one slot, which `chat` has. A request of `batch` waits, and then another of
/// `chat`.
async fn waiting() -> (Fixture, String, String) {
    let it = Fixture::with(|config| config.pools[0].capacity = 1).await;
    it.tenant("a", "chat").await;
    it.tenant("b", "batch").await;
    let ((_, chat), (_, batch)) = (it.key("chat").await, it.key("batch").await);
    (it, chat, batch)
}

#[tokio::test]
async fn a_request_is_told_what_is_ahead_of_it() {
    let (it, chat, batch) = waiting().await;
    let in_flight = it.submit("c1", "a", "chat", 100).await.expect("granted");
    let second = it.submit("b1", "b", "batch", 70);
    it.until(1, 1).await;
    let third = it.submit("c2", "a", "chat", 50);
    it.until(1, 2).await;

    let found = it.get("/api/v1/requests/c2").await.expect(200);
    assert_eq!(found["state"], "waiting");
    assert_eq!(found["waiting"]["grants_ahead"], 1);
    let ahead =
        json!([{"path": ["b", "batch", "key-of-batch"], "requests": 1, "tokens": 70, "cost": 70}]);
    assert_eq!(found["waiting"]["ahead"], ahead);
    assert_eq!(found["waiting"]["levels"][0]["by"], "group");
    assert_eq!(found["waiting"]["levels"][0]["readiness"], "ready");
    assert_eq!(
        (&found["request"]["tenant"], &found["request"]["cost_tokens"]),
        (&json!("chat"), &json!(50))
    );
    let last = found["story"].as_array().and_then(|story| story.last()).expect("a story");
    assert_eq!(
        last,
        "it waits; if nothing else came, 1 grant would come before its own: 1 request of b / batch / key-of-batch (70 tokens)"
    );

    let own = it.as_key(&chat, "GET", "/api/v1/requests/c2", json!(null)).await;
    assert!(!own.text.contains("batch"), "others are not named: {}", own.text);
    let own = own.expect(200);
    assert_eq!(
        own["waiting"]["ahead"],
        json!([{"path": ["others"], "requests": 1, "tokens": 70, "cost": 70}])
    );
    let not_own = it.as_key(&batch, "GET", "/api/v1/requests/c2", json!(null)).await;
    assert_eq!(not_own.refused(404), "not_found");

    let first = it.get("/api/v1/requests/c1").await.expect(200);
    assert_eq!(
        (&first["state"], &first["request"]["worker"]),
        (&json!("in_flight"), &json!("sim"))
    );
    assert_eq!(first["story"], json!(["it has its slot, on worker sim"]));

    drop(in_flight);
    drop(second.await.expect("granted"));
    drop(third.await.expect("granted"));
    assert_eq!(it.get("/api/v1/requests/c2").await.refused(404), "not_found");
}

#[tokio::test]
async fn a_waiting_request_is_told_what_its_flows_got_and_were_due() {
    let (it, chat, _) = waiting().await;
    it.patch("/api/v1/tenants/chat", json!({"limits": {"in_flight": 1}})).await.expect(200);
    let _in_flight = it.submit("c1", "a", "chat", 100).await.expect("granted");
    let asking = it.submit("c2", "a", "chat", 50);
    it.until(1, 1).await;
    // A cap is used while something waits below it, and time must have passed.
    tokio::time::sleep(Duration::from_millis(2)).await;
    it.post("/api/v1/pools/sim/resume", json!({"by": "group", "flow": "a"})).await.expect(200);
    let found = it.get("/api/v1/requests/c2").await.expect(200);
    let tenant = &found["waiting"]["levels"][1];
    assert_eq!(tenant["readiness"], "at_cap");
    assert_eq!((&tenant["got_tokens"], &tenant["due_tokens"]), (&json!(100), &json!(100)));
    assert_eq!((&tenant["difference_tokens"], &tenant["within_bound"]), (&json!(0), &json!(true)));
    assert_eq!(tenant["cap_use"], 1.0);
    let story = found["story"].as_array().expect("sentences");
    for sentence in [
        "tenant chat got 100 tokens and was due 100: no difference, within its bound of 201 tokens",
        "tenant chat used 100.0 % of its cap while requests of it waited",
    ] {
        assert!(story.contains(&json!(sentence)), "{sentence} is not in {story:#?}");
    }
    let me = it.as_key(&chat, "GET", "/api/v1/me", json!(null)).await.expect(200);
    assert_eq!(me["pools"][0]["got_tokens"], 100);
    asking.abort();
}

#[tokio::test]
async fn a_held_request_is_told_so() {
    let (it, ..) = waiting().await;
    it.post("/api/v1/pools/sim/hold", json!({"by": "group", "flow": "a"})).await.expect(200);
    let asking = it.submit("c1", "a", "chat", 1);
    it.until(0, 1).await;
    let found = it.get("/api/v1/requests/c1").await.expect(200);
    assert_eq!(found["waiting"]["grants_ahead"], json!(null));
    assert_eq!(found["waiting"]["levels"][0]["readiness"], "held");
    assert_eq!(found["story"][0], "group a is held by an operator");
    asking.abort();
}

#[tokio::test]
async fn requests_are_listed_to_those_who_may_see_them() {
    let (it, chat, batch) = waiting().await;
    let _in_flight = it.submit("c1", "a", "chat", 100).await.expect("granted");
    let waiting = it.submit("b1", "b", "batch", 70);
    it.until(1, 1).await;
    let ids = async |key: Option<&str>, query: &str| {
        let path = format!("/api/v1/requests{query}");
        let answer = match key {
            None => it.get(&path).await,
            Some(key) => it.as_key(key, "GET", &path, json!(null)).await,
        };
        let list = answer.expect(200);
        let items = list["items"].as_array().expect("a list");
        let ids: Vec<_> =
            items.iter().map(|item| item["id"].as_str().expect("id").to_owned()).collect();
        (ids.join(" "), list["omitted"].as_u64().expect("a number"))
    };
    assert_eq!(ids(None, "").await, ("c1 b1".to_owned(), 0));
    assert_eq!(ids(None, "?limit=1").await, ("c1".to_owned(), 1));
    assert_eq!(ids(None, "?tenant=batch").await, ("b1".to_owned(), 0));
    assert_eq!(ids(None, "?state=in_flight&pool=sim").await, ("c1".to_owned(), 0));
    assert_eq!(ids(Some(&chat), "").await, ("c1".to_owned(), 0));
    assert_eq!(ids(Some(&batch), "").await, ("b1".to_owned(), 0));
    assert_eq!(ids(Some(&batch), "?tenant=chat").await, (String::new(), 0));
    assert_eq!(it.get("/api/v1/requests?pool=none").await.refused(404), "not_found");
    waiting.abort();
}

#[tokio::test]
async fn a_tenant_is_told_its_share_and_why() {
    let (it, chat, _) = waiting().await;
    it.patch("/api/v1/groups/a", json!({"weight": 300})).await.expect(200);
    let limits =
        json!({"limits": {"requests_per_minute": 60, "tokens_per_day": 1000, "in_flight": 5}});
    it.patch("/api/v1/tenants/chat", limits).await.expect(200);
    let me = it.as_key(&chat, "GET", "/api/v1/me", json!(null)).await.expect(200);
    assert_eq!((&me["tenant"], &me["group"]), (&json!("chat"), &json!("a")));
    assert_eq!(me["tenant_limits"]["requests_left"], 60);
    assert_eq!(me["key_limits"]["requests_left"], json!(null));
    assert_eq!(me["budgets"][0]["left_tokens"], 1000);
    assert_eq!(me["pools"][0]["in_flight"], 0);

    let _in_flight = it.submit("c1", "a", "chat", 100).await.expect("granted");
    let waiting = it.submit("b1", "b", "batch", 70);
    it.until(1, 1).await;
    // The sight that the first look took may be shown for a fifth of a second.
    let me = loop {
        let me = it.as_key(&chat, "GET", "/api/v1/me", json!(null)).await.expect(200);
        if me["pools"][0]["in_flight"] == 1 {
            break me;
        }
    };
    let pool = &me["pools"][0];
    assert_eq!((&pool["weight_share"], &pool["slot_cap"]), (&json!(0.75), &json!(5)));
    assert_eq!(
        pool["why"],
        "tenant chat has weight 100 of 100, of 1 tenant(s) of its group that want something now; \
         group a has weight 300 of 400, of 2 group(s) that want something now"
    );
    assert!(!me.to_string().contains("batch"));
    waiting.abort();
}

/// A full pool concerns all requests, so this is said only once.
#[tokio::test]
async fn in_a_full_pool_nobody_is_called_blocked() {
    let it = Fixture::with(|config| config.upstreams[0].slots = Some(1)).await;
    it.tenant("a", "chat").await;
    let in_flight = it.submit("c1", "a", "chat", 100).await.expect("granted");
    let asking = it.submit("c2", "a", "chat", 50);
    it.until(1, 1).await;
    let found = it.get("/api/v1/requests/c2").await.expect(200);
    let levels = found["waiting"]["levels"].as_array().expect("levels");
    assert!(levels.iter().all(|level| level["readiness"] == "ready"), "{levels:?}");
    assert_eq!(found["story"][0], "the pool is full: 1 request in flight");
    assert!(!found["story"].to_string().contains("blocked"), "{}", found["story"]);
    // Where a slot is free and a flow cannot use it, the flow is told so.
    it.post("/api/v1/pools/sim/hold", json!({"by": "tenant", "flow": "chat"})).await.expect(200);
    drop(in_flight);
    it.until(0, 1).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let found = it.get("/api/v1/requests/c2").await.expect(200);
    let readiness = |level: usize| &found["waiting"]["levels"][level]["readiness"];
    assert_eq!((readiness(0), readiness(1)), (&json!("blocked"), &json!("held")));
    it.post("/api/v1/pools/sim/resume", json!({"by": "tenant", "flow": "chat"})).await.expect(200);
    drop(asking.await.expect("granted"));
}
