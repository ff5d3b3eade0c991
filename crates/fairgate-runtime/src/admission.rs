//! A submitted request, until its answer has arrived.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fairgate_core::event::Submit;

use crate::admit_error::{AdmitError, GateClosedError};
use crate::handoff::{HandoffLeft, HandoffReceiver, handoff};
use crate::mailbox::{TaskEnd, TaskMailbox};
use crate::message::PoolMessage;
use crate::permit::Permit;
use crate::submitted_request::{AdmissionAnswer, AdmissionTicket, SubmittedRequest};

/// A future that waits for the answer to a submitted request. If it is dropped before it is ready,
/// the request is withdrawn: a queued request is cancelled, and a granted one is released with 0
/// tokens. The caller of the granted request never received the grant, and a request that never ran
/// is not charged.
pub(crate) struct Admission {
    mailbox: Arc<TaskMailbox<PoolMessage>>,
    name: SubmittedRequest,
    taker: Option<HandoffReceiver<AdmissionAnswer>>,
}

impl Admission {
    /// Submits a request. The request is refused at once if the gate's task has ended.
    pub(crate) fn submit(
        mailbox: &Arc<TaskMailbox<PoolMessage>>,
        submit: Submit,
        ticket: AdmissionTicket,
    ) -> Result<Self, AdmitError> {
        let name = SubmittedRequest { id: submit.id.clone(), ticket, request: None };
        let (giver, taker) = handoff();
        let message = PoolMessage::Submit { name: name.clone(), submit: Box::new(submit), giver };
        if mailbox.send(message).is_err() {
            return Err(refused(mailbox));
        }
        Ok(Self { mailbox: mailbox.clone(), name, taker: Some(taker) })
    }
}

/// Returns the refusal for a request to a gate whose task has ended.
pub(crate) fn refused<M>(mailbox: &TaskMailbox<M>) -> AdmitError {
    match closed(mailbox) {
        GateClosedError::Drained => AdmitError::Draining,
        GateClosedError::Gone => AdmitError::Gone,
    }
}

/// Returns the error for a call to a gate whose task has ended.
pub(crate) fn closed<M>(mailbox: &TaskMailbox<M>) -> GateClosedError {
    match mailbox.ended() {
        Some(TaskEnd::Drained) => GateClosedError::Drained,
        Some(TaskEnd::Died) | None => GateClosedError::Gone,
    }
}

impl Future for Admission {
    type Output = Result<Permit, AdmitError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(taker) = &mut self.taker else { return Poll::Ready(Err(AdmitError::Gone)) };
        let Poll::Ready(answer) = Pin::new(taker).poll(cx) else { return Poll::Pending };
        self.taker = None;
        Poll::Ready(match answer {
            Some(Ok(grant)) => {
                let name = SubmittedRequest { request: Some(grant.request), ..self.name.clone() };
                Ok(Permit::new(self.mailbox.clone(), name, grant))
            }
            Some(Err(refused)) => Err(refused),
            None => Err(refused(&self.mailbox)),
        })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let Some(taker) = self.taker.take() else { return };
        match taker.leave() {
            HandoffLeft::BeforeValue | HandoffLeft::WithValue(Ok(_)) => {
                let _ = self.mailbox.send(PoolMessage::Abandoned(self.name.clone()));
            }
            HandoffLeft::WithValue(Err(_)) | HandoffLeft::AfterEnd => {}
        }
    }
}
