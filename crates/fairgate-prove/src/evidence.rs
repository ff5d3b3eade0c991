//! Evidence of an experiment. The journal, the ledger and the clients each keep an account of the
//! same requests.

use fairgate_core::snapshot::Snapshot;
use fairgate_sim::AccountCounts;
use fairgate_store::{AttemptRow, BudgetBalance, UsageRow};

/// All input of the judge. It is plain data, so that a test can falsify it and check that the judge
/// notices.
#[derive(Clone, Debug, Default)]
pub struct ExperimentEvidence {
    /// Files of the journal, oldest first.
    pub journal: Vec<JournalFile>,
    /// Snapshot of the gateway's pool after the last request.
    pub last_snapshot: Option<Snapshot>,
    /// Rows, sums and budgets from the gateway's database.
    pub ledger: LedgerEvidence,
    /// Results that the clients saw, one for each request sent.
    pub results: Vec<ClientResult>,
    /// Counters of the gateway after the last request.
    pub final_counters: FinalCounters,
    /// Counters that the simulated provider kept, if the scenario has one.
    pub provider: Option<ProviderCounts>,
    /// Evidence of the second pool, if the scenario has one. Both pools share one provider, whose
    /// counters are only in the first pool's evidence.
    pub second: Option<Box<ExperimentEvidence>>,
}

/// Counters of requests that a simulated provider kept itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProviderCounts {
    /// Counts from the beginning to the join, the moment at which all tenants send requests.
    pub at_join: AccountCounts,
    /// Counts of the whole experiment.
    pub in_all: AccountCounts,
}

/// One file of the journal.
#[derive(Clone, Debug)]
pub struct JournalFile {
    /// Name of the file. The order of the names is the order in which the files were begun.
    pub name: String,
    /// Contents of the file.
    pub bytes: Vec<u8>,
}

/// Rows, sums and budgets that the database has after the experiment.
#[derive(Clone, Debug, Default)]
pub struct LedgerEvidence {
    /// All rows of the scenario's tenants. Attempts that were followed by a retry have rows too.
    pub rows: Vec<AttemptRow>,
    /// Usage of each tenant by outcome, in the store's own sums.
    pub sums: Vec<(String, Vec<UsageRow>)>,
    /// Budgets of each tenant, with their balances.
    pub budgets: Vec<(String, Vec<BudgetBalance>)>,
    /// Number of reservations that were still open when the database was opened again after the
    /// experiment.
    pub reservations_left: u64,
}

/// Result of one request, as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientResult {
    /// Index of the tenant in the scenario.
    pub tenant: usize,
    /// Id of the request; `None` if no response with an id arrived.
    pub request: Option<String>,
    /// Result of the request.
    pub end: AnswerEnd,
}

/// End of a request, as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The whole answer arrived, including the usage.
    Completed {
        /// Input tokens, as the answer's usage states them.
        input: u64,
        /// Output tokens, as the answer's usage states them.
        output: u64,
    },
    /// The client left on purpose before the end of the answer.
    Left,
    /// The answer began but broke off before its end.
    Broken {
        /// Description of the failure.
        how: String,
    },
    /// No answer arrived, or the response was an error.
    Failed {
        /// HTTP status, if a response arrived.
        status: Option<u16>,
        /// Error code of the response, or a description of the failure.
        how: String,
    },
}

/// Counters of the gateway after all clients had finished. All should be 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinalCounters {
    /// Requests that were still in flight.
    pub in_flight: u64,
    /// Requests that were still queued.
    pub waiting: u64,
    /// Permits that had not been given back when the gateway was drained.
    pub still_in_flight: u64,
    /// Events that could not be written to the journal.
    pub events_lost: u64,
}
