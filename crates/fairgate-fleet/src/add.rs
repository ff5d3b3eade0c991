//! Adding tasks: whole graphs, all or none.
//!
//! Everything is checked before anything is written, with a bounded number of statements for each 500 tasks. Only tasks of
//! the same call can wait for each other in a circle: those that are there already need nothing that is new.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fairgate_money::UnixMicros;
use fairgate_store::{StoreError, Transaction, Value};
use serde_json::json;

use crate::activity;
use crate::call::{Call, bump_version, take_places};
use crate::error::FleetError;
use crate::graph;
use crate::history;
use crate::model::{AddedTasks, NewTask, NewTasks, TaskLine};
use crate::projects::{self, Known};
use crate::rows;
use crate::state::TaskState;
use crate::text::{self, invalid, unknown};

/// How many tasks one call may add.
const TASKS_MAX: usize = 10_000;
/// How long a prompt may be, in bytes.
pub(crate) const PROMPT_MAX: usize = 1 << 20;
/// How long all prompts of a call may be, in bytes.
const PROMPTS_MAX: usize = 64 << 20;
/// How long a title may be, in bytes.
pub(crate) const TITLE_MAX: usize = 512;
/// How long a title that is made from a prompt may be, in bytes.
const MADE_TITLE_MAX: usize = 120;
/// How many tasks a task may need.
const NEEDS_MAX: usize = 1_000;
/// How often a task may be tried again.
const RETRIES_MAX: u32 = 1_000;
/// How often a task is tried again where nobody says.
const RETRIES: u32 = 3;
/// Its place in its project's queue where nobody says.
const PRIORITY: i64 = 100;
/// How long it waits for the agent that it prefers where nobody says, in seconds.
const AFFINITY_WAIT_S: u32 = 120;

/// A task, checked and with its defaults.
#[derive(Clone, Debug, PartialEq)]
struct Content {
    project: String,
    title: String,
    prompt: String,
    priority: i64,
    needs: BTreeSet<String>,
    estimate: Option<i64>,
    retries_max: u32,
    workspace: Option<String>,
    affinity: Option<String>,
    affinity_wait_s: u32,
}

/// A task to be made.
struct New {
    id: String,
    content: Content,
    resume_after: Option<UnixMicros>,
    open_needs: i64,
    state: TaskState,
}

/// What the database has of what a call names.
struct Found {
    projects: BTreeMap<String, Known>,
    /// Tasks that are named as needed, or have the id of a new one.
    tasks: HashMap<String, Other>,
}

/// A task that is there.
struct Other {
    tenant: String,
    state: TaskState,
}

pub(crate) fn add(
    tx: &mut dyn Transaction,
    call: &Call,
    asked: NewTasks,
) -> Result<AddedTasks, FleetError> {
    let NewTasks { tasks, dry_run } = asked;
    check_size(&tasks)?;
    let fields: Vec<_> = (0..tasks.len()).map(|place| format!("tasks[{place}]")).collect();
    for (field, task) in fields.iter().zip(&tasks) {
        check(field, task)?;
    }
    let found = find(tx, &tasks)?;
    for (field, task) in fields.iter().zip(&tasks) {
        let project = found.projects.get(&task.project);
        projects::open_to_more(format!("{field}.project"), &task.project, project)?;
    }
    check_ids_differ(&fields, &tasks)?;
    check_cycles(&tasks)?;
    let here = tasks_of(&tasks);
    for (field, task) in fields.iter().zip(&tasks) {
        check_names(field, task, &here, &found)?;
    }
    check_workspaces(tx, &fields, &tasks)?;
    check_affinities(tx, &fields, &tasks)?;

    let there: Vec<&NewTask> = tasks.iter().filter(|task| is_there(task, &found)).collect();
    check_unchanged(tx, &there)?;
    let unchanged = there.iter().filter_map(|task| task.id.clone()).collect();

    let mut ids = make_up_ids(tx, &tasks)?.into_iter();
    let fresh = tasks.into_iter().filter(|task| !is_there(task, &found)).map(|mut task| {
        let id = task.id.take().or_else(|| ids.next()).unwrap_or_default();
        new(call, id, task, &found)
    });
    let fresh: Vec<New> = fresh.collect();
    let added = fresh.iter().map(|new| line(call, new, &found)).collect();
    if !dry_run && !fresh.is_empty() {
        write(tx, call, &fresh)?;
    }
    Ok(AddedTasks { added, unchanged, dry_run })
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
    Ok(())
}

