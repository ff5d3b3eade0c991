//! The command `fairgate worker`, which lists, adds, drains and removes workers while the gateway runs.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::JsonWholeNumber;
use fairgate_api::admin::{
    AsciiName, CacheSizeBody, NewWorker, OverloadBody, WorkerBody, WorkerPatch,
};
use fairgate_core::units::Percentage;
use fairgate_table::{TableCell, TextTable};
use http::Method;

use super::pools::{expected_hit_rate, hit_rate, worker_state};
use super::{AdminOptions, escaped, items, or_dash, text_or_dash, understood};
use crate::text_format::one_line;

/// Add, drain and remove workers of a pool while the gateway runs.
#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: WorkerAction,
}

#[derive(Debug, Subcommand)]
enum WorkerAction {
    /// List the workers of a pool, with their engines' metrics and the reason for changed slots.
    List {
        /// Name of the pool.
        pool: String,
    },
    /// Add a worker. The worker is kept over restarts of the gateway.
    Add(WorkerAddArgs),
    /// Give a worker no new requests. Its requests in flight continue.
    Drain(WorkerArgs),
    /// Give a drained worker requests again.
    Undrain(WorkerArgs),
    /// Remove a worker that was added with `add`. The worker is drained first, and removed when it has no requests in
    /// flight.
    Remove {
        #[command(flatten)]
        worker: WorkerArgs,
        /// Remove the worker at once. Its requests in flight continue as long as the worker runs.
        #[arg(long)]
        now: bool,
    },
    /// Change the thresholds above which a worker's engine counts as overloaded and gets no new requests.
    Overload(OverloadArgs),
}

#[derive(Debug, Args)]
struct WorkerArgs {
    /// Name of the pool.
    pool: String,
    /// Name of the worker.
    worker: String,
}

#[derive(Debug, Args)]
struct WorkerAddArgs {
    #[command(flatten)]
    worker: WorkerArgs,
    /// Base URL of the worker, such as http://10.0.0.7:8000.
    #[arg(value_name = "URL")]
    base: String,
    /// Upstream of the configuration file whose other settings the worker takes over.
    #[arg(long, value_name = "UPSTREAM")]
    like: String,
    /// Greatest number of requests in flight on each rank of the worker.
    #[arg(long)]
    slots: Option<u64>,
    /// Tier of the worker. 0 is an own worker. A higher tier is used when no worker of a lower tier is open.
    #[arg(long)]
    tier: Option<u64>,
    /// Number of data-parallel ranks behind the worker's address.
    #[arg(long)]
    ranks: Option<u64>,
    /// Taint of the worker, which requests may require. The option may be given several times.
    #[arg(long = "taint", value_name = "TAINT")]
    taints: Vec<String>,
    /// Greatest number of tokens in one batch of the worker's engine.
    #[arg(long)]
    batch_tokens: Option<u64>,
}

#[derive(Debug, Args)]
struct OverloadArgs {
    #[command(flatten)]
    worker: WorkerArgs,
    /// Count the worker as overloaded if more than this number of requests wait in the engine's own queue.
    #[arg(long, value_name = "REQUESTS")]
    waiting: Option<u64>,
    /// Count the worker as overloaded if more than this part of the engine's cache is in use, in thousandths.
    #[arg(long, value_name = "THOUSANDTHS")]
    cache: Option<u64>,
    /// Restore the thresholds of the configuration file.
    #[arg(long, conflicts_with_all = ["waiting", "cache"])]
    as_in_file: bool,
}

impl WorkerCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            WorkerAction::List { pool } => {
                let workers = client.get(&format!("/api/v1/pools/{}/workers", escaped(pool)))?;
                self.common
                    .print_table(&items(&workers)?, |workers: &Vec<WorkerBody>| table(workers))
            }
            WorkerAction::Add(args) => {
                let WorkerArgs { pool, worker } = &args.worker;
                let path = format!("/api/v1/pools/{}/workers", escaped(pool));
                let body = serde_json::to_value(args.body())?;
                let added = client.send(Method::POST, &path, Some(&body))?;
                self.common.print_line(&added, &format!("{worker} works for pool {pool}"))
            }
            WorkerAction::Drain(worker) => {
                let path = format!("{}/drain", worker.path());
                let drained = client.send(Method::POST, &path, None)?;
                let left = understood::<WorkerBody>(&drained)?.in_flight;
                let name = &worker.worker;
                self.common.print_line(
                    &drained,
                    &format!("{name} takes nothing new; {left} in flight on it"),
                )
            }
            WorkerAction::Undrain(worker) => {
                let path = format!("{}/undrain", worker.path());
                let undrained = client.send(Method::POST, &path, None)?;
                self.common.print_line(&undrained, &format!("{} takes requests", worker.worker))
            }
            WorkerAction::Remove { worker, now } => {
                let path = format!("{}?now={now}", worker.path());
                let removed = client.send(Method::DELETE, &path, None)?;
                let words = match now {
                    true => format!("{} is gone", worker.worker),
                    false => {
                        format!("{} goes once nothing is in flight on it", worker.worker)
                    }
                };
                self.common.print_line(&removed, &words)
            }
            WorkerAction::Overload(args) => {
                let body = serde_json::to_value(WorkerPatch { overload: args.overload()? })?;
                let path = args.worker.path();
                let changed = client.send(Method::PATCH, &path, Some(&body))?;
                let words = format!("{} is judged by these thresholds", args.worker.worker);
                self.common.print_line(&changed, &words)
            }
        }
    }
}

impl WorkerArgs {
    fn path(&self) -> String {
        format!("/api/v1/pools/{}/workers/{}", escaped(&self.pool), escaped(&self.worker))
    }
}

