//! The command `fairgate pool`, which shows pools and workers, and holds and resumes flows.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use fairgate_core::units::Percentage;
use http::Method;
use serde_json::{Value, json};

use super::{AdminOptions, escaped, text};
use crate::table::{TableCell, TextTable};

/// List pools and their workers, hold and resume flows.
#[derive(Debug, Args)]
pub(crate) struct PoolCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: PoolAction,
}

#[derive(Debug, Subcommand)]
enum PoolAction {
    /// List all pools and their workers.
    List,
    /// Stop granting slots to a flow. The flow keeps its queue and its credit.
    Hold(FlowArgs),
    /// Let a held flow continue.
    Resume(FlowArgs),
}

#[derive(Debug, Args)]
struct FlowArgs {
    /// Name of the pool.
    pool: String,
    /// Attribute that names the flow.
    #[arg(value_enum)]
    by: FlowByArg,
    /// Name of the flow; for a key, the key's id.
    flow: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FlowByArg {
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
            self.common.print_line(&answer, &format!("{} {words} in pool {}", flow.flow, flow.pool))
        };
        match &self.action {
            PoolAction::List => {
                let pools = client.get("/api/v1/pools")?;
                self.common.print_table(&pools["items"], workers)
            }
            PoolAction::Hold(flow) => act(flow, "hold", "is held"),
            PoolAction::Resume(flow) => act(flow, "resume", "goes on"),
        }
    }
}

fn workers(pools: &Value) -> TextTable {
    let headings = vec![
        "pool",
        "models",
        "worker",
        "state",
        "in flight",
        "slots",
        "tier",
        "hits",
        "expected",
        "waiting",
        "requests/min",
        "tokens/min",
    ];
    let mut table = TextTable::new(headings);
    for pool in pools.as_array().into_iter().flatten() {
        for worker in pool["workers"].as_array().into_iter().flatten() {
            table.row(vec![
                TableCell::Text(text(pool, "name")),
                TableCell::Text(text(pool, "models")),
                TableCell::Text(text(worker, "name")),
                TableCell::Text(state(worker)),
                TableCell::Number(text(worker, "in_flight")),
                TableCell::Number(text(worker, "slots")),
                TableCell::Number(text(worker, "tier")),
                TableCell::Number(hit_rate(worker, "cached_tokens")),
                TableCell::Number(hit_rate(worker, "expected_tokens")),
                TableCell::Number(text(pool, "queued")),
                TableCell::Number(rate(worker, "requests")),
                TableCell::Number(rate(worker, "tokens")),
            ]);
            for model in worker["models"].as_array().into_iter().flatten() {
                table.row(model_row(worker, model));
            }
        }
    }
    table
}

/// Returns the row of one model of a worker whose models have limits of their own.
fn model_row(worker: &Value, model: &Value) -> Vec<TableCell> {
    let quota = &model["quota"];
    let state = match (quota["out"].as_str(), quota["paused_ms"].as_u64()) {
        (Some(_), _) => "out",
        (None, Some(_)) => "paused",
        (None, None) => "",
    };
    let shown = json!({ "state": state, "quota": quota });
    let nothing = || TableCell::Text(String::new());
    let mut row = vec![nothing(), TableCell::Text(text(model, "model"))];
    row.push(TableCell::Text(text(worker, "name")));
    row.push(TableCell::Text(self::state(&shown)));
    row.extend((0..6).map(|_| nothing()));
    row.push(TableCell::Number(rate(model, "requests")));
    row.push(TableCell::Number(rate(model, "tokens")));
    row
}

/// Returns a worker's state, with the rest of a pause, or the reason why the worker gets no requests.
pub(super) fn state(worker: &Value) -> String {
    let (state, quota) = (text(worker, "state"), &worker["quota"]);
    match (quota["out"].as_str(), quota["paused_ms"].as_u64()) {
        (Some(reason), _) => format!("{state}: {reason}"),
        (None, Some(ms)) => format!("{state} for {:.1} s", Duration::from_millis(ms).as_secs_f64()),
        (None, None) => match worker["reason"].as_str() {
            Some(reason) => format!("{state}: {reason}"),
            None => state,
        },
    }
}

/// Returns the cached part of a worker's input tokens as a percentage. `which` names the field with the cached tokens,
/// as reported by the worker or as expected by the gateway.
pub(super) fn hit_rate(worker: &Value, which: &str) -> String {
    let cache = &worker["cache"];
    match (cache["input_tokens"].as_u64(), cache[which].as_u64()) {
        (Some(input), Some(cached)) if input > 0 => Percentage::of(cached, input).to_string(),
        _ => "–".to_owned(),
    }
}

/// Returns a limit per minute of a worker's account, and who stated the limit.
pub(super) fn rate(worker: &Value, what: &str) -> String {
    let quota = &worker["quota"];
    match (quota[format!("{what}_per_minute")].as_u64(), quota[format!("{what}_from")].as_str()) {
        (Some(rate), Some(from)) => format!("{rate} ({from})"),
        _ => "–".to_owned(),
    }
}
