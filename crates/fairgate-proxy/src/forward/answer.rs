//! Forwards an upstream's answer to the client. The answer is metered chunk by chunk, and settled before its last piece
//! is sent.
//!
//! Because of that order, every answer whose end has reached the client has a row, even if the process is killed right
//! after.
//!
//! The last piece is the terminal event of a stream, or the rest of a JSON body. A document of up to 64 KiB is sent
//! whole, so that a document that breaks off becomes a 502 or 504 and not half an answer. Streams pass chunk by chunk.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use fairgate_dialect::{BodyFraming, MeasuredUsage, UsageMeter};
use fairgate_store::AttemptOutcome;
use http::StatusCode;
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep_until};

use super::attempt_charge::UsageBasis;
use super::request_guard::{RequestArrival, RequestEnd, RequestGuard};
use super::unsent_pieces::UnsentPieces;
use crate::forward::row_write::RowWrite;
use crate::refusal::{self, EndCode, Refusal};
use crate::reply::{BrokenReplyError, content_length};
use crate::upstream::{
    FailureCause, FailureKind, FaultParty, StatusClass, UpstreamBody, UpstreamFailure,
};

/// Most bytes of a non-streamed answer that are buffered before anything goes to the client.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of an answer that are buffered for a client that reads slowly.
const AHEAD_BYTES_MAX: usize = 1 << 20;
/// Chunks that have already arrived are joined into pieces of about this size. A larger piece saves
/// work, because each piece costs the meter, the client's connection and the system a fixed amount.
const JOINED_BYTES_MAX: usize = 4 << 10;
/// Most chunks that are joined to one piece, so that one answer does not keep the thread busy for too long.
const JOINED_CHUNKS_MAX: usize = 1 << 10;
/// Maximum number of bytes that are still read when the client leaves after the model's last text.
/// An upstream that reports usage does so within these bytes.
const REST_BYTES_MAX: usize = 64 << 10;

/// The body of an upstream's answer. Usually the request is in flight. It is no longer in flight if a retry found no
/// other worker, and the client therefore gets the answer of an earlier attempt. After the request has ended, further
/// bytes are only forwarded, and no longer metered.
pub(super) struct UpstreamAnswer {
    guard: Box<RequestGuard>,
    /// Name of the upstream; `-` for the answer of an earlier attempt.
    worker: Arc<str>,
    body: UpstreamBody,
    status: StatusCode,
    class: StatusClass,
    framing: BodyFraming,
    /// Bytes of the upstream's body that are still to come, if the upstream announced a length.
    bytes_to_come: Option<u64>,
    /// Set if the end of the body was reached while chunks were joined. The next poll returns it,
    /// after the joined piece.
    after_joined: Option<BodyEnd>,
    /// Pieces that may go to the client now, in order.
    out: UnsentPieces,
    /// Write of the request's row, once begun. It must finish before the end of the answer is sent to the client.
    recording: Option<RowWrite>,
    /// The last pieces, which go to the client once the row is written.
    end: Vec<Bytes>,
    flow: AnswerState,
    /// True once the status and headers have been sent to the client.
    head_sent: bool,
    /// Number of bytes that may still be read after the client has left.
    rest: usize,
    clock: AnswerTimeouts,
}

/// The way in which an upstream's body ended.
enum BodyEnd {
    Proper,
    Failed(FailureKind),
}

/// The state of the upstream's body.
enum AnswerState {
    /// More bytes are expected.
    Flowing,
    /// The body has ended; nothing more comes.
    Over,
    /// The body broke off, and the client gets this refusal or a closed connection.
    Broken(Box<Refusal>),
}

/// Time limits for reading an answer.
#[derive(Clone, Copy)]
pub(super) struct AnswerDeadlines {
    pub(super) idle: Duration,
    pub(super) total: Instant,
}

impl UpstreamAnswer {
    pub(super) fn new(
        mut guard: Box<RequestGuard>,
        status: StatusCode,
        body: UpstreamBody,
        framing: BodyFraming,
        hide_usage: bool,
        deadlines: AnswerDeadlines,
    ) -> Self {
        let to_come = body.length();
        let class = StatusClass::of(status.as_u16());
        let worker = match guard.in_flight() {
            Some(mut in_flight) => {
                if class == StatusClass::Success {
                    let (route, input) =
                        (in_flight.arrival().route, in_flight.terms.expected.input);
                    let meter = UsageMeter::new(route, framing, hide_usage, input);
                    in_flight.flight.meter = Some(meter);
                }
                in_flight.flight.worker.upstream.name.clone()
            }
            None => "-".into(),
        };
        let mut made = Self {
            guard,
            worker,
            body,
            status,
            class,
            framing,
            bytes_to_come: to_come,
            after_joined: None,
            out: UnsentPieces::default(),
            recording: None,
            end: Vec::new(),
            flow: AnswerState::Flowing,
            head_sent: false,
            rest: REST_BYTES_MAX,
            clock: AnswerTimeouts { deadlines, waits_since: None, sleep: None },
        };
        if made.bytes_to_come == Some(0) {
            made.finish();
        }
        made
    }

