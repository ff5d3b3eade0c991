//! Adds tasks together with their dependencies. Either all tasks of one call of [`add`] are added, or none.
//!
//! All tasks are checked before any of them is written, with a bounded number of SQL statements per 500 tasks. Only new
//! tasks can depend on each other in a cycle, because an existing task cannot need a new one.

mod unmatched;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_store::{SqlValue, StoreError, Transaction};
use fairgate_time::UnixMicros;
use serde_json::json;

use crate::agent_access;
use crate::call_context::{CallContext, bump_version, reserve_creation_order};
use crate::dependency_cycle;
use crate::error::FleetError;
use crate::model::{AddedTasks, NewTask, NewTasks, TaskLine, TaskMoney};
use crate::project_baseline;
use crate::projects::{self, ProjectSummary};
use crate::sql_placeholders;
use crate::state::TaskState;
use crate::task_history;
use crate::task_results;
use crate::validate::{self, invalid, unknown};
use crate::workspace_machines;
use unmatched::UnmatchedTasks;

/// Largest number of tasks that one call of [`add`] may add.
const TASKS_MAX: usize = 10_000;
/// Longest prompt of a task, in bytes.
pub(crate) const PROMPT_MAX: usize = 1 << 20;
/// Largest total length of all prompts in one call of [`add`], in bytes.
const PROMPTS_MAX: usize = 64 << 20;
/// Longest title of a task, in bytes.
pub(crate) const TITLE_MAX: usize = 512;
/// Longest title that is derived from a prompt, in bytes. A longer line of the prompt is cut at this length.
const MADE_TITLE_MAX: usize = 120;
/// Largest number of tasks that one task may need.
const NEEDS_MAX: usize = 1_000;
/// Largest total number of ids in the `needs` of all tasks in one call of [`add`].
const CALL_NEEDS_MAX: usize = 50_000;
/// Largest number of open tasks that a project may have after an agent or a tenant has added tasks. Operators have no such
/// limit.
const OPEN_MAX: u64 = 10_000;
/// Largest value that a task may set as `retries`.
const RETRIES_MAX: u32 = 1_000;
/// Number of retries that a task gets if it does not set `retries`.
const RETRIES: u32 = 3;
/// Longest timeout of a task: 30 days, in seconds.
const TIMEOUT_MAX_S: u64 = 30 * 24 * 3600;
/// Priority of a task that does not set `priority`. Tasks with a lower priority start first.
const PRIORITY: i64 = 100;
/// Time for which a task that does not set `affinity_wait_s` waits for the agent that its `affinity` names, in seconds.
const AFFINITY_WAIT_S: u32 = 120;

/// Content of a task as the client sent it, with the defaults filled in. A task may be added again under the same id
/// only if its content is equal.
#[derive(Clone, Debug, PartialEq)]
struct TaskContent {
    project: String,
    title: String,
    prompt: String,
    priority: i64,
    needs: BTreeSet<String>,
    estimate: Option<i64>,
    retries_max: u32,
    timeout_s: Option<u32>,
    tokens_max: Option<i64>,
    money_max: Option<i64>,
    workspace: Option<String>,
    /// Labels that an agent must have, sorted.
    requires: Vec<String>,
    affinity: Option<String>,
    affinity_wait_s: u32,
}

/// New task that passed all checks and will be inserted into the database.
struct TaskToAdd {
    id: String,
    content: TaskContent,
    resume_after: Option<UnixMicros>,
    open_needs: i64,
    state: TaskState,
    /// Machine to which the workspace of the task is bound; `None` if it is not bound or the task names none.
    machine: Option<String>,
}

/// Projects and tasks in the database that the new tasks refer to, by id.
struct ReferencedRows {
    projects: BTreeMap<String, ProjectSummary>,
    /// Existing tasks that a new task names in `needs`, and existing tasks that have the id of a new task.
    tasks: HashMap<String, ExistingTask>,
    /// Machines of the workspaces that new tasks name, by workspace; workspaces that are not bound are left out.
    machines: HashMap<String, String>,
}

/// Fields of an existing task that the checks of new tasks need.
struct ExistingTask {
    tenant: String,
    state: TaskState,
}

