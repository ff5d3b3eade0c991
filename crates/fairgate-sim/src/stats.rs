//! Counters of a simulated backend, and a list of the requests that ended last.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fault::SimFault;

/// Counts at one moment. They add up, because they are read under one lock: `requests` is the sum of `arriving`,
/// `waiting`, `in_flight`, `finished`, `abandoned`, `refused` and `broken`. Only requests to the routes of a model
/// count.
#[derive(Clone, Debug, Default)]
pub struct SimStats {
    /// Number of requests that have arrived since the backend started.
    pub requests: u64,
    /// Number of requests whose body is still being read or checked.
    pub arriving: u64,
    /// Number of requests in the backend's own queue, because every slot is taken.
    pub waiting: u64,
    /// Number of requests that hold a slot, or are being answered without a slot.
    pub in_flight: u64,
    /// Number of requests whose whole answer was sent.
    pub finished: u64,
    /// Number of requests that ended early because the client left or the backend was killed.
    pub abandoned: u64,
    /// Number of requests that were answered with an HTTP error status.
    pub refused: u64,
    /// Number of requests that a fault ended before the whole answer was sent.
    pub broken: u64,
    /// Number of input tokens of all ended requests whose prompt was prefilled, cached input tokens included.
    pub input_tokens: u64,
    /// Number of input tokens of all ended requests that were found in the prefix cache.
    pub cached_tokens: u64,
    /// Number of output tokens that were generated for all ended requests, also for answers that were cut off.
    pub output_tokens: u64,
    /// The requests that ended last, oldest first; at most [`SimOptions::log_len`](crate::SimOptions::log_len).
    pub recent: Vec<RequestRecord>,
}

/// Facts about one ended request, without its prompt, its API key and the values of its headers.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// Id of the answer, as sent to the client.
    pub id: String,
    /// Path of the request, such as `/v1/chat/completions`.
    pub path: &'static str,
    /// Model in the request; empty if the request was refused before its body was parsed.
    pub model: String,
    /// True if the client requested a stream.
    pub stream: bool,
    /// Limit of output tokens in the request; `None` if the request sets no limit.
    pub output_tokens_max: Option<u64>,
    /// Number of input tokens of the request, cached ones included; 0 if the prompt was not prefilled.
    pub input_tokens: u64,
    /// Number of input tokens of the request that were found in the prefix cache.
    pub cached_tokens: u64,
    /// Number of output tokens that were generated until the request ended.
    pub output_tokens: u64,
    /// Time that the request waited for a slot.
    pub waited: Duration,
    /// Fault of the request; `None` if the request had no fault.
    pub fault: Option<SimFault>,
    /// The way in which the request ended.
    pub outcome: SimOutcome,
    /// Names of the request's headers, in lower case.
    pub header_names: Vec<String>,
}

/// The way in which a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimOutcome {
    /// The whole answer was sent.
    Finished,
    /// The client left, or the backend was killed, before the whole answer was sent.
    Abandoned,
    /// The answer was an error with this HTTP status.
    Refused(u16),
    /// A fault ended the request before the whole answer was sent.
    Broken,
}

/// The stage of a request that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimRequestStage {
    Arriving,
    Waiting,
    InFlight,
}

/// The counters and the list of ended requests from which [`SimStats`] are made.
#[derive(Debug, Default)]
pub(crate) struct StatsRecorder {
    counts: SimStats,
    recent: VecDeque<RequestRecord>,
}

impl StatsRecorder {
    pub(crate) fn arrive(&mut self) {
        self.counts.requests += 1;
        self.counts.arriving += 1;
    }

    /// Moves one request to another stage.
    pub(crate) fn advance(&mut self, from: SimRequestStage, to: SimRequestStage) {
        *self.at(from) -= 1;
        *self.at(to) += 1;
    }

    /// Moves one request to the queue, unless `waiting_max` requests wait already. Returns true if there was room.
    pub(crate) fn try_enqueue(&mut self, from: SimRequestStage, waiting_max: u64) -> bool {
        let room = self.counts.waiting < waiting_max;
        if room {
            self.advance(from, SimRequestStage::Waiting);
        }
        room
    }

    /// Moves one request from `stage` to its outcome, and adds it to the list of the last `log_len` ended requests.
    pub(crate) fn end(&mut self, stage: SimRequestStage, record: RequestRecord, log_len: usize) {
        *self.at(stage) -= 1;
        match record.outcome {
            SimOutcome::Finished => self.counts.finished += 1,
            SimOutcome::Abandoned => self.counts.abandoned += 1,
            SimOutcome::Refused(_) => self.counts.refused += 1,
            SimOutcome::Broken => self.counts.broken += 1,
        }
        let add = |sum: &mut u64, tokens| *sum = sum.saturating_add(tokens);
        add(&mut self.counts.input_tokens, record.input_tokens);
        add(&mut self.counts.cached_tokens, record.cached_tokens);
        add(&mut self.counts.output_tokens, record.output_tokens);
        self.recent.push_back(record);
        while self.recent.len() > log_len {
            self.recent.pop_front();
        }
    }

    /// Counts a finished request of [`SimMode::Trivial`](crate::SimMode::Trivial), which is not added to the list of
    /// ended requests.
    pub(crate) fn answered_at_once(&mut self) {
        self.counts.requests += 1;
        self.counts.finished += 1;
    }

    /// Returns the counts, with an empty list of ended requests.
    pub(crate) fn counts(&self) -> SimStats {
        self.counts.clone()
    }

    pub(crate) fn stats(&self) -> SimStats {
        SimStats { recent: self.recent.iter().cloned().collect(), ..self.counts.clone() }
    }

    fn at(&mut self, stage: SimRequestStage) -> &mut u64 {
        match stage {
            SimRequestStage::Arriving => &mut self.counts.arriving,
            SimRequestStage::Waiting => &mut self.counts.waiting,
            SimRequestStage::InFlight => &mut self.counts.in_flight,
        }
    }
}

impl SimStats {
    /// Formats the counters and the ended requests for `GET /sim/stats`.
    pub(crate) fn to_json(&self) -> Value {
        let recent: Vec<_> = self.recent.iter().map(RequestRecord::to_json).collect();
        json!({
            "requests": self.requests, "arriving": self.arriving, "waiting": self.waiting,
            "in_flight": self.in_flight, "finished": self.finished, "abandoned": self.abandoned,
            "refused": self.refused, "broken": self.broken, "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens, "output_tokens": self.output_tokens, "recent": recent,
        })
    }
}

impl RequestRecord {
    fn to_json(&self) -> Value {
        let (outcome, status) = match self.outcome {
            SimOutcome::Finished => ("finished", None),
            SimOutcome::Abandoned => ("abandoned", None),
            SimOutcome::Refused(status) => ("refused", Some(status)),
            SimOutcome::Broken => ("broken", None),
        };
        json!({
            "id": self.id, "path": self.path, "model": self.model, "stream": self.stream,
            "output_tokens_max": self.output_tokens_max, "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens, "output_tokens": self.output_tokens,
            "waited_ms": u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX),
            "fault": self.fault.map(|fault| fault.to_string()), "outcome": outcome, "status": status,
            "header_names": self.header_names,
        })
    }
}
