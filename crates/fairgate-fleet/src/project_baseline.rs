//! Keeps track of busy and idle projects, and sets the baseline of a project that becomes busy
//! again.
//!
//! A project is *busy* while an agent works for it, or while it is active and has a ready task. A
//! project that was idle and becomes busy does not get extra agents for the time in which it had no
//! work. Instead it starts at the level of the other project that has spent the fewest tokens per
//! weight. For a project that has the weight w and has spent s tokens, the baseline is
//!
//! ```text
//!     max(rest of its previous baseline,
//!         w × min over the other busy, active projects of (spent + baseline) ÷ weight − s)
//! ```
//!
//! rounded down. *Spent* is what the project was charged in the window: tokens that tasks have
//! really used, and the time of claims that ended (`credit.rs`). A running task counts with the
//! tokens that it has used so far. If tenants share agents first, only projects of the same tenant
//! are compared. The baseline fades to 0 within one window. The rest of the previous baseline
//! counts, because otherwise a project could lower its baseline by a short idle time, and so get
//! more than its share. Projects that become busy in one transaction are compared with the projects
//! that were busy before that transaction.
//!
//! # Why not the estimate of running tasks
//!
//! The comparison of projects in a round counts running tasks with their estimates, and a baseline
//! could do the same. It must not, because a baseline is written once and lasts for a window, while
//! an estimate is replaced by the real usage as soon as the task ends. A project that joins while
//! another one runs its first task would start at the level of the default estimate, such as 20 000
//! tokens. If that task then uses 85 tokens, nothing corrects the baseline, and the newcomer gets
//! no agent for 235 tasks of that size. Estimates that a project has learned are better guesses,
//! but they are guesses too, and requests and tasks may state any number.
//!
//! Without estimates, a project that joins may get a little more than its share: the tokens that
//! the running tasks of the others use after that moment are not in its baseline. That is at most
//! one task for each agent of the others. A project cannot repeat this, because its own usage and
//! the rest of its baseline count when it becomes idle and busy again.

use std::collections::BTreeMap;

use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::json;

use fairgate_usage::CreditSums;

use crate::baseline::{ProjectLevel, baseline};
use crate::json_rows;
use crate::options::FleetShare;
use crate::project_account::ProjectAccount;
use crate::tenant_baseline;
use crate::window_usage::{self, UsageWindow, WindowSums};

/// Query for the projects whose column `busy` no longer agrees with the states of their tasks.
const EDGES: &str = concat!(
    "SELECT p.id, p.busy FROM fleet_projects p WHERE p.busy <> (\
     EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.state IN ",
    fairgate_usage::held_states!(),
    " AND t.project = p.id) OR (p.status = 'ACTIVE' \
     AND EXISTS (SELECT 1 FROM fleet_tasks t WHERE t.state = 'READY' AND t.project = p.id)))"
);

/// Options of the fleet that determine baselines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaselineTerms {
    pub(crate) window: UsageWindow,
    pub(crate) share: FleetShare,
}

/// Updates `busy` of these projects, and sets the baseline of those that became busy. Must be called at the end of
/// every transaction that changes tasks or the status of projects.
pub(crate) fn update_busy(
    tx: &mut dyn Transaction,
    terms: BaselineTerms,
    projects: &[&str],
    now: UnixMicros,
) -> Result<(), StoreError> {
    let sql = format!("{EDGES} AND p.id IN {}", json_rows::texts(tx.database(), 1));
    let values = [json_rows::names(projects.iter().copied())];
    let edges = tx.list(&sql, &values, |row| Ok((row.text(0)?, row.flag(1)?)))?;
    let has_changed = !edges.is_empty();
    let (ended, began): (Vec<_>, Vec<_>) = edges.into_iter().partition(|(_, was_busy)| *was_busy);
    if !began.is_empty() {
        let baselines = baselines(tx, terms, began.iter().map(|(id, _)| id.as_str()), now)?;
        begin(tx, &baselines, now)?;
    }
    if !ended.is_empty() {
        let ids = json_rows::texts(tx.database(), 2);
        let names = json_rows::names(ended.iter().map(|(id, _)| id.as_str()));
        let sql = format!("UPDATE fleet_projects SET busy = $1 WHERE id IN {ids}");
        tx.run(&sql, &[false.into(), names])?;
    }
    match terms.share {
        FleetShare::Tenant if has_changed => tenant_baseline::update_busy(tx, terms.window, now),
        FleetShare::Tenant | FleetShare::Project => Ok(()),
    }
}

fn begin(
    tx: &mut dyn Transaction,
    baselines: &[(&str, u64)],
    now: UnixMicros,
) -> Result<(), StoreError> {
    let table = json_rows::table(tx.database(), 3, &["TEXT", "BIGINT"]);
    let sql = format!(
        "UPDATE fleet_projects SET busy = $1, baseline_at = $2, baseline = v.column2 FROM {table} AS v \
         WHERE id = v.column1"
    );
    let row = |(id, tokens): &(&str, u64)| json!([id, i64::try_from(*tokens).unwrap_or(i64::MAX)]);
    let rows = json_rows::value(baselines.iter().map(row));
    tx.run(&sql, &[true.into(), now.into(), rows])?;
    Ok(())
}

