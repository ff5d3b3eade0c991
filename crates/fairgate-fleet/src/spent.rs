//! What projects have spent: what they used in the window, and what is set aside for their running tasks and calls.

use std::collections::BTreeMap;

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction};

use crate::usage::{Sums, Window};

/// A running task sets aside what is left of its reservation, or what its calls in flight hold where that is more. Calls of
/// claims that are over hold what they hold.
const HELD: &str = "\
    WITH calls AS (\
      SELECT task, epoch, project, CAST(SUM(provider_tokens) AS BIGINT) AS tokens FROM reservations \
      WHERE task IS NOT NULL GROUP BY task, epoch, project), \
    held AS (\
      SELECT t.id, t.epoch, t.project, t.reserved - t.used AS rest FROM fleet_tasks t \
      WHERE t.state IN ('ASSIGNED', 'IN_PROGRESS')), \
    parts AS (\
      SELECT h.project AS project, \
        CASE WHEN h.rest > COALESCE(c.tokens, 0) THEN h.rest ELSE COALESCE(c.tokens, 0) END AS tokens \
      FROM held h LEFT JOIN calls c ON c.task = h.id AND c.epoch = h.epoch \
      UNION ALL \
      SELECT c.project AS project, c.tokens AS tokens \
      FROM calls c LEFT JOIN held h ON h.id = c.task AND h.epoch = c.epoch WHERE h.id IS NULL) \
    SELECT project, CAST(SUM(tokens) AS BIGINT) FROM parts WHERE project IS NOT NULL GROUP BY project";

/// What each project has set aside, in tokens; projects with nothing are not named.
pub(crate) fn held(tx: &mut dyn Transaction) -> Result<BTreeMap<String, u64>, StoreError> {
    let rows = tx.list(HELD, &[], |row| Ok((row.text(0)?, row.count(1)?)))?;
    Ok(rows.into_iter().collect())
}

/// A project's columns that say what it spent, and what it is taken to have spent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) sums: Sums,
    pub(crate) baseline: u64,
    pub(crate) baseline_at: UnixMicros,
}

impl Account {
    /// Used in the window and set aside, without the baseline.
    pub(crate) fn spent(&self, window: Window, held: u64, now: UnixMicros) -> u64 {
        window.used(&self.sums, now).saturating_add(held)
    }

    /// What is left of the baseline.
    pub(crate) fn baseline(&self, window: Window, now: UnixMicros) -> u64 {
        window.fade(self.baseline, self.baseline_at, now)
    }
}
