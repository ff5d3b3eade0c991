//! What must hold after every step.

use std::collections::{BTreeMap, HashMap};

use fairgate_store::{StoreError, Transaction};

use super::world::World;

impl World {
    /// The first column of each row.
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
        self.check_epochs().await;
        self.check_budgets().await;
        self.check_accounts().await;
    }

    /// Each query finds what must not be.
    async fn check_rules(&self) {
        const HELD: &str = "state IN ('ASSIGNED', 'IN_PROGRESS')";
        let forbidden = [
            (
                "an agent has two tasks",
                format!("SELECT agent FROM fleet_tasks WHERE {HELD} GROUP BY agent HAVING COUNT(*) > 1"),
            ),
            (
                "a held task has no agent or lease",
                format!("SELECT id FROM fleet_tasks WHERE {HELD} AND (agent IS NULL OR lease_until IS NULL)"),
            ),
            (
                "a task that nobody holds has a lease, a key, a reservation or a workspace",
                format!(
                    "SELECT id FROM fleet_tasks WHERE NOT {HELD} AND (lease_until IS NOT NULL OR key_hash IS NOT NULL \
                     OR reserved <> 0 OR in_workspace IS NOT NULL)"
                ),
            ),
            (
                "a project has more agents than may work for it",
                format!(
                    "SELECT p.id FROM fleet_projects p JOIN fleet_tasks t ON t.project = p.id WHERE t.{HELD} GROUP BY p.id \
                     HAVING COUNT(*) > CASE WHEN p.exclusive THEN 1 ELSE p.concurrency END"
                ),
            ),
            (
                "a project has more agents of a type than may work for it",
                format!(
                    "SELECT p.id FROM fleet_projects p JOIN fleet_tasks t ON t.project = p.id \
                     JOIN fleet_agents a ON a.id = t.agent WHERE t.{HELD} AND a.kind = 'big' \
                     AND json_extract(p.agent_max, '$.big') IS NOT NULL \
                     GROUP BY p.id HAVING COUNT(*) > json_extract(p.agent_max, '$.big')"
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
                "a running task without the workspace that it needs",
                format!(
                    "SELECT t.id FROM fleet_tasks t LEFT JOIN fleet_workspaces w ON w.task = t.id WHERE t.{HELD} \
                     AND (w.id IS NULL OR w.id <> COALESCE(t.workspace, w.id)) \
                     AND EXISTS (SELECT 1 FROM fleet_workspaces o WHERE o.project = t.project)"
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

    /// Claims are only ever counted up.
    async fn check_epochs(&mut self) {
        for (task, epoch) in self.numbers("SELECT id, epoch FROM fleet_tasks").await {
            let epoch = epoch.cast_unsigned();
            let before = self.epochs.insert(task.clone(), epoch).unwrap_or(0);
            assert!(
                epoch >= before,
                "seed {}: task {task} went from claim {before} to {epoch}",
                self.seed
            );
        }
    }

    /// What is used and set aside is within every budget, as no agent here uses more than was set aside for it.
    async fn check_budgets(&mut self) {
        let views = self.fleet().projects(None).await.unwrap();
        let mut all = 0;
        for view in views {
            let spent = view.used + view.reserved;
            all += spent;
            let limit = view.budget.unwrap_or(u64::MAX);
            assert!(spent <= limit, "seed {}: {} spent {spent} of {limit}", self.seed, view.id);
        }
        let limit = self.options.budget.unwrap_or(u64::MAX);
        assert!(all <= limit, "seed {}: all spent {all} of {limit}", self.seed);
    }

    /// What agents said in time is charged once, and nothing else; each completion is counted once.
    async fn check_accounts(&self) {
        let sql = "SELECT project, CAST(SUM(tokens) AS BIGINT) FROM fleet_usage GROUP BY project";
        let charged: BTreeMap<String, u64> = (self.numbers(sql).await.into_iter())
            .filter(|(_, tokens)| *tokens != 0)
            .map(|(project, tokens)| (project, tokens.cast_unsigned()))
            .collect();
        let expected: BTreeMap<String, u64> =
            self.charged.clone().into_iter().filter(|(_, tokens)| *tokens > 0).collect();
        assert_eq!(charged, expected, "seed {}", self.seed);
        let sql = "SELECT task, COUNT(*) FROM fleet_history WHERE to_state = 'COMPLETED' AND actor LIKE 'agent:%' \
                   GROUP BY task";
        let completed: HashMap<String, u64> = self
            .numbers(sql)
            .await
            .into_iter()
            .map(|(task, count)| (task, count.cast_unsigned()))
            .collect();
        assert_eq!(completed, self.completed, "seed {}", self.seed);
        let counted =
            self.numbers("SELECT 'all', COALESCE(SUM(completed), 0) FROM fleet_usage").await;
        assert_eq!(counted[0].1.cast_unsigned(), completed.len() as u64, "seed {}", self.seed);
    }
}
