//! A database with projects and tasks in it.

use std::sync::Arc;

use anyhow::{Context, Result};
use fairgate_fleet::{Fleet, FleetOptions, NewProject, NewTask, NewTasks, SystemClock};
use fairgate_store::{Change, Limits, Store, StoreOptions, UnixMicros};
use tempfile::TempDir;

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Sqlite,
    Postgres,
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// A database, and the folder of everything that is kept beside it.
pub(super) struct Stage {
    folder: TempDir,
    url: String,
    opened: std::sync::Mutex<Vec<Store>>,
}

/// How many tasks are added at once.
const AT_ONCE: usize = 2_000;

impl Stage {
    /// An empty database with so many projects and ready tasks, dealt out evenly.
    pub(super) async fn build(
        place: Place,
        postgres: Option<&str>,
        projects: usize,
        tasks: usize,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let url = match place {
            Place::Sqlite => format!("sqlite:{}", folder.path().join("fleet.db").display()),
            Place::Postgres => {
                let server = postgres.context("PostgreSQL runs")?;
                fresh_database(server).await?
            }
        };
        let stage = Self { folder, url, opened: std::sync::Mutex::default() };
        let fleet = stage.fleet().await?;
        let store = stage.last_store()?;
        let tenant = Change::AddTenant {
            name: "bench".into(),
            group: "default".into(),
            weight: 1,
            limits: Limits::default(),
        };
        let now = UnixMicros(1);
        if !store.directory().await?.groups.iter().any(|group| group.name == "default") {
            let group = Change::AddGroup { name: "default".into(), weight: 1, budgets: Vec::new() };
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
                budget: None,
            };
            fleet.add_project("bench", project).await?;
        }
        for first in (0..tasks).step_by(AT_ONCE) {
            let some = first..(first + AT_ONCE).min(tasks);
            let tasks = some.map(|number| task(number, projects)).collect();
            fleet.add_tasks("bench", NewTasks { tasks, dry_run: false }).await?;
        }
        Ok(stage)
    }

    /// Another server on this database.
    pub(super) async fn fleet(&self) -> Result<Fleet> {
        let number = self.opened.lock().map_or(0, |opened| opened.len());
        if self.url.starts_with("sqlite:") && number > 0 {
            // One process has a file, and all handles in it are one store.
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
        title: None,
        prompt: format!("Do number {number}."),
        priority: None,
        needs: Vec::new(),
        estimate: Some(1_000),
        retries: None,
        resume_after: None,
        workspace: None,
        affinity: None,
        affinity_wait_s: None,
    }
}

/// A database of its own on a server that is there.
async fn fresh_database(server: &str) -> Result<String> {
    let name = format!("fleet_{:x}", getrandom::u64()?);
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
    let (address, _) = server.rsplit_once('/').context("the URL names a database")?;
    Ok(format!("{address}/{name}"))
}
