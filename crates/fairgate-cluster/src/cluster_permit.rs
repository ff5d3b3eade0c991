//! A granted slot of the cluster, which is given back exactly once.

use std::fmt;
use std::time::Duration;

use fairgate_core::decision::{Grant, GrantedPlace};
use fairgate_replica::FlightEnd;
use tokio::sync::{mpsc, oneshot};

use crate::member_message::{GrantedSlot, MemberCommand, RequestName};

/// A slot of a pool of the cluster. It is given back exactly once: by [`settle`](Self::settle), or when it is dropped.
/// A dropped permit is charged the request's cost, because the request may have run.
#[must_use = "a permit that is dropped gives its slot back"]
pub struct ClusterPermit {
    commands: mpsc::UnboundedSender<MemberCommand>,
    name: RequestName,
    grant: Grant,
    cut: oneshot::Receiver<()>,
    first_token_seen: bool,
    is_over: bool,
}

impl ClusterPermit {
    pub(crate) fn new(
        commands: mpsc::UnboundedSender<MemberCommand>,
        name: RequestName,
        granted: GrantedSlot,
    ) -> Self {
        let GrantedSlot { grant, cut } = granted;
        Self { commands, name, grant, cut, first_token_seen: false, is_over: false }
    }

    /// Returns the id of the request.
    pub fn id(&self) -> &str {
        &self.name.1
    }

    /// Returns the worker and rank that the request goes to; `None` if the pool has no workers.
    pub fn place(&self) -> Option<&GrantedPlace> {
        self.grant.place.as_ref()
    }

    /// Returns the time that the request was queued, in the cluster's time.
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.grant.waited.0)
    }

    /// Reports the first token. Only the first call has an effect.
    pub fn first_token(&mut self) {
        if !std::mem::replace(&mut self.first_token_seen, true) {
            // The send fails if the task has ended: then nobody is left to tell.
            let _ = self.commands.send(MemberCommand::FirstToken(self.name.clone()));
        }
    }

    /// Waits until the request must be cut off, because its slot is about to be given to another one: this process has
    /// not reached the others for long. Never returns if that does not happen. Close the connection to the worker then,
    /// and drop the permit.
    pub async fn must_stop(&mut self) {
        if (&mut self.cut).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Ends the request with what it used.
    pub fn settle(mut self, end: FlightEnd) {
        self.end(end);
    }

    fn end(&mut self, end: FlightEnd) {
        if !std::mem::replace(&mut self.is_over, true) {
            let _ = self.commands.send(MemberCommand::Release(self.name.clone(), end));
        }
    }
}

impl Drop for ClusterPermit {
    fn drop(&mut self) {
        self.end(FlightEnd::default());
    }
}

impl fmt::Debug for ClusterPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterPermit")
            .field("name", &self.name)
            .field("grant", &self.grant)
            .finish_non_exhaustive()
    }
}
