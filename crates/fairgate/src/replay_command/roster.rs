//! Which request an id means: ids may be used again, so each request gets a number.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;

/// A request's place among all submits of a journal, after what its pool started with.
pub(crate) type Number = usize;

/// What waits and what is in flight, by id. It follows a replay from event to event.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    live: HashMap<Arc<str>, Live>,
    arriving: Option<(Arc<str>, Live)>,
    leaving: Option<Arc<str>>,
    count: Number,
}

/// A request that waits or is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) number: Number,
    pub(crate) granted: Option<Micros>,
}

impl Roster {
    /// What waits and what is in flight in a pool at its start.
    pub(crate) fn of(pool: &Pool) -> Self {
        let requests = pool.snapshot().requests;
        let count = requests.len();
        let live = requests.into_iter().enumerate().map(|(number, request)| {
            let granted = request.flight.map(|flight| flight.granted_at);
            (request.id, Live { number, granted })
        });
        Self { live: live.collect(), arriving: None, leaving: None, count }
    }

    /// The request that an id means now.
    pub(crate) fn get(&self, id: &str) -> Option<Live> {
        self.live.get(id).copied()
    }

    /// An event is about to be applied. Gives back whose flight it ends.
    pub(crate) fn before(&mut self, event: &Event) -> Option<Number> {
        match event {
            Event::Submit(submit) => {
                let live = Live { number: self.count, granted: None };
                self.arriving = Some((submit.id.clone(), live));
                self.count += 1;
                None
            }
            Event::Release { id, .. } | Event::Cancel { id } => {
                let live = self.get(id)?;
                if live.granted.is_some() {
                    self.live.remove(id);
                    return Some(live.number);
                }
                if matches!(event, Event::Cancel { .. }) {
                    self.leaving = Some(id.clone());
                }
                None
            }
            _ => None,
        }
    }

    /// A decision was made. Gives back whom it is about.
    pub(crate) fn decided(&mut self, at: Micros, decision: &Decision) -> Option<Number> {
        match decision {
            Decision::Grant(grant) => {
                let arriving = self.arriving.as_mut().filter(|(id, _)| *id == grant.id);
                let live = match arriving {
                    Some((_, live)) => live,
                    None => self.live.get_mut(&grant.id)?,
                };
                live.granted = Some(at);
                Some(live.number)
            }
            Decision::Reject(reject) => {
                let newcomer = |(id, _): &mut (Arc<str>, Live)| *id == reject.id;
                match self.arriving.take_if(newcomer) {
                    Some((_, live)) => Some(live.number),
                    None => self.remove(&reject.id),
                }
            }
            Decision::Expire { id, .. } => {
                self.leaving.take_if(|leaving| leaving == id);
                self.remove(id)
            }
        }
    }

    /// The event has been applied. Gives back who left its queue by it.
    pub(crate) fn after(&mut self) -> Option<Number> {
        if let Some((id, live)) = self.arriving.take() {
            self.live.insert(id, live);
        }
        let left = self.leaving.take()?;
        self.remove(&left)
    }

    fn remove(&mut self, id: &str) -> Option<Number> {
        self.live.remove(id).map(|live| live.number)
    }
}
