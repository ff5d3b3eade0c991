//! Members, their pool and a backend that counts what really runs on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fairgate_cluster::{
    ClusterAdmitError, ClusterHandle, ClusterLog, ClusterPermit, GenerationStore, LogCursor,
    MemberObserver, MemberOptions,
};
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::event::{PoolConfig, Submit, WorkerChange};
use fairgate_core::units::Tokens;
use fairgate_replica::{
    AppliedPoolEvent, CallerKind, CallerLimit, ClusterConfig, ClusterDecision, ClusterEffects,
    ClusterLine, ClusterMachine, ClusterMicros, ClusterTiming, FlightEnd, LogEntry, LogLine,
    LogPosition, MACHINE_VERSIONS, MemberIdentity, PoolLineFields, ShortHash,
};

/// Slots of the pool's one worker.
pub(crate) const SLOTS: u64 = 4;

/// The tenant that may make 10 requests a minute.
pub(crate) const LIMITED: &str = "limited";

pub(crate) fn pool() -> Arc<str> {
    "llama".into()
}

/// The pool's file, the same on all members: tenant `a` has four times the weight of `b`.
pub(crate) fn config(lease: Duration, orphans: Duration) -> ClusterConfig {
    let policy = r#"{"share":{"by":"tenant","weights":{"a":400,"b":100,"limited":100}}}"#;
    let mut config = PoolConfig::new(SLOTS, fairgate_journal::parse_policy(policy).unwrap());
    config.max_queue = Some(10_000);
    config.workers.push(WorkerChange {
        name: "w0".into(),
        slots: Some(SLOTS),
        ..WorkerChange::default()
    });
    let micros = |span: Duration| ClusterMicros(u64::try_from(span.as_micros()).unwrap());
    let timing = ClusterTiming {
        lease: micros(lease),
        orphans: micros(orphans),
        ..ClusterTiming::default()
    };
    ClusterConfig { timing, pools: [(pool(), config)].into() }
}

/// The events that a member's pools have applied.
pub(crate) type AppliedEvents = Arc<Mutex<Vec<AppliedPoolEvent>>>;

/// States the limit in each epoch, as the reader of a directory does, and keeps what a journal would.
#[derive(Default)]
struct TestObserver {
    events: AppliedEvents,
}

impl MemberObserver for TestObserver {
    fn wants_pool_events(&self) -> bool {
        true
    }

    fn pool_event(&mut self, event: &AppliedPoolEvent) {
        self.events.lock().unwrap().push(event.clone());
    }

    fn epoch_lines(&mut self) -> Vec<LogLine> {
        let limit = CallerLimit { requests_per_minute: Some(10), ..CallerLimit::default() };
        let (owner, name) = (CallerKind::Tenant, LIMITED.into());
        vec![LogLine::Cluster(ClusterLine::Limit { version: 1, owner, name, limit })]
    }
}

pub(crate) fn options(name: &str, process: &str, config: ClusterConfig) -> MemberOptions {
    let identity = MemberIdentity {
        name: name.into(),
        process: process.into(),
        address: format!("https://{name}:8443").into(),
        spool_lock: false,
        knows: MACHINE_VERSIONS,
        may_upgrade: true,
    };
    MemberOptions {
        observer: Box::new(TestObserver::default()),
        ..MemberOptions::new(identity, config)
    }
}

/// Makes a member's events visible.
pub(crate) fn with_events(options: MemberOptions) -> (MemberOptions, AppliedEvents) {
    let observer = TestObserver::default();
    let events = observer.events.clone();
    (MemberOptions { observer: Box::new(observer), ..options }, events)
}

/// Starts a member and waits until it has joined.
pub(crate) async fn start<L: ClusterLog + GenerationStore>(
    log: Arc<L>,
    options: MemberOptions,
) -> ClusterHandle {
    let member = ClusterHandle::start(log, "test", options).await.unwrap();
    assert!(member.joined().await, "{:?}", member.status());
    member
}

pub(crate) fn submit(id: &str, tenant: &str) -> Submit {
    let mut submit = Submit::new(id);
    submit.attributes = Attributes::none().with(Attribute::Tenant, tenant);
    submit.cost = Some(Tokens(100));
    submit
}

