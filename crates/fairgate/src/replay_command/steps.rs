//! The loop of every replay, and what listens to it.

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, Sink};
use fairgate_core::event::Event;
use fairgate_core::units::Micros;

use super::journal::{Entry, Journal};

/// One event on its way into a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    /// The line of the journal it stands on; none where no line says it.
    pub(crate) line: Option<u64>,
    pub(crate) at: Micros,
    pub(crate) event: &'a Event,
}

/// Hears what a replay does while it does it: the pool it starts from, each event before it is applied, the decisions it leads to (as a
/// [`Sink`]), and then that it is over.
pub(crate) trait Listener: Sink {
    /// The replay begins with this pool, which may not be empty.
    fn start(&mut self, _pool: &Pool) {}

    /// An event is about to be applied to the pool.
    fn before(&mut self, _step: Step<'_>, _pool: &Pool) {}

    /// The event has been applied. An error ends the replay.
    fn after(&mut self, _pool: &Pool) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Applies one event to a pool, with the listener told.
pub(crate) fn apply(
    pool: &mut Pool,
    (line, at, event): (Option<u64>, Micros, Event),
    listener: &mut impl Listener,
) -> anyhow::Result<()> {
    listener.before(Step { line, at, event: &event }, pool);
    pool.apply(at, event, listener)?;
    listener.after(pool)
}

/// Replays a journal to its end; the pool is then as the last event left it.
pub(crate) fn replay(
    pool: &mut Pool,
    journal: &mut Journal,
    listener: &mut impl Listener,
) -> anyhow::Result<()> {
    listener.start(pool);
    while let Some(Entry { line, at, event }) = journal.next_entry()? {
        apply(pool, (Some(line), at, event), listener)?;
    }
    Ok(())
}

/// Two listeners at once.
#[derive(Debug)]
pub(crate) struct Both<'a, A, B>(pub(crate) &'a mut A, pub(crate) &'a mut B);

impl<A: Sink, B: Sink> Sink for Both<'_, A, B> {
    fn decided(&mut self, decision: Decision) {
        self.0.decided(decision.clone());
        self.1.decided(decision);
    }

    fn wants_why(&self, id: &str) -> bool {
        self.0.wants_why(id) || self.1.wants_why(id)
    }
}

impl<A: Listener, B: Listener> Listener for Both<'_, A, B> {
    fn start(&mut self, pool: &Pool) {
        self.0.start(pool);
        self.1.start(pool);
    }

    fn before(&mut self, step: Step<'_>, pool: &Pool) {
        self.0.before(step, pool);
        self.1.before(step, pool);
    }

    fn after(&mut self, pool: &Pool) -> anyhow::Result<()> {
        self.0.after(pool)?;
        self.1.after(pool)
    }
}

/// A listener that takes no notice.
#[derive(Debug)]
pub(crate) struct Silent;

impl Sink for Silent {
    fn decided(&mut self, _decision: Decision) {}
}

impl Listener for Silent {}