fn baselines<'a>(
    tx: &mut dyn Transaction,
    terms: BaselineTerms,
    began: impl Iterator<Item = &'a str>,
    now: UnixMicros,
) -> Result<Vec<(&'a str, u64)>, StoreError> {
    let BaselineTerms { window, share } = terms;
    window_usage::roll(tx, window, now)?;
    let sql = format!(
        "SELECT id, busy, status, weight, baseline, baseline_at, {}, {}, tenant FROM fleet_projects",
        WindowSums::COLUMNS,
        CreditSums::COLUMNS
    );
    let all = tx.list(&sql, &[], |row| {
        let account = ProjectAccount {
            baseline: row.count(4)?,
            baseline_at: row.moment(5)?,
            sums: WindowSums::read(row, 6)?,
            credit: CreditSums::read(row, 10)?,
        };
        let competes = row.flag(1)? && row.text(2)? == "ACTIVE";
        Ok((row.text(0)?, competes, row.count(3)?, account, row.text(12)?))
    })?;
    let mut standings = BTreeMap::new();
    let mut others = Vec::new();
    for (id, competes, weight, account, tenant) in all {
        let spent = account.charged(window, now);
        let standing = ProjectLevel { weight, spent, baseline: account.baseline(window, now) };
        if competes {
            others.push((tenant.clone(), standing));
        }
        standings.insert(id, (tenant, standing));
    }
    let of = |id: &'a str| {
        let (tenant, level) = standings.get(id)?;
        let ProjectLevel { weight, spent, baseline: left } = *level;
        // If tenants share agents first, a project is compared only with those of its own tenant.
        let is_other =
            |other: &&(String, ProjectLevel)| share == FleetShare::Project || other.0 == *tenant;
        let others = others.iter().filter(is_other).map(|(_, level)| *level);
        Some((id, baseline(weight, spent, others).max(left)))
    };
    Ok(began.filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairgate_random::SeededRng;

    use super::*;
    use crate::project_account;
    use crate::testing::{self, add_task, in_memory};

    const ALL: &[&str] = &["p", "q", "r"];

    fn window() -> UsageWindow {
        UsageWindow::new(Duration::from_secs(24 * 3600))
    }

    fn terms() -> BaselineTerms {
        BaselineTerms { window: window(), share: FleetShare::Project }
    }

    /// Returns the largest whole baseline at which the project is not above any other. Tries the values instead of
    /// dividing.
    fn naive(weight: u64, spent: u64, others: &[ProjectLevel]) -> u64 {
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
            let mut dice = SeededRng::new(seed);
            let mut standing = || ProjectLevel {
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
        let most = ProjectLevel { weight: heaviest, spent: u64::MAX, baseline: u64::MAX };
        assert_eq!(baseline(heaviest, 0, [most, most].into_iter()), u64::MAX);
        let light = ProjectLevel { weight: 1, ..most };
        assert_eq!(baseline(heaviest, 0, [light].into_iter()), u64::MAX);
        assert_eq!(baseline(1, 0, [most].into_iter()), 36);
    }

    fn project(tx: &mut dyn Transaction, id: &str) -> (bool, u64) {
        let sql = "SELECT busy, baseline FROM fleet_projects WHERE id = $1";
        tx.first(sql, &[id.into()], |row| Ok((row.flag(0)?, row.count(1)?))).unwrap().unwrap()
    }

    #[test]
    fn running_tasks_count_with_what_they_have_used() {
        in_memory(|tx| {
            let now = UnixMicros(1_000_000_000_000);
            for (id, weight) in [("p", 1_000), ("q", 3_000), ("r", 1_000)] {
                testing::add_project(tx, id, weight, window().bucket(now));
            }
            // p used 100 and holds 50, of which its calls in flight are 80; one of an earlier claim holds 7.
            window_usage::charge(tx, "p", 100).unwrap();
            add_task(tx, "a", "p", "IN_PROGRESS", 50);
            for (request, epoch, tokens) in [("1", 1, 30), ("2", 1, 50), ("3", 0, 7)] {
                add_call(tx, request, "a", epoch, tokens);
            }
            assert_eq!(
                project_account::reserved_tokens(tx).unwrap(),
                BTreeMap::from([("p".to_owned(), 87)])
            );
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "p"), (true, 0));
            add_task(tx, "b", "q", "READY", 0);
            update_busy(tx, terms(), &["q", "r"], now).unwrap();
            assert_eq!((project(tx, "q"), project(tx, "r")), ((true, 3 * 100), (false, 0)));
        });
    }

    /// Adds a call in flight for a task of `p`. The call has reserved `tokens` tokens.
    fn add_call(tx: &mut dyn Transaction, request: &str, task: &str, epoch: i64, tokens: i64) {
        tx.run(
            "INSERT INTO reservations (request, group_name, tenant, key_id, model, tokens, at, provider_tokens, project, \
             task, epoch) VALUES ($1, 'g', 't', 'k', 'm', 0, 0, $2, 'p', $3, $4)",
            &[request.into(), tokens.into(), task.into(), epoch.into()],
        )
        .unwrap();
    }

    /// The reservation of a call and the estimate of a task are not real usage. If they counted, a
    /// newcomer's baseline would be too high for a whole window.
    #[test]
    fn nobody_joins_at_what_others_only_claim_to_use() {
        in_memory(|tx| {
            let now = UnixMicros(1_000_000_000_000);
            for id in ["p", "q", "r"] {
                testing::add_project(tx, id, 1_000, window().bucket(now));
            }
            window_usage::charge(tx, "p", 100).unwrap();
            tx.run("UPDATE fleet_projects SET learned = 40 WHERE id = 'p'", &[]).unwrap();
            add_task(tx, "a", "p", "IN_PROGRESS", 50);
            update_busy(tx, terms(), ALL, now).unwrap();
            // A call in flight that may use 10¹² tokens.
            add_call(tx, "1", "a", 1, 1_000_000_000_000);
            add_task(tx, "b", "q", "READY", 0);
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "q"), (true, 100));
            // The tokens reserved for a task, and the default estimate of a project without a completed task, do not
            // count either.
            tx.run("UPDATE fleet_projects SET learned = NULL WHERE id = 'p'", &[]).unwrap();
            tx.run("UPDATE fleet_tasks SET reserved = 1000000000000 WHERE id = 'a'", &[]).unwrap();
            tx.run("UPDATE fleet_tasks SET state = 'COMPLETED' WHERE id = 'b'", &[]).unwrap();
            update_busy(tx, terms(), ALL, now).unwrap();
            add_task(tx, "c", "r", "READY", 0);
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "r"), (true, 100));
        });
    }

    /// A project that becomes busy again does not get a lower baseline because one of its own calls is still in flight.
    #[test]
    fn calls_in_flight_are_no_way_around_the_baseline() {
        in_memory(|tx| {
            let now = UnixMicros(1_000_000_000_000);
            for id in ["p", "q"] {
                testing::add_project(tx, id, 1_000, window().bucket(now));
            }
            window_usage::charge(tx, "q", 500).unwrap();
            add_task(tx, "b", "q", "READY", 0);
            update_busy(tx, terms(), ALL, now).unwrap();
            add_task(tx, "a", "p", "READY", 0);
            add_call(tx, "1", "a", 0, 1_000_000_000_000);
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "p"), (true, 500));
        });
    }

    /// A project that is idle for a short time does not get a lower baseline by that.
    #[test]
    fn leaving_and_coming_back_sheds_nothing() {
        in_memory(|tx| {
            let now = UnixMicros(1_000_000_000_000);
            for id in ["p", "q", "r"] {
                testing::add_project(tx, id, 1_000, window().bucket(now));
            }
            for id in ["q", "r"] {
                window_usage::charge(tx, id, 1_000).unwrap();
                add_task(tx, &format!("{id}-1"), id, "READY", 0);
            }
            update_busy(tx, terms(), ALL, now).unwrap();
            add_task(tx, "a", "p", "READY", 0);
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "p"), (true, 1_000));
            // It was served 600 tokens since it joined, and the others nothing: it goes last.
            window_usage::charge(tx, "p", 600).unwrap();
            let state = "UPDATE fleet_tasks SET state = $1 WHERE id = 'a'";
            tx.run(state, &["PAUSED".into()]).unwrap();
            update_busy(tx, terms(), ALL, now).unwrap();
            tx.run(state, &["READY".into()]).unwrap();
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "p"), (true, 1_000));
        });
    }

    #[test]
    fn projects_come_and_go() {
        in_memory(|tx| {
            let now = UnixMicros(1_000_000_000_000);
            for id in ["p", "q"] {
                testing::add_project(tx, id, 1_000, window().bucket(now));
            }
            window_usage::charge(tx, "p", 100).unwrap();
            add_task(tx, "a", "p", "READY", 0);
            add_task(tx, "b", "q", "READY", 0);
            // Both become busy at once, and no other project was busy before.
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!((project(tx, "p"), project(tx, "q")), ((true, 0), (true, 0)));
            // A paused project is not busy. It starts level with the other one when it is active again.
            let status = "UPDATE fleet_projects SET status = $1 WHERE id = 'q'";
            tx.run(status, &["PAUSED".into()]).unwrap();
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "q"), (false, 0));
            tx.run(status, &["ACTIVE".into()]).unwrap();
            update_busy(tx, terms(), ALL, now).unwrap();
            assert_eq!(project(tx, "q"), (true, 100));
            // Half a window later half of it is left, and that is what others join.
            let later = UnixMicros(now.0 + 12 * 3_600_000_000);
            tx.run("UPDATE fleet_tasks SET state = 'COMPLETED' WHERE id = 'a'", &[]).unwrap();
            update_busy(tx, terms(), ALL, later).unwrap();
            testing::add_project(tx, "r", 1_000, window().bucket(later));
            add_task(tx, "c", "r", "READY", 0);
            update_busy(tx, terms(), ALL, later).unwrap();
            assert_eq!((project(tx, "p").0, project(tx, "r")), (false, (true, 50)));
        });
    }
}
