//! Changes the workers of running pools, because an operator asked for it or because the addresses of a DNS name have
//! changed.
//!
//! The slots of a worker that leaves count towards the pool's capacity until nothing is in flight on the worker.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use fairgate_config::{Config, check_name, parse_base_url};
use fairgate_store::{DirectoryChange, Store, StoreError};
use serde_json::{Value, json};

use super::roster::{AddedWorker, OverloadThresholds, WorkerRoster, WorkerSource};
use super::{Pools, PoolsError, operator_changes};
use fairgate_time::wall_clock;

/// Reason why the workers of a pool were not changed. After such an error, everything is as before.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No pool has this name.
    #[error("there is no pool {0:?}")]
    NoPool(String),
    /// The pool has no worker of this name.
    #[error("there is no worker {worker:?} in pool {pool:?}")]
    NoWorker {
        /// Name of the pool.
        pool: String,
        /// Name of the worker that the pool does not have.
        worker: String,
    },
    /// The configuration file has no upstream of the name in `like`.
    #[error("there is no upstream {0:?} in the configuration file")]
    NoUpstream(String),
    /// A field has a value that no worker can have.
    #[error("{field} {problem}")]
    Invalid {
        /// Name of the field in the API.
        field: &'static str,
        /// Rest of the sentence that begins with the field's name.
        problem: String,
    },
    /// Thresholds were set for a worker whose load is not read.
    #[error(
        "overload would have no effect: the upstream of worker {worker:?} has no metrics in the configuration file"
    )]
    NoThresholds {
        /// Name of the worker.
        worker: String,
    },
    /// The name belongs to another worker or upstream.
    #[error("{name:?} is taken: {by}")]
    Taken {
        /// The name that is in use.
        name: String,
        /// Description of the worker or upstream that has the name.
        by: &'static str,
    },
    /// The worker comes from the file or from DNS, so it cannot be removed here. The text says what
    /// to do instead.
    #[error("{0}")]
    NotOurs(String),
    /// The file of operators' changes could not be written.
    #[error("the change could not be kept in {file}, so it was not made: {source}")]
    NotKept {
        /// Path of the file.
        file: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The change could not be audited in the database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The pools could not be prepared for the changed workers.
    #[error(transparent)]
    Pools(#[from] PoolsError),
}

/// Whether a change had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeEffect {
    /// The state changed.
    Yes,
    /// The requested state was already in force.
    No,
}

/// How a worker is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRemoval {
    /// The worker gets no new requests, and is removed once nothing is in flight on it.
    Drained,
    /// The worker is removed at once. Its requests in flight continue as long as the worker answers.
    Now,
}

/// Store in which changes of workers are audited, and the name of the person or program that makes
/// them.
#[derive(Clone, Copy)]
pub struct WorkerAudit<'a> {
    /// Store with the audit trail.
    pub store: &'a Store,
    /// Name of the person or program that makes the change, as the audit trail shows it.
    pub actor: &'a str,
}

/// Audit entry of a change of workers.
struct WorkerAuditEntry<'a> {
    audit: WorkerAudit<'a>,
    action: &'static str,
    pool: &'a str,
    /// State before the change; `None` if the worker did not exist.
    before: Option<Value>,
    after: Value,
}

impl WorkerAuditEntry<'_> {
    async fn write(self) -> Result<(), StoreError> {
        let Self { audit, action, pool, before, after } = self;
        let note = DirectoryChange::Note { action, subject: pool.to_owned(), before, after };
        audit.store.change(audit.actor, wall_clock::now(), note).await.map(drop)
    }
}

impl Pools {
    /// Adds a worker. The change is audited and survives a restart.
    pub async fn add_worker(
        &self,
        worker: AddedWorker,
        audit: WorkerAudit<'_>,
    ) -> Result<ChangeEffect, WorkerError> {
        let pool = worker.pool.clone();
        let after = json!(worker);
        let action = "worker.add";
        let note = WorkerAuditEntry { audit, action, pool: &pool, before: None, after };
        self.change(WorkerRemoval::Drained, Some(note), |file, roster| add(file, roster, worker))
            .await
    }

    /// Drains a worker, or ends its drain if `drained` is false.
    pub async fn drain_worker(
        &self,
        pool: &str,
        worker: &str,
        drained: bool,
        audit: WorkerAudit<'_>,
    ) -> Result<ChangeEffect, WorkerError> {
        self.source_of_worker(pool, worker)?;
        let of = (pool.to_owned(), worker.to_owned());
        let edit = |_: &Arc<Config>, roster: &mut WorkerRoster| {
            match drained {
                true => roster.changes.drained.insert(of),
                false => roster.changes.drained.remove(&of),
            };
            Ok(())
        };
        let action = if drained { "worker.drain" } else { "worker.undrain" };
        // If the worker is already in this state, nothing changes and nothing is written.
        let entry = |drained: bool| json!({ "worker": worker, "drained": drained });
        let before = Some(entry(!drained));
        let note = WorkerAuditEntry { audit, action, pool, before, after: entry(drained) };
        self.change(WorkerRemoval::Drained, Some(note), edit).await
    }

