//! Views of tasks (lists and single tasks), and changes of tasks that no agent holds.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_api::fleet::TaskState;
use fairgate_api::fleet::{TaskLine, TaskMoney, TaskPatch, TaskView};
use fairgate_money::MicroUnits;
use fairgate_store::{RowColumns, SqlValue, StoreError, Transaction};
use fairgate_usage::HELD_STATES;
use serde_json::{Map, Value as Json, json};

use crate::add_tasks::{
    self, PROMPT_MAX, TITLE_MAX, check_cap, check_fields, check_retries, check_timeout,
    money_column,
};
use crate::agent_access;
use crate::call_context::{CallContext, bump_version, not_found};
use crate::error::FleetError;
use crate::json_rows;
use crate::sql_placeholders;
use crate::task_history;
use crate::validate;
use crate::workspace_machines;

/// Filter of a list of tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskQuery {
    /// Lists only tasks of this project.
    pub project: Option<String>,
    /// Lists only tasks in these states. If empty, lists tasks in all states.
    pub states: Vec<TaskState>,
    /// Lists only tasks of this tenant's projects.
    pub tenant: Option<String>,
    /// Lists only tasks that come after the task with this name.
    pub after: Option<String>,
    /// Maximum number of tasks to list, up to 1001; 0 means 100.
    pub limit: u32,
}

/// Default and maximum length of a list of tasks.
const LIST: (u32, u32) = (100, 1_001);

/// SQL columns of a [`TaskLine`], for a task `t` and its project `p`.
pub(crate) const LINE: &str = "t.id, t.project, t.title, t.state, t.reason, t.priority, t.agent, t.estimate, p.learned, \
    t.used, t.used_before, t.retries, t.retries_max, t.resume_after, t.created_at, t.ended_at";
/// Number of columns in [`LINE`].
const LINE_COLUMNS: usize = 16;
/// FROM clause for the columns of [`LINE`].
pub(crate) const FROM: &str = "FROM fleet_tasks t JOIN fleet_projects p ON p.id = t.project";

/// Reads a [`TaskLine`] from the columns of [`LINE`].
pub(crate) fn line(row: &dyn RowColumns, default_estimate: u64) -> Result<TaskLine, StoreError> {
    let small = |column| row.int(column).map(|number| u32::try_from(number).unwrap_or(0));
    let estimate = row.count_or_null(7)?.or(row.count_or_null(8)?);
    Ok(TaskLine {
        id: row.text(0)?,
        project: row.text(1)?,
        title: row.text(2)?,
        state: task_history::state(&row.text(3)?)?,
        reason: row.text_or_null(4)?,
        priority: row.int(5)?,
        agent: row.text_or_null(6)?,
        estimate: estimate.unwrap_or(default_estimate),
        used: used(row.int(9)?, row.int(10)?),
        retries: small(11)?,
        retries_max: small(12)?,
        resume_after: row.moment_or_null(13)?,
        created_at: row.moment(14)?,
        ended_at: row.moment_or_null(15)?,
    })
}

/// Returns the usage of the latest claim plus that of earlier claims. One of the two may be negative after
/// the usage that was assumed for a lost request was corrected. A negative sum counts as 0.
fn used(used: i64, before: i64) -> u64 {
    u64::try_from(used.saturating_add(before)).unwrap_or(0)
}

pub(crate) fn one_line(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
) -> Result<TaskLine, FleetError> {
    let sql = format!("SELECT {LINE} {FROM} WHERE t.id = $1");
    let found = tx.first(&sql, &[id.into()], |row| line(row, call.options.default_estimate))?;
    found.ok_or_else(|| not_found("task", id))
}

/// Returns the existing ones of these tasks, by id.
pub(crate) fn lines<'a>(
    tx: &mut dyn Transaction,
    call: &CallContext,
    ids: impl Iterator<Item = &'a str>,
) -> Result<HashMap<String, TaskLine>, StoreError> {
    let list = json_rows::texts(tx.database(), 1);
    let sql = format!("SELECT {LINE} {FROM} WHERE t.id IN {list}");
    let default_estimate = call.options.default_estimate;
    let lines = tx.list(&sql, &[json_rows::names(ids)], |row| line(row, default_estimate))?;
    Ok(lines.into_iter().map(|line| (line.id.clone(), line)).collect())
}

