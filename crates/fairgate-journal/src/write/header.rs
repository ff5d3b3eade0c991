//! The first line.

use fairgate_core::event::{PoolConfig, WorkerChange};

use crate::read::header::{VERSION, VERSION_FIELD};
use crate::write::json::Json;
use crate::write::policy::{busy, node};

/// Writes the first line of a journal whose pool starts empty.
pub(crate) fn header(json: &mut Json, config: &PoolConfig) {
    json.object(|json| {
        json.field(VERSION_FIELD, VERSION);
        json.name("pool").object(|json| pool(json, config));
    });
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
}
