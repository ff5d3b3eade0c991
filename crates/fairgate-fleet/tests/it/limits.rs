//! Limits of a task: timeouts, and pauses that its agent or the gateway asks for.

use std::time::Duration;

use fairgate_api::agents::Claim;
use fairgate_api::fleet::{NewTask, TaskAction, TaskMoney, TaskPatch, TaskState};
use fairgate_fleet::{LimitCause, TaskCompletion, TaskFailure, TaskHeartbeat};
use fairgate_store::{AttemptOutcome, AttemptRow, MicroUnits, TaskClaim, UnixMicros, UsageSource};

use crate::world::{World, agent, field, on_every_database, task_of};

on_every_database![
    a_claim_is_ended_after_its_timeout_although_its_agent_is_alive,
    an_agent_that_claims_again_gets_no_more_time,
    a_task_that_ends_within_its_timeout_can_be_reported_after_an_outage,
    a_timeout_can_be_changed_and_is_checked,
    putting_a_task_off_does_not_shorten_a_limit,
    put_offs_in_a_row_are_counted_and_end,
    a_budget_that_ends_is_no_failure,
    a_cap_that_the_gateway_saw_blocks_the_task,
    reported_tokens_are_capped,
    caps_can_be_changed_and_are_checked,
    a_completed_call_ends_the_wait_for_a_provider,
];

async fn add_with_timeout(world: &World, id: &str, seconds: u32) {
    let task = NewTask { timeout_s: Some(seconds), ..task_of("p", Some(id)) };
    world.add_all(vec![task]).await.unwrap();
}

async fn claim(world: &World, id: &str) -> Option<Claim> {
    world.fleet.claim(&agent(id), Duration::ZERO).await.unwrap()
}

async fn beat(world: &World, claim: &Claim) -> UnixMicros {
    let beat = TaskHeartbeat::default();
    world.fleet.heartbeat(&agent("a"), &claim.task, claim.epoch, beat).await.unwrap().lease_until
}

/// Waits until a round has been made with the clock as it is.
async fn round(world: &World) {
    assert!(claim(world, "c").await.is_none());
}

async fn a_claim_is_ended_after_its_timeout_although_its_agent_is_alive(world: World) {
    tokio::spawn(world.fleet.run());
    add_with_timeout(&world, "one", 100).await;
    let start = world.now().0;
    let one = claim(&world, "a").await.unwrap();
    let end = UnixMicros(start + 100_000_000);
    assert_eq!((one.timeout_s, one.timeout_at), (Some(100), Some(end)));
    // It has one lease more, to report the end.
    let latest = UnixMicros(end.0 + 60_000_000);
    for seconds in (0..160).step_by(20) {
        let until = beat(&world, &one).await;
        assert_eq!(until, latest.min(UnixMicros(world.now().0 + 60_000_000)), "at {seconds} s");
        world.pass(20);
        if seconds < 140 {
            round(&world).await;
            assert_eq!(world.state("one").await, TaskState::InProgress, "at {seconds} s");
        }
    }
    round(&world).await;
    let one = world.task("one").await;
    assert_eq!((one.line.state, one.line.retries), (TaskState::Paused, 1));
    let reason = "agent a did not end it within its timeout of 100 s";
    assert_eq!(one.line.reason.as_deref(), Some(reason));
    // The next claim has the whole time again.
    world.pass(60);
    let next = claim(&world, "b").await.unwrap();
    assert_eq!(next.timeout_at, Some(UnixMicros(world.now().0 + 100_000_000)));
}

async fn an_agent_that_claims_again_gets_no_more_time(world: World) {
    tokio::spawn(world.fleet.run());
    add_with_timeout(&world, "one", 10).await;
    let first = claim(&world, "a").await.unwrap();
    world.pass(50);
    let again = claim(&world, "a").await.unwrap();
    assert_eq!((again.epoch, again.timeout_at), (first.epoch, first.timeout_at));
    assert_eq!(again.lease_until, UnixMicros(first.timeout_at.unwrap().0 + 60_000_000));
}

