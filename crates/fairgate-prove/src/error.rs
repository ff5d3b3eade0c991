//! Errors that prevent the result of an experiment. A failed bar is not an error, because the
//! report contains it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use fairgate_store::StoreError;

/// Reason why an experiment has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProveError {
    /// A file or folder could not be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file or folder.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A simulated backend did not start.
    #[error("the simulated backend {worker:?} did not start: {source}")]
    Backend {
        /// Name of the worker that the backend simulates.
        worker: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The gateway did not start, run or stop as expected.
    #[error("the gateway {doing}: {message}")]
    Gateway {
        /// Failed operation, as the end of a sentence that begins with "the gateway".
        doing: &'static str,
        /// Description of the cause of the failure.
        message: String,
    },
    /// The database could not be opened, read or changed.
    #[error("the ledger: {0}")]
    Store(#[from] StoreError),
    /// The tokio runtime could not be built.
    #[error("no threads to run on: {0}")]
    Runtime(io::Error),
    /// A client task panicked.
    #[error("a client of {tenant} ended in a panic: {message}")]
    Client {
        /// Name of the client's tenant.
        tenant: &'static str,
        /// Message of the panic.
        message: String,
    },
    /// The first tenant did not fill the pool in time.
    #[error(
        "{scenario}: after {after:?} {in_flight} requests were in flight and {waiting} waited, where {capacity} fill the pool: \
         is the machine busy?"
    )]
    NotSaturated {
        /// Name of the scenario.
        scenario: &'static str,
        /// Time for which the experiment waited.
        after: Duration,
        /// Requests in flight when the experiment gave up.
        in_flight: u64,
        /// Requests that were queued when the experiment gave up.
        waiting: u64,
        /// Number of requests in flight at which the pool is full.
        capacity: u64,
    },
    /// A tenant got too few answers in the allowed time.
    #[error(
        "{scenario}: after {after:?} {tenant} had {ended} answers, where {needed} are needed: is the machine busy?"
    )]
    TooSlow {
        /// Name of the scenario.
        scenario: &'static str,
        /// Time for which the experiment waited.
        after: Duration,
        /// Name of the tenant with the fewest answers.
        tenant: &'static str,
        /// Answers that this tenant got.
        ended: u64,
        /// Answers that this tenant should have got.
        needed: u64,
    },
}