/// What can be told of a task without looking at others.
fn check(field: &str, task: &NewTask) -> Result<(), FleetError> {
    if let Some(id) = &task.id {
        text::name(&format!("{field}.id"), id, text::TASK_MAX)?;
    }
    text::text(&format!("{field}.prompt"), &task.prompt, PROMPT_MAX)?;
    if let Some(title) = &task.title {
        text::line(&format!("{field}.title"), title, TITLE_MAX)?;
    }
    if let Some(estimate) = task.estimate {
        text::tokens(&format!("{field}.estimate"), estimate, text::TASK_TOKENS_MAX)?;
    }
    check_retries(&format!("{field}.retries"), task.retries)?;
    if let Some(moment) = task.resume_after {
        text::moment(&format!("{field}.resume_after"), moment)?;
    }
    if task.needs.len() > NEEDS_MAX {
        let problem =
            format!("names {} tasks, and at most {NEEDS_MAX} are allowed", task.needs.len());
        return Err(invalid(format!("{field}.needs"), problem));
    }
    Ok(())
}

/// Checks how often a task is to be tried again.
pub(crate) fn check_retries(field: &str, retries: Option<u32>) -> Result<(), FleetError> {
    match retries.filter(|retries| *retries > RETRIES_MAX) {
        None => Ok(()),
        Some(retries) => {
            let problem = format!("is {retries}, and at most {RETRIES_MAX} are allowed");
            Err(invalid(field, problem))
        }
    }
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

/// Where the tasks of this call are, by their ids.
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
    match graph::cycle(&needs) {
        None => Ok(()),
        Some(cycle) => {
            let name = |place: usize| tasks[place].id.clone().unwrap_or_default();
            Err(FleetError::Cycle(cycle.into_iter().map(name).collect()))
        }
    }
}

/// Looks up all projects and tasks that the tasks name.
fn find(tx: &mut dyn Transaction, tasks: &[NewTask]) -> Result<Found, FleetError> {
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
    for some in ids.chunks(rows::ROWS_MAX) {
        let sql = format!(
            "SELECT t.id, t.state, p.tenant FROM fleet_tasks t JOIN fleet_projects p ON p.id = t.project \
             WHERE t.id IN ({})",
            rows::list(1, some.len())
        );
        let values: Vec<Value> = some.iter().map(|id| Value::from(*id)).collect();
        let some = tx.list(&sql, &values, |row| {
            let other = Other { state: history::state(&row.text(1)?)?, tenant: row.text(2)? };
            Ok((row.text(0)?, other))
        })?;
        others.extend(some);
    }
    Ok(Found { projects: known, tasks: others })
}

fn is_there(task: &NewTask, found: &Found) -> bool {
    task.id.as_ref().is_some_and(|id| found.tasks.contains_key(id))
}

/// The tasks that it needs.
fn check_names(
    field: &str,
    task: &NewTask,
    here: &HashMap<&str, usize>,
    found: &Found,
) -> Result<(), FleetError> {
    let project = found.projects.get(&task.project);
    for (place, need) in task.needs.iter().enumerate() {
        let wrong = |problem| Err(unknown(format!("{field}.needs[{place}]"), problem));
        let shown = || text::cut(need, 80);
        let tenant = project.map(|project| project.tenant.as_str());
        match found.tasks.get(need) {
            // People of one tenant see the tasks that theirs wait for.
            Some(other) if Some(other.tenant.as_str()) != tenant => {
                return wrong(format!("task {:?} belongs to another tenant", shown()));
            }
            Some(_) => {}
            None if here.contains_key(need.as_str()) => {}
            None => return wrong(format!("there is no task {:?}, here or in this call", shown())),
        }
    }
    Ok(())
}