    /// Returns true if the request has ended.
    fn is_settled(&self) -> bool {
        self.guard.has_ended()
    }

    /// Marks the status and headers as sent to the client.
    pub(super) fn with_head_sent(mut self) -> Self {
        self.head_sent = true;
        self
    }

    /// Ends an answer that reached its total timeout while no client read it. Returns the write of
    /// its row if the request had not ended before.
    pub(super) fn end_as_timed_out(&mut self) -> Option<RowWrite> {
        if !self.is_settled() {
            self.fail(FailureKind::TotalTimeout);
        }
        self.body.close_connection();
        self.recording.take()
    }

    /// Ends an answer whose client has not read the available pieces in time, as if the client had
    /// disconnected. Returns the write of its row if the request had not ended before.
    pub(super) fn end_as_client_left(&mut self) -> Option<RowWrite> {
        if !self.is_settled() {
            let refusal = self.refusal(FailureKind::IdleTimeout);
            self.recording = Some(self.guard.end_as_client_left(UsageBasis::SoFar));
            self.out.clear();
            self.end.clear();
            self.flow = AnswerState::Broken(Box::new(refusal));
            self.body.close_connection();
        }
        self.recording.take()
    }

    /// Reads ahead for a client that reads slowly. Ready when [`AHEAD_BYTES_MAX`] are buffered or
    /// the body has ended.
    pub(super) fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, AHEAD_BYTES_MAX)
    }

    /// Returns true if the model's last text has arrived and only the report of the usage is missing.
    pub(super) fn is_missing_usage_only(&mut self) -> bool {
        let in_flight = self.guard.in_flight();
        in_flight.is_some_and(|one| one.flight.meter.as_ref().is_some_and(UsageMeter::has_finished))
    }

    /// Reads on after the client has left. Ready when the answer has ended, or when no report of
    /// usage can follow.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Buffered pieces have no reader any more.
        self.out.clear();
        loop {
            if self.is_settled() || self.rest == 0 || !matches!(self.flow, AnswerState::Flowing) {
                return Poll::Ready(());
            }
            let polled = self.poll_until(cx, 1);
            self.rest = self.rest.saturating_sub(self.out.clear());
            ready!(polled);
        }
    }

    /// Ends the request of a client that left after the last text, before the usage was reported; at least the expected
    /// tokens are charged. Returns the write of the request's row.
    pub(super) fn end_without_usage(&mut self) -> Option<RowWrite> {
        if !self.is_settled() {
            self.recording = Some(self.guard.end_as_client_left(UsageBasis::Expected));
        }
        self.body.close_connection();
        self.recording.take()
    }

    /// Reads until there is a piece for the client, or until nothing more comes.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, 0)
    }

    /// Reads a whole document, or its first [`WHOLE_BYTES_MAX`]. If it breaks off before that, the client gets a proper
    /// error.
    pub(super) fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_until(cx, WHOLE_BYTES_MAX)
    }

    fn poll_until(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<()> {
        loop {
            if !self.out.is_empty() && self.out.bytes() >= bytes {
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
            // The end of a document may be known before all announced bytes have come.
            if self.is_settled() && !self.end.is_empty() {
                self.out.extend(self.end.drain(..));
                continue;
            }
            if !matches!(self.flow, AnswerState::Flowing) {
                return Poll::Ready(());
            }
            match self.poll_joined(cx) {
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
                    // After the end of the answer, only the close of the connection is missing.
                    _ if self.is_settled() => self.flow = AnswerState::Over,
                    late => self.fail(late),
                },
            }
        }
    }

    /// Polls for the next bytes of the body. Small chunks that have already arrived are joined to one piece.
    fn poll_joined(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FailureKind>>> {
        match self.after_joined.take() {
            Some(BodyEnd::Proper) => return Poll::Ready(None),
            Some(BodyEnd::Failed(kind)) => return Poll::Ready(Some(Err(kind))),
            None => {}
        }
        let first = match ready!(self.body.poll_chunk(cx)) {
            Some(Ok(chunk)) if chunk.len() < JOINED_BYTES_MAX => chunk,
            polled => return Poll::Ready(polled),
        };
        let mut joined = BytesMut::new();
        for _ in 1..JOINED_CHUNKS_MAX {
            match self.body.poll_chunk(cx) {
                Poll::Ready(Some(Ok(chunk))) => {
                    if joined.is_empty() {
                        joined.reserve(JOINED_BYTES_MAX);
                        joined.extend_from_slice(&first);
                    }
                    joined.extend_from_slice(&chunk);
                    if joined.len() >= JOINED_BYTES_MAX {
                        break;
                    }
                }
                Poll::Ready(Some(Err(kind))) => {
                    self.after_joined = Some(BodyEnd::Failed(kind));
                    break;
                }
                Poll::Ready(None) => {
                    self.after_joined = Some(BodyEnd::Proper);
                    break;
                }
                Poll::Pending => break,
            }
        }
        let piece = if joined.is_empty() { first } else { joined.freeze() };
        Poll::Ready(Some(Ok(piece)))
    }

    /// Returns the whole body if it is complete, else the answer unchanged. Fails if the body broke off before anything
    /// was sent.
    pub(super) fn into_whole(mut self) -> Result<Result<Bytes, Self>, Box<Refusal>> {
        match self.flow {
            AnswerState::Broken(refusal) if self.out.is_empty() => Err(refusal),
            AnswerState::Over => Ok(Ok(self.out.take_joined())),
            _ => Ok(Err(self)),
        }
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenReplyError>>> {
        ready!(self.poll_fill(cx));
        if let Some(piece) = self.out.pop() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match self.flow {
            AnswerState::Broken(_) => {
                self.flow = AnswerState::Over;
                Poll::Ready(Some(Err(BrokenReplyError)))
            }
            _ => Poll::Ready(None),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.flow, AnswerState::Over)
            && self.out.is_empty()
            && self.recording.is_none()
            && self.end.is_empty()
    }

    fn take(&mut self, chunk: Bytes) {
        if let Some(to_come) = &mut self.bytes_to_come {
            *to_come = to_come.saturating_sub(content_length(chunk.len()));
        }
        if self.is_settled() {
            self.out.push(chunk);
        } else {
            self.meter(chunk);
        }
        if self.bytes_to_come == Some(0) {
            self.finish();
        }
    }

    /// Measures a chunk, and splits it into pieces that may go to the client now and pieces that wait for the row.
    fn meter(&mut self, chunk: Bytes) {
        let Some(mut in_flight) = self.guard.in_flight() else { return self.pass_error(chunk) };
        let Some(meter) = &mut in_flight.flight.meter else {
            in_flight.note_first_token();
            return self.pass_error(chunk);
        };
        let passed = meter.pass(chunk);
        // A document is complete when all announced bytes have come, a stream when it says so.
        let may_end =
            self.framing == BodyFraming::Sse || matches!(self.bytes_to_come, None | Some(0));
        let measured = (passed.terminal && may_end).then(|| meter.measured());
        if passed.first_token {
            in_flight.note_first_token();
        }
        in_flight.flight.note_output(passed.output_events);
        if measured.is_none() && self.bytes_to_come != Some(0) {
            in_flight.note_used(passed.first_token);
        }
        self.out.extend(passed.forward);
        self.end.extend(passed.end);
        if let Some(measured) = measured {
            self.settle(measured);
        }
    }

    /// Passes on a piece of an error answer unchanged; the last piece waits for the row.
    fn pass_error(&mut self, chunk: Bytes) {
        match self.bytes_to_come == Some(0) {
            true => self.end.push(chunk),
            false => self.out.push(chunk),
        }
    }

    /// Ends the request with the outcome and usage that the answer's last event reports.
    fn settle(&mut self, measured: MeasuredUsage) {
        let (outcome, code) = match measured.complete {
            true => (AttemptOutcome::Completed, None),
            false => (AttemptOutcome::UpstreamError, Some(EndCode::UpstreamFailed)),
        };
        self.close(self.status, outcome, code, UsageBasis::Measured(measured));
    }

    /// Ends the request when the upstream's body has ended, or breaks the answer off if it is incomplete.
    fn finish(&mut self) {
        self.flow = AnswerState::Over;
        if self.is_settled() {
            return;
        }
        let Some(mut in_flight) = self.guard.in_flight() else { return self.end_with_error() };
        let Some(meter) = &mut in_flight.flight.meter else {
            if matches!(self.class, StatusClass::ClientError | StatusClass::Busy) {
                in_flight.praise_worker();
            }
            return self.end_with_error();
        };
        let (rest, measured) = meter.finish();
        self.end.extend(rest);
        if measured.complete || self.framing == BodyFraming::Opaque {
            self.close(
                self.status,
                AttemptOutcome::Completed,
                None,
                UsageBasis::Measured(measured),
            );
        } else {
            self.break_off(FailureKind::Incomplete, UsageBasis::Measured(measured));
        }
    }

    /// Ends the request after an error answer, which was passed on unchanged.
    fn end_with_error(&mut self) {
        let code = Some(EndCode::UpstreamStatus);
        self.close(self.status, AttemptOutcome::UpstreamError, code, UsageBasis::SoFar);
    }

    fn fail(&mut self, kind: FailureKind) {
        if self.is_settled() {
            // The answer was complete whatever the upstream does after its end, unless announced bytes are missing.
            self.flow = match self.bytes_to_come {
                Some(1..) => AnswerState::Broken(Box::new(self.refusal(kind))),
                _ => AnswerState::Over,
            };
            return;
        }
        self.break_off(kind, UsageBasis::SoFar);
    }

    /// Ends an incomplete answer. A stream ends with an error event. Any other answer becomes an error response if its
    /// headers have not been sent yet; else its connection is closed.
    fn break_off(&mut self, kind: FailureKind, used: UsageBasis) {
        // The worker of an earlier attempt was judged when that attempt ended.
        if let Some(mut in_flight) = self.guard.in_flight() {
            match kind.is_lost() {
                true => in_flight.report_lost(),
                false => in_flight.blame(FaultParty::Unknown),
            }
            in_flight.flight.worker.upstream.log_failure(FailureCause::Failed(kind));
        }
        let refusal = self.refusal(kind);
        let status = if self.head_sent { self.status } else { refusal.problem.status };
        self.close(status, refusal.outcome, Some(refusal.code.into()), used);
        if self.framing == BodyFraming::Sse && self.class == StatusClass::Success {
            self.end.push(self.event(&refusal));
            self.flow = AnswerState::Over;
            return;
        }
        if !self.head_sent {
            self.out.clear();
            self.end.clear();
        }
        self.flow = AnswerState::Broken(Box::new(refusal));
    }

    /// Ends an answer whose row could not be written, so that its last pieces must not be sent. A stream ends with an
    /// error event. Any other answer becomes an error response if its headers have not been sent yet; else its
    /// connection is closed.
    fn withhold_end(&mut self) {
        let refusal = refusal::rows_not_writable();
        self.end.clear();
        self.body.close_connection();
        if self.framing == BodyFraming::Sse && self.class == StatusClass::Success {
            self.out.push(self.event(&refusal));
            self.flow = AnswerState::Over;
            return;
        }
        if !self.head_sent {
            self.out.clear();
        }
        self.flow = AnswerState::Broken(Box::new(refusal));
    }

    /// Returns the error event that ends a broken stream.
    fn event(&self, refusal: &Refusal) -> Bytes {
        let RequestArrival { route, id, .. } = &self.guard.arrival;
        refusal.problem.event(*route, id)
    }

    fn refusal(&self, kind: FailureKind) -> Refusal {
        Refusal::from(&UpstreamFailure { kind, worker: self.worker.clone() })
    }

    fn close(
        &mut self,
        status: StatusCode,
        outcome: AttemptOutcome,
        code: Option<EndCode>,
        used: UsageBasis,
    ) {
        let end = RequestEnd { status: status.as_u16(), outcome, code, used };
        self.recording = Some(self.guard.end(&end));
    }
}

/// Timer for the idle and the total timeout. Polled only while the gateway waits for the upstream, because a slow
/// client is not the upstream's fault.
struct AnswerTimeouts {
    deadlines: AnswerDeadlines,
    waits_since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl AnswerTimeouts {
    fn moved(&mut self) {
        self.waits_since = None;
    }

    /// Returns true if the total time is used up.
    fn is_over(&self) -> bool {
        self.deadlines.total <= Instant::now()
    }

    /// Waits until the idle or the total timeout has passed, and returns the kind of the one that did.
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
            // The timer was set for an earlier wait.
            sleep.as_mut().reset(due);
        }
    }
}
