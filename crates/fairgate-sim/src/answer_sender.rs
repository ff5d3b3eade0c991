//! Sends an answer to the client, with the fault of the request if it has one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairgate_random::number_at;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};

use crate::answer::SimAnswer;
use crate::body::{BodyWriter, SimBody};
use crate::connection::ConnectionControl;
use crate::fault::SimFault;
use crate::in_flight::{SimInFlight, pause_until};
use crate::stats::SimOutcome;
use crate::text::write_word;
use crate::wire::AnswerFormat;

const GARBAGE_BYTES: u64 = 4096;
/// Least time per token of an endless answer, so that generating the answer does not use a whole core.
const ENDLESS_PER_TOKEN: Duration = Duration::from_millis(1);

/// A request whose answer is ready to be sent, and the fault with which to send the answer.
pub(crate) struct AnswerSender {
    pub(crate) flight: SimInFlight,
    pub(crate) fate: Arc<ConnectionControl>,
    pub(crate) fault: Option<SimFault>,
}

impl AnswerSender {
    /// Sends a whole, formatted answer. The request's fault may cut, delay or spoil it.
    pub(crate) fn whole(mut self, mut text: String) -> Response<SimBody> {
        if self.fault == Some(SimFault::InvalidJson) {
            text.pop();
        }
        let length = HeaderValue::from(text.len());
        let bytes = Bytes::from(text);
        let kind = self.content_type("application/json");
        let first = match self.fault {
            Some(SimFault::Garbage | SimFault::SseGarbage) => return self.garbage(kind),
            Some(SimFault::HangMid | SimFault::ResetMid | SimFault::CloseMid) => bytes.len() / 2,
            Some(SimFault::CloseAtEnd) => bytes.len().saturating_sub(1),
            Some(SimFault::SlowBytes { .. } | SimFault::CloseAfter) => bytes.len(),
            Some(SimFault::Endless) => return self.endless(kind),
            _ => {
                self.flight.end(SimOutcome::Finished);
                return response(kind, SimBody::whole(bytes));
            }
        };
        let body = SimBody::written(async move |mut outbox: BodyWriter| {
            outbox.byte_pause = self.byte_pause();
            outbox.send(bytes.slice(..first)).await;
            if first < bytes.len() {
                self.break_off(&mut outbox).await;
            }
            if self.fault == Some(SimFault::CloseAfter) {
                self.fate.close_after();
            }
            // Records the end before the last byte is sent, because hyper does not poll the body
            // beyond its announced length.
            self.flight.end(SimOutcome::Finished);
        });
        let mut response = response(kind, body);
        // The full length is announced even if the fault cuts the body.
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }

