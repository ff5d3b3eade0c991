//! Meters an answer that is a stream of events. Events are read as they pass. If the usage event must be hidden, each
//! event is held back until the event is whole, because a usage event can be recognised only at its end.

use std::ops::Range;

use bytes::Bytes;

use super::answer_shape::AnswerShape;
use super::document::{AnswerDocument, AnswerEventKind, ChoicesState, DocumentFindings};
use super::event_lines::{SseItem, SseLines};
use super::tally::UsageTally;
use super::{MeasuredUsage, MeteredChunk, TokenUsage};

/// Size in bytes of the longest event that is held back. A longer event is not a usage event.
const HELD_BYTES_MAX: usize = 1 << 20;

/// The data that ends a stream of OpenAI's API.
const DONE: &[u8] = b"[DONE]";

/// The meter of one stream.
pub(super) struct StreamMeter {
    lines: SseLines,
    event: StreamEvent,
    hold: Option<HeldEvent>,
    tally: UsageTally,
    /// Number of bytes of all data lines so far, which limits the output that a report may plausibly state.
    data_bytes: u64,
    has_text: bool,
    /// Number of events with text so far.
    text_events: u32,
    /// True if the reason why the model stopped has passed, so that only the usage and the end can follow.
    finished: bool,
    ended: bool,
    failed: bool,
}

/// The part of a stream that is held back.
#[derive(Default)]
struct HeldEvent {
    /// The bytes of the current event from earlier chunks.
    held: Vec<u8>,
    /// True if the current event became too long to be held back.
    overrun: bool,
    /// True if the previous event was hidden.
    hidden: bool,
}

/// The event that is being read.
struct StreamEvent {
    document: AnswerDocument,
    head: [u8; DONE.len()],
    data_bytes: u64,
    /// True if a data line has ended, so that the next data line of the event is joined to it by a line feed.
    line_over: bool,
    begun: bool,
    meaning: Option<StreamEventMeaning>,
    /// Offset of the first data within the event; `None` before the first data line.
    data_at: Option<usize>,
    /// True if the data has several lines.
    lines: bool,
}

/// Meaning of a stream's event: the end of the stream, or a document with these findings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamEventMeaning {
    Done,
    Document(DocumentFindings),
}

/// The cuts to make in one chunk, and the bytes to send before the chunk.
#[derive(Default)]
struct ChunkCuts {
    /// Ranges of the chunk that the client does not get.
    hidden: Vec<Range<usize>>,
    /// Offset in the chunk at which the event that ends the answer begins; `None` if the chunk has no such event.
    end_from: Option<usize>,
    /// Bytes that were held back and are now sent, because their event ended with this chunk.
    released: Vec<u8>,
    /// True if a part was cut out of the middle of an event.
    trimmed: bool,
}

impl StreamMeter {
    pub(super) fn new(shape: AnswerShape, hide_usage: bool, tally: UsageTally) -> Self {
        let hides = hide_usage && shape.route.usage_on_demand();
        Self {
            lines: SseLines::new(),
            event: StreamEvent::new(shape),
            hold: hides.then(HeldEvent::default),
            tally,
            data_bytes: 0,
            has_text: false,
            text_events: 0,
            finished: false,
            ended: false,
            failed: false,
        }
    }

    pub(super) fn pass(&mut self, chunk: &Bytes) -> MeteredChunk {
        let mut passed = MeteredChunk::default();
        if self.ended {
            passed.forward.push(chunk.clone());
            return passed;
        }
        let mut cuts = ChunkCuts::default();
        let mut begin = self.late_line_feed(chunk, &mut cuts);
        let mut rest = &chunk[..];
        let (spoke, events_before) = (self.has_text, self.text_events);
        while let Some(piece) = self.lines.next(&mut rest) {
            let at = chunk.len() - rest.len();
            match piece {
                SseItem::Data(data) => {
                    let held = self.hold.as_ref().map_or(0, |hold| hold.held.len());
                    self.event.data_at.get_or_insert(held + at - data.len() - begin);
                    self.data(data);
                }
                SseItem::DataEnd => {
                    self.event.line_over = true;
                    self.classify_event(false);
                }
                SseItem::Blank => self.classify_event(true),
            }
            if self.ended {
                cuts.end_from = Some(begin);
                break;
            }
            if piece == SseItem::Blank {
                self.end_event(begin..at, &mut cuts);
                begin = at;
            }
        }
        passed.first_token = self.has_text && !spoke;
        passed.output_events = self.text_events.wrapping_sub(events_before);
        passed.terminal = self.ended;
        self.event.begun |= begin < chunk.len();
        self.place(chunk, begin, cuts, &mut passed);
        passed
    }

