#![allow(clippy::unwrap_used)]

use fairgate_api::fleet::TaskState;
use fairgate_store::TaskClaim;

use super::*;
use crate::agent_id::AgentId;
use crate::agent_reports::{TaskCompletion, TaskFailure};
use crate::claims::LimitCause;
use crate::testing::FleetTestWorld;

const SECOND: Duration = Duration::from_secs(1);

fn terms(unit: FleetCredit, stated: Option<u64>) -> CreditTerms {
    let options =
        FleetOptions { credit: unit, agent_second_tokens: stated, ..FleetOptions::default() };
    CreditTerms::new(&options)
}

fn work(payer: &str, tokens: u64, seconds: u64) -> ProjectWork {
    let us = seconds * 1_000_000;
    let payer = payer.to_owned();
    ProjectWork { payer, paid: tokens, agent_us: us, work_tokens: tokens, work_us: us }
}

#[test]
fn a_claim_is_charged_the_larger_of_tokens_and_time() {
    let price = TokenRate::new(20, SECOND);
    let extra = |unit, tokens| terms(unit, None).extra(tokens, 10 * SECOND, price);
    assert_eq!(extra(FleetCredit::Larger, 0), 200);
    assert_eq!(extra(FleetCredit::Larger, 150), 50);
    assert_eq!(extra(FleetCredit::Larger, 201), 0);
    assert_eq!([0, 201].map(|tokens| extra(FleetCredit::Tokens, tokens)), [0, 0]);
    assert_eq!([0, 201].map(|tokens| extra(FleetCredit::Time, tokens)), [200, -1]);
    // No claim is charged more than a task may use, so sums of claims do not overflow.
    let most = TokenRate::new(u64::MAX, Duration::from_nanos(1));
    let extra = terms(FleetCredit::Larger, None).extra(0, Duration::MAX, most);
    assert_eq!(extra.cast_unsigned(), validate::TASK_TOKENS_MAX);
}

#[test]
fn the_price_is_stated_or_what_others_bring_per_second_or_the_default() {
    let second = |terms: CreditTerms, works: &[ProjectWork], payer: &str| {
        terms.price(&price_book(works.to_vec()), payer).cost(SECOND)
    };
    let learned = terms(FleetCredit::Larger, None);
    assert_eq!(second(learned, &[], "free"), 200, "20 000 tokens in 100 s");
    let works = [work("calls", 60_000, 1_000), work("also", 40_000, 1_000)];
    assert_eq!(second(learned, &works, "free"), 50);
    assert_eq!(second(learned, &works, "calls"), 40, "its own work is left out");
    assert_eq!(second(terms(FleetCredit::Larger, Some(7)), &works, "free"), 7);
    // A hundred agents for ninety days, which is more than `BOOK_TIME_US_MAX`.
    let long = [work("calls", 60_000_000_000, 1_000_000_000), work("also", 40_000, 1_000)];
    assert_eq!(second(learned, &long, "free"), 60);
}

/// One project alone cannot set the price for the others, neither with many tokens in a short time
/// nor with long tasks that make one small call.
#[test]
fn one_project_cannot_choose_the_price_of_the_others() {
    let learned = terms(FleetCredit::Larger, None);
    let honest = [work("a", 50_000, 1_000), work("b", 60_000, 1_000), work("c", 40_000, 1_000)];
    let with = |liar: ProjectWork| {
        let works = [&honest[..], &[liar]].concat();
        learned.price(&price_book(works), "free").cost(SECOND)
    };
    assert!(with(work("liar", 1_000_000_000, 1_000)) <= 4 * 60);
    assert!(with(work("liar", 1, 100_000)) >= 24);
    // Long tasks without any call set no rate: they are charged at the rate of the others.
    let paid = ProjectWork { work_tokens: 0, work_us: 0, ..work("liar", 5_000_000, 100_000) };
    assert_eq!(with(paid), 50);
}

#[test]
fn waits_do_not_count() {
    let at = |seconds: i64| UnixMicros(seconds * 1_000_000);
    let times = |earlier_s: i64, from: i64, until: i64| ClaimTimes {
        claimed_at: at(100),
        waited_us: earlier_s * 1_000_000,
        waited_from: at(from),
        waited_until: at(until),
    };
    assert_eq!(times(0, 0, 0).counted(at(160)).as_secs(), 60);
    assert_eq!(times(0, 110, 130).counted(at(160)).as_secs(), 40);
    assert_eq!(times(5, 110, 130).counted(at(160)).as_secs(), 35);
    // The wait from 110 to 180 is not over yet.
    assert_eq!(times(0, 110, 180).counted(at(160)).as_secs(), 10);
    // The clock was put back.
    assert_eq!(times(0, 0, 0).counted(at(50)), Duration::ZERO);
    assert_eq!(times(0, 110, 180).counted(at(105)).as_secs(), 5);
}

