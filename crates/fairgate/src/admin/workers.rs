//! Workers: listed, added, drained and removed while the gateway runs.

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Map, Value, json};

use super::pools::{hit_rate, state};
use super::{Common, escaped, text};
use crate::table::{Cell, Table};

/// Workers of a pool: add, drain and remove them while the gateway runs.
#[derive(Debug, Args)]
pub(crate) struct WorkerCommand {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    action: WorkerAction,
}

#[derive(Debug, Subcommand)]
enum WorkerAction {
    /// List the workers of a pool, with what their engines say and why their slots changed.
    List {
        /// The pool.
        pool: String,
    },
    /// Add a worker; it is still there after a restart.
    Add(AddArgs),
    /// Have a worker take nothing new; what is in flight on it goes on.
    Drain(WorkerArgs),
    /// Let a drained worker take requests again.
    Undrain(WorkerArgs),
    /// Remove a worker that was added: drain it, and forget it once nothing is in flight on it.
    Remove {
        #[command(flatten)]
        worker: WorkerArgs,
        /// Forget it at once; what is in flight on it goes on as long as the worker does.
        #[arg(long)]
        now: bool,
    },
    /// Change when a worker's engine counts as overloaded, and so takes nothing new.
    Overload(OverloadArgs),
}

#[derive(Debug, Args)]
struct WorkerArgs {
    /// The pool.
    pool: String,
    /// The worker.
    worker: String,
}

#[derive(Debug, Args)]
struct AddArgs {
    #[command(flatten)]
    worker: WorkerArgs,
    /// Its base, such as http://10.0.0.7:8000.
    #[arg(value_name = "URL")]
    base: String,
    /// The upstream of the configuration file whose other settings it takes over.
    #[arg(long, value_name = "UPSTREAM")]
    like: String,
    /// How many requests it takes at once, each of its ranks.
    #[arg(long)]
    slots: Option<u64>,
    /// Its tier: 0 is an own worker, higher ones are used when no lower one has room.
    #[arg(long)]
    tier: Option<u64>,
    /// Its data-parallel ranks.
    #[arg(long)]
    ranks: Option<u64>,
    /// What requests may require of it; may be given several times.
    #[arg(long = "taint", value_name = "TAINT")]
    taints: Vec<String>,
    /// The tokens of one batch.
    #[arg(long)]
    batch_tokens: Option<u64>,
}

#[derive(Debug, Args)]
struct OverloadArgs {
    #[command(flatten)]
    worker: WorkerArgs,
    /// Overloaded where more requests than this wait in the engine's own queue.
    #[arg(long, value_name = "REQUESTS")]
    waiting: Option<u64>,
    /// Overloaded where more than this part of the engine's cache is in use, in thousandths.
    #[arg(long, value_name = "THOUSANDTHS")]
    cache: Option<u64>,
    /// Put the thresholds of the configuration file back.
    #[arg(long, conflicts_with_all = ["waiting", "cache"])]
    as_in_file: bool,
}

impl WorkerCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            WorkerAction::List { pool } => {
                let workers = client.get(&format!("/api/v1/pools/{}/workers", escaped(pool)))?;
                self.common.tell(&workers["items"], table)
            }
            WorkerAction::Add(args) => {
                let WorkerArgs { pool, worker } = &args.worker;
                let path = format!("/api/v1/pools/{}/workers", escaped(pool));
                let added = client.send(Method::POST, &path, Some(&args.body()))?;
                self.common.say(&added, &format!("{worker} works for pool {pool}"))
            }
            WorkerAction::Drain(worker) => {
                let path = format!("{}/drain", worker.path());
                let drained = client.send(Method::POST, &path, None)?;
                let left = drained["in_flight"].as_u64().unwrap_or(0);
                let name = &worker.worker;
                self.common
                    .say(&drained, &format!("{name} takes nothing new; {left} in flight on it"))
            }
            WorkerAction::Undrain(worker) => {
                let path = format!("{}/undrain", worker.path());
                let undrained = client.send(Method::POST, &path, None)?;
                self.common.say(&undrained, &format!("{} takes requests", worker.worker))
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
                self.common.say(&removed, &words)
            }
            WorkerAction::Overload(args) => {
                let body = json!({"overload": args.overload()?});
                let path = args.worker.path();
                let changed = client.send(Method::PATCH, &path, Some(&body))?;
                let words = format!("{} is judged by these thresholds", args.worker.worker);
                self.common.say(&changed, &words)
            }
        }
    }
}

impl WorkerArgs {
    fn path(&self) -> String {
        format!("/api/v1/pools/{}/workers/{}", escaped(&self.pool), escaped(&self.worker))
    }
}

impl AddArgs {
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

fn table(workers: &Value) -> Table {
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
        "slots changed",
    ];
    let mut table = Table::new(headings);
    for worker in workers.as_array().into_iter().flatten() {
        let engine = &worker["engine"];
        let cache = engine["cache_used_thousandths"].as_u64();
        table.row(vec![
            Cell::Text(text(worker, "name")),
            Cell::Text(text(worker, "source")),
            Cell::Text(state(worker)),
            Cell::Number(text(worker, "in_flight")),
            Cell::Number(text(worker, "slots")),
            Cell::Number(text(worker, "prefill_tokens")),
            Cell::Text(text(engine, "kind")),
            Cell::Number(text(engine, "running")),
            Cell::Number(text(engine, "waiting")),
            Cell::Number(
                cache.map_or("-".to_owned(), |part| format!("{}.{} %", part / 10, part % 10)),
            ),
            Cell::Number(hit_rate(worker, "cached_tokens")),
            Cell::Number(hit_rate(worker, "expected_tokens")),
            Cell::Text(text(worker, "slots_reason")),
        ]);
    }
    table
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
             "cache": {"input_tokens": 3000, "cached_tokens": 2000, "expected_tokens": 2100}},
            {"name": "b", "source": "dns", "state": "up", "reason": null, "in_flight": 0, "slots": null,
             "prefill_tokens": 0, "slots_reason": null, "engine": null,
             "cache": {"input_tokens": 7, "cached_tokens": 7, "expected_tokens": null}},
        ]);
        let mut told = Vec::new();
        table(&workers).write(&mut told).unwrap();
        let told = String::from_utf8(told).unwrap();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[1].contains("overloaded: 9 wait in the engine, more than 4"), "{told}");
        assert!(lines[1].contains("94.2 %"), "{told}");
        assert!(lines[1].contains("66.6 %    70.0 %"), "{told}");
        assert!(lines[2].contains("100.0 %         –"), "{told}");
        assert!(lines[2].starts_with("b       dns   up"), "{told}");
    }
}
