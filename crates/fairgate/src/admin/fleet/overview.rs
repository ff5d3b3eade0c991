//! The command `fairgate fleet`, which shows projects with their shares, running tasks and waiting
//! tasks, once or repeatedly.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use fairgate_api::fleet::{
    FleetAgentState, FleetProjectStatus, FleetView, ProjectView, TaskLine, TaskState,
};
use fairgate_core::units::Micros;
use fairgate_table::{TableCell, TextTable};
use serde_json::Value;

use super::super::live::{print_now, redrawn};
use super::super::{AdminOptions, understood};
use super::bar::{BAR_HEADING, bar};
use super::{at, name_or_dash};
use crate::output::terminal_width;
use crate::text_format::{TimeSpan, counted, one_line, percentage, safe_name};

/// Show what each project is due and got, the running tasks, and the waiting tasks with the reason.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Repeat every SECONDS until interrupted. A terminal is redrawn in place, and --json prints one object per line.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
}

impl FleetArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let on_terminal = io::stdout().is_terminal();
        loop {
            let answer = client.get("/api/v1/fleet")?;
            match (self.common.json, self.every) {
                (true, None) => return self.common.print_line(&answer, ""),
                (true, Some(_)) => print_now(&format!("{answer}\n"))?,
                (false, every) => {
                    let text = format_fleet(&understood(&answer)?)?;
                    print_now(&if every.is_some() && on_terminal { redrawn(&text) } else { text })?;
                }
            }
            let Some(seconds) = self.every else { return Ok(()) };
            thread::sleep(Duration::from_secs(seconds));
        }
    }
}

/// Formats the response with the overview as text.
pub(crate) fn fleet_text(answer: &Value) -> Result<String> {
    format_fleet(&understood(answer)?)
}

fn format_fleet(fleet: &FleetView) -> Result<String> {
    let mut out = Vec::new();
    writeln!(out, "{}\n", heading(fleet))?;
    if fleet.projects.is_empty() {
        writeln!(out, "no project yet: `fairgate project add NAME --tenant TENANT`")?;
    } else {
        projects(&fleet.projects).write_within(&mut out, terminal_width())?;
    }
    if !fleet.running.is_empty() {
        writeln!(out, "\nrunning")?;
        running(&fleet.running).write_within(&mut out, terminal_width())?;
    }
    for project in fleet.projects.iter().filter(|project| project.completed_without_calls > 0) {
        writeln!(out, "\n{}", without_calls(project))?;
    }
    if !fleet.waiting.is_empty() {
        writeln!(out, "\nwaiting")?;
        let mut table = TextTable::new(vec!["task", "state", "why"]);
        for why in &fleet.waiting {
            table.row(vec![
                TableCell::Text(why.task.clone()),
                TableCell::Text(why.state.to_string()),
                TableCell::Text(one_line(&why.sentence)),
            ]);
        }
        table.write_within(&mut out, terminal_width())?;
    }
    writeln!(out, "\n{}", agents(fleet))?;
    Ok(String::from_utf8(out)?)
}

/// Returns the first line, such as `2026-11-16T10:00:00Z: 61200 of 1000000 tokens used within 24 h, 40000 set aside`.
fn heading(fleet: &FleetView) -> String {
    let window = TimeSpan(Micros(fleet.window_s.saturating_mul(1_000_000))).to_string();
    let window = window.trim_end_matches(" 0 min").trim_end_matches(" 0 s");
    let of = fleet.budget.map_or(String::new(), |budget| format!(" of {budget}"));
    let (at, used, reserved) = (at(fleet.at), fleet.used, fleet.reserved);
    format!("{at}: {used}{of} tokens used within {window}, {reserved} set aside")
}

fn projects(list: &[ProjectView]) -> TextTable {
    let headings = vec![
        "project",
        "weight",
        BAR_HEADING,
        "due",
        "got",
        "used",
        "charged",
        "set aside",
        "budget",
        "running",
        "ready",
        "others",
    ];
    let mut table = TextTable::new(headings);
    for project in list {
        let name = match project.status {
            FleetProjectStatus::Active => project.id.clone(),
            status => format!("{} ({status})", project.id),
        };
        table.row(vec![
            TableCell::Text(name),
            TableCell::Number(project.weight.to_string()),
            TableCell::Text(bar(project.got_share, project.due_share)),
            TableCell::Number(percentage(project.due_share)),
            TableCell::Number(percentage(project.got_share)),
            TableCell::Number(project.used.to_string()),
            TableCell::Number(project.charged.to_string()),
            TableCell::Number(project.reserved.to_string()),
            TableCell::Number(project.budget.map_or("-".to_owned(), |budget| budget.to_string())),
            TableCell::Number(project.running.to_string()),
            TableCell::Number(project.ready.to_string()),
            TableCell::Text(others(project)),
        ]);
    }
    table
}

/// Returns a sentence about tasks that were completed without a call through the gateway.
fn without_calls(project: &ProjectView) -> String {
    let (tasks, name) = (counted(project.completed_without_calls, "task"), safe_name(&project.id));
    format!("{name}: {tasks} completed without a call through the gateway within the window")
}

/// Lists the number of a project's tasks that neither run nor can start, by state, such as `2 DEFINED, 1 BLOCKED`.
fn others(project: &ProjectView) -> String {
    let runs_or_can_start = |state: TaskState| state.is_held() || state == TaskState::Ready;
    let rest =
        project.tasks.iter().filter(|(state, count)| **count > 0 && !runs_or_can_start(**state));
    let rest: Vec<String> = rest.map(|(state, count)| format!("{count} {state}")).collect();
    if rest.is_empty() { "-".to_owned() } else { rest.join(", ") }
}

fn running(list: &[TaskLine]) -> TextTable {
    let mut table = TextTable::new(vec!["task", "project", "agent", "used", "estimate", "title"]);
    for task in list {
        table.row(vec![
            TableCell::Text(task.id.clone()),
            TableCell::Text(task.project.clone()),
            TableCell::Text(name_or_dash(task.agent.as_deref())),
            TableCell::Number(task.used.to_string()),
            TableCell::Number(task.estimate.to_string()),
            TableCell::Text(safe_name(&task.title)),
        ]);
    }
    table
}

/// Returns a summary of the agents, such as `5 agents: 3 working, 1 free, 1 not connected`.
fn agents(fleet: &FleetView) -> String {
    let connected: HashSet<&str> = fleet.connected.iter().map(String::as_str).collect();
    let (mut working, mut free, mut away, mut paused) = (0_u64, 0_u64, 0_u64, 0_u64);
    for agent in &fleet.agents {
        match (&agent.task, agent.state) {
            (Some(_), _) => working += 1,
            (None, FleetAgentState::Active) if connected.contains(agent.id.as_str()) => free += 1,
            (None, FleetAgentState::Active) => away += 1,
            (None, _) => paused += 1,
        }
    }
    if fleet.agents.is_empty() {
        return "no agent yet: `fairgate agent add NAME`".to_owned();
    }
    let mut parts = vec![format!("{working} working"), format!("{free} free")];
    if away > 0 {
        parts.push(format!("{away} not connected"));
    }
    if paused > 0 {
        parts.push(format!("{paused} paused"));
    }
    format!("{}: {}", counted(fleet.agents.len() as u64, "agent"), parts.join(", "))
}
