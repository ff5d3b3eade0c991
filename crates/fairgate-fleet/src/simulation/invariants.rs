//! Invariants, which are checked after every step.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use fairgate_store::{BudgetOwners, StoreError, Transaction};

use super::expected_state::ExpectedClaim;
use super::operators::{labels_of, machine_of};
use super::simulated_fleet::FleetSimulation;
use crate::options::FleetCredit;

impl FleetSimulation {
    /// Returns the first column of each row.
    pub(super) async fn rows(&self, sql: &str) -> Vec<String> {
        let sql = sql.to_owned();
        let work = move |tx: &mut dyn Transaction| tx.list(&sql, &[], |row| row.text(0));
        self.store.inspect::<_, StoreError>(work).await.unwrap()
    }

    async fn numbers(&self, sql: &str) -> Vec<(String, i64)> {
        let sql = sql.to_owned();
        let work = move |tx: &mut dyn Transaction| {
            tx.list(&sql, &[], |row| Ok((row.text(0)?, row.int(1)?)))
        };
        self.store.inspect::<_, StoreError>(work).await.unwrap()
    }

    pub(super) async fn check(&mut self) {
        self.check_rules().await;
        self.check_holds().await;
        self.check_tasks().await;
        self.check_ledger().await;
        self.check_credit().await;
        self.check_budgets().await;
    }

    /// Checks rules that the expected state does not cover. Each query selects rows that must not
    /// exist.
    async fn check_rules(&self) {
        const HELD: &str = concat!("state IN ", fairgate_usage::held_states!());
        let forbidden = [
            (
                "a task that nobody holds has a lease, a key, a reservation or a workspace",
                format!(
                    "SELECT id FROM fleet_tasks WHERE NOT {HELD} AND (lease_until IS NOT NULL OR key_hash IS NOT NULL \
                     OR reserved <> 0 OR in_workspace IS NOT NULL)"
                ),
            ),
            (
                "a lock without a task that holds it",
                format!(
                    "SELECT w.id FROM fleet_workspaces w LEFT JOIN fleet_tasks t ON t.id = w.task AND t.{HELD} \
                     AND t.in_workspace = w.id AND t.agent = w.agent WHERE w.task IS NOT NULL AND t.id IS NULL"
                ),
            ),
            (
                "a ready task needs one that is not completed",
                "SELECT t.id FROM fleet_tasks t JOIN fleet_needs n ON n.task = t.id JOIN fleet_tasks o ON o.id = n.needs \
                 WHERE t.state IN ('READY', 'ASSIGNED', 'IN_PROGRESS') AND o.state <> 'COMPLETED'"
                    .to_owned(),
            ),
            (
                "a task was completed twice",
                "SELECT task FROM fleet_history WHERE to_state = 'COMPLETED' GROUP BY task HAVING COUNT(*) > 1".to_owned(),
            ),
            (
                "a project is busy that is not, or the other way round",
                format!(
                    "SELECT p.id FROM fleet_projects p WHERE p.busy <> (EXISTS (SELECT 1 FROM fleet_tasks t \
                     WHERE t.project = p.id AND t.{HELD}) OR (p.status = 'ACTIVE' AND EXISTS \
                     (SELECT 1 FROM fleet_tasks t WHERE t.project = p.id AND t.state = 'READY')))"
                ),
            ),
        ];
        for (what, sql) in forbidden {
            let found = self.rows(&sql).await;
            assert!(found.is_empty(), "seed {}: {what}: {found:?}", self.seed);
        }
    }

