//! One request's story, gathered while its journal is replayed.

mod json;
mod settlement;
mod story;
mod telling;

use std::io::{self, Write};

use fairgate_core::attribute::Attributes;
use fairgate_core::decision::{Decision, Grant, Reject, Sink};
use fairgate_core::event::{Event, Submit};
use fairgate_core::explain::{Readiness, Waiting, Whereabouts};
use fairgate_core::snapshot::RequestSnapshot;
use fairgate_core::units::Micros;
use fairgate_core::{Handle, Pool};

use self::json::StoryJson;
use self::settlement::settle;
use self::story::{Cause, Chapter, Ending, Fate, Flight, Moment, When};
use super::path::{Level, path};
use super::steps::{Listener, Step};

/// How many moments of one wait are told. Finding out costs a copy of the pool each, so no more than
/// [`MOST_LOOKS`] are looked at.
const MOST_MOMENTS: usize = 12;
/// How often in one wait it is found out whether something changed its place.
const MOST_LOOKS: usize = 100;

/// Gathers the story of every request of one id.
#[derive(Debug)]
pub(crate) struct Explain {
    id: Box<str>,
    told: Vec<Chapter>,
    /// The request that waits or is in flight.
    open: Option<Chapter>,
    /// The one that is being submitted.
    arriving: Option<Chapter>,
    looks: usize,
    now: When,
    event: Event,
    timeout: Option<Micros>,
}

impl Explain {
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.into(),
            told: Vec::new(),
            open: None,
            arriving: None,
            looks: 0,
            now: When { line: None, at: Micros(0) },
            event: Event::Tick,
            timeout: None,
        }
    }

    /// The replay is over.
    pub(crate) fn finish(&mut self) {
        self.told.extend(self.open.take());
    }

    /// Whether there was no request of that id.
    pub(crate) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Writes the story in words.
    pub(crate) fn write_words(&self, out: impl Write) -> io::Result<()> {
        telling::write(out, &self.id, &self.told)
    }

    /// Writes the story as one JSON object.
    pub(crate) fn write_json(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, &StoryJson::new(&self.id, &self.told)?)?;
        writeln!(out)
    }

    fn arrive(&mut self, submit: &Submit, pool: &Pool) {
        self.arriving = Some(Chapter {
            submitted: self.now,
            attributes: submit.attributes.clone(),
            cost: submit.cost,
            priority: submit.priority,
            path: path(pool.policy(), &submit.attributes),
            arrival: None,
            moments: Vec::new(),
            untold: 0,
            fate: Fate::Waits,
        });
    }

    fn end_flight(&mut self, pool: &Pool) {
        let (cancelled, tokens) = match &self.event {
            Event::Release { tokens, .. } => (false, *tokens),
            _ => (true, None),
        };
        let Some(mut chapter) = self.open.take() else { return };
        if let Fate::Granted(flight) = &mut chapter.fate {
            let settled = settle(pool, self.now.at, &self.event, &chapter.attributes);
            flight.ending = Some(Ending { when: self.now, cancelled, tokens, settled });
            self.told.push(chapter);
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
            let flight = Flight { when: self.now, grant, first_token: None, ending: None };
            chapter.fate = Fate::Granted(Box::new(flight));
        }
    }

    fn refused(&mut self, reject: Reject) {
        let (chapter, cause) = match (self.arriving.take(), &self.event) {
            (Some(newcomer), _) => (Some(newcomer), Cause::ItsOwn),
            (None, Event::Submit(other)) => (self.open.take(), Cause::Newcomer(other.id.clone())),
            (None, Event::Worker(change)) => (self.open.take(), Cause::Worker(change.name.clone())),
            (None, _) => (self.open.take(), Cause::ItsOwn),
        };
        let fate = Fate::Refused { when: self.now, reject, cause };
        self.told.extend(chapter.map(|chapter| Chapter { fate, ..chapter }));
    }

    fn expired(&mut self) {
        let fate = Fate::Expired { when: self.now, timeout: self.timeout };
        self.told.extend(self.open.take().map(|chapter| Chapter { fate, ..chapter }));
    }

    /// Takes note of what has happened while the request waits.
    fn look(&mut self, pool: &Pool) {
        let Some(chapter) = self.open.as_mut().filter(|c| matches!(c.fate, Fate::Waits)) else {
            return;
        };
        let concern = concern(&self.event, &chapter.path);
        if concern == Concern::None {
            return;
        }
        if self.looks == MOST_LOOKS || chapter.moments.len() == MOST_MOMENTS {
            chapter.untold += 1;
            return;
        }
        self.looks += 1;
        if matches!(self.event, Event::Policy(_)) {
            chapter.path = path(pool.policy(), &chapter.attributes);
        }
        let Some(waiting) = waiting(pool, &self.id) else { return };
        let before = chapter.moments.last().map(|m| &m.waiting).or(chapter.arrival.as_ref());
        let changed = before.is_none_or(|before| readiness(before) != readiness(&waiting));
        if concern == Concern::Direct || changed {
            let event = self.event.clone();
            chapter.moments.push(Moment { when: self.now, event, waiting });
        }
    }
}

