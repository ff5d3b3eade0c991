//! Checks new tasks, without changing anything.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_api::fleet::NewTask;
use fairgate_api::prompt_fields;
use fairgate_store::{SqlValue, StoreError, Transaction};

use super::{ReferencedRows, TaskToAdd, tasks_of};
use crate::agent_access;
use crate::call_context::CallContext;
use crate::dependency_cycle;
use crate::error::FleetError;
use crate::sql_placeholders;
use crate::validate::{self, invalid, unknown};
use crate::workspace_machines;

/// Maximum number of tasks that one call of [`add`](super::add) may add.
const TASKS_MAX: usize = 10_000;
/// Maximum length of a task's prompt, in bytes.
pub(crate) const PROMPT_MAX: usize = 1 << 20;
/// Maximum total length of all prompts in one call of [`add`](super::add), in bytes.
const PROMPTS_MAX: usize = 64 << 20;
/// Maximum length of a task's title, in bytes.
pub(crate) const TITLE_MAX: usize = 512;
/// Maximum number of tasks that one task may need.
const NEEDS_MAX: usize = 1_000;
/// Maximum total number of ids in the `needs` of all tasks in one call of [`add`](super::add).
const CALL_NEEDS_MAX: usize = 50_000;
/// Maximum number of open tasks that a project may have after an agent or a tenant has added tasks.
/// Operators may add more.
const OPEN_MAX: u64 = 10_000;
/// Maximum value of a task's `retries`.
const RETRIES_MAX: u32 = 1_000;
/// Maximum timeout of a task: 30 days, in seconds.
const TIMEOUT_MAX_S: u64 = 30 * 24 * 3600;

/// Checks that the names of an agent's or a tenant's tasks have the form `PROJECT:NAME`. Names
/// without a project are common to all tenants, so a caller could find out which of them exist.
pub(super) fn check_scoped_names(fields: &[String], tasks: &[NewTask]) -> Result<(), FleetError> {
    for (field, task) in fields.iter().zip(tasks) {
        let Some(id) = &task.id else { continue };
        if !id.contains(':') {
            let project = validate::cut(&task.project, 80);
            let problem = format!(
                "must begin with \"{project}:\", such as \"{project}:{}\", because other names are shared by all tenants",
                validate::cut(id, 80)
            );
            return Err(invalid(format!("{field}.id"), problem));
        }
    }
    Ok(())
}

pub(super) fn check_size(tasks: &[NewTask]) -> Result<(), FleetError> {
    if tasks.is_empty() {
        return Err(invalid("tasks", "must name at least one task"));
    }
    if tasks.len() > TASKS_MAX {
        let problem =
            format!("has {} tasks, and at most {TASKS_MAX} are allowed in one call", tasks.len());
        return Err(invalid("tasks", problem));
    }
    let bytes: usize = tasks.iter().map(|task| task.prompt.len()).sum();
    if bytes > PROMPTS_MAX {
        let problem = format!(
            "have {bytes} bytes of prompts, and at most {PROMPTS_MAX} are allowed in one call"
        );
        return Err(invalid("tasks", problem));
    }
    let needs: usize = tasks.iter().map(|task| task.needs.len()).sum();
    if needs > CALL_NEEDS_MAX {
        let problem = format!(
            "need {needs} tasks in all, and at most {CALL_NEEDS_MAX} are allowed in one call"
        );
        return Err(invalid("tasks", problem));
    }
    Ok(())
}

/// Rejects the tasks of an agent or a tenant if a project would then have more than [`OPEN_MAX`] open tasks, or if the
/// prompts of its open tasks would exceed `fleet.prompt_size_max` in total. Otherwise tasks that add tasks could fill
/// the database. Operators may add any number.
pub(super) fn check_open(
    tx: &mut dyn Transaction,
    call: &CallContext,
    fresh: &[TaskToAdd],
) -> Result<(), FleetError> {
    if call.is_by_operator() {
        return Ok(());
    }
    let mut added: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for task in fresh {
        let (count, bytes) = added.entry(&task.content.project).or_default();
        *count += 1;
        *bytes += task.content.prompt.len() as u64;
    }
    let bytes_max = call.options.prompt_bytes_max;
    for (project, (added, more_bytes)) in added {
        let sql = "SELECT COUNT(*), CAST(COALESCE(SUM(prompt_bytes), 0) AS BIGINT) FROM fleet_tasks \
                   WHERE project = $1 AND state NOT IN ('COMPLETED', 'FAILED')";
        let open = tx.first(sql, &[project.into()], |row| Ok((row.count(0)?, row.count(1)?)))?;
        let (open, bytes) = open.unwrap_or_default();
        if bytes.saturating_add(more_bytes) > bytes_max {
            let problem = format!(
                "have {more_bytes} bytes of prompts for project {project:?}, whose open tasks have {bytes}; agents and \
                 tenants may add up to {bytes_max} in all (fleet.prompt_size_max): complete some first, or have an \
                 operator add them"
            );
            return Err(invalid("tasks", problem));
        }
        if open.saturating_add(added) > OPEN_MAX {
            let problem = format!(
                "are {added} more for project {project:?}, which has {open} open ones; agents and tenants may add up to \
                 {OPEN_MAX} in all: complete some first, or have an operator add them"
            );
            return Err(invalid("tasks", problem));
        }
    }
    Ok(())
}