    /// Compares the claims with the expected state, and checks the limits on the expected state.
    async fn check_holds(&self) {
        let sql = concat!(
            "SELECT id, agent, project, epoch, lease_until, reserved, used, in_workspace, claimed_at + timeout \
             FROM fleet_tasks \
             WHERE state IN ",
            fairgate_usage::held_states!()
        );
        let work = move |tx: &mut dyn Transaction| {
            tx.list(sql, &[], |row| {
                let hold = ExpectedClaim {
                    agent: row.text(1)?,
                    project: row.text(2)?,
                    epoch: row.count(3)?,
                    lease_until: row.int(4)?,
                    reserved: row.count(5)?,
                    used: row.count(6)?,
                    workspace: row.text_or_null(7)?,
                    timeout_at: row.int_or_null(8)?,
                };
                Ok((row.text(0)?, hold))
            })
        };
        let holds = self.store.inspect::<_, StoreError>(work).await.unwrap();
        let holds: BTreeMap<String, ExpectedClaim> = holds.into_iter().collect();
        assert_eq!(holds, self.expected.holds, "seed {}", self.seed);
        let is_big: HashMap<&str, bool> =
            self.agents.iter().map(|agent| (agent.id.id.as_str(), agent.is_big)).collect();
        let mut agents = BTreeSet::new();
        let mut workspaces = BTreeSet::new();
        let mut running: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (task, hold) in &holds {
            assert!(agents.insert(&hold.agent), "seed {}: {} has two tasks", self.seed, hold.agent);
            let project = &self.expected.projects[&hold.project];
            let number: u64 = hold.agent.trim_start_matches('a').parse().unwrap();
            let expected = &self.expected.tasks[task];
            let labels = labels_of(number);
            assert!(
                project.requires.is_subset(&labels) && expected.requires.is_subset(&labels),
                "seed {}: {task} {}",
                self.seed,
                hold.agent
            );
            let counts = running.entry(&hold.project).or_default();
            *counts = (counts.0 + 1, counts.1 + u64::from(is_big[hold.agent.as_str()]));
            let wanted = self.expected.tasks[task].workspace.as_ref();
            match &hold.workspace {
                None => assert!(project.workspaces.is_empty(), "seed {}: {task}", self.seed),
                Some(workspace) => {
                    assert!(workspaces.insert(workspace), "seed {}: {workspace}", self.seed);
                    let machine = &project.workspaces[workspace];
                    assert!(
                        machine.as_ref().is_none_or(|machine| *machine == machine_of(number)),
                        "seed {}: {task} {} {workspace}",
                        self.seed,
                        hold.agent
                    );
                    assert!(wanted.is_none_or(|it| it == workspace), "seed {}", self.seed);
                }
            }
        }
        for (id, (all, big)) in running {
            let project = &self.expected.projects[id];
            let most = if project.exclusive { 1 } else { project.concurrency };
            assert!(all <= most, "seed {}: {id} has {all} agents of {most}", self.seed);
            let most = project.big_max.unwrap_or(u64::MAX);
            assert!(big <= most, "seed {}: {id} has {big} big agents of {most}", self.seed);
        }
    }

    /// Compares the claims, usage, calls and completion of each task.
    async fn check_tasks(&self) {
        let sql = "SELECT id, epoch, used + used_before, calls, state FROM fleet_tasks";
        let work = move |tx: &mut dyn Transaction| {
            tx.list(sql, &[], |row| {
                let is_completed = row.text(4)? == "COMPLETED";
                Ok((row.text(0)?, (row.count(1)?, row.int(2)?, row.count(3)?, is_completed)))
            })
        };
        let found = self.store.inspect::<_, StoreError>(work).await.unwrap();
        assert_eq!(found.len(), self.expected.tasks.len(), "seed {}: a task is lost", self.seed);
        for (id, found) in found {
            let task = &self.expected.tasks[&id];
            let expected = (task.epoch, task.used.cast_signed(), task.calls, task.is_completed);
            assert_eq!(found, expected, "seed {}: task {id}", self.seed);
        }
        let counted = "SELECT 'all', CAST(COALESCE(SUM(completed), 0) AS BIGINT) FROM fleet_usage";
        let counted = self.numbers(counted).await[0].1.cast_unsigned();
        let failed = concat!(
            "SELECT 'all', COUNT(*) FROM fleet_history WHERE from_state IN ",
            fairgate_usage::held_states!(),
            " AND (reason LIKE 'failed%' OR reason LIKE 'agent % gave no sign of life%' \
             OR reason LIKE 'agent % did not end it within its timeout%')"
        );
        let failed = self.numbers(failed).await[0].1.cast_unsigned();
        assert_eq!(counted, self.counts.completed + failed, "seed {}: tries", self.seed);
    }

