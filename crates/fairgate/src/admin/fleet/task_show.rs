//! A task in words.

use std::io::{self, Write};

use fairgate_fleet::{TaskState, TaskView, Why};

use super::{at, or_dash};
use crate::output::Output;
use crate::table::{Cell, Table};
use crate::words::{counted, shown};

/// All that is known of a task.
pub(super) fn told(task: &TaskView, out: &mut Output) -> io::Result<()> {
    let line = &task.line;
    writeln!(out, "task {} of project {}: {}", line.id, line.project, standing(task))?;
    writeln!(out, "{}", shown(&line.title))?;
    for (name, value) in facts(task) {
        writeln!(out, "{name:<11} {value}")?;
    }
    block(out, "prompt", Some(&task.prompt))?;
    block(out, "question", task.question.as_deref())?;
    block(out, "answer", task.answer.as_deref())?;
    block(out, "result", task.result.as_deref())?;
    writeln!(out)?;
    let mut table = Table::new(vec!["at", "from", "to", "claim", "who", "why"]);
    for step in &task.history {
        table.row(vec![
            Cell::Text(at(step.at)),
            Cell::Text(step.from.to_string()),
            Cell::Text(step.to.to_string()),
            Cell::Number(step.epoch.to_string()),
            Cell::Text(shown(&step.actor)),
            Cell::Text(or_dash(step.reason.as_deref())),
        ]);
    }
    table.write(out)
}

/// Where it stands, and why: `PAUSED (the provider's limit is reached) until 2026-…`.
fn standing(task: &TaskView) -> String {
    let line = &task.line;
    let mut text = line.state.to_string();
    if let Some(reason) = &line.reason {
        text.push_str(&format!(" ({})", shown(reason)));
    }
    if let (false, Some(until)) = (line.state.is_ended(), line.resume_after) {
        text.push_str(&format!(", not before {}", at(until)));
    }
    text
}

fn facts(task: &TaskView) -> Vec<(&'static str, String)> {
    let line = &task.line;
    let mut facts = vec![
        (
            "tokens",
            format!(
                "{} used, {} expected, {}",
                line.used,
                line.estimate,
                counted(task.calls, "call")
            ),
        ),
        (
            "tries",
            format!(
                "{}, {} of {} retries used",
                counted(task.epoch, "claim"),
                line.retries,
                line.retries_max
            ),
        ),
        ("priority", line.priority.to_string()),
    ];
    let agent = line.agent.as_ref().map(|agent| match task.lease_until {
        Some(until) => format!("{agent}, until {} without a sign of life", at(until)),
        None => agent.clone(),
    });
    let workspace = task.in_workspace.as_ref().or(task.workspace.as_ref());
    let needs: Vec<String> =
        task.needs.iter().map(|(id, state)| format!("{id} ({state})")).collect();
    let optional = [
        ("agent", agent),
        ("waits for", task.affinity.as_ref().map(|agent| format!("agent {agent}"))),
        ("workspace", workspace.cloned()),
        ("progress", task.progress.as_deref().map(shown)),
        ("needs", (!needs.is_empty()).then(|| needs.join(", "))),
        ("needed by", (!task.needed_by.is_empty()).then(|| task.needed_by.join(", "))),
        ("ended", line.ended_at.map(at)),
    ];
    facts.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    facts
}

/// A text of several lines, indented.
fn block(out: &mut Output, name: &str, text: Option<&str>) -> io::Result<()> {
    let Some(text) = text else { return Ok(()) };
    writeln!(out, "\n{name}:")?;
    for line in text.lines() {
        let line: String =
            line.chars().map(|c| if c.is_control() && c != '\t' { '·' } else { c }).collect();
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

/// What an action came to, and who still waits for the task.
pub(super) fn acted(task: &TaskView, out: &mut Output) -> io::Result<()> {
    writeln!(out, "task {} is {}", task.line.id, standing(task))?;
    let stuck = !matches!(task.line.state, TaskState::Completed);
    if stuck && !task.needed_by.is_empty() {
        writeln!(out, "these cannot start before it: {}", task.needed_by.join(", "))?;
    }
    Ok(())
}

/// Why a task stands where it does: the sentence, then the numbers.
pub(super) fn why(why: &Why, out: &mut Output) -> io::Result<()> {
    writeln!(out, "{}", why.sentence)?;
    if why.facts.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let width = why.facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
    for fact in &why.facts {
        writeln!(out, "{:<width$}  {}", fact.name, shown(&fact.value))?;
    }
    Ok(())
}
