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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scratch::{self, Dice, in_memory};

    const ALL: &[&str] = &["p", "q", "r"];

    fn window() -> Window {
        Window::new(Duration::from_secs(24 * 3600))
    }

    /// The largest whole baseline at which the project is not above any other: found by trying, without a division.
    fn naive(weight: u64, spent: u64, others: &[Standing]) -> u64 {
        if others.is_empty() {
            return 0;
        }
        let is_level = |baseline: u64| {
            others.iter().all(|other| {
                let mine = u128::from(spent + baseline) * u128::from(other.weight);
                mine <= u128::from(other.spent + other.baseline) * u128::from(weight)
            })
        };
        (0..).take_while(|baseline| is_level(*baseline)).last().unwrap_or(0)
    }

    #[test]
    fn baselines_are_the_naive_ones() {
        for seed in 0..2_000 {
            let mut dice = Dice::new(seed);
            let mut standing = || Standing {
                weight: 1 + dice.below(20),
                spent: dice.below(100),
                baseline: dice.below(30),
            };
            let me = standing();
            let others: Vec<_> = (0..seed % 5).map(|_| standing()).collect();
            let found = baseline(me.weight, me.spent, others.iter().copied());
            assert_eq!(found, naive(me.weight, me.spent, &others), "seed {seed}");
        }
    }

    #[test]
    fn the_largest_numbers_fit() {
        let heaviest = 1_000_000_000_000_000_000;
        let most = Standing { weight: heaviest, spent: u64::MAX, baseline: u64::MAX };
        assert_eq!(baseline(heaviest, 0, [most, most].into_iter()), u64::MAX);
        let light = Standing { weight: 1, ..most };
        assert_eq!(baseline(heaviest, 0, [light].into_iter()), u64::MAX);
        assert_eq!(baseline(1, 0, [most].into_iter()), 36);
    }

    fn add_task(tx: &mut dyn Transaction, id: &str, project: &str, state: &str, reserved: i64) {
        tx.run(
            "INSERT INTO fleet_tasks (id, project, made, title, prompt, state, priority, retries, retries_max, open_needs, \
             affinity_wait, epoch, ended_epoch, reserved, used, used_before, calls, created_at) \
             VALUES ($1, $2, 0, '', '', $3, 100, 0, 3, 0, 0, 1, 0, $4, 0, 0, 0, 0)",
            &[id.into(), project.into(), state.into(), reserved.into()],
        )
        .unwrap();
    }

    fn project(tx: &mut dyn Transaction, id: &str) -> (bool, u64) {
        let sql = "SELECT busy, baseline FROM fleet_projects WHERE id = $1";
        tx.first(sql, &[id.into()], |row| Ok((row.flag(0)?, row.count(1)?))).unwrap().unwrap()
    }

    #[test]
    fn what_running_tasks_hold_counts() {
        in_memory(|tx| {
            let now = UnixMicros(1_000_000_000_000);
            for (id, weight) in [("p", 1_000), ("q", 3_000), ("r", 1_000)] {
                scratch::add_project(tx, id, weight, window().bucket(now));
            }
            // p used 100 and holds 50, of which its calls in flight are 80; one of an earlier claim holds 7.
            usage::charge(tx, "p", 100).unwrap();
            add_task(tx, "a", "p", "IN_PROGRESS", 50);
            for (request, epoch, tokens) in [("1", 1, 30), ("2", 1, 50), ("3", 0, 7)] {
                tx.run(
                    "INSERT INTO reservations (request, group_name, tenant, key_id, model, tokens, at, provider_tokens, \
                     project, task, epoch) VALUES ($1, 'g', 't', 'k', 'm', 0, 0, $2, 'p', 'a', $3)",
                    &[request.into(), i64::into(tokens), i64::into(epoch)],
                )
                .unwrap();
            }
            assert_eq!(spent::held(tx).unwrap(), BTreeMap::from([("p".to_owned(), 87)]));
            note(tx, window(), ALL, now).unwrap();
            assert_eq!(project(tx, "p"), (true, 0));
            add_task(tx, "b", "q", "READY", 0);
            note(tx, window(), &["q", "r"], now).unwrap();
            assert_eq!((project(tx, "q"), project(tx, "r")), ((true, 3 * 187), (false, 0)));
        });
    }

    #[test]
    fn projects_come_and_go() {
        in_memory(|tx| {
            let now = UnixMicros(1_000_000_000_000);
            for id in ["p", "q"] {
                scratch::add_project(tx, id, 1_000, window().bucket(now));
            }
            usage::charge(tx, "p", 100).unwrap();
            add_task(tx, "a", "p", "READY", 0);
            add_task(tx, "b", "q", "READY", 0);
            // Both at once: nobody was busy before.
            note(tx, window(), ALL, now).unwrap();
            assert_eq!((project(tx, "p"), project(tx, "q")), ((true, 0), (true, 0)));
            // One that is put aside is not busy, and joins the other when it is back.
            let status = "UPDATE fleet_projects SET status = $1 WHERE id = 'q'";
            tx.run(status, &["PAUSED".into()]).unwrap();
            note(tx, window(), ALL, now).unwrap();
            assert_eq!(project(tx, "q"), (false, 0));
            tx.run(status, &["ACTIVE".into()]).unwrap();
            note(tx, window(), ALL, now).unwrap();
            assert_eq!(project(tx, "q"), (true, 100));
            // Half a window later half of it is left, and that is what others join.
            let later = UnixMicros(now.0 + 12 * 3_600_000_000);
            tx.run("UPDATE fleet_tasks SET state = 'COMPLETED' WHERE id = 'a'", &[]).unwrap();
            note(tx, window(), ALL, later).unwrap();
            scratch::add_project(tx, "r", 1_000, window().bucket(later));
            add_task(tx, "c", "r", "READY", 0);
            note(tx, window(), ALL, later).unwrap();
            assert_eq!((project(tx, "p").0, project(tx, "r")), (false, (true, 50)));
        });
    }
}