    /// Checks the charges of claims for their time. The history of states shows how long each claim
    /// was held. Waits are left out of the charged time, so it must not be longer than that.
    async fn check_credit(&self) {
        let sql = concat!(
            "SELECT t.id, t.epoch, t.agent_us, t.credit_extra, (SELECT CAST(SUM(CASE \
             WHEN h.to_state = 'ASSIGNED' THEN -h.at WHEN h.from_state IN ",
            fairgate_usage::held_states!(),
            " AND h.to_state <> 'IN_PROGRESS' THEN h.at ELSE 0 END) AS BIGINT) FROM fleet_history h WHERE h.task = t.id) \
             FROM fleet_tasks t WHERE t.epoch > 0 AND t.state NOT IN ",
            fairgate_usage::held_states!()
        );
        let work = move |tx: &mut dyn Transaction| {
            tx.list(sql, &[], |row| {
                Ok((row.text(0)?, row.int(1)?, [row.int(2)?, row.int(3)?, row.int(4)?]))
            })
        };
        let tasks = self.store.inspect::<_, StoreError>(work).await.unwrap();
        for (id, claims, [counted_us, extra, held_us]) in tasks {
            let at = format!("seed {}: {id}: {counted_us} of {held_us} µs, {extra}", self.seed);
            assert!((0..=held_us).contains(&counted_us), "{at}");
            match (self.options.credit, self.options.agent_second_tokens) {
                (FleetCredit::Tokens, _) => assert_eq!(extra, 0, "{at}"),
                (unit, Some(price)) => {
                    let most = price.cast_signed() * counted_us / 1_000_000 + claims;
                    assert!(extra <= most, "{at}: more than its time costs");
                    assert!(extra >= 0 || unit == FleetCredit::Time, "{at}");
                }
                (unit, None) => assert!(extra >= 0 || unit == FleetCredit::Time, "{at}"),
            }
        }
        let sums = |table: &str, group: &str| {
            format!(
                "SELECT {group}, CAST(SUM(credit_extra) AS BIGINT) FROM {table} GROUP BY {group} \
                 HAVING SUM(credit_extra) <> 0 ORDER BY {group}"
            )
        };
        let by_task = self.numbers(&sums("fleet_tasks", "project")).await;
        let by_bucket = self.numbers(&sums("fleet_usage", "project")).await;
        assert_eq!(by_task, by_bucket, "seed {}: charges of projects", self.seed);
    }

    /// Compares the ledger, the calls in flight, and the tenant's own sums.
    async fn check_ledger(&self) {
        let sql = "SELECT task, epoch, CAST(SUM(provider_tokens) AS BIGINT) FROM attempts GROUP BY task, epoch";
        let work = move |tx: &mut dyn Transaction| {
            tx.list(sql, &[], |row| Ok(((row.text(0)?, row.count(1)?), row.count(2)?)))
        };
        let ledger = self.store.inspect::<_, StoreError>(work).await.unwrap();
        let ledger: BTreeMap<_, _> = ledger.into_iter().collect();
        assert_eq!(ledger, self.expected.ledger, "seed {}: the ledger", self.seed);
        let held = self.numbers("SELECT request, provider_tokens FROM reservations").await;
        let held: BTreeMap<_, _> = held.into_iter().collect();
        let expected: BTreeMap<_, _> = (self.expected.flights.iter())
            .map(|(request, flight)| (request.clone(), flight.tokens.cast_signed()))
            .collect();
        assert_eq!(held, expected, "seed {}: calls in flight", self.seed);
        let at = fairgate_time::UnixMicros(self.now());
        let budgets = self.store.budgets(BudgetOwners::tenant("t"), at).await.unwrap();
        let (used, reserved) =
            (ledger.values().sum::<u64>(), expected.values().sum::<i64>().cast_unsigned());
        let [of_tenant] = &budgets[..] else { panic!("{budgets:?}") };
        assert_eq!((of_tenant.used, of_tenant.reserved), (used, reserved), "seed {}", self.seed);
    }

