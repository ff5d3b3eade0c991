//! Collects the history of one request while its journal is replayed.

mod history;
mod json;
mod settlement;
mod text;

use std::io::{self, Write};

use fairgate_core::attribute::Attributes;
use fairgate_core::decision::{Decision, DecisionSink, Grant, RejectedRequest};
use fairgate_core::event::{Event, Submit};
use fairgate_core::explain::{FlowReadiness, RequestLocation};
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_core::units::Micros;
use fairgate_core::{Pool, RequestHandle};
use fairgate_journal::{JournalClock, explain_text};

use self::history::{
    GrantedRun, GrantedRunEnd, JournalTime, RejectionCause, RequestHistory, RequestOutcome,
    WaitEvent, WaitingState,
};
use self::json::HistoryJson;
use self::settlement::settle;
use super::edition::OtherEdition;
use super::path::{PathLevel, path};
use super::steps::{ReplayListener, ReplayStep};
use crate::error::ReplayError;
use crate::files::time_of_day;
use crate::shown_unit::ShownUnit;

/// Greatest number of events that are reported for one wait of a request.
const WAIT_EVENTS_MAX: usize = 12;
/// Greatest number of events, per request, for which the collector checks whether the event changed
/// the conditions for which the request waits. The number is limited because each check copies the
/// pool.
const CHECKS_MAX: usize = 100;

/// Collects the history of every request with one id.
#[derive(Debug)]
pub struct HistoryCollector {
    id: Box<str>,
    finished: Vec<RequestHistory>,
    /// History of the request with this id that waits or is in flight; `None` if there is none.
    open: Option<RequestHistory>,
    /// History of the request that is being submitted; `None` at other times.
    arriving: Option<RequestHistory>,
    checks: usize,
    now: JournalTime,
    clock: Option<JournalClock>,
    event: Event,
    timeout: Option<Micros>,
}

impl HistoryCollector {
    /// Creates a collector for the requests with this id.
    pub fn new(id: &str) -> Self {
        Self {
            id: id.into(),
            finished: Vec::new(),
            open: None,
            arriving: None,
            checks: 0,
            now: JournalTime { line: None, at: Micros(0), time: None },
            clock: None,
            event: Event::Tick,
            timeout: None,
        }
    }

    /// Ends the replay, and adds the request that still waits or is in flight to the histories.
    pub fn finish(&mut self) {
        self.finished.extend(self.open.take());
    }

    /// Returns true if there was no request with that id.
    pub fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    /// Writes the history as text, with costs in this unit.
    pub fn write_words(&self, out: impl Write, unit: ShownUnit) -> io::Result<()> {
        text::write(out, unit, &self.id, &self.finished)
    }

    /// Writes the history as one JSON object, which names the unit of its costs.
    pub fn write_json(
        &self,
        mut out: impl Write,
        unit: ShownUnit,
        other_edition: Option<OtherEdition>,
    ) -> io::Result<()> {
        serde_json::to_writer(
            &mut out,
            &HistoryJson::new(&self.id, unit, &self.finished, other_edition)?,
        )?;
        writeln!(out)
    }

    fn arrive(&mut self, submit: &Submit, pool: &Pool) {
        self.arriving = Some(RequestHistory {
            submitted: self.now,
            attributes: submit.attributes.clone(),
            cost: submit.cost,
            priority: submit.priority,
            path: path(pool.policy(), &submit.attributes),
            arrival: None,
            wait_events: Vec::new(),
            unreported: 0,
            fate: RequestOutcome::Waits,
        });
    }

    fn end_flight(&mut self, pool: &Pool) {
        let (cancelled, tokens) = match &self.event {
            Event::Release { tokens, .. } => (false, *tokens),
            _ => (true, None),
        };
        let Some(mut chapter) = self.open.take() else { return };
        if let RequestOutcome::Granted(flight) = &mut chapter.fate {
            let settled = settle(pool, self.now.at, &self.event, &chapter.attributes);
            flight.ending = Some(GrantedRunEnd { when: self.now, cancelled, tokens, settled });
            self.finished.push(chapter);
        } else {
            self.open = Some(chapter);
        }
    }

