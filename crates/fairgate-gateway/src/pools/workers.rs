//! Changing the workers of pools while they run: by an operator, or because the addresses of a name have changed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use fairgate_config::{Config, check_name, parse_base_url};
use fairgate_store::{Change, Store, StoreError};
use serde_json::{Value, json};

use super::roster::{AddedWorker, Overload, Roster, WorkerSource};
use super::{Pools, PoolsError, kept};
use crate::forward::unix_now;

/// Why the workers of a pool were not changed. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error("there is no pool {0:?}")]
    NoPool(String),
    #[error("there is no worker {worker:?} in pool {pool:?}")]
    NoWorker { pool: String, worker: String },
    #[error("there is no upstream {0:?} in the configuration file")]
    NoUpstream(String),
    #[error("{field} {problem}")]
    Invalid { field: &'static str, problem: String },
    #[error("{name:?} is taken: {by}")]
    Taken { name: String, by: &'static str },
    #[error("{0}")]
    NotOurs(String),
    #[error("the change could not be kept in {file}, so it was not made: {source}")]
    NotKept { file: String, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Pools(#[from] PoolsError),
}

/// Whether a change was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    Yes,
    /// It was so already.
    No,
}

/// How a worker is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// It takes nothing new, and is gone once nothing is in flight on it.
    Drained,
    /// It is forgotten at once. What is in flight on it goes on, as long as the worker does.
    Now,
}

/// Where changes of workers are audited, and who makes them.
#[derive(Clone, Copy)]
pub(crate) struct WorkerAudit<'a> {
    pub(crate) store: &'a Store,
    pub(crate) actor: &'a str,
}

/// What the audit trail says of a change.
struct Note<'a> {
    audit: WorkerAudit<'a>,
    action: &'static str,
    pool: &'a str,
    after: Value,
}

impl Note<'_> {
    async fn write(self) -> Result<(), StoreError> {
        let Self { audit, action, pool, after } = self;
        let note = Change::Note { action, subject: pool.to_owned(), after };
        audit.store.change(audit.actor, unix_now(), note).await.map(drop)
    }
}

impl Pools {
    /// Adds a worker.
    pub(crate) async fn add_worker(
        &self,
        worker: AddedWorker,
        audit: WorkerAudit<'_>,
    ) -> Result<Changed, WorkerError> {
        let pool = worker.pool.clone();
        let after = json!(worker);
        let note = Note { audit, action: "worker.add", pool: &pool, after };
        self.change(Removal::Drained, Some(note), |file, roster| add(file, roster, worker)).await
    }

    /// Has a worker take nothing new, or take requests again.
    pub(crate) async fn drain_worker(
        &self,
        pool: &str,
        worker: &str,
        drained: bool,
        audit: WorkerAudit<'_>,
    ) -> Result<Changed, WorkerError> {
        self.known(pool, worker)?;
        let of = (pool.to_owned(), worker.to_owned());
        let edit = |_: &Arc<Config>, roster: &mut Roster| {
            match drained {
                true => roster.kept.drained.insert(of),
                false => roster.kept.drained.remove(&of),
            };
            Ok(())
        };
        let action = if drained { "worker.drain" } else { "worker.undrain" };
        let note = Note { audit, action, pool, after: json!({ "worker": worker }) };
        self.change(Removal::Drained, Some(note), edit).await
    }

    /// Removes a worker that was added.
    pub(crate) async fn remove_worker(
        &self,
        pool: &str,
        worker: &str,
        removal: Removal,
        audit: WorkerAudit<'_>,
    ) -> Result<Changed, WorkerError> {
        match self.known(pool, worker)? {
            WorkerSource::Api => {}
            WorkerSource::File => {
                return Err(WorkerError::NotOurs(format!(
                    "worker {worker:?} is from the configuration file: remove it there and reload; until then drain it"
                )));
            }
            WorkerSource::Dns => {
                return Err(WorkerError::NotOurs(format!(
                    "worker {worker:?} was found by DNS, and would be found again: take its address out of DNS, or drain it"
                )));
            }
        }
        let edit = |_: &Arc<Config>, roster: &mut Roster| {
            roster.kept.added.retain(|added| (&*added.pool, &*added.name) != (pool, worker));
            roster.kept.drained.remove(&(pool.to_owned(), worker.to_owned()));
            roster.kept.overload.remove(worker);
            Ok(())
        };
        let after = json!({ "worker": worker, "now": removal == Removal::Now });
        let note = Note { audit, action: "worker.remove", pool, after };
        self.change(removal, Some(note), edit).await
    }

