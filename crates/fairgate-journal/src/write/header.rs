//! Writes the first line of a journal.

use fairgate_core::event::{PoolConfig, WorkerChange};
use fairgate_core::units::{OverlapCredit, PerMinute};

use crate::clock::JournalClock;
use crate::read::header::{EDITION, VERSION, VERSION_FIELD};
use crate::write::json::{JsonDecimal, JsonWriter};
use crate::write::policy::{busy, node};

/// Writes the first line of a journal whose pool starts empty.
pub(crate) fn header(json: &mut JsonWriter, clock: Option<JournalClock>, config: &PoolConfig) {
    json.object(|json| {
        version(json, clock);
        json.name("pool").object(|json| pool(json, config));
    });
}

/// Writes the fields with which every first line begins. These are the version and, if a clock is given, the clock and
/// the edition.
pub(crate) fn version(json: &mut JsonWriter, clock: Option<JournalClock>) {
    json.field(VERSION_FIELD, VERSION);
    if let Some(clock) = clock {
        json.name("clock").object(|json| {
            json.field("at", clock.at.0);
            json.field("unix_us", clock.unix_us);
        });
        json.field("machine", EDITION);
    }
}

/// Writes the configuration of a pool as text of its own, as the first line of a journal states it in `pool`.
pub fn format_pool_config(config: &PoolConfig) -> String {
    let mut json = JsonWriter::default();
    json.object(|json| pool(json, config));
    json.into_string()
}

fn pool(json: &mut JsonWriter, config: &PoolConfig) {
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
    overlap_credit(json, config.overlap_credit);
}

/// Writes the overlap credit, unless it is the default.
pub(crate) fn overlap_credit(json: &mut JsonWriter, credit: OverlapCredit) {
    if credit != OverlapCredit::DEFAULT {
        let credit = JsonDecimal { units: credit.thousandths(), scale: 1000 };
        json.field("overlap_credit", credit);
    }
}

/// Writes the fields of a worker that the first line and the worker event have in common, except the name.
pub(crate) fn worker(json: &mut JsonWriter, worker: &WorkerChange) {
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

/// Writes a rate if the change states one; `null` means that the rate is removed.
fn rate(json: &mut JsonWriter, name: &str, rate: Option<Option<PerMinute>>) {
    if let Some(rate) = rate {
        json.name(name).or_null(rate, |json, rate| json.display(rate.get()));
    }
}
