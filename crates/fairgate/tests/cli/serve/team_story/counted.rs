//! Computes the results of a run of the story from the tasks' histories, the ledger and the
//! repositories.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::{Killed, Story};

/// Number of tasks in the story.
pub(super) const TASKS: usize = 60;
/// Least number of assigned tasks for which shares are compared. One task is then less than 3
/// points.
const TASKS_COMPARED_MIN: usize = 36;

/// Results of a run.
pub(super) struct StorySums {
    /// Completions of each task.
    completions: BTreeMap<String, usize>,
    /// Commits of each task, over all repositories.
    commits: BTreeMap<String, usize>,
    /// Tasks whose result does not contain the results of the tasks that they need.
    without_results: Vec<String>,
    /// Rows of the ledger that belong to no task.
    foreign_rows: usize,
    calls: usize,
    questions: usize,
    retries: u64,
    given_back: usize,
    paused_by_budget: usize,
    shares: TenantShares,
}

/// Tokens of both tenants, up to the last moment at which both had tasks to do.
struct TenantShares {
    /// Number of tasks that were assigned until then.
    tasks: usize,
    north: u64,
    south: u64,
}

pub(super) fn count(story: &Story) -> StorySums {
    let tasks: Vec<Value> = story
        .tasks()
        .iter()
        .map(|task| story.gateway.api(&format!("/api/v1/tasks/{}", id(task))))
        .collect();
    let mut commits = BTreeMap::new();
    for project in ["shop", "docs", "site", "tools", "core"] {
        let log = story.shell(&format!("git -C {project}.git log --format=%s --branches"));
        for subject in log.lines().filter(|subject| *subject != "begin") {
            *commits.entry(subject.to_owned()).or_insert(0) += 1;
        }
    }
    let rows = story.gateway.api("/api/v1/attempts?limit=1000");
    let rows = rows["items"].as_array().expect("rows");
    let steps = |wanted: fn(&Value) -> bool| {
        tasks.iter().map(|task| history(task).filter(|step| wanted(step)).count()).sum()
    };
    StorySums {
        completions: tasks
            .iter()
            .map(|task| (id(task), history(task).filter(|it| it["to"] == "COMPLETED").count()))
            .collect(),
        commits,
        without_results: tasks.iter().filter(|task| !has_results(task, &tasks)).map(id).collect(),
        foreign_rows: rows.iter().filter(|row| row["task"].is_null()).count(),
        calls: rows.iter().filter(|row| row["status"] == 200).count(),
        questions: steps(|step| step["to"] == "WAITING_INPUT"),
        retries: tasks.iter().filter_map(|task| task["retries"].as_u64()).sum(),
        given_back: steps(is_for_missing_folder),
        paused_by_budget: steps(|step| step["to"] == "PAUSED" && reason(step).contains("budget")),
        shares: shares(&tasks, rows),
    }
}

/// Returns the number of times that a task was given back because its folder was missing.
pub(super) fn given_back(story: &Story, task: &str) -> usize {
    let task = story.gateway.api(&format!("/api/v1/tasks/{task}"));
    history(&task).filter(|step| is_for_missing_folder(step)).count()
}

fn is_for_missing_folder(step: &Value) -> bool {
    reason(step).ends_with("is not on this machine")
}

fn id(task: &Value) -> String {
    task["id"].as_str().expect("a name").to_owned()
}

fn history(task: &Value) -> impl Iterator<Item = &Value> {
    task["history"].as_array().into_iter().flatten()
}

fn reason(step: &Value) -> &str {
    step["reason"].as_str().unwrap_or_default()
}

/// Returns whether a task's result contains the results of all tasks that it needs.
fn has_results(task: &Value, tasks: &[Value]) -> bool {
    let result = |task: &Value| task["result"].as_str().unwrap_or_default().to_owned();
    let own = result(task);
    let needs = task["needs"].as_object().into_iter().flatten().map(|(need, _)| need);
    let mut needed = needs.filter_map(|need| tasks.iter().find(|other| id(other) == *need));
    own.contains(&format!("notes/{}.md", id(task)))
        && needed.all(|need| own.contains(result(need).trim()))
}

/// Returns the state of a task after all changes until a moment. Before the task was added, this is
/// its first state.
fn state_at(task: &Value, moment: i64) -> &str {
    let first = history(task).next().expect("it was given out");
    let steps = history(task).take_while(|step| step["at"].as_i64().is_some_and(|at| at <= moment));
    steps.last().map_or(&first["from"], |step| &step["to"]).as_str().expect("a state")
}

/// Iterates over the moments at which a task was given to an agent, with the epochs of its claims.
fn given(task: &Value) -> impl Iterator<Item = (i64, u64)> {
    let given = history(task).filter(|step| step["to"] == "ASSIGNED");
    given.filter_map(|step| Some((step["at"].as_i64()?, step["epoch"].as_u64()?)))
}