    /// Removes a worker that an operator added.
    pub async fn remove_worker(
        &self,
        pool: &str,
        worker: &str,
        removal: WorkerRemoval,
        audit: WorkerAudit<'_>,
    ) -> Result<ChangeEffect, WorkerError> {
        match self.source_of_worker(pool, worker)? {
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
        let edit = |_: &Arc<Config>, roster: &mut WorkerRoster| {
            roster.changes.added.retain(|added| (&*added.pool, &*added.name) != (pool, worker));
            roster.changes.drained.remove(&(pool.to_owned(), worker.to_owned()));
            roster.changes.overload.remove(worker);
            Ok(())
        };
        let after = json!({ "worker": worker, "now": removal == WorkerRemoval::Now });
        let before = Some(json!({ "worker": worker }));
        let note = WorkerAuditEntry { audit, action: "worker.remove", pool, before, after };
        self.change(removal, Some(note), edit).await
    }

    /// Removes a worker that was added with exactly these settings, as [`Pools::remove_worker`] does. Changes nothing if
    /// it is gone, or was added again with others.
    pub async fn remove_added_worker(
        &self,
        worker: &AddedWorker,
        audit: WorkerAudit<'_>,
    ) -> Result<ChangeEffect, WorkerError> {
        let is_there =
            self.worker_sources.lock().await.roster.changes.added.iter().any(|it| it == worker);
        match is_there {
            true => {
                self.remove_worker(&worker.pool, &worker.name, WorkerRemoval::Drained, audit).await
            }
            false => Ok(ChangeEffect::No),
        }
    }

    /// Returns the overload thresholds that an operator set for a worker; `None` if those of the file apply.
    pub async fn overload_of(&self, worker: &str) -> Option<OverloadThresholds> {
        self.worker_sources.lock().await.roster.changes.overload.get(worker).copied()
    }

    /// Sets the overload thresholds of a worker; `None` restores those of the file.
    pub async fn set_overload(
        &self,
        pool: &str,
        worker: &str,
        overload: Option<OverloadThresholds>,
        audit: WorkerAudit<'_>,
    ) -> Result<ChangeEffect, WorkerError> {
        self.source_of_worker(pool, worker)?;
        let handle = self.named(pool).ok_or_else(|| WorkerError::NoPool(pool.to_owned()))?;
        let reads =
            handle.setup().worker(worker).is_some_and(|it| it.upstream.config.metrics.is_some());
        if !reads && overload.is_some() {
            return Err(WorkerError::NoThresholds { worker: worker.to_owned() });
        }
        let edit = |_: &Arc<Config>, roster: &mut WorkerRoster| {
            match overload {
                Some(overload) => roster.changes.overload.insert(worker.to_owned(), overload),
                None => roster.changes.overload.remove(worker),
            };
            Ok(())
        };
        let before = self.overload_of(worker).await;
        let entry = |overload: Option<OverloadThresholds>| json!({ "worker": worker, "overload": overload });
        let (before, after) = (Some(entry(before)), entry(overload));
        let note = WorkerAuditEntry { audit, action: "worker.overload", pool, before, after };
        self.change(WorkerRemoval::Drained, Some(note), edit).await
    }

    /// Sets the addresses that an upstream's DNS name now has.
    pub(super) async fn set_addresses(
        &self,
        upstream: &str,
        addresses: BTreeSet<IpAddr>,
    ) -> Result<ChangeEffect, WorkerError> {
        let edit = |file: &Arc<Config>, roster: &mut WorkerRoster| {
            roster.found.insert(upstream.to_owned(), addresses);
            roster.retain_discovered(file);
            Ok(())
        };
        self.change(WorkerRemoval::Drained, None, edit).await
    }

    /// Edits the roster, audits and stores the change, and puts the resulting configuration in force.
    async fn change(
        &self,
        removal: WorkerRemoval,
        note: Option<WorkerAuditEntry<'_>>,
        edit: impl FnOnce(&Arc<Config>, &mut WorkerRoster) -> Result<(), WorkerError>,
    ) -> Result<ChangeEffect, WorkerError> {
        let sources = self.worker_sources.clone().lock_owned().await;
        let mut roster = sources.roster.clone();
        edit(&sources.file, &mut roster)?;
        if roster == sources.roster {
            return Ok(ChangeEffect::No);
        }
        let (file, is_kept) = (sources.file.clone(), roster.changes == sources.roster.changes);
        let kept = roster.changes.clone();
        let mut prepared = self.prepare_with(sources, file.clone(), roster)?;
        prepared.removal = removal;
        if let Some(note) = note {
            note.write().await?;
        }
        if !is_kept {
            let data_dir = file.data_dir.clone();
            let shown = operator_changes::path(&data_dir).display().to_string();
            let written =
                tokio::task::spawn_blocking(move || operator_changes::write(&data_dir, &kept))
                    .await;
            written
                .unwrap_or_else(|error| Err(std::io::Error::other(error)))
                .map_err(|source| WorkerError::NotKept { file: shown, source })?;
        }
        self.switch(prepared, file.drain_grace).await;
        Ok(ChangeEffect::Yes)
    }

    /// Returns the origin of a worker of a pool.
    fn source_of_worker(&self, pool: &str, worker: &str) -> Result<WorkerSource, WorkerError> {
        let handle = self.named(pool).ok_or_else(|| WorkerError::NoPool(pool.to_owned()))?;
        let setup = handle.setup();
        let found = setup.worker(worker).ok_or_else(|| WorkerError::NoWorker {
            pool: pool.to_owned(),
            worker: worker.to_owned(),
        })?;
        Ok(WorkerSource::of(&found.upstream.config))
    }
}

/// Adds a worker to the roster, if the worker is valid.
fn add(
    file: &Arc<Config>,
    roster: &mut WorkerRoster,
    worker: AddedWorker,
) -> Result<(), WorkerError> {
    let invalid =
        |field, problem: &str| WorkerError::Invalid { field, problem: problem.to_owned() };
    let AddedWorker { pool, name, url, like, .. } = &worker;
    if roster.changes.added.contains(&worker) {
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
    roster.changes.added.push(worker);
    Ok(())
}