    fn granted(&mut self, grant: Grant) {
        if let Some(newcomer) = self.arriving.take() {
            self.open = Some(newcomer);
        }
        if let Some(chapter) = &mut self.open {
            chapter.cost = Some(grant.cost);
            let flight = GrantedRun { when: self.now, grant, first_token: None, ending: None };
            chapter.fate = RequestOutcome::Granted(Box::new(flight));
        }
    }

    fn refused(&mut self, reject: RejectedRequest) {
        let (chapter, cause) = match (self.arriving.take(), &self.event) {
            (Some(newcomer), _) => (Some(newcomer), RejectionCause::OwnSubmit),
            (None, Event::Submit(other)) => {
                (self.open.take(), RejectionCause::OtherSubmit(other.id.clone()))
            }
            (None, Event::Worker(change)) => {
                (self.open.take(), RejectionCause::Worker(change.name.clone()))
            }
            (None, _) => (self.open.take(), RejectionCause::OwnSubmit),
        };
        let fate = RequestOutcome::Refused { when: self.now, reject, cause };
        self.finished.extend(chapter.map(|chapter| RequestHistory { fate, ..chapter }));
    }

    fn expired(&mut self) {
        let fate = RequestOutcome::Expired { when: self.now, timeout: self.timeout };
        self.finished.extend(self.open.take().map(|chapter| RequestHistory { fate, ..chapter }));
    }

    /// Records the last event if it concerns the flows of the waiting request, or if it changed the
    /// conditions for which the request waits.
    fn record_change(&mut self, pool: &Pool) {
        let Some(chapter) = self.open.as_mut().filter(|c| matches!(c.fate, RequestOutcome::Waits))
        else {
            return;
        };
        let concern = concern(&self.event, &chapter.path);
        if concern == EventConcern::None {
            return;
        }
        if self.checks == CHECKS_MAX || chapter.wait_events.len() == WAIT_EVENTS_MAX {
            chapter.unreported += 1;
            return;
        }
        self.checks += 1;
        if matches!(self.event, Event::Policy(_)) {
            chapter.path = path(pool.policy(), &chapter.attributes);
        }
        let Some(waiting) = waiting(pool, &self.id) else { return };
        let before = chapter.wait_events.last().map(|m| &m.waiting).or(chapter.arrival.as_ref());
        let changed = before.is_none_or(|before| readiness(before) != readiness(&waiting));
        if concern == EventConcern::Direct || changed {
            let event = self.event.clone();
            chapter.wait_events.push(WaitEvent { when: self.now, event, waiting });
        }
    }
}

impl DecisionSink for HistoryCollector {
    fn decided(&mut self, decision: Decision) {
        match decision {
            Decision::Grant(grant) if *grant.id == *self.id => self.granted(grant),
            Decision::Reject(reject) if *reject.id == *self.id => self.refused(reject),
            Decision::Expire { id, .. } if *id == *self.id => self.expired(),
            _ => {}
        }
    }

    fn wants_why(&self, id: &str) -> bool {
        *id == *self.id
    }
}

impl ReplayListener for HistoryCollector {
    fn opened(&mut self, clock: Option<JournalClock>) {
        self.clock = clock;
    }

    fn start(&mut self, pool: &Pool) {
        let snapshot = pool.snapshot();
        self.timeout = snapshot.queue_timeout;
        let known = snapshot.requests.iter().find(|request| *request.id == *self.id);
        self.open = known.map(|request| {
            let path = path(&snapshot.policy, &request.attributes);
            let arrival = waiting(pool, &self.id);
            RequestHistory {
                arrival,
                ..history_of_known_request(request, pool.find(&self.id), path)
            }
        });
    }

