//! Tests that a request which ends in any stage has one row with the data of that stage, and leaves
//! nothing behind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fairgate_config::Config;
use fairgate_core::event::Submit;
use fairgate_dialect::RequestFields;
use fairgate_dialect::estimate::TokenEstimate;
use fairgate_fleet::{FleetError, LimitCause, TaskKey};
use fairgate_runtime::Permit;
use fairgate_store::{
    BudgetExhausted, DirectoryChange, DirectoryLimits, KeyHash, KeyRights, LedgerQuery, Store,
    StoreError, StoreOptions, TaskClaim, UsageSource,
};
use fairgate_time::wall_clock;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use tempfile::TempDir;

use super::super::stage::SubmitTerms;
use super::super::stage::{
    AcceptedRequest, CountedRequest, QueuedRequest, ReadRequest, RoutedRequest,
};
use super::*;
use crate::fleet_calls::{FleetCall, FleetCalls};
use crate::limits::LimitOwner;
use crate::refusal;

const SOON: Duration = Duration::from_secs(20);
const INPUT: u64 = 100;
const ESTIMATE: u64 = 30_000;
const PER_MINUTE: u64 = 60_000;

/// The stage that a request reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Identified,
    Read,
    Routed,
    Accepted,
    Counted,
    Queued,
    InFlight,
    Sent,
}

const EVERY: [Reach; 8] = [
    Reach::Identified,
    Reach::Read,
    Reach::Routed,
    Reach::Accepted,
    Reach::Counted,
    Reach::Queued,
    Reach::InFlight,
    Reach::Sent,
];

/// A fleet without a project.
struct EmptyFleet;

impl FleetCalls for EmptyFleet {
    fn task_key(&self, _: KeyHash) -> FleetCall<'_, Result<Option<TaskKey>, FleetError>> {
        Box::pin(async { Ok(None) })
    }

    fn note_limit<'a>(
        &'a self,
        _: &'a TaskClaim,
        _: Option<UnixMicros>,
        _: LimitCause,
    ) -> FleetCall<'a, Result<(), FleetError>> {
        Box::pin(async { Ok(()) })
    }

    fn note_budget_refusal(&self, _: &BudgetExhausted) {}

    fn project_weights(&self) -> FleetCall<'_, Result<Vec<(String, u64)>, StoreError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// A data plane with one tenant, one slot, and a worker to which nothing is ever sent.
struct House {
    data: Arc<DataPlane>,
    store: Store,
    headers: HeaderMap,
    _folder: TempDir,
}

fn limits() -> DirectoryLimits {
    DirectoryLimits { tokens_per_minute: Some(PER_MINUTE), ..DirectoryLimits::default() }
}

async fn house() -> House {
    let folder = tempfile::tempdir().unwrap();
    let url = "http://127.0.0.1:9".parse().unwrap();
    let mut config = Config::embedded(folder.path().into(), ([127, 0, 0, 1], 0).into(), url);
    config.pools[0].capacity = 1;
    let options =
        StoreOptions { spool: Some(config.store.spool.clone()), ..StoreOptions::default() };
    let (store, _) = Store::open(config.store.url.expose(), options).await.unwrap();
    let group =
        DirectoryChange::AddGroup { name: "research".into(), weight: 100, budgets: Vec::new() };
    let tenant = DirectoryChange::AddTenant {
        requires: Vec::new(),
        name: "acme".into(),
        group: "research".into(),
        weight: 100,
        limits: limits(),
    };
    let key = DirectoryChange::CreateKey {
        tenant: "acme".into(),
        name: "first".into(),
        weight: 100,
        limits: DirectoryLimits::default(),
        rights: KeyRights::default(),
        expires_at: None,
    };
    let mut headers = HeaderMap::new();
    for change in [group, tenant, key] {
        if let Some(secret) = store.change("test", UnixMicros(0), change).await.unwrap().secret {
            let bearer = format!("Bearer {}", secret.expose());
            headers.insert(AUTHORIZATION, HeaderValue::try_from(bearer).unwrap());
        }
    }
    let data = DataPlane::start(config, store.clone(), Arc::new(EmptyFleet)).await.unwrap();
    House { data: Arc::new(data), store, headers, _folder: folder }
}

impl House {
    fn guard(&self) -> Box<RequestGuard> {
        let app = &self.data;
        let caller = app.identity.caller(&self.headers, wall_clock::now()).unwrap();
        RequestGuard::new(
            app.clone(),
            caller,
            app.request_ids.next(),
            Route::ChatCompletions,
            tokio::time::Instant::now(),
        )
    }

