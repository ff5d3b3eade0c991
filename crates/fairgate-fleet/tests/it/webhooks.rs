//! Events for webhooks: what is written, when it is due, how often it is tried, and what is dropped.

use std::time::Duration;

use fairgate_api::fleet::{NewTask, ProjectPatch, TaskAction, TaskState, WebhookEventKind};
use fairgate_fleet::{
    Fleet, LimitCause, TaskFailure, TaskHeartbeat, TaskQuestion, WebhookDelivery, WebhookResult,
    WebhookSubscription,
};
use fairgate_store::{
    Budget, BudgetExhausted, BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, DirectoryChange,
    DirectoryLimits, GroupPatch, TaskClaim, TenantPatch,
};
use serde_json::Value;

use crate::world::{World, agent, on_every_database, task_of};

on_every_database![
    questions_and_blocked_tasks_are_told_without_texts,
    only_the_wanted_events_are_written,
    a_lost_agent_is_told_and_a_timeout_is_not,
    ten_tries_within_a_day,
    a_killed_server_loses_nothing,
    servers_share_the_events,
    what_is_too_much_is_dropped_and_counted,
    budgets_are_told_at_80_and_100_percent,
    a_refused_call_is_a_budget_at_100_percent,
    budgets_of_tenants_and_groups_are_told_once_over_all_servers,
    a_refusal_of_a_nearly_used_budget_is_100_percent,
    a_webhook_that_is_gone_keeps_events_for_a_day,
];

fn ops(events: &[WebhookEventKind]) -> WebhookSubscription {
    WebhookSubscription { name: "ops".into(), events: events.to_vec() }
}

fn told_of_all(world: &World) {
    world.fleet.set_webhooks(vec![ops(&WebhookEventKind::ALL)]);
}

async fn due(fleet: &Fleet) -> Vec<WebhookDelivery> {
    fleet.claim_webhook_events(vec![("ops".into(), 100)]).await.unwrap()
}

fn body(delivery: &WebhookDelivery) -> Value {
    serde_json::from_str(&delivery.body).unwrap()
}

async fn ask(world: &World, task: &str, by: &str) {
    let epoch = world.hold(task, by).await;
    let question = TaskQuestion { question: "Which secret colour?".into(), tokens: None };
    world.fleet.ask(&agent(by), task, epoch, question).await.unwrap();
}

/// Writes one event, and claims it.
async fn one_event(world: &World) -> WebhookDelivery {
    told_of_all(world);
    world.add(&["one"]).await;
    ask(world, "one", "a").await;
    due(&world.fleet).await.remove(0)
}

async fn settle(fleet: &Fleet, delivery: &WebhookDelivery, result: Result<(), &str>) {
    let result = match result {
        Ok(()) => WebhookResult::Delivered,
        Err(error) => WebhookResult::Failed(error.to_owned()),
    };
    fleet.settle_webhook_event(delivery.clone(), result).await.unwrap();
}

async fn questions_and_blocked_tasks_are_told_without_texts(world: World) {
    told_of_all(&world);
    let task = |id: &str| NewTask {
        title: Some("A secret title".into()),
        prompt: "A secret prompt".into(),
        retries: Some(0),
        ..task_of("p", Some(id))
    };
    world.add_all(vec![task("one"), task("two")]).await.unwrap();
    ask(&world, "one", "a").await;
    let epoch = world.hold("two", "b").await;
    let reason = Some("a secret reason".into());
    let failure = TaskFailure { reason, ..TaskFailure::default() };
    world.fleet.fail(&agent("b"), "two", epoch, failure).await.unwrap();
    let events = due(&world.fleet).await;
    let mut bodies: Vec<Value> = events.iter().map(body).collect();
    bodies.sort_by_key(|body| body["type"].to_string());
    for body in &bodies {
        assert_eq!(
            (&body["tenant"], &body["project"], &body["epoch"]),
            (&"t".into(), &"p".into(), &1.into())
        );
        assert_eq!(body["at"], world.now().0);
        assert!(!body.to_string().contains("secret"), "{body}");
    }
    let [blocked, question] = &bodies[..] else { panic!("{bodies:?}") };
    assert_eq!(
        (&blocked["type"], &blocked["task"], &blocked["agent"]),
        (&"blocked".into(), &"two".into(), &"b".into())
    );
    assert_eq!(
        (&question["type"], &question["task"], &question["agent"]),
        (&"question".into(), &"one".into(), &"a".into())
    );
    let ids: Vec<&str> = events.iter().map(|event| event.id.as_str()).collect();
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.starts_with("evt-") && id.len() == 36));
    for event in &events {
        assert_eq!((body(event)["id"].as_str(), event.tries), (Some(event.id.as_str()), 1));
        settle(&world.fleet, event, Ok(())).await;
    }
    let totals = world.fleet.webhook_totals().await.unwrap().remove(0);
    assert_eq!((totals.pending, totals.delivered, totals.failed, totals.dropped), (0, 2, 0, 0));
    assert_eq!(totals.delivered_at, Some(world.now()));
    // What a person does is no news to people.
    world.fleet.act("admin", "one", TaskAction::Answer { text: "blue".into() }).await.unwrap();
    world.fleet.act("admin", "one", TaskAction::Cancel { reason: None }).await.unwrap();
    world.pass(86_400);
    assert!(due(&world.fleet).await.is_empty());
}

