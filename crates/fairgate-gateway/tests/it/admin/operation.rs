//! Tests of pools, holds, reloads and health.

use std::time::Duration;

use fairgate_config::{
    Config, ConfigError, ConfigErrors, FilePosition, HealthConfig, ReloadPlan, SettingChange,
};
use fairgate_control::control_plane::{
    AppliedReload, CheckFuture, ConfigPreview, ConfigReloader, ReloadFuture,
};
use fairgate_core::attribute::Attribute;
use fairgate_store::DeclarationPlan;
use serde_json::json;

use super::{Fixture, request};
use crate::support::log::Log;

#[tokio::test]
async fn pools_show_their_workers() {
    let it = Fixture::new().await;
    let pool = it.get("/api/v1/pools/sim").await.expect(200);
    assert_eq!((&pool["name"], &pool["capacity"]), (&json!("sim"), &json!(8)));
    assert_eq!(pool["models"], json!(["sim"]));
    assert_eq!(
        pool["workers"],
        json!([{
            "name": "sim", "state": "up", "reason": null, "source": "file", "address": "http://127.0.0.1:9/",
            "in_flight": 0, "prefill_tokens": 0, "slots": 8, "slots_reason": null, "engine": null, "cache": null, "cache_size": null, "tier": 0, "quota": null, "models": [], "down_since": null, "retry_at": null,
        }])
    );
    assert_eq!(pool["journal"]["status"], "writing");
    assert_eq!(it.get("/api/v1/pools").await.expect(200)["items"][0]["name"], "sim");
    assert_eq!(it.get("/api/v1/pools/none").await.refused(404), "not_found");
}

#[tokio::test]
async fn a_held_flow_waits_until_it_is_resumed() {
    let it = Fixture::new().await;
    it.tenant("a", "chat").await;
    let flow = json!({"by": "tenant", "flow": "chat"});
    let held = it.post("/api/v1/pools/sim/hold", flow.clone()).await.expect(200);
    assert_eq!(held, json!({"pool": "sim", "by": "tenant", "flow": "chat", "held": true}));
    let asking = it.submit("c1", "a", "chat", 5);
    it.until(0, 1).await;
    let snapshot = it.app().pools.all()[0].gate.snapshot().await.expect("a pool");
    assert_eq!(snapshot.holds, [(Attribute::Tenant, "chat".into())]);
    let trail = it.get("/api/v1/audit?limit=1").await.expect(200);
    let entry = &trail["items"][0];
    assert_eq!((&entry["action"], &entry["subject"]), (&json!("pool.hold"), &json!("sim")));
    assert_eq!(entry["before"], json!({"by": "tenant", "flow": "chat", "held": false}));
    assert_eq!(entry["after"], json!({"by": "tenant", "flow": "chat", "held": true}));
    it.post("/api/v1/pools/sim/resume", flow.clone()).await.expect(200);
    drop(asking.await.expect("granted"));
    assert_eq!(it.post("/api/v1/pools/none/hold", flow.clone()).await.refused(404), "not_found");
    // Nobody is stopped by a name that nobody has.
    for by in ["group", "tenant", "key"] {
        let typo = json!({"by": by, "flow": "nobody"});
        assert_eq!(it.post("/api/v1/pools/sim/hold", typo.clone()).await.refused(404), "not_found");
        it.post("/api/v1/pools/sim/resume", typo).await.expect(200);
    }
    assert_eq!(it.post("/api/v1/pools/none/resume", flow).await.refused(404), "not_found");
    for wrong in [
        json!({"by": "color", "flow": "x"}),
        json!({"by": "tenant", "flow": ""}),
        json!({"by": "tenant"}),
    ] {
        assert_eq!(it.post("/api/v1/pools/sim/hold", wrong).await.refused(422), "invalid_value");
    }
}