    /// Waits until there are `count` rows, and returns them, oldest first.
    async fn rows(&self, count: usize) -> Vec<AttemptRow> {
        let found = async {
            loop {
                let query = LedgerQuery { limit: 1000, ..LedgerQuery::default() };
                let mut rows = self.store.attempts(query).await.unwrap();
                if rows.len() >= count {
                    rows.reverse();
                    return rows;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let rows = tokio::time::timeout(SOON, found).await.expect("the rows come");
        assert_eq!(rows.len(), count);
        rows
    }

    fn tokens_left(&self) -> i64 {
        let limits = limits();
        let left =
            self.data.limits.left(LimitOwner::Tenant, "acme", &limits, std::time::Instant::now());
        left.tokens.unwrap()
    }

    /// Checks that no slot is taken, and that the tenant's bucket of tokens is full again.
    async fn is_as_before(&self) {
        let live = self.data.pools.all()[0].gate.status().await.unwrap();
        assert_eq!((live.waiting, live.in_flight), (0, 0));
        assert!(self.tokens_left() > 50_000, "{}", self.tokens_left());
    }

    async fn close(self) {
        for pool in self.data.pools.all() {
            pool.gate.drain(SOON).await.unwrap();
        }
        self.data.wait_settled(SOON).await;
        self.store.close().await.unwrap();
    }
}

async fn permit(queued: &RequestIn<'_, QueuedRequest>, id: &str) -> Permit {
    queued.pool.gate.admit(Submit::new(id)).await.unwrap()
}

async fn granted(queued: RequestIn<'_, QueuedRequest>) -> RequestIn<'_, InFlightRequest> {
    let permit = permit(&queued, &queued.arrival().id).await;
    let worker = queued.pool.setup().workers[0].clone();
    queued.start_attempt(permit, worker)
}

fn read(guard: &mut RequestGuard) -> RequestIn<'_, ReadRequest> {
    let body = br#"{"model":"sim","stream":true,"messages":[]}"#;
    guard.read(RequestFields::read(Route::ChatCompletions, body).unwrap())
}

fn routed(read: RequestIn<'_, ReadRequest>) -> RequestIn<'_, RoutedRequest> {
    let pool = read.arrival().app.pools.model("sim").unwrap().pool.clone();
    read.route(pool, Some("agent".into()), Some("session".into()))
}

fn accepted(routed: RequestIn<'_, RoutedRequest>) -> RequestIn<'_, AcceptedRequest> {
    let expected = TokenEstimate {
        input: INPUT,
        input_max: INPUT,
        output: 50,
        output_max: None,
        has_files: false,
    };
    routed.accept(SubmitTerms {
        expected,
        estimate: ESTIMATE,
        estimate_uncached: ESTIMATE,
        scheduled: ESTIMATE,
        scheduled_uncached: ESTIMATE,
        class: None,
        prefix: None,
        last_worker: None,
        uncached_cost: None,
        output_cap: None,
    })
}

fn counted(accepted: RequestIn<'_, AcceptedRequest>) -> RequestIn<'_, CountedRequest> {
    accepted.count_in(1).unwrap().0
}

/// Advances a request to the stage `reach`.
async fn go(guard: &mut RequestGuard, reach: Reach) {
    if reach == Reach::Identified {
        return;
    }
    let read = read(guard);
    if reach == Reach::Read {
        return;
    }
    let routed = routed(read);
    if reach == Reach::Routed {
        return;
    }
    let accepted = accepted(routed);
    if reach == Reach::Accepted {
        return;
    }
    let counted = counted(accepted);
    if reach == Reach::Counted {
        return;
    }
    let queued = counted.queue();
    if reach == Reach::Queued {
        return;
    }
    let mut in_flight = granted(queued).await;
    if reach == Reach::Sent {
        in_flight.mark_sent(true, 1);
    }
}

/// Checks the data that every row must have if its request reached this stage, however the request
/// ended.
fn shows_its_stage(row: &AttemptRow, reach: Reach) {
    let known = |from: Reach| reach >= from;
    assert_eq!((row.attempt, row.last), (1, true), "{reach:?}");
    assert_eq!((row.model == "sim", row.stream), (known(Reach::Read), known(Reach::Read)));
    assert_eq!(row.pool.is_some(), known(Reach::Routed), "{reach:?}");
    assert_eq!(row.agent.is_some() && row.session.is_some(), known(Reach::Routed), "{reach:?}");
    assert_eq!(row.estimate, if known(Reach::Accepted) { ESTIMATE } else { 0 }, "{reach:?}");
    assert_eq!(row.worker.as_deref(), known(Reach::InFlight).then_some("sim"), "{reach:?}");
    // Only what may have reached an upstream costs anything.
    assert_eq!(row.charged > 0, known(Reach::Sent), "{reach:?}");
    assert_eq!(row.usage != UsageSource::None, known(Reach::Sent), "{reach:?}");
    assert_eq!(row.input_tokens, if known(Reach::Sent) { INPUT } else { 0 }, "{reach:?}");
    assert_eq!(row.brownout, known(Reach::Sent), "{reach:?}");
    assert_eq!(row.first_token_us, None);
}

#[tokio::test]
async fn dropped_in_any_stage_it_leaves_one_row() {
    let house = house().await;
    for (at, reach) in EVERY.into_iter().enumerate() {
        let mut guard = house.guard();
        go(&mut guard, reach).await;
        assert_eq!(house.tokens_left() < 50_000, reach >= Reach::Counted, "{reach:?}");
        drop(guard);
        let row = house.rows(at + 1).await.pop().unwrap();
        let how = (row.status, row.outcome, row.code.as_deref());
        assert_eq!(how, (499, AttemptOutcome::ClientLeft, Some("client_left")), "{reach:?}");
        shows_its_stage(&row, reach);
        house.is_as_before().await;
    }
    house.close().await;
}

#[tokio::test]
async fn a_panic_in_any_stage_leaves_one_row() {
    let house = house().await;
    for (at, reach) in EVERY.into_iter().enumerate() {
        let mut guard = house.guard();
        go(&mut guard, reach).await;
        let caught = catch_unwind(AssertUnwindSafe(move || {
            let _held = guard;
            // Not a panic of the test: the hook that prints is not called.
            std::panic::resume_unwind(Box::new("a fault of our own"));
        }));
        assert!(caught.is_err());
        let row = house.rows(at + 1).await.pop().unwrap();
        let how = (row.status, row.outcome, row.code.as_deref());
        assert_eq!(how, (500, AttemptOutcome::UpstreamError, Some("internal_error")), "{reach:?}");
        shows_its_stage(&row, reach);
        house.is_as_before().await;
    }
    house.close().await;
}

#[tokio::test]
async fn refused_in_any_stage_it_ends_once() {
    let house = house().await;
    for (at, reach) in EVERY.into_iter().enumerate() {
        let mut guard = house.guard();
        go(&mut guard, reach).await;
        guard.refuse(&refusal::unknown_model("sim")).await.unwrap();
        assert!(guard.has_ended() && guard.in_flight().is_none());
        drop(guard);
        let row = house.rows(at + 1).await.pop().unwrap();
        assert_eq!((row.status, row.outcome), (404, AttemptOutcome::Refused), "{reach:?}");
        shows_its_stage(&row, reach);
        house.is_as_before().await;
    }
    house.close().await;
}

#[tokio::test]
async fn cut_off_at_the_end_of_a_drain_it_is_called_drained() {
    let house = house().await;
    let guards = EVERY.map(|_| house.guard());
    house.data.phase.advance(phase::GatewayPhase::Closing);
    drop(guards);
    for row in house.rows(EVERY.len()).await {
        let how = (row.status, row.outcome, row.code.as_deref());
        assert_eq!(how, (499, AttemptOutcome::Timeout, Some("drained")));
    }
    house.close().await;
}

#[tokio::test]
async fn a_retry_waits_again_and_its_waits_are_summed() {
    const WAIT: Duration = Duration::from_millis(30);
    /// Lets another request hold the only slot for some time.
    async fn granted_late<'p>(
        queued: RequestIn<'p, QueuedRequest>,
        id: &str,
    ) -> RequestIn<'p, InFlightRequest> {
        let other = permit(&queued, id).await;
        let leaving = tokio::spawn(async move {
            tokio::time::sleep(WAIT).await;
            other.give_back();
        });
        let in_flight = granted(queued).await;
        leaving.await.unwrap();
        in_flight
    }
    let house = house().await;
    let mut guard = house.guard();
    let queued = counted(accepted(routed(read(&mut guard)))).queue();
    let mut in_flight = granted_late(queued, "other-1").await;
    in_flight.mark_sent(true, 1);
    in_flight.flight.mark_not_taken();
    let (counted, recording) = in_flight.end_attempt(EndCode::UpstreamStatus, 429);
    recording.await.unwrap();
    assert_eq!(counted.attempt, 2);
    // The request itself goes on: its limits are corrected at its last end only.
    assert!(house.tokens_left() < 50_000);
    let in_flight = granted_late(counted.queue(), "other-2").await;
    let waited = in_flight.waited.unwrap();
    drop(guard);
    let rows = house.rows(2).await;
    let (first, last) = (&rows[0], &rows[1]);
    assert_eq!((first.attempt, first.last, first.outcome), (1, false, AttemptOutcome::Retried));
    assert_eq!((first.status, first.code.as_deref()), (429, Some("upstream_status")));
    assert_eq!((first.worker.as_deref(), first.brownout), (Some("sim"), true));
    assert_eq!((last.attempt, last.last, last.outcome), (2, true, AttemptOutcome::ClientLeft));
    assert_eq!((last.worker.as_deref(), last.brownout), (Some("sim"), false));
    let (first, last) = (Duration::from_micros(first.waited_us), waited);
    assert!(first >= WAIT && last >= first + WAIT, "{first:?} {last:?}");
    assert_eq!(Duration::from_micros(rows[1].waited_us), last);
    house.is_as_before().await;
    house.close().await;
}