async fn only_the_wanted_events_are_written(world: World) {
    world.add(&["one", "two"]).await;
    ask(&world, "one", "a").await;
    world.fleet.set_webhooks(vec![ops(&[WebhookEventKind::Blocked])]);
    ask(&world, "two", "b").await;
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_webhook_events").await, 0);
    // A reload applies to the next event.
    told_of_all(&world);
    world.add(&["three"]).await;
    ask(&world, "three", "a").await;
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_webhook_events").await, 1);
}

async fn a_lost_agent_is_told_and_a_timeout_is_not(world: World) {
    told_of_all(&world);
    tokio::spawn(world.fleet.run());
    let hung = NewTask { timeout_s: Some(5), retries: Some(0), ..task_of("q", Some("hung")) };
    world
        .add_all(vec![hung, NewTask { retries: Some(0), ..task_of("p", Some("lost")) }])
        .await
        .unwrap();
    for name in ["a", "b"] {
        let claim = world.fleet.claim(&agent(name), Duration::from_secs(5)).await.unwrap().unwrap();
        let beat = TaskHeartbeat::default();
        world.fleet.heartbeat(&agent(name), &claim.task, claim.epoch, beat).await.unwrap();
    }
    world.pass(70);
    // A round ends both leases.
    while world.state("lost").await != TaskState::Blocked
        || world.state("hung").await != TaskState::Blocked
    {
        let _ = world.fleet.claim(&agent("c"), Duration::ZERO).await.unwrap();
    }
    let events = due(&world.fleet).await;
    let mut told: Vec<String> = (events.iter().map(body))
        .map(|body| {
            format!("{} {}", body["type"].as_str().unwrap(), body["task"].as_str().unwrap())
        })
        .collect();
    told.sort_unstable();
    assert_eq!(told, ["agent_lost lost", "blocked hung", "blocked lost"]);
}

async fn ten_tries_within_a_day(world: World) {
    let mut event = one_event(&world).await;
    let began = world.now().0;
    for tries in 1..=10 {
        assert_eq!(event.tries, tries);
        settle(&world.fleet, &event, Err("it answered 500")).await;
        assert!(due(&world.fleet).await.is_empty(), "no pause after try {tries}");
        if tries == 10 {
            break;
        }
        let mut waited = 0;
        event = loop {
            world.pass(10);
            waited += 10;
            if let Some(event) = due(&world.fleet).await.pop() {
                break event;
            }
            assert!(waited < 13 * 3_600, "it is never tried again");
        };
        assert!(waited >= 30);
    }
    assert!(world.now().0 - began < 86_400 * 1_000_000);
    world.pass(86_400);
    assert!(due(&world.fleet).await.is_empty(), "an eleventh try");
    let totals = world.fleet.webhook_totals().await.unwrap().remove(0);
    assert_eq!((totals.pending, totals.delivered, totals.failed), (0, 0, 1));
    assert_eq!(totals.error.as_deref(), Some("it answered 500"));
    let failed = world.fleet.pending_webhook_events("ops").await.unwrap().remove(0);
    assert_eq!((failed.id, failed.tries, failed.next_try_at), (event.id, 10, None));
}

async fn a_killed_server_loses_nothing(world: World) {
    let event = one_event(&world).await;
    // The server is killed before it reports the result of any try; another one takes over.
    let another = world.another_fleet();
    for tries in 2..=10 {
        world.pass(13 * 3_600 / 10 * i64::from(tries));
        // The row is as it was, so its age must not end it here.
        world.sql("UPDATE fleet_webhook_events SET made_at = $1", vec![world.now().into()]).await;
        let again = due(&another).await.remove(0);
        assert_eq!((&again.id, &again.body, again.tries), (&event.id, &event.body, tries));
    }
    world.pass(600);
    assert!(due(&another).await.is_empty(), "the last try counts, whatever became of it");
    let totals = world.fleet.webhook_totals().await.unwrap().remove(0);
    assert_eq!((totals.pending, totals.failed), (0, 1));
}

