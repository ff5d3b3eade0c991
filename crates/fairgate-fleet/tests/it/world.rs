//! A fleet on a fresh database, with a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fairgate_api::RightsPatchBody;
use fairgate_api::fleet::{NewAgent, NewProject, NewTask, NewTasks, TaskState, TaskView};
use fairgate_fleet::{AgentId, Fleet, FleetClock, FleetError, FleetOptions};
use fairgate_store::{
    AuditEntry, AuditQuery, DirectoryChange, DirectoryLimits, KeyHash, SqlValue, Store, StoreError,
    StoreOptions, UnixMicros,
};
use fairgate_testkit::postgres_server::shared_server;

/// The moment at which every test begins.
pub(crate) const START: i64 = 1_800_000_000_000_000;

/// A clock that goes where it is put.
#[derive(Debug)]
pub(crate) struct Hands {
    now: AtomicI64,
    /// How much of that did not pass, but was a jump.
    jumped: AtomicI64,
}

impl FleetClock for Hands {
    fn now(&self) -> UnixMicros {
        UnixMicros(self.now.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Duration {
        let passed = self.now().0 - self.jumped.load(Ordering::Relaxed);
        Duration::from_micros(u64::try_from(passed).unwrap())
    }
}

pub(crate) struct World {
    kind: Kind,
    url: String,
    pub(crate) fleet: Fleet,
    pub(crate) store: Store,
    clock: Arc<Hands>,
    _spool: tempfile::TempDir,
}

/// Which database a test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// Makes each case a test on each kind of database.
macro_rules! on_every_database {
    ($($case:ident),+ $(,)?) => {
        mod on_sqlite {
            $(#[test]
            fn $case() {
                $crate::world::run($crate::world::Kind::Sqlite, super::$case);
            })+
        }

        mod on_postgres {
            $(#[test]
            fn $case() {
                $crate::world::run($crate::world::Kind::Postgres, super::$case);
            })+
        }
    };
}
pub(crate) use on_every_database;

pub(crate) fn run<F: Future<Output = ()>>(kind: Kind, case: impl FnOnce(World) -> F) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(async { case(World::new(kind).await).await });
}

impl World {
    /// Tenant `t` with projects `p` and `q`, tenant `u` with project `r`, agents `a` and `b`, and `c`, which reports.
    async fn new(kind: Kind) -> Self {
        let spool = tempfile::tempdir().unwrap();
        let url = match kind {
            Kind::Sqlite => "sqlite::memory:".to_owned(),
            Kind::Postgres => {
                let server = shared_server();
                server.socket_url(&server.create_database().await.unwrap())
            }
        };
        Self::at(kind, url, spool).await
    }

    pub(crate) async fn at(kind: Kind, url: String, spool: tempfile::TempDir) -> Self {
        let folder = Some(spool.path().to_owned());
        let patience = Duration::from_secs(5);
        let options = StoreOptions { spool: folder, patience, ..StoreOptions::default() };
        let (store, _) = Store::open(&url, options).await.unwrap();
        let at = UnixMicros(START);
        store
            .change(
                "admin",
                at,
                DirectoryChange::AddGroup { name: "g".into(), weight: 1, budgets: Vec::new() },
            )
            .await
            .unwrap();
        for tenant in ["t", "u"] {
            let limits = DirectoryLimits::default();
            let (name, group) = (tenant.into(), "g".into());
            let change =
                DirectoryChange::AddTenant { name, group, weight: 1, limits, requires: Vec::new() };
            store.change("admin", at, change).await.unwrap();
        }
        let clock = Arc::new(Hands { now: AtomicI64::new(START), jumped: AtomicI64::new(0) });
        let options = FleetOptions { log_bytes_max: 1000, ..FleetOptions::default() };
        let fleet = Fleet::new(store.clone(), clock.clone(), options);
        let world = Self { kind, url, fleet, store, clock, _spool: spool };
        for (id, tenant) in [("p", "t"), ("q", "t"), ("r", "u")] {
            world.add_project(project(id, tenant)).await.unwrap();
        }
        for id in ["a", "b", "c"] {
            let agent = NewAgent {
                id: id.into(),
                kind: None,
                reports_tokens: id == "c",
                ..NewAgent::default()
            };
            world.fleet.add_agent("admin", agent).await.unwrap();
        }
        world
    }

    /// The store of another process: another one on PostgreSQL, the same on SQLite, which one process has to itself.
    pub(crate) async fn another_store(&self) -> Store {
        if matches!(self.kind, Kind::Sqlite) {
            return self.store.clone();
        }
        let spool = Some(self._spool.path().join("another"));
        let options = StoreOptions { spool, ..StoreOptions::default() };
        Store::open(&self.url, options).await.unwrap().0
    }

