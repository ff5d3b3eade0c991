//! An upstream's answer on its way to the client: chunk by chunk through the meter, settled before its last piece.
//!
//! That order is what makes the ledger whole: whoever has seen the end of an answer has a row, even if the process is
//! killed in the very next moment.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use fairgate_dialect::{Framing, Measured, Meter};
use fairgate_store::Outcome;
use http::StatusCode;
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::bill::Used;
use super::passage::{Arrival, End, Passage};
use crate::recording::Recording;
use crate::refusal::{self, Refusal};
use crate::reply::{BrokenOff, length};
use crate::upstream::{Blame, Cause, Failure, FailureKind, LaneBody, StatusClass};

/// How much of an answer in one piece is held back until all of it is there, in bytes.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// How much of an answer may wait for a client that reads slowly, in bytes.
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// How much is read of an answer whose client left after its last text: usage comes within it, or not at all.
const REST_BYTES_MAX: usize = 64 << 10;

/// The body of an answer. Mostly its request is in flight. Where a retry found no other worker, this is the answer of an
/// earlier attempt, and the request is in flight no more. Once the request has ended, what comes only passes through.
pub(super) struct Answer {
    passage: Box<Passage>,
    /// The name of its upstream; `-` for an earlier attempt's answer.
    worker: Arc<str>,
    body: LaneBody,
    status: StatusCode,
    class: StatusClass,
    framing: Framing,
    /// How many bytes of the upstream's body are to come, where it said.
    to_come: Option<u64>,
    /// What may go to the client now, in order.
    out: VecDeque<Bytes>,
    /// The row, which must be written before the end goes to the client.
    recording: Option<Recording>,
    /// The end, which goes to the client once the row is written.
    end: Vec<Bytes>,
    flow: Flow,
    /// Whether the client has been given the head.
    head_given: bool,
    /// How many bytes are still read for a client that has left.
    rest: usize,
    clock: Clock,
}

/// Where an answer is.
enum Flow {
    /// More is to come.
    Flowing,
    /// Nothing more comes.
    Over,
    /// It broke off, and the client must see that.
    Broken(Box<Refusal>),
}

/// What an answer must keep to.
#[derive(Clone, Copy)]
pub(super) struct Deadlines {
    pub(super) idle: Duration,
    pub(super) total: Instant,
}

impl Answer {
    pub(super) fn new(
        mut passage: Box<Passage>,
        status: StatusCode,
        body: LaneBody,
        framing: Framing,
        hide_usage: bool,
        deadlines: Deadlines,
    ) -> Self {
        let to_come = body.length();
        let class = StatusClass::of(status.as_u16());
        let worker = match passage.in_flight() {
            Some(mut in_flight) => {
                if class == StatusClass::Success {
                    let (route, input) =
                        (in_flight.arrival().route, in_flight.terms.expected.input);
                    let meter = Meter::new(route, framing, hide_usage, input);
                    in_flight.flight.meter = Some(meter);
                }
                in_flight.flight.worker.upstream.name.clone()
            }
            None => "-".into(),
        };
        let mut made = Self {
            passage,
            worker,
            body,
            status,
            class,
            framing,
            to_come,
            out: VecDeque::new(),
            recording: None,
            end: Vec::new(),
            flow: Flow::Flowing,
            head_given: false,
            rest: REST_BYTES_MAX,
            clock: Clock { deadlines, waits_since: None, sleep: None },
        };
        if made.to_come == Some(0) {
            made.finish();
        }
        made
    }

    /// Whether the request has ended.
    fn is_settled(&self) -> bool {
        self.passage.has_ended()
    }

    /// From now on the client knows the status.
    pub(super) fn head_given(mut self) -> Self {
        self.head_given = true;
        self
    }

    /// Its time is up, and nobody reads it. The row, where it had not ended.
    pub(super) fn give_up(&mut self) -> Option<Recording> {
        if !self.is_settled() {
            self.fail(FailureKind::TotalTimeout);
        }
        self.body.hang_up();
        self.recording.take()
    }

    /// There is something for its client, who has not come for it in time and is taken for gone. The row, where the answer
    /// had not ended.
    pub(super) fn leave(&mut self) -> Option<Recording> {
        if !self.is_settled() {
            let refusal = self.refusal(FailureKind::IdleTimeout);
            self.recording = Some(self.passage.leave(Used::SoFar));
            self.out.clear();
            self.end.clear();
            self.flow = Flow::Broken(Box::new(refusal));
            self.body.hang_up();
        }
        self.recording.take()
    }