/// The names that these tasks give in a field, each with where it is given first.
fn named<'a>(
    fields: &'a [String],
    tasks: &'a [NewTask],
    name: impl Fn(&'a NewTask) -> Option<&'a String>,
) -> Vec<(&'a str, &'a NewTask, &'a str)> {
    let named = fields.iter().zip(tasks);
    named.filter_map(|(field, task)| Some((field.as_str(), task, name(task)?.as_str()))).collect()
}

fn check_workspaces(
    tx: &mut dyn Transaction,
    fields: &[String],
    tasks: &[NewTask],
) -> Result<(), FleetError> {
    let named = named(fields, tasks, |task| task.workspace.as_ref());
    let sql = "SELECT id, project FROM fleet_workspaces WHERE id IN";
    let projects: HashMap<_, _> = look_up(tx, sql, &named)?.into_iter().collect();
    for (field, task, workspace) in named {
        let problem = match projects.get(workspace) {
            Some(project) if *project == task.project => continue,
            Some(project) => format!("workspace {workspace:?} belongs to project {project:?}"),
            None => format!("there is no workspace {:?}", text::cut(workspace, 80)),
        };
        return Err(unknown(format!("{field}.workspace"), problem));
    }
    Ok(())
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
            None => format!("there is no agent {:?}", text::cut(agent, 80)),
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
    for some in names.chunks(rows::ROWS_MAX) {
        let values: Vec<Value> = some.iter().map(|name| Value::from(*name)).collect();
        let sql = format!("{sql} ({})", rows::list(1, some.len()));
        rows_found.extend(tx.list(&sql, &values, |row| Ok((row.text(0)?, row.text(1)?)))?);
    }
    Ok(rows_found)
}

fn content(task: &NewTask) -> Content {
    Content {
        project: task.project.clone(),
        title: task.title.clone().unwrap_or_else(|| title(&task.prompt)),
        prompt: task.prompt.clone(),
        priority: task.priority.unwrap_or(PRIORITY),
        needs: task.needs.iter().cloned().collect(),
        estimate: task.estimate.and_then(|estimate| i64::try_from(estimate).ok()),
        retries_max: task.retries.unwrap_or(RETRIES),
        workspace: task.workspace.clone(),
        affinity: task.affinity.clone(),
        affinity_wait_s: task.affinity_wait_s.unwrap_or(AFFINITY_WAIT_S),
    }
}

/// The first line of a prompt that says something.
fn title(prompt: &str) -> String {
    let first = prompt.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let plain: String = first.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text::cut(&plain, MADE_TITLE_MAX)
}

/// Tasks that are there must be as they are given, but for `resume_after`, which passes.
fn check_unchanged(tx: &mut dyn Transaction, there: &[&NewTask]) -> Result<(), FleetError> {
    for some in there.chunks(rows::ROWS_MAX) {
        let ids: Vec<Value> =
            some.iter().map(|task| task.id.as_deref().unwrap_or_default().into()).collect();
        let list = rows::list(1, ids.len());
        let sql = format!("SELECT task, needs FROM fleet_needs WHERE task IN ({list})");
        let mut needs: HashMap<String, BTreeSet<String>> = HashMap::new();
        for (task, need) in tx.list(&sql, &ids, |row| Ok((row.text(0)?, row.text(1)?)))? {
            needs.entry(task).or_default().insert(need);
        }
        let sql = format!(
            "SELECT id, project, title, prompt, priority, estimate, retries_max, workspace, affinity, affinity_wait \
             FROM fleet_tasks WHERE id IN ({list})"
        );
        let contents = tx.list(&sql, &ids, |row| {
            let small = |column| row.int(column).map(|number| u32::try_from(number).unwrap_or(0));
            let content = Content {
                project: row.text(1)?,
                title: row.text(2)?,
                prompt: row.text(3)?,
                priority: row.int(4)?,
                needs: BTreeSet::new(),
                estimate: row.int_or_null(5)?,
                retries_max: small(6)?,
                workspace: row.text_or_null(7)?,
                affinity: row.text_or_null(8)?,
                affinity_wait_s: u32::try_from(row.int(9)? / 1_000_000).unwrap_or(0),
            };
            Ok((row.text(0)?, content))
        })?;
        let mut contents: HashMap<_, _> = contents.into_iter().collect();
        for task in some {
            let id = task.id.clone().unwrap_or_default();
            let stored = contents
                .remove(&id)
                .map(|content| Content { needs: needs.remove(&id).unwrap_or_default(), ..content });
            if stored != Some(content(task)) {
                return Err(FleetError::Exists { what: "task", id });
            }
        }
    }
    Ok(())
}