    /// Compares usage and reservations of projects with the expected state. Checks that they are
    /// within every budget, apart from usage beyond the reservations.
    async fn check_budgets(&mut self) {
        let sql = "SELECT project, CAST(SUM(tokens) AS BIGINT) FROM fleet_usage GROUP BY project";
        let buckets: HashMap<_, _> = self.numbers(sql).await.into_iter().collect();
        let views = self.fleet().projects(None).await.unwrap();
        let mut all = 0;
        for view in &views {
            let project = &self.expected.projects[&view.id];
            let used: i64 = project.uses.iter().map(|(_, _, tokens)| tokens).sum();
            let in_buckets = buckets.get(&view.id).copied().unwrap_or(0);
            assert_eq!(in_buckets, used, "seed {}: tokens of {}", self.seed, view.id);
            let aside = self.expected.set_aside().get(view.id.as_str()).copied().unwrap_or(0);
            assert_eq!(view.reserved, aside, "seed {}: set aside by {}", self.seed, view.id);
            let bounds = self.used_bounds(&view.id);
            assert!(
                bounds.contains(&view.used),
                "seed {}: {} used {} of {bounds:?} in the window",
                self.seed,
                view.id,
                view.used
            );
            let spent = view.used + view.reserved;
            all += spent;
            let Some(limit) = project.budget else { continue };
            let excess = self.expected.excess.entry(view.id.clone()).or_default();
            let most = limit + *excess;
            assert!(spent <= most, "seed {}: {} spent {spent} of {most}", self.seed, view.id);
            if spent <= limit {
                *excess = 0;
            } else {
                self.counts.budgets_passed += 1;
            }
        }
        let Some(limit) = self.options.budget else { return };
        // Fading usage is rounded up for each project here. When calls are granted, it is rounded
        // up once, for all projects together.
        let most = limit + self.expected.excess_of_all + views.len() as u64;
        assert!(all <= most, "seed {}: all spent {all} of {most}", self.seed);
        if all <= limit {
            self.expected.excess_of_all = 0;
        }
    }

    /// Returns the lowest and the highest usage that the database may report for a project in the
    /// window. Usage counts in the bucket of the last round or a later one, and the reported sums
    /// are those at that round or later.
    pub(super) fn used_bounds(&self, project: &str) -> RangeInclusive<u64> {
        if self.has_late_rows {
            // A correction counts in another bucket than the guess that it replaces.
            return 0..=u64::MAX;
        }
        let length = i64::try_from(self.options.window.as_micros()).unwrap() / 24;
        let left = |bucket: i64, at: i64| match (at.div_euclid(length) - bucket).cmp(&24) {
            Ordering::Less => length,
            Ordering::Equal => length - at.rem_euclid(length),
            Ordering::Greater => 0,
        };
        let (mut least, mut most) = (0_i128, 0_i128);
        for (at, since, tokens) in &self.expected.projects[project].uses {
            let tokens = i128::from(*tokens);
            least += tokens * i128::from(left(since.div_euclid(length), self.now()));
            most += tokens * i128::from(left(at.div_euclid(length), self.expected.round_at));
        }
        let tokens = |sum: i128| u64::try_from(sum / i128::from(length)).unwrap();
        tokens(least)..=tokens(most) + 1
    }

    pub(super) fn used_bounds_of_all(&self) -> RangeInclusive<u64> {
        let bounds: Vec<_> = self.projects.iter().map(|id| self.used_bounds(id)).collect();
        let least = bounds.iter().map(|it| *it.start()).fold(0, u64::saturating_add);
        least..=bounds.iter().map(|it| *it.end()).fold(0, u64::saturating_add)
    }
}