    /// Reads on for a client that does not come for what is there: ready when as much is held for it as may be, or nothing
    /// more comes.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, AHEAD_BYTES_MAX)
    }

    /// Whether the model has said its last word, and only what it used is to come.
    pub(super) fn lacks_usage_only(&mut self) -> bool {
        let in_flight = self.passage.in_flight();
        in_flight.is_some_and(|one| one.flight.meter.as_ref().is_some_and(Meter::has_finished))
    }

    /// Reads on for nobody: ready when the answer has ended, or will not tell what it used.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Whatever was there for it, nobody comes for it any more.
        self.out.clear();
        loop {
            if self.is_settled() || self.rest == 0 || !matches!(self.flow, Flow::Flowing) {
                return Poll::Ready(());
            }
            let polled = self.poll_until(cx, 1);
            let read = self.out.drain(..).map(|piece| piece.len()).sum::<usize>();
            self.rest = self.rest.saturating_sub(read);
            ready!(polled);
        }
    }

    /// Its client has left, after its last text. The row.
    pub(super) fn left_at_the_end(&mut self) -> Option<Recording> {
        if !self.is_settled() {
            self.recording = Some(self.passage.leave(Used::Expected));
        }
        self.body.hang_up();
        self.recording.take()
    }

    /// Gets something to give to the client: ready when there is, or when nothing more comes.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, 0)
    }

    /// Gets all of a document, or as much of it as is held back: what breaks off before that is told as what it is.
    pub(super) fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, WHOLE_BYTES_MAX)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        loop {
            if !self.out.is_empty() && self.out.iter().map(Bytes::len).sum::<usize>() >= bytes {
                return Poll::Ready(());
            }
            if let Some(recording) = &mut self.recording {
                let recorded = ready!(Pin::new(recording).poll(cx));
                self.recording = None;
                if recorded.is_err() {
                    self.withhold_end();
                    continue;
                }
            }
            // The end of a document may be there before all that was announced.
            if self.is_settled() && !self.end.is_empty() {
                self.out.extend(self.end.drain(..));
                continue;
            }
            if !matches!(self.flow, Flow::Flowing) {
                return Poll::Ready(());
            }
            match self.body.poll_chunk(cx) {
                Poll::Ready(Some(Ok(_))) if !self.is_settled() && self.clock.is_over() => {
                    self.fail(FailureKind::TotalTimeout);
                }
                Poll::Ready(Some(Ok(chunk))) => {
                    self.clock.moved();
                    self.take(chunk);
                }
                Poll::Ready(Some(Err(kind))) => self.fail(kind),
                Poll::Ready(None) => self.finish(),
                Poll::Pending => match ready!(self.clock.poll_late(cx)) {
                    // After its end only the connection is waited for.
                    _ if self.is_settled() => self.flow = Flow::Over,
                    late => self.fail(late),
                },
            }
        }
    }

    /// All of it, where it is all there; else it stays as it is. Fails where it broke before anything was given out.
    pub(super) fn into_whole(mut self) -> Result<Result<Bytes, Self>, Box<Refusal>> {
        match self.flow {
            Flow::Broken(refusal) if self.out.is_empty() => Err(refusal),
            Flow::Over if self.out.len() <= 1 => Ok(Ok(self.out.pop_front().unwrap_or_default())),
            Flow::Over => Ok(Ok(self.out.iter().flatten().copied().collect())),
            _ => Ok(Err(self)),
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        ready!(self.poll_fill(cx));
        if let Some(piece) = self.out.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match self.flow {
            Flow::Broken(_) => {
                self.flow = Flow::Over;
                Poll::Ready(Some(Err(BrokenOff)))
            }
            _ => Poll::Ready(None),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.flow, Flow::Over)
            && self.out.is_empty()
            && self.recording.is_none()
            && self.end.is_empty()
    }

    fn take(&mut self, chunk: Bytes) {
        if let Some(to_come) = &mut self.to_come {
            *to_come = to_come.saturating_sub(length(chunk.len()));
        }
        if self.is_settled() {
            self.out.push_back(chunk);
        } else {
            self.meter(chunk);
        }
        if self.to_come == Some(0) {
            self.finish();
        }
    }

    /// Measures a chunk, and sorts it into what may go to the client now and what only with the end.
    fn meter(&mut self, chunk: Bytes) {
        let Some(mut in_flight) = self.passage.in_flight() else { return self.pass_error(chunk) };
        let Some(meter) = &mut in_flight.flight.meter else {
            in_flight.first_token();
            return self.pass_error(chunk);
        };
        let passed = meter.pass(chunk);
        // A document is whole when all that was announced is there, a stream when it says so.
        let may_end = self.framing == Framing::Sse || matches!(self.to_come, None | Some(0));
        let measured = (passed.terminal && may_end).then(|| meter.measured());
        if passed.first_token {
            in_flight.first_token();
        }
        if measured.is_none() && self.to_come != Some(0) {
            in_flight.note_used(passed.first_token);
        }
        self.out.extend(passed.forward);
        self.end.extend(passed.end);
        if let Some(measured) = measured {
            self.settle(measured);
        }
    }

    /// A piece of an error, which goes through as it is; the last one with the end.
    fn pass_error(&mut self, chunk: Bytes) {
        match self.to_come == Some(0) {
            true => self.end.push(chunk),
            false => self.out.push_back(chunk),
        }
    }

    /// The answer has come to its end, as its own words say.
    fn settle(&mut self, measured: Measured) {
        let (outcome, code) = match measured.complete {
            true => (Outcome::Completed, None),
            false => (Outcome::UpstreamError, Some("upstream_failed")),
        };
        self.close(self.status, outcome, code, Used::Measured(measured));
    }

    /// The upstream's body has ended.
    fn finish(&mut self) {
        self.flow = Flow::Over;
        if self.is_settled() {
            return;
        }
        let Some(mut in_flight) = self.passage.in_flight() else { return self.end_with_error() };
        let Some(meter) = &mut in_flight.flight.meter else {
            if matches!(self.class, StatusClass::ClientError | StatusClass::Busy) {
                in_flight.praise_worker();
            }
            return self.end_with_error();
        };
        let (rest, measured) = meter.finish();
        self.end.extend(rest);
        if measured.complete || self.framing == Framing::Opaque {
            self.close(self.status, Outcome::Completed, None, Used::Measured(measured));
        } else {
            self.break_off(FailureKind::Incomplete, Used::Measured(measured));
        }
    }

    /// Answered with an error, which went through as it is.
    fn end_with_error(&mut self) {
        let code = Some("upstream_status");
        self.close(self.status, Outcome::UpstreamError, code, Used::SoFar);
    }

    fn fail(&mut self, kind: FailureKind) {
        if self.is_settled() {
            // Whatever the upstream does after its answer's end, the answer was whole, unless its length was announced.
            self.flow = match self.to_come {
                Some(1..) => Flow::Broken(Box::new(self.refusal(kind))),
                _ => Flow::Over,
            };
            return;
        }
        self.break_off(kind, Used::SoFar);
    }

    /// The answer ends where it should not: a stream with an event that says so, anything else with its connection, or
    /// with an error of its own where the client has seen nothing yet.
    fn break_off(&mut self, kind: FailureKind, used: Used) {
        // An earlier attempt's worker was judged when that attempt ended.
        if let Some(mut in_flight) = self.passage.in_flight() {
            match kind {
                FailureKind::Reset | FailureKind::Incomplete => in_flight.lost(),
                _ => in_flight.blame(Blame::Unknown),
            }
            in_flight.flight.worker.upstream.complain(Cause::Failed(kind));
        }
        let refusal = self.refusal(kind);
        let status = if self.head_given { self.status } else { refusal.problem.status };
        self.close(status, refusal.outcome, Some(refusal.problem.code), used);
        if self.framing == Framing::Sse && self.class == StatusClass::Success {
            self.end.push(self.event(&refusal));
            self.flow = Flow::Over;
            return;
        }
        if !self.head_given {
            self.out.clear();
            self.end.clear();
        }
        self.flow = Flow::Broken(Box::new(refusal));
    }

    /// Its row could not be kept, so nobody may see it end: a stream ends with an event that says so, anything else with its
    /// connection, or with an error of its own where the client has seen nothing yet.
    fn withhold_end(&mut self) {
        let refusal = refusal::unrecorded();
        self.end.clear();
        self.body.hang_up();
        if self.framing == Framing::Sse && self.class == StatusClass::Success {
            self.out.push_back(self.event(&refusal));
            self.flow = Flow::Over;
            return;
        }
        if !self.head_given {
            self.out.clear();
        }
        self.flow = Flow::Broken(Box::new(refusal));
    }

    /// What a stream ends with that breaks off.
    fn event(&self, refusal: &Refusal) -> Bytes {
        let Arrival { route, id, .. } = &self.passage.arrival;
        refusal.problem.event(*route, id)
    }

    fn refusal(&self, kind: FailureKind) -> Refusal {
        Refusal::from(&Failure { kind, worker: self.worker.clone() })
    }

    fn close(
        &mut self,
        status: StatusCode,
        outcome: Outcome,
        code: Option<&'static str>,
        used: Used,
    ) {
        let end = End { status: status.as_u16(), outcome, code, used };
        self.recording = Some(self.passage.end(&end));
    }
}

/// Runs only while the upstream is waited for: a client that reads slowly is not the upstream's fault.
struct Clock {
    deadlines: Deadlines,
    waits_since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Clock {
    fn moved(&mut self) {
        self.waits_since = None;
    }

    /// Whether all its time is used.
    fn is_over(&self) -> bool {
        self.deadlines.total <= Instant::now()
    }

    /// Ready when something is late.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<FailureKind> {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        let (due, late) = match since + self.deadlines.idle {
            idle if idle < self.deadlines.total => (idle, FailureKind::IdleTimeout),
            _ => (self.deadlines.total, FailureKind::TotalTimeout),
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= due {
                return Poll::Ready(late);
            }
            // It was set for an earlier wait.
            sleep.as_mut().reset(due);
        }
    }
}