#[tokio::test]
async fn health_and_readiness_need_no_token() {
    let it = Fixture::new().await;
    let ask = async |path: &str| it.send(request(None, "GET", path, json!(null))).await;
    assert_eq!(ask("/healthz").await.expect(200), json!({"status": "ok"}));
    assert_eq!(
        ask("/readyz").await.expect(200),
        json!({"ready": true, "reasons": [], "degraded": [], "warnings": []})
    );
}

#[tokio::test]
async fn a_pool_without_a_worker_does_not_take_the_others_out_of_service() {
    let check = HealthConfig {
        path: "/health".into(),
        every: Duration::from_secs(1000),
        timeout: Duration::from_secs(5),
        unhealthy_after: 1,
        healthy_after: 1,
    };
    // Nobody is at the fixture's address: what is checked is down.
    let until_down = async |change: fn(&mut Config)| {
        let it = Fixture::with(|config| {
            config.upstreams[0].health = Some(check.clone());
            change(config);
        })
        .await;
        let pool = it.app().pools.named("sim").expect("a pool");
        while pool.workers()[0].state == "up" {
            tokio::task::yield_now().await;
        }
        it
    };
    let it = until_down(|_| {}).await;
    let none = json!({
        "ready": false, "reasons": ["no pool has a worker that is up"], "degraded": ["sim"],
        "warnings": [],
    });
    assert_eq!(it.get("/readyz").await.expect(503), none);
    let it = until_down(|config| {
        let mut other = config.upstreams[0].clone();
        (other.name, other.health) = ("other".into(), None);
        config.upstreams.push(other);
        let mut pool = config.pools[0].clone();
        (pool.name, pool.workers) = ("other".into(), vec!["other".into()]);
        pool.models[0].name = "other".into();
        config.pools.push(pool);
    })
    .await;
    let one = json!({"ready": true, "reasons": [], "degraded": ["sim"], "warnings": []});
    assert_eq!(it.get("/readyz").await.expect(200), one);
}

struct Always(Result<ReloadPlan, ConfigErrors>);

impl ConfigReloader for Always {
    fn reload<'a>(&'a self, _: &'a str, _: bool) -> ReloadFuture<'a> {
        let reloaded = self.0.clone().map(|plan| AppliedReload { plan, directory: Vec::new() });
        Box::pin(async { reloaded })
    }

    fn check(&self, _: String) -> CheckFuture<'_> {
        let directory = DeclarationPlan::default();
        let checked = self.0.clone().map(|plan| ConfigPreview { plan, directory });
        Box::pin(async { checked })
    }
}

#[tokio::test]
async fn a_reload_says_what_it_changed() {
    let it = Fixture::new().await;
    let reload = async || it.post("/api/v1/config/reload", json!(null)).await;
    assert_eq!(reload().await.refused(409), "no_config_file");
    let change =
        SettingChange { field: "pools.sim.capacity".into(), description: "8 → 9".into() };
    it.control_plane()
        .set_reloader(Always(Ok(ReloadPlan { changes: vec![change], ..ReloadPlan::default() })));
    assert_eq!(
        reload().await.expect(200),
        json!({"changes": ["pools.sim.capacity: 8 → 9"], "directory": []})
    );
}

#[tokio::test]
async fn a_bad_file_is_told_with_file_line_and_field() {
    let it = Fixture::new().await;
    let error = ConfigError {
        file: Some("fairgate.yaml".into()),
        place: Some(FilePosition { line: 5, column: 54 }),
        field: "pools[0].workers[0]".into(),
        message: "no upstream is called \"vlm-a\"".into(),
    };
    it.control_plane().set_reloader(Always(Err(error.into())));
    let log = Log::here();
    let refused = it.post("/api/v1/config/reload", json!(null)).await.expect(409);
    assert_eq!(refused["error"]["code"], "invalid_config");
    let problem = json!({
        "file": "fairgate.yaml", "line": 5, "column": 54, "field": "pools[0].workers[0]",
        "message": "no upstream is called \"vlm-a\"",
    });
    assert_eq!(refused["error"]["problems"], json!([problem]));
    let said = log.lines("the configuration is not reloaded");
    assert_eq!(said.len(), 1);
    assert!(
        said[0].starts_with("ERROR")
            && said[0].contains("fairgate.yaml:5:54: pools[0].workers[0]: ")
    );
}