    pub(super) fn has_finished(&self) -> bool {
        self.finished || self.ended
    }

    pub(super) fn so_far(&self) -> TokenUsage {
        self.tally.so_far(self.unjudged_text())
    }

    pub(super) fn reports_cached(&self) -> bool {
        self.tally.reports_cached()
    }

    pub(super) fn measured(&self) -> MeasuredUsage {
        self.tally.measured(self.unjudged_text(), self.ended && !self.failed)
    }

    pub(super) fn item_ids(&self) -> &[Box<str>] {
        self.event.document.item_ids()
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.event.document.id()
    }

    /// Ends the stream. A last event without the final empty line counts too, because clients accept such events.
    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        self.classify_event(true);
        let hidden = self.event.is_usage_only();
        self.event.begin();
        let held =
            self.hold.take().map(|hold| hold.held).filter(|held| !held.is_empty() && !hidden);
        held.map(Bytes::from).into_iter().collect()
    }

    /// Handles an LF at the start of the chunk that is the second half of the previous event's last CRLF. The LF is
    /// hidden if that event was hidden. Returns the offset at which the rest of the chunk begins.
    fn late_line_feed(&self, chunk: &Bytes, cuts: &mut ChunkCuts) -> usize {
        let late = self.lines.owes_lf() && !self.event.begun && chunk.first() == Some(&b'\n');
        if late && self.hold.as_ref().is_some_and(|hold| hold.hidden) {
            cuts.hidden.push(0..1);
        }
        usize::from(late)
    }

    fn data(&mut self, data: &[u8]) {
        self.data_bytes += data.len() as u64;
        self.event.data(data);
    }

    /// Classifies the event as soon as possible and adds its findings to the totals. The caller does this at the end of
    /// each data line, and again at the end of the event, then with `whole` set to true.
    fn classify_event(&mut self, whole: bool) {
        let Some(verdict) = self.event.classify(whole) else { return };
        match verdict {
            StreamEventMeaning::Done => self.ended = true,
            StreamEventMeaning::Document(found) => {
                self.tally.add(found, self.data_bytes);
                self.has_text |= found.text_bytes > 0;
                self.text_events = self.text_events.wrapping_add(u32::from(found.text_bytes > 0));
                self.finished |= found.finished;
                self.failed |= found.error
                    || matches!(found.kind, AnswerEventKind::Failed | AnswerEventKind::Error);
                self.ended |= matches!(found.kind, AnswerEventKind::End | AnswerEventKind::Failed);
            }
        }
    }

    /// Ends the event, and hides, trims or releases its bytes. `part` is the range of the event within this chunk.
    fn end_event(&mut self, part: Range<usize>, cuts: &mut ChunkCuts) {
        if let Some(hold) = &mut self.hold {
            let null = self.event.null_usage().filter(|_| !hold.overrun);
            hold.hidden = self.event.is_usage_only() && !hold.overrun;
            if hold.hidden {
                hold.held.clear();
                cuts.hidden.push(part);
            } else {
                if let Some(null) = null {
                    hold.trim(null, part.start, cuts);
                }
                if !hold.held.is_empty() {
                    cuts.released = std::mem::take(&mut hold.held);
                }
            }
            hold.overrun = false;
        }
        self.event.begin();
    }

    /// Divides the chunk into bytes to send at once, bytes to send after the settlement, and bytes to hold back. The
    /// last event of the chunk begins at `begin`.
    fn place(
        &mut self,
        chunk: &Bytes,
        begin: usize,
        mut cuts: ChunkCuts,
        passed: &mut MeteredChunk,
    ) {
        let mut keep = chunk.len();
        if let Some(hold) = &mut self.hold {
            // The held bytes belong to the last event.
            hold.overrun |= hold.held.len() + chunk.len() - begin > HELD_BYTES_MAX;
            if self.ended || hold.overrun {
                cuts.released.append(&mut hold.held);
            } else {
                keep = begin;
                hold.held.extend_from_slice(&chunk[begin..]);
            }
        }
        let end_from = cuts.end_from.unwrap_or(chunk.len());
        if !cuts.released.is_empty() {
            let to = if end_from == 0 { &mut passed.end } else { &mut passed.forward };
            to.push(Bytes::from(cuts.released));
        }
        let mut from = 0;
        for hidden in cuts.hidden.into_iter().chain(std::iter::once(keep..keep)) {
            let split = end_from.clamp(from, hidden.start);
            forward(&mut passed.forward, chunk, from..split);
            forward(&mut passed.end, chunk, split..hidden.start);
            from = hidden.end;
        }
        if cuts.trimmed && passed.forward.len() > 1 {
            // Joins the parts, because one buffer is cheaper to send than several.
            passed.forward = vec![Bytes::from(passed.forward.concat())];
        }
    }

    fn unjudged_text(&self) -> u64 {
        if self.event.meaning.is_some() { 0 } else { self.event.document.found().text_bytes }
    }
}

