//! Describes the result of adding tasks, in the order in which the tasks can start.

use std::collections::HashMap;

use fairgate_api::fleet::{AddedTasks, NewTask, TaskLine};
use fairgate_table::{TableCell, TextTable};

use crate::text_format::{counted, safe_name};

/// Returns a summary such as `4 tasks would be made; 1 was there already`.
pub(super) fn summary(added: &AddedTasks) -> String {
    let count = added.added.len();
    let made = match (added.dry_run, count) {
        (true, _) => "would be made",
        (false, 1) => "is made",
        (false, _) => "are made",
    };
    let tasks = counted(count as u64, "task");
    let there = match added.unchanged.len() {
        0 => String::new(),
        1 => "; 1 was there already".to_owned(),
        many => format!("; {many} were there already"),
    };
    let unmatched: String = added
        .unmatched
        .iter()
        .map(|project| {
            format!("\nno agent may work for project {project}: see `fairgate agent list`")
        })
        .collect();
    let unmatched_tasks = match &added.unmatched_tasks[..] {
        [] => String::new(),
        [task] => format!("\nno agent may take task {task}: see `fairgate task why {task}`"),
        [task, ..] => format!(
            "\nno agent may take {} of them, such as {task}: see `fairgate task why {task}`",
            added.unmatched_tasks.len()
        ),
    };
    format!("{tasks} {made}{there}{unmatched}{unmatched_tasks}")
}

/// Builds a table of the new tasks in the order in which they can start. A task's step is one more than the largest
/// step of the new tasks that it needs.
pub(super) fn steps(given: &[NewTask], added: &AddedTasks) -> TextTable {
    let is_there =
        |task: &&NewTask| task.id.as_ref().is_some_and(|id| added.unchanged.contains(id));
    let new: Vec<&NewTask> = given.iter().filter(|task| !is_there(task)).collect();
    let steps = numbered(&new);
    let mut rows: Vec<(usize, &NewTask, &TaskLine)> = new
        .iter()
        .zip(&added.added)
        .zip(steps)
        .map(|((given, line), step)| (step, *given, line))
        .collect();
    rows.sort_by_key(|(step, ..)| *step);
    let mut table =
        TextTable::new(vec!["step", "task", "project", "state", "estimate", "needs", "title"]);
    for (step, given, line) in rows {
        let needs = if given.needs.is_empty() { "-".to_owned() } else { given.needs.join(", ") };
        table.row(vec![
            TableCell::Number(step.to_string()),
            TableCell::Text(line.id.clone()),
            TableCell::Text(line.project.clone()),
            TableCell::Text(line.state.to_string()),
            TableCell::Number(line.estimate.to_string()),
            TableCell::Text(needs),
            TableCell::Text(safe_name(&line.title)),
        ]);
    }
    table
}

/// Returns the step of each task, counted from 1. The gateway has already refused tasks that need each other in a
/// cycle. If there is a cycle nevertheless, this function still ends, and the tasks of the cycle keep the last computed
/// step.
fn numbered(tasks: &[&NewTask]) -> Vec<usize> {
    let places = tasks.iter().enumerate().filter_map(|(i, task)| Some((task.id.as_deref()?, i)));
    let places: HashMap<&str, usize> = places.collect();
    let needs: Vec<Vec<usize>> = tasks
        .iter()
        .map(|task| task.needs.iter().filter_map(|id| places.get(id.as_str()).copied()).collect())
        .collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); tasks.len()];
    for (i, needs) in needs.iter().enumerate() {
        needs.iter().for_each(|need| dependents[*need].push(i));
    }
    let mut left: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut steps = vec![1; tasks.len()];
    let mut ready: Vec<usize> = (0..tasks.len()).filter(|i| left[*i] == 0).collect();
    while let Some(done) = ready.pop() {
        for &next in &dependents[done] {
            steps[next] = steps[next].max(steps[done] + 1);
            left[next] -= 1;
            if left[next] == 0 {
                ready.push(next);
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, needs: &[&str]) -> NewTask {
        let task = serde_json::json!({"id": id, "project": "p", "prompt": "x", "needs": needs});
        serde_json::from_value(task).expect("a task")
    }

    #[test]
    fn tasks_come_after_what_they_need() {
        let tasks = [
            task("d", &["b", "c"]),
            task("a", &[]),
            task("b", &["a"]),
            task("c", &["elsewhere"]),
            task("e", &["d", "a"]),
        ];
        let tasks: Vec<&NewTask> = tasks.iter().collect();
        assert_eq!(numbered(&tasks), [3, 1, 2, 1, 4]);
    }
}
