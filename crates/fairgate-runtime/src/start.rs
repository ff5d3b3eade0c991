//! Starts a gate, with a new pool or from its state file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;
use tokio::runtime::Handle;

use crate::admit_error::GateChangeError;
use crate::clock::PoolClock;
use crate::gate::{Gate, GateShared};
use crate::journal::{self, GateJournal, JournalOptions};
use crate::pool_task::{DecisionObserver, PoolTask};
use crate::state_file::{self, StateFileError, StateFileOptions, StateFileWriter};
use crate::task_loop::PoolTaskLoop;
use crate::validate;

/// Options of a gate, apart from its pool's configuration.
pub struct GateOptions {
    /// Maximum number of unread submits and operator calls. Further callers wait in their own
    /// futures. Default: 1024.
    pub turns: usize,
    /// Upper bound of the `retry_after` in refusals. Default: 60 s.
    pub retry_after_max: Duration,
    /// Options of the journal; `None` keeps no journal.
    pub journal: Option<JournalOptions>,
    /// Options of the state file; `None` keeps no state file.
    pub state: Option<StateFileOptions>,
    /// Observer that is called with every decision. See [`GateOptions::with_observer`].
    pub observer: Option<DecisionObserver>,
}

impl Default for GateOptions {
    fn default() -> Self {
        Self {
            turns: 1024,
            retry_after_max: Duration::from_secs(60),
            journal: None,
            state: None,
            observer: None,
        }
    }
}

impl GateOptions {
    /// Calls `watch` with every decision and its time, in order. `watch` runs inside the task and must not block.
    pub fn with_observer(mut self, watch: impl FnMut(Micros, &Decision) + Send + 'static) -> Self {
        self.observer = Some(Box::new(watch));
        self
    }
}

impl std::fmt::Debug for GateOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("turns", &self.turns)
            .field("retry_after_max", &self.retry_after_max)
            .field("journal", &self.journal)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Reason why a gate could not start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum GateStartError {
    /// The pool has no `max_queue`, so clients could fill the memory.
    #[error("a pool behind a gate must have a max_queue")]
    NoQueueLimit,
    /// The configuration of a worker is invalid.
    #[error("worker {worker:?}: {source}")]
    Worker {
        /// Name of the worker.
        worker: Box<str>,
        /// Reason why the worker's configuration is invalid.
        source: GateChangeError,
    },
    /// The state file exists and cannot be used.
    #[error(transparent)]
    State(#[from] StateFileError),
    /// The journal's folder or first file could not be created.
    #[error("journal {}: {source}", folder.display())]
    Journal {
        /// Folder of the journal.
        folder: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The caller is not inside a tokio runtime.
    #[error("a gate starts inside a tokio runtime")]
    NoRuntime,
}

/// Starts a pool's task on the current tokio runtime. Before it returns, it reads the state file
/// and begins the journal.
///
/// If there is a state file, the pool continues with its scores. First, the requests of the
/// previous process are ended. Queued requests are cancelled. Requests in flight are released
/// without a number of tokens; they are charged their cost, because their usage is unknown.
/// Capacity, policy, limits and workers come from `config`. If the policy differs from the one in
/// the file, the scores are lost. The new journal begins with a snapshot that already has the new
/// limits. The ends of the old requests and the changes of policy, capacity and workers follow as
/// events.
pub fn start(config: PoolConfig, options: GateOptions) -> Result<Gate, GateStartError> {
    let runtime = Handle::try_current().map_err(|_| GateStartError::NoRuntime)?;
    check_config(&config)?;
    let saved =
        options.state.as_ref().map(|state| state_file::load(&state.file)).transpose()?.flatten();
    let journalled =
        options.journal.as_ref().map_or(Micros(0), |journal| journal::latest_time(&journal.folder));
    let timeout = config.queue_timeout;
    let (pool, events) = match saved {
        Some(saved) => resumed(*saved, config, options.state.as_ref())?,
        None => (Pool::new(config), Vec::new()),
    };
    let clock = PoolClock::starting_at(pool.now().max(journalled));
    let mut pool_task = PoolTask::new(pool, timeout, options.retry_after_max);
    pool_task.set_observer(options.observer);
    let journal = options
        .journal
        .map(|journal| open_journal(journal, &mut pool_task, clock.now()))
        .transpose()?;
    for event in events {
        pool_task.apply(clock.now(), event);
    }
    let shared = Arc::new(GateShared::new(options.turns));
    let keeper = options.state.map(|state| StateFileWriter::new(state, shared.mailbox.clone()));
    let carrier = PoolTaskLoop {
        task: pool_task,
        shared: shared.clone(),
        clock,
        journal,
        state_file: keeper,
        drain: None,
    };
    runtime.spawn(carrier.run());
    Ok(Gate::new(shared))
}

fn check_config(config: &PoolConfig) -> Result<(), GateStartError> {
    if config.max_queue.is_none() {
        return Err(GateStartError::NoQueueLimit);
    }
    for change in &config.workers {
        let named = |source| GateStartError::Worker { worker: change.name.clone(), source };
        validate::worker(change).map_err(named)?;
    }
    Ok(())
}

fn open_journal(
    options: JournalOptions,
    pool_task: &mut PoolTask,
    now: Micros,
) -> Result<GateJournal, GateStartError> {
    let folder = options.folder.clone();
    GateJournal::open(options, pool_task, now)
        .map_err(|source| GateStartError::Journal { folder, source })
}

/// Returns the saved pool with the limits of the new configuration, and the events that must be applied to the pool
/// before any request.
fn resumed(
    mut saved: Snapshot,
    config: PoolConfig,
    options: Option<&StateFileOptions>,
) -> Result<(Pool, Vec<Event>), GateStartError> {
    saved.max_queue = config.max_queue;
    saved.queue_timeout = config.queue_timeout;
    saved.brownout_wait = config.brownout_wait;
    saved.busy = config.busy;
    saved.overlap_credit = config.overlap_credit;
    // Workers come from the new configuration only.
    saved.workers = None;
    for flight in saved.requests.iter_mut().filter_map(|request| request.flight.as_mut()) {
        flight.place = None;
        flight.taken = None;
    }
    let mut events = resolved(&saved);
    if saved.policy != config.policy {
        events.push(Event::Policy(config.policy));
    }
    if saved.capacity != config.capacity {
        events.push(Event::Capacity { slots: config.capacity });
    }
    events.extend(config.workers.into_iter().map(Event::Worker));
    let unusable = |_| StateFileError::NotAState {
        file: options.map(|options| options.file.clone()).unwrap_or_default(),
        problem: "it does not go with these limits",
    };
    Ok((Pool::restore(saved).map_err(unusable)?, events))
}

/// Returns the events that end the requests of the previous process. Queued requests are ended
/// before those in flight. The last submitted one is ended first, so that as few queued requests as
/// possible are granted before they end.
fn resolved(saved: &Snapshot) -> Vec<Event> {
    let waiting = saved.requests.iter().rev().filter(|request| request.flight.is_none());
    let in_flight = saved.requests.iter().filter(|request| request.flight.is_some());
    let cancels = waiting.map(|request| Event::Cancel { id: request.id.clone() });
    let releases = in_flight.map(|request| Event::Release {
        id: request.id.clone(),
        tokens: None,
        quota: None,
    });
    cancels.chain(releases).collect()
}