    /// Sends an answer as a stream, token by token. The request's fault may cut, delay or spoil it.
    pub(crate) fn stream(
        self,
        answer: Arc<SimAnswer>,
        answer_format: Box<dyn AnswerFormat>,
    ) -> Response<SimBody> {
        let kind = self.content_type("text/event-stream; charset=utf-8");
        if self.fault == Some(SimFault::Garbage) {
            return self.garbage(kind);
        }
        let body = SimBody::written(|outbox| self.stream_tokens(outbox, answer, answer_format));
        let mut response = response(kind, body);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    async fn stream_tokens(
        mut self,
        mut outbox: BodyWriter,
        answer: Arc<SimAnswer>,
        mut answer_format: Box<dyn AnswerFormat>,
    ) {
        outbox.byte_pause = self.byte_pause();
        let steps = answer.steps();
        let middle = steps / 2;
        let mut events = String::new();
        answer_format.opening(&answer, &mut events);
        self.send(&mut outbox, &mut events).await;
        self.flight.generate_hidden(&answer).await;
        let mut pace = self.flight.pace();
        if self.fault == Some(SimFault::Endless) {
            pace = pace.at_least(ENDLESS_PER_TOKEN);
        }
        for step in 0..steps {
            if step == middle {
                match self.fault {
                    Some(SimFault::HangMid | SimFault::ResetMid | SimFault::CloseMid) => {
                        self.break_off(&mut outbox).await;
                    }
                    Some(SimFault::SseGarbage) => {
                        outbox.send(Bytes::from_static(SSE_GARBAGE)).await;
                        return self.flight.end(SimOutcome::Broken);
                    }
                    _ => {}
                }
            }
            pause_until(pace.due(step)).await;
            for (choice, _) in answer.choices.iter().enumerate().filter(|(_, c)| step < c.pieces) {
                answer_format.piece(&answer, choice, step, &mut events);
                self.flight.add_output_tokens(1);
            }
            self.send(&mut outbox, &mut events).await;
            if self.fault == Some(SimFault::Endless) && !self.flight.backend.is_running() {
                self.fate.close();
            }
        }
        answer_format.closing(&answer, &mut events);
        if answer.hidden > 0
            && let Some(first) = events.find("\n\n")
        {
            // A client that leaves at the end of the text must be gone before the usage is sent.
            let rest = events.split_off(first + 2);
            self.send(&mut outbox, &mut events).await;
            pause_until(pace.due(steps)).await;
            events = rest;
        }
        self.send(&mut outbox, &mut events).await;
        match self.fault {
            Some(SimFault::CloseAtEnd) => self.break_off(&mut outbox).await,
            Some(SimFault::CloseAfter) => self.fate.close_after(),
            _ => {}
        }
        self.flight.end(SimOutcome::Finished);
    }

    async fn send(&self, outbox: &mut BodyWriter, events: &mut String) {
        if self.fault == Some(SimFault::InvalidJson) {
            *events = events.replace("}\n\n", "\n\n");
        }
        outbox.send(Bytes::from(std::mem::take(events))).await;
    }

    fn byte_pause(&self) -> Option<Duration> {
        match self.fault {
            Some(SimFault::SlowBytes { pause }) => Some(pause),
            _ => None,
        }
    }

    fn content_type(&self, right: &'static str) -> HeaderValue {
        HeaderValue::from_static(match self.fault {
            Some(SimFault::WrongContentType) => "text/html; charset=utf-8",
            _ => right,
        })
    }

    /// Resets or closes the connection, or sends nothing more on it, as the fault demands. Never
    /// returns.
    async fn break_off(&mut self, outbox: &mut BodyWriter) {
        outbox.wait_flushed().await;
        match self.fault {
            Some(SimFault::ResetMid) => {
                self.flight.end(SimOutcome::Broken);
                self.fate.reset();
            }
            Some(SimFault::HangMid) => {
                self.flight.backend.wait_ending().await;
                self.fate.close();
            }
            _ => {
                self.flight.end(SimOutcome::Broken);
                self.fate.close();
            }
        }
        std::future::pending::<()>().await;
    }

    fn garbage(mut self, kind: HeaderValue) -> Response<SimBody> {
        self.flight.end(SimOutcome::Broken);
        // The byte 0xff does not occur in UTF-8.
        let bytes = (0..GARBAGE_BYTES).map(|at| number_at(at, 0).to_le_bytes()[0] | 0x81);
        response(kind, SimBody::whole(bytes.chain([0xff]).collect::<Vec<_>>()))
    }

    /// Sends a JSON object with one string that never ends, until the client leaves.
    fn endless(self, kind: HeaderValue) -> Response<SimBody> {
        let body = SimBody::written(async move |mut outbox: BodyWriter| {
            let mut telling = self;
            let pace = telling.flight.pace().at_least(ENDLESS_PER_TOKEN);
            outbox.send(Bytes::from_static(b"{\"endless\":\"")).await;
            for step in 0..u64::MAX {
                pause_until(pace.due(step)).await;
                let mut word = String::new();
                write_word(&mut word, 0, step);
                telling.flight.add_output_tokens(1);
                outbox.send(Bytes::from(word)).await;
                if !telling.flight.backend.is_running() {
                    telling.fate.close();
                }
            }
        });
        response(kind, body)
    }
}

/// Lines that a parser of server-sent events cannot use: no colon, no data, no JSON, no UTF-8.
const SSE_GARBAGE: &[u8] =
    b"no colon here\ndata\n\nevent: nonsense\ndata: [1,2\n\n\xff\xfe\x00\x01\r\r\n\
    data: not json\nid: \x00\nretry: soon\n\n: only a comment\n\ndata: {\"choices\":7}\n\n\
    data: {\"type\":\"message_delta\",\"usage\":[]}\n\n";

fn response(kind: HeaderValue, body: SimBody) -> Response<SimBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