pub(crate) fn list(
    tx: &mut dyn Transaction,
    call: &CallContext,
    query: &TaskQuery,
) -> Result<Vec<TaskLine>, FleetError> {
    let mut values: Vec<SqlValue> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    let mut filter = |condition: &str, value: SqlValue| {
        values.push(value);
        conditions.push(format!("{condition} ${}", values.len()));
    };
    if let Some(project) = &query.project {
        let has = "SELECT 1 FROM fleet_projects WHERE id = $1";
        if tx.first(has, &[project.as_str().into()], |_| Ok(()))?.is_none() {
            return Err(not_found("project", project));
        }
        filter("t.project =", project.as_str().into());
    }
    if let Some(tenant) = &query.tenant {
        filter("p.tenant =", tenant.as_str().into());
    }
    if let Some(after) = &query.after {
        let made = "SELECT made FROM fleet_tasks WHERE id = $1";
        let made = tx.first(made, &[after.as_str().into()], |row| row.int(0))?;
        let unknown = || {
            validate::unknown("after", format!("there is no task {:?}", validate::cut(after, 80)))
        };
        filter("t.made >", made.ok_or_else(unknown)?.into());
    }
    if !query.states.is_empty() {
        let first = values.len() + 1;
        conditions
            .push(format!("t.state IN ({})", sql_placeholders::list(first, query.states.len())));
        values.extend(query.states.iter().map(|state| SqlValue::from(state.word())));
    }
    let condition = match conditions.is_empty() {
        true => String::new(),
        false => format!("WHERE {}", conditions.join(" AND ")),
    };
    let limit = if query.limit == 0 { LIST.0 } else { query.limit.min(LIST.1) };
    values.push(limit.into());
    let sql = format!("SELECT {LINE} {FROM} {condition} ORDER BY t.made LIMIT ${}", values.len());
    Ok(tx.list(&sql, &values, |row| line(row, call.options.default_estimate))?)
}

/// Returns the task with this id, with only those fields that a list of tasks shows.
pub(crate) fn one(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
) -> Result<TaskLine, FleetError> {
    let sql = format!("SELECT {LINE} {FROM} WHERE t.id = $1");
    let found = tx.first(&sql, &[id.into()], |row| line(row, call.options.default_estimate))?;
    found.ok_or_else(|| not_found("task", id))
}

/// Returns the task that an agent holds, or `None` if the agent holds no task.
pub(crate) fn held_by(
    tx: &mut dyn Transaction,
    call: &CallContext,
    agent: &str,
) -> Result<Option<TaskLine>, StoreError> {
    let sql = format!("SELECT {LINE} {FROM} WHERE t.agent = $1 AND t.state IN {HELD_STATES}");
    tx.first(&sql, &[agent.into()], |row| line(row, call.options.default_estimate))
}

pub(crate) fn view(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
) -> Result<TaskView, FleetError> {
    let needs = tx.list(
        "SELECT n.needs, t.state FROM fleet_needs n JOIN fleet_tasks t ON t.id = n.needs WHERE n.task = $1",
        &[id.into()],
        |row| Ok((row.text(0)?, task_history::state(&row.text(1)?)?)),
    )?;
    let needs: BTreeMap<_, _> = needs.into_iter().collect();
    let needed_by = waiting_for(tx, id, DependentsLimit::FAR)?;
    let history = task_history::of(tx, id)?;
    let sql = format!(
        "SELECT {LINE}, (SELECT m.prompt FROM fleet_prompts m WHERE m.task = t.id), t.workspace, t.in_workspace, t.affinity, t.epoch, t.lease_until, t.calls, \
         t.progress, t.question, t.answer, t.result, t.credit_extra, t.agent_us, t.timeout, t.put_offs, \
         t.tokens_max, t.money_max, t.money, t.requires {FROM} WHERE t.id = $1"
    );
    let at = |place: usize| LINE_COLUMNS + place;
    let found = tx.first(&sql, &[id.into()], |row| {
        let line = line(row, call.options.default_estimate)?;
        Ok(TaskView {
            charged: line.used.saturating_add_signed(row.int(at(11))?),
            agent_ms: row.count(at(12))? / 1_000,
            line,
            prompt: row.text(at(0))?,
            needs: needs.clone(),
            needed_by: needed_by.clone(),
            workspace: row.text_or_null(at(1))?,
            requires: agent_access::read_list(&row.text(at(18))?)?,
            in_workspace: row.text_or_null(at(2))?,
            affinity: row.text_or_null(at(3))?,
            epoch: row.count(at(4))?,
            lease_until: row.moment_or_null(at(5))?,
            timeout_s: row.count_or_null(at(13))?.map(|micros| micros / 1_000_000),
            tokens_max: row.count_or_null(at(15))?,
            money_max: row.count_or_null(at(16))?.map(|micro| TaskMoney(MicroUnits(micro))),
            money: TaskMoney(MicroUnits(u64::try_from(row.int(at(17))?).unwrap_or(0))),
            put_offs: u32::try_from(row.count(at(14))?).unwrap_or(u32::MAX),
            calls: row.count(at(6))?,
            progress: row.text_or_null(at(7))?,
            question: row.text_or_null(at(8))?,
            answer: row.text_or_null(at(9))?,
            result: row.text_or_null(at(10))?,
            history: history.clone(),
        })
    })?;
    found.ok_or_else(|| not_found("task", id))
}

