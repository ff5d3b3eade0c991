//! Tests of calls with task keys: their owner, when they are accepted, and what they may use.

use std::time::Duration;

use fairgate_config::Config;
use fairgate_journal::parse_policy;
use fairgate_money::{Currency, ModelPrices, PerMillion, Price, PriceRates};
use fairgate_sim::SimFault;
use fairgate_store::{
    AttemptOutcome, AttemptRow, DirectoryChange, DirectoryLimits, KeyHash, RowColumns,
    SqlValue as Sql, StoreError, TaskClaim, TenantPatch, Transaction, TransactionDurability,
    UnixMicros, UsageWindow,
};
use fairgate_time::wall_clock;
use http::StatusCode;
use serde_json::{Value, json};

use crate::support::client::{get, post};
use crate::support::scripted::Scripted;
use crate::support::{Folder, House, config, house_in, house_with, sim};

const CHAT: &str = "/v1/chat/completions";

fn chat(content: &str, max_tokens: u64) -> Value {
    let messages = json!([{"role": "user", "content": content}]);
    json!({"model": "sim", "messages": messages, "max_tokens": max_tokens})
}

fn usage(input: u64, output: u64) -> String {
    json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}})
        .to_string()
}

fn now() -> i64 {
    let since = wall_clock::since_1970();
    i64::try_from(since.as_micros()).unwrap()
}

