//! What happens now: pools, live shares, and the configuration.

use std::io::{self, IsTerminal, Write};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::audit::to_the_second;
use super::{Common, escaped, text};
use crate::output::Output;
use crate::table::{Cell, Table};

/// Show who has what of each pool, what they are due, and how far they are from it.
#[derive(Debug, Args)]
pub(crate) struct LiveArgs {
    #[command(flatten)]
    common: Common,
    /// This pool only.
    #[arg(long)]
    pool: Option<String>,
    /// Show it again every so many seconds, until interrupted: in place on a terminal, and with --json as one object a
    /// line.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
}

impl LiveArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let of = self.pool.as_ref().map(|pool| format!("?pool={}", escaped(pool)));
        let path = format!("/api/v1/fairshare/live{}", of.unwrap_or_default());
        let Some(seconds) = self.every else {
            let live = client.get(&path)?;
            return if self.common.json { self.common.say(&live, "") } else { put(&told(&live)?) };
        };
        let on_terminal = io::stdout().is_terminal();
        loop {
            let live = client.get(&path)?;
            put(&match (self.common.json, on_terminal) {
                (true, _) => format!("{live}\n"),
                (false, false) => told(&live)?,
                (false, true) => {
                    let at = to_the_second(&text(&live, "at"));
                    redrawn(&format!("{at}, every {seconds} s\n\n{}", told(&live)?))
                }
            })?;
            thread::sleep(Duration::from_secs(seconds));
        }
    }
}

fn put(text: &str) -> Result<()> {
    let mut out = Output::stdout();
    write!(out, "{text}")?;
    Ok(out.flush()?)
}

/// A text over what a terminal shows: from its top, each line to its end, and nothing below.
fn redrawn(text: &str) -> String {
    format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"))
}

/// All pools with their flows.
fn told(live: &Value) -> Result<String> {
    let mut out = Vec::new();
    for pool in live["pools"].as_array().into_iter().flatten() {
        writeln!(
            out,
            "pool {}: {} of {} in flight, {} waiting; {}",
            text(pool, "pool"),
            text(pool, "global_in_flight"),
            text(pool, "max_in_flight"),
            text(pool, "global_queued"),
            text(pool, "algorithm")
        )?;
        shares(pool).write(&mut out)?;
        writeln!(out)?;
    }
    Ok(String::from_utf8(out)?)
}

fn shares(pool: &Value) -> Table {
    let mut table = Table::new(vec![
        "flow",
        "weight",
        "due",
        "in flight",
        "waiting",
        "tokens since idle",
        "lag tokens",
        "lag at most",
    ]);
    let groups = pool["groups"].as_array().into_iter().flatten();
    let tenants = || pool["tenants"].as_array().into_iter().flatten();
    for group in groups {
        let name = text(group, "name");
        table.row(flow(name.clone(), group));
        for tenant in tenants().filter(|tenant| text(tenant, "fairshare_group") == name) {
            table.row(flow(format!("  {}", text(tenant, "tenant_id")), tenant));
        }
    }
    table
}

fn flow(name: String, flow: &Value) -> Vec<Cell> {
    let due = flow.get("weight_share").and_then(Value::as_f64);
    let due = due.map_or("-".to_owned(), |due| format!("{:.1} %", due * 100.0));
    let number = |field: &str| Cell::Number(text(flow, field));
    vec![
        Cell::Text(name),
        number("weight"),
        Cell::Number(due),
        number("in_flight"),
        number("queued"),
        number("served_tokens"),
        number("lag_tokens"),
        number("lag_bound_tokens"),
    ]
}

/// Pools: how they stand, and holding a flow.
#[derive(Debug, Args)]
pub(crate) struct PoolCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: PoolAction,
}

#[derive(Debug, Subcommand)]
enum PoolAction {
    /// List all pools and their workers.
    List,
    /// Stop a flow from dispatching; what it has queued and earned stays.
    Hold(FlowArgs),
    /// Let a held flow go on.
    Resume(FlowArgs),
}

#[derive(Debug, Args)]
struct FlowArgs {
    /// The pool.
    pool: String,
    /// By what the flow is named.
    #[arg(value_enum)]
    by: FlowBy,
    /// The flow's name; a key's id.
    flow: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FlowBy {
    Group,
    Tenant,
    Key,
    Class,
    Agent,
    Session,
}

impl PoolCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let act = |flow: &FlowArgs, action: &str, words: &str| {
            let by = flow.by.to_possible_value().map(|by| by.get_name().to_owned());
            let body = json!({"by": by, "flow": flow.flow});
            let path = format!("/api/v1/pools/{}/{action}", escaped(&flow.pool));
            let answer = client.send(Method::POST, &path, Some(&body))?;
            self.common.say(&answer, &format!("{} {words} in pool {}", flow.flow, flow.pool))
        };
        match &self.action {
            PoolAction::List => {
                let pools = client.get("/api/v1/pools")?;
                self.common.tell(&pools["items"], workers)
            }
            PoolAction::Hold(flow) => act(flow, "hold", "is held"),
            PoolAction::Resume(flow) => act(flow, "resume", "goes on"),
        }
    }
}

fn workers(pools: &Value) -> Table {
    let headings = vec!["pool", "models", "worker", "state", "in flight", "slots", "waiting"];
    let mut table = Table::new(headings);
    for pool in pools.as_array().into_iter().flatten() {
        for worker in pool["workers"].as_array().into_iter().flatten() {
            table.row(vec![
                Cell::Text(text(pool, "name")),
                Cell::Text(text(pool, "models")),
                Cell::Text(text(worker, "name")),
                Cell::Text(text(worker, "state")),
                Cell::Number(text(worker, "in_flight")),
                Cell::Number(text(worker, "slots")),
                Cell::Number(text(pool, "queued")),
            ]);
        }
    }
    table
}

/// Have the gateway read its configuration file again. A file with an error in it changes nothing.
#[derive(Debug, Args)]
pub(crate) struct ReloadArgs {
    #[command(flatten)]
    common: Common,
}

impl ReloadArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let done = client.send(Method::POST, "/api/v1/config/reload", None)?;
        let changes = done["changes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let changes: Vec<&str> = changes.collect();
        let words = match changes[..] {
            [] => "nothing has changed".to_owned(),
            _ => changes.join("\n"),
        };
        self.common.say(&done, &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_redrawn_leaves_nothing_of_what_was() {
        assert_eq!(redrawn("a\nb\n"), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