/// Checks those fields of a new task that need neither the database nor the other new tasks.
pub(super) fn check(field: &str, task: &NewTask) -> Result<(), FleetError> {
    if let Some(id) = &task.id {
        validate::check_task_name(&format!("{field}.id"), id, &task.project)?;
    }
    validate::check_text(&format!("{field}.prompt"), &task.prompt, PROMPT_MAX)?;
    if let Some(title) = &task.title {
        validate::check_line(&format!("{field}.title"), title, TITLE_MAX)?;
    }
    if let Some(estimate) = task.estimate {
        validate::check_tokens(&format!("{field}.estimate"), estimate, validate::TASK_TOKENS_MAX)?;
    }
    check_retries(&format!("{field}.retries"), task.retries)?;
    check_timeout(&format!("{field}.timeout_s"), task.timeout_s.map(u64::from))?;
    check_cap(&format!("{field}.tokens_max"), task.tokens_max)?;
    if let Some(moment) = task.resume_after {
        validate::check_moment(&format!("{field}.resume_after"), moment)?;
    }
    check_fields(&format!("{field}.prompt"), &task.prompt, &task.needs)?;
    agent_access::checked_labels(&format!("{field}.requires"), task.requires.clone())?;
    if task.needs.len() > NEEDS_MAX {
        let problem =
            format!("names {} tasks, and at most {NEEDS_MAX} are allowed", task.needs.len());
        return Err(invalid(format!("{field}.needs"), problem));
    }
    Ok(())
}

/// Checks that the number of retries is at most [`RETRIES_MAX`]. An absent number is valid.
pub(crate) fn check_retries(field: &str, retries: Option<u32>) -> Result<(), FleetError> {
    match retries.filter(|retries| *retries > RETRIES_MAX) {
        None => Ok(()),
        Some(retries) => {
            let problem = format!("is {retries}, and at most {RETRIES_MAX} are allowed");
            Err(invalid(field, problem))
        }
    }
}

/// Checks that a timeout is between 1 second and [`TIMEOUT_MAX_S`], and converts it to microseconds, the database's unit.
/// An absent timeout is valid.
pub(crate) fn check_timeout(field: &str, seconds: Option<u64>) -> Result<Option<i64>, FleetError> {
    let Some(seconds) = seconds else { return Ok(None) };
    if !(1..=TIMEOUT_MAX_S).contains(&seconds) {
        let problem = format!("is {seconds}, and must be 1 to {TIMEOUT_MAX_S} seconds");
        return Err(invalid(field, problem));
    }
    Ok(i64::try_from(seconds * 1_000_000).ok())
}

/// Checks that each field in the prompt that stands for a task's result names a task in `needs`.
pub(crate) fn check_fields<'a>(
    field: &str,
    prompt: &str,
    needs: impl IntoIterator<Item = &'a String>,
) -> Result<(), FleetError> {
    let needs: BTreeSet<&str> = needs.into_iter().map(String::as_str).collect();
    match prompt_fields::tasks(prompt).into_iter().find(|task| !needs.contains(task)) {
        None => Ok(()),
        Some(task) => {
            let shown = validate::cut(task, 80);
            let problem = format!("has the result of task {shown:?}, which is not in needs");
            Err(invalid(field, problem))
        }
    }
}

/// Checks that a cap of tokens is between 1 and [`validate::TASK_TOKENS_MAX`], and converts it to the database's type. An
/// absent cap is valid.
pub(crate) fn check_cap(field: &str, tokens: Option<u64>) -> Result<Option<i64>, FleetError> {
    match tokens {
        None => Ok(None),
        Some(0) => Err(invalid(field, "is 0, and must be at least 1 token")),
        Some(tokens) => validate::check_tokens(field, tokens, validate::TASK_TOKENS_MAX).map(Some),
    }
}

pub(super) fn check_ids_differ(fields: &[String], tasks: &[NewTask]) -> Result<(), FleetError> {
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (field, task) in fields.iter().zip(tasks) {
        let Some(id) = &task.id else { continue };
        if let Some(first) = seen.insert(id, field) {
            let problem = format!("{id:?} is the id of {first} too");
            return Err(invalid(format!("{field}.id"), problem));
        }
    }
    Ok(())
}