impl House {
    async fn fleet(&self, statements: Vec<(&'static str, Vec<Sql>)>) {
        let work = move |transaction: &mut dyn Transaction| {
            for (sql, values) in &statements {
                assert_eq!(transaction.run(sql, values)?, 1, "{sql}");
            }
            Ok::<_, StoreError>(())
        };
        self.store.transact(TransactionDurability::ThroughKill, work).await.unwrap();
    }

    async fn project(&self, id: &str, weight: i64, budget: Option<i64>) {
        let bucket = UsageWindow::new(Duration::from_secs(24 * 3600)).bucket(UnixMicros(now()));
        let sql = "INSERT INTO fleet_projects (id, tenant, made, status, weight, concurrency, exclusive, agent_max, budget, \
             busy, baseline, baseline_at, window_bucket, window_tokens, window_oldest, window_completed, created_at) \
             VALUES ($1, 'acme', 1, 'ACTIVE', $2, 9, FALSE, '{}', $3, TRUE, 0, 0, $4, 0, 0, 0, 0)";
        let values = vec![id.into(), weight.into(), Sql::MaybeInt(budget), bucket.into()];
        self.fleet(vec![(sql, values)]).await;
    }

    /// Adds a task that no agent holds.
    async fn task(&self, id: &str, project: &str) {
        let sql = "INSERT INTO fleet_tasks (id, project, made, title, state, priority, retries, retries_max, \
             open_needs, affinity_wait, epoch, ended_epoch, reserved, used, used_before, calls, created_at) \
             VALUES ($1, $2, 1, '', 'READY', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)";
        let prompt = "INSERT INTO fleet_prompts (task, prompt) VALUES ($1, '')";
        self.fleet(vec![(sql, vec![id.into(), project.into()]), (prompt, vec![id.into()])]).await;
    }

    /// Gives a task to an agent with this reservation, and returns its task key.
    async fn claim(&self, task: &str, agent: &str, reserved: i64) -> String {
        let key = format!("fgt-{task}-{agent}-0123456789");
        let sql = "UPDATE fleet_tasks SET state = 'IN_PROGRESS', epoch = epoch + 1, agent = $1, key_hash = $2, \
             lease_until = $3, reserved = $4, used_before = used_before + used, used = 0 WHERE id = $5";
        let hash = KeyHash::of(key.as_bytes()).0.to_vec();
        let until = now() + 600_000_000;
        let values = vec![agent.into(), hash.into(), until.into(), reserved.into(), task.into()];
        self.fleet(vec![(sql, values)]).await;
        key
    }

    /// Adds a project with one task that an agent holds, and returns the task key.
    async fn one_task(&self, budget: Option<i64>, reserved: i64) -> String {
        self.project("web", 1000, budget).await;
        self.task("web-1", "web").await;
        self.claim("web-1", "bot", reserved).await
    }

    /// Returns the limit that was noted for a task: the seconds until its end, and its name.
    async fn limit(&self, task: &str) -> Option<(i64, String)> {
        let task = task.to_owned();
        let work = move |transaction: &mut dyn Transaction| {
            let sql = "SELECT resume_after, reason FROM fleet_tasks WHERE id = $1";
            let read = |row: &dyn RowColumns| Ok((row.int_or_null(0)?, row.text_or_null(1)?));
            Ok::<_, StoreError>(transaction.first(sql, &[task.into()], read)?.unwrap())
        };
        let (until, reason) = self.store.inspect(work).await.unwrap();
        Some(((until? - now()) / 1_000_000, reason.unwrap_or_default()))
    }

    async fn reason(&self, task: &str) -> Option<String> {
        let task = task.to_owned();
        let work = move |transaction: &mut dyn Transaction| {
            let sql = "SELECT reason FROM fleet_tasks WHERE id = $1";
            transaction.first(sql, &[task.into()], |row| row.text_or_null(0))
        };
        let found: Result<_, StoreError> = self.store.inspect(work).await;
        found.unwrap().flatten()
    }

    async fn used(&self, task: &str) -> (i64, i64, i64) {
        let task = task.to_owned();
        let work = move |transaction: &mut dyn Transaction| {
            let sql = "SELECT used, used_before, calls FROM fleet_tasks WHERE id = $1";
            let read = |row: &dyn RowColumns| Ok((row.int(0)?, row.int(1)?, row.int(2)?));
            Ok::<_, StoreError>(transaction.first(sql, &[task.into()], read)?.unwrap())
        };
        self.store.inspect(work).await.unwrap()
    }
}

fn claim_of(row: &AttemptRow) -> Option<(&str, &str, u64)> {
    row.claim.as_ref().map(|TaskClaim { project, task, epoch }| (&**project, &**task, *epoch))
}

/// A tenant was added at another server a moment ago. This server looks for changes every two
/// seconds.
#[tokio::test]
async fn the_task_keys_of_a_new_tenant_work_at_once() {
    let sim = sim();
    let house = house_with(&format!("http://{}", sim.addr()), |_| {}).await;
    let limits = DirectoryLimits::default();
    let (name, group) = ("newcomer".to_owned(), "group-acme".to_owned());
    let change =
        DirectoryChange::AddTenant { name, group, weight: 1, limits, requires: Vec::new() };
    house.store.change("another server", UnixMicros(now()), change).await.unwrap();
    let key = house.one_task(None, 1000).await;
    let sql = "UPDATE fleet_projects SET tenant = 'newcomer' WHERE id = 'web'";
    house.fleet(vec![(sql, Vec::new())]).await;
    let answer = post(CHAT, &chat("rivers", 9)).key(&key).ask(house.gateway.addr()).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    assert_eq!(house.rows_soon(1).await[0].tenant, "newcomer");
}

#[tokio::test]
async fn a_call_is_its_projects_whatever_its_headers_say() {
    let sim = sim();
    let house = house_with(&format!("http://{}", sim.addr()), |_| {}).await;
    let key = house.one_task(None, 1000).await;
    let addr = house.gateway.addr();
    let question = post(CHAT, &chat("rivers", 9))
        .key(&key)
        .header("x-fairgate-project", "other")
        .header("x-fairgate-tenant", "other")
        .header("x-fairgate-agent", "bot-7")
        .header("x-fairgate-session", "somebody else's");
    assert_eq!(question.ask(addr).await.status, StatusCode::OK);
    let rows = house.rows_soon(1).await;
    let row = &rows[0];
    assert_eq!((&*row.group, &*row.tenant, &*row.key), ("group-acme", "acme", "project:web"));
    // The claim says which agent calls, and the task is its session.
    let names = (row.agent.as_deref(), row.session.as_deref());
    assert_eq!((claim_of(row), names), (Some(("web", "web-1", 1)), (Some("bot"), Some("web-1"))));
    let used = i64::try_from(row.provider_tokens).unwrap();
    assert!(used > 0);
    assert_eq!(house.used("web-1").await, (used, 0, 1));

    let admin = house.gateway.admin_addr();
    let asked = |path| async move { get(path).key("admin").ask(admin).await.json() };
    let sums = asked("/api/v1/usage?by=project").await;
    assert_eq!(sums["rows"][0]["name"], "web");
    assert_eq!(sums["rows"][0]["provider_tokens"], used);
    let rows = asked("/api/v1/attempts?project=web&task=web-1").await;
    let row = &rows["items"][0];
    assert_eq!(
        (&row["project"], &row["task"], &row["epoch"]),
        (&json!("web"), &json!("web-1"), &json!(1))
    );
    assert!(asked("/api/v1/attempts?project=app").await["items"].as_array().unwrap().is_empty());
    let metrics = get("/metrics").key("admin").ask(admin).await.text();
    assert!(metrics.contains("fairgate_project_requests_total{project=\"web\"} 1"), "{metrics}");
    let told = format!("fairgate_project_provider_tokens_total{{project=\"web\"}} {used}");
    assert!(metrics.contains(&told), "{metrics}");
    assert!(!get("/metrics").ask(admin).await.text().contains("project=\"web\""));

    // It opens the models, and nothing of the admin API.
    assert_eq!(get("/v1/models").key(&key).ask(addr).await.status, StatusCode::OK);
    let me = get("/api/v1/me").key(&key).ask(admin).await;
    assert_eq!(me.status, StatusCode::UNAUTHORIZED);
    house.close().await;
}

/// A policy by agent uses the agents of claims, whatever names the clients send.
#[tokio::test]
async fn a_policy_by_agent_shares_between_the_agents_of_claims() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| {
        config.pools[0].capacity = 1;
        // Bounds the names that clients choose, and these are not chosen by clients.
        config.limits.names_per_key_max = 0;
        config.pools[0].policy =
            parse_policy(r#"{"share":{"by":"tenant","inside":{"share":{"by":"agent"}}}}"#).unwrap();
    })
    .await;
    house.project("web", 1000, None).await;
    let mut keys = Vec::new();
    for (task, agent) in [("web-1", "ada"), ("web-2", "ben")] {
        house.task(task, "web").await;
        keys.push(house.claim(task, agent, 10_000).await);
    }
    let addr = house.gateway.addr();
    let ask = |key: &str, name: &str| {
        let question = post(CHAT, &chat(name, 9)).key(key).header("x-fairgate-agent", name);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let mut answers = vec![ask(&keys[0], "blocker")];
    let blocker = upstream.call().await;
    // Ada calls herself something new in each request, and would have a flow for each.
    for name in ["ada-1", "ada-2", "ada-3", "ada-4"] {
        answers.push(ask(&keys[0], name));
    }
    house.until(|live| live.waiting == 4).await;
    answers.push(ask(&keys[1], "ben"));
    house.until(|live| live.waiting == 5).await;
    blocker.answer(200, "application/json", usage(10, 9));
    let mut order = Vec::new();
    for _ in 0..5 {
        let call = upstream.call().await;
        let body: Value = serde_json::from_slice(call.request.body()).unwrap();
        order.push(body["messages"][0]["content"].as_str().unwrap().to_owned());
        call.answer(200, "application/json", usage(10, 9));
    }
    assert_eq!(order[0], "ben", "{order:?}");
    for answer in answers {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

/// A task key may choose what its project may choose, and nothing else.
#[tokio::test]
async fn a_task_key_has_its_projects_rights() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].policy = parse_policy(
            r#"{"share":{"by":"class","classes":[{"name":"batch","weight":1},{"name":"chat","weight":1}]}}"#,
        )
        .unwrap();
    })
    .await;
    let key = house.one_task(None, 1000).await;
    let addr = house.gateway.addr();
    let refusal = async |header: Option<(&str, &str)>, model: &str| {
        let mut body = chat("rivers", 9);
        body["model"] = json!(model);
        let mut question = post(CHAT, &body).key(&key);
        if let Some((name, value)) = header {
            question = question.header(name, value);
        }
        let answer = question.ask(addr).await;
        if answer.status == StatusCode::OK { "ok".to_owned() } else { answer.code() }
    };
    let class = Some(("x-fairgate-class", "chat"));
    let priority = Some(("x-fairgate-priority", "3"));
    assert_eq!(refusal(None, "sim").await, "ok");
    assert_eq!(refusal(Some(("x-fairgate-class", "batch")), "sim").await, "ok", "the default");
    assert_eq!(refusal(class, "sim").await, "class_not_allowed");
    assert_eq!(
        refusal(Some(("x-dynamo-meta-policy-class", "chat")), "sim").await,
        "class_not_allowed"
    );
    assert_eq!(refusal(priority, "sim").await, "priority_not_allowed");
    assert_eq!(refusal(Some(("x-fairgate-worker", "sim")), "sim").await, "pin_not_allowed");
    let lease = post("/v1/leases", &json!({"cost": 5})).key(&key).ask(addr).await;
    assert_eq!((lease.status, &*lease.code()), (StatusCode::FORBIDDEN, "lease_not_allowed"));

    // Opened in one step; the gateway knows within two seconds.
    let rights =
        json!({"classes": ["chat"], "priority_max": 3, "models": ["sim"], "may_lease": true});
    let mut patch = post("/api/v1/projects/web", &json!({"rights": rights})).key("admin");
    patch = patch.header("content-type", "application/json");
    patch.method = http::Method::PATCH;
    let set = patch.ask(house.gateway.admin_addr()).await;
    assert_eq!(set.status, StatusCode::OK, "{}", set.text());
    assert_eq!(set.json()["rights"]["classes"], json!(["chat"]));
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(refusal(class, "sim").await, "ok");
    assert_eq!(refusal(priority, "sim").await, "ok");
    assert_eq!(refusal(Some(("x-fairgate-class", "batch")), "sim").await, "class_not_allowed");
    let answer = post(CHAT, &json!({"model": "other", "messages": []})).key(&key).ask(addr).await;
    assert!(["model_not_allowed", "model_not_found"].contains(&&*answer.code()));
    let lease = post("/v1/leases", &json!({"cost": 5})).key(&key).ask(addr).await;
    assert_eq!(&*lease.code(), "lease_pool_not_found", "it may, and there is no such pool");
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn a_task_key_has_the_default_class_of_a_strict_order() {
    let sim = sim();
    let house = house_with(&sim.url(), |config| {
        config.pools[0].policy = parse_policy(
            r#"{"bands":{"by":"class","classes":[{"name":"chat"},{"name":"agents"}],"default":"agents"}}"#,
        )
        .unwrap();
    })
    .await;
    let key = house.one_task(None, 1000).await;
    let addr = house.gateway.addr();
    let ask = || post(CHAT, &chat("rivers", 9)).key(&key);
    let refused = ask().header("x-fairgate-class", "chat").ask(addr).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (StatusCode::FORBIDDEN, "class_not_allowed")
    );
    assert!(refused.text().contains("It may name: \\\"agents\\\""), "{}", refused.text());
    assert_eq!(ask().ask(addr).await.status, StatusCode::OK);
    let named = ask().header("x-fairgate-class", "agents").ask(addr).await;
    assert_eq!(named.status, StatusCode::OK);
    let rows = house.rows_soon(3).await;
    let classes: Vec<_> = rows.iter().skip(1).map(|row| row.class.as_deref()).collect();
    assert_eq!(classes, [Some("agents"), Some("agents")]);
    house.close().await;
    sim.stop().await;
}

