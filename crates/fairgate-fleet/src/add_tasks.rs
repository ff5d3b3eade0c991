//! Adds tasks together with their dependencies. Either all tasks of one call of [`add`] are added, or none.
//!
//! All tasks are checked before any of them is written. The number of SQL statements for each 500
//! tasks is bounded. Only new tasks can depend on each other in a cycle, because an existing task
//! cannot need a new one.

mod checks;
mod content;
mod unmatched;
mod write;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_store::{SqlValue, Transaction};
use fairgate_time::UnixMicros;

use crate::call_context::CallContext;
use crate::error::FleetError;
use crate::projects::{self, ProjectSummary};
use crate::sql_placeholders;
use crate::task_history;
use crate::validate::invalid;
pub(crate) use checks::{
    PROMPT_MAX, TITLE_MAX, check_cap, check_fields, check_retries, check_timeout,
};
use checks::{
    check, check_affinities, check_cycles, check_ids_differ, check_needs, check_open,
    check_scoped_names, check_size, check_workspaces,
};
use content::{TaskContent, check_unchanged, content};
pub(crate) use content::{money_column, prompt_bytes};
use fairgate_api::fleet::{AddedTasks, NewTask, NewTasks, TaskLine, TaskState};
use unmatched::UnmatchedTasks;

/// A new task that has passed all checks and will be inserted into the database.
struct TaskToAdd {
    id: String,
    content: TaskContent,
    resume_after: Option<UnixMicros>,
    open_needs: i64,
    state: TaskState,
    /// Machine to which the workspace of the task is bound; `None` if it is not bound or the task names none.
    machine: Option<String>,
}

/// Projects and tasks in the database that the new tasks name, by id.
struct ReferencedRows {
    projects: BTreeMap<String, ProjectSummary>,
    /// Existing tasks that a new task names in `needs`, and existing tasks with the same id as a
    /// new task.
    tasks: HashMap<String, ExistingTask>,
    /// The bound workspaces that new tasks name, each with its machine.
    machines: HashMap<String, String>,
}

/// Fields of an existing task that the checks of new tasks need.
struct ExistingTask {
    tenant: String,
    state: TaskState,
}

/// Adds tasks. If `tenant` is given, the projects, tasks and workspaces of other tenants count as
/// missing. `affinity` is then refused, because agents belong to all tenants. An agent or a tenant
/// may name tasks only in the form `PROJECT:NAME`.
pub(crate) fn add(
    tx: &mut dyn Transaction,
    call: &CallContext,
    asked: NewTasks,
    tenant: Option<&str>,
) -> Result<AddedTasks, FleetError> {
    let NewTasks { tasks, dry_run } = asked;
    check_size(&tasks)?;
    let fields: Vec<_> = (0..tasks.len()).map(|place| format!("tasks[{place}]")).collect();
    for (field, task) in fields.iter().zip(&tasks) {
        check(field, task)?;
    }
    let mut found = find(tx, &tasks)?;
    if let Some(tenant) = tenant {
        // A project of another tenant must get the same answer as one that does not exist.
        found.projects.retain(|_, project| project.tenant == tenant);
        let names_agent = |task: &NewTask| task.affinity.is_some();
        if let Some(place) = tasks.iter().position(names_agent) {
            let problem = "only an operator may name an agent";
            return Err(invalid(format!("{}.affinity", fields[place]), problem));
        }
    }
    if tenant.is_some() || call.is_by_agent() {
        check_scoped_names(&fields, &tasks)?;
    }
    for (field, task) in fields.iter().zip(&tasks) {
        let project = found.projects.get(&task.project);
        projects::check_not_archived(format!("{field}.project"), &task.project, project)?;
    }
    check_ids_differ(&fields, &tasks)?;
    check_cycles(&tasks)?;
    let here = tasks_of(&tasks);
    for (field, task) in fields.iter().zip(&tasks) {
        check_needs(call, field, task, &here, &found)?;
    }
    found.machines = check_workspaces(tx, call, &fields, &tasks)?;
    check_affinities(tx, &fields, &tasks)?;

    let there: Vec<&NewTask> = tasks.iter().filter(|task| is_existing(task, &found)).collect();
    check_unchanged(tx, &there)?;
    let unchanged = there.iter().filter_map(|task| task.id.clone()).collect();

    let mut ids = generate_ids(tx, &tasks)?.into_iter();
    let fresh = tasks.into_iter().filter(|task| !is_existing(task, &found)).map(|mut task| {
        let id = task.id.take().or_else(|| ids.next()).unwrap_or_default();
        new(call, id, task, &found)
    });
    let fresh: Vec<TaskToAdd> = fresh.collect();
    check_open(tx, call, &fresh)?;
    let added = fresh.iter().map(|new| line(call, new, &found)).collect();
    if !dry_run && !fresh.is_empty() {
        write::write(tx, call, &fresh)?;
    }
    let UnmatchedTasks { projects: unmatched, tasks: unmatched_tasks } =
        unmatched::find(tx, &fresh, &found)?;
    Ok(AddedTasks { added, unchanged, dry_run, unmatched, unmatched_tasks })
}