    /// Changes when a worker counts as overloaded; as the file says where absent.
    pub(crate) async fn set_overload(
        &self,
        pool: &str,
        worker: &str,
        overload: Option<Overload>,
        audit: WorkerAudit<'_>,
    ) -> Result<Changed, WorkerError> {
        self.known(pool, worker)?;
        let handle = self.named(pool).ok_or_else(|| WorkerError::NoPool(pool.to_owned()))?;
        let reads =
            handle.setup().worker(worker).is_some_and(|it| it.upstream.config.metrics.is_some());
        if !reads && overload.is_some() {
            let problem = "has no meaning for this worker: its upstream has no metrics in the configuration file";
            return Err(WorkerError::Invalid { field: "overload", problem: problem.to_owned() });
        }
        let edit = |_: &Arc<Config>, roster: &mut Roster| {
            match overload {
                Some(overload) => roster.kept.overload.insert(worker.to_owned(), overload),
                None => roster.kept.overload.remove(worker),
            };
            Ok(())
        };
        let after = json!({ "worker": worker, "overload": overload });
        let note = Note { audit, action: "worker.overload", pool, after };
        self.change(Removal::Drained, Some(note), edit).await
    }

    /// An upstream's name now stands for these addresses.
    pub(super) async fn found(
        &self,
        upstream: &str,
        addresses: BTreeSet<IpAddr>,
    ) -> Result<Changed, WorkerError> {
        let edit = |file: &Arc<Config>, roster: &mut Roster| {
            roster.found.insert(upstream.to_owned(), addresses);
            roster.keep_found(file);
            Ok(())
        };
        self.change(Removal::Drained, None, edit).await
    }

    /// Changes the roster and puts what follows from it in force.
    async fn change(
        &self,
        removal: Removal,
        note: Option<Note<'_>>,
        edit: impl FnOnce(&Arc<Config>, &mut Roster) -> Result<(), WorkerError>,
    ) -> Result<Changed, WorkerError> {
        let staff = self.staff.clone().lock_owned().await;
        let mut roster = staff.roster.clone();
        edit(&staff.file, &mut roster)?;
        if roster == staff.roster {
            return Ok(Changed::No);
        }
        let (file, is_kept) = (staff.file.clone(), roster.kept == staff.roster.kept);
        let kept = roster.kept.clone();
        let mut prepared = self.prepare_with(staff, file.clone(), roster)?;
        prepared.removal = removal;
        if let Some(note) = note {
            note.write().await?;
        }
        if !is_kept {
            let data_dir = file.data_dir.clone();
            let shown = kept::path(&data_dir).display().to_string();
            let written = tokio::task::spawn_blocking(move || kept::write(&data_dir, &kept)).await;
            written
                .unwrap_or_else(|error| Err(std::io::Error::other(error)))
                .map_err(|source| WorkerError::NotKept { file: shown, source })?;
        }
        self.switch(prepared, file.drain_grace).await;
        Ok(Changed::Yes)
    }

    /// Where a worker of a pool is from.
    fn known(&self, pool: &str, worker: &str) -> Result<WorkerSource, WorkerError> {
        let handle = self.named(pool).ok_or_else(|| WorkerError::NoPool(pool.to_owned()))?;
        let setup = handle.setup();
        let found = setup.worker(worker).ok_or_else(|| WorkerError::NoWorker {
            pool: pool.to_owned(),
            worker: worker.to_owned(),
        })?;
        Ok(WorkerSource::of(&found.upstream.config))
    }
}

/// Adds a worker to the roster, where it can be one.
fn add(file: &Arc<Config>, roster: &mut Roster, worker: AddedWorker) -> Result<(), WorkerError> {
    let invalid =
        |field, problem: &str| WorkerError::Invalid { field, problem: problem.to_owned() };
    let AddedWorker { pool, name, url, like, .. } = &worker;
    if roster.kept.added.contains(&worker) {
        return Ok(());
    }
    let Some(pool) = file.pools.iter().find(|known| known.name == *pool) else {
        return Err(WorkerError::NoPool(pool.clone()));
    };
    if pool.leases.is_some() {
        let problem =
            "is a pool of leases: its clients call a provider themselves, and it has no workers";
        return Err(invalid("pool", problem));
    }
    let Some(like) = file.upstreams.iter().find(|upstream| upstream.name == *like) else {
        return Err(WorkerError::NoUpstream(like.clone()));
    };
    check_name(name).map_err(|problem| invalid("name", problem))?;
    parse_base_url(url).map_err(|problem| invalid("url", problem))?;
    let Some(upstream) = worker.upstream(like) else {
        return Err(invalid("url", "must be a URL"));
    };
    if upstream.slots.is_none() && (pool.follows_slots || upstream.tier > 0) {
        let problem = "must be stated: the pool's capacity is the sum of its workers' slots, or its tier is above 0";
        return Err(invalid("slots", problem));
    }
    let served = roster.applied_to(file);
    if served.upstreams.iter().any(|upstream| upstream.name == *name)
        || file.upstreams.iter().any(|upstream| upstream.name == *name)
    {
        let by = "another worker or upstream is called so; remove it first, or choose another name";
        return Err(WorkerError::Taken { name: name.clone(), by });
    }
    roster.kept.added.push(worker);
    Ok(())
}