    /// Makes a project, whatever its view comes to.
    pub(crate) async fn add_project(&self, project: NewProject) -> Result<(), FleetError> {
        match self.fleet.add_project("admin", project).await {
            Ok(_) | Err(FleetError::Store(StoreError::Closed)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.clock.now.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
    }

    /// Puts the clock forward, or back.
    pub(crate) fn jump(&self, seconds: i64) {
        self.clock.jumped.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
        self.pass(seconds);
    }

    /// The fleet of a server that has just started on the same database.
    pub(crate) fn another_fleet(&self) -> Fleet {
        self.fleet_on(self.store.clone())
    }

    /// The fleet of a server on this store, with the test's clock.
    pub(crate) fn fleet_on(&self, store: Store) -> Fleet {
        Fleet::new(store, self.clock.clone(), FleetOptions::default())
    }

    pub(crate) fn now(&self) -> UnixMicros {
        self.clock.now()
    }

    /// Adds tasks of project `p`: `a`, or `a<b,c` where it needs others.
    pub(crate) async fn add(&self, tasks: &[&str]) {
        let tasks = tasks.iter().map(|task| {
            let (id, needs) = task.split_once('<').unwrap_or((task, ""));
            let needs = needs.split(',').filter(|need| !need.is_empty()).map(str::to_owned);
            NewTask { needs: needs.collect(), ..task_of("p", Some(id)) }
        });
        self.add_all(tasks.collect()).await.unwrap();
    }

    /// Adds a task as soon as the database takes it.
    pub(crate) async fn add_soon(&self, project: &str, id: &str) {
        let added = async {
            while self.add_all(vec![task_of(project, Some(id))]).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), added).await.expect("the database is back");
    }

    pub(crate) async fn add_all(
        &self,
        tasks: Vec<NewTask>,
    ) -> Result<fairgate_api::fleet::AddedTasks, FleetError> {
        self.fleet.add_tasks("admin", NewTasks { tasks, dry_run: false }).await
    }

    pub(crate) async fn task(&self, id: &str) -> TaskView {
        self.fleet.task(id).await.unwrap()
    }

    pub(crate) async fn state(&self, id: &str) -> TaskState {
        self.task(id).await.line.state
    }

    pub(crate) async fn sql(&self, sql: &str, values: Vec<SqlValue>) {
        let sql = sql.to_owned();
        let work = move |tx: &mut dyn fairgate_store::Transaction| -> Result<u64, StoreError> {
            tx.run(&sql, &values)
        };
        self.store
            .transact(fairgate_store::TransactionDurability::ThroughKill, work)
            .await
            .unwrap();
    }

    /// A number from the database.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = sql.to_owned();
        let work = move |tx: &mut dyn fairgate_store::Transaction| -> Result<i64, StoreError> {
            Ok(tx.first(&sql, &[], |row| row.int(0))?.unwrap_or(i64::MIN))
        };
        self.store.inspect(work).await.unwrap()
    }

    /// Has an agent hold a task, as a round would; says which claim it is.
    pub(crate) async fn hold(&self, task: &str, agent: &str) -> u64 {
        let hash = KeyHash::of(format!("{task} {agent}").as_bytes()).0.to_vec();
        let lease = self.now().0 + 60_000_000;
        self.sql(
            "UPDATE fleet_tasks SET state = 'ASSIGNED', epoch = epoch + 1, agent = $1, key_hash = $2, lease_until = $3, \
             reserved = 500, used = 0, claimed_at = $3, resume_after = NULL, reason = NULL WHERE id = $4",
            vec![agent.into(), hash.into(), lease.into(), task.into()],
        )
        .await;
        self.task(task).await.epoch
    }

    pub(crate) async fn audit(&self) -> Vec<AuditEntry> {
        self.store.audit(AuditQuery { limit: 1000, ..AuditQuery::default() }).await.unwrap()
    }
}

pub(crate) fn project(id: &str, tenant: &str) -> NewProject {
    NewProject {
        id: id.into(),
        tenant: tenant.into(),
        weight: None,
        concurrency: None,
        exclusive: false,
        agent_max: Default::default(),
        requires: Vec::new(),
        budget: None,
        rights: RightsPatchBody::default(),
    }
}

pub(crate) fn task_of(project: &str, id: Option<&str>) -> NewTask {
    NewTask {
        id: id.map(str::to_owned),
        project: project.into(),
        prompt: "do it\nwell".into(),
        ..NewTask::default()
    }
}

/// An agent by its name. Its seed is of no use.
pub(crate) fn agent(id: &str) -> AgentId {
    AgentId { id: id.into(), seed: [0; 32], token: None }
}

/// The field that an error is about.
pub(crate) fn field<T: std::fmt::Debug>(result: Result<T, FleetError>) -> String {
    match result {
        Err(
            FleetError::Invalid { field, .. }
            | FleetError::Unknown { field, .. }
            | FleetError::Archived { field, .. },
        ) => field,
        Err(FleetError::Passed { field, .. }) => field.to_owned(),
        Err(FleetError::InUse { what: "folder", .. }) => "path".to_owned(),
        other => panic!("expected an invalid field: {other:?}"),
    }
}
