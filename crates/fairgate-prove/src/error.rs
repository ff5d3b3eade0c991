//! Why an experiment could not be carried out. A bar that fails is no error: the report says so.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fairgate_store::StoreError;

/// Why there is nothing to judge.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProveError {
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A simulated backend.
    #[error("the simulated backend {worker:?} did not start: {source}")]
    Backend {
        /// Its name.
        worker: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The gateway.
    #[error("the gateway {doing}: {message}")]
    Gateway {
        /// What it did not do.
        doing: &'static str,
        /// Why.
        message: String,
    },
    /// The database.
    #[error("the ledger: {0}")]
    Store(#[from] StoreError),
    /// There was no tokio runtime to be had.
    #[error("no threads to run on: {0}")]
    Runtime(io::Error),
    /// A client was lost.
    #[error("a client of {tenant} ended in a panic: {message}")]
    Client {
        /// Whose.
        tenant: &'static str,
        /// What it said.
        message: String,
    },
    /// The first tenant could not fill the pool.
    #[error(
        "{scenario}: after {after:?} {in_flight} requests were in flight and {waiting} waited, where {capacity} fill the pool: \
         is the machine busy?"
    )]
    NotSaturated {
        /// In which scenario.
        scenario: &'static str,
        /// When it was given up.
        after: Duration,
        /// How many were in flight.
        in_flight: u64,
        /// How many waited.
        waiting: u64,
        /// How many may be in flight.
        capacity: u64,
    },
    /// It took too long.
    #[error(
        "{scenario}: after {after:?} {tenant} had {ended} answers, where {needed} are needed: is the machine busy?"
    )]
    TooSlow {
        /// In which scenario.
        scenario: &'static str,
        /// When it was given up.
        after: Duration,
        /// Who was behind.
        tenant: &'static str,
        /// How many it had.
        ended: u64,
        /// How many it should have had.
        needed: u64,
    },
}
