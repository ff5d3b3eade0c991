//! How a gate starts: fresh, or from the state that it had.

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

use crate::carrier::Carrier;
use crate::check;
use crate::clock::Clock;
use crate::desk::{Desk, Watch};
use crate::gate::{Gate, Shared};
use crate::journal::{self, Journal, JournalOptions};
use crate::refused::ChangeError;
use crate::state::{self, Keeper, StateError, StateOptions};

/// What a gate is besides its pool.
pub struct Options {
    /// How many submits and operators' wishes may wait to be read; who comes then waits outside. Default: 1024.
    pub turns: usize,
    /// The latest that a refused caller is told to come back. Default: 60 s.
    pub retry_after_max: Duration,
    /// The journal, where one is kept.
    pub journal: Option<JournalOptions>,
    /// The state file, where one is kept.
    pub state: Option<StateOptions>,
    /// Who hears every decision. See [`Options::watched_by`].
    pub watch: Option<Watch>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            turns: 1024,
            retry_after_max: Duration::from_secs(60),
            journal: None,
            state: None,
            watch: None,
        }
    }
}

impl Options {
    /// Lets somebody hear every decision, in order, with its time. It is called in the task and must not block.
    pub fn watched_by(mut self, watch: impl FnMut(Micros, &Decision) + Send + 'static) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("turns", &self.turns)
            .field("retry_after_max", &self.retry_after_max)
            .field("journal", &self.journal)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Why a gate did not start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pool has no `max_queue`, so clients could fill the memory.
    #[error("a pool behind a gate must have a max_queue")]
    NoQueueLimit,
    /// A worker of the pool's cannot be as it says.
    #[error("worker {worker:?}: {source}")]
    Worker {
        /// Its name.
        worker: Box<str>,
        /// What is wrong with it.
        source: ChangeError,
    },
    /// There is a state file, and it cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// No journal can be written there.
    #[error("journal {}: {source}", folder.display())]
    Journal {
        /// Its folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no tokio runtime here to run on.
    #[error("a gate starts inside a tokio runtime")]
    NoRuntime,
}

/// Starts a pool's task on this tokio runtime. Reads the state file, and begins the journal, before it returns.
///
/// Where there is a state file, the pool goes on with the scores in it. What waited or was in flight in the process that wrote
/// it is resolved first: what waited is cancelled; what was in flight is released without tokens, so charged its cost, since
/// nobody knows what it used. Capacity, policy, limits and workers are those of `config`: scores of another policy
/// than that in the file are lost with it. All of these are events in the new journal, after the snapshot it begins
/// with.
pub fn start(config: PoolConfig, options: Options) -> Result<Gate, StartError> {
    let runtime = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
    check_config(&config)?;
    let saved = options.state.as_ref().map(|state| state::load(&state.file)).transpose()?.flatten();
    let journalled =
        options.journal.as_ref().map_or(Micros(0), |journal| journal::latest_time(&journal.folder));
    let timeout = Duration::from_micros(config.queue_timeout.unwrap_or_default().0);
    let (pool, events) = match saved {
        Some(saved) => resumed(*saved, config, options.state.as_ref())?,
        None => (Pool::new(config), Vec::new()),
    };
    let clock = Clock::starting_at(pool.now().max(journalled));
    let mut desk = Desk::new(pool, timeout, options.retry_after_max);
    desk.set_watch(options.watch);
    let journal =
        options.journal.map(|journal| open_journal(journal, &mut desk, clock.now())).transpose()?;
    for event in events {
        desk.apply(clock.now(), event);
    }
    let shared = Arc::new(Shared::new(options.turns));
    let keeper = options.state.map(|state| Keeper::new(state, shared.mailbox.clone()));
    let carrier = Carrier { desk, shared: shared.clone(), clock, journal, keeper, drain: None };
    runtime.spawn(carrier.run());
    Ok(Gate::new(shared))
}

fn check_config(config: &PoolConfig) -> Result<(), StartError> {
    if config.max_queue.is_none() {
        return Err(StartError::NoQueueLimit);
    }
    for change in &config.workers {
        let named = |source| StartError::Worker { worker: change.name.clone(), source };
        check::worker(change).map_err(named)?;
    }
    Ok(())
}

fn open_journal(
    options: JournalOptions,
    desk: &mut Desk,
    now: Micros,
) -> Result<Journal, StartError> {
    let folder = options.folder.clone();
    Journal::open(options, desk, now).map_err(|source| StartError::Journal { folder, source })
}

/// The saved pool with the limits of the new one, and what must happen to it first.
fn resumed(
    mut saved: Snapshot,
    config: PoolConfig,
    options: Option<&StateOptions>,
) -> Result<(Pool, Vec<Event>), StartError> {
    saved.max_queue = config.max_queue;
    saved.queue_timeout = config.queue_timeout;
    saved.brownout_wait = config.brownout_wait;
    saved.busy = config.busy;
    // Workers are there or not, whatever was saved.
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
    let unusable = |_| StateError::NotAState {
        file: options.map(|options| options.file.clone()).unwrap_or_default(),
        problem: "it does not go with these limits",
    };
    Ok((Pool::restore(saved).map_err(unusable)?, events))
}

/// The ends of what the process that is gone has left behind: what waited first, the latest first, so that as few
/// as can be are granted on the way.
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
