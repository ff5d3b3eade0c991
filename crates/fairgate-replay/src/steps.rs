//! The loop that every replay runs, and the listeners that observe it.

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::JournalClock;

use super::journal::{ReplayEntry, ReplayJournal};
use crate::error::ReplayError;

/// An event that is about to be applied.
#[derive(Clone, Copy, Debug)]
pub struct ReplayStep<'a> {
    /// Number of the journal's line with the event; `None` for an event that is not in the journal.
    pub line: Option<u64>,
    /// Time of the event, on the journal's clock.
    pub at: Micros,
    /// The event to be applied.
    pub event: &'a Event,
}

/// Observes a replay: the pool it starts from, each event before it is applied, the resulting decisions (as a
/// [`DecisionSink`]), and the pool after the event.
pub trait ReplayListener: DecisionSink {
    /// Called once before everything else, with the relation of the journal's times to the time of day; `None` if the
    /// journal states none.
    fn opened(&mut self, _clock: Option<JournalClock>) {}

    /// Called once with the pool at the start, which may not be empty.
    fn start(&mut self, _pool: &Pool) {}

    /// Called before an event is applied to the pool.
    fn before(&mut self, _step: ReplayStep<'_>, _pool: &Pool) {}

    /// Called after the event was applied. An error ends the replay.
    fn after(&mut self, _pool: &Pool) -> Result<(), ReplayError> {
        Ok(())
    }
}

/// Applies one event to a pool and calls the listener.
pub(crate) fn apply(
    pool: &mut Pool,
    (line, at, event): (Option<u64>, Micros, Event),
    listener: &mut impl ReplayListener,
) -> Result<(), ReplayError> {
    listener.before(ReplayStep { line, at, event: &event }, pool);
    pool.apply(at, event, listener)?;
    listener.after(pool)
}

/// Applies all events of a journal to the pool, which is then in the state after the last event.
pub fn replay(
    pool: &mut Pool,
    journal: &mut ReplayJournal,
    listener: &mut impl ReplayListener,
) -> Result<(), ReplayError> {
    listener.opened(journal.clock());
    listener.start(pool);
    while let Some(ReplayEntry { line, at, event }) = journal.next_entry()? {
        apply(pool, (Some(line), at, event), listener)?;
    }
    Ok(())
}

/// Calls two listeners in turn.
#[derive(Debug)]
pub(crate) struct BothListeners<'a, A, B>(pub(crate) &'a mut A, pub(crate) &'a mut B);

impl<A: DecisionSink, B: DecisionSink> DecisionSink for BothListeners<'_, A, B> {
    fn decided(&mut self, decision: Decision) {
        self.0.decided(decision.clone());
        self.1.decided(decision);
    }

    fn wants_why(&self, id: &str) -> bool {
        self.0.wants_why(id) || self.1.wants_why(id)
    }
}

impl<A: ReplayListener, B: ReplayListener> ReplayListener for BothListeners<'_, A, B> {
    fn opened(&mut self, clock: Option<JournalClock>) {
        self.0.opened(clock);
        self.1.opened(clock);
    }

    fn start(&mut self, pool: &Pool) {
        self.0.start(pool);
        self.1.start(pool);
    }

    fn before(&mut self, step: ReplayStep<'_>, pool: &Pool) {
        self.0.before(step, pool);
        self.1.before(step, pool);
    }

    fn after(&mut self, pool: &Pool) -> Result<(), ReplayError> {
        self.0.after(pool)?;
        self.1.after(pool)
    }
}

/// A listener that ignores everything.
#[derive(Debug)]
pub struct SilentListener;

impl DecisionSink for SilentListener {
    fn decided(&mut self, _decision: Decision) {}
}

impl ReplayListener for SilentListener {}
