//! Combines all statements about a worker into one state for its pool.
//!
//! Three sources make statements about a worker: the configuration and operators (state, slots,
//! rates), providers that temporarily accept no requests (pauses), and each member (whether the
//! worker answers it). A worker is down if **more than half of the live members** say so. While it
//! is down, it is first paused for the longest `wait` that these members stated when it went down.
//! After that it is `overloaded`, so that new requests that only this worker could serve are
//! refused. A worker that is paused for several reasons is paused until the last pause ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::event::{WorkerChange, WorkerState};
use serde::{Deserialize, Serialize};

use crate::units::{ClusterMicros, MemberNumber};

/// The workers of one pool, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct WorkerTable {
    by_name: BTreeMap<Arc<str>, WorkerStanding>,
}

/// The state of one worker, with the statements from which it is computed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerStanding {
    /// State that the configuration or an operator stated, without the opinions of members.
    #[serde(with = "worker_state")]
    stated: WorkerState,
    /// Time until which the worker's provider accepts no requests.
    paused_until: ClusterMicros,
    opinions: BTreeMap<MemberNumber, WorkerOpinion>,
    /// Time until which requests wait for the worker; `None` while it is not down.
    down_until: Option<ClusterMicros>,
    /// True if the worker will be removed when it has no more requests in flight.
    leaving: bool,
    /// Number of requests in flight on the worker.
    flights: u64,
    /// The last state that was passed to the pool.
    #[serde(with = "worker_state")]
    given_state: WorkerState,
    given_pause: ClusterMicros,
}

/// A member's opinion on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerOpinion {
    pub(crate) up: bool,
    pub(crate) wait: ClusterMicros,
}

impl WorkerStanding {
    fn new() -> Self {
        Self {
            stated: WorkerState::Up,
            paused_until: ClusterMicros(0),
            opinions: BTreeMap::new(),
            down_until: None,
            leaving: false,
            flights: 0,
            given_state: WorkerState::Up,
            given_pause: ClusterMicros(0),
        }
    }

    /// Computes whether the worker is down. `live` is the number of live members.
    fn count_opinions(&mut self, live: usize, now: ClusterMicros) {
        let down = || self.opinions.values().filter(|opinion| !opinion.up);
        if down().count() * 2 <= live {
            self.down_until = None;
            return;
        }
        let wait = down().map(|opinion| opinion.wait).max().unwrap_or_default();
        self.down_until.get_or_insert(now.after(wait));
    }

    fn state(&self, now: ClusterMicros) -> WorkerState {
        match self.down_until {
            _ if self.leaving => WorkerState::Drain,
            Some(until) if until <= now && self.stated == WorkerState::Up => {
                WorkerState::Overloaded
            }
            _ => self.stated,
        }
    }

    fn pause(&self, now: ClusterMicros) -> ClusterMicros {
        let until = self.down_until.unwrap_or_default().max(self.paused_until);
        if until > now { until } else { ClusterMicros(0) }
    }

    /// Returns the change that the pool must apply; `None` if the pool is up to date.
    fn change(&mut self, name: &Arc<str>, now: ClusterMicros) -> Option<WorkerChange> {
        let (state, pause) = (self.state(now), self.pause(now));
        // The pool ends a pause without an event.
        let given_pause = if self.given_pause > now { self.given_pause } else { ClusterMicros(0) };
        if (state, pause) == (self.given_state, given_pause) {
            return None;
        }
        (self.given_state, self.given_pause) = (state, pause);
        Some(WorkerChange {
            name: (&**name).into(),
            state: Some(state),
            pause_until: Some(pause.into()),
            ..WorkerChange::default()
        })
    }
}

impl WorkerTable {
    /// Adds or changes a worker of the configuration, and returns the change for the pool. A worker
    /// that was about to be removed is kept.
    pub(crate) fn add(&mut self, change: WorkerChange, now: ClusterMicros) -> Option<WorkerChange> {
        if let Some(standing) = self.by_name.get_mut(&*change.name) {
            standing.leaving = false;
        }
        self.state(change, None, now)
    }

    /// Applies a change that a line states, and returns the change for the pool. Changes of a
    /// worker that is about to be removed are ignored.
    pub(crate) fn state(
        &mut self,
        mut change: WorkerChange,
        pause_for: Option<ClusterMicros>,
        now: ClusterMicros,
    ) -> Option<WorkerChange> {
        let name: Arc<str> = (&*change.name).into();
        if change.state == Some(WorkerState::Gone) {
            return self.remove(&name, now);
        }
        let standing = self.by_name.entry(name).or_insert_with(WorkerStanding::new);
        if standing.leaving {
            return None;
        }
        standing.stated = change.state.unwrap_or(standing.stated);
        match pause_for {
            Some(ClusterMicros(0)) => standing.paused_until = ClusterMicros(0),
            Some(span) => standing.paused_until = standing.paused_until.max(now.after(span)),
            None => {}
        }
        let (state, pause) = (standing.state(now), standing.pause(now));
        (standing.given_state, standing.given_pause) = (state, pause);
        change.state = Some(state);
        change.pause_until = Some(pause.into());
        Some(change)
    }

    /// Removes a worker, at once if it has no requests in flight. Otherwise it gets no new
    /// requests, and is removed when the last one ends.
    pub(crate) fn remove(&mut self, name: &Arc<str>, now: ClusterMicros) -> Option<WorkerChange> {
        let standing = self.by_name.get_mut(name)?;
        standing.leaving = true;
        match standing.flights {
            0 => self.gone(name),
            _ => standing.change(name, now),
        }
    }

