//! What an experiment leaves behind: three accounts of the same requests, kept by three parties.

use fairgate_core::snapshot::Snapshot;
use fairgate_sim::AccountCounts;
use fairgate_store::{Attempt, BudgetLeft, UsageRow};

/// Everything that is judged. Plain data: whoever doubts a bar can doctor it and see the bar fail.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The journal's files, oldest first.
    pub journal: Vec<JournalFile>,
    /// The gateway's own pool when all was over.
    pub last: Option<Snapshot>,
    /// What the database has.
    pub ledger: Ledger,
    /// What the clients saw, one for each request that they sent.
    pub sightings: Vec<Sighting>,
    /// How things stood in the end.
    pub aftermath: Aftermath,
    /// What the provider has let through and refused, where there is one.
    pub provider: Option<Provider>,
    /// All that concerns the second pool, where there is one; its provider is told of above.
    pub second: Option<Box<Evidence>>,
}

/// What a provider has counted by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provider {
    /// Until all tenants were there.
    pub at_join: AccountCounts,
    /// In all.
    pub in_all: AccountCounts,
}

/// One file of the journal.
#[derive(Clone, Debug)]
pub struct JournalFile {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What the database has.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Every row.
    pub rows: Vec<Attempt>,
    /// The sums of the rows of each tenant, by outcome, as the store itself adds them up.
    pub sums: Vec<(String, Vec<UsageRow>)>,
    /// How the tenants' budgets stand.
    pub budgets: Vec<(String, Vec<BudgetLeft>)>,
    /// How many reservations were found when the database was opened again.
    pub reservations_left: u64,
}

/// What a client saw of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Its tenant's place in the scenario.
    pub tenant: usize,
    /// The request's id, where the answer had one.
    pub request: Option<String>,
    /// How it ended.
    pub end: Seen,
}

/// How a request ended, as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The whole answer came, with its usage.
    Completed {
        /// Input tokens.
        input: u64,
        /// Output tokens.
        output: u64,
    },
    /// The client left on purpose, in the middle of the answer.
    Left,
    /// The answer had begun and broke off.
    Broken {
        /// How that showed.
        how: String,
    },
    /// There was no answer, or it was an error.
    Failed {
        /// The status, where there was one.
        status: Option<u16>,
        /// What was said.
        how: String,
    },
}

/// How things stood when all clients had finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aftermath {
    /// How many requests were in flight.
    pub in_flight: u64,
    /// How many waited.
    pub waiting: u64,
    /// How many permits had not ended when the gateway was drained.
    pub still_in_flight: u64,
    /// How many events are in no journal.
    pub events_lost: u64,
}