async fn a_task_that_ends_within_its_timeout_can_be_reported_after_an_outage(world: World) {
    let running = tokio::spawn(world.fleet.run());
    add_with_timeout(&world, "one", 100).await;
    let one = claim(&world, "a").await.unwrap();
    beat(&world, &one).await;
    world.fleet.stop();
    running.await.unwrap();
    world.pass(3_600);
    let fleet = world.another_fleet();
    let running = tokio::spawn(fleet.run());
    assert!(fleet.claim(&agent("c"), Duration::ZERO).await.unwrap().is_none());
    // A heartbeat that comes before the report must not end the lease.
    assert!(beat(&world, &one).await > world.now());
    assert!(fleet.claim(&agent("c"), Duration::ZERO).await.unwrap().is_none());
    let done = TaskCompletion::default();
    let line = fleet.complete(&agent("a"), "one", one.epoch, done).await.unwrap();
    assert_eq!(line.state, TaskState::Completed);
    fleet.stop();
    running.await.unwrap();
}

async fn a_timeout_can_be_changed_and_is_checked(world: World) {
    for bad in [0, 2_592_001] {
        let task = NewTask { timeout_s: Some(bad), ..task_of("p", Some("x")) };
        assert_eq!(field(world.add_all(vec![task]).await), "tasks[0].timeout_s");
    }
    add_with_timeout(&world, "one", 10).await;
    // The same again is the same task; another timeout is another content.
    let same = |seconds| NewTask { timeout_s: seconds, ..task_of("p", Some("one")) };
    assert_eq!(world.add_all(vec![same(Some(10))]).await.unwrap().unchanged, ["one"]);
    assert!(world.add_all(vec![same(None)]).await.is_err());
    let set = |timeout_s| TaskPatch { timeout_s, ..TaskPatch::default() };
    let patched = world.fleet.patch_task("admin", "one", set(Some(Some(7)))).await.unwrap();
    assert_eq!(patched.timeout_s, Some(7));
    let patched = world.fleet.patch_task("admin", "one", set(Some(None))).await.unwrap();
    assert_eq!(patched.timeout_s, None);
    assert_eq!(
        field(world.fleet.patch_task("admin", "one", set(Some(Some(0)))).await),
        "timeout_s"
    );
}

fn put_off(until: UnixMicros) -> TaskFailure {
    let reason = Some("not yet".to_owned());
    TaskFailure { reason, limited_until: Some(until), tokens: None }
}

fn claim_of(task: &str, epoch: u64) -> TaskClaim {
    TaskClaim { project: "p".into(), task: task.into(), epoch }
}

async fn putting_a_task_off_does_not_shorten_a_limit(world: World) {
    world.add(&["one"]).await;
    let epoch = world.hold("one", "a").await;
    let later = |seconds: i64| UnixMicros(world.now().0 + seconds * 1_000_000);
    let limit = later(900);
    world
        .fleet
        .note_limit(&claim_of("one", epoch), Some(limit), LimitCause::Provider)
        .await
        .unwrap();
    let line = world.fleet.fail(&agent("a"), "one", epoch, put_off(later(60))).await.unwrap();
    assert_eq!((line.state, line.resume_after), (TaskState::Paused, Some(limit)));
    let reason = "the provider's limit is reached; the agent says: not yet";
    assert_eq!(line.reason.as_deref(), Some(reason));
    assert_eq!(world.task("one").await.put_offs, 0, "the limit was not the agent's idea");
    // A longer time counts.
    let epoch = world.hold("one", "a").await;
    world
        .fleet
        .note_limit(&claim_of("one", epoch), Some(limit), LimitCause::Provider)
        .await
        .unwrap();
    let line = world.fleet.fail(&agent("a"), "one", epoch, put_off(later(901))).await.unwrap();
    assert_eq!(line.resume_after, Some(later(901)));
}

