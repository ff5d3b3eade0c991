//! The first line.

use fairgate_core::event::{PoolConfig, WorkerChange};
use fairgate_core::units::PerMinute;

use crate::clock::Clock;
use crate::read::header::{VERSION, VERSION_FIELD};
use crate::write::json::Json;
use crate::write::policy::{busy, node};

/// Writes the first line of a journal whose pool starts empty.
pub(crate) fn header(json: &mut Json, clock: Option<Clock>, config: &PoolConfig) {
    json.object(|json| {
        version(json, clock);
        json.name("pool").object(|json| pool(json, config));
    });
}

/// Writes what both kinds of first line begin with.
pub(crate) fn version(json: &mut Json, clock: Option<Clock>) {
    json.field(VERSION_FIELD, VERSION);
    if let Some(clock) = clock {
        json.name("clock").object(|json| {
            json.field("at", clock.at.0);
            json.field("unix_us", clock.unix_us);
        });
    }
}

fn pool(json: &mut Json, config: &PoolConfig) {
    json.field("capacity", config.capacity);
    node(json.name("policy"), config.policy.root());
    json.optional("max_queue", config.max_queue);
    json.optional("queue_timeout_us", config.queue_timeout.map(|t| t.0));
    json.optional("brownout_wait_us", config.brownout_wait.map(|t| t.0));
    if !config.workers.is_empty() {
        json.name("workers").list(&config.workers, |json, each| {
            json.object(|json| {
                json.text_field("name", &each.name);
                worker(json, each);
            });
        });
    }
    busy(json, &config.busy);
}

/// Writes what the header and the event both say about a worker, but for its name.
pub(crate) fn worker(json: &mut Json, worker: &WorkerChange) {
    json.optional("ranks", worker.ranks);
    json.optional("slots", worker.slots);
    if let Some(taints) = &worker.taints {
        json.texts("taints", taints);
    }
    json.optional("batch_tokens", worker.batch_tokens.map(|t| t.0));
    json.optional("tier", worker.tier);
    rate(json, "requests_per_minute", worker.requests_per_minute);
    rate(json, "tokens_per_minute", worker.tokens_per_minute);
    json.optional("burst_seconds", worker.burst_seconds.map(|b| b.get()));
    json.optional("requests_remaining", worker.requests_remaining);
    json.optional("tokens_remaining", worker.tokens_remaining);
    json.optional("pause_until", worker.pause_until.map(|t| t.0));
}

/// Writes a rate where it is said something about: null where it is taken away.
fn rate(json: &mut Json, name: &str, rate: Option<Option<PerMinute>>) {
    if let Some(rate) = rate {
        json.name(name).or_null(rate, |json, rate| json.display(rate.get()));
    }
}