impl WorkerAddArgs {
    fn body(&self) -> NewWorker {
        let whole = |number: Option<u64>| number.map(JsonWholeNumber);
        NewWorker {
            name: self.worker.worker.clone(),
            url: self.base.clone(),
            like: self.like.clone(),
            slots: whole(self.slots),
            tier: whole(self.tier),
            ranks: whole(self.ranks),
            taints: (!self.taints.is_empty())
                .then(|| self.taints.iter().cloned().map(AsciiName).collect()),
            batch_tokens: whole(self.batch_tokens),
        }
    }
}

impl OverloadArgs {
    /// Returns the thresholds to set; `None` for those of the configuration file.
    fn overload(&self) -> Result<Option<OverloadBody>> {
        if self.as_in_file {
            return Ok(None);
        }
        if self.waiting.is_none() && self.cache.is_none() {
            bail!("nothing to change: see `fairgate worker overload --help`");
        }
        let (waiting, cache) = (self.waiting, self.cache);
        Ok(Some(OverloadBody {
            waiting: waiting.map(JsonWholeNumber),
            cache_thousandths: cache.map(JsonWholeNumber),
        }))
    }
}

fn table(workers: &[WorkerBody]) -> TextTable {
    let headings = vec![
        "worker",
        "from",
        "state",
        "in flight",
        "slots",
        "prefill",
        "engine",
        "running",
        "waiting",
        "cache",
        "hits",
        "expected",
        "cache tokens",
        "slots changed",
    ];
    let mut table = TextTable::new(headings);
    for worker in workers {
        let engine = worker.engine.as_ref();
        let cache = engine.and_then(|engine| engine.cache_used_thousandths);
        table.row(vec![
            TableCell::Text(one_line(&worker.name)),
            TableCell::Text(worker.source.clone()),
            TableCell::Text(worker_state(worker)),
            TableCell::Number(worker.in_flight.to_string()),
            TableCell::Number(or_dash(worker.slots)),
            TableCell::Number(worker.prefill_tokens.to_string()),
            TableCell::Text(text_or_dash(engine.map(|engine| &*engine.kind))),
            TableCell::Number(or_dash(engine.map(|engine| engine.running))),
            TableCell::Number(or_dash(engine.map(|engine| engine.waiting))),
            TableCell::Number(or_dash(cache.map(Percentage::from_thousandths))),
            TableCell::Number(hit_rate(worker)),
            TableCell::Number(expected_hit_rate(worker)),
            TableCell::Number(cache_tokens(worker.cache_size)),
            TableCell::Text(text_or_dash(worker.slots_reason.as_deref())),
        ]);
    }
    table
}

/// Formats the size of a worker's cache in tokens, such as `8000 of 32000`. The first number is the size learned from
/// the worker's reports, and is left out if none was learned. The second is the size that the engine's metrics or the
/// configuration state.
fn cache_tokens(size: Option<CacheSizeBody>) -> String {
    match size {
        Some(CacheSizeBody { believed_tokens, learned_tokens: Some(learned) }) => {
            format!("{learned} of {believed_tokens}")
        }
        Some(CacheSizeBody { believed_tokens, learned_tokens: None }) => {
            believed_tokens.to_string()
        }
        None => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use fairgate_api::admin::{CacheBody, EngineBody};

    use super::*;

    #[test]
    fn workers_are_told_with_their_engines() {
        let worker = |name: &str, state: &str, cache| WorkerBody {
            name: name.into(),
            state: state.into(),
            reason: None,
            down_since: None,
            retry_at: None,
            source: "dns".into(),
            address: "http://w".into(),
            in_flight: 0,
            prefill_tokens: 0,
            slots: None,
            slots_reason: None,
            engine: None,
            cache: Some(cache),
            cache_size: Some(CacheSizeBody { believed_tokens: 1_000_000, learned_tokens: None }),
            tier: 0,
            quota: None,
            models: Vec::new(),
        };
        let (input, cached, expected) = (3000, 2000, Some(2100));
        let cache =
            CacheBody { input_tokens: input, cached_tokens: cached, expected_tokens: expected };
        let overloaded = WorkerBody {
            reason: Some("9 wait in the engine, more than 4".into()),
            source: "file".into(),
            in_flight: 12,
            slots: Some(12),
            prefill_tokens: 900,
            slots_reason: Some("16 → 12: 9 waited in the engine's own queue".into()),
            engine: Some(EngineBody {
                kind: "vllm".into(),
                running: 12,
                waiting: 9,
                cache_used_thousandths: Some(942),
                cache_tokens: None,
                overload_waiting: Some(4),
                overload_cache_thousandths: None,
            }),
            cache_size: Some(CacheSizeBody {
                believed_tokens: 1_000_000,
                learned_tokens: Some(250_000),
            }),
            ..worker("a", "overloaded", cache)
        };
        let cache = CacheBody { input_tokens: 7, cached_tokens: 7, expected_tokens: None };
        let workers = [overloaded, worker("b", "up", cache)];
        let mut text = Vec::new();
        table(&workers).write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("overloaded: 9 wait in the engine, more than 4"), "{text}");
        assert!(lines[1].contains("94.2 %"), "{text}");
        assert!(lines[1].contains("66.7 %    70.0 %"), "{text}");
        assert!(lines[2].contains("100.0 %         –"), "{text}");
        assert!(lines[1].contains("250000 of 1000000"), "{text}");
        assert!(lines[2].contains("1000000"), "{text}");
        assert!(lines[2].starts_with("b       dns   up"), "{text}");
    }
}
