//! Tests of the stream of events.

use std::time::Duration;

use axum::body::Body;
use fairgate_core::units::Tokens;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::ledger::row;
use super::{Fixture, TOKEN, request};
use crate::support::SOON;

/// An open stream of events.
struct Reading {
    body: Body,
    text: String,
}

impl Reading {
    async fn of(it: &Fixture, key: &str, query: &str) -> Self {
        let path = format!("/api/v1/events{query}");
        let router = fairgate_control::admin::router(it.control_plane().clone());
        let answer = router.oneshot(request(Some(key), "GET", &path, json!(null))).await;
        let answer = answer.expect("routers answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self { body: answer.into_body(), text: String::new() }
    }

    /// Returns the next event: its name and its data.
    async fn next(&mut self) -> (String, Value) {
        let reading = async {
            loop {
                if let Some((event, rest)) = self.text.split_once("\n\n") {
                    let field = |name: &str| {
                        let mut lines = event.lines();
                        lines.find_map(|line| line.strip_prefix(name)).map(str::to_owned)
                    };
                    let (name, data) = (field("event: "), field("data: "));
                    self.text = rest.to_owned();
                    if let Some((name, data)) = name.zip(data) {
                        return (name, serde_json::from_str(&data).expect("JSON"));
                    }
                    continue;
                }
                let frame = self.body.frame().await.expect("more").expect("no error");
                let bytes = frame.into_data().expect("data");
                self.text.push_str(std::str::from_utf8(&bytes).expect("text"));
            }
        };
        tokio::time::timeout(SOON, reading).await.expect("an event in time")
    }

    /// Returns the next event of this name.
    async fn next_of(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().await;
            if name == wanted {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn the_first_event_is_whole_and_later_ones_have_what_changed() {
    let it = Fixture::with(|config| config.pools[0].capacity = 1).await;
    it.tenant("prod", "chat").await;
    it.tenant("prod", "batch").await;
    let one = it.submit("c1", "prod", "chat", 10).await.expect("granted");
    let two = it.submit("b1", "prod", "batch", 10);
    it.until(1, 1).await;
    let mut reading = Reading::of(&it, TOKEN, "?kinds=live,audit").await;
    let whole = reading.next_of("live").await;
    assert_eq!(whole["full"], true);
    let pool = &whole["pools"][0];
    assert_eq!((&pool["pool"], &pool["in_flight"]), (&json!("sim"), &json!(1)));
    assert_eq!(pool["tenants"].as_array().expect("rows").len(), 2);
    assert_eq!((pool.get("global_queued"), pool["tenants"][0].get("queued")), (None, None));
    one.settle(Tokens(10));
    let two = two.await.expect("granted");
    let change = loop {
        let change = reading.next_of("live").await;
        assert_eq!(change["full"], false);
        let rows = change["pools"][0]["tenants"].as_array().cloned().unwrap_or_default();
        if let Some(row) =
            rows.into_iter().find(|row| row["tenant"] == "batch" && row["in_flight"] == 1)
        {
            break row;
        }
    };
    assert_eq!(change["waiting"], 0);
    it.patch("/api/v1/tenants/chat", json!({"weight": 7})).await.expect(200);
    let entry = reading.next_of("audit").await;
    assert_eq!((&entry["action"], &entry["subject"]), (&json!("tenant.patch"), &json!("chat")));
    two.settle(Tokens(10));
}

#[tokio::test]
async fn a_tenant_reads_its_own_and_nothing_else() {
    let it = Fixture::with(|config| config.pools[0].capacity = 1).await;
    it.tenant("prod", "chat").await;
    it.tenant("prod", "others-tenant").await;
    let (_, key) = it.key("chat").await;
    let theirs = it.submit("b1", "prod", "others-tenant", 10).await.expect("granted");
    let mine = it.submit("c1", "prod", "chat", 10);
    it.until(1, 1).await;
    let mut reading = Reading::of(&it, &key, "").await;
    let whole = reading.next_of("live").await;
    let pool = &whole["pools"][0];
    assert_eq!((&pool["pool"], &pool["waiting"]), (&json!("sim"), &json!(1)));
    assert!(!whole.to_string().contains("others-tenant"), "{whole}");
    theirs.settle(Tokens(10));
    let mine = mine.await.expect("granted");
    let change = reading.next_of("live").await;
    assert!(!change.to_string().contains("others-tenant"), "{change}");
    mine.settle(Tokens(10));
    for kinds in ["audit", "fleet", "live,audit"] {
        let path = format!("/api/v1/events?kinds={kinds}");
        let answer = it.as_key(&key, "GET", &path, json!(null)).await;
        assert_eq!(answer.refused(403), "admin_only", "{kinds}");
    }
    assert_eq!(it.get("/api/v1/events?kinds=loud").await.refused(400), "invalid_query");
}

/// Ends this number of attempts at once.
fn end_attempts(it: &Fixture, count: u64) {
    for number in 0..count {
        it.app().ended.tell(&row(&format!("r{number}"), "chat", 1));
    }
}

#[tokio::test]
async fn a_slow_reader_is_told_how_much_it_missed_and_begins_anew() {
    let it = Fixture::new().await;
    let mut slow = Reading::of(&it, TOKEN, "?kinds=live,ended").await;
    let mut quick = Reading::of(&it, TOKEN, "?kinds=ended").await;
    assert_eq!(slow.next_of("live").await["full"], true);
    // The slow reader takes nothing while more attempts end than are kept for it.
    let ended = 1000;
    end_attempts(&it, ended);
    for _ in 0..ended {
        quick.next_of("ended").await;
    }
    let gap = slow.next_of("gap").await;
    assert_eq!(gap["kinds"], json!(["live", "ended"]));
    let missed = gap["missed"].as_u64().expect("a number");
    let mut told = 0;
    let live = loop {
        match slow.next().await {
            (name, _) if name == "ended" => told += 1,
            (name, live) if name == "live" => break live,
            (name, data) => panic!("{name}: {data}"),
        }
    };
    assert_eq!(live["full"], true, "what changed meanwhile is not known");
    assert!(told >= 500 && told + missed >= ended, "{told} told, {missed} missed");
}

/// More attempts end at once than the gateway keeps for the task that sends them to readers.
#[tokio::test]
async fn what_no_reader_can_be_told_is_counted_as_missed() {
    let it = Fixture::new().await;
    let mut reading = Reading::of(&it, TOKEN, "?kinds=live,ended").await;
    reading.next_of("live").await;
    let ended = 1500;
    end_attempts(&it, ended);
    let (mut told, mut missed) = (0, 0);
    while told + missed < ended {
        match reading.next().await {
            (name, _) if name == "ended" => told += 1,
            (name, data) if name == "gap" => {
                missed += data["missed"].as_u64().expect("a number");
            }
            (name, _) => assert_eq!(name, "live"),
        }
    }
    assert!(told > 0 && missed > 0, "{told} told, {missed} missed");
}

/// Waits a second, and returns the change of the fleet that is sent then, if there is one.
async fn change_after_a_second(reading: &mut Reading) -> Option<Value> {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::time::resume();
    tokio::time::timeout(Duration::from_millis(30), reading.next_of("fleet")).await.ok()
}

/// Returns the next change of the fleet.
async fn next_change(reading: &mut Reading) -> Value {
    loop {
        if let Some(change) = change_after_a_second(reading).await {
            return change;
        }
    }
}

#[tokio::test]
async fn changes_of_the_fleet_are_told_to_the_admin() {
    let it = Fixture::new().await;
    it.tenant("prod", "chat").await;
    let mut reading = Reading::of(&it, TOKEN, "?kinds=live,fleet").await;
    reading.next_of("live").await;
    // The first look finds what there is, and the second one what has changed since. Either may come first here.
    for number in 0.. {
        it.post("/api/v1/agents", json!({"id": format!("a{number}")})).await.expect(201);
        if change_after_a_second(&mut reading).await.is_some() {
            break;
        }
    }
    it.post("/api/v1/projects", json!({"id": "web", "tenant": "chat"})).await.expect(201);
    let change = loop {
        let change = next_change(&mut reading).await;
        if change["projects"].is_array() {
            break change;
        }
    };
    let project = &change["projects"][0];
    assert_eq!((&project["id"], &project["tenant"]), (&json!("web"), &json!("chat")));
    assert!(change["at"].is_string() && change.get("gone").is_none(), "{change}");
    it.patch("/api/v1/projects/web", json!({"status": "ARCHIVED"})).await.expect(200);
    let change = next_change(&mut reading).await;
    assert_eq!((&change["gone"], change.get("agents")), (&json!({"projects": ["web"]}), None));
}
