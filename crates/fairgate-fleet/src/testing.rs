//! A fleet in a database in memory, for tests that insert rows by SQL. [`FleetTestWorld`] runs
//! rounds one at a time, at times that the test chooses. [`in_memory`] runs a test inside one
//! transaction.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use fairgate_api::agents::Claim;
use fairgate_store::{
    DatabaseKind, RowColumns, SqlValue, Store, StoreError, StoreOptions, Transaction,
    TransactionDurability,
};
use fairgate_time::UnixMicros;

use crate::fleet::Fleet;
use crate::fleet_clock::FleetClock;
use crate::options::FleetOptions;
use crate::round::{self, ClaimReply, ClaimingAgent, RoundOptions, RoundOutcome};

/// A time in the middle of a bucket of the default window.
pub(crate) const START: UnixMicros = UnixMicros(1_800_000_000_000_000 + 1_000_000);

/// A clock that stands still until the test sets it.
#[derive(Debug)]
pub(crate) struct TestFleetClock(pub(crate) AtomicI64);

impl TestFleetClock {
    pub(crate) fn at(now: UnixMicros) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(now.0)))
    }
}

impl FleetClock for TestFleetClock {
    fn now(&self) -> UnixMicros {
        UnixMicros(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) struct FleetTestWorld {
    pub(crate) store: Store,
    pub(crate) options: FleetOptions,
    pub(crate) now: UnixMicros,
    made: i64,
}

/// A project to be inserted.
pub(crate) struct ProjectFixture {
    pub(crate) weight: i64,
    pub(crate) concurrency: i64,
    pub(crate) exclusive: bool,
    pub(crate) agent_max: &'static str,
    pub(crate) budget: Option<i64>,
    pub(crate) status: &'static str,
    pub(crate) used: i64,
    pub(crate) completed: i64,
    pub(crate) baseline: i64,
    pub(crate) busy: bool,
}

/// A task to be inserted.
pub(crate) struct TaskFixture {
    pub(crate) priority: i64,
    pub(crate) estimate: Option<i64>,
    pub(crate) workspace: Option<&'static str>,
    pub(crate) affinity: Option<&'static str>,
    pub(crate) state: &'static str,
    pub(crate) resume_after: Option<i64>,
    pub(crate) retries: i64,
    pub(crate) open_needs: i64,
    pub(crate) epoch: i64,
    /// Tokens that the task's claim reserved.
    pub(crate) reserved: i64,
}

impl Default for ProjectFixture {
    fn default() -> Self {
        Self {
            weight: 1_000,
            concurrency: 2,
            exclusive: false,
            agent_max: "{}",
            budget: None,
            status: "ACTIVE",
            used: 0,
            completed: 0,
            baseline: 0,
            busy: true,
        }
    }
}

impl ProjectFixture {
    fn insert(
        &self,
        tx: &mut dyn Transaction,
        id: &str,
        tenant: &str,
        made: i64,
        now: UnixMicros,
        bucket: i64,
    ) -> Result<u64, StoreError> {
        let values: [SqlValue; 15] = [
            id.into(),
            tenant.into(),
            made.into(),
            self.status.into(),
            self.weight.into(),
            self.concurrency.into(),
            self.exclusive.into(),
            self.agent_max.into(),
            self.budget.into(),
            self.busy.into(),
            self.baseline.into(),
            now.into(),
            bucket.into(),
            self.used.into(),
            self.completed.into(),
        ];
        tx.run(
            "INSERT INTO fleet_projects (id, tenant, made, status, weight, concurrency, exclusive, agent_max, budget, \
             busy, baseline, baseline_at, window_bucket, window_tokens, window_oldest, window_completed, created_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, 0, $15, $12)",
            &values,
        )
    }
}

impl Default for TaskFixture {
    fn default() -> Self {
        Self {
            priority: 100,
            estimate: None,
            workspace: None,
            affinity: None,
            state: "READY",
            resume_after: None,
            retries: 0,
            open_needs: 0,
            epoch: 0,
            reserved: 0,
        }
    }
}

impl TaskFixture {
    fn insert(
        &self,
        tx: &mut dyn Transaction,
        id: &str,
        project: &str,
        made: i64,
        now: UnixMicros,
    ) -> Result<u64, StoreError> {
        let text = |it: Option<&str>| SqlValue::MaybeText(it.map(str::to_owned));
        let values = [
            id.into(),
            project.into(),
            made.into(),
            self.state.into(),
            self.priority.into(),
            self.estimate.into(),
            self.retries.into(),
            self.open_needs.into(),
            self.resume_after.into(),
            text(self.workspace),
            text(self.affinity),
            now.into(),
            self.epoch.into(),
            self.reserved.into(),
        ];
        tx.run(
            "INSERT INTO fleet_tasks (id, project, made, state, priority, estimate, retries, open_needs, resume_after, \
             workspace, affinity, ready_at, created_at, title, retries_max, affinity_wait, epoch, ended_epoch, \
             reserved, used, used_before, calls) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, \
             'a title', 3, 120000000, $13, 0, $14, 0, 0, 0)",
            &values,
        )
    }
}

fn insert_tenant(tx: &mut dyn Transaction, name: &str) -> Result<u64, StoreError> {
    tx.run("INSERT INTO tenant_groups (name, weight, created_at) VALUES ('g', 1, 0)", &[])?;
    tx.run(
        "INSERT INTO tenants (name, group_name, weight, disabled, hosted, created_at) \
         VALUES ($1, 'g', 1, $2, 'allowed', 0)",
        &[name.into(), false.into()],
    )
}

impl FleetTestWorld {
    pub(crate) async fn new() -> Self {
        Self::with(FleetOptions { default_estimate: 100, ..FleetOptions::default() }).await
    }

    pub(crate) async fn with(options: FleetOptions) -> Self {
        Self::at("sqlite::memory:", options).await
    }

    pub(crate) async fn at(url: &str, options: FleetOptions) -> Self {
        let (store, _) = Store::open(url, StoreOptions::default()).await.unwrap();
        let world = Self { store, options, now: START, made: 0 };
        world.transact(|tx| insert_tenant(tx, "acme")).await;
        world
    }

    pub(crate) fn rules(&self) -> RoundOptions {
        RoundOptions::new(&self.options)
    }

    /// Returns a handle to the fleet, whose clock shows the world's present time.
    pub(crate) fn fleet(&self) -> Fleet {
        Fleet::new(self.store.clone(), TestFleetClock::at(self.now), self.options.clone())
    }

    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now.0 += seconds * 1_000_000;
    }

    pub(crate) async fn run(&self, sql: &str, values: &[SqlValue]) -> u64 {
        let (sql, values) = (sql.to_owned(), values.to_vec());
        self.transact(move |tx| tx.run(&sql, &values)).await
    }

    async fn transact<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Transaction) -> Result<T, StoreError> + Send + 'static,
    ) -> T {
        self.store.transact(TransactionDurability::ThroughKill, work).await.unwrap()
    }

    /// Returns each row of a query as its values, separated by spaces.
    pub(crate) async fn rows(&self, sql: &str, columns: usize) -> Vec<String> {
        let sql = sql.to_owned();
        let work = move |tx: &mut dyn Transaction| {
            tx.list(&sql, &[], |row| {
                let shown =
                    |column| row.text_or_null(column).map(|it| it.unwrap_or_else(|| "-".into()));
                Ok((0..columns).map(shown).collect::<Result<Vec<_>, _>>()?.join(" "))
            })
        };
        self.store.inspect::<_, StoreError>(work).await.unwrap()
    }

    /// Returns the state of a task.
    pub(crate) async fn task_state(&self, id: &str) -> String {
        self.rows(&format!("SELECT state FROM fleet_tasks WHERE id = '{id}'"), 1).await.concat()
    }

    pub(crate) async fn project(&mut self, id: &str, set: impl FnOnce(&mut ProjectFixture)) {
        let mut it = ProjectFixture::default();
        set(&mut it);
        self.made += 1;
        let (id, made, now) = (id.to_owned(), self.made, self.now);
        let bucket = self.rules().window.bucket(now);
        self.transact(move |tx| {
            it.insert(tx, &id, "acme", made, now, bucket)?;
            tx.run(
                "INSERT INTO fleet_usage (project, bucket, tokens, completed) VALUES ($1, $2, $3, $4)",
                &[id.into(), bucket.into(), it.used.into(), it.completed.into()],
            )
        })
        .await;
    }

    pub(crate) async fn task(
        &mut self,
        id: &str,
        project: &str,
        set: impl FnOnce(&mut TaskFixture),
    ) {
        let mut it = TaskFixture::default();
        set(&mut it);
        self.made += 1;
        let (id, project, made, now) = (id.to_owned(), project.to_owned(), self.made, self.now);
        self.transact(move |tx| {
            it.insert(tx, &id, &project, made, now)?;
            let prompt = "INSERT INTO fleet_prompts (task, prompt) VALUES ($1, 'a prompt')";
            tx.run(prompt, &[id.into()])
        })
        .await;
    }

    /// Inserts prompts of `bytes` bytes for all tasks that have none.
    async fn prompts(&self, bytes: i64) {
        self.run(
            "INSERT INTO fleet_prompts (task, prompt) SELECT id, printf('%.*c', $1, 'x') FROM fleet_tasks \
             WHERE id NOT IN (SELECT task FROM fleet_prompts)",
            &[bytes.into()],
        )
        .await;
    }

    /// Inserts `count` ready tasks of a project: `PROJECT-0` and so on.
    pub(crate) async fn tasks(&mut self, project: &str, count: usize) {
        for number in 0..count {
            self.task(&format!("{project}-{number}"), project, |_| {}).await;
        }
    }

    /// Inserts `count` ready tasks of a project in one statement.
    pub(crate) async fn many_tasks(&self, project: &str, count: i64) {
        self.run(
            "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1) \
             INSERT INTO fleet_tasks (id, project, made, state, priority, retries, open_needs, ready_at, created_at, title, \
             retries_max, affinity_wait, epoch, ended_epoch, reserved, used, used_before, calls) \
             SELECT $2 || '-' || i, $2, i, 'READY', 100, 0, 0, 0, 0, 'a title', 3, 0, 0, 0, 0, 0, 0, 0 FROM n",
            &[count.into(), project.into()],
        )
        .await;
        self.prompts(10).await;
    }

    pub(crate) async fn agent(&self, id: &str, kind: &str) {
        self.run(
            "INSERT INTO fleet_agents (id, kind, hash, hint, state, reports, created_at) \
             VALUES ($1, $2, $3, '', 'ACTIVE', $4, 0)",
            &[id.into(), kind.into(), id.as_bytes().to_vec().into(), false.into()],
        )
        .await;
    }

    /// Inserts agents with these names.
    pub(crate) async fn agents_named(&self, names: &[&str]) {
        for name in names {
            self.agent(name, "default").await;
        }
    }

    /// Inserts `count` agents: `a0` and so on.
    pub(crate) async fn agents(&self, count: usize) {
        for number in 0..count {
            self.agent(&format!("a{number}"), "default").await;
        }
    }

    pub(crate) async fn workspace(&self, id: &str, project: &str, task: Option<&str>) {
        self.run(
            "INSERT INTO fleet_workspaces (id, project, path, task, agent, created_at) \
             VALUES ($1, $2, '/w', $3, NULL, 0)",
            &[id.into(), project.into(), SqlValue::MaybeText(task.map(str::to_owned))],
        )
        .await;
    }

    /// Runs a round for these agents.
    pub(crate) async fn round(&self, agents: &[&str]) -> RoundOutcome {
        self.counted_round(agents).await.0
    }

    /// Runs a round for these agents. Also returns its number of SQL statements.
    pub(crate) async fn counted_round(&self, agents: &[&str]) -> (RoundOutcome, usize) {
        let askers: Vec<_> = agents.iter().map(|agent| asker(agent)).collect();
        let (rules, now) = (self.rules(), self.now);
        let work = move |tx: &mut dyn Transaction| {
            let mut counted = TimedTransaction { tx, statements: Vec::new() };
            let begun = Instant::now();
            let outcome = round::round(&mut counted, &rules, &askers, None, now)?;
            if std::env::var_os("FAIRGATE_STATEMENTS").is_some() {
                show(&counted.statements, begun.elapsed());
            }
            Ok((outcome, counted.statements.len()))
        };
        self.store
            .transact::<_, StoreError>(TransactionDurability::ThroughKill, work)
            .await
            .unwrap()
    }

    /// Runs a round for these agents, and returns the task of each; `-` if it got none.
    pub(crate) async fn given(&self, agents: &[&str]) -> Vec<String> {
        let outcome = self.round(agents).await;
        outcome.replies.iter().map(|reply| task_of(reply.as_ref())).collect()
    }
}

