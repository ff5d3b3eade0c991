//! Projects that come and go.
//!
//! A project is *busy* while an agent works for it, or while it is active and has a ready task. One that was not busy and
//! becomes so does not catch up on what it never asked for: it joins the others where the least served of them stands.
//! With w its weight and s what it spent, its baseline is
//!
//! ```text
//!     max(0, w × min over the other busy, active projects of (spent + baseline) ÷ weight − s)
//! ```
//!
//! rounded down; 0 where nobody else is busy. It fades to 0 within one window. Projects that become busy in the same
//! transaction are compared with those that were busy before it.

use std::collections::BTreeMap;

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction, Value};

use crate::rows;
use crate::spent::{self, Account};
use crate::usage::{self, Sums, Window};

/// Whether a project is busy, from its tasks: true where it is not what the column says.
const EDGES: &str = "\
    SELECT p.id, p.busy FROM fleet_projects p WHERE p.busy <> (\
      EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.state = 'ASSIGNED' AND t.project = p.id) \
      OR EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.state = 'IN_PROGRESS' AND t.project = p.id) \
      OR (p.status = 'ACTIVE' \
        AND EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.state = 'READY' AND t.project = p.id)))";

/// Brings `busy` of these projects up to date, and sets the baseline of those that came back. Belongs at the end of every
/// transaction that changes tasks or the status of projects.
pub(crate) fn note(
    tx: &mut dyn Transaction,
    window: Window,
    projects: &[&str],
    now: UnixMicros,
) -> Result<(), StoreError> {
    for some in projects.chunks(rows::ROWS_MAX) {
        let sql = format!("{EDGES} AND p.id IN ({})", rows::list(1, some.len()));
        let values: Vec<Value> = some.iter().map(|project| (*project).into()).collect();
        turn(tx, window, &sql, &values, now)?;
    }
    Ok(())
}

/// As [`note`], for all projects: a constant number of statements, two of them where nothing came or went.
pub(crate) fn note_all(
    tx: &mut dyn Transaction,
    window: Window,
    now: UnixMicros,
) -> Result<(), StoreError> {
    turn(tx, window, EDGES, &[], now)
}

fn turn(
    tx: &mut dyn Transaction,
    window: Window,
    edges: &str,
    values: &[Value],
    now: UnixMicros,
) -> Result<(), StoreError> {
    let edges = tx.list(edges, values, |row| Ok((row.text(0)?, row.flag(1)?)))?;
    let (ended, began): (Vec<_>, Vec<_>) = edges.into_iter().partition(|(_, was_busy)| *was_busy);
    if !began.is_empty() {
        let baselines = baselines(tx, window, began.iter().map(|(id, _)| id.as_str()), now)?;
        begin(tx, &baselines, now)?;
    }
    for some in ended.chunks(rows::ROWS_MAX) {
        let mut values: Vec<Value> = vec![false.into()];
        values.extend(some.iter().map(|(id, _)| id.as_str().into()));
        let ids = rows::list(2, some.len());
        tx.run(&format!("UPDATE fleet_projects SET busy = $1 WHERE id IN ({ids})"), &values)?;
    }
    Ok(())
}

fn begin(
    tx: &mut dyn Transaction,
    baselines: &[(&str, u64)],
    now: UnixMicros,
) -> Result<(), StoreError> {
    for some in baselines.chunks(rows::ROWS_MAX) {
        let mut values: Vec<Value> = vec![true.into(), now.into()];
        for (id, baseline) in some {
            values.push((*id).into());
            values.push(i64::try_from(*baseline).unwrap_or(i64::MAX).into());
        }
        let table = rows::table(3, &["TEXT", "BIGINT"], some.len());
        let sql = format!(
            "UPDATE fleet_projects SET busy = $1, baseline_at = $2, baseline = v.column2 FROM {table} AS v \
             WHERE id = v.column1"
        );
        tx.run(&sql, &values)?;
    }
    Ok(())
}

/// A project in the comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// In thousandths.
    pub(crate) weight: u64,
    /// Without the baseline, in tokens.
    pub(crate) spent: u64,
    /// What is left of it, in tokens.
    pub(crate) baseline: u64,
}

/// The baseline of a project of this weight that spent this, beside these others.
pub(crate) fn baseline(weight: u64, spent: u64, others: impl Iterator<Item = Standing>) -> u64 {
    let level = |other: &Standing| u128::from(other.spent) + u128::from(other.baseline);
    // Weights have at most 60 bits and levels 65: the products fit.
    let lowest = others.min_by(|one, other| {
        let left = level(one) * u128::from(other.weight);
        left.cmp(&(level(other) * u128::from(one.weight)))
    });
    let Some(lowest) = lowest else { return 0 };
    let joins_at = u128::from(weight) * level(&lowest) / u128::from(lowest.weight.max(1));
    u64::try_from(joins_at.saturating_sub(u128::from(spent))).unwrap_or(u64::MAX)
}

fn baselines<'a>(
    tx: &mut dyn Transaction,
    window: Window,
    began: impl Iterator<Item = &'a str>,
    now: UnixMicros,
) -> Result<Vec<(&'a str, u64)>, StoreError> {
    usage::roll(tx, window, now)?;
    let held = spent::held(tx)?;
    let sql = format!(
        "SELECT id, busy, status, weight, baseline, baseline_at, {} FROM fleet_projects",
        Sums::COLUMNS
    );
    let all = tx.list(&sql, &[], |row| {
        let account = Account {
            baseline: row.count(4)?,
            baseline_at: row.moment(5)?,
            sums: Sums::read(row, 6)?,
        };
        let competes = row.flag(1)? && row.text(2)? == "ACTIVE";
        Ok((row.text(0)?, competes, row.count(3)?, account))
    })?;
    let mut standings = BTreeMap::new();
    let mut others = Vec::new();
    for (id, competes, weight, account) in all {
        let held = held.get(&id).copied().unwrap_or(0);
        let spent = account.spent(window, held, now);
        let standing = Standing { weight, spent, baseline: account.baseline(window, now) };
        if competes {
            others.push(standing);
        }
        standings.insert(id, standing);
    }
    let of = |id: &'a str| {
        let standing = standings.get(id)?;
        Some((id, baseline(standing.weight, standing.spent, others.iter().copied())))
    };
    Ok(began.filter_map(of).collect())
}
