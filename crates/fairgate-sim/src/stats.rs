//! What a simulated backend has seen and done.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fault::Fault;

/// The counts of one moment, taken together, so that they add up: `requests` is the sum of `arriving`, `waiting`,
/// `in_flight`, `finished`, `abandoned`, `refused` and `broken`. Only requests to the routes of a model count.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Requests seen since the start.
    pub requests: u64,
    /// Being read.
    pub arriving: u64,
    /// In the backend's own queue, because every slot is taken.
    pub waiting: u64,
    /// In a slot, or being answered without needing one.
    pub in_flight: u64,
    /// Answered to the end.
    pub finished: u64,
    /// Left by the client, or cut by a kill, before the end.
    pub abandoned: u64,
    /// Answered with an error.
    pub refused: u64,
    /// Ended by a fault without a whole answer.
    pub broken: u64,
    /// Input tokens of all requests whose prompt was worked on, cached ones included.
    pub input_tokens: u64,
    /// How many of them the prefix cache had.
    pub cached_tokens: u64,
    /// Output tokens really generated, also for answers that did not reach their end.
    pub output_tokens: u64,
    /// The requests that ended last, oldest first; [`SimOptions::log_len`](crate::SimOptions::log_len) at most.
    pub recent: Vec<RequestRecord>,
}

/// One ended request. It holds no prompt, no key and no value of a header.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// The id of its answer, as the client saw it.
    pub id: String,
    /// Its path, such as `/v1/chat/completions`.
    pub path: &'static str,
    /// The model that it named; empty where it was refused before that was read.
    pub model: String,
    /// Whether it wanted a stream.
    pub stream: bool,
    /// Its own limit of output tokens.
    pub output_tokens_max: Option<u64>,
    /// Input tokens worked on, cached ones included.
    pub input_tokens: u64,
    /// How many of them the prefix cache had.
    pub cached_tokens: u64,
    /// Output tokens really generated.
    pub output_tokens: u64,
    /// How long it waited for a slot.
    pub waited: Duration,
    /// The fault that it met.
    pub fault: Option<Fault>,
    /// How it ended.
    pub outcome: Outcome,
    /// The names of its headers, in lower case.
    pub header_names: Vec<String>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered to the end.
    Finished,
    /// Left by the client, or cut by a kill, before the end.
    Abandoned,
    /// Answered with this HTTP status.
    Refused(u16),
    /// Ended by a fault without a whole answer.
    Broken,
}

/// Where a request is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Arriving,
    Waiting,
    Flying,
}

/// The books behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: Stats,
    recent: VecDeque<RequestRecord>,
}

impl Tally {
    pub(crate) fn arrive(&mut self) {
        self.counts.requests += 1;
        self.counts.arriving += 1;
    }

    /// Moves one request on.
    pub(crate) fn advance(&mut self, from: Stage, to: Stage) {
        *self.at(from) -= 1;
        *self.at(to) += 1;
    }

    /// Puts one request in line, unless so many stand there already.
    pub(crate) fn join_line(&mut self, from: Stage, waiting_max: u64) -> bool {
        let room = self.counts.waiting < waiting_max;
        if room {
            self.advance(from, Stage::Waiting);
        }
        room
    }

    /// Closes the books on one request.
    pub(crate) fn end(&mut self, stage: Stage, record: RequestRecord, log_len: usize) {
        *self.at(stage) -= 1;
        match record.outcome {
            Outcome::Finished => self.counts.finished += 1,
            Outcome::Abandoned => self.counts.abandoned += 1,
            Outcome::Refused(_) => self.counts.refused += 1,
            Outcome::Broken => self.counts.broken += 1,
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

    /// A request that was answered at once and is not worth a record.
    pub(crate) fn answered_at_once(&mut self) {
        self.counts.requests += 1;
        self.counts.finished += 1;
    }

    /// The counts without the records.
    pub(crate) fn counts(&self) -> Stats {
        self.counts.clone()
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats { recent: self.recent.iter().cloned().collect(), ..self.counts.clone() }
    }

    fn at(&mut self, stage: Stage) -> &mut u64 {
        match stage {
            Stage::Arriving => &mut self.counts.arriving,
            Stage::Waiting => &mut self.counts.waiting,
            Stage::Flying => &mut self.counts.in_flight,
        }
    }
}

impl Stats {
    /// As `GET /sim/stats` tells them.
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
            Outcome::Finished => ("finished", None),
            Outcome::Abandoned => ("abandoned", None),
            Outcome::Refused(status) => ("refused", Some(status)),
            Outcome::Broken => ("broken", None),
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
