//! A database with the projects and tasks of a benchmark in it.

use std::sync::Arc;

use anyhow::{Context, Result};
use fairgate_api::RightsPatchBody;
use fairgate_api::fleet::{NewProject, NewTask, NewTasks};
use fairgate_fleet::{Fleet, FleetOptions, SystemClock};
use fairgate_store::{DirectoryChange, DirectoryLimits, Store, StoreOptions, UnixMicros};
use fairgate_testkit::postgres_server;
use tempfile::TempDir;

/// Kind of database to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchDatabase {
    Sqlite,
    Postgres,
}

impl BenchDatabase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// A database, and the folder for the fleet's other files.
pub(super) struct FleetTestbed {
    folder: TempDir,
    url: String,
    opened: std::sync::Mutex<Vec<Store>>,
}

/// Number of tasks that one insertion adds to the database.
const AT_ONCE: usize = 2_000;
/// Shortest prompt of a task, in bytes.
const PROMPT_BYTES: usize = 2_000;

impl FleetTestbed {
    /// Creates a database with the given number of projects and ready tasks. Each project gets the
    /// same number of tasks.
    pub(super) async fn build(
        place: BenchDatabase,
        postgres: Option<&str>,
        projects: usize,
        tasks: usize,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let url = match place {
            BenchDatabase::Sqlite => format!("sqlite:{}", folder.path().join("fleet.db").display()),
            BenchDatabase::Postgres => {
                let server = postgres.context("PostgreSQL runs")?;
                fresh_database(server).await?
            }
        };
        let testbed = Self { folder, url, opened: std::sync::Mutex::default() };
        let fleet = testbed.fleet().await?;
        let store = testbed.last_store()?;
        let tenant = DirectoryChange::AddTenant {
            requires: Vec::new(),
            name: "bench".into(),
            group: "default".into(),
            weight: 1,
            limits: DirectoryLimits::default(),
        };
        let now = UnixMicros(1);
        if !store.directory().await?.groups.iter().any(|group| group.name == "default") {
            let group = DirectoryChange::AddGroup {
                name: "default".into(),
                weight: 1,
                budgets: Vec::new(),
            };
            store.change("bench", now, group).await?;
        }
        store.change("bench", now, tenant).await?;
        for number in 0..projects {
            let weight = format!("{}", number % 7 + 1).parse().map_err(anyhow::Error::msg)?;
            let project = NewProject {
                id: format!("p{number}"),
                tenant: "bench".into(),
                weight: Some(weight),
                concurrency: Some(1_000),
                exclusive: false,
                agent_max: Default::default(),
                requires: Vec::new(),
                budget: None,
                rights: RightsPatchBody::default(),
            };
            fleet.add_project("bench", project).await?;
        }
        for first in (0..tasks).step_by(AT_ONCE) {
            let some = first..(first + AT_ONCE).min(tasks);
            let tasks = some.map(|number| task(number, projects)).collect();
            fleet.add_tasks("bench", NewTasks { tasks, dry_run: false }).await?;
        }
        Ok(testbed)
    }

    /// Opens a fleet on this database. Several fleets may be open, as with several servers.
    pub(super) async fn fleet(&self) -> Result<Fleet> {
        let number = self.opened.lock().map_or(0, |opened| opened.len());
        if self.url.starts_with("sqlite:") && number > 0 {
            // SQLite's file belongs to one process, and all handles in this process share one
            // store.
            return Ok(Fleet::new(self.last_store()?, Arc::new(SystemClock), options()));
        }
        let spool = Some(self.folder.path().join(format!("spool-{number}")));
        let options_of_store = StoreOptions { spool, ..StoreOptions::default() };
        let (store, _) = Store::open(&self.url, options_of_store).await?;
        if let Ok(mut opened) = self.opened.lock() {
            opened.push(store.clone());
        }
        Ok(Fleet::new(store, Arc::new(SystemClock), options()))
    }

    fn last_store(&self) -> Result<Store> {
        let opened = self.opened.lock().ok().and_then(|opened| opened.last().cloned());
        opened.context("a store is open")
    }

    pub(super) async fn end(self) -> Result<()> {
        let opened = self.opened.into_inner().unwrap_or_default();
        for store in opened {
            store.close().await?;
        }
        Ok(())
    }
}

fn options() -> FleetOptions {
    FleetOptions { default_estimate: 1_000, ..FleetOptions::default() }
}

fn task(number: usize, projects: usize) -> NewTask {
    NewTask {
        id: Some(format!("t{number}")),
        project: format!("p{}", number % projects),
        prompt: prompt(number),
        estimate: Some(1_000),
        ..NewTask::default()
    }
}

/// Returns a prompt of the usual length of prompts that people write for agents.
fn prompt(number: usize) -> String {
    let mut prompt = format!("Do number {number}. ");
    while prompt.len() < PROMPT_BYTES {
        prompt.push_str(
            "Read the issue and the code that it names, and write a test that fails first. ",
        );
    }
    prompt
}

/// Creates an empty database on a running PostgreSQL server, and returns its URL.
async fn fresh_database(server: &str) -> Result<String> {
    let name = format!("fleet_{:x}", getrandom::u64()?);
    let client = postgres_server::connect(server).await?;
    client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    let (address, _) = server.rsplit_once('/').context("the URL names a database")?;
    Ok(format!("{address}/{name}"))
}