/// A change of a weight or cap is an event of the pool: the service that flows got, and their
/// credit, do not change.
#[tokio::test]
async fn weights_and_caps_of_classes_and_projects_keep_the_books() {
    let policy = r#"{"share":{"by":"class","classes":[{"name":"chat","weight":100},{"name":"batch","weight":100}],"default":"batch","inside":{"share":{"by":"project"}}}}"#;
    let it = Fixture::with(|config| {
        config.pools[0].policy = fairgate_journal::parse_policy(policy).expect("a policy");
    })
    .await;
    it.tenant("a", "chat").await;
    let first = it.submit("r1", "a", "chat", 500).await.expect("granted");
    first.settle(fairgate_core::units::Tokens(700));
    let live = async || {
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        it.get("/api/v1/fairshare/live").await.expect(200)
    };
    let class = |view: &serde_json::Value, name: &str| {
        let classes = view["classes"].as_array().expect("classes").clone();
        classes.into_iter().find(|class| class["name"] == name).expect("the class")
    };
    let before = class(&live().await, "batch");
    assert_eq!(before["got_tokens"], 700);
    // An idle class has no share.
    assert_eq!(before["weight_share"], json!(null));
    let set = json!({"by": "class", "flow": "batch", "weight": 300});
    let told = it.post("/api/v1/pools/sim/weight", set).await.expect(200);
    assert_eq!(told, json!({"pool": "sim", "by": "class", "flow": "batch", "weight": 300}));
    let set = json!({"by": "class", "flow": "batch", "slots": 1});
    it.post("/api/v1/pools/sim/cap", set).await.expect(200);
    let after = class(&live().await, "batch");
    assert_eq!((&after["weight"], &after["slot_cap"]), (&json!(300), &json!(1)));
    assert_eq!(after["got_tokens"], 700, "the books were zeroed");
    // The cap holds, also for projects.
    let holding = it.submit("r2", "a", "chat", 1).await.expect("granted");
    let waiting = it.submit("r3", "a", "chat", 1);
    it.until(1, 1).await;
    let remove = json!({"by": "class", "flow": "batch", "slots": null});
    it.post("/api/v1/pools/sim/cap", remove).await.expect(200);
    drop(waiting.await.expect("granted"));
    drop(holding);
    let set = json!({"by": "project", "flow": "web", "slots": 0});
    it.post("/api/v1/pools/sim/cap", set).await.expect(200);
    it.post("/api/v1/pools/sim/hold", json!({"by": "project", "flow": "web"})).await.expect(200);
    // What is kept elsewhere, or would have no effect, is refused.
    for (path, body) in [
        ("weight", json!({"by": "project", "flow": "web", "weight": 2})),
        ("weight", json!({"by": "tenant", "flow": "chat", "weight": 2})),
        ("weight", json!({"by": "agent", "flow": "x", "weight": 2})),
        ("cap", json!({"by": "key", "flow": "k", "slots": 2})),
    ] {
        let refused = it.post(&format!("/api/v1/pools/sim/{path}"), body.clone()).await;
        assert_eq!(refused.refused(409), "no_effect", "{body}");
    }
    let none = json!({"by": "class", "flow": "chat", "weight": 0});
    assert_eq!(it.post("/api/v1/pools/sim/weight", none).await.refused(422), "invalid_value");
    let unknown = json!({"by": "class", "flow": "none", "weight": 2});
    assert_eq!(it.post("/api/v1/pools/sim/weight", unknown).await.refused(404), "not_found");
    let audit = it.get("/api/v1/audit").await.expect(200).to_string();
    assert!(audit.contains("pool.weight") && audit.contains("pool.cap"), "{audit}");
}