#[tokio::test]
async fn what_is_under_way_names_its_task() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| config.pools[0].capacity = 1).await;
    let key = house.one_task(None, 1000).await;
    let (addr, admin) = (house.gateway.addr(), house.gateway.admin_addr());
    let ask = |key: &str| {
        let question = post(CHAT, &chat("rivers", 9)).key(key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let mut asked = vec![ask(&key)];
    let mut call = upstream.call().await;
    asked.extend([ask(&key), ask(&house.key)]);
    house.until(|live| live.waiting == 2).await;
    let look = |path: String| async move { get(&path).key("admin").ask(admin).await.json() };
    let list = look("/api/v1/requests".to_owned()).await;
    let items = list["items"].as_array().unwrap();
    let mut named: Vec<_> =
        items.iter().map(|item| (&item["project"], &item["task"], &item["state"])).collect();
    named.sort_by_key(|(_, task, state)| (task.is_null(), state.to_string()));
    let (web, task) = (json!("web"), json!("web-1"));
    let (in_flight, waiting) = (json!("in_flight"), json!("waiting"));
    let expected = [
        (&web, &task, &in_flight),
        (&web, &task, &waiting),
        (&Value::Null, &Value::Null, &waiting),
    ];
    assert_eq!(named, expected, "{list}");
    for item in items.iter().filter(|item| item["project"] == "web") {
        let path = format!("/api/v1/requests/{}", item["id"].as_str().unwrap());
        assert_eq!(look(path).await["request"]["task"], "web-1");
    }
    let live = look("/api/v1/fairshare/live".to_owned()).await;
    let projects = live["pools"][0]["projects"].as_array().unwrap();
    assert_eq!(projects.len(), 1, "{live}");
    let web = &projects[0];
    assert_eq!(
        (&web["name"], &web["in_flight"], &web["queued"]),
        (&json!("web"), &json!(1), &json!(1))
    );
    for left in (0..3).rev() {
        call.answer(200, "application/json", usage(1, 1));
        if left == 0 {
            break;
        }
        call = upstream.call().await;
    }
    for answer in asked {
        assert_eq!(answer.await.unwrap().status, StatusCode::OK);
    }
    house.close().await;
}

#[tokio::test]
async fn a_zombie_spends_nothing() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |_| {}).await;
    let old = house.one_task(None, 1000).await;
    let addr = house.gateway.addr();
    let ask = |key: &str| {
        let question = post(CHAT, &chat("rivers", 9)).key(key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(&old);
    upstream.call().await.answer(200, "application/json", usage(10, 5));
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    // The gateway knows the old key from a moment ago. The store does not grant it anything.
    let next = house.claim("web-1", "other", 1000).await;
    let refused = ask(&old).await.unwrap();
    assert_eq!((refused.status, &*refused.code()), (StatusCode::UNAUTHORIZED, "lease_lost"));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert!(refused.text().contains("\\\"other\\\" has it now"), "{}", refused.text());
    assert!(!upstream.has_call());
    let second = ask(&next);
    upstream.call().await.answer(200, "application/json", usage(20, 5));
    assert_eq!(second.await.unwrap().status, StatusCode::OK);
    assert_eq!(house.used("web-1").await, (25, 15, 2));
    // A key that nobody has is told the same.
    let unknown = ask("fgt-nobody").await.unwrap();
    assert_eq!((unknown.status, &*unknown.code()), (StatusCode::UNAUTHORIZED, "lease_lost"));
    // The lease ran out, and no round has looked at it yet.
    house.fleet(vec![("UPDATE fleet_tasks SET lease_until = 5", Vec::new())]).await;
    let late = ask(&next).await.unwrap();
    // The fleet has not ended it yet, and a heartbeat may renew it.
    assert_eq!((late.status, &*late.code()), (StatusCode::SERVICE_UNAVAILABLE, "lease_unclear"));
    assert_eq!(late.header("retry-after"), Some("1"));
    assert!(!upstream.has_call());
    let rows = house.rows_soon(4).await;
    let refused: Vec<_> =
        rows.iter().filter(|row| row.outcome == AttemptOutcome::Refused).collect();
    let claims: Vec<_> = refused.iter().filter_map(|row| claim_of(row)).collect();
    assert_eq!(claims, [("web", "web-1", 1), ("web", "web-1", 2)]);
    assert!(refused.iter().all(|row| row.provider_tokens == 0));
    house.close().await;
}

#[tokio::test]
async fn who_loses_its_task_while_it_waits_is_not_served() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |config| config.pools[0].capacity = 1).await;
    let key = house.one_task(None, 1000).await;
    let addr = house.gateway.addr();
    let ask = |key: &str| {
        let question = post(CHAT, &chat("rivers", 9)).key(key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let in_flight = ask(&house.key);
    let call = upstream.call().await;
    let waiting = ask(&key);
    house.until(|live| live.waiting == 1).await;
    // Long enough that the claim is looked at again.
    tokio::time::sleep(Duration::from_millis(250)).await;
    let next = house.claim("web-1", "other", 1000).await;
    call.answer(200, "application/json", usage(1, 1));
    assert_eq!(in_flight.await.unwrap().status, StatusCode::OK);
    let refused = waiting.await.unwrap();
    assert_eq!((refused.status, &*refused.code()), (StatusCode::UNAUTHORIZED, "lease_lost"));
    assert!(!upstream.has_call());
    assert_eq!(house.used("web-1").await, (0, 0, 0));
    let served = ask(&next);
    upstream.call().await.answer(200, "application/json", usage(3, 4));
    assert_eq!(served.await.unwrap().status, StatusCode::OK);
    assert_eq!(house.used("web-1").await, (7, 0, 1));
    house.close().await;
}

#[tokio::test]
async fn calls_draw_from_the_task_and_the_project_has_a_budget() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |_| {}).await;
    let key = house.one_task(Some(2000), 1500).await;
    let addr = house.gateway.addr();
    let ask = |max_tokens| {
        let question = post(CHAT, &chat("rivers", max_tokens)).key(&key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    // What the task has set aside is not reserved a second time.
    let first = ask(1400);
    let call = upstream.call().await;
    let second = ask(600).await.unwrap();
    assert_eq!(second.code(), "project_budget_exhausted");
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS);
    // What is missing is only set aside.
    assert_eq!((second.header("retry-after"), second.header("x-should-retry")), (Some("2"), None));
    assert!(second.text().contains("\\\"web\\\" is 2000 tokens"), "{}", second.text());
    assert!(!upstream.has_call());
    // The agent may give up: its task then waits for the others, and this is no failure.
    let budget = "the project's or the fleet's budget is used up";
    let (seconds, reason) = house.limit("web-1").await.expect("a limit");
    assert!((50..=60).contains(&seconds) && reason == budget, "{seconds} s: {reason}");
    call.answer(200, "application/json", usage(10, 1890));
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    // 1900 of 2000 are used.
    let third = ask(300).await.unwrap();
    assert_eq!(third.code(), "project_budget_exhausted");
    assert_eq!(third.header("x-should-retry"), Some("false"));
    let after: u64 = third.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&after), "not before the next bucket begins to fade: {after}");
    let (seconds, reason) = house.limit("web-1").await.expect("a limit");
    let until = u64::try_from(seconds).unwrap();
    assert!(until >= after.max(60).saturating_sub(10) && reason == budget, "{until} s, {after} s");
    let never = ask(5000).await.unwrap();
    assert_eq!(
        (never.code().as_str(), never.header("retry-after")),
        ("project_budget_exhausted", None)
    );
    let fourth = ask(50);
    upstream.call().await.answer(200, "application/json", usage(10, 5));
    assert_eq!(fourth.await.unwrap().status, StatusCode::OK);
    assert_eq!(house.used("web-1").await, (1915, 0, 2));
    house.close().await;
}