    fn before(&mut self, step: ReplayStep<'_>, pool: &Pool) {
        let time = self.clock.map(|clock| time_of_day(clock, step.at));
        self.now = JournalTime { line: step.line, at: step.at, time };
        let ours = match step.event {
            Event::Submit(submit) => *submit.id == *self.id,
            Event::Release { id, .. } | Event::Cancel { id } | Event::FirstToken { id } => {
                **id == *self.id
            }
            _ => false,
        };
        if !ours && self.open.is_none() {
            return;
        }
        self.event = step.event.clone();
        match step.event {
            _ if !ours => {}
            Event::Submit(submit) => self.arrive(submit, pool),
            Event::FirstToken { .. } => {
                if let Some(RequestOutcome::Granted(flight)) =
                    self.open.as_mut().map(|c| &mut c.fate)
                {
                    flight.first_token.get_or_insert(self.now);
                }
            }
            _ => self.end_flight(pool),
        }
    }

    fn after(&mut self, pool: &Pool) -> Result<(), ReplayError> {
        if let Some(newcomer) = self.arriving.take() {
            self.checks = 0;
            let arrival = waiting(pool, &self.id);
            let cost = arrival.as_ref().map(|waiting| waiting.request.cost);
            self.open = Some(RequestHistory { arrival, cost, ..newcomer });
            return Ok(());
        }
        match (&self.event, &self.open) {
            (Event::Cancel { id }, Some(_)) if **id == *self.id => {
                let fate = RequestOutcome::GaveUp { when: self.now };
                self.finished
                    .extend(self.open.take().map(|chapter| RequestHistory { fate, ..chapter }));
            }
            (_, Some(_)) => self.record_change(pool),
            _ => {}
        }
        Ok(())
    }
}

/// The relation of an event to a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventConcern {
    None,
    /// The event may concern the request. It is reported only if it changed the conditions for
    /// which the request waits.
    Indirect,
    /// The event concerns the request's own flows, and is always reported.
    Direct,
}

fn concern(event: &Event, path: &[PathLevel]) -> EventConcern {
    match event {
        Event::Hold { by, flow }
        | Event::Resume { by, flow }
        | Event::Weight { by, flow, .. }
        | Event::Cap { by, flow, .. } => {
            match path.iter().any(|level| level.by == *by && level.flow == *flow) {
                true => EventConcern::Direct,
                false => EventConcern::None,
            }
        }
        Event::Policy(_) => EventConcern::Direct,
        Event::Capacity { .. } | Event::Worker(_) => EventConcern::Indirect,
        _ => EventConcern::None,
    }
}

fn readiness(waiting: &WaitingState) -> (Vec<FlowReadiness>, Option<u64>, bool) {
    let WaitingState { request, full_pool } = waiting;
    let levels = request.levels.iter().map(|level| level.readiness).collect();
    (levels, request.place, full_pool.is_some())
}

fn waiting(pool: &Pool, id: &str) -> Option<Box<WaitingState>> {
    let RequestLocation::Waiting(mut request) = pool.request_location(id)? else { return None };
    let is_blocked = request.levels.iter().any(|level| level.readiness == FlowReadiness::Blocked);
    let full_pool = match is_blocked {
        true => explain_text::full_pool_flights(&pool.snapshot()),
        false => None,
    };
    if full_pool.is_some() {
        explain_text::set_unblocked(&mut request);
    }
    Some(Box::new(WaitingState { request: *request, full_pool }))
}

/// Builds the history of a request that waited or was in flight before the journal's first event.
fn history_of_known_request(
    request: &RequestSnapshot,
    handle: Option<RequestHandle>,
    path: Vec<PathLevel>,
) -> RequestHistory {
    let fate = match request.flight.as_ref().zip(handle) {
        None => RequestOutcome::Waits,
        Some((flight, handle)) => RequestOutcome::Granted(Box::new(GrantedRun {
            when: JournalTime { line: None, at: flight.granted_at, time: None },
            grant: Grant {
                request: handle,
                id: request.id.clone(),
                cost: request.cost,
                waited: Micros(flight.granted_at.0.saturating_sub(request.at.0)),
                brownout: None,
                place: None,
                why: None,
            },
            first_token: None,
            ending: None,
        })),
    };
    RequestHistory {
        submitted: JournalTime { line: None, at: request.at, time: None },
        attributes: Attributes::clone(&request.attributes),
        cost: Some(request.cost),
        priority: request.priority,
        path,
        arrival: None,
        wait_events: Vec::new(),
        unreported: 0,
        fate,
    }
}