pub(super) fn check_cycles(tasks: &[NewTask]) -> Result<(), FleetError> {
    let places = tasks_of(tasks);
    let of = |task: &NewTask| {
        task.needs.iter().filter_map(|need| places.get(need.as_str()).copied()).collect()
    };
    let needs: Vec<Vec<usize>> = tasks.iter().map(of).collect();
    match dependency_cycle::cycle(&needs) {
        None => Ok(()),
        Some(cycle) => {
            let name = |place: usize| tasks[place].id.clone().unwrap_or_default();
            Err(FleetError::Cycle(cycle.into_iter().map(name).collect()))
        }
    }
}

/// Checks each task that `needs` names: it must exist or be one of the new tasks, and belong to the tenant of `task`.
/// An agent or a tenant gets the same error for another tenant's task as for a missing one.
pub(super) fn check_needs(
    call: &CallContext,
    field: &str,
    task: &NewTask,
    here: &HashMap<&str, usize>,
    found: &ReferencedRows,
) -> Result<(), FleetError> {
    let project = found.projects.get(&task.project);
    for (place, need) in task.needs.iter().enumerate() {
        let wrong = |problem| Err(unknown(format!("{field}.needs[{place}]"), problem));
        let shown = || validate::cut(need, 80);
        let tenant = project.map(|project| project.tenant.as_str());
        match found.tasks.get(need) {
            // Users of a tenant can see the tasks for which their own tasks wait, so all of these
            // must belong to the same tenant.
            Some(other) if Some(other.tenant.as_str()) == tenant => {}
            Some(_) if call.is_by_operator() => {
                return wrong(format!("task {:?} belongs to another tenant", shown()));
            }
            None if here.contains_key(need.as_str()) => {}
            _ => return wrong(format!("there is no task {:?}, here or in this call", shown())),
        }
    }
    Ok(())
}

/// Returns the tasks in which the optional field is set, with the field's value and the task's path
/// in the request body, such as `tasks[3]`. `name` reads the field.
fn named<'a>(
    fields: &'a [String],
    tasks: &'a [NewTask],
    name: impl Fn(&'a NewTask) -> Option<&'a String>,
) -> Vec<(&'a str, &'a NewTask, &'a str)> {
    let named = fields.iter().zip(tasks);
    named.filter_map(|(field, task)| Some((field.as_str(), task, name(task)?.as_str()))).collect()
}

/// Checks that the workspaces in the tasks belong to the tasks' projects. Returns the machines of
/// the bound workspaces.
pub(super) fn check_workspaces(
    tx: &mut dyn Transaction,
    call: &CallContext,
    fields: &[String],
    tasks: &[NewTask],
) -> Result<HashMap<String, String>, FleetError> {
    let named = named(fields, tasks, |task| task.workspace.as_ref());
    let sql = "SELECT id, project FROM fleet_workspaces WHERE id IN";
    let projects: HashMap<_, _> = look_up(tx, sql, &named)?.into_iter().collect();
    for (field, task, workspace) in named {
        let problem = match projects.get(workspace) {
            Some(project) if *project == task.project => continue,
            Some(project) if call.is_by_operator() => {
                format!("workspace {workspace:?} belongs to project {project:?}")
            }
            _ => format!("there is no workspace {:?}", validate::cut(workspace, 80)),
        };
        return Err(unknown(format!("{field}.workspace"), problem));
    }
    workspace_machines::of_workspaces(tx, projects.keys().map(String::as_str))
        .map_err(FleetError::from)
}

pub(super) fn check_affinities(
    tx: &mut dyn Transaction,
    fields: &[String],
    tasks: &[NewTask],
) -> Result<(), FleetError> {
    let named = named(fields, tasks, |task| task.affinity.as_ref());
    let sql = "SELECT id, state FROM fleet_agents WHERE id IN";
    let states: HashMap<_, _> = look_up(tx, sql, &named)?.into_iter().collect();
    for (field, _, agent) in named {
        let problem = match states.get(agent).map(String::as_str) {
            Some("RETIRED") => format!("agent {agent:?} is RETIRED"),
            Some(_) => continue,
            None => format!("there is no agent {:?}", validate::cut(agent, 80)),
        };
        return Err(unknown(format!("{field}.affinity"), problem));
    }
    Ok(())
}

fn look_up(
    tx: &mut dyn Transaction,
    sql: &str,
    named: &[(&str, &NewTask, &str)],
) -> Result<Vec<(String, String)>, StoreError> {
    let names: BTreeSet<&str> = named.iter().map(|(_, _, name)| *name).collect();
    let names: Vec<_> = names.into_iter().collect();
    let mut rows_found = Vec::new();
    for some in names.chunks(sql_placeholders::ROWS_MAX) {
        let values: Vec<SqlValue> = some.iter().map(|name| SqlValue::from(*name)).collect();
        let sql = format!("{sql} ({})", sql_placeholders::list(1, some.len()));
        rows_found.extend(tx.list(&sql, &values, |row| Ok((row.text(0)?, row.text(1)?)))?);
    }
    Ok(rows_found)
}
