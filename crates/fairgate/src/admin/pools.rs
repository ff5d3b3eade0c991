//! The command `fairgate pool`, which shows pools and workers, holds and resumes flows, and sets weights and caps.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use fairgate_core::units::Percentage;
use http::Method;
use serde_json::{Value, json};

use super::{AdminOptions, escaped, text};
use fairgate_table::{TableCell, TextTable};

/// List pools and their workers, hold and resume flows, set weights and caps.
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
    /// Set the weight of a class, agent or session. Scores, credits and queues stay as they are.
    Weight(FlowWeightArgs),
    /// Set or remove the cap of a class, project, agent or session. Requests in flight above the cap go on.
    Cap(FlowCapArgs),
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

#[derive(Debug, Args)]
struct FlowWeightArgs {
    #[command(flatten)]
    flow: FlowArgs,
    /// Weight from now on; for a class of deficit round robin, its quantum in tokens.
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    weight: u64,
}

#[derive(Debug, Args)]
struct FlowCapArgs {
    #[command(flatten)]
    flow: FlowArgs,
    /// Most requests of the flow in flight, or `none` to remove the cap.
    #[arg(value_parser = cap_slots)]
    slots: CapSlots,
}

/// The cap of a flow; `None` means no cap.
#[derive(Clone, Copy, Debug)]
struct CapSlots(Option<u64>);

fn cap_slots(text: &str) -> Result<CapSlots, String> {
    match text {
        "none" => Ok(CapSlots(None)),
        _ => text
            .parse()
            .map(|slots| CapSlots(Some(slots)))
            .map_err(|_| "must be a whole number, or `none`".to_owned()),
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FlowByArg {
    Group,
    Tenant,
    Key,
    Class,
    Agent,
    Session,
    Project,
}

impl PoolCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let send = |flow: &FlowArgs, action: &str, more: &[(&str, Value)], words: &str| {
            let by = flow.by.to_possible_value().map(|by| by.get_name().to_owned());
            let mut body = json!({"by": by, "flow": flow.flow});
            for (field, value) in more {
                body[*field] = value.clone();
            }
            let path = format!("/api/v1/pools/{}/{action}", escaped(&flow.pool));
            let answer = client.send(Method::POST, &path, Some(&body))?;
            self.common.print_line(&answer, &format!("{} {words} in pool {}", flow.flow, flow.pool))
        };
        match &self.action {
            PoolAction::List => {
                let pools = client.get("/api/v1/pools")?;
                self.common.print_table(&pools["items"], workers)
            }
            PoolAction::Hold(flow) => send(flow, "hold", &[], "is held"),
            PoolAction::Resume(flow) => send(flow, "resume", &[], "goes on"),
            PoolAction::Weight(FlowWeightArgs { flow, weight }) => {
                let words = format!("has the weight {weight}");
                send(flow, "weight", &[("weight", json!(weight))], &words)
            }
            PoolAction::Cap(FlowCapArgs { flow, slots: CapSlots(slots) }) => {
                let words = match slots {
                    Some(slots) => format!("has at most {slots} in flight"),
                    None => "has no cap".to_owned(),
                };
                send(flow, "cap", &[("slots", json!(slots))], &words)
            }
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