pub(crate) fn asker(agent: &str) -> ClaimingAgent {
    let seed = *blake3::hash(agent.as_bytes()).as_bytes();
    ClaimingAgent { agent: agent.to_owned(), seed, token: None }
}

pub(crate) fn claim_of(reply: Option<&ClaimReply>) -> Option<&Claim> {
    match reply {
        Some(ClaimReply::Task(granted)) => Some(&granted.claim),
        _ => None,
    }
}

fn task_of(reply: Option<&ClaimReply>) -> String {
    claim_of(reply).map_or_else(|| "-".to_owned(), |claim| claim.task.clone())
}

/// A transaction that records its statements.
pub(crate) struct TimedTransaction<'a> {
    pub(crate) tx: &'a mut dyn Transaction,
    /// The statements, with their durations.
    pub(crate) statements: Vec<(String, Duration)>,
}

fn show(statements: &[(String, Duration)], all: Duration) {
    let within: Duration = statements.iter().map(|(_, took)| *took).sum();
    println!("{all:?}, {within:?} of it in {} statements", statements.len());
    for (sql, took) in statements {
        println!("  {took:>12?} {}", sql.chars().take(110).collect::<String>());
    }
}

impl Transaction for TimedTransaction<'_> {
    fn each(
        &mut self,
        sql: &str,
        values: &[SqlValue],
        row: &mut dyn FnMut(&dyn RowColumns) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let begun = Instant::now();
        let done = self.tx.each(sql, values, row);
        self.statements.push((sql.to_owned(), begun.elapsed()));
        done
    }

    fn run(&mut self, sql: &str, values: &[SqlValue]) -> Result<u64, StoreError> {
        let begun = Instant::now();
        let done = self.tx.run(sql, values);
        self.statements.push((sql.to_owned(), begun.elapsed()));
        done
    }

    fn database(&self) -> DatabaseKind {
        self.tx.database()
    }
}