impl HeldEvent {
    /// Cuts a range out of the event that ends in this chunk. The event consists of the held bytes and of the chunk's
    /// bytes from `begin` on.
    fn trim(&mut self, part: Range<usize>, begin: usize, cuts: &mut ChunkCuts) {
        let held = self.held.len();
        let in_chunk = |at: usize| begin + at.saturating_sub(held);
        let rest = in_chunk(part.start)..in_chunk(part.end);
        if !rest.is_empty() {
            cuts.hidden.push(rest);
        }
        self.held.drain(part.start.min(held)..part.end.min(held));
        cuts.trimmed = true;
    }
}

fn forward(to: &mut Vec<Bytes>, chunk: &Bytes, part: Range<usize>) {
    if !part.is_empty() {
        to.push(chunk.slice(part));
    }
}

impl StreamEvent {
    fn new(shape: AnswerShape) -> Self {
        Self {
            document: AnswerDocument::new(shape),
            head: [0; DONE.len()],
            data_bytes: 0,
            line_over: false,
            begun: false,
            meaning: None,
            data_at: None,
            lines: false,
        }
    }

    /// Resets the state for the next event.
    fn begin(&mut self) {
        self.document.restart();
        self.data_bytes = 0;
        self.line_over = false;
        self.begun = false;
        self.meaning = None;
        self.data_at = None;
        self.lines = false;
    }

    fn data(&mut self, data: &[u8]) {
        if std::mem::take(&mut self.line_over) {
            self.lines = true;
            self.feed(b"\n");
        }
        self.feed(data);
    }

    fn feed(&mut self, data: &[u8]) {
        let begun = usize::try_from(self.data_bytes).unwrap_or(usize::MAX);
        let free = self.head.get_mut(begun..).unwrap_or_default();
        let taken = free.len().min(data.len());
        free[..taken].copy_from_slice(&data[..taken]);
        self.data_bytes += data.len() as u64;
        self.document.feed(data);
    }

    /// Returns the meaning of the event in the first call in which the meaning is known. Returns `None` in all earlier
    /// and later calls. `whole` is true at the end of the event. The meaning is then always known if the event has
    /// data.
    fn classify(&mut self, whole: bool) -> Option<StreamEventMeaning> {
        if self.meaning.is_some() || self.data_bytes == 0 {
            return None;
        }
        let done = self.data_bytes >= DONE.len() as u64 && self.head == DONE;
        if done {
            self.meaning = Some(StreamEventMeaning::Done);
        } else if whole || self.document.is_done() {
            self.meaning = Some(StreamEventMeaning::Document(self.document.found()));
        }
        self.meaning
    }

    /// Returns true if this is the usage event that OpenAI's servers send, if asked to, before the end of a stream.
    /// Such an event has a usage and an empty list of choices.
    fn is_usage_only(&self) -> bool {
        match self.meaning {
            Some(StreamEventMeaning::Document(found)) => {
                self.document.is_done()
                    && found.choices == ChoicesState::Empty
                    && found.report.is_some()
                    && !found.error
            }
            _ => false,
        }
    }

    /// Returns the range within the event of a `"usage":null`, which OpenAI's servers put into every other event if
    /// usage was requested.
    fn null_usage(&self) -> Option<Range<usize>> {
        let (start, end) = self.document.null_usage()?;
        // If data spans several lines, offsets in the data and in the event differ. No server writes events that way.
        let data_at = self.data_at.filter(|_| !self.lines)?;
        let place = |at: u64| usize::try_from(at).ok()?.checked_add(data_at);
        Some(place(start)?..place(end)?)
    }
}