async fn put_offs_in_a_row_are_counted_and_end(world: World) {
    world.add(&["one"]).await;
    let until = UnixMicros(world.now().0 + 60_000_000);
    for times in 1..=3 {
        let epoch = world.hold("one", "a").await;
        let line = world.fleet.fail(&agent("a"), "one", epoch, put_off(until)).await.unwrap();
        assert_eq!((line.state, line.retries), (TaskState::Paused, 0));
        assert_eq!(world.task("one").await.put_offs, times);
        let said = if times == 1 {
            "not yet".into()
        } else {
            format!("not yet (put off {times} times in a row)")
        };
        assert_eq!(line.reason, Some(said));
    }
    // A failure ends the row.
    let epoch = world.hold("one", "a").await;
    world.fleet.fail(&agent("a"), "one", epoch, TaskFailure::default()).await.unwrap();
    assert_eq!(world.task("one").await.put_offs, 0);
    // Nothing is put off for ever.
    world.sql("UPDATE fleet_tasks SET put_offs = 1000", Vec::new()).await;
    let epoch = world.hold("one", "a").await;
    let line = world.fleet.fail(&agent("a"), "one", epoch, put_off(until)).await.unwrap();
    assert_eq!(line.state, TaskState::Blocked);
    assert!(line.reason.unwrap().starts_with("put off 1000 times in a row"));
    world.fleet.act("admin", "one", TaskAction::Restart).await.unwrap();
    assert_eq!(world.task("one").await.put_offs, 0);
}

async fn a_budget_that_ends_is_no_failure(world: World) {
    world.add(&["one"]).await;
    let epoch = world.hold("one", "a").await;
    let until = UnixMicros(world.now().0 + 900_000_000);
    world
        .fleet
        .note_limit(&claim_of("one", epoch), Some(until), LimitCause::ProjectBudget)
        .await
        .unwrap();
    let why = world.fleet.why("one").await.unwrap().sentence;
    assert!(
        why.contains("stopped for another 15 min: the project's or the fleet's budget"),
        "{why}"
    );
    let failure = TaskFailure { reason: Some("429".into()), ..TaskFailure::default() };
    let line = world.fleet.fail(&agent("a"), "one", epoch, failure).await.unwrap();
    assert_eq!((line.state, line.retries), (TaskState::Paused, 0));
    assert_eq!(line.resume_after, Some(until));
    let reason = "the project's or the fleet's budget is used up; the agent says: 429";
    assert_eq!(line.reason.as_deref(), Some(reason));
}

async fn a_cap_that_the_gateway_saw_blocks_the_task(world: World) {
    world.add(&["one", "two<one"]).await;
    let epoch = world.hold("one", "a").await;
    world.fleet.note_limit(&claim_of("one", epoch), None, LimitCause::TaskCap).await.unwrap();
    let failure = TaskFailure { reason: Some("429".into()), ..TaskFailure::default() };
    let line = world.fleet.fail(&agent("a"), "one", epoch, failure).await.unwrap();
    assert_eq!((line.state, line.retries), (TaskState::Blocked, 0));
    let reason = line.reason.unwrap();
    let expected = "the task's cap of tokens or money is reached: raise the cap and restart it, or skip it; \
                    the agent says: 429; 1 task waits for it: two";
    assert_eq!(reason, expected);
}

async fn reported_tokens_are_capped(world: World) {
    let task = NewTask { tokens_max: Some(100), ..task_of("p", Some("one")) };
    world.add_all(vec![task]).await.unwrap();
    let epoch = world.hold("one", "c").await;
    let beat = |epoch, tokens| {
        let beat = TaskHeartbeat { tokens: Some(tokens), progress: None };
        let fleet = world.fleet.clone();
        async move { fleet.heartbeat(&agent("c"), "one", epoch, beat).await }
    };
    beat(epoch, 99).await.unwrap();
    let lost = beat(epoch, 100).await.unwrap_err().to_string();
    assert!(lost.contains("it used 100 of at most 100 tokens"), "{lost}");
    let one = world.task("one").await;
    assert_eq!((one.line.state, one.line.retries, one.line.used), (TaskState::Blocked, 0, 100));
    // A raised cap leaves room for the next claim, and counts what was used before.
    let set = TaskPatch { tokens_max: Some(Some(150)), ..TaskPatch::default() };
    world.fleet.patch_task("admin", "one", set).await.unwrap();
    world.fleet.act("admin", "one", TaskAction::Restart).await.unwrap();
    let epoch = world.hold("one", "c").await;
    beat(epoch, 49).await.unwrap();
    assert!(beat(epoch, 50).await.is_err());
}

