//! An answer that comes as events. They are read as they pass; only where a usage event must be hidden is an event held
//! back until it is whole, because only then is it known for what it is.

use std::ops::Range;

use bytes::Bytes;

use super::document::{Choices, Document, Found, Kind};
use super::event_lines::{EventLines, Piece};
use super::path::Shape;
use super::tally::Tally;
use super::{Measured, Passed, Usage};

/// A longer event is no usage event, and is not held back any more.
const HELD_BYTES_MAX: usize = 1 << 20;

/// The data that ends a stream of OpenAI's.
const DONE: &[u8] = b"[DONE]";

/// A stream that passes.
pub(super) struct Stream {
    lines: EventLines,
    event: Event,
    hold: Option<Hold>,
    tally: Tally,
    /// All data that passed: what an upstream says it used is held against it.
    data_bytes: u64,
    spoke: bool,
    /// A reason has passed why the model stopped: only usage and the end are to come.
    finished: bool,
    ended: bool,
    failed: bool,
}

/// What of the stream is held back.
#[derive(Default)]
struct Hold {
    /// The event in progress, as far as it came with earlier chunks.
    held: Vec<u8>,
    /// The event in progress grew too long to be held.
    overrun: bool,
    /// The event before was hidden.
    hidden: bool,
}

/// The event in progress.
struct Event {
    document: Document,
    head: [u8; DONE.len()],
    data_bytes: u64,
    /// A line of data is over: another one is joined to it by a line feed.
    line_over: bool,
    begun: bool,
    judged: Option<Verdict>,
    /// Where in the event its data begins.
    data_at: Option<usize>,
    /// Its data is on several lines.
    lines: bool,
}

/// What an event was.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Done,
    Document(Found),
}

/// How a chunk is cut up.
#[derive(Default)]
struct Cuts {
    hidden: Vec<Range<usize>>,
    /// Where the event begins that ends the answer.
    end_from: Option<usize>,
    /// What was held of an event that ended with this chunk.
    released: Vec<u8>,
    /// Whether anything was taken out of the middle of an event.
    trimmed: bool,
}

impl Stream {
    pub(super) fn new(shape: Shape, hide_usage: bool, tally: Tally) -> Self {
        let hides = hide_usage && shape.route.usage_on_demand();
        Self {
            lines: EventLines::new(),
            event: Event::new(shape),
            hold: hides.then(Hold::default),
            tally,
            data_bytes: 0,
            spoke: false,
            finished: false,
            ended: false,
            failed: false,
        }
    }

    pub(super) fn pass(&mut self, chunk: &Bytes) -> Passed {
        let mut passed = Passed::default();
        if self.ended {
            passed.forward.push(chunk.clone());
            return passed;
        }
        let mut cuts = Cuts::default();
        let mut begin = self.late_line_feed(chunk, &mut cuts);
        let mut rest = &chunk[..];
        let spoke = self.spoke;
        while let Some(piece) = self.lines.next(&mut rest) {
            let at = chunk.len() - rest.len();
            match piece {
                Piece::Data(data) => {
                    let held = self.hold.as_ref().map_or(0, |hold| hold.held.len());
                    self.event.data_at.get_or_insert(held + at - data.len() - begin);
                    self.data(data);
                }
                Piece::DataEnd => {
                    self.event.line_over = true;
                    self.judge(false);
                }
                Piece::Blank => self.judge(true),
            }
            if self.ended {
                cuts.end_from = Some(begin);
                break;
            }
            if piece == Piece::Blank {
                self.end_event(begin..at, &mut cuts);
                begin = at;
            }
        }
        passed.first_token = self.spoke && !spoke;
        passed.terminal = self.ended;
        self.event.begun |= begin < chunk.len();
        self.place(chunk, begin, cuts, &mut passed);
        passed
    }

    pub(super) fn has_finished(&self) -> bool {
        self.finished || self.ended
    }

    pub(super) fn so_far(&self) -> Usage {
        self.tally.so_far(self.unjudged_text())
    }

    pub(super) fn says_cached(&self) -> bool {
        self.tally.says_cached()
    }

    pub(super) fn measured(&self) -> Measured {
        self.tally.measured(self.unjudged_text(), self.ended && !self.failed)
    }

