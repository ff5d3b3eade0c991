//! Computes the tokens that projects have spent: their usage in the window, plus the tokens that
//! are [set aside](fairgate_usage::set_aside()) for their running tasks and requests in flight.

use std::collections::BTreeMap;

use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::{CreditSums, SET_ASIDE_BY_PROJECT};

use crate::window_usage::{UsageWindow, WindowSums};

/// Returns the reserved tokens of each project. Projects without reserved tokens are left out.
pub(crate) fn reserved_tokens(
    tx: &mut dyn Transaction,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let rows = tx.list(SET_ASIDE_BY_PROJECT, &[], |row| Ok((row.text(0)?, row.count(1)?)))?;
    Ok(rows.into_iter().collect())
}

/// Columns of a project from which its spent tokens and its baseline are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProjectAccount {
    pub(crate) sums: WindowSums,
    pub(crate) baseline: u64,
    pub(crate) baseline_at: UnixMicros,
    pub(crate) credit: CreditSums,
}

impl ProjectAccount {
    /// Returns the tokens that the project used in the window.
    pub(crate) fn used(&self, window: UsageWindow, now: UnixMicros) -> u64 {
        window.used(&self.sums, now)
    }

    /// Returns the sum of credit − tokens over the project's claims that ended in the window, in
    /// tokens.
    pub(crate) fn extra(&self, window: UsageWindow, now: UnixMicros) -> i64 {
        self.credit.extra(window, self.sums.bucket, now)
    }

    /// Returns the tokens that the project was charged in the window: its used tokens plus `extra`.
    pub(crate) fn charged(&self, window: UsageWindow, now: UnixMicros) -> u64 {
        self.used(window, now).saturating_add_signed(self.extra(window, now))
    }

    /// Returns the part of the baseline that has not faded yet, in tokens.
    pub(crate) fn baseline(&self, window: UsageWindow, now: UnixMicros) -> u64 {
        window.fade(self.baseline, self.baseline_at, now)
    }
}

#[cfg(test)]
mod tests {
    use fairgate_store::RowColumns;
    use fairgate_usage::{is_held, set_aside, sql};

    use fairgate_random::SeededRng;

    use super::*;
    use crate::testing::{self, add_project, in_memory};
    use fairgate_api::fleet::TaskState;

    /// Adds a task with a claim, and requests in flight of this claim and of its last one. Returns
    /// the tokens that must be set aside.
    fn add_task(tx: &mut dyn Transaction, rng: &mut SeededRng, number: i64, project: &str) -> i64 {
        let mut below = |limit| i64::try_from(rng.below(limit)).unwrap();
        let state = TaskState::ALL[usize::try_from(below(9)).unwrap()].word();
        let (reserved, used) = (below(100), below(150) - 20);
        let id = format!("t{number}");
        testing::add_task(tx, &id, project, state, reserved);
        let claim = "UPDATE fleet_tasks SET epoch = 2, used = $1 WHERE id = $2";
        tx.run(claim, &[used.into(), id.as_str().into()]).unwrap();
        let mut in_flight = [0, 0];
        for request in 0..below(4) {
            let (epoch, tokens) = (below(2) + 1, below(60));
            in_flight[usize::from(epoch == 2)] += tokens;
            tx.run(
                "INSERT INTO reservations (request, group_name, tenant, key_id, model, tokens, at, provider_tokens, \
                 money, project, task, epoch) VALUES ($1, 'g', 't', 'k', 'm', 0, 0, $2, 0, $3, $4, $5)",
                &[
                    format!("{id}-{request}").into(),
                    tokens.into(),
                    project.into(),
                    id.as_str().into(),
                    epoch.into(),
                ],
            )
            .unwrap();
        }
        let [earlier, latest] = in_flight;
        earlier + if is_held(state) { set_aside(reserved, used, latest) } else { latest }
    }

    #[test]
    fn the_sql_of_set_aside_agrees_with_the_function() {
        in_memory(|tx| {
            let mut rng = SeededRng::new(7);
            let mut expected = BTreeMap::new();
            for project in ["p", "q", "r"] {
                add_project(tx, project, 1_000, 0);
                let first = i64::try_from(expected.len() * 100).unwrap();
                let tokens =
                    (first..first + 60).map(|number| add_task(tx, &mut rng, number, project));
                expected.insert(project.to_owned(), u64::try_from(tokens.sum::<i64>()).unwrap());
            }
            add_project(tx, "unused", 1_000, 0);
            assert_eq!(reserved_tokens(tx).unwrap(), expected);
            for (project, tokens) in &expected {
                let read = |row: &dyn RowColumns| row.count(6);
                let found = tx.first(sql::PROJECT, &[project.as_str().into()], read).unwrap();
                assert_eq!(found, Some(*tokens), "{project}");
            }
            let total = tx.first(sql::TOTAL, &[], |row| row.count(5)).unwrap();
            assert_eq!(total, Some(expected.values().sum()));
        });
    }
}