#[tokio::test]
async fn many_calls_at_once_stay_within_the_fleets_budget() {
    let sim = sim();
    let budget = 3000;
    let house = house_with(&format!("http://{}", sim.addr()), |config| {
        config.fleet.budget = Some(budget);
    })
    .await;
    let mut keys = Vec::new();
    for project in ["web", "app"] {
        house.project(project, 1000, None).await;
        for number in 1..=2 {
            let task = format!("{project}-{number}");
            house.task(&task, project).await;
            keys.push(house.claim(&task, "bot", 100).await);
        }
    }
    let addr = house.gateway.addr();
    let asked: Vec<_> = (0..80)
        .map(|number| {
            let question = post(CHAT, &chat("rivers", 200)).key(&keys[number % keys.len()]);
            tokio::spawn(async move { question.ask(addr).await })
        })
        .collect();
    let (mut served, mut refused) = (0, 0);
    for asked in asked {
        let answer = asked.await.unwrap();
        match answer.status {
            StatusCode::OK => served += 1,
            _ => {
                assert_eq!(answer.code(), "project_budget_exhausted");
                assert!(answer.text().contains("all projects together"), "{}", answer.text());
                refused += 1;
            }
        }
    }
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    let rows = house.rows_soon(80).await;
    let used: u64 = rows.iter().map(|row| row.provider_tokens).sum();
    assert!(used <= budget, "{used}");
    let mut of_tasks = 0;
    for task in ["web-1", "web-2", "app-1", "app-2"] {
        of_tasks += house.used(task).await.0;
    }
    assert_eq!(of_tasks, i64::try_from(used).unwrap());
    house.close().await;
}

