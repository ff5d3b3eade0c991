//! Tokens that projects have spent. These are their usage in the window, plus the reservations of their running tasks
//! and requests in flight.
//!
//! Requests draw from the reservation of their task. So a running task counts with the rest of its reservation, or with
//! the tokens that its requests in flight reserve if these are more. Nothing is reserved twice, and a task that needs
//! more tokens than expected needs room in the budget only for the additional tokens.

use std::collections::BTreeMap;

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction};

use crate::window_usage::{UsageWindow, WindowSums};

/// Query that sums the reserved tokens of each project. A running task counts with the rest of its reservation, or with
/// the reservations of its requests in flight if these are greater. Requests whose claims are over count with their own
/// reservations.
const HELD: &str = concat!(
    "WITH calls AS (\
      SELECT task, epoch, project, CAST(SUM(provider_tokens) AS BIGINT) AS tokens FROM reservations \
      WHERE task IS NOT NULL GROUP BY task, epoch, project), \
    held AS (\
      SELECT t.id, t.epoch, t.project, t.reserved - t.used AS rest FROM fleet_tasks t \
      WHERE t.state IN ",
    fairgate_usage::held_states!(),
    "), \
    parts AS (\
      SELECT h.project AS project, \
        CASE WHEN h.rest > COALESCE(c.tokens, 0) THEN h.rest ELSE COALESCE(c.tokens, 0) END AS tokens \
      FROM held h LEFT JOIN calls c ON c.task = h.id AND c.epoch = h.epoch \
      UNION ALL \
      SELECT c.project AS project, c.tokens AS tokens \
      FROM calls c LEFT JOIN held h ON h.id = c.task AND h.epoch = c.epoch WHERE h.id IS NULL) \
    SELECT project, CAST(SUM(tokens) AS BIGINT) FROM parts WHERE project IS NOT NULL GROUP BY project"
);

/// Returns the reserved tokens of each project. Projects without reserved tokens are left out.
pub(crate) fn reserved_tokens(
    tx: &mut dyn Transaction,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let rows = tx.list(HELD, &[], |row| Ok((row.text(0)?, row.count(1)?)))?;
    Ok(rows.into_iter().collect())
}

/// Columns of a project from which its spent tokens and its baseline are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProjectAccount {
    pub(crate) sums: WindowSums,
    pub(crate) baseline: u64,
    pub(crate) baseline_at: UnixMicros,
}

impl ProjectAccount {
    /// Returns the project's tokens used in the window plus its reserved tokens (`held`), without the baseline.
    pub(crate) fn spent(&self, window: UsageWindow, held: u64, now: UnixMicros) -> u64 {
        window.used(&self.sums, now).saturating_add(held)
    }

    /// Returns the part of the baseline that has not faded yet, in tokens.
    pub(crate) fn baseline(&self, window: UsageWindow, now: UnixMicros) -> u64 {
        window.fade(self.baseline, self.baseline_at, now)
    }
}