/// Maps the ids of the new tasks to their indexes in `tasks`. Tasks without an id are left out.
fn tasks_of(tasks: &[NewTask]) -> HashMap<&str, usize> {
    let named = tasks.iter().enumerate();
    named.filter_map(|(place, task)| Some((task.id.as_deref()?, place))).collect()
}

/// Looks up all projects and tasks that the new tasks name.
fn find(tx: &mut dyn Transaction, tasks: &[NewTask]) -> Result<ReferencedRows, FleetError> {
    let names: BTreeSet<&str> = tasks.iter().map(|task| task.project.as_str()).collect();
    let mut known = BTreeMap::new();
    for name in names {
        if let Some(project) = projects::known(tx, name)? {
            known.insert(name.to_owned(), project);
        }
    }
    let needed = tasks.iter().flat_map(|task| &task.needs);
    let ids: BTreeSet<&str> = needed
        .chain(tasks.iter().filter_map(|task| task.id.as_ref()))
        .map(String::as_str)
        .collect();
    let ids: Vec<_> = ids.into_iter().collect();
    let mut others = HashMap::new();
    for some in ids.chunks(sql_placeholders::ROWS_MAX) {
        let sql = format!(
            "SELECT t.id, t.state, p.tenant FROM fleet_tasks t JOIN fleet_projects p ON p.id = t.project \
             WHERE t.id IN ({})",
            sql_placeholders::list(1, some.len())
        );
        let values: Vec<SqlValue> = some.iter().map(|id| SqlValue::from(*id)).collect();
        let some = tx.list(&sql, &values, |row| {
            let other =
                ExistingTask { state: task_history::state(&row.text(1)?)?, tenant: row.text(2)? };
            Ok((row.text(0)?, other))
        })?;
        others.extend(some);
    }
    Ok(ReferencedRows { projects: known, tasks: others, machines: HashMap::new() })
}

fn is_existing(task: &NewTask, found: &ReferencedRows) -> bool {
    task.id.as_ref().is_some_and(|id| found.tasks.contains_key(id))
}

/// Generates ids for the tasks that have none, in the order of the list. The ids are `PROJECT-1`
/// and so on. They start at the project's number of tasks plus one; ids in use are skipped.
fn generate_ids(tx: &mut dyn Transaction, tasks: &[NewTask]) -> Result<Vec<String>, FleetError> {
    let mut taken: BTreeSet<String> = tasks.iter().filter_map(|task| task.id.clone()).collect();
    let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.id.is_none()) {
        *wanted.entry(task.project.as_str()).or_default() += 1;
    }
    let mut made: BTreeMap<&str, std::vec::IntoIter<String>> = BTreeMap::new();
    for (project, count) in wanted {
        let sql = "SELECT COUNT(*) FROM fleet_tasks WHERE project = $1";
        let before = tx.first(sql, &[project.into()], |row| row.count(0))?.unwrap_or(0);
        let mut free = Vec::new();
        let mut next = before + 1;
        while free.len() < count {
            let some = (count - free.len()).min(sql_placeholders::ROWS_MAX) as u64;
            let ids: Vec<_> = (next..next + some).map(|n| format!("{project}-{n}")).collect();
            next += some;
            let sql = format!(
                "SELECT id FROM fleet_tasks WHERE id IN ({})",
                sql_placeholders::list(1, ids.len())
            );
            let values: Vec<SqlValue> = ids.iter().map(|id| id.as_str().into()).collect();
            taken.extend(tx.list(&sql, &values, |row| row.text(0))?);
            free.extend(ids.into_iter().filter(|id| !taken.contains(id)));
        }
        made.insert(project, free.into_iter());
    }
    let nameless = tasks.iter().filter(|task| task.id.is_none());
    Ok(nameless.filter_map(|task| made.get_mut(task.project.as_str())?.next()).collect())
}

fn new(call: &CallContext, id: String, task: NewTask, found: &ReferencedRows) -> TaskToAdd {
    let content = content(&task);
    let is_open = |need: &&String| {
        found.tasks.get(*need).is_none_or(|other| other.state != TaskState::Completed)
    };
    let open = content.needs.iter().filter(is_open).count();
    let resume_after = task.resume_after.filter(|moment| *moment > call.now);
    let state = match (open, resume_after) {
        (0, None) => TaskState::Ready,
        (0, Some(_)) => TaskState::Paused,
        _ => TaskState::Defined,
    };
    let open_needs = i64::try_from(open).unwrap_or(i64::MAX);
    let machine = task.workspace.as_ref().and_then(|name| found.machines.get(name)).cloned();
    TaskToAdd { id, content, resume_after, open_needs, state, machine }
}

fn line(call: &CallContext, new: &TaskToAdd, found: &ReferencedRows) -> TaskLine {
    let learned = found.projects.get(&new.content.project).and_then(|project| project.learned);
    let estimate = new.content.estimate.map(i64::unsigned_abs).or(learned);
    TaskLine {
        id: new.id.clone(),
        project: new.content.project.clone(),
        title: new.content.title.clone(),
        state: new.state,
        reason: None,
        priority: new.content.priority,
        agent: None,
        estimate: estimate.unwrap_or(call.options.default_estimate),
        used: 0,
        retries: 0,
        retries_max: new.content.retries_max,
        resume_after: new.resume_after,
        created_at: call.now,
        ended_at: None,
    }
}