    pub(super) fn id(&self) -> Option<&str> {
        self.event.document.id()
    }

    /// The stream is over. An event that lacks its empty line counts, as clients take it, too.
    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        self.judge(true);
        let hidden = self.event.is_usage_only();
        self.event.begin();
        let held =
            self.hold.take().map(|hold| hold.held).filter(|held| !held.is_empty() && !hidden);
        held.map(Bytes::from).into_iter().collect()
    }

    /// An LF that is half of the last event's end comes with this chunk: it shares that event's fate. Says where the
    /// chunk's own part begins.
    fn late_line_feed(&self, chunk: &Bytes, cuts: &mut Cuts) -> usize {
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

    /// Looks at the event once it can be understood: at the end of a line of data that ends a document, or else at the
    /// event's own end.
    fn judge(&mut self, whole: bool) {
        let Some(verdict) = self.event.judge(whole) else { return };
        match verdict {
            Verdict::Done => self.ended = true,
            Verdict::Document(found) => {
                self.tally.add(found, self.data_bytes);
                self.spoke |= found.text_bytes > 0;
                self.finished |= found.finished;
                self.failed |= found.error || matches!(found.kind, Kind::Failed | Kind::Error);
                self.ended |= matches!(found.kind, Kind::End | Kind::Failed);
            }
        }
    }

    /// The event is over; the part of it that came with this chunk is given.
    fn end_event(&mut self, part: Range<usize>, cuts: &mut Cuts) {
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

    /// Puts the chunk where it belongs: forward, to the end, or aside. The last event's part begins at `begin`.
    fn place(&mut self, chunk: &Bytes, begin: usize, mut cuts: Cuts, passed: &mut Passed) {
        let mut keep = chunk.len();
        if let Some(hold) = &mut self.hold {
            // What is still held belongs to the last event.
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
            // One piece costs less on its way than several.
            passed.forward = vec![Bytes::from(passed.forward.concat())];
        }
    }

    fn unjudged_text(&self) -> u64 {
        if self.event.judged.is_some() { 0 } else { self.event.document.found().text_bytes }
    }
}

impl Hold {
    /// Takes a part out of the event that ends: of what is held, and of the chunk, in which the event goes on at `begin`.
    fn trim(&mut self, part: Range<usize>, begin: usize, cuts: &mut Cuts) {
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

impl Event {
    fn new(shape: Shape) -> Self {
        Self {
            document: Document::new(shape),
            head: [0; DONE.len()],
            data_bytes: 0,
            line_over: false,
            begun: false,
            judged: None,
            data_at: None,
            lines: false,
        }
    }

    /// Another event begins.
    fn begin(&mut self) {
        self.document.restart();
        self.data_bytes = 0;
        self.line_over = false;
        self.begun = false;
        self.judged = None;
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

    /// A verdict, the first time that there can be one.
    fn judge(&mut self, whole: bool) -> Option<Verdict> {
        if self.judged.is_some() || self.data_bytes == 0 {
            return None;
        }
        let done = self.data_bytes >= DONE.len() as u64 && self.head == DONE;
        if done {
            self.judged = Some(Verdict::Done);
        } else if whole || self.document.is_done() {
            self.judged = Some(Verdict::Document(self.document.found()));
        }
        self.judged
    }

    /// Whether this is the event that OpenAI's servers send before the end when asked for usage: no choice in it.
    fn is_usage_only(&self) -> bool {
        match self.judged {
            Some(Verdict::Document(found)) => {
                self.document.is_done()
                    && found.choices == Choices::Empty
                    && found.report.is_some()
                    && !found.error
            }
            _ => false,
        }
    }

    /// Where in the event a `"usage":null` stands, which OpenAI's servers put into every event when asked for usage.
    fn null_usage(&self) -> Option<Range<usize>> {
        let (start, end) = self.document.null_usage()?;
        // Over several lines data and event do not go in step; nobody writes events so.
        let data_at = self.data_at.filter(|_| !self.lines)?;
        let place = |at: u64| usize::try_from(at).ok()?.checked_add(data_at);
        Some(place(start)?..place(end)?)
    }
}