async fn servers_share_the_events(world: World) {
    told_of_all(&world);
    for number in 0..30 {
        let task = format!("t{number}");
        world.add(&[&task]).await;
        ask(&world, &task, "a").await;
    }
    let another = world.fleet_on(world.another_store().await);
    let (mut all, mut rounds) = (Vec::new(), 0);
    while all.len() < 30 && rounds < 60 {
        let few = |fleet: Fleet| async move {
            fleet.claim_webhook_events(vec![("ops".into(), 4)]).await.unwrap()
        };
        let (one, other) = tokio::join!(few(world.fleet.clone()), few(another.clone()));
        all.extend(one.into_iter().chain(other).map(|event| event.id));
        rounds += 1;
    }
    all.sort_unstable();
    let count = all.len();
    all.dedup();
    assert_eq!((count, all.len()), (30, 30), "each event is claimed once");
}

async fn what_is_too_much_is_dropped_and_counted(world: World) {
    told_of_all(&world);
    let fill = |tenant: &'static str, count: u32| {
        let rows = (0..count).map(|n| {
            format!(
                "('ops', '{tenant}-{n}', '{tenant}', 'question', 0, 0, {}, '{{}}')",
                world.now().0
            )
        });
        let rows = rows.collect::<Vec<_>>().join(", ");
        format!(
            "INSERT INTO fleet_webhook_events (webhook, id, tenant, kind, made_at, tries, due_at, body) VALUES {rows}"
        )
    };
    world.sql(&fill("t", 250), Vec::new()).await;
    world.add(&["one"]).await;
    ask(&world, "one", "a").await;
    let count = "SELECT COUNT(*) FROM fleet_webhook_events";
    assert_eq!(world.number(count).await, 250, "a tenant has at most a quarter");
    // Another tenant has room all the same, until the webhook has as many as it may.
    world.add_all(vec![task_of("r", Some("two")), task_of("r", Some("three"))]).await.unwrap();
    ask(&world, "two", "b").await;
    assert_eq!(world.number(count).await, 251);
    for tenant in ["v", "w", "x"] {
        world.sql(&fill(tenant, 250), Vec::new()).await;
    }
    ask(&world, "three", "b").await;
    assert_eq!(world.number(count).await, 1_001, "two fewer than were wanted");
    let totals = world.fleet.webhook_totals().await.unwrap().remove(0);
    assert_eq!((totals.pending, totals.dropped), (1_001, 2));
}

async fn percents(world: &World) -> Vec<(u64, Option<String>)> {
    world.fleet.check_budgets().await.unwrap();
    let events = due(&world.fleet).await;
    let told = |event: &WebhookDelivery| {
        let body = body(event);
        assert_eq!(body["type"], "budget");
        (body["percent"].as_u64().unwrap(), body["project"].as_str().map(str::to_owned))
    };
    events.iter().map(told).collect()
}

async fn budgets_are_told_at_80_and_100_percent(world: World) {
    told_of_all(&world);
    let budget = |tokens| ProjectPatch { budget: Some(Some(tokens)), ..ProjectPatch::default() };
    world.fleet.patch_project("admin", "p", budget(1_000)).await.unwrap();
    world.add(&["one"]).await;
    let epoch = world.hold("one", "c").await;
    let report = async |tokens| {
        let beat = TaskHeartbeat { tokens: Some(tokens), ..TaskHeartbeat::default() };
        world.fleet.heartbeat(&agent("c"), "one", epoch, beat).await.unwrap();
    };
    let p = Some("p".to_owned());
    report(799).await;
    assert!(percents(&world).await.is_empty());
    report(800).await;
    assert_eq!(percents(&world).await, [(80, p.clone())]);
    assert!(percents(&world).await.is_empty(), "once");
    report(1_000).await;
    assert_eq!(percents(&world).await, [(100, p.clone())]);
    report(1_100).await;
    assert!(percents(&world).await.is_empty(), "once");
    // Another budget is told of anew.
    world.fleet.patch_project("admin", "p", budget(1_200)).await.unwrap();
    assert_eq!(percents(&world).await, [(80, p)]);
}