pub(crate) async fn admit(
    member: &ClusterHandle,
    id: &str,
    tenant: &str,
) -> Result<ClusterPermit, ClusterAdmitError> {
    member.admit(&pool(), submit(id, tenant), PoolLineFields::default()).await
}

pub(crate) fn end_of(tokens: u64) -> FlightEnd {
    FlightEnd { tokens: Some(Tokens(tokens)), ..FlightEnd::default() }
}

/// Counts the requests that run at once.
#[derive(Debug, Default)]
pub(crate) struct CountingBackend {
    running: AtomicU64,
    high_water: AtomicU64,
    served: AtomicU64,
}

impl CountingBackend {
    pub(crate) fn high_water(&self) -> u64 {
        self.high_water.load(Ordering::SeqCst)
    }

    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::SeqCst)
    }

    /// Runs a request that has its slot.
    pub(crate) async fn run(&self, mut permit: ClusterPermit, duration: Duration) {
        let _running = RunningRequest::begin(self);
        tokio::select! {
            () = tokio::time::sleep(duration) => {
                self.served.fetch_add(1, Ordering::SeqCst);
                permit.settle(end_of(100));
            }
            () = permit.must_stop() => drop(permit),
        }
    }
}

/// A request on the backend. It ends with its future, even if that is dropped.
struct RunningRequest<'a>(&'a CountingBackend);

impl<'a> RunningRequest<'a> {
    fn begin(backend: &'a CountingBackend) -> Self {
        let running = backend.running.fetch_add(1, Ordering::SeqCst) + 1;
        backend.high_water.fetch_max(running, Ordering::SeqCst);
        Self(backend)
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits until a condition about a member holds.
pub(crate) async fn until(
    member: &ClusterHandle,
    is_so: impl Fn(&ClusterMachine) -> bool + Clone + Send + 'static,
) {
    for _ in 0..2000 {
        let is_so = is_so.clone();
        if member.look(move |machine| is_so(machine)).await == Some(true) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {:?}", member.status());
}

/// Returns the number of requests in flight in a member's replica.
pub(crate) async fn in_flight(member: &ClusterHandle) -> u64 {
    let count = |machine: &ClusterMachine| machine.pool(&pool()).map(|it| it.in_flight());
    member.look(count).await.flatten().unwrap_or_default()
}

/// Waits until all members have applied the same records, and checks that they have the same state.
pub(crate) async fn check_equal(members: &[ClusterHandle]) {
    for _ in 0..1000 {
        let mut states: Vec<(u64, LogPosition, ShortHash, ShortHash)> = Vec::new();
        for member in members {
            let state =
                |it: &ClusterMachine| (it.generation(), it.position(), it.hash(), it.state_hash());
            states.push(member.look(state).await.unwrap());
        }
        let (generation, position, ..) = states[0];
        if states.iter().all(|it| (it.0, it.1) == (generation, position)) {
            assert!(states.iter().all(|it| *it == states[0]), "{states:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    panic!("the members are never at the same place");
}

/// Reads the whole log of a generation that has not been pruned, and applies it to a machine of its own. Calls `look`
/// after each grant, with the machine and the granted request's id.
pub(crate) async fn replay<L: ClusterLog>(
    log: &L,
    mut look: impl FnMut(&ClusterMachine, &str),
) -> ClusterMachine {
    let mut machine = ClusterMachine::new("test", MACHINE_VERSIONS.0);
    let mut effects = ClusterEffects::default();
    loop {
        let cursor = LogCursor { generation: machine.generation(), after: machine.position() };
        let read = log.read(cursor).await.unwrap();
        for record in &read.records {
            let (position, stamp) = (record.position, record.stamp);
            machine
                .apply(&LogEntry { position, stamp, record: &record.bytes }, &mut effects)
                .unwrap();
            for decision in std::mem::take(&mut effects.decisions) {
                if let ClusterDecision::Pool { decision: Decision::Grant(grant), .. } = decision {
                    look(&machine, &grant.id);
                }
            }
        }
        if read.records.is_empty() {
            return machine;
        }
    }
}