/// Many projects of one tenant are one payer, so they do not move the median.
#[test]
fn a_tenant_with_many_projects_cannot_choose_the_price() {
    let learned = terms(FleetCredit::Larger, None);
    let honest = [work("a", 50_000, 1_000), work("b", 60_000, 1_000), work("c", 40_000, 1_000)];
    let many = vec![work("liar", 50_000_000, 1_000); 20];
    let with = |works: &[ProjectWork]| {
        let works = [&honest[..], works].concat();
        learned.price(&price_book(works), "free").cost(SECOND)
    };
    assert!(with(&many) <= 4 * 60, "{}", with(&many));
    assert_eq!(with(&many[..1]), with(&[work("liar", 50_000_000, 1_000)]));
    // As separate payers, they would choose the median.
    let split: Vec<_> = (0..20).map(|n| work(&format!("liar{n}"), 50_000_000, 1_000)).collect();
    assert!(with(&split) > 1_000, "{}", with(&split));
}

fn agent(id: &str) -> AgentId {
    AgentId { id: id.into(), seed: [0; 32], token: None }
}

async fn charged(w: &FleetTestWorld, task: &str) -> (u64, u64, u64) {
    let view = w.fleet().task(task).await.unwrap();
    (view.line.used, view.charged, view.agent_ms / 1_000)
}

/// Two projects with equal weights share one agent. Tasks of one use 85 tokens in 2 s, and those of
/// the other use none in 2 s.
async fn shares(unit: FleetCredit) -> [u32; 2] {
    let mut w = FleetTestWorld::new().await;
    w.options.credit = unit;
    w.project("calls", |_| {}).await;
    w.project("free", |_| {}).await;
    w.tasks("calls", 120).await;
    w.tasks("free", 120).await;
    w.agents(1).await;
    let mut counts = [0, 0];
    for _ in 0..100 {
        let task = w.given(&["a0"]).await.concat();
        w.pass(2);
        let is_free = task.starts_with("free");
        if !is_free {
            let sql = "UPDATE fleet_tasks SET used = 85, calls = 1 WHERE id = $1";
            w.run(sql, &[task.as_str().into()]).await;
            let sql =
                "UPDATE fleet_projects SET window_tokens = window_tokens + 85 WHERE id = 'calls'";
            w.run(sql, &[]).await;
        }
        counts[usize::from(is_free)] += 1;
        w.fleet().complete(&agent("a0"), &task, 1, TaskCompletion::default()).await.unwrap();
    }
    counts
}

#[tokio::test]
async fn work_without_tokens_is_not_free() {
    let [calls, free] = shares(FleetCredit::Larger).await;
    assert!((45..=55).contains(&calls), "{calls} tasks with calls and {free} without");
    let [calls, free] = shares(FleetCredit::Time).await;
    assert!((45..=55).contains(&calls), "{calls} tasks with calls and {free} without");
    let [calls, _] = shares(FleetCredit::Tokens).await;
    assert!(calls < 5, "as before: {calls} tasks with calls");
}

#[tokio::test]
async fn a_task_shows_what_it_was_charged_for() {
    let mut w = FleetTestWorld::new().await;
    w.options.agent_second_tokens = Some(10);
    w.options.lease = Duration::from_secs(3_600);
    w.project("p", |_| {}).await;
    w.tasks("p", 2).await;
    w.agents(1).await;
    w.given(&["a0"]).await;
    w.pass(30);
    w.fleet().complete(&agent("a0"), "p-0", 1, TaskCompletion::default()).await.unwrap();
    assert_eq!(charged(&w, "p-0").await, (0, 300, 30));
    let why = w.fleet().why("p-0").await.unwrap();
    assert_eq!(why.sentence, "It is completed, and no call was made through the gateway for it.");
    let project = &w.fleet().projects(None).await.unwrap()[0];
    assert_eq!((project.used, project.charged, project.completed_without_calls), (0, 300, 1));
    // The next one waits for a provider's limit for 50 of its 60 s, and uses more tokens than its time costs.
    let round = w.round(&["a0"]).await;
    assert_eq!(round.calls[0].price_per_1000_s, Some(10_000));
    let claim = TaskClaim { project: "p".into(), task: "p-1".into(), epoch: 1 };
    w.pass(10);
    let until = Some(UnixMicros(w.now.0 + 100_000_000));
    w.fleet().note_limit(&claim, until, LimitCause::Provider).await.unwrap();
    w.run("UPDATE fleet_tasks SET used = 101, calls = 3 WHERE id = 'p-1'", &[]).await;
    w.pass(50);
    w.fleet().fail(&agent("a0"), "p-1", 1, TaskFailure::default()).await.unwrap();
    assert_eq!(charged(&w, "p-1").await, (101, 101, 10));
}