/// Returns the tokens that a task was charged for in claims that began until a moment.
fn charged_until(task: &Value, rows: &[Value], moment: i64) -> u64 {
    let later: Vec<u64> =
        given(task).filter(|(at, _)| *at > moment).map(|(_, epoch)| epoch).collect();
    let is_later = |row: &&Value| {
        row["task"] == task["id"]
            && row["epoch"].as_u64().is_some_and(|epoch| later.contains(&epoch))
    };
    let after: u64 =
        rows.iter().filter(is_later).filter_map(|row| row["charged_tokens"].as_u64()).sum();
    task["charged"].as_u64().expect("a number").saturating_sub(after)
}

/// Returns the tokens of the tasks that were assigned while both tenants had further tasks all the
/// time. A tenant without a task for a moment does not catch up later. Waiting tasks of `shop` are
/// ignored here, because its budget may be used up.
fn shares(tasks: &[Value], rows: &[Value]) -> TenantShares {
    let is_of = |task: &Value, south: bool| (task["project"] == "core") == south;
    let has_work = |south: bool, moment: i64| {
        let mut of_tenant =
            tasks.iter().filter(|task| is_of(task, south) && task["project"] != "shop");
        of_tenant.any(|task| state_at(task, moment) == "READY")
    };
    let both_wait = |moment: &i64| has_work(true, *moment) && has_work(false, *moment);
    let moments: BTreeSet<i64> = tasks.iter().flat_map(given).map(|(at, _)| at).collect();
    let moment = moments.into_iter().take_while(both_wait).last().expect("both had work");
    let begun: Vec<&Value> =
        tasks.iter().filter(|task| given(task).any(|(at, _)| at <= moment)).collect();
    let sum = |south| {
        let of_tenant = begun.iter().filter(|task| is_of(task, south));
        of_tenant.map(|task| charged_until(task, rows, moment)).sum()
    };
    TenantShares { tasks: begun.len(), north: sum(false), south: sum(true) }
}

impl TenantShares {
    /// Returns the share of `north`, in tenths of a percent.
    fn north_tenths(&self) -> u64 {
        self.north * 1000 / (self.north + self.south)
    }
}

impl StorySums {
    /// Returns the results as sentences, for the page.
    pub(super) fn text(&self, killed: &Killed, took: Duration) -> String {
        let once =
            |counts: &BTreeMap<String, usize>| counts.values().filter(|it| **it == 1).count();
        let (north, shares) = (self.shares.north_tenths(), &self.shares);
        let share = |tenths: u64| format!("{}.{} %", tenths / 10, tenths % 10);
        let lines = [
            ("tasks that were completed once", once(&self.completions).to_string()),
            ("commits in five repositories, one of each task", once(&self.commits).to_string()),
            ("calls that the gateway answered", self.calls.to_string()),
            ("questions to a person", self.questions.to_string()),
            ("times that a task met the end of the budget", self.paused_by_budget.to_string()),
            ("times that a task was given back for a missing folder", self.given_back.to_string()),
            ("tasks that were completed when the server was killed", killed.completed.to_string()),
            ("seconds until it was back", format!("{:.1}", killed.away.as_secs_f32())),
            ("tries that failed meanwhile, and were repeated", self.retries.to_string()),
            (
                "tasks that were given out while both tenants had more to do",
                shares.tasks.to_string(),
            ),
            ("share of tenant north in their tokens", share(north)),
            ("share of tenant south", share(1000 - north)),
            ("seconds in all", format!("{:.0}", took.as_secs_f32())),
        ];
        lines.map(|(what, value)| format!("{what:<61} {value:>6}\n")).concat()
    }

    /// Checks all conditions on the results. `off_max` is the greatest allowed distance of a
    /// tenant's share from its due share, in tenths of a percent.
    pub(super) fn check(&self, off_max: u64) {
        let ones = |counts: &BTreeMap<String, usize>| {
            assert_eq!(counts.len(), TASKS);
            let wrong: Vec<_> = counts.iter().filter(|(_, count)| **count != 1).collect();
            assert!(wrong.is_empty(), "not once: {wrong:?}");
        };
        ones(&self.completions);
        ones(&self.commits);
        assert!(self.without_results.is_empty(), "{:?}", self.without_results);
        assert_eq!(self.foreign_rows, 0, "every call was made with the key of a task");
        assert!(self.calls >= TASKS, "{}", self.calls);
        assert_eq!(self.questions, 1, "nobody is asked twice");
        assert!(self.given_back >= 1 && self.paused_by_budget >= 1);
        assert!(self.shares.tasks >= TASKS_COMPARED_MIN, "{}", self.shares.tasks);
        let off = self.shares.north_tenths().abs_diff(500);
        assert!(off <= off_max, "{} tokens and {}", self.shares.north, self.shares.south);
    }
}