/// Limits of [`waiting_for`], the search for the tasks that need a given task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DependentsLimit {
    /// Maximum number of tasks to return.
    pub(crate) tasks: usize,
    /// Maximum distance from the given task in the dependency graph. For each step, the search runs
    /// one SQL statement for every 500 tasks.
    pub(crate) steps: usize,
}

impl DependentsLimit {
    /// Limits that are used for the view of one task.
    pub(crate) const FAR: Self = Self { tasks: 1_000, steps: 200 };
    /// Limits that are used for the reason of a blocked task. They are low, because other
    /// transactions wait meanwhile.
    const NEAR: Self = Self { tasks: 100, steps: 20 };
}

/// Returns the open tasks that need the task `id`, directly or through other tasks, within the
/// limits `reach`. The nearest tasks come first; tasks at the same distance are in the order of
/// their creation. The search is breadth-first with one query for each step, because PostgreSQL
/// reads whole tables for each step of a recursive query.
pub(crate) fn waiting_for(
    tx: &mut dyn Transaction,
    id: &str,
    reach: DependentsLimit,
) -> Result<Vec<String>, StoreError> {
    let completed = "SELECT 1 FROM fleet_tasks WHERE id = $1 AND state = 'COMPLETED'";
    if tx.first(completed, &[id.into()], |_| Ok(()))?.is_some() {
        return Ok(Vec::new());
    }
    let mut found: Vec<String> = Vec::new();
    let mut seen = BTreeSet::from([id.to_owned()]);
    let mut edge = vec![id.to_owned()];
    for _ in 0..reach.steps {
        let mut next = Vec::new();
        for some in edge.chunks(sql_placeholders::ROWS_MAX) {
            let values: Vec<SqlValue> = some.iter().map(|id| id.as_str().into()).collect();
            let sql = format!(
                "SELECT DISTINCT t.id, t.made FROM fleet_needs n JOIN fleet_tasks t ON t.id = n.task \
                 WHERE n.needs IN ({}) AND t.state NOT IN ('COMPLETED', 'FAILED') ORDER BY t.made LIMIT {}",
                sql_placeholders::list(1, some.len()),
                reach.tasks
            );
            next.extend(tx.list(&sql, &values, |row| row.text(0))?);
        }
        next.retain(|id| seen.insert(id.clone()));
        found.extend(next.iter().cloned());
        if next.is_empty() || found.len() >= reach.tasks {
            break;
        }
        edge = next;
    }
    found.truncate(reach.tasks);
    Ok(found)
}

/// Returns the end of a blocked task's reason, such as `; 3 tasks wait for it: a, b, c`; an empty
/// string if no task waits.
pub(crate) fn dependents_suffix(tx: &mut dyn Transaction, id: &str) -> Result<String, StoreError> {
    const NAMED: usize = 10;
    let waiting = waiting_for(tx, id, DependentsLimit::NEAR)?;
    let named = waiting.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    Ok(match waiting.len() {
        0 => String::new(),
        1 => format!("; 1 task waits for it: {named}"),
        count if count <= NAMED => format!("; {count} tasks wait for it: {named}"),
        _ => format!("; more than {NAMED} tasks wait for it: {named} and others"),
    })
}

