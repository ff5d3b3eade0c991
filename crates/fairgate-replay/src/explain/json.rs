//! A request's history as JSON. Times are microseconds. Events, decisions and waiting states have the journal's format;
//! scores, in tokens per weight, are text.

use std::collections::BTreeMap;
use std::io;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::decision::Decision;
use fairgate_core::explain::RequestLocation;
use fairgate_core::fairness::FlowFairness;
use fairgate_journal::{JournalWriter, write_request_location};
use serde::Serialize;
use serde_json::value::RawValue;

use super::super::edition::OtherEdition;
use super::history::{
    GrantedRun, GrantedRunEnd, JournalTime, RejectionCause, RequestHistory, RequestOutcome,
    WaitEvent, WaitingState,
};
use super::settlement::{DisciplineCounters, FlowCounters, SettledLevel};
use crate::shown_unit::ShownUnit;

/// Histories of all requests with one id.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    other_edition: Option<OtherEdition>,
    id: &'a str,
    /// Unit of the costs and counters, also of those whose names end in `_tokens`.
    unit: &'static str,
    requests: Vec<RequestJson<'a>>,
}

#[derive(Debug, Serialize)]
struct RequestJson<'a> {
    submitted: WhenJson,
    attributes: BTreeMap<&'static str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<u64>,
    priority: i64,
    path: Vec<FlowJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Box<RawValue>>,
    /// Number of requests in flight when the request began to wait, if flows were blocked because the pool was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    full_pool_in_flight: Option<u64>,
    moments: Vec<WaitEventJson>,
    moments_untold: u64,
    outcome: OutcomeJson<'a>,
}

#[derive(Debug, Serialize)]
struct WhenJson {
    at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FlowJson<'a> {
    by: &'static str,
    flow: &'a str,
}

#[derive(Debug, Serialize)]
struct WaitEventJson {
    #[serde(flatten)]
    when: WhenJson,
    event: Box<RawValue>,
    waiting: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_pool_in_flight: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
enum OutcomeJson<'a> {
    Waiting,
    Cancelled {
        #[serde(flatten)]
        when: WhenJson,
    },
    Expired {
        #[serde(flatten)]
        when: WhenJson,
        queue_timeout_us: Option<u64>,
    },
    Rejected {
        line: Option<u64>,
        decision: Box<RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        room_made_for: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        changed_worker: Option<&'a str>,
    },
    Granted {
        line: Option<u64>,
        decision: Box<RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        first_token: Option<WhenJson>,
        end: Option<EndJson<'a>>,
    },
}

#[derive(Debug, Serialize)]
struct EndJson<'a> {
    #[serde(flatten)]
    when: WhenJson,
    event: &'static str,
    tokens: Option<u64>,
    settled: Vec<SettledJson<'a>>,
}

#[derive(Debug, Serialize)]
struct SettledJson<'a> {
    #[serde(flatten)]
    flow: FlowJson<'a>,
    before: FlowCountersJson,
    /// Counters after the request ended; null if the flow was removed.
    after: Option<FlowCountersJson>,
}

#[derive(Debug, Serialize)]
struct FlowCountersJson {
    #[serde(flatten)]
    kept: DisciplineCountersJson,
    got_tokens: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_tokens: Option<i128>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_tokens: Option<u128>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum DisciplineCountersJson {
    Share { score_tokens_per_weight: String, served_tokens: u128, pending_tokens: u128 },
    Drr { deficit_tokens: u128 },
    Load { ticks: u64 },
    Bands {},
}

impl<'a> HistoryJson<'a> {
    pub(crate) fn new(
        id: &'a str,
        unit: ShownUnit,
        chapters: &'a [RequestHistory],
        other_edition: Option<OtherEdition>,
    ) -> io::Result<Self> {
        let requests = chapters.iter().map(request).collect::<io::Result<_>>()?;
        Ok(Self { other_edition, id, unit: unit.name(), requests })
    }
}

fn request(chapter: &RequestHistory) -> io::Result<RequestJson<'_>> {
    Ok(RequestJson {
        submitted: when(&chapter.submitted),
        attributes: attributes(&chapter.attributes),
        cost: chapter.cost.map(|cost| cost.0),
        priority: chapter.priority,
        path: chapter.path.iter().map(|l| FlowJson { by: l.by.name(), flow: &l.flow }).collect(),
        waiting: chapter.arrival.as_deref().map(waiting).transpose()?,
        full_pool_in_flight: chapter.arrival.as_ref().and_then(|arrival| arrival.full_pool),
        moments: chapter.wait_events.iter().map(moment).collect::<io::Result<_>>()?,
        moments_untold: chapter.unreported,
        outcome: outcome(&chapter.fate)?,
    })
}