async fn a_refused_call_is_a_budget_at_100_percent(world: World) {
    told_of_all(&world);
    let patch = ProjectPatch { budget: Some(Some(600)), ..ProjectPatch::default() };
    world.fleet.patch_project("admin", "p", patch).await.unwrap();
    world.add(&["one"]).await;
    let epoch = world.hold("one", "a").await;
    let claim = TaskClaim { project: "p".into(), task: "one".into(), epoch };
    let until =
        |seconds: i64| Some(fairgate_store::UnixMicros(world.now().0 + seconds * 1_000_000));
    for seconds in [60, 120] {
        world.fleet.note_limit(&claim, until(seconds), LimitCause::ProjectBudget).await.unwrap();
    }
    assert_eq!(percents(&world).await, [(100, Some("p".to_owned()))], "500 of 600 are set aside");
    world.fleet.note_limit(&claim, until(240), LimitCause::Provider).await.unwrap();
    assert!(percents(&world).await.is_empty());
}

/// Days since 1970 on which the tests' clock starts, and on which its month begins.
const DAY: i64 = crate::world::START / 86_400_000_000;
const MONTH: i64 = DAY - 14;

/// Sets what an owner used in the period that begins on this day.
async fn use_up(world: &World, owner: (&str, &str), period: (&str, i64), tokens: u64, money: u64) {
    let ((scope, owner), (period, first_day)) = (owner, period);
    let sql = format!(
        "INSERT INTO sums (scope, owner, period, first_day, tokens_used, tokens_reserved, money_used) \
         VALUES ('{scope}', '{owner}', '{period}', {first_day}, {tokens}, 7, {money}) \
         ON CONFLICT (scope, owner, period, first_day) DO UPDATE SET tokens_used = {tokens}, money_used = {money}"
    );
    world.sql(&sql, Vec::new()).await;
}

async fn set_budgets(world: &World, budgets: Vec<Budget>) {
    let limits = DirectoryLimits { budgets, ..DirectoryLimits::default() };
    let patch = TenantPatch { limits: Some(limits), ..TenantPatch::default() };
    let change = DirectoryChange::PatchTenant { name: "t".into(), patch };
    world.store.change("admin", world.now(), change).await.unwrap();
}

/// What the events are about that all servers write when they look at the same time.
async fn owned(world: &World, servers: &[Fleet]) -> Vec<String> {
    let looks = servers.iter().map(|server| {
        let server = server.clone();
        tokio::spawn(async move { server.check_budgets().await })
    });
    for look in looks.collect::<Vec<_>>() {
        look.await.unwrap().unwrap();
    }
    let events = due(&world.fleet).await;
    for event in &events {
        settle(&world.fleet, event, Ok(())).await;
    }
    let mut told: Vec<String> = (events.iter().map(body))
        .map(|body| {
            assert_eq!((&body["type"], &body["project"]), (&"budget".into(), &Value::Null));
            let text = |field: &str| body[field].as_str().unwrap_or("-").to_owned();
            let number = |field: &str| body[field].as_u64().unwrap();
            format!(
                "{} {} {} {} {}: {} % of {}, {} used",
                text("tenant"),
                text("group"),
                text("period"),
                text("unit"),
                text("tier"),
                number("percent"),
                number("limit"),
                number("used"),
            )
        })
        .collect();
    told.sort_unstable();
    told
}

