//! `fairgate fleet`: who has what of the fleet, once or again and again.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use fairgate_core::units::Micros;
use fairgate_fleet::{AgentState, FleetView, ProjectStatus, ProjectView, TaskLine};

use super::super::Common;
use super::super::live::{put, redrawn};
use super::bar::bar;
use super::{at, or_dash, percent, understood};
use crate::output::terminal_width;
use crate::table::{Cell, Table};
use crate::words::{Span, counted, shown};

/// Show each project's share beside its target, what runs, what waits and why.
#[derive(Debug, Args)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    common: Common,
    /// Show it again every so many seconds, until interrupted: in place on a terminal, and with --json as one object a
    /// line.
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
                (true, None) => return self.common.say(&answer, ""),
                (true, Some(_)) => put(&format!("{answer}\n"))?,
                (false, every) => {
                    let told = told(&understood(&answer)?)?;
                    put(&if every.is_some() && on_terminal { redrawn(&told) } else { told })?;
                }
            }
            let Some(seconds) = self.every else { return Ok(()) };
            thread::sleep(Duration::from_secs(seconds));
        }
    }
}

fn told(fleet: &FleetView) -> Result<String> {
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
    if !fleet.waiting.is_empty() {
        writeln!(out, "\nwaiting")?;
        let mut table = Table::new(vec!["task", "state", "why"]);
        for why in &fleet.waiting {
            table.row(vec![
                Cell::Text(why.task.clone()),
                Cell::Text(why.state.to_string()),
                Cell::Text(why.sentence.clone()),
            ]);
        }
        table.write_within(&mut out, terminal_width())?;
    }
    writeln!(out, "\n{}", agents(fleet))?;
    Ok(String::from_utf8(out)?)
}

/// `2026-11-16T10:00:00Z: 61200 of 1000000 tokens used in 24 h 0 min, 40000 set aside`.
fn heading(fleet: &FleetView) -> String {
    let window = Span(Micros(fleet.window_s.saturating_mul(1_000_000)));
    let of = fleet.budget.map_or(String::new(), |budget| format!(" of {budget}"));
    let (at, used, reserved) = (at(fleet.at), fleet.used, fleet.reserved);
    format!("{at}: {used}{of} tokens used within {window}, {reserved} set aside")
}

fn projects(list: &[ProjectView]) -> Table {
    let headings = vec![
        "project",
        "weight",
        "share",
        "got",
        "target",
        "used",
        "set aside",
        "budget",
        "running",
        "ready",
        "others",
    ];
    let mut table = Table::new(headings);
    for project in list {
        let name = match project.status {
            ProjectStatus::Active => project.id.clone(),
            status => format!("{} ({status})", project.id),
        };
        let ppm = |ppm: Option<u64>| ppm.map_or("-".to_owned(), percent);
        table.row(vec![
            Cell::Text(name),
            Cell::Number(project.weight.to_string()),
            Cell::Text(bar(project.share_ppm.unwrap_or(0), project.target_ppm)),
            Cell::Number(ppm(project.share_ppm)),
            Cell::Number(ppm(project.target_ppm)),
            Cell::Number(project.used.to_string()),
            Cell::Number(project.reserved.to_string()),
            Cell::Number(project.budget.map_or("-".to_owned(), |budget| budget.to_string())),
            Cell::Number(project.running.to_string()),
            Cell::Number(project.ready.to_string()),
            Cell::Text(others(project)),
        ]);
    }
    table
}

/// Tasks that neither run nor can start: `2 DEFINED, 1 BLOCKED`.
fn others(project: &ProjectView) -> String {
    use fairgate_fleet::TaskState::{Assigned, InProgress, Ready};
    let rest = project
        .tasks
        .iter()
        .filter(|(state, count)| **count > 0 && !matches!(state, Ready | Assigned | InProgress));
    let rest: Vec<String> = rest.map(|(state, count)| format!("{count} {state}")).collect();
    if rest.is_empty() { "-".to_owned() } else { rest.join(", ") }
}

fn running(list: &[TaskLine]) -> Table {
    let mut table = Table::new(vec!["task", "project", "agent", "used", "estimate", "title"]);
    for task in list {
        table.row(vec![
            Cell::Text(task.id.clone()),
            Cell::Text(task.project.clone()),
            Cell::Text(or_dash(task.agent.as_deref())),
            Cell::Number(task.used.to_string()),
            Cell::Number(task.estimate.to_string()),
            Cell::Text(shown(&task.title)),
        ]);
    }
    table
}

/// `4 agents: 3 work, 1 is free`.
fn agents(fleet: &FleetView) -> String {
    let (mut working, mut free, mut paused) = (0_u64, 0_u64, 0_u64);
    for agent in &fleet.agents {
        match (&agent.task, agent.state) {
            (Some(_), _) => working += 1,
            (None, AgentState::Active) => free += 1,
            (None, _) => paused += 1,
        }
    }
    if fleet.agents.is_empty() {
        return "no agent yet: `fairgate agent add NAME`".to_owned();
    }
    let mut parts = vec![format!("{working} working"), format!("{free} free")];
    if paused > 0 {
        parts.push(format!("{paused} paused"));
    }
    format!("{}: {}", counted(fleet.agents.len() as u64, "agent"), parts.join(", "))
}
