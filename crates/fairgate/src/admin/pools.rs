//! Pools: how they and their workers stand, and flows that are held.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::{Common, escaped, text};
use crate::table::{Cell, Table};

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
    let mut table = Table::new(headings);
    for pool in pools.as_array().into_iter().flatten() {
        for worker in pool["workers"].as_array().into_iter().flatten() {
            table.row(vec![
                Cell::Text(text(pool, "name")),
                Cell::Text(text(pool, "models")),
                Cell::Text(text(worker, "name")),
                Cell::Text(state(worker)),
                Cell::Number(text(worker, "in_flight")),
                Cell::Number(text(worker, "slots")),
                Cell::Number(text(worker, "tier")),
                Cell::Number(hit_rate(worker, "cached_tokens")),
                Cell::Number(hit_rate(worker, "expected_tokens")),
                Cell::Number(text(pool, "queued")),
                Cell::Number(rate(worker, "requests")),
                Cell::Number(rate(worker, "tokens")),
            ]);
        }
    }
    table
}

/// A worker's state; for how long it is paused, why it is out or not up.
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

/// The part of a worker's input tokens that was cached as its answers say, or that the gateway expected to be cached.
pub(super) fn hit_rate(worker: &Value, which: &str) -> String {
    let cache = &worker["cache"];
    match (cache["input_tokens"].as_u64(), cache[which].as_u64()) {
        (Some(input), Some(cached)) if input > 0 => {
            let part = u128::from(cached) * 1000 / u128::from(input);
            format!("{}.{} %", part / 10, part % 10)
        }
        _ => "–".to_owned(),
    }
}

/// A rate of a worker's account, and where it is from.
pub(super) fn rate(worker: &Value, what: &str) -> String {
    let quota = &worker["quota"];
    match (quota[format!("{what}_per_minute")].as_u64(), quota[format!("{what}_from")].as_str()) {
        (Some(rate), Some(from)) => format!("{rate} ({from})"),
        _ => "–".to_owned(),
    }
}
