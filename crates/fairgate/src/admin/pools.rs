//! The command `fairgate pool`, which shows pools and workers, holds and resumes flows, and sets weights and caps.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use fairgate_api::admin::{
    CacheBody, FlowAttribute, FlowCapBody, FlowRefBody, FlowWeightBody, ModelQuotaBody, PoolBody,
    QuotaBody, WorkerBody,
};
use fairgate_core::units::Percentage;
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde::Serialize;

use super::client::AdminClient;
use super::{AdminOptions, escaped, items, names, or_dash};
use crate::text_format::one_line;

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
    /// Weight from now on; for a class of deficit round robin, its quantum in the unit of the pool.
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
        match &self.action {
            PoolAction::List => {
                let pools = client.get("/api/v1/pools")?;
                self.common.print_table(&items(&pools)?, |pools: &Vec<PoolBody>| workers(pools))
            }
            PoolAction::Hold(flow) => self.hold(&client, flow, "hold", "is held"),
            PoolAction::Resume(flow) => self.hold(&client, flow, "resume", "goes on"),
            PoolAction::Weight(FlowWeightArgs { flow, weight }) => {
                let (by, name) = (flow.by.into(), flow.flow.clone());
                let body = FlowWeightBody { by, flow: name, weight: (*weight).into() };
                self.change(&client, flow, "weight", &body, &format!("has the weight {weight}"))
            }
            PoolAction::Cap(FlowCapArgs { flow, slots: CapSlots(slots) }) => {
                let words = match slots {
                    Some(slots) => format!("has at most {slots} in flight"),
                    None => "has no cap".to_owned(),
                };
                let (by, name) = (flow.by.into(), flow.flow.clone());
                let body = FlowCapBody { by, flow: name, slots: slots.map(Into::into) };
                self.change(&client, flow, "cap", &body, &words)
            }
        }
    }

    fn hold(&self, client: &AdminClient, flow: &FlowArgs, action: &str, words: &str) -> Result<()> {
        let body = FlowRefBody { by: flow.by.into(), flow: flow.flow.clone() };
        self.change(client, flow, action, &body, words)
    }

    /// Sends a change of a flow, and prints the result.
    fn change(
        &self,
        client: &AdminClient,
        FlowArgs { pool, flow, .. }: &FlowArgs,
        action: &str,
        body: &impl Serialize,
        words: &str,
    ) -> Result<()> {
        let path = format!("/api/v1/pools/{}/{action}", escaped(pool));
        let answer = client.send(Method::POST, &path, Some(&serde_json::to_value(body)?))?;
        self.common.print_line(&answer, &format!("{flow} {words} in pool {pool}"))
    }
}

impl From<FlowByArg> for FlowAttribute {
    fn from(by: FlowByArg) -> Self {
        match by {
            FlowByArg::Group => Self::Group,
            FlowByArg::Tenant => Self::Tenant,
            FlowByArg::Key => Self::Key,
            FlowByArg::Class => Self::Class,
            FlowByArg::Agent => Self::Agent,
            FlowByArg::Session => Self::Session,
            FlowByArg::Project => Self::Project,
        }
    }
}

fn workers(pools: &[PoolBody]) -> TextTable {
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
    for pool in pools {
        for worker in &pool.workers {
            let quota = worker.quota.as_ref();
            table.row(vec![
                TableCell::Text(one_line(&pool.name)),
                TableCell::Text(names(&pool.models)),
                TableCell::Text(one_line(&worker.name)),
                TableCell::Text(worker_state(worker)),
                TableCell::Number(worker.in_flight.to_string()),
                TableCell::Number(or_dash(worker.slots)),
                TableCell::Number(worker.tier.to_string()),
                TableCell::Number(hit_rate(worker)),
                TableCell::Number(expected_hit_rate(worker)),
                TableCell::Number(pool.queued.to_string()),
                TableCell::Number(rate(quota, AccountRate::Requests)),
                TableCell::Number(rate(quota, AccountRate::Tokens)),
            ]);
            for model in &worker.models {
                table.row(model_row(worker, model));
            }
        }
    }
    table
}

