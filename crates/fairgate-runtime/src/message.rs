//! Messages to the pool's task.

use fairgate_core::event::{Event, Submit};
use fairgate_core::units::Micros;
use tokio::time::Instant;

use crate::handoff::HandoffSender;
use crate::pool_task::PoolTask;
use crate::submitted_request::{AdmissionAnswer, PermitEnd, SubmittedRequest};

/// Closure that the task runs on its state. The second argument is the pool's time when it runs.
pub(crate) type PoolOperation = Box<dyn FnOnce(&mut PoolTask, Micros) + Send>;

/// Message to the pool's task.
pub(crate) enum PoolMessage {
    /// Submits a request for a slot.
    Submit { name: SubmittedRequest, submit: Box<Submit>, giver: HandoffSender<AdmissionAnswer> },
    /// Reports that the caller left before the request got its answer.
    Abandoned(SubmittedRequest),
    /// Reports that a permit has ended.
    Ended { name: SubmittedRequest, end: PermitEnd },
    /// Reports the first token of a permit's request.
    FirstToken(SubmittedRequest),
    /// Runs a closure on the task's state, for an operator or an observer.
    Run(PoolOperation),
    /// Reports the result of writing the state file.
    Saved(Result<(), String>),
    /// Closes the gate once nothing is in flight, or at `until`, whichever is first; `None` sets no such time.
    Drain { until: Option<Instant> },
}

impl PoolMessage {
    /// Returns true if the sender of the message took one of the turns that limit the unread
    /// messages.
    pub(crate) fn has_turn(&self) -> bool {
        matches!(self, Self::Submit { .. } | Self::Run(_))
    }
}

impl PoolTask {
    /// Handles one message. [`PoolMessage::Drain`] only begins the drain; the task's loop decides
    /// when the drain is complete.
    pub(crate) fn handle(&mut self, at: Micros, message: PoolMessage) {
        match message {
            PoolMessage::Submit { name, submit, giver } => self.submit(at, name, submit, giver),
            PoolMessage::Abandoned(name) => self.leave(at, &name),
            PoolMessage::Ended { name, end } => self.end(at, &name, end),
            PoolMessage::FirstToken(name) => {
                if self.find(&name).is_some() {
                    self.apply(at, Event::FirstToken { id: name.id });
                }
            }
            PoolMessage::Run(work) => work(self, at),
            PoolMessage::Saved(saved) => self.note_saved(saved),
            PoolMessage::Drain { .. } => self.begin_drain(at),
        }
    }
}