/// Runs a test inside a transaction on a new database with one tenant `t`.
pub(crate) fn in_memory(test: impl FnOnce(&mut dyn Transaction) + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await.unwrap();
        let work = move |tx: &mut dyn Transaction| -> Result<(), StoreError> {
            insert_tenant(tx, "t")?;
            // A panic in the store's thread would be reported as a closed store.
            let came_to = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(tx)));
            came_to.map_err(|_| StoreError::Database("the test failed; see above".to_owned()))
        };
        store.transact(TransactionDurability::ThroughKill, work).await.unwrap();
    });
}

/// Inserts a project with this weight, in thousandths.
pub(crate) fn add_project(tx: &mut dyn Transaction, id: &str, weight: i64, bucket: i64) {
    let project = ProjectFixture { weight, busy: false, ..ProjectFixture::default() };
    project.insert(tx, id, "t", 0, UnixMicros(0), bucket).unwrap();
}

/// Inserts a task with one claim, which reserved these tokens.
pub(crate) fn add_task(
    tx: &mut dyn Transaction,
    id: &str,
    project: &str,
    state: &'static str,
    reserved: i64,
) {
    let task = TaskFixture { state, epoch: 1, reserved, ..TaskFixture::default() };
    task.insert(tx, id, project, 0, UnixMicros(0)).unwrap();
}
