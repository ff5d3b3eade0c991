//! Usage of projects in the rolling window. The statements are in [`fairgate_usage::sql`], because
//! the ledger also adds to the usage of projects.

use std::collections::BTreeMap;

use fairgate_store::{StoreError, Transaction};
use fairgate_time::UnixMicros;
use fairgate_usage::sql;
use serde_json::json;

use crate::json_rows;

pub(crate) use fairgate_usage::{UsageWindow, WindowSums};

/// Adds tokens to the usage of a project in the window.
pub(crate) fn charge(
    tx: &mut dyn Transaction,
    project: &str,
    tokens: u64,
) -> Result<(), StoreError> {
    match i64::try_from(tokens).unwrap_or(i64::MAX) {
        0 => Ok(()),
        tokens => sql::add_to_project(tx, project, tokens, 0),
    }
}

/// Counts one more try of a project's task that its agent ended, because the task was completed or
/// failed. A project without such a try in the window goes first under `min_task_guarantee`.
/// Failures count, because otherwise a project whose tasks all fail would go first as long as it
/// has tasks.
pub(crate) fn count_try(tx: &mut dyn Transaction, project: &str) -> Result<(), StoreError> {
    count_tries(tx, &[project])
}

/// Does the same as [`count_try`] for each entry of `projects`. A project may be in the list
/// several times. Runs two SQL statements.
pub(crate) fn count_tries(tx: &mut dyn Transaction, projects: &[&str]) -> Result<(), StoreError> {
    let mut usage: BTreeMap<&str, ProjectUsage> = BTreeMap::new();
    for project in projects {
        usage.entry(project).or_default().tries += 1;
    }
    add(tx, &usage)
}

/// Tokens that a project used, and the number of its tries that agents ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProjectUsage {
    pub(crate) tokens: u64,
    pub(crate) tries: u64,
}

/// Adds usage to the projects' usage in the window. Runs two SQL statements.
pub(crate) fn add(
    tx: &mut dyn Transaction,
    usage: &BTreeMap<&str, ProjectUsage>,
) -> Result<(), StoreError> {
    if usage.is_empty() {
        return Ok(());
    }
    let int = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let row = |(project, usage): (&&str, &ProjectUsage)| {
        json!([project, int(usage.tokens), int(usage.tries)])
    };
    let rows = json_rows::value(usage.iter().map(row));
    let table = json_rows::table(tx.database(), 1, &["TEXT", "BIGINT", "BIGINT"]);
    let add_to_buckets = format!(
        "INSERT INTO fleet_usage (project, bucket, tokens, completed) \
         SELECT p.id, p.window_bucket, v.column2, v.column3 FROM {table} AS v JOIN fleet_projects p ON p.id = v.column1 \
         WHERE true ON CONFLICT (project, bucket) DO UPDATE SET tokens = fleet_usage.tokens + excluded.tokens, \
         completed = fleet_usage.completed + excluded.completed"
    );
    tx.run(&add_to_buckets, std::slice::from_ref(&rows))?;
    let add_to_projects = format!(
        "UPDATE fleet_projects SET window_tokens = window_tokens + v.column2, \
         window_completed = window_completed + v.column3 FROM {table} AS v WHERE id = v.column1"
    );
    tx.run(&add_to_projects, &[rows])?;
    Ok(())
}

