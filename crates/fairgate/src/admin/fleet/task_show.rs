//! Prints a task as text.

use std::io::{self, Write};

use fairgate_api::fleet::{TaskExplanation, TaskState, TaskView};
use fairgate_table::{TableCell, TextTable};

use super::{at, name_or_dash};
use crate::output::StdoutWriter;
use crate::text_format::{counted, one_line, safe_name};

/// Prints all fields of a task.
pub(super) fn print_task(task: &TaskView, out: &mut StdoutWriter) -> io::Result<()> {
    let line = &task.line;
    writeln!(out, "task {} of project {}: {}", line.id, line.project, standing(task))?;
    writeln!(out, "{}", safe_name(&line.title))?;
    for (name, value) in facts(task) {
        writeln!(out, "{name:<11} {value}")?;
    }
    block(out, "prompt", Some(&task.prompt))?;
    block(out, "question", task.question.as_deref())?;
    block(out, "answer", task.answer.as_deref())?;
    block(out, "result", task.result.as_deref())?;
    writeln!(out)?;
    let mut table = TextTable::new(vec!["at", "from", "to", "claim", "who", "why"]);
    for step in &task.history {
        table.row(vec![
            TableCell::Text(at(step.at)),
            TableCell::Text(step.from.to_string()),
            TableCell::Text(step.to.to_string()),
            TableCell::Number(step.epoch.to_string()),
            TableCell::Text(safe_name(&step.actor)),
            TableCell::Text(name_or_dash(step.reason.as_deref())),
        ]);
    }
    table.write(out)
}

/// Returns a task's state and the reason for it, such as `PAUSED (the provider's limit is reached), not before 2026-…`.
fn standing(task: &TaskView) -> String {
    let line = &task.line;
    let mut text = line.state.to_string();
    if let Some(reason) = &line.reason {
        text.push_str(&format!(" ({})", safe_name(reason)));
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
        ("charged", charged(task)),
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
    let put_offs =
        (task.put_offs > 0).then(|| format!("{} in a row", counted(task.put_offs, "time")));
    let agent = line.agent.as_ref().map(|agent| match task.lease_until {
        Some(until) => format!("{agent}, until {} without a sign of life", at(until)),
        None => agent.clone(),
    });
    let workspace = task.in_workspace.as_ref().or(task.workspace.as_ref());
    let needs: Vec<String> =
        task.needs.iter().map(|(id, state)| format!("{id} ({state})")).collect();
    let optional = [
        ("put off", put_offs),
        ("timeout", task.timeout_s.map(|seconds| format!("{seconds} s from its claim"))),
        ("tokens max", task.tokens_max.map(|tokens| format!("{tokens}, over all claims"))),
        ("money max", task.money_max.map(|money| format!("{}, {} used", money.0, task.money.0))),
        ("requires", (!task.requires.is_empty()).then(|| task.requires.join(", "))),
        ("agent", agent),
        ("waits for", task.affinity.as_ref().map(|agent| format!("agent {agent}"))),
        ("workspace", workspace.cloned()),
        ("progress", task.progress.as_deref().map(safe_name)),
        ("needs", (!needs.is_empty()).then(|| needs.join(", "))),
        ("needed by", (!task.needed_by.is_empty()).then(|| task.needed_by.join(", "))),
        ("ended", line.ended_at.map(at)),
    ];
    facts.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    facts
}

/// Returns the charge of a task in words, such as `1200 tokens for 60.0 s of agents' time`.
fn charged(task: &TaskView) -> String {
    let (charged, seconds) =
        (task.charged, format!("{}.{}", task.agent_ms / 1_000, task.agent_ms / 100 % 10));
    if charged == task.line.used {
        return format!("{charged} tokens for its tokens; agents held it for {seconds} s");
    }
    format!("{charged} tokens for {seconds} s of agents' time")
}

/// Prints a text of several lines under a name, indented. Prints nothing if there is no text.
fn block(out: &mut StdoutWriter, name: &str, text: Option<&str>) -> io::Result<()> {
    let Some(text) = text else { return Ok(()) };
    writeln!(out, "\n{name}:")?;
    for line in text.lines() {
        let line: String =
            line.chars().map(|c| if c.is_control() && c != '\t' { '·' } else { c }).collect();
        writeln!(out, "    {line}")?;
    }
    Ok(())
}

/// Prints the result of an action, and the tasks that still wait for this one.
pub(super) fn acted(task: &TaskView, out: &mut StdoutWriter) -> io::Result<()> {
    writeln!(out, "task {} is {}", task.line.id, standing(task))?;
    let stuck = !matches!(task.line.state, TaskState::Completed);
    if stuck && !task.needed_by.is_empty() {
        writeln!(out, "these cannot start before it: {}", task.needed_by.join(", "))?;
    }
    Ok(())
}

/// Prints the explanation of a task's state, first as a sentence, then as numbers.
pub(super) fn why(why: &TaskExplanation, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", one_line(&why.sentence))?;
    if why.facts.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let width = why.facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0);
    for fact in &why.facts {
        writeln!(out, "{:<width$}  {}", fact.name, one_line(&fact.value))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fairgate_api::fleet::ExplanationFact;

    use super::*;

    /// The explanation repeats questions and reasons, which agents write.
    #[test]
    fn why_cannot_play_with_the_terminal() {
        let evil = "red\x1b[31m, window\x1b]0;mine\x07, line\r, c1\u{9b}2J";
        let why_it = TaskExplanation {
            task: "t".to_owned(),
            state: TaskState::WaitingInput,
            sentence: format!("It waits for an answer to what agent a asked: {evil}"),
            code: "waiting_input".to_owned(),
            facts: vec![ExplanationFact { name: "progress".to_owned(), value: evil.to_owned() }],
        };
        let mut text = Vec::new();
        why(&why_it, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(text.matches("red\\u{1b}[31m").count(), 2, "{text}");
        // A long list is printed to its end.
        let value = "one (DEFINED), ".repeat(20);
        let facts = vec![ExplanationFact { name: "waits for".to_owned(), value: value.clone() }];
        let mut text = Vec::new();
        why(&TaskExplanation { facts, ..why_it }, &mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains(&value));
    }
}