    fn gone(&mut self, name: &Arc<str>) -> Option<WorkerChange> {
        self.by_name.remove(name)?;
        let state = Some(WorkerState::Gone);
        Some(WorkerChange { name: (&**name).into(), state, ..WorkerChange::default() })
    }

    /// Counts a request that was granted on a worker.
    pub(crate) fn begin_flight(&mut self, name: &Arc<str>) {
        if let Some(standing) = self.by_name.get_mut(name) {
            standing.flights += 1;
        }
    }

    /// Counts the end of a request on a worker. Returns the change for the pool if this removes the
    /// worker.
    pub(crate) fn end_flight(&mut self, name: &Arc<str>) -> Option<WorkerChange> {
        let standing = self.by_name.get_mut(name)?;
        standing.flights = standing.flights.saturating_sub(1);
        match standing.leaving && standing.flights == 0 {
            true => self.gone(name),
            false => None,
        }
    }

    /// Records a member's opinion. It is ignored if the pool does not have the worker.
    pub(crate) fn note_opinion(&mut self, member: MemberNumber, name: &str, is: WorkerOpinion) {
        if let Some(standing) = self.by_name.get_mut(name) {
            standing.opinions.insert(member, is);
        }
    }

    /// Drops the opinions of a member that has ended.
    pub(crate) fn forget_member(&mut self, member: MemberNumber) {
        self.by_name.values_mut().for_each(|standing| {
            standing.opinions.remove(&member);
        });
    }

    /// Returns the changes for the pool that result from time, opinions and the number of live
    /// members.
    pub(crate) fn changes(&mut self, live: usize, now: ClusterMicros) -> Vec<WorkerChange> {
        let changed = self.by_name.iter_mut().filter_map(|(name, standing)| {
            standing.count_opinions(live, now);
            standing.change(name, now)
        });
        changed.collect()
    }

    /// Returns the next time after `now` at which a worker changes only because time has passed;
    /// `None` if there is none.
    pub(crate) fn next_change(&self, now: ClusterMicros) -> Option<ClusterMicros> {
        let timers = self.by_name.values().filter_map(|standing| standing.down_until);
        timers.filter(|until| *until > now).min()
    }

    /// Returns the number of requests in flight on each worker.
    pub(crate) fn flights(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.by_name.iter().map(|(name, standing)| (name, standing.flights))
    }
}

/// The text form of a worker's state, which is its name in journals.
mod worker_state {
    use fairgate_core::event::WorkerState;
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn serialize<S: Serializer>(
        state: &WorkerState,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(state.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<WorkerState, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        WorkerState::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom("not a state of a worker"))
    }
}

#[cfg(test)]
mod tests {
    use fairgate_core::units::Micros;

    use super::*;

    const NOW: ClusterMicros = ClusterMicros::seconds(100);
    const DOWN: WorkerOpinion = WorkerOpinion { up: false, wait: ClusterMicros::seconds(10) };

    fn table() -> WorkerTable {
        let mut table = WorkerTable::default();
        let worker = WorkerChange { name: "w".into(), ..WorkerChange::default() };
        assert!(table.state(worker, None, NOW).is_some());
        table
    }

    fn given(changes: &[WorkerChange]) -> Option<(WorkerState, u64)> {
        let change = changes.first()?;
        Some((change.state.unwrap(), change.pause_until.unwrap_or(Micros(0)).0))
    }

    #[test]
    fn a_worker_is_down_when_more_than_half_say_so() {
        let mut table = table();
        table.note_opinion(MemberNumber(1), "w", DOWN);
        table.note_opinion(MemberNumber(9), "stranger", DOWN);
        assert_eq!(given(&table.changes(2, NOW)), None, "one of two");
        table.note_opinion(MemberNumber(2), "w", DOWN);
        let until = NOW.after(DOWN.wait);
        assert_eq!(given(&table.changes(3, NOW)), Some((WorkerState::Up, until.0)));
        assert_eq!(table.next_change(NOW), Some(until));
        assert_eq!(given(&table.changes(3, until)), Some((WorkerState::Overloaded, 0)));
        table.forget_member(MemberNumber(2));
        assert_eq!(given(&table.changes(2, until)), Some((WorkerState::Up, 0)));
    }

    #[test]
    fn a_worker_rests_until_the_last_pause_ends() {
        let mut table = table();
        let pause = |seconds| Some(ClusterMicros::seconds(seconds));
        let worker = || WorkerChange { name: "w".into(), ..WorkerChange::default() };
        let mut state = |pause| table.state(worker(), pause, NOW).unwrap().pause_until.unwrap().0;
        assert_eq!(state(pause(30)), NOW.0 + 30_000_000);
        assert_eq!(state(pause(5)), NOW.0 + 30_000_000);
        assert_eq!(state(None), NOW.0 + 30_000_000);
        assert_eq!(state(pause(0)), 0);
    }

    #[test]
    fn a_worker_goes_when_nothing_is_in_flight_on_it() {
        let mut table = table();
        let name: Arc<str> = "w".into();
        table.begin_flight(&name);
        let change = table.remove(&name, NOW).unwrap();
        assert_eq!(change.state, Some(WorkerState::Drain));
        assert_eq!(table.end_flight(&name).unwrap().state, Some(WorkerState::Gone));
        assert_eq!(table.flights().count(), 0);
    }
}