#[tokio::test]
async fn a_tenants_state_and_limits_hold_for_its_tasks() {
    let sim = sim();
    let folder = Folder::new();
    let configuration = config(&folder, &format!("http://{}", sim.addr()));
    let limits = DirectoryLimits { requests_per_minute: Some(2), ..DirectoryLimits::default() };
    let house = house_in(folder, configuration, limits).await;
    let key = house.one_task(None, 1000).await;
    let addr = house.gateway.addr();
    let ask = || post(CHAT, &chat("rivers", 9)).key(&key);
    assert_eq!(ask().ask(addr).await.status, StatusCode::OK);
    assert_eq!(ask().ask(addr).await.status, StatusCode::OK);
    assert_eq!(ask().ask(addr).await.code(), "rate_limited_requests");
    let patch = TenantPatch { disabled: Some(true), ..TenantPatch::default() };
    house.change(DirectoryChange::PatchTenant { name: "acme".into(), patch }).await;
    let disabled = ask().ask(addr).await;
    assert_eq!((disabled.status, &*disabled.code()), (StatusCode::FORBIDDEN, "tenant_disabled"));
    house.close().await;
}

fn by_project(config: &mut Config) {
    let policy = r#"{"share":{"by":"tenant","inside":{"share":{"by":"project"}}}}"#;
    config.pools[0].policy = parse_policy(policy).unwrap();
    config.pools[0].capacity = 1;
}