pub(crate) fn patch(
    tx: &mut dyn Transaction,
    call: &CallContext,
    id: &str,
    patch: TaskPatch,
) -> Result<TaskView, FleetError> {
    let before = view(tx, call, id)?;
    check_changeable(&before.line)?;
    let TaskPatch { title, prompt, priority, estimate, retries, .. } = patch;
    let TaskPatch { timeout_s, tokens_max, money_max, requires, .. } = patch;
    let requires = requires.map(|labels| agent_access::checked_labels("requires", labels));
    let requires = requires.transpose()?;
    let estimate_before = tx
        .first("SELECT estimate FROM fleet_tasks WHERE id = $1", &[id.into()], |row| {
            row.count_or_null(0)
        })?
        .flatten();
    if let Some(title) = &title {
        validate::check_line("title", title, TITLE_MAX)?;
    }
    if let Some(prompt) = &prompt {
        validate::check_text("prompt", prompt, PROMPT_MAX)?;
        check_fields("prompt", prompt, before.needs.keys())?;
    }
    let estimate_value = estimate
        .map(|estimate| validate::check_tokens("estimate", estimate, validate::TASK_TOKENS_MAX));
    let estimate_value = estimate_value.transpose()?;
    check_retries("retries", retries)?;
    let timeout = timeout_s.map(|seconds| check_timeout("timeout_s", seconds)).transpose()?;
    let tokens = tokens_max.map(|tokens| check_cap("tokens_max", tokens)).transpose()?;
    let mut change = TaskPatchColumns::default();
    let was = &before.line;
    change.text("title", &was.title, title);
    if let Some(prompt) = prompt.filter(|prompt| *prompt != before.prompt) {
        change.audit_text("prompt", &before.prompt, &prompt);
        change.put_unaudited("prompt_bytes", add_tasks::prompt_bytes(&prompt).into());
        let sql = "UPDATE fleet_prompts SET prompt = $1 WHERE task = $2";
        tx.run(sql, &[prompt.into(), id.into()])?;
    }
    change.number("priority", Some(was.priority.into()), priority.map(|to| (to.into(), to.into())));
    let estimate = estimate.zip(estimate_value).map(|(json, value)| (json.into(), value.into()));
    change.number("estimate", estimate_before.map(Json::from), estimate);
    let retries = retries.map(|to| (to.into(), to.into()));
    change.number("retries_max", Some(was.retries_max.into()), retries);
    let timeout = timeout.map(|micros| (json!(timeout_s.flatten()), micros.into()));
    change.number("timeout", Some(json!(before.timeout_s)), timeout);
    let tokens = tokens.map(|tokens| (json!(tokens), tokens.into()));
    change.number("tokens_max", Some(json!(before.tokens_max)), tokens);
    let money = money_max.map(|money| (json!(money), money.map(money_column).into()));
    change.number("money_max", Some(json!(before.money_max)), money);
    if let Some(requires) = requires {
        let machine = workspace_machines::of_task(tx, id)?;
        let labels = agent_access::stored_task_labels(&requires, machine.as_deref());
        let was = (json!(before.requires), json!(requires));
        change.number(
            "requires",
            Some(was.0),
            Some((was.1, agent_access::stored(&requires).into())),
        );
        if before.requires != requires {
            change.put_unaudited("labels", labels.into());
        }
    }
    if change.values.is_empty() {
        return Ok(before);
    }
    change.values.push(id.into());
    let set = change.set.join(", ");
    let sql = format!("UPDATE fleet_tasks SET {set} WHERE id = ${}", change.values.len());
    tx.run(&sql, &change.values)?;
    let (before, after) = (Json::Object(change.before), Json::Object(change.after));
    call.audit(tx, "task.patch", id, Some(&before), Some(&after))?;
    bump_version(tx)?;
    view(tx, call, id)
}

fn check_changeable(line: &TaskLine) -> Result<(), FleetError> {
    let id = line.id.clone();
    if line.state.is_held() {
        let agent = line.agent.as_deref().unwrap_or("an agent");
        let by = format!("{agent} works on it; pause or cancel it first");
        return Err(FleetError::InUse { what: "task", id, by });
    }
    if line.state == TaskState::Completed {
        let by = "it is COMPLETED, and stays as it was; add a new task".to_owned();
        return Err(FleetError::InUse { what: "task", id, by });
    }
    Ok(())
}

/// Columns whose values a patch changes, for the database and for the audit trail.
#[derive(Default)]
struct TaskPatchColumns {
    set: Vec<String>,
    values: Vec<SqlValue>,
    before: Map<String, Json>,
    after: Map<String, Json>,
}

impl TaskPatchColumns {
    /// Adds a text column if its value changes.
    fn text(&mut self, column: &str, before: &str, after: Option<String>) {
        if let Some(after) = after.filter(|after| after != before) {
            self.audit_text(column, before, &after);
            self.put_unaudited(column, after.into());
        }
    }

    /// Adds a changed text to the audit trail, in which long texts are cut.
    fn audit_text(&mut self, column: &str, before: &str, after: &str) {
        let shown = |text: &str| Json::from(validate::cut(text, validate::NOTE_MAX));
        self.before.insert(column.to_owned(), shown(before));
        self.after.insert(column.to_owned(), shown(after));
    }

    fn number(&mut self, column: &str, before: Option<Json>, after: Option<(Json, SqlValue)>) {
        if let Some((json, value)) = after.filter(|(json, _)| Some(json) != before.as_ref()) {
            self.put(column, before.unwrap_or_default(), json, value);
        }
    }

    /// Adds a column that is not shown in the audit trail by itself, because its value follows from
    /// other columns.
    fn put_unaudited(&mut self, column: &str, value: SqlValue) {
        self.values.push(value);
        self.set.push(format!("{column} = ${}", self.values.len()));
    }

    fn put(&mut self, column: &str, before: Json, after: Json, value: SqlValue) {
        self.put_unaudited(column, value);
        self.before.insert(column.to_owned(), before);
        self.after.insert(column.to_owned(), after);
    }
}
