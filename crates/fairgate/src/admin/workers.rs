//! The command `fairgate worker`, which lists, adds, drains and removes workers while the gateway runs.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_core::units::Percentage;
use http::Method;
use serde_json::{Map, Value, json};

use super::pools::{hit_rate, state};
use super::{AdminOptions, escaped, text};
use fairgate_table::{TableCell, TextTable};

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
                self.common.print_table(&workers["items"], table)
            }
            WorkerAction::Add(args) => {
                let WorkerArgs { pool, worker } = &args.worker;
                let path = format!("/api/v1/pools/{}/workers", escaped(pool));
                let added = client.send(Method::POST, &path, Some(&args.body()))?;
                self.common.print_line(&added, &format!("{worker} works for pool {pool}"))
            }
            WorkerAction::Drain(worker) => {
                let path = format!("{}/drain", worker.path());
                let drained = client.send(Method::POST, &path, None)?;
                let left = drained["in_flight"].as_u64().unwrap_or(0);
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
                let body = json!({"overload": args.overload()?});
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
    fn body(&self) -> Value {
        let mut body = json!({"name": self.worker.worker, "url": self.base, "like": self.like});
        let numbers = [
            ("slots", self.slots),
            ("tier", self.tier),
            ("ranks", self.ranks),
            ("batch_tokens", self.batch_tokens),
        ];
        for (field, value) in numbers {
            if let Some(value) = value {
                body[field] = value.into();
            }
        }
        if !self.taints.is_empty() {
            body["taints"] = json!(self.taints);
        }
        body
    }
}

impl OverloadArgs {
    fn overload(&self) -> Result<Value> {
        let mut overload = Map::new();
        for (field, value) in [("waiting", self.waiting), ("cache_thousandths", self.cache)] {
            overload.extend(value.map(|value| (field.to_owned(), value.into())));
        }
        if overload.is_empty() && !self.as_in_file {
            bail!("nothing to change: see `fairgate worker overload --help`");
        }
        Ok(if self.as_in_file { Value::Null } else { overload.into() })
    }
}

fn table(workers: &Value) -> TextTable {
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
    for worker in workers.as_array().into_iter().flatten() {
        let engine = &worker["engine"];
        let cache = engine["cache_used_thousandths"].as_u64();
        table.row(vec![
            TableCell::Text(text(worker, "name")),
            TableCell::Text(text(worker, "source")),
            TableCell::Text(state(worker)),
            TableCell::Number(text(worker, "in_flight")),
            TableCell::Number(text(worker, "slots")),
            TableCell::Number(text(worker, "prefill_tokens")),
            TableCell::Text(text(engine, "kind")),
            TableCell::Number(text(engine, "running")),
            TableCell::Number(text(engine, "waiting")),
            TableCell::Number(
                cache.map_or("-".to_owned(), |part| Percentage::from_thousandths(part).to_string()),
            ),
            TableCell::Number(hit_rate(worker, "cached_tokens")),
            TableCell::Number(hit_rate(worker, "expected_tokens")),
            TableCell::Number(cache_tokens(&worker["cache_size"])),
            TableCell::Text(text(worker, "slots_reason")),
        ]);
    }
    table
}

/// Formats the size of a worker's cache in tokens, such as `8000 of 32000`. The first number is the size learned from
/// the worker's reports, and is left out if none was learned. The second is the size that the engine's metrics or the
/// configuration state.
fn cache_tokens(size: &Value) -> String {
    let [believed, learned] = ["believed_tokens", "learned_tokens"].map(|name| size[name].as_u64());
    match (believed, learned) {
        (Some(believed), Some(learned)) => format!("{learned} of {believed}"),
        (Some(believed), None) => believed.to_string(),
        (None, _) => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_told_with_their_engines() {
        let workers = json!([
            {"name": "a", "source": "file", "state": "overloaded", "reason": "9 wait in the engine, more than 4",
             "in_flight": 12, "slots": 12, "prefill_tokens": 900, "slots_reason": "16 → 12: 9 waited in the engine's own queue",
             "engine": {"kind": "vllm", "running": 12, "waiting": 9, "cache_used_thousandths": 942},
             "cache": {"input_tokens": 3000, "cached_tokens": 2000, "expected_tokens": 2100},
             "cache_size": {"believed_tokens": 1000000, "learned_tokens": 250000}},
            {"name": "b", "source": "dns", "state": "up", "reason": null, "in_flight": 0, "slots": null,
             "prefill_tokens": 0, "slots_reason": null, "engine": null,
             "cache": {"input_tokens": 7, "cached_tokens": 7, "expected_tokens": null},
             "cache_size": {"believed_tokens": 1000000, "learned_tokens": null}},
        ]);
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