impl Sink for Explain {
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

impl Listener for Explain {
    fn start(&mut self, pool: &Pool) {
        let snapshot = pool.snapshot();
        self.timeout = snapshot.queue_timeout;
        let known = snapshot.requests.iter().find(|request| *request.id == *self.id);
        self.open = known.map(|request| {
            let path = path(&snapshot.policy, &request.attributes);
            let arrival = waiting(pool, &self.id);
            Chapter { arrival, ..known_chapter(request, pool.find(&self.id), path) }
        });
    }

    fn before(&mut self, step: Step<'_>, pool: &Pool) {
        self.now = When { line: step.line, at: step.at };
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
                if let Some(Fate::Granted(flight)) = self.open.as_mut().map(|c| &mut c.fate) {
                    flight.first_token.get_or_insert(self.now);
                }
            }
            _ => self.end_flight(pool),
        }
    }

    fn after(&mut self, pool: &Pool) -> anyhow::Result<()> {
        if let Some(newcomer) = self.arriving.take() {
            self.looks = 0;
            let arrival = waiting(pool, &self.id);
            let cost = arrival.as_ref().map(|waiting| waiting.cost);
            self.open = Some(Chapter { arrival, cost, ..newcomer });
            return Ok(());
        }
        match (&self.event, &self.open) {
            (Event::Cancel { id }, Some(_)) if **id == *self.id => {
                let fate = Fate::GaveUp { when: self.now };
                self.told.extend(self.open.take().map(|chapter| Chapter { fate, ..chapter }));
            }
            (_, Some(_)) => self.look(pool),
            _ => {}
        }
        Ok(())
    }
}

/// Whether an event may change a waiting request's place by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Concern {
    None,
    /// It is worth telling where it changed what the request waits for.
    Indirect,
    /// It is about the request's own flows.
    Direct,
}

fn concern(event: &Event, path: &[Level]) -> Concern {
    match event {
        Event::Hold { by, flow }
        | Event::Resume { by, flow }
        | Event::Weight { by, flow, .. }
        | Event::Cap { by, flow, .. } => {
            match path.iter().any(|level| level.by == *by && level.flow == *flow) {
                true => Concern::Direct,
                false => Concern::None,
            }
        }
        Event::Policy(_) => Concern::Direct,
        Event::Capacity { .. } | Event::Worker(_) => Concern::Indirect,
        _ => Concern::None,
    }
}

fn readiness(waiting: &Waiting) -> (Vec<Readiness>, Option<u64>) {
    (waiting.levels.iter().map(|level| level.readiness).collect(), waiting.place)
}

fn waiting(pool: &Pool, id: &str) -> Option<Box<Waiting>> {
    match pool.whereabouts(id)? {
        Whereabouts::Waiting(waiting) => Some(waiting),
        Whereabouts::InFlight { .. } => None,
    }
}

/// What is known of a request that waited or was in flight before the journal's first event.
fn known_chapter(request: &RequestSnapshot, handle: Option<Handle>, path: Vec<Level>) -> Chapter {
    let fate = match request.flight.as_ref().zip(handle) {
        None => Fate::Waits,
        Some((flight, handle)) => Fate::Granted(Box::new(Flight {
            when: When { line: None, at: flight.granted_at },
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
    Chapter {
        submitted: When { line: None, at: request.at },
        attributes: Attributes::clone(&request.attributes),
        cost: Some(request.cost),
        priority: request.priority,
        path,
        arrival: None,
        moments: Vec::new(),
        untold: 0,
        fate,
    }
}
