//! What projects used in the rolling window. `fairgate_store::fleet` has the rules, as the ledger charges projects too.

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction, fleet};

pub(crate) use fairgate_store::fleet::{Sums, Window};

/// Adds tokens to what a project used.
pub(crate) fn charge(
    tx: &mut dyn Transaction,
    project: &str,
    tokens: u64,
) -> Result<(), StoreError> {
    match i64::try_from(tokens).unwrap_or(i64::MAX) {
        0 => Ok(()),
        tokens => fleet::add_to_project(tx, project, tokens, 0),
    }
}

/// Counts one more task that ended well.
pub(crate) fn count_completed(tx: &mut dyn Transaction, project: &str) -> Result<(), StoreError> {
    fleet::add_to_project(tx, project, 0, 1)
}

/// Brings the sums of all projects to the bucket that `now` lies in.
pub(crate) fn roll(
    tx: &mut dyn Transaction,
    window: Window,
    now: UnixMicros,
) -> Result<(), StoreError> {
    fleet::roll(tx, window, now).map(drop)
}