async fn caps_can_be_changed_and_are_checked(world: World) {
    for bad in [0, u64::MAX] {
        let task = NewTask { tokens_max: Some(bad), ..task_of("p", Some("x")) };
        assert_eq!(field(world.add_all(vec![task]).await), "tasks[0].tokens_max");
    }
    for bad in ["-1", "1.0000001", "1000000000", "much", ""] {
        assert!(bad.parse::<TaskMoney>().is_err(), "{bad}");
    }
    let money: TaskMoney = "2.5".parse().unwrap();
    let task = NewTask { money_max: Some(money), tokens_max: Some(7), ..task_of("p", Some("one")) };
    world.add_all(vec![task.clone()]).await.unwrap();
    assert_eq!(world.add_all(vec![task]).await.unwrap().unchanged, ["one"]);
    let one = world.task("one").await;
    assert_eq!((one.money_max, one.tokens_max), (Some(money), Some(7)));
    let set = TaskPatch { money_max: Some(None), tokens_max: Some(None), ..TaskPatch::default() };
    let one = world.fleet.patch_task("admin", "one", set).await.unwrap();
    assert_eq!((one.money_max, one.tokens_max), (None, None));
}

/// Row of the ledger for a call of a claim that ends now, after 1 s.
fn answered(
    world: &World,
    claim: &TaskClaim,
    request: &str,
    outcome: AttemptOutcome,
) -> AttemptRow {
    AttemptRow {
        request: request.into(),
        attempt: 1,
        last: true,
        started_at: UnixMicros(world.now().0 - 1_000_000),
        group: "g".into(),
        tenant: "t".into(),
        key: "project:p".into(),
        agent: None,
        session: None,
        route: "/v1/chat/completions".into(),
        stream: false,
        model: "m".into(),
        pool: None,
        worker: None,
        estimate: 10,
        input_tokens: 5,
        cached_tokens: 0,
        output_tokens: 5,
        charged: 10,
        usage: UsageSource::Reported,
        waited_us: 0,
        first_token_us: None,
        total_us: 1_000_000,
        status: 200,
        outcome,
        code: None,
        brownout: false,
        occupied: 0,
        provider_tokens: 10,
        money: MicroUnits(0),
        price: None,
        tier: 0,
        class: None,
        cache_written_tokens: 0,
        cache_written_1h_tokens: 0,
        estimate_uncached: 0,
        charged_uncached: 0,
        worker_us: 0,
        price_set: None,
        claim: Some(claim.clone()),
    }
}

/// A task whose calls are answered does not wait, whatever limit was noted for one of them.
async fn a_completed_call_ends_the_wait_for_a_provider(world: World) {
    world.add(&["one"]).await;
    let epoch = world.hold("one", "a").await;
    let claim = claim_of("one", epoch);
    let now = vec![world.now().into()];
    world.sql("UPDATE fleet_tasks SET claimed_at = $1", now).await;
    let note = async |seconds: i64| {
        let until = Some(UnixMicros(world.now().0 + seconds * 1_000_000));
        world.fleet.note_limit(&claim, until, LimitCause::Provider).await.unwrap();
    };
    // A call that ended before the limit was noted, and is written after that, ends nothing.
    let before = answered(&world, &claim, "r0", AttemptOutcome::Completed);
    note(3_600).await;
    world.store.record(before).await.unwrap();
    world.pass(20);
    // Nor does one that failed.
    let failed = answered(&world, &claim, "r1", AttemptOutcome::UpstreamError);
    world.store.record(failed).await.unwrap();
    world.pass(10);
    let row = answered(&world, &claim, "r2", AttemptOutcome::Completed);
    world.store.record(row).await.unwrap();
    // From here on time counts, until the same limit stops the next call.
    world.pass(100);
    note(3_470).await;
    world.pass(40);
    let done = TaskCompletion::default();
    world.fleet.complete(&agent("a"), "one", epoch, done).await.unwrap();
    assert_eq!(world.task("one").await.agent_ms, 100_000, "30 s and 40 s of waits are free");
}