/// Adds tasks. If `tenant` is given, only its projects, tasks and workspaces exist for the caller, and it may name no
/// agents, which belong to all tenants. The names that it gives begin with those of its projects.
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
        // A project of another tenant and one that does not exist get the same answer.
        found.projects.retain(|_, project| project.tenant == tenant);
        let names_agent = |task: &NewTask| task.affinity.is_some();
        if let Some(place) = tasks.iter().position(names_agent) {
            let problem = "only an operator may name an agent";
            return Err(invalid(format!("{}.affinity", fields[place]), problem));
        }
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
        write(tx, call, &fresh)?;
    }
    let UnmatchedTasks { projects: unmatched, tasks: unmatched_tasks } =
        unmatched::find(tx, &fresh, &found)?;
    Ok(AddedTasks { added, unchanged, dry_run, unmatched, unmatched_tasks })
}

/// Checks that the names that a tenant gives begin with those of their projects. All tenants share the other names, so a
/// tenant could find out which of them are taken.
fn check_scoped_names(fields: &[String], tasks: &[NewTask]) -> Result<(), FleetError> {
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

fn check_size(tasks: &[NewTask]) -> Result<(), FleetError> {
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

/// Rejects the tasks of an agent or a tenant if a project would then have more than [`OPEN_MAX`] open tasks, or prompts of
/// open tasks that are longer in all than the configuration allows. Otherwise agents whose tasks add tasks could fill the
/// database. Operators may add any number.
fn check_open(
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
fn check(field: &str, task: &NewTask) -> Result<(), FleetError> {
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

/// Checks that each field of the prompt for a result names a task in `needs`.
pub(crate) fn check_fields<'a>(
    field: &str,
    prompt: &str,
    needs: impl IntoIterator<Item = &'a String>,
) -> Result<(), FleetError> {
    let needs: BTreeSet<&str> = needs.into_iter().map(String::as_str).collect();
    match task_results::named_in(prompt).into_iter().find(|task| !needs.contains(task)) {
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

/// Converts an amount of money to the database's type.
pub(crate) fn money_column(money: TaskMoney) -> i64 {
    i64::try_from(money.0.0).unwrap_or(i64::MAX)
}

fn check_ids_differ(fields: &[String], tasks: &[NewTask]) -> Result<(), FleetError> {
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

/// Maps the ids of the new tasks to their indexes in `tasks`. Tasks without an id are left out.
fn tasks_of(tasks: &[NewTask]) -> HashMap<&str, usize> {
    let named = tasks.iter().enumerate();
    named.filter_map(|(place, task)| Some((task.id.as_deref()?, place))).collect()
}

fn check_cycles(tasks: &[NewTask]) -> Result<(), FleetError> {
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

/// Checks each task that `needs` names: it must exist or be one of the new tasks, and belong to the tenant of `task`. For
/// an agent or a tenant, a task of another tenant might as well not exist.
fn check_needs(
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
            // A tenant's users can see the tasks that theirs wait for, so these must not belong to another tenant.
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

/// Returns the tasks that set the optional field that `name` reads. Each comes with its path in the request body, such
/// as `tasks[3]`, and with the field's value.
fn named<'a>(
    fields: &'a [String],
    tasks: &'a [NewTask],
    name: impl Fn(&'a NewTask) -> Option<&'a String>,
) -> Vec<(&'a str, &'a NewTask, &'a str)> {
    let named = fields.iter().zip(tasks);
    named.filter_map(|(field, task)| Some((field.as_str(), task, name(task)?.as_str()))).collect()
}

/// Checks that the workspaces that tasks name belong to their projects. Returns the machines of those that are bound.
fn check_workspaces(
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

fn check_affinities(
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

fn content(task: &NewTask) -> TaskContent {
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

/// Checks tasks whose ids exist already (`there`): each must have the same content as the stored task with its id.
/// `resume_after` is not compared, because that moment may have passed since the task was first added.
fn check_unchanged(tx: &mut dyn Transaction, there: &[&NewTask]) -> Result<(), FleetError> {
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
            "SELECT id, project, title, prompt, priority, estimate, retries_max, workspace, affinity, affinity_wait, \
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

/// Generates ids for the tasks that have none, in the order of the list. The ids are `PROJECT-1` and so on. They start
/// at the project's number of tasks plus one, and ids that are taken are skipped.
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

fn write(
    tx: &mut dyn Transaction,
    call: &CallContext,
    tasks: &[TaskToAdd],
) -> Result<(), FleetError> {
    let mut made = reserve_creation_order(tx, i64::try_from(tasks.len()).unwrap_or(i64::MAX))?;
    for some in tasks.chunks(sql_placeholders::ROWS_MAX) {
        write_some(tx, call, some, made)?;
        made += i64::try_from(some.len()).unwrap_or(i64::MAX);
    }
    let needs: Vec<_> = tasks
        .iter()
        .flat_map(|task| task.content.needs.iter().map(|need| (task.id.as_str(), need.as_str())))
        .collect();
    for some in needs.chunks(sql_placeholders::ROWS_MAX) {
        let values: Vec<SqlValue> =
            some.iter().flat_map(|(task, need)| [(*task).into(), (*need).into()]).collect();
        let table = sql_placeholders::table(1, &["TEXT", "TEXT"], some.len());
        tx.run(
            &format!(
                "INSERT INTO fleet_needs (task, needs) SELECT v.column1, v.column2 FROM {table} AS v"
            ),
            &values,
        )?;
    }
    let mut projects: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for task in tasks {
        projects.entry(&task.content.project).or_default().push(&task.id);
    }
    for (project, tasks) in &projects {
        call.audit(tx, "task.add", project, None, Some(&json!({ "tasks": tasks })))?;
    }
    let projects: Vec<_> = projects.into_keys().collect();
    project_baseline::update_busy(tx, call.terms(), &projects, call.now)?;
    bump_version(tx)?;
    Ok(())
}

/// Columns of a new task whose values differ between tasks, with their SQL types.
const COLUMNS: [(&str, &str); 21] = [
    ("id", "TEXT"),
    ("project", "TEXT"),
    ("made", "BIGINT"),
    ("title", "TEXT"),
    ("prompt", "TEXT"),
    ("state", "TEXT"),
    ("priority", "BIGINT"),
    ("estimate", "BIGINT"),
    ("retries_max", "BIGINT"),
    ("open_needs", "BIGINT"),
    ("resume_after", "BIGINT"),
    ("workspace", "TEXT"),
    ("affinity", "TEXT"),
    ("affinity_wait", "BIGINT"),
    ("ready_at", "BIGINT"),
    ("timeout", "BIGINT"),
    ("tokens_max", "BIGINT"),
    ("money_max", "BIGINT"),
    ("requires", "TEXT"),
    ("labels", "TEXT"),
    ("prompt_bytes", "BIGINT"),
];

/// Returns the length of a prompt in the database's type.
pub(crate) fn prompt_bytes(prompt: &str) -> i64 {
    i64::try_from(prompt.len()).unwrap_or(i64::MAX)
}

fn write_some(
    tx: &mut dyn Transaction,
    call: &CallContext,
    tasks: &[TaskToAdd],
    first_made: i64,
) -> Result<(), FleetError> {
    let mut values: Vec<SqlValue> = vec![call.now.into(), 0_i64.into()];
    for (made, task) in (first_made..).zip(tasks) {
        let content = &task.content;
        let ready_at = (task.state == TaskState::Ready).then_some(call.now.0);
        let row: [SqlValue; 21] = [
            task.id.as_str().into(),
            content.project.as_str().into(),
            made.into(),
            content.title.as_str().into(),
            content.prompt.as_str().into(),
            task.state.word().into(),
            content.priority.into(),
            content.estimate.into(),
            content.retries_max.into(),
            task.open_needs.into(),
            task.resume_after.map(|moment| moment.0).into(),
            content.workspace.clone().into(),
            content.affinity.clone().into(),
            (i64::from(content.affinity_wait_s) * 1_000_000).into(),
            ready_at.into(),
            content.timeout_s.map(|seconds| i64::from(seconds) * 1_000_000).into(),
            content.tokens_max.into(),
            content.money_max.into(),
            agent_access::stored(&content.requires).into(),
            agent_access::stored_task_labels(&content.requires, task.machine.as_deref()).into(),
            prompt_bytes(&content.prompt).into(),
        ];
        values.extend(row);
    }
    let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let types: Vec<_> = COLUMNS.iter().map(|(_, kind)| *kind).collect();
    let cells: Vec<_> = (1..=COLUMNS.len()).map(|column| format!("v.column{column}")).collect();
    let zeros = "retries, epoch, ended_epoch, reserved, used, used_before, calls";
    let sql = format!(
        "INSERT INTO fleet_tasks (created_at, {zeros}, {}) SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), \
         CAST($2 AS BIGINT), CAST($2 AS BIGINT), CAST($2 AS BIGINT), CAST($2 AS BIGINT), CAST($2 AS BIGINT), \
         CAST($2 AS BIGINT), {} FROM {} AS v",
        names.join(", "),
        cells.join(", "),
        sql_placeholders::table(3, &types, tasks.len())
    );
    tx.run(&sql, &values)?;
    Ok(())
}
