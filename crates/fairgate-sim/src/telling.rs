//! How an answer reaches its client, and everything that can go wrong on the way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};

use crate::answer::Answer;
use crate::body::{Body, Outbox};
use crate::connection::Fate;
use crate::fault::Fault;
use crate::flight::{Flight, pause_until};
use crate::stats::Outcome;
use crate::text::{scatter, write_word};
use crate::wire::Voice;

const GARBAGE_BYTES: u64 = 4096;
/// An endless answer must not eat a whole core.
const ENDLESS_PER_TOKEN: Duration = Duration::from_millis(1);

/// A flight that has something to tell, and the fault that gets in the way.
pub(crate) struct Telling {
    pub(crate) flight: Flight,
    pub(crate) fate: Arc<Fate>,
    pub(crate) fault: Option<Fault>,
}

impl Telling {
    /// Tells an answer in one piece, as far as the fault allows.
    pub(crate) fn whole(mut self, mut text: String) -> Response<Body> {
        if self.fault == Some(Fault::InvalidJson) {
            text.pop();
        }
        let length = HeaderValue::from(text.len());
        let bytes = Bytes::from(text);
        let kind = self.content_type("application/json");
        let first = match self.fault {
            Some(Fault::Garbage | Fault::SseGarbage) => return self.garbage(kind),
            Some(Fault::HangMid | Fault::ResetMid | Fault::CloseMid) => bytes.len() / 2,
            Some(Fault::CloseAtEnd) => bytes.len().saturating_sub(1),
            Some(Fault::SlowBytes { .. } | Fault::CloseAfter) => bytes.len(),
            Some(Fault::Endless) => return self.endless(kind),
            _ => {
                self.flight.end(Outcome::Finished);
                return response(kind, Body::whole(bytes));
            }
        };
        let body = Body::written(async move |mut outbox: Outbox| {
            outbox.byte_pause = self.byte_pause();
            outbox.send(bytes.slice(..first)).await;
            if first < bytes.len() {
                self.break_off(&mut outbox).await;
            }
            if self.fault == Some(Fault::CloseAfter) {
                self.fate.close_after();
            }
            // Now, with the last byte in the outbox: nobody comes back for more than was promised.
            self.flight.end(Outcome::Finished);
        });
        let mut response = response(kind, body);
        // It promises the whole, whatever comes.
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }

    /// Tells an answer token by token, as far as the fault allows.
    pub(crate) fn stream(self, answer: Arc<Answer>, voice: Box<dyn Voice>) -> Response<Body> {
        let kind = self.content_type("text/event-stream; charset=utf-8");
        if self.fault == Some(Fault::Garbage) {
            return self.garbage(kind);
        }
        let body = Body::written(|outbox| self.speak(outbox, answer, voice));
        let mut response = response(kind, body);
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    async fn speak(mut self, mut outbox: Outbox, answer: Arc<Answer>, mut voice: Box<dyn Voice>) {
        outbox.byte_pause = self.byte_pause();
        let steps = answer.steps();
        let middle = steps / 2;
        let mut events = String::new();
        voice.opening(&answer, &mut events);
        self.send(&mut outbox, &mut events).await;
        self.flight.think(&answer).await;
        let mut pace = self.flight.pace();
        if self.fault == Some(Fault::Endless) {
            pace = pace.at_least(ENDLESS_PER_TOKEN);
        }
        for step in 0..steps {
            if step == middle {
                match self.fault {
                    Some(Fault::HangMid | Fault::ResetMid | Fault::CloseMid) => {
                        self.break_off(&mut outbox).await;
                    }
                    Some(Fault::SseGarbage) => {
                        outbox.send(Bytes::from_static(SSE_GARBAGE)).await;
                        return self.flight.end(Outcome::Broken);
                    }
                    _ => {}
                }
            }
            pause_until(pace.due(step)).await;
            for (choice, _) in answer.choices.iter().enumerate().filter(|(_, c)| step < c.pieces) {
                voice.piece(&answer, choice, step, &mut events);
                self.flight.generated(1);
            }
            self.send(&mut outbox, &mut events).await;
            if self.fault == Some(Fault::Endless) && !self.flight.backend.running() {
                self.fate.close();
            }
        }
        voice.closing(&answer, &mut events);
        if answer.hidden > 0
            && let Some(first) = events.find("\n\n")
        {
            // Who leaves as soon as the model has stopped is gone before the usage comes.
            let rest = events.split_off(first + 2);
            self.send(&mut outbox, &mut events).await;
            pause_until(pace.due(steps)).await;
            events = rest;
        }
        self.send(&mut outbox, &mut events).await;
        match self.fault {
            Some(Fault::CloseAtEnd) => self.break_off(&mut outbox).await,
            Some(Fault::CloseAfter) => self.fate.close_after(),
            _ => {}
        }
        self.flight.end(Outcome::Finished);
    }

    async fn send(&self, outbox: &mut Outbox, events: &mut String) {
        if self.fault == Some(Fault::InvalidJson) {
            *events = events.replace("}\n\n", "\n\n");
        }
        outbox.send(Bytes::from(std::mem::take(events))).await;
    }

    fn byte_pause(&self) -> Option<Duration> {
        match self.fault {
            Some(Fault::SlowBytes { pause }) => Some(pause),
            _ => None,
        }
    }

    fn content_type(&self, right: &'static str) -> HeaderValue {
        HeaderValue::from_static(match self.fault {
            Some(Fault::WrongContentType) => "text/html; charset=utf-8",
            _ => right,
        })
    }

    /// Ends the connection, or goes silent on it, and never returns.
    async fn break_off(&mut self, outbox: &mut Outbox) {
        outbox.flushed().await;
        match self.fault {
            Some(Fault::ResetMid) => {
                self.flight.end(Outcome::Broken);
                self.fate.reset();
            }
            Some(Fault::HangMid) => {
                self.flight.backend.ending().await;
                self.fate.close();
            }
            _ => {
                self.flight.end(Outcome::Broken);
                self.fate.close();
            }
        }
        std::future::pending::<()>().await;
    }

    fn garbage(mut self, kind: HeaderValue) -> Response<Body> {
        self.flight.end(Outcome::Broken);
        // 0xff stands in no UTF-8 text.
        let bytes = (0..GARBAGE_BYTES).map(|at| scatter(at, 0).to_le_bytes()[0] | 0x81);
        response(kind, Body::whole(bytes.chain([0xff]).collect::<Vec<_>>()))
    }

    /// A JSON string without an end.
    fn endless(self, kind: HeaderValue) -> Response<Body> {
        let body = Body::written(async move |mut outbox: Outbox| {
            let mut telling = self;
            let pace = telling.flight.pace().at_least(ENDLESS_PER_TOKEN);
            outbox.send(Bytes::from_static(b"{\"endless\":\"")).await;
            for step in 0..u64::MAX {
                pause_until(pace.due(step)).await;
                let mut word = String::new();
                write_word(&mut word, 0, step);
                telling.flight.generated(1);
                outbox.send(Bytes::from(word)).await;
                if !telling.flight.backend.running() {
                    telling.fate.close();
                }
            }
        });
        response(kind, body)
    }
}

/// Lines that no reader of server-sent events can use: no colon, no data, no JSON, no UTF-8.
const SSE_GARBAGE: &[u8] =
    b"no colon here\ndata\n\nevent: nonsense\ndata: [1,2\n\n\xff\xfe\x00\x01\r\r\n\
    data: not json\nid: \x00\nretry: soon\n\n: only a comment\n\ndata: {\"choices\":7}\n\n\
    data: {\"type\":\"message_delta\",\"usage\":[]}\n\n";

fn response(kind: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