/// A limit may be noted after its end, because the database was away meanwhile. It takes nothing from the waits that were
/// noted before, and does not replace a cap.
#[tokio::test]
async fn a_limit_that_is_over_when_it_is_noted_changes_nothing() {
    let mut w = FleetTestWorld::new().await;
    w.options.agent_second_tokens = Some(10);
    w.options.lease = Duration::from_secs(3_600);
    w.project("p", |_| {}).await;
    w.tasks("p", 2).await;
    w.agents(1).await;
    let claim_of = |task: &str| TaskClaim { project: "p".into(), task: task.into(), epoch: 1 };
    w.given(&["a0"]).await;
    // Each pair is the time since the step before and the end of the limit after this moment, in seconds.
    for (passed, ends_after) in [(10, 10), (50, -20), (10, 10)] {
        w.pass(passed);
        let until = Some(UnixMicros(w.now.0 + ends_after * 1_000_000));
        w.fleet().note_limit(&claim_of("p-0"), until, LimitCause::Provider).await.unwrap();
    }
    w.pass(30);
    w.fleet().complete(&agent("a0"), "p-0", 1, TaskCompletion::default()).await.unwrap();
    assert_eq!(charged(&w, "p-0").await, (0, 800, 80), "100 s with two waits of 10 s");
    w.given(&["a0"]).await;
    let over = Some(UnixMicros(w.now.0 - 1));
    for (until, cause) in [(None, LimitCause::TaskCap), (over, LimitCause::Provider)] {
        w.fleet().note_limit(&claim_of("p-1"), until, cause).await.unwrap();
    }
    let line = w.fleet().fail(&agent("a0"), "p-1", 1, TaskFailure::default()).await.unwrap();
    assert_eq!(line.state, TaskState::Blocked, "a retry would meet the same cap");
}

/// A tenant cannot hold an agent for free while its own budget is used up.
#[tokio::test]
async fn the_wait_for_a_budget_is_charged() {
    let mut w = FleetTestWorld::new().await;
    w.options.agent_second_tokens = Some(10);
    w.options.lease = Duration::from_secs(3_600);
    w.project("p", |_| {}).await;
    w.tasks("p", 1).await;
    w.agents(1).await;
    w.given(&["a0"]).await;
    let claim = TaskClaim { project: "p".into(), task: "p-0".into(), epoch: 1 };
    let until = Some(UnixMicros(w.now.0 + 100_000_000));
    w.fleet().note_limit(&claim, until, LimitCause::TenantBudget).await.unwrap();
    w.pass(30);
    let line = w.fleet().fail(&agent("a0"), "p-0", 1, TaskFailure::default()).await.unwrap();
    assert_eq!((line.state, line.retries), (TaskState::Paused, 0));
    assert_eq!(charged(&w, "p-0").await, (0, 300, 30));
}

/// The time of an outage counts once, however many servers notice it.
#[tokio::test]
async fn an_outage_is_not_charged() {
    let mut w = FleetTestWorld::new().await;
    w.options.agent_second_tokens = Some(10);
    w.options.lease = Duration::from_secs(3_600);
    w.project("p", |_| {}).await;
    w.tasks("p", 1).await;
    w.agents(1).await;
    w.given(&["a0"]).await;
    w.pass(5);
    let since = w.now;
    w.pass(20);
    let (lease, now) = (w.options.lease, w.now);
    for _ in 0..2 {
        let work = move |tx: &mut dyn Transaction| {
            let outage = crate::lease_outage::LeaseOutage::between(since, now);
            crate::lease_outage::extend_leases(tx, outage, lease, now)
        };
        let durability = fairgate_store::TransactionDurability::ThroughKill;
        w.store.transact::<_, StoreError>(durability, work).await.unwrap();
    }
    w.pass(5);
    w.fleet().complete(&agent("a0"), "p-0", 1, TaskCompletion::default()).await.unwrap();
    assert_eq!(charged(&w, "p-0").await, (0, 100, 10));
}

/// The price of time counts in the comparison of projects. It does not count against a budget,
/// which is in tokens.
#[tokio::test]
async fn budgets_count_tokens_alone() {
    for unit in [FleetCredit::Larger, FleetCredit::Time] {
        let mut w = FleetTestWorld::new().await;
        w.options.credit = unit;
        w.options.agent_second_tokens = Some(1_000);
        w.options.lease = Duration::from_secs(3_600);
        w.project("p", |p| (p.budget, p.used) = (Some(1_000), 850)).await;
        w.task("one", "p", |t| t.estimate = Some(100)).await;
        w.task("two", "p", |t| t.estimate = Some(100)).await;
        w.task("big", "p", |t| t.estimate = Some(151)).await;
        w.agents(2).await;
        assert_eq!(w.given(&["a0"]).await, ["one"]);
        w.pass(600);
        w.fleet().complete(&agent("a0"), "one", 1, TaskCompletion::default()).await.unwrap();
        // 600 000 tokens of time were charged; 850 of 1000 tokens are used.
        assert_eq!(w.given(&["a0", "a1"]).await, ["two", "-"], "{unit:?}");
    }
}