#[tokio::test]
async fn two_projects_of_one_tenant_share_by_their_weights() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), by_project).await;
    let mut keys = Vec::new();
    for (project, weight) in [("web", 3000), ("app", 1000)] {
        house.project(project, weight, None).await;
        let task = format!("{project}-1");
        house.task(&task, project).await;
        keys.push(house.claim(&task, "bot", 1_000_000).await);
    }
    house.gateway.data_plane().directory_sync.refresh().await.unwrap();
    let addr = house.gateway.addr();
    let ask = |key: &str, content: &str| {
        let question = post(CHAT, &chat(content, 50)).key(key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let mut asked = vec![ask(&house.key, "first")];
    let mut call = upstream.call().await;
    for _ in 0..16 {
        asked.extend([ask(&keys[0], "of web"), ask(&keys[1], "of app")]);
    }
    house.until(|live| live.waiting == 32).await;
    let live = get("/api/v1/requests").key("admin").ask(house.gateway.admin_addr()).await.json();
    let items = live["items"].as_array().unwrap();
    assert_eq!(items.iter().filter(|item| item["project"] == "app").count(), 16);
    let mut of_web = 0;
    for granted in 0..32 {
        call.answer(200, "application/json", usage(10, 50));
        call = upstream.call().await;
        let is_web = String::from_utf8_lossy(call.request.body()).contains("of web");
        of_web += usize::from(is_web && granted < 16);
    }
    call.answer(200, "application/json", usage(10, 50));
    for asked in asked {
        assert_eq!(asked.await.unwrap().status, StatusCode::OK);
    }
    assert!(
        (11..=13).contains(&of_web),
        "{of_web} of the first 16 are for the project of weight 3"
    );
    house.close().await;
}

#[tokio::test]
async fn a_providers_limit_is_noted_for_the_task() {
    let sim = sim();
    let house = house_with(&format!("http://{}", sim.addr()), |_| {}).await;
    let key = house.one_task(None, 1000).await;
    sim.set_fault(SimFault::Status { code: 429, retry_after_seconds: Some(900) });
    let before = now();
    let answer = post(CHAT, &chat("rivers", 9)).key(&key).ask(house.gateway.addr()).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{}", answer.text());
    let task = get("/api/v1/tasks/web-1").key("admin").ask(house.gateway.admin_addr()).await.json();
    let until = task["resume_after"].as_i64().expect("a moment");
    let wait = until - before;
    assert!((900_000_000..960_000_000).contains(&wait), "{task}");
    house.close().await;
    sim.kill().await;
}

/// Caps count all claims of the task, and the tokens that calls in flight may still use.
#[tokio::test]
async fn a_task_may_use_no_more_than_its_cap() {
    let mut upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |_| {}).await;
    house.one_task(None, 100).await;
    let cap = "UPDATE fleet_tasks SET tokens_max = 2000, used = 500 WHERE id = 'web-1'";
    house.fleet(vec![(cap, Vec::new())]).await;
    // A second claim of the task: the first one used 500.
    let key = house.claim("web-1", "bot", 100).await;
    let addr = house.gateway.addr();
    let ask = |max_tokens| {
        let question = post(CHAT, &chat("rivers", max_tokens)).key(&key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(1000);
    let call = upstream.call().await;
    let refused = ask(600).await.unwrap();
    assert_eq!(refused.code(), "task_cap_reached", "{}", refused.text());
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    assert!(
        refused.text().contains("at most 2000 tokens; 500 tokens are used"),
        "{}",
        refused.text()
    );
    assert_eq!(
        house.reason("web-1").await.as_deref(),
        Some("the task's cap of tokens or money is reached")
    );
    call.answer(200, "application/json", usage(10, 990));
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    let last = ask(400);
    upstream.call().await.answer(200, "application/json", usage(10, 400));
    assert_eq!(last.await.unwrap().status, StatusCode::OK);
    assert_eq!(ask(400).await.unwrap().code(), "task_cap_reached");
    house.close().await;
}

#[tokio::test]
async fn a_task_may_cost_no_more_than_its_cap() {
    let mut upstream = Scripted::start().await;
    let price = |config: &mut Config| {
        let currency = Currency::parse("USD").unwrap();
        let output = PerMillion::parse("1000").unwrap();
        let rates = PriceRates { output, ..PriceRates::default() };
        config.prices = ModelPrices::new(vec![Price::new("sim", None, currency, rates, None)]);
    };
    let house = house_with(&upstream.url(), price).await;
    let key = house.one_task(None, 100).await;
    // 1000 output tokens are 1 USD.
    let cap = "UPDATE fleet_tasks SET money_max = 1500000 WHERE id = 'web-1'";
    house.fleet(vec![(cap, Vec::new())]).await;
    let addr = house.gateway.addr();
    let ask = |max_tokens| {
        let question = post(CHAT, &chat("rivers", max_tokens)).key(&key);
        tokio::spawn(async move { question.ask(addr).await })
    };
    let first = ask(1000);
    upstream.call().await.answer(200, "application/json", usage(10, 1000));
    assert_eq!(first.await.unwrap().status, StatusCode::OK);
    let refused = ask(501).await.unwrap();
    assert_eq!(refused.code(), "task_cap_reached", "{}", refused.text());
    assert!(refused.text().contains("at most 1.50 USD; 1.00 USD are used"), "{}", refused.text());
    let last = ask(500);
    upstream.call().await.answer(200, "application/json", usage(10, 500));
    assert_eq!(last.await.unwrap().status, StatusCode::OK);
    house.close().await;
}

/// A model without a price would never reach a cap in money.
#[tokio::test]
async fn a_model_without_a_price_is_refused_under_a_cap_in_money() {
    let upstream = Scripted::start().await;
    let house = house_with(&upstream.url(), |_| {}).await;
    let key = house.one_task(None, 100).await;
    let cap = "UPDATE fleet_tasks SET money_max = 1500000 WHERE id = 'web-1'";
    house.fleet(vec![(cap, Vec::new())]).await;
    let refused = post(CHAT, &chat("rivers", 10)).key(&key).ask(house.gateway.addr()).await;
    assert_eq!(refused.code(), "model_has_no_price", "{}", refused.text());
    house.close().await;
}