/// Ids for those that have none, in their order: PROJECT-1 and so on, from one more than the project has tasks.
fn make_up_ids(tx: &mut dyn Transaction, tasks: &[NewTask]) -> Result<Vec<String>, FleetError> {
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
            let some = (count - free.len()).min(rows::ROWS_MAX) as u64;
            let ids: Vec<_> = (next..next + some).map(|n| format!("{project}-{n}")).collect();
            next += some;
            let sql =
                format!("SELECT id FROM fleet_tasks WHERE id IN ({})", rows::list(1, ids.len()));
            let values: Vec<Value> = ids.iter().map(|id| id.as_str().into()).collect();
            taken.extend(tx.list(&sql, &values, |row| row.text(0))?);
            free.extend(ids.into_iter().filter(|id| !taken.contains(id)));
        }
        made.insert(project, free.into_iter());
    }
    let nameless = tasks.iter().filter(|task| task.id.is_none());
    Ok(nameless.filter_map(|task| made.get_mut(task.project.as_str())?.next()).collect())
}

fn new(call: &Call, id: String, task: NewTask, found: &Found) -> New {
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
    New { id, content, resume_after, open_needs, state }
}

fn line(call: &Call, new: &New, found: &Found) -> TaskLine {
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

fn write(tx: &mut dyn Transaction, call: &Call, tasks: &[New]) -> Result<(), FleetError> {
    let mut made = take_places(tx, i64::try_from(tasks.len()).unwrap_or(i64::MAX))?;
    for some in tasks.chunks(rows::ROWS_MAX) {
        write_some(tx, call, some, made)?;
        made += i64::try_from(some.len()).unwrap_or(i64::MAX);
    }
    let needs: Vec<_> = tasks
        .iter()
        .flat_map(|task| task.content.needs.iter().map(|need| (task.id.as_str(), need.as_str())))
        .collect();
    for some in needs.chunks(rows::ROWS_MAX) {
        let values: Vec<Value> =
            some.iter().flat_map(|(task, need)| [(*task).into(), (*need).into()]).collect();
        let table = rows::table(1, &["TEXT", "TEXT"], some.len());
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
    activity::note(tx, call.window(), &projects, call.now)?;
    bump_version(tx)?;
    Ok(())
}

/// The columns of a new task that differ from task to task, and their types.
const COLUMNS: [(&str, &str); 15] = [
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
];

fn write_some(
    tx: &mut dyn Transaction,
    call: &Call,
    tasks: &[New],
    first_made: i64,
) -> Result<(), FleetError> {
    let mut values: Vec<Value> = vec![call.now.into(), 0_i64.into()];
    for (made, task) in (first_made..).zip(tasks) {
        let content = &task.content;
        let ready_at = (task.state == TaskState::Ready).then_some(call.now.0);
        let row: [Value; 15] = [
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
        rows::table(3, &types, tasks.len())
    );
    tx.run(&sql, &values)?;
    Ok(())
}
