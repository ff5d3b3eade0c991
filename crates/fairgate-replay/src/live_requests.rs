//! Maps ids to requests. Each request gets an index of its own, because an id may be used again after its request has
//! ended.

use std::collections::HashMap;
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;

/// Index of a request among all submits of a journal; the requests in the initial pool come first.
pub(crate) type ReplayRequestIndex = usize;

/// The requests that wait or are in flight, by id, kept up to date during a replay.
#[derive(Debug, Default)]
pub(crate) struct LiveRequests {
    live: HashMap<Arc<str>, LiveRequest>,
    arriving: Option<(Arc<str>, LiveRequest)>,
    leaving: Option<Arc<str>>,
    count: ReplayRequestIndex,
}

/// A request that waits or is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveRequest {
    pub(crate) number: ReplayRequestIndex,
    pub(crate) granted: Option<Micros>,
}

impl LiveRequests {
    /// Creates the map from the requests that are in the pool when the replay starts.
    pub(crate) fn of(pool: &Pool) -> Self {
        let requests = pool.snapshot().requests;
        let count = requests.len();
        let live = requests.into_iter().enumerate().map(|(number, request)| {
            let granted = request.flight.map(|flight| flight.granted_at);
            (request.id, LiveRequest { number, granted })
        });
        Self { live: live.collect(), arriving: None, leaving: None, count }
    }

    /// Returns the request that waits or is in flight under this id; `None` if there is none.
    pub(crate) fn get(&self, id: &str) -> Option<LiveRequest> {
        self.live.get(id).copied()
    }

    /// Updates the map before an event is applied to the pool. If the event releases or cancels a request in flight,
    /// returns that request; otherwise returns `None`.
    pub(crate) fn before(&mut self, event: &Event) -> Option<ReplayRequestIndex> {
        match event {
            Event::Submit(submit) => {
                let live = LiveRequest { number: self.count, granted: None };
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

    /// Updates the map for a decision of the pool. Returns the request that the decision is about; `None` if it is
    /// unknown.
    pub(crate) fn decided(
        &mut self,
        at: Micros,
        decision: &Decision,
    ) -> Option<ReplayRequestIndex> {
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
                let newcomer = |(id, _): &mut (Arc<str>, LiveRequest)| *id == reject.id;
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

    /// Updates the map after an event was applied to the pool. If the event was the cancel of a queued request, returns
    /// that request; otherwise returns `None`.
    pub(crate) fn after(&mut self) -> Option<ReplayRequestIndex> {
        if let Some((id, live)) = self.arriving.take() {
            self.live.insert(id, live);
        }
        let left = self.leaving.take()?;
        self.remove(&left)
    }

    fn remove(&mut self, id: &str) -> Option<ReplayRequestIndex> {
        self.live.remove(id).map(|live| live.number)
    }
}
