//! The content of a task, in the form of a client's request and in the form of the database.

use std::collections::{BTreeSet, HashMap};

use fairgate_api::fleet::{NewTask, TaskMoney};
use fairgate_store::{SqlValue, Transaction};

use crate::agent_access;
use crate::error::FleetError;
use crate::sql_placeholders;
use crate::validate;

/// Maximum length of a title that is derived from a prompt, in bytes. A longer line is cut.
const MADE_TITLE_MAX: usize = 120;
/// Number of retries that a task gets if it does not set `retries`.
const RETRIES: u32 = 3;
/// Priority of a task that does not set `priority`. Tasks with a lower priority start first.
const PRIORITY: i64 = 100;
/// Time for which a task waits for the agent in its `affinity`, in seconds, if it does not set
/// `affinity_wait_s`.
const AFFINITY_WAIT_S: u32 = 120;

/// Content of a task from the client's request, with the defaults filled in. A task may be added
/// again under the same id only if its content is equal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaskContent {
    pub(super) project: String,
    pub(super) title: String,
    pub(super) prompt: String,
    pub(super) priority: i64,
    pub(super) needs: BTreeSet<String>,
    pub(super) estimate: Option<i64>,
    pub(super) retries_max: u32,
    pub(super) timeout_s: Option<u32>,
    pub(super) tokens_max: Option<i64>,
    pub(super) money_max: Option<i64>,
    pub(super) workspace: Option<String>,
    /// Labels that an agent must have, sorted.
    pub(super) requires: Vec<String>,
    pub(super) affinity: Option<String>,
    pub(super) affinity_wait_s: u32,
}

/// Converts an amount of money to the database's type.
pub(crate) fn money_column(money: TaskMoney) -> i64 {
    i64::try_from(money.0.0).unwrap_or(i64::MAX)
}

pub(super) fn content(task: &NewTask) -> TaskContent {
    TaskContent {
        project: task.project.clone(),
        title: task.title.clone().unwrap_or_else(|| title(&task.prompt)),
        prompt: task.prompt.clone(),
        priority: task.priority.unwrap_or(PRIORITY),
        needs: task.needs.iter().cloned().collect(),
        estimate: task.estimate.and_then(|estimate| i64::try_from(estimate).ok()),
        retries_max: task.retries.unwrap_or(RETRIES),
        timeout_s: task.timeout_s,
        tokens_max: task.tokens_max.and_then(|tokens| i64::try_from(tokens).ok()),
        money_max: task.money_max.map(money_column),
        workspace: task.workspace.clone(),
        requires: agent_access::union(&task.requires, &[]),
        affinity: task.affinity.clone(),
        affinity_wait_s: task.affinity_wait_s.unwrap_or(AFFINITY_WAIT_S),
    }
}

/// Derives a title of at most [`MADE_TITLE_MAX`] bytes from the first line of the prompt that is not blank.
fn title(prompt: &str) -> String {
    let first = prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let plain: String = first.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    validate::cut(&plain, MADE_TITLE_MAX)
}

/// Checks tasks whose ids already exist (`there`). Each must have the same content as the stored
/// task with its id. `resume_after` is not compared, because that time may have passed since the
/// task was first added.
pub(super) fn check_unchanged(
    tx: &mut dyn Transaction,
    there: &[&NewTask],
) -> Result<(), FleetError> {
    for some in there.chunks(sql_placeholders::ROWS_MAX) {
        let ids: Vec<SqlValue> =
            some.iter().map(|task| task.id.as_deref().unwrap_or_default().into()).collect();
        let list = sql_placeholders::list(1, ids.len());
        let sql = format!("SELECT task, needs FROM fleet_needs WHERE task IN ({list})");
        let mut needs: HashMap<String, BTreeSet<String>> = HashMap::new();
        for (task, need) in tx.list(&sql, &ids, |row| Ok((row.text(0)?, row.text(1)?)))? {
            needs.entry(task).or_default().insert(need);
        }
        let sql = format!(
            "SELECT id, project, title, (SELECT m.prompt FROM fleet_prompts m WHERE m.task = fleet_tasks.id), priority, estimate, retries_max, workspace, affinity, affinity_wait, \
             timeout, tokens_max, money_max, requires FROM fleet_tasks WHERE id IN ({list})"
        );
        let contents = tx.list(&sql, &ids, |row| {
            let small = |column| row.int(column).map(|number| u32::try_from(number).unwrap_or(0));
            let content = TaskContent {
                project: row.text(1)?,
                title: row.text(2)?,
                prompt: row.text(3)?,
                priority: row.int(4)?,
                needs: BTreeSet::new(),
                estimate: row.int_or_null(5)?,
                retries_max: small(6)?,
                timeout_s: row.int_or_null(10)?.and_then(|it| u32::try_from(it / 1_000_000).ok()),
                tokens_max: row.int_or_null(11)?,
                money_max: row.int_or_null(12)?,
                workspace: row.text_or_null(7)?,
                requires: agent_access::read_list(&row.text(13)?)?,
                affinity: row.text_or_null(8)?,
                affinity_wait_s: u32::try_from(row.int(9)? / 1_000_000).unwrap_or(0),
            };
            Ok((row.text(0)?, content))
        })?;
        let mut contents: HashMap<_, _> = contents.into_iter().collect();
        for task in some {
            let id = task.id.clone().unwrap_or_default();
            let stored = contents.remove(&id).map(|content| TaskContent {
                needs: needs.remove(&id).unwrap_or_default(),
                ..content
            });
            if stored != Some(content(task)) {
                return Err(FleetError::Exists { what: "task", id });
            }
        }
    }
    Ok(())
}

/// Returns the length of a prompt in the database's type.
pub(crate) fn prompt_bytes(prompt: &str) -> i64 {
    i64::try_from(prompt.len()).unwrap_or(i64::MAX)
}