/// Returns the row of one model of a worker whose models have limits of their own.
fn model_row(
    worker: &WorkerBody,
    ModelQuotaBody { model, quota }: &ModelQuotaBody,
) -> Vec<TableCell> {
    let state = match (&quota.out, quota.paused_ms) {
        (Some(_), _) => "out",
        (None, Some(_)) => "paused",
        (None, None) => "",
    };
    let nothing = || TableCell::Text(String::new());
    let mut row = vec![nothing(), TableCell::Text(one_line(model))];
    row.push(TableCell::Text(one_line(&worker.name)));
    row.push(TableCell::Text(quota_state(state, quota, None)));
    row.extend((0..6).map(|_| nothing()));
    row.push(TableCell::Number(rate(Some(quota), AccountRate::Requests)));
    row.push(TableCell::Number(rate(Some(quota), AccountRate::Tokens)));
    row
}

/// Returns a worker's state, with the rest of a pause, or the reason why the worker gets no requests.
pub(super) fn worker_state(worker: &WorkerBody) -> String {
    let reason = worker.reason.as_deref();
    match (outage(worker), &worker.quota) {
        (Some(times), _) => with_reason(&format!("{} {times}", worker.state), reason),
        (None, Some(quota)) => quota_state(&worker.state, quota, reason),
        (None, None) => with_reason(&worker.state, reason),
    }
}

/// Returns the times of a worker's outage, such as `since 2026-11-18 12:03:41 UTC, tried again at 12:03:53 UTC`; `None` if
/// the worker has none.
pub(super) fn outage(worker: &WorkerBody) -> Option<String> {
    let since = worker.down_since.as_deref()?;
    let day = since.get(..10).unwrap_or_default();
    Some(format!("since {day} {}, {}", utc_time(since), next_try(worker)))
}

/// Returns when a worker with an outage is tried again, such as `tried again at 12:03:53 UTC`.
pub(super) fn next_try(worker: &WorkerBody) -> String {
    match &worker.retry_at {
        Some(at) => format!("tried again at {}", utc_time(at)),
        None => "the next request tries it".to_owned(),
    }
}

/// Returns the time of day of a moment in RFC 3339, such as `12:03:41 UTC`.
pub(super) fn utc_time(at: &str) -> String {
    at.get(11..19).map_or_else(|| at.to_owned(), |time| format!("{time} UTC"))
}

/// Returns the state of an account's worker or model, with the rest of a pause, or the reason for the state.
pub(super) fn quota_state(state: &str, quota: &QuotaBody, reason: Option<&str>) -> String {
    match (&quota.out, quota.paused_ms) {
        (Some(out), _) => with_reason(state, Some(out)),
        (None, Some(ms)) => {
            format!("{state} for {:.1} s", Duration::from_millis(ms).as_secs_f64())
        }
        (None, None) => with_reason(state, reason),
    }
}

fn with_reason(state: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| state.to_owned(), |reason| format!("{state}: {reason}"))
}

/// Returns the part of a worker's input tokens that the worker reported as cached, as a percentage.
pub(super) fn hit_rate(worker: &WorkerBody) -> String {
    cached_part(worker, |cache| Some(cache.cached_tokens))
}

/// Returns the part of a worker's input tokens that the gateway expected to be cached, as a percentage.
pub(super) fn expected_hit_rate(worker: &WorkerBody) -> String {
    cached_part(worker, |cache| cache.expected_tokens)
}

fn cached_part(worker: &WorkerBody, cached: fn(CacheBody) -> Option<u64>) -> String {
    let part = worker.cache.filter(|cache| cache.input_tokens > 0).and_then(|cache| {
        cached(cache).map(|cached| Percentage::of(cached, cache.input_tokens).to_string())
    });
    part.unwrap_or_else(|| "–".to_owned())
}

/// Rate that a provider's account limits.
#[derive(Clone, Copy, Debug)]
pub(super) enum AccountRate {
    Requests,
    Tokens,
}

/// Returns a limit per minute of an account, and the source of the limit.
pub(super) fn rate(quota: Option<&QuotaBody>, what: AccountRate) -> String {
    let rate = quota.and_then(|quota| match what {
        AccountRate::Requests => quota.requests_per_minute.zip(quota.requests_from.as_ref()),
        AccountRate::Tokens => quota.tokens_per_minute.zip(quota.tokens_from.as_ref()),
    });
    rate.map_or_else(|| "–".to_owned(), |(rate, from)| format!("{rate} ({from})"))
}