/// Moves the window sums of all projects to the bucket that contains `now`.
pub(crate) fn roll(
    tx: &mut dyn Transaction,
    window: UsageWindow,
    now: UnixMicros,
) -> Result<(), StoreError> {
    sql::roll(tx, window, now).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use fairgate_random::SeededRng;

    use super::*;
    use crate::testing::in_memory;

    const LENGTH: i64 = 1_000;

    fn window() -> UsageWindow {
        UsageWindow::new(Duration::from_micros(24 * LENGTH.unsigned_abs()))
    }

    /// Adds up the usage by the definition of the window. `uses` are times with their tokens.
    fn naive(uses: &[(i64, u64)], now: i64) -> (u64, u64) {
        let current = now.div_euclid(LENGTH);
        let of = |bucket: i64| {
            let inside = |(at, _): &&(i64, u64)| at.div_euclid(LENGTH) == bucket;
            uses.iter().filter(inside).map(|(_, tokens)| tokens).sum::<u64>()
        };
        let full: u64 = (current - 23..=current).map(of).sum();
        let left = u64::try_from(LENGTH - now.rem_euclid(LENGTH)).unwrap();
        let fading = (of(current - 24) * left).div_ceil(LENGTH.unsigned_abs());
        let recent = |(at, _): &&(i64, u64)| at.div_euclid(LENGTH) >= current - 24;
        (full + fading, uses.iter().filter(recent).count() as u64)
    }

    fn charge_at(
        tx: &mut dyn Transaction,
        window: UsageWindow,
        project: &str,
        tokens: u64,
        at: UnixMicros,
    ) {
        roll(tx, window, at).unwrap();
        charge(tx, project, tokens).unwrap();
    }

    fn sums(tx: &mut dyn Transaction, project: &str) -> WindowSums {
        let sql = format!("SELECT {} FROM fleet_projects WHERE id = $1", WindowSums::COLUMNS);
        tx.first(&sql, &[project.into()], |row| WindowSums::read(row, 0)).unwrap().unwrap()
    }

    #[test]
    fn the_window_is_the_naive_sum() {
        in_memory(|tx| {
            for seed in 0..20 {
                let mut dice = SeededRng::new(seed);
                let project = format!("p{seed}");
                crate::testing::add_project(tx, &project, 1_000, window().bucket(UnixMicros(0)));
                let mut uses = Vec::new();
                let mut now = 1_000_000;
                for _ in 0..200 {
                    now += i64::try_from(dice.below(3 * LENGTH.unsigned_abs())).unwrap();
                    let tokens = dice.below(1_000) + 1;
                    let at = UnixMicros(now);
                    let most = window().used(&sums(tx, &project), at) + tokens;
                    charge_at(tx, window(), &project, tokens, at);
                    count_try(tx, &project).unwrap();
                    uses.push((now, tokens));
                    let sums = sums(tx, &project);
                    let found = (window().used(&sums, at), sums.completed);
                    assert_eq!(found, naive(&uses, now), "seed {seed}, at {now}");
                    assert!(most >= found.0, "seed {seed}: columns that are old show too little");
                }
            }
        });
    }

    #[test]
    fn ageing_makes_no_jumps() {
        in_memory(|tx| {
            crate::testing::add_project(tx, "p", 1_000, 0);
            charge_at(tx, window(), "p", 1_000_000, UnixMicros(500));
            let mut before = 1_000_000;
            for now in (0..26 * LENGTH).step_by(10) {
                roll(tx, window(), UnixMicros(now)).unwrap();
                let used = window().used(&sums(tx, "p"), UnixMicros(now));
                assert!(used <= before && before - used <= 10_000, "at {now}: {before} → {used}");
                before = used;
            }
            assert_eq!(before, 0);
        });
    }

    #[test]
    fn a_clock_that_went_ahead_and_back_forgets_nothing() {
        in_memory(|tx| {
            crate::testing::add_project(tx, "p", 1_000, 0);
            let at = |now| UnixMicros(now);
            charge_at(tx, window(), "p", 100, at(50_000));
            // The clock jumps four windows ahead, tokens are used, and it jumps back.
            roll(tx, window(), at(146_000)).unwrap();
            assert_eq!(window().used(&sums(tx, "p"), at(146_000)), 0);
            charge_at(tx, window(), "p", 7, at(146_000));
            roll(tx, window(), at(51_000)).unwrap();
            assert_eq!(window().used(&sums(tx, "p"), at(51_000)), 107);
        });
    }

    #[test]
    fn another_length_of_the_window_keeps_what_was_used() {
        in_memory(|tx| {
            crate::testing::add_project(tx, "p", 1_000, 0);
            let half = UsageWindow::new(Duration::from_micros(12 * LENGTH.unsigned_abs()));
            let now = UnixMicros(1_000_000);
            charge_at(tx, window(), "p", 100, now);
            roll(tx, half, now).unwrap();
            assert_eq!(half.used(&sums(tx, "p"), now), 100);
            charge_at(tx, half, "p", 10, UnixMicros(1_000_600));
            roll(tx, window(), UnixMicros(1_003_000)).unwrap();
            assert_eq!(window().used(&sums(tx, "p"), UnixMicros(1_003_000)), 110);
        });
    }

    #[test]
    fn old_rows_are_removed() {
        in_memory(|tx| {
            crate::testing::add_project(tx, "p", 1_000, 0);
            for now in (0..400 * LENGTH).step_by(500) {
                roll(tx, window(), UnixMicros(now)).unwrap();
                charge_at(tx, window(), "p", 1, UnixMicros(now));
            }
            let count = "SELECT COUNT(*) FROM fleet_usage";
            let rows = tx.first(count, &[], |row| row.int(0)).unwrap().unwrap();
            assert_eq!(rows, 24 * 8 + 1);
        });
    }

    #[test]
    fn amounts_fade_to_nothing_within_one_window() {
        let whole = u64::try_from(24 * LENGTH).unwrap();
        let fades: BTreeMap<i64, u64> =
            [-5, 0, 1, LENGTH, 12 * LENGTH, 24 * LENGTH - 1, 24 * LENGTH, i64::MAX]
                .map(|past| (past, window().fade(whole, UnixMicros(0), UnixMicros(past))))
                .into();
        let expected = [whole, whole, whole - 1, 23 * LENGTH.unsigned_abs(), whole / 2, 1, 0, 0];
        assert_eq!(fades.into_values().collect::<Vec<_>>(), expected);
        assert_eq!(window().fade(u64::MAX, UnixMicros(0), UnixMicros(0)), u64::MAX);
    }
}
