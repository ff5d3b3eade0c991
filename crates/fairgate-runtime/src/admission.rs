//! A request between its submit and its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fairgate_core::event::Submit;

use crate::handoff::{Left, Taker, handoff};
use crate::mailbox::{Ended, Mailbox};
use crate::message::{Answer, Message, Name, Ticket};
use crate::permit::Permit;
use crate::refused::{Closed, Refused};

/// A submitted request that waits for its answer, as a future. Dropped before it is ready it takes the request back:
/// a waiting one is cancelled; a granted one, whose owner never had it, is released with 0 tokens, since nobody
/// should be charged for what never ran.
pub(crate) struct Admission {
    mailbox: Arc<Mailbox<Message>>,
    name: Name,
    taker: Option<Taker<Answer>>,
}

impl Admission {
    /// Submits a request.
    pub(crate) fn submit(
        mailbox: &Arc<Mailbox<Message>>,
        submit: Submit,
        ticket: Ticket,
    ) -> Result<Self, Refused> {
        let name = Name { id: submit.id.clone(), ticket, request: None };
        let (giver, taker) = handoff();
        let message = Message::Submit { name: name.clone(), submit: Box::new(submit), giver };
        if mailbox.send(message).is_err() {
            return Err(refused(mailbox));
        }
        Ok(Self { mailbox: mailbox.clone(), name, taker: Some(taker) })
    }
}

/// How a gate whose task has ended refuses.
pub(crate) fn refused<M>(mailbox: &Mailbox<M>) -> Refused {
    match closed(mailbox) {
        Closed::Drained => Refused::Draining,
        Closed::Gone => Refused::Gone,
    }
}

/// How a task that does not answer has ended.
pub(crate) fn closed<M>(mailbox: &Mailbox<M>) -> Closed {
    match mailbox.ended() {
        Some(Ended::Drained) => Closed::Drained,
        Some(Ended::Died) | None => Closed::Gone,
    }
}

impl Future for Admission {
    type Output = Result<Permit, Refused>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(taker) = &mut self.taker else { return Poll::Ready(Err(Refused::Gone)) };
        let Poll::Ready(answer) = Pin::new(taker).poll(cx) else { return Poll::Pending };
        self.taker = None;
        Poll::Ready(match answer {
            Some(Ok(grant)) => {
                let name = Name { request: Some(grant.request), ..self.name.clone() };
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
            Left::Early | Left::With(Ok(_)) => {
                let _ = self.mailbox.send(Message::Left(self.name.clone()));
            }
            Left::With(Err(_)) | Left::Late => {}
        }
    }
}