fn when(when: &JournalTime) -> WhenJson {
    WhenJson { at: when.at.0, line: when.line }
}

fn attributes(attributes: &Attributes) -> BTreeMap<&'static str, &str> {
    Attribute::ALL.into_iter().filter_map(|a| Some((a.name(), attributes.get(a)?))).collect()
}

fn moment(moment: &WaitEvent) -> io::Result<WaitEventJson> {
    let event = written(|writer| writer.write_event(moment.when.at, &moment.event))?;
    Ok(WaitEventJson {
        when: when(&moment.when),
        event,
        waiting: waiting(&moment.waiting)?,
        full_pool_in_flight: moment.waiting.full_pool,
    })
}

fn waiting(waiting: &WaitingState) -> io::Result<Box<RawValue>> {
    let whereabouts = RequestLocation::Waiting(Box::new(waiting.request.clone()));
    Ok(RawValue::from_string(write_request_location(&whereabouts))?)
}

fn decision(at: &JournalTime, decision: &Decision) -> io::Result<Box<RawValue>> {
    written(|writer| writer.write_decision(at.at, decision))
}

/// Returns the output of a journal writer as raw JSON, to be part of another JSON text.
fn written(
    write: impl FnOnce(&mut JournalWriter<Vec<u8>>) -> io::Result<()>,
) -> io::Result<Box<RawValue>> {
    let mut writer = JournalWriter::new(Vec::new());
    write(&mut writer)?;
    Ok(serde_json::from_slice(&writer.into_inner())?)
}

fn outcome(fate: &RequestOutcome) -> io::Result<OutcomeJson<'_>> {
    Ok(match fate {
        RequestOutcome::Waits => OutcomeJson::Waiting,
        RequestOutcome::GaveUp { when: at } => OutcomeJson::Cancelled { when: when(at) },
        RequestOutcome::Expired { when: at, timeout } => {
            OutcomeJson::Expired { when: when(at), queue_timeout_us: timeout.map(|t| t.0) }
        }
        RequestOutcome::Refused { when, reject, cause } => {
            let (room_made_for, changed_worker) = match cause {
                RejectionCause::OwnSubmit => (None, None),
                RejectionCause::OtherSubmit(id) => (Some(&**id), None),
                RejectionCause::Worker(name) => (None, Some(&**name)),
            };
            let decision = decision(when, &Decision::Reject(reject.clone()))?;
            OutcomeJson::Rejected { line: when.line, decision, room_made_for, changed_worker }
        }
        RequestOutcome::Granted(flight) => granted(flight)?,
    })
}

fn granted(flight: &GrantedRun) -> io::Result<OutcomeJson<'_>> {
    Ok(OutcomeJson::Granted {
        line: flight.when.line,
        decision: decision(&flight.when, &Decision::Grant(flight.grant.clone()))?,
        first_token: flight.first_token.as_ref().map(when),
        end: flight.ending.as_ref().map(end),
    })
}

fn end(ending: &GrantedRunEnd) -> EndJson<'_> {
    EndJson {
        when: when(&ending.when),
        event: if ending.cancelled { "cancel" } else { "release" },
        tokens: ending.tokens.map(|tokens| tokens.0),
        settled: ending.settled.iter().map(settled).collect(),
    }
}

fn settled(settled: &SettledLevel) -> SettledJson<'_> {
    let flow = FlowJson { by: settled.level.by.name(), flow: &settled.level.flow };
    SettledJson { flow, before: books(&settled.before), after: settled.after.as_ref().map(books) }
}

fn books(books: &FlowCounters) -> FlowCountersJson {
    let kept = match books.kept {
        DisciplineCounters::Share { score, served, pending } => DisciplineCountersJson::Share {
            score_tokens_per_weight: score.to_string(),
            served_tokens: served,
            pending_tokens: pending,
        },
        DisciplineCounters::Drr { deficit } => {
            DisciplineCountersJson::Drr { deficit_tokens: deficit }
        }
        DisciplineCounters::Load { ticks } => DisciplineCountersJson::Load { ticks },
        DisciplineCounters::Bands => DisciplineCountersJson::Bands {},
    };
    let FlowFairness { got, due, .. } = &books.service;
    let (got, due) = (*got, *due);
    FlowCountersJson {
        kept,
        got_tokens: got,
        due_tokens: due.map(|due| due.tokens),
        bound_tokens: due.map(|due| due.bound),
    }
}