async fn budgets_of_tenants_and_groups_are_told_once_over_all_servers(world: World) {
    told_of_all(&world);
    let another = world.fleet_on(world.another_store().await);
    another.set_webhooks(vec![ops(&WebhookEventKind::ALL)]);
    let servers = [world.fleet.clone(), another.clone(), world.fleet.clone(), another];
    let money = Budget {
        period: BudgetPeriod::Month,
        unit: BudgetUnit::Money,
        tier: BudgetTier::Any,
        amount: 5_000_000,
    };
    set_budgets(&world, vec![Budget::tokens(1_000, BudgetPeriod::Day), money]).await;
    let budgets = vec![Budget::tokens(10_000, BudgetPeriod::Month)];
    let patch = GroupPatch { budgets: Some(budgets), ..GroupPatch::default() };
    let change = DirectoryChange::PatchGroup { name: "g".into(), patch };
    world.store.change("admin", world.now(), change).await.unwrap();
    let (tenant, group) = (("tenant", "t"), ("group", "g"));
    let (day, month) = (("day", DAY), ("month", MONTH));
    use_up(&world, tenant, day, 799, 0).await;
    // What another period or another owner used does not count.
    use_up(&world, tenant, ("day", DAY - 1), 5_000, 0).await;
    use_up(&world, ("tenant", "u"), day, 5_000, 0).await;
    assert!(owned(&world, &servers).await.is_empty());
    use_up(&world, tenant, day, 800, 0).await;
    use_up(&world, tenant, month, 900, 4_500_000).await;
    use_up(&world, group, month, 12_000, 0).await;
    let told = [
        "- g month tokens any: 100 % of 10000, 12000 used",
        "t - day tokens any: 80 % of 1000, 800 used",
        "t - month money any: 80 % of 5000000, 4500000 used",
    ];
    assert_eq!(owned(&world, &servers).await, told);
    assert!(owned(&world, &servers).await.is_empty(), "once");
    use_up(&world, tenant, day, 1_000, 0).await;
    assert_eq!(owned(&world, &servers).await, ["t - day tokens any: 100 % of 1000, 1000 used"]);
    use_up(&world, tenant, day, 1_500, 0).await;
    assert!(owned(&world, &servers).await.is_empty(), "once");
    // Another amount is another budget.
    set_budgets(&world, vec![Budget::tokens(1_600, BudgetPeriod::Day)]).await;
    assert_eq!(owned(&world, &servers).await, ["t - day tokens any: 80 % of 1600, 1500 used"]);
    // So is another day, and the rows of the day before are gone.
    world.pass(86_400);
    assert!(owned(&world, &servers).await.is_empty());
    use_up(&world, tenant, ("day", DAY + 1), 1_600, 0).await;
    assert_eq!(owned(&world, &servers).await, ["t - day tokens any: 100 % of 1600, 1600 used"]);
    let rows = "SELECT COUNT(*) FROM fleet_budget_notices";
    assert_eq!(world.number(rows).await, 3, "one of today, two of this month");
    // Who does not want to be told of budgets costs nothing.
    world.fleet.set_webhooks(vec![ops(&[WebhookEventKind::Question])]);
    set_budgets(&world, vec![Budget::tokens(1_700, BudgetPeriod::Day)]).await;
    world.fleet.check_budgets().await.unwrap();
    assert_eq!(world.number(rows).await, 3);
}

async fn a_refusal_of_a_nearly_used_budget_is_100_percent(world: World) {
    told_of_all(&world);
    set_budgets(&world, vec![Budget::tokens(1_000, BudgetPeriod::Day)]).await;
    let refused = |used, wanted| BudgetExhausted {
        scope: BudgetScope::Tenant,
        owner: "t".into(),
        period: BudgetPeriod::Day,
        unit: BudgetUnit::Tokens,
        tier: BudgetTier::Any,
        limit: 1_000,
        used,
        reserved: 0,
        wanted,
        waits_for_files: false,
        resets_at: world.now(),
    };
    let servers = [world.fleet.clone()];
    let (tenant, day) = (("tenant", "t"), ("day", DAY));
    // A request that is too large says nothing of a budget that is hardly used.
    use_up(&world, tenant, day, 100, 0).await;
    world.fleet.note_budget_refusal(&refused(100, 950));
    assert!(owned(&world, &servers).await.is_empty());
    use_up(&world, tenant, day, 900, 0).await;
    assert_eq!(owned(&world, &servers).await, ["t - day tokens any: 80 % of 1000, 900 used"]);
    // What is only reserved comes back.
    world.fleet.note_budget_refusal(&refused(900, 100));
    assert!(owned(&world, &servers).await.is_empty());
    world.fleet.note_budget_refusal(&refused(900, 101));
    world.fleet.note_budget_refusal(&refused(900, 200));
    assert_eq!(owned(&world, &servers).await, ["t - day tokens any: 100 % of 1000, 900 used"]);
    world.fleet.note_budget_refusal(&refused(900, 101));
    use_up(&world, tenant, day, 1_000, 0).await;
    assert!(owned(&world, &servers).await.is_empty(), "once");
}

async fn a_webhook_that_is_gone_keeps_events_for_a_day(world: World) {
    let event = one_event(&world).await;
    settle(&world.fleet, &event, Err("it answered 500")).await;
    let other = |fleet: Fleet| async move {
        fleet.claim_webhook_events(vec![("other".into(), 4)]).await.unwrap()
    };
    world.pass(86_000);
    assert!(other(world.fleet.clone()).await.is_empty());
    assert_eq!(world.fleet.webhook_totals().await.unwrap()[0].pending, 1);
    world.pass(86_000);
    assert!(other(world.fleet.clone()).await.is_empty());
    let totals = world.fleet.webhook_totals().await.unwrap().remove(0);
    assert_eq!((totals.pending, totals.failed), (0, 1));
}
